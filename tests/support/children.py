"""
Child processes of tests: wait for their lines without hanging, and end them with the test.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

from eventually import PATIENCE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator


@contextlib.contextmanager
def killed_at_exit(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """
    Kill and reap these processes at the end of the block, also after a failure.
    """
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


def expect_line(process: subprocess.Popen[str], expected: str, *, within: float = PATIENCE) -> None:
    """
    Read the next line of a child's stdout, which must be the expected one.

    Fail after *within* seconds at the latest. The failure shows the child's stderr.
    """
    assert process.stdout is not None
    # Killing the child ends the read.
    timer = threading.Timer(within, process.kill)
    timer.start()
    try:
        line = process.stdout.readline()
    finally:
        timer.cancel()
    if line != expected + "\n":
        process.kill()
        _, errors = process.communicate()
        raise AssertionError(
            f"the child printed {line!r} instead of {expected!r}; its exit code is {process.returncode}\n{errors}"
        )
