"""
Unusable toolchains: cached modules load, and the error of a build says what to do.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from missing_path import ABSENT
from processes import script, tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"
PROBE_LIMIT = {"RUST_EXT_PROBE_TIMEOUT": "0.5"}
INSTALL = "install Rust (https://rustup.rs) or put it on PATH"
CARGO = "echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'"


@dataclass(frozen=True)
class Unusable:
    """
    A toolchain that is not usable.
    """

    problem: str
    #: Part of the error, with the advice.
    message: str
    #: Shell code of the programs on PATH.
    tools: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: `{folder}` is replaced by an empty folder.
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Programs of this machine that are put on PATH.
    real: tuple[str, ...] = ()

    def apply(self, checkout: Checkout) -> None:
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


def print_error(text: str) -> str:
    return f"printf '%s\\n' \"{text}\" >&2; exit 1"


DROP = "(RUSTUP_TOOLCHAIN, a rust-toolchain file, an override)"
NO_DEFAULT = (
    "error: rustup could not choose a version of cargo to run, because one wasn't specified explicitly, "
    "and no default is configured.\n"
    "help: run 'rustup default stable' to download the latest stable release of Rust "
    "and set it as your default toolchain."
)
NOT_INSTALLED = (
    "error: toolchain '1.80.0-x86_64-unknown-linux-gnu' is not installed\n"
    "help: run \\`rustup toolchain install\\` to install it"
)
OLD = "rustc 1.84.1 (e71f9a9a9 2025-01-27)\nhost: x86_64-unknown-linux-gnu\nrelease: 1.84.1"

UNUSABLE = [
    pytest.param(Unusable("missing", f"`cargo` is not usable: it is not on PATH; {INSTALL}"), id="no cargo"),
    pytest.param(
        Unusable("missing", f"`rustc` is not usable: it is not on PATH; {INSTALL}", {"cargo": CARGO}), id="no rustc"
    ),
    pytest.param(
        Unusable(
            "missing",
            f"`{ABSENT}/rustc` is not usable: there is no such file; ",
            {"cargo": CARGO},
            {"RUSTC": f"{ABSENT}/rustc"},
        ),
        id="RUSTC names a missing file",
    ),
    pytest.param(
        Unusable(
            "no-default",
            "rustup could not choose a version of cargo to run",
            {"cargo": print_error(NO_DEFAULT), "rustc": print_error(NO_DEFAULT)},
        ),
        id="no default toolchain",
    ),
    pytest.param(
        Unusable(
            "not-installed",
            "`cargo` is not usable: toolchain '1.80.0-x86_64-unknown-linux-gnu' is not installed; "
            f"install that toolchain (`rustup toolchain install NAME`), or remove the setting that selects it {DROP}",
            {"cargo": print_error(NOT_INSTALLED), "rustc": print_error(NOT_INSTALLED)},
        ),
        id="pinned toolchain not installed",
    ),
    pytest.param(
        Unusable(
            "too-old",
            "`rustc` is not usable: rustc 1.84.1 is older than 1.85, which the crate requires; run `rustup update`, ",
            {"cargo": CARGO, "rustc": f"echo '{OLD}'"},
        ),
        id="compiler too old",
    ),
    pytest.param(
        Unusable(
            "no-answer",
            "`rustc` is not usable: it did not answer within 0.5 s; run `rustc -vV` to see why it hangs, "
            "or raise RUST_EXT_PROBE_TIMEOUT (seconds) if it is only slow",
            {"cargo": CARGO, "rustc": "exec /bin/sleep 600"},
            PROBE_LIMIT,
        ),
        id="compiler hangs",
    ),
    pytest.param(
        Unusable(
            "broken",
            "`rustc` is not usable: cannot open shared object; run `rustc -vV` to see its error",
            {"cargo": CARGO, "rustc": print_error("cannot open shared object")},
        ),
        id="compiler broken",
    ),
    pytest.param(
        Unusable(
            "no-default",
            "; run `rustup default stable`",
            variables={"RUSTUP_HOME": "{folder}"},
            real=("cargo", "rustc"),
        ),
        id="the real rustup without a default",
    ),
    pytest.param(
        Unusable(
            "not-installed", "toolchain '1.0.1-", variables={"RUSTUP_TOOLCHAIN": "1.0.1"}, real=("cargo", "rustc")
        ),
        id="the real rustup with a missing pinned toolchain",
    ),
]


@pytest.mark.parametrize("unusable", UNUSABLE)
def test_an_unusable_toolchain(stored: Checkout, unusable: Unusable) -> None:
    """
    A cached module loads without a message. A build fails with the problem, the advice and the reason for the build.
    """
    unusable.apply(stored)
    found = stored.load()
    assert (found.value, found.error, found.warnings) == (ALPHA, None, ())

    stored.replace("alpha/src/part.rs", "part-1", "part-2")
    refused = {mode: stored.load(mode=mode, prelude=_ASK_PROBLEM) for mode in ("auto", "force")}

    for mode, why in (("auto", " (not built here yet)"), ("force", "")):
        assert (refused[mode].reason, refused[mode].value) == ("toolchain-missing", None)
        assert str(refused[mode].error).startswith(f"{unusable.problem}: fx.alpha must be built{why}, but `")
        assert unusable.message in str(refused[mode].error)
        assert str(refused[mode].error).endswith(", or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never")
    never = stored.load(mode="never")
    assert (never.reason, never.spawned) == ("not-found", ())
    assert stored.cargo_calls() == []


_ASK_PROBLEM = """
from rust_ext_loader._errors import ToolchainMissing
plainly = ToolchainMissing.__str__
ToolchainMissing.__str__ = lambda error: f"{error.problem}: {plainly(error)}"
"""
