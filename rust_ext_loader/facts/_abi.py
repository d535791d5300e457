"""
Decide which Pythons can load a built library.

A crate that enables one of PyO3's `abi3-pyXY` features builds one library for
all later Pythons, so the key holds only that feature's name. Any other library
is for one implementation, version and build of Python. Machine and C library
are facts in both cases.

Invariant: a free-threaded or a debug build of Python never shares a library
with another kind. Patch versions and paths of interpreters are not facts.
"""

from __future__ import annotations

import os
import re
import sys

from .._values import dataclass
from ._fingerprint import ABI, ABI_MACHINE, ABI_TAG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_ABI3 = re.compile(r"abi3-py3(\d+)")

#: The kernel's name for a 64-bit machine, and the machine of a 32-bit process on it.
_NARROW = {"x86_64": "i686", "amd64": "i686", "aarch64": "armv8l", "arm64": "armv8l", "ppc64": "ppc", "s390x": "s390"}
#: The reverse, for a 64-bit process: `setarch` or a container may report a 32-bit machine.
_WIDE = (
    (re.compile(r"i[3-6]86"), "x86_64"),
    (re.compile(r"arm(?!64).*"), "aarch64"),
    (re.compile(r"ppc"), "ppc64"),
    (re.compile(r"s390"), "s390x"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """
    The properties of a Python that decide about its ABI.
    """

    implementation: str
    version: tuple[int, int]
    cache_tag: str
    soabi: str
    pointer_bits: int
    gil: bool
    debug: bool
    platform: str
    machine: str
    libc: str
    suffixes: tuple[str, ...]
    #: The interpreter behind a virtual environment, links resolved; empty if Python is embedded.
    executable: str


@dataclass(frozen=True, slots=True)
class Abi:
    """
    The ABI of a build for the running Python.
    """

    facts: Mapping[str, str]
    #: The oldest Python that can load a stable ABI library (`cp310`); `None` for a library of this Python only.
    abi3: str | None
    #: The end of the library's file name.
    suffix: str
    #: Variables that tell PyO3 for which Python to build.
    build_environment: dict[str, str]


def gather(pyo3_features: frozenset[str], interpreter: Interpreter | None = None) -> Abi:
    """
    The ABI of an extension that is built with these features of PyO3, by default for the running Python.
    """
    python = interpreter or current()
    minor = _stable_minor(pyo3_features, python)
    abi3 = None if minor is None else f"cp3{minor}"
    facts = {f"{ABI}/platform": python.platform, ABI_MACHINE: python.machine, f"{ABI}/libc": python.libc}
    if abi3 is None:
        facts |= {
            ABI_TAG: f"{python.implementation}-{python.version[0]}.{python.version[1]}",
            f"{ABI}/cache-tag": python.cache_tag,
            f"{ABI}/soabi": python.soabi,
            f"{ABI}/pointer-bits": str(python.pointer_bits),
            f"{ABI}/gil": "yes" if python.gil else "no",
            f"{ABI}/debug": "yes" if python.debug else "no",
        }
    else:
        facts[ABI_TAG] = f"abi3-{abi3}"
    return Abi(facts, abi3, _suffix(python, abi3), _build_environment(python, pyo3_features, abi3))


def _stable_minor(features: frozenset[str], python: Interpreter) -> int | None:
    """
    Minor version of the stable ABI that PyO3 builds for this Python; `None` if it does not use the stable ABI.
    """
    if python.implementation != "cpython" or not python.gil or python.debug:
        return None
    minors = [int(match[1]) for feature in features if (match := _ABI3.fullmatch(feature))]
    # Without a version PyO3 uses that of the running interpreter.
    if not minors and "abi3" in features:
        minors = [python.version[1]]
    if not minors or min(minors) > python.version[1]:
        return None
    return min(minors)


def _suffix(python: Interpreter, abi3: str | None) -> str:
    if abi3 is None:
        return python.suffixes[0]
    # Windows has no separate suffix for the stable ABI.
    return ".abi3.so" if ".abi3.so" in python.suffixes else python.suffixes[-1]


def _build_environment(python: Interpreter, features: frozenset[str], abi3: str | None) -> dict[str, str]:
    variables = {"PYO3_BUILD_EXTENSION_MODULE": "1"}
    if python.executable:
        variables["PYO3_PYTHON"] = python.executable
    # With this variable PyO3 runs no interpreter, so two Pythons share one build. On Windows, older releases of PyO3
    # need an interpreter.
    if abi3 is not None and python.platform != "win32" and any(_ABI3.fullmatch(feature) for feature in features):
        variables["PYO3_NO_PYTHON"] = "1"
    return variables


def current() -> Interpreter:
    """
    The properties of the running Python.
    """
    import sysconfig
    from importlib.machinery import EXTENSION_SUFFIXES

    soabi = str(sysconfig.get_config_var("SOABI") or "")
    bits = 64 if sys.maxsize > 2**32 else 32
    return Interpreter(
        implementation=sys.implementation.name,
        version=sys.version_info[:2],
        cache_tag=sys.implementation.cache_tag or "",
        soabi=soabi,
        pointer_bits=bits,
        # How Python was built, even if the GIL is switched on at run time: the layout of structures differs.
        gil=not sysconfig.get_config_var("Py_GIL_DISABLED"),
        debug=hasattr(sys, "gettotalrefcount"),
        platform=sys.platform,
        machine=_machine(bits, sysconfig.get_platform()),
        libc=_libc(soabi),
        suffixes=tuple(EXTENSION_SUFFIXES),
        executable=_base_executable(),
    )


def _machine(bits: int, platform: str) -> str:
    """
    The machine as this process sees it: under an emulator, or in a 32-bit process, it is not the kernel's.
    """
    if sys.platform == "win32":
        return platform.partition("-")[2] or "x86"
    return of_width(os.uname().machine, bits)


def of_width(machine: str, bits: int) -> str:
    """
    The machine of a process with this pointer width, given the kernel's name for the machine.
    """
    if bits == 32:
        return _NARROW.get(machine, machine)
    return next((wide for narrow, wide in _WIDE if narrow.fullmatch(machine)), machine)


def _libc(soabi: str) -> str:
    if sys.platform != "linux":
        return ""
    if "musl" in soabi:
        return "musl"
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        name = ""
    return "glibc" if name.startswith("glibc") else "musl"


def _base_executable() -> str:
    path = getattr(sys, "_base_executable", "") or sys.executable
    return os.path.realpath(path) if path else ""
