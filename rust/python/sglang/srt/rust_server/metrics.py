"""
The counters of a scheduler.

Invariant: counters only grow. The throughput is that of the time since its last reading.
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: `ru_maxrss` is in kilobytes on Linux and in bytes on macOS.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Metrics:
    """
    Counters since the start of the scheduler.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        #: Steps of the engine, and how many of them raised an exception.
        self.steps = 0
        self.failed_steps = 0
        self.prompt_tokens = 0
        self.generated_tokens = 0
        #: Finished requests, by the `type` of their finish reason.
        self.finished: Counter[str] = Counter()
        self._clock = clock
        self._rated_at = clock()
        self._rated_tokens = 0

    def internal_state(self) -> dict[str, Any]:
        """
        All counters. The server's `/server_info` shows those that are on its allow-list.
        """
        return {
            "last_gen_throughput": self._throughput(),
            "memory_usage": {"max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT},
            "num_steps": self.steps,
            "num_failed_steps": self.failed_steps,
            "num_prompt_tokens": self.prompt_tokens,
            "num_generated_tokens": self.generated_tokens,
            "num_finished_reqs": dict(self.finished),
        }

    def _throughput(self) -> float:
        """
        Generated tokens per second since the last call.
        """
        now = self._clock()
        seconds, tokens = now - self._rated_at, self.generated_tokens - self._rated_tokens
        self._rated_at, self._rated_tokens = now, self.generated_tokens
        return tokens / seconds if seconds > 0 else 0.0
