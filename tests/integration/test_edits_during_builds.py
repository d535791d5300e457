"""
Sources that change while cargo runs: the result matches the files at the end, or the load fails.

The `cargo` on PATH makes the edit, so that it happens exactly before or after the compilation.
"""

from __future__ import annotations

import pytest
from changes import hit
from checkout import Checkout
from processes import run_around_compilation

ALPHA = "alpha-1 part-1 middle-1"


def once(command: str) -> str:
    return f"if mkdir ../meddled 2>/dev/null; then {command}; fi"


def becomes(number: int) -> str:
    return f"sed -i.old s/part-./part-{number}/ alpha/src/part.rs && rm alpha/src/part.rs.old"


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"before": once(becomes(2))}, id="before it is read"),
        pytest.param({"after": once(becomes(2))}, id="after it was read"),
        pytest.param(
            {"before": once(becomes(3)), "after": f"if grep -q part-3 alpha/src/part.rs; then {becomes(2)}; fi"},
            id="twice",
        ),
    ],
)
def test_an_edit_during_a_build_is_in_the_result(plain: Checkout, how: dict[str, str]) -> None:
    """
    The loaded module matches the files at the end, and so does the stored entry.
    """
    run_around_compilation(plain, **how)
    loaded = plain.load()

    assert loaded.value == "alpha-1 part-2 middle-1"
    assert loaded.compiled == ["alpha", "alpha"]
    hit(plain.load(), "alpha-1 part-2 middle-1")
    plain.install_tools()
    plain.replace("alpha/src/part.rs", "part-2", "part-1")
    assert plain.load().value == ALPHA, "the key of the old sources must not lead to a library of other sources"


def test_an_edit_reverted_during_a_build_is_not_in_the_result(plain: Checkout) -> None:
    """
    Equal facts before and after a build do not prove that it compiled them: the file may have differed in between.
    """
    run_around_compilation(
        plain, before=once(becomes(2)), after=f"if grep -q part-2 alpha/src/part.rs; then {becomes(1)}; fi"
    )

    assert plain.load().value == ALPHA
    hit(plain.load(), ALPHA)


def test_sources_that_change_during_every_build_are_named(plain: Checkout) -> None:
    """
    If sources change during each of three builds, the load fails, names the changing file and stores nothing.
    """
    run_around_compilation(plain, after="echo // >> alpha/src/part.rs")
    loaded = plain.load()

    assert loaded.types[:3] == ("SourcesMoved", "RustExtensionError", "ImportError")
    assert loaded.error == (
        "fx.alpha was built 3 times and its sources changed during each build: alpha/src/part.rs; "
        "stop the program that writes there, then import again"
    )
    assert loaded.compiled == ["alpha"] * 3
    assert not list(plain.cache.rglob("manifest.json"))
