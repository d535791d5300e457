"""
Decide which CPUs can run code that was built for the host's own CPU (`native`).

On Linux the kernel lists the features of each core. Elsewhere the CPU's name
stands for its features. This is separate from `_abi`, because CPU features are
facts only if a flag says `native`.

Invariant: no process is started. So a library for another CPU is refused even
without a toolchain.
"""

from __future__ import annotations

import os
import sys

from ..files import _digest
from ._fingerprint import CPU

#: Labels of the lines of `/proc/cpuinfo` that list features, in lower case: x86, ARM and LoongArch, RISC-V, POWER.
_LINES = ("flags", "features", "isa", "cpu")


def facts() -> dict[str, str]:
    """
    The features of the host's CPU.
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
    Digest of the features of all kinds of cores; empty if the text has none. The number of cores has no effect.
    """
    kinds = set()
    for line in text.splitlines():
        label, colon, value = line.partition(":")
        if colon and label.strip().lower() in _LINES:
            kinds.add(" ".join(sorted(set(value.split()))))
    return _digest.sha256("\n".join(sorted(kinds)).encode()) if kinds else ""


def _from_name() -> str:
    # `platform.processor` is not used: it runs a process, and its answer is as coarse as "arm".
    name = _apple_name() if sys.platform == "darwin" else os.environ.get("PROCESSOR_IDENTIFIER", "")
    if not hasattr(os, "uname"):
        return name or "unknown"
    # Without a name of the CPU, the host's name is used: no other host shares the build.
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
