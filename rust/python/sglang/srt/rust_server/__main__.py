"""
Serve an engine over HTTP: `python -m sglang.srt.rust_server --engine echo --port 30000`.

The only room that sets up logging and takes signals. Says on stdout, in one line, where it
listens; everything else goes to stderr.

Invariant: what is wrong with the command line, or keeps the server from starting, is said
without a traceback, by exit code 2 or 1.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from sglang.srt.rust_server import context
from sglang.srt.rust_server.engine import load_engine
from sglang.srt.rust_server.scheduler import Limits, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

#: What `signal` ends a process with by convention, plus its number.
_KILLED = 128

_LOG_LEVELS = ("debug", "info", "warning", "error")


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Serve until a signal; the exit code.

    The first SIGINT or SIGTERM lets what is in flight end, the second ends the process at once.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        scheduler = Scheduler(load_engine(options.engine, options.engine_args), _limits(options))
    except ValueError as error:
        parser.error(str(error))
    context.set_context(_context(options))
    try:
        log = scheduler.get_rust_server_class().set_up_logging(_directives(options))
        server = scheduler.launch()
    except (ImportError, ValueError) as error:
        print(f"{parser.prog}: the server cannot start: {error}", file=sys.stderr)
        return 1
    # Not before: what launching takes may be interrupted as any command is.
    received = _stop_on_signals(scheduler.stop)
    # A first look at the queue: from then on the server knows that somebody serves, and is ready.
    scheduler.step()
    print(f"serving {context.get_serving().served_model_name} on {_url(options.host, server.http_port)}", flush=True)
    scheduler.run()
    # Not earlier: dropped, it writes what is left.
    del log
    return _KILLED + signal.SIGINT if signal.SIGINT in received else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sglang.srt.rust_server", description="Serve an engine over HTTP.")
    add = parser.add_argument_group("engine").add_argument
    add("--engine", default="echo", metavar="NAME", help="`echo`, or `package.module:Class` (default: echo)")
    add("--engine-args", type=_object, default={}, metavar="JSON", help="its keyword arguments, as a JSON object")
    add(
        "--max-running-requests",
        type=_positive,
        metavar="N",
        help="requests in a step (default: as many as the engine can)",
    )
    add(
        "--max-queued-requests",
        type=_natural,
        default=4096,
        metavar="N",
        help="requests that may wait; more are refused with 503",
    )
    add(
        "--stream-interval",
        type=_positive,
        default=1,
        metavar="N",
        help="tokens between two frames of a stream (default: 1)",
    )
    add = parser.add_argument_group("what is served").add_argument
    add("--model-path", metavar="PATH", help="as it is reported (default: the engine's name)")
    add("--served-model-name", metavar="NAME", help="what clients call it (default: the model path)")
    add(
        "--tokenizer-path",
        metavar="PATH",
        help="`tokenizer.json`, or a folder that has one (default: the built-in byte tokenizer)",
    )
    add("--skip-tokenizer-init", action="store_true", help="no tokenizer: clients send and get token ids")
    add("--weight-version", default="default", metavar="TEXT", help="as it is reported")
    add("--preferred-sampling-params", type=_object, metavar="JSON", help="sampling parameters that requests override")
    add("--allow-auto-truncate", action="store_true", help="cut prompts that are too long instead of refusing them")
    add("--enable-return-hidden-states", action="store_true", help="let clients ask for hidden states")
    add("--incremental-streaming-output", action="store_true", help="stream what is new instead of all so far")
    add = parser.add_argument_group("server").add_argument
    add("--host", default="127.0.0.1", help="address or name to listen on (default: 127.0.0.1)")
    add("--port", type=_port, default=30000, help="port to listen on; 0: any that is free (default: 30000)")
    add(
        "--tokenizer-worker-num",
        type=_positive,
        default=1,
        metavar="N",
        help="threads that make tokens of text (default: 1)",
    )
    add(
        "--detokenizer-worker-num",
        type=_positive,
        default=1,
        metavar="N",
        help="threads that make text of tokens (default: 1)",
    )
    add("--body-limit", type=_positive, metavar="BYTES", help="most bytes of a request's body (default: 64 MiB)")
    add(
        "--drain-deadline",
        type=_seconds,
        metavar="SECONDS",
        help="time for requests in flight to end at shutdown (default: 5)",
    )
    add("--log-level", choices=_LOG_LEVELS, default="info", help="how much is logged (default: info)")
    add("--log-level-http", choices=_LOG_LEVELS, help="the same for the access log (default: as --log-level)")
    return parser


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("a JSON object is needed")
    return value


def _number(kind: str, text: str, least: float, most: float = float("inf")) -> float:
    try:
        value = float(text) if kind == "number" else int(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most or value == float("inf"):
        limits = f"from {least:g} to {most:g}" if most < float("inf") else f"from {least:g} on"
        raise argparse.ArgumentTypeError(f"{text!r} is no {kind} {limits}")
    return value


def _positive(text: str) -> int:
    return int(_number("whole number", text, 1))


def _natural(text: str) -> int:
    return int(_number("whole number", text, 0))


def _port(text: str) -> int:
    return int(_number("port", text, 0, 65535))


def _seconds(text: str) -> float:
    return _number("number", text, 0)


def _directives(options: argparse.Namespace) -> str:
    level, http = (
        "warn" if level == "warning" else level
        for level in (options.log_level, options.log_level_http or options.log_level)
    )
    return f"{level},sglang_server::api::serve={http}"


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(options.max_queued_requests, options.max_running_requests, options.stream_interval)


def _context(options: argparse.Namespace) -> context.Context:
    model_path = options.model_path or options.engine
    serving = context.Serving(
        host=options.host,
        port=options.port,
        model_path=model_path,
        served_model_name=options.served_model_name or model_path,
        tokenizer_path=options.tokenizer_path,
        weight_version=options.weight_version,
        log_level=options.log_level,
        log_level_http=options.log_level_http,
        tokenizer_worker_num=options.tokenizer_worker_num,
        detokenizer_worker_num=options.detokenizer_worker_num,
        skip_tokenizer_init=options.skip_tokenizer_init,
        incremental_streaming_output=options.incremental_streaming_output,
        preferred_sampling_params=options.preferred_sampling_params,
        allow_auto_truncate=options.allow_auto_truncate,
        enable_return_hidden_states=options.enable_return_hidden_states,
    )
    frontend = context.Frontend(
        body_limit=options.body_limit,
        drain_deadline=options.drain_deadline,
        access_log=(options.log_level_http or options.log_level) in {"debug", "info"},
    )
    return context.Context(serving=serving, frontend=frontend)


def _stop_on_signals(stop: Callable[[], None]) -> list[int]:
    """
    Have the first signal call *stop* and the second end the process; the signals that came.
    """
    received: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            # Not by an exception: threads of the server may hold what its end would wait for.
            os._exit(_KILLED + number)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return received


def _url(host: str, port: int) -> str:
    bare = host.strip("[]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"


if __name__ == "__main__":
    sys.exit(main())
