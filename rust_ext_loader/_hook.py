"""
Answer the import system for names under the prefixes of an editable install.

The `.pth` file of an editable install adds a small finder to `sys.meta_path`. It
calls `find_spec` here only when a name under its prefixes is imported.
`registered_workspace` looks those finders up.

Invariant: `find_spec` never builds. While the record is valid, only `_record`,
`_settings`, `_load` and what those need are imported.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib import ModuleSpec

from . import _record, _settings
from ._load import RustExtensionLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from ._request import Request

    _Answer = TypeVar("_Answer")


def find_spec(name: str, workspace: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """
    The spec of a declared extension, or `None` when the name is not one.

    Raises `ManifestError` if no crate declares the name, no other finder provides it, and a manifest is broken.
    """
    workspace = _current_path(name, workspace)
    library = recorded(name, workspace, _settings.build_mode(None, os.environ), None, path)
    if library is None:
        from . import _ensure

        if not _without_frames(lambda: _ensure.declares(name, workspace, path)):
            return None

    def request() -> Request:
        from ._request import Request

        return Request(name, workspace=workspace)

    return spec_of(name, library, request)


def recorded(module: str, workspace: str, mode: str, cache_dir: str | None, path: Sequence[str] | None) -> str | None:
    """
    The library of the last decision, if nothing has changed since; `path` is the parent's `__path__`.
    """
    if mode == "force":
        return None
    identity = _record.identify(module, workspace, mode, os.environ, path)
    return _record.find(_settings.write_roots(cache_dir, os.environ), identity, os.environ)


def spec_of(name: str, library: str | None, request: Callable[[], Request]) -> ModuleSpec:
    """
    The spec of an extension. An unknown library is located when the module is created.
    """

    def locate() -> str:
        from . import _ensure

        return _without_frames(lambda: _ensure.locate(request()))

    def repair(broken: str, error: ImportError) -> str:
        from . import _ensure

        return _without_frames(lambda: _ensure.repair(request(), broken, error))

    return ModuleSpec(name, RustExtensionLoader(name, library, locate, repair), origin=library)


def _without_frames(ask: Callable[[], _Answer]) -> _Answer:
    """
    The result of a call. The traceback of our own errors is removed: its frames would hide the message.
    """
    from ._errors import RustExtensionError

    try:
        return ask()
    except RustExtensionError as error:
        raise error.with_traceback(None) from error.__cause__


def registered_workspace(module: str, finders: Sequence[object] | None = None) -> str | None:
    """
    The workspace of the editable install that registered a prefix of this module.
    """
    for finder in sys.meta_path if finders is None else finders:
        prefixes = getattr(finder, "rust_ext_prefixes", ())
        if module.startswith(tuple(prefixes)):
            workspace = getattr(finder, "rust_ext_workspace", None)
            return _current_path(module, workspace) if isinstance(workspace, str) else None
    return None


def _current_path(module: str, workspace: str) -> str:
    """
    The workspace of an editable install, or its new path if it was moved together with the virtual environment in it.
    """
    if os.path.isdir(workspace):
        return workspace
    from .declare import _discover

    return _discover.find_again(module, workspace, sys.prefix) or workspace
