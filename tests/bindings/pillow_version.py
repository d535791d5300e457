"""
The mark for tests that compare bytes with Pillow. A test module imports the mark and its fixture.
"""

from __future__ import annotations

import PIL
import pytest

#: The version whose decoded and resized bytes the extension reproduces.
PILLOW = "13.0.0"

needs_pillow_13 = pytest.mark.usefixtures("pillow_13")


@pytest.fixture(scope="session")
def pillow_13() -> None:
    """
    Fails the test if another Pillow version is installed, because decoded and resized bytes differ between versions.
    """
    if PIL.__version__ != PILLOW:
        pytest.fail(
            f"the expected bytes are those of Pillow {PILLOW}, but Pillow {PIL.__version__} is installed; "
            f"run: python -m pip install pillow=={PILLOW} (needs Python 3.11 or later)",
            pytrace=False,
        )
