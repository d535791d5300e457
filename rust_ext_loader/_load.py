"""
Turn a library file into a module, put in place as `import` would.

The import system does the placing: it holds the module's lock, imports the
parents, sets the attribute on the parent and removes what failed. This module
supplies the loader, which learns its file only when the module is created, and
stand-ins for parents that nobody provides.

Invariant: `find_spec` never builds; `create_module` may. Part of the warm path,
so nothing heavy is imported.
"""

from __future__ import annotations

import _thread
import sys

# Where `importlib.machinery` has them from: that module would bring `importlib` and `warnings` along, a seventh of a warm import.
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType


class RustExtensionLoader(ExtensionFileLoader):
    """
    Loads one extension module from a library that is decided upon late.
    """

    def __init__(
        self,
        module: str,
        library: str | None,
        locate: Callable[[], str],
        repair: Callable[[str, ImportError], str],
    ) -> None:
        super().__init__(module, library or "")
        self._library = library
        self._locate = locate
        self._repair = repair

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """
        Decide which library it is, building it if need be, and open it.

        A library that the dynamic linker refuses gets one chance of repair; what a module's own init raises is its own.
        """
        library = self._library or self._locate()
        try:
            return self._open(spec, library)
        except ImportError as error:
            if error.path != library:
                raise
            return self._open(spec, self._repair(library, error))

    def _open(self, spec: ModuleSpec, library: str) -> ModuleType:
        self.path = spec.origin = library
        spec.has_location = True
        return super().create_module(spec)


class ParentFinder:
    """
    Supplies the parents of one module as namespace packages, where nobody else does, to the thread that asks for the module.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._thread = _thread.get_ident()
        self._made: list[ModuleSpec] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """
        A namespace package without folders, for ancestors of the module only.
        """
        if not self._module.startswith(name + ".") or _thread.get_ident() != self._thread:
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = []
        self._made.append(spec)
        return spec

    def take_back(self) -> None:
        """
        Remove the stand-ins, lowest first, unless somebody has put something below them meanwhile.
        """
        for spec in reversed(self._made):
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


def import_with(finder: object, module: str) -> ModuleType:
    """
    Import a module while one more finder is asked first, and missing parents are supplied.
    """
    parents = ParentFinder(module)
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]  # a finder needs find_spec alone
    sys.meta_path.append(parents)
    try:
        __import__(module)
    except BaseException:
        parents.take_back()
        raise
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]
        sys.meta_path.remove(parents)
    return sys.modules[module]
