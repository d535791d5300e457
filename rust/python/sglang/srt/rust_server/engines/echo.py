"""
An engine without a model: it says what it was told, then ends.

It is deterministic and needs nothing, and so serves where the server is what matters: in
tests, in measurements, in a first try. Faults and delays can be scripted.

Invariant: what it gives depends on the request and on the script alone.
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

#: What cannot matter where there is never a choice, and what is given on request.
_SUPPORTS = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "sampling_seed", "return_logprob", "return_hidden_states"},
)


#: Why it ends where no token says so.
_SILENCE: FinishReason = {"type": "stop", "matched": None}

#: More tokens than anybody says.
_NEVER = sys.maxsize

#: The logarithm of no probability.
_IMPOSSIBLE = float("-inf")


class ScriptedFailure(RuntimeError):
    """
    The failure of a step that the script asked for.
    """


@dataclass(slots=True)
class _Echoing:
    request: TokenizedGenerateReqInput
    prompt: Sequence[int]
    #: Tokens after which it may end.
    enough: int
    #: So many tokens of it are the prompt's, with nothing besides.
    plain: int
    said: int = 0


class Echo:
    """
    Repeats the prompt's tokens, then ends; from the start again where a request must not end there.

    A request must not where it ignores the end of sequence, or wants more tokens than its prompt has. What is repeated
    has log-probability 0, as it is certain.
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
        *vocab_size* is above that of tokenizers in use. *eos_token_id* is said at the end, which is otherwise silent.

        The script: each step takes *delay* seconds more. Step *fail_at_step* raises; step *die_at_step* ends the scheduler:
        steps are counted from 1 over all requests. The token *abort_at_token* of a request, from 1, ends it with *abort*, a
        finish reason's fields such as `message` and `status_code`. *logprobs* are those of successive tokens, over and over.
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
        self._echoing: dict[str, _Echoing] = {}

    def info(self) -> EngineInfo:
        """
        As it was made.
        """
        return self._info

    def prefill(self, requests: Sequence[TokenizedGenerateReqInput]) -> list[Output]:
        """
        The first token of each prompt.
        """
        self._begin_step()
        outputs = []
        for request in requests:
            echoing = self._take_in(request)
            self._echoing[request.rid] = echoing
            output = self._say_next(echoing)
            if request.return_logprob and request.logprob_start_len >= 0:
                output.extras = output.extras or Extras()
                self._add_prompt_logprobs(echoing, output.extras)
            outputs.append(output)
        return outputs

    def decode(self, batch: Sequence[str]) -> list[Output]:
        """
        The next token of each prompt.
        """
        self._begin_step()
        return [self._say_next(self._echoing[rid]) for rid in batch]

    def abort(self, rid: str) -> None:
        """
        Forget where in its prompt it is.
        """
        self._echoing.pop(rid, None)

    def flush_cache(self) -> None:
        """
        Nothing is kept.
        """

    def _begin_step(self) -> None:
        self._steps += 1
        if self._delay:
            time.sleep(self._delay)
        if self._steps == self._die_at_step:
            raise SystemExit(f"the script ends the scheduler at step {self._steps}")
        if self._steps == self._fail_at_step:
            raise ScriptedFailure(f"the script fails step {self._steps}")

    def _take_in(self, request: TokenizedGenerateReqInput) -> _Echoing:
        prompt, params = request.input_ids or (), request.sampling_params
        enough = _NEVER if params.ignore_eos else max(params.min_new_tokens, len(prompt))
        is_plain = prompt and not request.return_logprob and not request.return_hidden_states
        return _Echoing(request, prompt, enough, min(enough, self._abort_at_token or _NEVER) - 1 if is_plain else 0)

    def _say_next(self, echoing: _Echoing) -> Output:
        prompt, position = echoing.prompt, echoing.said
        # Nearly always there is no more to it.
        if position < echoing.plain:
            echoing.said = position + 1
            return Output((prompt[position % len(prompt)],))
        if self._eos is not None and position >= echoing.enough:
            token = self._eos
        elif prompt:
            token = prompt[position % len(prompt)]
        else:
            return Output((), _SILENCE)
        echoing.said += 1
        finish: FinishReason | None = None
        if echoing.said == self._abort_at_token:
            finish = self._abort_reason
        elif self._eos is None and echoing.said >= echoing.enough:
            finish = _SILENCE
        return Output((token,), finish, self._extras_of(echoing.request, token, position))

    def _extras_of(self, request: TokenizedGenerateReqInput, token: int, position: int) -> Extras | None:
        if not request.return_logprob and not request.return_hidden_states:
            return None
        extras = Extras()
        if request.return_logprob:
            extras.output.append((self._logprob(position), token))
            if request.top_logprobs_num:
                extras.output_top.append(self._likeliest(request, token, position))
            if request.token_ids_logprob:
                extras.output_ids.append(self._asked_for(request, token, position))
        if request.return_hidden_states:
            extras.hidden.append([float(token), float(position)])
        return extras

    def _add_prompt_logprobs(self, echoing: _Echoing, extras: Extras) -> None:
        request = echoing.request
        for position in range(request.logprob_start_len, len(echoing.prompt)):
            token = echoing.prompt[position]
            # Nothing comes before the first token, so it has none.
            extras.input.append((self._logprob(position) if position else None, token))
            if request.top_logprobs_num:
                extras.input_top.append(self._likeliest(request, token, position) if position else [])
            if request.token_ids_logprob:
                extras.input_ids.append(self._asked_for(request, token, position) if position else [])

    def _logprob(self, position: int) -> float | None:
        return self._logprobs[position % len(self._logprobs)]

    def _likeliest(self, request: TokenizedGenerateReqInput, token: int, position: int) -> list[TokenLogprob]:
        """
        The token, and behind it those with the next ids, which are impossible.
        """
        others = range(1, request.top_logprobs_num)
        return [
            (self._logprob(position), token),
            *((_IMPOSSIBLE, (token + rank) % self._info.vocab_size) for rank in others),
        ]

    def _asked_for(self, request: TokenizedGenerateReqInput, token: int, position: int) -> list[TokenLogprob]:
        asked = request.token_ids_logprob or ()
        return [(self._logprob(position) if other == token else _IMPOSSIBLE, other) for other in asked]
