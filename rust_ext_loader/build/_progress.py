"""
Decide what is printed about a build, and when.

A terminal shows one live line, which is redrawn in place and removed at the end.
Other streams get a plain line every ten seconds, so that a CI job does not look
hung. The *announcement* (why the module is built) and every *note* are printed at
once; progress only after a second.

Invariant: printing never fails. If the stream is missing, closed or broken, the
build goes on without output.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

#: Seconds before progress is shown.
QUIET = 1.0
#: Seconds between plain lines.
PLAIN_EVERY = 10.0
#: Seconds between two drawings of the live line.
_REDRAW_EVERY = 0.1

_BAR_CELLS = 20


class Progress:
    """
    The output of one build.
    """

    def __init__(
        self, label: str = "", stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        #: Name of the module that is built.
        self._label = label
        #: `None` after a failed write. `sys.stderr` itself may be `None` (a windowed Python).
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._began = clock()
        self._state = (0, 0, "")
        #: When a plain or live line was last written.
        self._written = self._began
        #: Width of the live line on the screen; 0 if there is none.
        self._drawn = 0
        self._live = _is_terminal(self._stream) and os.environ.get("TERM") != "dumb"
        #: Whether compilers should colour the text that `note` prints.
        self.colour = self._live and not os.environ.get("NO_COLOR")

    def announce(self, reason: str) -> None:
        """
        Print why the module is built, and start the clock.
        """
        self.note(reason)
        self._began = self._written = self._clock()

    def update(self, done: int, total: int, current: str) -> None:
        """
        Set the progress: crates done, crates in total, the current step.
        """
        self._state = (done, total, current)
        self.tick()

    def tick(self) -> None:
        """
        Print the progress if it is time to. Cheap: it is called several times a second.
        """
        now = self._clock()
        if now - self._began < QUIET:
            return
        if self._live:
            if not self._drawn or now - self._written >= _REDRAW_EVERY:
                self._written = now
                self._draw(now - self._began)
        elif now - self._written >= PLAIN_EVERY:
            self._written = now
            self._write(self._plain_line(now - self._began) + "\n")

    def note(self, text: str) -> None:
        """
        Print a line at once, above the live line.
        """
        self._erase()
        self._write(text.rstrip("\n") + "\n")

    def succeeded(self, text: str) -> None:
        """
        Remove the live line. If the build took more than a second, print its result.
        """
        self._finish(text)

    def failed(self, text: str) -> None:
        """
        As `succeeded`, for a build that failed.
        """
        self._finish(f"failed: {text}")

    def _finish(self, text: str) -> None:
        self._erase()
        if self._clock() - self._began >= QUIET:
            self._write(f"{text}\n")

    def _plain_line(self, elapsed: float) -> str:
        done, total, current = self._state
        counted = f"{done}/{total} crates" if total else "cargo is starting"
        return ", ".join(filter(None, [f"{self._label}: {counted}", current, f"{elapsed:.0f} s"]))

    def _draw(self, elapsed: float) -> None:
        # One column stays free: on some terminals a full line wraps and cannot be redrawn in place.
        columns = _columns(self._stream) - 1
        done, total, current = self._state
        head, tail = f"{self._label} cargo is starting ", f"({elapsed:.0f} s)"
        if total:
            head = f"{self._label} {_bar(done, total, self._speaks_unicode())} {done}/{total} "
            if _width(head) + _width(tail) > columns:
                head = f"{self._label} {done}/{total} "
        middle = _fitted(f"{current} ", columns - _width(head) - _width(tail)) if current else ""
        line = _fitted(head + middle + tail, columns)
        width = _width(line)
        # Spaces instead of an escape sequence also clear consoles that do not know the sequence.
        self._write("\r" + line + " " * min(max(self._drawn - width, 0), max(columns - width, 0)))
        self._drawn = width

    def _erase(self) -> None:
        if self._drawn:
            self._write("\r" + " " * min(self._drawn, _columns(self._stream) - 1) + "\r")
            self._drawn = 0

    def _speaks_unicode(self) -> bool:
        return (getattr(self._stream, "encoding", None) or "").lower().replace("-", "") == "utf8"

    def _write(self, text: str) -> None:
        stream = self._stream
        if stream is None:
            return
        try:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except Exception:  # noqa: BLE001 - the stream may be any object, and its errors must not stop a build
            self._stream = None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except Exception:  # noqa: BLE001 - as in `_write`
        return False


def _columns(stream: TextIO | None) -> int:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
    except Exception:  # noqa: BLE001 - as in `_write`; streams without a descriptor raise several kinds of errors
        columns = 0
    return max(columns or shutil.get_terminal_size().columns, 20)


def _bar(done: int, total: int, unicode: bool) -> str:
    full = min(_BAR_CELLS * done // total, _BAR_CELLS)
    if unicode:
        return "━" * full + "─" * (_BAR_CELLS - full)
    return f"[{'=' * full}{' ' * (_BAR_CELLS - full)}]"


def _width(text: str) -> int:
    return sum(_columns_of(character) for character in text)


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fitted(text: str, columns: int) -> str:
    """
    The text, truncated to this many columns; a truncated text ends in dots.
    """
    if _width(text) <= columns:
        return text
    kept, used = "", 0
    for character in text:
        used += _columns_of(character)
        if used > columns - 4:
            break
        kept += character
    return f"{kept}... " if columns >= 4 else ""
