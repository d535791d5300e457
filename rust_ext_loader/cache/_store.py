"""
Keep built extensions on disk and find them again.

    <root>/artifacts/<module>/<source key>/<build key>/<generation>/   library and manifest.json, immutable
    <root>/artifacts/<module>/<source key>/<build key>/current[-...]   pointer: current generation, replaced by rename
    <root>/quarantine/                                                 damaged entries

The folder of one build key is a *slot*. Two builds of the same facts differ if they
read different undeclared inputs, here called *seen* inputs. Each set of seen inputs
has its own pointer, and a look-up checks whether the set is unchanged. Folder names
hold shortened keys. The manifest holds the full keys, and these are compared.

Invariant: an entry is written once, by rename. An entry that cannot be trusted,
read or verified is a miss, never an error. A damaged entry of this user is
quarantined. An entry that is valid, but only for other hosts, stays.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from pathlib import Path
from typing import Any

from .. import _trust, _warm
from .._values import dataclass, field
from ..facts import _seen
from ..facts._environment import is_hidden
from ..facts._fingerprint import SHORT, Fingerprint, digest_of
from ..files import _digest, _staging
from ..library._library_file import host_glibc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: The file of an entry that describes its library.
MANIFEST = "manifest.json"

#: Version of the manifest's fields. An entry of another version is a miss.
FORMAT = 2

#: A file beside a library. Its timestamp is the last use.
STAMP = "used"


@dataclass(frozen=True, slots=True)
class Entry:
    """
    One stored build of one extension.
    """

    folder: Path
    library: Path
    facts: Mapping[str, str]
    #: The undeclared inputs of its build.
    seen: Mapping[str, str]
    #: Start of its build, after its sources were read: seconds since the epoch.
    began: float
    #: Token of the process in mode `force` that built it, if one did.
    token: str | None
    source_key: str
    build_key: str


@dataclass(frozen=True, slots=True)
class Origin:
    """
    Facts about the build of an entry that are not part of its keys.
    """

    toolchain: str
    abi: str
    glibc_floor: tuple[int, int] | None
    began: float
    seconds: float
    token: str | None
    seen: Mapping[str, str] = field(default_factory=dict)
    #: The remote that it was pulled from; `None` if it was built here.
    pulled: str | None = None


class _Damaged(Exception):
    """
    An entry of this user does not match its manifest. It is quarantined, since every later look-up would fail too.
    """


def look_up(
    roots: Sequence[Path], module: str, fingerprint: Fingerprint, accept: Callable[[Entry], bool] = lambda _: True
) -> Entry | None:
    """
    The verified entry with exactly these facts, or `None`.

    *accept* is called before the library is read, so a refused entry costs only its manifest.
    """
    for root in roots:
        slot = slot_of(root, module, fingerprint)
        entry = _current(slot, root, lambda entry: entry.facts == fingerprint.facts and accept(entry))
        if entry is not None:
            return entry
    return None


def look_up_ignoring(
    roots: Sequence[Path],
    module: str,
    fingerprint: Fingerprint,
    group: str,
    accept: Callable[[Entry], bool] = lambda _: True,
) -> Entry | None:
    """
    The newest entry with these facts, ignoring those of one group.
    """
    wanted = fingerprint.without(group)
    found = [
        entry
        for root in roots
        for slot in _folders(root / "artifacts" / module / fingerprint.source_key[:SHORT])
        if (
            entry := _current(
                slot, root, lambda entry: Fingerprint(entry.facts).without(group) == wanted and accept(entry)
            )
        )
        is not None
    ]
    return max(found, key=lambda entry: entry.began, default=None)


def damaged(roots: Sequence[Path], module: str, fingerprint: Fingerprint) -> Path | None:
    """
    The folder of a damaged entry of these sources, if there is one.
    """
    for root in roots:
        for folder in _folders(root / "quarantine"):
            if folder.name.startswith(f"{module}-{fingerprint.source_key[:SHORT]}-"):
                return folder
        # In a root that cannot be written, a damaged entry is not moved to the quarantine.
        for slot in _folders(root / "artifacts" / module / fingerprint.source_key[:SHORT]):
            for pointer in _pointers(slot):
                with contextlib.suppress(OSError):
                    try:
                        _read(pointer, root, lambda _: True)
                    except _Damaged:
                        return slot
    return None


def publish(root: Path, module: str, fingerprint: Fingerprint, artifact: Path, name: str, origin: Origin) -> Entry:
    """
    Store a library under its key and make it the current generation.
    """
    slot = slot_of(root, module, fingerprint)
    generation = f"{time.time_ns():x}-{_staging.unique_name()[:8]}{_suffix(origin.seen)}"
    pointer = pointer_of(slot / generation / name)
    _clear_slot(root, slot, pointer)
    with _staging.staged_folder(root) as staged:
        library = _staging.copy_into(artifact, staged, name)
        manifest = _manifest(module, fingerprint, library, origin)
        _staging.write_atomically(staged / MANIFEST, json.dumps(manifest, indent=1).encode())
        # Its timestamp is the last use of the entry.
        _staging.write_atomically(staged / STAMP, b"")
        # The rename moves the whole folder, so the context manager finds nothing to remove.
        folder = _staging.publish_folder(staged, slot / generation)
    _staging.write_atomically(pointer, generation.encode())
    return _entry(folder, folder / name, manifest)


def pointer_of(library: Path) -> Path:
    """
    The pointer file of a stored library: it names the current generation.
    """
    generation = library.parent
    return generation.with_name("-".join(["current", *generation.name.split("-")[2:]]))


def _suffix(seen: Mapping[str, str]) -> str:
    return f"-{digest_of(seen)[:12]}" if seen else ""


def is_current(library: Path) -> bool:
    """
    Whether the pointer still names the generation of a stored library.
    """
    try:
        return pointer_of(library).read_text("ascii").strip() == library.parent.name
    except (OSError, ValueError):
        return False


def stamp_use(library: Path) -> None:
    """
    Update the timestamp of the last use, at most once a day.
    """
    stamp = library.with_name(STAMP)
    # A root that cannot be written is never collected, and a bundled library has no such file.
    with contextlib.suppress(OSError):
        if not 0 <= time.time() - stamp.stat().st_mtime < _warm.USE_STAMP_SECONDS:
            os.utime(stamp)


def quarantine_library(root: Path, library: Path) -> None:
    """
    Move the entry of a library to the quarantine, so that it can be examined later.
    """
    # In a root that cannot be written the entry stays, and the caller gets the error of the load.
    with contextlib.suppress(OSError):
        _quarantine(root, library.parent)


def quarantined_before(root: Path, library: Path) -> list[Path]:
    """
    Quarantined libraries with the same facts as a stored one.
    """
    slot = "-".join(library.parents[1].relative_to(root).parts[1:])
    return [folder / library.name for folder in _folders(root / "quarantine") if folder.name.startswith(f"{slot}-")]


def _quarantine(root: Path, path: Path) -> None:
    quarantine = _staging.private_folder(root / "quarantine")
    destination = quarantine / f"{'-'.join(path.relative_to(root).parts[1:])}-{_staging.unique_name()[:8]}"
    # Another process may have moved it already.
    with contextlib.suppress(FileNotFoundError):
        _staging.move(path, destination)


def _clear_slot(root: Path, slot: Path, pointer: Path) -> None:
    """
    Quarantine each item that blocks the path of an entry.

    Such an item is a folder that is not trusted, a file in the place of a folder, or a folder in the place of the
    pointer.
    """
    for folder in (slot.parents[2], slot.parents[1], slot.parent, slot):
        if os.path.lexists(folder) and (_trust.problem(folder) or not folder.is_dir()):
            _quarantine(root, folder)
    if pointer.is_dir():
        _quarantine(root, pointer)


def slot_of(root: Path, module: str, fingerprint: Fingerprint) -> Path:
    """
    The folder of all entries with exactly these facts.
    """
    return _slot(root, module, fingerprint.source_key, fingerprint.build_key)


def _slot(root: Path, module: str, source_key: str, build_key: str) -> Path:
    return root / "artifacts" / module / source_key[:SHORT] / build_key[:SHORT]


def _folders(path: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(path) as items:
        for item in items:
            if item.is_dir(follow_symlinks=False):
                yield Path(item.path)


def _manifest(module: str, fingerprint: Fingerprint, library: Path, origin: Origin) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "module": module,
        "source_key": fingerprint.source_key,
        "build_key": fingerprint.build_key,
        "library": library.name,
        "size": library.stat().st_size,
        "sha256": _digest.of_file(library),
        "abi": origin.abi,
        "toolchain": origin.toolchain,
        "glibc_floor": origin.glibc_floor,
        "began": origin.began,
        "seconds": round(origin.seconds, 3),
        "token": origin.token,
        "builder": {"host": _staging.host_name(), "pid": os.getpid()},
        "pulled": origin.pulled,
        "seen": dict(origin.seen),
        "host_bound": [
            *(name for name, value in fingerprint.facts.items() if is_hidden(value)),
            *_seen.host_bound(origin.seen),
        ],
        "facts": dict(fingerprint.facts),
    }


def _current(slot: Path, root: Path, accept: Callable[[Entry], bool]) -> Entry | None:
    """
    The newest current entry of a slot that is complete and accepted. A damaged one is quarantined.
    """
    found = [entry for pointer in _pointers(slot) if (entry := _entry_of_pointer(pointer, root, accept)) is not None]
    return max(found, key=lambda entry: entry.began, default=None)


def _pointers(slot: Path) -> list[Path]:
    try:
        return [slot / name for name in sorted(os.listdir(slot)) if name.partition("-")[0] == "current"]
    except OSError:
        return []


def _entry_of_pointer(pointer: Path, root: Path, accept: Callable[[Entry], bool]) -> Entry | None:
    for _ in range(2):
        try:
            return _read(pointer, root, accept)
        except _Damaged as damage:
            quarantine_library(root, Path(str(damage)))
            break
        except OSError as error:
            # A stale handle of a network file system: opening the path again gets a new one.
            if error.errno != errno.ESTALE:
                break
    return None


def _read(pointer: Path, root: Path, accept: Callable[[Entry], bool]) -> Entry | None:
    slot = pointer.parent
    generation = pointer.read_bytes().decode("ascii", "replace").strip()
    if generation in ("", ".", "..") or "\0" in generation or os.sep in generation or _trust.problem(pointer):
        return None
    folder = slot / generation
    if any(map(_trust.problem, _chain(folder, root))):
        return None
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT:
            return None
        library = folder / manifest["library"]
        if not _describes(manifest, root, folder):
            raise _Damaged(folder / MANIFEST)
        entry = _entry(folder, library, manifest)
        if _trust.problem(library) or is_for_newer_system(manifest) or not accept(entry):
            return None
        if library.stat().st_size != manifest["size"] or _digest.of_file(library) != manifest["sha256"]:
            raise _Damaged(library)
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _Damaged(folder / MANIFEST) from error
    return entry


def _chain(folder: Path, root: Path) -> Iterator[Path]:
    """
    Every path from the root to an entry's manifest.
    """
    yield folder / MANIFEST
    yield from (folder, *folder.parents[: len(folder.parents) - len(root.parents)])


def _describes(manifest: dict[str, Any], root: Path, folder: Path) -> bool:
    """
    Whether a manifest is consistent and matches its folder.
    """
    facts = Fingerprint(manifest["facts"])
    return (
        facts.source_key == manifest["source_key"]
        and facts.build_key == manifest["build_key"]
        and folder.parent == _slot(root, manifest["module"], facts.source_key, facts.build_key)
        and (folder / manifest["library"]).parent == folder
        # The keys do not cover seen inputs, but the suffix of the folder's name does.
        and folder.name.endswith(_suffix(manifest["seen"]))
    )


def is_for_newer_system(manifest: Mapping[str, Any]) -> bool:
    """
    Whether the library of a manifest needs a newer glibc than this host has.
    """
    floor, here = manifest["glibc_floor"], host_glibc()
    return floor is not None and here is not None and tuple(floor) > here


def _entry(folder: Path, library: Path, manifest: dict[str, Any]) -> Entry:
    return Entry(
        folder=folder,
        library=library,
        facts=manifest["facts"],
        seen={str(name): str(value) for name, value in manifest["seen"].items()},
        began=float(manifest["began"]),
        token=manifest["token"],
        source_key=manifest["source_key"],
        build_key=manifest["build_key"],
    )
