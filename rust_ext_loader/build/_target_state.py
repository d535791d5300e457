"""
Remember from which sources the objects in a target folder were compiled.

Cargo compares timestamps only. So a state file holds, for each package, the digest
of its content and the undeclared files that it read. A package that no longer
matches is compiled again. The state is kept per profile, because cargo
compiles and cleans each profile separately.

The state also holds the signatures of the compiler's incremental state, as the last
complete run of cargo left it.

Invariant: a package is marked as unknown before its compiler starts, and as known
only after a check that its inputs did not change. An unknown package is compiled again. A
damaged state file counts as missing: an incomplete one could omit a package that
must be cleaned.
"""

from __future__ import annotations

import os
from typing import Any

from .. import _warm
from .._model import Tier
from .._values import dataclass
from ..cache import _checkouts
from ..facts import _seen
from ..files import _sealed, _staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from .._model import PathPackage
    from ..facts._seen import CurrentInputs
    from ..facts._snapshot import Snapshot

    #: The state of each package; `None` if unknown. The key is the package's folder, or name and version if fetched.
    Known = dict[str, dict[str, Any] | None]


def target_folder(root: Path, snapshot: Snapshot) -> Path:
    """
    The target folder of one checkout and one set of toolchain, ABI and flags.
    """
    checkout = _checkouts.checkout_name(snapshot.spec.workspace)
    # Compilers create files for their own user only, so each member of a group has its own target folder.
    member = f"-{os.getuid()}" if _warm.is_shared() and hasattr(os, "getuid") else ""
    return root / "targets" / f"{checkout}-{snapshot.flavour}{member}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """
    A package whose objects do not match the current sources.
    """

    #: Its folder; name and version of a fetched package.
    key: str
    #: Its name, as `cargo clean` takes it: with the version for a fetched package.
    spec: str

    @property
    def name(self) -> str:
        """
        Its name alone.
        """
        return self.spec.partition("@")[0]


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

    def has_compiled(self, package: Path) -> bool:
        """
        Whether a build of the local package in this folder has started before.
        """
        return os.fspath(package) in self._compiled()

    def outdated(
        self,
        packages: Sequence[PathPackage],
        locked: Collection[str],
        current: CurrentInputs,
        *,
        include_matching: bool,
    ) -> list[Outdated]:
        """
        The packages whose objects do not match the current sources.

        *locked* are the names in the lockfile: `cargo clean` fails for a name that it does not know. A package that was
        never compiled here is omitted: with nothing to clean, cargo is not run. With *include_matching*, packages whose
        objects match are listed too.
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
                and (include_matching or not _matches(known, wanted, current))
            ):
                found.append(Outdated(key=key, spec=name))
        return sorted(found, key=lambda package: package.spec)

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

    def known(self) -> Known:
        """
        The state of all packages, to restore a part of it with `restore`.
        """
        return self._compiled()

    def restore(self, before: Known, keys: Collection[str]) -> None:
        """
        Undo `mark_unknown` for packages that cargo did not compile: their objects are those of *before*.
        """
        found = {key: before[key] for key in keys if before.get(key) is not None}
        if found:
            self._write({**self._compiled(), **found})

    def edited(self, packages: Sequence[PathPackage], current: CurrentInputs) -> frozenset[Path]:
        """
        The packages that a build for editing compiles in the edit tier.

        These are the packages without a full build of their current content in this folder, and all packages that
        depend on them. The others keep their objects, so an edit does not compile them again.
        """
        compiled = self._compiled()
        found = {
            package.directory
            for package in packages
            if not _is_full(compiled.get(os.fspath(package.directory)), package.digest, current)
        }
        while users := {
            package.directory for package in packages if package.directory not in found and package.uses & found
        }:
            found |= users
        return frozenset(found)

    def mark_known(
        self,
        packages: Sequence[PathPackage],
        seen: Mapping[str, Mapping[str, str]],
        edited: Collection[Path] = (),
    ) -> None:
        """
        Record that all packages were compiled from this content; *seen* holds each package's undeclared inputs.

        *edited* are the packages that were compiled in the edit tier.
        """
        # Only files are stored: cargo compares the values of variables itself.
        compiled = {key: known for key, known in self._compiled().items() if os.path.isabs(key)}
        for package in packages:
            key = os.fspath(package.directory)
            tier = Tier.EDIT if package.directory in edited else Tier.FULL
            compiled[key] = {"digest": package.digest, "seen": _seen.files(seen.get(key, {})), "tier": tier.value}
        foreign = {
            key: {"digest": "", "seen": _seen.files(read)} for key, read in seen.items() if not os.path.isabs(key)
        }
        self._write({**compiled, **{key: known for key, known in foreign.items() if known["seen"]}})

    def incremental(self) -> dict[str, str]:
        """
        The signatures of the incremental state that the last complete run of cargo left.
        """
        known = self._read().get(self._incremental_key, {})
        return {str(name): str(value) for name, value in known.items()} if isinstance(known, dict) else {}

    def note_incremental(self, signatures: Mapping[str, str]) -> None:
        """
        Record the signatures of the incremental state after cargo has ended by itself.
        """
        if signatures != self.incremental():
            _staging.write_atomically(self._path, _sealed.seal({**self._read(), self._incremental_key: signatures}))

    @property
    def _incremental_key(self) -> str:
        # No profile has a space in its name.
        return f"{self._profile} incremental"

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


def _is_full(known: object, digest: str, current: CurrentInputs) -> bool:
    return isinstance(known, dict) and known.get("tier") == Tier.FULL.value and _matches(known, digest, current)


def _seen_of(known: Mapping[str, Any]) -> dict[str, str]:
    seen = known.get("seen")
    return {str(name): str(value) for name, value in seen.items()} if isinstance(seen, dict) else {}
