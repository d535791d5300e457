"""
Which crates real loads find, and which error a faulty crate causes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import ROOT, Checkout

from rust_ext_loader.declare import _discover

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHA = "alpha-1 part-1 middle-1"
BETA = "BETA-1"


def test_the_workspaces_own_crates_are_found() -> None:
    """
    The extensions of this repository are found with their crates and features. Nothing is built.
    """
    declared = _discover.extensions(ROOT / "rust")
    found = {
        module: (spec.package, spec.library, spec.features, spec.profile) for module, spec in declared.specs.items()
    }

    assert found == {
        "sglang.srt.rust_extensions._multimodal": ("sglang-mm", "sglang_mm_core", ("python", "parallel"), "release"),
        "sglang.srt.rust_extensions._radix_tree": ("sglang-radix-tree", "sglang_radix_tree", ("python",), "release"),
        "sglang.srt.rust_extensions._server": ("sglang-server", "sglang_server", ("python",), "release"),
    }
    assert (declared.broken, dict(declared.duplicates)) == ((), {})


def test_two_crates_that_declare_one_module_are_both_named(built: Checkout) -> None:
    """
    The doubly declared module fails with an error that names both manifests. Other modules load.
    """
    built.write(
        "gamma/Cargo.toml", (built.root / "alpha/Cargo.toml").read_text().replace('name = "alpha"', 'name = "gamma"')
    )
    built.write("gamma/src/lib.rs", "")
    built.replace("Cargo.toml", '"beta"', '"beta", "gamma"')
    loaded = built.load()

    assert loaded.types[:3] == ("DuplicateModule", "RustExtensionError", "ImportError")
    assert loaded.error == (
        f"fx.alpha is declared by {built.root}/alpha/Cargo.toml and by {built.root}/gamma/Cargo.toml; keep one "
        "`python-module` line"
    )
    assert built.load("fx.beta").value == BETA


def test_an_undeclared_name_lists_the_declared_ones(built: Checkout) -> None:
    """
    The error lists the declared names and suggests the nearest one. It is a `ModuleNotFoundError`.
    """
    loaded = built.load("fx.alpah")

    assert loaded.types[:2] == ("ExtensionNotFound", "RustExtensionError")
    assert "ModuleNotFoundError" in loaded.types
    assert loaded.error == (
        f"no Rust extension fx.alpah: no crate of {built.root} declares it; "
        "did you mean fx.alpha? the declared modules are fx.alpha, fx.beta"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param('[package]\nname = "beta\n', "line 2", id="not TOML"),
        pytest.param(
            '[package]\nname = "beta"\n\n[package.metadata.sglang]\npython-module = "fx.beta"\nfeatures = 7\n',
            "line 6: `features` in `[package.metadata.sglang]` must be a list of strings, not 7",
            id="a value of the wrong type",
        ),
        pytest.param(
            '[package]\nname = "beta"\n\n[package.metadata.sglang]\npython-module = "fx beta"\n',
            "line 5: `python-module` in `[package.metadata.sglang]` must be a dotted Python name, not 'fx beta'",
            id="an invalid Python name",
        ),
        pytest.param(
            '[package]\nname = "beta"\n\n[package.metadata.sglang]\npython-module = "fx.beta"\nfeature = ["loud"]\n',
            "line 6: `feature` in `[package.metadata.sglang]` is unknown; did you mean `features`?",
            id="a typo in a key",
        ),
    ],
)
def test_a_broken_member_does_not_affect_others(built: Checkout, text: str, message: str) -> None:
    """
    Other modules load from the cache. A load of the broken one names file, line and reason.
    """
    built.write("beta/Cargo.toml", text)
    good, broken = built.load(), built.load("fx.beta")

    assert (good.value, good.cargo) == (ALPHA, ())
    assert broken.types[:3] == ("ManifestError", "RustExtensionError", "ImportError")
    assert str(broken.error).startswith(f"{built.root}/beta/Cargo.toml, ")
    assert message in str(broken.error)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("target/package/alpha-0.1.0", id="in target"),
        pytest.param("vendor/alpha", id="vendored"),
        pytest.param("alpha/tests/fixtures/broken", id="a fixture"),
        pytest.param("excluded", id="excluded"),
    ],
)
@pytest.mark.parametrize("kind", ["broken", "declaring"])
def test_manifests_of_other_packages_are_ignored(built: Checkout, name: str, kind: str) -> None:
    """
    A manifest outside the workspace's members is not read, even if it is broken or declares the same module.
    """
    if kind == "broken":
        built.write(f"{name}/Cargo.toml", "[package\n")
    else:
        shutil.copytree(built.root / "beta", built.root / name)
    built.replace("Cargo.toml", "[workspace]", '[workspace]\nexclude = ["excluded"]')
    declared = _discover.extensions(built.root)

    assert sorted(declared.specs) == ["fx.alpha", "fx.beta"]
    assert (declared.broken, dict(declared.duplicates)) == ((), {})
    assert built.load("fx.beta").value == BETA


def test_a_missing_lockfile_is_an_error(built: Checkout) -> None:
    """
    Without `Cargo.lock` the error says how to create it.
    """
    (built.root / "Cargo.lock").unlink()
    loaded = built.load()

    assert loaded.reason == "lockfile-missing"
    assert (
        loaded.error
        == f"{built.root}/Cargo.lock does not exist; run `cargo generate-lockfile` beside it and commit the file"
    )


def test_an_outdated_lockfile_is_an_error(built: Checkout) -> None:
    """
    If the lockfile lacks a dependency, the error names the package, and cargo is not run.
    """
    built.replace("alpha/Cargo.toml", "[dependencies]", '[dependencies]\nitoa = "1"')
    loaded = built.load()

    assert loaded.reason == "lockfile-outdated"
    assert "Cargo.lock does not contain package `itoa`" in str(loaded.error)
    assert loaded.cargo == ()


def test_a_library_without_the_init_function_is_not_stored(plain: Checkout) -> None:
    """
    A library without `PyInit_<leaf>` is refused before it is stored. The error names the function that it exports.
    """
    plain.replace("alpha/src/lib.rs", "PyInit_alpha", "PyInit_omega")
    loaded = plain.load()

    assert loaded.types[:3] == ("InvalidArtifact", "RustExtensionError", "ImportError")
    assert "does not export PyInit_alpha, it exports PyInit_omega; rename the `#[pymodule]` to `alpha`" in str(
        loaded.error
    )
    assert not list(plain.cache.rglob("manifest.json"))

    plain.replace("alpha/src/lib.rs", "PyInit_omega", "PyInit_alpha")
    assert plain.load().value == ALPHA


def test_a_library_may_have_its_default_name(plain: Checkout) -> None:
    """
    Without `lib.name` the library has the package's name with underscores, and is found under it.
    """
    plain.replace("beta/Cargo.toml", 'name = "beta"', 'name = "beta-max"')
    plain.replace("beta/Cargo.toml", 'name = "beta_native"\n', "")
    plain.replace("Cargo.lock", 'name = "beta"', 'name = "beta-max"')

    assert _discover.find("fx.beta", plain.root).library == "beta_max"
    assert plain.load("fx.beta").value == BETA


def test_a_second_workspace_may_be_listed(plain: Checkout, tmp_path: Path) -> None:
    """
    Extensions of a workspace listed in `extension-manifests` are found, and are built in their own workspace.
    """
    other = plain.root / "further"
    shutil.copytree(plain.root, tmp_path / "copy")
    (tmp_path / "copy").rename(other)
    for name, crate in (("gamma", "alpha"), ("delta", "beta")):
        plain.replace(f"further/{crate}/Cargo.toml", f"fx.{crate}", f"fx.{name}")
    plain.replace("further/beta/src/lib.rs", "PyInit_beta", "PyInit_delta")
    plain.replace(
        "Cargo.toml",
        "[workspace]",
        '[workspace]\nexclude = ["further"]\nmetadata.sglang.extension-manifests = ["further"]',
    )

    assert sorted(_discover.extensions(plain.root).specs) == ["fx.alpha", "fx.beta", "fx.delta", "fx.gamma"]
    assert plain.load("fx.delta").value == BETA


def lone(checkout: Checkout) -> Path:
    """
    A package beside the workspace that is no member of it, with a path dependency into it.
    """
    folder = checkout.root.parent / "lone"
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "lone"\nversion = "0.1.0"\nedition = "2024"\n\n'
        '[package.metadata.sglang]\npython-module = "fx.lone"\n\n[lib]\ncrate-type = ["cdylib"]\n\n'
        '[dependencies]\npymod = { path = "../plain/pymod" }\nmiddle = { path = "../plain/middle" }\n'
    )
    (folder / "src" / "lib.rs").write_text('pymod::module!(PyInit_lone, "lone", middle::WORD.to_owned());\n')
    (folder / "Cargo.lock").write_text(
        'version = 4\n\n[[package]]\nname = "lone"\nversion = "0.1.0"\ndependencies = ["middle", "pymod"]\n\n'
        '[[package]]\nname = "middle"\nversion = "0.1.0"\n\n[[package]]\nname = "pymod"\nversion = "0.1.0"\n'
    )
    return folder


def test_a_package_may_be_its_own_workspace(plain: Checkout) -> None:
    """
    A single crate is found in its folder. Its path dependencies outside the folder count as inputs.
    """
    folder = str(lone(plain))
    first = plain.load("fx.lone", workspace=folder)
    hit = plain.load("fx.lone", workspace=folder)
    plain.replace("middle/src/lib.rs", "middle-1", "middle-2", older=3600)
    edited = plain.load("fx.lone", workspace=folder)

    assert [first.value, hit.value, edited.value] == ["middle-1", "middle-1", "middle-2"]
    assert [first.compiled, hit.compiled, edited.compiled] == [["lone"], [], ["lone"]]


@pytest.mark.parametrize(
    "spell",
    [
        pytest.param(lambda root: str(root / "Cargo.toml"), id="its manifest"),
        pytest.param(lambda root: str(root / "alpha"), id="a member's folder"),
        pytest.param(lambda root: f"{root}/alpha/../", id="a path with dots"),
    ],
)
def test_a_workspace_may_be_given_in_several_ways(built: Checkout, spell: Callable[[Path], str]) -> None:
    """
    A manifest, a member's folder or a path with dots name the same workspace, and its entries are found.
    """
    loaded = built.load(workspace=spell(built.root))

    assert (loaded.value, loaded.cargo) == (ALPHA, ())
