"""
The table of changes, tested for the toolkit. `ci/bench.py freshness` compares it with other tools.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout
from freshness_changes import CHANGES, copy_workspace, probe_machine

if TYPE_CHECKING:
    from pathlib import Path

    from freshness_changes import Change, Machine


@pytest.fixture(scope="session")
def machine() -> Machine:
    return probe_machine()


@pytest.fixture(scope="session")
def built_workspace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, str]:
    """
    The workspace that the changes are applied to, built once, and the module's value.
    """
    folder = tmp_path_factory.mktemp("freshness")
    copy_workspace(folder / "workspace")
    checkout = Checkout(folder / "workspace", folder / "cache")
    checkout.install_tools()
    value = checkout.load().value
    assert value is not None
    return checkout, value


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_changes_rebuild_as_listed(
    built_workspace: tuple[Checkout, str], machine: Machine, tmp_path: Path, change: Change
) -> None:
    """
    A change that must cause a rebuild compiles once. Any other change compiles nothing.

    The next load hits the cache, and so does a load of the restored files.
    """
    if reason := change.impossible_on(machine):
        pytest.skip(reason)
    once, before = built_workspace
    checkout = Checkout(tmp_path / "workspace", tmp_path / "cache")
    shutil.copytree(once.root, checkout.root, symlinks=True)
    shutil.copytree(once.cache, checkout.cache, ignore=shutil.ignore_patterns("targets", "records"))
    checkout.install_tools()

    change.act(checkout.root, machine)
    checkout.environment.update(change.environment(machine))
    changed, again = checkout.load(), checkout.load()

    expected = change.value_after(before, machine)
    assert (changed.value, changed.reason) == (expected, None if expected else "build-failed")
    assert changed.compiled == (["alpha"] if change.must_rebuild else [])
    if expected is None:
        assert change.complaint in str(changed.error)
    else:
        assert (again.value, again.cargo) == (expected, ())

    shutil.rmtree(checkout.root)
    shutil.copytree(once.root, checkout.root, symlinks=True)
    checkout.environment.clear()
    back = checkout.load()
    assert (back.value, back.cargo) == (before, ())
