"""
Continuous batching over an engine: requests join and leave between any two steps.

Each turn takes in what clients sent, gives newcomers their first token, all others their
next, and sends what is due. Stop texts are the server's to find, as tokens are all that
is known here: it then aborts the request.

Invariant: every request that came in has exactly one end. Only the thread in `run`
touches the engine and the requests.
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

#: How long an idle scheduler waits for a request before it looks round, in milliseconds: as long as the server waits before it
#: lets handlers of signals run, so that a `stop` from one is seen at once.
_PARKED_MS = 100

#: How long an idle scheduler leaves a server that is shutting down before it looks again, in seconds.
_DRAIN_POLL = 0.01

#: Characters of an engine's words that a client is told.
_MAX_MESSAGE = 500

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """
    How much a scheduler takes on.
    """

    #: Requests that wait for a place; one more is refused with 503.
    max_queued_requests: int = 4096
    #: Requests in a step; `None`: as many as the engine can.
    max_running_requests: int | None = None
    #: Tokens between two frames of a stream, where its client does not say.
    stream_interval: int = 1


@dataclass(frozen=True, slots=True)
class EngineModel:
    """
    The model of an engine, as the server wants to know it.
    """

    info: EngineInfo

    @property
    def context_len(self) -> int:
        """
        Most tokens of prompt and answer together.
        """
        return self.info.context_len

    @property
    def vocab_size(self) -> int:
        """
        Token ids are below it.
        """
        return self.info.vocab_size

    @property
    def is_multimodal(self) -> bool:
        """
        Whether it takes media.
        """
        return self.info.is_multimodal

    def get_default_sampling_params(self) -> dict[str, float]:
        """
        What its makers advise.
        """
        return dict(self.info.default_sampling_params)


class Scheduler:
    """
    Serves one engine. `launch`, then `run`; `stop` from anywhere.
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
            raise ValueError(f"the most requests in a step are {self._max_running}: at least one is needed")
        self._waiting: OrderedDict[str, Generation] = OrderedDict()
        self._running: dict[str, Generation] = {}
        #: Ends of requests that the engine has not seen.
        self._turned_away: list[wire.Step] = []
        self._metrics = Metrics(clock)
        self._stopping = threading.Event()
        self._server: RustServer | None = None

    # What the server wants to know.

    @property
    def model_config(self) -> EngineModel:
        """
        The engine's model.
        """
        return EngineModel(self._info)

    @property
    def max_total_num_tokens(self) -> int:
        """
        Tokens that all requests may have together.
        """
        return self._info.max_total_num_tokens

    def rust_server_tokenizer_path(self) -> str | None:
        """
        Where the tokenizer is; `None`: the built-in one serves.
        """
        return get_serving().tokenizer_path

    def compute_num_reserved_tokens(self) -> int:
        """
        None: nothing is drafted here.
        """
        return 0

    def get_rust_server_class(self) -> type[RustServer]:
        """
        The class to launch. Packages of models give their own.
        """
        return RustServer

    # Its life.

    def launch(self) -> RustServer:
        """
        Start the server. Raises what `RustServer.launch` does.
        """
        self._server = self.get_rust_server_class().launch(self)
        return self._server

    @property
    def server(self) -> RustServer:
        """
        The server, which must have been launched.
        """
        if self._server is None:
            raise RuntimeError("there is no server: call `launch` first")
        return self._server

    def stop(self) -> None:
        """
        Let `run` end once what is in flight has, or the drain deadline is over. For any thread, and for signal handlers.
        """
        self._stopping.set()

    def run(self) -> None:
        """
        Serve until `stop`; the server is shut down when this returns or raises.
        """
        server = self.server
        try:
            while not self._stopping.is_set():
                if self.is_idle and not server.wait_request(_PARKED_MS) and server.is_shut_down:
                    break
                self.step()
            self._drain(server)
        except BaseException:
            # Nobody goes on serving, so there is nothing to wait for; a drain that is under way is cut short.
            server.shutdown(0.0)
            raise

    def _drain(self, server: RustServer) -> None:
        """
        Go on while the server waits for what is in flight.
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
        Whether nobody waits for anything.
        """
        return not self._running and not self._waiting

    # A turn.

    def step(self) -> None:
        """
        One turn: take in, compute, send.
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
            self._turn_away(request, reason)

    def _turn_away(self, request: wire.TokenizedGenerateReqInput, reason: wire.FinishReason) -> None:
        self._turned_away.append(wire.Step(request.rid, (), len(request.input_ids or ()), reason))

    def _abort(self, request: wire.AbortReq) -> None:
        rids = [*self._waiting, *self._running] if request.abort_all else [request.rid or ""]
        message = request.abort_message or "aborted"
        for rid in rids:
            if rid in self._waiting:
                self._turn_away(self._waiting.pop(rid).request, admission.abort_reason(message))
            elif rid in self._running:
                self._running[rid].give_up(message)

    def _flush_cache(self) -> wire.FlushCacheReqOutput:
        if not self.is_idle:
            busy = f"the cache is in use: {len(self._running)} requests are running and {len(self._waiting)} waiting"
            return wire.FlushCacheReqOutput(success=False, message=busy)
        try:
            self._engine.flush_cache()
        except Exception as error:  # an engine is anybody's code, and whoever asked is told what it raised
            _logger.exception("the engine did not flush its cache")
            return wire.FlushCacheReqOutput(success=False, message=_named(error))
        return wire.FlushCacheReqOutput(success=True, message="cache flushed")

    def internal_state(self) -> dict[str, Any]:
        """
        How it is: what it counts, and how much it has to do.
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
        Those who wait and have a place now, in order. One that needs more than is free is waited for, so that it gets it.
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
        Let the engine work, and hand out what it gives. What it raises is the end of these requests alone.
        """
        self._metrics.steps += 1
        try:
            outputs = _counted(step(), len(generations))
        except Exception as error:  # an engine is anybody's code: others' requests go on
            _logger.exception("a step of the engine failed, with %d requests", len(generations))
            self._metrics.failed_steps += 1
            for generation in generations:
                generation.give_up(_failure(error), 500, "InternalServerError")
        else:
            self._hand_out(generations, outputs)

    def _hand_out(self, generations: list[Generation], outputs: list[Output]) -> None:
        metrics = self._metrics
        for generation, output in zip(generations, outputs, strict=True):
            try:
                metrics.generated_tokens += generation.take(output)
            except Exception as error:  # the others' outputs are none the worse
                _logger.exception("what the engine gave for request %s cannot be taken", generation.rid)
                generation.give_up(_failure(error), 500, "InternalServerError")

    def _send(self) -> None:
        """
        Send what is due, and forget who has ended.
        """
        steps, self._turned_away = self._turned_away, []
        for generation in self._running.values():
            step = generation.next_step()
            if step is not None:
                steps.append(step)
        if not steps:
            return
        for step in steps:
            if step.finish is not None:
                self._end(step.rid, str(step.finish["type"]))
        if not self._pushed(steps):
            self._stopping.set()  # nobody is there any more

    def _pushed(self, steps: list[wire.Step]) -> bool:
        """
        Whether the server has them. What an engine gave may have no place in a frame: then its request fails, and no other.
        """
        try:
            return self.server.push_generation(steps)
        except Exception as error:  # it is made of what an engine gave, and nothing of it was sent
            if len(steps) == 1:
                _logger.exception("what the engine gave for request %s cannot be sent", steps[0].rid)
                return self._failed(steps[0], error)
        # Every one, even where the server is gone: who fails has ended, and the engine forgets him.
        pushed = [self._pushed([step]) for step in steps]
        return all(pushed)

    def _failed(self, step: wire.Step, error: Exception) -> bool:
        if step.finish is None:
            self._end(step.rid, "abort")
        return self.server.push_error(step.rid, _failure(error))

    def _end(self, rid: str, kind: str) -> None:
        self._metrics.finished[kind] += 1
        if self._running.pop(rid, None) is not None:
            self._forget(rid)

    def _forget(self, rid: str) -> None:
        try:
            self._engine.abort(rid)
        except Exception:  # the request has ended all the same, and the loop goes on
            _logger.exception("the engine did not forget request %s", rid)


def _counted(outputs: Sequence[Output], count: int) -> list[Output]:
    given = list(outputs)
    if len(given) != count:
        raise ValueError(f"{len(given)} outputs for {count} requests")
    return given


def _failure(error: Exception) -> str:
    return f"the engine failed: {_named(error)}"


def _named(error: Exception) -> str:
    """
    What is wrong, as text that can be sent.
    """
    try:
        words = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # what an error says of itself is anybody's code, too
        words = type(error).__name__
    return words[:_MAX_MESSAGE].encode(errors="replace").decode()
