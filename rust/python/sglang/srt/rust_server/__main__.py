"""
Serve an engine over HTTP: `python -m sglang.srt.rust_server --engine echo --port 30000`.

Only this module sets up logging and installs signal handlers. It prints one line to stdout, with the address of the
server; everything else goes to stderr.

Invariant: a wrong command line exits with code 2, and a server that cannot start exits with code 1. Both print the
reason without a traceback.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from sglang.srt.rust_server import context, flags
from sglang.srt.rust_server.engine import load_engine
from sglang.srt.rust_server.scheduler import Limits, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

#: By convention, a process that is ended by a signal exits with this number plus the number of the signal.
_SIGNAL_EXIT_BASE = 128


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Serve until a signal arrives, and return the exit code.

    The first SIGINT or SIGTERM lets requests in flight finish; the second exits at once.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    settings = _context(options)
    serving = settings.serving
    logging.basicConfig(level=serving.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        scheduler = Scheduler(load_engine(options.engine, options.engine_args), _limits(options))
    except ValueError as error:
        parser.error(str(error))
    context.set_context(settings)
    try:
        log = scheduler.get_rust_server_class().set_up_logging(_log_filter(serving))
        server = scheduler.launch()
    except (ImportError, ValueError) as error:
        print(f"{parser.prog}: the server cannot start: {error}", file=sys.stderr)
        return 1
    # The handlers are installed only after the launch, so that Ctrl-C interrupts the launch in the usual way.
    received = _stop_on_signals(scheduler.stop)
    # The first poll of the queue makes the server ready: `/health` succeeds from here on.
    scheduler.step()
    print(f"serving {serving.served_model_name} on {_url(serving.host, server.http_port)}", flush=True)
    scheduler.run()
    # Dropping the log writes what is still buffered, so it is kept until here.
    del log
    return _SIGNAL_EXIT_BASE + signal.SIGINT if signal.SIGINT in received else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sglang.srt.rust_server", description="Serve an engine over HTTP.")
    add = parser.add_argument_group("engine").add_argument
    add("--engine", default="echo", metavar="NAME", help="`echo`, or `package.module:Class` (default: echo)")
    add(
        "--engine-args",
        type=flags.json_object,
        default={},
        metavar="JSON",
        help="keyword arguments of the engine, as a JSON object",
    )
    add(
        "--max-running-requests",
        type=flags.positive,
        metavar="N",
        help="upper limit of requests in one step (default: the limit of the engine)",
    )
    add(
        "--max-queued-requests",
        type=flags.natural,
        default=4096,
        metavar="N",
        help="upper limit of waiting requests; further ones are refused with status 503 (default: 4096)",
    )
    add(
        "--stream-interval",
        type=flags.positive,
        default=1,
        metavar="N",
        help="tokens between two frames of a stream (default: 1)",
    )
    flags.add_flags(parser, (context.MODEL, context.SERVER), context.Serving, context.Frontend)
    return parser


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(options.max_queued_requests, options.max_running_requests, options.stream_interval)


def _context(options: argparse.Namespace) -> context.Context:
    given = flags.given_flags(options, context.Serving)
    model_path = given.get("model_path") or options.engine
    name = given.get("served_model_name") or model_path
    serving = context.Serving(**{**given, "model_path": model_path, "served_model_name": name})
    access_log = (serving.log_level_http or serving.log_level) in {"debug", "info"}
    frontend = context.Frontend(**flags.given_flags(options, context.Frontend), access_log=access_log)
    return context.Context(serving=serving, frontend=frontend)


def _log_filter(serving: context.Serving) -> str:
    """
    The filter of the extension's log: one level for everything, and one for the access log.
    """
    level, http = (
        "warn" if level == "warning" else level
        for level in (serving.log_level, serving.log_level_http or serving.log_level)
    )
    return f"{level},sglang_server::api::serve={http}"


def _stop_on_signals(stop: Callable[[], None]) -> list[int]:
    """
    Install handlers: the first signal calls *stop*, the second exits. Return the list of received signals.
    """
    received: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            # An exception does not end the process at once: unwinding could wait for threads of the server.
            os._exit(_SIGNAL_EXIT_BASE + number)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return received


def _url(host: str, port: int) -> str:
    bare = host.strip("[]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"


if __name__ == "__main__":
    sys.exit(main())
