"""
Decide which Python modules a source tree declares, and by which packages.

A declaration is `python-module` in `[package.metadata.<table>]` of a workspace
member. Nothing is registered anywhere, no cargo is run and nothing is built.

Invariant: one broken declaration harms nobody else. It is reported when it is
asked for, or when nothing else declares what is asked for.
"""

from __future__ import annotations

import contextlib
import keyword
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import _settings, _trust
from .._errors import DuplicateModule, ExtensionNotFound, ManifestError, RustExtensionError
from .._model import ExtensionSpec, Watched
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

#: Key of `[workspace.metadata.<table>]`: manifests of further workspaces.
_FURTHER = "extension-manifests"
#: Key of `[workspace.metadata.rust-ext-loader]`: which table that is.
_TABLE = "metadata-table"


@dataclass(frozen=True)
class Declared:
    """
    What a workspace declares.
    """

    #: The extension of each module that one package declares.
    specs: Mapping[str, ExtensionSpec]
    #: Manifests of each module that several packages declare.
    duplicates: Mapping[str, tuple[str, ...]]
    #: Members that cannot be read or declare something impossible.
    broken: tuple[ManifestError, ...]
    workspace: Path
    #: `[package.metadata.<table>]` is where its crates declare.
    table: str = _settings.METADATA_TABLE
    #: Which of the broken ones stand for which module, where that much can be told.
    broken_modules: Mapping[str, ManifestError] = field(default_factory=dict)
    #: What would move if anything of this were declared otherwise.
    watched: Watched = field(default_factory=Watched)


def find_workspace(start: Path) -> Path | None:
    """
    The workspace that a person standing in *start* means; for the command line only.

    The nearest folder upward that is a workspace root or whose `pyproject.toml` names one, else the nearest package.
    """
    package = None
    start = Path(os.path.abspath(start))
    for folder in (start, *start.parents):
        if has_manifest(folder):
            if _has_workspace_table(folder):
                return _root_or_own(package, folder)
            package = package or folder
        if os.path.isfile(folder / PYPROJECT) and (named := _named_workspace(folder)) is not None:
            return named
    return package


def _has_workspace_table(folder: Path) -> bool:
    try:
        return "workspace" in _toml.load(folder / MANIFEST)
    except ManifestError:
        return False


def _root_or_own(package: Path | None, root: Path) -> Path:
    """
    The root, unless it excludes the package that one came from.
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
    Everything that a workspace, and those it refers to, declare in its metadata table.

    Raises `ManifestError` when the root manifest itself cannot be read.
    """
    start = read_workspace(path)
    table = _table_of(start)
    specs: dict[str, list[ExtensionSpec]] = {}
    broken: list[ManifestError] = []
    broken_modules: dict[str, ManifestError] = {}
    asked: set[str] = set()
    watched = Watched()
    for workspace in _with_further(start, table, broken, asked):
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
        watched=watched | watch(asked),
    )


def find(module: str, path: Path) -> ExtensionSpec:
    """
    The extension that makes *module*.

    Raises `DuplicateModule` if several packages declare it, `ManifestError` if a broken one might, else
    `ExtensionNotFound`, which lists what there is.
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
    The workspace that declares a module, in a folder above *start*, or beside one under the name that it had.

    A project and the virtual environment in it are moved as one. What others could have put there is passed over.
    """
    folder = os.path.abspath(start)
    while (parent := os.path.dirname(folder)) != folder:
        for candidate in (os.path.join(parent, os.path.basename(workspace)), parent):
            if has_manifest(Path(candidate)) and not _trust.distrust(candidate):
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
    return f"{hint}declared are {', '.join(known)}"


def _with_further(start: Workspace, table: str, broken: list[ManifestError], asked: set[str]) -> Iterator[Workspace]:
    """
    The workspace and those it lists, each once; one that cannot be read joins the broken, and each manifest the asked.
    """
    waiting = [start]
    seen = {start.root}
    while waiting:
        workspace = waiting.pop(0)
        yield workspace
        try:
            listed = _further(workspace, table)
        except ManifestError as error:
            broken.append(error)
            continue
        for item in listed:
            path = workspace.root / item
            asked.add(os.path.normpath(path if path.name == MANIFEST else path / MANIFEST))
            try:
                further = read_workspace(path)
            except ManifestError as error:
                broken.append(error)
                continue
            if further.root not in seen:
                seen.add(further.root)
                waiting.append(further)


def _table_of(workspace: Workspace) -> str:
    """
    Name of the metadata table that a workspace's crates declare in; those that it refers to follow it.
    """
    where, section = workspace.root / MANIFEST, f"workspace.metadata.{_settings.WORKSPACE_TABLE}"
    metadata = _manifest.table(workspace.manifest, "workspace", "metadata", _settings.WORKSPACE_TABLE)
    _check_names(metadata, (_TABLE,), where, section)
    table = metadata.get(_TABLE, _settings.METADATA_TABLE)
    if not isinstance(table, str) or not table:
        raise _wrong(where, section, _TABLE, "the name of a table", table)
    return table


def _further(workspace: Workspace, table: str) -> tuple[str, ...]:
    metadata = _manifest.table(workspace.manifest, "workspace", "metadata", table)
    where = workspace.root / MANIFEST
    _check_names(metadata, (_FURTHER,), where, f"workspace.metadata.{table}")
    return _string_list(metadata, _FURTHER, where, f"workspace.metadata.{table}")


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
        raise _wrong(where, section, PYTHON_MODULE, "a dotted Python name", module)
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
        raise _wrong(where, "lib", "name", "a string", name)
    return name


def _profile(metadata: Mapping[str, Any], where: Path, section: str) -> str:
    profile, debug = metadata.get("profile"), metadata.get("debug", False)
    if not isinstance(debug, bool):
        raise _wrong(where, section, "debug", "true or false", debug)
    if profile is None:
        return "dev" if debug else "release"
    if not isinstance(profile, str) or not profile:
        raise _wrong(where, section, "profile", "the name of a cargo profile", profile)
    return profile


def _string_list(metadata: Mapping[str, Any], key: str, where: Path, section: str) -> tuple[str, ...]:
    value = metadata.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(where, section, key, "a list of strings", value)
    return tuple(value)


def _wrong(where: Path, section: str, key: str, expected: str, value: object) -> ManifestError:
    return ManifestError(
        str(where), f"`{key}` in `[{section}]` must be {expected}, not {value!r}", _toml.line_of(where, section, key)
    )


def _check_names(metadata: Mapping[str, Any], known: tuple[str, ...], where: Path, section: str) -> None:
    """
    Refuse a key that looks like a slip; any other unknown key is left to whoever it belongs to.
    """
    unknown = [key for key in metadata if key not in known]
    if not unknown:
        return
    import difflib

    for key in unknown:
        if nearest := difflib.get_close_matches(key, known, 1, 0.8):
            problem = f"`{key}` in `[{section}]` is unknown; did you mean `{nearest[0]}`?"
            raise ManifestError(str(where), problem, _toml.line_of(where, section, key))
