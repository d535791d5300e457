"""
The table of situations and modes: where a module comes from, or what is said instead.

Each row prepares a situation, asks `can_load` and loads, in one new process. The
verdict must have told the truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from situations import (
    ASK,
    BARE,
    BUILT,
    BUNDLED,
    CACHED,
    FAILED,
    LEFT_ASIDE,
    NO_CARGO,
    STALE_PART,
    USED,
    Came,
    Refused,
    as_it_is,
    broken_and_reverted_flags,
    bundled_bare,
    bundled_by_another_compiler,
    bundled_for_another_python,
    bundled_right,
    bundled_stale,
    bundled_unloadable,
    continuous_integration,
    forged,
    no_toolchain,
    no_wheel,
    nothing_stored,
    nowhere_to_note,
    refuse,
    syntax_error,
    told,
    truncated,
    warn_all_the_same,
    wheel,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from checkout import Checkout


def row(
    name: str,
    *situation: Callable[[Checkout], object],
    auto: Came | Refused,
    never: Came | Refused,
    force: Came | Refused,
) -> list[object]:
    outcomes = {"auto": auto, "never": never, "force": force}
    return [pytest.param(situation, mode, outcome, id=f"{name}: {mode}") for mode, outcome in outcomes.items()]


CHECKOUT = [
    *row("bundled and right", bundled_right, auto=BUNDLED, never=BUNDLED, force=BUILT),
    *row("bundled and right, nothing stored", bundled_right, nothing_stored, auto=BUNDLED, never=BUNDLED, force=BUILT),
    *row(
        "bundled and right, no toolchain",
        bundled_right,
        nothing_stored,
        no_toolchain,
        auto=BUNDLED,
        never=BUNDLED,
        force=NO_CARGO,
    ),
    *row(
        "bundled and right, nowhere to note it, no toolchain",
        bundled_right,
        nowhere_to_note,
        no_toolchain,
        auto=BUNDLED,
        never=BUNDLED,
        force=NO_CARGO,
    ),
    *row(
        "bundled by another compiler",
        bundled_by_another_compiler,
        nothing_stored,
        auto=BUNDLED,
        never=BUNDLED,
        force=BUILT,
    ),
    *row(
        "bundled stale, stored",
        bundled_stale,
        auto=Came("cached", (*LEFT_ASIDE, STALE_PART)),
        never=Came("bundled", ("is used all the same, since the mode is `never`", STALE_PART)),
        force=BUILT,
    ),
    *row(
        "bundled stale, nothing stored",
        bundled_stale,
        nothing_stored,
        auto=Came("built", (*LEFT_ASIDE, STALE_PART)),
        never=Came("bundled", ("is used all the same, since the mode is `never`", STALE_PART)),
        force=BUILT,
    ),
    *row(
        "bundled for another Python",
        bundled_for_another_python,
        auto=Came("cached", (*LEFT_ASIDE, "abi tag 'cpython-2.7' -> ")),
        never=Came("bundled", ("abi tag 'cpython-2.7' -> ",)),
        force=BUILT,
    ),
    *row(
        "bundled without sidecar",
        bundled_bare,
        auto=Came("cached", (*LEFT_ASIDE, BARE)),
        never=Came("bundled", ("is used all the same, since the mode is `never`", BARE)),
        force=BUILT,
    ),
    *row(
        "bundled stale, no toolchain, stored",
        bundled_stale,
        no_toolchain,
        auto=CACHED,
        never=Came("bundled", (STALE_PART,)),
        force=NO_CARGO,
    ),
    *row(
        "bundled stale, no toolchain, nothing stored",
        bundled_stale,
        nothing_stored,
        no_toolchain,
        auto=Came("bundled", (USED, STALE_PART)),
        never=Came("bundled", (STALE_PART,)),
        force=NO_CARGO,
    ),
    *row(
        "bundled bare, no toolchain, nothing stored, CI",
        bundled_bare,
        nothing_stored,
        no_toolchain,
        continuous_integration,
        auto=Refused("StaleExtension", ("was built from something else", BARE, "SGLANG_RUST_STALE=warn")),
        never=Came("bundled", (BARE,)),
        force=NO_CARGO,
    ),
    *row(
        "the same, but a warning will do",
        bundled_bare,
        nothing_stored,
        no_toolchain,
        continuous_integration,
        warn_all_the_same,
        auto=Came("bundled", (USED, BARE)),
        never=Came("bundled", (BARE,)),
        force=NO_CARGO,
    ),
    *row(
        "the same outside CI, but refused",
        bundled_bare,
        nothing_stored,
        no_toolchain,
        refuse,
        auto=Refused("StaleExtension", (BARE,)),
        never=Came("bundled", (BARE,)),
        force=NO_CARGO,
    ),
    *row("nothing bundled, stored", as_it_is, auto=CACHED, never=CACHED, force=BUILT),
    *row("nothing bundled, stored, no toolchain", no_toolchain, auto=CACHED, never=CACHED, force=NO_CARGO),
    *row(
        "nothing bundled, nothing stored",
        nothing_stored,
        auto=BUILT,
        never=Refused(
            "ExtensionNotFound", ("SGLANG_RUST_BUILD_MODE=never forbids building it", "rust-ext build fx.alpha")
        ),
        force=BUILT,
    ),
    *row(
        "nothing bundled, stored for other flags",
        broken_and_reverted_flags,
        auto=BUILT,
        never=Refused("ExtensionNotFound", ("SGLANG_RUST_BUILD_MODE=never forbids building it",)),
        force=BUILT,
    ),
    *row(
        "nothing bundled, stored and torn",
        truncated,
        auto=BUILT,
        never=Refused("ExtensionNotFound", ("its cached copy was damaged",)),
        force=BUILT,
    ),
    *row(
        "stored and will not load",
        forged,
        auto=Came("built", ("cannot be loaded", "built anew")),
        never=Refused("ImportError", ("file too short",)),
        force=BUILT,
    ),
    *row(
        "bundled and will not load",
        bundled_unloadable,
        auto=Refused("ImportError", ("file too short",)),
        never=Refused("ImportError", ("file too short",)),
        force=BUILT,
    ),
    *row(
        "the build fails",
        syntax_error,
        auto=FAILED,
        never=Refused("ExtensionNotFound", ("SGLANG_RUST_BUILD_MODE=never forbids building it",)),
        force=FAILED,
    ),
]

INSTALLED = [
    *row(
        "installed wheel",
        wheel,
        auto=BUNDLED,
        never=BUNDLED,
        force=Refused(
            "ExtensionNotFound", ("mode `force` builds from source, and no workspace is known", "workspace=")
        ),
    ),
    *row(
        "nothing installed",
        no_wheel,
        auto=Refused(
            "ExtensionNotFound", ("no Rust extension fx.alpha: it is not installed, and no workspace is known",)
        ),
        never=Refused(
            "ExtensionNotFound",
            ("it is not installed, and no workspace is known that declares it; pass `workspace=`, or ",),
        ),
        force=Refused("ExtensionNotFound", ("no workspace is known that declares it",)),
    ),
]


@pytest.mark.parametrize(("situation", "mode", "outcome"), CHECKOUT)
def test_in_a_checkout(
    built: Checkout, situation: tuple[Callable[[Checkout], object], ...], mode: str, outcome: Came | Refused
) -> None:
    """
    Where sources are at hand.
    """
    for prepare in situation:
        prepare(built)
    stored = sorted((built.cache / "artifacts" / "fx.alpha").rglob("*.so"))
    loaded = built.load(mode=mode, prelude=ASK)

    outcome.check(loaded, built, stored[0] if stored else None)
    if mode == "never" or outcome == BUNDLED:
        assert loaded.spawned == ()
    ready, may_build = told(loaded)
    if loaded.compiled:
        assert may_build or outcome.warned if isinstance(outcome, Came) else may_build
    elif isinstance(outcome, Came):
        assert ready
    elif outcome.kind != "ImportError":
        assert not ready


@pytest.mark.parametrize(("situation", "mode", "outcome"), INSTALLED)
def test_where_no_sources_are(
    built: Checkout, situation: tuple[Callable[[Checkout], object], ...], mode: str, outcome: Came | Refused
) -> None:
    """
    An installed wheel is loaded as it is: no workspace, no process, no cache is touched.
    """
    for prepare in situation:
        prepare(built)
    loaded = built.load(mode=mode, workspace=None, prelude=ASK)

    outcome.check(loaded, built, None)
    assert told(loaded) == (isinstance(outcome, Came), False)
    assert loaded.spawned == ()
    assert not built.cache.exists()
