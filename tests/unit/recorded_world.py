"""
A folder with everything that one record of the warm path depends on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rust_ext_loader import _record, _stat, _warm

SECOND = 1_000_000_000
ENVIRONMENT = {"PATH": "/bin", "MY_FLAVOUR": "sweet", "RUST_TOKEN": "s3cr3t-one"}

Declared = Sequence[tuple[str, str | None]]
DECLARED: Declared = (("MY_FLAVOUR", "sweet"), ("MY_OTHER", None))


@dataclass
class World:
    """
    A source, its folder, a compiler behind a link, a config file that does not exist, and the library.
    """

    folder: Path

    def __post_init__(self) -> None:
        for path in (self.source, self.compiler, self.library):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"this is {path.name}")
        self.proxy.symlink_to(self.compiler)
        self.root.mkdir(mode=0o700)

    @property
    def source(self) -> Path:
        return self.folder / "src" / "lib.rs"

    @property
    def compiler(self) -> Path:
        return self.folder / "toolchain" / "rustc"

    @property
    def proxy(self) -> Path:
        return self.folder / "toolchain" / "proxy"

    @property
    def config(self) -> Path:
        return self.folder / ".cargo" / "config.toml"

    @property
    def library(self) -> Path:
        return self.folder / "lib" / "alpha.so"

    @property
    def root(self) -> Path:
        return self.folder / "cache"

    @property
    def identity(self) -> tuple[object, ...]:
        return _warm.identify("fx.alpha", "/ws", "auto", ENVIRONMENT, ["/site/fx"])

    @property
    def file(self) -> Path:
        return Path(_warm.path_of(str(self.root), self.identity))

    def compose(
        self,
        *,
        boot: str | None = None,
        search_path: tuple[str, ...] | None = None,
        declared: Declared = DECLARED,
        also: Sequence[Path] = (),
    ) -> bytes | None:
        present = (self.source, self.source.parent, self.proxy, self.library, *also)
        return _record.compose(
            self.identity,
            declared=declared,
            present={str(path): found for path in present if (found := _stat.signature(str(path))) is not None},
            absent=[str(self.config)],
            library=str(self.library),
            # A start time in the future makes every timestamp old enough, so the tests need not wait.
            started_ns=time.time_ns() + 3 * SECOND,
            boot=boot,
            search_path=search_path,
        )

    def write(
        self,
        *,
        boot: str | None = None,
        search_path: tuple[str, ...] | None = None,
        declared: Declared = DECLARED,
        also: Sequence[Path] = (),
    ) -> None:
        data = self.compose(boot=boot, search_path=search_path, declared=declared, also=also)
        assert data is not None
        self.put(data)

    def put(self, data: bytes) -> None:
        self.file.parent.mkdir(mode=0o700, exist_ok=True)
        self.file.write_bytes(data)
        self.file.chmod(0o600)

    def read(self, environment: dict[str, str] | None = None) -> str | None:
        return _warm.read(str(self.root), self.identity, ENVIRONMENT if environment is None else environment)
