"""
Unit tests of the inputs: which parts of a checkout decide about a build.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import LockfileMissing, LockfileOutdated, ManifestError
from rust_ext_loader.declare import _discover
from rust_ext_loader.facts import _inputs
from rust_ext_loader.facts._fingerprint import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[..., Path]

CRATES = Path(__file__).parents[1] / "crates"

TREE = {
    "Cargo.toml": """
        [workspace]
        members = ["ext", "dep", "other"]

        [workspace.dependencies]
        far = "1"
        dep = { path = "dep" }

        [profile.release]
        opt-level = 2

        [profile.dist]
        inherits = "release"
    """,
    "Cargo.lock": """
        version = 4
        [[package]]
        name = "dep"
        version = "0.1.0"

        [[package]]
        name = "ext"
        version = "0.1.0"
        dependencies = ["dep", "far", "tester"]

        [[package]]
        name = "far"
        version = "1.0.0"
        source = "registry+https://example.org/index"
        checksum = "aa"
        dependencies = ["farther"]

        [[package]]
        name = "farther"
        version = "2.0.0"
        source = "registry+https://example.org/index"
        checksum = "bb"

        [[package]]
        name = "other"
        version = "0.1.0"
        dependencies = ["unrelated"]

        [[package]]
        name = "tester"
        version = "1.0.0"
        source = "registry+https://example.org/index"
        checksum = "cc"

        [[package]]
        name = "unrelated"
        version = "1.0.0"
        source = "registry+https://example.org/index"
        checksum = "dd"
    """,
    "ext/Cargo.toml": """
        [package]
        name = "ext"
        version = "0.1.0"
        edition = "2021"

        [package.metadata.sglang]
        python-module = "m"
        source-inputs = ["../proto", "../schema/*.json", "../later.txt"]
        exclude = ["assets/**", "src/*.bak"]

        [dependencies]
        dep.workspace = true
        far.workspace = true

        [dev-dependencies]
        tester = "1"
    """,
    "ext/src/lib.rs": "mod env;",
    "ext/src/env/mod.rs": "",
    "ext/assets/big.bin": "x",
    "dep/Cargo.toml": '[package]\nname = "dep"\nversion = "0.1.0"\n',
    "dep/src/lib.rs": "",
    "other/Cargo.toml": '[package]\nname = "other"\nversion = "0.1.0"\n[dependencies]\nunrelated = "1"\n',
    "other/src/lib.rs": "",
    "proto/a.proto": "",
    "schema/a.json": "",
}


def gather(root: Path, features: tuple[str, ...] = ()) -> _inputs.Inputs:
    spec = _discover.find("m", root)
    return _inputs.gather(spec, _discover.read_workspace(root), features)


def facts(root: Path) -> dict[str, str]:
    return dict(gather(root).gathered.facts)


def moved(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def edited(name: str, old: str, new: str) -> dict[str, str]:
    assert old in TREE[name]
    return {name: TREE[name].replace(old, new)}


DIFFERS = [
    pytest.param({"ext/src/lib.rs": "// x"}, {"source/ext/src/lib.rs"}, id="the crate's source"),
    pytest.param({"ext/src/target/mod.rs": ""}, {"source/ext/src/target/mod.rs"}, id="a module folder named target"),
    pytest.param({"ext/src/env/mod.rs": "// x"}, {"source/ext/src/env/mod.rs"}, id="a module folder named env"),
    pytest.param({"ext/venv/a.rs": ""}, {"source/ext/venv/a.rs"}, id="a folder named venv"),
    pytest.param({"ext/src/doc.md": ""}, {"source/ext/src/doc.md"}, id="a Markdown file below the root"),
    pytest.param({"ext/build.rs": ""}, {"source/ext/build.rs"}, id="a build script"),
    pytest.param({"dep/src/lib.rs": "// x"}, {"source/dep/src/lib.rs"}, id="an inherited path dependency"),
    pytest.param({"proto/b.proto": ""}, {"source/proto/b.proto"}, id="a declared folder gains a file"),
    pytest.param({"schema/b.json": ""}, {"source/schema/b.json"}, id="a declared glob gains a file"),
    pytest.param({"later.txt": ""}, {"source/later.txt"}, id="a declared file appears"),
    pytest.param(
        edited("Cargo.lock", 'checksum = "bb"', 'checksum = "be"'),
        {"resolution/lock/farther 2.0.0"},
        id="a reachable locked package",
    ),
    pytest.param(
        edited("Cargo.toml", 'far = "1"', 'far = "1.0"'), {"resolution/manifest/ext"}, id="an inherited requirement"
    ),
    pytest.param(
        edited("Cargo.toml", "opt-level = 2", "opt-level = 3"), {"resolution/profile/release"}, id="the profile"
    ),
    pytest.param(
        edited("Cargo.toml", 'members = ["ext"', 'resolver = "2"\nmembers = ["ext"'),
        {"resolution/resolver"},
        id="the resolver",
    ),
    pytest.param(
        edited(
            "Cargo.toml", "[profile.release]", '[patch.crates-io]\nfarther = { git = "https://x" }\n[profile.release]'
        ),
        {"resolution/patch"},
        id="a patch in force",
    ),
    pytest.param(
        edited("ext/Cargo.toml", 'edition = "2021"', 'edition = "2024"'), {"resolution/manifest/ext"}, id="the manifest"
    ),
    pytest.param(
        edited("ext/Cargo.toml", 'python-module = "m"', 'python-module = "m"\nfeatures = ["f"]'),
        {"request/features"},
        id="the features",
    ),
    pytest.param(
        edited("ext/Cargo.toml", 'python-module = "m"', 'python-module = "m"\nprofile = "dev"'),
        {"request/profile", "resolution/profile/release"},
        id="the choice of profile",
    ),
    pytest.param(
        edited("ext/Cargo.toml", 'python-module = "m"', 'python-module = "m"\nkey-on = ["pytest"]'),
        {"request/key-on/pytest"},
        id="a distribution in key-on",
    ),
]


@pytest.mark.parametrize(("edit", "expected"), DIFFERS)
def test_relevant_change_changes_one_fact(plant: Plant, edit: dict[str, str], expected: set[str]) -> None:
    """
    Each edit changes exactly the listed facts.
    """
    root = plant(TREE)
    before = facts(root)
    plant(edit)

    assert moved(before, facts(root)) == expected


SAME = [
    pytest.param(edited("Cargo.toml", "[workspace]", "# a comment\n[workspace]"), id="a comment in the root manifest"),
    pytest.param(edited("Cargo.lock", "version = 4", "# a comment\nversion = 4"), id="a comment in the lockfile"),
    pytest.param(
        edited("ext/Cargo.toml", "[dev-dependencies]", "# x\n[dev-dependencies]"), id="a comment in the manifest"
    ),
    pytest.param(
        edited("ext/Cargo.toml", "[dev-dependencies]", "[[bench]]\nname = 'b'\n[dev-dependencies]"), id="a benchmark"
    ),
    pytest.param(
        edited("ext/Cargo.toml", "[dev-dependencies]", "[package.metadata.x]\ny = 1\n[dev-dependencies]"),
        id="metadata of another tool",
    ),
    pytest.param(edited("Cargo.lock", 'checksum = "dd"', 'checksum = "de"'), id="a locked package of another crate"),
    pytest.param(edited("Cargo.lock", 'checksum = "cc"', 'checksum = "ce"'), id="a locked package of tests"),
    pytest.param(
        edited(
            "Cargo.toml", "[profile.release]", '[patch.crates-io]\nunrelated = { git = "https://x" }\n[profile.release]'
        ),
        id="a patch of a package that is not used",
    ),
    pytest.param(edited("Cargo.toml", "[profile.dist]", "[profile.dist]\nlto = true"), id="another profile"),
    pytest.param({"ext/README.md": "x", "ext/CHANGES.md": "x"}, id="Markdown files in the crate's root"),
    pytest.param(
        {"ext/tests/a.rs": "", "ext/benches/a.rs": "", "ext/examples/a.rs": "", "ext/target/x": ""},
        id="tests and build output",
    ),
    pytest.param({"ext/src/a.py": "", "ext/src/a.pyi": "", "ext/src/__pycache__/a.pyc": ""}, id="Python files"),
    pytest.param({"ext/_x.abi3.so": "", "ext/x.pyd": "", "ext/x.dylib": ""}, id="built libraries"),
    pytest.param(
        {"ext/src/.lib.rs.swp": "", "ext/src/lib.rs~": "", "ext/src/#lib.rs#": "", "ext/.idea/x": ""},
        id="files of editors",
    ),
    pytest.param({"ext/.coverage": "", "ext/default.profraw": ""}, id="coverage output"),
    pytest.param({"ext/.git/HEAD": "", ".git/HEAD": ""}, id="version control"),
    pytest.param({"ext/assets/more/y.bin": "", "ext/src/old.bak": ""}, id="files that the crate excludes"),
    pytest.param({"ext/nested/Cargo.toml": "broken", "ext/nested/x.rs": ""}, id="a nested package"),
    pytest.param({"other/src/lib.rs": "// x"}, id="an unrelated crate"),
    pytest.param({"ext/.cargo/config.toml": "", "ext/rust-toolchain": ""}, id="files that other modules read"),
]


@pytest.mark.parametrize("edit", SAME)
def test_irrelevant_change_changes_no_fact(plant: Plant, edit: dict[str, str]) -> None:
    """
    Such an edit does not cause a rebuild.
    """
    root = plant(TREE)
    before = facts(root)
    plant(edit)

    assert moved(before, facts(root)) == set()


def test_deleted_and_older_files_change_facts(plant: Plant) -> None:
    """
    Content decides; timestamps do not.
    """
    root = plant(TREE)
    before = facts(root)
    (root / "ext/src/env/mod.rs").unlink()
    (root / "ext/src/lib.rs").write_text("mod vne;")
    os.utime(root / "ext/src/lib.rs", (1, 1))

    assert moved(before, facts(root)) == {"source/ext/src/env/mod.rs", "source/ext/src/lib.rs"}


def test_copied_checkout_has_the_same_facts(plant: Plant, tmp_path: Path) -> None:
    """
    Neither the folder nor timestamps are facts.
    """
    root = plant(TREE)
    (root / "ext/src/absolute.txt").symlink_to(root / "proto/a.proto")
    copy = tmp_path / "else where"
    shutil.copytree(root, copy, symlinks=True)
    (copy / "ext/src/absolute.txt").unlink()
    (copy / "ext/src/absolute.txt").symlink_to(copy / "proto/a.proto")

    assert facts(copy) == facts(root)
    assert not any(str(tmp_path) in text for fact in facts(root).items() for text in fact)


def test_extra_features_are_facts(plant: Plant) -> None:
    """
    They are added to the declared features, and their order does not count.
    """
    root = plant(TREE)

    assert gather(root, ("b", "a")).gathered.facts["request/features"] == "a,b"
    assert gather(root, ("b", "a")).gathered.facts == gather(root, ("a", "b", "a")).gathered.facts


def test_links_count_by_target_and_content(plant: Plant) -> None:
    """
    A loop of links ends.
    """
    root = plant({**TREE, "shared/x/data.txt": "1"})
    (root / "ext/src/one.txt").symlink_to("../../shared/x/data.txt")
    (root / "ext/src/folder").symlink_to("../../shared/x")
    (root / "ext/src/loop").symlink_to("..")
    (root / "ext/src/nowhere").symlink_to("gone")
    before = facts(root)
    plant({"shared/x/data.txt": "2"})

    assert moved(before, facts(root)) == {"source/ext/src/one.txt", "source/ext/src/folder/data.txt"}
    assert before["source/ext/src/loop"] == "folder -> .."
    assert before["source/ext/src/nowhere"] == "nothing -> gone"

    (root / "ext/src/one.txt").unlink()
    (root / "ext/src/one.txt").symlink_to("folder/data.txt")

    assert "source/ext/src/one.txt" in moved({**before, **facts(root)}, before)


def test_dangling_link_is_watched_through_its_target(plant: Plant) -> None:
    """
    The link itself exists, so it is not absent; a record that requires its absence would never be valid.
    """
    root = plant(TREE)
    (root / "ext/src/nowhere").symlink_to("gone")
    (root / "later.txt").symlink_to("much-later.txt")

    watched = gather(root).gathered.watched

    assert {path for path in watched.absent if os.path.dirname(path) in (str(root / "ext/src"), str(root))} == {
        str(root / "ext/src/gone"),
        str(root / "much-later.txt"),
    }
    assert str(root) in watched.present


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipe_is_skipped(plant: Plant) -> None:
    """
    Opening a pipe would block.
    """
    root = plant(TREE)
    before = facts(root)
    os.mkfifo(root / "ext/src/pipe")
    (root / "ext/src/link").symlink_to("pipe")

    assert moved(before, facts(root)) == set()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_file_name_that_is_not_utf8(plant: Plant) -> None:
    """
    Facts and keys can hold such a name.
    """
    root = plant(TREE)
    with open(os.fsencode(root / "ext/src") + b"/\xff.txt", "w") as file:
        file.write("x")

    found = facts(root)

    assert "source/ext/src/\udcff.txt" in found
    assert len(Fingerprint(found).source_key) == 64


def test_all_inputs_are_watched(plant: Plant) -> None:
    """
    Files, folders that could get a new file, manifests, the lockfile, and missing paths are watched.
    """
    root = plant(TREE)

    watched = gather(root).gathered.watched

    expected = [
        "Cargo.toml",
        "Cargo.lock",
        "ext/Cargo.toml",
        "dep/Cargo.toml",
        "ext",
        "ext/src",
        "ext/src/lib.rs",
        "proto",
        "schema",
    ]
    assert {str(root / name) for name in expected} <= watched.present
    assert watched.absent == {str(root / "later.txt")}
    assert all(os.path.lexists(path) for path in watched.present)


def test_package_digest_depends_on_its_own_files_only(plant: Plant) -> None:
    """
    So cargo is told exactly which packages to recompile, independent of timestamps.
    """
    root = plant(TREE)
    before = {package.name: package.digest for package in gather(root).packages}
    plant({"dep/Cargo.toml": TREE["dep/Cargo.toml"] + "# a comment\n"})
    after = {package.name: package.digest for package in gather(root).packages}

    assert list(before) == ["ext", "dep"]
    assert {name for name in before if before[name] != after[name]} == {"dep"}


def test_key_on_version_changes_only_the_digest_of_its_crate(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Cargo does not know Python distributions, so only the digest makes it recompile for another version.
    """
    root = plant({**TREE, **edited("ext/Cargo.toml", "exclude = ", 'key-on = ["pytest"]\nexclude = ')})
    found = []
    for version in ("1.0", "1.0", "2.0"):
        monkeypatch.setattr(importlib.metadata, "version", lambda _, version=version: version)
        found.append({package.name: package.digest for package in gather(root).packages})

    assert found[0] == found[1]
    assert {name for name in found[0] if found[0][name] != found[2][name]} == {"ext"}


def test_manifests_of_all_members_are_watched(plant: Plant) -> None:
    """
    A member that this crate does not use may declare the same module.
    """
    root = plant(TREE)

    assert str(root / "other/Cargo.toml") in gather(root).gathered.watched.present


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
    Cargo's feature resolution is followed through the packages on this disk.
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
            "dep/Cargo.toml": f'{TREE["dep/Cargo.toml"]}[dependencies]\npyo3 = "1"\n[features]\nstable = ["pyo3/abi3"]\n',
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
    The list includes packages that cargo leaves out for this target or these features.
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


def test_each_file_is_read_once(plant: Plant) -> None:
    """
    For 300 files there is one open per file and one scan per folder.
    """
    root = plant({**TREE, **{f"ext/src/f{index // 50}/m{index}.rs": f"// {index}" for index in range(300)}})
    gather(root)
    opened: list[str] = []
    recording = True
    sys.addaudithook(
        lambda event, args: opened.append(str(args[0])) if recording and event in ("open", "os.scandir") else None
    )

    gather(root)
    recording = False

    assert sum(name.endswith(".rs") for name in opened) == 303
    assert len([name for name in opened if name.startswith(str(root))]) < 303 + 30
