//! Binds threads to the cores that the scheduler reserves for the server.
//!
//! Invariant: either each tokenizer and detokenizer thread is assigned a separate core, or no
//! thread is bound.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tracing::warn;

use crate::workers::OnStart;

/// For each kind of thread, the function that binds it. It runs first in the thread.
#[derive(Clone)]
pub(crate) struct Cores {
    http: Vec<usize>,
    pub(crate) tokenizer: OnStart,
    pub(crate) detokenizer: OnStart,
    pub(crate) to_scheduler: OnStart,
    pub(crate) from_scheduler: OnStart,
}

impl Cores {
    /// Assigns `cores` in order: to HTTP, tokenizers, detokenizers, then up to two to the
    /// threads `to-scheduler` and `from-scheduler`. If no core is left, these two share the
    /// cores of HTTP. If there are fewer cores than threads of the first three kinds, no thread is
    /// bound.
    pub(crate) fn plan(
        cores: &[usize],
        http: usize,
        tokenizers: usize,
        detokenizers: usize,
    ) -> Self {
        let needed = http + tokenizers + detokenizers;
        if cores.len() < needed {
            if !cores.is_empty() {
                let count = cores.len();
                warn!("{count} cores for {needed} threads: no thread is bound to a core");
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
            // `from-scheduler` gets the first core, `to-scheduler` the second if there is one.
            to_scheduler: bind_each(&routers[routers.len().saturating_sub(1)..]),
            from_scheduler: bind_each(&routers[..routers.len().min(1)]),
        }
    }

    /// Binds the threads of the HTTP runtime, which passes no index: a counter supplies it.
    pub(crate) fn http(&self) -> impl Fn() + Send + Sync + 'static {
        let (bind, next) = (bind_each(&self.http), AtomicUsize::new(0));
        move || bind(next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Binds thread `i` to `cores[i % cores.len()]`; without cores it binds none.
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
        warn!("core {core} is above the highest core that a thread can be bound to");
        return;
    }
    // SAFETY: all zeros are a valid, empty `cpu_set_t`. `CPU_SET` stays inside the set,
    // because `core` is below `CPU_SETSIZE`. The call reads exactly the size that it is given.
    let failed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    if failed != 0 {
        let error = std::io::Error::last_os_error();
        warn!("cannot bind a thread to core {core}: {error}");
    }
}

/// Binding is implemented for Linux only.
#[cfg(not(target_os = "linux"))]
fn bind(_core: usize) {}
