//! The output does not depend on the number of threads, or on the feature `parallel`.
//!
//! The pool size is read once per process, so this test runs itself in a new process for each size.
//! The digest is pinned, so builds with and without `parallel` are compared too.

use std::{env, mem::MaybeUninit, process::Command};

use sglang_mm_core::common::{
    Size,
    patches::{Planar, ValueTable},
    resize::{Filter, PassOrder, Resample, Resizing, resize_rgb},
};
use sha2::{Digest, Sha256};

const PINNED: &str = "f7408a772c1897a4";

/// The digest of resizes that enlarge and shrink, with many bands and a shorter last band.
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

/// The patches of a padded image, in blocks of four patches: many bands.
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

/// The other test runs this one in new processes.
#[test]
fn output_has_the_pinned_digest() {
    assert_eq!(PINNED, digest());
}

#[test]
fn every_pool_size_gives_the_pinned_digest() {
    for threads in 1..=4 {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "output_has_the_pinned_digest"])
            .env("SGL_MM_RS_THREADS", threads.to_string())
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        // If no test matched, the run would succeed too.
        assert!(
            output.status.success() && stdout.contains("1 passed"),
            "{threads} threads: {stdout}"
        );
    }
}
