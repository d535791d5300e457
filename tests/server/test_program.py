"""
`python -m sglang.srt.rust_server`: its arguments, its one line, its signals.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from fake_server import FakeServer, fake_extension, generate
from sglang.srt.rust_server import context
from sglang.srt.rust_server import server as server_module

if TYPE_CHECKING:
    from collections.abc import Iterator

program = import_module("sglang.srt.rust_server.__main__")


@pytest.fixture(autouse=True)
def _process() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    context.set_context(context.Context())


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> Any:
    """
    The extension that the program loads.
    """
    module = fake_extension()
    monkeypatch.setattr(server_module, "load_extension", lambda: module)
    return module


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--engine", "nope"], "engine 'nope' is neither `echo` nor of the form `package.module:Class`"),
        (["--engine-args", "{"], "argument --engine-args: no JSON: "),
        (["--engine-args", "[1]"], "argument --engine-args: a JSON object is needed"),
        (["--engine-args", '{"tokens": 1}'], "unexpected keyword argument 'tokens'"),
        (["--engine-args", '{"max_running_requests": 0}'], "must be at least 1"),
        (["--preferred-sampling-params", "7"], "argument --preferred-sampling-params: a JSON object is needed"),
        (["--port", "65536"], "argument --port: '65536' is no port from 0 to 65535"),
        (["--port", "x"], "argument --port: 'x' is no port from 0 to 65535"),
        (["--body-limit", "0"], "argument --body-limit: '0' is no whole number from 1 on"),
        (["--max-queued-requests", "-1"], "argument --max-queued-requests: '-1' is no whole number from 0 on"),
        (["--drain-deadline", "nan"], "argument --drain-deadline: 'nan' is no number from 0 on"),
        (["--drain-deadline", "inf"], "argument --drain-deadline: 'inf' is no number from 0 on"),
        (["--log-level", "loud"], "argument --log-level: invalid choice: 'loud'"),
        (["--api-key", "secret"], "unrecognized arguments: --api-key"),
    ],
)
def test_wrong_arguments(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Exit code 2, and words that name the argument.
    """
    with pytest.raises(SystemExit) as ended:
        program.main(arguments)

    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("listen address: port 80 is in use"), "listen address: port 80 is in use"),
        (ImportError("no compiler"), "no compiler"),
    ],
)
def test_a_server_that_cannot_start(
    extension: Any, error: Exception, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Exit code 1 and the reason, without a traceback.
    """

    def refuse(*_: object, **__: object) -> None:
        raise error

    extension.Server = refuse

    assert program.main([]) == 1
    assert capsys.readouterr().err.endswith(f"python -m sglang.srt.rust_server: the server cannot start: {words}\n")


class Interrupted(FakeServer):
    """
    A server whose process gets a signal when nothing is left to do.
    """

    number = signal.SIGTERM

    def __init__(self, args: Any = None, **options: Any) -> None:
        super().__init__(args, **options)
        self.send(generate("r"))
        self.when_idle = lambda: os.kill(os.getpid(), self.number)


class ByKeyboard(Interrupted):
    """
    The same, from a terminal.
    """

    number = signal.SIGINT


@pytest.mark.parametrize(
    ("kind", "host", "port", "line", "code"),
    [
        (Interrupted, "127.0.0.1", "0", "serving echo on http://127.0.0.1:54321\n", 0),
        (Interrupted, "::", "8000", "serving echo on http://[::]:8000\n", 0),
        (ByKeyboard, "[::1]", "8000", "serving echo on http://[::1]:8000\n", 130),
        (ByKeyboard, "localhost", "8000", "serving echo on http://localhost:8000\n", 130),
    ],
)
def test_a_run(
    extension: Any,
    kind: type[FakeServer],
    host: str,
    port: str,
    line: str,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    One line on stdout with the real port; the first signal ends it well.
    """
    servers: list[FakeServer] = []

    def launch(*args: Any, **options: Any) -> FakeServer:
        servers.append(kind(*args, **options))
        return servers[0]

    extension.Server = launch

    assert program.main(["--host", host, "--port", port]) == code
    assert capsys.readouterr().out == line
    assert servers[0].is_shut_down
    assert servers[0].pushed["r"].tokens == [1, 2, 3]


def test_a_second_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Whatever the first has begun.
    """
    monkeypatch.setattr(os, "_exit", sys.exit)
    stops: list[None] = []

    received = program._stop_on_signals(lambda: stops.append(None))
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit, match="130"):
        os.kill(os.getpid(), signal.SIGINT)

    assert received == [signal.SIGTERM, signal.SIGINT]
    assert len(stops) == 1


def test_arguments_reach_the_extension(extension: Any) -> None:
    """
    Each under the name that it has there.
    """
    servers: list[FakeServer] = []

    def launch(*args: Any, **options: Any) -> FakeServer:
        servers.append(Interrupted(*args, **options))
        return servers[0]

    extension.Server = launch
    line = (
        "--model-path m --served-model-name s --tokenizer-path t --weight-version w --host ::1 --port 4 --tokenizer-worker-num 2 "
        "--detokenizer-worker-num 3 --skip-tokenizer-init --incremental-streaming-output --allow-auto-truncate "
        "--enable-return-hidden-states --log-level warning --log-level-http error --body-limit 5 --drain-deadline 1.5"
    )

    assert (
        program.main(
            [*line.split(), "--preferred-sampling-params", '{"top_k": 1}', "--engine-args", '{"context_len": 77}']
        )
        == 0
    )

    given = vars(servers[0].args)
    expected = {
        "model_path": "m",
        "served_model_name": "s",
        "tokenizer_path": "t",
        "weight_version": "w",
        "host": "::1",
        "port": 4,
        "tokenizer_worker_num": 2,
        "detokenizer_worker_num": 3,
        "skip_tokenizer_init": True,
        "incremental_streaming_output": True,
        "allow_auto_truncate": True,
        "enable_return_hidden_states": True,
        "log_level": "warning",
        "log_level_http": "error",
        "preferred_sampling_params": '{"top_k": 1}',
    }
    assert {name: given[name] for name in expected} == expected
    assert given["model_config"].context_len == 77
    assert vars(servers[0].options["frontend_config"]) == {"body_limit": 5, "drain_deadline": 1.5, "access_log": False}


def test_every_limit_has_an_argument() -> None:
    """
    A field that is added to the scheduler's limits is missed here.
    """
    options = program._parser().parse_args(
        ["--max-queued-requests=1", "--max-running-requests=2", "--stream-interval=3"]
    )
    limits = program._limits(options)

    assert [getattr(limits, each.name) for each in fields(limits)] == [1, 2, 3]
