"""
Decide which Python modules a source tree declares, and which packages build them.

A declaration is `python-module` in `[package.metadata.<table>]` of a workspace
member. There is no registry of modules. Nothing here runs cargo or builds.

Invariant: a broken declaration does not affect other modules. It is reported
when its module is requested, or when no crate declares the requested module.
"""

from __future__ import annotations

import contextlib
import keyword
import os
from pathlib import Path
from typing import Any

from .. import _settings, _trust
from .._errors import DuplicateModule, ExtensionNotFound, ManifestError, RustExtensionError
from .._model import ExtensionSpec, Watched
from .._values import dataclass, field
from ..files._watching import watch
from . import _manifest, _toml
from ._project import PYPROJECT, settings_in
from ._workspace import MANIFEST, Workspace, has_manifest, read_workspace, root_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "Declared",
    "DuplicateModule",
    "ExtensionNotFound",
    "ManifestError",
    "Workspace",
    "extensions",
    "find",
    "find_workspace",
    "read_workspace",
]

#: Keys of `[package.metadata.<table>]` that other modules read as well.
PYTHON_MODULE = "python-module"
SOURCE_INPUTS = "source-inputs"
EXCLUDE = "exclude"

_LISTS = ("features", SOURCE_INPUTS, "env", "key-on", EXCLUDE)
_STRINGS = (PYTHON_MODULE, "profile")
_KEYS = (*_STRINGS, *_LISTS, "debug")

#: Key of `[workspace.metadata.<table>]` that lists manifests of other workspaces.
_EXTENSION_MANIFESTS = "extension-manifests"
#: Key of `[workspace.metadata.rust-ext-loader]` that names that table.
_METADATA_TABLE = "metadata-table"


@dataclass(frozen=True)
class Declared:
    """
    The extensions that a workspace declares.
    """

    #: By module, the extension that exactly one package declares.
    specs: Mapping[str, ExtensionSpec]
    #: By module, the manifests of all packages that declare it, if there are several.
    duplicates: Mapping[str, tuple[str, ...]]
    #: Errors of members that cannot be read or whose declaration is invalid.
    broken: tuple[ManifestError, ...]
    workspace: Path
    #: The `<table>` in `[package.metadata.<table>]`, where crates declare their modules.
    table: str = _settings.METADATA_TABLE
    #: By module, the error of its broken declaration, if the module's name could be read.
    broken_modules: Mapping[str, ManifestError] = field(default_factory=dict)
    #: The paths that change if any declaration changes.
    watched: Watched = field(default_factory=Watched)


def find_workspace(start: Path) -> Path | None:
    """
    The workspace for a command that runs in *start*; only the command line uses this.

    That is the nearest folder upward that is a workspace root, or whose `pyproject.toml` names a workspace. If there is
    none, it is the nearest package.
    """
    package = None
    start = Path(os.path.abspath(start))
    for folder in (start, *start.parents):
        if has_manifest(folder):
            if _has_workspace_table(folder):
                return _root_unless_excluded(package, folder)
            package = package or folder
        if os.path.isfile(folder / PYPROJECT) and (named := _named_workspace(folder)) is not None:
            return named
    return package


def _has_workspace_table(folder: Path) -> bool:
    try:
        return "workspace" in _toml.load(folder / MANIFEST)
    except ManifestError:
        return False


def _root_unless_excluded(package: Path | None, root: Path) -> Path:
    """
    The root, or the package if the root excludes it.
    """
    if package is None:
        return root
    try:
        return root if root_of(package, _toml.load(package / MANIFEST)) is not None else package
    except ManifestError:
        return root


def _named_workspace(folder: Path) -> Path | None:
    try:
        named = settings_in(folder).get("workspace")
    except ManifestError:
        return None
    return Path(os.path.normpath(folder / named)) if isinstance(named, str) else None


def extensions(path: Path) -> Declared:
    """
    Everything that a workspace, and the workspaces it lists, declare in the metadata table.

    Raises `ManifestError` if the root manifest cannot be read.
    """
    start = read_workspace(path)
    table = _metadata_table(start)
    specs: dict[str, list[ExtensionSpec]] = {}
    broken: list[ManifestError] = []
    broken_modules: dict[str, ManifestError] = {}
    probed: set[str] = set()
    watched = Watched()
    for workspace in _workspaces(start, table, broken, probed):
        watched |= workspace.watched
        broken.extend(workspace.broken)
        for folder, manifest in workspace.members.items():
            try:
                spec = _declaration(manifest, folder, workspace.root, table)
            except ManifestError as error:
                broken.append(error)
                module = _manifest.table(manifest, "package", "metadata", table).get(PYTHON_MODULE)
                if isinstance(module, str):
                    broken_modules.setdefault(module, error)
                continue
            if spec is not None:
                specs.setdefault(spec.module, []).append(spec)
    return Declared(
        specs={module: found[0] for module, found in sorted(specs.items()) if len(found) == 1},
        duplicates={
            module: tuple(str(spec.manifest) for spec in found)
            for module, found in sorted(specs.items())
            if len(found) > 1
        },
        broken=tuple(broken),
        workspace=start.root,
        table=table,
        broken_modules=broken_modules,
        watched=watched | watch(probed),
    )


def find(module: str, path: Path) -> ExtensionSpec:
    """
    The extension that builds *module*.

    Raises `DuplicateModule` if several packages declare it, and `ManifestError` if a broken declaration might be its
    declaration. Otherwise raises `ExtensionNotFound`, which lists the declared modules.
    """
    declared = extensions(path)
    if module in declared.specs:
        return declared.specs[module]
    if module in declared.duplicates:
        raise DuplicateModule(module, declared.duplicates[module])
    if module in declared.broken_modules:
        raise declared.broken_modules[module]
    if declared.broken:
        raise declared.broken[0]
    raise ExtensionNotFound(
        module, f"no crate of {declared.workspace} declares it", _advice(module, list(declared.specs), declared.table)
    )


def find_again(module: str, workspace: str, start: str) -> str | None:
    """
    The workspace that declares a module, after its project was moved; `None` if it is not found.

    A project and its virtual environment are usually moved together. So every folder above *start* is tried, and also
    its subfolder with the name of the old workspace. Folders that another user could have written are skipped.
    """
    folder = os.path.abspath(start)
    while (parent := os.path.dirname(folder)) != folder:
        for candidate in (os.path.join(parent, os.path.basename(workspace)), parent):
            if has_manifest(Path(candidate)) and not _trust.problem(candidate):
                with contextlib.suppress(RustExtensionError):
                    find(module, Path(candidate))
                    return candidate
        folder = parent
    return None


def _advice(module: str, known: list[str], table: str) -> str:
    if not known:
        return f'declare it with `{PYTHON_MODULE} = "{module}"` in the crate\'s `[package.metadata.{table}]`'
    import difflib

    nearest = difflib.get_close_matches(module, known, 1, 0.6)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"{hint}the declared modules are {', '.join(known)}"


def _workspaces(start: Workspace, table: str, broken: list[ManifestError], probed: set[str]) -> Iterator[Workspace]:
    """
    The workspace and those that it lists, each once.

    Errors of workspaces that cannot be read are added to *broken*, and the path of every listed manifest to *probed*.
    """
    waiting = [start]
    seen = {start.root}
    while waiting:
        workspace = waiting.pop(0)
        yield workspace
        try:
            listed = _listed_manifests(workspace, table)
        except ManifestError as error:
            broken.append(error)
            continue
        for item in listed:
            path = workspace.root / item
            probed.add(os.path.normpath(path if path.name == MANIFEST else path / MANIFEST))
            try:
                further = read_workspace(path)
            except ManifestError as error:
                broken.append(error)
                continue
            if further.root not in seen:
                seen.add(further.root)
                waiting.append(further)


def _metadata_table(workspace: Workspace) -> str:
    """
    Name of the metadata table in which the crates declare their modules. Listed workspaces use the same name.
    """
    where, section = workspace.root / MANIFEST, f"workspace.metadata.{_settings.WORKSPACE_TABLE}"
    metadata = _manifest.table(workspace.manifest, "workspace", "metadata", _settings.WORKSPACE_TABLE)
    _check_names(metadata, (_METADATA_TABLE,), where, section)
    table = metadata.get(_METADATA_TABLE, _settings.METADATA_TABLE)
    if not isinstance(table, str) or not table:
        raise _invalid(where, section, _METADATA_TABLE, "the name of a table", table)
    return table


def _listed_manifests(workspace: Workspace, table: str) -> tuple[str, ...]:
    metadata = _manifest.table(workspace.manifest, "workspace", "metadata", table)
    where = workspace.root / MANIFEST
    _check_names(metadata, (_EXTENSION_MANIFESTS,), where, f"workspace.metadata.{table}")
    return _string_list(metadata, _EXTENSION_MANIFESTS, where, f"workspace.metadata.{table}")


def _declaration(manifest: Mapping[str, Any], folder: Path, root: Path, table: str) -> ExtensionSpec | None:
    metadata = _manifest.table(manifest, "package", "metadata").get(table, {})
    where, section = folder / MANIFEST, f"package.metadata.{table}"
    if not isinstance(metadata, dict):
        raise ManifestError(str(where), f"`{section}` must be a table", _toml.line_of(where, "package.metadata", table))
    _check_names(metadata, _KEYS, where, section)
    module = metadata.get(PYTHON_MODULE)
    if module is None:
        return None
    if not isinstance(module, str) or not all(
        part.isidentifier() and not keyword.iskeyword(part) for part in module.split(".")
    ):
        raise _invalid(where, section, PYTHON_MODULE, "a dotted Python name", module)
    package = _manifest.package_name(manifest)
    if not package:
        raise ManifestError(str(where), "`package.name` is missing")
    lists = {key: _string_list(metadata, key, where, section) for key in _LISTS}
    return ExtensionSpec(
        module=module,
        package=package,
        library=_library_name(manifest, package, where),
        manifest=where,
        workspace=root,
        features=lists["features"],
        profile=_profile(metadata, where, section),
        source_inputs=lists[SOURCE_INPUTS],
        env=lists["env"],
        key_on=lists["key-on"],
        exclude=lists[EXCLUDE],
    )


def _library_name(manifest: Mapping[str, Any], package: str, where: Path) -> str:
    name = _manifest.table(manifest, "lib").get("name", package.replace("-", "_"))
    if not isinstance(name, str):
        raise _invalid(where, "lib", "name", "a string", name)
    return name


def _profile(metadata: Mapping[str, Any], where: Path, section: str) -> str:
    profile, debug = metadata.get("profile"), metadata.get("debug", False)
    if not isinstance(debug, bool):
        raise _invalid(where, section, "debug", "true or false", debug)
    if profile is None:
        return "dev" if debug else "release"
    if not isinstance(profile, str) or not profile:
        raise _invalid(where, section, "profile", "the name of a cargo profile", profile)
    return profile


def _string_list(metadata: Mapping[str, Any], key: str, where: Path, section: str) -> tuple[str, ...]:
    value = metadata.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _invalid(where, section, key, "a list of strings", value)
    return tuple(value)


def _invalid(where: Path, section: str, key: str, expected: str, value: object) -> ManifestError:
    return ManifestError(
        str(where), f"`{key}` in `[{section}]` must be {expected}, not {value!r}", _toml.line_of(where, section, key)
    )


def _check_names(metadata: Mapping[str, Any], known: tuple[str, ...], where: Path, section: str) -> None:
    """
    Refuse a key that looks like a misspelling; other unknown keys are ignored, since other tools may use the table.
    """
    unknown = [key for key in metadata if key not in known]
    if not unknown:
        return
    import difflib

    for key in unknown:
        if nearest := difflib.get_close_matches(key, known, 1, 0.8):
            problem = f"`{key}` in `[{section}]` is unknown; did you mean `{nearest[0]}`?"
            raise ManifestError(str(where), problem, _toml.line_of(where, section, key))
