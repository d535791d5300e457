"""
Unit tests of fingerprints: keys of sets of facts, and the differences between two sets.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rust_ext_loader.facts._fingerprint import (
    HOST_GROUPS,
    SOURCE_GROUPS,
    Change,
    Fingerprint,
    digest_of,
    explain,
    reason,
    summary,
)

GROUPS = (*SOURCE_GROUPS, *HOST_GROUPS)

BASE = {
    "abi/cache_tag": "cpython-311",
    "flags/RUSTFLAGS": "",
    "request/profile": "release",
    "resolution/serde": "1.0.1",
    "source/alpha/src/lib.rs": "aa",
    "toolchain/release": "1.95.0",
}

FACTS = st.dictionaries(
    st.builds("{}/{}".format, st.sampled_from(GROUPS), st.text(min_size=1, max_size=4)), st.text(max_size=4), max_size=4
)


def edited(edit: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**BASE, **edit}.items() if value is not None}


@pytest.mark.parametrize(
    ("edit", "changes", "message"),
    [
        pytest.param({}, [], "", id="nothing changed"),
        pytest.param(
            {"source/alpha/src/lib.rs": "bb"}, [Change("source/alpha/src/lib.rs", "aa", "bb")],
            "alpha/src/lib.rs changed", id="file edited",
        ),
        pytest.param(
            {"source/alpha/src/new.rs": "cc"}, [Change("source/alpha/src/new.rs", None, "cc")],
            "alpha/src/new.rs added", id="file added",
        ),
        pytest.param(
            {"source/alpha/src/lib.rs": None}, [Change("source/alpha/src/lib.rs", "aa", None)],
            "alpha/src/lib.rs removed", id="file removed",
        ),
        pytest.param(
            {"flags/RUSTFLAGS": "-Copt-level=1"}, [Change("flags/RUSTFLAGS", "", "-Copt-level=1")],
            "RUSTFLAGS '' -> '-Copt-level=1'", id="flags",
        ),
        pytest.param(
            {"flags/CC": "clang"}, [Change("flags/CC", None, "clang")],
            "CC (none) -> 'clang'", id="variable appeared",
        ),
        pytest.param(
            {"request/profile": "dev"}, [Change("request/profile", "release", "dev")],
            "profile 'release' -> 'dev'", id="profile",
        ),
        pytest.param(
            {"toolchain/release": "1.96.0"}, [Change("toolchain/release", "1.95.0", "1.96.0")],
            "toolchain release '1.95.0' -> '1.96.0'", id="new compiler",
        ),
        pytest.param(
            {"resolution/serde": None}, [Change("resolution/serde", "1.0.1", None)],
            "resolution serde '1.0.1' -> (none)", id="dependency dropped",
        ),
        pytest.param(
            {"abi/cache_tag": "cpython-312"}, [Change("abi/cache_tag", "cpython-311", "cpython-312")],
            "abi cache_tag 'cpython-311' -> 'cpython-312'", id="another Python",
        ),
        pytest.param(
            {"flags/RUSTFLAGS": "x" * 61}, [Change("flags/RUSTFLAGS", "", "x" * 61)],
            f"RUSTFLAGS '' -> '{'x' * 57}...'", id="long values are cut",
        ),
        pytest.param(
            {"abi/cache_tag": "b", "toolchain/release": "c", "source/alpha/src/lib.rs": "d", "flags/RUSTFLAGS": "e"},
            [
                Change("source/alpha/src/lib.rs", "aa", "d"), Change("flags/RUSTFLAGS", "", "e"),
                Change("toolchain/release", "1.95.0", "c"), Change("abi/cache_tag", "cpython-311", "b"),
            ],
            "alpha/src/lib.rs changed; RUSTFLAGS '' -> 'e'; toolchain release '1.95.0' -> 'c'; and 1 more",
            id="most informative first",
        ),
    ],
)  # fmt: skip
def test_explain_lists_the_facts_that_differ(edit: dict[str, str | None], changes: list[Change], message: str) -> None:
    """
    `summary` prints the differing facts on one line. The build key changes if and only if a fact does.
    """
    after = edited(edit)

    assert explain(BASE, after) == changes
    assert summary(explain(BASE, after)) == message
    assert (Fingerprint(BASE).build_key != Fingerprint(after).build_key) == bool(changes)


@pytest.mark.parametrize(
    ("edit", "known", "message"),
    [
        pytest.param({}, False, "not built here yet", id="never built"),
        pytest.param({"request/features": "b"}, True, "features 'a' -> 'b'", id="a fact changed"),
        pytest.param({}, True, "its stored build is gone or damaged", id="nothing changed"),
    ],
)
def test_every_build_has_a_reason(edit: dict[str, str], known: bool, message: str) -> None:
    """
    The reason for a build is that there is no earlier one, that facts changed, or that the entry was removed.
    """
    base = {**BASE, "request/features": "a"}

    assert reason(explain(base, {**base, **edit}), known=known) == message


@pytest.mark.parametrize("group", GROUPS)
def test_source_key_covers_only_the_checkout(group: str) -> None:
    """
    A fact of any group changes the build key. Only facts that do not depend on the host change the source key.
    """
    before, after = Fingerprint(BASE), Fingerprint({**BASE, f"{group}/more": "x"})

    assert after.build_key != before.build_key
    assert (after.source_key != before.source_key) == (group in SOURCE_GROUPS)


@given(FACTS, FACTS)
def test_equal_keys_mean_equal_facts(left: dict[str, str], right: dict[str, str]) -> None:
    """
    Two sets of facts have the same key only if they are equal.
    """
    one, other = Fingerprint(left), Fingerprint(right)

    assert (one.build_key == other.build_key) == (left == right)
    assert (one.source_key == other.source_key) == (one.select(SOURCE_GROUPS) == other.select(SOURCE_GROUPS))


@given(FACTS, FACTS)
def test_changes_turn_the_old_facts_into_the_new(left: dict[str, str], right: dict[str, str]) -> None:
    """
    Applying the result of `explain` to the old facts gives exactly the new facts.
    """
    replayed: dict[str, str | None] = dict(left)
    replayed.update({change.name: change.new for change in explain(left, right)})

    assert {name: value for name, value in replayed.items() if value is not None} == right


@given(FACTS)
def test_order_of_facts_does_not_count(facts: dict[str, str]) -> None:
    """
    Keys depend only on the set of facts.
    """
    reordered = dict(reversed(list(facts.items())))

    assert Fingerprint(reordered).build_key == Fingerprint(facts).build_key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param({"source/a": "bc"}, {"source/ab": "c"}, id="name and value"),
        pytest.param({"source/a": "b", "source/c": "d"}, {"source/a": "bsource/cd"}, id="two facts"),
        pytest.param({}, {"source/": ""}, id="an empty value is a fact"),
    ],
)
def test_texts_are_separated_by_their_lengths(left: dict[str, str], right: dict[str, str]) -> None:
    """
    Facts whose texts are equal when joined have different keys.
    """
    assert Fingerprint(left).source_key != Fingerprint(right).source_key


def test_name_that_is_not_unicode_has_a_key() -> None:
    """
    File names are bytes, so a name may not be valid UTF-8.
    """
    one, other = Fingerprint({"source/\udcff": "aa"}), Fingerprint({"source/\udcfe": "aa"})

    assert one.source_key != other.source_key


def test_keys_are_pinned() -> None:
    """
    The keys of these facts are fixed.

    If the keys must change, raise `FORMAT` and change the keys here. Old entries then become misses.
    """
    assert Fingerprint(BASE).source_key == "e1fe683e0449a07fb47b41bcce7e53d88f56e0ef68866932802eb7c1dacd27d2"
    assert Fingerprint(BASE).build_key == "e127f2a811d86ceab6a0d718b832b6e1856ff8d0904f876f75ca12ee88d36972"
    assert digest_of(BASE) == "14e69df66bd4658d8d5e73a45a97731bd1dddcc1b3de0d0b8cb6a5fda54fcb27"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{"a":{"b":["x"],"c":1}}', '{"a":{"b":["y"],"c":1}}', """resolution manifest/m (a.b: '["x"]' -> '["y"]')"""),
        ('{"a":1}', '{"a":1,"b":{"c":true}}', "resolution manifest/m (b.c: (none) -> 'true')"),
        ('{"a":1,"b":2,"c":3}', '{"a":2,"b":3,"c":4}', "resolution manifest/m (a: '1' -> '2', b: '2' -> '3', 1 more)"),
        ('{"a":{}}', '{"a":{"b":1}}', "resolution manifest/m (a: '{}' -> (none), a.b: (none) -> '1')"),
        (None, '{"a":1}', """resolution manifest/m (none) -> '{"a":1}'"""),
        ('{"a":', '{"a":1}', """resolution manifest/m '{"a":' -> '{"a":1}'"""),
        ("1", "2", "resolution manifest/m '1' -> '2'"),
    ],
)
def test_changed_table_lists_the_values_that_differ(old: str | None, new: str, message: str) -> None:
    """
    Only the differing values are listed: two manifests often begin alike and would look the same on one short line.
    """
    assert str(Change("resolution/manifest/m", old, new)) == message
