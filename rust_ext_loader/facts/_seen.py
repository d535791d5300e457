"""
Decide whether the inputs that a build was seen to read are unchanged.

A *seen input* is a file, a folder or a variable that the compiler or a build
script reported and that is not a fact. It is stored beside the facts, under a
name in the group `seen`:

    seen/file/<path>    SHA-256 of the content; for a folder, over everything in it; `nothing` if the path is absent
    seen/env/<name>     keyed hash of the value; `unset` if the variable is not set
    seen/place/<path>   keyed hash of a package's absolute path, for code with `env!("CARGO_MANIFEST_DIR")`

Paths are relative to the workspace root, except absolute paths that lead out of
it. A hash is stored with its random key, so equal values do not look equal.
Only the owner can read the file that holds both. In a shared cache, the group can
read it too.

Invariant: each path is read once, so one decision sees one state. Names and
values come from a file on disk. Any input is accepted, and an entry that cannot
be parsed counts as changed.
"""

from __future__ import annotations

import hashlib
import os

from .._model import Watched
from ..declare import _manifest
from . import _sources
from ._fingerprint import NOTHING, SEEN, UNSET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE = f"{SEEN}/file/"
VARIABLE = f"{SEEN}/env/"
PLACE = f"{SEEN}/place/"
#: The absolute path of the workspace.
WORKSPACE = f"{PLACE}."

_KEYED = "keyed"
_KEY_BYTES = 16


class CurrentInputs:
    """
    The current state of files and variables, as a build of one checkout would read them.
    """

    def __init__(self, root: str, environment: Mapping[str, str]) -> None:
        self._root = root
        self._environment = environment
        self._looked_at: dict[str, _sources.Look] = {}

    def match(self, seen: Mapping[str, str]) -> bool:
        """
        Whether all these inputs are unchanged.
        """
        return all(self._value(name, value) == value for name, value in seen.items())

    def values_of(self, seen: Mapping[str, str]) -> dict[str, str]:
        """
        The current values under the same names.
        """
        return {name: self._value(name, value) for name, value in seen.items()}

    def record(self, names: Iterable[str]) -> dict[str, str]:
        """
        Values to store for these names.
        """
        return {name: self._value(name, "") for name in sorted(names)}

    def watched(self, seen: Iterable[str]) -> Watched:
        """
        The paths to watch for changes of the files and folders among these names.
        """
        watched = Watched()
        for name in seen:
            if name.startswith(FILE):
                watched |= self._look(name).watched
        return watched

    def _value(self, name: str, like: str) -> str:
        if name.startswith(FILE):
            return self._look(name).value
        if name.startswith(VARIABLE):
            value = self._environment.get(name[len(VARIABLE) :])
            return UNSET if value is None else _keyed(value, like)
        if name.startswith(PLACE):
            return _keyed(os.path.realpath(self._path(name[len(PLACE) :])), like)
        return f"not understood: {name}"

    def _look(self, name: str) -> _sources.Look:
        known = self._looked_at.get(name)
        if known is None:
            known = self._looked_at[name] = _sources.look_at(self._path(name[len(FILE) :]))
        return known

    def _path(self, name: str) -> str:
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            # No path can have this name.
            name = "?"
        # Not normalised: after a link, `..` leads elsewhere.
        return os.path.join(self._root, name.replace("\0", ""))


def _keyed(value: str, like: str) -> str:
    """
    The hash of a value, with the key of the hash *like*, or with a new key if *like* is not a hash.
    """
    kind, _, rest = like.partition(":")
    try:
        key = bytes.fromhex(rest.partition(":")[0]) if kind == _KEYED else os.urandom(_KEY_BYTES)
        digest = hashlib.blake2b(value.encode("utf-8", "surrogateescape"), key=key, digest_size=16)
    except ValueError:
        return "not understood"
    return f"{_KEYED}:{key.hex()}:{digest.hexdigest()}"


def variables(seen: Iterable[str]) -> list[str]:
    """
    The names of the variables among some inputs.
    """
    return [name[len(VARIABLE) :] for name in seen if name.startswith(VARIABLE)]


def files(seen: Mapping[str, str]) -> dict[str, str]:
    """
    The files and folders among some inputs.
    """
    return {name: value for name, value in seen.items() if name.startswith(FILE)}


def host_bound(seen: Mapping[str, str]) -> list[str]:
    """
    The names whose values hold on this host only; an entry with such a name is never pushed to another host.

    A variable that is not set does not bind an entry: most hosts do not set it either.
    """
    return [name for name, value in seen.items() if _is_host_bound(name, value)]


def _is_host_bound(name: str, value: str) -> bool:
    return os.path.isabs(name[len(FILE) :]) if name.startswith(FILE) else value != UNSET


def is_unset(value: str) -> bool:
    """
    Whether a stored value means that the variable was not set.
    """
    return value == UNSET


def is_nothing(value: str) -> bool:
    """
    Whether a stored value means that the path did not exist.
    """
    return value == NOTHING


def name_of_file(path: str, root: str, *, given_as_absolute: bool) -> str:
    """
    The name of an absolute path; it stays absolute if it was given as absolute and leads out of the workspace.
    """
    short = os.path.normpath(path)
    if os.path.lexists(path) and os.path.realpath(short) != os.path.realpath(path):
        # A `..` after a link: normalising would change the meaning.
        short = path
    for top in (root, os.path.realpath(root)):
        if short == top:
            return f"{FILE}."
        if short.startswith(top + os.sep):
            return FILE + _manifest.posix(short[len(top) + 1 :])
    if given_as_absolute or short is path:
        return FILE + _manifest.posix(short)
    return FILE + _manifest.posix(os.path.relpath(short, root))
