"""
The record of a warm import: what it watches, and that any watched change invalidates it.

The modules that gather facts decide what to watch. These tests list what they must include.
"""

from __future__ import annotations

import os
import shutil
import time
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING

import pytest
from checkout import ROOT
from children import killed_at_exit
from editable_install import RECORD_AT_ONCE, WARM_MODULES, Editable
from processes import Gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"
IMPORT = "import fx.alpha; print(fx.alpha.value)"


def test_a_record_requires_settled_stamps(plain: Checkout) -> None:
    """
    A file with a future timestamp prevents a record, and one that is two seconds old allows it. The clock is real.
    """
    editable = Editable(plain)
    source = plain.root / "alpha/src/lib.rs"
    os.utime(source, (time.time() + 3600,) * 2)
    editable.run(IMPORT)
    editable.run(IMPORT)
    assert not editable.run(IMPORT).imported <= WARM_MODULES, "a stamp in the future is not settled"

    os.utime(source)
    plain.wait_until_settled()
    editable.run(IMPORT)

    assert editable.run(IMPORT).imported <= WARM_MODULES


def test_an_edit_is_seen_by_the_next_process(plain: Checkout) -> None:
    """
    A record is not used after an edit, even if the edit has an old timestamp.
    """
    editable = Editable(plain)
    editable.run(f"{RECORD_AT_ONCE}\n{IMPORT}")
    assert editable.run(IMPORT).spawned == ()

    plain.replace("alpha/src/part.rs", "part-1", "part-2", older=3600)

    assert editable.run(IMPORT).out == "alpha-1 part-2 middle-1"


def same_size_same_time(checkout: Checkout) -> None:
    path = checkout.root / "alpha/src/part.rs"
    before = path.stat()
    checkout.replace("alpha/src/part.rs", "part-1", "part-2")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def write(name: str, text: str = "") -> Callable[[Checkout], object]:
    return lambda checkout: checkout.write(name, text)


def append(name: str) -> Callable[[Checkout], object]:
    return lambda checkout: checkout.write(name, (checkout.root / name).read_text() + "\n# one more line\n")


def earlier_cargo(checkout: Checkout) -> None:
    (checkout.cache.parent / "early" / "cargo").symlink_to(checkout.tools / "cargo")


def replace_library(checkout: Checkout) -> None:
    library = checkout.stored_library()
    copy = library.with_name("copy")
    shutil.copy2(library, copy)
    copy.replace(library)


def on_records(act: Callable[[Path], object]) -> Callable[[Checkout], object]:
    def on_each(checkout: Checkout) -> None:
        for record in (checkout.cache / "records").iterdir():
            act(record)

    return on_each


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(same_size_same_time, id="source: same size, mtime restored"),
        pytest.param(write("alpha/src/new.rs"), id="file added to src"),
        pytest.param(write("alpha/src/deep/deeper/new.rs"), id="folders added to src"),
        pytest.param(write("alpha/build.rs", "fn main() {}"), id="build script added"),
        pytest.param(lambda checkout: (checkout.root / "alpha/src/part.rs").unlink(), id="source gone"),
        pytest.param(append("middle/Cargo.toml"), id="manifest of a dependency"),
        pytest.param(append("Cargo.toml"), id="manifest of the workspace"),
        pytest.param(append("beta/Cargo.toml"), id="manifest of another member, which could declare the module too"),
        pytest.param(append("Cargo.lock"), id="lockfile"),
        pytest.param(write("alpha/.cargo/config.toml"), id="configuration appears in the crate"),
        pytest.param(write(".cargo/config.toml"), id="configuration appears in the workspace"),
        pytest.param(write("../.cargo/config"), id="configuration appears above, under its old name"),
        pytest.param(write("rust-toolchain"), id="toolchain file appears"),
        pytest.param(lambda checkout: checkout.install_tools(), id="cargo replaced"),
        pytest.param(earlier_cargo, id="a cargo that PATH finds first"),
        pytest.param(replace_library, id="library replaced by an equal file"),
        pytest.param(lambda checkout: os.truncate(checkout.stored_library(), 1000), id="library truncated"),
        pytest.param(on_records(lambda record: record.write_bytes(b"")), id="record empty"),
        pytest.param(on_records(lambda record: os.truncate(record, 100)), id="record truncated"),
        pytest.param(on_records(lambda record: record.write_bytes(bytes(500))), id="record foreign"),
        pytest.param(on_records(lambda record: record.chmod(0o666)), id="record writable by all"),
        pytest.param(on_records(lambda record: record.unlink()), id="record gone"),
    ],
)
def test_inputs_of_the_decision_are_watched(built: Checkout, act: Callable[[Checkout], object]) -> None:
    """
    A change of anything that could change the decision makes the next import decide again.
    """
    early = built.cache.parent / "early"
    early.mkdir()
    built.environment["PATH"] = f"{early}{os.pathsep}{built.variables()['PATH']}"
    editable = Editable(built)
    editable.run(f"{RECORD_AT_ONCE}\n{IMPORT}")
    assert "hashlib" not in editable.run(IMPORT).imported

    act(built)

    assert "hashlib" in editable.run(IMPORT).imported


@pytest.mark.parametrize("variable", ["RUSTFLAGS", "RUSTUP_TOOLCHAIN", "CC", "CARGO_HOME"])
def test_variables_of_the_decision_are_watched(built: Checkout, variable: str) -> None:
    """
    An import with another environment decides again. With the old environment the old record is used again.
    """
    editable = Editable(built)
    editable.run(f"{RECORD_AT_ONCE}\n{IMPORT}")
    other = editable.run("import fx.alpha", {variable: str(built.cache.parent)})

    assert "hashlib" in other.imported
    assert "hashlib" not in editable.run(IMPORT).imported


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_a_record_does_not_change_the_result(built: Checkout, mode: str) -> None:
    """
    The same file is loaded with the record, without it, and with a new one.
    """
    where = "import fx.alpha; print(fx.alpha.__file__)"
    variables = {"SGLANG_RUST_BUILD_MODE": mode}
    editable = Editable(built)
    editable.run(f"{RECORD_AT_ONCE}\n{where}", variables)
    with_it = editable.run(where, variables)
    shutil.rmtree(built.cache / "records")
    without = editable.run(f"{RECORD_AT_ONCE}\n{where}", variables)
    again = editable.run(where, variables)

    assert with_it.out == without.out == again.out == str(built.stored_library())
    assert ["hashlib" in ran.imported for ran in (with_it, without, again)] == [False, True, False]


def declare_twice(editable: Editable) -> None:
    editable.checkout.replace("beta/Cargo.toml", '"fx.beta"', '"fx.alpha"')


def add_bundled_library(editable: Editable) -> None:
    (editable.package / f"alpha{EXTENSION_SUFFIXES[0]}").write_bytes(b"foreign")


@pytest.mark.parametrize(
    ("change", "compilations", "trusted", "types", "message"),
    [
        pytest.param(lambda _: None, 1, True, (), "", id="nothing"),
        pytest.param(declare_twice, 2, False, ("DuplicateModule",), "", id="another crate declares the module too"),
        pytest.param(
            add_bundled_library, 1, False, (), "and is ignored", id="a library appears in the package's folder"
        ),
    ],
)
def test_changes_during_a_build_are_noticed(
    plain: Checkout,
    change: Callable[[Editable], object],
    compilations: int,
    trusted: bool,
    types: tuple[str, ...],
    message: str,
) -> None:
    """
    Everything that was checked before a build is checked again before a record is written after it.
    """
    editable = Editable(plain)
    gate = Gate(plain)
    builder = plain.start(
        prelude=RECORD_AT_ONCE, variables={"PYTHONPATH": os.pathsep.join([str(ROOT), str(editable.site)])}
    )
    with killed_at_exit(builder):
        gate.reached(builder)
        change(editable)
        gate.let_through()
        for _ in range(compilations - 1):
            gate.reached(builder)
            gate.let_through()
        assert plain.finish(builder)["value"] == ALPHA
    after = editable.run(IMPORT)

    assert ("hashlib" not in after.imported) == trusted
    assert after.types[:1] == types
    assert message in after.stderr
