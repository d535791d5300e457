//! The tokenizer threads.
//!
//! All threads take jobs from one queue, so a long prompt blocks only its own thread.
//!
//! Invariant: every job that a thread takes is answered exactly once, even if tokenizing panics.
//! A panic does not end the thread.

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{AutoSpecials, TextTokenizer, TokenizeError};
use crate::{
    error::RequestError,
    workers::{OnStart, Workers},
};

/// A text to tokenize.
pub(crate) struct Job {
    /// The text.
    pub text: String,
    /// Whether special tokens are added.
    pub special: AutoSpecials,
    /// The stop strings of the request.
    pub stop_strs: Vec<String>,
    /// Receives the result. Runs on a thread of the pool, so it must not block for long.
    pub answer: OnTokenized,
}

/// Callback for the result of a [`Job`].
pub(crate) type OnTokenized = Box<dyn FnOnce(Result<Tokenized, RequestError>) + Send>;

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prompts must not get into logs.
        f.debug_struct("Job")
            .field("bytes", &self.text.len())
            .finish_non_exhaustive()
    }
}

/// A tokenized prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tokenized {
    /// The tokens.
    pub ids: Vec<i32>,
    /// Length of the longest stop string in tokens; 0 if there are none.
    pub stop_str_max_len: i64,
}

/// The threads `tokenizer-{i}`. They end when every [`Pool::inbox`] is dropped and the queue is
/// empty.
#[derive(Debug)]
pub(crate) struct Pool {
    inbox: flume::Sender<Job>,
    workers: Workers,
}

impl Pool {
    /// Starts `threads` threads (at least one) with a queue of `capacity` jobs. `panics` counts
    /// panics; a job that panics is answered with an error.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub(crate) fn start(
        tokenizer: &Arc<dyn TextTokenizer>,
        threads: usize,
        capacity: usize,
        panics: &Arc<AtomicU64>,
        on_start: &OnStart,
    ) -> io::Result<Self> {
        let (inbox, jobs) = flume::bounded::<Job>(capacity);
        let body = |_| {
            let (tokenizer, jobs) = (Arc::clone(tokenizer), jobs.clone());
            let panics = Arc::clone(panics);
            move || {
                for job in jobs {
                    work(job, tokenizer.as_ref(), &panics);
                }
            }
        };
        let bodies = (0..threads.max(1)).map(body).collect();
        Ok(Self {
            workers: Workers::spawn("tokenizer", on_start, bodies)?,
            inbox,
        })
    }

    /// The sender of the job queue.
    #[must_use]
    pub(crate) fn inbox(&self) -> flume::Sender<Job> {
        self.inbox.clone()
    }

    /// Closes this handle's sender, and waits until `deadline` for the threads to finish all
    /// jobs. Returns how many threads still run.
    #[must_use]
    pub(crate) fn join(self, deadline: Instant) -> usize {
        drop(self.inbox);
        self.workers.join(deadline)
    }
}

fn work(job: Job, tokenizer: &dyn TextTokenizer, panics: &AtomicU64) {
    let Job {
        text,
        special,
        stop_strs,
        answer,
    } = job;
    let done = catch_unwind(AssertUnwindSafe(|| {
        tokenize(tokenizer, &text, special, &stop_strs)
    }));
    let result = if let Ok(done) = done {
        done.map_err(|error| RequestError::Tokenize(error.0))
    } else {
        panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(bytes = text.len(), "the tokenizer panicked on a prompt");
        Err(RequestError::Tokenize("it panicked on this prompt".into()))
    };
    if catch_unwind(AssertUnwindSafe(|| answer(result))).is_err() {
        panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!("the callback for a tokenized prompt panicked");
    }
}

fn tokenize(
    tokenizer: &dyn TextTokenizer,
    text: &str,
    special: AutoSpecials,
    stop_strs: &[String],
) -> Result<Tokenized, TokenizeError> {
    let ids = tokenizer.encode_with(text, special)?;
    let mut stop_str_max_len = 0;
    for stop in stop_strs {
        let tokens = tokenizer.encode_with(stop, AutoSpecials::Absent)?.len();
        stop_str_max_len = stop_str_max_len.max(tokens as i64);
    }
    Ok(Tokenized {
        ids,
        stop_str_max_len,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::{Duration, Instant},
    };

    use super::{Job, Pool, Tokenized};
    use crate::{
        error::RequestError,
        tokenizer::{
            AutoSpecials, ByteTokenizer, TextTokenizer,
            samples::{self, Panicking},
        },
        workers::OnStart,
    };

    fn start(tokenizer: &Arc<dyn TextTokenizer>, threads: usize) -> Pool {
        counted(tokenizer, threads, &Arc::default())
    }

    fn counted(
        tokenizer: &Arc<dyn TextTokenizer>,
        threads: usize,
        panics: &Arc<AtomicU64>,
    ) -> Pool {
        let on_start: OnStart = Arc::new(|_| ());
        Pool::start(tokenizer, threads, 64, panics, &on_start).unwrap()
    }

    fn bytes() -> Arc<dyn TextTokenizer> {
        Arc::new(ByteTokenizer::default())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    /// Sends a job and waits for its result.
    fn ask(
        pool: &Pool,
        text: &str,
        special: AutoSpecials,
        stops: &[&str],
    ) -> Result<Tokenized, RequestError> {
        let (reply, replies) = flume::bounded(1);
        let job = Job {
            text: text.to_owned(),
            special,
            stop_strs: stops.iter().map(ToString::to_string).collect(),
            answer: Box::new(move |result| drop(reply.send(result))),
        };
        pool.inbox().send(job).unwrap();
        replies.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    #[test]
    fn stop_string_length_is_counted_in_tokens() {
        let pool = start(&samples::byte_level_bpe(), 2);
        #[rustfmt::skip]
        let cases: &[(&[&str], i64)] = &[
            (&[],                     0),
            (&["<|end|>"],            1),
            (&["<|end|><|end|>", ""], 2),
            (&["한국어", "x"],        1),
            (&["zz"],                 2),
        ];
        for (stops, expected) in cases {
            let answer = ask(&pool, "x", AutoSpecials::Added, stops).unwrap();
            assert_eq!(*expected, answer.stop_str_max_len, "{stops:?}");
        }
        assert_eq!(0, pool.join(soon()));
    }

    #[test]
    fn special_tokens_are_added_on_request() {
        let tokenizer = samples::byte_level_bpe();
        let pool = start(&tokenizer, 1);
        let ids = |special| ask(&pool, "한국어", special, &[]).unwrap().ids;
        assert_eq!(
            ids(AutoSpecials::Added),
            [tokenizer.auto_specials(), ids(AutoSpecials::Absent)].concat()
        );
        assert_eq!(0, pool.join(soon()));
    }

    #[test]
    fn a_panic_fails_its_job_and_keeps_the_thread() {
        let tokenizer: Arc<dyn TextTokenizer> = Arc::new(Panicking {
            inner: bytes(),
            text: "boom",
            id: 0,
        });
        let panics = Arc::default();
        let pool = counted(&tokenizer, 2, &panics);
        for round in 1..=5 {
            for (text, stops) in [("boom", vec![]), ("a", vec!["boom"])] {
                let error = ask(&pool, text, AutoSpecials::Added, &stops).unwrap_err();
                assert_eq!(500, error.status());
                assert!(matches!(error, RequestError::Tokenize(_)), "{error}");
            }
            assert_eq!(2 * round, panics.load(Ordering::Relaxed));
        }
        assert_eq!(
            vec![97],
            ask(&pool, "a", AutoSpecials::Added, &[]).unwrap().ids
        );
        assert_eq!(0, pool.join(soon()));
    }

    #[test]
    fn a_panic_in_the_callback_keeps_the_thread() {
        let panics = Arc::default();
        let pool = counted(&bytes(), 1, &panics);
        let job = Job {
            text: "a".into(),
            special: AutoSpecials::Added,
            stop_strs: Vec::new(),
            answer: Box::new(|_| panic!("on purpose")),
        };
        pool.inbox().send(job).unwrap();
        assert!(ask(&pool, "a", AutoSpecials::Added, &[]).is_ok());
        assert_eq!(1, panics.load(Ordering::Relaxed));
    }

    #[test]
    fn queued_jobs_are_finished_before_the_threads_end() {
        let pool = start(&bytes(), 1);
        let (replies, answers) = flume::unbounded();
        let (hold, held) = flume::bounded::<()>(0);
        for text in ["a", "b", "c"] {
            let (replies, held) = (replies.clone(), held.clone());
            let answer = move |result: Result<Tokenized, RequestError>| {
                let _ = held.recv();
                replies.send(result.unwrap().ids).unwrap();
            };
            let job = Job {
                text: text.into(),
                special: AutoSpecials::Added,
                stop_strs: Vec::new(),
                answer: Box::new(answer),
            };
            pool.inbox().send(job).unwrap();
        }
        drop((replies, hold));
        assert_eq!(0, pool.join(soon()));
        assert_eq!(
            vec![vec![97], vec![98], vec![99]],
            answers.iter().collect::<Vec<_>>()
        );
    }
}
