"""
A cache that a team shares: two users of one group trust each other's entries, and no other user's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

TEAM, ONE, TWO, OTHER_TEAM = 12100, 12001, 12002, 12200

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be two users")

#: Imports everything before it changes the user: the interpreter may be readable by root only.
_MEMBER = """
import os, sys, time
from pathlib import Path
import filelock, json, hashlib
from rust_ext_loader import _record, _warm
from rust_ext_loader.cache import _gc, _roots, _store
from rust_ext_loader.files import _locks, _staging
from rust_ext_loader.facts._fingerprint import Fingerprint

user, group, root, place = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
os.umask(0o077)
os.setgroups([])
os.setgid(group)
os.setuid(user)
facts = Fingerprint({"source/lib.rs": "1", "request/module": "m"})
identity = _warm.identify("m", str(place), "auto", {}, [])

def found():
    return _store.look_up([root], "m", facts) if _roots.may_serve(root) else None

def publish():
    assert _roots.ready(root) is None, _roots.ready(root)
    origin = _store.Origin("", "", None, time.time(), 1.0, None)
    return _store.publish(root, "m", facts, place / "artifact.so", "m.so", origin)

def record(entry):
    library, now = str(entry.library), time.time_ns()
    data = _record.compose(identity, declared=[], present={}, absent=[], library=library, started_ns=now, boot=None)
    _staging.write_atomically(Path(_warm.path_of(str(root), identity)), data)

"""


class Team:
    """
    A folder that two users can reach, and code that each of them runs there.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.root = place / "cache"
        place.chmod(0o755)
        (place / "artifact.so").write_bytes(b"a library")
        (place / "artifact.so").chmod(0o644)
        self.root.mkdir()
        os.chown(self.root, ONE, TEAM)
        self.root.chmod(0o2770)

    def member(self, code: str, *, user: int, group: int = TEAM, shared: str = "1") -> str:
        """
        The output of Python code that a user runs.
        """
        arguments = [str(user), str(group), os.fspath(self.root), os.fspath(self.place)]
        done = subprocess.run(
            [sys.executable, "-c", _MEMBER + textwrap.dedent(code), *arguments],
            env={**os.environ, "PYTHONPATH": os.fspath(ROOT), "RUST_EXT_SHARED": shared},
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def team() -> Iterator[Team]:
    # Other users cannot enter pytest's own temporary folders.
    place = Path(tempfile.mkdtemp(prefix="rust-ext-team-"))
    try:
        yield Team(place)
    finally:
        shutil.rmtree(place)


def test_an_entry_of_one_member_serves_another(team: Team) -> None:
    """
    Under any umask another member can load, replace and collect an entry, and warm imports use it.
    """
    team.member("record(publish())", user=ONE)

    assert team.member("print(found() is not None)", user=TWO) == "True"
    assert team.member("print(_warm.read(str(root), identity, {}) == str(found().library))", user=TWO) == "True"
    team.member("_store.stamp_use(publish().library)", user=TWO)
    team.member("record(publish())", user=ONE)
    freed = team.member("print(len(_gc.collect(root, _gc.Limits(max_size=0), grace=-9).removed))", user=TWO)
    assert (freed, team.member("print(found())", user=ONE)) == ("3", "None")


def test_members_share_locks(team: Team) -> None:
    """
    Both members can lock a file that either of them created.
    """
    hold = """
    with _locks.hold(root / "x.lock", holder="m", timeout=1, ready=lambda: None, say=print) as got:
        print(type(got).__name__)
    """
    assert [team.member(hold, user=user) for user in (ONE, TWO, ONE)] == ["Locked"] * 3


@pytest.mark.parametrize(
    ("user", "group", "shared"),
    [
        pytest.param(TWO, TEAM, "", id="a member without the setting"),
        pytest.param(TWO, OTHER_TEAM, "1", id="a user of another group"),
    ],
)
def test_other_users_are_not_served(team: Team, user: int, group: int, shared: str) -> None:
    """
    A process trusts the team's entries only if it has the setting and belongs to the group.
    """
    team.member("publish()", user=ONE)

    assert team.member("print(found())", user=user, group=group, shared=shared) == "None"


def test_a_world_writable_library_is_not_trusted(team: Team) -> None:
    """
    Even in a team's cache, a library is not trusted if all users can write it or it belongs to another group.
    """
    team.member("publish()", user=ONE)
    (library,) = team.root.rglob("m.so")
    library.chmod(0o777)

    assert team.member("print(found())", user=TWO) == "None"
    library.chmod(0o770)
    assert team.member("print(found() is not None)", user=TWO) == "True"
    os.chown(library, ONE, OTHER_TEAM)
    assert team.member("print(found())", user=TWO) == "None"
