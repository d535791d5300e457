"""
Load a library file as a module, the way `import` does.

The import system holds the module's lock, imports the parents, sets the attribute
on the parent and removes a module that failed. This file supplies the loader,
which locates its library only when the module is created, and namespace packages
for parents that no finder provides.

Invariant: `find_spec` never builds; `create_module` may. Part of the warm path,
so the imports here are cheap.
"""

from __future__ import annotations

import _thread
import sys

# Not from `importlib.machinery`: it imports `importlib` and `warnings`, a seventh of the cost of a warm import.
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType


class RustExtensionLoader(ExtensionFileLoader):
    """
    Loads one extension module from a library that is located late.
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
        Locate the library, which may build it, and open it.

        If the dynamic linker refuses the library, it is repaired once. An error of the module's own init is not changed.
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
    Supplies missing parents of one module as namespace packages, to the thread that imports the module.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._thread = _thread.get_ident()
        self._supplied: list[ModuleSpec] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
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


def import_with(finder: object, module: str) -> ModuleType:
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
