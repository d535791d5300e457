"""
Unit tests of `_library_file` and `_object_formats`: reading shared libraries from their bytes.
"""

from __future__ import annotations

import contextlib
import os
import platform
import random
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from long_runs import amount
from missing_path import ABSENT

from rust_ext_loader.library import _library_file, _object_formats
from rust_ext_loader.library._library_file import LibraryFile, host_glibc, inspect, problem

from .library_bytes import elf, mach_o, pe, universal


def module(
    kind: str, machine: str, undefined: set[str], needed: str, floor: tuple[int, int] | None = None
) -> LibraryFile:
    return LibraryFile(kind, machine, frozenset({"PyInit_mm"}), frozenset(undefined), floor, (needed,))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(elf(), module("elf", "x86_64", {"malloc"}, "libc.so.6", (2, 17)), id="ELF, x86_64"),
        pytest.param(
            elf(gnu=False), module("elf", "x86_64", {"malloc"}, "libc.so.6", (2, 17)), id="ELF, System V hash"
        ),
        pytest.param(elf(machine=183), module("elf", "aarch64", {"malloc"}, "libc.so.6", (2, 17)), id="ELF, aarch64"),
        pytest.param(
            elf(order=">", machine=22),
            module("elf", "s390x", {"malloc"}, "libc.so.6", (2, 17)),
            id="ELF, s390x, big-endian",
        ),
        pytest.param(
            elf(order=">", machine=21), module("elf", "ppc64", {"malloc"}, "libc.so.6", (2, 17)), id="ELF, ppc64"
        ),
        pytest.param(elf(machine=21), module("elf", "ppc64le", {"malloc"}, "libc.so.6", (2, 17)), id="ELF, ppc64le"),
        pytest.param(
            elf(wide=False, machine=3), module("elf", "x86", {"malloc"}, "libc.so.6", (2, 17)), id="ELF, 32 bit"
        ),
        pytest.param(
            elf(wide=False, order=">", machine=20),
            module("elf", "ppc", {"malloc"}, "libc.so.6", (2, 17)),
            id="ELF, 32 bit, big-endian",
        ),
        pytest.param(elf(machine=243), module("elf", "riscv64", {"malloc"}, "libc.so.6", (2, 17)), id="ELF, riscv64"),
        pytest.param(mach_o(), module("mach-o", "aarch64", {"malloc"}, "/usr/lib/libSystem.B.dylib"), id="Mach-O"),
        pytest.param(
            universal(mach_o(), mach_o(machine=0x01000007)),
            module("mach-o", "aarch64+x86_64", {"malloc"}, "/usr/lib/libSystem.B.dylib"),
            id="Mach-O, universal",
        ),
        pytest.param(pe(), module("pe", "x86_64", {"PyModule_Create2"}, "python3.dll"), id="PE"),
        pytest.param(
            pe(machine=0x14C, wide=False), module("pe", "x86", {"PyModule_Create2"}, "python3.dll"), id="PE, 32 bit"
        ),
        pytest.param(pe(machine=0xAA64), module("pe", "aarch64", {"PyModule_Create2"}, "python3.dll"), id="PE, arm64"),
    ],
)
def test_every_format_is_read(data: bytes, expected: LibraryFile, tmp_path: Path) -> None:
    """
    Every format, word size and byte order gives the same fields.
    """
    library = tmp_path / "library"
    library.write_bytes(data)

    assert inspect(library) == expected


def test_universal_file_exports_the_modules_of_all_parts() -> None:
    """
    A module that one part does not export is not exported.
    """
    library = _object_formats.read(universal(mach_o(), mach_o(machine=0x01000007, init=b"_PyInit_other")))

    assert library.exports_init == frozenset()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"#!/bin/sh\n", "is not a shared library", id="script"),
        pytest.param(b"\x7fELF", "damaged ELF", id="four bytes of ELF"),
        pytest.param(elf()[:200], "cut short", id="half an ELF"),
        pytest.param(elf(kind=1), "not a shared library (type 1)", id="object file"),
        pytest.param(elf(kind=2), "not a shared library (type 2)", id="program"),
        pytest.param(mach_o()[:40], "cut short", id="half a Mach-O"),
        pytest.param(mach_o(kind=2), "not a library (type 2)", id="Mach-O program"),
        pytest.param(universal(), "without any machine", id="empty universal file"),
        pytest.param(universal(b"junk"), "damaged Mach-O", id="universal file of junk"),
        pytest.param(b"MZ" + bytes(200), "is not one", id="DOS program"),
        pytest.param(pe(flags=0), "not a library", id="Windows program"),
    ],
)
def test_other_file_is_refused_with_a_reason(data: bytes, words: str) -> None:
    """
    The error says what is wrong with the file.
    """
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are compared below
        _object_formats.read(data)

    assert words in str(error.value)


def real_libraries() -> list[bytes]:
    """
    Real modules: the smallest ones of the running Python.
    """
    folder = Path(sysconfig.get_config_var("DESTSHARED") or ABSENT)
    modules = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_size) if folder.is_dir() else []
    return [path.read_bytes() for path in modules[:1]]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_raise_only_value_error(seed: int) -> None:
    """
    A file with truncated or flipped bytes is read or refused. It never causes another exception or a hang.
    """
    chance = random.Random(seed)
    originals = [*real_libraries(), elf(), elf(wide=False, order=">"), mach_o(), universal(mach_o()), pe()]
    for _ in range(amount(sample=1500, full=500_000)):
        damaged = bytearray(chance.choice(originals))
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        for _ in range(chance.choice([1, 4, 30])):
            if damaged:
                damaged[chance.randrange(min(len(damaged), chance.choice([64, 4096, len(damaged)])))] = chance.choice(
                    [0, 1, 255, chance.randrange(256)]
                )
        # Any other exception fails the test.
        with contextlib.suppress(ValueError):
            _object_formats.read(bytes(damaged))


@pytest.mark.parametrize("cut", range(0, 700, 7))
def test_every_truncation_of_a_small_library_is_refused(cut: int) -> None:
    """
    The tables extend to the end of the file, so no shorter prefix of it is a library.
    """
    whole = elf()

    with pytest.raises(ValueError, match=r"cut short|damaged|empty|not a shared|dynamic"):
        _object_formats.read(whole[: min(cut, len(whole) - 17)])


GOOD = module("elf", "x86_64", {"PyModule_Create2", "_Py_NoneStruct", "_Py_Dealloc", "malloc"}, "libc.so.6")


@pytest.mark.parametrize(
    ("library", "options", "words"),
    [
        pytest.param(GOOD, {}, None, id="good"),
        pytest.param(GOOD, {"abi3": True}, None, id="valid with abi3"),
        pytest.param(GOOD, {"machine": "AMD64"}, None, id="the machine under another name"),
        pytest.param(GOOD, {"leaf": "nn"}, "does not export PyInit_nn, it exports PyInit_mm", id="another module"),
        pytest.param(
            LibraryFile("elf", "x86_64", frozenset(), frozenset(), None, ()), {}, "no module at all", id="no module"
        ),
        pytest.param(
            GOOD, {"machine": "aarch64"}, "is for x86_64, but this Python runs on aarch64", id="another machine"
        ),
        pytest.param(GOOD, {"system": "darwin"}, "is elf; darwin loads mach-o", id="another system"),
        pytest.param(
            _object_formats.read(universal(mach_o(), mach_o(machine=7 | 1 << 24))),
            {"system": "darwin", "machine": "arm64"},
            None,
            id="universal",
        ),
        pytest.param(
            _object_formats.read(pe()), {"system": "win32", "machine": "AMD64", "abi3": True}, None, id="Windows"
        ),
        pytest.param(module("elf", "arm", set(), ""), {"machine": "armv7l"}, None, id="any 32-bit ARM"),
        pytest.param(
            module("elf", "x86_64", {"_PyLong_New"}, ""),
            {"abi3": True},
            "outside the stable ABI: _PyLong_New",
            id="a private symbol",
        ),
        pytest.param(
            module("elf", "x86_64", {"PyFrame_New"}, ""),
            {"abi3": True},
            "outside the stable ABI: PyFrame_New",
            id="a symbol outside every stable ABI",
        ),
        pytest.param(module("elf", "x86_64", {"_PyLong_New"}, ""), {}, None, id="private symbols without abi3"),
        pytest.param(
            LibraryFile("elf", "x86_64", frozenset({"PyInitU_mdchen_bua"}), frozenset(), None, ()),
            {"leaf": "mädchen"},
            None,
            id="a module name that is not ASCII",
        ),
    ],
)
def test_unloadable_library_is_refused_with_a_reason(
    library: LibraryFile, options: dict[str, object], words: str | None
) -> None:
    """
    A library is refused before it is published if `import` would refuse it, or if it claims abi3 wrongly.
    """
    arguments: dict[str, object] = {"leaf": "mm", "machine": "x86_64", "system": "linux", "abi3": False, **options}
    found = problem(library, **arguments)  # type: ignore[arg-type]

    assert found is None if words is None else words in (found or "")


def test_deny_list_holds_no_stable_symbol() -> None:
    """
    A denied symbol that is stable in some version would refuse a valid library.
    """
    pytest.importorskip("test.support", reason="needs the tests of Python")
    names = pytest.importorskip("test.test_stable_abi_ctypes", reason="needs Python 3.11").SYMBOL_NAMES
    stable = set(names)

    assert stable & _library_file._NEVER_STABLE == set()
    assert {name for name in stable if name.startswith("_Py")} <= _library_file._STABLE_UNDERSCORED


def test_installed_abi3_modules_are_accepted() -> None:
    """
    Every installed abi3 module uses only the stable ABI.
    """
    folders = {sysconfig.get_path("platlib"), sysconfig.get_path("purelib")}
    for found in [path for folder in folders for path in Path(folder).rglob("*.abi3.so")]:
        library = inspect(found)
        leaf = found.name.partition(".")[0]

        assert problem(library, leaf=leaf, machine=platform.machine(), system=sys.platform, abi3=True) is None, found


@pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("nm") and sys.platform == "linux"), reason="needs cc and nm on Linux"
)
@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_undefined_symbols_agree_with_nm(style: str, tmp_path: Path) -> None:
    """
    `nm` lists the same undefined symbols, for every kind of hash table, with and without section headers.
    """
    source, library = tmp_path / "mm.c", tmp_path / "mm.so"
    source.write_text(
        'int puts(const char *); void *PyInit_mm(void) { puts("x"); return 0; } '
        "static int PyInit_no(void) { return 1; }"
    )
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,--hash-style={style}", "-o", library, source], check=True)
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True
    ).stdout
    whole = inspect(library)
    # Section headers are for linkers; a loader does not need them.
    data = bytearray(library.read_bytes())
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HH", data, 60, 0, 0)

    assert whole.undefined == {line.split()[-1].partition("@")[0] for line in listed.splitlines()}
    assert whole.exports_init == {"PyInit_mm"}
    assert _object_formats.read(bytes(data)) == whole


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param("glibc 2.36", (2, 36), id="glibc"),
        pytest.param("glibc 2.36.9000", (2, 36), id="a development version"),
        pytest.param(None, None, id="no value"),
        pytest.param("other 1.2", None, id="another library"),
        pytest.param("glibc", None, id="no version"),
    ],
)
def test_glibc_version_of_the_host(
    answer: str | None, expected: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The host has a glibc version only if its C library reports one.
    """
    monkeypatch.setattr(os, "confstr", lambda _name: answer, raising=False)

    assert host_glibc() == expected


def test_glibc_version_without_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The C library musl does not know the queried name, and Windows does not have the call.
    """

    def refuse(_name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", refuse, raising=False)

    assert host_glibc() is None
