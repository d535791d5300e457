"""
The echo engine: tokens, extras, script; and loading of engines by name.
"""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from fake_server import generate
from scheduling import launch, serve
from sglang.srt.rust_server.engine import UnknownEngine, load_engine
from sglang.srt.rust_server.engines.echo import Echo

INF = math.inf


def pair(value: float | None, token: int) -> tuple[float, int]:
    return math.nan if value is None else float(value), token


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        pytest.param({}, {}, [], id="none unless requested"),
        pytest.param({}, {"return_logprob": True}, [{"output": [pair(0, 4)]}, {"output": [pair(0, 5)]}], id="output"),
        pytest.param(
            {},
            {"return_logprob": True, "logprob_start_len": 0},
            [{"output": [pair(0, 4)], "input": [pair(None, 4), pair(0, 5)]}, {"output": [pair(0, 5)]}],
            id="prompt, once, without its first token",
        ),
        pytest.param(
            {},
            {"return_logprob": True, "logprob_start_len": 1},
            [{"output": [pair(0, 4)], "input": [pair(0, 5)]}, {"output": [pair(0, 5)]}],
            id="rest of the prompt",
        ),
        pytest.param(
            {},
            {"return_logprob": True, "logprob_start_len": 7},
            [{"output": [pair(0, 4)]}, {"output": [pair(0, 5)]}],
            id="start after the prompt",
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
            id="top_logprobs_num",
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
            id="token_ids_logprob",
        ),
        pytest.param(
            {}, {"return_hidden_states": True}, [{"hidden": [[4.0, 0.0]]}, {"hidden": [[5.0, 1.0]]}], id="hidden states"
        ),
        pytest.param(
            {"logprobs": [None, math.nan, INF]},
            {"return_logprob": True, "sampling": {"ignore_eos": True, "max_new_tokens": 4}},
            [{"output": [pair(value, token)]} for value, token in ((None, 4), (math.nan, 5), (INF, 4), (None, 5))],
            id="scripted values repeat",
        ),
    ],
)
def test_extras(script: dict[str, Any], options: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    """
    Output extras come with the tokens of each step, prompt extras with the first step.
    """
    pushed = serve(Echo(**script), generate("r", [4, 5], stream=True, **options)).pushed["r"]

    # Compare the text, because NaN does not equal itself.
    assert [repr(sorted(each.items())) for each in pushed.extras] == [
        repr(sorted(each.items())) for each in expected if each
    ]


def test_an_empty_prompt_gets_no_tokens() -> None:
    """
    The answer is empty even with `ignore_eos`.
    """
    server = serve(Echo(), generate("a", []), generate("b", [], sampling={"ignore_eos": True}))

    assert [server.pushed[rid].tokens for rid in "ab"] == [[], []]
    assert server.pushed["b"].finish == {"type": "stop", "matched": None}


def test_each_step_is_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The script gives the delay.
    """
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)

    serve(Echo(delay=0.25), generate("r", [1, 2]))

    assert slept == [0.25, 0.25]


def test_die_at_step_ends_the_scheduler_and_the_server() -> None:
    """
    The step before the failing one still succeeds.
    """
    scheduler, server = launch(Echo(die_at_step=2))
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
        ("no.such.module:A", {}, "engine 'no.such.module:A' cannot be imported: No module named 'no'"),
        (
            "sglang.srt.rust_server.engines.echo:A",
            {},
            "cannot be imported: module 'sglang.srt.rust_server.engines.echo' has no attribute 'A'",
        ),
        (
            "echo",
            {"tokens": 1},
            (
                "engine 'echo' does not accept these arguments: "
                "Echo.__init__() got an unexpected keyword argument 'tokens'"
            ),
        ),
        ("echo", {"delay": -1}, "engine 'echo' does not accept these arguments: delay is -1 s: it cannot be negative"),
        ("echo", {"logprobs": []}, "logprobs is empty: give at least one"),
    ],
)
def test_engines_that_cannot_be_loaded(name: str, arguments: dict[str, Any], problem: str) -> None:
    """
    The message names the engine and the problem.
    """
    with pytest.raises(UnknownEngine) as caught:
        load_engine(name, arguments)

    assert problem in str(caught.value)


def test_engines_are_loaded_by_name() -> None:
    """
    The name is a short name, or a module and a class.
    """
    assert load_engine("echo", {"context_len": 7}).info().context_len == 7
    assert type(load_engine("scheduling:RecordingEcho", {})).__name__ == "RecordingEcho"
