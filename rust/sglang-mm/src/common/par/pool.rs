//! The pool itself: how large it is, when it starts, and when it must not be used.
//!
//! Invariant: it starts at the first fan-out and never before, and its absence is no
//! failure. Whoever gets no pool runs plain loops and gets the same bytes.

use std::{
    process,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};

/// Sets the size of the pool; read once, at the first fan-out at the latest.
const THREADS_VARIABLE: &str = "SGL_MM_RS_THREADS";

/// More threads than this do not make one image faster, and the host has other work.
const DEFAULT_LIMIT: usize = 8;

/// Nor is a mistaken number to take all the threads of the machine.
const MOST: usize = 1024;

struct Shared {
    /// The process that started the threads.
    owner: u32,
    pool: ThreadPool,
}

/// The process-wide pool.
///
/// Nothing when the system refused the threads, and nothing in a forked child: it
/// inherits the pool but not its threads, and would wait for them forever. Nothing
/// while another thread starts the pool, for the same reason: a child that was forked
/// just then inherits a start that never ends.
pub(super) fn shared() -> Option<&'static ThreadPool> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    static SHARED: OnceLock<Shared> = OnceLock::new();
    if !STARTED.load(Ordering::Relaxed)
        && !STARTED.swap(true, Ordering::Relaxed)
        && let Some(started) = start()
    {
        // Only the thread that swapped comes here, so nothing was set before.
        let _ = SHARED.set(started);
    }
    let shared = SHARED.get()?;
    (shared.owner == process::id()).then_some(&shared.pool)
}

fn start() -> Option<Shared> {
    let pool = ThreadPoolBuilder::new()
        .num_threads(size())
        .thread_name(|index| format!("sgl-mm-{index}"))
        .build()
        .ok()?;
    Some(Shared {
        owner: process::id(),
        pool,
    })
}

/// How many threads the pool has, or will have.
pub(super) fn size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let asked = std::env::var(THREADS_VARIABLE).ok();
        let cores = thread::available_parallelism().ok().map(usize::from);
        pool_size(asked.as_deref(), cores)
    })
}

fn pool_size(asked: Option<&str>, cores: Option<usize>) -> usize {
    asked
        .and_then(|text| text.parse().ok())
        .filter(|&count| count > 0)
        .unwrap_or_else(|| cores.map_or(DEFAULT_LIMIT, |count| count.min(DEFAULT_LIMIT)))
        .min(MOST)
}

/// See [`super::try_map`]. Items behind a known failure are skipped: they cannot
/// change the answer.
pub(super) fn try_map<T, R, E, F>(pool: &ThreadPool, items: &[T], f: F) -> Result<Vec<R>, E>
where
    T: Sync,
    R: Send,
    E: Send,
    F: Fn(&T) -> Result<R, E> + Send + Sync,
{
    let first_failed = AtomicUsize::new(usize::MAX);
    let run = |(index, item)| {
        if index > first_failed.load(Ordering::Relaxed) {
            return None;
        }
        let result = f(item);
        if result.is_err() {
            first_failed.fetch_min(index, Ordering::Relaxed);
        }
        Some(result)
    };
    let results: Vec<Option<Result<R, E>>> =
        pool.install(|| items.par_iter().enumerate().map(run).collect());
    results.into_iter().flatten().collect()
}

/// See [`super::for_chunks_mut`].
pub(super) fn for_chunks_mut<T, F>(pool: &ThreadPool, buf: &mut [T], chunk: usize, f: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Send + Sync,
{
    pool.install(|| {
        buf.par_chunks_mut(chunk)
            .enumerate()
            .for_each(|(index, window)| f(index, window));
    });
}

/// See [`super::for_chunks_mut_with`].
pub(super) fn for_chunks_mut_with<T, S, E, I, F>(
    pool: &ThreadPool,
    buf: &mut [T],
    chunk: usize,
    scratch: I,
    f: F,
) -> Result<(), E>
where
    T: Send,
    E: Send,
    I: Fn() -> Result<S, E> + Send + Sync,
    F: Fn(&mut S, usize, &mut [T]) + Send + Sync,
{
    pool.install(|| {
        buf.par_chunks_mut(chunk).enumerate().try_for_each_init(
            || None,
            |kept, (index, window)| {
                let made = match kept.take() {
                    Some(made) => made,
                    None => scratch()?,
                };
                f(kept.insert(made), index, window);
                Ok(())
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::pool_size;

    #[test]
    fn sizes() {
        #[rustfmt::skip]
        let cases = [
            ("few cores",       None,       Some(2),  2),
            ("many cores",      None,       Some(64), 8),
            ("cores unknown",   None,       None,     8),
            ("asked",           Some("3"),  Some(64), 3),
            ("asked for more",  Some("64"), Some(2),  64),
            ("too many",        Some("99999999"), Some(2), 1024),
            ("zero",            Some("0"),  Some(4),  4),
            ("negative",        Some("-1"), Some(4),  4),
            ("not a number",    Some("x"),  Some(4),  4),
            ("empty",           Some(""),   Some(4),  4),
        ];
        for (name, asked, cores, expected) in cases {
            assert_eq!(expected, pool_size(asked, cores), "{name}");
        }
    }
}
