//! What a fetch takes of its process: no thread, and no more memory than its cap.
//!
//! One test in a file of its own, so that no other changes what is counted.

#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use sglang_mm_core::common::fetch::{ByteBudget, FetchPolicy, MAX_FETCH_BYTES};

/// Sends without end, and tells how many threads there were when it was asked.
fn answer(mut stream: TcpStream, threads: &mpsc::Sender<usize>) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap() == 0 {
            return;
        }
        seen.push(byte[0]);
    }
    threads.send(tasks()).unwrap();
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    // Ends when the client has had enough.
    let _ = io::copy(&mut io::repeat(7), &mut stream);
}

fn tasks() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// The most memory that the process ever had, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn no_thread_and_no_more_memory_than_the_cap() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // A name, so that resolving counts too.
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
    let (tasks_before, peak_before) = (tasks(), peak());
    let budget = ByteBudget::new(u64::MAX);
    for _ in 0..3 {
        let error = FetchPolicy::open()
            .fetch(&url, &budget)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("exceeds 67108864 bytes"), "{error}");
        assert_eq!(tasks_before, threads.recv().unwrap());
    }
    assert_eq!(tasks_before, tasks());
    assert_eq!(u64::MAX, budget.remaining());
    let rise = peak() - peak_before;
    assert!(
        rise < MAX_FETCH_BYTES + (16 << 20),
        "{} MiB more",
        rise >> 20
    );
}
