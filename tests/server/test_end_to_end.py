"""
`python -m sglang.srt.rust_server` over HTTP: the extension, its Python package and the echo engine together.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from eventually import eventually
from running import TIMEOUT, Program, events, program

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = "Grüße 한국어 👨‍👩‍👧 é\u2028✅"


@pytest.fixture(scope="module")
def echo() -> Iterator[Program]:
    """
    The server that most tests share.
    """
    with program("--enable-return-hidden-states") as running:
        yield running
        assert running.end() == 0, running.log


def test_a_unary_answer(echo: Program) -> None:
    """
    The text is the prompt, byte by byte.
    """
    status, answer = echo.generate(text=TEXT, sampling_params={"max_new_tokens": 1000})

    assert status == 200
    assert answer["text"] == TEXT
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": None}
    assert answer["meta_info"]["prompt_tokens"] == answer["meta_info"]["completion_tokens"] == len(answer["output_ids"])


def test_a_stream(echo: Program) -> None:
    """
    The text grows by whole characters, and its end equals the unary answer. Unread frames may be merged.
    """
    *frames, end = echo.stream(text=TEXT, sampling_params={"max_new_tokens": 1000})

    assert end == "[DONE]"
    texts = [frame["text"] for frame in frames]
    assert texts[-1] == TEXT
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert [frame["meta_info"]["finish_reason"] is None for frame in frames] == [True] * (len(frames) - 1) + [False]


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize(
    ("sampling", "text", "reason"),
    [
        pytest.param({"max_new_tokens": 5}, "alpha", {"type": "length", "length": 5}, id="length"),
        pytest.param({"stop": ["ta ga"]}, "alpha be", {"type": "stop", "matched": "ta ga"}, id="stop string"),
        pytest.param(
            {"stop": ["ta ga"], "no_stop_trim": True},
            "alpha beta ga",
            {"type": "stop", "matched": "ta ga"},
            id="stop string kept",
        ),
        pytest.param(
            {"stop": ["nothing"]},
            "alpha beta gamma",
            {"type": "stop", "matched": None},
            id="stop string that does not occur",
        ),
        pytest.param({"stop_token_ids": [ord("b")]}, "alpha ", {"type": "stop", "matched": ord("b")}, id="stop token"),
        pytest.param(
            {"min_new_tokens": 20}, "alpha beta gammaalph", {"type": "stop", "matched": None}, id="min_new_tokens"
        ),
    ],
)
def test_how_answers_end(
    echo: Program, sampling: dict[str, Any], text: str, reason: dict[str, Any], stream: bool
) -> None:
    """
    A streamed answer and a unary answer have the same text and finish reason.
    """
    if stream:
        answer = echo.stream(text="alpha beta gamma", sampling_params=sampling)[-2]
    else:
        answer = echo.generate(text="alpha beta gamma", sampling_params=sampling)[1]

    assert (answer["text"], answer["meta_info"]["finish_reason"]) == (text, reason)


def test_a_batch_is_answered_in_order(echo: Program) -> None:
    """
    A failed prompt does not affect the others.
    """
    status, answers = echo.generate(
        text=["one", "two", "three"], sampling_params=[{}, {"frequency_penalty": 1.0}, {"max_new_tokens": 2}]
    )

    assert status == 200
    assert [answer.get("text") for answer in answers] == ["one", None, "th"]
    assert "frequency_penalty" in answers[1]["error"]["message"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param(
            {"text": "x", "sampling_params": {"presence_penalty": 1.0}},
            "presence_penalty is not supported",
            id="unsupported",
        ),
        pytest.param(
            {"text": "x", "sampling_params": {"json_schema": "{}"}}, "json_schema is not supported", id="grammar"
        ),
        pytest.param(
            {"text": "x", "return_logprob": True, "top_logprobs_num": 129},
            "top_logprobs_num is 129",
            id="too many top_logprobs",
        ),
        pytest.param({"text": "x", "sampling_params": {"temperature": -1}}, "temperature", id="out of range"),
        pytest.param({"input_ids": [1 << 20]}, "input_ids", id="unknown token"),
        pytest.param({"text": "x", "sampling_params": {"max_new_tokens": 40_000}}, "32768", id="context too small"),
        pytest.param({}, "text", id="no prompt"),
    ],
)
def test_invalid_requests_are_refused(echo: Program, body: dict[str, Any], problem: str) -> None:
    """
    The status is 400, and the message names the field, whether the request is streamed or not.
    """
    for stream in (False, True):
        status, answer = echo.generate(**body, stream=stream)

        assert status == 400, answer
        assert answer["error"]["code"] == 400
        assert problem in answer["error"]["message"]


def test_log_probabilities(echo: Program) -> None:
    """
    Prompt and output have log-probabilities with texts. Impossible and missing values are null.
    """
    options = {
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": 2,
        "token_ids_logprob": [98],
        "return_text_in_logprobs": True,
    }
    status, answer = echo.generate(text="ab", **options)

    meta = answer["meta_info"]
    assert status == 200
    assert meta["input_token_logprobs"] == [[None, 97, "a"], [0.0, 98, "b"]]
    assert meta["output_token_logprobs"] == [[0.0, 97, "a"], [0.0, 98, "b"]]
    assert meta["output_top_logprobs"] == [[[0.0, 97, "a"], [None, 98, "b"]], [[0.0, 98, "b"], [None, 99, "c"]]]
    assert meta["input_top_logprobs"] == [None, [[0.0, 98, "b"], [None, 99, "c"]]]
    assert meta["output_token_ids_logprobs"] == [[[None, 98, "b"]], [[0.0, 98, "b"]]]
    assert meta["input_token_ids_logprobs"] == [None, [[0.0, 98, "b"]]]


def test_hidden_states(echo: Program) -> None:
    """
    There is one row per token.
    """
    status, answer = echo.generate(input_ids=[97, 98], return_hidden_states=True)

    assert status == 200
    assert answer["meta_info"]["hidden_states"] == [[97.0, 0.0], [98.0, 1.0]]


def test_the_other_routes(echo: Program) -> None:
    """
    Every route answers.
    """
    tokens = echo.ask("POST", "/tokenize", {"prompt": TEXT})[1]["tokens"]
    assert echo.ask("POST", "/detokenize", {"tokens": tokens}) == (200, {"text": TEXT})
    assert echo.ask("GET", "/health")[0] == 200
    assert echo.ask("GET", "/health_generate")[0] == 200
    for path in ("/get_model_info", "/model_info"):
        status, info = echo.ask("GET", path)
        assert (status, info["model_path"], info["is_generation"]) == (200, "echo", True)
    for path in ("/server_info", "/get_server_info"):
        status, info = echo.ask("GET", path)
        assert status == 200
        assert info["max_total_num_tokens"] == 1 << 22
        assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 1024
    assert echo.ask("POST", "/flush_cache")[1] == {"success": True, "message": "cache flushed"}
    status, text = echo.ask("GET", "/metrics")
    assert status == 200
    assert "# TYPE" in text


def test_an_answer_can_be_aborted() -> None:
    """
    The abort names the rid. The answer ends with the text so far, and the scheduler becomes idle.
    """
    with program(delay=0.01) as running:
        with contextlib.closing(
            running.start_generation(
                text="x", rid="mine", stream=True, sampling_params={"ignore_eos": True, "max_new_tokens": None}
            )
        ) as connection:
            answer = connection.getresponse()
            answer.read(1)
            assert running.ask("POST", "/abort_request", {"rid": "mine"})[1]["success"]
            *_, last, end = events(answer.read().decode())
        assert end == "[DONE]"
        assert last["meta_info"]["finish_reason"]["type"] == "abort"
        assert running.ask("POST", "/flush_cache")[1]["success"]


def test_a_disconnect_ends_the_request() -> None:
    """
    The scheduler gets an abort and becomes idle.
    """
    with program(delay=0.01) as running:
        for stream in (False, True):
            connection = running.start_generation(
                text="x", stream=stream, sampling_params={"ignore_eos": True, "max_new_tokens": None}
            )
            wait_until_busy(running, True)
            connection.close()
            wait_until_busy(running, False)


def wait_until_busy(running: Program, expected: bool) -> None:
    """
    Wait until the scheduler is busy (or idle, if not *expected*). It refuses to flush the cache while it is busy.
    """
    eventually(
        lambda: running.ask("POST", "/flush_cache")[1]["success"] is not expected,
        f"the scheduler is {'' if expected else 'no longer '}busy",
    )


def test_requests_beyond_the_queue_get_503() -> None:
    """
    Every request gets an answer: a text, or 503 with a message.
    """
    with program("--max-running-requests", "2", "--max-queued-requests", "4", delay=0.01) as running:
        answers: list[tuple[int, Any]] = []
        threads = [threading.Thread(target=lambda: answers.append(running.generate(text="hello"))) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)

        assert len(answers) == 32
        assert {status for status, _ in answers} == {200, 503}
        for status, answer in answers:
            assert answer["text"] == "hello" if status == 200 else "queue is full" in answer["error"]["message"]


def test_a_failed_step_fails_its_requests() -> None:
    """
    Later requests are served.
    """
    with program(fail_at_step=1) as running:
        status, answer = running.generate(text="x")
        assert (status, answer["error"]["code"]) == (500, 500)
        assert "the script fails step 1" in answer["error"]["message"]
        assert running.generate(text="x")[1]["text"] == "x"


def test_an_error_after_a_stream_began_is_its_last_event() -> None:
    """
    The stream has no `[DONE]`.
    """
    with program(fail_at_step=2) as running:
        first, last = running.stream(text="xyz")

        assert first["text"] == "x"
        assert last["error"]["code"] == 500
        assert "the script fails step 2" in last["error"]["message"]


@pytest.mark.parametrize(
    ("abort", "status"),
    [
        ({"message": "no room", "status_code": 503}, 503),
        ({"message": "bad grammar", "status_code": 400}, 400),
        ({"message": "without a status"}, 200),
    ],
)
def test_an_abort_by_the_engine(abort: dict[str, Any], status: int) -> None:
    """
    The answer has the HTTP status that the engine gives. If it gives none, the answer is a normal one.
    """
    with program(abort_at_token=2, abort=abort) as running:
        got, answer = running.generate(text="xyz")

    assert got == status
    if status == 200:
        assert (answer["text"], answer["meta_info"]["finish_reason"]["type"]) == ("xy", "abort")
    else:
        assert abort["message"] in answer["error"]["message"]


def test_nan_and_infinity_become_null() -> None:
    """
    The answer is valid JSON.
    """
    with program(logprobs=[math.nan, math.inf, -math.inf, -0.5]) as running:
        answer = running.generate(text="abcd", return_logprob=True, logprob_start_len=0)[1]

    values = [value for value, *_ in answer["meta_info"]["output_token_logprobs"]]
    assert values == [None, None, None, -0.5]
    json.dumps(answer, allow_nan=False)


def test_incremental_streams() -> None:
    """
    The concatenated deltas are the text.
    """
    with program("--incremental-streaming-output") as running:
        *frames, end = running.stream(text=TEXT)

    assert end == "[DONE]"
    assert "".join(frame["text"] for frame in frames) == TEXT
    assert sum(len(frame.get("output_ids", ())) for frame in frames) == len(TEXT.encode())


def test_without_a_tokenizer() -> None:
    """
    Requests and answers contain token ids; texts are refused.
    """
    with program("--skip-tokenizer-init") as running:
        status, answer = running.generate(input_ids=[5, 70_000])

        assert (status, answer["output_ids"], answer["text"]) == (200, [5, 70_000], "")
        assert running.generate(text="x")[0] == 400


def test_a_port_in_use() -> None:
    """
    The exit code is 1, and the error message has no traceback.
    """
    with program() as running:
        command = [sys.executable, "-m", "sglang.srt.rust_server", "--port", str(running.port)]
        second = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
        )

    assert (second.returncode, second.stdout) == (1, "")
    assert "the server cannot start: " in second.stderr
    assert str(running.port) in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(("host", "shown"), [("::1", "[::1]"), ("[::1]", "[::1]"), ("localhost", "localhost")])
def test_hosts(host: str, shown: str) -> None:
    """
    The host may be an address or a name. The printed line shows it in the form of a URL.
    """
    with program("--host", host) as running:
        assert running.line == f"serving echo on http://{shown}:{running.port}\n"
        assert running.ask("GET", "/health")[0] == 200
