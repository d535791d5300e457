"""
Decide what an editable install writes into site-packages.

It writes one line in a `.pth` file, which every start of that interpreter
executes. The line installs a *stub* finder that knows its prefixes and its
workspace. The stub calls `rust_ext_loader._warm` only for a name with one of
the prefixes.

Invariant: the line is one line of ASCII statements that cannot fail and imports
only `sys`. It adds at most one finder for the same prefixes, even if it is
executed several times from several site folders.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# One expression: `site` executes each line inside one of its functions, so a lambda's body could not see a name that
# the line defined. `site` starts with the site folder that is first on `sys.path`: of two installs the first one wins.
# `%a` writes ASCII literals, because the encoding of a `.pth` file depends on the locale. Each start of the interpreter
# compiles the line, so it is short: the finder is the tuple of its prefixes, which `in` and `startswith` accept.
_LINE = (
    "import sys; "
    "%(prefixes)a in sys.meta_path or sys.meta_path.insert(0, type('RustExtensionFinder', (tuple,), {"
    "'rust_ext_prefixes': %(prefixes)a, "
    "'rust_ext_workspace': %(workspace)a, "
    "'find_spec': lambda self, name, path=None, target=None: "
    "__import__('rust_ext_loader._warm')._warm.find_spec(name, self.rust_ext_workspace, path) "
    "if name.startswith(self) else None"
    "})(%(prefixes)a))"
)


def prefixes_of(modules: Iterable[str]) -> tuple[str, ...]:
    """
    The prefixes of the names of these modules: their parent packages, each with its dot.

    A module without a parent is its own prefix.
    """
    return tuple(sorted({module.rpartition(".")[0] + "." if "." in module else module for module in modules}))


def pth_line(prefixes: Iterable[str], workspace: str) -> str:
    """
    The line of a `.pth` file, without a line break, that makes the extensions of *workspace* importable.
    """
    if not os.path.isabs(workspace):
        raise ValueError(f"the workspace of an editable install must be an absolute path, not {workspace!r}")
    return _LINE % {"prefixes": tuple(prefixes), "workspace": workspace}
