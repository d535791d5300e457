"""
The path of a checkout is not a fact: copies, renamed folders, links and unusual names hit the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from changes import hit
from checkout import Checkout, check_out

ALPHA = "alpha-1 part-1 middle-1"


def test_two_checkouts_of_one_commit_share_an_entry(tmp_path: Path) -> None:
    """
    Neither the path of a checkout nor the times of its files are facts.
    """
    cache = tmp_path / "cache"
    one, other = (check_out("plain", tmp_path / name, cache) for name in ("one", "other"))
    for path in other.root.rglob("*.rs"):
        os.utime(path, (1, 1))
    built = one.load()

    assert built.compiled == ["alpha"]
    hit(other.load(), ALPHA)
    assert other.load().file == built.file


def _python_imports_from(folder: Path, locale: dict[str, str]) -> bool:
    """
    Whether a plain import opens a library in the folder. It then raises `ImportError`, because the library is invalid.
    """
    library = folder / "no_library.so"
    library.write_bytes(b"no library")
    program = "try:\n    import no_library\nexcept ImportError:\n    print('opened')"
    variables = {**os.environ, **locale, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    library.unlink()
    return "opened" in done.stdout


@pytest.mark.parametrize(
    "locale",
    [
        pytest.param({}, id="the session's locale"),
        pytest.param({"LANG": "C", "LC_ALL": "C"}, id="LANG=C"),
        pytest.param(
            {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            id="LANG=C, and Python uses it",
        ),
    ],
)
def test_any_path_works(tmp_path: Path, locale: dict[str, str]) -> None:
    """
    Paths of checkout and cache may have spaces, quotes and non-ASCII letters in every locale.
    """
    folder = tmp_path / "dîr with späce" / "日本 'q' \"d\" $x"
    folder.mkdir(parents=True)
    checkout = check_out("plain", folder)
    if not _python_imports_from(folder, locale):
        pytest.skip("this CPython's own import takes no library from such a path in this locale")
    # Pass the path as bytes, as a shell does.
    by_bytes = "import os; request['arguments']['workspace'] = os.environ['WORKSPACE']"
    variables = {**locale, "WORKSPACE": str(checkout.root)}

    assert checkout.load(prelude=by_bytes, variables=variables).value == ALPHA
    hit(checkout.load(prelude=by_bytes, variables=variables), ALPHA)
    checkout.replace("middle/src/lib.rs", "middle-1", "middle-2", older=60)
    assert checkout.load(prelude=by_bytes, variables=variables).value == "alpha-1 part-1 middle-2"


def test_a_file_name_may_be_invalid_utf_8(plain: Checkout) -> None:
    """
    A file name that is not UTF-8 counts by its bytes: the file is an input, and renaming it changes an input.
    """
    folder = os.fsencode(plain.root / "alpha" / "src")
    try:
        with open(folder + b"/\xff.txt", "wb") as file:
            file.write(b"one")
    except OSError:
        pytest.skip("this file system takes text names only")
    assert plain.load().value == ALPHA
    hit(plain.load(), ALPHA)

    os.rename(folder + b"/\xff.txt", folder + b"/\xfe.txt")
    renamed = plain.load()
    with open(folder + b"/\xfe.txt", "wb") as file:
        file.write(b"two")
    edited = plain.load()

    assert [(loaded.error, loaded.compiled) for loaded in (renamed, edited)] == [(None, ["alpha"])] * 2


def test_a_checkout_behind_a_link_shares_its_entries(built: Checkout, tmp_path: Path) -> None:
    """
    A checkout reached through a symbolic link has the same entries and the same target folder.
    """
    link = tmp_path / "link"
    link.symlink_to(built.root)
    hit(built.load(workspace=str(link)), ALPHA)

    built.replace("alpha/src/part.rs", "part-1", "part-2")
    assert built.load(workspace=str(link)).compiled == ["alpha"]
    hit(built.load(), "alpha-1 part-2 middle-1")
    built.replace("alpha/src/part.rs", "part-2", "part-3")
    assert built.load().compiled == ["alpha"]
    assert len([path for path in (built.cache / "targets").iterdir() if path.is_dir()]) == 1


def test_a_renamed_checkout_still_hits(built: Checkout) -> None:
    """
    Nothing is built after the checkout's folder was renamed.
    """
    hit(built.load(), ALPHA)
    moved = built.root.rename(built.root.with_name("moved"))

    hit(built.load(workspace=str(moved)), ALPHA)
