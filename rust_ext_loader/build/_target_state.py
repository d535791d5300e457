"""
Remember from which sources the objects in a target folder were compiled.

Cargo compares timestamps only. So a state file holds, for each package, the digest
of its content and the undeclared files that it read. A package that no longer
matches is cleaned before cargo runs. The state is kept per profile, because cargo
compiles and cleans each profile separately.

Invariant: a package is marked as unknown before its compiler starts, and as known
only after a check that its inputs did not change. An unknown package is cleaned. A
damaged state file counts as missing: an incomplete one could omit a package that
must be cleaned.
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
    from ..facts._seen import CurrentInputs

    #: The state of each package; `None` if unknown. The key is the package's folder, or name and version if fetched.
    Known = dict[str, dict[str, Any] | None]


class TargetState:
    """
    The state of one target folder in one profile. The caller holds the folder's lock.
    """

    def __init__(self, folder: Path, profile: str) -> None:
        self._path = folder / "rust-ext-state.json"
        self._profile = profile

    def is_known(self) -> bool:
        """
        Whether the folder has a valid state file.
        """
        return bool(self._read())

    def outdated(
        self, packages: Sequence[PathPackage], locked: Collection[str], current: CurrentInputs, *, all_of_them: bool
    ) -> list[str]:
        """
        The packages whose objects do not match the current sources, as `cargo clean` names them.

        *locked* are the names in the lockfile: `cargo clean` fails for a name that it does not know. A package that was
        never compiled here is omitted: with nothing to clean, cargo is not run. With *all_of_them*, matching packages
        are listed too.
        """
        compiled = self._compiled()
        digests = {os.fspath(package.directory): package.digest for package in packages}
        names = {os.fspath(package.directory): package.name for package in packages}
        found = []
        for key, known in compiled.items():
            name = names.get(key, key)
            wanted = digests.get(key, "")
            in_closure = key in names or not os.path.isabs(key)
            if (
                in_closure
                and name.partition("@")[0] in locked
                and (all_of_them or not _matches(known, wanted, current))
            ):
                found.append(name)
        return sorted(found)

    def seen_files(self, current: CurrentInputs) -> frozenset[str]:
        """
        The undeclared files that the objects were compiled from.
        """
        names = [name for known in self._compiled().values() if isinstance(known, dict) for name in _seen_of(known)]
        return current.watched(names).present

    def mark_unknown(self, packages: Sequence[PathPackage]) -> None:
        """
        Mark packages as unknown: a build that starts now may be interrupted or read changed sources.
        """
        compiled = self._compiled()
        foreign = {key: None for key in compiled if not os.path.isabs(key)}
        self._write({**compiled, **foreign, **{os.fspath(package.directory): None for package in packages}})

    def mark_known(self, packages: Sequence[PathPackage], seen: Mapping[str, Mapping[str, str]]) -> None:
        """
        Record that all packages were compiled from this content; *seen* holds each package's undeclared inputs.
        """
        # Only files are stored: cargo compares the values of variables itself.
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


def _matches(known: object, digest: str, current: CurrentInputs) -> bool:
    return isinstance(known, dict) and known.get("digest") == digest and current.match(_seen_of(known))


def _seen_of(known: Mapping[str, Any]) -> dict[str, str]:
    seen = known.get("seen")
    return {str(name): str(value) for name, value in seen.items()} if isinstance(seen, dict) else {}
