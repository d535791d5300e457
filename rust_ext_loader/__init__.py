"""
Build and load Rust extension modules on demand.

Exports the public names and nothing else. Each name is imported when it is first
used, because the import hook of an editable install imports this package in every
program that uses an extension.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._api import can_load as can_load
    from ._api import load_rust_extension as load_rust_extension
    from ._errors import AlreadyImported as AlreadyImported
    from ._errors import BuildFailed as BuildFailed
    from ._errors import CacheUnavailable as CacheUnavailable
    from ._errors import CacheWarning as CacheWarning
    from ._errors import DuplicateModule as DuplicateModule
    from ._errors import ExtensionNotFound as ExtensionNotFound
    from ._errors import InvalidArtifact as InvalidArtifact
    from ._errors import LibraryMissing as LibraryMissing
    from ._errors import LockfileMissing as LockfileMissing
    from ._errors import LockfileOutdated as LockfileOutdated
    from ._errors import LockTimeout as LockTimeout
    from ._errors import ManifestError as ManifestError
    from ._errors import RemoteUnavailable as RemoteUnavailable
    from ._errors import RustExtensionError as RustExtensionError
    from ._errors import SettingError as SettingError
    from ._errors import SourcesMoved as SourcesMoved
    from ._errors import StaleExtension as StaleExtension
    from ._errors import StaleExtensionWarning as StaleExtensionWarning
    from ._errors import ToolchainMissing as ToolchainMissing
    from ._model import Readiness as Readiness
    from ._model import State as State
    from ._model import Verdict as Verdict

_DEFINED_IN = {
    "can_load": "_api",
    "load_rust_extension": "_api",
    "Readiness": "_model",
    "State": "_model",
    "Verdict": "_model",
}

__all__ = (
    "AlreadyImported",
    "BuildFailed",
    "CacheUnavailable",
    "CacheWarning",
    "DuplicateModule",
    "ExtensionNotFound",
    "InvalidArtifact",
    "LibraryMissing",
    "LockTimeout",
    "LockfileMissing",
    "LockfileOutdated",
    "ManifestError",
    "Readiness",
    "RemoteUnavailable",
    "RustExtensionError",
    "SettingError",
    "SourcesMoved",
    "StaleExtension",
    "StaleExtensionWarning",
    "State",
    "ToolchainMissing",
    "Verdict",
    "can_load",
    "load_rust_extension",
)


def __getattr__(name: str) -> object:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    # `load_rust_extension` is on the warm path, and a fresh interpreter has not loaded `importlib`: use `__import__`.
    home = __import__(f"{__name__}.{_DEFINED_IN.get(name, '_errors')}", fromlist=[name])
    return getattr(home, name)


def __dir__() -> "list[str]":
    return list(__all__)
