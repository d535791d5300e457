"""
The settings of this process, and its place among the processes that serve one model.

A serving project keeps its own context. This context is for the program of this package, which serves with a single
process by default.

Each setting of the server is declared once: a field of `Serving` or `Frontend` carries its default and, if it has
one, its command-line flag. `tests/server/test_settings.py` compares these fields with the stub `_server.pyi` and with
the Rust structs in `sglang-server/src/config.rs`.

Invariant: the context is set before a server is launched, and is only read afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sglang.srt.rust_server.flags import flag, json_object, port, positive, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Groups of flags in the help text.
MODEL = "model"
SERVER = "server"

_LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Exec:
    """
    How this process was started.
    """

    nnodes: int = 1
    #: Whether this process joined a running expert-parallel group. Its node then holds all ranks.
    is_ep_scale_joiner: bool = False


@dataclass(frozen=True, slots=True)
class Parallel:
    """
    The sizes of the parallel groups, and the ranks of this process in them.
    """

    tp_size: int = 1
    tp_rank: int = 0
    pp_size: int = 1
    attn_tp_size: int = 1
    attn_cp_size: int = 1
    dp_size: int = 1
    attn_dp_rank: int = 0


@dataclass(frozen=True, slots=True)
class Mm:
    """
    How media are processed.
    """

    #: Number of worker threads for media; 0 selects the default number.
    mm_processor_worker_num: int = 0


@dataclass(frozen=True, slots=True)
class Serving:
    """
    The served model, and the address of the server. Every field is also a field of the extension's `ServerArgs`.
    """

    host: str = flag("127.0.0.1", help="address or host name to listen on", group=SERVER)
    #: The port of the node's first data-parallel rank; rank *n* listens on the port plus *n*.
    port: int = flag(30000, help="port to listen on; 0 selects a free port", group=SERVER, parse=port)
    model_path: str = flag(
        "echo",
        help="model path that the API reports",
        group=MODEL,
        metavar="PATH",
        shown_default="the name of the engine",
    )
    served_model_name: str = flag(
        "echo", help="model name in the API", group=MODEL, metavar="NAME", shown_default="the model path"
    )
    tokenizer_path: str | None = flag(
        None,
        help="`tokenizer.json`, or a directory that contains one",
        group=MODEL,
        metavar="PATH",
        shown_default="the built-in byte tokenizer",
    )
    revision: str | None = None
    load_format: str = "auto"
    weight_version: str = flag("default", help="weight version that the API reports", group=MODEL, metavar="TEXT")
    log_level: str = flag("info", help="log level", group=SERVER, choices=_LOG_LEVELS)
    log_level_http: str | None = flag(
        None, help="log level of the access log", group=SERVER, choices=_LOG_LEVELS, shown_default="--log-level"
    )
    chat_template: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    stream_response_default_include_usage: bool = False
    tokenizer_worker_num: int = flag(1, help="number of tokenizer threads", group=SERVER, parse=positive, metavar="N")
    detokenizer_worker_num: int = flag(
        1, help="number of detokenizer threads", group=SERVER, parse=positive, metavar="N"
    )
    skip_tokenizer_init: bool = flag(
        False, help="run without a tokenizer: clients send and receive token ids", group=MODEL
    )
    incremental_streaming_output: bool = flag(
        False, help="send only the new output in each frame of a stream, not all output so far", group=MODEL
    )
    #: `null`, `prefill` or `decode`.
    disaggregation_mode: str = "null"
    preferred_sampling_params: Mapping[str, Any] | None = flag(
        None,
        help="default sampling parameters, which a request overrides",
        group=MODEL,
        parse=json_object,
        metavar="JSON",
    )
    limit_mm_data_per_request: Mapping[str, int] | None = None
    allow_auto_truncate: bool = flag(
        False, help="truncate prompts that are too long instead of refusing them", group=MODEL
    )
    enable_return_hidden_states: bool = flag(False, help="let clients request hidden states", group=MODEL)


@dataclass(frozen=True, slots=True)
class Frontend:
    """
    The fields of the extension's `FrontendConfig`. `None` keeps the extension's own default.
    """

    body_limit: int | None = flag(
        None,
        help="upper limit of the size of a request body",
        group=SERVER,
        parse=positive,
        metavar="BYTES",
        shown_default="64 MiB",
    )
    drain_deadline: float | None = flag(
        None,
        help="time for requests in flight to finish after a shutdown begins",
        group=SERVER,
        parse=seconds,
        metavar="SECONDS",
        shown_default="5",
    )
    read_timeout: float | None = None
    health_timeout: float | None = None
    health_generation: bool | None = None
    heartbeat_limit: float | None = None
    max_requests: int | None = None
    access_log: bool | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """
    All settings of this process.
    """

    exec: Exec = field(default_factory=Exec)
    parallel: Parallel = field(default_factory=Parallel)
    mm: Mm = field(default_factory=Mm)
    serving: Serving = field(default_factory=Serving)
    frontend: Frontend = field(default_factory=Frontend)


_current = Context()


def set_context(context: Context) -> None:
    """
    Make *context* the context of this process.
    """
    global _current  # noqa: PLW0603  # a process has one context, and code deep inside a serving project reads it
    _current = context


def get_exec() -> Exec:
    """
    How this process was started.
    """
    return _current.exec


def get_parallel() -> Parallel:
    """
    The parallel groups and the ranks of this process.
    """
    return _current.parallel


def get_mm() -> Mm:
    """
    How media are processed.
    """
    return _current.mm


def get_serving() -> Serving:
    """
    The served model, and the address of the server.
    """
    return _current.serving


def get_frontend() -> Frontend:
    """
    Limits and timeouts of the frontend.
    """
    return _current.frontend
