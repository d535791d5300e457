"""
Failures of a remote: each is one error of one line within the time limit, and leaves no partial library.

The tests use a local server and the real S3 client. The server answers requests for some keys with a fault.
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
from eventually import PATIENCE
from object_server import URL, ObjectServer

from rust_ext_loader.cache import _store
from rust_ext_loader.declare._project import RemoteSettings
from rust_ext_loader.facts._fingerprint import Fingerprint
from rust_ext_loader.remote import _entries, _object_store, _signature
from rust_ext_loader.remote._entries import Answer, Wanted
from rust_ext_loader.remote._object_store import RemoteFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rust_ext_loader.remote._signature import Signer

MODULE = "fx.alpha"
FACTS = Fingerprint({"source/src/lib.rs": "aa", "abi/tag": "cp311"})
BYTES = b"library of alpha" * 1000
#: Limit in seconds after which a hanging request is abandoned. Other requests are answered much earlier.
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
        return _entries.publish(self.settings, self.signer, self.entry, seconds)

    def ask(self, seconds: float = LIMIT) -> Answer:
        return _entries.look_up(self.settings, Wanted(MODULE, FACTS, lambda _: True), self.received, seconds)


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


def test_a_published_entry_is_found(remote: Remote) -> None:
    """
    A published entry is found over S3's protocol with three requests: a listing, the entry, the library.
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
    The text of the error or of the refusal.
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
@pytest.mark.parametrize("fault", ["hangs", "trickles", "drops", "half", "garbage", "endless", "403", "500", "503"])
def test_a_fault_of_the_server_causes_one_error(remote: Remote, fault: str, place: str) -> None:
    """
    Every fault of the server ends in an error or a refusal within the limit, and no library file is created.
    """
    remote.publish()
    remote.server.faults[place] = fault
    began = time.monotonic()

    message = outcome(remote)

    assert message
    assert "\n" not in message
    assert time.monotonic() - began < LIMIT + _object_store._GRACE + 1.0
    assert not remote.received.exists()


@pytest.mark.parametrize("place", [".json", "/libraries/"])
def test_a_deleted_object_is_a_miss(remote: Remote, place: str) -> None:
    """
    404 is a miss: a clean-up of the bucket may delete objects in any order.
    """
    remote.publish()
    remote.server.faults[place] = "404"

    assert remote.ask() == Answer(None, ())


def test_a_missing_bucket_is_a_failure(remote: Remote) -> None:
    """
    404 for a listing means that the bucket does not exist: the setting is wrong, and no entry would ever be found.
    """
    remote.server.faults["/entries/"] = "404"

    with pytest.raises(RemoteFailed, match="404"):
        remote.ask()


@pytest.mark.parametrize("fault", ["hangs", "drops", "403", "500"])
@pytest.mark.parametrize("place", ["/libraries/", ".json"])
def test_a_failed_publication_leaves_no_entry(remote: Remote, place: str, fault: str) -> None:
    """
    The entry is written last, so no entry without a library can be found.
    """
    remote.server.faults[place] = fault

    with pytest.raises(RemoteFailed):
        remote.publish(LIMIT)

    assert [key for key in remote.server.objects if key.endswith(".json")] == []


def test_an_unreachable_server_is_a_failure(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A closed port or an unknown host is an error within the limit.
    """
    for place in ("http://127.0.0.1:1", "http://no-such-host.invalid"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", place)
        with pytest.raises(RemoteFailed):
            remote.ask()


def test_a_remote_can_be_asked_in_a_coroutine(remote: Remote) -> None:
    """
    Imports happen inside coroutines, whose thread cannot run a second event loop.
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
        return _object_store.run_with_limit(1.0, sys.argv[1], lambda bucket: bucket.names("artifacts", 9))
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
    The output of a process that ends by itself with exit code 0.
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


def test_a_process_ends_although_its_request_hangs(remote: Remote) -> None:
    """
    An abandoned request neither delays the exit of the interpreter nor raises during the exit.
    """
    remote.server.faults["artifacts"] = "hangs"

    assert run(_ASK) == ["no answer within 1 s"]


def test_a_forked_process_does_not_ask(remote: Remote) -> None:
    """
    The client's threads do not survive a fork. A request in the child would time out, and block its exit.
    """
    assert run(_ASK_IN_A_FORK) == [
        "[]",
        "this process was forked from one that used the remote, so it cannot use the remote",
        "0",
    ]
    assert remote.server.count("LIST", "artifacts") == 1
