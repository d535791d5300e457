"""
A server that keeps the contract of the extension's `Server`, without a socket.

Tests put messages in and read what was pushed. What a scheduler pushes is read by an
independent, slow reader, which refuses what the real one refuses.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.server import RustServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: Columns that hold pairs of a logarithm and a token, in their order: whether each request has lists of them.
PAIRS = (
    ("output", False),
    ("input", False),
    ("output_top", True),
    ("input_top", True),
    ("output_ids", True),
    ("input_ids", True),
)


@dataclass
class Pushed:
    """
    What was said about one request.
    """

    #: Tokens of each frame.
    frames: list[list[int]] = field(default_factory=list)
    finish: Mapping[str, Any] | None = None
    prompt_tokens: int = 0
    extras: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [token for frame in self.frames for token in frame]


@dataclass
class Batch:
    """
    As `RequestBatch`.
    """

    headers: list[bytes]
    data: bytes
    lengths: list[int]


class FakeServer:
    """
    As `Server`.
    """

    def __init__(self, args: Any = None, **options: Any) -> None:
        self.args = args
        self.options = options
        self.address = ("127.0.0.1", 54321)
        self.waiting: deque[tuple[bytes, bytes]] = deque()
        self.pushed: dict[str, Pushed] = {}
        self.batches: list[list[str]] = []
        self.results: dict[str, Any] = {}
        self.errors: dict[str, str] = {}
        self.is_shut_down = False
        self.drain_deadlines: list[float | None] = []
        #: The most milliseconds of each wait.
        self.waits: list[int] = []
        #: Called when somebody waits and there is nothing.
        self.when_idle: Callable[[], None] = lambda: None
        #: Called when it is shut down, as clients would be waited for.
        self.while_draining: Callable[[], None] = lambda: None

    # What a test does.

    def send(self, *requests: wire.Request) -> None:
        for request in requests:
            ids = request.input_ids if isinstance(request, wire.TokenizedGenerateReqInput) else None
            bare = msgspec.structs.replace(request, input_ids=None) if ids is not None else request
            self.waiting.append((msgspec.msgpack.encode(bare), array("q", ids or ()).tobytes()))

    # What a scheduler does.

    def recv_requests(self, max: int = 256) -> Batch:  # noqa: A002  # the contract's name
        taken = [self.waiting.popleft() for _ in range(min(max, len(self.waiting)))]
        return Batch(
            [header for header, _ in taken], b"".join(ids for _, ids in taken), [len(ids) // 8 for _, ids in taken]
        )

    def wait_request(self, timeout_ms: int = 1000) -> bool:
        assert timeout_ms > 0
        self.waits.append(timeout_ms)
        if not self.waiting:
            self.when_idle()
        return bool(self.waiting)

    def push_decode_result_batch(self, header: bytes, data_cols: list[bytes]) -> bool:
        steps = read_batch(header, b"".join(data_cols))
        self.batches.append([rid for rid, *_ in steps])
        for rid, ids, finish, prompt_tokens, extras in steps:
            pushed = self.pushed.setdefault(rid, Pushed())
            assert pushed.finish is None, f"{rid} goes on after its end"
            pushed.frames.append(ids)
            pushed.finish = finish
            pushed.prompt_tokens = prompt_tokens
            if extras:
                pushed.extras.append(extras)
        return not self.is_shut_down

    def push_control_result(self, rid: str, payload: bytes) -> bool:
        assert rid not in self.results, f"{rid} is answered twice"
        self.results[rid] = msgspec.msgpack.decode(payload)
        return not self.is_shut_down

    def push_error(self, rid: str, message: str) -> bool:
        self.errors[rid] = message
        return not self.is_shut_down

    def shutdown(self, drain_deadline: float | None = None) -> None:
        self.drain_deadlines.append(drain_deadline)
        if not self.is_shut_down:
            self.while_draining()
            self.is_shut_down = True


def fake_extension() -> SimpleNamespace:
    """
    A module with `Server` and the types of its settings, which hold what they are given.
    """

    def settings(**given: Any) -> SimpleNamespace:
        return SimpleNamespace(**given)

    modes = SimpleNamespace(Null="Null mode", Prefill="Prefill mode", Decode="Decode mode")
    return SimpleNamespace(
        Server=FakeServer,
        ServerArgs=settings,
        ModelConfig=settings,
        DefaultSamplingParams=settings,
        FrontendConfig=settings,
        DisaggregationMode=modes,
        set_up_logging=lambda level: SimpleNamespace(level=level),
    )


def server_class(extension: Any) -> type[RustServer]:
    """
    A `RustServer` that launches what *extension* has.
    """

    class OfFake(RustServer):
        @classmethod
        def _load_extension(cls) -> Any:
            return extension

    return OfFake


def read_batch(header: bytes, data: bytes) -> list[tuple[str, list[int], Any, int, dict[str, Any]]]:
    """
    The steps of a batch, read as `WIRE.md` says: rid, tokens, reason, prompt tokens, extras that are not empty.
    """
    columns = msgspec.msgpack.decode(header)
    assert len(columns) in {4, 16}
    rids, finishes, prompts, lens = columns[:4]
    assert len(rids) == len(finishes) == len(prompts) == len(lens)
    numbers = struct.iter_unpack("<4s", data)

    def take(kind: str, count: int) -> list[Any]:
        return [struct.unpack(f"<{kind}", next(numbers)[0])[0] for _ in range(count)]

    tokens = _divided(take("i", sum(lens)), lens)
    extras: list[dict[str, Any]] = [{} for _ in rids]
    rest = iter(columns[4:])
    if len(columns) == 16:
        for name, is_ragged in (*PAIRS, ("hidden", True)):
            per_request = next(rest)
            assert len(per_request) in {0, len(rids)}
            per_position = next(rest) if is_ragged else None
            count = sum(per_request if per_position is None else per_position)
            found = take("f", count)
            if name != "hidden":
                found = list(zip(found, take("i", count), strict=True))
            if per_position is not None:
                assert sum(per_request) == len(per_position)
                found = _divided(found, per_position)
            for extra, items in zip(extras, _divided(found, per_request), strict=False):
                if items:
                    extra[name] = items
    assert next(numbers, None) is None, "data are left over"
    return list(zip(rids, tokens, finishes, prompts, extras, strict=True))


def _divided(items: Sequence[Any], lens: Iterable[int]) -> list[Any]:
    rest = iter(items)
    return [[next(rest) for _ in range(length)] for length in lens]


def generate(
    rid: str, ids: Sequence[int] = (1, 2, 3), *, sampling: Mapping[str, Any] | None = None, **rest: Any
) -> wire.TokenizedGenerateReqInput:
    """
    A request to go on from *ids*.
    """
    params = wire.SamplingParams(**(sampling or {}))
    return wire.TokenizedGenerateReqInput(rid=rid, input_ids=array("q", ids), sampling_params=params, **rest)
