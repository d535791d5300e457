"""
Decide which cargo configuration is in force for a crate, and what of it matters.

Cargo merges the `.cargo/config.toml` of every folder from the crate upward,
then its home's; closer values win and lists are joined. Of the result only what
can change the built bytes is kept: not colours, jobs, networks or aliases.

Invariant: relative paths are spelled from the workspace root on, and so are
absolute ones inside it; where a checkout lies never shows.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._errors import ManifestError
from ..declare import _manifest, _toml
from ..files._watching import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The folder of configuration, beside a package or in the user's home.
FOLDER = ".cargo"

#: Tables that can change the output.
_TABLES = ("build", "target", "profile", "env", "patch", "source", "unstable", "paths")

#: Keys in them that cannot: how the build runs, where it writes, documentation.
_HARMLESS = {
    "build": {
        "artifact-dir",
        "build-dir",
        "jobs",
        "rustc-workspace-wrapper",
        "rustc-wrapper",
        "rustdoc",
        "rustdocflags",
        "target-dir",
        "warnings",
    },
    "target": {"runner", "rustdocflags"},
}

#: Where one path ends and the next may begin, as in a class of characters.
_BORDERS = r"\s=:;,'\"\x1f"

#: Keys whose values are paths that cargo counts from the folder around `.cargo`.
_PATHS = frozenset({"linker", "rustc", "path", "directory", "local-registry"})


@dataclass(frozen=True, slots=True)
class Config:
    """
    The merged configuration.
    """

    values: Mapping[str, Any]
    #: What was looked at.
    present: frozenset[str]
    #: What would be looked at if it were there.
    absent: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Include:
    path: str
    #: The file may be missing.
    optional: bool


@dataclass
class _Reading:
    root: Path
    present: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)

    def file_in(self, folder: Path) -> Path | None:
        """
        The configuration file of one `.cargo` folder; in one that is closed to us there is none, for cargo neither.
        """
        found = None
        # With both, cargo reads the one without a suffix.
        for path in (folder / "config.toml", folder / "config"):
            if os.path.isfile(path):
                self.present.add(str(path))
                found = path
            else:
                self.absent.add(str(path))
        return found

    def load(self, path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
        """
        One file over the files that it includes.
        """
        if path in above:
            raise ManifestError(str(path), "includes itself")
        content = _toml.load(path)
        self.present.add(str(path))
        merged: dict[str, Any] = {}
        for include in _includes(content.get("include")):
            included = Path(os.path.normpath(path.parent / include.path))
            if os.path.isfile(included):
                merged = _merge(merged, self.load(included, (*above, path)))
                continue
            self.absent.add(str(included))
            if not include.optional:
                raise ManifestError(str(path), f"includes {included}, which does not exist")
        own = {key: value for key, value in content.items() if key != "include"}
        base = path.parent.parent if path.parent.name == FOLDER else path.parent
        return _merge(merged, {key: _spell(value, (key,), base, self.root) for key, value in own.items()})


def read(directory: Path, environment: Mapping[str, str], root: Path) -> Config:
    """
    The configuration that cargo would use in a crate's folder.

    Raises `ManifestError` for a file that cargo would refuse as well.
    """
    reading = _Reading(root)
    folders = [folder / FOLDER for folder in (directory, *directory.parents)]
    home = cargo_home(directory, environment)
    if home is not None and home not in folders:
        folders.append(home)
    merged: dict[str, Any] = {}
    for folder in reversed(folders):
        if (path := reading.file_in(folder)) is not None:
            merged = _merge(merged, reading.load(path))
    watched = watch(reading.present | reading.absent)
    return Config(merged, watched.present, watched.absent)


def cargo_home(directory: Path, environment: Mapping[str, str]) -> Path | None:
    """
    Cargo's home, if it has one.
    """
    if chosen := environment.get("CARGO_HOME"):
        return Path(os.path.normpath(directory / chosen))
    home = user_home(environment)
    return None if home is None else home / FOLDER


def user_home(environment: Mapping[str, str]) -> Path | None:
    """
    The user's home as cargo and rustup find it: the variable, else the password database.
    """
    variable = "USERPROFILE" if os.name == "nt" else "HOME"
    if home := environment.get(variable):
        return Path(home)
    try:
        import pwd

        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):
        return None


def _includes(value: object) -> Iterator[_Include]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            yield _Include(item, optional=False)
        elif isinstance(item, dict) and isinstance(item.get("path"), str):
            yield _Include(item["path"], optional=item.get("optional") is True)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """
    Two configurations in one: tables are joined, lists appended, and otherwise the upper one wins.
    """
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _merge(old, value)
        elif isinstance(old, list) and isinstance(value, list):
            merged[key] = [*old, *value]
        else:
            merged[key] = value
    return merged


def _spell(value: object, keys: tuple[str, ...], base: Path, root: Path) -> object:
    """
    A value with its paths counted from the workspace root.
    """
    if isinstance(value, dict):
        # `env.X = { value = "...", relative = true }` is a path as well.
        is_path = value.get("relative") is True and keys[0] == "env"
        return {
            key: _spell(item, (*keys, "path" if is_path and key == "value" else key), base, root)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_spell(item, keys, base, root) for item in value]
    if not isinstance(value, str):
        return value
    if keys[-1] in _PATHS and (os.sep in value or keys[-1] not in ("linker", "rustc")) and not os.path.isabs(value):
        return _manifest.posix(os.path.relpath(base / value, root))
    return within(value, root)


def within(text: str, root: Path) -> str:
    """
    A text in which the workspace's own folder is written as a dot, wherever a path begins with it.

    A path begins a text or follows a separator, maybe behind a flag that is glued on: `-L/here/lib`, `prefix=/here=x`.
    """
    top = str(root)
    if top not in text:
        return text
    found = re.compile(rf"((?:^|[{_BORDERS}])(?:[-@][^{_BORDERS}/\\]*)?){re.escape(top)}(?=[/\\{_BORDERS}]|$)")
    return found.sub(r"\1.", text)


def relevant(config: Config, profile: str) -> Iterator[tuple[str, Any]]:
    """
    Dotted keys and values that can change what is built in a profile.
    """
    for name in _TABLES:
        if name in config.values:
            for keys, value in _leaves(config.values[name], (name,)):
                if _matters(keys, profile):
                    yield ".".join(keys), _split(value) if keys[-1] == "rustflags" else value


def _split(value: object) -> object:
    return value.split() if isinstance(value, str) else value


def _matters(keys: tuple[str, ...], profile: str) -> bool:
    if keys[-1] in _HARMLESS.get(keys[0], ()):
        return False
    # A custom profile inherits from one that we do not know here.
    return keys[0] != "profile" or profile not in ("release", "dev") or keys[1:2] == (profile,)


def _leaves(value: object, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict):
        yield keys, value
        return
    for key, item in value.items():
        yield from _leaves(item, (*keys, key))
