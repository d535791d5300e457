"""
The scheduler when an engine fails, or its server is gone: who is told what, and what goes on.
"""

from __future__ import annotations

import logging
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from fake_server import generate
from scheduling import ENDLESS, SILENCE, Watched, Wrong, aborted, launched, length, served, settle
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.engine import Output
from sglang.srt.rust_server.engines.echo import Echo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
        pytest.param(
            [Output([1, 1 << 31])],
            "ValueError: the engine gave the token 2147483648 for request r",
            id="a token too large",
        ),
        pytest.param([None], "AttributeError: 'NoneType' object has no attribute 'token_ids'", id="no output"),
        pytest.param(None, "TypeError: 'NoneType' object is not iterable", id="no outputs"),
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
    ("finish", "shown"),
    [
        pytest.param({}, "{}", id="empty"),
        pytest.param({"matched": 3}, "{'matched': 3}", id="without a type"),
        pytest.param({"type": 3}, "{'type': 3}", id="a type that is no text"),
        pytest.param("stop", "'stop'", id="a text"),
        pytest.param(False, "False", id="no mapping"),
        pytest.param(
            {"type": "stop", "matched": b"x"}, "{'matched': b'x', 'type': 'stop'}", id="a value that frames do not have"
        ),
        pytest.param({"type": "stop", "matched": [[1]]}, "{'matched': [[1]], 'type': 'stop'}", id="a value in a value"),
        pytest.param({"type": "stop", 1: 2}, "{'type': 'stop', 1: 2}", id="a name that is no text"),
        pytest.param(
            {"type": "stop", "matched": 1 << 64},
            "{'matched': 18446744073709551616, 'type': 'stop'}",
            id="a number too large",
        ),
        pytest.param({"type": "\ud800"}, "{'type': '\\ud800'}", id="half a character"),
        pytest.param(
            {"type": None, "words": "a" * 10_000},
            "{'type': None, 'words': 'aaaaaaaaaaaa...aaaaaaaaaaaaa'}",
            id="a long one",
        ),
    ],
)
def test_a_finish_that_is_none_fails_its_request(finish: Any, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    With words that show it; the state can still be asked for, and counts it.
    """
    scheduler, server = launched(Wrong([Output([1], finish)]))
    server.send(generate("r"), wire.GetInternalStateReq(rid="before"))
    with caplog.at_level(logging.ERROR):
        settle(scheduler)
    server.send(wire.GetInternalStateReq(rid="after"))
    scheduler.step()

    problem = f"the engine failed: ValueError: the engine gave the finish {shown} for request r"
    assert server.pushed["r"].finish == aborted(500, "InternalServerError", problem)
    assert server.results["after"]["num_finished_reqs"] == {"abort": 1}


@pytest.mark.parametrize(
    "reason",
    [
        pytest.param(MappingProxyType({"type": "stop", "matched": 5}), id="any mapping"),
        pytest.param(
            {"type": "content_filter", "words": "none", "count": 3, "sure": True, "rest": None}, id="a type of its own"
        ),
    ],
)
def test_a_finish_of_the_engines_own_arrives_unchanged(reason: Mapping[str, Any]) -> None:
    """
    It is not ours to know what an engine ends for.
    """
    assert served(Wrong([Output([1], reason)]), generate("r")).pushed["r"].finish == dict(reason)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(Output([-1]), id="no token"),
        pytest.param(Output([2], {"matched": 2}), id="no finish"),
        pytest.param(Output([2], extras="none"), id="no extras"),  # type: ignore[arg-type]
        pytest.param(None, id="no output"),
    ],
)
def test_what_is_wrong_for_one_request_hurts_no_other(wrong: Output) -> None:
    """
    Neither those before it in the step, whose end stands, nor those behind it.
    """
    engine = Wrong([Output([1], SILENCE), wrong, Output([3], SILENCE), Output([4])])

    pushed = served(
        engine, generate("a"), generate("b"), generate("c"), generate("d", sampling={"max_new_tokens": 1})
    ).pushed

    assert [pushed[rid].finish for rid in "acd"] == [SILENCE, SILENCE, length(1)]
    assert [pushed[rid].tokens for rid in "acd"] == [[1], [3], [4]]
    assert pushed["b"].finish is not None
    assert pushed["b"].finish["status_code"] == 500


class Unsayable(Exception):
    def __str__(self) -> str:
        raise self


@pytest.mark.parametrize(
    ("error", "named"),
    [
        pytest.param(OSError("half \ud800 a character"), "OSError: half ? a character", id="no text for others"),
        pytest.param(OSError("x" * 10_000), f"OSError: {'x' * 491}", id="many words"),
        pytest.param(Unsayable(), "Unsayable", id="an error in its words"),
    ],
)
def test_whatever_an_engine_raises_has_a_name(error: Exception, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where it computes and where it flushes.
    """

    class Raising(Echo):
        def prefill(self, requests: Sequence[wire.TokenizedGenerateReqInput]) -> list[Output]:
            raise error

        def flush_cache(self) -> None:
            raise error

    scheduler, server = launched(Raising())
    server.send(wire.FlushCacheReq(rid="f"), generate("r"))
    # A report that goes from process to process cannot have what has no UTF-8.
    monkeypatch.setattr(logging.getLogger("sglang.srt.rust_server.scheduler"), "disabled", True)
    settle(scheduler)

    assert server.results["f"] == {"success": False, "message": named}
    assert server.pushed["r"].finish == aborted(500, "InternalServerError", f"the engine failed: {named}")


class Poison:
    def __float__(self) -> float:
        raise RuntimeError("no number today")


@pytest.mark.parametrize("finish", [None, SILENCE], ids=["goes on", "ends"])
@pytest.mark.parametrize(
    "output",
    [
        pytest.param(Output([1], extras=wire.Extras(output=[(0.0, 1 << 31)])), id="a token that does not fit"),
        pytest.param(Output([1], extras=wire.Extras(hidden=[["x"]])), id="no number"),  # type: ignore[list-item]
        pytest.param(Output([1], extras=wire.Extras(output=[5])), id="no pair"),  # type: ignore[list-item]
        pytest.param(Output([1], extras=wire.Extras(output=[(Poison(), 1)])), id="a number that raises"),  # type: ignore[list-item]
        pytest.param(Output([1.5]), id="no whole number"),  # type: ignore[list-item]
    ],
)
def test_what_cannot_be_sent_fails_its_request(
    output: Output, finish: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """
    With an error for its client; others in the frame are sent as ever, in their order. The engine forgets all, and each is counted.
    """
    engine = Wrong([Output([1], SILENCE), msgspec.structs.replace(output, finish=finish), Output([3], SILENCE)])
    scheduler, server = launched(engine)
    server.send(*(generate(rid, stream=True) for rid in "arb"))
    with caplog.at_level(logging.ERROR):
        settle(scheduler)

    assert server.batches == [["a"], ["b"]]
    assert [server.pushed[rid].tokens for rid in "ab"] == [[1], [3]]
    assert list(server.errors) == ["r"]
    assert server.errors["r"].startswith("the engine failed: ")
    assert sorted(engine.forgotten) == ["a", "b", "r"]
    assert scheduler.internal_state()["num_finished_reqs"] == (
        {"stop": 2, "abort": 1} if finish is None else {"stop": 3}
    )
    assert ["request r cannot be sent" in record.message for record in caplog.records].count(True) == 1


def test_a_cache_that_cannot_be_flushed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """
    In words of bounded length.
    """
    result = served(Wrong([]), wire.FlushCacheReq(rid="f")).results["f"]

    assert result["success"] is False
    assert result["message"].startswith("OSError: the cache is gone!")
    assert len(result["message"]) == 500
    assert len(caplog.records) == 1


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_server_that_is_gone_is_found_out_by_a_frame_in_pieces(is_gone: bool) -> None:
    """
    Then nobody is served any more; otherwise the scheduler goes on.
    """
    scheduler, server = launched(Wrong([Output([1]), Output([1.5]), Output([1])]))  # type: ignore[list-item]
    server.send(*(generate(rid, stream=True) for rid in "arb"))
    server.is_shut_down = is_gone

    scheduler.step()

    assert list(server.errors) == ["r"]
    assert scheduler._stopping.is_set() is is_gone


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


def test_a_scheduler_that_dies_while_it_drains_cuts_the_drain_short() -> None:
    """
    The shutdown that is under way waits for clients whom nobody serves any more.
    """
    scheduler, server = launched(Watched(die_at_step=3))
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
