"""
A workspace of three crates, and the inputs that are gathered from it.
"""

from __future__ import annotations

from pathlib import Path

from rust_ext_loader.declare import _discover
from rust_ext_loader.facts import _inputs

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


def edited(name: str, old: str, new: str) -> dict[str, str]:
    assert old in TREE[name]
    return {name: TREE[name].replace(old, new)}
