"""
The Pillow version that defines the expected bytes of the tests in this folder.
"""

from __future__ import annotations

import PIL
import pytest

#: The version whose decoded and resized bytes the extension reproduces.
PILLOW = "13.0.0"


@pytest.fixture(scope="session")
def pillow_13() -> None:
    """
    Fails a test that compares bytes with Pillow if another version is installed, because the bytes differ by version.
    """
    if PIL.__version__ != PILLOW:
        pytest.fail(
            f"the expected bytes are those of Pillow {PILLOW}, but Pillow {PIL.__version__} is installed; "
            f"run: python -m pip install pillow=={PILLOW} (needs Python 3.11 or later)",
            pytrace=False,
        )
