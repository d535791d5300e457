"""
Run named steps one after the other and report how each went.

A *step* has a name, a title and commands. It fails when one of its commands
fails. Later steps run nevertheless, so that one run shows every failure.

Invariant: the exit code is zero only if every chosen step passed. A tool's
output is printed unchanged, below a heading.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field

from environment import ROOT, InstallFailed
from slowest import read_report, slowest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slowest import TimedTest


def _nothing() -> None:
    """
    Preparation of a step that needs none.
    """


@dataclass(frozen=True)
class Step:
    """
    Commands that pass or fail together.
    """

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    #: Folder below the root in which the commands run.
    folder: str = "."
    #: Whether `--fast` skips the step.
    slow: bool = False
    #: Whether `--long` includes the step.
    long: bool = False
    #: Installs what the commands need.
    prepare: Callable[[], None] = _nothing
    #: Environment variables of the commands, on top of those that all steps share.
    variables: Mapping[str, str] = field(default_factory=dict)
    #: Path, below the root, of the JUnit report that each command writes; empty if the step runs no tests.
    report: str = ""


@dataclass(frozen=True)
class Outcome:
    """
    How a step went; `failed` describes the command that failed and is empty if the step passed.
    """

    step: Step
    seconds: float
    failed: str
    tests: tuple[TimedTest, ...]


def run_all(steps: Iterable[Step], environment: Mapping[str, str]) -> int:
    """
    Run every step, print the summary, and return the exit code.
    """
    outcomes = [_run(step, environment) for step in steps]
    _summarize(outcomes)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def _summarize(outcomes: Sequence[Outcome]) -> None:
    _say(_heading("summary"))
    width = max((len(outcome.step.name) for outcome in outcomes), default=0)
    for outcome in outcomes:
        result = f"FAILED: {outcome.failed}" if outcome.failed else "ok"
        _say(f"{outcome.step.name:<{width}}  {outcome.seconds:7.1f} s  {result}")
    tests = [test for outcome in outcomes for test in outcome.tests]
    if tests:
        _say(f"\nslowest of {len(tests)} tests:")
    for test in slowest(tests):
        _say(f"{test.step:<{width}}  {test.seconds:7.1f} s  {test.name}")
    passed = sum(not outcome.failed for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    _say(f"\n{passed} of {len(outcomes)} steps passed in {seconds:.0f} s")


def _run(step: Step, environment: Mapping[str, str]) -> Outcome:
    _say(_heading(f"{step.name}: {step.title}"))
    start = time.monotonic()
    tests: list[TimedTest] = []
    failed = _first_failure(step, environment, tests)
    seconds = time.monotonic() - start
    _say(f"-- {step.name} {'FAILED' if failed else 'ok'} after {seconds:.1f} s")
    return Outcome(step, seconds, failed, tuple(tests))


def _first_failure(step: Step, environment: Mapping[str, str], tests: list[TimedTest]) -> str:
    try:
        step.prepare()
    except (InstallFailed, OSError) as error:
        return str(error)
    for command in step.commands:
        # The report of an earlier run must not be read as that of this run.
        if step.report:
            (ROOT / step.report).unlink(missing_ok=True)
        failed = _failure(command, step, environment)
        if step.report:
            tests.extend(read_report(ROOT / step.report, step.name))
        if failed:
            return failed
    return ""


def _failure(command: tuple[str, ...], step: Step, environment: Mapping[str, str]) -> str:
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
    return f"`{_short(command)}` ended with {done.returncode}" if done.returncode != 0 else ""


def _short(command: Sequence[str]) -> str:
    return " ".join([os.path.basename(command[0]), *command[1:]])


def _heading(text: str) -> str:
    return f"\n==== {text} " + "=" * max(4, 92 - len(text))


def _say(text: str) -> None:
    # Flushed, so that it appears before the output of the next process.
    print(text, flush=True)
    sys.stderr.flush()
