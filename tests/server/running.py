"""
The program itself, in a process of its own, and a client that speaks plain HTTP to it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds after which nothing comes any more.
PATIENCE = 60


class Program:
    """
    A server that says it is ready.
    """

    def __init__(self, process: subprocess.Popen[str], log: IO[str]) -> None:
        self.process = process
        self._log = log
        assert process.stdout is not None
        self.line = process.stdout.readline()
        found = re.search(r"serving \S+ on http://(\S+):(\d+)$", self.line)
        assert found, f"no address in {self.line!r}; its log:\n{self.log}"
        self.host, self.port = found[1].strip("[]"), int(found[2])

    @property
    def log(self) -> str:
        """
        What it wrote to stderr.
        """
        self._log.seek(0)
        return self._log.read()

    def connected(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """
        Status and body of an answer; the body is JSON, if it is.
        """
        with contextlib.closing(self.connected()) as connection:
            self._send(connection, method, path, body)
            answer = connection.getresponse()
            return answer.status, _json_or_text(answer.read().decode())

    def generate(self, **body: object) -> tuple[int, Any]:
        return self.ask("POST", "/generate", body)

    def opened(self, **body: object) -> http.client.HTTPConnection:
        """
        A connection on which a generation was asked for.
        """
        connection = self.connected()
        self._send(connection, "POST", "/generate", body)
        return connection

    def stream(self, **body: object) -> list[Any]:
        """
        The events of a stream.
        """
        with contextlib.closing(self.opened(stream=True, **body)) as connection:
            answer = connection.getresponse()
            assert (answer.status, answer.headers.get_content_type()) == (200, "text/event-stream")
            return events(answer.read().decode())

    @staticmethod
    def _send(connection: http.client.HTTPConnection, method: str, path: str, body: object) -> None:
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)

    def end(self, number: int = signal.SIGTERM) -> int:
        """
        Send it a signal and wait; its exit code.
        """
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def events(text: str) -> list[Any]:
    """
    What the events of a stream hold.
    """
    return [_json_or_text(event.removeprefix("data: ")) for event in text.split("\n\n") if event]


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@contextlib.contextmanager
def program(*arguments: str, **script: object) -> Iterator[Program]:
    """
    A program that serves the echo with *script* on a free port. It has ended when this does.
    """
    command = [
        sys.executable,
        "-m",
        "sglang.srt.rust_server",
        "--port",
        "0",
        "--engine-args",
        json.dumps(script),
        *arguments,
    ]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield Program(process, log)
        finally:
            process.kill()
