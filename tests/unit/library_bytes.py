"""
The smallest shared libraries of each format, as bytes.
"""

from __future__ import annotations

import struct


def elf(*, wide: bool = True, order: str = "<", machine: int = 62, kind: int = 3, gnu: bool = True) -> bytes:
    """
    The smallest ELF library with one module, one undefined symbol, one library and two versions.
    """
    strings = b"\0PyInit_mm\0malloc\0libc.so.6\0GLIBC_2.17\0GLIBC_PRIVATE\0GLIBC_2.4\0"

    def name(text: bytes) -> int:
        return strings.index(text + b"\0")

    def pack(layout: str, *values: int) -> bytes:
        return struct.pack(order + layout, *values)

    def symbol(text: bytes, section: int) -> bytes:
        if wide:
            return pack("IBBHQQ", name(text) if text else 0, 0x12 if text else 0, 0, section, 0, 0)
        return pack("IIIBBH", name(text) if text else 0, 0, 0, 0x12 if text else 0, 0, section)

    symbols = symbol(b"", 0) + symbol(b"malloc", 0) + symbol(b"PyInit_mm", 9)
    if gnu:
        hashes = pack("IIII", 1, 2, 1, 0) + bytes(8 if wide else 4) + pack("I", 2) + pack("I", 0x1235)
    else:
        hashes = pack("IIIIII", 1, 3, 2, 0, 0, 0)
    versions = pack("HHIII", 1, 3, name(b"libc.so.6"), 16, 0)
    for position, text in enumerate((b"GLIBC_2.17", b"GLIBC_PRIVATE", b"GLIBC_2.4")):
        versions += pack("IHHII", 0, 0, 2, name(text), 16 if position < 2 else 0)
    start = (64 + 2 * 56) if wide else (52 + 2 * 32)
    base = 0x1000
    places, body = [], b""
    for part in (strings, symbols, hashes, versions):
        places.append(base + start + len(body))
        body += part + bytes(-len(part) % 8)
    tags = [
        *((5, places[0]), (6, places[1]), (0x6FFFFEF5 if gnu else 4, places[2]), (0x6FFFFFFE, places[3])),
        *((0x6FFFFFFF, 1), (1, name(b"libc.so.6")), (0, 0)),
    ]
    word = "Q" if wide else "I"
    dynamic = b"".join(pack(word * 2, *tag) for tag in tags)
    head = _elf_head(order, kind, machine, base, len(body), len(dynamic), wide=wide)
    assert len(head) == start
    return head + body + dynamic


def _elf_head(order: str, kind: int, machine: int, base: int, body: int, dynamic: int, *, wide: bool) -> bytes:
    """
    The file header and the headers of two segments: the loaded one, and the dynamic one after the body.
    """

    def pack(layout: str, *values: int) -> bytes:
        return struct.pack(order + layout, *values)

    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    if wide:
        offset = 64 + 2 * 56 + body
        size = offset + dynamic
        header = pack("HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
        segments = pack("IIQQQQQQ", 1, 5, 0, base, base, size, size, 1)
        segments += pack("IIQQQQQQ", 2, 6, offset, base + offset, 0, dynamic, dynamic, 8)
    else:
        offset = 52 + 2 * 32 + body
        size = offset + dynamic
        header = pack("HHIIIIIHHHHHH", kind, machine, 1, 0, 52, 0, 0, 52, 32, 2, 0, 0, 0)
        segments = pack("IIIIIIII", 1, 0, base, base, size, size, 5, 1)
        segments += pack("IIIIIIII", 2, offset, base + offset, 0, dynamic, dynamic, 6, 4)
    return ident + header + segments


def mach_o(*, order: str = "<", machine: int = 0x0100000C, kind: int = 8, init: bytes = b"_PyInit_mm") -> bytes:
    """
    The smallest 64-bit Mach-O bundle with one module, one undefined and one private symbol, one library.
    """
    strings = b"\0" + init + b"\0_malloc\0_PyInit_hidden\0"
    symbols = b"".join(
        struct.pack(order + "IBBHQ", strings.index(text + b"\0"), flags, 0, 0, 0)
        for text, flags in ((init, 0x0F), (b"_malloc", 0x01), (b"_PyInit_hidden", 0x1F))
    )
    library = b"/usr/lib/libSystem.B.dylib\0".ljust(32, b"\0")
    load = struct.pack(order + "IIIIII", 0xC, 24 + len(library), 24, 0, 0, 0) + library
    end = 32 + len(load) + 24
    table = struct.pack(order + "IIIIII", 2, 24, end, 3, end + len(symbols), len(strings))
    header = struct.pack(order + "IIIIIIII", 0xFEEDFACF, machine, 0, kind, 2, len(load) + len(table), 0, 0)
    return header + load + table + symbols + strings


def universal(*parts: bytes) -> bytes:
    header, body, offset = struct.pack(">II", 0xCAFEBABE, len(parts)), b"", 8 + 20 * len(parts)
    for part in parts:
        header += struct.pack(">IIIII", 0, 0, offset + len(body), len(part), 0)
        body += part
    return header + body


def pe(*, machine: int = 0x8664, flags: int = 0x2000, wide: bool = True) -> bytes:
    """
    The smallest Windows library with one module, one imported function and one library.
    """
    base, start = 0x1000, 0x200
    word = "Q" if wide else "I"
    names = {"PyInit_mm": 0x100, "python3.dll": 0x120, "PyModule_Create2": 0x140}
    body = bytearray(0x200)
    struct.pack_into("<IIII", body, 24 - 0, 1, 0, base + 0x80, 0)
    struct.pack_into("<I", body, 0x80, base + names["PyInit_mm"])
    struct.pack_into("<IIIII", body, 0x40, base + 0x90, 0, 0, base + names["python3.dll"], base + 0x90)
    struct.pack_into(
        "<" + word * 3, body, 0x90, base + names["PyModule_Create2"] - 2, (1 << (63 if wide else 31)) | 5, 0
    )
    for text, place in names.items():
        body[place : place + len(text)] = text.encode()
    directories = struct.pack("<IIII", base, 0x40, base + 0x40, 0x40) + bytes(14 * 8)
    optional = struct.pack("<H", 0x20B if wide else 0x10B).ljust(112 if wide else 96, b"\0") + directories
    section = struct.pack("<IIIIIIIIII", 0, 0, len(body), base, len(body), start, 0, 0, 0, 0)
    header = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40) + b"PE\0\0"
    header += struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, len(optional), flags) + optional + section
    return header.ljust(start, b"\0") + bytes(body)
