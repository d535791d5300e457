"""
Unit tests of discovery: which packages are members, and which modules they declare.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import DuplicateModule, ExtensionNotFound, ManifestError
from rust_ext_loader.declare import _discover

from .declared_crates import ROOT, module, package

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[..., Path]


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
    The error names the file, the line, the key and the expected value.
    """
    root = plant({"Cargo.toml": package("a", metadata)})

    with pytest.raises(ManifestError) as caught:
        _discover.find("m", root)

    assert (caught.value.where, caught.value.line) == (str(root / "Cargo.toml"), line)
    assert words in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_unknown_key_is_ignored(plant: Plant) -> None:
    """
    An unknown key is refused only if it looks like a misspelling of a known one.
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
    If the workspace names another table, declarations in the default table are ignored.
    """
    text = (
        '[package]\nname = "a"\n[package.metadata.mine]\npython-module = "m"\n'
        '[package.metadata.sglang]\npython-module = "n"\n'
    )
    root = plant({"Cargo.toml": f'{text}[workspace]\n[workspace.metadata.rust-ext-loader]\nmetadata-table = "mine"\n'})

    assert _discover.find("m", root).package == "a"
    assert list(_discover.extensions(root).specs) == ["m"]
    with pytest.raises(ExtensionNotFound, match=r"the declared modules are m"):
        _discover.find("n", root)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "metadata-table = 1",
            r"`metadata-table` in `\[workspace.metadata.rust-ext-loader\]` must be the name of a table, not 1",
        ),
        ('metadata-table = ""', r"must be the name of a table, not ''"),
        ('metadata_table = "x"', r"metadata-table"),
    ],
)
def test_invalid_name_of_the_metadata_table(plant: Plant, line: str, message: str) -> None:
    """
    An invalid name of the metadata table is an error that names file and key.
    """
    root = plant(
        {"Cargo.toml": f"{package('a', module('m'))}[workspace]\n[workspace.metadata.rust-ext-loader]\n{line}\n"}
    )

    with pytest.raises(ManifestError, match=message):
        _discover.find("m", root)


def test_listed_workspaces_may_list_each_other(plant: Plant) -> None:
    """
    Each extension belongs to the workspace that contains it. A missing workspace is reported and affects no other.
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
