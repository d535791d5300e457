"""
`python -m sglang.srt.rust_server` over HTTP: the extension, its Python face and the echo together.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from running import PATIENCE, Program, events, program

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = "Grüße 한국어 👨‍👩‍👧 é\u2028✅"


@pytest.fixture(scope="module")
def echo() -> Iterator[Program]:
    """
    A server that most tests share.
    """
    with program("--enable-return-hidden-states") as running:
        yield running
        assert running.end() == 0, running.log


def test_an_answer_in_one_piece(echo: Program) -> None:
    """
    The echo gives the prompt back, to the byte.
    """
    status, answer = echo.generate(text=TEXT, sampling_params={"max_new_tokens": 1000})

    assert status == 200
    assert answer["text"] == TEXT
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": None}
    assert answer["meta_info"]["prompt_tokens"] == answer["meta_info"]["completion_tokens"] == len(answer["output_ids"])


def test_a_stream(echo: Program) -> None:
    """
    Text only grows, by whole characters, and ends as the answer in one piece. Frames that nobody has read yet are one.
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
        pytest.param({"stop": ["ta ga"]}, "alpha be", {"type": "stop", "matched": "ta ga"}, id="stop text"),
        pytest.param(
            {"stop": ["ta ga"], "no_stop_trim": True},
            "alpha beta ga",
            {"type": "stop", "matched": "ta ga"},
            id="stop text kept",
        ),
        pytest.param(
            {"stop": ["nothing"]},
            "alpha beta gamma",
            {"type": "stop", "matched": None},
            id="stop text that does not come",
        ),
        pytest.param({"stop_token_ids": [ord("b")]}, "alpha ", {"type": "stop", "matched": ord("b")}, id="stop token"),
        pytest.param(
            {"min_new_tokens": 20}, "alpha beta gammaalph", {"type": "stop", "matched": None}, id="least tokens"
        ),
    ],
)
def test_how_answers_end(
    echo: Program, sampling: dict[str, Any], text: str, reason: dict[str, Any], stream: bool
) -> None:
    """
    The same text and the same reason, streamed or not.
    """
    if stream:
        answer = echo.stream(text="alpha beta gamma", sampling_params=sampling)[-2]
    else:
        answer = echo.generate(text="alpha beta gamma", sampling_params=sampling)[1]

    assert (answer["text"], answer["meta_info"]["finish_reason"]) == (text, reason)


def test_a_batch_is_answered_in_order(echo: Program) -> None:
    """
    One failure is its own.
    """
    status, answers = echo.generate(
        text=["one", "two", "three"], sampling_params=[{}, {"frequency_penalty": 1.0}, {"max_new_tokens": 2}]
    )

    assert status == 200
    assert [answer.get("text") for answer in answers] == ["one", None, "th"]
    assert "frequency_penalty" in answers[1]["error"]["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(
            {"text": "x", "sampling_params": {"presence_penalty": 1.0}},
            "presence_penalty is not supported",
            id="unsupported",
        ),
        pytest.param(
            {"text": "x", "sampling_params": {"json_schema": "{}"}}, "json_schema is not supported", id="a grammar"
        ),
        pytest.param(
            {"text": "x", "return_logprob": True, "top_logprobs_num": 129}, "top_logprobs_num is 129", id="too many"
        ),
        pytest.param({"text": "x", "sampling_params": {"temperature": -1}}, "temperature", id="out of range"),
        pytest.param({"input_ids": [1 << 20]}, "input_ids", id="no such token"),
        pytest.param({"text": "x", "sampling_params": {"max_new_tokens": 40_000}}, "32768", id="does not fit"),
        pytest.param({}, "text", id="nothing"),
    ],
)
def test_what_is_refused(echo: Program, body: dict[str, Any], words: str) -> None:
    """
    With 400, streamed or not, and words that name the field.
    """
    for stream in (False, True):
        status, answer = echo.generate(**body, stream=stream)

        assert status == 400, answer
        assert answer["error"]["code"] == 400
        assert words in answer["error"]["message"]


def test_log_probabilities(echo: Program) -> None:
    """
    Of the prompt and of the output, with texts; what is impossible or does not exist is null.
    """
    asked = {
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": 2,
        "token_ids_logprob": [98],
        "return_text_in_logprobs": True,
    }
    status, answer = echo.generate(text="ab", **asked)

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
    A row per token.
    """
    status, answer = echo.generate(input_ids=[97, 98], return_hidden_states=True)

    assert status == 200
    assert answer["meta_info"]["hidden_states"] == [[97.0, 0.0], [98.0, 1.0]]


def test_the_other_routes(echo: Program) -> None:
    """
    Each answers.
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
    By its id: it ends with what it has, and the scheduler is free again.
    """
    with program(delay=0.01) as running:
        with contextlib.closing(
            running.opened(
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


def test_a_client_that_leaves_frees_its_place() -> None:
    """
    The scheduler hears of it, and is idle then.
    """
    with program(delay=0.01) as running:
        for stream in (False, True):
            connection = running.opened(
                text="x", stream=stream, sampling_params={"ignore_eos": True, "max_new_tokens": None}
            )
            busy(running, True)
            connection.close()
            busy(running, False)


def busy(running: Program, expected: bool) -> None:
    """
    Wait until the scheduler is busy, or is not.
    """
    for _ in range(500):
        if running.ask("POST", "/flush_cache")[1]["success"] is not expected:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"the scheduler is {'not ' if expected else 'still '}busy\n{running.log}")


def test_more_than_fit_in_the_queue_are_told_so() -> None:
    """
    Everybody gets an answer: a text, or 503 with words.
    """
    with program("--max-running-requests", "2", "--max-queued-requests", "4", delay=0.01) as running:
        answers: list[tuple[int, Any]] = []
        threads = [threading.Thread(target=lambda: answers.append(running.generate(text="hello"))) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)

        assert len(answers) == 32
        assert {status for status, _ in answers} == {200, 503}
        for status, answer in answers:
            assert answer["text"] == "hello" if status == 200 else "queue is full" in answer["error"]["message"]


def test_a_step_that_fails_is_an_error_of_its_requests() -> None:
    """
    And the next one is served.
    """
    with program(fail_at_step=1) as running:
        status, answer = running.generate(text="x")
        assert (status, answer["error"]["code"]) == (500, 500)
        assert "the script fails step 1" in answer["error"]["message"]
        assert running.generate(text="x")[1]["text"] == "x"


def test_an_error_after_a_stream_began_is_its_last_event() -> None:
    """
    Without the mark of a good end.
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
        ({"message": "so it is"}, 200),
    ],
)
def test_an_engine_that_gives_up(abort: dict[str, Any], status: int) -> None:
    """
    With the status that it names; without one it is an answer.
    """
    with program(abort_at_token=2, abort=abort) as running:
        got, answer = running.generate(text="xyz")

    assert got == status
    if status == 200:
        assert (answer["text"], answer["meta_info"]["finish_reason"]["type"]) == ("xy", "abort")
    else:
        assert abort["message"] in answer["error"]["message"]


def test_no_answer_has_numbers_that_json_lacks() -> None:
    """
    They are null.
    """
    with program(logprobs=[math.nan, math.inf, -math.inf, -0.5]) as running:
        answer = running.generate(text="abcd", return_logprob=True, logprob_start_len=0)[1]

    values = [value for value, *_ in answer["meta_info"]["output_token_logprobs"]]
    assert values == [None, None, None, -0.5]
    json.dumps(answer, allow_nan=False)


def test_incremental_streams() -> None:
    """
    Deltas add up to the text.
    """
    with program("--incremental-streaming-output") as running:
        *frames, end = running.stream(text=TEXT)

    assert end == "[DONE]"
    assert "".join(frame["text"] for frame in frames) == TEXT
    assert sum(len(frame.get("output_ids", ())) for frame in frames) == len(TEXT.encode())


def test_without_a_tokenizer() -> None:
    """
    Ids in, ids out.
    """
    with program("--skip-tokenizer-init") as running:
        status, answer = running.generate(input_ids=[5, 70_000])

        assert (status, answer["output_ids"], answer["text"]) == (200, [5, 70_000], "")
        assert running.generate(text="x")[0] == 400


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_lets_what_is_in_flight_end(number: int, code: int) -> None:
    """
    A stream ends well, and then the process does.
    """
    with program(delay=0.01) as running:
        connection = running.opened(text="x", stream=True, sampling_params={"ignore_eos": True, "max_new_tokens": 100})
        answer = connection.getresponse()
        answer.read(1)
        running.process.send_signal(number)
        *_, last, end = events(answer.read().decode())

        assert end == "[DONE]"
        assert last["meta_info"]["completion_tokens"] == 100
        assert running.process.wait(PATIENCE) == code
        connection.close()


def test_the_drain_has_a_deadline() -> None:
    """
    Then a stream ends with an error, and the process well.
    """
    with program("--drain-deadline", "0.2", delay=0.01) as running:
        connection = running.opened(text="x", stream=True, sampling_params={"ignore_eos": True, "max_new_tokens": None})
        answer = connection.getresponse()
        answer.read(1)
        running.process.send_signal(signal.SIGTERM)

        assert "error" in events(answer.read().decode())[-1]
        assert running.process.wait(PATIENCE) == 0
        connection.close()


def test_a_second_signal_ends_it_at_once() -> None:
    """
    Whoever waits is cut off.
    """
    with program("--drain-deadline", "600", delay=0.01) as running:
        connection = running.opened(text="x", stream=True, sampling_params={"ignore_eos": True, "max_new_tokens": None})
        connection.getresponse().read(1)
        running.process.send_signal(signal.SIGTERM)
        while "shutting down" not in running.log:
            threading.Event().wait(0.01)
        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(PATIENCE) == 128 + signal.SIGTERM
        connection.close()


def test_a_scheduler_that_dies_ends_its_streams() -> None:
    """
    With an error, and the process with its own.
    """
    with program(die_at_step=3) as running:
        *_, last = running.stream(text="abcdef")

        assert "error" in last
        assert running.process.wait(PATIENCE) == 1
        assert "the script ends the scheduler at step 3" in running.log


def test_a_scheduler_that_dies_while_it_drains_waits_for_nobody() -> None:
    """
    However long its deadline is: its stream ends with an error, and the process with its own.
    """
    with program("--drain-deadline", "600", die_at_step=500, delay=0.01) as running:
        connection = running.opened(text="x", stream=True, sampling_params={"ignore_eos": True, "max_new_tokens": None})
        answer = connection.getresponse()
        answer.read(1)
        running.process.send_signal(signal.SIGTERM)

        assert "error" in events(answer.read().decode())[-1]
        assert running.process.wait(PATIENCE) == 1
        # In this order: it was told to end five seconds of steps before it died.
        assert running.log.index("shutting down; 1 requests in flight") < running.log.index(
            "the script ends the scheduler at step 500"
        )
        connection.close()


def test_a_port_that_is_taken() -> None:
    """
    Exit code 1, and words without a traceback.
    """
    with program() as running:
        command = [sys.executable, "-m", "sglang.srt.rust_server", "--port", str(running.port)]
        second = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )

    assert (second.returncode, second.stdout) == (1, "")
    assert "the server cannot start: " in second.stderr
    assert str(running.port) in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(("host", "shown"), [("::1", "[::1]"), ("[::1]", "[::1]"), ("localhost", "localhost")])
def test_hosts(host: str, shown: str) -> None:
    """
    Addresses and names, and the line that says where it is.
    """
    with program("--host", host) as running:
        assert running.line == f"serving echo on http://{shown}:{running.port}\n"
        assert running.ask("GET", "/health")[0] == 200
