"""
Read how long each test took, from the JUnit reports that pytest and nextest write.

Invariant: a report that is missing or damaged yields no tests; whether a step
passed is decided by its exit code, never by a report. Standard library only.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["TimedTest", "read_report", "slowest"]


@dataclass(frozen=True)
class TimedTest:
    """
    One test and how many seconds it took, set-up and clean-up included.
    """

    seconds: float
    step: str
    name: str


def read_report(report: Path, step: str) -> list[TimedTest]:
    """
    Return the tests of one JUnit report, which a command of *step* wrote.
    """
    try:
        cases = ET.parse(report).iter("testcase")  # noqa: S314  # our own test runners wrote it
        return [
            TimedTest(float(case.get("time", "0")), step, f"{case.get('classname', '')}::{case.get('name', '')}")
            for case in cases
        ]
    except (OSError, ValueError, ET.ParseError):
        return []


def slowest(tests: Iterable[TimedTest], count: int = 10) -> list[TimedTest]:
    """
    Return the tests that took longest, the slowest first.
    """
    return sorted(tests, key=lambda test: (-test.seconds, test.step, test.name))[:count]
