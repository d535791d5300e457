"""
Run the command `rust-ext` and collect its exit code, standard output and standard error.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from checkout import Checkout


@dataclass(frozen=True)
class CommandResult:
    """
    The result of one command.
    """

    code: int
    out: str
    err: str


def rust_ext(
    checkout: Checkout,
    *arguments: str,
    where: Path | None = None,
    variables: Mapping[str, str] | None = None,
    raw: bool = False,
) -> CommandResult:
    """
    Run the command in a folder of the checkout. Paths, keys and times become placeholders unless `raw` is set.
    """
    done = subprocess.run(
        [sys.executable, "-m", "rust_ext_loader", *arguments],
        env={**checkout.variables(), **(variables or {})},
        cwd=where or checkout.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if raw:
        return CommandResult(done.returncode, done.stdout, done.stderr)
    return CommandResult(
        done.returncode, with_placeholders(checkout, done.stdout), with_placeholders(checkout, done.stderr)
    )


def with_placeholders(checkout: Checkout, text: str) -> str:
    """
    Replace text that differs from run to run by placeholders.
    """
    for path, name in ((checkout.root, "[workspace]"), (checkout.cache, "[cache]")):
        text = text.replace(str(path), name)
    text = re.sub(r"artifacts/(\S+?)/\S+/(\w+)\.\S+?\.so", r"artifacts/\1/[...]/\2.[suffix]", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "[key]", text)
    return re.sub(r"\b[0-9]+\.[0-9] s\b", "[seconds]", text)
