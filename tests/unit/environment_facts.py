"""
The environment's facts about a small crate.
"""

from __future__ import annotations

from pathlib import Path

from rust_ext_loader._model import ExtensionSpec
from rust_ext_loader.facts import _environment


def spec_in(root: Path, *, env: tuple[str, ...] = (), profile: str = "release") -> ExtensionSpec:
    return ExtensionSpec("m", "p", "p", root / "crate/Cargo.toml", root, env=env, profile=profile)


def facts(root: Path, environment: dict[str, str], **spec: object) -> dict[str, str]:
    home = {"HOME": str(root / "home"), **environment}
    return dict(_environment.gather(spec_in(root, **spec), home).facts)  # type: ignore[arg-type]
