"""
Remember what the compiled code in a target folder was compiled from.

Cargo believes time stamps. So the folder holds, for each package, the digest of
its content and the undeclared files that it read: whatever is not as it was is
cleaned before cargo runs. By profile, because cargo compiles and cleans each of
them apart.

Invariant: from the moment a compiler may run until its inputs were seen to have
stood still, its packages are unknown, and what is unknown is cleaned. A state
that was damaged is none: half a state would hide a package.
"""

from __future__ import annotations

import os
from typing import Any

from ..facts import _seen
from ..files import _sealed, _staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from .._model import PathPackage
    from ..facts._seen import Sight

    #: By a package's folder or, if it was fetched, by its name and version; `None` for what is unknown.
    Known = dict[str, dict[str, Any] | None]


class TargetState:
    """
    The state of one target folder in one profile; the folder's lock is held.
    """

    def __init__(self, folder: Path, profile: str) -> None:
        self._path = folder / "rust-ext-state.json"
        self._profile = profile

    def is_known(self) -> bool:
        """
        Whether anybody ever said what this folder holds.
        """
        return bool(self._read())

    def outdated(
        self, packages: Sequence[PathPackage], locked: Collection[str], sight: Sight, *, all_of_them: bool
    ) -> list[str]:
        """
        The packages whose compiled code is not of what there is now, as cargo is to be told.

        *locked* are the names that cargo knows: it cleans nothing if it does not know one of them. A package that was never
        compiled here has nothing to clean, and asking cargo costs a process.
        """
        compiled = self._compiled()
        digests = {os.fspath(package.directory): package.digest for package in packages}
        names = {os.fspath(package.directory): package.name for package in packages}
        found = []
        for key, known in compiled.items():
            name = names.get(key, key)
            wanted = digests.get(key, "")
            mine = key in names or not os.path.isabs(key)
            if mine and name.partition("@")[0] in locked and (all_of_them or not _stands(known, wanted, sight)):
                found.append(name)
        return sorted(found)

    def seen_files(self, sight: Sight) -> frozenset[str]:
        """
        The paths that the compiled code is known to have been made of, beside its packages.
        """
        names = [name for known in self._compiled().values() if isinstance(known, dict) for name in _seen_of(known)]
        return sight.watched(names).present

    def unsettle(self, packages: Sequence[PathPackage]) -> None:
        """
        What is compiled from now on may be cut short, or see other text.
        """
        compiled = self._compiled()
        foreign = {key: None for key in compiled if not os.path.isabs(key)}
        self._write({**compiled, **foreign, **{os.fspath(package.directory): None for package in packages}})

    def settle(self, packages: Sequence[PathPackage], seen: Mapping[str, Mapping[str, str]]) -> None:
        """
        All of it was compiled from this very content; *seen* says by package which undeclared inputs it read.
        """
        # Cargo compares variables by their values itself.
        compiled = {key: known for key, known in self._compiled().items() if os.path.isabs(key)}
        for package in packages:
            key = os.fspath(package.directory)
            compiled[key] = {"digest": package.digest, "seen": _seen.files(seen.get(key, {}))}
        foreign = {
            key: {"digest": "", "seen": _seen.files(read)} for key, read in seen.items() if not os.path.isabs(key)
        }
        self._write({**compiled, **{key: known for key, known in foreign.items() if known["seen"]}})

    def _compiled(self) -> Known:
        known = self._read().get(self._profile, {})
        return known if isinstance(known, dict) else {}

    def _read(self) -> dict[str, Any]:
        try:
            return _sealed.unseal(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}

    def _write(self, compiled: Known) -> None:
        _staging.write_atomically(self._path, _sealed.seal({**self._read(), self._profile: compiled}))


def _stands(known: object, digest: str, sight: Sight) -> bool:
    return isinstance(known, dict) and known.get("digest") == digest and sight.holds(_seen_of(known))


def _seen_of(known: Mapping[str, Any]) -> dict[str, str]:
    seen = known.get("seen")
    return {str(name): str(value) for name, value in seen.items()} if isinstance(seen, dict) else {}
