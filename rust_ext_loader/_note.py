"""
Note which library a request used: for later explanations, and as a record for the warm path.

Invariant: notes only save time or explain. A failure to write one is ignored,
and no record is written for a decision that every process must warn about.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from . import _gather, _record, _settings, _stat, _warm
from ._decide import RecordBasis
from ._errors import RustExtensionError
from ._model import Mode, Watched
from ._values import dataclass
from .cache import _bundled, _checkouts, _local_copy, _store
from .declare import _discover
from .facts import _seen, _snapshot
from .facts._fingerprint import SHORT
from .files import _staging
from .files._watching import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._decide import UseCached
    from ._gather import Gatherer
    from .facts._snapshot import Snapshot


def used(gatherer: Gatherer, decision: UseCached) -> str:
    """
    Note the use of an entry that was found; returns the path to load its library from.
    """
    library, seen, basis = decision.entry.library, decision.entry.seen, decision.basis
    if basis is RecordBasis.NOTHING:
        return str(library)
    if basis is RecordBasis.ALL_FACTS:
        return note(gatherer, library, gatherer.observed.facts.for_editing(decision.edit), seen)
    if basis is RecordBasis.SOURCES:
        return note(gatherer, library, gatherer.sources, seen)
    bound = _snapshot.while_toolchain_is_missing(gatherer.sources, gatherer.target.environment)
    return str(library) if bound is None else note(gatherer, library, bound, seen)


def note(gatherer: Gatherer, library: Path, now: Snapshot, seen: Mapping[str, str]) -> str:
    """
    Note the use of a library that was made from the facts *now*; *seen* are the undeclared inputs of its build.

    Returns the path to load it from: on a network file system that is a local copy.
    """
    target = gatherer.target
    _store.stamp_use(library)
    loaded = _local_copy.nearest(library)
    if loaded != library:
        _store.stamp_use(loaded)
    root = _gather.notes_root(target)
    if root is None:
        return str(loaded)
    if now.toolchain is not None:
        facts = {**now.fingerprint.facts, **seen}
        _checkouts.remember(root, target.spec.workspace, target.spec.module, facts)
    if not target.request.features and not target.request.overlay:
        # An error here is reported by the next process, which decides without a record.
        with contextlib.suppress(OSError, RustExtensionError):
            _write_record(gatherer, root, library, loaded, now, seen)
    return str(loaded)


def _write_record(
    gatherer: Gatherer, root: Path, library: Path, loaded: Path, now: Snapshot, seen: Mapping[str, str]
) -> None:
    target = gatherer.target
    if target.mode is Mode.FORCE or _must_warn(gatherer, library):
        return
    workspace = target.request.workspace or str(target.spec.workspace)
    identity = _warm.identify(target.spec.module, workspace, target.mode.value, target.environment, gatherer.folders)
    declared = _discover.extensions(Path(workspace))
    # The declaration and the bundled library were looked up before the facts. If one changed since, write no record.
    bundled = _bundled.find(target.spec.leaf, gatherer.folders)
    if declared.specs.get(target.spec.module) != target.declared or bundled != gatherer.bundled:
        return
    watched = now.watched | now.current_inputs.watched(seen) | declared.watched | _better_builds(gatherer, now)
    paths = _paths(gatherer, library, loaded, watched)
    signatures = {path: found for path in paths.present if (found := _stat.signature(path)) is not None}
    if len(signatures) != len(paths.present):
        return
    # Checked after the stat. If the pointer was replaced earlier, the record would combine the new pointer's stat with
    # the old library.
    if paths.renamed and not _store.is_current(library):
        return
    data = _record.compose(
        identity,
        declared=[
            *_snapshot.declared_values(target.spec, target.environment),
            *((name, target.environment.get(name)) for name in _seen.variables(seen)),
        ],
        present=signatures,
        absent=paths.absent,
        library=str(loaded),
        started_ns=_stat.started_at(now.began, _stat.clocks()),
        boot=_warm.boot_id() if now.native else None,
        renamed=paths.renamed,
        search_path=tuple(sys.path) if target.spec.key_on else None,
    )
    if data is not None:
        _staging.write_atomically(Path(_warm.path_of(str(root), identity)), data)


@dataclass(frozen=True, slots=True)
class _Paths:
    """
    The paths whose stat a record holds.
    """

    present: frozenset[str]
    absent: frozenset[str]
    #: Paths that are replaced by rename, never written in place. They show that a forced build replaced the entry.
    renamed: frozenset[str]


def _paths(gatherer: Gatherer, library: Path, loaded: Path, watched: Watched) -> _Paths:
    leaf = gatherer.target.spec.leaf
    beside = frozenset(_bundled.candidates(leaf, gatherer.folders))
    present = watched.present | {path for path in beside if os.path.lexists(path)}
    renamed: frozenset[str] = frozenset()
    if str(library) in beside:
        present |= {str(_bundled.sidecar_of(library, leaf))}
    else:
        renamed = frozenset([str(library), str(_store.pointer_of(library)), str(loaded)])
    return _Paths(present | renamed, watched.absent | (beside - present), renamed)


def _better_builds(gatherer: Gatherer, now: Snapshot) -> Watched:
    """
    Folders in which a better build may appear, which the next import must then use.

    For a library for editing, the better build is the full build. Without toolchain facts, it is a newer build by any
    compiler.
    """
    target = gatherer.target
    roots = map(Path, _settings.read_roots(target.request.cache_dir, target.environment))
    if now.edit is not None:
        full = now.for_editing(None).fingerprint
        return watch(str(_store.slot_of(root, target.spec.module, full)) for root in roots)
    if now.toolchain is not None:
        return Watched()
    tops = [root / "artifacts" / target.spec.module / now.fingerprint.source_key[:SHORT] for root in roots]
    return watch(str(path) for top in tops for path in (top, *top.glob("*")))


def _must_warn(gatherer: Gatherer, library: Path) -> bool:
    """
    Whether every process must warn about a library in the package's folder.
    """
    bundled = gatherer.bundled
    return bundled is not None and (bool(bundled.rivals) or bundled.library != library)
