"""
Unit tests of seen inputs: their names and values, and the detection of changes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rust_ext_loader._model import PathPackage
from rust_ext_loader.build._target_state import TargetState
from rust_ext_loader.facts import _environment, _seen
from rust_ext_loader.facts._seen import CurrentInputs

needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.mark.parametrize(
    ("root", "path", "absolute", "name"),
    [
        pytest.param("w", "w/a/x.txt", True, "a/x.txt", id="inside"),
        pytest.param("w", "w/a/../x.txt", False, "x.txt", id="inside, with a detour"),
        pytest.param("w", "w/a/../../x.txt", False, "../x.txt", id="outside, relative"),
        pytest.param("w", "x.txt", True, "{top}/x.txt", id="outside, absolute"),
        pytest.param("link", "w/a/x.txt", True, "a/x.txt", id="inside, with a link as root"),
        pytest.param("w", "w/way/../x.txt", False, "way/../x.txt", id="`..` after a link"),
    ],
)
def test_name_of_a_path_is_relative_to_the_workspace(
    tmp_path: Path, root: str, path: str, absolute: bool, name: str
) -> None:
    """
    With relative names a copied checkout finds its own file. Absolute paths outside, and a `..` after a link, are kept.
    """
    top = tmp_path.resolve()
    (top / "w/a").mkdir(parents=True)
    (top / "elsewhere/deep").mkdir(parents=True)
    (top / "elsewhere/x.txt").touch()
    (top / "link").symlink_to("w")
    (top / "w/way").symlink_to("../elsewhere/deep")

    found = _seen.name_of_file(str(top / path), str(top / root), given_as_absolute=absolute)
    assert found == _seen.FILE + name.format(top=top)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "folder/deep").mkdir(parents=True)
    (tmp_path / "file").write_text("1")
    (tmp_path / "folder/deep/one").write_text("1")
    return tmp_path


NAMES = (
    "seen/file/file",
    "seen/file/folder",
    "seen/file/nothing",
    "seen/env/SET",
    "seen/env/UNSET",
    "seen/place/folder",
)


def inputs_of(tree: Path, **environment: str) -> CurrentInputs:
    return CurrentInputs(str(tree), {"SET": "value", **environment})


def test_unchanged_inputs_have_the_same_values(tree: Path) -> None:
    """
    Inputs of every kind have the same value when they are read again.
    """
    seen = inputs_of(tree).record(NAMES)

    assert set(seen) == set(NAMES)
    assert inputs_of(tree).match(seen)
    assert inputs_of(tree).values_of(seen) == seen
    assert seen["seen/file/nothing"] == "nothing"
    assert seen["seen/env/UNSET"] == "unset"
    assert "value" not in str(seen)


@pytest.mark.parametrize(
    ("changed", "change"),
    [
        ("seen/file/file", lambda tree: (tree / "file").write_text("2")),
        ("seen/file/file", lambda tree: (tree / "file").unlink()),
        ("seen/file/nothing", lambda tree: (tree / "nothing").touch()),
        ("seen/file/nothing", lambda tree: (tree / "nothing").mkdir()),
        ("seen/file/folder", lambda tree: (tree / "folder/deep/two").touch()),
        ("seen/file/folder", lambda tree: (tree / "folder/module.py").touch()),
        ("seen/file/folder", lambda tree: (tree / "folder/deep/one").rename(tree / "folder/one")),
        ("seen/file/folder", lambda tree: (tree / "folder/deep/one").write_text("2")),
        ("seen/file/folder", lambda tree: (tree / "folder/empty").mkdir()),
        ("seen/file/folder", lambda tree: (tree / "folder/nowhere").symlink_to("nothing")),
        pytest.param("seen/file/folder", lambda tree: os.mkfifo(tree / "folder/pipe"), marks=needs_fifo),
    ],
    ids=[
        *(
            "edited",
            "gone",
            "file created",
            "folder created",
            "file added to a folder",
            "Python file added to a folder",
            "file moved in a folder",
            "file edited in a folder",
        ),
        *("empty folder added", "dangling link added", "pipe added"),
    ],
)
def test_each_change_is_detected(tree: Path, changed: str, change: object) -> None:
    """
    Exactly the changed input has another value.
    """
    seen = inputs_of(tree).record(NAMES)
    assert callable(change)
    change(tree)

    now = inputs_of(tree).values_of(seen)
    assert [name for name in seen if now[name] != seen[name]] == [changed]
    assert not inputs_of(tree).match(seen)


@pytest.mark.parametrize(
    ("environment", "changed"),
    [({"SET": "other"}, ["seen/env/SET"]), ({"SET": ""}, ["seen/env/SET"]), ({"UNSET": ""}, ["seen/env/UNSET"])],
)
def test_each_value_of_a_variable_differs(tree: Path, environment: dict[str, str], changed: list[str]) -> None:
    """
    An empty variable differs from one that is not set.
    """
    seen = inputs_of(tree).record(NAMES)
    now = inputs_of(tree, **environment).values_of(seen)

    assert [name for name in seen if now[name] != seen[name]] == changed


@pytest.mark.parametrize(
    "name", ["folder/deep/.one.swp", "folder/one~", "folder/.git/HEAD", "folder/target/CACHEDIR.TAG", "folder/target/x"]
)
def test_irrelevant_files_in_a_folder_do_not_count(tree: Path, name: str) -> None:
    """
    Files of editors and version control, and target folders, change without any build.
    """
    (tree / "folder/target").mkdir()
    (tree / "folder/target/CACHEDIR.TAG").touch()
    seen = inputs_of(tree).record(NAMES)
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text("new")

    assert inputs_of(tree).match(seen)


@needs_fifo
def test_named_pipe_is_not_read(tree: Path) -> None:
    """
    A pipe is not read: reading would consume data that is meant for another process.
    """
    os.mkfifo(tree / "pipe")
    assert inputs_of(tree).record(["seen/file/pipe"]) == {"seen/file/pipe": "no regular file"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seen/env/SET", "value"),
        ("seen/env/SET", "keyed"),
        ("seen/env/SET", "keyed:"),
        ("seen/env/SET", "keyed:zz:00"),
        ("seen/env/SET", f"keyed:{'00' * 65}:00"),
        ("seen/file/a\0b", ""),
        ("seen/file/\ud800", ""),
        ("seen/place/\ud800", ""),
        ("seen/env/\ud800", ""),
        ("seen/future/x", "1"),
        ("", ""),
    ],
)
def test_unparsable_entry_counts_as_changed(tree: Path, name: str, value: str) -> None:
    """
    An entry that cannot be parsed (from a newer version, or partly written) is a miss and not an error.
    """
    assert not inputs_of(tree).match({name: value})


def test_each_path_is_read_once(tree: Path) -> None:
    """
    A decision uses the first result, even if the file changes in between.
    """
    current = inputs_of(tree)
    seen = current.record(NAMES)
    (tree / "file").write_text("2")

    assert current.match(seen)
    assert not inputs_of(tree).match(seen)


def test_inputs_that_bind_an_entry_to_a_host(tmp_path: Path) -> None:
    """
    Variables that are set, the checkout's place, and absolute paths bind an entry to its host.
    """
    names = [
        "seen/file/a",
        "seen/file/../b",
        "seen/env/UNSET",
        f"seen/file/{tmp_path}/c",
        "seen/env/SET",
        "seen/place/p",
    ]
    seen = {name: inputs_of(tmp_path).record([name])[name] for name in names}
    assert _seen.host_bound(seen) == names[3:]
    assert _seen.variables(seen) == ["UNSET", "SET"]


@pytest.mark.parametrize(
    ("name", "local", "foreign"),
    [
        ("MY_FLAVOUR", False, False),
        ("OPENSSL_DIR", False, False),
        ("CARGO_MY_OWN", False, False),
        ("PATH", False, True),
        ("HOME", False, True),
        ("LC_ALL", False, True),
        ("RUSTFLAGS", True, True),
        ("CFLAGS", True, True),
        ("CC_x86_64-unknown-linux-gnu", True, True),
        ("CARGO_PROFILE_RELEASE_LTO", True, True),
        ("OUT_DIR", True, True),
        ("CARGO_CFG_TARGET_OS", True, True),
        ("CARGO_PKG_VERSION", True, True),
        ("TARGET", True, True),
        ("RUSTC", True, True),
        ("VIRTUAL_ENV", True, True),
        ("PYO3_PYTHON", True, True),
        ("PYO3_CROSS", False, False),
    ],
)
def test_variables_that_need_no_record(name: str, local: bool, foreign: bool) -> None:
    """
    No record is needed for facts, for variables that cargo sets, and for variables that are removed before a build.

    In fetched packages, no record is needed for user-specific variables either.
    """
    assert (_environment.is_accounted_for(name, foreign=False), _environment.is_accounted_for(name, foreign=True)) == (
        local,
        foreign,
    )


def test_target_state_lists_outdated_packages(tree: Path) -> None:
    """
    A package is outdated while it is marked unknown. Once marked known, it is outdated if its inputs differ.

    Its inputs are its digest and its undeclared files.

    A package that the lockfile does not list is left out, since cargo cannot clean it.
    """
    ours = PathPackage("ours", "0.1.0", tree / "ours", "d1")
    edited = PathPackage("ours", "0.1.0", tree / "ours", "d2")
    state = TargetState(tree, "release")
    locked = {"ours", "openssl"}

    def outdated(package: PathPackage, *, include_matching: bool = False) -> list[str]:
        found = state.outdated([package], locked, inputs_of(tree), include_matching=include_matching)
        return [package.spec for package in found]

    assert (state.is_known(), outdated(ours)) == (False, [])
    state.mark_unknown([ours])
    assert (state.is_known(), outdated(ours)) == (True, ["ours"])
    state.mark_known(
        [ours],
        {
            str(tree / "ours"): inputs_of(tree).record(["seen/file/file"]),
            "openssl@1": inputs_of(tree).record(["seen/file/folder"]),
        },
    )
    assert outdated(ours) == []
    assert outdated(edited) == ["ours"]
    assert outdated(ours, include_matching=True) == ["openssl@1", "ours"]
    assert TargetState(tree, "dev").outdated([edited], locked, inputs_of(tree), include_matching=True) == []
    assert state.seen_files(inputs_of(tree)) >= {str(tree / "file"), str(tree / "folder/deep/one")}

    (tree / "file").write_text("2")
    assert outdated(ours) == ["ours"]
    (tree / "folder/new").touch()
    assert outdated(ours) == ["openssl@1", "ours"]
    locked.remove("openssl")
    assert outdated(ours) == ["ours"]
    state.mark_unknown([ours])
    locked.add("openssl")
    assert outdated(ours) == ["openssl@1", "ours"]


def test_damaged_target_state_is_ignored(tree: Path) -> None:
    """
    With any bit flipped, the whole state is ignored: a partial one could hide a package that must be cleaned.
    """
    state = TargetState(tree, "release")
    state.mark_known(
        [PathPackage("ours", "0.1.0", tree / "ours", "d1")],
        {str(tree / "ours"): inputs_of(tree).record(["seen/file/file"])},
    )
    path = tree / "rust-ext-state.json"
    whole = path.read_bytes()
    assert state.is_known()

    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert not state.is_known(), position
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert not state.is_known(), length
    path.write_bytes(whole)
    assert state.is_known()
