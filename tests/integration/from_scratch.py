"""
Build a module with cargo alone, in an empty target folder. Every load must return the same value.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from eventually import PATIENCE
from walk_tree import MODULES

_LOAD = """
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
name, path = sys.argv[1:]
print(module_from_spec(ModuleSpec(name, ExtensionFileLoader(name, path), origin=path)).value)
"""


def build_from_scratch(folder: Path, module: str, variables: Mapping[str, str]) -> str:
    crate = MODULES[module]
    target = folder / "own-target"
    arguments = [
        "rustc",
        "--locked",
        "--release",
        "--package",
        crate,
        "--lib",
        "--crate-type",
        "cdylib",
        "--target-dir",
        str(target),
    ]
    # The features that the manifest declares for the toolkit.
    features = re.search(r'(?m)^features = \["(\w+)"\]', (folder / crate / "Cargo.toml").read_text(encoding="utf-8"))
    if features:
        arguments += ["--features", features[1]]
    cargo = subprocess.run(
        ["cargo", *arguments], cwd=folder / crate, env=variables, capture_output=True, text=True, check=False
    )
    assert cargo.returncode == 0, cargo.stderr
    library = target / "release" / f"lib{crate}.so"
    command = [sys.executable, "-c", _LOAD, module, str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout.strip()
