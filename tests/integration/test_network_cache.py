"""
A cache on a network file system: libraries are loaded from local copies.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from eventually import eventually

if TYPE_CHECKING:
    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"


@pytest.fixture
def on_network(plain: Checkout) -> Checkout:
    """
    A checkout whose cache is declared to be on a network file system.
    """
    plain.environment["RUST_EXT_NETWORK_PATHS"] = str(plain.cache)
    return plain


def copies(checkout: Checkout) -> list[Path]:
    return sorted(checkout.temporary.rglob("local/*/*.so"))


def test_a_library_on_the_network_is_loaded_from_a_copy(on_network: Checkout) -> None:
    """
    The copy is made once. The entry stays in the shared cache, and the record names the copy.
    """
    built = on_network.load()
    assert (built.value, built.compiled) == (ALPHA, ["alpha"])
    (copy,) = copies(on_network)
    assert built.file == str(copy)
    assert on_network.stored_library().read_bytes() == copy.read_bytes()

    inode = copy.stat().st_ino
    eventually(lambda: on_network.load().file is not None and any((on_network.cache / "records").glob("*")), "a record")
    warm = on_network.load()
    assert (warm.file, warm.spawned, copy.stat().st_ino) == (str(copy), (), inode)


def test_a_copy_is_independent_of_its_entry(on_network: Checkout) -> None:
    """
    Another host may replace the entry while this host has the old library mapped.
    """
    again = f"""
        import os, subprocess, sys
        first = rust_ext_loader.load_rust_extension("fx.alpha", workspace={str(on_network.root)!r})
        for path in {str(on_network.cache / "artifacts")!r},:
            for where, _, names in os.walk(path):
                for name in names:
                    os.truncate(os.path.join(where, name), 0)
        assert first.value == {ALPHA!r}
    """
    loaded = on_network.load(prelude=again)
    assert (loaded.value, loaded.error) == (ALPHA, None)


@pytest.mark.parametrize("content", [b"", b"not a library"], ids=["empty", "other bytes"])
def test_a_damaged_copy_is_replaced(on_network: Checkout, content: bytes) -> None:
    """
    A damaged copy is made again from the entry, without a compiler.
    """
    on_network.load()
    (copy,) = copies(on_network)
    copy.write_bytes(content)

    loaded = on_network.load()
    assert (loaded.value, loaded.file, loaded.compiled) == (ALPHA, str(copy), [])


def test_without_a_folder_for_copies_the_entry_is_loaded(on_network: Checkout) -> None:
    """
    If no local folder is available, the library is loaded from the network without a warning.
    """
    on_network.environment["RUST_EXT_NETWORK_PATHS"] += f":{on_network.temporary}"
    loaded = on_network.load()

    assert (loaded.value, loaded.file, loaded.warnings) == (ALPHA, str(on_network.stored_library()), ())


def test_a_cache_on_this_host_is_not_copied(plain: Checkout) -> None:
    assert plain.load().value == ALPHA
    assert copies(plain) == []
