"""
Tell whether what a build was seen to read still stands.

A *seen input* is a file, a folder or a variable that the compiler or a build
script reported and that no fact covers. It is kept beside the facts, by names
of the group `seen`:

    seen/file/<path>    SHA-256 of the content; of a folder, over all that it holds; `nothing` where nothing is
    seen/env/<name>     keyed hash of the value; `unset`
    seen/place/<path>   keyed hash of where a package lies, for code that was told (`env!("CARGO_MANIFEST_DIR")`)

Paths count from the workspace root, except those that were given as absolute
and lead out of it. A hash's key lies beside it: it keeps equal values from
looking equal, and the file it lies in is its owner's alone.

Invariant: whatever is looked at is looked at once, so that one decision sees
one moment. Names and values come from a file: any text is answered, and what
cannot be understood does not stand.
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

_KEYED = "keyed"
_KEY_BYTES = 16


class Sight:
    """
    What lies at paths and in variables at one moment, as one checkout's build would find it.
    """

    def __init__(self, root: str, environment: Mapping[str, str]) -> None:
        self._root = root
        self._environment = environment
        self._looked_at: dict[str, _sources.Look] = {}

    def holds(self, seen: Mapping[str, str]) -> bool:
        """
        Whether all of it is as it was seen.
        """
        return all(self._value(name, value) == value for name, value in seen.items())

    def now(self, seen: Mapping[str, str]) -> dict[str, str]:
        """
        What the same names stand for now.
        """
        return {name: self._value(name, value) for name, value in seen.items()}

    def record(self, names: Iterable[str]) -> dict[str, str]:
        """
        Values to keep for these names.
        """
        return {name: self._value(name, "") for name in sorted(names)}

    def watched(self, seen: Iterable[str]) -> Watched:
        """
        The paths whose stats stand for the files and folders among these names.
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
            # No path can be called so.
            name = "?"
        # Not normalised: `link/..` is not where the link lies.
        return os.path.join(self._root, name.replace("\0", ""))


def _keyed(value: str, like: str) -> str:
    """
    The hash of a value, with the key of another one or, without one, with a new key.
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
    The variables among some names.
    """
    return [name[len(VARIABLE) :] for name in seen if name.startswith(VARIABLE)]


def files(seen: Mapping[str, str]) -> dict[str, str]:
    """
    The files and folders among them.
    """
    return {name: value for name, value in seen.items() if name.startswith(FILE)}


def host_bound(seen: Mapping[str, str]) -> list[str]:
    """
    The names that mean something on this host alone: an entry that has any is never shared with another one.

    That a variable is not set is no host's secret, and true of most of them.
    """
    return [name for name, value in seen.items() if _binds(name, value)]


def _binds(name: str, value: str) -> bool:
    return os.path.isabs(name[len(FILE) :]) if name.startswith(FILE) else value != UNSET


def is_unset(value: str) -> bool:
    """
    Whether a recorded value stands for a variable that was not set.
    """
    return value == UNSET


def is_nothing(value: str) -> bool:
    """
    Whether a recorded value stands for a path at which nothing was.
    """
    return value == NOTHING


def name_of_file(path: str, root: str, *, given_as_absolute: bool) -> str:
    """
    What an absolute path is called; one that was given as absolute and leads out of the workspace stays so.
    """
    short = os.path.normpath(path)
    if os.path.lexists(path) and os.path.realpath(short) != os.path.realpath(path):
        # A `..` behind a link.
        short = path
    for top in (root, os.path.realpath(root)):
        if short == top:
            return f"{FILE}."
        if short.startswith(top + os.sep):
            return FILE + _manifest.posix(short[len(top) + 1 :])
    if given_as_absolute or short is path:
        return FILE + _manifest.posix(short)
    return FILE + _manifest.posix(os.path.relpath(short, root))
