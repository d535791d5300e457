"""
Unit tests of the inputs: which parts of a checkout determine a build.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader.facts._fingerprint import Fingerprint

from .small_checkout import TREE, edited, facts, gather

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[..., Path]


def changed_facts(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


RELEVANT = [
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


@pytest.mark.parametrize(("edit", "expected"), RELEVANT)
def test_relevant_change_changes_exactly_the_listed_facts(
    plant: Plant, edit: dict[str, str], expected: set[str]
) -> None:
    """
    An edit that affects the build changes at least one fact, and `expected` lists all of them.
    """
    root = plant(TREE)
    before = facts(root)
    plant(edit)

    assert changed_facts(before, facts(root)) == expected


IRRELEVANT = [
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


@pytest.mark.parametrize("edit", IRRELEVANT)
def test_irrelevant_change_changes_no_fact(plant: Plant, edit: dict[str, str]) -> None:
    """
    An irrelevant edit does not cause a rebuild.
    """
    root = plant(TREE)
    before = facts(root)
    plant(edit)

    assert changed_facts(before, facts(root)) == set()


def test_deleted_and_older_files_change_facts(plant: Plant) -> None:
    """
    The facts depend on the content of files and not on timestamps.
    """
    root = plant(TREE)
    before = facts(root)
    (root / "ext/src/env/mod.rs").unlink()
    (root / "ext/src/lib.rs").write_text("mod vne;")
    os.utime(root / "ext/src/lib.rs", (1, 1))

    assert changed_facts(before, facts(root)) == {"source/ext/src/env/mod.rs", "source/ext/src/lib.rs"}


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
    Extra features are added to the declared ones. Their order is irrelevant.
    """
    root = plant(TREE)

    assert gather(root, ("b", "a")).gathered.facts["request/features"] == "a,b"
    assert gather(root, ("b", "a")).gathered.facts == gather(root, ("a", "b", "a")).gathered.facts


def test_links_count_by_target_and_content(plant: Plant) -> None:
    """
    A link counts by its target and by the content there. Links that form a loop are not followed forever.
    """
    root = plant({**TREE, "shared/x/data.txt": "1"})
    (root / "ext/src/one.txt").symlink_to("../../shared/x/data.txt")
    (root / "ext/src/folder").symlink_to("../../shared/x")
    (root / "ext/src/loop").symlink_to("..")
    (root / "ext/src/nowhere").symlink_to("gone")
    before = facts(root)
    plant({"shared/x/data.txt": "2"})

    assert changed_facts(before, facts(root)) == {"source/ext/src/one.txt", "source/ext/src/folder/data.txt"}
    assert before["source/ext/src/loop"] == "folder -> .."
    assert before["source/ext/src/nowhere"] == "nothing -> gone"

    (root / "ext/src/one.txt").unlink()
    (root / "ext/src/one.txt").symlink_to("folder/data.txt")

    assert "source/ext/src/one.txt" in changed_facts({**before, **facts(root)}, before)


def test_dangling_link_is_watched_through_its_target(plant: Plant) -> None:
    """
    The link itself exists. A record that requires its absence would never be valid.
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

    assert changed_facts(before, facts(root)) == set()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_file_name_that_is_not_utf8(plant: Plant) -> None:
    """
    A file name that is not UTF-8 can be part of facts and keys.
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
    The digests determine exactly which packages cargo must recompile, independent of timestamps.
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
