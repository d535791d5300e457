"""
Compile one extension in a target folder that is ours alone.

Before cargo runs, every package whose inputs differ from what this folder
compiled last is cleaned: cargo judges by modification time, and an older time
would hide a change. After it ran, it is found out what else was read, and all
of it is looked at again; if anything moved, the result is thrown away and built
anew.

Invariant: what is returned was compiled from exactly the facts it is returned
with. A build that was cut short leaves its packages marked as unknown.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .. import _settings
from .._errors import BuildFailed, InvalidArtifact, SourcesMoved
from ..cache import _store
from ..facts import _cargo_config, _environment, _seen
from ..files import _staging, _stat, _trust
from ..library import _library_file
from . import _cargo, _observe
from ._target_state import TargetState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from typing import IO

    from ..facts._snapshot import Snapshot
    from ._progress import Progress

#: How often a build is repeated whose sources moved underneath it.
ATTEMPTS = 3

#: What compiler and linker say when an earlier output may be torn; some of it is said of wrong sources as well.
_DAMAGE = re.compile(
    r"error\[E0(?:460|461|462|463|514|786)\]|error: linking with |file too short|invalid ELF header|internal compiler error"
    r"|could not execute process `[^`]*build-script|build-script-[^`]*` \(signal"
)

#: How far the time stamp of a file may lie before the moment it was written.
_CLOCK_TICK_NS = 20_000_000

#: A disk with fewer bytes to spare is full.
_NO_SPACE = 1 << 20

#: Log files kept per module.
_LOGS_KEPT = 10


@dataclass(frozen=True, slots=True)
class Built:
    """
    A library in the target folder, and the facts it was compiled from.
    """

    artifact: Path
    snapshot: Snapshot
    #: The undeclared inputs that its build was seen to read.
    seen: Mapping[str, str]
    #: Seconds since the epoch.
    began: float
    seconds: float
    #: The oldest glibc that can load it, on Linux.
    glibc_floor: tuple[int, int] | None


def target_folder(root: Path, snapshot: Snapshot) -> Path:
    """
    The target folder of one checkout and one set of toolchain, ABI and flags.
    """
    checkout = _store.checkout_name(snapshot.spec.workspace)
    # Compilers make files for their user alone.
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
    Build until sources hold still; the caller holds the folder's lock.

    Raises `BuildFailed`, `InvalidArtifact` or, after `ATTEMPTS` builds, `SourcesMoved`.
    """
    moved: tuple[str, ...] = ()
    state = TargetState(folder, snapshot.spec.profile)
    seen_files = state.seen_files(snapshot.sight)
    before: tuple[Mapping[str, str], Collection[str]] = ({}, ())
    for _ in range(ATTEMPTS):
        began, clocks = time.time(), _stat.clocks()
        stamps = _stamps(snapshot.watched.present | seen_files)
        with _open_log(logs, snapshot.spec.module) as (log, log_path):
            compiled = _compile(snapshot, folder, environment, progress, log, log_path, from_scratch)
        seconds = (_stat.clocks()[1] - clocks[1]) / 1e9
        after = look_again()
        seen = {package.key: after.sight.record(package.names) for package in compiled.packages}
        seen_files = after.sight.watched(_observe.all_names(compiled.packages)).present
        together = {name: value for read in seen.values() for name, value in read.items()}
        # A text that was there only meanwhile leaves no other trace than a time stamp.
        disturbed = _disturbed(stamps, seen_files, clocks)
        # What build scripts write, they write each time, and the same.
        files, by_scripts = _seen.files(together), _written_by_scripts(disturbed, compiled.packages)
        if files == before[0]:
            disturbed -= by_scripts.intersection(before[1])
        before = files, by_scripts
        disturbed |= _vanished(seen, compiled.packages, snapshot.spec.workspace)
        moved = after.moved_since(snapshot) or _from_root(disturbed, snapshot.spec.workspace)
        if not moved:
            state.settle(snapshot.packages, seen)
            for gap in (gap for package in compiled.packages for gap in package.unknown):
                progress.note(f"{gap}; undeclared inputs of it are not known")
            return Built(compiled.artifact, after, together, began, seconds, compiled.glibc_floor)
        progress.note(f"{', '.join(moved[:3])} changed during the build; building again")
        snapshot = after
    raise SourcesMoved(snapshot.spec.module, moved, ATTEMPTS)


def _stamps(paths: Iterable[str]) -> dict[str, _stat.Signature | None]:
    return {path: _stat.signature(path) for path in paths if os.path.isfile(path)}


def _disturbed(stamps: Mapping[str, _stat.Signature | None], seen: Iterable[str], clocks: tuple[int, int]) -> set[str]:
    """
    Files that were written to since, whatever they hold now; of those that nobody knew of before, by their time stamps.
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
    Those that were last written to while a build script ran, and hence before anything that it prepares was compiled.
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
    Files that a compiler opened and that are gone.
    """
    gone = {name for package in packages for name in package.opened if _seen.is_nothing(seen[package.key][name])}
    return {os.path.join(root, name[len(_seen.FILE) :]) for name in gone}


def _from_root(paths: Iterable[str], root: Path) -> tuple[str, ...]:
    return tuple(os.path.relpath(path, root).replace(os.sep, "/") for path in sorted(paths))


def _changed_at(stamp: _stat.Signature) -> int:
    _, mtime, _, ctime = stamp
    # On Windows that is the time of creation. Elsewhere anybody can set the one, and nobody the other.
    return max(mtime, ctime) if os.name == "nt" else ctime


@dataclass(frozen=True, slots=True)
class _Compiled:
    artifact: Path
    glibc_floor: tuple[int, int] | None
    packages: list[_observe.Package]


def _compile(
    snapshot: Snapshot,
    folder: Path,
    environment: Mapping[str, str],
    progress: Progress,
    log: IO[bytes],
    log_path: Path,
    from_scratch: bool,
) -> _Compiled:
    spec, toolchain = snapshot.spec, snapshot.toolchain
    assert toolchain is not None, "a build needs a toolchain"
    child = _child_environment(snapshot, folder, environment)

    def attempt() -> _cargo.CargoResult:
        _clean_what_changed(snapshot, folder, child, log_path, from_scratch=from_scratch)
        return _cargo.run(
            arguments(snapshot, environment),
            cargo=toolchain.cargo,
            directory=spec.directory,
            environment=child,
            progress=progress,
            log=log,
            time_limit=_settings.seconds(_settings.BUILD_TIMEOUT, environment, None),
        )

    result = _unless_damaged(folder, attempt, progress)
    _require(result, snapshot, log_path, folder)
    if result.warnings and _settings.switched_on(_settings.SHOW_WARNINGS, environment):
        progress.note(result.rendered)
    artifact, fresh = _artifact(result, snapshot, log_path)
    try:
        floor = _verify(artifact, snapshot).glibc_floor
        return _Compiled(artifact, floor, _observe.observe(result, _surroundings(snapshot, folder, child)))
    except InvalidArtifact:
        if not fresh or from_scratch:
            raise
    # It was right when it was compiled. Cargo believes its outputs by their time stamps, and would for ever.
    progress.note(f"{artifact} is damaged; compiling again")
    return _compile(snapshot, folder, environment, progress, log, log_path, from_scratch=True)


def _unless_damaged(folder: Path, attempt: Callable[[], _cargo.CargoResult], progress: Progress) -> _cargo.CargoResult:
    """
    Run cargo, and once more in an empty folder if what the folder held may be what it failed for.

    A machine that lost its power leaves outputs torn which cargo believes for ever. A failure that an empty folder did not
    help is marked as the sources' own, until a build succeeds: nobody pays twice for that.
    """
    held_something = folder.is_dir()
    innocent = folder / "rust-ext-innocent"
    result = attempt()
    if result.succeeded:
        innocent.unlink(missing_ok=True)
    elif held_something and _DAMAGE.search(result.output) and not innocent.exists():
        progress.note(f"{folder} may be damaged; compiling all of it again")
        shutil.rmtree(folder, ignore_errors=True)
        result = attempt()
        if not result.succeeded:
            innocent.touch()
    return result


def _clean_what_changed(
    snapshot: Snapshot, folder: Path, child: Mapping[str, str], log_path: Path, *, from_scratch: bool
) -> None:
    """
    Make the folder ready: what it holds of other texts is cleaned, and what it will hold is unknown until it is settled.
    """
    spec, toolchain = snapshot.spec, snapshot.toolchain
    assert toolchain is not None, "a build needs a toolchain"
    state = TargetState(folder, spec.profile)
    if not state.is_known():
        # Compiled code of which nobody knows the text is worth nothing.
        shutil.rmtree(folder, ignore_errors=True)
    _staging.private_folder(folder)
    changed = state.outdated(snapshot.packages, _locked_names(snapshot), snapshot.sight, all_of_them=from_scratch)
    state.unsettle(snapshot.packages)
    if changed:
        cleaned = _cargo.clean(
            changed, cargo=toolchain.cargo, directory=spec.directory, environment=child, profile=spec.profile
        )
        _require(cleaned, snapshot, log_path, folder)


def _locked_names(snapshot: Snapshot) -> frozenset[str]:
    prefix = "resolution/lock/"
    return frozenset(
        fact[len(prefix) :].partition(" ")[0] for fact in snapshot.fingerprint.facts if fact.startswith(prefix)
    )


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
    What cargo is told, exactly.
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
        # `rlib` beside it would silently lose link-time optimisation.
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
    # After `--`, so the user's rustflags survive.
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


def _require(result: _cargo.CargoResult, snapshot: Snapshot, log_path: Path, folder: Path) -> None:
    if not result.succeeded:
        problem = (result.problem or "the compiler refused it") + _full_disk(folder)
        raise BuildFailed(snapshot.spec.module, problem, result.command, result.output, str(log_path))


def _full_disk(folder: Path) -> str:
    # Linkers map their output, and die of a bus error where the disk is full: nobody else would say why.
    try:
        return f"; No space left on the disk of {folder}" if shutil.disk_usage(folder).free < _NO_SPACE else ""
    except OSError:
        return ""


def _artifact(result: _cargo.CargoResult, snapshot: Snapshot, log_path: Path) -> tuple[Path, bool]:
    """
    The library that cargo made, and whether it had made it already.
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
                    return Path(name), artifact.fresh
    problem = f"cargo made no library `{spec.library}` of package {spec.package}"
    raise BuildFailed(spec.module, problem, result.command, result.output, str(log_path))


def _same_file(one: str, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _verify(artifact: Path, snapshot: Snapshot) -> _library_file.LibraryFile:
    """
    Refuse to publish what could not be imported, or could not be shared as its name promises.
    """
    module, leaf = snapshot.spec.module, snapshot.spec.leaf
    try:
        library = _library_file.inspect(artifact)
    except ValueError as error:
        raise InvalidArtifact(module, str(artifact), str(error)) from error
    machine = snapshot.abi.facts["abi/machine"]
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
