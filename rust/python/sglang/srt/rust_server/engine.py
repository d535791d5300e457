"""
The engine interface: the public extension point for models.

The scheduler decides which requests are in a step, and when a request ends. The engine
computes the next tokens of these requests. It sees tokens, not clients or text.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """
    Properties of an engine. They do not change while it runs.
    """

    #: Maximum number of tokens of prompt and answer together.
    context_len: int
    #: All token ids are below this number.
    vocab_size: int
    #: Maximum number of tokens of all running requests together.
    max_total_num_tokens: int
    #: Maximum number of requests in one step.
    max_running_requests: int
    #: Tokens that end a generation. They count as generated tokens.
    eos_token_ids: frozenset[int] = frozenset()
    #: Options of a request that the engine obeys: names of sampling parameters, `return_logprob` and
    #: `return_hidden_states`. Options that the scheduler handles (limits, stops, intervals) need not be listed. A
    #: request with any other option is refused.
    supports: frozenset[str] = frozenset()
    #: Maximum `top_logprobs_num` of a request.
    max_top_logprobs: int = 128
    is_multimodal: bool = False
    #: Recommended values of `temperature`, `top_p`, `top_k`, `min_p` and `repetition_penalty`.
    default_sampling_params: tuple[tuple[str, float], ...] = ()


class Output(msgspec.Struct):
    """
    The result of one step for one request.

    One is created for every token. It is a struct because a dataclass costs three times as much.
    """

    #: Usually one token. There may be none, or several if draft tokens were accepted.
    token_ids: Sequence[int]
    #: Why the engine ends the request, if it does. The scheduler's own stop conditions take precedence.
    finish: FinishReason | None = None
    #: Log-probabilities and hidden states of these tokens, and once those of the prompt, if the request asks for them.
    extras: Extras | None = None


class Engine(Protocol):
    """
    Computes tokens. All methods are called from one thread.

    An exception in `prefill` or `decode` fails the requests of that step, and an invalid output fails its request. The
    scheduler continues in both cases.
    """

    def info(self) -> EngineInfo:
        """
        Return the properties of the engine. Called once.
        """

    def prefill(self, requests: Sequence[TokenizedGenerateReqInput]) -> Sequence[Output]:
        """
        Add requests, and return the first tokens of each, in the same order.
        """

    def decode(self, batch: Sequence[str]) -> Sequence[Output]:
        """
        Return the next tokens of the requests with these ids, in the same order.
        """

    def abort(self, rid: str) -> None:
        """
        Remove a request. Called once for each request passed to `prefill`, however it ends.

        That includes requests whose `prefill` raised.
        """

    def flush_cache(self) -> None:
        """
        Drop cached data of ended requests. Called only while no request is running or waiting.
        """


class UnknownEngine(ValueError):
    """
    The engine name is unknown, or the engine does not accept the arguments.
    """


def load_engine(name: str, arguments: Mapping[str, Any]) -> Engine:
    """
    Create the engine `echo`, or an instance of the class `package.module:Class`, with *arguments*.

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
        raise UnknownEngine(f"engine {name!r} cannot be imported: {error}") from error
    try:
        engine: Engine = make(**arguments)
    except (TypeError, ValueError) as error:
        raise UnknownEngine(f"engine {name!r} does not accept these arguments: {error}") from error
    return engine
