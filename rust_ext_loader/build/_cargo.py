"""
Run cargo and parse its output.

Its stdout is a stream of JSON messages: artifacts, and whether the build
*finished*. Its stderr holds diagnostics as rustc renders them, status lines, and
progress bars, which end in a carriage return. Bars become progress; diagnostics
become the output of the result.

Invariant: cargo's final message decides about success. The exit status does not,
because it is unknown if SIGCHLD is ignored. An interrupted run leaves no process.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
from dataclasses import dataclass, field

from .._process_group import ProcessGroup
from .._settings import BUILD_TIMEOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import IO

    from ._progress import Progress

    #: The problem; empty if the command succeeded.
    _Judge = Callable[["_Output", int | None], str]
    #: Crates done, crates in total, the current step.
    _Event = tuple[int, int, str]
    _Events = queue.SimpleQueue["_Event | None"]

#: The message format that this module parses. Belongs in the arguments of `run`, before any `--`.
MESSAGE_FORMAT = "--message-format=json-render-diagnostics"

#: Seconds between two checks of the time limit while cargo prints nothing.
_TICK = 0.1
#: Seconds to wait for further output after cargo ended: a process that it left may still hold the pipes.
_GRACE = 1.0

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERASE = re.compile(r"\x1b\[[0-2]?K")
_BAR = re.compile(r"\s*[A-Z][a-z]+ \[[=> ]*\] (\d+)/(\d+)(?:: (.*))?")
#: Cargo's status lines, such as `   Compiling`. They are progress, and no part of a diagnostic.
_STATUS = re.compile(r"(?=.{12} ) *[A-Z][a-z]+ ")
_BLOCKING = re.compile(r" *Blocking (waiting .*)")


@dataclass(frozen=True, slots=True)
class Artifact:
    """
    Files that cargo compiled, or found up to date.
    """

    #: Cargo's package id: source, name and version.
    package: str
    package_manifest: str
    target_name: str
    kinds: tuple[str, ...]
    filenames: tuple[str, ...]
    fresh: bool


@dataclass(frozen=True, slots=True)
class BuildScript:
    """
    A build script that cargo ran, in this build or an earlier one.
    """

    package: str
    #: Its `OUT_DIR`; the file with its output is beside it.
    out_directory: str
    #: Variables that it sets for the compiler of its package.
    sets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CargoResult:
    """
    The result of one run of cargo.
    """

    #: Decided by cargo's final message.
    succeeded: bool
    artifacts: tuple[Artifact, ...]
    #: Diagnostics as rustc renders them, in plain text.
    output: str
    #: The warnings among them.
    warnings: str
    command: tuple[str, ...]
    #: Exit status; negative for a signal, `None` if unknown.
    status: int | None
    #: What went wrong, in a few words; empty on success.
    problem: str
    #: `output` for display: coloured on a terminal.
    rendered: str = ""
    scripts: tuple[BuildScript, ...] = ()


def run(
    arguments: Sequence[str],
    *,
    cargo: str,
    directory: Path,
    environment: Mapping[str, str],
    progress: Progress,
    log: IO[bytes] | None,
    time_limit: float | None,
) -> CargoResult:
    """
    Run a cargo command that builds, until it ends or reaches the time limit. Its arguments contain `MESSAGE_FORMAT`.

    An exception such as `KeyboardInterrupt` kills cargo and every compiler, and is raised again.
    """
    command = (cargo, *arguments)
    child = {
        **environment,
        "CARGO_TERM_QUIET": "false",
        "CARGO_TERM_PROGRESS_WHEN": "always",
        "CARGO_TERM_PROGRESS_WIDTH": "250",
        "CARGO_TERM_COLOR": "always" if progress.colour else "never",
    }
    return _run(command, directory, child, progress, log, time_limit, _judge_build)


def clean(
    packages: Sequence[str],
    *,
    cargo: str,
    directory: Path,
    environment: Mapping[str, str],
    profile: str,
) -> CargoResult:
    """
    Remove the objects of some packages, so that cargo compiles them whatever their timestamps are.

    *environment* names the target triple and the target folder, as for the build.
    """
    names = [part for name in packages for part in ("--package", name)]
    # Without `--locked` cargo would update the lockfile in the user's checkout.
    command = (cargo, "clean", "--locked", "--profile", profile, *names)
    child = {**environment, "CARGO_TERM_COLOR": "never", "CARGO_TERM_PROGRESS_WHEN": "never"}
    return _run(command, directory, child, None, None, None, _judge_plain)


@dataclass
class _Output:
    """
    What the two reader threads have parsed so far.
    """

    artifacts: list[Artifact] = field(default_factory=list)
    scripts: list[BuildScript] = field(default_factory=list)
    finished: bool | None = None
    lines: list[str] = field(default_factory=list)
    rendered: list[str] = field(default_factory=list)
    log: IO[bytes] | None = None
    #: Number of chunks read, to notice new output.
    chunks: int = 0

    def message(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            reason = message["reason"]
            if reason == "build-finished":
                self.finished = message["success"] is True
            elif reason == "compiler-artifact":
                self.artifacts.append(_artifact(message))
            elif reason == "build-script-executed":
                self.scripts.append(_script(message))
        except (ValueError, KeyError, TypeError):
            # Not a known message: another program wrote to cargo's stdout, or cargo is newer.
            return

    def line(self, text: str) -> None:
        plain = _ANSI.sub("", text)
        self._keep(plain)
        if not _STATUS.match(plain):
            self.lines.append(plain)
            self.rendered.append(_ERASE.sub("", text))

    def _keep(self, plain: str) -> None:
        if self.log is None:
            return
        try:
            self.log.write(plain.encode("utf-8", "surrogateescape") + b"\n")
        except (OSError, ValueError):
            # A full disk or a closed log file loses the log, but does not fail the build.
            self.log = None


def _artifact(message: dict[str, object]) -> Artifact:
    target = message["target"]
    filenames = message["filenames"]
    if not isinstance(target, dict) or not isinstance(filenames, list):
        raise TypeError(message)
    return Artifact(
        package=str(message["package_id"]),
        package_manifest=_path(message["manifest_path"]),
        target_name=str(target["name"]),
        kinds=tuple(map(str, target["kind"])),
        filenames=tuple(map(_path, filenames)),
        fresh=message["fresh"] is True,
    )


def _script(message: dict[str, object]) -> BuildScript:
    sets = message["env"]
    if not isinstance(sets, list):
        raise TypeError(message)
    return BuildScript(str(message["package_id"]), _path(message["out_dir"]), tuple(str(name) for name, _ in sets))


def _path(text: object) -> str:
    # Under `LANG=C` Python may decode file names as ASCII, so the bytes are compared.
    return os.fsdecode(str(text).encode("utf-8", "surrogateescape"))


class _Screen:
    """
    Separates final lines from progress bars that are overwritten.
    """

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> tuple[list[str], list[str]]:
        """
        The final lines that this text completes, and the overwritten ones.
        """
        stay: list[str] = []
        passing: list[str] = []
        pieces = re.split(r"(\r\n|\r(?!\Z)|\n)", self._rest + text)
        for piece, end in zip(pieces[::2], pieces[1::2], strict=False):
            (passing if end == "\r" else stay).append(piece)
        self._rest = pieces[-1]
        # A final carriage return may be half of a line end. After a bar it is not, and the next output may take seconds.
        if self._rest.endswith("\r") and _BAR.match(_ANSI.sub("", self._rest)):
            passing.append(self._rest)
            self._rest = ""
        return stay, passing

    def end(self) -> list[str]:
        rest, self._rest = self._rest.rstrip("\r"), ""
        return [rest] if rest.strip() and not _BAR.match(_ANSI.sub("", rest)) else []


def _read_stdout(stream: IO[bytes], output: _Output, events: _Events) -> None:
    try:
        with stream:
            rest = b""
            while chunk := stream.read(65536):
                output.chunks += 1
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    output.message(line)
            output.message(rest)
    finally:
        events.put(None)


def _read_stderr(stream: IO[bytes], output: _Output, events: _Events) -> None:
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    screen = _Screen()
    try:
        with stream:
            while chunk := stream.read(65536):
                output.chunks += 1
                stay, passing = screen.feed(decoder.decode(chunk))
                for line in stay:
                    output.line(line)
                for bar in (*passing, *stay):
                    if event := _event(_ANSI.sub("", bar)):
                        events.put(event)
            for line in screen.end():
                output.line(line)
    finally:
        events.put(None)


def _event(plain: str) -> _Event | None:
    if bar := _BAR.match(plain):
        return int(bar[1]), int(bar[2]), (bar[3] or "").strip()
    if blocking := _BLOCKING.match(plain):
        return 0, 0, f"cargo is {blocking[1].strip()}"
    return None


def _run(
    command: tuple[str, ...],
    directory: Path,
    environment: Mapping[str, str],
    progress: Progress | None,
    log: IO[bytes] | None,
    time_limit: float | None,
    judge: _Judge,
) -> CargoResult:
    began = time.monotonic()
    output = _Output(log=log)
    try:
        group = ProcessGroup(command, directory=directory, environment=environment)
    except OSError as error:
        return _result(output, command, None, f"cargo could not be started: {error}")
    limit, ordinary = False, False
    try:
        # The reader threads start before the command, so that no output is lost.
        events = _listen(group, output)
        group.go()
        limit = _follow(group, output, events, progress, None if time_limit is None else began + time_limit)
        if limit or output.finished is None:
            # Cargo may have died without its compilers.
            group.kill()
        ordinary = True
    finally:
        status = group.close(kill=not ordinary)
    problem = judge(output, status)
    if limit and time_limit is not None:
        problem = f"time limit of {time_limit:g} s; raise {BUILD_TIMEOUT} (seconds) if this build is only slow"
    return _result(output, command, status, problem)


def _listen(group: ProcessGroup, output: _Output) -> _Events:
    """
    Start the reader threads of both streams. The queue receives progress, and `None` at the end of each stream.
    """
    events: _Events = queue.SimpleQueue()
    for read, stream in ((_read_stdout, group.stdout), (_read_stderr, group.stderr)):
        # Daemon threads: a process that cargo left may hold the pipe open for ever.
        threading.Thread(target=read, args=(stream, output, events), daemon=True).start()
    return events


def _follow(
    group: ProcessGroup, output: _Output, events: _Events, progress: Progress | None, deadline: float | None
) -> bool:
    """
    Report progress until cargo has ended and its output is read. Returns whether the time limit ended it.
    """
    reading, quiet_since, chunks = 2, time.monotonic(), 0
    while reading or not group.poll():
        try:
            event = events.get(timeout=_TICK if reading else 0.005)
            reading -= event is None
            if event and progress:
                progress.update(*event)
        except queue.Empty:
            pass
        now = time.monotonic()
        if progress:
            progress.tick()
        if deadline is not None and now >= deadline:
            return True
        if chunks != output.chunks or not group.poll():
            quiet_since, chunks = now, output.chunks
        elif now - quiet_since >= _GRACE:
            break
    return False


def _judge_build(output: _Output, status: int | None) -> str:
    if output.finished:
        return ""
    if status in (130, -2):
        return "interrupted"
    if output.finished is False:
        return f"cargo reports a failed build ({_ending(status)})"
    if status in (126, 127):
        return f"cargo could not be started ({_ending(status)})"
    if status is not None and status > 0:
        # Cargo exited before it compiled: a manifest, the lockfile or an argument is wrong. Its message follows.
        return f"cargo exited before it compiled ({_ending(status)})"
    return f"cargo ended without a final message ({_ending(status)})"


def _judge_plain(output: _Output, status: int | None) -> str:
    if status == 0 or (status is None and not any(line.startswith("error") for line in output.lines)):
        return ""
    return f"cargo could not clean ({_ending(status)})"


def _ending(status: int | None) -> str:
    if status is None:
        return "status unknown"
    return f"signal {-status}" if status < 0 else f"status {status}"


def _result(parsed: _Output, command: tuple[str, ...], status: int | None, problem: str) -> CargoResult:
    output = _joined(parsed.lines)
    return CargoResult(
        succeeded=not problem,
        artifacts=tuple(parsed.artifacts),
        output=output,
        warnings="\n\n".join(part for part in output.strip("\n").split("\n\n") if part.startswith("warning")),
        command=command,
        status=status,
        problem=problem,
        rendered=_joined(parsed.rendered),
        scripts=tuple(parsed.scripts),
    )


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
