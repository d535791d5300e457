//! Where work fans out over threads, and the only place that may name rayon.
//!
//! With feature `parallel` work runs on one process-wide pool of our own: the host's
//! pools are not ours to fill, and ours has a name (`sgl-mm-0`, …) and a size
//! (`SGL_MM_RS_THREADS`, else the cores up to eight). Without the feature the same
//! functions are loops on the caller. A pool of one thread would not do: entering a
//! pool blocks the caller, so it would put all concurrent callers in one queue.
//!
//! Invariant: only order-preserving maps and writes to disjoint windows, never a
//! reduction. So bytes *and* errors are the same for every thread count and build.

#[cfg(feature = "parallel")]
mod pool;

/// Reads now what the pool would ask of the environment at its start.
#[cfg(feature = "python")]
pub(crate) fn read_environment() {
    #[cfg(feature = "parallel")]
    pool::size();
}

/// `f` of every item, in order; if several fail, the error of the lowest index.
///
/// # Errors
///
/// What `f` returned for the first item, in input order, that failed.
pub fn try_map<T, R, E, F>(items: &[T], f: F) -> Result<Vec<R>, E>
where
    T: Send + Sync,
    R: Send,
    E: Send,
    F: Fn(&T) -> Result<R, E> + Send + Sync,
{
    #[cfg(feature = "parallel")]
    if let Some(pool) = pool::shared() {
        return pool::try_map(pool, items, f);
    }
    items.iter().map(f).collect()
}

/// Hands `f` each window of `chunk` elements with its index; the last may be short.
///
/// # Panics
///
/// When `chunk` is 0.
pub fn for_chunks_mut<T, F>(buf: &mut [T], chunk: usize, f: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Send + Sync,
{
    assert_ne!(chunk, 0, "a window must hold at least one element");
    // One window is no fan-out: stay on this thread.
    #[cfg(feature = "parallel")]
    if buf.len() > chunk
        && let Some(pool) = pool::shared()
    {
        return pool::for_chunks_mut(pool, buf, chunk, f);
    }
    for (index, window) in buf.chunks_mut(chunk).enumerate() {
        f(index, window);
    }
}

/// As [`for_chunks_mut`], with scratch memory: windows that follow one another on one
/// thread share what `scratch` made, and a serial run needs it once.
///
/// # Errors
///
/// What `scratch` returned; some windows may have been handed out by then.
///
/// # Panics
///
/// When `chunk` is 0.
pub fn for_chunks_mut_with<T, S, E, I, F>(
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
    assert_ne!(chunk, 0, "a window must hold at least one element");
    #[cfg(feature = "parallel")]
    if buf.len() > chunk
        && let Some(pool) = pool::shared()
    {
        return pool::for_chunks_mut_with(pool, buf, chunk, scratch, f);
    }
    let mut scratch = scratch()?;
    for (index, window) in buf.chunks_mut(chunk).enumerate() {
        f(&mut scratch, index, window);
    }
    Ok(())
}

/// Runs `f` inside the pool, so that the fan-outs within it share one entry.
pub fn in_pool<R, F>(f: F) -> R
where
    R: Send,
    F: FnOnce() -> R + Send,
{
    #[cfg(feature = "parallel")]
    if let Some(pool) = pool::shared() {
        return pool.install(f);
    }
    f()
}

#[cfg(test)]
mod tests {
    use super::{for_chunks_mut, for_chunks_mut_with, in_pool, try_map};

    #[test]
    fn map_keeps_the_order() {
        let items: Vec<usize> = (0..1000).collect();
        let doubled: Result<Vec<usize>, ()> = try_map(&items, |item| Ok(item * 2));
        assert_eq!(Ok(items.iter().map(|item| item * 2).collect()), doubled);
        assert_eq!(Ok(vec![]), try_map(&[] as &[u8], |_| Ok::<u8, ()>(0)));
    }

    /// The first failing item is slow and the last is quick: time must not decide.
    #[test]
    fn lowest_index_wins() {
        let items: Vec<usize> = (0..64).collect();
        for _ in 0..20 {
            let failed = try_map(&items, |&item| match item {
                3 => {
                    for _ in 0..1000 {
                        std::thread::yield_now();
                    }
                    Err(item)
                }
                5.. => Err(item),
                _ => Ok(item),
            });
            assert_eq!(Err(3), failed);
        }
    }

    #[test]
    fn windows_are_disjoint_and_numbered() {
        for len in 0..20 {
            for chunk in 1..8 {
                let mut buf = vec![usize::MAX; len];
                in_pool(|| for_chunks_mut(&mut buf, chunk, |index, window| window.fill(index)));
                let expected: Vec<usize> = (0..len).map(|at| at / chunk).collect();
                assert_eq!(expected, buf, "{len} elements in windows of {chunk}");
            }
        }
    }

    /// Scratch that fails is the error; scratch that is kept sees its windows in order.
    #[test]
    fn scratch_is_shared_by_neighbours() {
        let mut buf = vec![0; 100];
        let fresh = || Ok::<_, ()>(None);
        for_chunks_mut_with(&mut buf, 7, fresh, |last, index, window| {
            assert!(last.replace(index).is_none_or(|last| last + 1 == index));
            window.fill(index + 1);
        })
        .unwrap();
        assert_eq!((0..100).map(|at| at / 7 + 1).collect::<Vec<_>>(), buf);
        for chunk in [7, 1000] {
            let failed = for_chunks_mut_with(&mut buf, chunk, || Err::<(), _>("no"), |(), _, _| ());
            assert_eq!(Err("no"), failed);
        }
    }

    #[test]
    #[should_panic(expected = "at least one element")]
    fn empty_windows_are_refused() {
        for_chunks_mut(&mut [0], 0, |_, _| ());
    }

    /// The build for servers must not start threads behind their back.
    #[cfg(not(feature = "parallel"))]
    #[test]
    fn serial_build_stays_on_the_caller() {
        let caller = std::thread::current().id();
        let items = [0; 64];
        let seen: Result<Vec<_>, ()> = try_map(&items, |_| Ok(std::thread::current().id()));
        assert!(seen.unwrap().iter().all(|id| *id == caller));
        assert_eq!(caller, in_pool(|| std::thread::current().id()));
        for_chunks_mut(&mut [0; 64], 1, |_, _| {
            assert_eq!(caller, std::thread::current().id());
        });
    }

    #[cfg(feature = "parallel")]
    #[test]
    fn pool_threads_carry_our_name() {
        // Another test of this process may be starting the pool.
        while super::pool::shared().is_none() {
            std::thread::yield_now();
        }
        let name = in_pool(|| std::thread::current().name().map(str::to_owned));
        assert!(name.is_some_and(|name| name.starts_with("sgl-mm-")));
    }
}
