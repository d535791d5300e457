"""
Without a toolchain: cached modules load, and every command prints what is known and what is missing.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from changes import hit
from commands import CommandResult, rust_ext
from editable_install import RECORD_AT_ONCE, Editable
from missing_path import ABSENT
from processes import tool

from rust_ext_loader.cache import _store
from rust_ext_loader.facts._fingerprint import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"


INSTALL = "install Rust (https://rustup.rs) or put it on PATH"


# Which cached entry is used.


def store(checkout: Checkout, began: float, changed: Mapping[str, str], glibc: tuple[int, int] | None = None) -> Path:
    """
    Add an entry to the cache: the same library with other facts.
    """
    origin = _store.Origin("", "", glibc, began, 1.0, None)
    library = checkout.stored_library()
    fingerprint = Fingerprint({**checkout.stored_facts(), **changed})
    return _store.publish(checkout.cache, "fx.alpha", fingerprint, library, library.name, origin).library


def by(release: str) -> dict[str, str]:
    return {"toolchain/rustc": release}


def newest_damaged(checkout: Checkout) -> None:
    store(checkout, 2e9, by("1.99.0")).write_bytes(b"damaged")


@pytest.mark.parametrize(
    ("further", "taken"),
    [
        pytest.param(
            lambda checkout: store(checkout, 2e9, by("1.96.0")), "1.96.0", id="a newer build by another compiler"
        ),
        pytest.param(
            lambda checkout: store(checkout, 1.0, by("1.96.0")), "as stored", id="an older build by another compiler"
        ),
        pytest.param(newest_damaged, "as stored", id="a newer build that is damaged"),
        pytest.param(
            lambda checkout: store(checkout, 2e9, by("1.96.0"), (9, 9)),
            "as stored",
            id="a newer build for a newer libc",
        ),
        pytest.param(
            lambda checkout: store(checkout, 2e9, {"flags/env/CC": "clang"}),
            "as stored",
            id="a newer build with other flags",
        ),
        pytest.param(
            lambda checkout: store(checkout, 2e9, {"abi/tag": "cp27"}),
            "as stored",
            id="a newer build for another Python",
        ),
        pytest.param(
            lambda checkout: store(checkout, 2e9, {"cpu/features": "avx9"}),
            "as stored",
            id="a newer build for another CPU",
        ),
        pytest.param(
            lambda checkout: store(checkout, 2e9, {"source/alpha/x": "y"}),
            "as stored",
            id="a newer build of other sources",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "never"])
def test_the_newest_entry_that_differs_only_in_the_toolchain_is_used(
    stored: Checkout, further: Callable[[Checkout], object], taken: str, mode: str
) -> None:
    """
    An entry that differs only in the toolchain is current.

    It loads without a warning, even with `CI=true` and `SGLANG_RUST_STALE=error`.
    """
    first, release = stored.stored_library(), stored.stored_facts()["toolchain/rustc"]
    further(stored)
    loaded = stored.load(mode=mode, variables={"CI": "true", "SGLANG_RUST_STALE": "error"})

    assert (loaded.value, loaded.error, loaded.warnings, loaded.spawned) == (ALPHA, None, (), ())
    manifest = json.loads((Path(str(loaded.file)).parent / "manifest.json").read_bytes())
    assert (loaded.file == str(first)) == (taken == "as stored")
    assert manifest["facts"]["toolchain/rustc"] == (release if taken == "as stored" else taken)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"flags/env/CC": "clang"}, id="other flags"),
        pytest.param({"abi/tag": "cp27"}, id="another Python"),
        pytest.param({"cpu/features": "avx9"}, id="another CPU"),
        pytest.param({"request/env/RUSTFLAGS": "-Ctarget-cpu=native"}, id="other rustflags"),
    ],
)
def test_an_entry_that_differs_in_other_facts_is_not_used(stored: Checkout, changed: dict[str, str]) -> None:
    """
    Only differences in the toolchain are ignored.
    """
    library = stored.stored_library()
    store(stored, 2e9, changed)
    shutil.rmtree(library.parents[1])

    assert stored.load().reason == "toolchain-missing"
    assert stored.load(mode="never").reason == "not-found"


def test_a_cached_entry_needs_no_cargo(built: Checkout) -> None:
    """
    With an empty PATH a cached module loads and starts no process.
    """
    loaded = built.load(variables={"PATH": ABSENT})

    hit(loaded, ALPHA)
    assert loaded.spawned == ()


def test_a_missing_module_without_cargo_is_one_error(plain: Checkout) -> None:
    """
    A module that is not built fails without cargo, with an `ImportError` that says what to do.
    """
    loaded = plain.load(variables={"PATH": ABSENT})

    assert loaded.types[:3] == ("ToolchainMissing", "RustExtensionError", "ImportError")
    assert loaded.error == (
        "fx.alpha must be built (not built here yet), but `cargo` is not usable: "
        "it is not on PATH; install Rust (https://rustup.rs) or put it on PATH, "
        "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never"
    )


# The warm path.

IMPORT = "import fx.alpha; print(fx.alpha.value, fx.alpha.__file__)"


def put_tools(checkout: Checkout) -> None:
    for name in ("cargo", "rustc"):
        (checkout.cache.parent / "empty" / name).symlink_to(str(tool(name)))


def edit(checkout: Checkout) -> None:
    checkout.replace("alpha/src/part.rs", "part-1", "part-2")


@pytest.mark.parametrize(
    ("change", "then"),
    [
        pytest.param(put_tools, "same", id="a toolchain appears"),
        pytest.param(lambda checkout: store(checkout, 2e9, by("1.96.0")), "newer", id="a newer build appears"),
        pytest.param(edit, "refused", id="a source is edited"),
    ],
)
def test_a_record_is_used_until_something_changes(
    stored: Checkout, change: Callable[[Checkout], object], then: str
) -> None:
    """
    Without a toolchain the second import is warm until a toolchain, a newer build or an edit appears.
    """
    editable = Editable(stored)
    expected = f"{ALPHA} {stored.stored_library()}"
    first, warm = editable.run(f"{RECORD_AT_ONCE}\n{IMPORT}"), editable.run(IMPORT)
    assert (first.out, warm.out) == (expected, expected)
    assert "hashlib" in first.imported
    assert "hashlib" not in warm.imported
    assert (first.spawned, warm.spawned, warm.stderr) == ((), (), "")

    change(stored)
    after = editable.run(IMPORT)

    assert "hashlib" in after.imported
    if then == "refused":
        assert after.types[0] == "ToolchainMissing"
        assert "fx.alpha must be built (not built here yet), but" in after.error
    else:
        assert after.out.startswith(f"{ALPHA} ")
        assert (after.out == expected) == (then == "same")
        assert bool(after.spawned) == (then == "same")


def test_an_error_names_the_changed_facts(stored: Checkout) -> None:
    """
    After the module was used with a toolchain, the error names the facts that changed since then.
    """
    offline = stored.environment.pop("PATH")
    assert stored.load().cargo == ()
    edit(stored)
    missed = stored.load(variables={"PATH": offline})

    assert str(missed.error).startswith(
        "fx.alpha must be built (alpha/src/part.rs changed), but `cargo` is not usable: "
    )


# Commands.

NO_CARGO = f"`cargo` is not usable: it is not on PATH; {INSTALL}"

COMMANDS = [
    pytest.param(("list",), CommandResult(0, "fx.alpha  alpha  -  alpha\nfx.beta  beta  loud  beta\n", ""), id="list"),
    pytest.param(
        ("status",),
        CommandResult(
            1,
            "fx.alpha  cached      built from these sources, by rustc [version]\n"
            f"fx.beta   missing     not built here yet; {NO_CARGO}\n",
            "",
        ),
        id="status",
    ),
    pytest.param(
        ("explain", "fx.alpha"),
        CommandResult(0, "fx.alpha: not built here yet\n", f"note: toolchain facts are not compared: {NO_CARGO}\n"),
        id="explain",
    ),
    pytest.param(
        ("key",),
        CommandResult(
            0,
            "fx.alpha  [key]  -\nfx.beta  [key]  -\n",
            f"note: no build key, because it needs a toolchain: {NO_CARGO}\n",
        ),
        id="key",
    ),
    pytest.param(
        ("key", "--format", "github"),
        CommandResult(0, "source_key=[key]\n", f"note: no build key, because it needs a toolchain: {NO_CARGO}\n"),
        id="key for GitHub",
    ),
    pytest.param(
        ("build", "fx.alpha"),
        CommandResult(0, "fx.alpha  [cache]/artifacts/fx.alpha/[...]/alpha.[suffix]\n", ""),
        id="build of a cached module",
    ),
    pytest.param(
        ("build", "fx.beta"),
        CommandResult(
            1,
            "",
            f"error: fx.beta must be built (not built here yet), but {NO_CARGO}, "
            "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never\n",
        ),
        id="build of a missing module",
    ),
]


@pytest.mark.parametrize(("arguments", "expected"), COMMANDS)
def test_commands_answer_without_a_toolchain(
    stored: Checkout, arguments: tuple[str, ...], expected: CommandResult
) -> None:
    """
    Each command prints what is known and says what the missing toolchain prevents.
    """
    release = stored.stored_facts()["toolchain/rustc"]

    assert rust_ext(stored, *arguments) == dataclasses.replace(expected, out=expected.out.replace("[version]", release))


def test_keys_without_a_toolchain(stored: Checkout) -> None:
    """
    The source keys equal those of a machine with a toolchain. The build keys are null.
    """
    keys = {}
    for name, variables in (
        ("without", {}),
        ("with", {"PATH": f"{stored.tools}:{Path(str(tool('rustc'))).parent}:/usr/bin:/bin"}),
    ):
        result = rust_ext(stored, "key", "--format", "json", variables=variables, raw=True)
        keys[name] = json.loads(result.out)["modules"]

    assert {pair["build_key"] for pair in keys["without"].values()} == {None}
    assert all(len(pair["build_key"]) == 64 for pair in keys["with"].values())
    assert {name: pair["source_key"] for name, pair in keys["without"].items()} == {
        name: pair["source_key"] for name, pair in keys["with"].items()
    }


def test_explain_without_a_toolchain(stored: Checkout) -> None:
    """
    `explain` names changed facts and does not report the toolchain's facts as removed.
    """
    offline = stored.environment.pop("PATH")
    stored.load()
    edit(stored)
    stored.environment["PATH"] = offline
    story = json.loads(rust_ext(stored, "explain", "--json", "fx.alpha").out)

    assert [change["fact"] for change in story["changes"]] == ["source/alpha/src/part.rs"]
    assert story["used_before"] is True
    assert story["toolchain_missing"] == NO_CARGO


def test_status_reports_an_entry_missing_from_the_cache(stored: Checkout) -> None:
    """
    No fact changed, but the entry was removed.
    """
    with_tools = stored.environment.pop("PATH")
    stored.load()
    stored.environment["PATH"] = with_tools
    shutil.rmtree(stored.cache / "artifacts")

    assert (
        rust_ext(stored, "status", "fx.alpha").out
        == f"fx.alpha  stale       its stored build is gone or damaged; {NO_CARGO}\n"
    )
