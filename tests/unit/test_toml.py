"""
Unit tests of reading TOML: errors name the file and the line.
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
        pytest.param(b"a = 1\nb = [\n", 2, "", id="unexpected end"),
        pytest.param(b"a = 1\nb = '\xff'\n", 2, "is not UTF-8", id="not UTF-8"),
        pytest.param(None, None, "cannot be read: No such file", id="missing file"),
    ],
)
def test_broken_file_names_path_line_and_reason(
    tmp_path: Path, content: bytes | None, line: int | None, words: str
) -> None:
    """
    Every error of the parser or the disk becomes a `ManifestError`.
    """
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ManifestError) as caught:
        _toml.load(path)

    assert (caught.value.where, caught.value.line) == (str(path), line)
    assert words in caught.value.problem


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    """
    The cache is keyed by content, so an edit within one clock tick is noticed.
    """
    path = tmp_path / "x.toml"
    path.write_text("a = 1")
    assert _toml.load(path) == {"a": 1}
    path.write_text("a = 2")

    assert _toml.load(path) == {"a": 2}


def test_older_python_uses_tomli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Before Python 3.11 the parser is the package `tomli`, which later became `tomllib`.
    """
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", (3, 10, 0, "final", 0))
        patched.setitem(sys.modules, "tomli", pytest.importorskip("tomllib"))
        module = importlib.reload(_toml)
        path = tmp_path / "x.toml"
        path.write_text("a = 1")

        assert module.load(path) == {"a": 1}
    importlib.reload(_toml)
