"""
Decide which CPUs can run code that was made for the very CPU at hand.

Linux says what each core can do; elsewhere the CPU's name stands for that.

Invariant: no process is started, so a library for another CPU is refused even
where there is no toolchain to ask.
"""

from __future__ import annotations

import os
import sys

from ..files import _digest
from ._fingerprint import CPU

#: What the kernel calls the line, in lower case: x86, ARM and LoongArch, RISC-V, POWER.
_LINES = ("flags", "features", "isa", "cpu")


def facts() -> dict[str, str]:
    """
    The features of the CPU at hand.
    """
    return {f"{CPU}/features": _from_linux() or _from_name()}


def _from_linux() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return digest_of_cpuinfo(file.read())
    except OSError:
        return ""


def digest_of_cpuinfo(text: str) -> str:
    """
    Digest over what the kinds of cores can do, empty if nothing says so; their number and order do not count.
    """
    kinds = set()
    for line in text.splitlines():
        label, colon, value = line.partition(":")
        if colon and label.strip().lower() in _LINES:
            kinds.add(" ".join(sorted(set(value.split()))))
    return _digest.sha256("\n".join(sorted(kinds)).encode()) if kinds else ""


def _from_name() -> str:
    # Not `platform.processor`, which runs a process and says no more than "arm".
    name = _apple_name() if sys.platform == "darwin" else os.environ.get("PROCESSOR_IDENTIFIER", "")
    if not hasattr(os, "uname"):
        return name or "unknown"
    # A CPU without a name is taken for the only one of its kind.
    return f"{os.uname().machine} {name or os.uname().nodename}"


def _apple_name() -> str:
    import ctypes

    try:
        ask = ctypes.CDLL(None).sysctlbyname
    except (OSError, AttributeError):
        return ""
    buffer = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t(len(buffer))
    failed = ask(b"machdep.cpu.brand_string", buffer, ctypes.byref(size), None, ctypes.c_size_t(0))
    return "" if failed else buffer.value.decode("utf-8", "replace")
