"""
A plain interpreter that has only the `.pth` file of an editable install.

A program in it reports what an import did. The program imports no helper that could hide the cost of that import.
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

from rust_ext_loader.cache import _bundled
from rust_ext_loader.packaging._editable import pth_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from checkout import Checkout

_PROGRAM = """
import site, sys
site.addsitedir({site!r})
sys.path.append({others!r})
before = set(sys.modules)
noted = {{"spawned": [], "locked": [], "opened": [], "listed": [], "linked": []}}
kinds = {{
    "subprocess.Popen": "spawned", "os.posix_spawn": "spawned", "os.fork": "spawned", "os.forkpty": "spawned",
    "os.exec": "spawned", "os.system": "spawned",
    "fcntl.flock": "locked", "fcntl.lockf": "locked", "fcntl.fcntl": "locked",
    "open": "opened", "os.listdir": "listed", "os.scandir": "listed",
}}
def note(event, args):
    # An import is noted by its name, and once more by its file when that is a library.
    kind = "linked" if event == "import" and args[1] else kinds.get(event)
    if kind:
        noted[kind].append(event if kind in ("spawned", "locked") else str(args[kind == "linked"]))
sys.addaudithook(note)
raised = None
try:
{code}
except BaseException as error:
    raised = [kind.__name__ for kind in type(error).__mro__], str(error)
print()
print(repr((raised, noted, sorted(set(sys.modules) - before))))
"""


@dataclass(frozen=True)
class Ran:
    """
    The result of running some lines of Python.
    """

    #: Standard output.
    out: str
    #: Type names along the MRO of the raised exception, and its text.
    types: tuple[str, ...]
    error: str
    #: Audit events for started processes.
    spawned: tuple[str, ...]
    #: Audit events for taken locks.
    locked: tuple[str, ...]
    #: Opened files, listed folders and opened extension modules.
    opened: tuple[str, ...]
    listed: tuple[str, ...]
    linked: tuple[str, ...]
    #: Modules that the lines imported.
    imported: frozenset[str]
    #: Arguments of every cargo run.
    cargo: tuple[tuple[str, ...], ...]
    stderr: str


class Editable:
    """
    The site folder that an editable install of a checkout leaves: the `.pth` file, and the parent package as a folder.
    """

    def __init__(
        self,
        checkout: Checkout,
        *,
        workspace: Path | None = None,
        site: Path | None = None,
        seen_at: Path | None = None,
    ) -> None:
        self.checkout = checkout
        #: Path under which the interpreter sees the site folder, if it differs from `site`.
        self.seen_at = seen_at
        self.site = site or checkout.cache.parent / "site"
        self.package = self.site / "fx"
        self.package.mkdir(parents=True, exist_ok=True)
        line = pth_line(("fx.",), os.fspath(workspace or checkout.root))
        (self.site / "fx.pth").write_text(f"{os.fspath(ROOT)}\n{line}\n", encoding="utf-8")

    def bundle(self) -> Path:
        """
        Move the cached `fx.alpha` into the package's folder with its sidecar, as a wheel has it, and remove the cache.
        """
        stored, facts = self.checkout.stored_library(), self.checkout.stored_facts()
        library = self.package / stored.name
        library.write_bytes(stored.read_bytes())
        _bundled.sidecar_of(library, "alpha").write_bytes(_bundled.sidecar("fx.alpha", library, facts))
        self.checkout.cache.rename(self.checkout.cache.with_name("elsewhere"))
        return library

    def run(self, code: str, variables: dict[str, str] | None = None, *, under: Sequence[str] = ()) -> Ran:
        """
        Run some lines in a new interpreter. `under` is a program that runs the interpreter, such as `strace`.
        """
        # The folder of the toolkit's dependencies. Its `.pth` files are not processed: they could import anything.
        others = os.path.dirname(os.path.dirname(filelock.__file__))
        program = _PROGRAM.format(
            site=os.fspath(self.seen_at or self.site),
            others=others,
            code=textwrap.indent(textwrap.dedent(code), "    "),
        )
        before = len(self.checkout.cargo_calls())
        done = subprocess.run(
            [*under, self.checkout.python, "-I", "-S", "-c", program],
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
        raised, noted, imported = ast.literal_eval(last)
        types, error = raised or ((), "")
        spawned, locked, opened, listed, linked = map(tuple, noted.values())
        return Ran(
            out=out.removesuffix("\n"),
            types=tuple(types),
            error=error,
            spawned=spawned,
            locked=locked,
            opened=opened,
            listed=listed,
            linked=linked,
            imported=frozenset(imported),
            cargo=tuple(self.checkout.cargo_calls()[before:]),
            stderr=done.stderr,
        )


#: Lines that make the process treat every timestamp as old enough, so that it writes a record at once.
RECORD_AT_ONCE = "from rust_ext_loader import _stat; _stat.UNSETTLED_NS = -(10**15)"

#: All modules that a warm import may load.
WARM_MODULES = {
    "fx",
    "fx.alpha",
    "rust_ext_loader",
    "rust_ext_loader._warm",
}
