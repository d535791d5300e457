"""
Unit tests of command line messages.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rust_ext_loader import cli
from rust_ext_loader.cache import _store
from rust_ext_loader.cli import _verify


@pytest.mark.skipif(os.name == "nt", reason="a folder in use cannot be removed here")
def test_removed_current_folder_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    If the current folder was removed, one message says so and what to do.
    """
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert cli.main(["list"]) == 1
    assert capsys.readouterr().err == (
        "error: .: the current folder does not exist (No such file or directory); "
        "change to another, or pass --workspace\n"
    )


@pytest.mark.parametrize(
    ("seen", "printed"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"seen/env/CC": "unset"}, "  undeclared variable CC (not set)\n", id="one"),
        pytest.param(
            {"seen/env/CC": "unset", "seen/env/AR": "unset", "seen/file/a.txt": "1"},
            "  undeclared file a.txt\n  undeclared variables AR, CC (not set)\n",
            id="several, on one line after the files",
        ),
    ],
)
def test_unset_variables_are_printed_on_one_line(
    seen: dict[str, str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Unset variables share one line, because build scripts read many of them.
    """
    _verify._print(_store.Entry(Path("entry"), Path("entry/a.so"), {}, seen, 0.0, None, "", ""))

    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        pytest.param(
            "--max-size", "ten", "--max-size='ten' is invalid; expected a size such as 500M or 10G", id="size"
        ),
        pytest.param("--max-age", "30", "--max-age='30' is invalid; expected an age such as 12h or 30d", id="age"),
        pytest.param("--keep", "-1", "'-1' is not a number of entries", id="negative"),
        pytest.param("--keep", "few", "'few' is not a number of entries", id="not a number"),
    ],
)
def test_invalid_limit_is_refused(
    tmp_path: Path, option: str, value: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The exit code is 2, the message says what is expected, and nothing is removed.
    """
    with pytest.raises(SystemExit) as ended:
        cli.main(["gc", option, value, "--cache-dir", str(tmp_path)])

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
