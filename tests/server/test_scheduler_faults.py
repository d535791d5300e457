"""
The scheduler when an engine fails, or its server is gone: who is told what, and what goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from fake_server import generate
from scheduling import ENDLESS, SILENCE, Watched, Wrong, aborted, launched, served, settle
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.engine import Output
from sglang.srt.rust_server.engines.echo import Echo

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize("step", [1, 2], ids=["prefill", "decode"])
def test_a_step_that_raises_fails_its_requests(step: int, caplog: pytest.LogCaptureFixture) -> None:
    """
    Those alone, with a status for their clients, and the scheduler goes on.
    """
    engine = Watched(fail_at_step=step)
    scheduler, server = launched(engine)
    server.send(generate("a"), generate("b"))
    with caplog.at_level(logging.ERROR):
        settle(scheduler)
    server.send(generate("c"))
    settle(scheduler)

    failed = aborted(500, "InternalServerError", f"the engine failed: ScriptedFailure: the script fails step {step}")
    assert [server.pushed[rid].finish for rid in "abc"] == [failed, failed, SILENCE]
    assert engine.forgotten == ["a", "b", "c"]
    assert len(caplog.records) == 1
    assert scheduler.internal_state()["num_failed_steps"] == 1


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        pytest.param([], "ValueError: 0 outputs for 1 requests", id="an output too few"),
        pytest.param([Output([1]), Output([2])], "ValueError: 2 outputs for 1 requests", id="an output too many"),
        pytest.param([Output([-1])], "ValueError: the engine gave the token -1 for request r", id="no token"),
        pytest.param([Output([1, 1 << 31])], "ValueError: the engine gave the token 2147483648 for request r", id="a token too large"),
        pytest.param([None], "AttributeError: 'NoneType' object has no attribute 'token_ids'", id="no output"),
    ],
)
def test_an_engine_that_breaks_the_protocol_fails_its_requests(
    outputs: list[Output], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    As if it had raised; and what it raises where it forgets hurts nobody.
    """
    with caplog.at_level(logging.ERROR):
        finish = served(Wrong(outputs), generate("r")).pushed["r"].finish

    assert finish == aborted(500, "InternalServerError", f"the engine failed: {problem}")
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    "extras",
    [
        pytest.param(wire.Extras(output=[(0.0, 1 << 31)]), id="a token that does not fit"),
        pytest.param(wire.Extras(hidden=[["x"]]), id="no number"),  # type: ignore[list-item]
        pytest.param(wire.Extras(output=[5]), id="no pair"),  # type: ignore[list-item]
    ],
)
def test_extras_that_cannot_be_sent_fail_their_requests(extras: wire.Extras, caplog: pytest.LogCaptureFixture) -> None:
    """
    With an error for each client; the engine forgets them, and the scheduler goes on.
    """
    engine = Wrong([Output([1], extras=extras)])
    scheduler, server = launched(engine)
    server.send(generate("r", stream=True))
    with caplog.at_level(logging.ERROR):
        settle(scheduler)

    assert server.pushed == {}
    assert server.errors["r"].startswith("the engine failed: ")
    assert len(caplog.records) == 2


def test_a_cache_that_cannot_be_flushed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """
    In words of bounded length.
    """
    result = served(Wrong([]), wire.FlushCacheReq(rid="f")).results["f"]

    assert result["success"] is False
    assert result["message"].startswith("OSError: the cache is gone!")
    assert len(result["message"]) == 500
    assert len(caplog.records) == 1


def test_a_server_that_is_gone_ends_the_scheduler() -> None:
    """
    There is nobody left to serve.
    """
    scheduler, server = launched(Echo())
    server.send(generate("a", sampling=ENDLESS, stream=True))
    server.is_shut_down = True
    server.when_idle = lambda: pytest.fail("nobody will come")

    scheduler.run()

    assert 1 <= len(server.pushed["a"].tokens) < 100_000


def test_an_idle_scheduler_ends_with_its_server() -> None:
    """
    Whoever shut it down: nothing will come, and to wait for it would be to spin.
    """
    scheduler, server = launched(Echo())
    server.is_shut_down = True

    scheduler.run()

    assert len(server.waits) == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_the_server_is_shut_down_whatever_ends_the_scheduler(error: type[BaseException]) -> None:
    """
    At once: clients are not left waiting for one that died.
    """

    class Dying(Echo):
        def prefill(self, requests: Sequence[wire.TokenizedGenerateReqInput]) -> list[Output]:
            raise error

    scheduler, server = launched(Dying())
    server.send(generate("a"))

    with pytest.raises(error):
        scheduler.run()

    assert server.drain_deadlines == [0.0]
