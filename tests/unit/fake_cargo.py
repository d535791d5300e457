"""
A shell script in place of cargo, and a progress object that records its updates.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

import pytest

from rust_ext_loader.build import _cargo
from rust_ext_loader.build._cargo import CargoResult
from rust_ext_loader.build._progress import Progress

needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="counts processes through /proc")
needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="the fake cargo is a shell script")

FINISHED = '{"reason":"build-finished","success":true}'
FAILED = '{"reason":"build-finished","success":false}'


class Recorder(Progress):
    """
    A progress object that records its updates.
    """

    def __init__(self) -> None:
        super().__init__("app._mm", io.StringIO())
        self.updates: list[tuple[int, int, str]] = []

    def update(self, done: int, total: int, current: str) -> None:
        self.updates.append((done, total, current))


def fake(folder: Path, script: str) -> str:
    """
    Write a script as a fake cargo.
    """
    cargo = folder / "cargo"
    cargo.write_text(f"#!/bin/sh\n{script}\n")
    cargo.chmod(0o755)
    return str(cargo)


def check(
    folder: Path,
    script: str,
    *arguments: str,
    progress: Progress | None = None,
    log: io.BytesIO | None = None,
    limit: float | None = 60,
) -> CargoResult:
    return _cargo.run(
        arguments or ("rustc",),
        cargo=fake(folder, script),
        directory=folder,
        environment=os.environ,
        progress=progress or Recorder(),
        log=log,
        time_limit=limit,
    )
