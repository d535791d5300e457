"""
Continuous batching for an engine: requests join and leave the batch between any two steps.

Each step receives messages, computes the first token of new requests and the next token of
all others, and sends the steps that are due. The scheduler sees only tokens, so the server
searches for stop strings and aborts the request when it finds one.

Invariants: every received request ends exactly once. Only the thread that runs `run` uses the
engine and the requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang.srt.rust_server import admission, wire
from sglang.srt.rust_server.context import get_serving
from sglang.srt.rust_server.generation import Generation
from sglang.srt.rust_server.metrics import Metrics
from sglang.srt.rust_server.server import RustServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang.srt.rust_server.engine import Engine, EngineInfo, Output

#: How long an idle scheduler waits for a request before it checks for `stop`, in milliseconds. The server runs Python
#: signal handlers at the same interval, so `run` sees a `stop` as soon as the signal handler has called it.
_IDLE_WAIT_MS = 100

#: How long an idle scheduler waits between two steps during the drain, in seconds.
_DRAIN_POLL = 0.01

#: Maximum length of an engine's error message for clients, in characters.
_MAX_MESSAGE = 500

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Limits of a scheduler.
    """

    #: Maximum number of waiting requests; further ones are refused with 503.
    max_queued_requests: int = 4096
    #: Maximum number of requests in a step; `None`: as many as the engine allows.
    max_running_requests: int | None = None
    #: Tokens between two frames of a stream, for requests without `stream_interval`.
    stream_interval: int = 1


@dataclass(frozen=True, slots=True)
class EngineModel:
    """
    The engine's properties in the form of a model configuration, for the server.
    """

    info: EngineInfo

    @property
    def context_len(self) -> int:
        """
        Maximum number of tokens of prompt and answer together.
        """
        return self.info.context_len

    @property
    def vocab_size(self) -> int:
        """
        All token ids are below this number.
        """
        return self.info.vocab_size

    @property
    def is_multimodal(self) -> bool:
        """
        Whether the model accepts media.
        """
        return self.info.is_multimodal

    def get_default_sampling_params(self) -> dict[str, float]:
        """
        Return the recommended sampling parameters.
        """
        return dict(self.info.default_sampling_params)


class Scheduler:
    """
    Serves one engine. Call `launch`, then `run`; call `stop` from any thread.
    """

    def __init__(
        self, engine: Engine, limits: Limits | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._limits = limits or Limits()
        self._info = engine.info()
        self._max_running = min(
            self._limits.max_running_requests or self._info.max_running_requests, self._info.max_running_requests
        )
        if self._max_running < 1:
            raise ValueError(f"max_running_requests is {self._max_running}: it must be at least 1")
        self._waiting: OrderedDict[str, Generation] = OrderedDict()
        self._running: dict[str, Generation] = {}
        #: Last steps of requests that were refused or aborted before the engine got them.
        self._refused: list[wire.Step] = []
        self._metrics = Metrics(clock)
        self._stopping = threading.Event()
        self._server: RustServer | None = None

    # Properties for the server.

    @property
    def model_config(self) -> EngineModel:
        """
        The model configuration.
        """
        return EngineModel(self._info)

    @property
    def max_total_num_tokens(self) -> int:
        """
        Maximum number of tokens of all running requests together.
        """
        return self._info.max_total_num_tokens

    def rust_server_tokenizer_path(self) -> str | None:
        """
        Return the path of the tokenizer; `None` means the built-in one.
        """
        return get_serving().tokenizer_path

    def compute_num_reserved_tokens(self) -> int:
        """
        Return 0: no draft tokens are used here.
        """
        return 0

    def get_rust_server_class(self) -> type[RustServer]:
        """
        Return the server class to launch. Model packages override this.
        """
        return RustServer

    # Start, run and stop.

    def launch(self) -> RustServer:
        """
        Start the server. Raises the same errors as `RustServer.launch`.
        """
        self._server = self.get_rust_server_class().launch(self)
        return self._server

    @property
    def server(self) -> RustServer:
        """
        The server. Raises `RuntimeError` before `launch`.
        """
        if self._server is None:
            raise RuntimeError("there is no server: call `launch` first")
        return self._server

    def stop(self) -> None:
        """
        Make `run` return when the requests in flight have ended, or at the drain deadline.

        It may be called in any thread and in a signal handler.
        """
        self._stopping.set()

    def run(self) -> None:
        """
        Serve until `stop`. The server is shut down when this returns or raises.
        """
        server = self.server
        try:
            while not self._stopping.is_set():
                if self.is_idle and not server.wait_request(_IDLE_WAIT_MS) and server.is_shut_down:
                    break
                self.step()
            self._drain(server)
        except BaseException:
            # No thread computes tokens any more, so do not wait for requests. This also ends a drain in progress.
            server.shutdown(0.0)
            raise

    def _drain(self, server: RustServer) -> None:
        """
        Keep serving until the server has shut down.
        """
        _logger.info("shutting down; %d requests in flight", len(self._running) + len(self._waiting))
        closing = threading.Thread(target=server.shutdown, name="server-shutdown")
        closing.start()
        while closing.is_alive():
            if self.is_idle:
                closing.join(_DRAIN_POLL)
            self.step()

    @property
    def is_idle(self) -> bool:
        """
        Whether no request is running or waiting.
        """
        return not self._running and not self._waiting

    # One step.

    def step(self) -> None:
        """
        Receive messages, compute tokens, send steps.
        """
        for request in self.server.drain():
            self._receive(request)
        decoding = [generation for generation in self._running.values() if generation.finish is None]
        joining = self._join()
        if joining:
            self._metrics.prompt_tokens += sum(len(generation.request.input_ids or ()) for generation in joining)
            self._compute(joining, lambda: self._engine.prefill([generation.request for generation in joining]))
        if decoding:
            self._compute(decoding, lambda: self._engine.decode([generation.rid for generation in decoding]))
        self._send()

    def _receive(self, request: wire.Request) -> None:
        match request:
            case wire.TokenizedGenerateReqInput():
                self._admit(request)
            case wire.AbortReq():
                self._abort(request)
            case wire.GetInternalStateReq():
                self.server.push_control_output(request, self.internal_state())
            case wire.FlushCacheReq():
                self.server.push_control_output(request, self._flush_cache())

    def _admit(self, request: wire.TokenizedGenerateReqInput) -> None:
        reason = admission.refusal(request, self._info)
        if reason is None and len(self._waiting) >= self._limits.max_queued_requests:
            reason = admission.abort_reason("the request queue is full, try again later", 503, "ServiceUnavailable")
        if reason is None:
            self._waiting[request.rid] = Generation(request, self._info, self._limits.stream_interval)
        else:
            self._refuse(request, reason)

    def _refuse(self, request: wire.TokenizedGenerateReqInput, reason: wire.FinishReason) -> None:
        self._refused.append(wire.Step(request.rid, (), len(request.input_ids or ()), reason))

    def _abort(self, request: wire.AbortReq) -> None:
        rids = [*self._waiting, *self._running] if request.abort_all else [request.rid or ""]
        message = request.abort_message or "aborted"
        for rid in rids:
            if rid in self._waiting:
                self._refuse(self._waiting.pop(rid).request, admission.abort_reason(message))
            elif rid in self._running:
                self._running[rid].abort(message)

    def _flush_cache(self) -> wire.FlushCacheReqOutput:
        if not self.is_idle:
            busy = f"the cache is in use: {len(self._running)} requests are running and {len(self._waiting)} waiting"
            return wire.FlushCacheReqOutput(success=False, message=busy)
        try:
            self._engine.flush_cache()
        except Exception as error:  # engines are external code; the client gets the error as an answer
            _logger.exception("the engine failed to flush its cache")
            return wire.FlushCacheReqOutput(success=False, message=_describe(error))
        return wire.FlushCacheReqOutput(success=True, message="cache flushed")

    def internal_state(self) -> dict[str, Any]:
        """
        Return counters and the current load.
        """
        return {
            **self._metrics.internal_state(),
            "effective_max_running_requests_per_dp": self._max_running,
            "num_running_reqs": len(self._running),
            "num_queue_reqs": len(self._waiting),
            "num_reserved_tokens": self._reserved,
        }

    @property
    def _reserved(self) -> int:
        return sum(generation.reserved for generation in self._running.values())

    def _join(self) -> list[Generation]:
        """
        Move waiting requests that fit to the running ones, in order, and return them.

        A request that does not fit blocks those behind it, so that it is not starved.
        """
        joining: list[Generation] = []
        free = self._info.max_total_num_tokens - self._reserved if self._waiting else 0
        while self._waiting and len(self._running) < self._max_running:
            generation = next(iter(self._waiting.values()))
            free -= generation.reserved
            if free < 0:
                break
            del self._waiting[generation.rid]
            self._running[generation.rid] = generation
            joining.append(generation)
        return joining

    def _compute(self, generations: list[Generation], step: Callable[[], Sequence[Output]]) -> None:
        """
        Run a step of the engine and distribute its outputs. An exception fails only these requests.
        """
        self._metrics.steps += 1
        try:
            outputs = _check_count(step(), len(generations))
        except Exception as error:  # engines are external code; the other requests continue
            _logger.exception("an engine step with %d requests failed", len(generations))
            self._metrics.failed_steps += 1
            for generation in generations:
                generation.abort(_engine_failed(error), 500, "InternalServerError")
        else:
            self._distribute(generations, outputs)

    def _distribute(self, generations: list[Generation], outputs: list[Output]) -> None:
        metrics = self._metrics
        for generation, output in zip(generations, outputs, strict=True):
            try:
                metrics.generated_tokens += generation.take(output)
            except Exception as error:  # the outputs of the other requests are still valid
                _logger.exception("the engine's output for request %s is invalid", generation.rid)
                generation.abort(_engine_failed(error), 500, "InternalServerError")

    def _send(self) -> None:
        """
        Send the steps that are due, and remove requests that have ended.
        """
        steps, self._refused = self._refused, []
        for generation in self._running.values():
            step = generation.next_step()
            if step is not None:
                steps.append(step)
        if not steps:
            return
        for step in steps:
            if step.finish is not None:
                self._end(step.rid, str(step.finish["type"]))
        if not self._push(steps):
            self._stopping.set()  # the server is shut down

    def _push(self, steps: list[wire.Step]) -> bool:
        """
        Send *steps*, and return false if the server is shut down.

        If a step cannot be encoded because of the engine's output, only its request fails.
        """
        try:
            return self.server.push_generation(steps)
        except Exception as error:  # the steps contain output of an engine; none of them was sent
            if len(steps) == 1:
                _logger.exception("the engine's output for request %s cannot be encoded", steps[0].rid)
                return self._fail(steps[0], error)
        # Retry one by one. Do not stop at the first failure: every failed request must be removed from the engine.
        pushed = [self._push([step]) for step in steps]
        return all(pushed)

    def _fail(self, step: wire.Step, error: Exception) -> bool:
        if step.finish is None:
            self._end(step.rid, "abort")
        return self.server.push_error(step.rid, _engine_failed(error))

    def _end(self, rid: str, kind: str) -> None:
        self._metrics.finished[kind] += 1
        if self._running.pop(rid, None) is not None:
            self._remove_from_engine(rid)

    def _remove_from_engine(self, rid: str) -> None:
        try:
            self._engine.abort(rid)
        except Exception:  # the request has ended anyway, and the loop must continue
            _logger.exception("the engine failed to remove request %s", rid)


def _check_count(outputs: Sequence[Output], count: int) -> list[Output]:
    given = list(outputs)
    if len(given) != count:
        raise ValueError(f"the step returned {len(given)} outputs for {count} requests")
    return given


def _engine_failed(error: Exception) -> str:
    return f"the engine failed: {_describe(error)}"


def _describe(error: Exception) -> str:
    """
    Describe the error, as text that can be encoded.
    """
    try:
        words = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # `__str__` of an engine's exception is external code too
        words = type(error).__name__
    return words[:_MAX_MESSAGE].encode(errors="replace").decode()
