"""
Decide how the packages of a workspace are compiled for the edit loop.

    [tool.rust-ext-loader]
    edit = { incremental = true, codegen-units = 256 }      # the default; `false` switches the tier off

    [tool.rust-ext-loader.edit.package]
    kernels = { opt-level = 3 }                             # in addition, for one package
    tables = false                                          # this package keeps its declared profile

The keys are those of a cargo profile override. They apply to the packages whose
sources are on this disk. The dependencies that cargo fetches keep the declared
profile, so a build in the edit tier compiles none of them again.

Invariant: the settings are facts. They change how code is compiled, but not which code:
they cannot set features or compiler flags.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from .. import _settings
from .._errors import ManifestError
from .._values import dataclass
from ..files._watching import watch
from . import _manifest, _project, _toml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .._model import Watched

_Overrides: TypeAlias = "Mapping[str, bool | int | str]"

#: The key of `[tool.rust-ext-loader]`.
_KEY = "edit"
_PACKAGES = "package"

#: Incremental compilation reuses the functions that did not change. Each codegen unit with a changed function is
#: compiled again, so many small units make an edit cheap.
_DEFAULT: _Overrides = {"incremental": True, "codegen-units": 256}

#: The keys of a profile override that change how code is compiled, but not what it does.
_ALLOWED = ("codegen-units", "debug", "incremental", "opt-level")


@dataclass(frozen=True, slots=True, kw_only=True)
class EditSettings:
    """
    The profile overrides of the edit tier.
    """

    #: The overrides of every package without overrides of its own.
    common: _Overrides
    #: The complete overrides of single packages. An empty one keeps the declared profile.
    packages: Mapping[str, _Overrides]
    #: The files that may hold the settings.
    watched: Watched

    @property
    def canonical(self) -> str:
        """
        The value of the fact that stands for these settings.
        """
        return _manifest.canonical({"": self.common, **self.packages})

    def of_package(self, name: str) -> _Overrides:
        """
        The overrides of one package, by the keys of a cargo profile.
        """
        return self.packages.get(name, self.common)


def settings_of(workspace: Path) -> EditSettings | None:
    """
    The settings of a workspace; `None` if its project switches the tier off.

    Raises `ManifestError` for invalid settings.
    """
    watched = watch(os.fspath(path) for path in _project.settings_files(workspace))
    found = _project.find_setting(workspace, _KEY)
    if found is None:
        return EditSettings(common=_DEFAULT, packages={}, watched=watched)
    if found.value is False:
        return None
    if not isinstance(found.value, dict):
        raise _invalid(found.file, _KEY, "a table of profile settings, or `false`")
    common = _overrides(found.file, {key: value for key, value in found.value.items() if key != _PACKAGES})
    packages = found.value.get(_PACKAGES, {})
    if not isinstance(packages, dict):
        raise _invalid(found.file, f"{_KEY}.{_PACKAGES}", "a table of packages")
    common = {**_DEFAULT, **common}
    return EditSettings(
        common=common,
        packages={name: _of_one(found.file, name, value, common) for name, value in packages.items()},
        watched=watched,
    )


def _of_one(file: Path, name: str, value: object, common: _Overrides) -> _Overrides:
    if value is False:
        return {}
    if not isinstance(value, dict):
        raise _invalid(file, f"{_KEY}.{_PACKAGES}.{name}", "a table of profile settings, or `false`")
    return {**common, **_overrides(file, value)}


def _overrides(file: Path, values: Mapping[str, object]) -> dict[str, bool | int | str]:
    found: dict[str, bool | int | str] = {}
    for key, value in values.items():
        if key not in _ALLOWED:
            raise _invalid(file, f"{_KEY}.{key}", f"one of {', '.join(_ALLOWED)}, {_PACKAGES}", is_key=True)
        if not isinstance(value, (bool, int, str)):
            raise _invalid(file, f"{_KEY}.{key}", "a boolean, a whole number or a string")
        found[key] = value
    return found


def _invalid(file: Path, key: str, expected: str, *, is_key: bool = False) -> ManifestError:
    table = f"tool.{_settings.PYPROJECT_TABLE}"
    outer, _, last = key.rpartition(".")
    line = _toml.line_of(file, f"{table}.{outer}" if outer else table, last) or _toml.line_of(file, table, _KEY)
    problem = "is unknown; expected" if is_key else "must be"
    return ManifestError(str(file), f"[{table}] `{key}` {problem} {expected}", line)
