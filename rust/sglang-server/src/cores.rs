//! Which threads run on which cores, where the scheduler has set some aside for us.
//!
//! Invariant: threads that compute have a core each, or nobody is bound to any.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tracing::warn;

use crate::workers::OnStart;

/// What each kind of thread does first.
#[derive(Clone)]
pub(crate) struct Cores {
    http: Vec<usize>,
    pub(crate) tokenizer: OnStart,
    pub(crate) detokenizer: OnStart,
    pub(crate) intake: OnStart,
    pub(crate) dispatcher: OnStart,
}

impl Cores {
    /// `cores` in order: HTTP, tokenizers, detokenizers, then up to two for the threads
    /// that route, which else share those of HTTP. Too few: nobody is bound.
    pub(crate) fn plan(
        cores: &[usize],
        http: usize,
        tokenizers: usize,
        detokenizers: usize,
    ) -> Self {
        let needed = http + tokenizers + detokenizers;
        if cores.len() < needed {
            if !cores.is_empty() {
                let there = cores.len();
                warn!("{there} cores for {needed} threads: none is bound to a core");
            }
            return Self::new(&[], &[], &[], &[]);
        }
        let (http, rest) = cores.split_at(http);
        let (tokenizers, rest) = rest.split_at(tokenizers);
        let (detokenizers, routers) = rest.split_at(detokenizers);
        let routers = if routers.is_empty() {
            http
        } else {
            &routers[..routers.len().min(2)]
        };
        Self::new(http, tokenizers, detokenizers, routers)
    }

    fn new(
        http: &[usize],
        tokenizers: &[usize],
        detokenizers: &[usize],
        routers: &[usize],
    ) -> Self {
        Self {
            http: http.to_vec(),
            tokenizer: bind_each(tokenizers),
            detokenizer: bind_each(detokenizers),
            // The dispatcher has the first, the intake the second if there is one.
            intake: bind_each(&routers[routers.len().saturating_sub(1)..]),
            dispatcher: bind_each(&routers[..routers.len().min(1)]),
        }
    }

    /// For the runtime, which numbers its threads by itself.
    pub(crate) fn http(&self) -> impl Fn() + Send + Sync + 'static {
        let (bind, next) = (bind_each(&self.http), AtomicUsize::new(0));
        move || bind(next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Binds thread `i` to `cores[i]`, and from the beginning again.
fn bind_each(cores: &[usize]) -> OnStart {
    let cores = cores.to_vec();
    Arc::new(move |index| {
        if let Some(core) = cores.get(index % cores.len().max(1)) {
            bind(*core);
        }
    })
}

#[cfg(target_os = "linux")]
fn bind(core: usize) {
    if core >= libc::CPU_SETSIZE as usize {
        warn!("core {core} is beyond those that a thread can be bound to");
        return;
    }
    // SAFETY: a set is plain bits, of which zeros are none; `CPU_SET` is within it, as was
    // just compared; and the call reads as many bytes as the set has.
    let failed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    if failed != 0 {
        let error = std::io::Error::last_os_error();
        warn!("a thread is not bound to core {core}: {error}");
    }
}

/// Elsewhere threads run where the system puts them.
#[cfg(not(target_os = "linux"))]
fn bind(_core: usize) {}
