"""
Decide which Rust toolchain cargo would use in a crate's folder, and whether it is usable.

Cargo and rustc are run once to get their versions. The answer is remembered with
the signatures of the real compiler, of rustup's settings and of every file that
could select another toolchain. The error has its own advice for each problem:
missing, no home, no default, not installed, too old, no answer.

Invariant: never installs anything, always has a time limit, and leaves no
process behind. It starts no process if no file has changed. Only the printed
output is evaluated: where SIGCHLD is ignored, an exit status means nothing.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

from .. import _settings
from .._errors import CacheUnavailable, ToolchainMissing
from .._model import Gathered, Toolchain
from .._values import dataclass
from ..files import _digest, _watching
from . import _cargo_config, _environment, _memo
from ._fingerprint import SHORT, TOOLCHAIN, TOOLCHAIN_RUSTC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from threading import Thread
    from typing import IO

    from .._model import Watched
    from .._process_group import ProcessGroup

#: Variables that decide which compiler is run.
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

#: Files that select a toolchain for their folder.
TOOLCHAIN_FILES = ("rust-toolchain.toml", "rust-toolchain")

_HOST = f"{TOOLCHAIN}/host"


@dataclass(frozen=True, slots=True)
class _Tools:
    """
    The programs that would be run, and the files that select them.
    """

    #: Empty if not found.
    cargo: str
    rustc: str
    #: The name or path by which the compiler is requested.
    rustc_name: str
    directory: Path
    environment: Mapping[str, str]
    #: Files that select the programs, and paths where a new file would select another program.
    deciding_paths: tuple[str, ...]


def probe(
    directory: Path,
    environment: Mapping[str, str],
    memo_root: Path | None,
    needed_for: str,
    rust_version: str | None = None,
) -> Toolchain:
    """
    The toolchain that cargo would use in *directory*.

    Answers are stored below *memo_root*, if it is given. Raises `ToolchainMissing` if there is no toolchain, or if the
    toolchain is older than *rust_version*.
    """
    tools = _find_tools(directory, environment)
    for tool, found in (("cargo", tools.cargo), (tools.rustc_name, tools.rustc)):
        if not found:
            where = "there is no such file" if os.path.dirname(tool) else "it is not on PATH"
            raise ToolchainMissing(tool, "missing", where, needed_for)
    subject = [str(directory), tools.cargo, tools.rustc, *(tools.environment.get(name, "") for name in _VARIABLES)]
    file = None if memo_root is None else memo_root / "probes" / f"{_memo_name(subject)}.json"
    answer = _memo.recall(file, subject) if file is not None else None
    if answer is None:
        answer = _query_and_remember(tools, needed_for, file, subject)
    if rust_version is not None and _version_numbers(answer["facts"][TOOLCHAIN_RUSTC]) < _version_numbers(rust_version):
        detail = f"rustc {answer['facts'][TOOLCHAIN_RUSTC]} is older than {rust_version}, which the crate requires"
        raise ToolchainMissing("rustc", "too-old", detail, needed_for)
    return _toolchain(tools, answer)


def absence(directory: Path, environment: Mapping[str, str]) -> Watched | None:
    """
    The paths to watch while cargo or the compiler is missing; `None` if both exist.
    """
    tools = _find_tools(directory, environment)
    return None if tools.cargo and tools.rustc else _watching.watch(tools.deciding_paths)


def _memo_name(subject: object) -> str:
    return _digest.sha256(json.dumps(subject).encode("utf-8", "surrogateescape"))[:SHORT]


def _toolchain(tools: _Tools, answer: dict[str, Any]) -> Toolchain:
    facts = dict(answer["facts"])
    gathered = Gathered(facts, _watching.watch((*tools.deciding_paths, *answer["compilers"])))
    return Toolchain(tools.cargo, facts[TOOLCHAIN_RUSTC], facts[_HOST], gathered)


def _version_numbers(version: str) -> tuple[int, int, int]:
    found = [int(number) for number in re.findall(r"\d+", version.partition("-")[0])[:3]]
    major, minor, patch = [*found, 0, 0, 0][:3]
    return major, minor, patch


# Finding the tools.


def _find_tools(directory: Path, environment: Mapping[str, str]) -> _Tools:
    config = _cargo_config.read(directory, environment, directory)
    rustc_name = (
        environment.get("RUSTC")
        or environment.get("CARGO_BUILD_RUSTC")
        or _configured_rustc(config, directory)
        or "rustc"
    )
    cargo, before_cargo = _which("cargo", directory, environment)
    rustc, before_rustc = _which(rustc_name, directory, environment)
    deciding_paths = (*before_cargo, *before_rustc, *_deciding_files(directory, environment), *config.present)
    return _Tools(cargo, rustc, rustc_name, directory, environment, tuple(dict.fromkeys(deciding_paths)))


def _configured_rustc(config: _cargo_config.Config, directory: Path) -> str:
    build = config.values.get("build")
    rustc = build.get("rustc") if isinstance(build, dict) else None
    if not isinstance(rustc, str):
        return ""
    # A relative path starts at the folder for which the configuration was read.
    return os.path.normpath(directory / rustc) if os.sep in rustc else rustc


def _which(tool: str, directory: Path, environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """
    The path of the program that *tool* means in *directory*, or an empty string; and every path that was tried.
    """
    suffix = ".exe" if os.name == "nt" and not tool.lower().endswith(".exe") else ""
    if os.path.dirname(tool):
        candidates = [str(directory / f"{tool}{suffix}")]
    else:
        folders = environment.get("PATH", os.defpath).split(os.pathsep)
        candidates = [str(directory / folder / f"{tool}{suffix}") for folder in folders]
    tried = []
    for candidate in candidates:
        tried.append(candidate)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate, tried
    return "", tried


def _deciding_files(directory: Path, environment: Mapping[str, str]) -> list[str]:
    """
    The files by which rustup selects a toolchain for a folder.
    """
    files = [str(folder / name) for folder in (directory, *directory.parents) for name in TOOLCHAIN_FILES]
    home = _cargo_config.user_home(environment)
    rustup = environment.get("RUSTUP_HOME") or (str(home / ".rustup") if home is not None else "")
    # If a linked toolchain gets another target, only the folder `toolchains` changes.
    return [*files, *(os.path.join(rustup, name) for name in ("settings.toml", "toolchains"))] if rustup else files


# Running the tools.


def _query_and_remember(tools: _Tools, needed_for: str, file: Path | None, subject: object) -> dict[str, Any]:
    started_ns = _memo.now_ns()
    before = _memo.signatures(tools.deciding_paths)
    answer = _query(tools, needed_for)
    # The signatures of the compilers are read after the run. If they are settled, no compiler changed since the run
    # began.
    found = {**before, **_memo.signatures(answer["compilers"])}
    if file is not None and _memo.are_settled(found, started_ns):
        _memo.keep(file, subject, found, answer)
    return answer


def _query(tools: _Tools, needed_for: str) -> dict[str, Any]:
    commands = {
        "cargo": [tools.cargo, "-V"],
        "rustc": [tools.rustc, "-vV"],
        "sysroot": [tools.rustc, "--print", "sysroot"],
    }
    try:
        child = _environment.child_environment(tools.environment)
    except CacheUnavailable as error:
        detail = f"it has no home, and none can be made ({'; '.join(error.tried)})"
        raise ToolchainMissing("cargo", "no-home", detail, needed_for) from error
    outputs = _run_all(commands, tools.directory, child)
    version = re.match(r"cargo (\S.*)", outputs["cargo"].out)
    lines = dict(line.split(": ", 1) for line in outputs["rustc"].out.splitlines() if ": " in line)
    if version is None:
        raise _unusable("cargo", outputs["cargo"], needed_for)
    if "release" not in lines or "host" not in lines:
        raise _unusable("rustc", outputs["rustc"], needed_for)
    facts = {
        TOOLCHAIN_RUSTC: lines["release"],
        f"{TOOLCHAIN}/commit": lines.get("commit-hash", "unknown"),
        _HOST: lines["host"],
        f"{TOOLCHAIN}/llvm": lines.get("LLVM version", "unknown"),
        f"{TOOLCHAIN}/cargo": version[1].strip(),
    }
    return {"facts": facts, "compilers": _real_compilers(outputs["sysroot"].out.strip(), tools)}


def _real_compilers(sysroot: str, tools: _Tools) -> list[str]:
    """
    The programs behind rustup's proxies; the proxies do not change when a toolchain is updated.
    """
    suffix = ".exe" if os.name == "nt" else ""
    found = [os.path.join(sysroot, "bin", f"{tool}{suffix}") for tool in ("rustc", "cargo")] if sysroot else []
    return [path for path in found if os.path.isfile(path)] or [os.path.realpath(tools.rustc)]


@dataclass(slots=True, kw_only=True)
class _Output:
    out: str = ""
    err: str = ""
    #: Whether it was read to its end before the deadline.
    in_time: bool = False


def _run_all(commands: dict[str, list[str]], directory: Path, environment: Mapping[str, str]) -> dict[str, _Output]:
    """
    Run all commands at once: through rustup's proxies each one takes tens of milliseconds.
    """
    # Imported here because it imports `subprocess` and `threading`, and answers are mostly remembered.
    from .._process_group import ProcessGroup

    limit = _settings.seconds(_settings.PROBE_TIMEOUT, environment, 30.0)
    outputs = {name: _Output() for name in commands}
    groups: dict[str, ProcessGroup] = {}
    try:
        for name, command in commands.items():
            groups[name] = ProcessGroup(command, directory=directory, environment=environment)
        readers = {
            name: [_read(group.stdout, outputs[name], "out"), _read(group.stderr, outputs[name], "err")]
            for name, group in groups.items()
        }
        for group in groups.values():
            group.go()
        deadline = time.monotonic() + limit
        for name, threads in readers.items():
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            outputs[name].in_time = not any(thread.is_alive() for thread in threads)
    except OSError as error:
        problem = f"it cannot be run: {error.strerror or error}"
        return {name: _Output(err=problem, in_time=True) for name in commands}
    finally:
        # After a timeout or an interrupt: end every process that has not answered, and its children.
        for name, group in groups.items():
            if not outputs[name].in_time:
                group.kill()
        # After all kills, since closing waits and can be interrupted.
        for group in groups.values():
            group.close()
    return {
        name: output if output.in_time else _Output(err=f"it did not answer within {limit:g} s")
        for name, output in outputs.items()
    }


def _read(stream: IO[bytes], output: _Output, name: str) -> Thread:
    """
    Start a thread that stores everything from a stream in a field of *output*.
    """
    from threading import Thread

    def read() -> None:
        with stream:
            setattr(output, name, stream.read().decode("utf-8", "replace"))

    # A daemon, since a process that left the group may hold the pipe open for ever.
    thread = Thread(target=read, daemon=True)
    thread.start()
    return thread


def _unusable(tool: str, output: _Output, needed_for: str) -> ToolchainMissing:
    text = output.err.strip() or output.out.strip()
    lowered = text.lower()
    if not output.in_time:
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
