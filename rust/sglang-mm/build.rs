//! Compiles the one C file of this crate against the headers of the libjpeg that it links.
//!
//! This needs only a C compiler. The build script of `mozjpeg-sys` exports its include folders.

use std::env;

const SHIM: &str = "src/common/decode/jpeg/shim.c";

fn main() {
    println!("cargo:rerun-if-changed={SHIM}");
    let headers = env::var_os("DEP_JPEG_INCLUDE")
        .expect("the build script of mozjpeg-sys exports its include folders");
    cc::Build::new()
        .file(SHIM)
        .includes(env::split_paths(&headers))
        .warnings(true)
        .compile("sglang_mm_jpeg");
}
