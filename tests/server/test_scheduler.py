"""
The scheduler: who is worked on and in which order, what it counts, and how it begins and ends.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from fake_server import FakeServer, generate
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling import ENDLESS, SILENCE, Watched, aborted, launched, served, settle
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.engines.echo import Echo
from sglang.srt.rust_server.scheduler import Limits, Scheduler


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
    requests = [
        generate(rid, [1], sampling={"max_new_tokens": tokens - 1}) for rid, tokens in zip("abc", needed, strict=True)
    ]

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
    # Who stops it can only wait for the end of its wait.
    assert server.waits == [100, 100, 100]


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
def test_every_request_has_exactly_one_end(
    turns: list[list[Any]], running: int, queued: int, fail_at_step: int | None
) -> None:
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
