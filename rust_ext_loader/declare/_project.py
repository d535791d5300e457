"""
Say which remote cache a workspace uses, and whose signatures count there.

    [tool.rust-ext-loader.remote]
    url = "s3://bucket/prefix"
    public-keys = ["ed25519:..."]

It stands in a `pyproject.toml`: that of the workspace's root, or the nearest above
whose `[tool.rust-ext-loader] workspace` names this root. The environment may
name another place, other keys, or (with an empty value) no place.

Invariant: naming a place gives it no trust; only keys do. Those in the project's
file are the project's choice, those in the environment the user's own: whoever
sets the environment of a process can make it run anything as it is. A file
above the workspace counts only if it belongs to whoever owns the workspace, to
this user or to root, and nobody else can write it.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import _settings
from .._errors import ManifestError, SettingError
from . import _manifest, _toml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = "pyproject.toml"
_TABLE = "remote"


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """
    Where entries are asked for, and whose are believed.
    """

    url: str
    #: As they are written down: `ed25519:` and base64.
    public_keys: tuple[str, ...]
    #: The setting that names the keys, for whoever has to mend it.
    keys_from: str = field(default="public-keys", compare=False)

    @property
    def shown(self) -> str:
        """
        The place, without what a URL may hold of secrets.
        """
        return re.sub(r"//[^/@]*@", "//", self.url.partition("?")[0].partition("#")[0])


def remote(workspace: Path, environment: Mapping[str, str]) -> RemoteSettings | None:
    """
    What holds for a workspace, or `None` where there is no remote.

    Raises `ManifestError` or `SettingError` for what means nothing.
    """
    place, keys = environment.get(_settings.REMOTE_URL), environment.get(_settings.REMOTE_KEYS)
    if place == "":
        return None
    found = None if place is not None and keys is not None else _table(workspace)
    url = place or _text(found, "url")
    if not url:
        return None
    _refuse_plain_http(url, _settings.REMOTE_URL if place else str(found[0] / _FILE if found else workspace))
    if _settings.switched_on(_settings.OFFLINE, environment) and not url.startswith("file:"):
        return None
    if keys is not None:
        return RemoteSettings(url, tuple(filter(None, re.split(r"[\s,]+", keys))), _settings.REMOTE_KEYS)
    return RemoteSettings(url, _keys(found), f"{found[0] / _FILE}: public-keys" if found else "public-keys")


def _table(workspace: Path) -> tuple[Path, dict[str, Any]] | None:
    """
    The folder of the `pyproject.toml` that speaks for a workspace, and its table.
    """
    root = Path(os.path.abspath(workspace))
    for folder in (root, *root.parents):
        path = folder / _FILE
        if not path.is_file() or (folder != root and not _is_ours(path, root)):
            continue
        try:
            settings = _manifest.table(_toml.load(path), "tool", _settings.PYPROJECT_TABLE)
        except ManifestError:
            # Somebody else's file, somewhere above, is not ours to complain of.
            if folder == root:
                raise
            continue
        if _TABLE in settings and (folder == root or _names(settings, folder, root)):
            table = settings[_TABLE]
            if not isinstance(table, dict):
                raise ManifestError(str(path), f"[tool.{_settings.PYPROJECT_TABLE}] `{_TABLE}` must be a table")
            return folder, table
    return None


def _names(settings: Mapping[str, Any], folder: Path, root: Path) -> bool:
    named = settings.get("workspace")
    return isinstance(named, str) and os.path.realpath(folder / named) == os.path.realpath(root)


def _is_ours(path: Path, root: Path) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    file, top = path.stat(), root.stat()
    return file.st_uid in (os.geteuid(), top.st_uid, 0) and not file.st_mode & stat.S_IWOTH


def _text(found: tuple[Path, dict[str, Any]] | None, key: str) -> str | None:
    if found is None:
        return None
    value = found[1].get(key)
    if value is not None and not isinstance(value, str):
        raise _wrong(found[0], key, "a string")
    return value


def _keys(found: tuple[Path, dict[str, Any]] | None) -> tuple[str, ...]:
    if found is None:
        return ()
    value = found[1].get("public-keys", [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(found[0], "public-keys", "a list of strings")
    return tuple(value)


def _wrong(folder: Path, key: str, expected: str) -> ManifestError:
    path, table = folder / _FILE, f"tool.{_settings.PYPROJECT_TABLE}.{_TABLE}"
    return ManifestError(str(path), f"[{table}] `{key}` must be {expected}", _toml.line_of(path, table, key))


def _refuse_plain_http(url: str, where: str) -> None:
    """
    Plain http is for this host alone.

    Signatures hold over any wire, but credentials and code would travel for everybody to read.
    """
    if re.match(r"http://(?!(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$))", url, re.IGNORECASE):
        raise SettingError(
            where, url, "an https:// URL, since http:// would show credentials and code to whoever listens"
        )
