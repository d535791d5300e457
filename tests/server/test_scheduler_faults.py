"""
The scheduler when the engine fails or returns invalid output, or the server is shut down.
"""

from __future__ import annotations

import logging
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from fake_server import generate
from scheduling import END_OF_PROMPT, ENDLESS, BrokenEngine, RecordingEcho, aborted, launch, length, serve, settle
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.engine import Output
from sglang.srt.rust_server.engines.echo import Echo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@pytest.mark.parametrize("step", [1, 2], ids=["prefill", "decode"])
def test_a_step_that_raises_fails_only_its_requests(step: int, caplog: pytest.LogCaptureFixture) -> None:
    """
    The requests fail with status 500, and the scheduler continues.
    """
    engine = RecordingEcho(fail_at_step=step)
    scheduler, server = launch(engine)
    server.send(generate("a"), generate("b"))
    with caplog.at_level(logging.ERROR):
        settle(scheduler)
    server.send(generate("c"))
    settle(scheduler)

    failed = aborted(500, "InternalServerError", f"the engine failed: ScriptedFailure: the script fails step {step}")
    assert [server.pushed[rid].finish for rid in "abc"] == [failed, failed, END_OF_PROMPT]
    assert engine.removed == ["a", "b", "c"]
    assert len(caplog.records) == 1
    assert scheduler.internal_state()["num_failed_steps"] == 1


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        pytest.param([], "ValueError: the step returned 0 outputs for 1 requests", id="too few outputs"),
        pytest.param(
            [Output([1]), Output([2])], "ValueError: the step returned 2 outputs for 1 requests", id="too many outputs"
        ),
        pytest.param(
            [Output([-1])], "ValueError: the engine returned the invalid token -1 for request r", id="invalid token"
        ),
        pytest.param(
            [Output([1, 1 << 31])],
            "ValueError: the engine returned the invalid token 2147483648 for request r",
            id="token over 32 bits",
        ),
        pytest.param([None], "AttributeError: 'NoneType' object has no attribute 'token_ids'", id="None as output"),
        pytest.param(None, "TypeError: 'NoneType' object is not iterable", id="None as outputs"),
    ],
)
def test_an_engine_that_breaks_the_protocol_fails_its_requests(
    outputs: list[Output], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The requests fail as after an exception in the step. An exception in the engine's `abort` is only logged.
    """
    with caplog.at_level(logging.ERROR):
        finish = serve(BrokenEngine(outputs), generate("r")).pushed["r"].finish

    assert finish == aborted(500, "InternalServerError", f"the engine failed: {problem}")
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("finish", "shown"),
    [
        pytest.param({}, "{}", id="empty"),
        pytest.param({"matched": 3}, "{'matched': 3}", id="without a type"),
        pytest.param({"type": 3}, "{'type': 3}", id="type that is not text"),
        pytest.param("stop", "'stop'", id="text"),
        pytest.param(False, "False", id="not a mapping"),
        pytest.param(
            {"type": "stop", "matched": b"x"}, "{'matched': b'x', 'type': 'stop'}", id="value of an unsupported type"
        ),
        pytest.param({"type": "stop", "matched": [[1]]}, "{'matched': [[1]], 'type': 'stop'}", id="nested value"),
        pytest.param({"type": "stop", 1: 2}, "{'type': 'stop', 1: 2}", id="key that is not text"),
        pytest.param(
            {"type": "stop", "matched": 1 << 64},
            "{'matched': 18446744073709551616, 'type': 'stop'}",
            id="number over 64 bits",
        ),
        pytest.param({"type": "\ud800"}, "{'type': '\\ud800'}", id="lone surrogate"),
        pytest.param(
            {"type": None, "words": "a" * 10_000},
            "{'type': None, 'words': 'aaaaaaaaaaaa...aaaaaaaaaaaaa'}",
            id="long value is shortened",
        ),
    ],
)
def test_an_invalid_finish_fails_its_request(finish: Any, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    The message shows the finish reason. The state is still available, and counts the failure.
    """
    scheduler, server = launch(BrokenEngine([Output([1], finish)]))
    server.send(generate("r"), wire.GetInternalStateReq(rid="before"))
    with caplog.at_level(logging.ERROR):
        settle(scheduler)
    server.send(wire.GetInternalStateReq(rid="after"))
    scheduler.step()

    problem = f"the engine failed: ValueError: the engine returned the invalid finish reason {shown} for request r"
    assert server.pushed["r"].finish == aborted(500, "InternalServerError", problem)
    assert server.results["after"]["num_finished_reqs"] == {"abort": 1}


@pytest.mark.parametrize(
    "reason",
    [
        pytest.param(MappingProxyType({"type": "stop", "matched": 5}), id="any mapping"),
        pytest.param(
            {"type": "content_filter", "words": "none", "count": 3, "sure": True, "rest": None}, id="custom type"
        ),
    ],
)
def test_a_custom_finish_is_passed_on_unchanged(reason: Mapping[str, Any]) -> None:
    """
    The scheduler does not restrict the `type`.
    """
    assert serve(BrokenEngine([Output([1], reason)]), generate("r")).pushed["r"].finish == dict(reason)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(Output([-1]), id="invalid token"),
        pytest.param(Output([2], {"matched": 2}), id="invalid finish"),
        pytest.param(Output([2], extras="none"), id="invalid extras"),  # type: ignore[arg-type]
        pytest.param(None, id="None as output"),
    ],
)
def test_an_invalid_output_fails_only_its_request(wrong: Output) -> None:
    """
    Requests before and after it in the same step are not affected.
    """
    engine = BrokenEngine([Output([1], END_OF_PROMPT), wrong, Output([3], END_OF_PROMPT), Output([4])])

    pushed = serve(
        engine, generate("a"), generate("b"), generate("c"), generate("d", sampling={"max_new_tokens": 1})
    ).pushed

    assert [pushed[rid].finish for rid in "acd"] == [END_OF_PROMPT, END_OF_PROMPT, length(1)]
    assert [pushed[rid].tokens for rid in "acd"] == [[1], [3], [4]]
    assert pushed["b"].finish is not None
    assert pushed["b"].finish["status_code"] == 500


class ErrorWithoutText(Exception):
    def __str__(self) -> str:
        raise self


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(
            OSError("half \ud800 a character"), "OSError: half ? a character", id="text that is not valid UTF-8"
        ),
        pytest.param(OSError("x" * 10_000), f"OSError: {'x' * 491}", id="long text"),
        pytest.param(ErrorWithoutText(), "ErrorWithoutText", id="text that raises"),
    ],
)
def test_every_engine_error_gets_a_message(error: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The error may be raised in a step or in `flush_cache`.
    """

    class Raising(Echo):
        def prefill(self, requests: Sequence[wire.TokenizedGenerateReqInput]) -> list[Output]:
            raise error

        def flush_cache(self) -> None:
            raise error

    scheduler, server = launch(Raising())
    server.send(wire.FlushCacheReq(rid="f"), generate("r"))
    # Do not log: pytest-xdist cannot send text that is not valid UTF-8 between its processes.
    monkeypatch.setattr(logging.getLogger("sglang.srt.rust_server.scheduler"), "disabled", True)
    settle(scheduler)

    assert server.results["f"] == {"success": False, "message": message}
    assert server.pushed["r"].finish == aborted(500, "InternalServerError", f"the engine failed: {message}")


class RaisingNumber:
    def __float__(self) -> float:
        raise RuntimeError("on purpose")


@pytest.mark.parametrize("finish", [None, END_OF_PROMPT], ids=["continues", "ends"])
@pytest.mark.parametrize(
    "output",
    [
        pytest.param(Output([1], extras=wire.Extras(output=[(0.0, 1 << 31)])), id="token over 32 bits in extras"),
        pytest.param(Output([1], extras=wire.Extras(hidden=[["x"]])), id="text as number"),  # type: ignore[list-item]
        pytest.param(Output([1], extras=wire.Extras(output=[5])), id="number as pair"),  # type: ignore[list-item]
        pytest.param(Output([1], extras=wire.Extras(output=[(RaisingNumber(), 1)])), id="number that raises"),  # type: ignore[list-item]
        pytest.param(Output([1.5]), id="float as token"),  # type: ignore[list-item]
    ],
)
def test_output_that_cannot_be_encoded_fails_only_its_request(
    output: Output, finish: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The other steps of the frame are sent in order. All requests are removed from the engine and counted.
    """
    engine = BrokenEngine(
        [Output([1], END_OF_PROMPT), msgspec.structs.replace(output, finish=finish), Output([3], END_OF_PROMPT)]
    )
    scheduler, server = launch(engine)
    server.send(*(generate(rid, stream=True) for rid in "arb"))
    with caplog.at_level(logging.ERROR):
        settle(scheduler)

    assert server.batches == [["a"], ["b"]]
    assert [server.pushed[rid].tokens for rid in "ab"] == [[1], [3]]
    assert list(server.errors) == ["r"]
    assert server.errors["r"].startswith("the engine failed: ")
    assert sorted(engine.removed) == ["a", "b", "r"]
    assert scheduler.internal_state()["num_finished_reqs"] == (
        {"stop": 2, "abort": 1} if finish is None else {"stop": 3}
    )
    assert ["request r cannot be encoded" in record.message for record in caplog.records].count(True) == 1


def test_a_failed_flush_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """
    The message has a bounded length.
    """
    result = serve(BrokenEngine([]), wire.FlushCacheReq(rid="f")).results["f"]

    assert result["success"] is False
    assert result["message"].startswith("OSError: the cache is gone!")
    assert len(result["message"]) == 500
    assert len(caplog.records) == 1


@pytest.mark.parametrize("is_shut_down", [False, True])
def test_a_shutdown_is_noticed_when_steps_are_sent_one_by_one(is_shut_down: bool) -> None:
    """
    If the server is shut down, the scheduler stops; otherwise it continues.
    """
    scheduler, server = launch(BrokenEngine([Output([1]), Output([1.5]), Output([1])]))  # type: ignore[list-item]
    server.send(*(generate(rid, stream=True) for rid in "arb"))
    server.is_shut_down = is_shut_down

    scheduler.step()

    assert list(server.errors) == ["r"]
    assert scheduler._stopping.is_set() is is_shut_down


def test_a_shutdown_of_the_server_ends_a_busy_scheduler() -> None:
    """
    The scheduler stops at the next frame.
    """
    scheduler, server = launch(Echo())
    server.send(generate("a", sampling=ENDLESS, stream=True))
    server.is_shut_down = True
    server.when_idle = lambda: pytest.fail("the scheduler waits for messages")

    scheduler.run()

    assert 1 <= len(server.pushed["a"].tokens) < 100_000


def test_a_shutdown_of_the_server_ends_an_idle_scheduler() -> None:
    """
    It must stop after one wait: no message can arrive, and further waits would be a busy loop.
    """
    scheduler, server = launch(Echo())
    server.is_shut_down = True

    scheduler.run()

    assert len(server.waits) == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_the_server_is_shut_down_when_the_scheduler_dies(error: type[BaseException]) -> None:
    """
    There is no drain, so that clients do not wait for a dead scheduler.
    """

    class Dying(Echo):
        def prefill(self, requests: Sequence[wire.TokenizedGenerateReqInput]) -> list[Output]:
            raise error

    scheduler, server = launch(Dying())
    server.send(generate("a"))

    with pytest.raises(error):
        scheduler.run()

    assert server.drain_deadlines == [0.0]


def test_a_scheduler_that_dies_during_the_drain_cuts_it_short() -> None:
    """
    Otherwise the running shutdown would wait for requests that the scheduler no longer serves.
    """
    scheduler, server = launch(RecordingEcho(die_at_step=3))
    server.send(generate("a", sampling=ENDLESS))
    is_cut = threading.Event()

    def drain() -> None:
        if server.drain_deadlines == [None]:
            assert is_cut.wait(30)
        is_cut.set()

    server.while_draining = drain
    scheduler.stop()

    with pytest.raises(SystemExit):
        scheduler.run()

    assert server.drain_deadlines == [None, 0.0]
