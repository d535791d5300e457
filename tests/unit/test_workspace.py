"""
Unit tests of workspaces: which packages are members, how a workspace is found, and which paths are watched.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader.declare import _discover

from .declared_crates import ROOT, module, package

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[..., Path]


MEMBERS = [
    pytest.param(
        {"Cargo.toml": ROOT, "a/Cargo.toml": package("a"), "b/Cargo.toml": package("b")},
        ["a"],
        id="listed members only",
    ),
    pytest.param(
        {
            "Cargo.toml": '[workspace]\nmembers = ["crates/*"]\n',
            "crates/a/Cargo.toml": package("a"),
            "crates/notes/README": "",
        },
        ["crates/a"],
        id="a glob skips folders without a manifest",
    ),
    pytest.param(
        {
            "Cargo.toml": '[workspace]\nmembers = ["crates/*"]\nexclude = ["crates/b"]\n',
            "crates/a/Cargo.toml": package("a"),
            "crates/b/Cargo.toml": package("b"),
        },
        ["crates/a"],
        id="an excluded match of a glob is no member",
    ),
    pytest.param(
        {"Cargo.toml": '[workspace]\nmembers = ["x/a"]\nexclude = ["x"]\n', "x/a/Cargo.toml": package("a")},
        ["x/a"],
        id="an explicit member overrides exclude",
    ),
    pytest.param(
        {"Cargo.toml": package("root", rest="[workspace]\n"), "other/Cargo.toml": package("other")},
        ["."],
        id="the root package",
    ),
    pytest.param(
        {
            "Cargo.toml": ROOT,
            "a/Cargo.toml": package("a", rest='[dependencies]\nb = { path = "../b" }\n'),
            "b/Cargo.toml": package("b", rest='[build-dependencies]\nc = { path = "../c" }\n'),
            "c/Cargo.toml": package("c", rest='[target."cfg(unix)".dev-dependencies]\nd = { path = "../d" }\n'),
            "d/Cargo.toml": package("d"),
        },
        ["a", "b", "c", "d"],
        id="path dependencies of every kind, transitively",
    ),
    pytest.param(
        {
            "Cargo.toml": ROOT + '[workspace.dependencies]\nb = { path = "deep/b" }\n',
            "a/Cargo.toml": package("a", rest="[dependencies]\nb = { workspace = true }\n"),
            "deep/b/Cargo.toml": package("b"),
        },
        ["a", "deep/b"],
        id="an inherited path dependency",
    ),
    pytest.param(
        {
            "Cargo.toml": ROOT + 'exclude = ["b"]\n',
            "a/Cargo.toml": package("a", rest='[dependencies]\nb = { path = "../b" }\n'),
            "b/Cargo.toml": package("b"),
        },
        ["a"],
        id="an excluded path dependency is not a member",
    ),
    pytest.param(
        {
            "Cargo.toml": ROOT,
            "a/Cargo.toml": package("a"),
            "a/target/package/x/Cargo.toml": "broken",
            "a/tests/fixture/Cargo.toml": "broken",
            "vendor/y/Cargo.toml": "broken",
        },
        ["a"],
        id="other manifests in the tree are no members",
    ),
    pytest.param(
        {"Cargo.toml": package("alone", rest='[dependencies]\nb = { path = "b" }\n'), "b/Cargo.toml": package("b")},
        ["."],
        id="a single package",
    ),
]


@pytest.mark.parametrize(("files", "members"), MEMBERS)
def test_members_are_those_of_cargo(plant: Plant, files: dict[str, str], members: list[str]) -> None:
    """
    A member is listed and not excluded, or the root package, or a path dependency below the root.
    """
    root = plant(files)

    workspace = _discover.read_workspace(root)

    assert sorted(os.path.relpath(folder, root) for folder in workspace.members) == members
    assert workspace.broken == ()


def test_workspace_is_found_from_its_manifest_a_member_or_a_link(plant: Plant, tmp_path: Path) -> None:
    """
    Every path to a checkout gives the same workspace.
    """
    root = plant({"Cargo.toml": ROOT, "a/Cargo.toml": package("a")})
    link = tmp_path / "link"
    link.symlink_to(root)

    found = {_discover.read_workspace(path).root for path in (root, root / "Cargo.toml", root / "a", link)}

    assert found == {root}


WATCHED = {
    "Cargo.toml": '[workspace]\nmembers = ["crates/*", "deep/*/rust", "gone"]\nexclude = ["crates/out"]\n',
    "crates/a/Cargo.toml": package("a", module("m.a"), rest='[dependencies]\nb = { path = "../../b" }\n'),
    "crates/notes/README": "",
    "deep/x/rust/Cargo.toml": package("x"),
    "deep/y/README": "",
    "b/Cargo.toml": package("b"),
}


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        pytest.param("Cargo.toml", True, id="the root"),
        pytest.param("crates/a/Cargo.toml", True, id="a member"),
        pytest.param("b/Cargo.toml", True, id="a member by dependency"),
        pytest.param("crates", True, id="a folder that could gain a member"),
        pytest.param("deep", True, id="the folder above such a folder"),
        pytest.param("deep/y", True, id="a folder below it"),
        pytest.param("crates/notes/Cargo.toml", False, id="a manifest that would make a folder a member"),
        pytest.param("gone/Cargo.toml", False, id="a listed member that is missing"),
    ],
)
def test_paths_that_can_change_declarations_are_watched(plant: Plant, name: str, is_there: bool) -> None:
    """
    A new member, or a new module of a member, may duplicate a built module.
    """
    path = str(plant(WATCHED) / name)

    for watched in (
        _discover.read_workspace(Path(path.removesuffix(name))).watched,
        _discover.extensions(Path(path.removesuffix(name))).watched,
    ):
        assert path in (watched.present if is_there else watched.absent)


def test_listed_workspaces_are_watched(plant: Plant) -> None:
    """
    An existing workspace is watched with its members, a missing one for its creation.
    """
    further = '[workspace.metadata.sglang]\nextension-manifests = ["../two/Cargo.toml", "../gone"]\n'
    root = plant(
        {
            "one/Cargo.toml": ROOT + further,
            "one/a/Cargo.toml": package("a"),
            "two/Cargo.toml": ROOT,
            "two/a/Cargo.toml": package("a"),
        }
    )

    watched = _discover.extensions(root / "one").watched

    assert {
        str(root / name) for name in ("one/Cargo.toml", "one/a/Cargo.toml", "two/Cargo.toml", "two/a/Cargo.toml")
    } <= watched.present
    assert watched.absent == {str(root / "gone/Cargo.toml")}


def test_single_package_is_watched_for_a_workspace_above(plant: Plant) -> None:
    """
    A new workspace above may make the package its member.
    """
    root = plant({"a/Cargo.toml": package("a")})

    assert str(root / "Cargo.toml") in _discover.read_workspace(root / "a").watched.absent


def test_unreadable_folder_has_no_manifest(plant: Plant) -> None:
    """
    The name of the folder is too long for the system. A folder without permission gives the same result.
    """
    root = plant(
        {
            "Cargo.toml": ROOT,
            "a/Cargo.toml": package("a", module("m.a"), rest=f'[dependencies]\nb = {{ path = "{"b" * 300}" }}\n'),
        }
    )

    assert list(_discover.extensions(root).specs) == ["m.a"]
    assert _discover.find_workspace(root / "a" / ("x" * 300)) == root


FINDING = [
    pytest.param({"Cargo.toml": ROOT, "a/Cargo.toml": package("a")}, "a/src", ".", id="the root above"),
    pytest.param({"a/Cargo.toml": package("a")}, "a/src", "a", id="a lone package"),
    pytest.param(
        {"pyproject.toml": '[tool.rust-ext-loader]\nworkspace = "rust"\n', "rust/Cargo.toml": ROOT},
        "python",
        "rust",
        id="named",
    ),
    pytest.param(
        {"Cargo.toml": ROOT + 'exclude = ["x"]\n', "x/Cargo.toml": package("x")},
        "x",
        "x",
        id="an excluded package is its own workspace",
    ),
    pytest.param({"README": ""}, ".", None, id="none"),
]


@pytest.mark.parametrize(("files", "start", "expected"), FINDING)
def test_find_workspace_from_a_folder(plant: Plant, files: dict[str, str], start: str, expected: str | None) -> None:
    """
    The search goes upward to a workspace root or a project that names one. Without either, the nearest package is used.
    """
    root = plant(files)
    (root / start).mkdir(parents=True, exist_ok=True)

    found = _discover.find_workspace(root / start)

    assert found == (None if expected is None else Path(os.path.normpath(root / expected)))
