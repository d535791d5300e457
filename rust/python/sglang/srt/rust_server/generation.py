"""
The state of one admitted request: decides when it ends, and when its tokens are sent.

Invariant: every token is sent once and in order, and none is sent after the end.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from sglang.srt.rust_server.admission import abort_reason, reserved_tokens, token_limit
from sglang.srt.rust_server.wire import Extras, Step

if TYPE_CHECKING:
    from sglang.srt.rust_server.engine import EngineInfo, Output
    from sglang.srt.rust_server.wire import FinishReason, TokenizedGenerateReqInput

#: Tokens between two steps of a request that is not streamed. These steps show that the scheduler is alive.
_UNARY_INTERVAL = 50

_MAX_TOKEN = (1 << 31) - 1


class Generation:
    """
    A running or waiting request.
    """

    __slots__ = (
        "_due_at",
        "_extras",
        "_interval",
        "_limit",
        "_min_tokens",
        "_pending",
        "_prompt_tokens",
        "_stop_tokens",
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
        #: Number of tokens generated so far.
        self.generated = 0
        #: Number of the engine's tokens that are reserved for the request.
        self.reserved = reserved_tokens(request, info)
        #: The finish reason, once the request has ended.
        self.finish: FinishReason | None = None
        self._limit = token_limit(request, info)
        self._min_tokens = params.min_new_tokens
        #: Tokens that end the request.
        self._stop_tokens = frozenset(params.stop_token_ids or ()) | (
            frozenset() if params.ignore_eos else info.eos_token_ids
        )
        self._interval = _interval(request, stream_interval)
        #: Number of pending tokens that triggers the next step. The first token of a stream is sent alone.
        self._due_at = 1 if request.stream else self._interval
        self._prompt_tokens = len(request.input_ids or ())
        self._pending: list[int] = []
        self._extras: Extras | None = None

    def take(self, output: Output) -> int:
        """
        Add the engine's output, up to the first token that ends the request. Return the number of tokens added.

        Raises `ValueError` for an invalid token or finish reason. The request has not ended then.
        """
        if self.finish is not None:
            return 0  # ended already: ignore late output
        # Fast path for the usual case: one token that does not end the request.
        if (
            len(output.token_ids) == 1
            and output.finish is None
            and output.extras is None
            and self.generated + 1 < self._limit
        ):
            token = output.token_ids[0]
            if 0 <= token <= _MAX_TOKEN and token not in self._stop_tokens:
                self._pending.append(token)
                self.generated += 1
                return 1
        return self._take_any(output)

    def _take_any(self, output: Output) -> int:
        taken = 0
        # A request for 0 tokens ends at once. Its answer can contain the log-probabilities of the prompt.
        finish: FinishReason | None = None if self._limit else {"type": "length", "length": 0}
        while finish is None and taken < len(output.token_ids):
            token = output.token_ids[taken]
            if not 0 <= token <= _MAX_TOKEN:
                raise ValueError(f"the engine returned the invalid token {token} for request {self.rid}")
            self._pending.append(token)
            self.generated += 1
            taken += 1
            finish = self._end_at(token)
        if finish is None and output.finish is not None:
            finish = self._checked(output.finish)
        if output.extras is not None:
            output.extras.cut(taken)
            if self._extras is None:
                self._extras = output.extras
            else:
                self._extras.extend(output.extras)
        # Set last: if the output is invalid, the request must still be open so that it can fail.
        self.finish = finish
        return taken

    def _checked(self, finish: object) -> FinishReason:
        """
        Check the engine's finish reason. The server would refuse the whole frame with an invalid one.
        """
        if isinstance(finish, Mapping) and isinstance(finish.get("type"), str):
            reason = dict(finish)
            if all(isinstance(name, str) and isinstance(value, str | int | None) for name, value in reason.items()):
                try:
                    msgspec.msgpack.encode(reason)
                except (OverflowError, TypeError, ValueError):
                    pass  # a number over 64 bits, or text with a lone surrogate
                else:
                    return reason
        raise ValueError(f"the engine returned the invalid finish reason {reprlib.repr(finish)} for request {self.rid}")

    def _end_at(self, token: int) -> FinishReason | None:
        # `min_new_tokens` does not count the token that ends the request.
        if self.generated > self._min_tokens and token in self._stop_tokens:
            return {"type": "stop", "matched": token}
        if self.generated >= self._limit:
            return {"type": "length", "length": self.generated}
        return None

    def abort(self, message: str, status_code: int | None = None, err_type: str | None = None) -> None:
        """
        Abort the request, unless it has already ended.
        """
        if self.finish is None:
            self.finish = abort_reason(message, status_code, err_type)

    def next_step(self) -> Step | None:
        """
        Return the pending tokens as a step if they are due, else `None`.

        They are due at the end, at each interval, and at the first token of a stream.
        """
        if len(self._pending) < self._due_at and self.finish is None:
            return None
        step = Step(self.rid, self._pending, self._prompt_tokens, self.finish, self._extras)
        self._pending, self._extras = [], None
        self._due_at = self._interval
        return step


def _interval(request: TokenizedGenerateReqInput, stream_interval: int) -> int:
    params = request.sampling_params
    # The server searches for stop strings, so it must see every token at once to stop the request in time.
    if params.stop_strs:
        return 1
    if not request.stream:
        return _UNARY_INTERVAL
    return max(params.stream_interval or stream_interval, 1)
