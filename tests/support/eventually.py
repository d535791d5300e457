"""
Wait until a condition holds, and fail after a limit: the one polling loop of the tests.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Default limit in seconds. Only a hanging program or machine reaches it.
PATIENCE = 60.0
#: Default seconds between two checks of the condition.
PAUSE = 0.01


def eventually(
    condition: Callable[[], object], expected: str, *, within: float = PATIENCE, pause: float = PAUSE
) -> None:
    """
    Wait until *condition* is true. After *within* seconds fail with a message that contains *expected* and the limit.

    The condition may raise to end the wait early, for example because a child process died.
    """
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {within:g} s: {expected}"
        time.sleep(pause)
