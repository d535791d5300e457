"""
Remove or keep cargo's outputs of single packages in one target folder and profile.

    <target folder>/[<triple>/]<profile>/.fingerprint/<package>-<hash>/   by which cargo decides what is fresh
    <target folder>/[<triple>/]<profile>/build/<package>-<hash>/          build script, and its output
    <target folder>/[<triple>/]<profile>/incremental/<crate>-<hash>/      compiler state for the next compilation

`cargo clean` would remove the incremental state too, so the next compilation of an edit
would be slow. The compiler compares sources by content, so a changed source does not
make its state invalid. A damaged or foreign file would.

Invariant: incremental state is used only if size, time and inode of each file are
those that the last complete run of the compiler left.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from .. import _stat
from ..files import _digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

#: Cargo's folders for its own profiles. Every other profile has a folder of its name.
_FOLDERS = {"dev": "debug", "test": "debug", "bench": "release"}

#: The end of a folder's name after the package's: a hash in hex digits.
_HASH = re.compile(r"-[0-9a-f]{16}")


def discard(folder: Path, profile: str, packages: Collection[str]) -> None:
    """
    Make cargo compile these packages again, whatever the times of their sources. Incremental state is kept.
    """
    for parent in _profile_folders(folder, profile):
        for kind in (".fingerprint", "build"):
            for item in _entries(os.path.join(parent, kind)):
                match = _HASH.fullmatch(item.name[-17:])
                if match and item.name[:-17] in packages:
                    shutil.rmtree(item.path, ignore_errors=True)


def incremental_state(folder: Path, profile: str) -> dict[str, str]:
    """
    A digest over the signatures of all files of each crate's incremental state, by the path of its folder.
    """
    return {os.path.relpath(path, folder): _digest_of_tree(path) for path in _incremental_folders(folder, profile)}


def remove_other_state(folder: Path, profile: str, known: Mapping[str, str]) -> None:
    """
    Remove the incremental state that differs from the *known* one.
    """
    for path in _incremental_folders(folder, profile):
        if known.get(os.path.relpath(path, folder)) != _digest_of_tree(path):
            _remove(path)


def _incremental_folders(folder: Path, profile: str) -> Iterator[str]:
    for parent in _profile_folders(folder, profile):
        for item in _entries(os.path.join(parent, "incremental")):
            yield item.path


def _digest_of_tree(top: str) -> str:
    # The compiler never makes links. A link counts by its name alone; its target is not read.
    lines = []
    for parent, folders, files in os.walk(top):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(parent, name)
            signature = None if os.path.islink(path) else _stat.signature(path)
            lines.append(f"{os.path.relpath(path, top)} {signature}")
    return _digest.sha256(_digest.framed(lines))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _profile_folders(folder: Path, profile: str) -> Iterator[str]:
    """
    The profile's folder for the host, and one for each target triple.
    """
    name = _FOLDERS.get(profile, profile)
    for parent in (os.fspath(folder), *(item.path for item in _entries(os.fspath(folder)))):
        path = os.path.join(parent, name)
        if os.path.isdir(path):
            yield path


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as items:
            return sorted(items, key=lambda item: item.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
