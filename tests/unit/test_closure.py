"""
Unit tests of the closure: which packages and locked packages a build can reach, and with which features of PyO3.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import LockfileMissing, LockfileOutdated, ManifestError
from rust_ext_loader.declare import _discover
from rust_ext_loader.facts import _inputs

from .small_checkout import TREE, edited, gather

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[..., Path]


CRATES = Path(__file__).parents[1] / "crates"


def test_missing_lockfile_is_an_error(plant: Plant) -> None:
    """
    Without a lockfile the versions of dependencies are undecided.
    """
    root = plant(TREE)
    (root / "Cargo.lock").unlink()

    with pytest.raises(LockfileMissing, match="cargo generate-lockfile"):
        gather(root)


@pytest.mark.parametrize(
    ("edit", "unknown"),
    [
        pytest.param(
            edited("ext/Cargo.toml", "far.workspace", "new = '1'\nfar.workspace"), "new", id="a new dependency"
        ),
        pytest.param(edited("ext/Cargo.toml", 'version = "0.1.0"', 'version = "0.2.0"'), "ext", id="a new version"),
        pytest.param(edited("Cargo.lock", 'name = "dep"', 'name = "pad"'), "dep", id="a path dependency"),
    ],
)
def test_outdated_lockfile_names_the_missing_package(plant: Plant, edit: dict[str, str], unknown: str) -> None:
    """
    The error names the package that is not in the lockfile.
    """
    root = plant({**TREE, **edit})

    with pytest.raises(LockfileOutdated) as caught:
        gather(root)

    assert caught.value.package == unknown


def test_missing_path_dependency_is_an_error(plant: Plant) -> None:
    """
    The error names the crate, the dependency and the missing folder.
    """
    root = plant(TREE)
    shutil.rmtree(root / "dep")
    spec = replace(
        _discover.find("m", plant({"Cargo.toml": TREE["Cargo.toml"].replace('"dep", ', "")})), source_inputs=()
    )

    with pytest.raises(ManifestError, match=r"dependency `dep` points to .*dep, where there is no Cargo.toml"):
        _inputs.gather(spec, _discover.read_workspace(root), ())


PYO3 = [
    pytest.param('pyo3 = { version = "1", features = ["abi3-py310"] }', "", (), {"abi3-py310"}, id="set directly"),
    pytest.param(
        'pyo3 = { version = "1", optional = true, features = ["abi3"] }', "", (), set(), id="optional and off"
    ),
    pytest.param(
        'pyo3 = { version = "1", optional = true, features = ["abi3"] }',
        'python = ["dep:pyo3"]',
        ("python",),
        {"abi3"},
        id="on",
    ),
    pytest.param(
        'pyo3 = { version = "1", optional = true, features = ["abi3"] }',
        "",
        ("pyo3",),
        {"abi3"},
        id="enabled by its implicit feature",
    ),
    pytest.param('pyo3 = "1"', 'stable = ["pyo3/abi3-py311"]', ("stable",), {"abi3-py311"}, id="forwarded"),
    pytest.param('pyo3 = "1"', 'stable = ["pyo3/abi3-py311"]', (), set(), id="forwarded by a feature that is off"),
    pytest.param('pyo3 = "1"', 'default = ["pyo3/abi3-py311"]', (), {"abi3-py311"}, id="forwarded by default"),
    pytest.param('p = { package = "pyo3", version = "1" }', 'default = ["p/abi3"]', (), {"abi3"}, id="renamed"),
    pytest.param(
        'dep = { path = "../dep" }\npyo3 = "1"',
        'default = ["dep/stable"]',
        (),
        {"abi3"},
        id="through a path dependency",
    ),
]


@pytest.mark.parametrize(("dependencies", "features", "extra", "expected"), PYO3)
def test_features_of_pyo3(
    plant: Plant, dependencies: str, features: str, extra: tuple[str, ...], expected: set[str]
) -> None:
    """
    Features are resolved as by cargo, through the packages on this disk.
    """
    manifest = '[package]\nname = "ext"\nversion = "0.1.0"\n[package.metadata.sglang]\npython-module = "m"\n'
    lock = (
        TREE["Cargo.lock"]
        + '\n        [[package]]\n        name = "pyo3"\n        version = "1.0.0"\n        source = "registry+x"\n'
    )
    root = plant(
        {
            "Cargo.toml": '[workspace]\nmembers = ["ext", "dep"]\n',
            "Cargo.lock": lock.replace('["dep", "far", "tester"]', '["dep", "pyo3"]').replace(
                'version = "0.1.0"\n\n        [[package]]\n        name = "ext"',
                'version = "0.1.0"\n        dependencies = ["pyo3"]\n\n        [[package]]\n        name = "ext"',
            ),
            "ext/Cargo.toml": f"{manifest}[dependencies]\n{dependencies}\n[features]\n{features}\n",
            "dep/Cargo.toml": (
                f'{TREE["dep/Cargo.toml"]}[dependencies]\npyo3 = "1"\n[features]\nstable = ["pyo3/abi3"]\n'
            ),
        }
    )

    assert gather(root, extra).pyo3_features == expected


FIXTURES = sorted(path.parent.name for path in CRATES.glob("*/Cargo.lock"))


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
@pytest.mark.parametrize("fixture", FIXTURES)
def test_closure_holds_every_package_of_cargo_metadata(tmp_path: Path, fixture: str) -> None:
    """
    For every extension of every fixture, the closure holds each package that cargo compiles or has locked.
    """
    workspace = tmp_path.resolve() / "crates" / fixture
    for name in {fixture, "closure-outside"}:
        shutil.copytree(CRATES / name, workspace.parent / name, ignore=shutil.ignore_patterns("target"))
    # Fixtures share the crate that replaces PyO3.
    shutil.copytree(CRATES / "plain/pymod", workspace / "pymod", dirs_exist_ok=True)
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, cwd=workspace, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    read = _discover.read_workspace(workspace)
    assert {Path(packages[name]["manifest_path"]).parent for name in metadata["workspace_members"]} == set(read.members)

    for spec in _discover.extensions(workspace).specs.values():
        inputs = _inputs.gather(spec, read, ())
        start = next(name for name, package in packages.items() if package["manifest_path"] == str(spec.manifest))
        reached = _reached(start, nodes)
        on_disk = {Path(packages[name]["manifest_path"]).parent for name in reached if packages[name]["source"] is None}
        locked = {f"resolution/lock/{packages[name]['name']} {packages[name]['version']}" for name in reached}

        assert on_disk <= {package.directory for package in inputs.packages}
        assert locked <= inputs.gathered.facts.keys()


def _reached(start: str, nodes: dict[str, dict[str, object]]) -> set[str]:
    reached, waiting = set(), [start]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            dependencies: list[dict[str, object]] = nodes[name]["deps"]  # type: ignore[assignment]
            for item in dependencies:
                kinds: list[dict[str, str]] = item["dep_kinds"]  # type: ignore[assignment]
                if any(kind["kind"] != "dev" for kind in kinds):
                    waiting.append(str(item["pkg"]))
    return reached


def test_every_kind_of_dependency_is_followed() -> None:
    """
    The list includes dependencies that cargo leaves out for this target or these features.
    """
    workspace = CRATES / "closure"
    spec = _discover.find("closure.extension", workspace)

    names = {
        package.name.removeprefix("closure-")
        for package in _inputs.gather(spec, _discover.read_workspace(workspace), ()).packages
    }

    assert names == {
        "extension",
        "normal",
        "behind-normal",
        "inherited",
        "with-a-long-name",
        "optional",
        "patched",
        "outside",
        "outside-behind",
        "for-windows",
        "for-unix-builds",
        "build",
    }
