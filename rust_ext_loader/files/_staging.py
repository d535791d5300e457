"""
Publish a file or a folder atomically.

A file or folder is written under a temporary name on the same file system and
gets its final name by one rename. Folders are created with mode 0700, in a shared
cache with mode 2770.

Invariant: a published name is absent or complete, even if a process is killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time

from .. import _warm
from . import _digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Windows error codes for a file that another process has open: access denied, sharing or lock violation.
_IN_USE_ERRORS = frozenset([5, 32, 33])
#: Seconds between two attempts to rename such a file.
_PAUSES = (0.01, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 2.0)

#: A staging folder of this age (seconds) was left by a process that died.
_ABANDONED_AFTER = 24 * 3600.0

#: Names that `unique_name` makes.
_UNIQUE = re.compile("[0-9a-f]{32}")


def private_folder(path: Path) -> Path:
    """
    Create a folder and its missing parents, for this user alone, or for the group in a shared cache.
    """
    if not path.is_dir():
        private_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            if _warm.is_shared():
                # The set-group-ID bit gives new files in the folder the same group.
                path.chmod(0o2770)
    return path


def host_name() -> str:
    """
    The name of this host, for people who look for a process. `socket.gethostname` would cost the import of `socket`.
    """
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def unique_name() -> str:
    """
    A random name of 32 hex digits. Not from `uuid`, whose import is slow.
    """
    return os.urandom(16).hex()


def write_atomically(path: Path, data: bytes) -> None:
    """
    Replace the content of a file: readers see the old bytes or the new bytes.
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
        if _warm.is_shared():
            # The umask may have removed the group's permissions.
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
    A new private folder under `root`, removed at the end unless it was published.
    """
    folder = private_folder(root / "staging") / unique_name()
    private_folder(folder)
    _sweep(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(own: Path) -> None:
    """
    Remove staging folders of killed builds.
    """
    with contextlib.suppress(OSError):
        # The clock of the file system is used: this host's clock may be days ahead, and a young folder may be in use.
        now = own.stat().st_mtime
        for item in os.scandir(own.parent):
            # Other files may be in the folder too: only names that `unique_name` makes are removed.
            if _UNIQUE.fullmatch(item.name) and now - item.stat(follow_symlinks=False).st_mtime > _ABANDONED_AFTER:
                shutil.rmtree(item.path, ignore_errors=True)


def copy_into(source: Path, folder: Path, name: str) -> Path:
    """
    Copy a file into a staged folder and sync it to disk.
    """
    destination = folder / name
    with (
        source.open("rb") as reader,
        _new_file(destination) as descriptor,
        os.fdopen(os.dup(descriptor), "wb") as writer,
    ):
        shutil.copyfileobj(reader, writer, _digest.CHUNK)
    destination.chmod(0o770 if _warm.is_shared() else 0o700)
    return destination


def publish_folder(staged: Path, destination: Path) -> Path:
    """
    Rename a staged folder to its final name, which must not exist.
    """
    private_folder(destination.parent)
    _rename(staged, destination, os.rename)
    _sync_folder(destination.parent)
    return destination


def _rename(
    source: Path, destination: Path, rename: Callable[[Path, Path], None], wait: Callable[[float], None] = time.sleep
) -> None:
    """
    Rename. On Windows retry for about five seconds while another program, such as a virus scanner, has the file open.
    """
    pauses = iter(_PAUSES)
    while True:
        try:
            rename(source, destination)
        except OSError as error:
            pause = next(pauses, None)
            if pause is None or getattr(error, "winerror", None) not in _IN_USE_ERRORS:
                raise
            wait(pause)
        else:
            return


def move(path: Path, destination: Path) -> None:
    """
    Rename, or copy and remove if that fails with EXDEV: a container cannot rename a folder of an image layer.
    """
    try:
        os.rename(path, destination)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(path, destination)


def _sync_folder(path: Path) -> None:
    # Windows cannot open a folder; its renames are journaled.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
