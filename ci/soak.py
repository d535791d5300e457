"""
Soak test of the server: mixed load for some minutes, then its resources must be as before.

Concurrent clients of all kinds send requests to a server with the echo engine: unary, streamed
and lists of prompts. Some disconnect early, close their sending half, read slowly or send invalid
requests. Every answer is compared with its prompt. At the end no request may be live, and
descriptors, threads and memory must be about as low as after the warm-up.

Invariant: the choices depend on a seed, so that a run can be repeated. Faults are printed
and give exit code 1. Standard library only; run it with `.venv/bin/python`.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

#: Allowed growth. The allocator caches memory, and the log opens descriptors.
_MEMORY_MB, _DESCRIPTORS, _THREADS = 64, 4, 2

_TIMEOUT = 60
_ALPHABET = 'abc \n{}[]"\\é한👍\u2028'


class Server:
    """
    The server, in a separate process.
    """

    def __init__(self, arguments: list[str]) -> None:
        """
        Start it and wait until it listens.
        """
        command = [
            sys.executable,
            "-m",
            "sglang.srt.rust_server",
            "--engine",
            "echo",
            "--port",
            "0",
            "--log-level",
            "error",
            *arguments,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://([^/:]+):(\d+)", line)
        if found is None:
            raise SystemExit(f"the server did not start: it printed {line!r}")
        self.host, self.port = found[1], int(found[2])

    def state(self) -> dict[str, float]:
        """
        Return memory (MB), descriptors and threads of the process, and the number of live requests.
        """
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        numbers = {name: int(value) for name, value in re.findall(r"^(VmRSS|Threads):\s+(\d+)", status, re.MULTILINE)}
        descriptors = sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())
        return {
            "memory": numbers["VmRSS"] / 1024,
            "descriptors": descriptors,
            "threads": numbers["Threads"],
            "live": self.metric("sglang_requests_live"),
        }

    def metric(self, name: str) -> float:
        """
        Return one value of `/metrics`.
        """
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else float("nan")


class Client(threading.Thread):
    """
    A thread that sends requests until *stop* is set.
    """

    def __init__(self, server: Server, seed: int, stop: threading.Event) -> None:
        """
        Make a client whose choices depend on *seed*.
        """
        super().__init__(daemon=True)
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._server, self._stop_event = server, stop
        self._random = random.Random(seed)  # noqa: S311  # choices, not secrets

    def run(self) -> None:
        """
        Send one request after the other.
        """
        kinds = [
            self._unary,
            self._stream,
            self._list,
            self._disconnect,
            self._half_close,
            self._slow_reader,
            self._invalid,
            self._probe,
        ]
        while not self._stop_event.is_set():
            kind = self._random.choices(kinds, [8, 8, 4, 6, 2, 1, 3, 1])[0]
            name = kind.__name__.strip("_")
            try:
                kind()
            except (OSError, http.client.HTTPException, ValueError, KeyError, IndexError, AssertionError) as error:
                self.wrong.append(f"{name}: {type(error).__name__}: {error}")
            self.seen[name] += 1

    def _prompt(self) -> str:
        return "".join(self._random.choices(_ALPHABET, k=self._random.randint(1, 60)))

    def _ask(self, body: object, path: str = "/generate") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._server.host, self._server.port, timeout=_TIMEOUT)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer

    def _unary(self) -> None:
        prompt = self._prompt()
        status, data = self._ask({"text": prompt, "sampling_params": {"max_new_tokens": 1000}})
        if status == http.client.SERVICE_UNAVAILABLE:
            self.seen["status 503"] += 1
            return
        text = json.loads(data)["text"]
        assert text == prompt, f"{text!r} for {prompt!r}"

    def _list(self) -> None:
        prompts = [self._prompt() for _ in range(self._random.randint(1, 8))]
        status, data = self._ask({"text": prompts, "sampling_params": {"max_new_tokens": 1000}})
        if status == http.client.SERVICE_UNAVAILABLE:
            self.seen["status 503"] += 1
            return
        answers = [answer.get("text", answer.get("error")) for answer in json.loads(data)]
        assert answers == prompts or any(isinstance(answer, dict) for answer in answers), f"{answers!r} for {prompts!r}"

    def _stream(self) -> None:
        prompt = self._prompt()
        status, data = self._ask({"text": prompt, "stream": True, "sampling_params": {"max_new_tokens": 1000}})
        if status == http.client.SERVICE_UNAVAILABLE:
            self.seen["status 503"] += 1
            return
        events = data.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], f"ends with {events[-2:]!r}"
        text = json.loads(events[-3].removeprefix("data: "))["text"]
        assert text == prompt, f"{text!r} for {prompt!r}"

    def _open(self, body: object) -> socket.socket:
        data = json.dumps(body).encode()
        client = socket.create_connection((self._server.host, self._server.port), timeout=_TIMEOUT)
        head = (
            "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        client.sendall(head.encode() + data)
        return client

    def _disconnect(self) -> None:
        with contextlib.closing(
            self._open({"text": self._prompt() * 10, "stream": self._random.random() < 0.7})
        ) as client:
            if self._random.random() < 0.5:
                client.recv(self._random.randint(1, 400))

    def _half_close(self) -> None:
        prompt = self._prompt()
        with contextlib.closing(self._open({"text": prompt, "sampling_params": {"max_new_tokens": 1000}})) as client:
            client.shutdown(socket.SHUT_WR)
            answer = b""
            while part := client.recv(1 << 16):
                answer += part
        *_, head, body = answer.decode().split("\r\n\r\n")
        if " 503 " in head:
            self.seen["status 503"] += 1
            return
        text = json.loads(body)["text"]
        assert text == prompt, f"{text!r} for {prompt!r}"

    def _slow_reader(self) -> None:
        with contextlib.closing(self._open({"text": self._prompt() * 5, "stream": True})) as client:
            for _ in range(20):
                if not client.recv(16) or self._stop_event.wait(0.01):
                    break

    def _invalid(self) -> None:
        bodies = [
            b"{",
            b"[]",
            b"\xff",
            {"text": 1},
            {"input_ids": [10**9]},
            {"text": "a", "sampling_params": {"top_p": 9}},
            {},
        ]
        status, data = self._ask(self._random.choice(bodies))
        assert status == http.client.BAD_REQUEST, f"status {status}"
        assert json.loads(data)["error"]["code"] == status

    def _probe(self) -> None:
        connection = http.client.HTTPConnection(self._server.host, self._server.port, timeout=_TIMEOUT)
        connection.request("GET", self._random.choice(["/health", "/health_generate", "/server_info"]))
        status = connection.getresponse().status
        connection.close()
        assert status == http.client.OK, f"status {status}"


def main() -> int:
    """
    Warm up, soak, compare; return 1 if something is wrong.
    """
    parser = argparse.ArgumentParser(description="Put mixed load on the server, then compare its resources.")
    parser.add_argument("--minutes", type=float, default=20.0, help="length of the load (default: 20)")
    parser.add_argument("--clients", type=int, default=32, help="number of concurrent clients (default: 32)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all choices (default: 1)")
    options = parser.parse_args()
    server = Server(["--max-queued-requests", "64"])
    try:
        _load(server, min(options.minutes * 12, 20), options.clients, options.seed)
        before = _settled(server)
        seen, wrong = _load(server, options.minutes * 60, options.clients, options.seed + 1000)
        after = _settled(server)
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(_TIMEOUT)
    finally:
        server.process.kill()
    return _report(before, after, seen, wrong, code)


def _load(server: Server, seconds: float, clients: int, seed: int) -> tuple[Counter[str], list[str]]:
    stop = threading.Event()
    crowd = [Client(server, seed + at, stop) for at in range(clients)]
    for client in crowd:
        client.start()
    stop.wait(seconds)
    stop.set()
    for client in crowd:
        client.join(_TIMEOUT * 2)
    seen: Counter[str] = Counter()
    for client in crowd:
        seen.update(client.seen)
    hanging = [f"client {at} hangs" for at, client in enumerate(crowd) if client.is_alive()]
    return seen, hanging + [fault for client in crowd for fault in client.wrong]


def _settled(server: Server) -> dict[str, float]:
    """
    Wait, at most a minute, until no request is live and the number of descriptors no longer falls; return the state.
    """
    deadline = time.monotonic() + _TIMEOUT
    state = server.state()
    while time.monotonic() < deadline:
        time.sleep(1)
        last, state = state, server.state()
        if state["live"] == 0 and state["descriptors"] >= last["descriptors"]:
            break
    return state


def _report(before: dict[str, float], after: dict[str, float], seen: Counter[str], wrong: list[str], code: int) -> int:
    limits = {"memory": _MEMORY_MB, "descriptors": _DESCRIPTORS, "threads": _THREADS, "live": 0}
    print(f"requests: {sum(seen.values())} ({', '.join(f'{name} {count}' for name, count in sorted(seen.items()))})")
    for name, limit in limits.items():
        grown = after[name] - before[name]
        verdict = "ok" if grown <= limit else "GROWN"
        print(f"{name:<12} {before[name]:8.1f} -> {after[name]:8.1f}   limit +{limit:<4} {verdict}")
    print(f"exit code    {code}")
    for fault in wrong[:20]:
        print(f"wrong: {fault}")
    print(f"{len(wrong)} fault(s)")
    good = not wrong and code == 0 and all(after[name] - before[name] <= limit for name, limit in limits.items())
    return 0 if good and after["live"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
