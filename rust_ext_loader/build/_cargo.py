"""
Run cargo and understand what it says.

Its standard output is a stream of JSON messages (artifacts, and whether the
build *finished*); its standard error is for people: diagnostics as rustc
renders them, status lines, and progress bars, which end in a carriage return
and are overwritten. Bars become progress; diagnostics become the output.

Invariant: success is what cargo's final message says. The exit status is not
believed (it is unknown where SIGCHLD is ignored), and whatever interrupts a run
leaves no process behind.
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

    _Judge = Callable[["_Heard", int | None], tuple[bool, str]]
    #: Crates done, crates in all, what cargo is at.
    _Event = tuple[int, int, str]
    _Events = queue.SimpleQueue["_Event | None"]

#: Makes cargo speak as this module understands: belongs among the arguments of `run`, before any `--`.
MESSAGE_FORMAT = "--message-format=json-render-diagnostics"

#: Seconds between two looks at the clock while cargo is silent.
_TICK = 0.1
#: Seconds that output may trickle in after cargo's end, from a process it left behind with our pipes.
_GRACE = 1.0

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERASE = re.compile(r"\x1b\[[0-2]?K")
_BAR = re.compile(r"\s*[A-Z][a-z]+ \[[=> ]*\] (\d+)/(\d+)(?:: (.*))?")
#: Cargo's own verbs, right-aligned in twelve columns: news while it runs, noise in front of a diagnostic.
_STATUS = re.compile(r"(?=.{12} ) *[A-Z][a-z]+ ")
_BLOCKING = re.compile(r" *Blocking (waiting .*)")


@dataclass(frozen=True, slots=True)
class Artifact:
    """
    Files that cargo made, or found to be made already.
    """

    #: Cargo's name of the package: where it comes from, its name and version.
    package: str
    package_manifest: str
    target_name: str
    kinds: tuple[str, ...]
    filenames: tuple[str, ...]
    fresh: bool


@dataclass(frozen=True, slots=True)
class BuildScript:
    """
    A build script that cargo ran, now or for an earlier build.
    """

    package: str
    #: Its `OUT_DIR`; what it printed lies beside it.
    out_directory: str
    #: Variables that it sets for its package's compiler.
    sets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CargoResult:
    """
    How one run of cargo ended.
    """

    #: By cargo's final message.
    succeeded: bool
    artifacts: tuple[Artifact, ...]
    #: Diagnostics as rustc renders them, in plain text.
    output: str
    #: The warnings among them.
    warnings: str
    command: tuple[str, ...]
    #: Exit status, negative for a signal; `None` if nobody knows it.
    status: int | None
    #: What went wrong, in a few words; empty if nothing did.
    problem: str
    #: `output` as it may be shown: in colour on a terminal.
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
    Run a cargo command that builds, to its end or to the limit; `MESSAGE_FORMAT` is among its arguments.

    Whatever is raised meanwhile, `KeyboardInterrupt` first of all, ends cargo and every compiler at once and is raised again.
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
    Make cargo forget what it compiled of some packages, so that it compiles them whatever their time stamps say.

    For which target and in which folder is what *environment* tells cargo, as for the build.
    """
    names = [part for name in packages for part in ("--package", name)]
    # Without `--locked` cargo would bring the lockfile up to date, in somebody's checkout.
    command = (cargo, "clean", "--locked", "--profile", profile, *names)
    child = {**environment, "CARGO_TERM_COLOR": "never", "CARGO_TERM_PROGRESS_WHEN": "never"}
    return _run(command, directory, child, None, None, None, _judge_plain)


@dataclass
class _Heard:
    """
    What the two readers have understood so far.
    """

    artifacts: list[Artifact] = field(default_factory=list)
    scripts: list[BuildScript] = field(default_factory=list)
    finished: bool | None = None
    lines: list[str] = field(default_factory=list)
    rendered: list[str] = field(default_factory=list)
    log: IO[bytes] | None = None
    #: Grows with everything that is read.
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
            # Not ours: a build tool that writes to cargo's standard output, or a message of a later cargo.
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
            # A full disk, or a log that its owner closed: worth a log, not a build.
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
    # Under `LANG=C` Python may take file names for ASCII; the bytes are what counts.
    return os.fsdecode(str(text).encode("utf-8", "surrogateescape"))


class _Screen:
    """
    Tells lines that stay from those that are overwritten.
    """

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> tuple[list[str], list[str]]:
        """
        The lines completed by this text, and the passing ones.
        """
        stay: list[str] = []
        passing: list[str] = []
        pieces = re.split(r"(\r\n|\r(?!\Z)|\n)", self._rest + text)
        for piece, end in zip(pieces[::2], pieces[1::2], strict=False):
            (passing if end == "\r" else stay).append(piece)
        self._rest = pieces[-1]
        # A carriage return at the very end may be half a line end, but not behind a bar: the next word may be seconds away.
        if self._rest.endswith("\r") and _BAR.match(_ANSI.sub("", self._rest)):
            passing.append(self._rest)
            self._rest = ""
        return stay, passing

    def end(self) -> list[str]:
        rest, self._rest = self._rest.rstrip("\r"), ""
        return [rest] if rest.strip() and not _BAR.match(_ANSI.sub("", rest)) else []


def _read_messages(stream: IO[bytes], heard: _Heard, events: _Events) -> None:
    try:
        with stream:
            rest = b""
            while chunk := stream.read(65536):
                heard.chunks += 1
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    heard.message(line)
            heard.message(rest)
    finally:
        events.put(None)


def _read_talk(stream: IO[bytes], heard: _Heard, events: _Events) -> None:
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    screen = _Screen()
    try:
        with stream:
            while chunk := stream.read(65536):
                heard.chunks += 1
                stay, passing = screen.feed(decoder.decode(chunk))
                for line in stay:
                    heard.line(line)
                for bar in (*passing, *stay):
                    if event := _event(_ANSI.sub("", bar)):
                        events.put(event)
            for line in screen.end():
                heard.line(line)
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
    heard = _Heard(log=log)
    try:
        group = ProcessGroup(command, directory=directory, environment=environment)
    except OSError as error:
        return _result(heard, command, None, (False, f"cargo could not be started: {error}"))
    limit, ordinary = False, False
    try:
        # First ears, then words.
        events = _listen(group, heard)
        group.go()
        limit = _follow(group, heard, events, progress, None if time_limit is None else began + time_limit)
        if limit or heard.finished is None:
            # Cargo may have died alone and left its compilers at work.
            group.kill()
        ordinary = True
    finally:
        status = group.close(kill=not ordinary)
    verdict = judge(heard, status)
    if limit and time_limit is not None:
        verdict = (
            False,
            f"time limit of {time_limit:g} s; raise {BUILD_TIMEOUT} (seconds) if this build is simply slow",
        )
    return _result(heard, command, status, verdict)


def _listen(group: ProcessGroup, heard: _Heard) -> _Events:
    """
    Begin to read both streams; what comes is progress, and a `None` at the end of each.
    """
    events: _Events = queue.SimpleQueue()
    for read, stream in ((_read_messages, group.stdout), (_read_talk, group.stderr)):
        # Daemons: a process that cargo left behind may hold the pipe for ever, and must not hold us.
        threading.Thread(target=read, args=(stream, heard, events), daemon=True).start()
    return events


def _follow(
    group: ProcessGroup, heard: _Heard, events: _Events, progress: Progress | None, deadline: float | None
) -> bool:
    """
    Pass on progress until cargo has ended and all was read; whether the limit came first.
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
        if chunks != heard.chunks or not group.poll():
            quiet_since, chunks = now, heard.chunks
        elif now - quiet_since >= _GRACE:
            break
    return False


def _judge_build(heard: _Heard, status: int | None) -> tuple[bool, str]:
    if heard.finished:
        return True, ""
    if status in (130, -2):
        return False, "interrupted"
    if heard.finished is False:
        return False, f"cargo reports a failed build ({_ending(status)})"
    if status in (126, 127):
        return False, f"cargo could not be started ({_ending(status)})"
    if status is not None and status > 0:
        # Before it compiled anything: a manifest, a lockfile, an argument. Its own words follow.
        return False, f"cargo refused ({_ending(status)})"
    return False, f"cargo ended without a final message ({_ending(status)})"


def _judge_plain(heard: _Heard, status: int | None) -> tuple[bool, str]:
    if status == 0 or (status is None and not any(line.startswith("error") for line in heard.lines)):
        return True, ""
    return False, f"cargo could not clean ({_ending(status)})"


def _ending(status: int | None) -> str:
    if status is None:
        return "status unknown"
    return f"signal {-status}" if status < 0 else f"status {status}"


def _result(heard: _Heard, command: tuple[str, ...], status: int | None, verdict: tuple[bool, str]) -> CargoResult:
    output = _joined(heard.lines)
    warnings = "\n\n".join(part for part in output.strip("\n").split("\n\n") if part.startswith("warning"))
    return CargoResult(
        verdict[0],
        tuple(heard.artifacts),
        output,
        warnings,
        command,
        status,
        verdict[1],
        _joined(heard.rendered),
        tuple(heard.scripts),
    )


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
