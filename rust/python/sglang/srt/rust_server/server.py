"""
The scheduler's handle of the HTTP server, which runs in the scheduler's process.

`RustServer` wraps the extension's `Server`: it decodes the messages for the scheduler, and
encodes the answers.

Invariant: a message that cannot be decoded fails only its own request.
"""

from __future__ import annotations

import logging
import os
from array import array
from typing import TYPE_CHECKING, Any

from sglang.srt.rust_server import config, wire
from sglang.srt.rust_server.config import _build_server_args
from sglang.srt.rust_server.context import get_exec, get_mm, get_parallel, get_serving
from sglang.srt.rust_server.extension import load_extension

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    import msgspec
    from sglang.srt.rust_extensions._server import Server
    from sglang.srt.rust_server.config import CorePlan, ServedScheduler
    from typing_extensions import Self

#: Default number of threads for media.
AUTO_MM_WORKERS = 8

_MAX_PER_POLL = 256
_BYTES_PER_ID = 8

_logger = logging.getLogger(__name__)


class RustServer:
    """
    A running server. Only the scheduler's thread calls `drain`.

    Model packages subclass it to use their own extension module (`_load_extension`) and their own media processing
    (`_start_multimodal`, `_wrap_mm_result`).
    """

    def __init__(self, server: Server, http_port: int, mm_spec: Any = None, max_per_poll: int = _MAX_PER_POLL) -> None:  # noqa: ANN401  # the model package defines its type
        self.server = server
        self.http_port = http_port
        self.mm_spec = mm_spec
        self._multimodal_enabled = mm_spec is not None
        self._max_per_poll = max_per_poll

    @classmethod
    def launch(cls, scheduler: ServedScheduler) -> Self:
        """
        Start the server of *scheduler*. It listens when this returns.

        The port is the configured one plus the data-parallel rank of this process on its node.

        Raises `ImportError` if the extension cannot be loaded, and `ValueError` if it refuses its settings or cannot
        listen.
        """
        # The server already tokenizes in several threads. The library must not start another pool for each of them.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        rank = _local_dp_rank()
        mm_workers = _mm_workers(scheduler)
        launch_cores, server_cores = cls._partition_cores(mm_workers)
        extension = cls._load_extension()
        server = extension.Server(
            _build_server_args(scheduler, extension=extension),
            cores=server_cores,
            port_offset=rank,
            **config._build_frontend_config(extension),  # noqa: SLF001  # same package
        )
        base = get_serving().port
        # Port 0 means any free port: then the number comes from the server.
        self = cls(server, base + rank if base else server.address[1])
        if scheduler.model_config.is_multimodal:
            # New threads inherit the core affinity of the thread that starts them.
            _pin(server_cores)
            self._start_multimodal(scheduler)
            self._multimodal_enabled = True
        _pin(launch_cores)
        _logger.info("serving on port %d; cores of the server: %s", self.http_port, server_cores or "any")
        return self

    @classmethod
    def set_up_logging(cls, directives: str) -> object:
        """
        Send the extension's log to stderr until the returned object is dropped. Only the serving program calls this.

        *directives* are a level, or levels by target. Raises `ValueError` if they are invalid, or if the process has
        such a log already.
        """
        return cls._load_extension().set_up_logging(directives)

    @classmethod
    def _load_extension(cls) -> ModuleType:
        """
        Return the extension module with `Server` and the types of its settings.
        """
        return load_extension()

    @staticmethod
    def _server_core_budget(allowed_core_count: int, mm_workers: int) -> int:
        """
        Return the number of cores that the server may use.
        """
        return config.default_core_budget(allowed_core_count, mm_workers)

    @classmethod
    def _partition_cores(cls, mm_workers: int = 0) -> CorePlan:
        return config._partition_cores(mm_workers, cls._server_core_budget)  # noqa: SLF001  # same package

    def _start_multimodal(self, scheduler: ServedScheduler) -> None:
        """
        Start the media threads, and set `mm_spec` to the data that `_wrap_mm_result` needs.
        """
        raise RuntimeError(
            f"the model accepts media, but {type(self).__name__} cannot process them: "
            "use a subclass that overrides `_start_multimodal`"
        )

    def _wrap_mm_result(self, entry: Any) -> Any:  # noqa: ANN401  # the model package defines its type
        """
        Convert the media threads' result of a request to the model's input.
        """
        return entry

    def drain(self, max_recv: int = 0) -> list[wire.Request]:
        """
        Return the queued messages, at most *max_recv* (0: a default number). Does not wait.
        """
        batch = self.server.recv_requests(max_recv if max_recv > 0 else self._max_per_poll)
        headers = batch.headers
        if not headers:
            return []
        ids, start = memoryview(batch.data), 0
        requests = []
        for header, length in zip(headers, batch.lengths, strict=True):
            end = start + length * _BYTES_PER_ID
            request = self._decode(header, ids[start:end])
            start = end
            if request is not None:
                requests.append(request)
        return requests

    def _decode(self, header: bytes, ids: memoryview) -> wire.Request | None:
        try:
            request = wire.msgpack_decode_explained(header)
        except wire.UndecodableRequest as error:
            _logger.warning("request %s: %s", error.rid, error)
            if error.rid is not None:
                self.push_error(error.rid, str(error))
            return None
        if isinstance(request, wire.TokenizedGenerateReqInput):
            request.input_ids = array("q")
            request.input_ids.frombytes(ids)
            if self._multimodal_enabled:
                self._take_mm_result(request)
        return request

    def _take_mm_result(self, request: wire.TokenizedGenerateReqInput) -> None:
        entry = self.server.take_mm_result(request.rid)  # type: ignore[attr-defined]  # only servers with media have it
        if entry is not None:
            request.mm_inputs = self._wrap_mm_result(entry)

    def wait_request(self, timeout_ms: int = 1000) -> bool:
        """
        Wait for a message with the GIL released. Return false on timeout.
        """
        return self.server.wait_request(timeout_ms)

    @property
    def is_shut_down(self) -> bool:
        """
        Whether the server is shut down. No messages arrive then.
        """
        return self.server.is_shut_down

    def push_generation(self, steps: Sequence[wire.Step]) -> bool:
        """
        Send steps of requests. Return false if the server is shut down.
        """
        return self.server.push_decode_result_batch(*wire.encode_decode_batch(steps))

    def push_control_output(self, recv_req: wire.ControlRequest, output: msgspec.Struct | Mapping[str, Any]) -> bool:
        """
        Answer a control message. Return false if the server is shut down.
        """
        return self.server.push_control_result(recv_req.rid, wire.encode_control_result(output))

    def push_error(self, rid: str, message: str) -> bool:
        """
        Fail a request with status 500. Return false if the server is shut down.
        """
        return self.server.push_error(rid, message)

    def shutdown(self, drain_deadline: float | None = None) -> None:
        """
        Stop listening, and let requests in flight end within *drain_deadline* seconds (default: the configured time).

        The scheduler must keep serving during the drain, or these requests fail. A second call may shorten the
        deadline.
        """
        self.server.shutdown(drain_deadline)


def _local_dp_rank() -> int:
    """
    Return the index of this process among the data-parallel ranks of its node.
    """
    execution, parallel = get_exec(), get_parallel()
    nodes_per_stage = 1 if execution.is_ep_scale_joiner else max(execution.nnodes // parallel.pp_size, 1)
    tp_size_per_node = parallel.tp_size // nodes_per_stage
    width = parallel.attn_tp_size * parallel.attn_cp_size
    return (parallel.tp_rank % tp_size_per_node) // width


def _mm_workers(scheduler: ServedScheduler) -> int:
    if not scheduler.model_config.is_multimodal:
        return 0
    return get_mm().mm_processor_worker_num or AUTO_MM_WORKERS


def _pin(cores: list[int] | None) -> None:
    if cores:
        os.sched_setaffinity(0, cores)
