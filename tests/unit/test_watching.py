"""
Which paths are watched for a path, and whether they must exist.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rust_ext_loader.files._watching import watch


def _file(path: Path) -> None:
    path.write_text("")


def _folder(path: Path) -> None:
    path.mkdir()


def _link(path: Path) -> None:
    path.symlink_to(path.with_name("gone"))


def _chain(path: Path) -> None:
    path.with_name("next").symlink_to("gone")
    path.symlink_to("next")


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


def _nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "present", "absent"),
    [
        pytest.param(_file, {"x"}, set(), id="a file"),
        pytest.param(_folder, {"x"}, set(), id="a folder"),
        pytest.param(_nothing, set(), {"x"}, id="nothing"),
        pytest.param(_link, {"."}, {"gone"}, id="a dangling link"),
        pytest.param(_chain, {"."}, {"gone"}, id="a chain of dangling links"),
        pytest.param(_circle, {"."}, set(), id="a link to itself"),
    ],
)
def test_the_watched_paths_of_a_path(tmp_path: Path, make: object, present: set[str], absent: set[str]) -> None:
    """
    Every path in `present` exists, and no path in `absent` exists, not even as a link.
    """
    root = tmp_path.resolve()
    make(root / "x")  # type: ignore[operator]

    watched = watch([str(root / "x")])

    assert watched.present == {str(root / name) for name in present}
    assert watched.absent == {str(root / name) for name in absent}
    assert all(os.path.exists(path) for path in watched.present)
    assert not any(os.path.lexists(path) for path in watched.absent)
