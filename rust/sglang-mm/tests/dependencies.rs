//! A server links this crate without features. Then neither Python nor a thread pool is compiled.

use std::process::Command;

/// Packages that must not be linked into a server.
const FORBIDDEN: [&str; 4] = ["pyo3", "pyo3-ffi", "rayon", "rayon-core"];

#[test]
fn the_default_build_has_no_python_and_no_pool() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", "sglang-mm"])
        .args([
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let tree = String::from_utf8(output.stdout).unwrap();
    let packages: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(packages.contains(&"blake3"), "{tree}");
    for package in FORBIDDEN {
        assert!(!packages.contains(&package), "{package} in\n{tree}");
    }
}
