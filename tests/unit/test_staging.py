"""
Renames on Windows, with a fake rename: a file that another process has open for a moment is still renamed.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rust_ext_loader.files import _staging


class FailingRename:
    """
    A rename that fails `times` times with a Windows error.
    """

    def __init__(self, times: int, winerror: int | None) -> None:
        self.times = times
        self.winerror = winerror
        self.tries = 0
        self.waited: list[float] = []

    def __call__(self, source: Path, destination: Path) -> None:
        self.tries += 1
        if self.tries <= self.times:
            error = PermissionError(errno.EACCES, "refused", str(source))
            if self.winerror is not None:
                error.winerror = self.winerror  # type: ignore[attr-defined,unused-ignore]  # Windows has it
            raise error
        source.rename(destination)


@pytest.mark.parametrize("winerror", [5, 32, 33])
@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_rename_is_retried_while_the_file_is_open(tmp_path: Path, winerror: int, times: int) -> None:
    """
    Access-denied, sharing and lock violations are retried: a virus scanner may read a new file.
    """
    (tmp_path / "new").write_text("new")
    rename = FailingRename(times, winerror)

    _staging._rename(tmp_path / "new", tmp_path / "name", rename, rename.waited.append)

    assert (tmp_path / "name").read_text() == "new"
    assert len(rename.waited) == times


@pytest.mark.parametrize(
    ("winerror", "tries"),
    [
        pytest.param(5, 9, id="open forever"),
        pytest.param(None, 1, id="no permission"),
        pytest.param(3, 1, id="no such folder"),
    ],
)
def test_a_rename_that_keeps_failing_is_an_error(tmp_path: Path, winerror: int | None, tries: int) -> None:
    """
    The retries end after about five seconds. Errors that waiting cannot fix are raised at once.
    """
    rename = FailingRename(1000, winerror)

    with pytest.raises(PermissionError, match="refused"):
        _staging._rename(tmp_path / "new", tmp_path / "name", rename, rename.waited.append)

    assert rename.tries == tries
    assert 4 <= sum(rename.waited) <= 6 or tries == 1
