"""
What the scheduler asks of an engine: the public seam for models.

An engine knows tokens, not clients. The scheduler decides who is worked on and when a
request ends; the engine computes the next tokens of those that it is given.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from sglang.srt.rust_server.wire import Extras, FinishReason, TokenizedGenerateReqInput, TokenLogprob

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Engine",
    "EngineInfo",
    "Extras",
    "FinishReason",
    "Output",
    "TokenLogprob",
    "TokenizedGenerateReqInput",
    "UnknownEngine",
    "load_engine",
]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """
    What an engine is, for as long as it runs.
    """

    #: Most tokens of prompt and answer together.
    context_len: int
    #: Token ids are below it.
    vocab_size: int
    #: Tokens that all requests may have together.
    max_total_num_tokens: int
    #: Requests that one step may have.
    max_running_requests: int
    #: Tokens that end a generation. They are part of what was generated.
    eos_token_ids: frozenset[int] = frozenset()
    #: What it obeys of a request: names of sampling parameters, and `return_logprob` and `return_hidden_states`. What the
    #: scheduler obeys by itself (limits, stops, intervals) need not be named; a request for anything else is refused.
    supports: frozenset[str] = frozenset()
    #: The likeliest tokens that a request may have at each position.
    max_top_logprobs: int = 128
    is_multimodal: bool = False
    #: What the model's makers advise: `temperature`, `top_p`, `top_k`, `min_p`, `repetition_penalty`.
    default_sampling_params: tuple[tuple[str, float], ...] = ()


class Output(msgspec.Struct):
    """
    What one step brought one request. A struct, as it is made for every token and costs a third of a dataclass.
    """

    #: Usually one; none is possible, and several are where drafts were accepted.
    token_ids: Sequence[int]
    #: Why the engine goes no further with it, if so; the scheduler's own reasons come first.
    finish: FinishReason | None = None
    #: Of the tokens above, and once of the prompt, where the request asks for them.
    extras: Extras | None = None


class Engine(Protocol):
    """
    Computes tokens. One thread calls all of it.

    What `prefill` or `decode` raises fails the requests of that step, an output that is none fails its own request, and the
    scheduler goes on.
    """

    def info(self) -> EngineInfo:
        """
        What it is. Asked once.
        """

    def prefill(self, requests: Sequence[TokenizedGenerateReqInput]) -> Sequence[Output]:
        """
        Take requests in, and give the first tokens of each, in their order.
        """

    def decode(self, batch: Sequence[str]) -> Sequence[Output]:
        """
        The next tokens of each of the requests with these ids, in their order.
        """

    def abort(self, rid: str) -> None:
        """
        Forget a request. Called once for each that `prefill` was given, however it ended and even if that raised.
        """

    def flush_cache(self) -> None:
        """
        Forget what is kept of requests that ended. Called while there is no other.
        """


class UnknownEngine(ValueError):
    """
    A name that stands for no engine, or arguments that it does not take.
    """


def load_engine(name: str, arguments: Mapping[str, Any]) -> Engine:
    """
    Make an engine: `echo`, or what the class `package.module:Class` makes of *arguments*.

    Raises `UnknownEngine`.
    """
    module, colon, attribute = (
        ("sglang.srt.rust_server.engines.echo", ":", "Echo") if name == "echo" else name.partition(":")
    )
    if not (module and colon and attribute):
        raise UnknownEngine(f"engine {name!r} is neither `echo` nor of the form `package.module:Class`")
    try:
        make = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UnknownEngine(f"engine {name!r} cannot be had: {error}") from error
    try:
        engine: Engine = make(**arguments)
    except (TypeError, ValueError) as error:
        raise UnknownEngine(f"engine {name!r} does not take these arguments: {error}") from error
    return engine
