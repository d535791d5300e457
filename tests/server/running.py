"""
Helpers: run the program in a process, and send HTTP requests to it.
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

#: Timeout of every wait, in seconds.
TIMEOUT = 60


class Program:
    """
    A running server. It is ready when this object exists.
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
        The text that the process has written to stderr.
        """
        self._log.seek(0)
        return self._log.read()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """
        Send a request. Return status and body; the body is decoded if it is JSON.
        """
        with contextlib.closing(self.connect()) as connection:
            self._send(connection, method, path, body)
            answer = connection.getresponse()
            return answer.status, _json_or_text(answer.read().decode())

    def generate(self, **body: object) -> tuple[int, Any]:
        return self.ask("POST", "/generate", body)

    def start_generation(self, **body: object) -> http.client.HTTPConnection:
        """
        Send a generation request, and return the connection without reading the answer.
        """
        connection = self.connect()
        self._send(connection, "POST", "/generate", body)
        return connection

    def stream(self, **body: object) -> list[Any]:
        """
        Return the events of a streamed generation.
        """
        with contextlib.closing(self.start_generation(stream=True, **body)) as connection:
            answer = connection.getresponse()
            assert (answer.status, answer.headers.get_content_type()) == (200, "text/event-stream")
            return events(answer.read().decode())

    @staticmethod
    def _send(connection: http.client.HTTPConnection, method: str, path: str, body: object) -> None:
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)

    def end(self, number: int = signal.SIGTERM) -> int:
        """
        Send a signal, wait until the process ends, and return the exit code.
        """
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


def events(text: str) -> list[Any]:
    """
    Return the data of the events of a stream.
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
    Serve the echo engine with *script* on a free port. The process is killed at the end.
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
