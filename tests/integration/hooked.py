"""
A plain interpreter with an editable install's `.pth` file, and nothing else of ours.

What it prints is what a test sees; it imports no helper that could hide what an
import costs.
"""

from __future__ import annotations

import ast
import os
import subprocess
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import filelock
from checkout import ROOT

from rust_ext_loader._packaging._editable import pth_line

if TYPE_CHECKING:
    from pathlib import Path

    from checkout import Checkout

_PROGRAM = """
import site, sys
site.addsitedir({site!r})
sys.path.append({others!r})
before = set(sys.modules)
spawned = []
sys.addaudithook(lambda event, args: spawned.append(event) if event in (
    "subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system") else None)
said = None
try:
{code}
except BaseException as error:
    said = [kind.__name__ for kind in type(error).__mro__], str(error)
print()
print(repr((said, spawned, sorted(set(sys.modules) - before))))
"""


@dataclass(frozen=True)
class Ran:
    """
    What a few lines of Python came to.
    """

    #: What they printed.
    out: str
    #: Type names of what was raised, most derived first, and its text.
    types: tuple[str, ...]
    error: str
    #: How processes were started.
    spawned: tuple[str, ...]
    #: Modules that were not there before.
    imported: frozenset[str]
    #: Arguments of every cargo that ran meanwhile.
    cargo: tuple[tuple[str, ...], ...]
    stderr: str


class Editable:
    """
    A site folder as an editable install of a checkout leaves it: the stub, and the parent package as a folder.
    """

    def __init__(self, checkout: Checkout, *, workspace: Path | None = None, site: Path | None = None) -> None:
        self.checkout = checkout
        self.site = site or checkout.cache.parent / "site"
        self.package = self.site / "fx"
        self.package.mkdir(parents=True, exist_ok=True)
        line = pth_line(("fx.",), os.fspath(workspace or checkout.root))
        (self.site / "fx.pth").write_text(f"{os.fspath(ROOT)}\n{line}\n", encoding="utf-8")

    def run(self, code: str, variables: dict[str, str] | None = None) -> Ran:
        """
        Run a few lines in a new interpreter.
        """
        # What the toolkit depends on lies there; that folder's own `.pth` files would import who knows what.
        others = os.path.dirname(os.path.dirname(filelock.__file__))
        program = _PROGRAM.format(site=os.fspath(self.site), others=others, code=textwrap.indent(textwrap.dedent(code), "    "))
        before = len(self.checkout.cargo_calls())
        done = subprocess.run(
            [self.checkout.python, "-I", "-S", "-c", program],
            env={**self.checkout.variables(), **(variables or {})},
            cwd=self.checkout.cache.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        out, _, last = done.stdout.rstrip("\n").rpartition("\n")
        said, spawned, imported = ast.literal_eval(last)
        types, error = said or ((), "")
        return Ran(
            out=out.removesuffix("\n"),
            types=tuple(types),
            error=error,
            spawned=tuple(spawned),
            imported=frozenset(imported),
            cargo=tuple(self.checkout.cargo_calls()[before:]),
            stderr=done.stderr,
        )


#: Lines that make the next process believe that every time stamp is old: a record is made at once, and nobody waits.
SETTLED = "from rust_ext_loader import _record; _record.UNSETTLED_NS = -(10**15)"
