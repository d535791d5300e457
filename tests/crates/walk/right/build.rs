//! Reads all files of a folder and a variable, and writes a source.

use std::{env, fs, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=../texts/listed");
    println!("cargo::rerun-if-env-changed=FX_SCRIPT");

    let mut texts: Vec<String> = fs::read_dir("../texts/listed")
        .expect("a folder")
        .map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a text").trim().to_owned())
        .collect();
    texts.sort();
    texts.push(env::var("FX_SCRIPT").unwrap_or_else(|_| "none".to_owned()));
    let source = format!("const LISTED: &str = {:?};\n", texts.join("+"));
    fs::write(Path::new(&env::var_os("OUT_DIR").expect("OUT_DIR")).join("listed.rs"), source).expect("listed.rs");
}
