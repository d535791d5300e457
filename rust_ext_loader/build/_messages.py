"""
Parse the two output streams of cargo.

stdout is a stream of JSON messages. stderr holds diagnostics, status lines, and
progress bars, which end in a carriage return and are overwritten.

Invariant: an unknown message or line never raises.
"""

from __future__ import annotations

import json
import os
import re

from .._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    import queue
    from typing import IO

    #: Crates done, crates in total, the current step.
    Event = tuple[int, int, str]
    #: Progress; `None` at the end of each stream.
    Events = queue.SimpleQueue["Event | None"]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERASE = re.compile(r"\x1b\[[0-2]?K")
_BAR = re.compile(r"\s*[A-Z][a-z]+ \[[=> ]*\] (\d+)/(\d+)(?:: (.*))?")
#: Cargo's status lines, such as `   Compiling`. They are progress, and no part of a diagnostic.
_STATUS = re.compile(r"(?=.{12} ) *[A-Z][a-z]+ ")
_BLOCKING = re.compile(r" *Blocking (waiting .*)")


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass
class Output:
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
    # Decoded like every other file name: under `LANG=C` Python may decode file names as ASCII.
    return os.fsdecode(str(text).encode("utf-8", "surrogateescape"))


class Screen:
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
        # A final carriage return may be the first half of a line end, so it is kept. After a progress bar it is not,
        # and the bar is passed on at once: the next output may take seconds.
        if self._rest.endswith("\r") and _BAR.match(_ANSI.sub("", self._rest)):
            passing.append(self._rest)
            self._rest = ""
        return stay, passing

    def end(self) -> list[str]:
        rest, self._rest = self._rest.rstrip("\r"), ""
        return [rest] if rest.strip() and not _BAR.match(_ANSI.sub("", rest)) else []


def read_stdout(stream: IO[bytes], output: Output, events: Events) -> None:
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


def read_stderr(stream: IO[bytes], output: Output, events: Events) -> None:
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    screen = Screen()
    try:
        with stream:
            while chunk := stream.read(65536):
                output.chunks += 1
                stay, passing = screen.feed(decoder.decode(chunk))
                for line in stay:
                    output.line(line)
                for bar in (*passing, *stay):
                    if event := event_of(_ANSI.sub("", bar)):
                        events.put(event)
            for line in screen.end():
                output.line(line)
    finally:
        events.put(None)


def event_of(plain: str) -> Event | None:
    if bar := _BAR.match(plain):
        return int(bar[1]), int(bar[2]), (bar[3] or "").strip()
    if blocking := _BLOCKING.match(plain):
        return 0, 0, f"cargo is {blocking[1].strip()}"
    return None
