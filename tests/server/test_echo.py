"""
The echo: what it says of itself and of tokens, and the script it obeys.
"""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from fake_server import generate
from scheduling import launched, served
from sglang.srt.rust_server.engine import UnknownEngine, load_engine
from sglang.srt.rust_server.engines.echo import Echo

INF = math.inf


def pair(value: float | None, token: int) -> tuple[float, int]:
    return math.nan if value is None else float(value), token


@pytest.mark.parametrize(
    ("script", "asked", "expected"),
    [
        pytest.param({}, {}, [], id="nothing unless asked"),
        pytest.param(
            {}, {"return_logprob": True}, [{"output": [pair(0, 4)]}, {"output": [pair(0, 5)]}], id="of the output"
        ),
        pytest.param(
            {},
            {"return_logprob": True, "logprob_start_len": 0},
            [{"output": [pair(0, 4)], "input": [pair(None, 4), pair(0, 5)]}, {"output": [pair(0, 5)]}],
            id="of the prompt: once, and none of its first token",
        ),
        pytest.param(
            {},
            {"return_logprob": True, "logprob_start_len": 1},
            [{"output": [pair(0, 4)], "input": [pair(0, 5)]}, {"output": [pair(0, 5)]}],
            id="of the rest of the prompt",
        ),
        pytest.param(
            {},
            {"return_logprob": True, "logprob_start_len": 7},
            [{"output": [pair(0, 4)]}, {"output": [pair(0, 5)]}],
            id="of nothing behind the prompt",
        ),
        pytest.param(
            {"vocab_size": 6},
            {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0},
            [
                {
                    "output": [pair(0, 4)],
                    "output_top": [[pair(0, 4), pair(-INF, 5)]],
                    "input": [pair(None, 4), pair(0, 5)],
                    "input_top": [[], [pair(0, 5), pair(-INF, 0)]],
                },
                {"output": [pair(0, 5)], "output_top": [[pair(0, 5), pair(-INF, 0)]]},
            ],
            id="the likeliest",
        ),
        pytest.param(
            {},
            {"return_logprob": True, "token_ids_logprob": [5, 9], "logprob_start_len": 0},
            [
                {
                    "output": [pair(0, 4)],
                    "output_ids": [[pair(-INF, 5), pair(-INF, 9)]],
                    "input": [pair(None, 4), pair(0, 5)],
                    "input_ids": [[], [pair(0, 5), pair(-INF, 9)]],
                },
                {"output": [pair(0, 5)], "output_ids": [[pair(0, 5), pair(-INF, 9)]]},
            ],
            id="those asked for",
        ),
        pytest.param(
            {}, {"return_hidden_states": True}, [{"hidden": [[4.0, 0.0]]}, {"hidden": [[5.0, 1.0]]}], id="hidden states"
        ),
        pytest.param(
            {"logprobs": [None, math.nan, INF]},
            {"return_logprob": True, "sampling": {"ignore_eos": True, "max_new_tokens": 4}},
            [{"output": [pair(value, token)]} for value, token in ((None, 4), (math.nan, 5), (INF, 4), (None, 5))],
            id="scripted, over and over",
        ),
    ],
)
def test_extras(script: dict[str, Any], asked: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    """
    Log-probabilities and hidden states come with each step's tokens, those of the prompt with the first.
    """
    pushed = served(Echo(**script), generate("r", [4, 5], stream=True, **asked)).pushed["r"]

    # By their text, in which NaN equals itself.
    assert [repr(sorted(each.items())) for each in pushed.extras] == [
        repr(sorted(each.items())) for each in expected if each
    ]


def test_nothing_is_said_about_nothing() -> None:
    """
    An empty prompt has no tokens to repeat, even where the end is ignored.
    """
    server = served(Echo(), generate("a", []), generate("b", [], sampling={"ignore_eos": True}))

    assert [server.pushed[rid].tokens for rid in "ab"] == [[], []]
    assert server.pushed["b"].finish == {"type": "stop", "matched": None}


def test_steps_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each step as long as the script says.
    """
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)

    served(Echo(delay=0.25), generate("r", [1, 2]))

    assert slept == [0.25, 0.25]


def test_the_scheduler_can_be_made_to_die() -> None:
    """
    At the step that the script says, and its server with it.
    """
    scheduler, server = launched(Echo(die_at_step=2))
    server.send(generate("r", stream=True))

    with pytest.raises(SystemExit, match="step 2"):
        scheduler.run()

    assert server.pushed["r"].frames == [[1]]
    assert server.is_shut_down


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("nope", {}, "engine 'nope' is neither `echo` nor of the form `package.module:Class`"),
        ("a:", {}, "engine 'a:' is neither"),
        (":A", {}, "engine ':A' is neither"),
        ("no.such.module:A", {}, "engine 'no.such.module:A' cannot be had: No module named 'no'"),
        (
            "sglang.srt.rust_server.engines.echo:A",
            {},
            "cannot be had: module 'sglang.srt.rust_server.engines.echo' has no attribute 'A'",
        ),
        (
            "echo",
            {"tokens": 1},
            "engine 'echo' does not take these arguments: Echo.__init__() got an unexpected keyword argument 'tokens'",
        ),
        ("echo", {"delay": -1}, "engine 'echo' does not take these arguments: delay is -1 s: it cannot be negative"),
        ("echo", {"logprobs": []}, "logprobs is empty: give at least one"),
    ],
)
def test_engines_that_cannot_be_had(name: str, arguments: dict[str, Any], problem: str) -> None:
    """
    The message says which engine, and what is wrong with it.
    """
    with pytest.raises(UnknownEngine) as caught:
        load_engine(name, arguments)

    assert problem in str(caught.value)


def test_engines_are_made_by_name() -> None:
    """
    By a short one, or by where its class is.
    """
    assert load_engine("echo", {"context_len": 7}).info().context_len == 7
    assert type(load_engine("scheduling:Watched", {})).__name__ == "Watched"
