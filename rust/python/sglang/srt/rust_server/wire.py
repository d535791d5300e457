"""
The messages between server and scheduler, and their encoding.

Incoming messages are MessagePack arrays that start with a tag. Outgoing messages are control
results (maps) and batches of tokens. A batch is a header of columns followed by the numbers of all
columns, 4 bytes each, in the machine's byte order, which is little-endian on all supported
platforms.

Invariant: the order of fields is the order on the wire. `WIRE.md` of the crate
`sglang-server` pins it byte for byte. Fields are never removed; new fields are added last,
with a default.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    #: Token ids of a request.
    IdArray: TypeAlias = array[int]
else:
    # `array` accepts no type argument before Python 3.12, and msgspec evaluates annotations.
    IdArray: TypeAlias = array

#: The `top_k` that means all tokens.
TOP_K_ALL = 1 << 30

#: Why a generation ended. `type` is `stop`, `length` or `abort`, and determines the other fields.
FinishReason: TypeAlias = Mapping[str, str | int | None]

#: The natural logarithm of a token's probability (`None` if there is none), and the token id.
TokenLogprob: TypeAlias = tuple[float | None, int]


class SamplingParams(msgspec.Struct, array_like=True, kw_only=True):
    """
    How tokens are chosen, and when the generation stops. The defaults do not influence the choice of tokens.
    """

    max_new_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stop_regex: str | list[str] | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = TOP_K_ALL
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_new_tokens: int = 0
    n: int = 1
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False
    stream_interval: int | None = None
    logit_bias: dict[str, float] | None = None
    sampling_seed: int | None = None
    custom_params: dict[str, Any] | None = None
    stop_strs: list[str] = []
    stop_regex_strs: list[str] = []
    stop_str_max_len: int = 0
    stop_regex_max_len: int = 0
    is_normalized: bool = True


class TokenizedGenerateReqInput(msgspec.Struct, array_like=True, tag=True, kw_only=True):
    """
    A generation request. Its tokens are transferred separately: `RustServer.drain` sets `input_ids`.
    """

    rid: str
    http_worker_ipc: str | None = None
    input_text: str | None = None
    input_ids: IdArray | None = None
    input_embeds: list[list[float]] | None = None
    #: The model's input for the media of the request.
    mm_inputs: Any = None
    token_type_ids: list[int] | None = None
    sampling_params: SamplingParams = msgspec.field(default_factory=SamplingParams)
    return_logprob: bool = False
    #: The first prompt token whose log-probability is returned; -1: none of the prompt.
    logprob_start_len: int = -1
    top_logprobs_num: int = 0
    token_ids_logprob: list[int] | None = None
    stream: bool = False
    return_sampling_mask: bool = False
    return_flat_raw_top_logprobs: bool = False
    return_hidden_states: bool = False
    return_routed_experts: bool = False
    routed_experts_start_len: int = 0
    return_indexer_topk: bool = False
    session_id: str | None = None
    session_params: Any = None
    lora_id: str | None = None
    custom_logit_processor: str | None = None
    positional_embed_overrides: Any = None
    bootstrap_host: str | None = None
    bootstrap_port: int | None = None
    bootstrap_room: int | None = None
    bootstrap_pair_key: str | None = None
    decode_tp_size: int | None = None
    routed_dp_rank: int | None = None
    disagg_prefill_dp_rank: int | None = None


class AbortReq(msgspec.Struct, array_like=True, tag=True, kw_only=True):
    """
    Abort one request, or all of them with `abort_all`.
    """

    rid: str | None = None
    http_worker_ipc: str | None = None
    abort_all: bool = False
    finished_reason: dict[str, Any] | None = None
    abort_message: str | None = None


class GetInternalStateReq(msgspec.Struct, array_like=True, tag=True, kw_only=True):
    """
    Ask for the scheduler's state. The answer is a map.
    """

    rid: str
    http_worker_ipc: str | None = None


class FlushCacheReq(msgspec.Struct, array_like=True, tag=True, kw_only=True):
    """
    Drop cached data. The answer is a `FlushCacheReqOutput`.
    """

    rid: str
    http_worker_ipc: str | None = None


class FlushCacheReqOutput(msgspec.Struct, kw_only=True):
    """
    The answer to `FlushCacheReq`.
    """

    success: bool
    message: str


ControlRequest: TypeAlias = "GetInternalStateReq | FlushCacheReq"
Request: TypeAlias = "TokenizedGenerateReqInput | AbortReq | GetInternalStateReq | FlushCacheReq"


class UndecodableRequest(ValueError):
    """
    A message cannot be decoded. `rid` is the id of its request, or `None` if the id cannot be read.
    """

    def __init__(self, problem: str, rid: str | None) -> None:
        super().__init__(problem, rid)  # pickle calls the class with these arguments
        self.problem = problem
        self.rid = rid

    def __str__(self) -> str:
        return f"undecodable request: {self.problem}"


_REQUESTS = (TokenizedGenerateReqInput, AbortReq, GetInternalStateReq, FlushCacheReq)
_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(
    TokenizedGenerateReqInput | AbortReq | GetInternalStateReq | FlushCacheReq
)
_array_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_text_decoder = msgspec.msgpack.Decoder(str)
# Values that MessagePack has no type for are encoded as text.
_encoder = msgspec.msgpack.Encoder(enc_hook=str)


def msgpack_decode_explained(header: bytes) -> Request:
    """
    Decode a message.

    Raises `UndecodableRequest`, which names the invalid field and the request.
    """
    try:
        return _decoder.decode(header)
    except msgspec.DecodeError as error:
        tag, rid = _tag_and_rid(header)
        raise UndecodableRequest(_explain(str(error), tag), rid) from error


def _tag_and_rid(header: bytes) -> tuple[str | None, str | None]:
    texts: list[str | None] = [None, None]
    try:
        for place, part in enumerate(_array_decoder.decode(header)[:2]):
            texts[place] = _text_decoder.decode(part)
    except msgspec.DecodeError:
        pass  # keep the parts that were read
    return texts[0], texts[1]


def _explain(error: str, tag: str | None) -> str:
    """
    Replace indexes by names in the decoder's message: ``$[8][0]`` becomes `sampling_params.max_new_tokens`.
    """
    problem, at, path = error.partition(" - at `$")
    kinds = [kind for kind in _REQUESTS if kind.__name__ == tag]
    if not at or not kinds or not path.startswith("["):
        return error
    steps = path.rstrip("`").replace("[", "").replace("...", "").split("]")
    names = []
    fields: tuple[str, ...] = ("tag", *kinds[0].__struct_fields__)
    for step in filter(None, steps):
        if not step.isdigit() or int(step) >= len(fields):
            break
        names.append(fields[int(step)])
        fields = SamplingParams.__struct_fields__ if names[-1] == "sampling_params" else ()
    return f"{problem} - at `{tag}.{'.'.join(names)}`"


def encode_control_result(output: msgspec.Struct | Mapping[str, Any]) -> bytes:
    """
    Encode the answer to a control message, always as a map.
    """
    return _encoder.encode(msgspec.structs.asdict(output) if isinstance(output, msgspec.Struct) else output)


@dataclass(slots=True)
class Extras:
    """
    Log-probabilities and hidden states.

    Output values belong to the tokens of a step; prompt values are sent once. A position without values is an empty
    list.
    """

    output: list[TokenLogprob] = field(default_factory=list)
    input: list[TokenLogprob] = field(default_factory=list)
    #: The likeliest tokens at each position.
    output_top: list[list[TokenLogprob]] = field(default_factory=list)
    input_top: list[list[TokenLogprob]] = field(default_factory=list)
    #: The tokens of `token_ids_logprob`, at each position.
    output_ids: list[list[TokenLogprob]] = field(default_factory=list)
    input_ids: list[list[TokenLogprob]] = field(default_factory=list)
    #: One row per token.
    hidden: list[list[float]] = field(default_factory=list)

    def extend(self, later: Extras) -> None:
        """
        Append the values of a later step.
        """
        for name in self.__slots__:
            getattr(self, name).extend(getattr(later, name))

    def cut(self, tokens: int) -> None:
        """
        Keep the values of the first *tokens* output tokens.
        """
        for values in (self.output, self.output_top, self.output_ids, self.hidden):
            del values[tokens:]


class Step(msgspec.Struct, gc=False):
    """
    The new tokens of one request since its last step, and the finish reason, if it has ended.

    One is created for every token of a stream. It is a struct because a dataclass costs three times as much. It cannot
    be part of a reference cycle, so it is exempt from garbage collection.
    """

    rid: str
    output_ids: Sequence[int]
    #: Number of tokens in the prompt.
    prompt_tokens: int
    finish: FinishReason | None = None
    extras: Extras | None = None


def encode_decode_batch(steps: Sequence[Step]) -> tuple[bytes, list[bytes]]:
    """
    Encode a batch as its header and the columns of its data.

    A batch without extras has only four columns. A kind of extras that no request uses is encoded as empty lists.
    Raises `OverflowError` for a token outside of int32.
    """
    ids = [step.output_ids for step in steps]
    header: list[list[Any]] = [
        [step.rid for step in steps],
        [step.finish for step in steps],
        [step.prompt_tokens for step in steps],
        list(map(len, ids)),
    ]
    # Creating an array from a list takes half the time of creating it from an iterator.
    data = [array("i", [token for each in ids for token in each]).tobytes()]
    extras = [step.extras for step in steps]
    if any(extras):
        none = Extras()
        _add_extras([each or none for each in extras], header, data)
    return _encoder.encode(header), data


def _add_extras(extras: list[Extras], header: list[list[Any]], data: list[bytes]) -> None:
    for flat in ([each.output for each in extras], [each.input for each in extras]):
        header.append(_lens(flat))
        data += _logprobs(chain.from_iterable(flat))
    for ragged in (
        [each.output_top for each in extras],
        [each.input_top for each in extras],
        [each.output_ids for each in extras],
        [each.input_ids for each in extras],
    ):
        positions = list(chain.from_iterable(ragged))
        header += [_lens(ragged), list(map(len, positions))]
        data += _logprobs(chain.from_iterable(positions))
    hidden = [each.hidden for each in extras]
    rows = list(chain.from_iterable(hidden))
    header += [_lens(hidden), list(map(len, rows))]
    if rows:
        data.append(array("f", chain.from_iterable(rows)).tobytes())


def _lens(lists: Sequence[Sequence[object]]) -> list[int]:
    return list(map(len, lists)) if any(lists) else []


def _logprobs(pairs: Iterable[TokenLogprob]) -> list[bytes]:
    values, ids = array("f"), array("i")
    for value, token in pairs:
        values.append(math.nan if value is None else value)
        ids.append(token)
    return [values.tobytes(), ids.tobytes()] if values else []
