//! Prefix tree for KV caching; so far its page hashes.
