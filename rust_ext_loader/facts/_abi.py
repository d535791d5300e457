"""
Decide which Pythons a built library may be loaded into.

A crate that enables one of PyO3's `abi3-pyXY` features makes one artifact for
every later Python, so only that name counts. Any other library belongs to one
implementation, version and build of Python. The machine and the C library count
for both.

Invariant: a Python without a GIL, or a debug build, never shares an artifact
with another kind. No patch version and no path of an interpreter is a fact.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

from ._fingerprint import ABI

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Facts that other modules read.
MACHINE = f"{ABI}/machine"
TAG = f"{ABI}/tag"

_ABI3 = re.compile(r"abi3-py3(\d+)")

#: What a process of half the width calls the machine that the kernel names.
_NARROW = {"x86_64": "i686", "amd64": "i686", "aarch64": "armv8l", "arm64": "armv8l", "ppc64": "ppc", "s390x": "s390"}
#: And one of double the width, to which `setarch` or a container may claim a narrow machine.
_WIDE = (
    (re.compile(r"i[3-6]86"), "x86_64"),
    (re.compile(r"arm(?!64).*"), "aarch64"),
    (re.compile(r"ppc"), "ppc64"),
    (re.compile(r"s390"), "s390x"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """
    What there is to know about a Python.
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
    #: The interpreter behind a virtual environment, links resolved; empty when it is embedded.
    executable: str


@dataclass(frozen=True, slots=True)
class Abi:
    """
    What a build for the running Python makes.
    """

    facts: Mapping[str, str]
    #: The oldest Python of a stable ABI artifact (`cp310`), `None` for an artifact of this Python alone.
    abi3: str | None
    #: What the library's file name ends with.
    suffix: str
    #: Variables that tell PyO3 which Python to build for.
    build_environment: dict[str, str]


def gather(pyo3_features: frozenset[str], interpreter: Interpreter | None = None) -> Abi:
    """
    The ABI of an extension that is built with these features of PyO3; by default for the running Python.
    """
    python = interpreter or current()
    minor = _stable_minor(pyo3_features, python)
    abi3 = None if minor is None else f"cp3{minor}"
    facts = {f"{ABI}/platform": python.platform, MACHINE: python.machine, f"{ABI}/libc": python.libc}
    if abi3 is None:
        facts |= {
            TAG: f"{python.implementation}-{python.version[0]}.{python.version[1]}",
            f"{ABI}/cache-tag": python.cache_tag,
            f"{ABI}/soabi": python.soabi,
            f"{ABI}/pointer-bits": str(python.pointer_bits),
            f"{ABI}/gil": "yes" if python.gil else "no",
            f"{ABI}/debug": "yes" if python.debug else "no",
        }
    else:
        facts[TAG] = f"abi3-{abi3}"
    return Abi(facts, abi3, _suffix(python, abi3), _build_environment(python, pyo3_features, abi3))


def _stable_minor(features: frozenset[str], python: Interpreter) -> int | None:
    """
    Minor version of the stable ABI that PyO3 would build for this Python, if it would.
    """
    if python.implementation != "cpython" or not python.gil or python.debug:
        return None
    minors = [int(match[1]) for feature in features if (match := _ABI3.fullmatch(feature))]
    # Without a version PyO3 takes that of the interpreter at hand.
    if not minors and "abi3" in features:
        minors = [python.version[1]]
    if not minors or min(minors) > python.version[1]:
        return None
    return min(minors)


def _suffix(python: Interpreter, abi3: str | None) -> str:
    if abi3 is None:
        return python.suffixes[0]
    # Windows has no suffix of its own for the stable ABI.
    return ".abi3.so" if ".abi3.so" in python.suffixes else python.suffixes[-1]


def _build_environment(python: Interpreter, features: frozenset[str], abi3: str | None) -> dict[str, str]:
    variables = {"PYO3_BUILD_EXTENSION_MODULE": "1"}
    if python.executable:
        variables["PYO3_PYTHON"] = python.executable
    # PyO3 then asks no interpreter, and two Pythons compile one and the same thing. On Windows older releases of it need one.
    if abi3 is not None and python.platform != "win32" and any(_ABI3.fullmatch(feature) for feature in features):
        variables["PYO3_NO_PYTHON"] = "1"
    return variables


def current() -> Interpreter:
    """
    The running Python.
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
        # Whether the GIL happens to be on does not matter: the build's structures differ.
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
    The machine as this process sees it, which under an emulator or in 32 bits is not the kernel's.
    """
    if sys.platform == "win32":
        return platform.partition("-")[2] or "x86"
    return of_width(os.uname().machine, bits)


def of_width(machine: str, bits: int) -> str:
    """
    The machine that a process of some width runs on, whatever the kernel calls it.
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
