"""
`_multimodal.common.fetch_bytes` returns the bytes of a source, or raises a `ValueError` with the cause.
"""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from missing_path import ABSENT
from sglang.srt.rust_extensions._multimodal import common

BODY = bytes(range(256)) * 100
SECRET = "hunter2"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

Source: TypeAlias = Callable[[str, Path], str]


class Handler(BaseHTTPRequestHandler):
    """
    The path of the request determines the response.
    """

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith("http://"):
            self.answer(200, b"forwarded")
        elif path == "/moved":
            self.answer(302, b"", Location="/image")
        elif path == "/out":
            self.answer(302, b"", Location="file:///etc/passwd")
        elif path == "/image":
            self.answer(200, BODY)
        else:
            self.answer(int(path[1:]), b"")

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Removes proxy settings from the environment, and sets a long timeout.
    """
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("REQUEST_TIMEOUT", "60")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """
    A server on a thread of this process; it can respond only while `fetch_bytes` releases the interpreter lock.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda server, _: f"http://{server}/image", id="URL"),
        pytest.param(lambda server, _: f"http://{server}/moved", id="redirect"),
        pytest.param(lambda _, path: str(path), id="path"),
        pytest.param(lambda _, path: path.as_uri(), id="file URL"),
        pytest.param(
            lambda _, path: f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}", id="data URL"
        ),
        pytest.param(lambda _, path: base64.b64encode(path.read_bytes()).decode(), id="base64"),
    ],
)
def test_every_kind_of_source_gives_the_same_bytes(source: Source, server: str, tmp_path: Path) -> None:
    """
    Every kind gives the same content hash too.
    """
    path = tmp_path / "image"
    path.write_bytes(BODY)

    fetched = common.fetch_bytes(source(server, path))

    assert fetched == BODY
    assert common.content_hash(fetched) == common.content_hash(BODY)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(
            "http://u:hunter2@{server}/403?q=hunter2",
            "^media fetch: GET http://{server}: status 403 Forbidden$",
            id="forbidden",
        ),
        pytest.param("http://{server}/404", "^media fetch: GET http://{server}: status 404 Not Found$", id="not found"),
        pytest.param(
            "http://{server}/204",
            "^media fetch: GET http://{server}: status 204 No Content with an empty body$",
            id="empty",
        ),
        pytest.param("http://{server}/out", "redirect to a `file:` URL is refused$", id="redirect to a file"),
        pytest.param("http://[::1", "^media fetch: malformed URL: ", id="malformed URL"),
        pytest.param(ABSENT, f"^media fetch: read {ABSENT}: No such file", id="missing file"),
        pytest.param("file:///dev/zero", "^media fetch: /dev/zero: exceeds 67108864 bytes$", id="endless file"),
        pytest.param("/", "^media fetch: read /: not a regular file$", id="a folder"),
        pytest.param("data:image/png;base64", "malformed data: URL", id="no comma"),
        pytest.param("data:image/png;base64,Zg", "base64 decode error: ", id="bad base64"),
        pytest.param("images/a.png", "base64 decode error: ", id="relative path"),
    ],
)
def test_error_has_the_cause_and_no_secrets(source: str, message: str, server: str) -> None:
    """
    A failed fetch raises `ValueError`. The message contains neither credentials nor query of the URL.
    """
    with pytest.raises(ValueError, match=message.replace("{server}", server)) as caught:
        common.fetch_bytes(source.replace("{server}", server))

    assert SECRET not in str(caught.value)


def test_request_timeout_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A server that does not respond causes a timeout; the message names the variable.
    """
    monkeypatch.setenv("REQUEST_TIMEOUT", "1")
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ValueError, match=r"timed out after 1s \(REQUEST_TIMEOUT\)$"),
    ):
        common.fetch_bytes(f"http://127.0.0.1:{silent.getsockname()[1]}/")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, BODY, id="none"),
        pytest.param({"HTTP_PROXY": "http://{server}"}, b"forwarded", id="proxy"),
        pytest.param({"http_proxy": "http://{server}", "no_proxy": "127.0.0.0/8"}, BODY, id="bypassed"),
        pytest.param(
            {"http_proxy": "http://{server}", "no_proxy": "", "NO_PROXY": "*"}, b"forwarded", id="empty is set"
        ),
    ],
)
def test_proxies_come_from_the_environment(
    variables: dict[str, str], expected: bytes, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The proxy variables are read at each call.
    """
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("{server}", server))

    assert expected == common.fetch_bytes(f"http://{server}/image")


def test_source_must_be_a_string() -> None:
    """
    Bytes, `Path` objects and None raise `TypeError`.
    """
    untyped: Any = common
    for source in (b"/etc/hostname", Path("/etc/hostname"), None):
        with pytest.raises(TypeError):
            untyped.fetch_bytes(source)
