"""
Damaged entries, records and libraries: never loaded, always rebuilt.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout, check_out
from processes import load_until_recorded

from rust_ext_loader.files import _digest

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHA = "alpha-1 part-1 middle-1"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """
    One checkout for the whole table below, since every row ends with a valid entry.
    """
    return check_out("plain", tmp_path_factory.mktemp("stored"))


def rewrite(path: Path, data: bytes) -> None:
    """
    Replace the content of a file and keep its timestamp.
    """
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def flip(library: Path) -> None:
    """
    Flip one bit in the middle of the library.
    """
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    rewrite(library, bytes(data))


def blank(library: Path) -> None:
    """
    Overwrite a page in the middle with zeros.
    """
    data = library.read_bytes()
    half = len(data) // 2
    rewrite(library, data[:half] + bytes(4096) + data[half + 4096 :])


def replace_by_folder(path: Path) -> None:
    """
    Replace a file by a folder.
    """
    path.unlink()
    path.mkdir()


def replace_by_link(path: Path) -> None:
    """
    Replace a file by a link to a copy in a folder that other users may change.
    """
    copy = path.parents[5] / "copy"
    shutil.copy(path, copy)
    path.unlink()
    path.symlink_to(copy)


def edit_manifest(manifest: Path, **fields: object) -> None:
    """
    Replace fields of a manifest.
    """
    manifest.write_text(json.dumps(json.loads(manifest.read_bytes()) | fields))


def escape(library: Path) -> None:
    """
    Make the manifest name a valid library outside the entry's folder.
    """
    shutil.copy(library, library.parents[1] / "outside.so")
    edit_manifest(library.parent / "manifest.json", library="../outside.so")


def point_outside(library: Path) -> None:
    """
    Make the pointer name a valid entry outside the slot.
    """
    slot = library.parents[1]
    shutil.copytree(library.parent, slot.parent / "outside")
    (slot / "current").write_text("../outside")


def point_to_itself(library: Path) -> None:
    """
    Make the pointer name the slot itself, which has all files of an entry.
    """
    slot = library.parents[1]
    for path in library.parent.iterdir():
        shutil.copy(path, slot / path.name)
    (slot / "current").write_text(".")


def replace_slot_by_file(library: Path) -> None:
    """
    Replace the slot by a file.
    """
    shutil.rmtree(library.parents[1])
    library.parents[1].write_text("")


def manifest_of(library: Path) -> Path:
    """
    The manifest beside the library.
    """
    return library.parent / "manifest.json"


def pointer_of(library: Path) -> Path:
    """
    The pointer beside the entry's folder.
    """
    return library.parents[1] / "current"


HARM: dict[str, Callable[[Path], object]] = {
    "library truncated": lambda library: os.truncate(library, library.stat().st_size // 2),
    "library without its last byte": lambda library: os.truncate(library, library.stat().st_size - 1),
    "library longer": lambda library: library.write_bytes(library.read_bytes() + b"x"),
    "library with one bit flipped": flip,
    "library with a page of zeros": blank,
    "library empty": lambda library: os.truncate(library, 0),
    "library gone": lambda library: library.unlink(),
    "library a folder": replace_by_folder,
    "library a link": replace_by_link,
    "library writable by others": lambda library: library.chmod(0o777),
    "entry writable by others": lambda library: library.parent.chmod(0o777),
    "slot writable by others": lambda library: library.parents[1].chmod(0o777),
    "manifest gone": lambda library: manifest_of(library).unlink(),
    "manifest empty": lambda library: manifest_of(library).write_bytes(b""),
    "manifest truncated": lambda library: os.truncate(manifest_of(library), 100),
    "manifest of garbage": lambda library: manifest_of(library).write_bytes(b"\xff\x00nonsense"),
    "manifest a list": lambda library: manifest_of(library).write_text("[1, 2]"),
    "manifest a bare word": lambda library: manifest_of(library).write_text("null"),
    "manifest without fields": lambda library: manifest_of(library).write_text("{}"),
    "manifest nested too deep": lambda library: manifest_of(library).write_text("[" * 100_000),
    "manifest a folder": lambda library: replace_by_folder(manifest_of(library)),
    "manifest writable by others": lambda library: manifest_of(library).chmod(0o666),
    "manifest of another format": lambda library: edit_manifest(manifest_of(library), format=99),
    "manifest of other facts": lambda library: edit_manifest(manifest_of(library), facts={"request/package": "other"}),
    "manifest with fields of other kinds": lambda library: edit_manifest(
        manifest_of(library), facts=3, library=[], glibc_floor="x"
    ),
    "manifest with odd facts": lambda library: edit_manifest(manifest_of(library), facts={"request/package": 3}),
    "manifest with a glibc of the future": lambda library: edit_manifest(manifest_of(library), glibc_floor=[99, 0]),
    "manifest without a start time": lambda library: edit_manifest(manifest_of(library), began=None),
    "manifest that leads outside": escape,
    "pointer gone": lambda library: pointer_of(library).unlink(),
    "pointer empty": lambda library: pointer_of(library).write_bytes(b""),
    "pointer of garbage": lambda library: pointer_of(library).write_bytes(b"\xff\x00"),
    "pointer to nothing": lambda library: pointer_of(library).write_text("18c0-missing"),
    "pointer that leads outside": point_outside,
    "pointer to the slot itself": point_to_itself,
    "pointer to the slot above": lambda library: pointer_of(library).write_text(".."),
    "pointer that is absolute": lambda library: pointer_of(library).write_text(os.fspath(library.parent)),
    "pointer a folder": lambda library: replace_by_folder(pointer_of(library)),
    "slot a file": replace_slot_by_file,
    "entry gone": lambda library: shutil.rmtree(library.parent),
    "all entries gone": lambda library: shutil.rmtree(library.parents[4]),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_entry_is_a_miss(stored: Checkout, harm: str) -> None:
    """
    A damaged entry is not loaded. It is rebuilt without a warning, and the next load is a cache hit.
    """
    intact = stored.load()
    assert intact.value == ALPHA
    if not harm.startswith("library"):
        # Remove the record: it checks only the library, not the manifest, and would still return the library.
        shutil.rmtree(stored.cache / "records", ignore_errors=True)
    HARM[harm](Path(str(intact.file)))

    rebuilt, after = stored.load(), stored.load()

    assert rebuilt.value == ALPHA
    assert rebuilt.compiled == ["alpha"]
    assert rebuilt.warnings == ()
    assert rebuilt.file != intact.file
    assert Path(str(rebuilt.file)).is_relative_to(stored.cache / "artifacts")
    assert (rebuilt.file, ALPHA, ()) == (after.file, after.value, after.cargo)


def test_an_entry_under_another_name_is_a_miss(stored: Checkout) -> None:
    """
    An entry serves only the facts in its manifest, even if it is copied into another slot.
    """
    old = stored.load()
    stored.replace("alpha/src/part.rs", "part-1", "part-2")
    full = {"RUST_EXT_EDIT_TIER": "off"}
    new = stored.load(variables=full)
    slot_of_new, entry_of_old = Path(str(new.file)).parents[1], Path(str(old.file)).parent
    shutil.copytree(entry_of_old, slot_of_new / "planted")
    (slot_of_new / "current").write_text("planted")
    shutil.rmtree(stored.cache / "records", ignore_errors=True)

    loaded = stored.load(variables=full)
    stored.replace("alpha/src/part.rs", "part-2", "part-1")

    assert (loaded.value, loaded.compiled) == ("alpha-1 part-2 middle-1", ["alpha"])


def test_a_damaged_record_only_costs_time(plain: Checkout) -> None:
    """
    A truncated, foreign or invalid record changes no verdict.
    """
    built = load_until_recorded(plain)
    (record,) = (plain.cache / "records").iterdir()
    data = record.read_bytes()

    for harm in (b"", data[:7], data[:40], data[:-1], data[:8] + b"nonsense", bytes(len(data)), data[::-1]):
        record.write_bytes(data)
        record.write_bytes(harm)
        loaded = plain.load()

        assert (ALPHA, built.file, ()) == (loaded.value, loaded.file, loaded.cargo)


# Libraries that do not load.

RAISING = """
use std::ffi::{c_char, c_void};

unsafe extern "C" {
    static PyExc_KIND: *mut c_void;
    fn PyErr_SetString(kind: *mut c_void, text: *const c_char);
}

#[unsafe(no_mangle)]
pub extern "C" fn PyInit_alpha() -> *mut c_void {
    // SAFETY: called from the import system, with the GIL held.
    unsafe { PyErr_SetString(PyExc_KIND, c"not today".as_ptr()) };
    std::ptr::null_mut()
}
"""


@pytest.mark.parametrize("kind", ["ValueError", "ImportError"])
def test_an_exception_of_the_init_function_is_raised(plain: Checkout, kind: str) -> None:
    """
    If a module's init function raises, its exception reaches the caller. Nothing is rebuilt. No module remains.
    """
    plain.write("alpha/src/lib.rs", RAISING.replace("PyExc_KIND", f"PyExc_{kind}"))

    first, second = plain.load(), plain.load()

    for loaded in (first, second):
        assert loaded.error == "not today"
        assert loaded.types[0] == kind
        assert not loaded.in_sys_modules
        assert loaded.warnings == ()
    assert [first.compiled, second.compiled] == [["alpha"], []]
    assert not (plain.cache / "quarantine").exists()


def forge(library: Path, data: bytes) -> None:
    """
    Replace a library and update its manifest to match.
    """
    library.chmod(0o700)
    library.write_bytes(data)
    edit_manifest(manifest_of(library), size=len(data), sha256=_digest.of_file(library))


def for_another_machine(library: bytes) -> bytes:
    """
    The library with another machine type in its ELF header.
    """
    return library[:18] + b"\x99\x99" + library[20:]


@pytest.mark.parametrize(
    "everywhere", [False, True], ids=["only the stored library", "also the one in the target folder"]
)
def test_a_library_that_the_linker_refuses_is_rebuilt(plain: Checkout, everywhere: bool) -> None:
    """
    A stored library that the dynamic linker refuses is quarantined with one warning and rebuilt in the same load.
    """
    library = Path(str(plain.load().file))
    refused = for_another_machine(library.read_bytes())
    forge(library, refused)
    if everywhere:
        for output in (plain.cache / "targets").rglob("libalpha.so"):
            output.write_bytes(refused)

    rebuilt, after = plain.load(), plain.load()

    assert [rebuilt.value, after.value] == [ALPHA, ALPHA]
    (warning,) = rebuilt.warnings
    assert str(library) in warning
    assert not library.exists()
    assert [refused] == [path.read_bytes() for path in (plain.cache / "quarantine").rglob("*.so")]
    assert (rebuilt.file, (), ()) == (after.file, after.cargo, after.warnings)


def test_a_damaged_target_folder_is_rebuilt(plain: Checkout) -> None:
    """
    Cargo trusts its outputs by their timestamps. A damaged library in the target folder is noticed and recompiled.
    """
    library = Path(str(plain.load().file))
    shutil.rmtree(plain.cache / "artifacts")
    for output in (plain.cache / "targets").rglob("libalpha.so"):
        data = output.read_bytes()
        output.write_bytes(data[: len(data) // 2])

    rebuilt, after = plain.load(), plain.load()

    assert [rebuilt.value, after.value] == [ALPHA, ALPHA]
    assert library.name == Path(str(rebuilt.file)).name
    assert after.cargo == ()
