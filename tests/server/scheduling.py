"""
Helpers: finish reasons, and a scheduler with a fake server. The test calls the steps of the scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fake_server import FakeServer, fake_extension, server_class
from sglang.srt.rust_server.engines.echo import Echo
from sglang.srt.rust_server.scheduler import Limits, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang.srt.rust_server import wire
    from sglang.srt.rust_server.engine import Engine, Output, TokenizedGenerateReqInput
    from sglang.srt.rust_server.server import RustServer

#: Maximum number of steps until a scheduler must be idle.
MAX_STEPS = 500

#: The finish reason of an echo that ends after the prompt.
END_OF_PROMPT = {"type": "stop", "matched": None}
#: Sampling parameters of a request that does not end by itself.
ENDLESS = {"ignore_eos": True, "max_new_tokens": 100_000}


def aborted(status: int, kind: str, message: str) -> dict[str, Any]:
    return {"type": "abort", "status_code": status, "err_type": kind, "message": message}


def bad(message: str) -> dict[str, Any]:
    return aborted(400, "BadRequestError", message)


def length(tokens: int) -> dict[str, Any]:
    return {"type": "length", "length": tokens}


def stop(token: int) -> dict[str, Any]:
    return {"type": "stop", "matched": token}


class RecordingEcho(Echo):
    """
    An echo engine that records its calls.
    """

    def __init__(self, **script: Any) -> None:
        super().__init__(**script)
        #: The rids of each prefill, of each decode, and those that were removed.
        self.prefilled: list[list[str]] = []
        self.decoded: list[list[str]] = []
        self.removed: list[str] = []

    def prefill(self, requests: Sequence[TokenizedGenerateReqInput]) -> list[Output]:
        self.prefilled.append([request.rid for request in requests])
        return super().prefill(requests)

    def decode(self, batch: Sequence[str]) -> list[Output]:
        self.decoded.append(list(batch))
        return super().decode(batch)

    def abort(self, rid: str) -> None:
        self.removed.append(rid)
        super().abort(rid)


class BrokenEngine(Echo):
    """
    An engine that returns *outputs* from every prefill, and raises in `abort` and `flush_cache`.
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        super().__init__()
        self.outputs = outputs
        self.removed: list[str] = []

    def prefill(self, requests: Sequence[wire.TokenizedGenerateReqInput]) -> list[Output]:
        return list(self.outputs)

    def abort(self, rid: str) -> None:
        self.removed.append(rid)
        raise KeyError(rid)

    def flush_cache(self) -> None:
        raise OSError("the cache is gone" + "!" * 10_000)


def launch(
    engine: Engine, limits: Limits | None = None, clock: Callable[[], float] = lambda: 0.0
) -> tuple[Scheduler, FakeServer]:
    """
    Create a scheduler and launch its fake server.
    """

    class FakeServerScheduler(Scheduler):
        def get_rust_server_class(self) -> type[RustServer]:
            return server_class(fake_extension())

    scheduler = FakeServerScheduler(engine, limits, clock=clock)
    return scheduler, cast("FakeServer", scheduler.launch().server)


def settle(scheduler: Scheduler) -> int:
    """
    Step until the scheduler is idle. Return the number of steps.
    """
    for count in range(1, MAX_STEPS + 1):
        scheduler.step()
        if scheduler.is_idle:
            return count
    raise AssertionError(f"the scheduler is still busy after {MAX_STEPS} steps")


def serve(engine: Engine, *requests: wire.Request, limits: Limits | None = None) -> FakeServer:
    """
    Run *requests* to their end, and return the server.
    """
    scheduler, server = launch(engine, limits)
    server.send(*requests)
    settle(scheduler)
    return server
