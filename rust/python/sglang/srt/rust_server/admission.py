"""
Which requests an engine is spared: those that ask for what it does not do or has not.

Invariant: whatever a client asked for is obeyed, or refused by its name. Nothing is
silently left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang.srt.rust_server.wire import SamplingParams

if TYPE_CHECKING:
    from sglang.srt.rust_server.engine import EngineInfo
    from sglang.srt.rust_server.wire import FinishReason, TokenizedGenerateReqInput

#: Sampling parameters that the scheduler or the server sees to, whatever the engine. `n` too: each request is one answer.
_SEEN_TO = frozenset(
    {
        "max_new_tokens",
        "min_new_tokens",
        "stop",
        "stop_token_ids",
        "ignore_eos",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "no_stop_trim",
        "stream_interval",
        "n",
        "stop_strs",
        "stop_str_max_len",
        "stop_regex_max_len",
        "is_normalized",
    },
)

_NEUTRAL = SamplingParams()
_QUESTIONABLE = tuple(
    (name, getattr(_NEUTRAL, name)) for name in SamplingParams.__struct_fields__ if name not in _SEEN_TO
)


def abort_reason(message: str, status_code: int | None = None, err_type: str | None = None) -> FinishReason:
    """
    The end of a request that was given up. With a status it is a failure, without one a normal end.
    """
    reason: dict[str, Any] = {"type": "abort", "message": message}
    if status_code is not None:
        reason |= {"status_code": status_code, "err_type": err_type}
    return reason


def bad_request(message: str) -> FinishReason:
    """
    The end of a request whose client must change it.
    """
    return abort_reason(message, 400, "BadRequestError")


def refusal(request: TokenizedGenerateReqInput, info: EngineInfo) -> FinishReason | None:
    """
    Why an engine cannot serve *request*, if so.
    """
    unsupported = _first_unsupported(request, info.supports)
    if unsupported is not None:
        return bad_request(f"{unsupported} is not supported by this engine")
    if not 0 <= request.top_logprobs_num <= info.max_top_logprobs:
        return bad_request(
            f"top_logprobs_num is {request.top_logprobs_num}: this engine gives from 0 to {info.max_top_logprobs}"
        )
    prompt = len(request.input_ids or ())
    if prompt >= info.context_len:
        return bad_request(
            f"the prompt has {prompt} tokens, which leaves no room for an answer in a context of {info.context_len}"
        )
    needed = reserved_tokens(request, info)
    if needed > info.max_total_num_tokens:
        return bad_request(
            f"prompt and max_new_tokens need {needed} tokens, and this engine has room for {info.max_total_num_tokens}"
        )
    return None


def _first_unsupported(request: TokenizedGenerateReqInput, supports: frozenset[str]) -> str | None:
    params = request.sampling_params
    for name, neutral in _QUESTIONABLE:
        # Empty is not asked for: a dictionary without biases, a list without patterns.
        value = getattr(params, name)
        if value != neutral and value not in ({}, []) and name not in supports:
            return name
    for name in ("return_logprob", "return_hidden_states"):
        if getattr(request, name) and name not in supports:
            return name
    return None


def token_limit(request: TokenizedGenerateReqInput, info: EngineInfo) -> int:
    """
    Most tokens that *request* may generate: what it asks for, and what fits.
    """
    room = info.context_len - len(request.input_ids or ())
    asked = request.sampling_params.max_new_tokens
    return room if asked is None else min(asked, room)


def reserved_tokens(request: TokenizedGenerateReqInput, info: EngineInfo) -> int:
    """
    Tokens that must be free for *request* to reach its end.
    """
    return len(request.input_ids or ()) + token_limit(request, info)
