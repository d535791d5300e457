"""
What the command line says before any command runs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rust_ext_loader import cli
from rust_ext_loader.cache import _store
from rust_ext_loader.cli import _verify


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
        "error: .: the current folder does not exist (No such file or directory); change to another, or pass --workspace\n"
    )


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"seen/env/CC": "unset"}, "  undeclared variable CC (not set)\n", id="one"),
        pytest.param(
            {"seen/env/CC": "unset", "seen/env/AR": "unset", "seen/file/a.txt": "1"},
            "  undeclared file a.txt\n  undeclared variables AR, CC (not set)\n",
            id="several, in one line behind the rest",
        ),
    ],
)
def test_variables_that_nobody_set_take_one_line(
    seen: dict[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Build scripts ask for many.
    """
    _verify._print(_store.Entry(Path("entry"), Path("entry/a.so"), {}, seen, 0.0, None, "", ""))

    assert capsys.readouterr().out == told


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        pytest.param(
            "--max-size", "ten", "--max-size='ten' is not understood; expected a size such as 500M or 10G", id="size"
        ),
        pytest.param(
            "--max-age", "30", "--max-age='30' is not understood; expected an age such as 12h or 30d", id="age"
        ),
        pytest.param("--keep", "-1", "'-1' is not a number of entries", id="fewer than none"),
        pytest.param("--keep", "few", "'few' is not a number of entries", id="no number"),
    ],
)
def test_a_limit_that_means_nothing_removes_nothing(
    tmp_path: Path, option: str, value: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The command line is wrong, and the message says what was expected.
    """
    with pytest.raises(SystemExit) as ended:
        cli.main(["gc", option, value, "--cache-dir", str(tmp_path)])

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
