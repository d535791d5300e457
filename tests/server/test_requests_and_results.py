"""
What a scheduler receives from a running `RustServer`, and where its results go.
"""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from fake_server import FakeServer, generate
from sglang.srt.rust_server import wire
from sglang.srt.rust_server.server import RustServer

if TYPE_CHECKING:
    from collections.abc import Sequence


def send_and_drain(server: RustServer, sent: Sequence[wire.Request], max_recv: int = 0) -> list[wire.Request]:
    server.server.send(*sent)  # type: ignore[attr-defined]
    return server.drain(max_recv)


def test_each_request_gets_its_own_tokens() -> None:
    """
    The token ids of all requests arrive in one buffer. Control messages have no tokens in it.
    """
    server = RustServer(FakeServer(), 1)  # type: ignore[arg-type]
    sent: list[wire.Request] = [
        generate("a", [1, 2]),
        wire.AbortReq(rid="x"),
        generate("b", []),
        wire.FlushCacheReq(rid="y"),
        generate("c", [2**40, 0]),
    ]

    received = send_and_drain(server, sent)

    assert received == sent
    assert [request.input_ids for request in received if isinstance(request, wire.TokenizedGenerateReqInput)] == [
        array("q", [1, 2]),
        array("q"),
        array("q", [2**40, 0]),
    ]
    assert server.drain() == []


@pytest.mark.parametrize(("max_recv", "expected"), [(2, 2), (0, 4), (-1, 4), (9, 5)])
def test_drain_takes_at_most_the_limit(max_recv: int, expected: int) -> None:
    """
    The limit is the argument, or the server's own limit.
    """
    server = RustServer(FakeServer(), 1, max_per_poll=4)  # type: ignore[arg-type]

    assert len(send_and_drain(server, [generate(str(number)) for number in range(5)], max_recv)) == expected


def test_undecodable_message_fails_only_its_own_request(caplog: pytest.LogCaptureFixture) -> None:
    """
    Its client gets an error, and the requests after it still get their own tokens.
    """
    fake = FakeServer()
    header = msgspec.msgpack.encode(["TokenizedGenerateReqInput", "bad", 5])
    fake.waiting += [(header, array("q", [7, 7, 7]).tobytes()), (b"\xc1", array("q", [8]).tobytes())]

    with caplog.at_level(logging.WARNING):
        received = send_and_drain(RustServer(fake, 1), [generate("good", [1])])  # type: ignore[arg-type]

    assert received == [generate("good", [1])]
    text = "undecodable request: Expected `str | null`, got `int` - at `TokenizedGenerateReqInput.http_worker_ipc`"
    assert fake.errors == {"bad": text}
    assert len(caplog.records) == 2


def test_media_results_are_taken_once_per_generation() -> None:
    """
    The subclass wraps each result. A request without a result gets none, and control messages are not asked for one.
    """

    class WithMedia(FakeServer):
        entries = {"a": 1, "x": 2}  # noqa: RUF012  # used by one test

        def take_mm_result(self, rid: str) -> int | None:
            return self.entries.pop(rid, None)

    class ModelServer(RustServer):
        def _wrap_mm_result(self, entry: Any) -> Any:
            return self.mm_spec, entry

    server = ModelServer(WithMedia(), 1, mm_spec="spec")  # type: ignore[arg-type]
    received = send_and_drain(server, [generate("a"), generate("b"), wire.AbortReq(rid="x")])

    assert [getattr(request, "mm_inputs", "none") for request in received] == [("spec", 1), None, "none"]
    assert WithMedia.entries == {"x": 2}


def test_results_reach_the_requests_they_belong_to() -> None:
    """
    A control result is sent as a map, a step as a frame. After a shutdown a push returns false.
    """
    fake = FakeServer()
    server = RustServer(fake, 1)  # type: ignore[arg-type]

    assert server.push_control_output(
        wire.FlushCacheReq(rid="f"), wire.FlushCacheReqOutput(success=True, message="done")
    )
    assert server.push_generation([wire.Step("g", [4, 5], 3)])
    server.shutdown()
    assert not server.push_generation([wire.Step("g", [6], 3)])
    assert fake.results == {"f": {"success": True, "message": "done"}}
    assert fake.pushed["g"].frames == [[4, 5], [6]]
    assert fake.pushed["g"].prompt_tokens == 3
