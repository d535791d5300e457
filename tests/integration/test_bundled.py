"""
Extension modules in a package's folder: what a sidecar guarantees, and how fast an import checks it.
"""

from __future__ import annotations

import json
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from editable_install import RECORD_AT_ONCE, Editable
from missing_path import ABSENT
from situations import bundle

from rust_ext_loader.cache import _bundled
from rust_ext_loader.facts._fingerprint import Fingerprint
from rust_ext_loader.facts._seen import CurrentInputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"
IMPORT = "import fx.alpha; print(fx.alpha.value, fx.alpha.__file__)"

FACTS = {
    "source/lib.rs": "aa",
    "request/module": "fx.alpha",
    "abi/tag": "cp311",
    "toolchain/rustc": "1.95.0",
    "flags/env/CC": "cc",
}
CURRENT_INPUTS = CurrentInputs(ABSENT, {})


@pytest.fixture
def library(tmp_path: Path) -> Path:
    library = tmp_path / f"alpha{EXTENSION_SUFFIXES[0]}"
    library.write_bytes(b"a library")
    sidecar_of(library).write_bytes(_bundled.sidecar("fx.alpha", library, FACTS))
    return library


def sidecar_of(library: Path) -> Path:
    return _bundled.sidecar_of(library, "alpha")


def edit(**fields: object) -> Callable[[Path], object]:
    def act(library: Path) -> None:
        sidecar = {**json.loads(sidecar_of(library).read_bytes()), **fields}
        sidecar_of(library).write_text(
            json.dumps({name: value for name, value in sidecar.items() if value != "(gone)"})
        )

    return act


def test_a_sidecar_describes_its_library(library: Path) -> None:
    """
    The sidecar of an unchanged library returns its facts.
    """
    assert _bundled.describe(library, "alpha") == _bundled.Described(FACTS, {})


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda library: sidecar_of(library).unlink(), id="no sidecar"),
        pytest.param(lambda library: sidecar_of(library).write_bytes(b""), id="sidecar empty"),
        pytest.param(lambda library: sidecar_of(library).write_bytes(b"{"), id="sidecar truncated"),
        pytest.param(lambda library: sidecar_of(library).write_bytes(b"[]"), id="sidecar is a list"),
        pytest.param(lambda library: sidecar_of(library).write_bytes(b"[" * 100_000), id="sidecar nested too deep"),
        pytest.param(edit(format=_bundled.FORMAT + 1), id="format of the future"),
        pytest.param(edit(source_key="0" * 64), id="key of another build"),
        pytest.param(edit(facts={**FACTS, "source/lib.rs": "bb"}), id="facts of another build"),
        pytest.param(edit(facts="(gone)"), id="no facts"),
        pytest.param(edit(seen=[]), id="seen inputs of a wrong type"),
        pytest.param(edit(sha256="0" * 64), id="digest of another file"),
        pytest.param(edit(size=1), id="size of another file"),
        pytest.param(
            lambda library: library.write_bytes(b"a librarY"), id="library replaced by another of the same size"
        ),
        pytest.param(lambda library: library.write_bytes(b""), id="library empty"),
    ],
)
def test_an_invalid_sidecar_is_ignored(library: Path, change: Callable[[Path], object]) -> None:
    """
    A truncated, altered or foreign sidecar counts as missing, and never raises.
    """
    change(library)

    assert _bundled.describe(library, "alpha") is None
    differences = _bundled.differences(None, Fingerprint(FACTS), CURRENT_INPUTS)
    assert differences == ("no `.rust-ext.json` file describes it",)


@pytest.mark.parametrize(
    ("wanted", "differences"),
    [
        pytest.param({}, (), id="equal"),
        pytest.param({"source/lib.rs": "bb"}, ("lib.rs changed",), id="other sources"),
        pytest.param({"request/module": "fx.beta"}, ("module 'fx.alpha' -> 'fx.beta'",), id="another request"),
        pytest.param({"abi/tag": "cp312"}, ("abi tag 'cp311' -> 'cp312'",), id="another Python"),
        pytest.param({"toolchain/rustc": "1.96.0"}, (), id="another compiler: not stale"),
        pytest.param({"flags/env/CC": "clang"}, (), id="other flags of the machine: not stale"),
    ],
)
def test_a_bundled_library_is_stale_if_its_source_key_or_abi_differs(
    library: Path, wanted: dict[str, str], differences: tuple[str, ...]
) -> None:
    """
    Other facts, such as the compiler or the flags of the machine, do not count.
    """
    described = _bundled.describe(library, "alpha")

    assert _bundled.differences(described, Fingerprint({**FACTS, **wanted}), CURRENT_INPUTS) == differences


@pytest.fixture
def bundled(built: Checkout) -> Editable:
    """
    An editable install whose package folder holds `fx.alpha` with a valid sidecar, and an empty cache.
    """
    editable = Editable(built)
    editable.bundle()
    return editable


def test_a_bundled_module_has_a_warm_import(bundled: Editable) -> None:
    """
    Importing a bundled module needs no toolchain. After the first import a record decides.
    """
    library = next(bundled.package.glob("alpha*.so"))
    expected = f"{ALPHA} {library}"
    nothing = {"PATH": ABSENT}
    first = bundled.run(f"{RECORD_AT_ONCE}\n{IMPORT}", nothing)
    warm = bundled.run(IMPORT, nothing)

    assert [first.out, warm.out] == [expected, expected]
    assert (first.spawned, warm.spawned) == ((), ())
    assert "hashlib" in first.imported
    assert "hashlib" not in warm.imported


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda library: sidecar_of(library).unlink(), id="sidecar gone"),
        pytest.param(lambda library: sidecar_of(library).write_bytes(b"{}"), id="sidecar replaced"),
        pytest.param(lambda library: os.truncate(library, 4096), id="library truncated"),
    ],
)
def test_a_changed_bundled_module_is_checked_again(bundled: Editable, change: Callable[[Path], object]) -> None:
    """
    After a change of the library or of its sidecar the record is not used, and the sources are compared.
    """
    library = next(bundled.package.glob("alpha*.so"))
    bundled.run(f"{RECORD_AT_ONCE}\n{IMPORT}")
    assert "hashlib" not in bundled.run(IMPORT).imported
    change(library)
    after = bundled.run(IMPORT)

    assert after.out.startswith(f"{ALPHA} {bundled.checkout.cache}")
    assert [call[0] for call in after.cargo] == ["rustc"]


def test_a_new_bundled_module_precedes_the_cache(bundled: Editable) -> None:
    """
    A record of a cached module is not used once a valid module is in the package's folder.
    """
    library = next(bundled.package.glob("alpha*.so"))
    hidden = library.rename(library.with_name("hidden"))
    bundled.run(f"{RECORD_AT_ONCE}\n{IMPORT}")
    assert bundled.run(IMPORT).out.startswith(f"{ALPHA} {bundled.checkout.cache}")

    hidden.rename(library)

    assert bundled.run(IMPORT).out == f"{ALPHA} {library}"


def test_a_record_of_a_bundled_module_belongs_to_its_site_folder(bundled: Editable, tmp_path: Path) -> None:
    """
    An interpreter with another site folder does not use the record, even if everything else is equal.
    """
    library = next(bundled.package.glob("alpha*.so"))
    bundled.run(f"{RECORD_AT_ONCE}\n{IMPORT}")
    assert "hashlib" not in bundled.run(IMPORT).imported
    other = Editable(bundled.checkout, site=tmp_path / "another-site")
    after = other.run(IMPORT)

    assert str(library) not in after.out
    assert [call[0] for call in after.cargo] == ["rustc"]


def test_an_edit_makes_a_bundled_module_stale(bundled: Editable) -> None:
    """
    If sources are available, a bundled library that does not match them is not loaded.
    """
    bundled.run(f"{RECORD_AT_ONCE}\n{IMPORT}")
    bundled.checkout.replace("alpha/src/part.rs", "part-1", "part-2", older=3600)

    assert bundled.run(IMPORT).out.startswith("alpha-1 part-2 middle-1 ")


def test_a_second_library_beside_a_bundled_module_is_reported(built: Checkout) -> None:
    """
    A second library of the same module causes a warning, since `import` would ignore it or prefer it.
    """
    library = bundle(built, facts=None)
    other = library.with_name(f"alpha{EXTENSION_SUFFIXES[-1]}")
    other.write_bytes(library.read_bytes())
    _bundled.sidecar_of(library, "alpha").write_bytes(_bundled.sidecar("fx.alpha", library, built.stored_facts()))
    loaded = built.load()

    assert loaded.file == str(library)
    assert len(loaded.warnings) == 1
    assert str(other) in loaded.warnings[0]
