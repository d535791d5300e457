"""
Gather the facts that depend on the checkout alone: sources, resolution, request.

Sources are the files of the crate and of every package on this disk that it
depends on. Resolution is the input of cargo's resolver: manifests as values, the
reachable part of the lockfile, patches, profiles. The request is the crate's
declaration of its module.

Invariant: no toolchain is needed and no process is started. Paths in facts are
relative to the workspace root, so a copied checkout has the same facts.
"""

from __future__ import annotations

import os
from typing import Any

from .._model import ExtensionSpec, Gathered, PathPackage, Watched
from .._values import dataclass
from ..declare import _manifest
from ..declare._discover import EXCLUDE, PYTHON_MODULE, SOURCE_INPUTS
from ..declare._workspace import MANIFEST, Workspace
from ..files import _digest
from . import _activation, _closure, _sources
from ._fingerprint import LOCKED_PACKAGE, REQUEST, RESOLUTION, SOURCE_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Inputs:
    """
    The facts of a checkout.
    """

    gathered: Gathered
    #: Every package whose sources are on this disk, the crate itself first.
    packages: tuple[PathPackage, ...]
    #: The enabled features of PyO3.
    pyo3_features: frozenset[str]
    #: Files whose content is a fact.
    hashed: frozenset[str]
    #: The oldest compiler that the crate supports, if it says so.
    rust_version: str | None = None


def gather(spec: ExtensionSpec, workspace: Workspace, features: tuple[str, ...]) -> Inputs:
    """
    Gather all inputs of an extension that is built with additional *features*.

    Raises `ManifestError`, `LockfileMissing` or `LockfileOutdated`.
    """
    closure = _closure.of(spec.directory, workspace)
    wanted = tuple(sorted({*spec.features, *features}))
    facts = {**_request(spec, wanted), **_resolution(closure, spec.profile)}
    present = {str(workspace.root / MANIFEST), str(closure.lockfile.path)}
    absent = set(closure.absent)
    packages = []
    hashed: set[str] = set()
    distributions = _distributions(spec.key_on)
    table = _metadata_table(closure, spec.module)
    for package in closure.packages.values():
        is_own = package.directory == spec.directory
        declared = _Declared(spec.exclude, spec.source_inputs) if is_own else _declared(package, table)
        sources = _package_sources(package, workspace.root, declared)
        facts.update({SOURCE_FILE + name: digest for name, digest in sources.digests.items()})
        present |= sources.present | {str(package.directory / MANIFEST)}
        present |= {str(package.inherits_from)} if package.inherits_from else set()
        absent |= sources.absent
        hashed |= sources.files
        # Cargo does not know Python distributions. Another version changes this digest, so the package is recompiled.
        versions = {f"key-on {found.name}": found.version for found in distributions} if is_own else {}
        digest = _package_digest(package, sources, versions)
        uses = frozenset(folder for dependency in package.dependencies for folder in closure.target(dependency))
        packages.append(PathPackage(package.name, package.version, package.directory, digest, uses))
    facts.update({f"{REQUEST}/key-on/{found.name}": found.version for found in distributions})
    present.update(folder for found in distributions for folder in found.folders)
    return Inputs(
        gathered=Gathered(facts, Watched(frozenset(present), frozenset(absent)) | workspace.watched),
        packages=tuple(packages),
        pyo3_features=_activation.pyo3_features(closure, wanted),
        hashed=frozenset(hashed),
        rust_version=_rust_version(closure),
    )


def _rust_version(closure: _closure.Closure) -> str | None:
    start = next(iter(closure.packages.values()))
    version = _manifest.table(start.resolved, "package").get("rust-version")
    return version if isinstance(version, str) else None


def _request(spec: ExtensionSpec, features: tuple[str, ...]) -> dict[str, str]:
    return {
        f"{REQUEST}/package": spec.package,
        f"{REQUEST}/library": spec.library,
        f"{REQUEST}/module": spec.module,
        f"{REQUEST}/features": ",".join(features),
        f"{REQUEST}/profile": spec.profile,
    }


@dataclass(frozen=True, slots=True)
class _Distribution:
    """
    An installed distribution.
    """

    name: str
    version: str
    #: Folders whose stat changes with the version.
    folders: tuple[str, ...]


def _distributions(names: tuple[str, ...]) -> list[_Distribution]:
    if not names:
        return []
    from importlib import metadata

    # An upgrade renames the metadata folder, which changes the folder around it.
    folders = tuple(path for path in dict.fromkeys(_import_folders()) if os.path.isdir(path))
    found = []
    for name in names:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = "absent"
        found.append(_Distribution(name, version, folders))
    return found


def _import_folders() -> list[str]:
    import sys

    return [path for path in sys.path if path]


def _resolution(closure: _closure.Closure, profile: str) -> dict[str, str]:
    workspace = closure.workspace
    facts = {LOCKED_PACKAGE + name: value for name, value in closure.locked.items()}
    for package in closure.packages.values():
        name = _label(package, workspace.root)
        portable = _manifest.portable(package.resolved, package.directory, workspace.root)
        facts[f"{RESOLUTION}/manifest/{name}"] = _manifest.canonical(portable)
    for name, value in _profiles(workspace, profile):
        facts[f"{RESOLUTION}/profile/{name}"] = _manifest.canonical(value)
    if patches := _patches(closure):
        facts[f"{RESOLUTION}/patch"] = _manifest.canonical(patches)
    facts[f"{RESOLUTION}/resolver"] = _resolver(workspace)
    return facts


def _profiles(workspace: Workspace, name: str) -> Iterator[tuple[str, Any]]:
    """
    The profile and the profiles it inherits from, as far as the root manifest sets them.
    """
    profiles = _manifest.table(workspace.manifest, "profile")
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        if name in profiles:
            yield name, profiles[name]
        inherits = _manifest.table(profiles, name).get("inherits")
        name = inherits if isinstance(inherits, str) else {"test": "dev", "bench": "release"}.get(name, "")


def _patches(closure: _closure.Closure) -> dict[str, Any]:
    root = closure.workspace.root
    found: dict[str, dict[str, Any]] = {}
    for source, key, value in _closure.patch_tables(closure.workspace):
        # A patch of a package that this crate does not depend on has no effect.
        if _closure.patched_name(key, value) in closure.names:
            is_path = isinstance(value, dict) and isinstance(value.get("path"), str)
            portable = {**value, "path": _manifest.relative_to_root(value["path"], root, root)} if is_path else value
            found.setdefault(source, {})[key] = portable
    return found


def _resolver(workspace: Workspace) -> str:
    package = _manifest.table(workspace.manifest, "package")
    chosen = _manifest.table(workspace.manifest, "workspace").get("resolver") or package.get("resolver")
    if isinstance(chosen, str):
        return chosen
    edition = package.get("edition")
    if isinstance(edition, dict):
        edition = _manifest.table(workspace.manifest, "workspace", "package").get("edition")
    return {"2021": "2", "2024": "3"}.get(str(edition), "1")


def _label(package: _closure.Package, root: Path) -> str:
    """
    The name of a package's folder in facts.
    """
    if package.elsewhere:
        return f"(outside)/{package.name}"
    return _manifest.posix(os.path.relpath(package.directory, root))


def _metadata_table(closure: _closure.Closure, module: str) -> str:
    """
    Name of the metadata table that declares the module; the crates it depends on use the same table.
    """
    start = next(iter(closure.packages.values()))
    tables = _manifest.table(start.manifest, "package", "metadata")
    return next((name for name in tables if _manifest.table(tables, name).get(PYTHON_MODULE) == module), "")


@dataclass(frozen=True, slots=True)
class _Declared:
    """
    The declarations of a crate about its own files.
    """

    exclude: tuple[str, ...]
    source_inputs: tuple[str, ...]


def _declared(package: _closure.Package, table: str) -> _Declared:
    metadata = _manifest.table(package.manifest, "package", "metadata", table)
    return _Declared(_manifest.strings(metadata.get(EXCLUDE)), _manifest.strings(metadata.get(SOURCE_INPUTS)))


def _package_sources(package: _closure.Package, root: Path, declared: _Declared) -> _sources.Sources:
    folder, prefix = str(package.directory), _label(package, root)
    top = str(root)

    def name_of(path: str) -> str:
        # Most paths are below the package, and slicing is much faster than `relpath`.
        if path.startswith(folder + os.sep):
            below = path[len(folder) + 1 :]
            return _manifest.posix(below if prefix == "." else f"{prefix}/{below}")
        return _manifest.posix(os.path.relpath(path, top))

    sources = _sources.Sources(name_of)
    sources.add_package(folder, declared.exclude)
    for pattern in declared.source_inputs:
        sources.add_declared(folder, pattern)
    return sources


def _package_digest(package: _closure.Package, sources: _sources.Sources, versions: dict[str, str]) -> str:
    """
    Digest over everything that the package itself contributes; if it changes, cargo must recompile the package.

    Both the bytes of the manifest and its resolved value are part of the digest.
    """
    return _digest.sha256(
        _digest.framed_items(sources.digests),
        (_sources.file_digest(str(package.directory / MANIFEST)) or "").encode(),
        _manifest.canonical(package.resolved).encode(),
        _digest.framed_items(versions),
    )
