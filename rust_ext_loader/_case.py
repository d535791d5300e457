"""
See everything that one request for one declared extension turns on, each thing once.

A request is what somebody asks for; a case is a request whose declaration was
found. It knows where the module may lie, what its facts are, and which roots
serve and take entries; `use` notes what was decided, for explanations and for
the warm path.

Invariant: looks and notes; decides nothing and builds nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path

from . import _record, _settings
from ._errors import CacheUnavailable, CacheWarning, RustExtensionError, ToolchainMissing
from ._model import Watched
from .cache import _bundled, _local_copy, _roots, _store
from .declare import _discover
from .facts import _seen, _snapshot
from .facts._fingerprint import SHORT, Change, Fingerprint, explain
from .files import _staging, _stat
from .files._watching import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._model import ExtensionSpec
    from .facts._snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Request:
    """
    What somebody asks for.
    """

    module: str
    mode: str | None = None
    workspace: str | None = None
    cache_dir: str | None = None
    features: tuple[str, ...] = ()
    #: Overlays the process's environment.
    overlay: Mapping[str, str] | None = None
    #: With mode `force`: accept nothing that anybody else built.
    always: bool = False
    #: If it must be built: believe nothing that was compiled before.
    from_scratch: bool = False

    @property
    def environment(self) -> Mapping[str, str]:
        """
        The environment from which facts are read.
        """
        return {**os.environ, **self.overlay} if self.overlay else os.environ

    @property
    def leaf(self) -> str:
        """
        Last part of the module's name.
        """
        return self.module.rpartition(".")[2]


def parent_folders(module: str) -> list[str]:
    """
    Folders in which `import` would look for the module, found without importing anything.
    """
    folders: list[str] | None = None if "." in module else sys.path
    parts = module.split(".")[:-1]
    for length in range(1, len(parts) + 1):
        imported = sys.modules.get(".".join(parts[:length]))
        if imported is not None:
            folders = list(getattr(imported, "__path__", ()))
            continue
        # The last part alone: a namespace package under its full name would ask for its parent, which is not imported.
        spec = PathFinder.find_spec(parts[length - 1], folders)
        if spec is None or spec.submodule_search_locations is None:
            return []
        folders = list(spec.submodule_search_locations)
    return list(_record.folders_of(folders or []))


@dataclass
class Case:
    """
    One request for one declared extension.
    """

    request: Request
    #: The mode in force: `auto`, `never` or `force`.
    mode: str
    #: As the crate declares it.
    declared: ExtensionSpec

    @cached_property
    def spec(self) -> ExtensionSpec:
        """
        As it is to be built.
        """
        profile = _settings.profile(self.environment)
        return replace(self.declared, profile=profile) if profile else self.declared

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """
        The environment from which facts are read.
        """
        return self.request.environment

    @cached_property
    def bundled(self) -> _bundled.Bundled | None:
        """
        The library in the package's folder; extra features never match one.
        """
        return None if self.request.features else _bundled.find(self.spec.leaf, self.folders)

    @cached_property
    def folders(self) -> list[str]:
        """
        Folders in which `import` would look for the module.
        """
        return parent_folders(self.spec.module)

    @cached_property
    def sources(self) -> Snapshot:
        """
        The facts without the toolchain's.
        """
        return self.look(toolchain=False)

    @cached_property
    def told(self) -> tuple[Snapshot, ToolchainMissing | None]:
        """
        All the facts; where no toolchain is usable, those without it, and why.
        """
        try:
            return _snapshot.with_toolchain(self.sources, self.environment, self.notes), None
        except ToolchainMissing as missing:
            return self.sources, missing

    @property
    def snapshot(self) -> Snapshot:
        """
        All the facts; raises `ToolchainMissing`.
        """
        now, missing = self.told
        if missing is not None:
            raise missing
        return now

    def look(self, *, toolchain: bool) -> Snapshot:
        """
        The facts, read anew: this is also how a build finds out that something moved.
        """
        workspace = _discover.read_workspace(self.spec.workspace)
        sources = _snapshot.take(self.spec, workspace, self.environment, features=self.request.features)
        return _snapshot.with_toolchain(sources, self.environment, self.notes) if toolchain else sources

    @cached_property
    def staleness(self) -> tuple[str, ...]:
        """
        Why the bundled library is not what these sources give.
        """
        assert self.bundled is not None
        return _bundled.differences(self.bundled.library, self.spec.leaf, self.sources.fingerprint, self.sources.sight)

    @cached_property
    def seen_of_bundled(self) -> Mapping[str, str]:
        """
        The undeclared inputs of the bundled library's build.
        """
        described = _bundled.describe(self.bundled.library, self.spec.leaf) if self.bundled else None
        return described[1] if described else {}

    def entry(self, now: Snapshot, accept: Callable[[_store.Entry], bool] = lambda _: True) -> _store.Entry | None:
        """
        What was built from these very facts, and from undeclared inputs as they are now.
        """
        return _store.look_up(
            self.roots, self.spec.module, now.fingerprint, lambda found: now.sight.holds(found.seen) and accept(found)
        )

    def entry_of_any_toolchain(self) -> _store.Entry | None:
        """
        The newest that differs from that, if at all, in the toolchain.
        """
        now = self.sources
        return _store.equal_but_for(
            self.roots, self.spec.module, now.fingerprint, "toolchain", lambda found: now.sight.holds(found.seen)
        )

    @property
    def roots(self) -> list[Path]:
        """
        Where entries may come from, as it stands: a root may appear while we wait.
        """
        roots = map(Path, _settings.read_roots(self.request.cache_dir, self.environment))
        return [root for root in roots if _roots.may_serve(root)]

    @property
    def closed_roots(self) -> list[str]:
        """
        Why roots that exist cannot serve: what is looked for may well lie there.
        """
        roots = map(Path, _settings.read_roots(self.request.cache_dir, self.environment))
        return [reason for root in roots if os.path.lexists(root) and (reason := _roots.closed(root))]

    @cached_property
    def notes(self) -> Path | None:
        """
        Where to keep what only saves time, if anywhere.
        """
        roots = map(Path, _settings.write_roots(self.request.cache_dir, self.environment))
        return next((root for root in roots if _roots.ready(root) is None), None)

    @cached_property
    def write_root(self) -> Path:
        """
        Where to build and to store; the first that will do, with a warning if another was meant.
        """
        tried: list[str] = []
        for root in map(Path, _settings.write_roots(self.request.cache_dir, self.environment)):
            reason = _roots.ready(root)
            if reason is None:
                if tried:
                    warnings.warn(CacheWarning(f"{'; '.join(tried)}; using {root}"), stacklevel=2)
                return root
            tried.append(reason)
        raise CacheUnavailable(tuple(tried))

    def changes(self, now: Snapshot) -> tuple[list[Change], bool]:
        """
        What moved since this checkout last used the module, and whether it has; of the toolchain nothing if it was not asked.
        """
        for root in filter(None, [self.notes, *self.roots]):
            known = _store.recall(root, self.spec.workspace, self.spec.module)
            if known is not None:
                old = known if now.toolchain is not None else Fingerprint(known).without("toolchain")
                seen = {name: value for name, value in known.items() if name.startswith("seen/")}
                return explain(old, {**now.fingerprint.facts, **now.sight.now(seen)}), True
        return [], False

    def use(self, library: Path, now: Snapshot, seen: Mapping[str, str]) -> str:
        """
        Note what was decided, for explanations and for the warm path; *seen* are the undeclared inputs of the library's build.
        """
        _store.stamp_use(library)
        loaded = _local_copy.nearest(library)
        if loaded != library:
            _store.stamp_use(loaded)
        if self.notes is None:
            return str(loaded)
        if now.toolchain is not None:
            _store.remember(self.notes, self.spec.workspace, self.spec.module, {**now.fingerprint.facts, **seen})
        if not self.request.features and not self.request.overlay:
            # Whatever is wrong by now is for the next process to say.
            with contextlib.suppress(OSError, RustExtensionError):
                self._write_record(self.notes, library, loaded, now, seen)
        return str(loaded)

    def _write_record(self, root: Path, library: Path, loaded: Path, now: Snapshot, seen: Mapping[str, str]) -> None:
        if self.mode == "force" or self._must_warn(library):
            return
        workspace = self.request.workspace or str(self.spec.workspace)
        identity = _record.identify(self.spec.module, workspace, self.mode, self.environment, self.folders)
        beside = set(_bundled.candidates(self.spec.leaf, self.folders))
        declared = _discover.extensions(Path(workspace))
        # Both were looked at before the facts were, and a build may lie between.
        if (
            declared.specs.get(self.spec.module) != self.declared
            or _bundled.find(self.spec.leaf, self.folders) != self.bundled
        ):
            return
        watched = now.watched | now.sight.watched(seen) | declared.watched | self._rivals(now)
        present = watched.present | {path for path in beside if os.path.lexists(path)}
        renamed: set[str] = set()
        if str(library) in beside:
            present |= {str(_bundled.sidecar_of(library, self.spec.leaf))}
        else:
            # A forced build replaces an entry without changing a fact.
            renamed = {str(library), str(_store.pointer_of(library)), str(loaded)}
            present |= renamed
        signatures = {path: signature for path in present if (signature := _stat.signature(path)) is not None}
        if len(signatures) != len(present):
            return
        # Asked after its stat was taken: a pointer that moved meanwhile no longer leads here.
        if renamed and not _store.in_force(library):
            return
        data = _record.compose(
            identity,
            declared=[
                *_snapshot.declared_values(self.spec, self.environment),
                *((name, self.environment.get(name)) for name in _seen.variables(seen)),
            ],
            present=signatures,
            absent=watched.absent | (beside - present),
            library=str(loaded),
            started_ns=_stat.started_at(now.began, _stat.clocks()),
            boot=_record.boot_id() if now.native else None,
            renamed=renamed,
            search_path=tuple(sys.path) if self.spec.key_on else None,
        )
        if data is not None:
            _staging.write_atomically(Path(_record.path_of(str(root), identity)), data)

    def _rivals(self, now: Snapshot) -> Watched:
        """
        Where a newer build by another compiler would appear, which is preferred when no toolchain was asked.
        """
        if now.toolchain is not None:
            return Watched()
        roots = map(Path, _settings.read_roots(self.request.cache_dir, self.environment))
        tops = [root / "artifacts" / self.spec.module / now.fingerprint.source_key[:SHORT] for root in roots]
        return watch(str(path) for top in tops for path in (top, *top.glob("*")))

    def _must_warn(self, library: Path) -> bool:
        """
        Whether every process has something to be told about what lies in the package's folder.
        """
        return self.bundled is not None and (bool(self.bundled.others) or self.bundled.library != library)
