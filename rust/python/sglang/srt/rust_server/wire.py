"""
The messages that pass between the server and a scheduler, and their bytes.

Messages come in as MessagePack arrays with a tag in front; what goes back is a control
result (a map) or a batch of decoded tokens: a header of columns, and the numbers of all
columns behind it, 4 bytes each, little-endian as every machine that this runs on.

Invariant: the order of fields is the order on the wire, which `WIRE.md` of the crate
`sglang-server` pins byte for byte. A field is never taken away, and a new one goes last
and has a default.
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
    # `array` takes no type argument before Python 3.12, and msgspec evaluates annotations.
    IdArray: TypeAlias = array

#: As many tokens to choose from as there are.
TOP_K_ALL = 1 << 30

#: Why a generation ended: `type` is `stop`, `length` or `abort`, and says what else there is.
FinishReason: TypeAlias = Mapping[str, str | int | None]

#: The natural logarithm of a token's probability, `None` where it has none, and the token.
TokenLogprob: TypeAlias = tuple[float | None, int]


class SamplingParams(msgspec.Struct, array_like=True, kw_only=True):
    """
    How to choose tokens, and when to stop. The defaults change nothing.
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
    A request to generate. Its tokens travel beside the message: the drain puts them in.
    """

    rid: str
    http_worker_ipc: str | None = None
    input_text: str | None = None
    input_ids: IdArray | None = None
    input_embeds: list[list[float]] | None = None
    #: Where the request has media, what the model takes in their place.
    mm_inputs: Any = None
    token_type_ids: list[int] | None = None
    sampling_params: SamplingParams = msgspec.field(default_factory=SamplingParams)
    return_logprob: bool = False
    #: The first prompt token whose log-probability is given; -1: none of the prompt.
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
    Nobody waits for a request any more; or, with `abort_all`, for any.
    """

    rid: str | None = None
    http_worker_ipc: str | None = None
    abort_all: bool = False
    finished_reason: dict[str, Any] | None = None
    abort_message: str | None = None


class GetInternalStateReq(msgspec.Struct, array_like=True, tag=True, kw_only=True):
    """
    How is the scheduler? Answered by a map.
    """

    rid: str
    http_worker_ipc: str | None = None


class FlushCacheReq(msgspec.Struct, array_like=True, tag=True, kw_only=True):
    """
    Forget what is cached. Answered by `FlushCacheReqOutput`.
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
    A message that is none of ours; `rid` is whose it is, if that much can be read.
    """

    def __init__(self, problem: str, rid: str | None) -> None:
        super().__init__(problem, rid)  # args, so it pickles
        self.problem = problem
        self.rid = rid

    def __str__(self) -> str:
        return f"undecodable request: {self.problem}"


_REQUESTS = (TokenizedGenerateReqInput, AbortReq, GetInternalStateReq, FlushCacheReq)
_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(
    TokenizedGenerateReqInput | AbortReq | GetInternalStateReq | FlushCacheReq
)
_parts = msgspec.msgpack.Decoder(list[msgspec.Raw])
_text = msgspec.msgpack.Decoder(str)
# Ours to answer, so what MessagePack has no type for is said as text.
_encoder = msgspec.msgpack.Encoder(enc_hook=str)


def msgpack_decode_explained(header: bytes) -> Request:
    """
    The message that these bytes are.

    Raises `UndecodableRequest`, which names the field at fault and whose message it is.
    """
    try:
        return _decoder.decode(header)
    except msgspec.DecodeError as error:
        tag, rid = _tag_and_rid(header)
        raise UndecodableRequest(_explained(str(error), tag), rid) from error


def _tag_and_rid(header: bytes) -> tuple[str | None, str | None]:
    texts: list[str | None] = [None, None]
    try:
        for place, part in enumerate(_parts.decode(header)[:2]):
            texts[place] = _text.decode(part)
    except msgspec.DecodeError:
        pass  # whatever was read until here
    return texts[0], texts[1]


def _explained(error: str, tag: str | None) -> str:
    """
    The decoder's words, with names in place of indexes: ``$[8][0]`` is `sampling_params.max_new_tokens`.
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
    An answer to a control message: a map, whatever the struct is on the wire.
    """
    return _encoder.encode(msgspec.structs.asdict(output) if isinstance(output, msgspec.Struct) else output)


@dataclass(slots=True)
class Extras:
    """
    Log-probabilities and hidden states.

    Those of the output belong to a step's tokens, those of the prompt come once. A position without any is an empty list.
    """

    output: list[TokenLogprob] = field(default_factory=list)
    input: list[TokenLogprob] = field(default_factory=list)
    #: The likeliest tokens at each position.
    output_top: list[list[TokenLogprob]] = field(default_factory=list)
    input_top: list[list[TokenLogprob]] = field(default_factory=list)
    #: The tokens that were asked for, at each position.
    output_ids: list[list[TokenLogprob]] = field(default_factory=list)
    input_ids: list[list[TokenLogprob]] = field(default_factory=list)
    #: A row per token.
    hidden: list[list[float]] = field(default_factory=list)

    def extend(self, later: Extras) -> None:
        """
        Take those of a later step in.
        """
        for name in self.__slots__:
            getattr(self, name).extend(getattr(later, name))

    def cut(self, tokens: int) -> None:
        """
        Keep those of the first *tokens* tokens of the output.
        """
        for family in (self.output, self.output_top, self.output_ids, self.hidden):
            del family[tokens:]


class Step(msgspec.Struct, gc=False):
    """
    What is new about one request: tokens since its last step, and why it ended, if it did.

    Made for every token of a stream: a struct costs a third of a dataclass, and without cycles there is nothing to collect.
    """

    rid: str
    output_ids: Sequence[int]
    #: Tokens of the prompt.
    prompt_tokens: int
    finish: FinishReason | None = None
    extras: Extras | None = None


def encode_decode_batch(steps: Sequence[Step]) -> tuple[bytes, list[bytes]]:
    """
    A batch: its header, and the columns of its data.

    A family of extras that nobody has costs two empty lists, and a batch without any has four columns.
    Raises `OverflowError` for a token outside of int32.
    """
    ids = [step.output_ids for step in steps]
    header: list[list[Any]] = [
        [step.rid for step in steps],
        [step.finish for step in steps],
        [step.prompt_tokens for step in steps],
        list(map(len, ids)),
    ]
    # An array takes a list in half the time that it takes an iterator in.
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


def _lens(family: Sequence[Sequence[object]]) -> list[int]:
    return list(map(len, family)) if any(family) else []


def _logprobs(pairs: Iterable[TokenLogprob]) -> list[bytes]:
    values, ids = array("f"), array("i")
    for value, token in pairs:
        values.append(math.nan if value is None else value)
        ids.append(token)
    return [values.tobytes(), ids.tobytes()] if values else []
