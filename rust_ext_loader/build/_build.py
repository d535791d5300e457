"""
Compile one extension in a private target folder.

Before cargo runs, every package whose inputs changed since this folder compiled it
is cleaned: cargo compares modification times, and an older time would hide a
change. After cargo ran, its other inputs are collected and every input is read
again. If one changed, the result is discarded and built again.

Invariant: a library is returned with exactly the facts that it was compiled from.
An interrupted build leaves its packages marked as unknown.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from .. import _settings, _stat, _trust
from .._errors import BuildFailed, InvalidArtifact, SourcesMoved
from ..cache import _store
from ..facts import _cargo_config, _environment, _seen
from ..facts._fingerprint import ABI_MACHINE, LOCKED_PACKAGE
from ..files import _staging
from ..library import _library_file
from . import _cargo, _observe
from ._target_state import TargetState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import IO

    from ..facts._snapshot import Snapshot
    from ._progress import Progress

#: How often to build if the sources change during the build.
ATTEMPTS = 3

#: Messages of compiler and linker that a damaged earlier output causes. Wrong sources cause some of them as well.
_DAMAGE = re.compile(
    r"error\[E0(?:460|461|462|463|514|786)\]|error: linking with |file too short|invalid ELF header|internal compiler error"
    r"|could not execute process `[^`]*build-script|build-script-[^`]*` \(signal"
)

#: How much older than the write itself a file's timestamp can be, in ns.
_CLOCK_TICK_NS = 20_000_000

#: A disk with fewer free bytes counts as full.
_NO_SPACE = 1 << 20

#: Log files kept per module.
_LOGS_KEPT = 10


@dataclass(frozen=True, slots=True)
class Built:
    """
    A library in the target folder, and the facts that it was compiled from.
    """

    artifact: Path
    snapshot: Snapshot
    #: The undeclared inputs that the build read.
    seen: Mapping[str, str]
    #: Seconds since the epoch.
    began: float
    seconds: float
    #: The oldest glibc that can load the library, on Linux.
    glibc_floor: tuple[int, int] | None


def target_folder(root: Path, snapshot: Snapshot) -> Path:
    """
    The target folder of one checkout and one set of toolchain, ABI and flags.
    """
    checkout = _store.checkout_name(snapshot.spec.workspace)
    # Compilers create files for their own user only, so each member of a group has a target folder.
    member = f"-{os.getuid()}" if _trust.is_shared() and hasattr(os, "getuid") else ""
    return root / "targets" / f"{checkout}-{snapshot.flavour}{member}"


def build(
    snapshot: Snapshot,
    look_again: Callable[[], Snapshot],
    *,
    folder: Path,
    logs: Path,
    environment: Mapping[str, str],
    progress: Progress,
    from_scratch: bool,
) -> Built:
    """
    Build until the sources do not change during a build. The caller holds the lock of the folder.

    Raises `BuildFailed`, `InvalidArtifact` or, after `ATTEMPTS` builds, `SourcesMoved`.
    """
    job = _Job(folder, environment, progress, from_scratch)
    state = TargetState(folder, snapshot.spec.profile)
    known_files = state.seen_files(snapshot.sight)
    previous: _ScriptOutput | None = None
    moved: tuple[str, ...] = ()
    for _ in range(ATTEMPTS):
        began, clocks = time.time(), _stat.clocks()
        stamps = _stamps(snapshot.watched.present | known_files)
        with _open_log(logs, snapshot.spec.module) as (log, log_path):
            compiled = _compile(snapshot, job, log, log_path)
        seconds = (_stat.clocks()[1] - clocks[1]) / 1e9
        after = look_again()
        seen = {package.key: after.sight.record(package.names) for package in compiled.packages}
        known_files = after.sight.watched(_observe.all_names(compiled.packages)).present
        together = {name: value for read in seen.values() for name, value in read.items()}
        # A file that was edited and reverted during the build shows only in its timestamp.
        touched = _touched(stamps, known_files, clocks)
        scripts = _ScriptOutput(_seen.files(together), _written_by_scripts(touched, compiled.packages))
        # A build script's output in the source tree is accepted if two builds in a row write the same bytes.
        if previous is not None and scripts.files == previous.files:
            touched -= scripts.paths & previous.paths
        previous = scripts
        touched |= _vanished(seen, compiled.packages, snapshot.spec.workspace)
        moved = after.moved_since(snapshot) or _from_root(touched, snapshot.spec.workspace)
        if not moved:
            state.settle(snapshot.packages, seen)
            for gap in (gap for package in compiled.packages for gap in package.unknown):
                progress.note(f"{gap}; its undeclared inputs are unknown")
            return Built(compiled.artifact, after, together, began, seconds, compiled.glibc_floor)
        progress.note(f"{', '.join(moved[:3])} changed during the build; building again")
        snapshot = after
    raise SourcesMoved(snapshot.spec.module, moved, ATTEMPTS)


@dataclass(frozen=True, slots=True)
class _Job:
    """
    Where and how to compile.
    """

    folder: Path
    environment: Mapping[str, str]
    progress: Progress
    #: Remove what the folder holds of the workspace's packages first.
    from_scratch: bool


@dataclass(frozen=True, slots=True)
class _ScriptOutput:
    """
    What build scripts wrote into the sources during one build.
    """

    #: Every undeclared file that the build read, by digest.
    files: Mapping[str, str]
    #: The files among them that a build script wrote.
    paths: frozenset[str]


def _stamps(paths: Iterable[str]) -> dict[str, _stat.Signature | None]:
    return {path: _stat.signature(path) for path in paths if os.path.isfile(path)}


def _touched(stamps: Mapping[str, _stat.Signature | None], seen: Iterable[str], clocks: tuple[int, int]) -> set[str]:
    """
    Files that were written since the build began, whatever they contain now. Unknown files are judged by their timestamps.
    """
    threshold = _stat.started_at(clocks, _stat.clocks()) - _CLOCK_TICK_NS
    paths = {path for path, stamp in stamps.items() if _stat.signature(path) != stamp}
    for path in seen:
        stamp = _stat.signature(path)
        if path not in stamps and stamp is not None and _changed_at(stamp) >= threshold:
            paths.add(path)
    return paths


def _written_by_scripts(paths: Iterable[str], packages: Iterable[_observe.Package]) -> frozenset[str]:
    """
    Files that were last written while a build script ran, so before the package that it prepares was compiled.
    """
    runs = [package.script_ran for package in packages if package.script_ran]
    stamps = {path: stamp for path in paths if (stamp := _stat.signature(path)) is not None}
    return frozenset(
        path
        for path, stamp in stamps.items()
        if any(start - _CLOCK_TICK_NS <= _changed_at(stamp) <= end + _CLOCK_TICK_NS for start, end in runs)
    )


def _vanished(seen: Mapping[str, Mapping[str, str]], packages: Iterable[_observe.Package], root: Path) -> set[str]:
    """
    Files that a compiler opened and that no longer exist.
    """
    gone = {name for package in packages for name in package.opened if _seen.is_nothing(seen[package.key][name])}
    return {os.path.join(root, name[len(_seen.FILE) :]) for name in gone}


def _from_root(paths: Iterable[str], root: Path) -> tuple[str, ...]:
    return tuple(os.path.relpath(path, root).replace(os.sep, "/") for path in sorted(paths))


def _changed_at(stamp: _stat.Signature) -> int:
    _, mtime, _, ctime = stamp
    # ctime is compared: tools can set mtime, but not ctime. On Windows ctime is the time of creation.
    return max(mtime, ctime) if os.name == "nt" else ctime


@dataclass(frozen=True, slots=True)
class _Compiled:
    artifact: Path
    glibc_floor: tuple[int, int] | None
    packages: list[_observe.Package]


def _compile(snapshot: Snapshot, job: _Job, log: IO[bytes], log_path: Path) -> _Compiled:
    spec, toolchain = snapshot.spec, snapshot.toolchain
    assert toolchain is not None, "a build needs a toolchain"
    child = _child_environment(snapshot, job.folder, job.environment)

    def attempt() -> _cargo.CargoResult:
        _clean_changed_packages(snapshot, job, child, log_path)
        return _cargo.run(
            arguments(snapshot, job.environment),
            cargo=toolchain.cargo,
            directory=spec.directory,
            environment=child,
            progress=job.progress,
            log=log,
            time_limit=_settings.seconds(_settings.BUILD_TIMEOUT, job.environment, None),
        )

    result = _retried_if_damaged(job.folder, attempt, job.progress)
    _require_success(result, snapshot, log_path, job.folder)
    if result.warnings and _settings.switched_on(_settings.SHOW_WARNINGS, job.environment):
        job.progress.note(result.rendered)
    artifact = _artifact(result, snapshot, log_path)
    try:
        floor = _verify(artifact.library, snapshot).glibc_floor
        packages = _observe.observe(result, _surroundings(snapshot, job.folder, child))
        return _Compiled(artifact.library, floor, packages)
    except InvalidArtifact:
        if not artifact.fresh or job.from_scratch:
            raise
    # The library was valid when it was compiled. Cargo trusts its outputs by timestamp, so it would never rebuild this one.
    job.progress.note(f"{artifact.library} is damaged; compiling again")
    return _compile(snapshot, replace(job, from_scratch=True), log, log_path)


def _retried_if_damaged(
    folder: Path, attempt: Callable[[], _cargo.CargoResult], progress: Progress
) -> _cargo.CargoResult:
    """
    Run cargo. If it fails and damaged outputs may be the cause, run it once more in an empty folder.

    A power failure can leave truncated outputs that cargo trusts. If the second run fails as well, the sources are the
    cause: a marker file then prevents further retries until a build succeeds.
    """
    had_outputs = folder.is_dir()
    marker = folder / "rust-ext-innocent"
    result = attempt()
    if result.succeeded:
        marker.unlink(missing_ok=True)
    elif had_outputs and _DAMAGE.search(result.output) and not marker.exists():
        progress.note(f"{folder} may be damaged; compiling again from scratch")
        shutil.rmtree(folder, ignore_errors=True)
        result = attempt()
        if not result.succeeded:
            marker.touch()
    return result


def _clean_changed_packages(snapshot: Snapshot, job: _Job, child: Mapping[str, str], log_path: Path) -> None:
    """
    Clean packages whose inputs changed since this folder compiled them, and mark all packages as unknown for the build.
    """
    spec, toolchain = snapshot.spec, snapshot.toolchain
    assert toolchain is not None, "a build needs a toolchain"
    state = TargetState(job.folder, spec.profile)
    if not state.is_known():
        # Without a state file these objects cannot be matched to sources: start clean.
        shutil.rmtree(job.folder, ignore_errors=True)
    _staging.private_folder(job.folder)
    locked = _locked_names(snapshot)
    changed = state.outdated(snapshot.packages, locked, snapshot.sight, all_of_them=job.from_scratch)
    state.unsettle(snapshot.packages)
    if changed:
        cleaned = _cargo.clean(
            changed, cargo=toolchain.cargo, directory=spec.directory, environment=child, profile=spec.profile
        )
        _require_success(cleaned, snapshot, log_path, job.folder)


def _locked_names(snapshot: Snapshot) -> frozenset[str]:
    facts = snapshot.fingerprint.facts
    return frozenset(fact[len(LOCKED_PACKAGE) :].partition(" ")[0] for fact in facts if fact.startswith(LOCKED_PACKAGE))


def _surroundings(snapshot: Snapshot, folder: Path, child: Mapping[str, str]) -> _observe.Surroundings:
    home = _cargo_config.cargo_home(snapshot.spec.directory, child)
    declared = _environment.declared_values(snapshot.spec, child)
    return _observe.Surroundings(
        root=os.fspath(snapshot.spec.workspace),
        output=os.fspath(folder),
        fetched=tuple(os.path.join(home, name) for name in ("registry", "git")) if home else (),
        hashed=snapshot.hashed,
        decided={*snapshot.abi.build_environment, *(name for name, _ in declared)},
    )


def arguments(snapshot: Snapshot, environment: Mapping[str, str]) -> list[str]:
    """
    The exact arguments for cargo.
    """
    spec = snapshot.spec
    features = sorted({*spec.features, *snapshot.features})
    jobs = _settings.jobs(environment)
    return [
        "rustc",
        "--locked",
        *(["--offline"] if _settings.switched_on(_settings.OFFLINE, environment) else []),
        *(["--jobs", str(jobs)] if jobs else []),
        "--package",
        spec.package,
        "--lib",
        # With `rlib` beside it, link-time optimisation would be lost without a message.
        "--crate-type",
        "cdylib",
        "--profile",
        spec.profile,
        *(["--features", ",".join(features)] if features else []),
        *_environment.cargo_arguments(environment),
        _cargo.MESSAGE_FORMAT,
        *_link_arguments(snapshot),
    ]


def _link_arguments(snapshot: Snapshot) -> list[str]:
    # After `--`, so that they do not replace the user's rustflags.
    host = snapshot.toolchain.host if snapshot.toolchain else ""
    if "apple" in host:
        return ["--", "-Clink-arg=-undefined", "-Clink-arg=dynamic_lookup"]
    if "musl" in host:
        return ["--", "-Ctarget-feature=-crt-static"]
    return []


def _child_environment(snapshot: Snapshot, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    return {
        **_environment.child_environment(environment, snapshot.spec.env),
        **snapshot.abi.build_environment,
        "CARGO_TARGET_DIR": os.fspath(folder),
        "CARGO_BUILD_BUILD_DIR": os.fspath(folder),
    }


def _require_success(result: _cargo.CargoResult, snapshot: Snapshot, log_path: Path, folder: Path) -> None:
    if not result.succeeded:
        problem = (result.problem or "the compiler failed") + _full_disk(folder)
        raise BuildFailed(snapshot.spec.module, problem, result.command, result.output, str(log_path))


def _full_disk(folder: Path) -> str:
    # A linker maps its output and dies of SIGBUS if the disk is full, without naming the cause.
    try:
        return f"; No space left on the disk of {folder}" if shutil.disk_usage(folder).free < _NO_SPACE else ""
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class _Artifact:
    library: Path
    #: Whether cargo had compiled it before.
    fresh: bool


def _artifact(result: _cargo.CargoResult, snapshot: Snapshot, log_path: Path) -> _Artifact:
    """
    The library that cargo reports for the extension's package.
    """
    spec = snapshot.spec
    for artifact in result.artifacts:
        if (
            artifact.target_name == spec.library
            and "cdylib" in artifact.kinds
            and _same_file(artifact.package_manifest, spec.manifest)
        ):
            for name in artifact.filenames:
                if name.endswith((".so", ".dylib", ".dll")):
                    return _Artifact(Path(name), artifact.fresh)
    problem = f"cargo made no library `{spec.library}` of package {spec.package}"
    raise BuildFailed(spec.module, problem, result.command, result.output, str(log_path))


def _same_file(one: str, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _verify(artifact: Path, snapshot: Snapshot) -> _library_file.LibraryFile:
    """
    Check that the library can be imported, and has the stable ABI if the crate asks for it; raises `InvalidArtifact`.
    """
    module, leaf = snapshot.spec.module, snapshot.spec.leaf
    try:
        library = _library_file.inspect(artifact)
    except ValueError as error:
        raise InvalidArtifact(module, str(artifact), str(error)) from error
    machine = snapshot.abi.facts[ABI_MACHINE]
    problem = _library_file.problem(
        library, leaf=leaf, machine=machine, system=sys.platform, abi3=snapshot.abi.abi3 is not None
    )
    if problem:
        raise InvalidArtifact(module, str(artifact), problem)
    return library


@contextlib.contextmanager
def _open_log(folder: Path, module: str) -> Iterator[tuple[IO[bytes], Path]]:
    _staging.private_folder(folder)
    for old in sorted(folder.glob(f"{module}-*.log"))[: -(_LOGS_KEPT - 1)]:
        old.unlink(missing_ok=True)
    path = folder / f"{module}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{time.monotonic_ns() % 1_000_000:06d}.log"
    with path.open("wb") as log:
        yield log, path
