"""
What a program calls: load an extension now, or ask whether it could be loaded.

Invariant: an unknown mode is refused before anything else is looked at, and a
module that is imported already is never replaced.
"""

from __future__ import annotations

import os
import sys
from threading import get_ident

from . import _ensure, _hook, _record, _settings
from ._errors import AlreadyImported
from ._load import RustExtensionLoader, import_with
from ._model import State, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def load_rust_extension(
    module: str,
    *,
    mode: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    features: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> ModuleType:
    """
    Import an extension module, building it first if it must be and may be.

    *module* is its dotted name. *mode* is `auto`, `never` or `force`; by default what `SGLANG_RUST_BUILD_MODE` says, else
    `auto`. *workspace* is the folder of the cargo workspace that declares it; by default that of the editable install which
    registered the name. *features* are cargo features on top of the declared ones; they never match a bundled module.
    *environment* overlays `os.environ`, for the facts and for the build.

    Raises `SettingError` (a `ValueError`) for an unknown mode, and otherwise `RustExtensionError` (an `ImportError`):
    `ExtensionNotFound`, `BuildFailed`, `ToolchainMissing`, `LockTimeout` and the rest of that hierarchy. What the module's
    own initialisation raises passes through.
    """
    request = _request(module, mode, workspace, cache_dir, features, environment)
    chosen = _settings.build_mode(request.mode, request.environment)
    if module in sys.modules:
        if chosen == "force":
            raise AlreadyImported(module)
        return sys.modules[module]
    return import_with(_RequestFinder(request, chosen), module)


def can_load(
    module: str,
    *,
    mode: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    features: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Verdict:
    """
    Whether `load_rust_extension` would succeed, and where the module would come from.

    Builds nothing and raises nothing for a module that cannot be had: the verdict says why. It is true if the module can be
    loaded or a build may be tried. Only an unknown mode raises (`SettingError`).
    """
    request = _request(module, mode, workspace, cache_dir, features, environment)
    chosen = _settings.build_mode(request.mode, request.environment)
    if module in sys.modules:
        library = getattr(sys.modules[module], "__file__", None)
        forced = chosen == "force"
        why = str(AlreadyImported(module)) if forced else "imported by this process"
        return Verdict(module, State.IMPORTED, not forced, False, library, why)
    return _ensure.judge(request)


def _request(
    module: str,
    mode: str | None,
    workspace: str | os.PathLike[str] | None,
    cache_dir: str | os.PathLike[str] | None,
    features: Sequence[str],
    environment: Mapping[str, str] | None,
) -> _ensure.Request:
    where = os.fspath(workspace) if workspace is not None else _hook.registered_workspace(module)
    return _ensure.Request(
        module,
        mode=mode,
        workspace=where,
        cache_dir=None if cache_dir is None else os.fspath(cache_dir),
        features=tuple(features),
        overlay=environment,
    )


class _RequestFinder:
    """
    Answers one request, for the thread that made it.
    """

    def __init__(self, request: _ensure.Request, mode: str) -> None:
        self._request = request
        self._mode = mode
        self._thread = get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """
        The spec of the module asked for; nothing else is ours.
        """
        if name != self._request.module or get_ident() != self._thread:
            return None
        from importlib.machinery import ModuleSpec

        request = self._request
        loader = RustExtensionLoader(
            name,
            self._from_record(path),
            lambda: _ensure.locate(request),
            lambda broken, error: _ensure.repair(request, broken, error),
        )
        return ModuleSpec(name, loader)

    def _from_record(self, path: Sequence[str] | None) -> str | None:
        request = self._request
        if self._mode == "force" or request.features or request.overlay or request.workspace is None:
            return None
        identity = _record.identify(request.module, request.workspace, self._mode, request.environment, path)
        roots = _settings.write_roots(request.cache_dir, request.environment)
        return _record.find(roots, identity, request.environment)
