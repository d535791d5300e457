"""
Move entries between the local cache and the remote cache of a workspace.

    pull: remote configured? -> look up and verify -> publish into the local cache
    push: in the local cache? -> valid on other hosts? -> sign -> publish in the remote

This is separate from `_entries`, so that a process without a remote does not
import the optional libraries.

Invariant: no build depends on the remote. Every failure is a miss. It is
reported once per process, and that process does not ask the remote again.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from pathlib import Path

from .. import _settings
from .._errors import CacheWarning, ExtensionNotFound, RemoteUnavailable, RustExtensionError, SettingError
from .._model import Mode
from .._values import dataclass
from ..cache import _store
from ..declare import _discover, _project
from ..files import _staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._request import Target
    from ..declare._project import RemoteSettings
    from ..facts._snapshot import Snapshot
    from ._signature import Signer

#: Seconds that an import may wait for the remote.
IMPORT_TIMEOUT = 10.0
#: Seconds that `rust-ext push` and `rust-ext pull` may wait.
COMMAND_TIMEOUT = 600.0

#: Failures of the remote in this process; after the first one the remote is not used.
_failures: list[str] = []


def instead_of_building(target: Target, now: Snapshot, root: Path, note: Callable[[str], None]) -> _store.Entry | None:
    """
    An entry with exactly these facts from the remote; `None` if there is none or if none may be used.
    """
    # `from_scratch` means that a library failed to load. It may have been pulled, so it is not pulled again.
    if target.mode is not Mode.AUTO or target.request.from_scratch or _failures:
        return None
    try:
        settings = remote_of(target)
        if settings is None:
            return None
        began = time.monotonic()
        entry = pull(target, now, root, settings, IMPORT_TIMEOUT)
    except (RustExtensionError, OSError) as problem:
        _failures.append(str(problem))
        advice = f"fix that, or switch the remote off with {_settings.REMOTE_URL}= (empty)"
        warnings.warn(
            CacheWarning(f"this process ignores the remote cache from now on: {problem}; {advice}"), stacklevel=2
        )
        return None
    if entry is not None:
        note(f"pulled {target.spec.module} from {settings.redacted_url} in {time.monotonic() - began:.1f} s")
    return entry


def remote_of(target: Target) -> RemoteSettings | None:
    """
    The remote of the requested workspace; raises `ManifestError` or `SettingError`.
    """
    asked = Path(target.request.workspace or target.spec.workspace)
    return _project.remote(_discover.read_workspace(asked).root, target.environment)


def required_remote(target: Target) -> RemoteSettings:
    """
    The remote of the requested workspace; raises `RemoteUnavailable` if none is configured.
    """
    settings = remote_of(target)
    if settings is None:
        where = f"`[tool.{_settings.PYPROJECT_TABLE}.remote] url` in pyproject.toml or {_settings.REMOTE_URL}"
        raise RemoteUnavailable("remote cache", f"none is configured; set {where}")
    return settings


def pull(target: Target, now: Snapshot, root: Path, settings: RemoteSettings, timeout: float) -> _store.Entry | None:
    """
    Fetch an entry with exactly these facts and store it here; a warning lists refused entries.

    Raises `RemoteUnavailable`, `SettingError` or `OSError`.
    """
    seconds = _settings.seconds(_settings.REMOTE_TIMEOUT, target.environment, timeout)
    name = target.spec.leaf + now.abi.suffix
    with _staging.staged_folder(root) as folder:
        with _errors_translated(settings, seconds):
            from . import _entries

            wanted = _entries.Wanted(target.spec.module, now.fingerprint, now.current_inputs.match)
            answer = _entries.look_up(settings, wanted, folder / name, seconds)
        if answer.refused:
            text = f"{target.spec.module}: refused entries of {settings.redacted_url}: {'; '.join(answer.refused)}"
            warnings.warn(CacheWarning(text), stacklevel=2)
        if answer.origin is None:
            return None
        entry = _store.publish(root, target.spec.module, now.fingerprint, folder / name, name, answer.origin)
    from ..cache import _gc

    _gc.after_build(root, target.environment)
    return entry


@dataclass(frozen=True, slots=True)
class Pushed:
    """
    The result for one module.
    """

    #: `pushed`, `present` (the remote already had it) or `host-bound` (it is valid on this host only).
    outcome: str
    #: The facts and inputs that are valid on this host only.
    bound_by: tuple[str, ...] = ()


def check_signer(target: Target, signer: Signer) -> None:
    """
    Refuse a signing key that the workspace does not trust: no host would accept what it signs.

    Raises `RemoteUnavailable` or `SettingError`.
    """
    settings = required_remote(target)
    if signer.public_key not in settings.public_keys:
        raise SettingError(
            _settings.SIGNING_KEY,
            signer.public_key,
            f"a key whose public half is trusted; add that half to {settings.keys_from}, or sign with another key",
        )


def push(target: Target, entry: _store.Entry | None, signer: Signer) -> Pushed:
    """
    Sign and publish an entry, unless it is valid on this host only.

    Raises `ExtensionNotFound`, `RemoteUnavailable` or `SettingError`.
    """
    settings = required_remote(target)
    if entry is None:
        raise ExtensionNotFound(
            target.spec.module,
            "it is not built, so there is nothing to push",
            f"run `rust-ext build {target.spec.module}`",
        )
    seconds = _settings.seconds(_settings.REMOTE_TIMEOUT, target.environment, COMMAND_TIMEOUT)
    with _errors_translated(settings, seconds):
        from . import _entries

        if bound := _entries.bound_to_host(entry):
            return Pushed("host-bound", bound)
        return Pushed("pushed" if _entries.publish(settings, signer, entry, seconds) else "present")


@contextlib.contextmanager
def _errors_translated(settings: RemoteSettings, seconds: float) -> Iterator[None]:
    """
    Turn every failure of a remote into `RemoteUnavailable`; its libraries are optional and may be missing.
    """
    from ._object_store import OutOfTime, RemoteFailed

    try:
        yield
    except RustExtensionError:
        raise
    except ImportError as error:
        raise RemoteUnavailable(settings.redacted_url, f"{error}; install `rust-ext-loader[remote]`") from error
    except OutOfTime as error:
        raise RemoteUnavailable(
            settings.redacted_url, f"{error} (limit: {_settings.REMOTE_TIMEOUT}={seconds:g})"
        ) from error
    except RemoteFailed as error:
        raise RemoteUnavailable(settings.redacted_url, str(error)) from error
