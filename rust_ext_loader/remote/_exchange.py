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
from ..cache import _gc, _store
from ..declare import _discover, _project
from ..files import _staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._case import Case
    from ..build._progress import Progress
    from ..declare._project import RemoteSettings
    from ..facts._snapshot import Snapshot
    from ._signature import Signer

#: Seconds that an import may wait for a remote, and a command that was asked to.
PATIENCE_OF_IMPORT = 10.0
PATIENCE_OF_COMMAND = 600.0

#: Whether this process has said that its remote does not work.
_gave_up: list[str] = []


def instead_of_building(case: Case, now: Snapshot, progress: Progress) -> _store.Entry | None:
    """
    An entry of exactly these facts that somebody else has built, if one is to be had and wanted.
    """
    # What was pulled and would not load is pulled no second time.
    if case.mode != "auto" or case.request.from_scratch or _gave_up:
        return None
    try:
        settings = remote_of(case)
        if settings is None:
            return None
        began = time.monotonic()
        entry = pull(case, now, settings, PATIENCE_OF_IMPORT)
    except (RustExtensionError, OSError) as problem:
        _gave_up.append(str(problem))
        advice = f"mend that, or go without the remote with {_settings.REMOTE_URL}= (empty)"
        warnings.warn(
            CacheWarning(f"the remote cache is left aside by this process: {problem}; {advice}"), stacklevel=2
        )
        return None
    if entry is not None:
        progress.note(f"pulled {case.spec.module} from {settings.shown} in {time.monotonic() - began:.1f} s")
    return entry


def remote_of(case: Case) -> RemoteSettings | None:
    """
    The remote of the workspace that was asked; raises `ManifestError` or `SettingError`.
    """
    asked = Path(case.request.workspace or case.spec.workspace)
    return _project.remote(_discover.read_workspace(asked).root, case.environment)


def required_remote(case: Case) -> RemoteSettings:
    """
    The same, for whoever cannot go without.
    """
    settings = remote_of(case)
    if settings is None:
        where = f"`[tool.{_settings.PYPROJECT_TABLE}.remote] url` in pyproject.toml or {_settings.REMOTE_URL}"
        raise RemoteUnavailable("remote cache", f"none is configured; set {where}")
    return settings


def pull(case: Case, now: Snapshot, settings: RemoteSettings, patience: float) -> _store.Entry | None:
    """
    Fetch an entry of exactly these facts and store it here, with a warning that names what was refused.

    Raises `RemoteUnavailable`, `SettingError` or `OSError`.
    """
    seconds = _settings.seconds(_settings.REMOTE_TIMEOUT, case.environment, patience)
    name = case.spec.leaf + now.abi.suffix
    with _staging.staged_folder(case.write_root) as folder:
        with _translated(settings, seconds):
            from . import _remote

            wanted = _remote.Wanted(case.spec.module, now.fingerprint, now.sight.holds)
            answer = _remote.look_up(settings, wanted, folder / name, seconds)
        if answer.refused:
            text = f"{case.spec.module}: refused what {settings.shown} offered: {'; '.join(answer.refused)}"
            warnings.warn(CacheWarning(text), stacklevel=2)
        if answer.origin is None:
            return None
        entry = _store.publish(case.write_root, case.spec.module, now.fingerprint, folder / name, name, answer.origin)
    _gc.after_build(case.write_root, case.environment)
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


def push(case: Case, signer: Signer) -> Pushed:
    """
    Publish what is cached of exactly these facts, unless it is bound to this host.

    Raises `ExtensionNotFound`, `RemoteUnavailable`, `SettingError` or `ToolchainMissing`.
    """
    settings = required_remote(case)
    if signer.public_key not in settings.public_keys:
        raise SettingError(
            _settings.SIGNING_KEY,
            signer.public_key,
            "a key whose public half is trusted, else nobody would take what it signs",
        )
    entry = case.entry(case.snapshot)
    if entry is None:
        raise ExtensionNotFound(
            case.spec.module, "it is not built, so there is nothing to push", f"run `rust-ext build {case.spec.module}`"
        )
    seconds = _settings.seconds(_settings.REMOTE_TIMEOUT, case.environment, PATIENCE_OF_COMMAND)
    with _translated(settings, seconds):
        from . import _remote

        if bound := _remote.bound_to_host(entry):
            return Pushed("host-bound", bound)
        return Pushed("pushed" if _remote.publish(settings, signer, entry, seconds) else "present")


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
