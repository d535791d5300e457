"""
`python -m sglang.srt.rust_server`: its arguments, its output and its signals.
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
    The fake extension that the program loads.
    """
    module = fake_extension()
    monkeypatch.setattr(server_module, "load_extension", lambda: module)
    return module


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--engine", "nope"], "engine 'nope' is neither `echo` nor of the form `package.module:Class`"),
        (["--engine-args", "{"], "argument --engine-args: not valid JSON: "),
        (["--engine-args", "[1]"], "argument --engine-args: must be a JSON object"),
        (["--engine-args", '{"tokens": 1}'], "unexpected keyword argument 'tokens'"),
        (["--engine-args", '{"max_running_requests": 0}'], "must be at least 1"),
        (["--preferred-sampling-params", "7"], "argument --preferred-sampling-params: must be a JSON object"),
        (["--port", "65536"], "argument --port: '65536' is not a port number from 0 to 65535"),
        (["--port", "x"], "argument --port: 'x' is not a port number from 0 to 65535"),
        (["--body-limit", "0"], "argument --body-limit: '0' is not a whole number of at least 1"),
        (["--max-queued-requests", "-1"], "argument --max-queued-requests: '-1' is not a whole number of at least 0"),
        (["--drain-deadline", "nan"], "argument --drain-deadline: 'nan' is not a number of at least 0"),
        (["--drain-deadline", "inf"], "argument --drain-deadline: 'inf' is not a number of at least 0"),
        (["--log-level", "loud"], "argument --log-level: invalid choice: 'loud'"),
        (["--api-key", "secret"], "unrecognized arguments: --api-key"),
    ],
)
def test_wrong_argument_exits_with_code_2(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The message on stderr names the argument.
    """
    with pytest.raises(SystemExit) as ended:
        program.main(arguments)

    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("listen address: port 80 is in use"), "listen address: port 80 is in use"),
        (ImportError("no compiler"), "no compiler"),
    ],
)
def test_failed_start_exits_with_code_1(
    extension: Any, error: Exception, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    Stderr ends with the reason, without a traceback.
    """

    def refuse(*_: object, **__: object) -> None:
        raise error

    extension.Server = refuse

    assert program.main([]) == 1
    assert capsys.readouterr().err.endswith(f"python -m sglang.srt.rust_server: the server cannot start: {reason}\n")


class SignalsWhenIdle(FakeServer):
    """
    A server that sends its process SIGTERM as soon as its one request has finished.
    """

    number = signal.SIGTERM

    def __init__(self, args: Any = None, **options: Any) -> None:
        super().__init__(args, **options)
        self.send(generate("r"))
        self.when_idle = lambda: os.kill(os.getpid(), self.number)


class InterruptsWhenIdle(SignalsWhenIdle):
    """
    A server that sends its process SIGINT, the signal of Ctrl-C, as soon as its one request has finished.
    """

    number = signal.SIGINT


@pytest.mark.parametrize(
    ("kind", "host", "port", "line", "code"),
    [
        (SignalsWhenIdle, "127.0.0.1", "0", "serving echo on http://127.0.0.1:54321\n", 0),
        (SignalsWhenIdle, "::", "8000", "serving echo on http://[::]:8000\n", 0),
        (InterruptsWhenIdle, "[::1]", "8000", "serving echo on http://[::1]:8000\n", 130),
        (InterruptsWhenIdle, "localhost", "8000", "serving echo on http://localhost:8000\n", 130),
    ],
)
def test_signal_ends_the_program(
    extension: Any,
    kind: type[FakeServer],
    host: str,
    port: str,
    line: str,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """
    Stdout has one line with the real port. The first signal shuts the server down after the request has finished.
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


def test_second_signal_exits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The second signal exits even though the first one has begun a shutdown.
    """
    monkeypatch.setattr(os, "_exit", sys.exit)
    stops: list[None] = []

    received = program._stop_on_signals(lambda: stops.append(None))
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit, match="130"):
        os.kill(os.getpid(), signal.SIGINT)

    assert received == [signal.SIGTERM, signal.SIGINT]
    assert len(stops) == 1


# Long: one line for each argument.
def test_arguments_reach_the_extension(extension: Any) -> None:
    """
    Each argument arrives in the field of the extension with its name.
    """
    servers: list[FakeServer] = []

    def launch(*args: Any, **options: Any) -> FakeServer:
        servers.append(SignalsWhenIdle(*args, **options))
        return servers[0]

    extension.Server = launch
    line = (
        "--model-path m --served-model-name s --tokenizer-path t --weight-version w --host ::1 --port 4 "
        "--tokenizer-worker-num 2 --detokenizer-worker-num 3 "
        "--skip-tokenizer-init --incremental-streaming-output --allow-auto-truncate "
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


def test_every_scheduler_limit_has_an_argument() -> None:
    """
    A field that is added to `Limits` without an argument fails this test.
    """
    options = program._parser().parse_args(
        ["--max-queued-requests=1", "--max-running-requests=2", "--stream-interval=3"]
    )
    limits = program._limits(options)

    assert [getattr(limits, each.name) for each in fields(limits)] == [1, 2, 3]
