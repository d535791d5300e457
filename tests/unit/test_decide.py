"""
The decision as a pure function: one row for each cell of the table of modes and situations.

The rows "already imported", "present but does not load" and "the build fails" of the contract
are decided before or after `decide`; tests/integration/test_modes.py has them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from rust_ext_loader._decide import Build, RecordBasis, Refuse, UseBundled, UseCached, decide
from rust_ext_loader._errors import ExtensionNotFound, StaleExtension, ToolchainMissing
from rust_ext_loader._model import ExtensionSpec, Mode, State, Tier, Watched
from rust_ext_loader._sightings import BundledLibrary, EditTier, History, Question, Sightings, Unasked
from rust_ext_loader.cache._store import Entry
from rust_ext_loader.declare._edit_tier import EditSettings
from rust_ext_loader.facts._fingerprint import Change

if TYPE_CHECKING:
    from rust_ext_loader._decide import Decision
    from rust_ext_loader.facts._snapshot import Snapshot

MODULE = "fx.alpha"
SPEC = ExtensionSpec(MODULE, "alpha", "alpha", Path("ws/alpha/Cargo.toml"), Path("ws"))
LIBRARY = Path("site/fx/alpha.so")
FRESH = BundledLibrary(library=LIBRARY, seen={})
STALE = replace(FRESH, staleness=("src/lib.rs changed",))
#: `decide` only passes the facts on.
FACTS = cast("Snapshot", object())
NO_TOOLCHAIN = ToolchainMissing("cargo", "missing", "not found", MODULE)
ENTRY = Entry(
    folder=Path("cache/entry"),
    library=Path("cache/entry/alpha.so"),
    facts={"toolchain/rustc": "1.95.0"},
    seen={},
    began=0.0,
    token=None,
    source_key="s",
    build_key="b",
)
SETTINGS = EditSettings(common={"incremental": True}, packages={}, watched=Watched())
EDIT_TIER = EditTier(settings=SETTINGS)
BUILT_FOR_EDITING = EditTier(settings=SETTINGS, entry=ENTRY)
NEVER_USED = History()
CHANGED = History(changes=(Change("source/src/lib.rs", "a", "b"),), used_before=True)
COMPILED_HERE = replace(CHANGED, compiled_here=True)

#: A checkout in which nothing is bundled or cached, with a usable toolchain.
CHECKOUT = Sightings(
    module=MODULE,
    declaration=SPEC,
    bundled=None,
    facts=FACTS,
    cached=None,
    cached_by_any_toolchain=None,
    edit_tier=None,
    history=NEVER_USED,
    stale_is_error=False,
)
INSTALLED = Sightings(module=MODULE, declaration=None)

SITUATIONS = {
    "installed wheel, bundled": replace(INSTALLED, bundled=FRESH),
    "installed wheel, absent": replace(INSTALLED, bundled=None),
    "checkout, bundled and fresh": replace(CHECKOUT, bundled=FRESH),
    "checkout, bundled stale, cached": replace(CHECKOUT, bundled=STALE, cached=ENTRY, cached_by_any_toolchain=ENTRY),
    "checkout, bundled stale, not cached": replace(CHECKOUT, bundled=STALE),
    "bundled stale, no toolchain, cached": replace(
        CHECKOUT, bundled=STALE, facts=NO_TOOLCHAIN, cached_by_any_toolchain=ENTRY
    ),
    "bundled stale, no toolchain, not cached": replace(CHECKOUT, bundled=STALE, facts=NO_TOOLCHAIN),
    "bundled stale, no toolchain, stale is an error": replace(
        CHECKOUT, bundled=STALE, facts=NO_TOOLCHAIN, stale_is_error=True
    ),
    "nothing bundled, cached": replace(CHECKOUT, cached=ENTRY, cached_by_any_toolchain=ENTRY),
    "nothing bundled, cached, no toolchain": replace(CHECKOUT, facts=NO_TOOLCHAIN, cached_by_any_toolchain=ENTRY),
    "nothing bundled, not cached": CHECKOUT,
    "nothing bundled, not cached, changed": replace(CHECKOUT, history=CHANGED),
    "nothing bundled, not cached, no toolchain": replace(CHECKOUT, facts=NO_TOOLCHAIN),
    "edited, compiled here before": replace(CHECKOUT, edit_tier=EDIT_TIER, history=COMPILED_HERE),
    "edited, compiled here before, tier off": replace(CHECKOUT, history=COMPILED_HERE),
    "built for editing": replace(CHECKOUT, edit_tier=BUILT_FOR_EDITING, history=COMPILED_HERE),
    "built for editing, no toolchain": replace(CHECKOUT, edit_tier=BUILT_FOR_EDITING, facts=NO_TOOLCHAIN),
    "built for editing, bundled stale": replace(CHECKOUT, edit_tier=BUILT_FOR_EDITING, bundled=STALE),
    "built for editing and in full": replace(
        CHECKOUT, edit_tier=BUILT_FOR_EDITING, cached=ENTRY, cached_by_any_toolchain=ENTRY
    ),
}

BUNDLED = (UseBundled, State.BUNDLED)
STALE_USED = (UseBundled, State.STALE)
CACHED = (UseCached, RecordBasis.ALL_FACTS)
CACHED_NEVER = (UseCached, RecordBasis.SOURCES)
CACHED_NO_TOOLCHAIN = (UseCached, RecordBasis.SOURCES_WITHOUT_TOOLCHAIN)
BUILD = (Build, State.MISSING)
REBUILD = (Build, State.STALE)
FOR_EDITING_WARNED = (UseCached, RecordBasis.NOTHING)
NOT_FOUND = (Refuse, ExtensionNotFound)
NEEDS_TOOLCHAIN = (Refuse, ToolchainMissing)
REFUSE_STALE = (Refuse, StaleExtension)

#: Situation: the outcome in the modes `auto`, `never` and `force`.
TABLE = {
    "installed wheel, bundled": (BUNDLED, BUNDLED, NOT_FOUND),
    "installed wheel, absent": (NOT_FOUND, NOT_FOUND, NOT_FOUND),
    "checkout, bundled and fresh": (BUNDLED, BUNDLED, REBUILD),
    "checkout, bundled stale, cached": (CACHED, CACHED_NEVER, REBUILD),
    "checkout, bundled stale, not cached": (REBUILD, STALE_USED, REBUILD),
    "bundled stale, no toolchain, cached": (CACHED_NO_TOOLCHAIN, CACHED_NEVER, NEEDS_TOOLCHAIN),
    "bundled stale, no toolchain, not cached": (STALE_USED, STALE_USED, NEEDS_TOOLCHAIN),
    "bundled stale, no toolchain, stale is an error": (REFUSE_STALE, STALE_USED, NEEDS_TOOLCHAIN),
    "nothing bundled, cached": (CACHED, CACHED_NEVER, BUILD),
    "nothing bundled, cached, no toolchain": (CACHED_NO_TOOLCHAIN, CACHED_NEVER, NEEDS_TOOLCHAIN),
    "nothing bundled, not cached": (BUILD, NOT_FOUND, BUILD),
    "nothing bundled, not cached, changed": (REBUILD, NOT_FOUND, REBUILD),
    "nothing bundled, not cached, no toolchain": (NEEDS_TOOLCHAIN, NOT_FOUND, NEEDS_TOOLCHAIN),
    "edited, compiled here before": (REBUILD, NOT_FOUND, REBUILD),
    "edited, compiled here before, tier off": (REBUILD, NOT_FOUND, REBUILD),
    "built for editing": (CACHED, FOR_EDITING_WARNED, REBUILD),
    "built for editing, no toolchain": (FOR_EDITING_WARNED, FOR_EDITING_WARNED, NEEDS_TOOLCHAIN),
    "built for editing, bundled stale": (CACHED, FOR_EDITING_WARNED, REBUILD),
    "built for editing and in full": (CACHED, CACHED_NEVER, BUILD),
}

CELLS = [
    pytest.param(SITUATIONS[name], mode, outcome, id=f"{name}: {mode.value}")
    for name, row in TABLE.items()
    for mode, outcome in zip((Mode.AUTO, Mode.NEVER, Mode.FORCE), row, strict=True)
]


#: The same situations and modes, without the outcomes.
CASES = [
    pytest.param(sightings, mode, id=f"{name}: {mode.value}") for name, sightings in SITUATIONS.items() for mode in Mode
]


def decided(sightings: Sightings, mode: Mode) -> Decision:
    outcome = decide(sightings, mode)
    assert not isinstance(outcome, Question)
    return outcome


def test_every_situation_has_a_row() -> None:
    assert TABLE.keys() == SITUATIONS.keys()


@pytest.mark.parametrize(("sightings", "mode", "outcome"), CELLS)
def test_each_cell_of_the_table(sightings: Sightings, mode: Mode, outcome: tuple[type, Any]) -> None:
    """
    A situation and a mode lead to one kind of decision.
    """
    decision = decided(sightings, mode)

    kind, detail = outcome
    assert type(decision) is kind
    if isinstance(decision, UseCached):
        assert decision.basis is detail
    elif isinstance(decision, Refuse):
        assert type(decision.error) is detail
    else:
        assert decision.state is detail


@pytest.mark.parametrize(("sightings", "mode"), CASES)
def test_every_stale_library_is_named_in_a_warning_or_an_error(sightings: Sightings, mode: Mode) -> None:
    """
    A stale bundled library is never used or ignored silently. Mode `force` always builds, so it does not warn.
    """
    decision = decided(sightings, mode)

    stale = isinstance(sightings.bundled, BundledLibrary) and sightings.bundled.staleness
    texts = [*decision.warnings, *([str(decision.error)] if isinstance(decision, Refuse) else [])]
    if stale and mode is not Mode.FORCE:
        assert any(str(LIBRARY) in text and "src/lib.rs changed" in text for text in texts)
    else:
        assert [text for text in decision.warnings if "was built for editing" not in text] == []


def questions(sightings: Sightings, mode: Mode) -> list[Question]:
    """
    The questions that `decide` asks, each answered as in these sightings.
    """
    fields = {
        Question.BUNDLED: "bundled",
        Question.FACTS: "facts",
        Question.CACHED: "cached",
        Question.CACHED_BY_ANY_TOOLCHAIN: "cached_by_any_toolchain",
        Question.EDIT_TIER: "edit_tier",
        Question.HISTORY: "history",
        Question.STALE_IS_ERROR: "stale_is_error",
    }
    known: dict[str, Any] = dict.fromkeys(fields.values(), Unasked.UNASKED)
    asked: list[Question] = []
    while isinstance(outcome := decide(replace(sightings, **known), mode), Question):
        asked.append(outcome)
        known[fields[outcome]] = getattr(sightings, fields[outcome])
    # Errors have no equality of their own.
    assert repr(outcome) == repr(decide(sightings, mode))
    return asked


@pytest.mark.parametrize(
    ("situation", "mode", "asked"),
    [
        pytest.param("installed wheel, bundled", Mode.AUTO, [Question.BUNDLED], id="wheel: no workspace, no cache"),
        pytest.param("installed wheel, bundled", Mode.FORCE, [], id="wheel, force: nothing to look up"),
        pytest.param("checkout, bundled and fresh", Mode.AUTO, [Question.BUNDLED], id="fresh: no toolchain, no cache"),
        pytest.param(
            "nothing bundled, cached", Mode.AUTO, [Question.BUNDLED, Question.FACTS, Question.CACHED], id="cache hit"
        ),
        pytest.param(
            "nothing bundled, cached",
            Mode.NEVER,
            [Question.BUNDLED, Question.CACHED_BY_ANY_TOOLCHAIN],
            id="never: no toolchain",
        ),
        pytest.param(
            "nothing bundled, not cached",
            Mode.NEVER,
            [Question.BUNDLED, Question.CACHED_BY_ANY_TOOLCHAIN, Question.EDIT_TIER, Question.HISTORY],
            id="never, refused: no toolchain",
        ),
        pytest.param(
            "nothing bundled, cached", Mode.FORCE, [Question.BUNDLED, Question.FACTS, Question.HISTORY], id="force"
        ),
    ],
)
def test_only_the_needed_questions_are_asked_cheap_ones_first(
    situation: str, mode: Mode, asked: list[Question]
) -> None:
    """
    A decision that needs no toolchain does not probe for one: it must work without one, and be fast with one.
    """
    assert questions(SITUATIONS[situation], mode) == asked


@pytest.mark.parametrize(("sightings", "mode"), CASES)
def test_answers_one_by_one_lead_to_the_same_decision(sightings: Sightings, mode: Mode) -> None:
    """
    If `decide` gets its answers one by one, it reaches the same decision, and it asks no question twice.
    """
    asked = questions(sightings, mode)

    assert len(asked) == len(set(asked))


@pytest.mark.parametrize(
    ("sightings", "mode", "error"),
    [
        pytest.param(
            replace(INSTALLED, extra_features=True),
            Mode.AUTO,
            "no Rust extension fx.alpha: extra features need a build, and no known workspace declares it; "
            "pass `workspace=`",
            id="extra features without a workspace",
        ),
        pytest.param(
            replace(INSTALLED, bundled=None, declaration=ExtensionNotFound(MODULE, "ws declares fx.beta only")),
            Mode.AUTO,
            "no Rust extension fx.alpha: ws declares fx.beta only",
            id="a workspace without the declaration",
        ),
        pytest.param(
            replace(CHECKOUT, history=CHANGED),
            Mode.NEVER,
            "no Rust extension fx.alpha: it is not built from the current sources (src/lib.rs changed), and "
            "SGLANG_RUST_BUILD_MODE=never forbids building it; run `rust-ext build fx.alpha` or set "
            "SGLANG_RUST_BUILD_MODE=auto",
            id="never, changed since the last use",
        ),
        pytest.param(
            replace(CHECKOUT, history=replace(NEVER_USED, damaged=Path("cache/quarantine/x"))),
            Mode.NEVER,
            "no Rust extension fx.alpha: its cached copy was damaged (see cache/quarantine/x), and "
            "SGLANG_RUST_BUILD_MODE=never forbids building it; run `rust-ext build fx.alpha` or set "
            "SGLANG_RUST_BUILD_MODE=auto",
            id="never, damaged entry",
        ),
        pytest.param(
            replace(CHECKOUT, history=replace(NEVER_USED, unusable_roots=("/c is on a noexec mount",))),
            Mode.NEVER,
            "no Rust extension fx.alpha: it is not built; /c is on a noexec mount, and "
            "SGLANG_RUST_BUILD_MODE=never forbids building it; run `rust-ext build fx.alpha` or set "
            "SGLANG_RUST_BUILD_MODE=auto",
            id="never, a cache that cannot be read",
        ),
        pytest.param(
            replace(CHECKOUT, facts=NO_TOOLCHAIN, history=CHANGED),
            Mode.AUTO,
            "fx.alpha must be built (src/lib.rs changed), but `cargo` is not usable: not found; install Rust "
            "(https://rustup.rs) or put it on PATH, or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never",
            id="auto, no toolchain",
        ),
    ],
)
def test_a_refusal_says_what_where_and_what_next(sightings: Sightings, mode: Mode, error: str) -> None:
    decision = decided(sightings, mode)

    assert isinstance(decision, Refuse)
    assert str(decision.error) == error


def test_a_broken_toolchain_leaves_no_record() -> None:
    """
    A broken toolchain can be repaired without changing any watched file, so no record is written.
    """
    broken = replace(
        CHECKOUT, facts=ToolchainMissing("cargo", "broken", "exit status 1"), cached_by_any_toolchain=ENTRY
    )
    decision = decided(broken, Mode.AUTO)

    assert isinstance(decision, UseCached)
    assert decision.basis is RecordBasis.NOTHING


def test_rival_libraries_are_named() -> None:
    """
    `import` would ignore further libraries of the same module. Their presence causes a warning, not an error.
    """
    rivals = replace(FRESH, rivals=(Path("site/fx/alpha.abi3.so"),))
    decision = decided(replace(CHECKOUT, bundled=rivals), Mode.AUTO)

    assert [str(rivals.rivals[0]) in warning for warning in decision.warnings] == [True]


#: What changed since the last use, whether the checkout has compiled the module before, the tier of the last build,
#: and the tier of the next build.
TIERS = {
    "a source": (("source/src/lib.rs",), True, Tier.FULL, Tier.EDIT),
    "an undeclared input": (("seen/file/README.md",), True, Tier.FULL, Tier.EDIT),
    "a source and a flag": (("source/src/lib.rs", "request/env/RUSTFLAGS"), True, Tier.FULL, Tier.EDIT),
    "a flag only": (("request/env/RUSTFLAGS",), True, Tier.FULL, Tier.FULL),
    "the toolchain only": (("toolchain/rustc",), True, Tier.FULL, Tier.FULL),
    "nothing: the entry is lost": ((), True, Tier.FULL, Tier.FULL),
    "nothing: the entry for editing is lost": ((), True, Tier.EDIT, Tier.EDIT),
    "a flag only, after a build for editing": (("request/env/RUSTFLAGS",), True, Tier.EDIT, Tier.FULL),
    "a source, never compiled here": (("source/src/lib.rs",), False, Tier.FULL, Tier.FULL),
}


@pytest.mark.parametrize(("names", "compiled_here", "last", "tier"), TIERS.values(), ids=TIERS)
def test_only_an_edited_source_is_built_for_editing(
    names: tuple[str, ...], compiled_here: bool, last: Tier, tier: Tier
) -> None:
    """
    The edit tier is for a checkout that has compiled the module before and whose sources changed.
    """
    changes = tuple(Change(name, "a", "b") for name in names)
    history = History(changes=changes, used_before=True, compiled_here=compiled_here, tier=last)

    decision = decided(replace(CHECKOUT, edit_tier=EDIT_TIER, history=history), Mode.AUTO)

    assert isinstance(decision, Build)
    assert decision.edit == (SETTINGS if tier is Tier.EDIT else None)


def test_the_full_build_is_preferred_to_one_for_editing() -> None:
    """
    Once the full build exists, it is used, and `decide` does not ask for a build of the edit tier.
    """
    both = replace(SITUATIONS["built for editing and in full"], edit_tier=Unasked.UNASKED)

    decision = decided(both, Mode.AUTO)

    assert isinstance(decision, UseCached)
    assert decision.edit is None


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.NEVER])
def test_a_library_for_editing_is_used_with_a_warning_if_it_cannot_be_rebuilt(mode: Mode) -> None:
    """
    The warning names the command that optimises the library.
    """
    decision = decided(SITUATIONS["built for editing, no toolchain"], mode)

    assert isinstance(decision, UseCached)
    assert "was built for editing" in decision.warnings[-1]
    assert "rust-ext build fx.alpha" in decision.warnings[-1]
