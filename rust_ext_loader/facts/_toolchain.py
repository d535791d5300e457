"""
Decide which Rust toolchain cargo would use in a crate's folder, and whether it is usable.

Cargo and rustc are asked once for their versions; the answer is remembered by
the stat of the real compiler, of rustup's settings and of every file that could
choose another toolchain. The ways to be unusable are told apart, since each has
its own remedy: missing, no home, no default, not installed, too old, no answer.

Invariant: never installs anything, never waits without a limit, leaves no
process behind, and starts none when nothing has moved. An answer is judged by what was printed: where
SIGCHLD is ignored, an exit status means nothing.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from typing import Any

from .. import _settings
from .._errors import CacheUnavailable, ToolchainMissing
from .._model import Gathered, Toolchain
from ..files import _digest, _watching
from . import _cargo_config, _environment, _memo
from ._fingerprint import SHORT, TOOLCHAIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from threading import Thread
    from typing import IO

    from .._model import Watched
    from .._process_group import ProcessGroup

#: What decides, besides files, which compiler is run.
_VARIABLES = (
    "RUSTUP_TOOLCHAIN",
    "RUSTUP_HOME",
    "RUSTC",
    "CARGO_BUILD_RUSTC",
    "CARGO_HOME",
    "HOME",
    "USERPROFILE",
    "LD_LIBRARY_PATH",
)

#: Files that choose a toolchain for the folder they lie in.
TOOLCHAIN_FILES = ("rust-toolchain.toml", "rust-toolchain")

#: Facts that other modules read.
RUSTC = f"{TOOLCHAIN}/rustc"
HOST = f"{TOOLCHAIN}/host"


@dataclass(frozen=True, slots=True)
class _Tools:
    """
    What would be run, and what could change that.
    """

    #: Empty if there is none.
    cargo: str
    rustc: str
    #: How the compiler was asked for.
    chosen: str
    directory: Path
    environment: Mapping[str, str]
    #: Where a tool or a file would be found first if it were there, and files that are there.
    deciding: tuple[str, ...]


def probe(
    directory: Path,
    environment: Mapping[str, str],
    memo_root: Path | None,
    needed_for: str,
    rust_version: str | None = None,
) -> Toolchain:
    """
    The toolchain that cargo would use in *directory*.

    *memo_root* is where answers are remembered, `None` for nowhere. Raises `ToolchainMissing` when there is none, or when it
    is older than *rust_version*.
    """
    tools = _find_tools(directory, environment)
    for tool, found in (("cargo", tools.cargo), (tools.chosen, tools.rustc)):
        if not found:
            where = "there is no such file" if os.path.dirname(tool) else "it is not on PATH"
            raise ToolchainMissing(tool, "missing", where, needed_for)
    subject = [str(directory), tools.cargo, tools.rustc, *(tools.environment.get(name, "") for name in _VARIABLES)]
    file = None if memo_root is None else memo_root / "probes" / f"{_short(subject)}.json"
    answer = _memo.recall(file, subject) if file is not None else None
    if answer is None:
        answer = _ask_and_keep(tools, needed_for, file, subject)
    if rust_version is not None and _numbers(answer["facts"][RUSTC]) < _numbers(rust_version):
        detail = f"rustc {answer['facts'][RUSTC]} is older than {rust_version}, which the crate asks for"
        raise ToolchainMissing("rustc", "too-old", detail, needed_for)
    return _toolchain(tools, answer)


def absence(directory: Path, environment: Mapping[str, str]) -> Watched | None:
    """
    What to look at again to know that there still is no cargo, or no compiler; `None` if both are there.
    """
    tools = _find_tools(directory, environment)
    return None if tools.cargo and tools.rustc else _watching.watch(tools.deciding)


def _short(subject: object) -> str:
    return _digest.sha256(json.dumps(subject).encode("utf-8", "surrogateescape"))[:SHORT]


def _toolchain(tools: _Tools, answer: dict[str, Any]) -> Toolchain:
    facts = dict(answer["facts"])
    gathered = Gathered(facts, _watching.watch((*tools.deciding, *answer["compilers"])))
    return Toolchain(tools.cargo, facts[RUSTC], facts[HOST], gathered)


def _numbers(version: str) -> tuple[int, int, int]:
    found = [int(number) for number in re.findall(r"\d+", version.partition("-")[0])[:3]]
    major, minor, patch = [*found, 0, 0, 0][:3]
    return major, minor, patch


# Finding the tools.


def _find_tools(directory: Path, environment: Mapping[str, str]) -> _Tools:
    config = _cargo_config.read(directory, environment, directory)
    chosen = (
        environment.get("RUSTC")
        or environment.get("CARGO_BUILD_RUSTC")
        or _configured_rustc(config, directory)
        or "rustc"
    )
    cargo, before_cargo = _which("cargo", directory, environment)
    rustc, before_rustc = _which(chosen, directory, environment)
    deciding = (*before_cargo, *before_rustc, *_deciding_files(directory, environment), *config.present)
    return _Tools(cargo, rustc, chosen, directory, environment, tuple(dict.fromkeys(deciding)))


def _configured_rustc(config: _cargo_config.Config, directory: Path) -> str:
    build = config.values.get("build")
    rustc = build.get("rustc") if isinstance(build, dict) else None
    if not isinstance(rustc, str):
        return ""
    # Spelled from the folder that the configuration was read for.
    return os.path.normpath(directory / rustc) if os.sep in rustc else rustc


def _which(tool: str, directory: Path, environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """
    The program that a name stands for in *directory*, empty if none; and every place asked, that one included.
    """
    suffix = ".exe" if os.name == "nt" and not tool.lower().endswith(".exe") else ""
    if os.path.dirname(tool):
        candidates = [str(directory / f"{tool}{suffix}")]
    else:
        folders = environment.get("PATH", os.defpath).split(os.pathsep)
        candidates = [str(directory / folder / f"{tool}{suffix}") for folder in folders]
    asked = []
    for candidate in candidates:
        asked.append(candidate)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate, asked
    return "", asked


def _deciding_files(directory: Path, environment: Mapping[str, str]) -> list[str]:
    """
    Files by which rustup chooses a toolchain for a folder.
    """
    files = [str(folder / name) for folder in (directory, *directory.parents) for name in TOOLCHAIN_FILES]
    home = _cargo_config.user_home(environment)
    rustup = environment.get("RUSTUP_HOME") or (str(home / ".rustup") if home is not None else "")
    # A linked toolchain that is linked elsewhere shows in the folder of toolchains alone.
    return [*files, *(os.path.join(rustup, name) for name in ("settings.toml", "toolchains"))] if rustup else files


# Asking them.


def _ask_and_keep(tools: _Tools, needed_for: str, file: Path | None, subject: object) -> dict[str, Any]:
    started_ns = _memo.now_ns()
    before = _memo.stamps(tools.deciding)
    answer = _ask(tools, needed_for)
    # Looked at before the answer, or old enough not to have moved since.
    known = {**before, **_memo.stamps(answer["compilers"])}
    if file is not None and _memo.settled(known, started_ns):
        _memo.keep(file, subject, known, answer)
    return answer


def _ask(tools: _Tools, needed_for: str) -> dict[str, Any]:
    questions = {
        "cargo": [tools.cargo, "-V"],
        "rustc": [tools.rustc, "-vV"],
        "sysroot": [tools.rustc, "--print", "sysroot"],
    }
    try:
        child = _environment.child_environment(tools.environment)
    except CacheUnavailable as error:
        detail = f"it has no home, and none can be made ({'; '.join(error.tried)})"
        raise ToolchainMissing("cargo", "no-home", detail, needed_for) from error
    said = _run_all(questions, tools.directory, child)
    version = re.match(r"cargo (\S.*)", said["cargo"].out)
    lines = dict(line.split(": ", 1) for line in said["rustc"].out.splitlines() if ": " in line)
    if version is None:
        raise _unusable("cargo", said["cargo"], needed_for)
    if "release" not in lines or "host" not in lines:
        raise _unusable("rustc", said["rustc"], needed_for)
    facts = {
        RUSTC: lines["release"],
        f"{TOOLCHAIN}/commit": lines.get("commit-hash", "unknown"),
        HOST: lines["host"],
        f"{TOOLCHAIN}/llvm": lines.get("LLVM version", "unknown"),
        f"{TOOLCHAIN}/cargo": version[1].strip(),
    }
    return {"facts": facts, "compilers": _real_compilers(said["sysroot"].out.strip(), tools)}


def _real_compilers(sysroot: str, tools: _Tools) -> list[str]:
    """
    The programs behind rustup's proxies, which stay the same when a toolchain is updated.
    """
    suffix = ".exe" if os.name == "nt" else ""
    found = [os.path.join(sysroot, "bin", f"{tool}{suffix}") for tool in ("rustc", "cargo")] if sysroot else []
    return [path for path in found if os.path.isfile(path)] or [os.path.realpath(tools.rustc)]


@dataclass(slots=True)
class _Said:
    out: str = ""
    err: str = ""
    #: Whether it was heard to the end.
    in_time: bool = False


def _run_all(questions: dict[str, list[str]], directory: Path, environment: Mapping[str, str]) -> dict[str, _Said]:
    """
    Ask everything at once: through rustup's proxies each question takes tens of milliseconds.
    """
    # Mostly the answers are remembered, and this brings `subprocess` and `threading` along.
    from .._process_group import ProcessGroup

    limit = _settings.seconds(_settings.PROBE_TIMEOUT, environment, 30.0)
    said = {name: _Said() for name in questions}
    groups: dict[str, ProcessGroup] = {}
    try:
        for name, command in questions.items():
            groups[name] = ProcessGroup(command, directory=directory, environment=environment)
        ears = {
            name: [_ear(group.stdout, said[name], "out"), _ear(group.stderr, said[name], "err")]
            for name, group in groups.items()
        }
        for group in groups.values():
            group.go()
        deadline = time.monotonic() + limit
        for name, both in ears.items():
            for ear in both:
                ear.join(max(0.0, deadline - time.monotonic()))
            said[name].in_time = not any(ear.is_alive() for ear in both)
    except OSError as error:
        unheard = f"it cannot be run: {error.strerror or error}"
        return {name: _Said(err=unheard, in_time=True) for name in questions}
    finally:
        # Out of time or interrupted: whoever has not answered ends here, with all that it has started.
        for name, group in groups.items():
            if not said[name].in_time:
                group.kill()
        # This waits, and could be interrupted once more.
        for group in groups.values():
            group.close()
    return {
        name: answer if answer.in_time else _Said(err=f"it did not answer within {limit:g} s")
        for name, answer in said.items()
    }


def _ear(stream: IO[bytes], said: _Said, name: str) -> Thread:
    from threading import Thread

    def listen() -> None:
        with stream:
            setattr(said, name, stream.read().decode("utf-8", "replace"))

    # A daemon: what escaped from the group may hold the pipe for ever, and must not hold us.
    ear = Thread(target=listen, daemon=True)
    ear.start()
    return ear


def _unusable(tool: str, said: _Said, needed_for: str) -> ToolchainMissing:
    text = said.err.strip() or said.out.strip()
    lowered = text.lower()
    if not said.in_time:
        problem = "no-answer"
    elif (
        "no default is configured" in lowered
        or "no default toolchain" in lowered
        or "could not choose a version" in lowered
    ):
        problem = "no-default"
    elif "is not installed" in lowered or "not applicable to the" in lowered:
        problem = "not-installed"
    else:
        problem = "broken"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "it prints nothing")
    return ToolchainMissing(tool, problem, first.removeprefix("error: "), needed_for)
