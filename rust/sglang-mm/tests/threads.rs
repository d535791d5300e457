//! Bytes do not depend on the number of threads, nor on whether there are any.
//!
//! The pool's size is read once, so each count has a process of its own: this test runs
//! itself again. The digest is pinned, so builds with and without `parallel` compare
//! with each other too.

use std::{env, mem::MaybeUninit, process::Command};

use sglang_mm_core::common::{
    Size,
    patches::{Planar, ValueTable},
    resize::{Filter, PassOrder, Resample, Resizing, resize_rgb},
};
use sha2::{Digest, Sha256};

const PINNED: &str = "f7408a772c1897a4";

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
        hasher.update(patches(&pixels, from, to, how));
    }
    let mut head = [0; 8];
    head.copy_from_slice(&hasher.finalize()[..8]);
    format!("{:016x}", u64::from_be_bytes(head))
}

/// The image in the middle of a canvas of patches, in blocks of four: many bands.
fn patches(pixels: &[u8], from: Size, to: Size, how: Resample) -> Vec<u8> {
    let table = ValueTable(
        [0, 1, 2].map(|channel| std::array::from_fn(|value| (value * 3 + channel) as u16 ^ 0x5a5a)),
    );
    let writer = Planar {
        table: &table,
        padding: [1, 2, 3],
        patch: 14,
        columns: 18,
        merge: 2,
        copies: 2,
        left: 20,
    };
    let resizing = Resizing {
        rgb: pixels,
        from,
        to,
        resample: how,
    };
    let mut out = vec![MaybeUninit::uninit(); writer.len(38).unwrap()];
    let values = writer.fill(&resizing, 15, 38, &mut out).unwrap();
    values.iter().copied().flat_map(u16::to_le_bytes).collect()
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
