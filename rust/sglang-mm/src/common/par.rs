//! Distributes work over threads. No other module uses rayon.
//!
//! With feature `parallel` work runs on one process-wide pool of our own, so that it does not
//! occupy the pools of the host program. Its threads are called `sgl-mm-0` and so on, and their
//! number is `SGL_MM_RS_THREADS`, or else the number of cores up to eight. Without the feature
//! the same functions are loops on the calling thread. A pool of one thread would not replace
//! those loops: entering a pool blocks the caller, so concurrent callers would run in sequence.
//!
//! Invariant: all work is maps that keep the order and writes to disjoint windows. There is no
//! reduction. So output *and* errors are the same for every thread count and every build.

#[cfg(feature = "parallel")]
mod pool;

/// Reads the environment variable for the pool size now instead of at the start of the pool.
#[cfg(feature = "python")]
pub(crate) fn read_environment() {
    #[cfg(feature = "parallel")]
    pool::size();
}

/// Applies `f` to every item and returns the results in order.
///
/// # Errors
///
/// If several items fail, the error of the lowest index.
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

/// Calls `f` for each window of `chunk` elements with its index. The last window may be shorter.
///
/// # Panics
///
/// If `chunk` is 0.
pub fn for_chunks_mut<T, F>(buf: &mut [T], chunk: usize, f: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Send + Sync,
{
    assert_ne!(chunk, 0, "a window must hold at least one element");
    // A single window stays on this thread.
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

/// As [`for_chunks_mut`], with scratch memory: consecutive windows on one thread share the result
/// of one call to `scratch`. A serial run calls `scratch` once.
///
/// # Errors
///
/// The error of `scratch`. Some windows may have been processed before it.
///
/// # Panics
///
/// If `chunk` is 0.
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

/// Runs `f` inside the pool, so that parallel calls within it do not enter the pool again.
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
    fn map_preserves_order() {
        let items: Vec<usize> = (0..1000).collect();
        let doubled: Result<Vec<usize>, ()> = try_map(&items, |item| Ok(item * 2));
        assert_eq!(Ok(items.iter().map(|item| item * 2).collect()), doubled);
        assert_eq!(Ok(vec![]), try_map(&[] as &[u8], |_| Ok::<u8, ()>(0)));
    }

    /// The failing item with the lowest index is the slowest, so timing must not decide.
    #[test]
    fn map_returns_the_error_of_the_lowest_index() {
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

    /// Also checks that an error of `scratch` is returned.
    #[test]
    fn consecutive_windows_share_scratch() {
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

    #[cfg(feature = "parallel")]
    #[test]
    fn pool_threads_have_our_name() {
        // Another test of this process may be starting the pool.
        while super::pool::shared().is_none() {
            std::thread::yield_now();
        }
        let name = in_pool(|| std::thread::current().name().map(str::to_owned));
        assert!(name.is_some_and(|name| name.starts_with("sgl-mm-")));
    }
}
