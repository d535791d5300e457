//! The chained page digests that name KV-cache pages.
