"""
The table of changes that must or must not cause a rebuild, for the tests and for `ci/bench.py freshness`.

Each row changes a copy of `tests/crates/freshness`, or the environment, and says what a
new import must return. The module's value shows whether a required rebuild happened. The list of
compiled packages shows a needless rebuild. Uses the standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CRATES = Path(__file__).resolve().parents[1] / "crates"

#: Module folders with names that tools often exclude.
_FOLDERS = ("dist", "env", "target", "venv")


@dataclass(frozen=True)
class Compiler:
    """
    An installed toolchain.
    """

    #: Its name in rustup.
    toolchain: str
    release: str


@dataclass(frozen=True)
class Machine:
    """
    The properties of this machine that rows depend on.
    """

    host: str
    used: Compiler
    #: A toolchain of another release, if one is installed.
    other: Compiler | None


def _nothing(_root: Path, _machine: Machine) -> None:
    """
    Change no file: the row changes the environment.
    """


@dataclass(frozen=True)
class Change:
    """
    One row of the table.
    """

    name: str
    #: Function that changes the files of a workspace.
    act: Callable[[Path, Machine], object] = _nothing
    #: Variables set for the imports after the change. `{machine}` is replaced by properties of the machine.
    variables: Mapping[str, str] = field(default_factory=dict)
    #: A word of the module's value, and the word that replaces it after the change.
    #: `word` is `None` if nothing may be compiled. `becomes` is `None` if the import must fail.
    word: str | None = None
    becomes: str | None = None
    #: `another compiler` or `rustup`, if the row needs it.
    needs: str | None = None
    #: Part of the compiler's error, if the import must fail.
    complaint: str = ""

    @property
    def must_rebuild(self) -> bool:
        """
        Whether the module's value must change.
        """
        return self.word is not None

    def impossible_on(self, machine: Machine) -> str | None:
        """
        The reason why this machine cannot run the row.
        """
        if self.needs == "another compiler" and machine.other is None:
            return "no second toolchain is installed, or the environment names one"
        return "rustup is not in use here" if self.needs and not machine.used.toolchain else None

    def environment(self, machine: Machine) -> dict[str, str]:
        """
        The variables of the row.
        """
        return {name: value.format(machine=machine) for name, value in self.variables.items()}

    def value_after(self, before: str, machine: Machine) -> str | None:
        """
        The module's value after the change, or `None` if it cannot be built.
        """
        if self.word is None:
            return before
        if self.becomes is None:
            return None
        word = self.word.format(machine=machine)
        assert word in before.split(), f"{before!r} holds no {word!r}"
        return " ".join(self.becomes.format(machine=machine) if part == word else part for part in before.split())


def copy_workspace(root: Path) -> None:
    """
    Copy the fixture workspace to `root`.
    """
    shutil.copytree(CRATES / "freshness", root)
    shutil.copytree(CRATES / "plain" / "pymod", root / "pymod")
    for name in _FOLDERS:
        _write(root / f"alpha/src/{name}/mod.rs", f'pub const WORD: &str = "{name}-1";\n')


def probe_machine() -> Machine:
    """
    Return the properties of this machine: its host and the installed compilers.
    """
    output = _run("rustc", "-vV")
    lines = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
    in_use = _run("rustup", "show", "active-toolchain").partition(" ")[0].strip() if shutil.which("rustup") else ""
    used = Compiler(in_use, lines["release"])
    installed = (
        [line.split()[0] for line in _run("rustup", "toolchain", "list").splitlines() if line.strip()] if in_use else []
    )
    others = [Compiler(name, _release(name)) for name in installed if name != in_use]
    # RUSTUP_TOOLCHAIN overrides every toolchain file, so rows with such a file cannot choose another compiler.
    differing = (
        []
        if os.environ.get("RUSTUP_TOOLCHAIN")
        else [item for item in others if item.release not in ("", used.release)]
    )
    return Machine(lines["host"], used, differing[0] if differing else None)


def _release(toolchain: str) -> str:
    output = _run("rustc", f"+{toolchain}", "-vV")
    return next((line.partition(": ")[2] for line in output.splitlines() if line.startswith("release: ")), "")


def _run(*command: str) -> str:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    ).stdout


# Actions of changes.


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _file(name: str, text: str) -> Callable[[Path, Machine], object]:
    return lambda root, machine: _write(root / name, text.format(machine=machine))


def _edit(name: str, old: str, new: str, *, older: bool = False) -> Callable[[Path, Machine], object]:
    def act(root: Path, _: Machine) -> None:
        path = root / name
        status, text = path.stat(), path.read_text(encoding="utf-8")
        assert old in text, f"{name} holds no {old!r}"
        _write(path, text.replace(old, new))
        if older:
            os.utime(path, (status.st_atime, status.st_mtime - 86400))

    return act


def _edited(name: str, word: str, what: str, *, older: bool = False) -> Change:
    """
    A row that replaces `<word>-1` in a file with `<word>-2`.
    """
    return Change(what, _edit(name, f"{word}-1", f"{word}-2", older=older), word=f"{word}-1", becomes=f"{word}-2")


def _touch(root: Path, _: Machine) -> None:
    for path in root.rglob("*"):
        if path.is_file() and path.suffix in (".rs", ".toml", ".lock", ".txt"):
            os.utime(path)


def _coverage_and_editors(root: Path, _: Machine) -> None:
    for name in (
        ".coverage",
        "alpha/.coverage.host.123",
        "alpha/src/.lib.rs.swp",
        "alpha/src/lib.rs~",
        "alpha/src/#lib.rs#",
    ):
        _write(root / name, "something")


def _output_of_tests(root: Path, _: Machine) -> None:
    for name in (
        "alpha/tests/output.txt",
        "alpha/tests/results/one.json",
        "alpha/benches/report.html",
        ".pytest_cache/v/lastfailed",
    ):
        _write(root / name, "something")


def _delete_part(root: Path, _: Machine) -> None:
    (root / "alpha/src/part.rs").unlink()


def _unrelated(root: Path, machine: Machine) -> None:
    _edit("unrelated/src/lib.rs", "unrelated-1", "unrelated-2")(root, machine)
    _write(root / "scratch.rs", "fn main() {}\n")


_LOUD = '[build]\nrustflags = ["--cfg", "loud"]\n'
_CHANNEL = '[toolchain]\nchannel = "{machine.%s.toolchain}"\n'


def _compiler(what: str, act: Callable[[Path, Machine], object], **variables: str) -> Change:
    """
    A row that selects the other compiler.
    """
    return Change(what, act, variables, "{machine.used.release}", "{machine.other.release}", needs="another compiler")


CHANGES = [
    _edited("alpha/src/lib.rs", "root", "src/lib.rs"),
    *(_edited(f"alpha/src/{name}/mod.rs", name, f"a module folder named `{name}`") for name in _FOLDERS),
    Change("a deleted source file", _delete_part, word="part-1", complaint="file not found for module `part`"),
    _edited("alpha/src/part.rs", "part", "other content with an older time", older=True),
    _edited("alpha/src/inside.txt", "inside", "`include_str!` of a file in src/"),
    _edited("shared/outside.txt", "outside", "`include_str!` of a file outside the crate"),
    _edited("alpha/data/number.txt", "number", "a file of the crate that build.rs reads"),
    _edited("shared/number.txt", "made", "a file outside the crate that build.rs reads"),
    _edited("normal/src/lib.rs", "normal", "a path dependency"),
    _edited("inherited/src/lib.rs", "inherited", "a dependency by `workspace = true`"),
    _edited("maker/src/lib.rs", "maker", "a build dependency"),
    _edited("for-unix/src/lib.rs", "for-unix", "a dependency of `[target.'cfg(unix)']`"),
    Change(
        "flags in .cargo/config.toml of the crate",
        _file("alpha/.cargo/config.toml", _LOUD),
        word="quiet",
        becomes="loud",
    ),
    Change(
        "flags in .cargo/config.toml of the workspace", _file(".cargo/config.toml", _LOUD), word="quiet", becomes="loud"
    ),
    _compiler("a toolchain file at the workspace's root", _file("rust-toolchain.toml", _CHANNEL % "other")),
    _compiler("RUSTUP_TOOLCHAIN", _nothing, RUSTUP_TOOLCHAIN="{machine.other.toolchain}"),
    Change("RUSTFLAGS", variables={"RUSTFLAGS": "--cfg loud"}, word="quiet", becomes="loud"),
    Change(
        "CARGO_PROFILE_RELEASE_*",
        variables={"CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS": "true"},
        word="unchecked",
        becomes="checked",
    ),
    Change(
        "CARGO_BUILD_TARGET",
        variables={"CARGO_BUILD_TARGET": "{machine.host}"},
        word="for-the-host",
        becomes="for-a-target",
    ),
    Change("a variable that `option_env!` reads", variables={"FX_FLAVOUR": "sweet"}, word="plain", becomes="sweet"),
    # Changes that must not cause a rebuild.
    Change("a comment in the workspace's manifest", _edit("Cargo.toml", "[workspace]\n", "[workspace] # really\n")),
    Change("a comment in the lockfile", _edit("Cargo.lock", "version = 4", "# Reviewed.\nversion = 4")),
    Change("times alone", _touch),
    Change("a README", _file("alpha/README.md", "# Alpha\n")),
    Change("coverage and editor files", _coverage_and_editors),
    Change("output of tests", _output_of_tests),
    Change("an unrelated .rs of the workspace", _unrelated),
    Change(
        "a setting in .cargo/config.toml that changes no output",
        _file(".cargo/config.toml", "[term]\nprogress.when = 'never'\n"),
    ),
    Change(
        "a toolchain file that names the compiler in use",
        _file("rust-toolchain.toml", _CHANNEL % "used"),
        needs="rustup",
    ),
]
