//! A fetch starts no thread and takes no more memory than its cap.
//!
//! The test is alone in its file, because other tests of the process would change the counts.

#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use sglang_mm_core::common::fetch::{ByteBudget, FetchPolicy, MAX_FETCH_BYTES};

/// Sends an endless body. Reports the number of threads at the time of the request.
fn answer(mut stream: TcpStream, threads: &mpsc::Sender<usize>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap() == 0 {
            return;
        }
        head.push(byte[0]);
    }
    threads.send(thread_count()).unwrap();
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    // Ends when the client closes the connection.
    let _ = io::copy(&mut io::repeat(7), &mut stream);
}

fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// The peak memory of the process in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_fetch_starts_no_thread_and_respects_the_cap() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // A name instead of an address, so that name resolution is covered too.
    let url = format!(
        "http://localhost:{}/",
        listener.local_addr().unwrap().port()
    );
    let (sender, threads) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), &sender);
        }
    });
    let (threads_before, peak_before) = (thread_count(), peak_memory());
    let budget = ByteBudget::new(u64::MAX);
    for _ in 0..3 {
        let error = FetchPolicy::open()
            .fetch(&url, &budget)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("exceeds 67108864 bytes"), "{error}");
        assert_eq!(threads_before, threads.recv().unwrap());
    }
    assert_eq!(threads_before, thread_count());
    assert_eq!(u64::MAX, budget.remaining());
    let rise = peak_memory() - peak_before;
    assert!(
        rise < MAX_FETCH_BYTES + (16 << 20),
        "{} MiB more",
        rise >> 20
    );
}
