"""
Tests of `wire`: it encodes the bytes that `WIRE.md` of the crate pins, and its errors name the field.
"""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_server import PAIRS, read_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.wire import Extras, SamplingParams, Step, TokenizedGenerateReqInput

WIRE_MD = Path(__file__).parents[2] / "rust/sglang-server/WIRE.md"
PINNED = {
    name: bytes.fromhex(digits)
    for name, digits in re.findall(
        r"^#### `(.+?)`$.*?^```hex\n(.+?)^```$", WIRE_MD.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
}

FULL = TokenizedGenerateReqInput(
    rid="r-2",
    input_text="prompt",
    sampling_params=SamplingParams(
        max_new_tokens=None,
        stop_token_ids=[3, 4],
        temperature=0.5,
        top_p=0.25,
        top_k=40,
        min_p=0.125,
        frequency_penalty=-1.5,
        presence_penalty=1.5,
        repetition_penalty=1.25,
        min_new_tokens=2,
        json_schema="{}",
        regex="[a-z]",
        ebnf="root ::= x",
        structural_tag='{"t":1}',
        ignore_eos=True,
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        no_stop_trim=True,
        stream_interval=3,
        logit_bias={"10": 1.0, "9": -2.0},
        sampling_seed=-5,
        custom_params={"a": [1, 2.5, None, True, "x"]},
        stop_strs=["\n\n", "é"],
        stop_str_max_len=6,
    ),
    return_logprob=True,
    logprob_start_len=7,
    top_logprobs_num=5,
    token_ids_logprob=[11, 70000],
    stream=True,
    return_hidden_states=True,
    bootstrap_host="10.0.0.1",
    bootstrap_port=8998,
    bootstrap_room=4611686018427387905,
    bootstrap_pair_key="k",
    decode_tp_size=4,
    routed_dp_rank=1,
    disagg_prefill_dp_rank=2,
)

BATCH = [
    Step("r-1", [5, 7], 3, {"type": "stop", "matched": 7}),
    Step("r-2", [-1], 300),
    Step("r-3", [], 0),
]
WITH_EXTRAS = [
    Step(
        "r-1",
        [5, 7],
        3,
        {"type": "stop", "matched": 7},
        Extras(
            output=[(-0.5, 5), (-1.5, 7)],
            input=[(-math.inf, 1)],
            output_top=[[(-0.5, 5), (-0.75, 6)], []],
            input_top=[[(-2.0, 9)]],
            output_ids=[[], [(-3.0, 8)]],
            input_ids=[[(-4.0, 8)]],
            hidden=[[0.5, -0.5], [1.0]],
        ),
    ),
    Step("r-2", [-1], 300),
    Step("r-3", [], 0, None, Extras(hidden=[[2.0]])),
]


def pinned_batch(name: str) -> tuple[bytes, bytes]:
    """
    Return header and data of a pinned frame.
    """
    kind, length = struct.unpack_from("<BI", PINNED[name])
    assert kind == 2
    return PINNED[name][5 : 5 + length], PINNED[name][5 + length :]


def test_every_message_to_the_scheduler_is_pinned() -> None:
    """
    The test fails if a message type is added without pinned bytes.
    """
    tags = {msgspec.msgpack.decode(frame)[0] for frame in PINNED.values() if frame[0] >= 0x90}

    assert tags == {"TokenizedGenerateReqInput", "AbortReq", "GetInternalStateReq", "FlushCacheReq"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("generate, plain", TokenizedGenerateReqInput(rid="r-1", sampling_params=SamplingParams(max_new_tokens=128))),
        ("generate, full", FULL),
        ("abort", wire.AbortReq(rid="r-1")),
        ("internal state", wire.GetInternalStateReq(rid="r-1")),
        ("flush cache", wire.FlushCacheReq(rid="r-1")),
    ],
)
def test_pinned_messages(name: str, expected: wire.Request) -> None:
    """
    The pinned bytes decode to the message, and the message encodes to the pinned bytes.
    """
    assert wire.msgpack_decode_explained(PINNED[name]) == expected
    assert PINNED[name] == msgspec.msgpack.encode(expected)


def test_all_fields_are_pinned() -> None:
    """
    The pinned message has all fields. A new field goes to the end of its struct; pin it once the frontend sends it.
    """
    places = msgspec.msgpack.decode(PINNED["generate, full"])

    assert (len(places), len(places[8])) == (32, 30)
    assert TokenizedGenerateReqInput.__struct_fields__[30] == "disagg_prefill_dp_rank"
    assert SamplingParams.__struct_fields__[29] == "is_normalized"


@pytest.mark.parametrize(("name", "steps"), [("batch", BATCH), ("batch, extras", WITH_EXTRAS)])
def test_pinned_batches(name: str, steps: list[Step]) -> None:
    """
    Batches encode to exactly the pinned bytes.
    """
    header, columns = wire.encode_decode_batch(steps)

    assert pinned_batch(name) == (header, b"".join(columns))


def edited(place: int, value: object, *, sampling: int | None = None) -> bytes:
    """
    Return the pinned message with *value* at one place.
    """
    message = msgspec.msgpack.decode(PINNED["generate, full"])
    if sampling is None:
        message[place] = value
    else:
        message[place][sampling] = value
    return msgspec.msgpack.encode(message)


@pytest.mark.parametrize(
    ("frame", "rid", "problem"),
    [
        pytest.param(
            edited(8, "x", sampling=0),
            "r-2",
            "Expected `int | null`, got `str` - at `{}.sampling_params.max_new_tokens`",
            id="sampling",
        ),
        pytest.param(
            edited(8, {"1": "x"}, sampling=22),
            "r-2",
            "Expected `float`, got `str` - at `{}.sampling_params.logit_bias`",
            id="map",
        ),
        pytest.param(
            edited(8, [1, "x"], sampling=2),
            "r-2",
            "Expected `int`, got `str` - at `{}.sampling_params.stop_token_ids`",
            id="list",
        ),
        pytest.param(
            edited(8, 5), "r-2", "Expected `array`, got `int` - at `{}.sampling_params`", id="no sampling parameters"
        ),
        pytest.param(edited(9, 3), "r-2", "Expected `bool`, got `int` - at `{}.return_logprob`", id="top level"),
        pytest.param(edited(1, 5), None, "Expected `str`, got `int` - at `{}.rid`", id="invalid rid"),
        pytest.param(edited(0, "Nope"), "r-2", "Invalid value 'Nope' - at `$[0]`", id="unknown tag"),
        pytest.param(PINNED["generate, full"][:40], None, "Input data was truncated", id="truncated"),
        pytest.param(b"", None, "Input data was truncated", id="empty"),
        pytest.param(
            b"\xc1", None, "MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)", id="not MessagePack"
        ),
        pytest.param(b"\xa1x", None, "Expected `array`, got `str`", id="not an array"),
    ],
)
def test_errors_name_the_field_and_the_request(frame: bytes, rid: str | None, problem: str) -> None:
    """
    The error has the name of the field in the struct. It has the rid if the rid can be read.
    """
    with pytest.raises(wire.UndecodableRequest) as caught:
        wire.msgpack_decode_explained(frame)

    assert caught.value.rid == rid
    assert caught.value.problem == problem.format("TokenizedGenerateReqInput")
    assert str(caught.value) == f"undecodable request: {caught.value.problem}"


def test_unknown_fields_at_the_end_are_ignored() -> None:
    """
    A newer frontend may send more fields.
    """
    message = [*msgspec.msgpack.decode(PINNED["generate, full"]), "future field"]

    assert wire.msgpack_decode_explained(msgspec.msgpack.encode(message)) == FULL


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (wire.FlushCacheReqOutput(success=True, message="done"), {"success": True, "message": "done"}),
        (
            wire.AbortReq(rid="r"),
            dict(zip(wire.AbortReq.__struct_fields__, ["r", None, False, None, None], strict=True)),
        ),
        ({"path": Path("/x"), "number": 1 + 2j}, {"path": "/x", "number": "(1+2j)"}),
    ],
)
def test_control_results_are_maps(output: Any, expected: dict[str, Any]) -> None:
    """
    A struct is encoded as a map by field names. A value without a MessagePack type is encoded as text.
    """
    assert expected == msgspec.msgpack.decode(wire.encode_control_result(output))


VALUES = st.one_of(st.none(), st.floats(width=32))
PAIR_LISTS = st.lists(st.tuples(VALUES, st.integers(-(2**31), 2**31 - 1)), max_size=3)
EXTRAS = st.builds(
    Extras,
    **{name: st.lists(PAIR_LISTS, max_size=3) if is_ragged else PAIR_LISTS for name, is_ragged in PAIRS},
    hidden=st.lists(st.lists(st.floats(width=32), max_size=3), max_size=3),
)
STEPS = st.builds(
    Step,
    rid=st.text(max_size=4),
    output_ids=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4) | st.just(()),
    prompt_tokens=st.integers(0, 2**31),
    finish=st.none() | st.just({"type": "length", "length": 3}),
    extras=st.none() | EXTRAS,
)


def as_read(step: Step) -> tuple[str, list[int], object, int, dict[str, Any]]:
    """
    Return *step* in the form of `read_batch`.
    """
    extras = {}
    for name in step.extras.__slots__ if step.extras else ():
        if items := getattr(step.extras, name):
            extras[name] = with_nan(items)
    return step.rid, list(step.output_ids), step.finish, step.prompt_tokens, extras


def with_nan(value: Any) -> Any:
    """
    Return *value* with each `None` replaced by NaN.
    """
    if isinstance(value, list | tuple):
        return type(value)(map(with_nan, value))
    return math.nan if value is None else value


@settings(deadline=None)  # must not fail on a busy machine
@given(st.lists(STEPS, max_size=5))
def test_batches_are_read_as_they_were_written(steps: list[Step]) -> None:
    """
    A batch has 4 or 16 columns, and the independent reader gets the same values; `None` becomes NaN.
    """
    header, columns = wire.encode_decode_batch(steps)

    assert len(msgspec.msgpack.decode(header)) == (16 if any(step.extras for step in steps) else 4)
    # Compare the text, because NaN does not equal itself.
    assert repr(list(map(as_read, steps))) == repr(read_batch(header, b"".join(columns)))


def test_unused_extras_are_left_out() -> None:
    """
    A kind of extras that no request uses adds only empty lists to the header, and no data.
    """
    header, columns = wire.encode_decode_batch([Step("a", [1], 3, None, Extras(output=[(0.0, 1)])), Step("b", [2], 3)])

    assert msgspec.msgpack.decode(header) == [["a", "b"], [None, None], [3, 3], [1, 1], [1, 0], *([[]] * 11)]
    assert list(map(len, columns)) == [8, 4, 4]


def test_a_token_over_32_bits_is_refused() -> None:
    """
    The token must not be truncated to another token.
    """
    with pytest.raises(OverflowError):
        wire.encode_decode_batch([Step("r", [1 << 31], 1)])


def test_extras_are_extended_and_cut() -> None:
    """
    Output values are cut with their tokens. Prompt values are kept.
    """
    extras = Extras(output=[(0.0, 1)], input=[(None, 4), (0.0, 5)], output_top=[[(0.0, 1)]], hidden=[[1.0]])
    extras.extend(Extras(output=[(0.0, 2), (0.0, 3)], output_top=[[], []], hidden=[[2.0], [3.0]]))
    extras.cut(2)

    assert extras == Extras(
        output=[(0.0, 1), (0.0, 2)], input=[(None, 4), (0.0, 5)], output_top=[[(0.0, 1)], []], hidden=[[1.0], [2.0]]
    )
