"""
A small object store on this host that speaks the S3 protocol. Tests can make it fail.
"""

from __future__ import annotations

import contextlib
import http.server
import threading
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUCKET = "bucket"
URL = f"s3://{BUCKET}/prefix"


class ObjectServer:
    """
    Objects in memory, and a log of all requests.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        #: Method and key of every request. A listing is `LIST` and its prefix.
        self.requests: list[tuple[str, str]] = []
        #: Part of a key -> the fault of requests for it: a status code, or a name that `_fail` knows.
        self.faults: dict[str, str] = {}
        #: When set, hanging requests end.
        self.released = threading.Event()
        handler = type("Handler", (_Handler,), {"store": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def variables(self) -> dict[str, str]:
        """
        Variables that direct S3 clients to this server.
        """
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "NO_PROXY": "127.0.0.1",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
        }

    def count(self, method: str, part: str) -> int:
        """
        The number of requests with this method and this part in the key.
        """
        return sum(1 for done, key in self.requests if done == method and part in key)

    def fault_of(self, key: str) -> str | None:
        """
        The fault for a key, if any.
        """
        return next((fault for part, fault in self.faults.items() if part in key), None)

    @contextlib.contextmanager
    def serving(self) -> Iterator[ObjectServer]:
        """
        Serve until the end of the block.
        """
        self._thread.start()
        try:
            yield self
        finally:
            self.released.set()
            self._server.shutdown()
            self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectServer

    def do_GET(self) -> None:
        key, query = self._asked()
        if not key and "list-type" in query:
            prefix = query.get("prefix", [""])[0]
            self._behave("LIST", prefix, lambda: self._answer(200, _listing(self.store.objects, prefix)))
        else:
            self._behave("GET", key, lambda: self._object(key))

    def do_HEAD(self) -> None:
        key, _ = self._asked()
        self._behave("HEAD", key, lambda: self._object(key))

    def do_PUT(self) -> None:
        key, _ = self._asked()
        content = self.rfile.read(int(self.headers["Content-Length"]))

        def put() -> None:
            self.store.objects[key] = content
            self._answer(200, b"")

        self._behave("PUT", key, put)

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/"), parse_qs(parts.query)

    def _behave(self, method: str, key: str, properly: Callable[[], None]) -> None:
        self.store.requests.append((method, key))
        fault = self.store.fault_of(key)
        if fault is None:
            properly()
        elif fault.isdigit():
            self._answer(int(fault), b"<Error><Code>Fault</Code><Message>requested</Message></Error>")
        else:
            # The client may close the connection first.
            with contextlib.suppress(OSError):
                self._fail(fault)
            self.close_connection = True

    def _fail(self, fault: str) -> None:
        released = self.store.released
        if fault == "hangs":
            released.wait()
        elif fault == "trickles":
            # Sends a byte from time to time and never completes.
            self._answer(200, b"", length=1 << 20)
            while not released.wait(0.05):
                self.wfile.write(b" ")
        else:
            content, length = {
                "drops": (None, 0),
                "half": (b"<half", 1000),
                "garbage": (b"<<<\xff", 4),
                "endless": (b"x" * 4096, 1 << 50),
            }[fault]
            if content is not None:
                self._answer(200, content, length)

    def _object(self, key: str) -> None:
        content = self.store.objects.get(key)
        if content is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._answer(200, content)

    def _answer(self, status: int, content: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", '"tag"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name that the base class gave it
        pass


def _listing(objects: dict[str, bytes], prefix: str) -> bytes:
    found = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>&quot;tag&quot;</ETag><Size>{len(content)}</Size></Contents>"
        for key, content in sorted(objects.items())
        if key.startswith(prefix)
    )
    return f'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>'.encode()
