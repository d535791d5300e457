"""
Fake versions of cargo and rustc: small scripts that log each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader.facts import _memo, _toolchain

if TYPE_CHECKING:
    from pathlib import Path

RUSTC = """\
rustc 1.95.0 (59807616e 2026-04-14)
binary: rustc
commit-hash: 59807616e
host: x86_64-unknown-linux-gnu
release: 1.95.0
LLVM version: 22.1.2"""
CARGO = "cargo 1.95.0 (f2d3ce0bd 2026-03-21)"
HOUR_NS = 3_600_000_000_000


@dataclass
class Machine:
    """
    A crate, and a PATH with fake versions of cargo and rustc.
    """

    root: Path

    @classmethod
    def make(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
        """
        A machine on which no file has changed for an hour.
        """
        made = cls(folder.resolve())
        made.crate.mkdir(parents=True)
        made.tool("cargo", f"echo '{CARGO}'")
        made.rustc()
        made.tool("rustc", "", "sysroot/bin")
        now = _memo.now_ns()
        monkeypatch.setattr(_memo, "now_ns", lambda: now + HOUR_NS)
        return made

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.root}/first:{self.root}/bin:/usr/bin:/bin", "HOME": str(self.root / "home")}

    @property
    def crate(self) -> Path:
        return self.root / "tree/crate"

    @property
    def calls(self) -> list[str]:
        log = self.root / "log"
        return log.read_text().splitlines() if log.exists() else []

    def tool(self, name: str, body: str, folder: str = "bin") -> Path:
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.root}/log\n{body}\n')
        path.chmod(0o755)
        return path

    def rustc(self, version: str = RUSTC, folder: str = "bin") -> Path:
        answers = f'case "$*" in -vV) cat <<END\n{version}\nEND\n;; *sysroot*) echo {self.root}/sysroot;; esac'
        return self.tool("rustc", answers, folder)

    def probe(self, *, memo: bool = True, **options: object) -> dict[str, str]:
        environment = {**self.environment, **options.pop("environment", {})}  # type: ignore[dict-item]
        root = self.root / "cache" if memo else None
        found = _toolchain.probe(self.crate, environment, root, "m", **options)  # type: ignore[arg-type]
        return dict(found.gathered.facts)
