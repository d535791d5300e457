//! What a server links: without features neither Python nor a thread pool is even
//! compiled.

use std::process::Command;

/// Whatever one of these pulls in would be in the server's binary.
const NOT_FOR_SERVERS: [&str; 5] = ["numpy", "pyo3", "pyo3-ffi", "rayon", "rayon-core"];

#[test]
fn neither_python_nor_a_pool_is_compiled_in() {
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
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let tree = String::from_utf8(output.stdout).unwrap();
    let packages: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(packages.contains(&"blake3"), "{tree}");
    for package in NOT_FOR_SERVERS {
        assert!(!packages.contains(&package), "{package} in\n{tree}");
    }
}
