"""
The scheduler: order of requests, limits, aborts, control messages, start and end.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from fake_server import FakeServer, generate
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling import END_OF_PROMPT, ENDLESS, RecordingEcho, aborted, launch, serve, settle
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.engines.echo import Echo
from sglang.srt.rust_server.scheduler import Limits, Scheduler


def test_requests_join_and_leave_between_steps() -> None:
    """
    In one step a new request gets its first token and the others their next. A request that ends frees its place.
    """
    engine = RecordingEcho(max_running_requests=2)
    scheduler, server = launch(engine)
    server.send(generate("a", range(1, 5)))
    scheduler.step()
    server.send(generate("b", range(1, 3)), generate("c", range(1, 2)))
    scheduler.step()
    assert server.batches == []
    settle(scheduler)

    assert engine.prefilled == [["a"], ["b"], ["c"]]
    assert engine.decoded == [["a"], ["a", "b"], ["a"]]
    assert [server.pushed[rid].tokens for rid in "abc"] == [[1, 2, 3, 4], [1, 2], [1]]
    assert engine.removed == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("needed", "prefilled"),
    [
        pytest.param([10, 8, 2], [["a", "b", "c"]], id="exactly what is free"),
        pytest.param([10, 9, 2], [["a", "b"], ["c"]], id="one token too many"),
        pytest.param([10, 11, 2], [["a"], ["b", "c"]], id="no overtaking"),
    ],
)
def test_a_request_waits_until_its_tokens_are_free(needed: list[int], prefilled: list[list[str]]) -> None:
    """
    Each request reserves tokens up to its limit.
    """
    engine = RecordingEcho(max_total_num_tokens=20)
    requests = [
        generate(rid, [1], sampling={"max_new_tokens": tokens - 1}) for rid, tokens in zip("abc", needed, strict=True)
    ]

    serve(engine, *requests)

    assert engine.prefilled == prefilled


def test_the_queue_has_a_limit() -> None:
    """
    Requests beyond the limit get 503 at once; the others are served.
    """
    scheduler, server = launch(Echo(max_running_requests=1), Limits(max_queued_requests=2))
    server.send(*(generate(str(number)) for number in range(5)))
    scheduler.step()
    full = aborted(503, "ServiceUnavailable", "the request queue is full, try again later")
    assert {rid: pushed.finish for rid, pushed in server.pushed.items()} == dict.fromkeys("234", full)
    settle(scheduler)

    assert [server.pushed[rid].finish for rid in "01"] == [END_OF_PROMPT, END_OF_PROMPT]


def test_the_smaller_limit_of_running_requests_holds() -> None:
    """
    The engine and the scheduler each have a limit. A limit of 0 is an error.
    """
    for engine_limit, scheduler_limit, expected in ((4, 2, 2), (2, 4, 2), (3, None, 3)):
        engine = RecordingEcho(max_running_requests=engine_limit)
        serve(
            engine, *(generate(str(number)) for number in range(8)), limits=Limits(max_running_requests=scheduler_limit)
        )
        assert max(map(len, engine.prefilled)) == expected
    with pytest.raises(ValueError, match="must be at least 1"):
        Scheduler(Echo(max_running_requests=0))


@pytest.mark.parametrize(
    ("abort", "ended"),
    [
        pytest.param(wire.AbortReq(rid="running"), ["running"], id="running"),
        pytest.param(wire.AbortReq(rid="waiting"), ["waiting"], id="waiting"),
        pytest.param(wire.AbortReq(rid="unknown"), [], id="unknown"),
        pytest.param(wire.AbortReq(rid="run"), [], id="prefix of a rid"),
        pytest.param(wire.AbortReq(abort_all=True), ["waiting", "running"], id="all"),
        pytest.param(wire.AbortReq(), [], id="no rid"),
    ],
)
def test_aborts(abort: wire.AbortReq, ended: list[str]) -> None:
    """
    Aborted requests end at once with their tokens so far, and are removed from the engine. Others continue.
    """
    engine = RecordingEcho(max_running_requests=1)
    scheduler, server = launch(engine)
    server.send(generate("running", sampling=ENDLESS), generate("waiting"))
    scheduler.step()
    decoded = len(engine.decoded)
    server.send(abort)
    scheduler.step()

    assert {rid for rid, pushed in server.pushed.items() if pushed.finish is not None} == set(ended)
    for rid in ended:
        assert server.pushed[rid].finish == {"type": "abort", "message": "aborted"}
    assert engine.removed == [rid for rid in ended if rid == "running"]
    assert len(engine.decoded) - decoded == ("running" not in ended)
    if "running" in ended:
        assert server.pushed["running"].tokens == [1]
        settle(scheduler)
        assert engine.prefilled[1:] == ([] if "waiting" in ended else [["waiting"]])


def test_an_abort_message_is_passed_on() -> None:
    """
    The message of the abort becomes the message of the finish reason.
    """
    server = serve(Echo(), generate("r", sampling=ENDLESS), wire.AbortReq(rid="r", abort_message="timed out"))

    assert server.pushed["r"].finish == {"type": "abort", "message": "timed out"}


def test_control_messages_are_answered() -> None:
    """
    The state contains counters and the load. A cache in use is not flushed.
    """
    now = iter([0.0, 2.0, 2.0])
    scheduler, server = launch(Echo(max_running_requests=1), clock=lambda: next(now))
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

    assert server.results["busy"] == {
        "success": False,
        "message": "the cache is in use: 1 requests are running and 1 waiting",
    }
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
    # No time has passed since the last request for the state.
    assert later["last_gen_throughput"] == 0.0


def test_throughput_is_measured_since_the_last_request_for_it() -> None:
    """
    The throughput is in tokens per second of the scheduler's clock.
    """
    now = [0.0]
    scheduler, server = launch(Echo(), clock=lambda: now[0])
    for seconds, expected in ((2.0, 1.5), (4.0, 0.75)):
        server.send(generate(f"r{seconds}"))
        settle(scheduler)
        now[0] += seconds
        assert scheduler.internal_state()["last_gen_throughput"] == expected


def test_an_idle_scheduler_waits_for_messages() -> None:
    """
    It blocks in `wait_request`, serves requests that arrive, and ends when it is stopped. Then the server is shut down.
    """
    scheduler, server = launch(Echo())
    events = iter([lambda: server.send(generate("a")), lambda: server.send(generate("b")), scheduler.stop])

    def when_idle() -> None:
        next(events)()

    server.when_idle = when_idle

    scheduler.run()

    assert [server.pushed[rid].finish for rid in "ab"] == [END_OF_PROMPT, END_OF_PROMPT]
    assert server.is_shut_down
    # `stop` takes effect only at the end of a wait.
    assert server.waits == [100, 100, 100]


def test_stop_drains_requests_in_flight() -> None:
    """
    During the drain the scheduler still serves all requests, including requests that arrive during the drain.
    """
    scheduler, server = launch(Echo(max_running_requests=1))
    server.send(generate("a", range(1, 100)), generate("b"))
    ended = threading.Event()

    def wait_for_clients() -> None:
        server.send(generate("c"))
        assert ended.wait(30)

    push = server.push_decode_result_batch

    def push_and_check(header: bytes, data_cols: list[bytes]) -> bool:
        pushed = push(header, data_cols)
        if all(rid in server.pushed and server.pushed[rid].finish for rid in "abc"):
            ended.set()
        return pushed

    server.while_draining = wait_for_clients
    server.push_decode_result_batch = push_and_check  # type: ignore[method-assign]
    scheduler.stop()
    scheduler.run()

    assert [server.pushed[rid].finish for rid in "abc"] == [END_OF_PROMPT] * 3
    assert server.drain_deadlines == [None]


def test_run_before_launch_raises() -> None:
    """
    The message says to call `launch` first.
    """
    with pytest.raises(RuntimeError, match="call `launch` first"):
        Scheduler(Echo()).run()


STEPS = st.lists(
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


@settings(deadline=None)  # must not fail on a busy machine
@given(STEPS, st.integers(1, 3), st.integers(0, 4), st.none() | st.integers(1, 20))
def test_every_request_has_exactly_one_end(
    steps: list[list[Any]], running: int, queued: int, fail_at_step: int | None
) -> None:
    """
    For any order of requests and aborts, each request ends once, after a prefix of its echo. The engine keeps none.
    """
    engine = RecordingEcho(max_running_requests=running, max_total_num_tokens=24, fail_at_step=fail_at_step)
    scheduler, server = launch(engine, Limits(max_queued_requests=queued))
    sent: dict[str, list[int]] = {}
    logging.disable(logging.CRITICAL)
    for messages in steps:
        for kind, *rest in messages:
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
    assert sorted(engine.removed) == sorted(taken)
    assert len(set(taken)) == len(taken)
    assert engine._requests == {}
    assert max(map(len, engine.decoded), default=0) <= running
    assert isinstance(server, FakeServer)
