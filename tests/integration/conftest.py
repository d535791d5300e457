"""
Fixtures of the integration tests: real cargo, real interpreters, and a cache for each test.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkout import CRATES, Checkout, check_out
from processes import Mounts, tool

if TYPE_CHECKING:
    from collections.abc import Iterator

# Failed assertions in these modules show the compared values, as in test modules.
pytest.register_assert_rewrite(
    "changes", "from_scratch", "situations", "walking", "walk_accidents", "walk_edits", "walk_tree"
)


@pytest.fixture
def plain(tmp_path: Path) -> Checkout:
    """
    A fresh checkout of `tests/crates/plain` with an empty cache.
    """
    return check_out("plain", tmp_path)


@pytest.fixture
def built(_plain_once: Checkout, tmp_path: Path) -> Checkout:
    """
    A checkout of `tests/crates/plain` whose `fx.alpha` and `fx.beta` were built in another checkout.
    """
    return _again(_plain_once, tmp_path)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    """
    A private mount namespace. Skips where this user may not create one.
    """
    yield from _private_mounts()


@pytest.fixture(scope="module")
def mounts_of_module() -> Iterator[Mounts]:
    """
    A second private mount namespace, shared by the tests of one module.
    """
    yield from _private_mounts()


def _private_mounts() -> Iterator[Mounts]:
    missing = [name for name in ("unshare", "nsenter", "mount") if tool(name) is None]
    if missing:
        pytest.skip(f"no {missing[0]} on this machine")
    try:
        namespace = Mounts()
    except OSError as error:
        pytest.skip(f"no private mounts: {error}")
    yield namespace
    namespace.close()


@pytest.fixture
def inputs(_inputs_once: Checkout, tmp_path: Path) -> Checkout:
    """
    A checkout of `tests/crates/every-input` whose `fx.alpha` was built in another checkout.
    """
    return _again(_inputs_once, tmp_path)


@pytest.fixture
def undeclared(_undeclared_once: Checkout, tmp_path: Path) -> Checkout:
    """
    A checkout of `tests/crates/undeclared` whose `fx.alpha` was built in another checkout, with `beyond.txt` beside it.
    """
    shutil.copy(_undeclared_once.root.parent / "beyond.txt", tmp_path)
    return _again(_undeclared_once, tmp_path)


@pytest.fixture
def stored(_stored_once: Checkout, tmp_path: Path) -> Checkout:
    """
    A checkout whose `fx.alpha` is in the cache and needs Rust 1.85. Its PATH is empty.
    """
    copy = dataclasses.replace(_stored_once, root=tmp_path / "plain", cache=tmp_path / "cache", environment={})
    shutil.copytree(_stored_once.root, copy.root)
    shutil.copytree(_stored_once.cache, copy.cache, ignore=shutil.ignore_patterns("targets", "records", "checkouts"))
    copy.install_tools()
    (tmp_path / "empty").mkdir()
    copy.environment["PATH"] = str(tmp_path / "empty")
    return copy


@pytest.fixture(scope="session")
def _plain_once(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = check_out("plain", tmp_path_factory.mktemp("once"))
    assert [checkout.load(module).error for module in ("fx.alpha", "fx.beta")] == [None, None]
    return checkout


@pytest.fixture(scope="session")
def _inputs_once(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = check_out("every-input", tmp_path_factory.mktemp("once"))
    shutil.copytree(CRATES / "plain" / "pymod", checkout.root / "pymod")
    assert checkout.load().error is None
    return checkout


@pytest.fixture(scope="session")
def _undeclared_once(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = check_out("undeclared", tmp_path_factory.mktemp("once"))
    shutil.copytree(CRATES / "plain" / "pymod", checkout.root / "pymod")
    (checkout.root.parent / "beyond.txt").write_text("beyond-1\n")
    loaded = checkout.load()
    assert loaded.error is None, loaded.error
    return checkout


@pytest.fixture(scope="session")
def _stored_once(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = check_out("plain", tmp_path_factory.mktemp("once"))
    checkout.replace("alpha/Cargo.toml", 'edition = "2024"', 'edition = "2024"\nrust-version = "1.85"')
    assert checkout.load().error is None
    return checkout


def _again(checkout: Checkout, folder: Path) -> Checkout:
    """
    Copy a checkout with its cache, without the target folders and records, which belong to the old path.
    """
    root = folder / checkout.root.name
    shutil.copytree(checkout.root, root, symlinks=True)
    shutil.copytree(checkout.cache, folder / "cache", ignore=shutil.ignore_patterns("targets", "records"))
    copy = Checkout(root, folder / "cache")
    copy.install_tools()
    return copy
