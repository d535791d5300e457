"""
The table of situations and modes: where a module comes from, or which error is raised.

Each row prepares a situation, then calls `can_load` and loads in one new process. The
verdict must match the load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from situations import (
    BUILT,
    BUNDLED,
    CACHED,
    FAILED,
    IGNORED_WARNING,
    NO_CARGO,
    NO_SIDECAR,
    PRINT_VERDICT,
    STALE_REASON,
    USED_WARNING,
    Fails,
    Loads,
    bundled_by_another_compiler,
    bundled_current,
    bundled_for_another_python,
    bundled_stale,
    bundled_unloadable,
    bundled_without_sidecar,
    continuous_integration,
    no_cache_possible,
    no_toolchain,
    nothing_installed,
    nothing_stored,
    other_flags,
    readiness,
    stale_setting_error,
    stale_setting_warn,
    syntax_error,
    truncated,
    unchanged,
    unloadable_entry,
    wheel,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from checkout import Checkout


def row(
    name: str,
    *situation: Callable[[Checkout], object],
    auto: Loads | Fails,
    never: Loads | Fails,
    force: Loads | Fails,
) -> list[object]:
    outcomes = {"auto": auto, "never": never, "force": force}
    return [pytest.param(situation, mode, outcome, id=f"{name}: {mode}") for mode, outcome in outcomes.items()]


CHECKOUT = [
    *row("bundled and current", bundled_current, auto=BUNDLED, never=BUNDLED, force=BUILT),
    *row("bundled and current, not cached", bundled_current, nothing_stored, auto=BUNDLED, never=BUNDLED, force=BUILT),
    *row(
        "bundled and current, no toolchain",
        bundled_current,
        nothing_stored,
        no_toolchain,
        auto=BUNDLED,
        never=BUNDLED,
        force=NO_CARGO,
    ),
    *row(
        "bundled and current, no cache possible, no toolchain",
        bundled_current,
        no_cache_possible,
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
        "bundled stale, cached",
        bundled_stale,
        auto=Loads("cached", (*IGNORED_WARNING, STALE_REASON)),
        never=Loads("cached", (*IGNORED_WARNING, STALE_REASON)),
        force=BUILT,
    ),
    *row(
        "bundled stale, not cached",
        bundled_stale,
        nothing_stored,
        auto=Loads("built", (*IGNORED_WARNING, STALE_REASON)),
        never=Loads("bundled", ("and is used anyway, since the mode is `never`", STALE_REASON)),
        force=BUILT,
    ),
    *row(
        "bundled for another Python",
        bundled_for_another_python,
        auto=Loads("cached", (*IGNORED_WARNING, "abi tag 'cpython-2.7' -> ")),
        never=Loads("cached", (*IGNORED_WARNING, "abi tag 'cpython-2.7' -> ")),
        force=BUILT,
    ),
    *row(
        "bundled without sidecar",
        bundled_without_sidecar,
        auto=Loads("cached", (*IGNORED_WARNING, NO_SIDECAR)),
        never=Loads("cached", (*IGNORED_WARNING, NO_SIDECAR)),
        force=BUILT,
    ),
    *row(
        "bundled stale, no toolchain, cached",
        bundled_stale,
        no_toolchain,
        auto=Loads("cached", (*IGNORED_WARNING, STALE_REASON)),
        never=Loads("cached", (*IGNORED_WARNING, STALE_REASON)),
        force=NO_CARGO,
    ),
    *row(
        "bundled stale, no toolchain, not cached",
        bundled_stale,
        nothing_stored,
        no_toolchain,
        auto=Loads("bundled", (USED_WARNING, STALE_REASON)),
        never=Loads("bundled", (STALE_REASON,)),
        force=NO_CARGO,
    ),
    *row(
        "bundled without sidecar, no toolchain, not cached, CI",
        bundled_without_sidecar,
        nothing_stored,
        no_toolchain,
        continuous_integration,
        auto=Fails("StaleExtension", ("is stale (", NO_SIDECAR, "SGLANG_RUST_STALE=warn")),
        never=Loads("bundled", (NO_SIDECAR,)),
        force=NO_CARGO,
    ),
    *row(
        "the same with SGLANG_RUST_STALE=warn",
        bundled_without_sidecar,
        nothing_stored,
        no_toolchain,
        continuous_integration,
        stale_setting_warn,
        auto=Loads("bundled", (USED_WARNING, NO_SIDECAR)),
        never=Loads("bundled", (NO_SIDECAR,)),
        force=NO_CARGO,
    ),
    *row(
        "the same outside CI with SGLANG_RUST_STALE=error",
        bundled_without_sidecar,
        nothing_stored,
        no_toolchain,
        stale_setting_error,
        auto=Fails("StaleExtension", (NO_SIDECAR,)),
        never=Loads("bundled", (NO_SIDECAR,)),
        force=NO_CARGO,
    ),
    *row("nothing bundled, cached", unchanged, auto=CACHED, never=CACHED, force=BUILT),
    *row("nothing bundled, cached, no toolchain", no_toolchain, auto=CACHED, never=CACHED, force=NO_CARGO),
    *row(
        "nothing bundled, not cached",
        nothing_stored,
        auto=BUILT,
        never=Fails(
            "ExtensionNotFound", ("SGLANG_RUST_BUILD_MODE=never forbids building it", "rust-ext build fx.alpha")
        ),
        force=BUILT,
    ),
    *row(
        "nothing bundled, cached for other flags",
        other_flags,
        auto=BUILT,
        never=Fails("ExtensionNotFound", ("SGLANG_RUST_BUILD_MODE=never forbids building it",)),
        force=BUILT,
    ),
    *row(
        "nothing bundled, cached and truncated",
        truncated,
        auto=BUILT,
        never=Fails("ExtensionNotFound", ("its cached copy was damaged",)),
        force=BUILT,
    ),
    *row(
        "cached and does not load",
        unloadable_entry,
        auto=Loads("built", ("cannot be loaded", "rebuilding it")),
        never=Fails("ImportError", ("file too short",)),
        force=BUILT,
    ),
    *row(
        "bundled and does not load",
        bundled_unloadable,
        auto=Fails("ImportError", ("file too short",)),
        never=Fails("ImportError", ("file too short",)),
        force=BUILT,
    ),
    *row(
        "the build fails",
        syntax_error,
        auto=FAILED,
        never=Fails("ExtensionNotFound", ("SGLANG_RUST_BUILD_MODE=never forbids building it",)),
        force=FAILED,
    ),
]

INSTALLED = [
    *row(
        "installed wheel",
        wheel,
        auto=BUNDLED,
        never=BUNDLED,
        force=Fails("ExtensionNotFound", ("mode `force` builds from source, and no known workspace", "workspace=")),
    ),
    *row(
        "nothing installed",
        nothing_installed,
        auto=Fails("ExtensionNotFound", ("no Rust extension fx.alpha: it is not installed, and no known workspace",)),
        never=Fails(
            "ExtensionNotFound",
            ("it is not installed, and no known workspace declares it; pass `workspace=`, or ",),
        ),
        force=Fails("ExtensionNotFound", ("no known workspace declares it",)),
    ),
]


def expected_readiness(outcome: Loads | Fails) -> str:
    """
    The verdict before the load. It does not open the library, so only the load finds that a library is not loadable.
    """
    if isinstance(outcome, Loads):
        return "needs-build" if outcome.from_ == "built" and "cannot be loaded" not in outcome.warned else "ready"
    return {"BuildFailed": "needs-build", "ImportError": "ready"}.get(outcome.kind, "unavailable")


@pytest.mark.parametrize(("situation", "mode", "outcome"), CHECKOUT)
def test_in_a_checkout(
    built: Checkout, situation: tuple[Callable[[Checkout], object], ...], mode: str, outcome: Loads | Fails
) -> None:
    """
    Loads in a checkout, where sources are available.
    """
    for prepare in situation:
        prepare(built)
    stored = sorted((built.cache / "artifacts" / "fx.alpha").rglob("*.so"))
    loaded = built.load(mode=mode, prelude=PRINT_VERDICT)

    outcome.check(loaded, built, stored[0] if stored else None)
    if mode == "never" or outcome == BUNDLED:
        assert loaded.spawned == ()
    assert readiness(loaded) == expected_readiness(outcome)


@pytest.mark.parametrize(("situation", "mode", "outcome"), INSTALLED)
def test_without_sources(
    built: Checkout, situation: tuple[Callable[[Checkout], object], ...], mode: str, outcome: Loads | Fails
) -> None:
    """
    An installed wheel is loaded as it is, without a workspace, a process or a cache.
    """
    for prepare in situation:
        prepare(built)
    loaded = built.load(mode=mode, workspace=None, prelude=PRINT_VERDICT)

    outcome.check(loaded, built, None)
    assert readiness(loaded) == ("ready" if isinstance(outcome, Loads) else "unavailable")
    assert loaded.spawned == ()
    assert not built.cache.exists()
