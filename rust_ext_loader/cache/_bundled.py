"""
Decide whether a bundled module, such as one from a wheel, matches the sources.

A sidecar beside the library, `<leaf>.rust-ext.json`, holds the source key, the ABI
and the digest of the library. In a checkout, a library without a matching sidecar
counts as stale.

Invariant: reading bundled modules touches no workspace, toolchain or cache.
"""

from __future__ import annotations

import json
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from .._values import dataclass
from ..facts._fingerprint import ABI, CPU, SOURCE_GROUPS, Fingerprint, explain
from ..files import _digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..facts._seen import CurrentInputs

#: Version of the sidecar's fields. A sidecar of another version counts as missing.
FORMAT = 2


@dataclass(frozen=True, slots=True)
class Bundled:
    """
    The library that `import` would load, and further libraries of the same module.
    """

    library: Path
    rivals: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """
    What a sidecar says about its library's build.
    """

    facts: Mapping[str, str]
    #: Undeclared inputs that the build read.
    seen: Mapping[str, str]


def sidecar_of(library: Path, leaf: str) -> Path:
    """
    The path of a library's sidecar.
    """
    return library.with_name(f"{leaf}.rust-ext.json")


def candidates(leaf: str, folders: Sequence[str]) -> list[str]:
    """
    Every path at which `import` would look for the module, in the order of the search.
    """
    return [os.path.join(folder, leaf + suffix) for folder in folders for suffix in EXTENSION_SUFFIXES]


def find(leaf: str, folders: Sequence[str]) -> Bundled | None:
    """
    The bundled library of a module in its parent's folders.
    """
    present = [Path(path) for path in candidates(leaf, folders) if os.path.isfile(path)]
    return Bundled(present[0], tuple(present[1:])) if present else None


def describe(library: Path, leaf: str) -> Described | None:
    """
    What the sidecar says about its library; `None` unless size and digest are those of *library*.
    """
    try:
        sidecar: dict[str, Any] = json.loads(sidecar_of(library, leaf).read_bytes())
        facts = {str(name): str(value) for name, value in sidecar["facts"].items()}
        seen = {str(name): str(value) for name, value in sidecar["seen"].items()}
        if sidecar["format"] != FORMAT or Fingerprint(facts).source_key != sidecar["source_key"]:
            return None
        if library.stat().st_size != sidecar["size"] or _digest.of_file(library) != sidecar["sha256"]:
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Described(facts, seen)


def sidecar(module: str, library: Path, facts: Mapping[str, str], seen: Mapping[str, str] | None = None) -> bytes:
    """
    The content of a sidecar.
    """
    fields = {
        "format": FORMAT,
        "module": module,
        "source_key": Fingerprint(facts).source_key,
        "size": library.stat().st_size,
        "sha256": _digest.of_file(library),
        "seen": dict(seen or {}),
        "facts": dict(facts),
    }
    return json.dumps(fields, indent=1, sort_keys=True).encode()


def differences(described: Described | None, wanted: Fingerprint, current: CurrentInputs) -> tuple[str, ...]:
    """
    Why a bundled library does not match the sources; empty if it does.

    Source key, ABI and undeclared inputs are compared, and CPU features if the code is built for one CPU. Toolchain and
    flags of the machine that built the library are not compared: a wheel is used as shipped.
    """
    if described is None:
        return ("no `.rust-ext.json` file describes it",)
    groups = (*SOURCE_GROUPS, ABI, CPU)
    before = {**Fingerprint(described.facts).select(groups), **described.seen}
    changes = explain(before, {**wanted.select(groups), **current.values_of(described.seen)})
    return tuple(str(change) for change in changes)
