"""
Find out what a build has read, from what its compilers and build scripts left behind.

rustc writes *dep-info* beside whatever it compiles: the files it opened and the
variables that `env!` and `option_env!` asked for. Build scripts print the paths
and variables for whose sake they want to run again. Cargo's messages say which
packages took part, so nothing is guessed from what else lies in the folder.

Invariant: only what no fact covers is told. Output folders, registries and
packages that the lockfile pins are not inputs of ours; what a package pinned by
the lockfile reads outside of itself is.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..declare import _manifest
from ..facts import _environment, _seen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ._cargo import Artifact, BuildScript, CargoResult

#: As cargo reads it: a line may be indented, a value may begin with a blank.
_DIRECTIVE = re.compile(rb"\s*cargo::?(rerun-if-changed|rerun-if-env-changed)=(.*)", re.DOTALL)
_ENV_DEP = re.compile(r"# env-dep:([^=]*)")
#: Where cargo says a package lies, told to its code: the code may hold it.
_PLACES = frozenset({"CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """
    What is needed to tell undeclared inputs from all the rest.
    """

    #: The workspace's folder.
    root: str
    #: Cargo's target folder.
    output: str
    #: Folders of what cargo fetched.
    fetched: tuple[str, ...]
    #: Files whose content is a fact.
    hashed: Collection[str]
    #: Variables that are facts, or set by us.
    decided: Collection[str]


@dataclass(slots=True)
class Package:
    """
    What one package's compilers and build script were seen to read.
    """

    directory: str
    #: Whether its sources are on this disk, and hence facts.
    local: bool
    #: How cargo is told which package is meant.
    spec: str
    names: set[str] = field(default_factory=set)
    #: Those of the names that are files which a compiler opened.
    opened: set[str] = field(default_factory=set)
    #: What could not be found out, for people.
    unknown: list[str] = field(default_factory=list)
    #: When its build script last ran, from and to, in nanoseconds since the epoch.
    script_ran: tuple[int, int] | None = None

    @property
    def key(self) -> str:
        """
        Its folder if it is local: two checkouts of one package are two packages.
        """
        return self.directory if self.local else self.spec


def observe(result: CargoResult, around: Surroundings) -> list[Package]:
    """
    The packages of a build that has succeeded, each with the undeclared inputs it was seen to read.
    """
    packages: dict[str, Package] = {}
    for artifact in result.artifacts:
        directory = os.path.dirname(artifact.package_manifest)
        local = artifact.package.startswith("path+")
        packages.setdefault(artifact.package, Package(directory, local, _spec(artifact.package)))
    sets: dict[str, set[str]] = {}
    for script in result.scripts:
        sets.setdefault(script.package, set()).update(script.sets)
        if package := packages.get(script.package):
            _read_script(script, package, around)
    for artifact in result.artifacts:
        package = packages[artifact.package]
        if package.local:
            _read_dep_info(artifact, package, around, sets.get(artifact.package, set()))
    return list(packages.values())


def _spec(package_id: str) -> str:
    # `path+file:///somewhere/alpha#0.1.0`, `path+file:///somewhere/a#alpha@0.1.0`, `registry+https://...#alpha@0.1.0`
    source, _, name = package_id.rpartition("#")
    return name if "@" in name else f"{source.rpartition('/')[2]}@{name}"


def _read_script(script: BuildScript, package: Package, around: Surroundings) -> None:
    output = Path(script.out_directory).with_name("output")
    try:
        # Other line ends are part of a line to cargo.
        lines = output.read_bytes().split(b"\n")
    except OSError as error:
        package.unknown.append(f"{output}: {error.strerror}")
        return
    with contextlib.suppress(OSError):
        # Cargo writes the one right before, and the other right after; what it printed bears the time of before.
        began, ended = (output.with_name(name).stat().st_mtime_ns for name in ("invoked.timestamp", "stderr"))
        package.script_ran = began, ended
    for line in lines:
        if not (directive := _DIRECTIVE.match(line)):
            continue
        value = os.fsdecode(directive[2].rstrip())
        if directive[1] == b"rerun-if-changed":
            _add_file(value, package.directory, package, around)
        else:
            _add_variable(value, package, around)


def _read_dep_info(artifact: Artifact, package: Package, around: Surroundings, sets: Collection[str]) -> None:
    path = _dep_info_of(artifact)
    try:
        text = os.fsdecode(path.read_bytes()) if path else None
    except OSError:
        text = None
    if text is None:
        package.unknown.append(f"{artifact.target_name} of {package.spec}: the compiler left no dep-info")
        return
    # Cargo starts rustc in the workspace, for packages outside of it in their own folder.
    tops = (around.root, os.path.realpath(around.root))
    start = around.root if any(_manifest.is_inside(package.directory, top) for top in tops) else package.directory
    files, variables = parse_dep_info(text)
    before = set(package.names)
    for name in files:
        _add_file(name, start, package, around)
    package.opened |= {name for name in package.names - before if name.startswith(_seen.FILE)}
    for name in variables:
        if name in _PLACES:
            _add_place(package, around)
        elif name not in sets:
            _add_variable(name, package, around)


def _dep_info_of(artifact: Artifact) -> Path | None:
    """
    The dep-info of what cargo says it made, or has put elsewhere under another name.
    """
    for name in map(Path, artifact.filenames):
        if "custom-build" in artifact.kinds:
            return next(name.parent.glob("*.d"), None)
        stem = (
            name.stem.removeprefix("lib")
            if name.stem.startswith("lib" + artifact.target_name.replace("-", "_"))
            else name.stem
        )
        for folder in (name.parent, name.parent / "deps"):
            # Beside a library that was put into its final place lies a file of cargo's own, which says less.
            if folder.name == "deps":
                exact = folder / f"{stem}.d"
                found = (
                    [exact]
                    if exact.is_file()
                    else sorted(folder.glob(f"{stem}-*.d"), key=lambda file: file.stat().st_mtime_ns)
                )
                if found:
                    return found[-1]
    return None


def parse_dep_info(text: str) -> tuple[list[str], list[str]]:
    """
    Files and variables in dep-info as rustc writes it.

    Each file has a line of its own that ends in a colon; spaces in names are escaped by a backslash.
    """
    lines = text.split("\n")
    files = [_unescaped(line[:-1]) for line in lines if line.endswith(":") and not line.startswith("#")]
    variables = [found[1] for line in lines if (found := _ENV_DEP.match(line))]
    return files, variables


def _unescaped(name: str) -> str:
    return name.replace("\\ ", " ")


def _add_file(name: str, start: str, package: Package, around: Surroundings) -> None:
    path = os.path.join(start, name)
    if _is_nobodys_input(path, package, around):
        return
    called = _seen.name_of_file(
        path, around.root, given_as_absolute=os.path.isabs(name) and not _manifest.is_inside(path, package.directory)
    )
    found = called[len(_seen.FILE) :]
    if os.path.join(around.root, found) in around.hashed:
        return
    package.names.add(called)
    if package.local and os.path.isabs(found) and _share_a_folder(found, around.root):
        # A package that knows where it lies may have gone from there: another checkout's build would look elsewhere.
        package.names.add(f"{_seen.PLACE}.")


def _share_a_folder(one: str, other: str) -> bool:
    """
    Whether two absolute paths have more in common than the root of the disk.
    """
    try:
        common = os.path.commonpath([one, other])
    except ValueError:
        return False
    return os.path.dirname(common) != common


def _is_nobodys_input(path: str, package: Package, around: Surroundings) -> bool:
    pinned = () if package.local else (package.directory,)
    real = os.path.realpath(path)
    return any(
        _manifest.is_inside(real, os.path.realpath(folder)) for folder in (around.output, *around.fetched, *pinned)
    )


def _add_variable(name: str, package: Package, around: Surroundings) -> None:
    if name not in around.decided and not _environment.is_accounted_for(name, foreign=not package.local):
        package.names.add(_seen.VARIABLE + name)


def _add_place(package: Package, around: Surroundings) -> None:
    for top in (around.root, os.path.realpath(around.root)):
        if _manifest.is_inside(package.directory, top):
            package.names.add(_seen.PLACE + _manifest.posix(os.path.relpath(package.directory, top)))
            return
    package.names.add(_seen.PLACE + _manifest.posix(os.path.relpath(package.directory, around.root)))


def all_names(packages: Iterable[Package]) -> Iterator[str]:
    """
    Everything that was seen, whoever read it.
    """
    for package in packages:
        yield from package.names
