"""
Answer the import system for the names of an editable install, and load libraries.

The `.pth` file of an editable install adds a small finder to `sys.meta_path`. It
calls `find_spec` here only when a name under its prefixes is imported. The loader
locates its library only when the module is created. The import system holds the
module's lock, imports the parents and removes a module that failed;
`ParentFinder` supplies parents that no other finder provides.

Invariant: `find_spec` never builds; `create_module` may. While the record is valid,
only `_record`, `_settings`, `_stat` and `_trust` are imported.
"""

import _thread
import os
import sys

# `importlib.machinery` would import `importlib` and `warnings`: a seventh of the cost of a warm import.
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader

from . import _record, _settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import TypeVar

    from ._request import Request

    _Answer = TypeVar("_Answer")


def find_spec(name: str, workspace: str, path: "Sequence[str] | None" = None) -> "ModuleSpec | None":
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

    def request() -> "Request":
        from ._request import Request

        return Request(name, workspace=workspace)

    return spec_of(name, library, request)


def recorded(
    module: str, workspace: str, mode: str, cache_dir: "str | None", path: "Sequence[str] | None"
) -> "str | None":
    """
    The library of the last decision, if nothing has changed since; `path` is the parent's `__path__`.
    """
    if mode == "force":
        return None
    identity = _record.identify(module, workspace, mode, os.environ, path)
    return _record.find(_settings.write_roots(cache_dir, os.environ), identity, os.environ)


def spec_of(name: str, library: "str | None", request: "Callable[[], Request]") -> "ModuleSpec":
    """
    The spec of an extension. If *library* is `None`, the library is located when the module is created.
    """

    def locate() -> str:
        from . import _ensure

        return _without_frames(lambda: _ensure.locate(request()))

    def repair(broken: str, error: "ImportError") -> str:
        from . import _ensure

        return _without_frames(lambda: _ensure.repair(request(), broken, error))

    return ModuleSpec(name, RustExtensionLoader(name, library, locate, repair), origin=library)


def _without_frames(ask: "Callable[[], _Answer]") -> "_Answer":
    """
    The result of a call. The traceback of our own errors is removed: its frames would hide the message.
    """
    from ._errors import RustExtensionError

    try:
        return ask()
    except RustExtensionError as error:
        raise error.with_traceback(None) from error.__cause__


def registered_workspace(module: str, finders: "Sequence[object] | None" = None) -> "str | None":
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


class RustExtensionLoader(ExtensionFileLoader):
    """
    Loads one extension module. If its library is unknown, it is located when the module is created.
    """

    def __init__(
        self,
        module: str,
        library: "str | None",
        locate: "Callable[[], str]",
        repair: "Callable[[str, ImportError], str]",
    ) -> None:
        super().__init__(module, library or "")
        self._library = library
        self._locate = locate
        self._repair = repair

    def create_module(self, spec: "ModuleSpec") -> "ModuleType":
        """
        Locate the library, which may build it, and open it.

        If the dynamic linker refuses the library, `repair` is called once. An error that the module's own
        initialisation raises is not changed.
        """
        library = self._library or self._locate()
        try:
            return self._open(spec, library)
        except ImportError as error:
            if error.path != library:
                raise
            return self._open(spec, self._repair(library, error))

    def _open(self, spec: "ModuleSpec", library: str) -> "ModuleType":
        self.path = spec.origin = library
        spec.has_location = True
        return super().create_module(spec)


class ParentFinder:
    """
    Supplies missing parents of one module as namespace packages, to the thread that imports the module.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._thread = _thread.get_ident()
        self._supplied: list[ModuleSpec] = []

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """
        A namespace package without folders, only for ancestors of the module.
        """
        if not self._module.startswith(name + ".") or _thread.get_ident() != self._thread:
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = []
        self._supplied.append(spec)
        return spec

    def remove_supplied(self) -> None:
        """
        Remove the supplied parents, innermost first, unless another module below them has been imported since.
        """
        for spec in reversed(self._supplied):
            module = sys.modules.get(spec.name)
            if getattr(module, "__spec__", None) is not spec or any(
                name.startswith(spec.name + ".") for name in list(sys.modules)
            ):
                continue
            del sys.modules[spec.name]
            parent, _, leaf = spec.name.rpartition(".")
            above = sys.modules.get(parent)
            if above is not None and getattr(above, leaf, None) is module:
                delattr(above, leaf)


def import_with(finder: object, module: str) -> "ModuleType":
    """
    Import a module with an additional finder that is asked first, and with missing parents supplied.
    """
    parents = ParentFinder(module)
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]  # a finder needs find_spec alone
    sys.meta_path.append(parents)
    try:
        __import__(module)
    except BaseException:
        parents.remove_supplied()
        raise
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]
        sys.meta_path.remove(parents)
    return sys.modules[module]
