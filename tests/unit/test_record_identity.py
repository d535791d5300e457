"""
The identity of a record: which variables and paths it depends on.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rust_ext_loader import _settings, _warm


@pytest.mark.parametrize(
    "variable",
    [
        "RUSTFLAGS", "RUSTUP_TOOLCHAIN", "RUSTC", "CARGO_HOME", "CARGO_BUILD_TARGET", "CARGO_PROFILE_RELEASE_LTO",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", "CARGO_ENCODED_RUSTFLAGS", "PATH", "HOME", "CC", "CXX",
        "AR", "CFLAGS", "CXXFLAGS", "LDFLAGS", "HOST_CC", "TARGET_CFLAGS", "CC_x86_64-unknown-linux-gnu",
        "CFLAGS_x86_64_unknown_linux_gnu", "x86_64_unknown_linux_gnu_CC", "PKG_CONFIG_PATH", "PROTOC",
        "MACOSX_DEPLOYMENT_TARGET", "SDKROOT", "PYO3_CONFIG_FILE", "SGLANG_RUST_BUILD_MODE", "SGLANG_RUST_STALE",
        "CI", "CPPFLAGS", "RANLIB", "ARFLAGS", "CRATE_CC_NO_DEFAULTS", "CXXSTDLIB", "RUSTC_BOOTSTRAP",
        "x86_64_unknown_linux_gnu_RANLIB", "CPPFLAGS_aarch64-apple-darwin", "HOST_PKG_CONFIG_PATH",
    ],
)  # fmt: skip
def test_variables_that_affect_the_decision_are_in_the_identity(variable: str) -> None:
    """
    A variable that can change the build or the choice of a compiler is part of the record's identity.
    """
    with_it, without, other = (
        _warm.identify("m", "w", "auto", variables, []) for variables in ({variable: "1"}, {}, {variable: "2"})
    )

    assert with_it != without
    assert with_it != other
    assert _warm.path_of("r", with_it) != _warm.path_of("r", without)


@pytest.mark.parametrize(
    "variable",
    [
        "LANG",
        "PWD",
        "PYTHONHASHSEED",
        "TERM",
        "SHLVL",
        "COLUMNS",
        "MAKEFLAGS",
        "_",
        "CI_JOB_TOKEN",
        "HOMEBREW_TOKEN",
        "CARGO_REGISTRY_TOKEN",
    ],
)
def test_other_variables_are_not_in_the_identity(variable: str) -> None:
    """
    Unrelated variables of the shell do not invalidate a record.
    """
    assert _warm.identify("m", "w", "auto", {variable: "1"}, []) == _warm.identify("m", "w", "auto", {}, [])


def test_a_workspace_is_identified_by_its_real_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A retargeted link, or the same relative path in another folder, means another workspace.
    """
    for name in ("a", "b"):
        (tmp_path / name / "rust").mkdir(parents=True)
    current = tmp_path / "current"

    def by(workspace: object) -> tuple[object, ...]:
        return _warm.identify("m", str(workspace), "auto", {}, [])

    current.symlink_to(tmp_path / "a")
    assert by(current / "rust") == by(tmp_path / "a" / "rust")
    current.unlink()
    current.symlink_to(tmp_path / "b")
    assert by(current / "rust") == by(tmp_path / "b" / "rust")
    monkeypatch.chdir(tmp_path / "a")
    assert by("rust") == by(tmp_path / "a" / "rust")


@pytest.mark.parametrize(("value", "shared"), [("1", True), ("true", True), ("", False), ("0", False), ("no", False)])
def test_the_warm_path_and_settings_agree_on_the_shared_setting(
    monkeypatch: pytest.MonkeyPatch, value: str, shared: bool
) -> None:
    """
    The warm path reads the setting with its own code, which must agree with `_settings`.
    """
    monkeypatch.setenv(_warm.SHARED, value)
    assert _warm.is_shared() == shared == _settings.switched_on(_warm.SHARED, os.environ)
