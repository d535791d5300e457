"""
The message of each error, and its pickling.
"""

from __future__ import annotations

import pickle

import pytest

import rust_ext_loader as rel
from rust_ext_loader import _errors

# fmt: off
SAMPLES = [
    pytest.param(
        rel.ManifestError("ws/alpha/Cargo.toml", "`features` must be a list of strings, not 1", 7), "manifest",
        "ws/alpha/Cargo.toml, line 7: `features` must be a list of strings, not 1", id="manifest, line known",
    ),
    pytest.param(
        rel.ManifestError("ws/alpha/Cargo.toml", "`package.name` is missing"), "manifest",
        "ws/alpha/Cargo.toml: `package.name` is missing", id="manifest, line unknown",
    ),
    pytest.param(
        rel.LockfileMissing("ws/Cargo.lock"), "lockfile-missing",
        "ws/Cargo.lock does not exist; run `cargo generate-lockfile` beside it and commit the file", id="no lockfile",
    ),
    pytest.param(
        rel.LockfileOutdated("ws/Cargo.lock", "serde"), "lockfile-outdated",
        "ws/Cargo.lock does not contain package `serde`; run `cargo check` beside it to update it", id="old lockfile",
    ),
    pytest.param(
        rel.DuplicateModule("fx.alpha", ("a/Cargo.toml", "b/Cargo.toml")), "duplicate-module",
        "fx.alpha is declared by a/Cargo.toml and by b/Cargo.toml; keep one `python-module` line", id="duplicate",
    ),
    pytest.param(
        rel.ExtensionNotFound("fx.alpha", "it is not built", "build it"), "not-found",
        "no Rust extension fx.alpha: it is not built; build it", id="not found, with advice",
    ),
    pytest.param(
        rel.ExtensionNotFound("fx.alpha", "it is not built"), "not-found",
        "no Rust extension fx.alpha: it is not built", id="not found",
    ),
    pytest.param(
        rel.AlreadyImported("fx.alpha"), "already-imported",
        "fx.alpha is already imported, and a native module cannot be replaced in place; "
        "start a new process", id="imported",
    ),
    pytest.param(
        rel.ToolchainMissing("cargo", "missing", "not found on PATH", "fx.alpha"), "toolchain-missing",
        "fx.alpha must be built, but `cargo` is not usable: not found on PATH; install Rust (https://rustup.rs) "
        "or put it on PATH, "
        "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never", id="no cargo",
    ),
    pytest.param(
        rel.ToolchainMissing("cargo", "no-home", "it has no home"), "toolchain-missing",
        "`cargo` is not usable: it has no home; set CARGO_HOME to a folder of your own, "
        "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never", id="no home",
    ),
    pytest.param(
        rel.ToolchainMissing("rustc", "no-default", "rustup has no default toolchain"), "toolchain-missing",
        "`rustc` is not usable: rustup has no default toolchain; run `rustup default stable`, "
        "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never", id="no default toolchain",
    ),
    pytest.param(
        rel.ToolchainMissing("rustc", "not-installed", "1.2.3 is not installed"), "toolchain-missing",
        "`rustc` is not usable: 1.2.3 is not installed; install that toolchain (`rustup toolchain install NAME`), "
        "or remove the setting that selects it (RUSTUP_TOOLCHAIN, a rust-toolchain file, an override), "
        "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never", id="toolchain not installed",
    ),
    pytest.param(
        rel.ToolchainMissing("rustc", "too-old", "1.60 cannot read edition 2024"), "toolchain-missing",
        "`rustc` is not usable: 1.60 cannot read edition 2024; run `rustup update`, "
        "or remove the setting that selects the old toolchain (RUSTUP_TOOLCHAIN, a rust-toolchain file, an override), "
        "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never", id="old compiler",
    ),
    pytest.param(
        rel.ToolchainMissing("cargo", "no-answer", "it did not answer within 30 s", "fx.alpha", "src/lib.rs changed"),
        "toolchain-missing",
        "fx.alpha must be built (src/lib.rs changed), but `cargo` is not usable: it did not answer within 30 s; "
        "run `cargo -vV` to see why it hangs, or raise RUST_EXT_PROBE_TIMEOUT (seconds) if it is only slow, "
        "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never", id="no answer",
    ),
    pytest.param(
        rel.ToolchainMissing("rustc", "broken", "it crashed"), "toolchain-missing",
        "`rustc` is not usable: it crashed; run `rustc -vV` to see its error, "
        "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never", id="broken compiler",
    ),
    pytest.param(
        rel.BuildFailed("fx.alpha", "the compiler refused it", ("cargo", "rustc"), "error: no\n", "logs/1.log"),
        "build-failed",
        "fx.alpha could not be built: the compiler refused it\nerror: no\ncommand: cargo rustc\n"
        "full log: logs/1.log", id="build failed",
    ),
    pytest.param(
        rel.BuildFailed("fx.alpha", "time limit of 3 s", ("cargo", "rustc"), "", None), "build-failed",
        "fx.alpha could not be built: time limit of 3 s\ncommand: cargo rustc", id="build failed without output",
    ),
    pytest.param(
        rel.InvalidArtifact("fx.alpha", "libalpha.so", "does not export PyInit_alpha"), "invalid-artifact",
        "fx.alpha: libalpha.so does not export PyInit_alpha", id="no module",
    ),
    pytest.param(
        rel.LibraryMissing("fx.alpha", "alpha.so", ("libssl.so.3",)), "library-missing",
        "fx.alpha was found (alpha.so), but a library it needs is missing: libssl.so.3; install it in a folder that "
        "the dynamic linker searches", id="library missing",
    ),
    pytest.param(
        rel.LibraryMissing("fx.alpha", "alpha.so", ("libssl.so.3", "libcrypto.so.3")), "library-missing",
        "fx.alpha was found (alpha.so), but libraries it needs are missing: libssl.so.3, libcrypto.so.3; "
        "install them in a folder that the dynamic linker searches", id="libraries missing",
    ),
    pytest.param(
        rel.SourcesMoved("fx.alpha", ("alpha/src/lib.rs", "b"), 3), "sources-moved",
        "fx.alpha was built 3 times and its sources changed during each build: alpha/src/lib.rs, b; "
        "stop the program that writes there, then import again", id="sources moved",
    ),
    pytest.param(
        rel.LockTimeout("targets/x.lock", "pid 7 on host", 2.5), "lock-timeout",
        "targets/x.lock is still held by pid 7 on host after 2.5 s; raise RUST_EXT_LOCK_TIMEOUT (seconds) if "
        "that build is only slow",
        id="lock held",
    ),
    pytest.param(
        rel.StaleExtension("fx.alpha", "fx/alpha.so", ("src/lib.rs changed", "a added")), "stale",
        "fx.alpha: fx/alpha.so is stale (src/lib.rs changed; a added) and there is no toolchain to "
        "rebuild it; install Rust, or accept the stale library with SGLANG_RUST_STALE=warn", id="stale",
    ),
    pytest.param(
        rel.CacheUnavailable(("a is not writable", "b belongs to user 3")), "cache-unavailable",
        "no cache folder can be used: a is not writable; b belongs to user 3; set RUST_EXT_CACHE_DIR to a folder "
        "of your own (mode 0700) "
        "on a writable disk", id="no cache",
    ),
    pytest.param(
        rel.RemoteUnavailable("s3://bucket", "no answer within 10 s"), "remote-unavailable",
        "s3://bucket: no answer within 10 s", id="remote",
    ),
    pytest.param(
        rel.SettingError("SGLANG_RUST_BUILD_MODE", "maybe", "one of auto, never, force"), "setting",
        "SGLANG_RUST_BUILD_MODE='maybe' is invalid; expected one of auto, never, force", id="setting",
    ),
    pytest.param(
        rel.SettingError("RUST_EXT_SIGNING_KEY", "", "a file"), "setting",
        "RUST_EXT_SIGNING_KEY is empty or not set; expected a file", id="setting without a value",
    ),
]
# fmt: on

ERRORS = [pytest.param(sample.values[0], id=sample.id) for sample in SAMPLES]


@pytest.mark.parametrize(("error", "reason", "text"), SAMPLES)
def test_an_error_has_a_message_and_a_reason(error: rel.RustExtensionError, reason: str, text: str) -> None:
    """
    The whole message is compared. The reason is for programs and never changes.
    """
    assert str(error) == text
    assert error.reason == reason


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_can_be_pickled(error: rel.RustExtensionError) -> None:
    """
    Pickling keeps type, fields and text.
    """
    returned = pickle.loads(pickle.dumps(error))

    assert type(returned) is type(error)
    assert vars(returned) == vars(error)
    assert str(returned) == str(error)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_is_an_import_error(error: rel.RustExtensionError) -> None:
    """
    `except ImportError` catches every error.
    """
    assert isinstance(error, ImportError)
    assert isinstance(error, rel.RustExtensionError)


def test_every_public_error_has_a_sample() -> None:
    """
    A new error class must be public and needs a sample of its message.
    """
    public = {
        value for name in rel.__all__ if isinstance(value := getattr(rel, name), type) and issubclass(value, Exception)
    }
    private = {value for value in vars(_errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    warnings = {rel.CacheWarning, rel.StaleExtensionWarning}

    assert private == public
    assert public - warnings - {rel.RustExtensionError} == {type(sample.values[0]) for sample in SAMPLES}


def test_reasons_are_distinct() -> None:
    """
    No two error classes share a reason.
    """
    leaves = {type(sample.values[0]) for sample in SAMPLES}

    assert len({getattr(leaf, "reason", None) for leaf in leaves}) == len(leaves)


def test_a_missing_extension_is_a_module_not_found_error() -> None:
    """
    `ExtensionNotFound` is a `ModuleNotFoundError` with the module's name, as `import` raises it.
    """
    error = rel.ExtensionNotFound("fx.alpha", "it is not built")

    assert isinstance(error, ModuleNotFoundError)
    assert error.name == "fx.alpha"


def test_a_bad_setting_is_a_value_error() -> None:
    """
    An invalid setting is a `ValueError` for Python.
    """
    assert issubclass(rel.SettingError, ValueError)
