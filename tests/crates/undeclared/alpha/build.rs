//! Reads a `.proto` outside the crate, the names in a folder, and a variable, and writes a source.

use std::{env, fs, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=../proto/inner/api.proto");
    println!("cargo:rerun-if-changed=../texts/folder");
    println!("cargo::rerun-if-env-changed=FX_SCRIPT");
    println!("cargo::rustc-env=FX_MADE=made");

    let api = fs::read_to_string("../proto/inner/api.proto").expect("api.proto");
    let mut names: Vec<String> = fs::read_dir("../texts/folder")
        .expect("folder")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    let script = env::var("FX_SCRIPT").unwrap_or_else(|_| "none".into());
    let text = format!("pub const GENERATED: &str = \"{}:{}:{}\";\n", api.trim(), names.join("+"), script);
    fs::write(Path::new(&env::var_os("OUT_DIR").expect("OUT_DIR")).join("generated.rs"), text).expect("generated.rs");
}
