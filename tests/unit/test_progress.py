"""
Unit tests of `_progress`: what a user sees of a build, and when.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader.build import _progress
from rust_ext_loader.build._progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """
    Records the output, and replays it as the lines of a terminal.
    """

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """
        The final text of every line. The cursor is in the last one.
        """
        lines: list[str] = []
        for line in self.getvalue().split("\n"):
            cells = ""
            for piece in line.split("\r"):
                cells = piece + cells[len(piece) :]
            lines.append(cells.rstrip())
        return lines


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


def check(stream: io.StringIO, steps: list[tuple[float, Callable[[Progress], None]]]) -> None:
    clock = Clock()
    progress = Progress("app._mm", stream, clock)
    for at, act in steps:
        clock.now = 100.0 + at
        act(progress)


def announce(progress: Progress) -> None:
    progress.announce("rebuilding app._mm: src/lib.rs changed")


def update(progress: Progress) -> None:
    progress.update(3, 12, "serde, regex")


def tick(progress: Progress) -> None:
    progress.tick()


def finish(progress: Progress) -> None:
    progress.succeeded("built app._mm")


REASON = "rebuilding app._mm: src/lib.rs changed\n"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([(0, announce), (0.5, update), (0.9, finish)], REASON, id="under a second"),
        pytest.param([(0, announce), (0.5, update), (1.1, update)], REASON, id="the reason once"),
        pytest.param([(0, announce), (1.5, finish)], REASON + "built app._mm\n", id="reason and end"),
        pytest.param([(0, announce), (1.1, tick), (5, tick), (9.9, tick)], REASON, id="no line before ten seconds"),
        pytest.param(
            [(0, announce), (1.1, update), (10.2, tick), (15, tick), (20.3, tick)],
            REASON + "app._mm: 3/12 crates, serde, regex, 10 s\napp._mm: 3/12 crates, serde, regex, 20 s\n",
            id="a line every ten seconds",
        ),
        pytest.param(
            [(0, announce), (11, tick)], REASON + "app._mm: cargo is starting, 11 s\n", id="before cargo reports crates"
        ),
        pytest.param(
            [(0, lambda progress: progress.note("waiting for pid 7"))],
            "waiting for pid 7\n",
            id="a note is printed at once",
        ),
        pytest.param(
            [(0, tick), (60, announce), (60.5, finish)], REASON, id="the wait before the announcement does not count"
        ),
        pytest.param(
            [(0, announce), (2, lambda progress: progress.failed("not built"))],
            REASON + "failed: not built\n",
            id="a failed build",
        ),
    ],
)
def test_output_without_a_terminal(steps: list[tuple[float, Callable[[Progress], None]]], expected: str) -> None:
    """
    Without a terminal the reason is printed first, then a line every ten seconds.

    A build that takes less than a second prints no line at its end.
    """
    stream = io.StringIO()
    check(stream, steps)

    assert stream.getvalue() == expected


def test_the_live_line_is_redrawn_and_removed() -> None:
    """
    After the build no live line is left on the terminal. Notes appear above it.
    """
    stream = Terminal()
    clock = Clock()
    progress = Progress("app._mm", stream, clock)
    progress.announce("rebuilding")
    clock.now += 1.5
    progress.update(3, 12, "serde_derive_internals")
    drawn = stream.screen()
    clock.now += 1
    progress.update(12, 12, "mm")
    progress.note("warning: unused")
    clock.now += 1
    progress.tick()
    progress.succeeded("built")

    assert drawn == ["rebuilding", "app._mm ━━━━━─────────────── 3/12 serde_derive_internals (2 s)"]
    assert stream.screen() == ["rebuilding", "warning: unused", "built", ""]


def test_drawing_is_throttled() -> None:
    """
    The line is drawn at most ten times a second, however often cargo reports.
    """
    stream = Terminal()
    check(stream, [(0, announce), *[(2 + step / 1000, update) for step in range(1000)]])

    assert stream.getvalue().count("\rapp._mm") <= 11


@pytest.mark.parametrize("columns", [20, 33, 40, 60, 200])
@pytest.mark.parametrize(
    "current", ["", "serde", "serde, regex, tokio, hyper, tower, axum", "日本語のクレート", "e\u0301tude"]
)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_line_never_reaches_the_last_column(
    columns: int, current: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A line as wide as the terminal would wrap, and could not be redrawn in place.
    """
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    stream.encoding = encoding
    check(
        stream,
        [(2, lambda progress: progress.update(3, 12, current)), (30, lambda progress: progress.update(4, 12, current))],
    )

    width = max(_progress._width(line) for line in stream.getvalue().split("\r"))

    # Non-ASCII text becomes escapes on an ASCII terminal, after the width was computed. Crate names are ASCII.
    assert width < columns or (encoding == "ascii" and not current.isascii())


def test_a_terminal_without_unicode_gets_ascii() -> None:
    """
    A stream without Unicode gets ASCII only.
    """
    stream = Terminal()
    stream.encoding = "ascii"
    check(stream, [(2, lambda progress: progress.update(3, 12, "serde"))])

    assert stream.screen() == ["app._mm [=====               ] 3/12 serde (2 s)"]


class Broken(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError

    def isatty(self) -> bool:
        raise ValueError("gone")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "make", [pytest.param(closed, id="closed"), pytest.param(Broken, id="broken"), pytest.param(object, id="no stream")]
)
def test_printing_never_fails(make: Callable[[], io.StringIO]) -> None:
    """
    A build continues silently if its output stream does not work.
    """
    check(
        make(), [(0, announce), (2, update), (20, tick), (21, lambda progress: progress.note("a note")), (22, finish)]
    )


def test_a_python_without_stderr_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    `sys.stderr` is `None` in a windowed Python.
    """
    monkeypatch.setattr("sys.stderr", None)
    progress = Progress("app._mm")

    progress.note("a note")

    assert not progress.colour


@pytest.mark.parametrize(
    ("stream", "variables", "expected"),
    [
        pytest.param(Terminal, {}, True, id="terminal"),
        pytest.param(Terminal, {"NO_COLOR": "1"}, False, id="terminal, NO_COLOR"),
        pytest.param(Terminal, {"TERM": "dumb"}, False, id="dumb terminal"),
        pytest.param(io.StringIO, {}, False, id="pipe"),
    ],
)
def test_colour_is_for_terminals(
    stream: Callable[[], io.StringIO], variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Colour is used only on a terminal, and not if NO_COLOR is set.
    """
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert Progress("x", stream()).colour is expected
