"""
Define the environment variables and their defaults, and convert their values.

`_warm` defines the variables that a warm import reads.

Invariant: names of the `sglang` project (variables, the metadata table) are defined only
here and in `_warm`. Other modules only quote them in texts.
"""

from __future__ import annotations

import os

from . import _warm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    _Default = TypeVar("_Default", float, None)

#: `warn` or `error`: what to do if only a stale bundled module is available. Default: `error` if `CI=true`, else
#: `warn`.
STALE = "SGLANG_RUST_STALE"
#: Further roots that are read but never written, separated as in PATH. Example: a root in a container image.
CACHE_PATH = "RUST_EXT_CACHE_PATH"
#: Folders on network file systems that the kernel does not report as such, separated as in PATH.
NETWORK_PATHS = "RUST_EXT_NETWORK_PATHS"
#: Seconds to wait for another process's build. Default: one hour.
LOCK_TIMEOUT = "RUST_EXT_LOCK_TIMEOUT"
#: Seconds a build may take. Default: no limit.
BUILD_TIMEOUT = "RUST_EXT_BUILD_TIMEOUT"
#: Seconds that cargo and rustc may take to print their versions. Default: 30.
PROBE_TIMEOUT = "RUST_EXT_PROBE_TIMEOUT"
#: Parallel compiler jobs. Default: cargo's.
JOBS = "RUST_EXT_JOBS"
#: Cargo profile to build with, instead of the declared one.
PROFILE = "RUST_EXT_PROFILE"
#: Further arguments to cargo, quoted as for a shell; they are a fact of the build.
CARGO_ARGUMENTS = "RUST_EXT_CARGO_ARGS"
#: `1`: cargo may not use the network. Together with `--locked`, which is always passed, that is cargo's `--frozen`.
#: A remote cache is then used only if it is a folder.
OFFLINE = "RUST_EXT_OFFLINE"
#: Size limit of the cache, as in `10G`; `0`: no limit. Above it, the least recently used entries are removed.
#: Default: 10 GB.
CACHE_LIMIT = "RUST_EXT_CACHE_LIMIT"
#: `off`: never build in the edit tier. `on`: build in it even under `CI=true`. Default: on, except under `CI=true`.
EDIT_TIER = "RUST_EXT_EDIT_TIER"
#: `1`: show compiler warnings of a successful build.
SHOW_WARNINGS = "RUST_EXT_SHOW_WARNINGS"
#: URL of the remote cache, instead of the project's; empty: none.
REMOTE_URL = "RUST_EXT_REMOTE_URL"
#: Public keys whose signatures are trusted, instead of the project's; separated by commas or spaces.
REMOTE_KEYS = "RUST_EXT_REMOTE_KEYS"
#: Time limit for the remote in seconds. Default: 10 for an import, 600 for a command.
REMOTE_TIMEOUT = "RUST_EXT_REMOTE_TIMEOUT"
#: File of the private key that `rust-ext push` signs with.
SIGNING_KEY = "RUST_EXT_SIGNING_KEY"
#: Set by a process in mode `force` for its child processes, which then accept its builds.
FORCE_TOKEN = "RUST_EXT_FORCE_TOKEN"  # noqa: S105 - a variable's name

DEFAULT_LIMIT = 10 * 10**9

#: The default `<table>`: `[package.metadata.<table>]` of a crate declares its Python module.
METADATA_TABLE = "sglang"
#: A workspace names another table by `metadata-table = "..."` in `[workspace.metadata.rust-ext-loader]`.
WORKSPACE_TABLE = "rust-ext-loader"
#: `[tool.rust-ext-loader]` of a `pyproject.toml` holds a project's settings.
PYPROJECT_TABLE = "rust-ext-loader"


def stale_is_error(environment: Mapping[str, str]) -> bool:
    """
    Whether a stale bundled module is refused instead of used with a warning.
    """
    default = "error" if environment.get("CI") == "true" else "warn"
    choice = environment.get(STALE) or default
    if choice not in ("warn", "error"):
        from ._errors import SettingError

        raise SettingError(STALE, choice, "`warn` or `error`")
    return choice == "error"


def edit_tier(environment: Mapping[str, str]) -> bool:
    """
    Whether a changed module may be built in the edit tier.

    Raises `SettingError` for a value other than `on` and `off`.
    """
    choice = environment.get(EDIT_TIER) or ("off" if environment.get("CI") == "true" else "on")
    if choice not in ("on", "off"):
        from ._errors import SettingError

        raise SettingError(EDIT_TIER, choice, "`on` or `off`")
    return choice == "on"


def seconds(name: str, environment: Mapping[str, str], default: _Default) -> float | _Default:
    """
    A duration in seconds; an unset or empty variable gives the default.
    """
    return _number(name, environment.get(name), default, "a positive number of seconds")


def jobs(environment: Mapping[str, str]) -> int | None:
    """
    How many compiler jobs cargo may run, `None` to let it choose.
    """
    count = _number(JOBS, environment.get(JOBS), None, "a positive whole number")
    return None if count is None else max(1, int(count))


def _number(name: str, text: str | None, default: _Default, expected: str) -> float | _Default:
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        from ._errors import SettingError

        raise SettingError(name, text, expected)
    return value


def profile(environment: Mapping[str, str]) -> str | None:
    """
    The cargo profile that replaces the declared ones.

    Raises `SettingError` for a name that is not valid for a profile.
    """
    chosen = environment.get(PROFILE)
    if chosen and not chosen.replace("-", "").replace("_", "").isalnum():
        from ._errors import SettingError

        raise SettingError(PROFILE, chosen, "the name of a cargo profile")
    return chosen or None


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def size(name: str, environment: Mapping[str, str], default: int) -> int | None:
    """
    A number of bytes; `None` for zero, which means no limit.
    """
    text = environment.get(name)
    value = parse_size(name, text) if text else default
    return value or None


def parse_size(name: str, text: str) -> int:
    """
    Bytes from a number with a decimal unit, as in `10G` or `500 MB`.

    Raises `SettingError`.
    """
    plain = text.strip().lower().removesuffix("b")
    unit = plain[-1:] if plain[-1:].isalpha() else ""
    return int(_amount(name, text, plain.removesuffix(unit), _UNITS.get(unit), "a size such as 500M or 10G"))


def parse_age(name: str, text: str) -> float:
    """
    Seconds from a number with a unit, as in `30d` or `12h`.

    Raises `SettingError`.
    """
    plain = text.strip().lower()
    return _amount(name, text, plain[:-1], _SECONDS.get(plain[-1:]), "an age such as 12h or 30d")


def _amount(name: str, text: str, number: str, unit: float | None, expected: str) -> float:
    try:
        value = float(number) if unit is not None else -1.0
    except ValueError:
        value = -1.0
    amount = value * (unit or 0.0)
    if unit is None or not 0 <= amount < float("inf"):
        from ._errors import SettingError

        raise SettingError(name, text, expected)
    return amount


def spell_size(count: int) -> str:
    """
    A number of bytes with a decimal unit, as in `1.5 GB`.
    """
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def switched_on(name: str, environment: Mapping[str, str]) -> bool:
    """
    Whether a boolean variable is on.
    """
    return environment.get(name, "") not in ("", "0", "false", "no")


def read_roots(argument: str | None, environment: Mapping[str, str]) -> list[str]:
    """
    Every root to search. The preferred root to write to is first, the temporary one last.
    """
    extra = [os.path.abspath(item) for item in environment.get(CACHE_PATH, "").split(os.pathsep) if item]
    return list(dict.fromkeys([_warm.cache_root(argument, environment), *extra, _warm.temporary_root()]))
