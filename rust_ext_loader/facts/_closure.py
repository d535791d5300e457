"""
Decide which packages, on this disk and in the lockfile, are part of a build.

The closure starts at a crate. It follows every path dependency (normal, build,
optional, for any target, renamed, inherited, patched) and, through the lockfile,
everything from a registry or from git. Dependencies of tests are left out.

Invariant: a superset, computed without cargo. It contains every package that
`cargo metadata` lists for the crate, and may contain more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._errors import LockfileOutdated, ManifestError
from .._values import dataclass, field
from ..declare import _manifest, _toml
from ..declare._workspace import MANIFEST, Workspace, has_manifest, root_of
from . import _lockfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """
    A package on this disk.
    """

    name: str
    version: str
    directory: Path
    #: The parsed `Cargo.toml`, unchanged.
    manifest: Mapping[str, Any]
    #: The manifest with inherited values, without tables that cannot change the library.
    resolved: Mapping[str, Any]
    #: The root manifest that it inherits from, if that is another file.
    inherits_from: Path | None
    #: Whether it is outside the workspace and was found by an absolute path. Facts then name it without a path.
    elsewhere: bool
    member: bool

    @property
    def dependencies(self) -> tuple[_manifest.Dependency, ...]:
        """
        Its dependencies, without those of tests.
        """
        return tuple(_manifest.dependencies(self.resolved, self.directory))

    @property
    def declared(self) -> frozenset[str]:
        """
        The package names of its dependencies, without those of tests.
        """
        return frozenset(dependency.package for dependency in self.dependencies)


@dataclass
class Closure:
    """
    The packages that a crate's build may use.
    """

    workspace: Workspace
    lockfile: _lockfile.Lockfile
    #: By folder; the crate itself comes first.
    packages: dict[Path, Package] = field(default_factory=dict)
    #: Facts about the locked packages.
    locked: dict[str, str] = field(default_factory=dict)
    #: Names of all packages, on disk and locked.
    names: set[str] = field(default_factory=set)
    #: Manifests that do not exist; if one appeared, the closure could change.
    absent: set[str] = field(default_factory=set)
    #: Folders of path patches, by the name of the package that they replace.
    patches: dict[str, list[Path]] = field(default_factory=dict)

    def target(self, dependency: _manifest.Dependency) -> list[Path]:
        """
        Folders that a dependency may resolve to.
        """
        if dependency.directory is not None:
            return [dependency.directory]
        return self.patches.get(dependency.package, [])


def of(start: Path, workspace: Workspace) -> Closure:
    """
    The closure of the package in a folder.

    Raises `ManifestError`, `LockfileMissing` or `LockfileOutdated`.
    """
    closure = Closure(workspace, _lockfile.read(workspace.root), patches=_path_patches(workspace))
    _add(closure, start)
    _lock(closure)
    return closure


def patch_tables(workspace: Workspace) -> Iterator[tuple[str, str, Any]]:
    """
    Every entry of `[patch]` and `[replace]`: the source that it applies to, its key and its value.
    """
    for source, entries in _manifest.table(workspace.manifest, "patch").items():
        for key, value in _manifest.table(entries).items():
            yield source, key, value
    for key, value in _manifest.table(workspace.manifest, "replace").items():
        yield "(replace)", key, value


def patched_name(key: str, value: object) -> str:
    """
    Name of the package that an entry of `[patch]` or `[replace]` replaces.
    """
    name = value.get("package") if isinstance(value, dict) else None
    # A key of `[replace]` is a package id: `name:version` or `url#name:version`.
    return name if isinstance(name, str) else key.rpartition("#")[2].partition(":")[0].partition("@")[0]


def _path_patches(workspace: Workspace) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for _, key, value in patch_tables(workspace):
        path = value.get("path") if isinstance(value, dict) else None
        if isinstance(path, str):
            found.setdefault(patched_name(key, value), []).append(Path(os.path.normpath(workspace.root / path)))
    return found


def _add(closure: Closure, start: Path) -> None:
    """
    Add a package and, transitively, every package on this disk that its manifest depends on.
    """
    waiting = [(start, False)]
    while waiting:
        folder, absolute = waiting.pop(0)
        if folder in closure.packages:
            continue
        package = _read(folder, closure.workspace, absolute=absolute)
        closure.packages[folder] = package
        for dependency in package.dependencies:
            for target in closure.target(dependency):
                if has_manifest(target):
                    waiting.append((target, dependency.absolute or package.elsewhere))
                else:
                    _note_missing(closure, package, dependency, target)


def _note_missing(closure: Closure, package: Package, dependency: _manifest.Dependency, target: Path) -> None:
    if package.member and dependency.directory is not None:
        problem = f"dependency `{dependency.key}` points to {target}, where there is no {MANIFEST}"
        raise ManifestError(str(package.directory / MANIFEST), problem)
    # Cargo reads an optional dependency of a package outside the workspace only if its feature is enabled.
    closure.absent.add(str(target / MANIFEST))


def _read(folder: Path, workspace: Workspace, *, absolute: bool) -> Package:
    member = folder in workspace.members
    manifest = workspace.members[folder] if member else _toml.load(folder / MANIFEST)
    root = workspace.root if member else _foreign_root(folder, manifest)
    root_manifest = workspace.manifest if member else _toml.load(root / MANIFEST)
    resolved = _manifest.resolve(manifest, folder, root_manifest, root)
    name = _manifest.package_name(manifest)
    if not name:
        raise ManifestError(str(folder / MANIFEST), "is needed as a dependency but has no `package.name`")
    return Package(
        name=name,
        version=_manifest.package_version(resolved),
        directory=folder,
        manifest=manifest,
        resolved=resolved,
        inherits_from=None if member or root == folder else root / MANIFEST,
        elsewhere=absolute and not _manifest.is_inside(folder, workspace.root),
        member=member,
    )


def _foreign_root(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """
    The root from which a package outside the workspace inherits.
    """
    if "workspace" in manifest:
        return folder
    return root_of(folder, manifest) or folder


def _lock(closure: Closure) -> None:
    """
    Follow the lockfile from the crate; through a patch this may lead to more packages on this disk.
    """
    lockfile = closure.lockfile
    start = next(iter(closure.packages.values()))
    waiting = [_locked(closure, package) for package in list(closure.packages.values())]
    if waiting[0] is None:
        raise LockfileOutdated(str(lockfile.path), start.name)
    seen: set[_lockfile.Locked] = set()
    while waiting:
        item = waiting.pop()
        if item is None or item in seen:
            continue
        seen.add(item)
        declared = None if item.source else _declared(closure, item)
        waiting.extend(lockfile.followed(item, declared))
        name, value = lockfile.fact(item, declared)
        closure.locked[name] = value
    closure.names = {item.name for item in seen} | {package.name for package in closure.packages.values()}


def _locked(closure: Closure, package: Package) -> _lockfile.Locked | None:
    found = closure.lockfile.on_disk(package.name, package.version)
    if not package.member:
        return found
    if found is None:
        raise LockfileOutdated(str(closure.lockfile.path), package.name)
    known = {item.name for reference in found.dependencies for item in closure.lockfile.refer(reference)}
    # A member's tests may depend on the member itself; the lockfile does not list that.
    for missing in sorted(package.declared - known - {package.name}):
        raise LockfileOutdated(str(closure.lockfile.path), missing)
    return found


def _declared(closure: Closure, item: _lockfile.Locked) -> frozenset[str] | None:
    for package in closure.packages.values():
        if (package.name, package.version) == (item.name, item.version):
            return package.declared
    # No manifest leads to this package, so it is a patch of a package from a registry.
    before = set(closure.packages)
    for folder in closure.patches.get(item.name, []):
        if has_manifest(folder):
            _add(closure, folder)
    for folder in closure.packages.keys() - before:
        package = closure.packages[folder]
        if (package.name, package.version) == (item.name, item.version):
            return package.declared
    return None
