"""
A fixture that writes a source tree, given as a mapping from path to text.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Plant = Callable[..., Path]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """
    Write files below a temporary folder and return it. A second call changes the same tree.
    """

    def write(files: Mapping[str, str | bytes], folder: str = "checkout") -> Path:
        root = tmp_path.resolve() / folder
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else textwrap.dedent(content).lstrip("\n").encode())
        return root

    return write
