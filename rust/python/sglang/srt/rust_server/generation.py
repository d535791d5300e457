"""
One request from its admission to its end: when it ends, and when its client hears of it.

Invariant: tokens leave in order and once, and nothing follows the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang.srt.rust_server.admission import abort_reason, reserved_tokens, token_limit
from sglang.srt.rust_server.wire import Extras, Step

if TYPE_CHECKING:
    from sglang.srt.rust_server.engine import EngineInfo, Output
    from sglang.srt.rust_server.wire import FinishReason, TokenizedGenerateReqInput

#: Tokens between two steps of a request that is not streamed: a sign of life.
_UNARY_INTERVAL = 50

_MAX_TOKEN = (1 << 31) - 1


class Generation:
    """
    A request that is being answered.
    """

    __slots__ = (
        "_eos",
        "_extras",
        "_interval",
        "_limit",
        "_pending",
        "_prompt_tokens",
        "_stops",
        "finish",
        "generated",
        "request",
        "reserved",
        "rid",
    )

    def __init__(self, request: TokenizedGenerateReqInput, info: EngineInfo, stream_interval: int) -> None:
        params = request.sampling_params
        self.request = request
        self.rid = request.rid
        #: Tokens so far.
        self.generated = 0
        #: Tokens of the engine that it may use up.
        self.reserved = reserved_tokens(request, info)
        #: Why it ended, if it did.
        self.finish: FinishReason | None = None
        self._limit = token_limit(request, info)
        self._eos = frozenset() if params.ignore_eos else info.eos_token_ids
        self._stops = frozenset(params.stop_token_ids or ())
        self._interval = _interval(request, stream_interval)
        self._prompt_tokens = len(request.input_ids or ())
        self._pending: list[int] = []
        self._extras: Extras | None = None

    def take(self, output: Output) -> int:
        """
        Add what the engine computed, up to the first token that ends the request; how many tokens that were.

        Raises `ValueError` for a token that no engine may give.
        """
        taken = 0
        # Who wants no token wants the log-probabilities of the prompt.
        self.finish = None if self._limit else {"type": "length", "length": 0}
        while self.finish is None and taken < len(output.token_ids):
            token = output.token_ids[taken]
            if not 0 <= token <= _MAX_TOKEN:
                raise ValueError(f"the engine gave the token {token} for request {self.rid}")
            self._pending.append(token)
            self.generated += 1
            taken += 1
            self.finish = self._end_at(token)
        self.finish = self.finish or output.finish
        if output.extras is not None:
            output.extras.cut(taken)
            if self._extras is None:
                self._extras = output.extras
            else:
                self._extras.extend(output.extras)
        return taken

    def _end_at(self, token: int) -> FinishReason | None:
        # The least number of tokens does not count the one that ends it.
        if self.generated > self.request.sampling_params.min_new_tokens and (token in self._stops or token in self._eos):
            return {"type": "stop", "matched": token}
        if self.generated >= self._limit:
            return {"type": "length", "length": self.generated}
        return None

    def give_up(self, message: str, status_code: int | None = None, err_type: str | None = None) -> None:
        """
        End it without the engine.
        """
        self.finish = abort_reason(message, status_code, err_type)

    @property
    def is_due(self) -> bool:
        """
        Whether its client is to hear of it now: at its end, at each interval, and at the first token of a stream.
        """
        pending = len(self._pending)
        is_first = self.request.stream and pending == self.generated
        return self.finish is not None or pending >= self._interval or (pending > 0 and is_first)

    def step(self) -> Step:
        """
        What is new since the last one.
        """
        step = Step(self.rid, self._pending, self._prompt_tokens, self.finish, self._extras)
        self._pending, self._extras = [], None
        return step


def _interval(request: TokenizedGenerateReqInput, stream_interval: int) -> int:
    params = request.sampling_params
    # The server looks for stop texts, and can stop the scheduler only by what it has seen.
    if params.stop_strs:
        return 1
    if not request.stream:
        return _UNARY_INTERVAL
    return max(params.stream_interval or stream_interval, 1)
