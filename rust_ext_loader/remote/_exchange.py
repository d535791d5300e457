"""
Exchange entries between the local cache and the remote one of a workspace.

    pull: remote configured? -> look up, verified -> publish into the local cache
    push: in the local cache? -> bound to this host? -> sign -> publish there

Invariant: a build never depends on it. Whatever goes wrong is a miss, said once
per process, and a remote that failed is not asked again by that process. Where no
remote is configured, nothing that could speak with one is imported.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from .. import _settings
from .._errors import CacheWarning, ExtensionNotFound, RemoteUnavailable, RustExtensionError, SettingError
from .._model import Mode
from ..cache import _gc, _store
from ..declare import _discover, _project
from ..files import _staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._request import Target
    from ..build._progress import Progress
    from ..declare._project import RemoteSettings
    from ..facts._snapshot import Snapshot
    from ._signature import Signer

#: Seconds that an import may wait for a remote, and a command that was asked to.
PATIENCE_OF_IMPORT = 10.0
PATIENCE_OF_COMMAND = 600.0

#: Whether this process has said that its remote does not work.
_gave_up: list[str] = []


def instead_of_building(target: Target, now: Snapshot, root: Path, progress: Progress) -> _store.Entry | None:
    """
    An entry of exactly these facts that somebody else has built, if one is to be had and wanted.
    """
    # What was pulled and would not load is pulled no second time.
    if target.mode is not Mode.AUTO or target.request.from_scratch or _gave_up:
        return None
    try:
        settings = remote_of(target)
        if settings is None:
            return None
        began = time.monotonic()
        entry = pull(target, now, root, settings, PATIENCE_OF_IMPORT)
    except (RustExtensionError, OSError) as problem:
        _gave_up.append(str(problem))
        advice = f"mend that, or go without the remote with {_settings.REMOTE_URL}= (empty)"
        warnings.warn(
            CacheWarning(f"the remote cache is left aside by this process: {problem}; {advice}"), stacklevel=2
        )
        return None
    if entry is not None:
        progress.note(f"pulled {target.spec.module} from {settings.shown} in {time.monotonic() - began:.1f} s")
    return entry


def remote_of(target: Target) -> RemoteSettings | None:
    """
    The remote of the workspace that was asked; raises `ManifestError` or `SettingError`.
    """
    asked = Path(target.request.workspace or target.spec.workspace)
    return _project.remote(_discover.read_workspace(asked).root, target.environment)


def required_remote(target: Target) -> RemoteSettings:
    """
    The same, for whoever cannot go without.
    """
    settings = remote_of(target)
    if settings is None:
        where = f"`[tool.{_settings.PYPROJECT_TABLE}.remote] url` in pyproject.toml or {_settings.REMOTE_URL}"
        raise RemoteUnavailable("remote cache", f"none is configured; set {where}")
    return settings


def pull(target: Target, now: Snapshot, root: Path, settings: RemoteSettings, patience: float) -> _store.Entry | None:
    """
    Fetch an entry of exactly these facts and store it here, with a warning that names what was refused.

    Raises `RemoteUnavailable`, `SettingError` or `OSError`.
    """
    seconds = _settings.seconds(_settings.REMOTE_TIMEOUT, target.environment, patience)
    name = target.spec.leaf + now.abi.suffix
    with _staging.staged_folder(root) as folder:
        with _translated(settings, seconds):
            from . import _entries

            wanted = _entries.Wanted(target.spec.module, now.fingerprint, now.sight.holds)
            answer = _entries.look_up(settings, wanted, folder / name, seconds)
        if answer.refused:
            text = f"{target.spec.module}: refused what {settings.shown} offered: {'; '.join(answer.refused)}"
            warnings.warn(CacheWarning(text), stacklevel=2)
        if answer.origin is None:
            return None
        entry = _store.publish(root, target.spec.module, now.fingerprint, folder / name, name, answer.origin)
    _gc.after_build(root, target.environment)
    return entry


@dataclass(frozen=True, slots=True)
class Pushed:
    """
    What became of one module that was to be pushed.
    """

    #: `pushed`, `present` (it was there) or `host-bound` (it means something on this host alone).
    outcome: str
    #: What binds it.
    bound_by: tuple[str, ...] = ()


def check_signer(target: Target, signer: Signer) -> None:
    """
    Refuse a signing key that the workspace does not trust: no host would take what it signs.

    Raises `RemoteUnavailable` or `SettingError`.
    """
    if signer.public_key not in required_remote(target).public_keys:
        raise SettingError(
            _settings.SIGNING_KEY,
            signer.public_key,
            "a key whose public half is trusted, else nobody would take what it signs",
        )


def push(target: Target, entry: _store.Entry | None, signer: Signer) -> Pushed:
    """
    Sign and publish an entry, unless it is bound to this host.

    Raises `ExtensionNotFound`, `RemoteUnavailable` or `SettingError`.
    """
    settings = required_remote(target)
    if entry is None:
        raise ExtensionNotFound(
            target.spec.module,
            "it is not built, so there is nothing to push",
            f"run `rust-ext build {target.spec.module}`",
        )
    seconds = _settings.seconds(_settings.REMOTE_TIMEOUT, target.environment, PATIENCE_OF_COMMAND)
    with _translated(settings, seconds):
        from . import _entries

        if bound := _entries.bound_to_host(entry):
            return Pushed("host-bound", bound)
        return Pushed("pushed" if _entries.publish(settings, signer, entry, seconds) else "present")


@contextlib.contextmanager
def _translated(settings: RemoteSettings, seconds: float) -> Iterator[None]:
    """
    What goes wrong with a remote, as one error; its libraries are an extra and may be missing.
    """
    from ._object_store import OutOfTime, RemoteFailed

    try:
        yield
    except RustExtensionError:
        raise
    except ImportError as error:
        raise RemoteUnavailable(settings.shown, f"{error}; install `rust-ext-loader[remote]`") from error
    except OutOfTime as error:
        raise RemoteUnavailable(settings.shown, f"{error} (limit: {_settings.REMOTE_TIMEOUT}={seconds:g})") from error
    except RemoteFailed as error:
        raise RemoteUnavailable(settings.shown, str(error)) from error
