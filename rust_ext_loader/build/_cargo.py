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

import queue
import threading
import time

from .._process_group import ProcessGroup
from .._settings import BUILD_TIMEOUT
from .._values import dataclass, replace
from ._messages import Artifact, BuildScript, Output, read_stderr, read_stdout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import IO

    from ._messages import Events
    from ._progress import Progress

    #: The problem; empty if the command succeeded.
    _Judge = Callable[["Output", int | None], str]

#: The message format that this module parses. Belongs in the arguments of `run`, before any `--`.
MESSAGE_FORMAT = "--message-format=json-render-diagnostics"

#: Seconds between two checks of the time limit while cargo prints nothing.
_TICK = 0.1
#: Seconds to wait for further output after cargo ended: a process that cargo left running may still hold the pipes.
_GRACE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
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
    #: Whether cargo reached its end: it was neither interrupted nor stopped by the time limit.
    ended: bool = False
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
    return _run(command, directory, child, _judge_build, progress=progress, log=log, time_limit=time_limit)


def clean(
    packages: Sequence[str],
    *,
    cargo: str,
    directory: Path,
    environment: Mapping[str, str],
    profile: str,
) -> CargoResult:
    """
    Remove the objects of some packages, so that cargo compiles these packages regardless of timestamps.

    *environment* names the target triple and the target folder, as for the build.
    """
    names = [part for name in packages for part in ("--package", name)]
    # Without `--locked` cargo would update the lockfile in the user's checkout.
    command = (cargo, "clean", "--locked", "--profile", profile, *names)
    child = {**environment, "CARGO_TERM_COLOR": "never", "CARGO_TERM_PROGRESS_WHEN": "never"}
    return _run(command, directory, child, _judge_plain)


def _run(
    command: tuple[str, ...],
    directory: Path,
    environment: Mapping[str, str],
    judge: _Judge,
    *,
    progress: Progress | None = None,
    log: IO[bytes] | None = None,
    time_limit: float | None = None,
) -> CargoResult:
    began = time.monotonic()
    output = Output(log=log)
    try:
        group = ProcessGroup(command, directory=directory, environment=environment)
    except OSError as error:
        return _result(output, command, None, f"cargo could not be started: {error}")
    timed_out, completed = False, False
    try:
        # The reader threads start before the command, so that no output is lost.
        events = _listen(group, output)
        group.go()
        timed_out = _follow(group, output, events, progress, None if time_limit is None else began + time_limit)
        if timed_out or output.finished is None:
            # Cargo may have died while its compilers still run.
            group.kill()
        completed = True
    finally:
        status = group.close(kill=not completed)
    problem = judge(output, status)
    if timed_out and time_limit is not None:
        problem = (
            f"stopped after the time limit of {time_limit:g} s; "
            f"raise {BUILD_TIMEOUT} (seconds) if this build is only slow"
        )
    return replace(_result(output, command, status, problem), ended=output.finished is not None and not timed_out)


def _listen(group: ProcessGroup, output: Output) -> Events:
    """
    Start the reader threads of both streams. The queue receives progress, and `None` at the end of each stream.
    """
    events: Events = queue.SimpleQueue()
    for read, stream in ((read_stdout, group.stdout), (read_stderr, group.stderr)):
        # Daemon threads: a process that cargo left running may hold the pipe open for ever.
        threading.Thread(target=read, args=(stream, output, events), daemon=True).start()
    return events


def _follow(
    group: ProcessGroup, output: Output, events: Events, progress: Progress | None, deadline: float | None
) -> bool:
    """
    Report progress until cargo has ended and its output is read. Returns whether the time limit was reached.
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


def _judge_build(output: Output, status: int | None) -> str:
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


def _judge_plain(output: Output, status: int | None) -> str:
    if status == 0 or (status is None and not any(line.startswith("error") for line in output.lines)):
        return ""
    return f"cargo could not clean ({_ending(status)})"


def _ending(status: int | None) -> str:
    if status is None:
        return "status unknown"
    return f"signal {-status}" if status < 0 else f"status {status}"


def _result(parsed: Output, command: tuple[str, ...], status: int | None, problem: str) -> CargoResult:
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
