"""
Find a project's settings. Decide which remote cache a workspace uses, and which keys it trusts.

    [tool.rust-ext-loader.remote]
    url = "s3://bucket/prefix"
    public-keys = ["ed25519:..."]

A setting is read from the `pyproject.toml` of the workspace's root. If that file does
not have it, it is read from the nearest `pyproject.toml` above that names this root in
`[tool.rust-ext-loader] workspace`. Environment variables replace the URL or the keys
of the remote. An empty URL switches the remote off.

Invariant: a URL grants no trust; only keys do. Keys come from the project's file or
from the environment. The environment is trusted, because it can already make the
process run any code. A file above the workspace is used only if the owner of
the workspace, this user or root owns it, and it is not world-writable.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

from .. import _settings
from .._errors import ManifestError, SettingError
from .._values import dataclass, field
from . import _manifest, _toml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PYPROJECT = "pyproject.toml"

_TABLE = "remote"


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """
    URL of a remote cache, and the keys whose signatures are trusted.
    """

    url: str
    #: Each is `ed25519:` and base64.
    public_keys: tuple[str, ...]
    #: The setting that lists the keys, for error messages.
    keys_from: str = field(default="public-keys", compare=False)

    @property
    def redacted_url(self) -> str:
        """
        The URL without user, password, query and fragment, which may hold secrets.
        """
        return _redacted(self.url)


def remote(workspace: Path, environment: Mapping[str, str]) -> RemoteSettings | None:
    """
    The remote cache of a workspace; `None` if it has none.

    Raises `ManifestError` or `SettingError` for invalid values.
    """
    place, keys = environment.get(_settings.REMOTE_URL), environment.get(_settings.REMOTE_KEYS)
    if place == "":
        return None
    table = None if place is not None and keys is not None else _find_table(workspace)
    url = place or (table.text("url") if table else None)
    if not url:
        return None
    _refuse_plain_http(url, _settings.REMOTE_URL if place else str(table.file if table else workspace))
    if _settings.switched_on(_settings.OFFLINE, environment) and not url.startswith("file:"):
        return None
    if keys is not None:
        return RemoteSettings(url, tuple(filter(None, re.split(r"[\s,]+", keys))), _settings.REMOTE_KEYS)
    if table is None:
        return RemoteSettings(url, ())
    return RemoteSettings(url, table.strings("public-keys"), f"{table.file}: public-keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """
    The value of one key of `[tool.rust-ext-loader]`, and the file that has it.
    """

    file: Path
    value: Any


def find_setting(workspace: Path, key: str) -> Setting | None:
    """
    A key of the `[tool.rust-ext-loader]` that applies to a workspace; `None` if no file has it.

    Raises `ManifestError` if the file in the workspace's root cannot be read.
    """
    root = Path(os.path.abspath(workspace))
    for path in settings_files(root):
        if not path.is_file() or (path.parent != root and not _has_trusted_owner(path, root)):
            continue
        try:
            settings = settings_in(path.parent)
        except ManifestError:
            # A broken file above may belong to an unrelated project.
            if path.parent == root:
                raise
            continue
        if key in settings and (path.parent == root or _names_root(settings, path.parent, root)):
            return Setting(file=path, value=settings[key])
    return None


def settings_files(workspace: Path) -> list[Path]:
    """
    The files that may hold the settings of a workspace, the first match first.
    """
    root = Path(os.path.abspath(workspace))
    return [folder / PYPROJECT for folder in (root, *root.parents)]


def settings_in(folder: Path) -> dict[str, Any]:
    """
    The table `[tool.rust-ext-loader]` of the `pyproject.toml` in a folder.

    Raises `ManifestError` for a file that cannot be read.
    """
    return _manifest.table(_toml.load(folder / PYPROJECT), "tool", _settings.PYPROJECT_TABLE)


@dataclass(frozen=True, slots=True)
class _Table:
    """
    The table `[tool.rust-ext-loader.remote]` of one file.
    """

    file: Path
    values: Mapping[str, Any]

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self._invalid(key, "a string")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._invalid(key, "a list of strings")
        return tuple(value)

    def _invalid(self, key: str, expected: str) -> ManifestError:
        table = f"tool.{_settings.PYPROJECT_TABLE}.{_TABLE}"
        line = _toml.line_of(self.file, table, key)
        return ManifestError(str(self.file), f"[{table}] `{key}` must be {expected}", line)


def _find_table(workspace: Path) -> _Table | None:
    """
    The table of the `pyproject.toml` that applies to a workspace.
    """
    found = find_setting(workspace, _TABLE)
    if found is None:
        return None
    if not isinstance(found.value, dict):
        raise ManifestError(str(found.file), f"[tool.{_settings.PYPROJECT_TABLE}] `{_TABLE}` must be a table")
    return _Table(found.file, found.value)


def _names_root(settings: Mapping[str, Any], folder: Path, root: Path) -> bool:
    named = settings.get("workspace")
    return isinstance(named, str) and os.path.realpath(folder / named) == os.path.realpath(root)


def _has_trusted_owner(path: Path, root: Path) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    file, top = path.stat(), root.stat()
    return file.st_uid in (os.geteuid(), top.st_uid, 0) and not file.st_mode & stat.S_IWOTH


def _redacted(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0].partition("#")[0])


def _refuse_plain_http(url: str, where: str) -> None:
    """
    Refuse `http://` except for this host.

    Signatures protect the content over any connection, but credentials and code would be readable on the network.
    """
    if re.match(r"http://(?!(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$))", url, re.IGNORECASE):
        expected = "an https:// URL, since http:// would send credentials and code unencrypted"
        raise SettingError(where, _redacted(url), expected)
