"""
Answer the import system when no record is valid.

`_warm` calls this module from the finder and the loader of an extension. The import
system holds the module's lock, imports the parents and removes a module that failed.

Invariant: `find_unrecorded` never builds; `locate` and `repair` may. The modules of a
decision are imported by the functions that need them, because the `.pth` line of an
earlier version calls `find_spec` here for warm imports too.
"""

from __future__ import annotations

import os
import sys

from . import _warm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from typing import TypeVar

    from ._request import Request

    _Answer = TypeVar("_Answer")

#: `.pth` files of earlier versions call it here.
find_spec = _warm.find_spec


def find_unrecorded(name: str, workspace: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """
    The spec of a declared extension without a valid record, or `None` when the name is not one.

    Raises `ManifestError` if no crate declares the name, no other finder provides it, and a manifest is broken.
    """
    current = current_path(name, workspace)
    library = None
    if current != workspace:
        library = _warm.recorded(name, current, _warm.build_mode(None, os.environ), None, path)
    if library is None:
        from . import _ensure

        if not _without_frames(lambda: _ensure.declares(name, current, path)):
            return None
    return _warm.spec_of(name, library, lambda: request(name, current))


def current_path(module: str, workspace: str) -> str:
    """
    The workspace of an editable install, or its new path if it was moved together with the virtual environment in it.
    """
    if os.path.isdir(workspace):
        return workspace
    from .declare import _discover

    return _discover.find_again(module, workspace, sys.prefix) or workspace


def request(module: str, workspace: str) -> Request:
    """
    The request of an `import` statement.
    """
    from ._request import Request

    return Request(module, workspace=workspace)


def locate(request: Request) -> str:
    """
    The library of a declared extension, which is built if that is needed.
    """
    from . import _ensure

    return _without_frames(lambda: _ensure.locate(request))


def repair(request: Request, library: str, error: ImportError) -> str:
    """
    A library in place of one that the dynamic linker refuses.
    """
    from . import _ensure

    return _without_frames(lambda: _ensure.repair(request, library, error))


def _without_frames(ask: Callable[[], _Answer]) -> _Answer:
    """
    The result of a call. The traceback of our own errors is removed: its frames would hide the message.
    """
    from ._errors import RustExtensionError

    try:
        return ask()
    except RustExtensionError as error:
        raise error.with_traceback(None) from error.__cause__
