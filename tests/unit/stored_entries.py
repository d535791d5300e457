"""
Publish an entry with fixed facts into a cache, and look it up again.
"""

from __future__ import annotations

import os
from pathlib import Path

from rust_ext_loader.cache import _store
from rust_ext_loader.facts._fingerprint import Fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MODULE = "fx.alpha"
FACTS = {"source/src/lib.rs": "aa", "abi/tag": "cp311", "toolchain/release": "1.95.0"}
BYTES = b"library of alpha" * 1000


def origin(*, began: float = 1000.0, floor: tuple[int, int] | None = None, token: str | None = None) -> _store.Origin:
    return _store.Origin(toolchain="1.95.0", abi="cp311", glibc_floor=floor, began=began, seconds=1.0, token=token)


def publish(
    root: Path, facts: Mapping[str, str] = FACTS, content: bytes = BYTES, made: _store.Origin | None = None
) -> _store.Entry:
    artifact = root.parent / "libalpha.so"
    artifact.write_bytes(content)
    return _store.publish(root, MODULE, Fingerprint(facts), artifact, "alpha.so", made or origin())


def look_up(*roots: Path, facts: Mapping[str, str] = FACTS) -> _store.Entry | None:
    return _store.look_up(roots, MODULE, Fingerprint(facts))


def can_change_owner(folder: Path) -> bool:
    """
    Whether this process may change the owner of a file.
    """
    probe = folder / "probe"
    probe.touch()
    try:
        os.chown(probe, 12345, 12345)
    except OSError:
        return False
    return True
