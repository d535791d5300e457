"""
Unit tests of discovery: which packages are members, and which modules they declare.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import DuplicateModule, ExtensionNotFound, ManifestError
from rust_ext_loader.declare import _discover

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[..., Path]


def package(name: str, metadata: str = "", rest: str = "") -> str:
    declared = f"[package.metadata.sglang]\n{metadata}\n" if metadata else ""
    return f'[package]\nname = "{name}"\nversion = "0.1.0"\n{declared}{rest}\n'


def module(name: str, more: str = "") -> str:
    return f'python-module = "{name}"\n{more}'


ROOT = '[workspace]\nmembers = ["a"]\n'

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


def test_broken_member_does_not_affect_others(plant: Plant) -> None:
    """
    Readable members are declared, and each unreadable one is an error.
    """
    root = plant(
        {
            "Cargo.toml": '[workspace]\nmembers = ["a", "b", "gone"]\n',
            "a/Cargo.toml": package("a", module("m.a")),
            "b/Cargo.toml": "x = [",
        }
    )

    declared = _discover.extensions(root)

    assert list(declared.specs) == ["m.a"]
    assert {Path(error.where).parent.name for error in declared.broken} == {"b", "gone"}
    assert _discover.find("m.a", root).package == "a"
    with pytest.raises(ManifestError):
        _discover.find("m.b", root)


def test_declaration_with_every_key(plant: Plant) -> None:
    """
    Each key reaches the spec, and `lib.name` has cargo's default.
    """
    metadata = """
        python-module = "m.n._x"
        features = ["python"]
        source-inputs = ["../proto"]
        env = ["FLAVOUR"]
        key-on = ["numpy"]
        exclude = ["assets/**"]
        profile = "dist"
    """
    root = plant({"Cargo.toml": ROOT, "a/Cargo.toml": package("a-b", metadata)})

    spec = _discover.find("m.n._x", root)

    assert (spec.package, spec.library, spec.manifest, spec.workspace) == ("a-b", "a_b", root / "a/Cargo.toml", root)
    assert (spec.features, spec.source_inputs, spec.env) == (("python",), ("../proto",), ("FLAVOUR",))
    assert (spec.key_on, spec.exclude, spec.profile, spec.leaf) == (("numpy",), ("assets/**",), "dist", "_x")


@pytest.mark.parametrize(
    ("more", "profile"),
    [
        pytest.param("", "release", id="default"),
        pytest.param("debug = true", "dev", id="debug"),
        pytest.param("debug = false", "release", id="not debug"),
        pytest.param('debug = true\nprofile = "dist"', "dist", id="a profile overrides debug"),
    ],
)
def test_profile(plant: Plant, more: str, profile: str) -> None:
    """
    The profile is `release` unless the crate sets another one.
    """
    root = plant({"Cargo.toml": package("a", module("m", more))})

    assert _discover.find("m", root).profile == profile


@pytest.mark.parametrize(
    ("metadata", "line", "words"),
    [
        pytest.param(
            "python-module = 3",
            5,
            "`python-module` in `[package.metadata.sglang]` must be a dotted Python name, not 3",
            id="type",
        ),
        pytest.param('python-module = "a-b.c"', 5, "must be a dotted Python name", id="not a name"),
        pytest.param('python-module = "m.class"', 5, "must be a dotted Python name", id="a keyword"),
        pytest.param(
            module("m", 'features = "python"'),
            6,
            "`features` in `[package.metadata.sglang]` must be a list of strings",
            id="list",
        ),
        pytest.param(module("m", "env = [1]"), 6, "must be a list of strings", id="items"),
        pytest.param(module("m", "profile = true"), 6, "must be the name of a cargo profile", id="profile"),
        pytest.param(module("m", 'debug = "yes"'), 6, "must be true or false", id="debug"),
        pytest.param(module("m", 'source_inputs = ["x"]'), 6, "did you mean `source-inputs`?", id="near miss"),
        pytest.param('python_module = "m"', 5, "did you mean `python-module`?", id="near miss of the main key"),
    ],
)
def test_invalid_declaration_names_key_file_and_line(plant: Plant, metadata: str, line: int, words: str) -> None:
    """
    The error holds the file, the line, the key and what is expected.
    """
    root = plant({"Cargo.toml": package("a", metadata)})

    with pytest.raises(ManifestError) as caught:
        _discover.find("m", root)

    assert (caught.value.where, caught.value.line) == (str(root / "Cargo.toml"), line)
    assert words in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_unknown_key_is_ignored(plant: Plant) -> None:
    """
    Only a key that looks like a misspelling is refused.
    """
    root = plant({"Cargo.toml": package("a", module("m", "colour = 3"))})

    assert _discover.find("m", root).module == "m"


def test_duplicate_declaration_names_both_manifests(plant: Plant) -> None:
    """
    Two packages with the same module are an error; neither is used.
    """
    root = plant(
        {
            "Cargo.toml": '[workspace]\nmembers = ["a", "b"]\n',
            "a/Cargo.toml": package("a", module("m")),
            "b/Cargo.toml": package("b", module("m")),
        }
    )

    with pytest.raises(DuplicateModule) as caught:
        _discover.find("m", root)

    assert caught.value.manifests == (str(root / "a/Cargo.toml"), str(root / "b/Cargo.toml"))


def test_undeclared_module_lists_the_declared_ones(plant: Plant) -> None:
    """
    The error lists all declared modules and suggests the most similar one.
    """
    root = plant({"Cargo.toml": package("a", module("pkg._server"))})

    with pytest.raises(
        ExtensionNotFound, match=r"did you mean pkg\._server\? the declared modules are pkg\._server"
    ) as caught:
        _discover.find("pkg._sever", root)

    assert caught.value.name == "pkg._sever"


def test_workspace_can_choose_the_metadata_table(plant: Plant) -> None:
    """
    With another table, declarations in the default table are ignored.
    """
    text = '[package]\nname = "a"\n[package.metadata.mine]\npython-module = "m"\n[package.metadata.sglang]\npython-module = "n"\n'
    root = plant({"Cargo.toml": f'{text}[workspace]\n[workspace.metadata.rust-ext-loader]\nmetadata-table = "mine"\n'})

    assert _discover.find("m", root).package == "a"
    assert list(_discover.extensions(root).specs) == ["m"]
    with pytest.raises(ExtensionNotFound, match=r"the declared modules are m"):
        _discover.find("n", root)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "metadata-table = 1",
            r"`metadata-table` in `\[workspace.metadata.rust-ext-loader\]` must be the name of a table, not 1",
        ),
        ('metadata-table = ""', r"must be the name of a table, not ''"),
        ('metadata_table = "x"', r"metadata-table"),
    ],
)
def test_invalid_name_of_the_metadata_table(plant: Plant, line: str, said: str) -> None:
    """
    The error names file and key.
    """
    root = plant(
        {"Cargo.toml": f"{package('a', module('m'))}[workspace]\n[workspace.metadata.rust-ext-loader]\n{line}\n"}
    )

    with pytest.raises(ManifestError, match=said):
        _discover.find("m", root)


def test_listed_workspaces_may_list_each_other(plant: Plant) -> None:
    """
    Their extensions belong to their own workspace. A missing one is reported and does not affect the others.
    """
    listing = '[workspace.metadata.sglang]\nextension-manifests = ["{}"]\n'
    root = plant(
        {
            "one/Cargo.toml": ROOT + listing.format('../two/Cargo.toml", "../gone/Cargo.toml'),
            "one/a/Cargo.toml": package("a", module("m.a")),
            "two/Cargo.toml": ROOT + listing.format("../one/Cargo.toml"),
            "two/a/Cargo.toml": package("a", module("m.b")),
        }
    )

    declared = _discover.extensions(root / "one")

    assert {name: spec.workspace.name for name, spec in declared.specs.items()} == {"m.a": "one", "m.b": "two"}
    assert [error.where for error in declared.broken] == [str(root / "gone/Cargo.toml")]


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
    Existing ones are watched with their members, missing ones for their creation.
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
    Here the name is too long for the system; a folder without permission gives the same result.
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
    The search goes upward to a workspace root or a project that names one, else to the nearest package.
    """
    root = plant(files)
    (root / start).mkdir(parents=True, exist_ok=True)

    found = _discover.find_workspace(root / start)

    assert found == (None if expected is None else Path(os.path.normpath(root / expected)))
