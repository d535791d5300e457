"""
An engine without a model: it repeats the prompt, then ends the request.

It is deterministic and has no dependencies. Its purpose is to test, benchmark and try out the
server. Failures and delays can be scripted.

Invariant: its output depends only on the request and on the script.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang.srt.rust_server.engine import (
    EngineInfo,
    Extras,
    FinishReason,
    Output,
    TokenizedGenerateReqInput,
    TokenLogprob,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The extras that the engine can return, and sampling parameters. The parameters have no effect: each token is certain.
_SUPPORTS = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "sampling_seed", "return_logprob", "return_hidden_states"},
)


#: The finish reason if there is no end-of-sequence token.
_END_OF_PROMPT: FinishReason = {"type": "stop", "matched": None}

#: A token count that is never reached.
_NEVER = sys.maxsize

#: The logarithm of probability 0.
_IMPOSSIBLE = float("-inf")


class ScriptedFailure(RuntimeError):
    """
    The script makes this step fail.
    """


@dataclass(slots=True)
class _Progress:
    request: TokenizedGenerateReqInput
    prompt: Sequence[int]
    #: Number of tokens after which the request may end.
    end_after: int
    #: Number of tokens at the start that need no check for an end and have no extras. They take a fast path.
    plain: int
    generated: int = 0


class Echo:
    """
    Repeats the prompt's tokens, then ends the request.

    It repeats the prompt again if the request has `ignore_eos`, or a `min_new_tokens` larger than the prompt.
    Repeated tokens have log-probability 0, because they are certain.
    """

    def __init__(  # noqa: PLR0913  # keyword-only: each is one line of a script
        self,
        *,
        context_len: int = 32_768,
        vocab_size: int = 262_144,
        max_total_num_tokens: int = 1 << 22,
        max_running_requests: int = 1024,
        eos_token_id: int | None = None,
        delay: float = 0.0,
        fail_at_step: int | None = None,
        die_at_step: int | None = None,
        abort_at_token: int | None = None,
        abort: Mapping[str, Any] | None = None,
        logprobs: Sequence[float | None] = (0.0,),
    ) -> None:
        """
        Create the engine and its script.

        The default *vocab_size* is larger than that of common tokenizers. *eos_token_id* is generated at the end;
        without it the request ends after the last prompt token.

        The script: each step is delayed by *delay* seconds. Step *fail_at_step* raises; step *die_at_step* ends the
        scheduler. Steps are counted from 1, over all requests. Token *abort_at_token* of a request, counted from 1,
        aborts it with the finish reason *abort* (fields such as `message` and `status_code`). *logprobs* are repeated
        for successive tokens.
        """
        if not logprobs:
            raise ValueError("logprobs is empty: give at least one")
        if delay < 0:
            raise ValueError(f"delay is {delay} s: it cannot be negative")
        self._info = EngineInfo(
            context_len=context_len,
            vocab_size=vocab_size,
            max_total_num_tokens=max_total_num_tokens,
            max_running_requests=max_running_requests,
            eos_token_ids=frozenset(() if eos_token_id is None else (eos_token_id,)),
            supports=_SUPPORTS,
        )
        self._eos = eos_token_id
        self._delay = delay
        self._fail_at_step = fail_at_step
        self._die_at_step = die_at_step
        self._abort_at_token = abort_at_token
        self._abort_reason: FinishReason = {"message": "scripted", **(abort or {}), "type": "abort"}
        self._logprobs = tuple(logprobs)
        self._steps = 0
        self._requests: dict[str, _Progress] = {}

    def info(self) -> EngineInfo:
        """
        Return the properties of the engine.
        """
        return self._info

    def prefill(self, requests: Sequence[TokenizedGenerateReqInput]) -> list[Output]:
        """
        Return the first token of each prompt.
        """
        self._begin_step()
        outputs = []
        for request in requests:
            progress = self._start(request)
            self._requests[request.rid] = progress
            output = self._next_output(progress)
            if request.return_logprob and request.logprob_start_len >= 0:
                output.extras = output.extras or Extras()
                self._add_prompt_logprobs(progress, output.extras)
            outputs.append(output)
        return outputs

    def decode(self, batch: Sequence[str]) -> list[Output]:
        """
        Return the next token of each prompt.
        """
        self._begin_step()
        return [self._next_output(self._requests[rid]) for rid in batch]

    def abort(self, rid: str) -> None:
        """
        Remove a request.
        """
        self._requests.pop(rid, None)

    def flush_cache(self) -> None:
        """
        Do nothing: there is no cache.
        """

    def _begin_step(self) -> None:
        self._steps += 1
        if self._delay:
            time.sleep(self._delay)
        if self._steps == self._die_at_step:
            raise SystemExit(f"the script ends the scheduler at step {self._steps}")
        if self._steps == self._fail_at_step:
            raise ScriptedFailure(f"the script fails step {self._steps}")

    def _start(self, request: TokenizedGenerateReqInput) -> _Progress:
        prompt, params = request.input_ids or (), request.sampling_params
        end_after = _NEVER if params.ignore_eos else max(params.min_new_tokens, len(prompt))
        is_plain = prompt and not request.return_logprob and not request.return_hidden_states
        return _Progress(
            request, prompt, end_after, min(end_after, self._abort_at_token or _NEVER) - 1 if is_plain else 0
        )

    def _next_output(self, progress: _Progress) -> Output:
        prompt, position = progress.prompt, progress.generated
        # Fast path.
        if position < progress.plain:
            progress.generated = position + 1
            return Output((prompt[position % len(prompt)],))
        if self._eos is not None and position >= progress.end_after:
            token = self._eos
        elif prompt:
            token = prompt[position % len(prompt)]
        else:
            return Output((), _END_OF_PROMPT)
        progress.generated += 1
        finish: FinishReason | None = None
        if progress.generated == self._abort_at_token:
            finish = self._abort_reason
        elif self._eos is None and progress.generated >= progress.end_after:
            finish = _END_OF_PROMPT
        return Output((token,), finish, self._extras_of(progress.request, token, position))

    def _extras_of(self, request: TokenizedGenerateReqInput, token: int, position: int) -> Extras | None:
        if not request.return_logprob and not request.return_hidden_states:
            return None
        extras = Extras()
        if request.return_logprob:
            extras.output.append((self._logprob(position), token))
            if request.top_logprobs_num:
                extras.output_top.append(self._likeliest(request, token, position))
            if request.token_ids_logprob:
                extras.output_ids.append(self._requested_logprobs(request, token, position))
        if request.return_hidden_states:
            extras.hidden.append([float(token), float(position)])
        return extras

    def _add_prompt_logprobs(self, progress: _Progress, extras: Extras) -> None:
        request = progress.request
        for position in range(request.logprob_start_len, len(progress.prompt)):
            token = progress.prompt[position]
            # The first token has no log-probability, because nothing comes before it.
            extras.input.append((self._logprob(position) if position else None, token))
            if request.top_logprobs_num:
                extras.input_top.append(self._likeliest(request, token, position) if position else [])
            if request.token_ids_logprob:
                extras.input_ids.append(self._requested_logprobs(request, token, position) if position else [])

    def _logprob(self, position: int) -> float | None:
        return self._logprobs[position % len(self._logprobs)]

    def _likeliest(self, request: TokenizedGenerateReqInput, token: int, position: int) -> list[TokenLogprob]:
        """
        Return the token, followed by tokens with the next ids and probability 0.
        """
        others = range(1, request.top_logprobs_num)
        return [
            (self._logprob(position), token),
            *((_IMPOSSIBLE, (token + rank) % self._info.vocab_size) for rank in others),
        ]

    def _requested_logprobs(self, request: TokenizedGenerateReqInput, token: int, position: int) -> list[TokenLogprob]:
        asked = request.token_ids_logprob or ()
        return [(self._logprob(position) if other == token else _IMPOSSIBLE, other) for other in asked]
