//! Bytes do not depend on the number of threads, nor on whether there are any.
//!
//! The pool's size is read once, so each count has a process of its own: this test runs
//! itself again. The digest is pinned, so builds with and without `parallel` compare
//! with each other too.

use std::{env, process::Command};

use sglang_mm_core::common::{
    Size,
    resize::{Filter, PassOrder, Resample, resize_rgb},
};
use sha2::{Digest, Sha256};

const PINNED: &str = "7cd45795f9acf167";

/// Many bands in both passes, enlarging and shrinking, with a ragged last band.
fn digest() -> String {
    let from = Size {
        height: 301,
        width: 407,
    };
    let to = Size {
        height: 503,
        width: 211,
    };
    let pixels: Vec<u8> = (0..from.rgb_len().unwrap())
        .map(|at| (at * at / 7 % 251) as u8)
        .collect();
    let mut hasher = Sha256::new();
    for how in [
        Resample::Pil(Filter::Lanczos, PassOrder::Pillow13),
        Resample::Pil(Filter::Bicubic, PassOrder::Horizontal),
        Resample::AtenU8,
    ] {
        hasher.update(resize_rgb(&pixels, from, to, how).unwrap());
    }
    let mut head = [0; 8];
    head.copy_from_slice(&hasher.finalize()[..8]);
    format!("{:016x}", u64::from_be_bytes(head))
}

/// Also what each of the processes below runs.
#[test]
fn pinned() {
    assert_eq!(PINNED, digest());
}

#[test]
fn every_count_gives_the_pinned_bytes() {
    for threads in 1..=4 {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "pinned"])
            .env("SGL_MM_RS_THREADS", threads.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // No test at all would be a success too.
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{threads} threads: {said}"
        );
    }
}
