"""
What the command line says before any command runs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rust_ext_loader import cli


@pytest.mark.skipif(os.name == "nt", reason="a folder in use cannot be removed here")
def test_a_folder_that_was_removed_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Whoever stands in it is told so, and how to go on.
    """
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert cli.main(["list"]) == 1
    assert capsys.readouterr().err == (
        "error: .: the current folder cannot be found (No such file or directory); go to another, or name one with --workspace\n"
    )
