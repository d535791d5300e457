"""
Answer the import system for names under an editable install's prefixes.

The `.pth` file of an editable install puts a finder of a few lines into
`sys.meta_path`; it calls `find_spec` here when a name under its prefixes is
asked for, and not before. `registered_workspace` finds those finders again.

Invariant: asking for a spec never builds. On the warm path only `_record` and
`_load` are imported.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec


def find_spec(name: str, workspace: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """
    The spec of a declared extension, or `None` when the name is not one.

    Raises `ManifestError` when the name is not declared, nothing else provides it, and a broken manifest may be why.
    """
    from . import _record, _settings

    environment = os.environ
    mode = _settings.build_mode(None, environment)
    if mode != "force":
        roots = _settings.write_roots(None, environment)
        library = _record.find(roots, _record.identify(name, workspace, mode, environment, path), environment)
        if library is not None:
            return _spec(name, library, workspace)
    from . import _ensure

    if not _ensure.declares(name, workspace, path):
        return None
    return _spec(name, None, workspace)


def _spec(name: str, library: str | None, workspace: str) -> ModuleSpec:
    from importlib.machinery import ModuleSpec

    from ._load import RustExtensionLoader

    def locate() -> str:
        from . import _ensure

        return _ensure.locate(_ensure.Request(name, workspace=workspace))

    def repair(broken: str, error: ImportError) -> str:
        from . import _ensure

        return _ensure.repair(_ensure.Request(name, workspace=workspace), broken, error)

    return ModuleSpec(name, RustExtensionLoader(name, library, locate, repair), origin=library)


def registered_workspace(module: str, finders: Sequence[object] | None = None) -> str | None:
    """
    Workspace of the editable install that registered a prefix of this module.
    """
    for finder in sys.meta_path if finders is None else finders:
        prefixes = getattr(finder, "rust_ext_prefixes", ())
        if module.startswith(tuple(prefixes)):
            workspace = getattr(finder, "rust_ext_workspace", None)
            return workspace if isinstance(workspace, str) else None
    return None
