"""
Decide what a waiting person sees of a build, and when.

On a terminal there is one live line, redrawn in place and gone at the end;
elsewhere a plain line every ten seconds, which keeps a CI job from looking
hung. The *announcement* (why we build) and every *note* are said at once; the
rest only of a build that takes more than a second.

Invariant: telling never fails. A stream that is absent, closed or broken is
given up, and the build goes on in silence.
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
    The voice of one build.
    """

    def __init__(
        self, label: str = "", stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        #: What is being built, as people call it.
        self._label = label
        #: `None` once it proved broken. `sys.stderr` itself may be `None` (a windowed Python).
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._began = clock()
        self._state = (0, 0, "")
        #: When a plain line, or the live one, was last written.
        self._spoke = self._began
        #: Columns of the live line on the screen; 0 means that there is none.
        self._drawn = 0
        self._live = _is_terminal(self._stream) and os.environ.get("TERM") != "dumb"
        #: Whether compilers should colour what is shown through `note`.
        self.colour = self._live and not os.environ.get("NO_COLOR")

    def announce(self, reason: str) -> None:
        """
        Say why we build; it begins now.
        """
        self.note(reason)
        self._began = self._spoke = self._clock()

    def update(self, done: int, total: int, current: str) -> None:
        """
        Note how far cargo is: crates done, crates in all, what it is at.
        """
        self._state = (done, total, current)
        self.tick()

    def tick(self) -> None:
        """
        Let time pass: draw or say what is due. Cheap; meant to be called several times a second.
        """
        now = self._clock()
        if now - self._began < QUIET:
            return
        if self._live:
            if not self._drawn or now - self._spoke >= _REDRAW_EVERY:
                self._spoke = now
                self._draw(now - self._began)
        elif now - self._spoke >= PLAIN_EVERY:
            self._spoke = now
            self._write(self._plain_line(now - self._began) + "\n")

    def note(self, text: str) -> None:
        """
        Say something at once, above the live line.
        """
        self._erase()
        self._write(text.rstrip("\n") + "\n")

    def finish(self, ok: bool, text: str) -> None:
        """
        Take the live line away and, unless it was all over in a second, say how it ended.
        """
        self._erase()
        if self._clock() - self._began < QUIET:
            return
        if text:
            self._write(f"{text}\n" if ok else f"failed: {text}\n")

    def _plain_line(self, elapsed: float) -> str:
        done, total, current = self._state
        counted = f"{done}/{total} crates" if total else "cargo is starting"
        return ", ".join(filter(None, [f"{self._label}: {counted}", current, f"{elapsed:.0f} s"]))

    def _draw(self, elapsed: float) -> None:
        # One column is left free: a full line makes some terminals wrap, and then it cannot be redrawn in place.
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
        # Blanks rather than an escape sequence: consoles that know none are cleared as well.
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
        except Exception:  # noqa: BLE001 - a stream may be anybody's object, and no complaint of its kind may stop a build
            self._stream = None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except Exception:  # noqa: BLE001 - as in `_write`
        return False


def _columns(stream: TextIO | None) -> int:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
    except Exception:  # noqa: BLE001 - as in `_write`; streams without a descriptor raise several things
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
    The text, cut to so many columns; where something is lost, it ends in dots.
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
