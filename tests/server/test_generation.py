"""
One request: when it ends and how, when its client hears of it, and what is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fake_server import generate
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling import SILENCE, Watched, Wrong, bad, length, served, stop
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.engine import EngineInfo, Output
from sglang.srt.rust_server.engines.echo import Echo
from sglang.srt.rust_server.generation import Generation
from sglang.srt.rust_server.scheduler import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    ("script", "sampling", "tokens", "finish"),
    [
        pytest.param({}, {}, [1, 2, 3], SILENCE, id="the engine ends"),
        pytest.param({}, {"max_new_tokens": 2}, [1, 2], length(2), id="most tokens"),
        pytest.param({}, {"max_new_tokens": 3}, [1, 2, 3], length(3), id="most tokens, where the engine ends too"),
        pytest.param({}, {"max_new_tokens": 0}, [], length(0), id="no tokens"),
        pytest.param(
            {"context_len": 8}, {"max_new_tokens": 100, "ignore_eos": True}, [1, 2, 3, 1, 2], length(5), id="what fits"
        ),
        pytest.param({"context_len": 8}, {"ignore_eos": True}, [1, 2, 3, 1, 2], length(5), id="as many as fit"),
        pytest.param({}, {"min_new_tokens": 5}, [1, 2, 3, 1, 2], SILENCE, id="least tokens"),
        pytest.param({}, {"stop_token_ids": [9, 2]}, [1, 2], stop(2), id="stop token"),
        pytest.param(
            {},
            {"stop_token_ids": [2], "max_new_tokens": 2},
            [1, 2],
            stop(2),
            id="stop token, where most tokens end it too",
        ),
        pytest.param({}, {"stop_token_ids": [2], "min_new_tokens": 2}, [1, 2, 3], SILENCE, id="stop token too early"),
        pytest.param(
            {},
            {"stop_token_ids": [1], "min_new_tokens": 3, "ignore_eos": True},
            [1, 2, 3, 1],
            stop(1),
            id="stop token when it may be",
        ),
        pytest.param({"eos_token_id": 7}, {}, [1, 2, 3, 7], stop(7), id="end of sequence"),
        pytest.param({"eos_token_id": 2}, {}, [1, 2], stop(2), id="end of sequence within"),
        pytest.param({"eos_token_id": 2}, {"min_new_tokens": 3}, [1, 2, 3, 2], stop(2), id="end of sequence too early"),
        pytest.param(
            {"eos_token_id": 7},
            {"min_new_tokens": 5},
            [1, 2, 3, 1, 2, 7],
            stop(7),
            id="end of sequence after the least tokens",
        ),
        pytest.param(
            {"eos_token_id": 2},
            {"ignore_eos": True, "max_new_tokens": 4},
            [1, 2, 3, 1],
            length(4),
            id="end of sequence ignored",
        ),
        pytest.param(
            {"eos_token_id": 2},
            {"ignore_eos": True, "stop_token_ids": [3]},
            [1, 2, 3],
            stop(3),
            id="stops are not ignored",
        ),
        pytest.param(
            {},
            {"temperature": 0.1, "top_k": 1, "top_p": 0.5, "min_p": 0.1, "sampling_seed": 4},
            [1, 2, 3],
            SILENCE,
            id="supported",
        ),
        pytest.param({}, {"logit_bias": {}, "custom_params": {}}, [1, 2, 3], SILENCE, id="empty is not asked for"),
        pytest.param({}, {"stop_strs": ["x"]}, [1, 2, 3], SILENCE, id="stop texts are the server's"),
        pytest.param(
            {}, {"frequency_penalty": 0.5}, [], bad("frequency_penalty is not supported by this engine"), id="a penalty"
        ),
        pytest.param(
            {}, {"logit_bias": {"1": 1.0}}, [], bad("logit_bias is not supported by this engine"), id="biases"
        ),
        pytest.param({}, {"regex": "a"}, [], bad("regex is not supported by this engine"), id="a grammar"),
        pytest.param(
            {},
            {"stop_regex_strs": ["a"]},
            [],
            bad("stop_regex_strs is not supported by this engine"),
            id="stop patterns",
        ),
        pytest.param(
            {"context_len": 3},
            {},
            [],
            bad("the prompt has 3 tokens, which leaves no room for an answer in a context of 3"),
            id="long",
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
        pytest.param(
            {"abort_at_token": 1},
            {},
            [1],
            {"type": "abort", "message": "scripted"},
            id="the engine gives up, without a status",
        ),
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
        pytest.param(
            {"stop_strs": ["x"]},
            False,
            3,
            [1] * 7,
            id="unary with stop texts: every token, so that the server can stop it",
        ),
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


@pytest.mark.parametrize(
    ("sampling", "first", "finish"),
    [
        pytest.param({}, Output([5], SILENCE), SILENCE, id="the engine ended it"),
        pytest.param({"stop_token_ids": [5]}, Output([5]), stop(5), id="a token ended it"),
        pytest.param({"max_new_tokens": 1}, Output([5]), length(1), id="it has all its tokens"),
        pytest.param({"max_new_tokens": 0}, Output([]), length(0), id="it wanted none"),
        pytest.param({}, None, {"type": "abort", "message": "first"}, id="it was given up"),
        pytest.param(
            {"max_new_tokens": 0}, None, {"type": "abort", "message": "first"}, id="it was given up and wanted none"
        ),
    ],
)
@pytest.mark.parametrize(
    "later",
    [
        pytest.param(Output([6]), id="a token"),
        pytest.param(Output([6, 7], stop(7), wire.Extras(output=[(0.0, 6), (0.0, 7)])), id="tokens, extras and an end"),
        pytest.param(Output([-1]), id="no token"),
    ],
)
def test_nothing_follows_the_end(
    sampling: dict[str, Any], first: Output | None, finish: dict[str, Any], later: Output
) -> None:
    """
    The first end stands, whatever comes after it and whoever gives it up.
    """
    info = EngineInfo(context_len=99, vocab_size=8, max_total_num_tokens=99, max_running_requests=1)
    generation = Generation(generate("r", sampling=sampling), info, stream_interval=1)
    if first is None:
        generation.give_up("first")
    else:
        generation.take(first)
    tokens = generation.generated

    taken = generation.take(later)
    generation.give_up("second", 500, "InternalServerError")
    step = generation.next_step()

    assert (taken, generation.generated) == (0, tokens)
    assert step is not None
    assert (len(step.output_ids), step.finish, step.extras) == (tokens, finish, None)


#: Most tokens, where its client does not say; and the engine's end of sequence.
ROOM, EOS = 10, 7


def output(token_ids: Sequence[int], *, silent: bool, with_extras: bool) -> Output:
    extras = wire.Extras(output=[(0.0, token) for token in token_ids]) if with_extras else None
    return Output(token_ids, SILENCE if silent else None, extras)


OUTPUTS = st.lists(
    st.one_of(
        st.builds(output, st.tuples(st.integers(4, 7)), silent=st.just(False), with_extras=st.just(False)),
        st.builds(output, st.lists(st.integers(4, 7), max_size=3), silent=st.booleans(), with_extras=st.booleans()),
    ),
    max_size=12,
)
SAMPLING = st.fixed_dictionaries(
    {},
    optional={
        "max_new_tokens": st.integers(0, 12),
        "min_new_tokens": st.integers(0, 4),
        "stop_token_ids": st.lists(st.integers(4, 6), max_size=2),
        "ignore_eos": st.booleans(),
        "stream_interval": st.integers(1, 4),
        "stop_strs": st.just(["x"]),
    },
)


class Slow:
    """
    A request as a `Generation` answers it, in so many words: all tokens so far, and how many of them were told.
    """

    def __init__(self, sampling: dict[str, Any], *, stream: bool) -> None:
        self.limit = min(sampling.get("max_new_tokens", ROOM), ROOM)
        self.least = sampling.get("min_new_tokens", 0)
        self.ends = {*sampling.get("stop_token_ids", ()), *(() if sampling.get("ignore_eos") else (EOS,))}
        self.stream = stream
        self.interval = 1 if "stop_strs" in sampling else sampling.get("stream_interval", 2) if stream else 50
        self.said: list[int] = []
        self.told = 0
        self.extras: list[tuple[float, int]] = []
        self.finish: dict[str, Any] | None = None

    def take(self, output: Output) -> int:
        before = len(self.said)
        self.finish = None if self.limit else length(0)
        for token in output.token_ids:
            if self.finish is None:
                self.said.append(token)
                if token in self.ends and len(self.said) > self.least:
                    self.finish = stop(token)
                elif len(self.said) == self.limit:
                    self.finish = length(self.limit)
        self.finish = self.finish or (SILENCE if output.finish else None)
        if output.extras:
            self.extras += [(0.0, token) for token in self.said[before:]]
        return len(self.said) - before

    def next_step(self) -> tuple[list[int], dict[str, Any] | None, list[tuple[float, int]]] | None:
        new = self.said[self.told :]
        is_first = self.stream and self.told == 0 and new
        if not (self.finish or len(new) >= self.interval or is_first):
            return None
        extras, self.extras, self.told = self.extras, [], len(self.said)
        return new, self.finish, extras


@settings(deadline=None)  # a busy machine is no failure
@given(OUTPUTS, SAMPLING, st.booleans())
def test_the_usual_output_is_taken_as_any_other(outputs: list[Output], sampling: dict[str, Any], stream: bool) -> None:
    """
    One token that ends nothing has a short way; whatever comes in whichever order, the slow definition says the same.
    """
    info = EngineInfo(
        context_len=3 + ROOM,
        vocab_size=8,
        max_total_num_tokens=99,
        max_running_requests=1,
        eos_token_ids=frozenset({EOS}),
    )
    generation, slow = (
        Generation(generate("r", sampling=sampling, stream=stream), info, stream_interval=2),
        Slow(sampling, stream=stream),
    )

    for each in outputs:
        assert slow.take(each) == generation.take(each)
        assert (len(slow.said), slow.finish) == (generation.generated, generation.finish)
        step = generation.next_step()
        assert slow.next_step() == (step and (step.output_ids, step.finish, step.extras.output if step.extras else []))
        if slow.finish:
            break


class Plain(Echo):
    """
    An engine that supports nothing.
    """

    def info(self) -> EngineInfo:
        return EngineInfo(
            context_len=100, vocab_size=100, max_total_num_tokens=100, max_running_requests=1, max_top_logprobs=2
        )


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
