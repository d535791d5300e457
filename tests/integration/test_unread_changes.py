"""
Changes that the compiler does not read: the next load compiles nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from changes import hit, replace, write
from checkout import Checkout
from missing_path import ABSENT

from rust_ext_loader import _ensure

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHA = "alpha-1 part-1 middle-1"


def touch_everything(checkout: Checkout) -> None:
    for path in checkout.root.rglob("*"):
        os.utime(path)


def bump_another_crate(checkout: Checkout) -> None:
    checkout.replace("beta/Cargo.toml", '"0.1.0"', '"0.2.0"')
    checkout.replace("Cargo.lock", 'name = "beta"\nversion = "0.1.0"', 'name = "beta"\nversion = "0.2.0"')


def add_dependency_to_another_crate(checkout: Checkout) -> None:
    checkout.write("beta/Cargo.toml", (checkout.root / "beta/Cargo.toml").read_text() + 'itoa = "1"\n')
    checkout.replace(
        "Cargo.lock",
        ' "pymod",\n]\n\n[[package]]\nname = "middle"',
        ' "itoa",\n "pymod",\n]\n\n[[package]]\nname = "middle"',
    )
    lock = (checkout.root / "Cargo.lock").read_text()
    source = 'source = "registry+https://github.com/rust-lang/crates.io-index"'
    checkout.write(
        "Cargo.lock", f'{lock}\n[[package]]\nname = "itoa"\nversion = "1.0.1"\n{source}\nchecksum = "{"0" * 64}"\n'
    )


def add_member(checkout: Checkout) -> None:
    shutil.copytree(checkout.root / "middle", checkout.root / "gamma")
    checkout.replace("gamma/Cargo.toml", "middle", "gamma")
    checkout.replace("Cargo.toml", '"beta"', '"beta", "gamma"')
    checkout.write(
        "Cargo.lock", (checkout.root / "Cargo.lock").read_text() + '\n[[package]]\nname = "gamma"\nversion = "0.1.0"\n'
    )


def name_the_toolchain(checkout: Checkout) -> None:
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    checkout.write("rust-toolchain.toml", f'[toolchain]\nchannel = "{os.path.basename(sysroot)}"\n')


def reorder_manifest(checkout: Checkout) -> None:
    checkout.replace(
        "alpha/Cargo.toml",
        'middle = { path = "../middle" }\npymod = { path = "../pymod" }',
        'pymod = { path = "../pymod" }\n\n[dependencies.middle]\npath = "../middle"',
    )


IDLE_CHANGES: dict[str, Callable[[Checkout], object]] = {
    "touch only": touch_everything,
    "an unrelated crate": replace("beta/src/lib.rs", "beta-1", "beta-2"),
    "README": write("alpha/README.md", "new"),
    "any Markdown file of the crate's root": write("alpha/CHANGES.md", "new"),
    "README of the workspace": write("README.md", "new"),
    "tests": write("alpha/tests/it.rs", "new"),
    "benches": write("alpha/benches/it.rs", "new"),
    "examples": write("alpha/examples/it.rs", "new"),
    "tests of a dependency": write("middle/tests/it.rs", "new"),
    "the user's own target folder": write("alpha/target/debug/it.rs", "new"),
    "Python beside the sources": write("alpha/src/helper.py", "new"),
    "a stub": write("alpha/src/alpha.pyi", "new"),
    "bytecode": write("alpha/src/__pycache__/helper.cpython-311.pyc", "new"),
    "a built library": write("alpha/src/alpha.abi3.so", "new"),
    "an editor's swap file": write("alpha/src/.lib.rs.swp", "new"),
    "an editor's copy": write("alpha/src/lib.rs~", "new"),
    "another editor's copy": write("alpha/src/#lib.rs#", "new"),
    "coverage": write("alpha/.coverage", "new"),
    "a profile's output": write("alpha/default.profraw", "new"),
    "Git": write(".git/HEAD", "new"),
    "a stray .rs in the workspace": write("elsewhere/src/lib.rs", "new"),
    "comment in the workspace's manifest": replace("Cargo.toml", "[workspace]", "# a comment\n[workspace]"),
    "comment in the crate's manifest": replace("alpha/Cargo.toml", "[lib]", "# a comment\n[lib]"),
    "comment in a dependency's manifest": replace("middle/Cargo.toml", "[package]", "# a comment\n[package]"),
    "comment in the lockfile": replace("Cargo.lock", "version = 4", "# a comment\nversion = 4"),
    "the same manifest, written otherwise": reorder_manifest,
    "version of another crate": bump_another_crate,
    "lockfile: a dependency of another crate": add_dependency_to_another_crate,
    "another member appears": add_member,
    "another profile": replace("Cargo.toml", "[profile.release]", "[profile.dev]\nopt-level = 2\n\n[profile.release]"),
    "configuration without effect": write(".cargo/config.toml", "[term]\nquiet = true\n\n[net]\nretry = 3\n"),
    "a toolchain file that names the toolchain in use": name_the_toolchain,
}


@pytest.mark.parametrize("act", [pytest.param(act, id=name) for name, act in IDLE_CHANGES.items()])
def test_a_change_of_unread_files_changes_no_fact(built: Checkout, act: Callable[[Checkout], object]) -> None:
    """
    A change that the compiler does not read changes no fact. No module is loaded here; the next test does that.
    """
    before = facts(built)
    act(built)

    assert facts(built) == before


def facts(checkout: Checkout, variables: dict[str, str] | None = None) -> dict[str, str]:
    request = _ensure.Request(
        "fx.alpha", workspace=str(checkout.root), cache_dir=str(checkout.cache), overlay=variables
    )
    return dict(_ensure.observe(request).facts.fingerprint.facts)


def test_changes_of_unread_files_build_nothing(built: Checkout) -> None:
    """
    After all of these changes together cargo is not run.
    """
    hit(built.load(), ALPHA)
    for act in IDLE_CHANGES.values():
        act(built)

    hit(built.load(), ALPHA)


IDLE_VARIABLES: dict[str, dict[str, str]] = {
    "empty RUSTFLAGS": {"RUSTFLAGS": ""},
    "jobs": {"CARGO_BUILD_JOBS": "1"},
    "a compiler cache": {"RUSTC_WRAPPER": "sccache"},
    "colour": {"CARGO_TERM_COLOR": "always", "NO_COLOR": "1"},
    "the user's target folder": {"CARGO_TARGET_DIR": ABSENT},
    "incremental": {"CARGO_INCREMENTAL": "1"},
    "another profile": {"CARGO_PROFILE_DEV_OPT_LEVEL": "2"},
    "a virtual environment": {"VIRTUAL_ENV": ABSENT, "PYO3_PYTHON": f"{ABSENT}/python"},
    "locale, terminal, hash seed": {"LANG": "C", "LC_ALL": "C", "PYTHONHASHSEED": "7", "TERM": "dumb"},
    "a variable that this crate does not declare": {"FX_FLAVOUR": "sweet"},
}


@pytest.mark.parametrize("variables", [pytest.param(variables, id=name) for name, variables in IDLE_VARIABLES.items()])
def test_a_variable_without_effect_on_the_output_is_no_fact(built: Checkout, variables: dict[str, str]) -> None:
    """
    A variable that cannot change the library changes no fact.
    """
    assert facts(built, variables) == facts(built)


def test_variables_without_effect_on_the_output_build_nothing(built: Checkout) -> None:
    """
    With all of these variables the entry that was built without them is found.
    """
    hit(built.load(variables={name: value for row in IDLE_VARIABLES.values() for name, value in row.items()}), ALPHA)
