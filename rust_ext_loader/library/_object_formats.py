"""
Parse shared libraries: ELF, Mach-O and PE.

Only the parts that a loader uses are read (dynamic segment, symbol table, export
directory). Section headers are not, because a stripped file may lack them.

The file is over 400 lines because three formats share one checked view of bytes.

Invariant: any bytes give a `LibraryFile` or a `ValueError`, in bounded time.
Offsets come from the file, and `_View` checks each before it is used.
"""

from __future__ import annotations

import struct

from .._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: More entries than this (symbols, versions, load commands) count as damage.
_TOO_MANY = 4_000_000
#: Longer than any mangled name.
_LONGEST_TEXT = 65536


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """
    The contents of a shared library that decide whether it can be loaded.
    """

    #: `elf`, `mach-o` or `pe`.
    format: str
    #: `x86_64`, `aarch64`, ...; a universal file has several, joined by `+`.
    machine: str
    #: `PyInit_*` functions that can be imported.
    exports_init: frozenset[str]
    #: Symbols that other libraries must define.
    undefined: frozenset[str]
    #: The oldest glibc that defines all required symbol versions; `None` if none is required.
    glibc_floor: tuple[int, int] | None
    #: Names of the libraries that it needs.
    needed: tuple[str, ...]
    #: In an ELF file, the folders to search for them; `$ORIGIN` is the library's own folder.
    search: tuple[str, ...] = ()


def read(data: bytes) -> LibraryFile:
    """
    Parse the bytes of a library; the `ValueError` says what is wrong with them.
    """
    if not data:
        raise ValueError("is empty")
    head = data[:4]
    if head == b"\x7fELF":
        return _Elf(data).read()
    if head in (b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf"):
        return _universal(data)
    if head in _MACH_O_KINDS:
        return _mach_o(data)
    if head[:2] == b"MZ":
        return _Pe(data).read()
    raise ValueError(f"is not a shared library (it begins with {head!r})")


class _View:
    """
    Bytes, read in one byte order and never beyond their end.
    """

    def __init__(self, data: bytes, order: str) -> None:
        self._data = data
        self._order = order

    def numbers(self, layout: str, offset: int) -> tuple[int, ...]:
        # Offsets are sums of unsigned numbers, so they are never negative, but they may be beyond the end.
        if offset > len(self._data):
            raise ValueError(f"is cut short or damaged (nothing at offset {offset:#x})")
        try:
            return struct.unpack_from(self._order + layout, self._data, offset)
        except struct.error:
            raise ValueError(f"is cut short or damaged (it ends at offset {offset:#x})") from None

    def rows(self, layout: str, offset: int, count: int) -> Iterator[tuple[int, ...]]:
        size = struct.calcsize(self._order + layout)
        end = offset + size * count
        if end > len(self._data):
            raise ValueError(f"is cut short or damaged (a table of {count} entries at offset {offset:#x} does not fit)")
        return struct.iter_unpack(self._order + layout, memoryview(self._data)[offset:end])

    def text(self, offset: int) -> str:
        end = self._data.find(b"\0", offset, offset + _LONGEST_TEXT)
        if end < 0:
            raise ValueError(f"is cut short or damaged (no text at offset {offset:#x})")
        return self._data[offset:end].decode("utf-8", "replace")


def _bounded(count: int) -> int:
    if count > _TOO_MANY:
        raise ValueError(f"is damaged (it claims {count} entries in one table)")
    return count


def _init_names(names: Iterator[str]) -> frozenset[str]:
    return frozenset(name for name in names if name.startswith(("PyInit_", "PyInitU_")))


# --- ELF ---

_ELF_MACHINES = {
    3: "x86",
    8: "mips",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    258: "loongarch64",
}
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RPATH, _DT_RUNPATH = 1, 4, 5, 6, 15, 29
_DT_GNU_HASH, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFFE, 0x6FFFFFFF
_ET_DYN = 3
_STB_GLOBAL, _STB_WEAK = 1, 2


class _Elf:
    """
    One ELF file of either word size and byte order.
    """

    def __init__(self, data: bytes) -> None:
        wide, order = (_View(data, "<").numbers("BB", 4)) if len(data) > 5 else (0, 0)
        if wide not in (1, 2) or order not in (1, 2):
            raise ValueError("is a damaged ELF file (unknown class or byte order)")
        self._wide = wide == 2
        self._little = order == 1
        self._view = _View(data, "<" if self._little else ">")
        self._segments = list(self._program_headers())
        self._tags = self._dynamic_tags()

    def read(self) -> LibraryFile:
        symbols = list(self._symbols())
        return LibraryFile(
            format="elf",
            machine=self._machine(),
            exports_init=_init_names(name for name, defined in symbols if defined),
            undefined=frozenset(name for name, defined in symbols if not defined and name),
            glibc_floor=max(filter(None, map(_glibc_version, self._versions())), default=None),
            needed=tuple(self._string(offset) for offset in self._tags.get(_DT_NEEDED, [])),
            search=tuple(filter(None, ":".join(self._string(offset) for offset in self._search()).split(":"))),
        )

    def _search(self) -> list[int]:
        return self._tags.get(_DT_RUNPATH, []) or self._tags.get(_DT_RPATH, [])

    def _machine(self) -> str:
        (number,) = self._view.numbers("H", 18)
        if number == 243:
            return "riscv64" if self._wide else "riscv32"
        name = _ELF_MACHINES.get(number, f"ELF machine {number}")
        return name + "le" if name == "ppc64" and self._little else name

    def _program_headers(self) -> Iterator[tuple[int, int, int, int]]:
        """
        Kind, file offset, address and file size of every segment.
        """
        (kind,) = self._view.numbers("H", 16)
        if kind != _ET_DYN:
            raise ValueError(f"is an ELF file, but not a shared library (type {kind})")
        (offset,) = self._view.numbers("Q", 32) if self._wide else self._view.numbers("I", 28)
        size, count = self._view.numbers("HH", 54 if self._wide else 42)
        if size != (56 if self._wide else 32):
            raise ValueError("is a damaged ELF file (size of its program headers)")
        for row in self._view.rows("IIQQQQQQ" if self._wide else "IIIIIIII", offset, count):
            if self._wide:
                segment, _, start, address, _, stored, *_ = row
            else:
                segment, start, address, _, stored, *_ = row
            yield segment, start, address, stored

    def _dynamic_tags(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for kind, offset, _, size in self._segments:
            if kind != _PT_DYNAMIC:
                continue
            entry = 16 if self._wide else 8
            for tag, value in self._view.rows("QQ" if self._wide else "II", offset, size // entry):
                if tag == 0:
                    break
                found.setdefault(tag, []).append(value)
        if not found:
            raise ValueError("is an ELF file without dynamic segment")
        return found

    def _place(self, tag: int) -> int | None:
        """
        File offset of the table whose address a tag holds; `None` without such a tag.
        """
        if tag not in self._tags:
            return None
        address = self._tags[tag][0]
        for kind, offset, start, size in self._segments:
            if kind == _PT_LOAD and start <= address < start + size:
                return offset + address - start
        raise ValueError("is a damaged ELF file (a table outside every segment)")

    def _string(self, offset: int) -> str:
        table = self._place(_DT_STRTAB)
        if table is None:
            raise ValueError("is a damaged ELF file (no string table)")
        return self._view.text(table + offset)

    def _symbols(self) -> Iterator[tuple[str, bool]]:
        """
        Name of every exported or imported dynamic symbol, and whether it is defined here.
        """
        table = self._place(_DT_SYMTAB)
        if table is None:
            return
        for row in self._view.rows("IBBHQQ" if self._wide else "IIIBBH", table, self._symbol_count()):
            if self._wide:
                name, info, _, section, *_ = row
            else:
                name, _, _, info, _, section = row
            if info >> 4 in (_STB_GLOBAL, _STB_WEAK):
                yield self._string(name), section != 0

    def _symbol_count(self) -> int:
        if (plain := self._place(_DT_HASH)) is not None:
            return _bounded(self._view.numbers("II", plain)[1])
        gnu = self._place(_DT_GNU_HASH)
        if gnu is None:
            raise ValueError("is an ELF file without a hash table of its symbols")
        buckets, first, bloom, _ = self._view.numbers("IIII", gnu)
        start = gnu + 16 + bloom * (8 if self._wide else 4)
        last = max((bucket for (bucket,) in self._view.rows("I", start, buckets)), default=0)
        if last < first:
            return _bounded(first)
        # The chain of the last bucket ends with an odd hash.
        chains = start + 4 * buckets
        while not self._view.numbers("I", chains + 4 * (last - first))[0] & 1:
            last += 1
        return _bounded(last + 1)

    def _versions(self) -> Iterator[str]:
        """
        Names of the symbol versions that other libraries must define.
        """
        place = self._place(_DT_VERNEED)
        left = _TOO_MANY // 100
        for _ in range(self._tags.get(_DT_VERNEEDNUM, [0])[0] if place is not None else 0):
            assert place is not None
            _, count, _, first, following = self._view.numbers("HHIII", place)
            entry = place + first
            for _ in range(count):
                *_, name, after = self._view.numbers("IHHII", entry)
                yield self._string(name)
                entry += after
                left -= 1
                if left < 0:
                    raise ValueError("is a damaged ELF file (its version table has no end)")
            if not following:
                return
            place += following


def _glibc_version(name: str) -> tuple[int, int] | None:
    if name == "GLIBC_ABI_DT_RELR":
        # The name holds no version number, but it sets a minimum: 2.36 is the first loader that supports packed
        # relocations.
        return 2, 36
    prefix, _, version = name.partition("_")
    parts = version.split(".")
    if (
        prefix != "GLIBC"
        or len(parts) < 2
        or not (parts[0].isascii() and parts[0].isdigit() and parts[1].isascii() and parts[1].isdigit())
    ):
        return None
    return int(parts[0][:6]), int(parts[1][:6])


# --- Mach-O ---

_MACH_O_KINDS = {
    b"\xcf\xfa\xed\xfe": ("<", True),
    b"\xfe\xed\xfa\xcf": (">", True),
    b"\xce\xfa\xed\xfe": ("<", False),
    b"\xfe\xed\xfa\xce": (">", False),
}
_MACH_O_MACHINES = {7: "x86", 0x01000007: "x86_64", 12: "arm", 0x0100000C: "aarch64"}
_MH_DYLIB, _MH_BUNDLE = 6, 8
_LC_SYMTAB = 0x2
_LC_LOADS = (0xC, 0x80000018, 0x8000001F)


def _universal(data: bytes) -> LibraryFile:
    """
    A file for several machines; it exports a symbol only if every part does.
    """
    wide = data[:4] == b"\xca\xfe\xba\xbf"
    view = _View(data, ">")
    (count,) = view.numbers("I", 4)
    rows = view.rows("IIQQII" if wide else "IIIII", 8, count)
    parts = [_mach_o(data[offset : offset + size]) for _, _, offset, size, *_ in rows]
    if not parts:
        raise ValueError("is a universal file without any machine")
    return LibraryFile(
        format="mach-o",
        machine="+".join(sorted({part.machine for part in parts})),
        exports_init=frozenset.intersection(*(part.exports_init for part in parts)),
        undefined=frozenset.union(*(part.undefined for part in parts)),
        glibc_floor=None,
        needed=tuple(dict.fromkeys(name for part in parts for name in part.needed)),
    )


def _mach_o(data: bytes) -> LibraryFile:
    order, wide = _MACH_O_KINDS.get(data[:4], ("", False))
    if not order:
        raise ValueError("is a damaged Mach-O file")
    view = _View(data, order)
    _, machine, _, kind, count = view.numbers("IIIII", 0)
    if kind not in (_MH_DYLIB, _MH_BUNDLE):
        raise ValueError(f"is a Mach-O file, but not a library (type {kind})")
    needed: list[str] = []
    symbols: list[tuple[str, bool]] = []
    place = 32 if wide else 28
    for _ in range(_bounded(count)):
        command, size = view.numbers("II", place)
        if size < 8:
            raise ValueError("is a damaged Mach-O file (size of a load command)")
        if command in _LC_LOADS:
            needed.append(view.text(place + view.numbers("I", place + 8)[0]))
        elif command == _LC_SYMTAB:
            table, entries, strings, _ = view.numbers("IIII", place + 8)
            symbols = list(_mach_o_symbols(view, table, entries, strings, wide=wide))
        place += size
    return LibraryFile(
        format="mach-o",
        machine=_MACH_O_MACHINES.get(machine, f"Mach-O machine {machine}"),
        exports_init=_init_names(name for name, defined in symbols if defined),
        undefined=frozenset(name for name, defined in symbols if not defined and name),
        glibc_floor=None,
        needed=tuple(needed),
    )


def _mach_o_symbols(view: _View, table: int, count: int, strings: int, *, wide: bool) -> Iterator[tuple[str, bool]]:
    for name, kind, *_ in view.rows("IBBHQ" if wide else "IBBHI", table, _bounded(count)):
        # Only external symbols, without those for debuggers or private to the image. C names start with an underscore.
        if kind & 0x01 and not kind & 0xF0:
            yield view.text(strings + name).removeprefix("_"), kind & 0x0E != 0


# --- PE ---

_PE_MACHINES = {0x14C: "x86", 0x8664: "x86_64", 0xAA64: "aarch64", 0x1C4: "arm"}
_DLL = 0x2000


class _Pe:
    """
    One Windows library.
    """

    def __init__(self, data: bytes) -> None:
        self._view = _View(data, "<")
        (start,) = self._view.numbers("I", 0x3C)
        if data[start : start + 4] != b"PE\0\0":
            raise ValueError("begins like a Windows file, but is not one")
        self._machine, sections, _, _, _, optional, flags = self._view.numbers("HHIIIHH", start + 4)
        if not flags & _DLL:
            raise ValueError("is a Windows file, but not a library")
        header = start + 24
        self._wide = self._view.numbers("H", header)[0] == 0x20B
        self._directories = header + (112 if self._wide else 96)
        headers = self._view.rows("IIIIIIIIII", header + optional, sections)
        self._sections = [(size, start, raw_size, offset) for _, _, size, start, raw_size, offset, *_ in headers]

    def read(self) -> LibraryFile:
        imports = list(self._imports())
        return LibraryFile(
            format="pe",
            machine=_PE_MACHINES.get(self._machine, f"PE machine {self._machine:#x}"),
            exports_init=_init_names(self._exports()),
            undefined=frozenset(name for _, names in imports for name in names),
            glibc_floor=None,
            needed=tuple(library for library, _ in imports),
        )

    def _place(self, address: int) -> int:
        for size, start, raw_size, offset in self._sections:
            if start <= address < start + max(size, raw_size):
                return offset + address - start
        raise ValueError("is a damaged Windows file (a table outside every section)")

    def _directory(self, index: int) -> int | None:
        address, _ = self._view.numbers("II", self._directories + 8 * index)
        return self._place(address) if address else None

    def _exports(self) -> Iterator[str]:
        place = self._directory(0)
        if place is None:
            return
        count, _, names = self._view.numbers("III", place + 24)
        if count:
            for (address,) in self._view.rows("I", self._place(names), count):
                yield self._view.text(self._place(address))

    def _imports(self) -> Iterator[tuple[str, list[str]]]:
        place = self._directory(1)
        while place is not None:
            thunks, _, _, name, first = self._view.numbers("IIIII", place)
            if not name:
                return
            yield self._view.text(self._place(name)), list(self._imported(self._place(thunks or first)))
            place += 20

    def _imported(self, place: int) -> Iterator[str]:
        size, layout, by_number = (8, "Q", 1 << 63) if self._wide else (4, "I", 1 << 31)
        while value := self._view.numbers(layout, place)[0]:
            if not value & by_number:
                yield self._view.text(self._place(value) + 2)
            place += size
