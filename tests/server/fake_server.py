"""
A fake of the extension's `Server`, without sockets.

Tests send messages to the scheduler and inspect the frames that it pushed. A simple, independent reader decodes the
frames. It refuses the same frames as the real reader.
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

#: Columns of (log-probability, token) pairs, in order, and whether each position has a list of pairs.
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
    The data that the scheduler pushed for one request.
    """

    #: The tokens of each frame.
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
    Fake of `RequestBatch`.
    """

    headers: list[bytes]
    data: bytes
    lengths: list[int]


class FakeServer:
    """
    Fake of `Server`.
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
        #: The timeout of each wait, in milliseconds.
        self.waits: list[int] = []
        #: Called when the scheduler waits and there is no message.
        self.when_idle: Callable[[], None] = lambda: None
        #: Called by `shutdown`, in place of the drain.
        self.while_draining: Callable[[], None] = lambda: None

    # For tests.

    def send(self, *requests: wire.Request) -> None:
        for request in requests:
            ids = request.input_ids if isinstance(request, wire.TokenizedGenerateReqInput) else None
            bare = msgspec.structs.replace(request, input_ids=None) if ids is not None else request
            self.waiting.append((msgspec.msgpack.encode(bare), array("q", ids or ()).tobytes()))

    # For the scheduler.

    def recv_requests(self, max: int = 256) -> Batch:  # noqa: A002  # the name in `Server`
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
            assert pushed.finish is None, f"a step for {rid} after its end"
            pushed.frames.append(ids)
            pushed.finish = finish
            pushed.prompt_tokens = prompt_tokens
            if extras:
                pushed.extras.append(extras)
        return not self.is_shut_down

    def push_control_result(self, rid: str, payload: bytes) -> bool:
        assert rid not in self.results, f"{rid} was answered twice"
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
    Return a fake extension module. Its settings types store their arguments.
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
    Return a `RustServer` class that uses the module *extension*.
    """

    class FakeExtensionServer(RustServer):
        @classmethod
        def _load_extension(cls) -> Any:
            return extension

    return FakeExtensionServer


def read_batch(header: bytes, data: bytes) -> list[tuple[str, list[int], Any, int, dict[str, Any]]]:
    """
    Decode a batch as `WIRE.md` describes it.

    Returns for each step: rid, tokens, finish reason, number of prompt tokens, non-empty extras.
    """
    columns = msgspec.msgpack.decode(header)
    assert len(columns) in {4, 16}
    rids, finishes, prompts, lens = columns[:4]
    assert len(rids) == len(finishes) == len(prompts) == len(lens)
    numbers = struct.iter_unpack("<4s", data)

    def take(kind: str, count: int) -> list[Any]:
        return [struct.unpack(f"<{kind}", next(numbers)[0])[0] for _ in range(count)]

    tokens = _split(take("i", sum(lens)), lens)
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
                found = _split(found, per_position)
            for extra, items in zip(extras, _split(found, per_request), strict=False):
                if items:
                    extra[name] = items
    assert next(numbers, None) is None, "unread data at the end of the batch"
    return list(zip(rids, tokens, finishes, prompts, extras, strict=True))


def _split(items: Sequence[Any], lens: Iterable[int]) -> list[Any]:
    rest = iter(items)
    return [[next(rest) for _ in range(length)] for length in lens]


def generate(
    rid: str, ids: Sequence[int] = (1, 2, 3), *, sampling: Mapping[str, Any] | None = None, **rest: Any
) -> wire.TokenizedGenerateReqInput:
    """
    Create a generation request for the prompt *ids*.
    """
    params = wire.SamplingParams(**(sampling or {}))
    return wire.TokenizedGenerateReqInput(rid=rid, input_ids=array("q", ids), sampling_params=params, **rest)
