"""
Seen inputs in cache entries, sidecars, rebuild reasons and commands.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from checkout import Checkout
from commands import CommandResult, rust_ext
from missing_path import ABSENT
from undeclared_words import value

from rust_ext_loader.cache import _bundled


def test_a_rebuild_names_the_changed_seen_input(undeclared: Checkout) -> None:
    """
    The reason names a file or a variable. The value of a variable is neither printed nor stored.
    """
    undeclared.load()
    undeclared.write("texts/outside.txt", "outside-2\n")
    assert "rebuilding fx.alpha: texts/outside.txt changed\n" in undeclared.load().stderr
    assert "rebuilding fx.alpha: FX_SEEN set\n" in undeclared.load(variables={"FX_SEEN": "secret-1"}).stderr
    assert "rebuilding fx.alpha: FX_SEEN changed\n" in undeclared.load(variables={"FX_SEEN": "secret-2"}).stderr

    metadata = [path for path in undeclared.cache.rglob("*.json") if "targets" not in path.parts]
    assert metadata
    assert not [path for path in metadata if b"secret" in path.read_bytes()]


def test_a_forced_build_replaces_the_entry_of_the_same_inputs(undeclared: Checkout) -> None:
    """
    Each set of inputs has one entry and one pointer.
    """
    undeclared.load(variables={"FX_SEEN": "1"})
    before = sorted((undeclared.cache / "artifacts").rglob("current*"))
    forced = undeclared.load(mode="force", variables={"FX_SEEN": "1"})

    assert forced.compiled == ["alpha"]
    assert sorted((undeclared.cache / "artifacts").rglob("current*")) == before
    assert undeclared.load(variables={"FX_SEEN": "1"}).file == forced.file


def test_an_entry_lists_the_facts_that_bind_it_to_its_host(undeclared: Checkout) -> None:
    """
    A variable that is set binds an entry to its host. Files relative to the workspace do not.
    """
    (old,) = (undeclared.cache / "artifacts").rglob("manifest.json")
    assert json.loads(old.read_bytes())["host_bound"] == []
    undeclared.load(variables={"FX_SCRIPT": "1"})
    (manifest,) = set((undeclared.cache / "artifacts").rglob("manifest.json")) - {old}
    fields = json.loads(manifest.read_bytes())

    assert sorted(name for name in fields["seen"] if "/file/" in name) == [
        "seen/file/../beyond.txt",
        "seen/file/alpha/README.md",
        "seen/file/proto/inner/api.proto",
        "seen/file/texts/folder",
        "seen/file/texts/helped.txt",
        "seen/file/texts/outside.txt",
    ]
    assert fields["host_bound"] == ["seen/env/FX_SCRIPT"]


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_seen_inputs_count_without_a_toolchain(undeclared: Checkout, mode: str) -> None:
    """
    Without a toolchain an entry is used only if its seen inputs are unchanged.
    """
    undeclared.environment |= {"PATH": ABSENT, "HOME": ABSENT, "CARGO_HOME": ABSENT}
    nothing = {"PATH": ABSENT}
    assert undeclared.load(mode=mode, variables=nothing).value == value()

    undeclared.write("texts/outside.txt", "outside-2\n")
    refused = undeclared.load(mode=mode, variables=nothing)
    assert refused.value is None
    assert refused.reason in ("toolchain-missing", "not-found")


def test_a_sidecar_lists_seen_inputs(undeclared: Checkout, tmp_path: Path) -> None:
    """
    A bundled library is stale if an input that its sidecar lists has changed.
    """
    stored = undeclared.stored_library()
    fields = json.loads((stored.parent / "manifest.json").read_bytes())
    folder = tmp_path / "site" / "fx"
    folder.mkdir(parents=True)
    library = folder / stored.name
    library.write_bytes(stored.read_bytes())
    _bundled.sidecar_of(library, "alpha").write_bytes(
        _bundled.sidecar("fx.alpha", library, fields["facts"], fields["seen"])
    )
    prelude = f"sys.path.append({os.fspath(tmp_path / 'site')!r})"
    assert undeclared.load(prelude=prelude).file == str(library)

    undeclared.write("texts/outside.txt", "outside-2\n")
    stale = undeclared.load(prelude=prelude)
    assert stale.value == value(outside="outside-2")
    assert "texts/outside.txt changed" in stale.warnings[0]


def test_verify_lists_undeclared_inputs(undeclared: Checkout) -> None:
    """
    `verify --inputs` lists inputs that are seen and not declared.
    """
    undeclared.replace(
        "alpha/Cargo.toml", "[lib]", 'source-inputs = ["../texts/outside.txt"]\nenv = ["FX_SEEN"]\n\n[lib]'
    )
    undeclared.environment["FX_SCRIPT"] = "1"
    assert rust_ext(undeclared, "verify", "--inputs") == CommandResult(1, "fx.alpha: not cached\n", "")
    assert undeclared.load().error is None

    result = rust_ext(undeclared, "verify", "--inputs", raw=True)
    assert result.code == 0
    assert result.out.splitlines()[1:] == [
        "  undeclared file ../beyond.txt",
        "  undeclared file alpha/README.md",
        "  undeclared file proto/inner/api.proto",
        "  undeclared file texts/folder",
        "  undeclared file texts/helped.txt",
        "  undeclared variable FX_SCRIPT (binds the entry to this host)",
        "  undeclared variable FX_HELPER (not set)",
    ]
    (row,) = json.loads(rust_ext(undeclared, "verify", "--inputs", "--json", raw=True).out)["modules"].values()
    assert row["undeclared"][0] == {"kind": "file", "name": "../beyond.txt", "host_bound": False, "set": True}

    library = Path(row["library"])
    library.write_bytes(library.read_bytes()[:-1] + b"?")
    assert rust_ext(undeclared, "verify") == CommandResult(1, "fx.alpha: not cached\n", "")


def test_a_copy_of_the_fixture_hits(undeclared: Checkout) -> None:
    """
    A copy of the fixture is served from the cache without a compiler.
    """
    loaded = undeclared.load()
    assert (loaded.value, loaded.error, loaded.cargo) == (value(), None, ())
