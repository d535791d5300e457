"""
A scheduler over a fake server, turned by hand; the reasons for which requests end.
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

#: Turns after which a scheduler that is not idle never will be.
ENOUGH = 500

#: Why an echo ends by itself.
SILENCE = {"type": "stop", "matched": None}
#: Sampling of a request that must be ended.
ENDLESS = {"ignore_eos": True, "max_new_tokens": 100_000}


def aborted(status: int, kind: str, message: str) -> dict[str, Any]:
    return {"type": "abort", "status_code": status, "err_type": kind, "message": message}


def bad(message: str) -> dict[str, Any]:
    return aborted(400, "BadRequestError", message)


def length(tokens: int) -> dict[str, Any]:
    return {"type": "length", "length": tokens}


def stop(token: int) -> dict[str, Any]:
    return {"type": "stop", "matched": token}


class Watched(Echo):
    """
    An echo that keeps what it was asked for.
    """

    def __init__(self, **script: Any) -> None:
        super().__init__(**script)
        #: The requests of each prefill and of each decode, and those that were forgotten.
        self.prefilled: list[list[str]] = []
        self.decoded: list[list[str]] = []
        self.forgotten: list[str] = []

    def prefill(self, requests: Sequence[TokenizedGenerateReqInput]) -> list[Output]:
        self.prefilled.append([request.rid for request in requests])
        return super().prefill(requests)

    def decode(self, batch: Sequence[str]) -> list[Output]:
        self.decoded.append(list(batch))
        return super().decode(batch)

    def abort(self, rid: str) -> None:
        self.forgotten.append(rid)
        super().abort(rid)


class Wrong(Echo):
    """
    An engine that breaks the protocol.
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        super().__init__()
        self.outputs = outputs
        self.forgotten: list[str] = []

    def prefill(self, requests: Sequence[wire.TokenizedGenerateReqInput]) -> list[Output]:
        return list(self.outputs)

    def abort(self, rid: str) -> None:
        self.forgotten.append(rid)
        raise KeyError(rid)

    def flush_cache(self) -> None:
        raise OSError("the cache is gone" + "!" * 10_000)


def launched(
    engine: Engine, limits: Limits | None = None, clock: Callable[[], float] = lambda: 0.0
) -> tuple[Scheduler, FakeServer]:
    """
    A scheduler and its server.
    """

    class OverFake(Scheduler):
        def get_rust_server_class(self) -> type[RustServer]:
            return server_class(fake_extension())

    scheduler = OverFake(engine, limits, clock=clock)
    return scheduler, cast("FakeServer", scheduler.launch().server)


def settle(scheduler: Scheduler) -> int:
    """
    Turn until nothing is left to do; how many turns that took.
    """
    for turn in range(ENOUGH):
        scheduler.step()
        if scheduler.is_idle:
            return turn + 1
    raise AssertionError(f"still busy after {ENOUGH} turns")


def served(engine: Engine, *requests: wire.Request, limits: Limits | None = None) -> FakeServer:
    """
    The server after all requests have ended.
    """
    scheduler, server = launched(engine, limits)
    server.send(*requests)
    settle(scheduler)
    return server
