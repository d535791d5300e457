"""
The program under overload, and its shutdown with a request in every phase.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import signal
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from eventually import eventually
from running import TIMEOUT, Program, program

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENTS = 4000
PROMPT = "twenty-four characters!!"


def request(body: object, path: str = "/generate") -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def metric(running: Program, name: str) -> float:
    status, text = running.ask("GET", "/metrics")
    assert status == 200
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


def descriptors(running: Program) -> int:
    return sum(1 for _ in Path(f"/proc/{running.process.pid}/fd").iterdir())


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """
    Raise the limit of open descriptors of this process and its children. Yield the number of possible connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = CLIENTS + 512 if hard == resource.RLIM_INFINITY else min(hard, CLIENTS + 512)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    yield max(soft, most) - 256
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def ask(running: Program, *, stream: bool) -> tuple[int, str]:
    """
    Send one request. Return the status and the text of the answer.
    """
    reader, writer = await asyncio.open_connection(running.host, running.port)
    writer.write(request({"text": PROMPT, "stream": stream, "sampling_params": {"max_new_tokens": 100}}))
    answer = (await asyncio.wait_for(reader.read(), TIMEOUT * 5)).decode()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return int(answer.split(" ", 2)[1]), answer


async def ask_all(running: Program, at_once: int) -> list[tuple[int, str]]:
    """
    Send the requests of all clients, at most *at_once* at the same time. Return the answers.
    """
    room = asyncio.Semaphore(at_once)

    async def one(number: int) -> tuple[int, str]:
        async with room:
            return await ask(running, stream=number % 2 == 0)

    return await asyncio.gather(*map(one, range(CLIENTS)))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are counted in /proc")
def test_every_client_gets_an_answer_under_overload(many_descriptors: int) -> None:
    """
    128 requests run and 96 wait; all others get 503 at once. No descriptor leaks, and the server is always healthy.
    """
    with program(
        "--max-running-requests", "128", "--max-queued-requests", "96", "--log-level", "warning", delay=0.002
    ) as running:
        assert running.generate(text="warm")[0] == 200
        before = descriptors(running)
        done = threading.Event()
        probes: list[int] = []

        def probe() -> None:
            while not done.wait(0.05):
                probes.append(running.ask("GET", "/health")[0])

        prober = threading.Thread(target=probe)
        prober.start()
        answers = asyncio.run(ask_all(running, many_descriptors))
        done.set()
        prober.join(TIMEOUT)

        assert len(answers) == CLIENTS
        statuses = Counter(status for status, _ in answers)
        assert set(statuses) == {200, 503}, statuses
        assert statuses[200] >= 128 + 96
        for status, answer in answers:
            if status == 200:
                assert f'"text":"{PROMPT}"' in answer, answer
            else:
                assert "\r\nretry-after: " in answer.lower(), answer
                assert '"code":503' in answer
        assert set(probes) == {200}
        # A descriptor is closed shortly after its answer was sent.
        eventually(
            lambda: descriptors(running) <= before + 2 and metric(running, "sglang_requests_live") == 0,
            "the descriptors are closed and no request is live",
        )
        assert metric(running, "sglang_requests_aborted_total") == 0
        assert running.generate(text=PROMPT)[0] == 200
        assert running.end() == 0, running.log


class Phases:
    """
    One client in each phase of a request. The server runs one request at a time.
    """

    def __init__(self, running: Program, tokens: int) -> None:
        self._running = running
        more = {"ignore_eos": True, "max_new_tokens": tokens}
        self.decoding = self._sent(request({"text": "a", "stream": True, "sampling_params": more}))
        self.decoding.recv(1)
        self.queued = self._sent(request({"text": "b", "sampling_params": more}))
        self.silent = self._sent(b"")
        self.half_head = self._sent(b"POST /generate HTTP/1.1\r\nHos")
        self.half_body = self._sent(request({"text": "c"})[:-3])
        self.idle = self._sent(b"GET /model_info HTTP/1.1\r\nHost: x\r\n\r\n")
        self.idle.recv(1 << 16)
        eventually(lambda: metric(running, "sglang_requests_live") == 2, "two requests are live")

    def _sent(self, data: bytes) -> socket.socket:
        client = socket.create_connection((self._running.host, self._running.port), TIMEOUT)
        client.sendall(data)
        return client

    def others(self) -> list[socket.socket]:
        """
        The clients without an admitted request.
        """
        return [self.silent, self.half_head, self.half_body, self.idle]


def rest_of(client: socket.socket) -> str:
    """
    Read to the end. The end may be a reset, because the server does not read the rest of a request.
    """
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            parts.append(part)
    client.close()
    return b"".join(parts).decode()


def test_a_signal_with_a_request_in_every_phase() -> None:
    """
    Admitted requests are answered completely, incomplete requests are dropped, new connections are refused.
    """
    with program("--max-running-requests", "1", "--drain-deadline", "30", delay=0.01) as running:
        phases = Phases(running, tokens=50)
        running.process.send_signal(signal.SIGTERM)

        stream = rest_of(phases.decoding)
        answer = rest_of(phases.queued)
        assert "data: [DONE]" in stream, stream
        assert answer.startswith("HTTP/1.1 200"), answer
        assert '"completion_tokens":50' in answer
        for client in phases.others():
            assert '"text":' not in rest_of(client)
        assert running.process.wait(TIMEOUT) == 0, running.log
        with pytest.raises(OSError):  # noqa: PT011  # refused or reset
            running.generate(text="x")


def test_a_deadline_with_a_request_in_every_phase() -> None:
    """
    Open requests get an error at the deadline: as a status, or as the last event of a stream that has begun.
    """
    with program("--max-running-requests", "1", "--drain-deadline", "0.3", delay=0.01) as running:
        phases = Phases(running, tokens=20_000)
        running.process.send_signal(signal.SIGTERM)

        stream = rest_of(phases.decoding)
        answer = rest_of(phases.queued)
        assert "[DONE]" not in stream
        assert '"error"' in stream.split("data: ")[-1], stream[-300:]
        assert answer.startswith("HTTP/1.1 503"), answer
        for client in phases.others():
            rest_of(client)
        assert running.process.wait(TIMEOUT) == 0, running.log


def test_two_signals_with_a_request_in_every_phase() -> None:
    """
    The second signal ends the process at once.
    """
    with program("--max-running-requests", "1", "--drain-deadline", "600", delay=0.01) as running:
        phases = Phases(running, tokens=20_000)
        running.process.send_signal(signal.SIGTERM)
        eventually(lambda: "shutting down" in running.log, "the log says that the server shuts down")
        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(TIMEOUT) == 128 + signal.SIGTERM
        for client in [phases.decoding, phases.queued, *phases.others()]:
            assert "[DONE]" not in rest_of(client)
