"""
No toolchain, or none that is usable: what was built is loaded all the same, and every answer says what is wrong and how to mend it.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import check_out
from commands import Said, rust_ext
from hooked import SETTLED, Editable
from processes import script, tool

from rust_ext_loader.cache import _store
from rust_ext_loader.facts._fingerprint import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"
PROBE_LIMIT = {"RUST_EXT_PROBE_TIMEOUT": "0.5"}
INSTALL = "install Rust (https://rustup.rs) or put it on PATH"
CARGO = "echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'"


@pytest.fixture(scope="module")
def _stored_once(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = check_out("plain", tmp_path_factory.mktemp("once"))
    checkout.replace("alpha/Cargo.toml", 'edition = "2024"', 'edition = "2024"\nrust-version = "1.85"')
    assert checkout.load().error is None
    return checkout


@pytest.fixture
def stored(_stored_once: Checkout, tmp_path: Path) -> Checkout:
    """
    A checkout whose `fx.alpha` needs Rust 1.85 and was built elsewhere, with an empty PATH.
    """
    copy = dataclasses.replace(_stored_once, root=tmp_path / "plain", cache=tmp_path / "cache", environment={})
    shutil.copytree(_stored_once.root, copy.root)
    shutil.copytree(_stored_once.cache, copy.cache, ignore=shutil.ignore_patterns("targets", "records", "checkouts"))
    copy.install_tools()
    (tmp_path / "empty").mkdir()
    copy.environment["PATH"] = str(tmp_path / "empty")
    return copy


# Every way to be unusable.


@dataclass(frozen=True)
class Wrong:
    """
    What a machine's toolchain is like.
    """

    problem: str
    #: What the error says of it, remedy included.
    said: str
    #: Programs on PATH, by their shell code.
    tools: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: `{folder}` is an empty one.
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Programs of this machine that are on PATH.
    real: tuple[str, ...] = ()

    def befall(self, checkout: Checkout) -> None:
        folder = checkout.cache.parent / "empty"
        for name, body in self.tools.items():
            script(folder / name, body)
        for name in self.real:
            (folder / name).symlink_to(tool(name) or pytest.skip(f"no {name} here"))
        if self.real:
            tool("rustup") or pytest.skip("no rustup here")
        empty = checkout.cache.parent / "rustup"
        empty.mkdir()
        checkout.environment.update({name: value.format(folder=empty) for name, value in self.variables.items()})


def words(text: str) -> str:
    return f"printf '%s\\n' \"{text}\" >&2; exit 1"


DROP = "(RUSTUP_TOOLCHAIN, a rust-toolchain file, an override)"
NO_DEFAULT = (
    "error: rustup could not choose a version of cargo to run, because one wasn't specified explicitly, and no default is configured.\n"
    "help: run 'rustup default stable' to download the latest stable release of Rust and set it as your default toolchain."
)
ABSENT = "error: toolchain '1.80.0-x86_64-unknown-linux-gnu' is not installed\nhelp: run \\`rustup toolchain install\\` to install it"
OLD = "rustc 1.84.1 (e71f9a9a9 2025-01-27)\nhost: x86_64-unknown-linux-gnu\nrelease: 1.84.1"

WRONG = [
    pytest.param(Wrong("missing", f"`cargo` is not usable: it is not on PATH; {INSTALL}"), id="no cargo"),
    pytest.param(
        Wrong("missing", f"`rustc` is not usable: it is not on PATH; {INSTALL}", {"cargo": CARGO}), id="no rustc"
    ),
    pytest.param(
        Wrong(
            "missing",
            "`/nonexistent/rustc` is not usable: there is no such file; ",
            {"cargo": CARGO},
            {"RUSTC": "/nonexistent/rustc"},
        ),
        id="RUSTC leads nowhere",
    ),
    pytest.param(
        Wrong(
            "no-default",
            "rustup could not choose a version of cargo to run",
            {"cargo": words(NO_DEFAULT), "rustc": words(NO_DEFAULT)},
        ),
        id="no default toolchain",
    ),
    pytest.param(
        Wrong(
            "not-installed",
            "`cargo` is not usable: toolchain '1.80.0-x86_64-unknown-linux-gnu' is not installed; "
            f"install the toolchain that is asked for (`rustup toolchain install NAME`), or drop what asks for it {DROP}",
            {"cargo": words(ABSENT), "rustc": words(ABSENT)},
        ),
        id="pinned toolchain absent",
    ),
    pytest.param(
        Wrong(
            "too-old",
            "`rustc` is not usable: rustc 1.84.1 is older than 1.85, which the crate asks for; run `rustup update`, or drop what ",
            {"cargo": CARGO, "rustc": f"echo '{OLD}'"},
        ),
        id="compiler too old",
    ),
    pytest.param(
        Wrong(
            "no-answer",
            "`rustc` is not usable: it did not answer within 0.5 s; run `rustc -vV` to see what holds it, "
            "or raise RUST_EXT_PROBE_TIMEOUT (seconds) if it is merely slow",
            {"cargo": CARGO, "rustc": "exec /bin/sleep 600"},
            PROBE_LIMIT,
        ),
        id="compiler hangs",
    ),
    pytest.param(
        Wrong(
            "broken",
            "`rustc` is not usable: cannot open shared object; run `rustc -vV` to see what it says",
            {"cargo": CARGO, "rustc": words("cannot open shared object")},
        ),
        id="compiler broken",
    ),
    pytest.param(
        Wrong(
            "no-default",
            "; run `rustup default stable`",
            variables={"RUSTUP_HOME": "{folder}"},
            real=("cargo", "rustc"),
        ),
        id="the real rustup without a default",
    ),
    pytest.param(
        Wrong("not-installed", "toolchain '1.0.1-", variables={"RUSTUP_TOOLCHAIN": "1.0.1"}, real=("cargo", "rustc")),
        id="the real rustup, pinned to what is absent",
    ),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_toolchain_that_is_not_usable(stored: Checkout, wrong: Wrong) -> None:
    """
    What is stored is loaded without a word. What must be built is refused: what is wrong, how to mend it, and why it must be built.
    """
    wrong.befall(stored)
    found = stored.load()
    assert (found.value, found.error, found.warnings) == (ALPHA, None, ())

    stored.replace("alpha/src/part.rs", "part-1", "part-2")
    refused = {mode: stored.load(mode=mode, prelude=_ASK_PROBLEM) for mode in ("auto", "force")}

    for mode, why in (("auto", " (not built here yet)"), ("force", "")):
        assert (refused[mode].reason, refused[mode].value) == ("toolchain-missing", None)
        assert str(refused[mode].error).startswith(f"{wrong.problem}: fx.alpha must be built{why}, but `")
        assert wrong.said in str(refused[mode].error)
        assert str(refused[mode].error).endswith(", or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never")
    never = stored.load(mode="never")
    assert (never.reason, never.spawned) == ("not-found", ())
    assert stored.cargo_calls() == []


_ASK_PROBLEM = """
from rust_ext_loader._errors import ToolchainMissing
plainly = ToolchainMissing.__str__
ToolchainMissing.__str__ = lambda error: f"{error.problem}: {plainly(error)}"
"""


# Which of the stored builds will do.


def store(checkout: Checkout, began: float, changed: Mapping[str, str], glibc: tuple[int, int] | None = None) -> Path:
    """
    Put a further entry into the cache: the same library, by other facts.
    """
    origin = _store.Origin("", "", glibc, began, 1.0, None)
    library = checkout.stored()
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
def test_the_newest_entry_that_is_equal_in_all_but_the_toolchain(
    stored: Checkout, further: Callable[[Checkout], object], taken: str, mode: str
) -> None:
    """
    It is current, so neither `CI=true` nor `SGLANG_RUST_STALE=error` has anything against it, and nothing is warned of.
    """
    first, release = stored.stored(), stored.stored_facts()["toolchain/rustc"]
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
def test_an_entry_that_differs_in_more_is_none(stored: Checkout, changed: dict[str, str]) -> None:
    """
    Without a toolchain nothing else is overlooked.
    """
    library = stored.stored()
    store(stored, 2e9, changed)
    shutil.rmtree(library.parents[1])

    assert stored.load().reason == "toolchain-missing"
    assert stored.load(mode="never").reason == "not-found"


# The warm path.

IMPORT = "import fx.alpha; print(fx.alpha.value, fx.alpha.__file__)"


def put_tools(checkout: Checkout) -> None:
    for name in ("cargo", "rustc"):
        (checkout.cache.parent / "empty" / name).symlink_to(str(tool(name)))


def edit(checkout: Checkout) -> None:
    checkout.replace("alpha/src/part.rs", "part-1", "part-2")


@pytest.mark.parametrize(
    ("happens", "then"),
    [
        pytest.param(put_tools, "asked", id="a toolchain appears"),
        pytest.param(lambda checkout: store(checkout, 2e9, by("1.96.0")), "newer", id="a newer build appears"),
        pytest.param(edit, "refused", id="a source is edited"),
    ],
)
def test_the_shortcut_holds_while_nothing_happens(
    stored: Checkout, happens: Callable[[Checkout], object], then: str
) -> None:
    """
    Without a toolchain the second import is as cheap as with one, until a toolchain, a newer build or an edit is there.
    """
    editable = Editable(stored)
    expected = f"{ALPHA} {stored.stored()}"
    first, warm = editable.run(f"{SETTLED}\n{IMPORT}"), editable.run(IMPORT)
    assert (first.out, warm.out) == (expected, expected)
    assert "hashlib" in first.imported
    assert "hashlib" not in warm.imported
    assert (first.spawned, warm.spawned, warm.stderr) == ((), (), "")

    happens(stored)
    after = editable.run(IMPORT)

    assert "hashlib" in after.imported
    if then == "refused":
        assert after.types[0] == "ToolchainMissing"
        assert "fx.alpha must be built (not built here yet), but" in after.error
    else:
        assert after.out.startswith(f"{ALPHA} ")
        assert (after.out == expected) == (then == "asked")
        assert bool(after.spawned) == (then == "asked")


def test_a_miss_says_what_moved(stored: Checkout) -> None:
    """
    A checkout that had used the module while it had a toolchain still knows what moved since.
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
    pytest.param(("list",), Said(0, "fx.alpha  alpha  -  alpha\nfx.beta  beta  loud  beta\n", ""), id="list"),
    pytest.param(
        ("status",),
        Said(
            1,
            f"fx.alpha  cached      built from these sources, by rustc [version]\nfx.beta   missing     not built here yet; {NO_CARGO}\n",
            "",
        ),
        id="status",
    ),
    pytest.param(
        ("explain", "fx.alpha"),
        Said(0, "fx.alpha: not built here yet\n", f"note: the toolchain is left out: {NO_CARGO}\n"),
        id="explain",
    ),
    pytest.param(
        ("key",),
        Said(
            0, "fx.alpha  [key]  -\nfx.beta  [key]  -\n", f"note: no build key, which needs a toolchain: {NO_CARGO}\n"
        ),
        id="key",
    ),
    pytest.param(
        ("key", "--format", "github"),
        Said(0, "source_key=[key]\n", f"note: no build key, which needs a toolchain: {NO_CARGO}\n"),
        id="key for GitHub",
    ),
    pytest.param(
        ("build", "fx.alpha"),
        Said(0, "fx.alpha  [cache]/artifacts/fx.alpha/[...]/alpha.[suffix]\n", ""),
        id="build what is there",
    ),
    pytest.param(
        ("build", "fx.beta"),
        Said(
            1,
            "",
            f"error: fx.beta must be built (not built here yet), but {NO_CARGO}, "
            "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never\n",
        ),
        id="build what is not",
    ),
]


@pytest.mark.parametrize(("arguments", "said"), COMMANDS)
def test_commands_answer_without_a_toolchain(stored: Checkout, arguments: tuple[str, ...], said: Said) -> None:
    """
    Each says all that can be told, and why the rest cannot.
    """
    release = stored.stored_facts()["toolchain/rustc"]

    assert rust_ext(stored, *arguments) == dataclasses.replace(said, out=said.out.replace("[version]", release))


def test_keys_without_a_toolchain(stored: Checkout) -> None:
    """
    The source keys are those that a machine with a toolchain prints; the build key is null.
    """
    told = {}
    for name, variables in (
        ("without", {}),
        ("with", {"PATH": f"{stored.tools}:{Path(str(tool('rustc'))).parent}:/usr/bin:/bin"}),
    ):
        said = rust_ext(stored, "key", "--format", "json", variables=variables, plainly=True)
        told[name] = json.loads(said.out)["modules"]

    assert {pair["build_key"] for pair in told["without"].values()} == {None}
    assert all(len(pair["build_key"]) == 64 for pair in told["with"].values())
    assert {name: pair["source_key"] for name, pair in told["without"].items()} == {
        name: pair["source_key"] for name, pair in told["with"].items()
    }


def test_explain_without_a_toolchain(stored: Checkout) -> None:
    """
    What moved among the rest is told, and the toolchain's facts do not pass for removed.
    """
    offline = stored.environment.pop("PATH")
    stored.load()
    edit(stored)
    stored.environment["PATH"] = offline
    story = json.loads(rust_ext(stored, "explain", "--json", "fx.alpha").out)

    assert [change["fact"] for change in story["changes"]] == ["source/alpha/src/part.rs"]
    assert story["used_before"] is True
    assert story["toolchain_missing"] == NO_CARGO


def test_status_knows_what_is_gone_from_the_cache(stored: Checkout) -> None:
    """
    Nothing moved, and yet nothing is there.
    """
    with_tools = stored.environment.pop("PATH")
    stored.load()
    stored.environment["PATH"] = with_tools
    shutil.rmtree(stored.cache / "artifacts")

    assert (
        rust_ext(stored, "status", "fx.alpha").out
        == f"fx.alpha  stale       its stored build is gone or damaged; {NO_CARGO}\n"
    )
