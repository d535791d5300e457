"""
One request: how it ends, when its tokens are sent, and which requests are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fake_server import generate
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling import END_OF_PROMPT, BrokenEngine, RecordingEcho, bad, length, serve, stop
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
        pytest.param({}, {}, [1, 2, 3], END_OF_PROMPT, id="end of the prompt"),
        pytest.param({}, {"max_new_tokens": 2}, [1, 2], length(2), id="max_new_tokens"),
        pytest.param({}, {"max_new_tokens": 3}, [1, 2, 3], length(3), id="max_new_tokens at the end of the prompt"),
        pytest.param({}, {"max_new_tokens": 0}, [], length(0), id="max_new_tokens 0"),
        pytest.param(
            {"context_len": 8},
            {"max_new_tokens": 100, "ignore_eos": True},
            [1, 2, 3, 1, 2],
            length(5),
            id="limit larger than the context",
        ),
        pytest.param({"context_len": 8}, {"ignore_eos": True}, [1, 2, 3, 1, 2], length(5), id="no limit"),
        pytest.param({}, {"min_new_tokens": 5}, [1, 2, 3, 1, 2], END_OF_PROMPT, id="min_new_tokens"),
        pytest.param({}, {"stop_token_ids": [9, 2]}, [1, 2], stop(2), id="stop token"),
        pytest.param(
            {},
            {"stop_token_ids": [2], "max_new_tokens": 2},
            [1, 2],
            stop(2),
            id="stop token at max_new_tokens",
        ),
        pytest.param(
            {},
            {"stop_token_ids": [2], "min_new_tokens": 2},
            [1, 2, 3],
            END_OF_PROMPT,
            id="stop token before min_new_tokens",
        ),
        pytest.param(
            {},
            {"stop_token_ids": [1], "min_new_tokens": 3, "ignore_eos": True},
            [1, 2, 3, 1],
            stop(1),
            id="stop token after min_new_tokens",
        ),
        pytest.param({"eos_token_id": 7}, {}, [1, 2, 3, 7], stop(7), id="end of sequence"),
        pytest.param({"eos_token_id": 2}, {}, [1, 2], stop(2), id="end of sequence within the prompt"),
        pytest.param(
            {"eos_token_id": 2},
            {"min_new_tokens": 3},
            [1, 2, 3, 2],
            stop(2),
            id="end of sequence before min_new_tokens",
        ),
        pytest.param(
            {"eos_token_id": 7},
            {"min_new_tokens": 5},
            [1, 2, 3, 1, 2, 7],
            stop(7),
            id="end of sequence after min_new_tokens",
        ),
        pytest.param(
            {"eos_token_id": 2},
            {"ignore_eos": True, "max_new_tokens": 4},
            [1, 2, 3, 1],
            length(4),
            id="ignore_eos",
        ),
        pytest.param(
            {"eos_token_id": 2},
            {"ignore_eos": True, "stop_token_ids": [3]},
            [1, 2, 3],
            stop(3),
            id="ignore_eos does not ignore stop tokens",
        ),
        pytest.param(
            {},
            {"temperature": 0.1, "top_k": 1, "top_p": 0.5, "min_p": 0.1, "sampling_seed": 4},
            [1, 2, 3],
            END_OF_PROMPT,
            id="supported parameters",
        ),
        pytest.param(
            {}, {"logit_bias": {}, "custom_params": {}}, [1, 2, 3], END_OF_PROMPT, id="empty values count as not set"
        ),
        pytest.param({}, {"stop_strs": ["x"]}, [1, 2, 3], END_OF_PROMPT, id="stop strings are left to the server"),
        pytest.param(
            {},
            {"frequency_penalty": 0.5},
            [],
            bad("frequency_penalty is not supported by this engine"),
            id="unsupported penalty",
        ),
        pytest.param(
            {},
            {"logit_bias": {"1": 1.0}},
            [],
            bad("logit_bias is not supported by this engine"),
            id="unsupported biases",
        ),
        pytest.param({}, {"regex": "a"}, [], bad("regex is not supported by this engine"), id="unsupported grammar"),
        pytest.param(
            {},
            {"stop_regex_strs": ["a"]},
            [],
            bad("stop_regex_strs is not supported by this engine"),
            id="unsupported stop patterns",
        ),
        pytest.param(
            {"context_len": 3},
            {},
            [],
            bad("the prompt has 3 tokens, which leaves no room for an answer in a context of 3"),
            id="prompt as long as the context",
        ),
        pytest.param(
            {"max_total_num_tokens": 9},
            {"max_new_tokens": 7},
            [],
            bad("prompt and max_new_tokens need 10 tokens, and this engine has room for 9"),
            id="more tokens than the engine has",
        ),
        pytest.param(
            {"abort_at_token": 2, "abort": {"message": "no", "status_code": 503}},
            {},
            [1, 2],
            {"type": "abort", "message": "no", "status_code": 503},
            id="engine aborts",
        ),
        pytest.param(
            {"abort_at_token": 1},
            {},
            [1],
            {"type": "abort", "message": "scripted"},
            id="engine aborts without a status",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_how_a_request_ends(
    script: dict[str, Any], sampling: dict[str, Any], tokens: list[int], finish: dict[str, Any], stream: bool
) -> None:
    """
    A request ends exactly once, with the same tokens and finish reason whether it is streamed or not.
    """
    engine = RecordingEcho(**script)

    pushed = serve(engine, generate("r", sampling=sampling, stream=stream)).pushed["r"]

    assert pushed.tokens == tokens
    assert pushed.finish == finish
    assert pushed.prompt_tokens == 3
    # The engine removes each request of a prefill once. It never sees a refused request.
    assert engine.removed == [rid for rids in engine.prefilled for rid in rids]
    assert engine.prefilled == ([] if finish.get("status_code") == 400 else [["r"]])


@pytest.mark.parametrize(
    ("sampling", "stream", "default", "frames"),
    [
        pytest.param({}, True, 1, [1] * 7, id="stream: every token"),
        pytest.param({}, True, 3, [1, 3, 3], id="stream: first token at once, then every three"),
        pytest.param({"stream_interval": 2}, True, 3, [1, 2, 2, 2], id="stream: interval of the request"),
        pytest.param({"stream_interval": 0}, True, 3, [1, 3, 3], id="stream: interval 0 counts as not set"),
        pytest.param({}, False, 1, [7], id="unary: only the end"),
        pytest.param(
            {"stop_strs": ["x"]},
            False,
            3,
            [1] * 7,
            id="unary with stop strings: every token",
        ),
        pytest.param(
            {"stop_strs": ["x"], "stream_interval": 4}, True, 3, [1] * 7, id="stream with stop strings: every token"
        ),
    ],
)
def test_when_tokens_are_sent(sampling: dict[str, Any], stream: bool, default: int, frames: list[int]) -> None:
    """
    Each frame has as many tokens as the interval.
    """
    request = generate("r", range(1, 8), sampling=sampling, stream=stream)

    pushed = serve(Echo(), request, limits=Limits(stream_interval=default)).pushed["r"]

    assert [len(frame) for frame in pushed.frames] == frames
    assert pushed.tokens == list(range(1, 8))


def test_a_long_unary_request_sends_intermediate_frames() -> None:
    """
    The request sends a frame every 50 tokens.
    """
    request = generate("r", sampling={"ignore_eos": True, "max_new_tokens": 120})

    assert [len(frame) for frame in serve(Echo(), request).pushed["r"].frames] == [50, 50, 20]


def test_draft_tokens_after_the_end_are_dropped() -> None:
    """
    The extras of dropped tokens are dropped too.

    A step with several tokens ends the request at the same token as steps with one token each.
    """
    extras = wire.Extras(output=[(0.0, 5), (0.0, 6), (0.0, 7)], input=[(None, 1)])
    request = generate("r", sampling={"stop_token_ids": [6]})

    pushed = serve(BrokenEngine([Output([5, 6, 7], extras=extras)]), request).pushed["r"]

    assert (pushed.tokens, pushed.finish) == ([5, 6], stop(6))
    assert len(pushed.extras[0]["output"]) == 2
    assert len(pushed.extras[0]["input"]) == 1


@pytest.mark.parametrize(
    ("sampling", "first", "finish"),
    [
        pytest.param({}, Output([5], END_OF_PROMPT), END_OF_PROMPT, id="ended by the engine"),
        pytest.param({"stop_token_ids": [5]}, Output([5]), stop(5), id="ended by a token"),
        pytest.param({"max_new_tokens": 1}, Output([5]), length(1), id="ended by the limit"),
        pytest.param({"max_new_tokens": 0}, Output([]), length(0), id="no tokens requested"),
        pytest.param({}, None, {"type": "abort", "message": "first"}, id="aborted"),
        pytest.param(
            {"max_new_tokens": 0}, None, {"type": "abort", "message": "first"}, id="aborted, no tokens requested"
        ),
    ],
)
@pytest.mark.parametrize(
    "later",
    [
        pytest.param(Output([6]), id="token"),
        pytest.param(Output([6, 7], stop(7), wire.Extras(output=[(0.0, 6), (0.0, 7)])), id="tokens, extras and finish"),
        pytest.param(Output([-1]), id="invalid token"),
    ],
)
def test_output_after_the_end_is_ignored(
    sampling: dict[str, Any], first: Output | None, finish: dict[str, Any], later: Output
) -> None:
    """
    The first finish reason remains, even after an abort.
    """
    info = EngineInfo(context_len=99, vocab_size=8, max_total_num_tokens=99, max_running_requests=1)
    generation = Generation(generate("r", sampling=sampling), info, stream_interval=1)
    if first is None:
        generation.abort("first")
    else:
        generation.take(first)
    tokens = generation.generated

    taken = generation.take(later)
    generation.abort("second", 500, "InternalServerError")
    step = generation.next_step()

    assert (taken, generation.generated) == (0, tokens)
    assert step is not None
    assert (len(step.output_ids), step.finish, step.extras) == (tokens, finish, None)


#: The number of tokens that fit into the context, and the end-of-sequence token.
ROOM, EOS = 10, 7


def output(token_ids: Sequence[int], *, ends: bool, with_extras: bool) -> Output:
    extras = wire.Extras(output=[(0.0, token) for token in token_ids]) if with_extras else None
    return Output(token_ids, END_OF_PROMPT if ends else None, extras)


OUTPUTS = st.lists(
    st.one_of(
        st.builds(output, st.tuples(st.integers(4, 7)), ends=st.just(False), with_extras=st.just(False)),
        st.builds(output, st.lists(st.integers(4, 7), max_size=3), ends=st.booleans(), with_extras=st.booleans()),
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


class ReferenceGeneration:
    """
    A simple reference for `Generation`: it keeps all tokens, and the number of tokens sent.
    """

    def __init__(self, sampling: dict[str, Any], *, stream: bool) -> None:
        self.limit = min(sampling.get("max_new_tokens", ROOM), ROOM)
        self.min_tokens = sampling.get("min_new_tokens", 0)
        self.stop_tokens = {*sampling.get("stop_token_ids", ()), *(() if sampling.get("ignore_eos") else (EOS,))}
        self.stream = stream
        self.interval = 1 if "stop_strs" in sampling else sampling.get("stream_interval", 2) if stream else 50
        self.tokens: list[int] = []
        self.sent = 0
        self.extras: list[tuple[float, int]] = []
        self.finish: dict[str, Any] | None = None

    def take(self, output: Output) -> int:
        before = len(self.tokens)
        self.finish = None if self.limit else length(0)
        for token in output.token_ids:
            if self.finish is None:
                self.tokens.append(token)
                if token in self.stop_tokens and len(self.tokens) > self.min_tokens:
                    self.finish = stop(token)
                elif len(self.tokens) == self.limit:
                    self.finish = length(self.limit)
        self.finish = self.finish or (END_OF_PROMPT if output.finish else None)
        if output.extras:
            self.extras += [(0.0, token) for token in self.tokens[before:]]
        return len(self.tokens) - before

    def next_step(self) -> tuple[list[int], dict[str, Any] | None, list[tuple[float, int]]] | None:
        new = self.tokens[self.sent :]
        is_first = self.stream and self.sent == 0 and new
        if not (self.finish or len(new) >= self.interval or is_first):
            return None
        extras, self.extras, self.sent = self.extras, [], len(self.tokens)
        return new, self.finish, extras


@settings(deadline=None)  # must not fail on a busy machine
@given(OUTPUTS, SAMPLING, st.booleans())
def test_outputs_match_the_reference(outputs: list[Output], sampling: dict[str, Any], stream: bool) -> None:
    """
    The fast path for single tokens gives the same result as the reference, in any order of outputs.
    """
    info = EngineInfo(
        context_len=3 + ROOM,
        vocab_size=8,
        max_total_num_tokens=99,
        max_running_requests=1,
        eos_token_ids=frozenset({EOS}),
    )
    generation, reference = (
        Generation(generate("r", sampling=sampling, stream=stream), info, stream_interval=2),
        ReferenceGeneration(sampling, stream=stream),
    )

    for each in outputs:
        assert reference.take(each) == generation.take(each)
        assert (len(reference.tokens), reference.finish) == (generation.generated, generation.finish)
        step = generation.next_step()
        assert reference.next_step() == (
            step and (step.output_ids, step.finish, step.extras.output if step.extras else [])
        )
        if reference.finish:
            break


class UnsupportingEcho(Echo):
    """
    An engine that supports no option.
    """

    def info(self) -> EngineInfo:
        return EngineInfo(
            context_len=100, vocab_size=100, max_total_num_tokens=100, max_running_requests=1, max_top_logprobs=2
        )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"return_logprob": True}, "return_logprob is not supported by this engine"),
        ({"return_hidden_states": True}, "return_hidden_states is not supported by this engine"),
        ({"sampling": {"top_k": 1}}, "top_k is not supported by this engine"),
        ({"top_logprobs_num": 3}, "top_logprobs_num is 3: this engine supports 0 to 2"),
        ({"top_logprobs_num": -1}, "top_logprobs_num is -1: this engine supports 0 to 2"),
    ],
)
def test_unsupported_options_are_refused_by_name(options: dict[str, Any], problem: str) -> None:
    """
    No option is silently ignored.
    """
    assert serve(UnsupportingEcho(), generate("r", [1], **options)).pushed["r"].finish == bad(problem)
