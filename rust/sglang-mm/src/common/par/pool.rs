//! The thread pool: its size, when it starts, and when it must not be used.
//!
//! Invariant: the pool starts at the first parallel call, never earlier. A missing pool is not an
//! error: the caller then runs plain loops with the same results.

use std::{
    process,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};

/// The environment variable for the pool size. Read once, at the first parallel call at the latest.
const THREADS_VARIABLE: &str = "SGL_MM_RS_THREADS";

/// The largest default size. More threads do not speed up one image, and the host has other work.
const DEFAULT_MAX_THREADS: usize = 8;

/// The upper limit for the variable, so that a typing error cannot exhaust the threads of the system.
const MAX_THREADS: usize = 1024;

struct Shared {
    /// The process that started the threads.
    owner: u32,
    pool: ThreadPool,
}

/// The process-wide pool.
///
/// `None` in three cases:
///
/// - The system refused the threads.
/// - In a forked child. It inherits the pool but not the threads, and would wait for them forever.
/// - While another thread starts the pool. A child forked at that moment inherits a start that
///   never finishes, so waiting for the start could block forever too.
pub(super) fn shared() -> Option<&'static ThreadPool> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    static SHARED: OnceLock<Shared> = OnceLock::new();
    if !STARTED.load(Ordering::Relaxed)
        && !STARTED.swap(true, Ordering::Relaxed)
        && let Some(started) = start()
    {
        // Only the thread that swapped gets here, so `SHARED` was not set before.
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

/// The number of threads that the pool has or will have.
pub(super) fn size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let requested = std::env::var(THREADS_VARIABLE).ok();
        let cores = thread::available_parallelism().ok().map(usize::from);
        pool_size(requested.as_deref(), cores)
    })
}

fn pool_size(requested: Option<&str>, cores: Option<usize>) -> usize {
    requested
        .and_then(|text| text.parse().ok())
        .filter(|&count| count > 0)
        .unwrap_or_else(|| {
            cores.map_or(DEFAULT_MAX_THREADS, |count| count.min(DEFAULT_MAX_THREADS))
        })
        .min(MAX_THREADS)
}

/// See [`super::try_map`]. Items after a known failure are skipped, because they cannot change
/// the result.
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
            |cached, (index, window)| {
                let value = match cached.take() {
                    Some(value) => value,
                    None => scratch()?,
                };
                f(cached.insert(value), index, window);
                Ok(())
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::pool_size;

    #[test]
    fn size_from_variable_and_cores() {
        #[rustfmt::skip]
        let cases = [
            ("few cores",       None,       Some(2),  2),
            ("many cores",      None,       Some(64), 8),
            ("cores unknown",   None,       None,     8),
            ("requested",       Some("3"),  Some(64), 3),
            ("more than cores", Some("64"), Some(2),  64),
            ("too many",        Some("99999999"), Some(2), 1024),
            ("zero",            Some("0"),  Some(4),  4),
            ("negative",        Some("-1"), Some(4),  4),
            ("not a number",    Some("x"),  Some(4),  4),
            ("empty",           Some(""),   Some(4),  4),
        ];
        for (name, requested, cores, expected) in cases {
            assert_eq!(expected, pool_size(requested, cores), "{name}");
        }
    }
}
