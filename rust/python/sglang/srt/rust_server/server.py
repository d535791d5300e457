"""
The HTTP server of a scheduler, in its own process: launched, drained and answered.

The server itself is the extension's `Server`. `RustServer` is what a scheduler holds:
messages come out of it decoded, and answers go in.

Invariant: a message that cannot be decoded fails its own request and no other.
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

#: Threads that work on media where nobody says how many.
AUTO_MM_WORKERS = 8

_MAX_PER_POLL = 256
_BYTES_PER_ID = 8

_logger = logging.getLogger(__name__)


class RustServer:
    """
    A running server, drained by one thread: its scheduler's.

    Packages of models subclass it: for an extension module of their own (`_load_extension`), and for their own way with
    media (`_start_multimodal`, `_wrap_mm_result`).
    """

    def __init__(self, server: Server, http_port: int, mm_spec: Any = None, max_per_poll: int = _MAX_PER_POLL) -> None:  # noqa: ANN401  # a family's own
        self.server = server
        self.http_port = http_port
        self.mm_spec = mm_spec
        self._multimodal_enabled = mm_spec is not None
        self._max_per_poll = max_per_poll

    @classmethod
    def launch(cls, scheduler: ServedScheduler) -> Self:
        """
        Start the server of *scheduler*; it listens when this returns.

        The port is that of the node's first data-parallel rank, plus this one's place on the node.

        Raises `ImportError` if the extension cannot be had, `ValueError` if it refuses its settings or cannot listen.
        """
        # The server's tokenizer threads are the parallelism: the library need not start a pool for each.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        rank = _local_dp_rank()
        mm_workers = _mm_workers(scheduler)
        launch_cores, server_cores = cls._partition_cores(mm_workers)
        extension = cls._load_extension()
        server = extension.Server(
            _build_server_args(scheduler, extension=extension),
            cores=server_cores,
            port_offset=rank,
            **config._build_frontend_config(extension),  # noqa: SLF001  # the package's own
        )
        base = get_serving().port
        # Where any free port will do, only the server knows which it is.
        self = cls(server, base + rank if base else server.address[1])
        if scheduler.model_config.is_multimodal:
            # Threads take over the cores of the one that starts them.
            _pin(server_cores)
            self._start_multimodal(scheduler)
            self._multimodal_enabled = True
        _pin(launch_cores)
        _logger.info("serving on port %d; cores of the server: %s", self.http_port, server_cores or "any")
        return self

    @classmethod
    def set_up_logging(cls, directives: str) -> object:
        """
        Send the extension's log to stderr until what this returns is dropped: for the program that serves.

        *directives* are a level, or levels by target. Raises `ValueError` for others, and where the process has such a log already.
        """
        return cls._load_extension().set_up_logging(directives)

    @classmethod
    def _load_extension(cls) -> ModuleType:
        """
        The extension module, which has `Server` and the types of its settings.
        """
        return load_extension()

    @staticmethod
    def _server_core_budget(allowed_core_count: int, mm_workers: int) -> int:
        """
        How many cores the server may use.
        """
        return config.default_core_budget(allowed_core_count, mm_workers)

    @classmethod
    def _partition_cores(cls, mm_workers: int = 0) -> CorePlan:
        return config._partition_cores(mm_workers, cls._server_core_budget)  # noqa: SLF001  # the package's own

    def _start_multimodal(self, scheduler: ServedScheduler) -> None:
        """
        Start the threads that work on media, and keep in `mm_spec` what their results need.
        """
        raise RuntimeError(
            f"{type(self).__name__} has no processor for media, and the model takes them: "
            "serve it through a subclass that starts one in `_start_multimodal`"
        )

    def _wrap_mm_result(self, entry: Any) -> Any:  # noqa: ANN401  # the model's own
        """
        What the model takes for the media of a request, from what the server's threads made of them.
        """
        return entry

    def drain(self, max_recv: int = 0) -> list[wire.Request]:
        """
        The messages that wait, at most *max_recv*; 0: as many as usual. Never waits itself.
        """
        batch = self.server.recv_requests(max_recv if max_recv > 0 else self._max_per_poll)
        headers = batch.headers
        if not headers:
            return []
        ids, start = memoryview(batch.data), 0
        requests = []
        for header, length in zip(headers, batch.lengths, strict=True):
            end = start + length * _BYTES_PER_ID
            request = self._decoded(header, ids[start:end])
            start = end
            if request is not None:
                requests.append(request)
        return requests

    def _decoded(self, header: bytes, ids: memoryview) -> wire.Request | None:
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
        entry = self.server.take_mm_result(request.rid)  # type: ignore[attr-defined]  # of servers that have media
        if entry is not None:
            request.mm_inputs = self._wrap_mm_result(entry)

    def wait_request(self, timeout_ms: int = 1000) -> bool:
        """
        Wait until there is a message, with the interpreter free; false if there is none in time.
        """
        return self.server.wait_request(timeout_ms)

    @property
    def is_shut_down(self) -> bool:
        """
        Whether somebody has shut it down, so that nothing comes in any more.
        """
        return self.server.is_shut_down

    def push_generation(self, steps: Sequence[wire.Step]) -> bool:
        """
        Send what is new about some requests; false once the server is shut down.
        """
        return self.server.push_decode_result_batch(*wire.encode_decode_batch(steps))

    def push_control_output(self, recv_req: wire.ControlRequest, output: msgspec.Struct | Mapping[str, Any]) -> bool:
        """
        Answer a control message; false once the server is shut down.
        """
        return self.server.push_control_result(recv_req.rid, wire.encode_control_result(output))

    def push_error(self, rid: str, message: str) -> bool:
        """
        Fail a request as a fault of ours; false once the server is shut down.
        """
        return self.server.push_error(rid, message)

    def shutdown(self, drain_deadline: float | None = None) -> None:
        """
        Stop listening and let what is in flight end within so many seconds, by default those of the settings.

        Somebody must go on serving meanwhile, or nothing ends well. Once more may shorten the time.
        """
        self.server.shutdown(drain_deadline)


def _local_dp_rank() -> int:
    """
    The place of this process among the data-parallel ranks of its node.
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
