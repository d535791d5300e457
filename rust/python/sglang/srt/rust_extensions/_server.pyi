"""
The HTTP frontend of a serving engine, in the process of its scheduler.

A `Server` receives requests over HTTP, tokenizes and detokenizes, and queues the requests for the scheduler, which
polls it. `sglang.srt.rust_server` is the Python package on top of it.
"""

from typing import ClassVar, final

__all__ = [
    "DefaultSamplingParams",
    "DisaggregationMode",
    "FrontendConfig",
    "Log",
    "ModelConfig",
    "RequestBatch",
    "Server",
    "ServerArgs",
    "set_up_logging",
]

@final
class Log:
    """
    The log of this process. Dropping it writes the buffered lines and ends the log.
    """

def set_up_logging(level: str = "info") -> Log:
    """
    Write the log to stderr, one line per event. The server never waits for a slow reader: it drops lines instead.

    *level* is `error`, `warn`, `info`, `debug` or `trace`, or a list of directives such as
    `warn,sglang_server::api::serve=info`. The environment variable `RUST_LOG` takes precedence. Importing the module
    sets up no log. Raises `ValueError` for any other level, and if this process already has a log.
    """

@final
class DisaggregationMode:
    """
    The role of a server in a disaggregated pair; `Null` outside a pair.
    """

    Null: ClassVar[DisaggregationMode]
    Prefill: ClassVar[DisaggregationMode]
    Decode: ClassVar[DisaggregationMode]

    def __int__(self) -> int: ...

@final
class DefaultSamplingParams:
    """
    Sampling parameters from the model's own configuration. A request overrides them.
    """

    def __new__(
        cls,
        *,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
    ) -> DefaultSamplingParams: ...

@final
class ModelConfig:
    """
    Limits and defaults of the model.
    """

    def __new__(
        cls,
        *,
        context_len: int,
        vocab_size: int,
        is_multimodal: bool,
        default_sampling_params: DefaultSamplingParams,
    ) -> ModelConfig:
        """
        *context_len* is the maximum number of tokens of a prompt and its completion together. Token ids are below
        *vocab_size*.
        """

@final
class ServerArgs:
    """
    The settings of the serving engine. Every field is required, so that a version mismatch is an error at start.
    """

    def __new__(
        cls,
        *,
        model_path: str,
        served_model_name: str,
        tokenizer_path: str | None,
        revision: str | None,
        load_format: str,
        weight_version: str,
        host: str,
        port: int,
        log_level: str,
        log_level_http: str | None,
        chat_template: str | None,
        tool_call_parser: str | None,
        reasoning_parser: str | None,
        stream_response_default_include_usage: bool,
        tokenizer_worker_num: int,
        detokenizer_worker_num: int,
        skip_tokenizer_init: bool,
        incremental_streaming_output: bool,
        disaggregation_mode: DisaggregationMode,
        model_config: ModelConfig,
        preferred_sampling_params: str | None,
        limit_mm_data_per_request: dict[str, int],
        allow_auto_truncate: bool,
        enable_return_hidden_states: bool,
        num_reserved_tokens: int,
        version: str,
        max_total_num_tokens: int,
    ) -> ServerArgs:
        """
        *host* is an address, with or without brackets, or a host name. *port* 0 selects a free port. If
        *tokenizer_path* is `None`, the built-in byte tokenizer is used. *preferred_sampling_params* is a JSON object
        with default sampling parameters, which a request overrides.

        Raises `TypeError` for a missing or unknown argument, and `ValueError` if *preferred_sampling_params* is not a
        JSON object.
        """

@final
class FrontendConfig:
    """
    Limits and timeouts of the frontend.
    """

    def __new__(
        cls,
        *,
        body_limit: int | None = None,
        drain_deadline: float | None = None,
        read_timeout: float | None = None,
        health_timeout: float | None = None,
        health_generation: bool | None = None,
        heartbeat_limit: float | None = None,
        max_requests: int | None = None,
        access_log: bool | None = None,
    ) -> FrontendConfig:
        """
        `None` selects the default, given here in parentheses. Times are in seconds.

        - *body_limit* (64 MiB): maximum size of a request body in bytes; a larger body is answered with status 413.
        - *drain_deadline* (5): time for requests in flight to finish after `Server.shutdown` is called.
        - *read_timeout* (60): maximum time for the head of a request to arrive, and for its body to arrive after that.
        - *health_timeout* (20): how long `/health_generate` waits for a frame of the scheduler.
        - *health_generation* (true): whether `/health_generate` sends a probe to the scheduler.
        - *heartbeat_limit* (30): maximum age of the scheduler's last heartbeat at which `/health` reports success.
        - *max_requests* (4096): maximum number of requests in one body; a negative number means no limit.
        - *access_log* (false): whether to log a line for each request.

        Raises `ValueError` for a time that is not a number of seconds from 0 to 1e9.
        """

@final
class RequestBatch:
    """
    Requests from the queue to the scheduler. Each read of an attribute returns a new object.
    """

    @property
    def headers(self) -> list[bytes]:
        """
        One MessagePack message per request.
        """

    @property
    def data(self) -> bytes:
        """
        The token ids of all requests, concatenated, as little-endian int64.
        """

    @property
    def lengths(self) -> list[int]:
        """
        The number of token ids of each request; 0 for a control message.
        """

@final
class Server:
    """
    A running frontend. It listens from its construction until `shutdown`, or until it is dropped.
    """

    def __new__(
        cls,
        server_args: ServerArgs,
        port_offset: int | None = None,
        to_scheduler_cap: int = 8192,
        from_scheduler_cap: int = 8192,
        stage_channel_cap: int = 8192,
        cores: list[int] | None = None,
        *,
        frontend_config: FrontendConfig | None = None,
    ) -> Server:
        """
        Listen on the port of *server_args* plus *port_offset*.

        *to_scheduler_cap* and *from_scheduler_cap* are the capacities of the queues to and from the scheduler, and
        *stage_channel_cap* is the capacity of each queue between two stages of the server. The threads are pinned to
        *cores* if there are enough cores.

        Raises `ValueError` with the reason if *server_args* are invalid (for example an empty *served_model_name*), the
        address is invalid or in use, or the tokenizer cannot be loaded.
        """

    @property
    def address(self) -> tuple[str, int]:
        """
        The host and port that the server listens on.
        """

    @property
    def is_shut_down(self) -> bool:
        """
        Whether the server was shut down, so that no new request will enter the queue.
        """

    def recv_requests(self, max: int = 256) -> RequestBatch:  # noqa: A002  # callers pass it by this name
        """
        Take up to *max* requests from the queue, without waiting.
        """

    def wait_request(self, timeout_ms: int = 1000) -> bool:
        """
        Wait up to *timeout_ms* for a request; return whether there is one. The wait releases the GIL.
        """

    def push_decode_result_batch(self, header: bytes, data_cols: list[bytes]) -> bool:
        """
        Send one decode step of several requests: a header of columns, and the columns of its data.

        Waits while the queue is full, and releases the GIL for that. Returns false once the server is shut down. A
        malformed batch fails the requests that it names.
        """

    def push_control_result(self, rid: str, payload: bytes) -> bool:
        """
        Answer a control message. Waits and returns as `push_decode_result_batch` does.
        """

    def push_error(self, rid: str, message: str) -> bool:
        """
        Fail a request with an internal error. Waits and returns as `push_decode_result_batch` does.
        """

    def shutdown(self, drain_deadline: float | None = None) -> None:
        """
        Stop listening, wait for requests in flight, fail the rest after *drain_deadline* seconds, and end all threads.

        The default of *drain_deadline* is in `FrontendConfig`. Requests in flight finish only if another thread keeps
        polling the server during this call. A second call waits for the same shutdown and may shorten the deadline. A
        signal handler that raises ends the wait, but not the shutdown.
        """
