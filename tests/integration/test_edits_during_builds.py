"""
Sources that change while cargo runs: the result is what lies on disk at the end, or an error.

The `cargo` on PATH makes the edit, so that it happens exactly before or after the compilation.
"""

from __future__ import annotations

import pytest
from changes import hit
from checkout import Checkout
from processes import meddle

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
def test_an_edit_during_the_build_is_in_the_result(plain: Checkout, how: dict[str, str]) -> None:
    """
    What is loaded is what lies on disk at the end; what is stored says so.
    """
    meddle(plain, **how)
    loaded = plain.load()

    assert loaded.value == "alpha-1 part-2 middle-1"
    assert loaded.compiled == ["alpha", "alpha"]
    hit(plain.load(), "alpha-1 part-2 middle-1")
    plain.install_tools()
    plain.replace("alpha/src/part.rs", "part-2", "part-1")
    assert plain.load().value == ALPHA, "nothing was stored under the old text's key but the old text"


def test_an_edit_taken_back_during_the_build_leaves_no_trace(plain: Checkout) -> None:
    """
    Compiled from a text that was there only meanwhile: the same facts before and after do not make it right.
    """
    meddle(plain, before=once(becomes(2)), after=f"if grep -q part-2 alpha/src/part.rs; then {becomes(1)}; fi")

    assert plain.load().value == ALPHA
    hit(plain.load(), ALPHA)


def test_sources_that_keep_moving_are_named(plain: Checkout) -> None:
    """
    After three builds, each outrun, the file that keeps moving is named and nothing is stored.
    """
    meddle(plain, after="echo // >> alpha/src/part.rs")
    loaded = plain.load()

    assert loaded.types[:3] == ("SourcesMoved", "RustExtensionError", "ImportError")
    assert loaded.error == (
        "fx.alpha was built 3 times and its sources changed during each build: alpha/src/part.rs; "
        "stop what keeps writing there, then import again"
    )
    assert loaded.compiled == ["alpha"] * 3
    assert not list(plain.cache.rglob("manifest.json"))
