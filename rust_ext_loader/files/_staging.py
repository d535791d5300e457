"""
Publish a file or a folder whole, or not at all.

What is being written lives under `staging/` of the same root, hence on the same
file system, and gets its name by one rename. Folders are made for their owner
alone, in a team's cache for its group.

Invariant: a published name is absent or complete, whatever dies in between.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time

from . import _trust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: What Windows says of a file that somebody else has open: access denied, sharing or lock violation.
_HELD_BY_OTHERS = frozenset([5, 32, 33])
#: Seconds between two tries to rename such a file.
_PAUSES = (0.01, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 2.0)

#: A staging folder this old belongs to nobody who is alive.
_ABANDONED_AFTER = 24 * 3600.0

#: As `unique_name` makes them.
_UNIQUE = re.compile("[0-9a-f]{32}")


def private_folder(path: Path) -> Path:
    """
    Make a folder, and those above it that are missing, for this user alone, or for the team.
    """
    if not path.is_dir():
        private_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            if _trust.is_shared():
                # What is made in it belongs to the same group.
                path.chmod(0o2770)
    return path


def unique_name() -> str:
    """
    A name that nobody else comes upon; not by `uuid`, which brings half the standard library into every import that decides.
    """
    return os.urandom(16).hex()


def write_atomically(path: Path, data: bytes) -> None:
    """
    Give a file new content: readers see the old bytes or the new ones.
    """
    private_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{unique_name()}")
    try:
        with _new_file(temporary) as file:
            _write_all(file, data)
        _rename(temporary, path, os.replace)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        if _trust.is_shared():
            # Whatever the umask says.
            os.chmod(path, 0o660)
        yield descriptor
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def staged_folder(root: Path) -> Iterator[Path]:
    """
    A fresh private folder under `root`; what is still there at the end is removed.
    """
    folder = private_folder(root / "staging") / unique_name()
    private_folder(folder)
    _sweep(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(ours: Path) -> None:
    """
    Remove what builders left that were killed.
    """
    with contextlib.suppress(OSError):
        # By the clock of the file system: that of this host may be days ahead of it, and what is young may be in use.
        now = ours.stat().st_mtime
        for item in os.scandir(ours.parent):
            # Others may call a folder of theirs `staging`.
            if _UNIQUE.fullmatch(item.name) and now - item.stat(follow_symlinks=False).st_mtime > _ABANDONED_AFTER:
                shutil.rmtree(item.path, ignore_errors=True)


def copy_into(source: Path, folder: Path, name: str) -> Path:
    """
    Copy a file into a staged folder and make sure that it is on the disk.
    """
    destination = folder / name
    with (
        source.open("rb") as reader,
        _new_file(destination) as descriptor,
        os.fdopen(os.dup(descriptor), "wb") as writer,
    ):
        shutil.copyfileobj(reader, writer, 1 << 20)
    destination.chmod(0o770 if _trust.is_shared() else 0o700)
    return destination


def publish_folder(staged: Path, destination: Path) -> Path:
    """
    Give a staged folder its name; the name must be new.
    """
    private_folder(destination.parent)
    _rename(staged, destination, os.rename)
    _sync_folder(destination.parent)
    return destination


def _rename(
    source: Path, destination: Path, rename: Callable[[Path, Path], None], wait: Callable[[float], None] = time.sleep
) -> None:
    """
    Rename; on Windows again, for about five seconds, while a virus scanner or an indexer has what was just written open.
    """
    pauses = iter(_PAUSES)
    while True:
        try:
            rename(source, destination)
        except OSError as error:
            pause = next(pauses, None)
            if pause is None or getattr(error, "winerror", None) not in _HELD_BY_OTHERS:
                raise
            wait(pause)
        else:
            return


def move(path: Path, destination: Path) -> None:
    """
    Rename, or copy and remove where a rename is refused: a folder of an image's layer cannot be renamed in its container.
    """
    try:
        os.rename(path, destination)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(path, destination)


def _sync_folder(path: Path) -> None:
    # Windows cannot open a folder; its renames are journalled.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
