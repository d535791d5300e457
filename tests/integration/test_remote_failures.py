"""
A remote that misbehaves: a failure of one kind with one line of text, within its limit, and never half a library.

A real server and the real client of S3; whatever the server does, it does it at the place that a row names.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import ROOT
from object_server import URL, ObjectServer
from processes import PATIENCE

from rust_ext_loader.cache import _store
from rust_ext_loader.declare._project import RemoteSettings
from rust_ext_loader.facts._fingerprint import Fingerprint
from rust_ext_loader.remote import _object_store, _remote, _signature
from rust_ext_loader.remote._object_store import RemoteFailed
from rust_ext_loader.remote._remote import Answer, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rust_ext_loader.remote._signature import Signer

MODULE = "fx.alpha"
FACTS = Fingerprint({"source/src/lib.rs": "aa", "abi/tag": "cp311"})
BYTES = b"library of alpha" * 1000
#: Seconds; what hangs is given up by then, and what answers does so long before.
LIMIT = 1.0


@dataclass
class Remote:
    server: ObjectServer
    signer: Signer
    entry: _store.Entry
    received: Path

    @property
    def settings(self) -> RemoteSettings:
        return RemoteSettings(URL, (self.signer.public_key,))

    def publish(self, seconds: float = 60.0) -> bool:
        return _remote.publish(self.settings, self.signer, self.entry, seconds)

    def ask(self, seconds: float = LIMIT) -> Answer:
        return _remote.look_up(self.settings, Wanted(MODULE, FACTS, lambda _: True), self.received, seconds)


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    artifact = tmp_path / "artifact"
    artifact.write_bytes(BYTES)
    origin = _store.Origin("1.95.0", "cp311", None, 1000.0, 1.0, None)
    entry = _store.publish(tmp_path / "cache", MODULE, FACTS, artifact, "alpha.so", origin)
    with ObjectServer().serving() as server:
        for name, value in server.variables().items():
            monkeypatch.setenv(name, value)
        yield Remote(server, _signature.new_private_key(str(tmp_path / "key")), entry, tmp_path / "received.so")


def test_an_object_store_keeps_what_it_is_given(remote: Remote) -> None:
    """
    Published and found again over S3's own protocol: a listing, the entry, the library, and nothing else.
    """
    assert remote.ask() == Answer(None, ())
    assert remote.publish()
    assert not remote.publish()
    remote.server.requests.clear()

    assert remote.ask().origin is not None
    assert remote.received.read_bytes() == BYTES
    assert [method for method, _ in remote.server.requests] == ["LIST", "GET", "GET"]


def outcome(remote: Remote) -> str:
    """
    What is said instead of a library.
    """
    try:
        answer = remote.ask()
    except RemoteFailed as error:
        return str(error)
    assert answer.origin is None
    return "; ".join(answer.refused)


PLACES = [
    pytest.param("/entries/", id="listing and entry"),
    pytest.param(".json", id="entry"),
    pytest.param("/libraries/", id="library"),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mood", ["hangs", "trickles", "drops", "half", "garbage", "endless", "403", "500", "503"])
def test_whatever_it_does_nothing_comes_of_it(remote: Remote, mood: str, place: str) -> None:
    """
    A failure or a refusal, in time, and no library under its name.
    """
    remote.publish()
    remote.server.moods[place] = mood
    began = time.monotonic()

    said = outcome(remote)

    assert said
    assert "\n" not in said
    assert time.monotonic() - began < LIMIT + _object_store._GRACE + 1.0
    assert not remote.received.exists()


@pytest.mark.parametrize("place", [".json", "/libraries/"])
def test_what_is_gone_is_a_miss(remote: Remote, place: str) -> None:
    """
    404 is an answer: whoever tidies a bucket up takes objects away in any order.
    """
    remote.publish()
    remote.server.moods[place] = "404"

    assert remote.ask() == Answer(None, ())


def test_a_bucket_that_is_none_is_a_failure(remote: Remote) -> None:
    """
    A listing is empty or there is no such place: then the setting is wrong, and nothing would ever be found.
    """
    remote.server.moods["/entries/"] = "404"

    with pytest.raises(RemoteFailed, match="404"):
        remote.ask()


@pytest.mark.parametrize("mood", ["hangs", "drops", "403", "500"])
@pytest.mark.parametrize("place", ["/libraries/", ".json"])
def test_publishing_that_fails_says_so_and_leaves_no_entry(remote: Remote, place: str, mood: str) -> None:
    """
    An entry is there last, so nobody ever finds one that has no library.
    """
    remote.server.moods[place] = mood

    with pytest.raises(RemoteFailed):
        remote.publish(LIMIT)

    assert [key for key in remote.server.objects if key.endswith(".json")] == []


def test_nobody_listens(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No such port, no such host: a failure before the limit, or at it.
    """
    for place in ("http://127.0.0.1:1", "http://no-such-host.invalid"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", place)
        with pytest.raises(RemoteFailed):
            remote.ask()


def test_a_loop_that_is_running_is_no_obstacle(remote: Remote) -> None:
    """
    Imports happen inside coroutines too, whose thread can run no second loop.
    """
    remote.publish()

    async def ask() -> Answer:
        return remote.ask()

    assert asyncio.run(ask()).origin is not None


_ASK = """
import os, sys
from rust_ext_loader.remote import _object_store
def ask():
    try:
        return _object_store.within(1.0, sys.argv[1], lambda bucket: bucket.names("artifacts", 9))
    except _object_store.RemoteFailed as error:
        return str(error)
print(ask(), flush=True)
"""

_ASK_IN_A_FORK = f"""
{_ASK}
child = os.fork()
print(ask() if child == 0 else os.waitpid(child, 0)[1])
"""


def run(program: str) -> list[str]:
    """
    What a process said that ended by itself and well.
    """
    command = [sys.executable, "-W", "ignore", "-c", program, URL]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_process_ends_though_its_request_hangs(remote: Remote) -> None:
    """
    What was given up does not hold the interpreter, nor does it come back while that goes away.
    """
    remote.server.moods["artifacts"] = "hangs"

    assert run(_ASK) == ["no answer within 1 s"]


def test_a_fork_says_that_it_cannot_ask(remote: Remote) -> None:
    """
    The client's threads do not survive a fork: without asking, it would wait for the limit, and then for ever at its end.
    """
    assert run(_ASK_IN_A_FORK) == [
        "[]",
        "this process was forked from one that had asked already, and cannot ask again",
        "0",
    ]
    assert remote.server.count("LIST", "artifacts") == 1
