"""
Read one package's `Cargo.toml` as cargo does, including what it inherits.

Dependencies of tests (dev-dependencies) are left out: they are compiled only
for tests. `workspace = true` is replaced by the value from the package's own
workspace root.

Invariant: works on parsed values only, and reads nothing from disk. So comments
and the order of keys have no effect.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Cargo accepts the underscore form in editions before 2024.
_NORMAL = ("dependencies",)
_BUILD = ("build-dependencies", "build_dependencies")
_DEV = ("dev-dependencies", "dev_dependencies")

_TABLES = (*_NORMAL, *_BUILD, *_DEV)

#: Tables that cannot change the library: other targets, metadata of other tools, settings that only a root can have.
_WITHOUT_EFFECT = frozenset({"bench", "test", "example", "badges", "workspace", "profile", "patch", "replace"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """
    One entry of a dependency table.
    """

    #: The key in the table.
    key: str
    #: Name of the package; `package =` can make it differ from the key.
    package: str
    #: Absolute folder of a path dependency; `None` if it comes from a registry or from git.
    directory: Path | None
    #: Whether `path =` was written as an absolute path.
    absolute: bool
    optional: bool
    default_features: bool
    features: tuple[str, ...]
    #: Whether it is used only by build scripts, only by tests, or only for some targets.
    conditional: bool


def canonical(value: object) -> str:
    """
    JSON that does not depend on the order of keys.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def table(value: object, *keys: str) -> dict[str, Any]:
    """
    A nested table; empty if it is missing or not a table.
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def strings(value: object) -> tuple[str, ...]:
    """
    The strings in a list; other items are skipped, since cargo reports them itself.
    """
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def package_name(manifest: Mapping[str, Any]) -> str:
    """
    `package.name`; empty for a manifest without a package.
    """
    name = table(manifest, "package").get("name")
    return name if isinstance(name, str) else ""


def package_version(resolved: Mapping[str, Any]) -> str:
    """
    `package.version` of a resolved manifest, or cargo's default.
    """
    version = table(resolved, "package").get("version")
    return version if isinstance(version, str) else "0.0.0"


def relative_to_root(path: str, directory: Path, root: Path) -> str:
    """
    A path from a manifest in *directory*, made relative to *root*, so that it is the same in every checkout.

    An absolute path outside the root is reduced to its last part.
    """
    absolute = os.path.normpath(directory / path)
    if os.path.isabs(path) and not is_inside(absolute, root):
        return f"(absolute)/{os.path.basename(absolute)}"
    return posix(os.path.relpath(absolute, root))


def posix(path: str) -> str:
    """
    A relative path with forward slashes.
    """
    return path.replace(os.sep, "/")


def is_inside(path: str | Path, root: str | Path) -> bool:
    """
    Whether a normalised path is the root or below it.
    """
    path, root = os.fspath(path), os.fspath(root)
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def resolve(
    manifest: Mapping[str, Any], directory: Path, root_manifest: Mapping[str, Any], root: Path, *, dev: bool = False
) -> dict[str, Any]:
    """
    The manifest with inherited values filled in, and without tables that cannot change the library.

    Inherited paths become relative to the package's folder. With *dev* the dependencies of tests are kept, since these
    also make a package a member of the workspace.
    """
    shared = table(root_manifest, "workspace")
    unwanted = _WITHOUT_EFFECT if dev else _WITHOUT_EFFECT.union(_DEV)
    resolved: dict[str, Any] = {}
    for name, value in manifest.items():
        if name in unwanted:
            continue
        if name == "package":
            resolved[name] = _package(table(manifest, "package"), table(shared, "package"))
        elif name == "lints" and table(manifest, "lints").get("workspace") is True:
            resolved[name] = shared.get("lints", {})
        elif name in _TABLES:
            resolved[name] = _dependencies(value, directory, shared, root)
        elif name == "target" and isinstance(value, dict):
            resolved[name] = {key: _target(item, directory, shared, root, unwanted) for key, item in value.items()}
        else:
            resolved[name] = value
    return resolved


def _package(package: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    inherited = {
        key: shared.get(key)
        for key, value in package.items()
        if isinstance(value, dict) and value.get("workspace") is True
    }
    return {key: value for key, value in {**package, **inherited}.items() if key != "metadata" and value is not None}


def _target(value: object, directory: Path, shared: dict[str, Any], root: Path, unwanted: frozenset[str]) -> object:
    if not isinstance(value, dict):
        return value
    return {
        key: _dependencies(item, directory, shared, root) if key in _TABLES else item
        for key, item in value.items()
        if key not in unwanted
    }


def _dependencies(value: object, directory: Path, shared: dict[str, Any], root: Path) -> object:
    if not isinstance(value, dict):
        return value
    common = table(shared, "dependencies")
    return {key: _inherit(item, common.get(key), directory, root) for key, item in value.items()}


def _inherit(own: object, common: object, directory: Path, root: Path) -> object:
    if not isinstance(own, dict) or own.get("workspace") is not True:
        return own
    base = {"version": common} if isinstance(common, str) else dict(common) if isinstance(common, dict) else {}
    path = base.get("path")
    if isinstance(path, str) and not os.path.isabs(path):
        base["path"] = posix(os.path.relpath(root / path, directory))
    merged = {**base, **{key: value for key, value in own.items() if key not in ("workspace", "features")}}
    features = sorted({*strings(base.get("features")), *strings(own.get("features"))})
    # As in cargo: a member cannot switch off default features that the workspace leaves on.
    if base.get("default-features") is not False:
        merged.pop("default-features", None)
    elif own.get("default-features") is not True:
        merged["default-features"] = False
    return {**merged, "features": features} if features else merged


def portable(resolved: Mapping[str, Any], directory: Path, root: Path) -> dict[str, Any]:
    """
    A resolved manifest as a fact: paths of dependencies are relative to the workspace root.
    """

    def entry(value: object) -> object:
        if isinstance(value, dict) and isinstance(value.get("path"), str):
            return {**value, "path": relative_to_root(value["path"], directory, root)}
        return value

    def entries(tables: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: {name: entry(item) for name, item in value.items()}
            if key in _TABLES and isinstance(value, dict)
            else value
            for key, value in tables.items()
        }

    fact = entries(resolved)
    if isinstance(resolved.get("target"), dict):
        fact["target"] = {
            key: entries(value) if isinstance(value, dict) else value for key, value in resolved["target"].items()
        }
    return fact


def dependencies(resolved: Mapping[str, Any], directory: Path) -> Iterator[Dependency]:
    """
    Every dependency of a resolved manifest, for any target, optional or not.
    """
    for key in _TABLES:
        yield from _listed(table(resolved, key), directory, conditional=key not in _NORMAL)
        for target in table(resolved, "target").values():
            yield from _listed(table(target, key), directory, conditional=True)


def _listed(entries: dict[str, Any], directory: Path, *, conditional: bool) -> Iterator[Dependency]:
    for key, value in entries.items():
        details = value if isinstance(value, dict) else {}
        path = details.get("path")
        name = details.get("package")
        yield Dependency(
            key=key,
            package=name if isinstance(name, str) else key,
            directory=Path(os.path.normpath(directory / path)) if isinstance(path, str) else None,
            absolute=isinstance(path, str) and os.path.isabs(path),
            optional=details.get("optional") is True,
            default_features=details.get("default-features", details.get("default_features")) is not False,
            features=strings(details.get("features")),
            conditional=conditional,
        )
