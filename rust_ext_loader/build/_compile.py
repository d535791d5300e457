"""
Run cargo once in a target folder, and check the library that it built.

The outputs of packages whose inputs changed are removed first. If a damaged output may have caused
a failure, cargo is run once more in an empty folder. A damaged library is compiled
again.

Invariant: a returned library can be imported on this host. All packages are marked
as unknown before cargo runs. If an output was removed, cargo has compiled that package.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

from .. import _settings
from .._errors import BuildFailed, InvalidArtifact
from .._values import dataclass, replace
from ..facts import _cargo_config, _environment
from ..facts._fingerprint import ABI_MACHINE, LOCKED_PACKAGE
from ..files import _staging
from ..library import _library_file
from . import _cargo, _observe, _outputs
from ._target_state import TargetState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import IO

    from ..facts._snapshot import Snapshot
    from ._progress import Progress
    from ._target_state import Known, Outdated

#: Messages of compiler and linker if an earlier output is damaged. Wrong sources can cause some of them as well.
_DAMAGE = re.compile(
    r"error\[E0(?:460|461|462|463|514|786)\]|error: linking with |file too short|invalid ELF header"
    r"|internal compiler error"
    r"|could not execute process `[^`]*build-script|build-script-[^`]*` \(signal"
)

#: A disk with fewer free bytes counts as full.
_NO_SPACE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    Where and how to compile.
    """

    folder: Path
    environment: Mapping[str, str]
    progress: Progress
    #: Whether to clean all packages of the closure first.
    from_scratch: bool
    #: Whether cargo reports how long each crate took.
    timings: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """
    A library that cargo compiled, and the packages of its build.
    """

    artifact: Path
    glibc_floor: tuple[int, int] | None
    packages: list[_observe.Package]
    #: The packages that were compiled in the edit tier.
    edited: frozenset[Path]


def compile_once(snapshot: Snapshot, job: Job, log: IO[bytes], log_path: Path) -> Compiled:
    """
    Compile the extension. The caller holds the lock of the folder.

    Raises `BuildFailed` or `InvalidArtifact`.
    """
    run = _Run(snapshot, job, log, log_path)
    result = _retried_if_damaged(job.folder, run.attempt, job.progress)
    run.require_success(result)
    if result.warnings and _settings.switched_on(_settings.SHOW_WARNINGS, job.environment):
        job.progress.note(result.rendered)
    artifact = _artifact(result, snapshot, log_path)
    try:
        floor = _verify(artifact.library, snapshot).glibc_floor
        packages = _observe.observe(result, _surroundings(snapshot, job.folder, run.child))
        return Compiled(artifact=artifact.library, glibc_floor=floor, packages=packages, edited=run.edited)
    except InvalidArtifact:
        if not artifact.fresh or job.from_scratch:
            raise
    # The library was damaged after it was compiled. Cargo trusts outputs by timestamp, so it would never rebuild it.
    job.progress.note(f"{artifact.library} is damaged; compiling again")
    return compile_once(snapshot, replace(job, from_scratch=True), log, log_path)


class _Run:
    """
    One compilation: the environment that cargo gets, and the state of the target folder.
    """

    def __init__(self, snapshot: Snapshot, job: Job, log: IO[bytes], log_path: Path) -> None:
        assert snapshot.toolchain is not None, "a build needs a toolchain"
        self._snapshot = snapshot
        self._cargo_path = snapshot.toolchain.cargo
        self._job = job
        self._log = log
        self._log_path = log_path
        self._state = TargetState(job.folder, snapshot.spec.profile)
        #: The environment of cargo.
        self.child = _child_environment(snapshot, job.folder, job.environment)
        #: The packages that the last attempt compiled in the edit tier.
        self.edited: frozenset[Path] = frozenset()

    def attempt(self) -> _cargo.CargoResult:
        """
        Remove outdated outputs and run cargo.
        """
        before, changed = self._discard_changed_packages()
        result = self._run()
        if result.succeeded and (kept := _still_fresh(result, changed)):
            # The outputs have other paths than this toolkit knows, so cargo has to remove them.
            self._clean(kept)
            result = self._run()
        if result.ended and not result.succeeded:
            self._state.restore(before, _untouched(result) - {package.key for package in changed})
        return result

    def require_success(self, result: _cargo.CargoResult) -> None:
        """
        Raise `BuildFailed` if the command failed.
        """
        if not result.succeeded:
            problem = (result.problem or "the compiler failed") + _full_disk(self._job.folder)
            raise BuildFailed(self._snapshot.spec.module, problem, result.command, result.output, str(self._log_path))

    def _run(self) -> _cargo.CargoResult:
        job, spec = self._job, self._snapshot.spec
        result = _cargo.run(
            _arguments(self._snapshot, job, self.edited),
            cargo=self._cargo_path,
            directory=spec.directory,
            environment=self.child,
            progress=job.progress,
            log=self._log,
            time_limit=_settings.seconds(_settings.BUILD_TIMEOUT, job.environment, None),
        )
        if result.ended:
            self._state.note_incremental(_outputs.incremental_state(job.folder, spec.profile))
        return result

    def _discard_changed_packages(self) -> tuple[Known, list[Outdated]]:
        """
        Remove outputs that do not match the current inputs, and mark all packages as unknown for the build.

        Returns the state before, and the packages that cargo must compile.
        """
        job, snapshot, state = self._job, self._snapshot, self._state
        if not state.is_known():
            # Without a state file these objects cannot be matched to sources: start clean.
            shutil.rmtree(job.folder, ignore_errors=True)
        _staging.private_folder(job.folder)
        before, current = state.known(), snapshot.current_inputs
        changed = state.outdated(snapshot.packages, _locked_names(snapshot), current, include_matching=job.from_scratch)
        self.edited = frozenset() if snapshot.edit is None else state.edited(snapshot.packages, current)
        state.mark_unknown(snapshot.packages)
        if changed and job.from_scratch:
            self._clean(changed)
        _outputs.discard(job.folder, snapshot.spec.profile, {package.name for package in changed})
        _outputs.remove_other_state(job.folder, snapshot.spec.profile, state.incremental())
        return before, changed

    def _clean(self, packages: list[Outdated]) -> None:
        spec = self._snapshot.spec
        names = [package.spec for package in packages]
        self.require_success(
            _cargo.clean(
                names,
                cargo=self._cargo_path,
                directory=spec.directory,
                environment=self.child,
                profile=spec.profile,
            )
        )


def _still_fresh(result: _cargo.CargoResult, changed: list[Outdated]) -> list[Outdated]:
    """
    The changed packages that cargo did not compile.
    """
    fresh = {key for artifact in result.artifacts if artifact.fresh for key in _observe.keys_of(artifact)}
    return [package for package in changed if package.key in fresh]


def _untouched(result: _cargo.CargoResult) -> set[str]:
    """
    The keys of the packages whose outputs cargo found all up to date.
    """
    reported = {key for artifact in result.artifacts for key in _observe.keys_of(artifact)}
    return reported - {key for artifact in result.artifacts if not artifact.fresh for key in _observe.keys_of(artifact)}


def _retried_if_damaged(
    folder: Path, attempt: Callable[[], _cargo.CargoResult], progress: Progress
) -> _cargo.CargoResult:
    """
    Run cargo. If it fails and damaged outputs may be the cause, run it once more in an empty folder.

    A power failure can leave truncated outputs that cargo trusts. If the second run fails as well, the sources are the
    cause: a marker file then prevents further retries until a build succeeds.
    """
    had_outputs = folder.is_dir()
    marker = folder / "rust-ext-no-retry"
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


def _arguments(snapshot: Snapshot, job: Job, edited: Collection[Path]) -> list[str]:
    """
    The exact arguments for cargo; *edited* are the packages that it compiles in the edit tier.
    """
    spec, environment = snapshot.spec, job.environment
    features = sorted({*spec.features, *snapshot.features})
    jobs = _settings.jobs(environment)
    return [
        "rustc",
        "--locked",
        *(["--offline"] if _settings.switched_on(_settings.OFFLINE, environment) else []),
        *(["--jobs", str(jobs)] if jobs else []),
        *(["--timings"] if job.timings else []),
        "--package",
        spec.package,
        "--lib",
        # If an `rlib` were built as well, there would silently be no link-time optimisation.
        "--crate-type",
        "cdylib",
        "--profile",
        spec.profile,
        *_edit_overrides(snapshot, edited),
        *(["--features", ",".join(features)] if features else []),
        *_environment.cargo_arguments(environment),
        _cargo.MESSAGE_FORMAT,
        *_link_arguments(snapshot),
    ]


def _edit_overrides(snapshot: Snapshot, edited: Collection[Path]) -> Iterator[str]:
    """
    The profile overrides of the edit tier.
    """
    if snapshot.edit is None:
        return
    locked = _locked_names(snapshot)
    for package in snapshot.packages:
        if package.directory in edited and package.name in locked:
            table = f"profile.{snapshot.spec.profile}.package.{json.dumps(f'{package.name}@{package.version}')}"
            for key, value in snapshot.edit.of_package(package.name).items():
                yield from ("--config", f"{table}.{key}={json.dumps(value)}")


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


def _full_disk(folder: Path) -> str:
    # A linker maps its output and dies of SIGBUS if the disk is full, without naming the cause.
    try:
        return f"; No space left on the disk of {folder}" if shutil.disk_usage(folder).free < _NO_SPACE else ""
    except OSError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Artifact:
    library: Path
    #: Whether cargo found it up to date, so did not compile it in this run.
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
                    return _Artifact(library=Path(name), fresh=artifact.fresh)
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
