"""
Unit tests of the build hook: what an editable install contains.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader.packaging._editable import pth_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Plant = Callable[..., Path]


@pytest.fixture
def hatch_build() -> ModuleType:
    """
    The build hook of a distribution of extension modules.
    """
    pytest.importorskip("hatchling", reason="the build back end is not installed")
    path = Path(__file__).parents[2] / "rust/hatch_build.py"
    if not path.exists():
        pytest.skip("the distribution is not part of this tree")
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_editable_install_covers_broken_declarations(
    hatch_build: ModuleType, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Prefixes of broken and duplicate modules are included, each with a warning. `sys.path` is restored.
    """
    crate = '[package]\nname = "{}"\nversion = "0.1.0"\n[package.metadata.sglang]\npython-module = "{}"\n{}\n'
    root = plant(
        {
            "Cargo.toml": '[workspace]\nmembers = ["a", "b", "c", "d"]\n',
            "a/Cargo.toml": crate.format("a", "right.x", ""),
            "b/Cargo.toml": crate.format("b", "twice.x", ""),
            "c/Cargo.toml": crate.format("c", "twice.x", ""),
            "d/Cargo.toml": crate.format("d", "wrong.x", "features = 1"),
        }
    )
    monkeypatch.setattr(hatch_build, "toolkit_folder", lambda _: Path(__file__).parents[2])
    before = list(sys.path)

    line, problems = hatch_build.editable_line(root)

    assert line == pth_line(("right.", "twice.", "wrong."), str(root))
    assert ["features" in problems[0], "twice.x" in problems[1], len(problems)] == [True, True, 2]
    assert sys.path == before
