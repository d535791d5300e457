"""
What is wrong with a file, and on which line.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import ManifestError
from rust_ext_loader.declare import _toml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Plant = Callable[..., Path]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        pytest.param(b"a = 1\nb = = 2\n", 2, "Invalid value", id="syntax"),
        pytest.param(b"a = 1\nb = [\n", 2, "", id="end of file"),
        pytest.param(b"a = 1\nb = '\xff'\n", 2, "is not UTF-8", id="bytes"),
        pytest.param(None, None, "cannot be read: No such file", id="missing"),
    ],
)
def test_a_broken_file_names_path_line_and_reason(
    tmp_path: Path, content: bytes | None, line: int | None, words: str
) -> None:
    """
    Whatever the parser or the disk says becomes one type of error.
    """
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ManifestError) as caught:
        _toml.load(path)

    assert (caught.value.where, caught.value.line) == (str(path), line)
    assert words in caught.value.problem


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    """
    The memo goes by content, so a write within one clock tick is seen.
    """
    path = tmp_path / "x.toml"
    path.write_text("a = 1")
    assert _toml.load(path) == {"a": 1}
    path.write_text("a = 2")

    assert _toml.load(path) == {"a": 2}


def test_an_older_python_uses_tomli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Before 3.11 the same parser is an installed package.
    """
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", (3, 10, 0, "final", 0))
        patched.setitem(sys.modules, "tomli", pytest.importorskip("tomllib"))
        module = importlib.reload(_toml)
        path = tmp_path / "x.toml"
        path.write_text("a = 1")

        assert module.load(path) == {"a": 1}
    importlib.reload(_toml)
