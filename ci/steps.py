"""
Run named steps one after the other and say how each went.

A *step* is a name, what it is for, and commands; it fails when one of them
does. Later steps run all the same, so one run shows everything that is wrong.

Invariant: the exit code is zero only if every step that was asked for passed.
Output of a step is the tool's own, untouched, below a heading.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field

from environment import ROOT, InstallFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


def _nothing() -> None:
    """
    For steps that need no preparation.
    """


@dataclass(frozen=True)
class Step:
    """
    Something that passes or fails.
    """

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    #: Folder below the root that the commands run in.
    folder: str = "."
    #: Whether `--fast` leaves it out.
    slow: bool = False
    #: Installs what the commands need.
    prepare: Callable[[], None] = _nothing
    #: What the commands find in their environment besides.
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """
    How a step went; `failed` is the command that failed.
    """

    step: Step
    seconds: float
    failed: str


def run_all(steps: Iterable[Step], environment: Mapping[str, str]) -> int:
    """
    Run every step, print the closing table, and return the exit code.
    """
    outcomes = [_run(step, environment) for step in steps]
    _say(_heading("summary"))
    width = max((len(outcome.step.name) for outcome in outcomes), default=0)
    for outcome in outcomes:
        mark = "FAILED" if outcome.failed else "ok"
        _say(
            f"{outcome.step.name:<{width}}  {outcome.seconds:7.1f} s  {mark}"
            + (f": {outcome.failed}" if outcome.failed else "")
        )
    failures = sum(bool(outcome.failed) for outcome in outcomes)
    _say(
        f"\n{len(outcomes) - failures} of {len(outcomes)} steps passed in {sum(outcome.seconds for outcome in outcomes):.0f} s"
    )
    return 1 if failures else 0


def _run(step: Step, environment: Mapping[str, str]) -> Outcome:
    _say(_heading(f"{step.name}: {step.title}"))
    start = time.monotonic()
    failed = _first_failure(step, environment)
    seconds = time.monotonic() - start
    _say(f"-- {step.name} {'FAILED' if failed else 'ok'} after {seconds:.1f} s")
    return Outcome(step, seconds, failed)


def _first_failure(step: Step, environment: Mapping[str, str]) -> str:
    try:
        step.prepare()
    except (InstallFailed, OSError) as error:
        return str(error)
    for command in step.commands:
        _say("$ " + " ".join(command))
        try:
            done = subprocess.run(
                command,
                check=False,
                cwd=ROOT / step.folder,
                env={**environment, **step.variables},
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        if done.returncode != 0:
            return f"`{_short(command)}` ended with {done.returncode}"
    return ""


def _short(command: Sequence[str]) -> str:
    return " ".join([os.path.basename(command[0]), *command[1:]])


def _heading(text: str) -> str:
    return f"\n==== {text} " + "=" * max(4, 92 - len(text))


def _say(text: str) -> None:
    # Flushed, so that it stands above what the next process writes.
    print(text, flush=True)
    sys.stderr.flush()
