"""
The request of a caller, and the declared extension that it is for.

Invariant: nothing here reads the disk. `environment` is the live `os.environ` unless
the request replaces variables, so a change of it is visible.
"""

from __future__ import annotations

import os

from . import _settings, _warm
from ._model import Mode
from ._values import KW_ONLY, dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._model import ExtensionSpec


@dataclass(frozen=True, slots=True)
class Request:
    """
    One call: a module and the settings to find or build it with.
    """

    module: str
    _: KW_ONLY
    mode: str | None = None
    workspace: str | None = None
    cache_dir: str | None = None
    features: tuple[str, ...] = ()
    #: Variables that replace those of the process's environment.
    overlay: Mapping[str, str] | None = None
    #: With mode `force`: compile even if another process has just built the module.
    always: bool = False
    #: If a build is needed, first remove the compiled objects in the target folder.
    from_scratch: bool = False
    #: Whether only a full build is accepted, and none of the edit tier.
    full: bool = False
    #: If set, cargo reports how long each crate took, and this gets the report's path; empty if cargo wrote none.
    timings: Callable[[str], None] | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """
        The environment from which facts are read.
        """
        return {**os.environ, **self.overlay} if self.overlay else os.environ

    @property
    def leaf(self) -> str:
        """
        Last part of the module's name.
        """
        return self.module.rpartition(".")[2]

    @property
    def effective_mode(self) -> Mode:
        """
        The mode of this call: its argument, else the environment's, else `auto`.

        Raises `SettingError` for an unknown mode.
        """
        return Mode(_warm.build_mode(self.mode, self.environment))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    One declared extension and the request for it.
    """

    request: Request
    mode: Mode
    #: The extension as its crate declares it.
    declared: ExtensionSpec
    #: The extension as it is built: the declaration, with the profile from the environment if that sets one.
    spec: ExtensionSpec
    environment: Mapping[str, str]


def target_of(request: Request, declared: ExtensionSpec) -> Target:
    """
    The target of a request whose module is declared.

    Raises `SettingError` for an unknown mode or an invalid profile name.
    """
    environment = request.environment
    profile = _settings.profile(environment)
    return Target(
        request=request,
        mode=request.effective_mode,
        declared=declared,
        spec=replace(declared, profile=profile) if profile else declared,
        environment=environment,
    )
