"""
The HTTP frontend of a serving engine, in the process of its scheduler.

A `Server` takes requests over HTTP, makes tokens of text and text of tokens, and hands
requests to whoever drains it. `sglang.srt.rust_server` is its Python face.
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
    The log of this process, until it is dropped.
    """

def set_up_logging(level: str = "info") -> Log:
    """
    Send the log to stderr, a line an event; nothing waits for a reader who is slow.

    *level* is `error`, `warn`, `info`, `debug` or `trace`, or directives such as `warn,sglang_server::api::serve=info`; the
    environment's `RUST_LOG` goes first. An import alone sets nothing up. Raises `ValueError` for another level, and where this
    process has a log already.
    """

@final
class DisaggregationMode:
    """
    Which half of a disaggregated pair this is, if it is one.
    """

    Null: ClassVar[DisaggregationMode]
    Prefill: ClassVar[DisaggregationMode]
    Decode: ClassVar[DisaggregationMode]

    def __int__(self) -> int: ...

@final
class DefaultSamplingParams:
    """
    What the model's makers advise, for chats that do not say.
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
    What the frontend must know of the model.
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
        *context_len* is the most tokens of prompt and answer together; token ids are below *vocab_size*.
        """

@final
class ServerArgs:
    """
    What the scheduler's process was started with. Every field must be given, so that a new one is missed at once.
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
        *host* is an address, bracketed or not, or a name; *port* 0 is any that is free. Without *tokenizer_path* the
        built-in byte tokenizer serves. *preferred_sampling_params* is a JSON object, which requests override.

        Raises `ValueError` if *preferred_sampling_params* is no JSON object.
        """

@final
class FrontendConfig:
    """
    How the frontend deals with its clients, apart from the model.
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
        most_requests: int | None = None,
        access_log: bool | None = None,
    ) -> FrontendConfig:
        """
        What is `None` has its default. Times are in seconds.

        *body_limit* is the most bytes of a request's body (64 MiB): a longer one is 413. *drain_deadline* is how long requests
        in flight may take to end once `Server.shutdown` is called (5), *read_timeout* how long head and body of a request may
        take to arrive (60), *health_timeout* how long `/health_generate` waits for the scheduler (20), unless
        *health_generation* is false: then it does not ask. *heartbeat_limit* is how old the scheduler's last sign of life may be
        for `/health` (30). *most_requests* may be in one body (4096; negative: any number). With *access_log* each request is a
        line of the log.

        Raises `ValueError` for a time that is no number of seconds up to 1e9.
        """

@final
class RequestBatch:
    """
    Requests that were waiting. Each attribute is a fresh object on every read.
    """

    @property
    def headers(self) -> list[bytes]:
        """
        A message per request, in MessagePack.
        """

    @property
    def data(self) -> bytes:
        """
        The token ids of all requests one after the other, as little-endian int64.
        """

    @property
    def lengths(self) -> list[int]:
        """
        How many of those each request has; 0 for a control message.
        """

@final
class Server:
    """
    A running frontend: it listens from the moment it is made until `shutdown`, or until it is dropped.
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
        Listens on the port of *server_args* plus *port_offset*.

        The capacities are those of the queues to and from the scheduler, and between the stages inside; *cores* are
        those that the threads are pinned to, if they suffice.

        Raises `ValueError`, which says what is at fault, if *server_args* are invalid (a name to serve is missing), the
        address is none or cannot be had, or there is no tokenizer at its path.
        """

    @property
    def address(self) -> tuple[str, int]:
        """
        The host and port that it listens on.
        """

    @property
    def is_shut_down(self) -> bool:
        """
        Whether nothing comes in any more: it was shut down, and what was in flight has ended or will not.
        """

    def recv_requests(self, max: int = 256) -> RequestBatch:  # noqa: A002  # its name since before it was ours
        """
        Up to *max* requests, without waiting.
        """

    def wait_request(self, timeout_ms: int = 1000) -> bool:
        """
        Wait until there is a request; false if there is none after *timeout_ms*. Other Python threads run meanwhile.
        """

    def push_decode_result_batch(self, header: bytes, data_cols: list[bytes]) -> bool:
        """
        Send tokens to their clients: a header of columns, and the columns of its data.

        Waits while the queue is full, and lets other Python threads run. False once the server is shut down. A batch
        that is malformed fails the requests that it names.
        """

    def push_control_result(self, rid: str, payload: bytes) -> bool:
        """
        Answer a control message. Waits, and tells of a shutdown, as `push_decode_result_batch` does.
        """

    def push_error(self, rid: str, message: str) -> bool:
        """
        Fail a request as an internal error. Waits, and tells of a shutdown, as `push_decode_result_batch` does.
        """

    def shutdown(self, drain_deadline: float | None = None) -> None:
        """
        Stop listening, let what is in flight end within so many seconds, fail the rest, and end all threads.

        *drain_deadline* is by default that of the `FrontendConfig`. Returns when that is done: somebody must go on serving
        meanwhile for anything to end well. Once more waits for the same end, and may shorten the deadline. A signal whose
        handler raises ends the wait, and not the shutdown.
        """
