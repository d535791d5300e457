"""
Laws of `_staging` that need another system: a file that somebody else has open for a moment is renamed all the same.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rust_ext_loader.files import _staging


class Held:
    """
    A rename that is refused so many times, as Windows refuses it.
    """

    def __init__(self, times: int, winerror: int | None) -> None:
        self.times = times
        self.winerror = winerror
        self.tries = 0
        self.waited: list[float] = []

    def __call__(self, source: Path, destination: Path) -> None:
        self.tries += 1
        if self.tries <= self.times:
            error = PermissionError(errno.EACCES, "held", str(source))
            if self.winerror is not None:
                error.winerror = self.winerror  # type: ignore[attr-defined,unused-ignore]  # Windows has it
            raise error
        source.rename(destination)


@pytest.mark.parametrize("winerror", [5, 32, 33])
@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_file_that_is_held_for_a_moment_is_renamed(tmp_path: Path, winerror: int, times: int) -> None:
    """
    Access denied, sharing and lock violations pass: a virus scanner looks at what was just written.
    """
    (tmp_path / "new").write_text("new")
    held = Held(times, winerror)

    _staging._rename(tmp_path / "new", tmp_path / "name", held, held.waited.append)

    assert (tmp_path / "name").read_text() == "new"
    assert len(held.waited) == times


@pytest.mark.parametrize(
    ("winerror", "tries"),
    [
        pytest.param(5, 9, id="held for ever"),
        pytest.param(None, 1, id="no right to"),
        pytest.param(3, 1, id="no such folder"),
    ],
)
def test_what_does_not_pass_is_an_error(tmp_path: Path, winerror: int | None, tries: int) -> None:
    """
    After about five seconds it is the caller's to hear of; what is no matter of waiting, at once.
    """
    held = Held(1000, winerror)

    with pytest.raises(PermissionError, match="held"):
        _staging._rename(tmp_path / "new", tmp_path / "name", held, held.waited.append)

    assert held.tries == tries
    assert 4 <= sum(held.waited) <= 6 or tries == 1
