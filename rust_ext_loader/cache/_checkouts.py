"""
Remember which facts each checkout used last, so that a miss can say what changed.

    <root>/checkouts/<workspace>/<module>.json

Invariant: only explanations depend on these files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import TYPE_CHECKING

from ..files import _staging

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def checkout_name(workspace: Path) -> str:
    """
    Short name of a checkout's path, for folders that belong to one checkout.
    """
    return hashlib.sha256(os.fsencode(workspace)).hexdigest()[:12]


def remember(root: Path, workspace: Path, module: str, facts: Mapping[str, str]) -> None:
    """
    Note the facts of the build that this checkout uses, so that the next miss can say what changed.
    """
    # If this fails, only an explanation is lost.
    with contextlib.suppress(OSError):
        path = _memory(root, workspace, module)
        data = json.dumps(facts, sort_keys=True).encode()
        if not path.exists() or path.read_bytes() != data:
            _staging.write_atomically(path, data)


def recall(root: Path, workspace: Path, module: str) -> dict[str, str] | None:
    """
    The facts of the last build that this checkout used.
    """
    try:
        facts = json.loads(_memory(root, workspace, module).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return {str(name): str(value) for name, value in facts.items()} if isinstance(facts, dict) else None


def _memory(root: Path, workspace: Path, module: str) -> Path:
    return root / "checkouts" / checkout_name(workspace) / f"{module}.json"
