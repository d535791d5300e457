"""
Decide what an editable install leaves behind in site-packages.

It leaves one line in a `.pth` file, which every start of that interpreter
executes: a *stub* finder that knows its prefixes and its workspace, and asks
`rust_ext_loader._hook` only when a name under one of the prefixes is wanted.

Invariant: the line is a single ASCII statement list that cannot fail, imports
nothing but `sys`, and puts at most one finder for the same prefixes in place,
however often and from however many site folders it is executed.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# One expression, because `site` executes one line at a time, inside one of its functions: a name that this line defined
# would not be seen by the code inside a lambda. `site` handles the site folder that comes first on `sys.path` first, so
# of two installs the first to arrive stays. `%a` writes ASCII literals: what encoding a `.pth` file has is a matter of locale.
_LINE = (
    "import sys; "
    "any(getattr(finder, 'rust_ext_prefixes', ()) == %(prefixes)a for finder in sys.meta_path) "
    "or sys.meta_path.insert(0, type('RustExtensionFinder', (), {"
    "'rust_ext_prefixes': %(prefixes)a, "
    "'rust_ext_workspace': %(workspace)a, "
    "'find_spec': lambda self, name, path=None, target=None: "
    "__import__('rust_ext_loader._hook', fromlist=['find_spec']).find_spec(name, self.rust_ext_workspace, path) "
    "if name.startswith(self.rust_ext_prefixes) else None"
    "})())"
)


def prefixes_of(modules: Iterable[str]) -> tuple[str, ...]:
    """
    What the names of these modules start with: their parent packages, each with its dot.

    A module without a parent is its own prefix.
    """
    return tuple(sorted({module.rpartition(".")[0] + "." if "." in module else module for module in modules}))


def pth_line(prefixes: Iterable[str], workspace: str) -> str:
    """
    The line of a `.pth` file that makes extensions of *workspace* importable; without a line break.
    """
    if not os.path.isabs(workspace):
        raise ValueError(f"the workspace of an editable install must be an absolute path, not {workspace!r}")
    return _LINE % {"prefixes": tuple(prefixes), "workspace": workspace}
