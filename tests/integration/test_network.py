"""
A cache on a network file system: its libraries are loaded from copies on this host.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import wait_until

if TYPE_CHECKING:
    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"


@pytest.fixture
def far(plain: Checkout) -> Checkout:
    """
    A checkout whose cache is said to lie on another machine.
    """
    plain.environment["RUST_EXT_NETWORK_PATHS"] = str(plain.cache)
    return plain


def copies(checkout: Checkout) -> list[Path]:
    return sorted(checkout.temporary.rglob("local/*/*.so"))


def test_a_library_far_away_is_loaded_from_a_copy(far: Checkout) -> None:
    """
    Made once; the entry stays where everybody finds it, and the warm path leads to the copy.
    """
    built = far.load()
    assert (built.value, built.compiled) == (ALPHA, ["alpha"])
    (copy,) = copies(far)
    assert built.file == str(copy)
    assert far.stored().read_bytes() == copy.read_bytes()

    inode = copy.stat().st_ino
    wait_until(lambda: far.load().file is not None and any((far.cache / "records").glob("*")), "a record")
    warm = far.load()
    assert (warm.file, warm.spawned, copy.stat().st_ino) == (str(copy), (), inode)


def test_what_happens_to_the_entry_does_not_happen_to_the_copy(far: Checkout) -> None:
    """
    Another host builds anew and replaces the entry while this one has the old library mapped.
    """
    again = f"""
        import os, subprocess, sys
        first = rust_ext_loader.load_rust_extension("fx.alpha", workspace={str(far.root)!r})
        for path in {str(far.cache / "artifacts")!r},:
            for where, _, names in os.walk(path):
                for name in names:
                    os.truncate(os.path.join(where, name), 0)
        assert first.value == {ALPHA!r}
    """
    loaded = far.load(prelude=again)
    assert (loaded.value, loaded.error) == (ALPHA, None)


@pytest.mark.parametrize("content", [b"", b"not a library"], ids=["empty", "other bytes"])
def test_a_copy_that_is_not_what_it_was_is_made_anew(far: Checkout, content: bytes) -> None:
    """
    From the entry, with no compiler.
    """
    far.load()
    (copy,) = copies(far)
    copy.write_bytes(content)

    loaded = far.load()
    assert (loaded.value, loaded.file, loaded.compiled) == (ALPHA, str(copy), [])


def test_without_a_place_for_copies_it_is_loaded_from_afar(far: Checkout) -> None:
    """
    Better than nothing, and without a word: nothing is wrong.
    """
    far.environment["RUST_EXT_NETWORK_PATHS"] += f":{far.temporary}"
    loaded = far.load()

    assert (loaded.value, loaded.file, loaded.warnings) == (ALPHA, str(far.stored()), ())


def test_a_cache_on_this_host_is_not_copied(plain: Checkout) -> None:
    assert plain.load().value == ALPHA
    assert copies(plain) == []
