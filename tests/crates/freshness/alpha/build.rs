//! Reads a file of the crate and one outside it. Passes on the compiler's release, and whether a target was requested.

use std::{env, fs, path::Path, process::Command};

fn main() {
    let read = |path: &str| {
        println!("cargo::rerun-if-changed={path}");
        fs::read_to_string(path).expect(path).trim().to_owned()
    };
    println!("cargo::rustc-env=MADE={} {} {}", maker::WORD, read("data/number.txt"), read("../shared/number.txt"));

    let said = Command::new(env::var_os("RUSTC").expect("RUSTC")).arg("-vV").output().expect("rustc -vV").stdout;
    let said = String::from_utf8(said).expect("text");
    let release = said.lines().find_map(|line| line.strip_prefix("release: ")).expect("a release");
    println!("cargo::rustc-env=COMPILER={release}");

    let (target, out) = (env::var("TARGET").expect("TARGET"), env::var("OUT_DIR").expect("OUT_DIR"));
    let requested = Path::new(&out).components().any(|part| part.as_os_str() == target.as_str());
    println!("cargo::rustc-env=PLACE={}", if requested { "for-a-target" } else { "for-the-host" });
}
