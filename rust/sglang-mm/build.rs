//! Compile the one C file of this crate against the headers of the libjpeg it is linked to.
//!
//! A C compiler is all that is needed; `mozjpeg-sys` names the folders of its headers.

use std::env;

const SHIM: &str = "src/common/decode/jpeg/shim.c";

fn main() {
    println!("cargo:rerun-if-changed={SHIM}");
    let headers = env::var_os("DEP_JPEG_INCLUDE").expect("mozjpeg-sys names its headers");
    cc::Build::new()
        .file(SHIM)
        .includes(env::split_paths(&headers))
        .warnings(true)
        .compile("sglang_mm_jpeg");
}
