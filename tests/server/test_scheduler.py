"""
The scheduler: who is worked on, when a request ends and how, and what is left behind.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from fake_server import FakeServer, generate
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling import Watched, launched, served, settle
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.engine import EngineInfo, Output
from sglang.srt.rust_server.engines.echo import Echo
from sglang.srt.rust_server.scheduler import Limits, Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

SILENCE = {"type": "stop", "matched": None}
ENDLESS = {"ignore_eos": True, "max_new_tokens": 100_000}


def aborted(status: int, kind: str, message: str) -> dict[str, Any]:
    return {"type": "abort", "status_code": status, "err_type": kind, "message": message}


def bad(message: str) -> dict[str, Any]:
    return aborted(400, "BadRequestError", message)


def length(tokens: int) -> dict[str, Any]:
    return {"type": "length", "length": tokens}


def stop(token: int) -> dict[str, Any]:
    return {"type": "stop", "matched": token}


@pytest.mark.parametrize(
    ("script", "sampling", "tokens", "finish"),
    [
        pytest.param({}, {}, [1, 2, 3], SILENCE, id="the engine ends"),
        pytest.param({}, {"max_new_tokens": 2}, [1, 2], length(2), id="most tokens"),
        pytest.param({}, {"max_new_tokens": 3}, [1, 2, 3], length(3), id="most tokens, where the engine ends too"),
        pytest.param({}, {"max_new_tokens": 0}, [], length(0), id="no tokens"),
        pytest.param({"context_len": 8}, {"max_new_tokens": 100, "ignore_eos": True}, [1, 2, 3, 1, 2], length(5), id="what fits"),
        pytest.param({"context_len": 8}, {"ignore_eos": True}, [1, 2, 3, 1, 2], length(5), id="as many as fit"),
        pytest.param({}, {"min_new_tokens": 5}, [1, 2, 3, 1, 2], SILENCE, id="least tokens"),
        pytest.param({}, {"stop_token_ids": [9, 2]}, [1, 2], stop(2), id="stop token"),
        pytest.param({}, {"stop_token_ids": [2], "max_new_tokens": 2}, [1, 2], stop(2), id="stop token, where most tokens end it too"),
        pytest.param({}, {"stop_token_ids": [2], "min_new_tokens": 2}, [1, 2, 3], SILENCE, id="stop token too early"),
        pytest.param(
            {}, {"stop_token_ids": [1], "min_new_tokens": 3, "ignore_eos": True}, [1, 2, 3, 1], stop(1), id="stop token when it may be"
        ),
        pytest.param({"eos_token_id": 7}, {}, [1, 2, 3, 7], stop(7), id="end of sequence"),
        pytest.param({"eos_token_id": 2}, {}, [1, 2], stop(2), id="end of sequence within"),
        pytest.param({"eos_token_id": 2}, {"min_new_tokens": 3}, [1, 2, 3, 2], stop(2), id="end of sequence too early"),
        pytest.param({"eos_token_id": 2}, {"ignore_eos": True, "max_new_tokens": 4}, [1, 2, 3, 1], length(4), id="end of sequence ignored"),
        pytest.param({"eos_token_id": 2}, {"ignore_eos": True, "stop_token_ids": [3]}, [1, 2, 3], stop(3), id="stops are not ignored"),
        pytest.param(
            {}, {"temperature": 0.1, "top_k": 1, "top_p": 0.5, "min_p": 0.1, "sampling_seed": 4}, [1, 2, 3], SILENCE, id="supported"
        ),
        pytest.param({}, {"logit_bias": {}, "custom_params": {}}, [1, 2, 3], SILENCE, id="empty is not asked for"),
        pytest.param({}, {"stop_strs": ["x"]}, [1, 2, 3], SILENCE, id="stop texts are the server's"),
        pytest.param({}, {"frequency_penalty": 0.5}, [], bad("frequency_penalty is not supported by this engine"), id="a penalty"),
        pytest.param({}, {"logit_bias": {"1": 1.0}}, [], bad("logit_bias is not supported by this engine"), id="biases"),
        pytest.param({}, {"regex": "a"}, [], bad("regex is not supported by this engine"), id="a grammar"),
        pytest.param({}, {"stop_regex_strs": ["a"]}, [], bad("stop_regex_strs is not supported by this engine"), id="stop patterns"),
        pytest.param(
            {"context_len": 3}, {}, [], bad("the prompt has 3 tokens, which leaves no room for an answer in a context of 3"), id="long"
        ),
        pytest.param(
            {"max_total_num_tokens": 9},
            {"max_new_tokens": 7},
            [],
            bad("prompt and max_new_tokens need 10 tokens, and this engine has room for 9"),
            id="more than there is",
        ),
        pytest.param(
            {"abort_at_token": 2, "abort": {"message": "no", "status_code": 503}},
            {},
            [1, 2],
            {"type": "abort", "message": "no", "status_code": 503},
            id="the engine gives up",
        ),
        pytest.param({"abort_at_token": 1}, {}, [1], {"type": "abort", "message": "scripted"}, id="the engine gives up, without a status"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_how_a_request_ends(
    script: dict[str, Any], sampling: dict[str, Any], tokens: list[int], finish: dict[str, Any], stream: bool
) -> None:
    """
    The same tokens and the same reason, streamed or not, and exactly once.
    """
    engine = Watched(**script)

    pushed = served(engine, generate("r", sampling=sampling, stream=stream)).pushed["r"]

    assert pushed.tokens == tokens
    assert pushed.finish == finish
    assert pushed.prompt_tokens == 3
    # Whoever was taken in is forgotten, once; whoever was refused was never seen.
    assert engine.forgotten == [rid for rids in engine.prefilled for rid in rids]
    assert engine.prefilled == ([] if finish.get("status_code") == 400 else [["r"]])


@pytest.mark.parametrize(
    ("sampling", "stream", "default", "frames"),
    [
        pytest.param({}, True, 1, [1] * 7, id="stream: every token"),
        pytest.param({}, True, 3, [1, 3, 3], id="stream: the first at once, then in threes"),
        pytest.param({"stream_interval": 2}, True, 3, [1, 2, 2, 2], id="stream: as its client wants"),
        pytest.param({"stream_interval": 0}, True, 3, [1, 3, 3], id="stream: 0 is not said"),
        pytest.param({}, False, 1, [7], id="unary: the end alone"),
        pytest.param({"stop_strs": ["x"]}, False, 3, [1] * 7, id="unary with stop texts: every token, so that the server can stop it"),
        pytest.param({"stop_strs": ["x"], "stream_interval": 4}, True, 3, [1] * 7, id="stream with stop texts"),
    ],
)
def test_when_clients_hear(sampling: dict[str, Any], stream: bool, default: int, frames: list[int]) -> None:
    """
    Frames have as many tokens as the interval says.
    """
    request = generate("r", range(1, 8), sampling=sampling, stream=stream)

    pushed = served(Echo(), request, limits=Limits(stream_interval=default)).pushed["r"]

    assert [len(frame) for frame in pushed.frames] == frames
    assert pushed.tokens == list(range(1, 8))


def test_a_long_unary_request_shows_that_it_lives() -> None:
    """
    Not with every token, but more than once.
    """
    request = generate("r", sampling={"ignore_eos": True, "max_new_tokens": 120})

    assert [len(frame) for frame in served(Echo(), request).pushed["r"].frames] == [50, 50, 20]


def test_requests_join_and_leave_between_steps() -> None:
    """
    A newcomer gets its first token while others get their next, and who ends makes room.
    """
    engine = Watched(max_running_requests=2)
    scheduler, server = launched(engine)
    server.send(generate("a", range(1, 5)))
    scheduler.step()
    server.send(generate("b", range(1, 3)), generate("c", range(1, 2)))
    scheduler.step()
    assert server.batches == []
    settle(scheduler)

    assert engine.prefilled == [["a"], ["b"], ["c"]]
    assert engine.decoded == [["a"], ["a", "b"], ["a"]]
    assert [server.pushed[rid].tokens for rid in "abc"] == [[1, 2, 3, 4], [1, 2], [1]]
    assert engine.forgotten == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("needed", "prefilled"),
    [
        pytest.param([10, 8, 2], [["a", "b", "c"]], id="all that there is"),
        pytest.param([10, 9, 2], [["a", "b"], ["c"]], id="one too many"),
        pytest.param([10, 11, 2], [["a"], ["b", "c"]], id="nobody overtakes"),
    ],
)
def test_who_needs_more_than_is_free_is_waited_for(needed: list[int], prefilled: list[list[str]]) -> None:
    """
    Tokens are reserved up to each one's limit.
    """
    engine = Watched(max_total_num_tokens=20)
    requests = [generate(rid, [1], sampling={"max_new_tokens": tokens - 1}) for rid, tokens in zip("abc", needed, strict=True)]

    served(engine, *requests)

    assert engine.prefilled == prefilled


def test_the_queue_has_a_limit() -> None:
    """
    Who is beyond it is told to come back, at once; everybody gets an answer.
    """
    scheduler, server = launched(Echo(max_running_requests=1), Limits(max_queued_requests=2))
    server.send(*(generate(str(number)) for number in range(5)))
    scheduler.step()
    full = aborted(503, "ServiceUnavailable", "the request queue is full, try again later")
    assert {rid: pushed.finish for rid, pushed in server.pushed.items()} == dict.fromkeys("234", full)
    settle(scheduler)

    assert [server.pushed[rid].finish for rid in "01"] == [SILENCE, SILENCE]


def test_fewer_may_run_than_the_engine_can() -> None:
    """
    The smaller of the two limits holds; none at all is a mistake.
    """
    for able, allowed, expected in ((4, 2, 2), (2, 4, 2), (3, None, 3)):
        engine = Watched(max_running_requests=able)
        served(engine, *(generate(str(number)) for number in range(8)), limits=Limits(max_running_requests=allowed))
        assert max(map(len, engine.prefilled)) == expected
    with pytest.raises(ValueError, match="at least one"):
        Scheduler(Echo(max_running_requests=0))


@pytest.mark.parametrize(
    ("abort", "ended"),
    [
        pytest.param(wire.AbortReq(rid="running"), ["running"], id="running"),
        pytest.param(wire.AbortReq(rid="waiting"), ["waiting"], id="waiting"),
        pytest.param(wire.AbortReq(rid="unknown"), [], id="unknown"),
        pytest.param(wire.AbortReq(rid="run"), [], id="a part of a name is none"),
        pytest.param(wire.AbortReq(abort_all=True), ["waiting", "running"], id="all"),
        pytest.param(wire.AbortReq(), [], id="nobody"),
    ],
)
def test_aborts(abort: wire.AbortReq, ended: list[str]) -> None:
    """
    Whoever is aborted ends at once, with what it had; the engine forgets who it had taken in; others go on.
    """
    engine = Watched(max_running_requests=1)
    scheduler, server = launched(engine)
    server.send(generate("running", sampling=ENDLESS), generate("waiting"))
    scheduler.step()
    decoded = len(engine.decoded)
    server.send(abort)
    scheduler.step()

    assert {rid for rid, pushed in server.pushed.items() if pushed.finish is not None} == set(ended)
    for rid in ended:
        assert server.pushed[rid].finish == {"type": "abort", "message": "aborted"}
    assert engine.forgotten == [rid for rid in ended if rid == "running"]
    assert len(engine.decoded) - decoded == ("running" not in ended)
    if "running" in ended:
        assert server.pushed["running"].tokens == [1]
        settle(scheduler)
        assert engine.prefilled[1:] == ([] if "waiting" in ended else [["waiting"]])


def test_an_abort_has_words() -> None:
    """
    Those of whoever asked for it.
    """
    server = served(Echo(), generate("r", sampling=ENDLESS), wire.AbortReq(rid="r", abort_message="timed out"))

    assert server.pushed["r"].finish == {"type": "abort", "message": "timed out"}


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


class Wrong(Echo):
    """
    An engine that breaks the protocol.
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        super().__init__()
        self.outputs = outputs

    def prefill(self, requests: Sequence[wire.TokenizedGenerateReqInput]) -> list[Output]:
        return list(self.outputs)

    def abort(self, rid: str) -> None:
        raise KeyError(rid)

    def flush_cache(self) -> None:
        raise OSError("the cache is gone" + "!" * 10_000)


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


def test_tokens_of_drafts_are_cut_at_the_end() -> None:
    """
    Several tokens at once end where one by one would, and so do their extras.
    """
    extras = wire.Extras(output=[(0.0, 5), (0.0, 6), (0.0, 7)], input=[(None, 1)])
    request = generate("r", sampling={"stop_token_ids": [6]})

    pushed = served(Wrong([Output([5, 6, 7], extras=extras)]), request).pushed["r"]

    assert (pushed.tokens, pushed.finish) == ([5, 6], stop(6))
    assert len(pushed.extras[0]["output"]) == 2
    assert len(pushed.extras[0]["input"]) == 1


class Plain(Echo):
    """
    An engine that supports nothing.
    """

    def info(self) -> EngineInfo:
        return EngineInfo(context_len=100, vocab_size=100, max_total_num_tokens=100, max_running_requests=1, max_top_logprobs=2)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"return_logprob": True}, "return_logprob is not supported by this engine"),
        ({"return_hidden_states": True}, "return_hidden_states is not supported by this engine"),
        ({"sampling": {"top_k": 1}}, "top_k is not supported by this engine"),
        ({"top_logprobs_num": 3}, "top_logprobs_num is 3: this engine gives from 0 to 2"),
        ({"top_logprobs_num": -1}, "top_logprobs_num is -1: this engine gives from 0 to 2"),
    ],
)
def test_what_an_engine_does_not_do_is_refused_by_name(asked: dict[str, Any], problem: str) -> None:
    """
    Nothing that a client asked for is left out in silence.
    """
    assert served(Plain(), generate("r", [1], **asked)).pushed["r"].finish == bad(problem)


def test_control_messages_are_answered() -> None:
    """
    The state has what is counted and what there is to do; a cache in use is not flushed.
    """
    now = iter([0.0, 2.0, 2.0])
    scheduler, server = launched(Echo(max_running_requests=1), clock=lambda: next(now))
    server.send(generate("a", sampling={**ENDLESS, "stop_token_ids": [3]}), generate("b", sampling=ENDLESS))
    scheduler.step()
    server.send(wire.FlushCacheReq(rid="busy"))
    scheduler.step()
    server.send(wire.GetInternalStateReq(rid="state"))
    scheduler.step()
    scheduler.step()
    server.send(wire.AbortReq(abort_all=True))
    settle(scheduler)
    server.send(wire.FlushCacheReq(rid="free"), wire.GetInternalStateReq(rid="later"))
    scheduler.step()

    assert server.results["busy"] == {"success": False, "message": "the cache is in use: 1 requests are running and 1 waiting"}
    assert server.results["free"] == {"success": True, "message": "cache flushed"}
    state, later = (server.results[rid] for rid in ("state", "later"))
    assert state.pop("memory_usage")["max_rss_bytes"] > 1_000_000
    assert state == {
        "last_gen_throughput": 1.0,
        "num_steps": 2,
        "num_failed_steps": 0,
        "num_prompt_tokens": 3,
        "num_generated_tokens": 2,
        "num_finished_reqs": {},
        "effective_max_running_requests_per_dp": 1,
        "num_running_reqs": 1,
        "num_queue_reqs": 1,
        "num_reserved_tokens": 32768,
    }
    assert later["num_finished_reqs"] == {"stop": 1, "abort": 1}
    assert later["num_generated_tokens"] == 4
    # No time has passed since it was last asked for.
    assert later["last_gen_throughput"] == 0.0


def test_throughput_is_since_it_was_last_asked_for() -> None:
    """
    Tokens per second of the scheduler's clock.
    """
    now = [0.0]
    scheduler, server = launched(Echo(), clock=lambda: now[0])
    for seconds, expected in ((2.0, 1.5), (4.0, 0.75)):
        server.send(generate(f"r{seconds}"))
        settle(scheduler)
        now[0] += seconds
        assert scheduler.internal_state()["last_gen_throughput"] == expected


def test_a_cache_that_cannot_be_flushed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """
    In words of bounded length.
    """
    result = served(Wrong([]), wire.FlushCacheReq(rid="f")).results["f"]

    assert result["success"] is False
    assert result["message"].startswith("OSError: the cache is gone!")
    assert len(result["message"]) == 500
    assert len(caplog.records) == 1


def test_an_idle_scheduler_is_parked() -> None:
    """
    It waits in the server, answers what comes, and ends when it is stopped; the server is shut down then.
    """
    scheduler, server = launched(Echo())
    events = iter([lambda: server.send(generate("a")), lambda: server.send(generate("b")), scheduler.stop])

    def when_idle() -> None:
        next(events)()

    server.when_idle = when_idle

    scheduler.run()

    assert [server.pushed[rid].finish for rid in "ab"] == [SILENCE, SILENCE]
    assert server.is_shut_down


def test_what_is_in_flight_ends_before_the_end() -> None:
    """
    While the server waits for its clients the scheduler goes on, and takes what still comes.
    """
    scheduler, server = launched(Echo(max_running_requests=1))
    server.send(generate("a", range(1, 100)), generate("b"))
    ended = threading.Event()

    def wait_for_clients() -> None:
        server.send(generate("c"))
        assert ended.wait(30)

    push = server.push_decode_result_batch

    def push_and_look(header: bytes, data_cols: list[bytes]) -> bool:
        pushed = push(header, data_cols)
        if all(rid in server.pushed and server.pushed[rid].finish for rid in "abc"):
            ended.set()
        return pushed

    server.while_draining = wait_for_clients
    server.push_decode_result_batch = push_and_look  # type: ignore[method-assign]
    scheduler.stop()
    scheduler.run()

    assert [server.pushed[rid].finish for rid in "abc"] == [SILENCE] * 3
    assert server.drain_deadlines == [None]


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


def test_a_scheduler_without_a_server_says_so() -> None:
    """
    `launch` comes first.
    """
    with pytest.raises(RuntimeError, match="call `launch` first"):
        Scheduler(Echo()).run()


TURNS = st.lists(
    st.lists(
        st.one_of(
            st.tuples(st.just("generate"), st.integers(1, 6), st.integers(0, 8), st.booleans()),
            st.tuples(st.just("abort"), st.integers(0, 30)),
            st.just(("abort all",)),
        ),
        max_size=5,
    ),
    max_size=12,
)


@settings(deadline=None)  # a busy machine is no failure
@given(TURNS, st.integers(1, 3), st.integers(0, 4), st.none() | st.integers(1, 20))
def test_every_request_has_exactly_one_end(turns: list[list[Any]], running: int, queued: int, fail_at_step: int | None) -> None:
    """
    Whatever comes in whichever order: one end for each, a prefix of its echo before it, nothing left behind.
    """
    engine = Watched(max_running_requests=running, max_total_num_tokens=24, fail_at_step=fail_at_step)
    scheduler, server = launched(engine, Limits(max_queued_requests=queued))
    sent: dict[str, list[int]] = {}
    logging.disable(logging.CRITICAL)
    for turn in turns:
        for kind, *rest in turn:
            if kind == "generate":
                rid = str(len(sent))
                sent[rid] = list(range(rest[0]))
                server.send(generate(rid, sent[rid], sampling={"max_new_tokens": rest[1]}, stream=rest[2]))
            else:
                server.send(wire.AbortReq(rid=str(rest[0])) if rest else wire.AbortReq(abort_all=True))
        scheduler.step()
    settle(scheduler)
    logging.disable(logging.NOTSET)

    assert server.pushed.keys() == sent.keys()
    for rid, pushed in server.pushed.items():
        assert pushed.finish is not None
        assert pushed.tokens == sent[rid][: len(pushed.tokens)]
    taken = [rid for rids in engine.prefilled for rid in rids]
    assert sorted(engine.forgotten) == sorted(taken)
    assert len(set(taken)) == len(taken)
    assert engine._echoing == {}
    assert max(map(len, engine.decoded), default=0) <= running
    assert isinstance(server, FakeServer)
