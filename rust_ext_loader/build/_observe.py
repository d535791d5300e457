"""
Find out which inputs a build read: from dep-info files and the output of build scripts.

rustc writes *dep-info* beside each output: the files it opened, and the variables
of `env!` and `option_env!`. Build scripts print `rerun-if-changed` and
`rerun-if-env-changed` lines. Cargo's messages name the packages of the build, so
no other file in the folder is read.

Invariant: only inputs that no fact covers are reported. Files in output folders, in
registries and in packages that the lockfile pins are not reported. A file that a
pinned package reads outside its own folder is reported.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from .._values import dataclass, field
from ..declare import _manifest
from ..facts import _environment, _seen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ._cargo import CargoResult
    from ._messages import Artifact, BuildScript

#: Parsed as cargo does: the line may be indented, and the value may begin with a space.
_DIRECTIVE = re.compile(rb"\s*cargo::?(rerun-if-changed|rerun-if-env-changed)=(.*)", re.DOTALL)
_ENV_DEP = re.compile(r"# env-dep:([^=]*)")
#: Variables that hold the package's path. `env!` may have put the path into the compiled code.
_PLACES = frozenset({"CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """
    The paths and variables that distinguish undeclared inputs from other inputs.
    """

    #: The workspace's folder.
    root: str
    #: Cargo's target folder.
    output: str
    #: Folders with packages that cargo fetched.
    fetched: tuple[str, ...]
    #: Files whose content is a fact.
    hashed: Collection[str]
    #: Variables that are facts, or that the loader sets.
    decided: Collection[str]


@dataclass(slots=True)
class Package:
    """
    The inputs that one package's compilers and build script read.
    """

    directory: str
    #: Whether it is a path dependency, whose sources are facts.
    local: bool
    #: Name and version, as cargo's `--package` takes them.
    spec: str
    #: Names of its undeclared inputs.
    names: set[str] = field(default_factory=set)
    #: The files among the names that a compiler opened.
    opened: set[str] = field(default_factory=set)
    #: Messages about inputs that could not be determined.
    unknown: list[str] = field(default_factory=list)
    #: Start and end of the last run of its build script, in ns since the epoch.
    script_ran: tuple[int, int] | None = None

    @property
    def key(self) -> str:
        """
        The folder of a local package, since two checkouts of it are two packages; name and version of any other.
        """
        return self.directory if self.local else self.spec


def observe(result: CargoResult, around: Surroundings) -> list[Package]:
    """
    The packages of a successful build with the undeclared inputs that each read.
    """
    packages: dict[str, Package] = {}
    for artifact in result.artifacts:
        directory = os.path.dirname(artifact.package_manifest)
        local = artifact.package.startswith("path+")
        packages.setdefault(artifact.package, Package(directory, local, spec_of(artifact.package)))
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


def keys_of(artifact: Artifact) -> tuple[str, str]:
    """
    The keys that an artifact's package may have: as a local package and as a fetched one.
    """
    return os.path.dirname(artifact.package_manifest), spec_of(artifact.package)


def spec_of(package_id: str) -> str:
    """
    Name and version of a package id, as cargo's `--package` takes them.
    """
    # `path+file:///somewhere/alpha#0.1.0`, `path+file:///somewhere/a#alpha@0.1.0`, `registry+https://...#alpha@0.1.0`
    source, _, name = package_id.rpartition("#")
    return name if "@" in name else f"{source.rpartition('/')[2]}@{name}"


def _read_script(script: BuildScript, package: Package, around: Surroundings) -> None:
    output = Path(script.out_directory).with_name("output")
    try:
        # Cargo splits at `\n` only.
        lines = output.read_bytes().split(b"\n")
    except OSError as error:
        package.unknown.append(f"build script of {package.spec}: {output} cannot be read ({error.strerror})")
        return
    with contextlib.suppress(OSError):
        # Cargo writes the first file directly before the script runs, and the second directly after.
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
        package.unknown.append(f"{artifact.target_name} of {package.spec}: the compiler wrote no dep-info")
        return
    # Cargo runs rustc in the workspace folder; for packages outside the workspace, in their own folder.
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
    The dep-info file of an artifact. Cargo may have moved the artifact to another folder and name.
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
            # Outside `deps`, the `.d` file was written by cargo and has less information than that of rustc.
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
    The files and variables in a dep-info file of rustc.

    Each file is on a line that ends with a colon; a space in a name is escaped by a backslash.
    """
    lines = text.split("\n")
    files = [_unescaped(line[:-1]) for line in lines if line.endswith(":") and not line.startswith("#")]
    variables = [found[1] for line in lines if (found := _ENV_DEP.match(line))]
    return files, variables


def _unescaped(name: str) -> str:
    return name.replace("\\ ", " ")


def _add_file(name: str, start: str, package: Package, around: Surroundings) -> None:
    path = os.path.join(start, name)
    if _is_covered(path, package, around):
        return
    called = _seen.name_of_file(
        path, around.root, given_as_absolute=os.path.isabs(name) and not _manifest.is_inside(path, package.directory)
    )
    found = called[len(_seen.FILE) :]
    if os.path.join(around.root, found) in around.hashed:
        return
    package.names.add(called)
    if package.local and os.path.isabs(found) and _share_a_folder(found, around.root):
        # The package may have computed this path from its own path: in another checkout it would read another file.
        package.names.add(_seen.WORKSPACE)


def _share_a_folder(one: str, other: str) -> bool:
    """
    Whether two absolute paths have a common parent folder other than the root of the disk.
    """
    try:
        common = os.path.commonpath([one, other])
    except ValueError:
        return False
    return os.path.dirname(common) != common


def _is_covered(path: str, package: Package, around: Surroundings) -> bool:
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
    The undeclared inputs of all packages.
    """
    for package in packages:
        yield from package.names
