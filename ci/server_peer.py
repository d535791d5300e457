"""
Serve the echo engine without Rust: FastAPI on uvicorn, in one process, on one event loop.

    python ci/server_peer.py [--incremental-streaming-output]

The engine and the JSON are those of `python -m sglang.srt.rust_server`; as there, a cumulative
frame holds all tokens so far. Limits, log-probabilities and stop texts are not implemented.

Invariant: prints its address in one line on stdout, and serves until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import codecs
import contextlib
import json
import socket
import time
import uuid
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fastapi
import fastapi.responses
import uvicorn
from sglang.srt.rust_server.engines.echo import Echo
from sglang.srt.rust_server.wire import SamplingParams, TokenizedGenerateReqInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sglang.srt.rust_server.engine import Output


@dataclass
class Sampling:
    """
    The sampling parameters that the benchmark uses.
    """

    max_new_tokens: int
    ignore_eos: bool = False


@dataclass
class Body:
    """
    The body of a request.
    """

    text: str
    sampling_params: Sampling
    stream: bool = False


@dataclass(eq=False)
class Generation:
    """
    A request, and its answer so far.
    """

    request: TokenizedGenerateReqInput
    incremental: bool
    start: float = field(default_factory=time.perf_counter)
    tokens: asyncio.Queue[Sequence[int]] = field(default_factory=asyncio.Queue)
    text: str = ""
    output_ids: list[int] = field(default_factory=list)
    completion_tokens: int = 0
    _decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))

    @property
    def done(self) -> bool:
        """
        Whether all requested tokens have arrived.
        """
        return self.completion_tokens >= (self.request.sampling_params.max_new_tokens or 0)

    async def step(self) -> dict[str, Any]:
        """
        Wait for new tokens and return the next frame.
        """
        if self.incremental:
            self.text, self.output_ids = "", []
        self.take(await self.tokens.get())
        while not self.incremental and not self.tokens.empty():
            self.take(self.tokens.get_nowait())
        return self.frame()

    def take(self, ids: Sequence[int]) -> None:
        """
        Append tokens to the answer.
        """
        self.completion_tokens += len(ids)
        self.text += self._decoder.decode(bytes(ids), final=self.done)
        self.output_ids.extend(ids)

    def frame(self) -> dict[str, Any]:
        """
        Return the answer so far in the JSON form that clients get.
        """
        meta: dict[str, Any] = {
            "id": self.request.rid,
            "prompt_tokens": len(self.request.input_ids or ()),
            "completion_tokens": self.completion_tokens,
            "finish_reason": None,
        }
        if self.done:
            meta["finish_reason"] = {"type": "length", "length": self.completion_tokens}
            meta["e2e_latency"] = time.perf_counter() - self.start
        return {"text": self.text, "output_ids": self.output_ids, "meta_info": meta}


class Scheduler:
    """
    Steps all requests together; they join and leave between steps.
    """

    def __init__(self) -> None:
        self._engine = Echo()
        self._joining: list[Generation] = []
        self._running: dict[str, tuple[Generation, int]] = {}
        self._arrived = asyncio.Event()

    def begin(self, generation: Generation) -> None:
        """
        Add a request; it joins in the next step.
        """
        self._joining.append(generation)
        self._arrived.set()

    async def run(self) -> None:
        """
        Run steps until the task is cancelled.
        """
        while True:
            if not self._joining and not self._running:
                self._arrived.clear()
                await self._arrived.wait()
            decoding = [generation for generation, _ in self._running.values()]
            joining, self._joining = self._joining, []
            if joining:
                self._hand_out(joining, self._engine.prefill([generation.request for generation in joining]))
            if decoding:
                self._hand_out(decoding, self._engine.decode([generation.request.rid for generation in decoding]))
            await asyncio.sleep(0)

    def _hand_out(self, generations: Sequence[Generation], outputs: Sequence[Output]) -> None:
        for generation, output in zip(generations, outputs, strict=True):
            generation.tokens.put_nowait(output.token_ids)
            rid = generation.request.rid
            count = self._running.get(rid, (generation, 0))[1] + 1
            if count < (generation.request.sampling_params.max_new_tokens or 0):
                self._running[rid] = (generation, count)
            else:
                self._running.pop(rid, None)
                self._engine.abort(rid)


def application(*, incremental: bool) -> Any:  # noqa: ANN401  # mypy does not see FastAPI, whose types these are
    """
    Make the routes and the scheduler that serves them.
    """
    scheduler = Scheduler()

    @contextlib.asynccontextmanager
    async def scheduling(_: object) -> AsyncIterator[None]:
        task = asyncio.create_task(scheduler.run())
        yield
        task.cancel()

    async def generate(body: Body) -> Any:  # noqa: ANN401  # a response of FastAPI, as above
        params = SamplingParams(
            max_new_tokens=body.sampling_params.max_new_tokens, ignore_eos=body.sampling_params.ignore_eos
        )
        ids = array("q", list(body.text.encode()))
        request = TokenizedGenerateReqInput(
            rid=uuid.uuid4().hex, input_ids=ids, sampling_params=params, stream=body.stream
        )
        generation = Generation(request, incremental=incremental and body.stream)
        scheduler.begin(generation)
        if body.stream:
            return fastapi.responses.StreamingResponse(_events(generation), media_type="text/event-stream")
        while not generation.done:
            generation.take(await generation.tokens.get())
        return fastapi.responses.JSONResponse(generation.frame())

    app = fastapi.FastAPI(lifespan=scheduling)
    app.add_api_route("/generate", generate, methods=["POST"], response_model=None)
    return app


async def _events(generation: Generation) -> AsyncIterator[str]:
    while not generation.done:
        frame = json.dumps(await generation.step(), ensure_ascii=False, separators=(",", ":"))
        yield f"data: {frame}\n\n"
    yield "data: [DONE]\n\n"


def main() -> None:
    """
    Parse the command line and serve.
    """
    parser = argparse.ArgumentParser(description="The echo engine behind FastAPI.")
    parser.add_argument(
        "--incremental-streaming-output", action="store_true", help="stream only new text instead of all text so far"
    )
    options = parser.parse_args()
    app = application(incremental=options.incremental_streaming_output)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="warning", access_log=False)
    print(f"serving on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
