"""
Where this process stands among those that serve one model, and what it was told to serve.

A serving project has its own such record; this one is for the program of this package,
which is a single process unless it is told otherwise.

Invariant: set before a server is launched, and read from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Exec:
    """
    How this process came to run.
    """

    nnodes: int = 1
    #: Whether it joined an expert-parallel group that was running: its node then holds all ranks.
    is_ep_scale_joiner: bool = False


@dataclass(frozen=True, slots=True)
class Parallel:
    """
    Sizes of the groups that share the work, and its place in them.
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

    #: Threads for it; 0: as many as usual.
    mm_processor_worker_num: int = 0


@dataclass(frozen=True, slots=True)
class Serving:
    """
    What is served, where, and how. `ServerArgs` of the extension has the same fields.
    """

    host: str = "127.0.0.1"
    #: That of the node's first data-parallel rank; the others follow. 0: any that is free.
    port: int = 30000
    model_path: str = "echo"
    served_model_name: str = "echo"
    #: A `tokenizer.json`, or a folder that has one; `None`: the built-in byte tokenizer serves.
    tokenizer_path: str | None = None
    revision: str | None = None
    load_format: str = "auto"
    weight_version: str = "default"
    #: How much is logged: `debug`, `info`, `warning`, `error`; the second is the access log's, by default the same.
    log_level: str = "info"
    log_level_http: str | None = None
    chat_template: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    stream_response_default_include_usage: bool = False
    tokenizer_worker_num: int = 1
    detokenizer_worker_num: int = 1
    #: Clients send and get token ids alone.
    skip_tokenizer_init: bool = False
    #: A frame of a stream has what is new, instead of all so far.
    incremental_streaming_output: bool = False
    #: `null`, `prefill` or `decode`.
    disaggregation_mode: str = "null"
    #: Sampling parameters that requests override.
    preferred_sampling_params: Mapping[str, Any] | None = None
    limit_mm_data_per_request: Mapping[str, int] | None = None
    #: Prompts that are too long are cut instead of refused.
    allow_auto_truncate: bool = False
    enable_return_hidden_states: bool = False


@dataclass(frozen=True, slots=True)
class Frontend:
    """
    What of the extension's `FrontendConfig` differs from its defaults.
    """

    body_limit: int | None = None
    drain_deadline: float | None = None
    read_timeout: float | None = None
    health_timeout: float | None = None
    health_generation: bool | None = None
    heartbeat_limit: float | None = None
    most_requests: int | None = None
    access_log: bool | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """
    All of it.
    """

    exec: Exec = field(default_factory=Exec)
    parallel: Parallel = field(default_factory=Parallel)
    mm: Mm = field(default_factory=Mm)
    serving: Serving = field(default_factory=Serving)
    frontend: Frontend = field(default_factory=Frontend)


_current = Context()


def set_context(context: Context) -> None:
    """
    Make *context* that of this process.
    """
    global _current  # noqa: PLW0603  # one process has one context, and code deep inside a serving project asks for it
    _current = context


def get_exec() -> Exec:
    """
    How this process came to run.
    """
    return _current.exec


def get_parallel() -> Parallel:
    """
    Its place among those that share the work.
    """
    return _current.parallel


def get_mm() -> Mm:
    """
    How media are processed.
    """
    return _current.mm


def get_serving() -> Serving:
    """
    What is served, where, and how.
    """
    return _current.serving


def get_frontend() -> Frontend:
    """
    How the server deals with its clients.
    """
    return _current.frontend
