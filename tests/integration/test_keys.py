"""
Which facts are in which key, and how the keys are printed.

Keys are computed in this process, without a build.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from changes import add_metadata
from checkout import Checkout, check_out
from commands import CommandResult, rust_ext
from missing_path import ABSENT

from rust_ext_loader import _ensure
from rust_ext_loader.declare import _discover
from rust_ext_loader.facts import _abi, _snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Keys = tuple[str, str]


SOURCE = "source and build key"
BUILD = "build key only"
NONE = "neither"


def keys(
    checkout: Checkout,
    module: str = "fx.alpha",
    *,
    features: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> Keys:
    """
    The source key and the build key.
    """
    request = _ensure.Request(
        module, workspace=str(checkout.root), cache_dir=str(checkout.cache), features=features, overlay=variables
    )
    found = _ensure.observe(request).facts.fingerprint
    return found.source_key, found.build_key


def changed_keys(before: Keys, after: Keys) -> str:
    return {(True, True): SOURCE, (False, True): BUILD, (False, False): NONE}[
        before[0] != after[0], before[1] != after[1]
    ]


def after(checkout: Checkout, act: Callable[[], object]) -> str:
    """
    The keys that an action changes.
    """
    before = keys(checkout)
    act()
    return changed_keys(before, keys(checkout))


# One test per fact.


def test_content_differs(plain: Checkout) -> None:
    assert after(plain, lambda: plain.replace("alpha/src/part.rs", "part-1", "part-2")) == SOURCE


def test_file_name_differs(plain: Checkout) -> None:
    assert after(plain, lambda: (plain.root / "alpha/src/part.rs").rename(plain.root / "alpha/src/other.rs")) == SOURCE


def test_dependency_content_differs(plain: Checkout) -> None:
    assert after(plain, lambda: plain.replace("middle/src/lib.rs", "middle-1", "middle-2")) == SOURCE


def test_source_input_differs(inputs: Checkout) -> None:
    assert after(inputs, lambda: inputs.write("shared/outside.txt", "other")) == SOURCE


def test_link_differs(plain: Checkout) -> None:
    """
    The target of a link is a fact, even if both targets have the same content.
    """
    for name in ("one", "two"):
        plain.write(f"alpha/src/{name}.txt", "text")
    link = plain.root / "alpha/src/link.txt"
    link.symlink_to("one.txt")

    def retarget() -> None:
        link.unlink()
        link.symlink_to("two.txt")

    assert after(plain, retarget) == SOURCE


def test_manifest_value_differs(plain: Checkout) -> None:
    assert after(plain, lambda: plain.replace("alpha/Cargo.toml", "[lib]", "[lib]\ndoctest = false")) == SOURCE


def test_inherited_value_differs(inputs: Checkout) -> None:
    assert (
        after(
            inputs,
            lambda: inputs.replace(
                "Cargo.toml", '{ path = "inherited" }', '{ path = "inherited", default-features = false }'
            ),
        )
        == SOURCE
    )


def test_profile_setting_differs(plain: Checkout) -> None:
    assert after(plain, lambda: plain.replace("Cargo.toml", "opt-level = 0", "opt-level = 1")) == SOURCE


def test_profile_differs(plain: Checkout) -> None:
    assert after(plain, lambda: add_metadata(plain, 'profile = "dev"')) == SOURCE


def test_feature_differs(plain: Checkout) -> None:
    assert after(plain, lambda: add_metadata(plain, 'features = ["loud"]')) == SOURCE


def test_extra_feature_differs(plain: Checkout) -> None:
    """
    An extra feature counts like a declared one. A feature that is declared already does not count twice.
    """
    assert changed_keys(keys(plain, "fx.beta"), keys(plain, "fx.beta", features=("quiet",))) == SOURCE
    assert changed_keys(keys(plain, "fx.beta"), keys(plain, "fx.beta", features=("loud",))) == NONE


def test_library_name_differs(plain: Checkout) -> None:
    assert after(plain, lambda: plain.replace("alpha/Cargo.toml", "[lib]", '[lib]\nname = "other"')) == SOURCE


def test_module_name_differs(plain: Checkout) -> None:
    before = keys(plain)
    plain.replace("alpha/Cargo.toml", "fx.alpha", "fx.omega")

    assert changed_keys(before, keys(plain, "fx.omega")) == SOURCE


def test_version_of_a_distribution_differs(plain: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The version of a distribution in `key-on` is a fact, and so is its absence.
    """
    name = next(iter(distributions())).metadata["Name"]
    add_metadata(plain, f'key-on = ["{name}"]')
    before = keys(plain)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.0.0+another")

    assert changed_keys(before, keys(plain)) == SOURCE


def lock(checkout: Checkout, version: str) -> None:
    """
    Lock alpha's registry dependency `itoa` at a version.
    """
    checkout.write(
        "Cargo.lock",
        f"""version = 4

[[package]]
name = "alpha"
version = "0.1.0"
dependencies = ["itoa", "middle", "pymod"]

[[package]]
name = "beta"
version = "0.1.0"
dependencies = ["pymod"]

[[package]]
name = "itoa"
version = "{version}"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "{"0" * 64}"

[[package]]
name = "middle"
version = "0.1.0"

[[package]]
name = "pymod"
version = "0.1.0"
""",
    )


def test_locked_version_differs(plain: Checkout) -> None:
    """
    An update of a crate's dependency counts for that crate and for no other.
    """
    plain.replace("alpha/Cargo.toml", "[dependencies]", '[dependencies]\nitoa = "1"')
    lock(plain, "1.0.1")
    other = keys(plain, "fx.beta")

    assert after(plain, lambda: lock(plain, "1.0.2")) == SOURCE
    assert changed_keys(other, keys(plain, "fx.beta")) == NONE


def test_cargo_configuration_differs(plain: Checkout) -> None:
    assert after(plain, lambda: plain.write(".cargo/config.toml", '[build]\nrustflags = ["-Copt-level=1"]\n')) == BUILD


def test_compiler_differs(plain: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Another rustc with the same name changes only the build key.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    real = shutil.which("rustc")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(release: str) -> None:
        script = folder / "rustc"
        script.write_text(f"#!/bin/sh\n'{real}' \"$@\" | sed 's/^release: .*/release: {release}/'\n", encoding="utf-8")
        script.chmod(0o755)

    put("1.95.1")
    assert after(plain, lambda: put("1.95.2")) == BUILD


def test_python_differs(plain: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A crate without the stable ABI is built for one minor version of Python. The patch version is not a fact.
    """
    before = keys(plain)
    another = dataclasses.replace(
        _abi.current(), version=(3, 99), cache_tag="cpython-399", soabi="cpython-399-x86_64-linux-gnu"
    )
    monkeypatch.setattr(_abi, "current", lambda: another)

    assert changed_keys(before, keys(plain)) == BUILD


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({"RUSTFLAGS": "-Copt-level=1"}, SOURCE, id="RUSTFLAGS"),
        pytest.param({"CARGO_ENCODED_RUSTFLAGS": "-Copt-level=1"}, SOURCE, id="CARGO_ENCODED_RUSTFLAGS"),
        pytest.param({"CARGO_BUILD_TARGET": "wasm32-wasip1"}, SOURCE, id="CARGO_BUILD_TARGET"),
        pytest.param({"RUST_EXT_PROFILE": "dev"}, SOURCE, id="RUST_EXT_PROFILE"),
        pytest.param({"RUST_EXT_CARGO_ARGS": "--config profile.release.lto=true"}, SOURCE, id="RUST_EXT_CARGO_ARGS"),
        pytest.param({"CARGO_PROFILE_RELEASE_LTO": "fat"}, BUILD, id="CARGO_PROFILE_RELEASE_LTO"),
        pytest.param({"CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER": "clang"}, BUILD, id="CARGO_TARGET_*_LINKER"),
        pytest.param({"CC": "clang"}, BUILD, id="CC"),
        pytest.param({"CFLAGS_x86_64_unknown_linux_gnu": "-O1"}, BUILD, id="CFLAGS_<target>"),
        pytest.param({"LDFLAGS": "-s"}, BUILD, id="LDFLAGS"),
        pytest.param({"PKG_CONFIG_PATH": f"{ABSENT}/lib/pkgconfig"}, BUILD, id="PKG_CONFIG_PATH"),
        pytest.param({"PROTOC": f"{ABSENT}/bin/protoc"}, BUILD, id="PROTOC"),
        pytest.param({"FX_FLAVOUR": "sweet"}, BUILD, id="a declared variable"),
    ],
)
def test_variable_differs(inputs: Checkout, variables: dict[str, str], expected: str) -> None:
    """
    Rustflags and target are part of the request and count in both keys. Other variables count in the build key only.
    """
    assert changed_keys(keys(inputs), keys(inputs, variables=variables)) == expected


def test_profiles_have_their_own_entries(plain: Checkout) -> None:
    """
    Loads in release, dev and release build twice. The message of a build names a profile other than release.
    """
    first = plain.load()
    dev = plain.load(variables={"RUST_EXT_PROFILE": "dev"})
    again = plain.load()

    assert "building fx.alpha: not built here yet" in first.stderr
    assert "rebuilding fx.alpha (dev): profile 'release' -> 'dev'" in dev.stderr
    assert (first.compiled, dev.compiled, again.compiled) == (["alpha"], ["alpha"], [])
    assert (again.file, first.file != dev.file) == (first.file, True)


# Properties that are in no key.


def test_times_and_paths_are_in_no_key(plain: Checkout, tmp_path: Path) -> None:
    """
    A copy in another folder with other timestamps has the same keys.
    """
    (tmp_path / "elsewhere").mkdir()
    copy = check_out("plain", tmp_path / "elsewhere" / "deeper")
    for path in copy.root.rglob("*"):
        os.utime(path, (1, 1))

    assert keys(copy) == keys(plain)


def test_excluded_files_are_in_no_key(plain: Checkout) -> None:
    """
    A file that matches the crate's `exclude` is not a fact.
    """
    add_metadata(plain, 'exclude = ["assets/**"]')
    plain.write("alpha/assets/deep/text.txt", "one")

    assert after(plain, lambda: plain.write("alpha/assets/deep/text.txt", "two")) == NONE


def test_the_source_key_needs_no_toolchain(plain: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The source key is the same without cargo on PATH, and computing it starts no process.
    """
    expected = keys(plain)[0]
    spec = _discover.find("fx.alpha", plain.root)
    workspace = _discover.read_workspace(plain.root)

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    snapshot = _snapshot.take(spec, workspace, {"PATH": ABSENT, "HOME": ABSENT})

    assert snapshot.fingerprint.source_key == expected


# How keys are printed.


def test_key(plain: Checkout) -> None:
    """
    Text, JSON and `github` print the same keys. `github` prints one digest over all modules.
    """
    raw = rust_ext(plain, "key", "--format", "json", raw=True).out
    modules = json.loads(raw)["modules"]

    assert {name: (pair["source_key"], pair["build_key"]) for name, pair in modules.items()} == {
        name: keys(plain, name, variables={"PATH": plain.variables()["PATH"]}) for name in ("fx.alpha", "fx.beta")
    }
    assert rust_ext(plain, "key") == CommandResult(0, "fx.alpha  [key]  [key]\nfx.beta  [key]  [key]\n", "")
    assert rust_ext(plain, "key", "fx.beta") == CommandResult(0, "fx.beta  [key]  [key]\n", "")
    assert rust_ext(plain, "key", "--format", "github") == CommandResult(0, "source_key=[key]\nbuild_key=[key]\n", "")
    assert not (plain.cache / "artifacts").exists()
    assert plain.cargo_calls() == []
