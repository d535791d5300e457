"""
Decide which cargo configuration applies to a crate, and which parts of it are facts.

Cargo merges the `.cargo/config.toml` of every folder from the crate upward with
that of its home: closer values win, lists are joined. Only settings that can
change the built bytes are kept: not colours, jobs, networks or aliases.

Invariant: relative paths, and absolute paths inside the workspace, become
relative to the workspace root. So the place of a checkout is never a fact.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from .._errors import ManifestError
from .._values import dataclass, field
from ..declare import _manifest, _toml
from ..files._watching import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The folder of cargo's configuration, beside a package or in the user's home.
FOLDER = ".cargo"

#: Tables that can change the output.
_TABLES = ("build", "target", "profile", "env", "patch", "source", "unstable", "paths")

#: Keys in these tables that cannot change it: how the build runs, where it writes, documentation.
_WITHOUT_EFFECT = {
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

#: Characters that separate paths in a text, as the inside of a character class.
_BORDERS = r"\s=:;,'\"\x1f"

#: Keys whose values are paths relative to the folder that contains `.cargo`.
_PATHS = frozenset({"linker", "rustc", "path", "directory", "local-registry"})


@dataclass(frozen=True, slots=True)
class Config:
    """
    The merged configuration.
    """

    values: Mapping[str, Any]
    #: The files that were read.
    present: frozenset[str]
    #: The files that would be read if they existed.
    absent: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
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
        The configuration file of one `.cargo` folder; `None` if there is none, or if the folder cannot be read.
        """
        found = None
        # If both exist, cargo reads the one without a suffix.
        for path in (folder / "config.toml", folder / "config"):
            if os.path.isfile(path):
                self.present.add(str(path))
                found = path
            else:
                self.absent.add(str(path))
        return found

    def load(self, path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
        """
        A file, merged over the files that it includes.
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
        return _merge(merged, {key: _relocatable_value(value, (key,), base, self.root) for key, value in own.items()})


def read(directory: Path, environment: Mapping[str, str], root: Path) -> Config:
    """
    The configuration that cargo uses in a crate's folder.

    Raises `ManifestError` for a file that cargo also refuses.
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
    Cargo's home; `None` if the user has none.
    """
    if chosen := environment.get("CARGO_HOME"):
        return Path(os.path.normpath(directory / chosen))
    home = user_home(environment)
    return None if home is None else home / FOLDER


def user_home(environment: Mapping[str, str]) -> Path | None:
    """
    The user's home as cargo and rustup find it: from the variable, else from the password database.
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
            yield _Include(path=item, optional=False)
        elif isinstance(item, dict) and isinstance(item.get("path"), str):
            yield _Include(path=item["path"], optional=item.get("optional") is True)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """
    Merge two configurations: tables are joined, lists appended, and other values of *above* win.
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


def _relocatable_value(value: object, keys: tuple[str, ...], base: Path, root: Path) -> object:
    """
    A value whose paths are relative to the workspace root.
    """
    if isinstance(value, dict):
        # `env.X = { value = "...", relative = true }` is a path too.
        is_path = value.get("relative") is True and keys[0] == "env"
        return {
            key: _relocatable_value(item, (*keys, "path" if is_path and key == "value" else key), base, root)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_relocatable_value(item, keys, base, root) for item in value]
    if not isinstance(value, str):
        return value
    if keys[-1] in _PATHS and (os.sep in value or keys[-1] not in ("linker", "rustc")) and not os.path.isabs(value):
        return _manifest.posix(os.path.relpath(base / value, root))
    return relocatable(value, root)


def relocatable(text: str, root: Path) -> str:
    """
    The text with a dot in place of the workspace's folder, wherever that begins a path.

    A path begins at the start of the text or after a separator, possibly after a flag: `-L/here/lib`, `prefix=/here=x`.
    """
    top = str(root)
    if top not in text:
        return text
    found = re.compile(rf"((?:^|[{_BORDERS}])(?:[-@][^{_BORDERS}/\\]*)?){re.escape(top)}(?=[/\\{_BORDERS}]|$)")
    return found.sub(r"\1.", text)


def relevant(config: Config, profile: str) -> Iterator[tuple[str, Any]]:
    """
    The dotted keys and values that can change a build in this profile.
    """
    for name in _TABLES:
        if name in config.values:
            for keys, value in _leaves(config.values[name], (name,)):
                if _matters(keys, profile):
                    yield ".".join(keys), _split(value) if keys[-1] == "rustflags" else value


def _split(value: object) -> object:
    return value.split() if isinstance(value, str) else value


def _matters(keys: tuple[str, ...], profile: str) -> bool:
    if keys[-1] in _WITHOUT_EFFECT.get(keys[0], ()):
        return False
    # A custom profile inherits from a profile that is not known here, so all profiles count.
    return keys[0] != "profile" or profile not in ("release", "dev") or keys[1:2] == (profile,)


def _leaves(value: object, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict):
        yield keys, value
        return
    for key, item in value.items():
        yield from _leaves(item, (*keys, key))
