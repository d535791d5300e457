"""
The ways of getting an edited module back into Python: ours, cargo, maturin and the import hooks.

A *way* edits its own copy of the sources, runs its commands, and ends with an import in a new
process. The ways of one tool share a target folder, so that each dependency is compiled once.

Invariant: all files are below the folder passed in. Standard library only.
"""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import bare
import peers
from edit_modules import FAST_PROFILE, Subject, workspace_copy
from imports import code_that_imports, own_environment, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The names of the ways that the promises are about.
OURS, FULL, MATURIN = "ours, edit tier", "ours, full build", "maturin develop --release"

#: Ways that do not exist for some modules, and the reason.
ABSENT = {
    "rustimport": "only the small crate: it passes no features to cargo, and the workspace's modules need `python`"
}

_SUFFIX = sysconfig.get_config_var("SHLIB_SUFFIX") or ".so"


@dataclass(frozen=True)
class Step:
    """
    A command, its variables, and the folder in which it runs.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path


@dataclass(frozen=True)
class Took:
    """
    Seconds from the edit until the import has finished, and the file that was imported.
    """

    wall: float
    cpu: float
    library: str


@dataclass(frozen=True)
class EditWay:
    """
    A way to get an edited module back. The last step imports it.
    """

    name: str
    subject: Subject
    workspace: Path
    steps: tuple[Step, ...]
    #: The edited file, if it is not the one in the workspace.
    source: Path | None = None

    def edit(self, number: int) -> None:
        """
        Change one line.
        """
        if self.source is not None:
            self.source.write_text(self.subject.edited_for_rustimport(number), encoding="utf-8")
        else:
            self.subject.edit(self.workspace, number)

    def run(self) -> Took:
        """
        Run the steps: build if necessary, then import.
        """
        cpu = wall = 0.0
        output = ""
        for step in self.steps:
            used, waited, output = run(self.name, step.command, step.environment, step.folder)
            cpu, wall = cpu + used, wall + waited
        # A hook may print first: only the last line is that of the program.
        library = output.splitlines()[-1].split(maxsplit=1)[1]
        return Took(wall, cpu, library)


def ways(home: Path, subject: Subject, *, with_peers: bool) -> list[EditWay]:
    """
    Set up all ways for a module; nothing is compiled yet, except by the set-up of maturin's hook.
    """
    found = [ours(home, subject, "on"), ours(home, subject, "off"), *cargo(home, subject)]
    if with_peers:
        found += _maturin(home, subject)
        if subject.is_small:
            found.append(_rustimport(home, subject))
    return found


def ours(home: Path, subject: Subject, tier: str) -> EditWay:
    """
    Set up our import hook. *tier* is the value of `RUST_EXT_EDIT_TIER`.
    """
    place = home / f"ours-{tier}"
    workspace = workspace_copy(place, subject)
    hooked = bare.hooked_package(place / f"venv-{subject.leaf}", subject.parent, workspace, place / "cache")
    # The user's own settings of the toolkit are left out: they would affect only our builds.
    variables = {key: value for key, value in hooked.environment.items() if not _is_setting(key)}
    variables |= {"RUST_EXT_CACHE_DIR": str(place / "cache"), "RUST_EXT_EDIT_TIER": tier}
    step = Step((hooked.python, "-c", code_that_imports(subject.module)), variables, place)
    return EditWay(OURS if tier == "on" else FULL, subject, workspace, (step,))


def in_edit_tier(library: str) -> bool:
    """
    Whether the import hook built a library in the edit tier, from the manifest beside it.
    """
    manifest = json.loads(Path(library).with_name("manifest.json").read_bytes())
    return "tier/edit" in manifest["facts"]


def _is_setting(variable: str) -> bool:
    return variable.startswith(("RUST_EXT_", "SGLANG_"))


def cargo(home: Path, subject: Subject) -> Iterator[EditWay]:
    """
    Set up cargo alone, with its two profiles. The library is imported through a link.
    """
    target = home / "cargo-target"
    for name, folder, profile, options in (
        ("cargo build --release", "cargo-release", "release", ("--release",)),
        ("cargo build", "cargo-dev", "debug", ()),
    ):
        place = home / folder
        workspace = workspace_copy(place, subject)
        modules = place / "modules"
        modules.mkdir(exist_ok=True)
        (modules / f"{subject.leaf}.so").symlink_to(target / profile / f"lib{subject.library}{_SUFFIX}")
        features = ("--features", ",".join(subject.features)) if subject.features else ()
        command = ("cargo", "build", "--quiet", "--locked", *options, "--package", subject.package, "--lib", *features)
        variables = {**own_environment(), "CARGO_TARGET_DIR": str(target), "PYO3_PYTHON": sys.executable}
        build = Step(command, variables, workspace)
        imports = {**own_environment(), "PYTHONPATH": str(modules)}
        found = Step((sys.executable, "-c", code_that_imports(subject.leaf)), imports, place)
        yield EditWay(name, subject, workspace, (build, found))


# maturin, by command and by import hook. The module is in a Python package, as maturin's
# manual advises for a module with its own name.


def _maturin(home: Path, subject: Subject) -> Iterator[EditWay]:
    target = home / "maturin-target"
    for name, folder, options in (
        (MATURIN, "maturin-release", ("--release",)),
        (f"maturin develop --profile {FAST_PROFILE}", "maturin-quick", ("--profile", FAST_PROFILE)),
    ):
        place, python, workspace = _maturin_place(home / folder, subject)
        variables = {**peers.variables_of(python), "CARGO_TARGET_DIR": str(target)}
        command = (str(python.parent / "maturin"), "develop", "--quiet", *options)
        yield EditWay(
            name,
            subject,
            workspace,
            (
                Step(command, variables, workspace / subject.directory),
                Step((str(python), "-c", _import_from_package(subject)), variables, place),
            ),
        )
    place, python, workspace = _maturin_place(home / "maturin-hook", subject)
    variables = {
        **peers.variables_of(python),
        "CARGO_TARGET_DIR": str(target),
        # The hook would otherwise build in another target folder.
        "MATURIN_BUILD_DIR": str(place / "maturin-build"),
    }
    hook = (str(python), "-m", "maturin_import_hook", "site", "install", "--force", "--args=--release")
    run("maturin import hook", hook, variables, place)
    first = (str(python.parent / "maturin"), "develop", "--quiet", "--release")
    run("maturin import hook", first, variables, workspace / subject.directory)
    step = Step((str(python), "-c", _import_from_package(subject)), variables, place)
    yield EditWay("maturin import hook, --release", subject, workspace, (step,))


def _maturin_place(place: Path, subject: Subject) -> tuple[Path, Path, Path]:
    """
    Return a place, its own Python with maturin, and its workspace with the files that maturin needs.
    """
    workspace = workspace_copy(place, subject)
    crate = workspace / subject.directory
    package = _package(subject)
    (crate / "py" / package).mkdir(parents=True)
    (crate / "py" / package / "__init__.py").touch()
    (crate / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["maturin>=1,<2"]\nbuild-backend = "maturin"\n\n'
        f'[project]\nname = "{package.replace("_", "-")}"\nversion = "0.1.0"\nrequires-python = ">=3.10"\n\n'
        f'[tool.maturin]\nmodule-name = "{package}.{subject.leaf}"\npython-source = "py"\n'
        f"features = {json.dumps(list(subject.features))}\n",
        encoding="utf-8",
    )
    if not (place / "venv").is_dir():
        shutil.copytree(peers.environment().parent.parent, place / "venv", symlinks=True)
    return place, place / "venv/bin/python", workspace


def _package(subject: Subject) -> str:
    return f"bench{subject.leaf}"


def _import_from_package(subject: Subject) -> str:
    return code_that_imports(f"{_package(subject)}.{subject.leaf}")


# rustimport: a source file with a header.


def _rustimport(home: Path, subject: Subject) -> EditWay:
    place = home / "rustimport"
    place.mkdir()
    python = peers.environment()
    variables = {
        **peers.variables_of(python),
        "PYTHONPATH": str(place),
        "RUSTIMPORT_CACHE_DIR": str(place / "cache"),
        "RUSTIMPORT_RELEASE_BINARIES": "true",
    }
    code = code_that_imports(subject.leaf, "import rustimport.import_hook")
    step = Step((str(python), "-c", code), variables, place)
    source = place / f"{subject.leaf}.rs"
    return EditWay("rustimport, release", subject, place, (step,), source)
