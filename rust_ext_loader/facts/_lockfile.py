"""
Decide which locked packages the build of one crate can reach.

A workspace has one lockfile, but each crate uses only the part that its manifest
leads to. So an update of one crate's dependency does not rebuild the others.

Invariant: a superset of what cargo compiles, since features and targets are not
evaluated. Dependencies of tests are not followed.
"""

from __future__ import annotations

import os
import re
from typing import Any

from .._errors import LockfileMissing
from .._values import dataclass
from ..declare import _manifest, _toml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LOCKFILE = "Cargo.lock"

_REFERENCE = re.compile(r"(?P<name>\S+)(?: (?P<version>\S+))?(?: \((?P<source>.+)\))?")


@dataclass(frozen=True, slots=True)
class Locked:
    """
    One `[[package]]` of a lockfile.
    """

    name: str
    version: str
    #: Registry or git URL; empty for a package on this disk.
    source: str
    checksum: str
    #: As written: `name`, `name version` or `name version (source)`.
    dependencies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lockfile:
    """
    The packages of a lockfile by name.
    """

    path: Path
    packages: Mapping[str, tuple[Locked, ...]]

    def on_disk(self, name: str, version: str) -> Locked | None:
        """
        The entry of a path package; `None` if the lockfile does not have this version of it.
        """
        return next((item for item in self.packages.get(name, ()) if item.version == version and not item.source), None)

    def refer(self, reference: str) -> tuple[Locked, ...]:
        """
        The packages that an entry of `dependencies` can mean.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            return ()
        name, version, source = match["name"], match["version"], match["source"]
        return tuple(
            item
            for item in self.packages.get(name, ())
            if version in (None, item.version) and (source is None or _same_source(source, item.source))
        )

    def followed(self, package: Locked, declared: frozenset[str] | None) -> tuple[Locked, ...]:
        """
        The dependencies of a package; for a path package only those that it declares outside its tests.
        """
        found = (item for reference in package.dependencies for item in self.refer(reference))
        return tuple(item for item in found if declared is None or item.name in declared)

    def fact(self, package: Locked, declared: frozenset[str] | None) -> tuple[str, str]:
        """
        Name and value of the fact about a locked package.
        """
        name = f"{package.name} {package.version}"
        if sum(item.version == package.version for item in self.packages[package.name]) > 1:
            name += f" ({package.source or 'path'})"
        followed = sorted({f"{item.name} {item.version}" for item in self.followed(package, declared)})
        return name, " ".join([package.source or "path", package.checksum or "-", *[f"[{item}]" for item in followed]])


def _same_source(written: str, source: str) -> bool:
    # A reference omits the commit that the entry itself has.
    return written.partition("#")[0] == source.partition("#")[0]


def read(root: Path) -> Lockfile:
    """
    The lockfile beside a workspace's root manifest.

    Raises `LockfileMissing`, or `ManifestError` when it is not TOML.
    """
    path = root / LOCKFILE
    if not os.path.isfile(path):
        raise LockfileMissing(str(path))
    content = _toml.load(path)
    checksums = _manifest.table(content, "metadata")
    packages: dict[str, list[Locked]] = {}
    for entry in _entries(content.get("package")):
        name, version, source = entry["name"], str(entry.get("version", "")), str(entry.get("source", ""))
        # Old lockfiles keep all checksums in one table at the end.
        checksum = entry.get("checksum") or checksums.get(f"checksum {name} {version} ({source})") or ""
        locked = Locked(name, version, source, str(checksum), _manifest.strings(entry.get("dependencies")))
        packages.setdefault(name, []).append(locked)
    return Lockfile(path, {name: tuple(items) for name, items in packages.items()})


def _entries(listed: object) -> Iterable[dict[str, Any]]:
    if not isinstance(listed, list):
        return []
    return [entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
