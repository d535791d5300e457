"""
The public functions: load an extension, or ask whether it could be loaded.

Invariant: an unknown mode raises before anything else is done. An imported module is
never replaced, and a failed import leaves no half-initialised module. While the
record is valid, only this module and `_warm` are imported.
"""

import _thread
import os
import sys
from _frozen_importlib import ModuleSpec

from . import _warm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from ._model import Verdict
    from ._request import Request


def load_rust_extension(
    module: str,
    *,
    mode: "str | None" = None,
    workspace: "str | os.PathLike[str] | None" = None,
    cache_dir: "str | os.PathLike[str] | None" = None,
    features: "Sequence[str]" = (),
    environment: "Mapping[str, str] | None" = None,
) -> "ModuleType":
    """
    Import an extension module. Builds it first if it is missing or stale and the mode allows a build.

    *module* is the dotted name of the module. *mode* is `auto`, `never` or `force`; the default is the value of
    `SGLANG_RUST_BUILD_MODE`, else `auto`. *workspace* is the folder of the cargo workspace that declares the module;
    the default is the workspace of the editable install that registered the name. *features* are cargo features in
    addition to the declared ones; a request with extra features never uses a bundled module. *environment* overrides
    variables of `os.environ`, both in the cache key and in the build.

    Raises `SettingError` (a `ValueError`) for an unknown mode, and otherwise a `RustExtensionError` (an `ImportError`):
    `ExtensionNotFound`, `BuildFailed`, `ToolchainMissing`, `LockTimeout` and the other subclasses. An exception that
    the module's own initialisation raises is not changed.
    """
    where, cache = _workspace(module, workspace), None if cache_dir is None else os.fspath(cache_dir)
    chosen = _warm.build_mode(mode, _overlaid(environment))
    if module in sys.modules:
        if chosen == "force":
            from ._errors import AlreadyImported

            raise AlreadyImported(module)
        return sys.modules[module]

    def request() -> "Request":
        return _request(module, mode, where, cache, features, environment)

    def recorded(path: "Sequence[str] | None") -> "str | None":
        # A request with extra features or variables has no record.
        if where is None or features or environment:
            return None
        return _warm.recorded(module, where, chosen, cache, path)

    return import_with(_OneModule(module, recorded, request), module)


def can_load(
    module: str,
    *,
    mode: "str | None" = None,
    workspace: "str | os.PathLike[str] | None" = None,
    cache_dir: "str | os.PathLike[str] | None" = None,
    features: "Sequence[str]" = (),
    environment: "Mapping[str, str] | None" = None,
) -> "Verdict":
    """
    Whether `load_rust_extension` would succeed, and where the module would come from.

    Builds nothing. The verdict is true if the module can be loaded, or if a build may be attempted; otherwise its `why`
    holds the reason. The only error that it raises is `SettingError`, for an unknown mode.
    """
    where, cache = _workspace(module, workspace), None if cache_dir is None else os.fspath(cache_dir)
    chosen = _warm.build_mode(mode, _overlaid(environment))
    from ._model import Readiness, State, Verdict

    if module in sys.modules:
        from ._errors import AlreadyImported

        library = getattr(sys.modules[module], "__file__", None)
        if chosen == "force":
            return Verdict(module, State.IMPORTED, Readiness.UNAVAILABLE, library, str(AlreadyImported(module)))
        return Verdict(module, State.IMPORTED, Readiness.READY, library, "imported by this process")
    from . import _ensure

    return _ensure.judge(_request(module, mode, where, cache, features, environment))


def _workspace(module: str, workspace: "str | os.PathLike[str] | None") -> "str | None":
    return os.fspath(workspace) if workspace is not None else registered_workspace(module)


def registered_workspace(module: str, finders: "Sequence[object] | None" = None) -> "str | None":
    """
    The workspace of the editable install that registered a prefix of this module.
    """
    for finder in sys.meta_path if finders is None else finders:
        prefixes = getattr(finder, "rust_ext_prefixes", ())
        if module.startswith(tuple(prefixes)):
            workspace = getattr(finder, "rust_ext_workspace", None)
            if not isinstance(workspace, str):
                return None
            if os.path.isdir(workspace):
                return workspace
            from . import _hook

            return _hook.current_path(module, workspace)
    return None


def _overlaid(environment: "Mapping[str, str] | None") -> "Mapping[str, str]":
    return {**os.environ, **environment} if environment else os.environ


def _request(
    module: str,
    mode: "str | None",
    workspace: "str | None",
    cache_dir: "str | None",
    features: "Sequence[str]",
    environment: "Mapping[str, str] | None",
) -> "Request":
    from ._request import Request

    return Request(
        module, mode=mode, workspace=workspace, cache_dir=cache_dir, features=tuple(features), overlay=environment
    )


class _OneModule:
    """
    Finds one module, for the thread that requested it.
    """

    def __init__(
        self, module: str, recorded: "Callable[[Sequence[str] | None], str | None]", request: "Callable[[], Request]"
    ) -> None:
        self._module = module
        self._recorded = recorded
        self._request = request
        self._thread = _thread.get_ident()

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """
        The spec of the requested module; `None` for any other name and in any other thread.
        """
        if name != self._module or _thread.get_ident() != self._thread:
            return None
        return _warm.spec_of(name, self._recorded(path), self._request)


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
