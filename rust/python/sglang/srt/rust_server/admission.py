"""
Admission: refuses requests that the engine cannot serve.

Invariant: every option of a request is either obeyed or refused by name. No option is
silently ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang.srt.rust_server.wire import SamplingParams

if TYPE_CHECKING:
    from sglang.srt.rust_server.engine import EngineInfo
    from sglang.srt.rust_server.wire import FinishReason, TokenizedGenerateReqInput

#: Sampling parameters that the scheduler or the server handles, for every engine. The server handles `n`: it sends one
#: request to the scheduler for each answer.
_HANDLED_OUTSIDE = frozenset(
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

_DEFAULTS = SamplingParams()
#: The other parameters, with their defaults. If a request sets one to a different value, the engine must support it.
_NEEDS_SUPPORT = tuple(
    (name, getattr(_DEFAULTS, name)) for name in SamplingParams.__struct_fields__ if name not in _HANDLED_OUTSIDE
)


def abort_reason(message: str, status_code: int | None = None, err_type: str | None = None) -> FinishReason:
    """
    Return the finish reason of an aborted request. With *status_code* the client gets an error.
    """
    reason: dict[str, Any] = {"type": "abort", "message": message}
    if status_code is not None:
        reason |= {"status_code": status_code, "err_type": err_type}
    return reason


def bad_request(message: str) -> FinishReason:
    """
    Return the finish reason of an invalid request (status 400).
    """
    return abort_reason(message, 400, "BadRequestError")


def refusal(request: TokenizedGenerateReqInput, info: EngineInfo) -> FinishReason | None:
    """
    Return the reason why the engine cannot serve *request*, or `None` if it can.
    """
    unsupported = _first_unsupported(request, info.supports)
    if unsupported is not None:
        return bad_request(f"{unsupported} is not supported by this engine")
    if not 0 <= request.top_logprobs_num <= info.max_top_logprobs:
        return bad_request(
            f"top_logprobs_num is {request.top_logprobs_num}: this engine supports 0 to {info.max_top_logprobs}"
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
    for name, default in _NEEDS_SUPPORT:
        # An empty value, such as a `logit_bias` without entries, counts as not set.
        value = getattr(params, name)
        if value != default and value not in ({}, []) and name not in supports:
            return name
    for name in ("return_logprob", "return_hidden_states"):
        if getattr(request, name) and name not in supports:
            return name
    return None


def token_limit(request: TokenizedGenerateReqInput, info: EngineInfo) -> int:
    """
    Return the maximum number of tokens that *request* may generate: its limit, or less if the context is full.
    """
    room = info.context_len - len(request.input_ids or ())
    asked = request.sampling_params.max_new_tokens
    return room if asked is None else min(asked, room)


def reserved_tokens(request: TokenizedGenerateReqInput, info: EngineInfo) -> int:
    """
    Return the number of tokens that must be free so that *request* can run to its end.
    """
    return len(request.input_ids or ()) + token_limit(request, info)
