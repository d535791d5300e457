"""
Decide which variables and cargo settings can change what is built.

Variables with compiler flags belong to the request and are part of both keys. Other
variables and configuration files belong to the group `flags` and are part of the
build key only. Values are stored in plain text only for variables of known meaning.
For any other variable that a crate declares, a hash of name and value is stored.
The hash has no secret key: it prevents accidental display, not guessing.

Invariant: a variable that cannot change a build (colours, job counts, wrappers,
virtual environments) is never a fact. If a build could read such a variable, it
is not passed to cargo.
"""

from __future__ import annotations

import os
import re
import shlex

from .. import _settings, _trust, _warm
from .._errors import CacheUnavailable, SettingError
from .._model import ExtensionSpec, Gathered, Watched
from .._values import dataclass, field
from ..declare import _manifest
from ..files import _digest
from . import _cargo_config
from ._fingerprint import FLAGS, REQUEST, REQUEST_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

#: Prefix of the facts about all other variables.
_VARIABLE = f"{FLAGS}/env/"

_RUSTFLAGS = re.compile(r"RUSTFLAGS|CARGO_ENCODED_RUSTFLAGS|CARGO_BUILD_RUSTFLAGS|CARGO_TARGET_.+_RUSTFLAGS")

#: Variables of cargo and of the C toolchain that change the output. Their values may be shown.
_KNOWN = re.compile(
    r"""
    CARGO_BUILD_.+ | CARGO_TARGET_.+_.+ | CARGO_PROFILE_.+ | CARGO_UNSTABLE_.+ | RUSTC_BOOTSTRAP
    | (?:HOST_|TARGET_)?(?:CC|CXX|AR|RANLIB|CPPFLAGS|CFLAGS|CXXFLAGS|ARFLAGS|LDFLAGS)
    | (?:CC|CXX|AR|RANLIB|CPPFLAGS|CFLAGS|CXXFLAGS|ARFLAGS|LDFLAGS)
      _[a-z0-9_.\-]+                           # _<target>: targets are lower-case
    | CXXSTDLIB | CRATE_CC_NO_DEFAULTS
    | (?:HOST_|TARGET_)?PKG_CONFIG(?:_.+)?
    | PROTOC | MACOSX_DEPLOYMENT_TARGET | SDKROOT
    """,
    re.VERBOSE,
)

#: Known variables that decide how a build runs, but not its output.
_WITHOUT_EFFECT = re.compile(
    r"""
    CARGO_BUILD_(?:JOBS|TARGET_DIR|BUILD_DIR|ARTIFACT_DIR|RUSTC_WRAPPER|RUSTC_WORKSPACE_WRAPPER
      |RUSTDOC|RUSTDOCFLAGS|WARNINGS)
    | CARGO_BUILD_TARGET                       # a fact of the request
    | CARGO_BUILD_RUSTC                        # a path; the compiler it names is the toolchain's fact
    | CARGO_TARGET_(?:.+_)?(?:RUNNER|RUSTDOCFLAGS) | CARGO_TARGET_TMPDIR
    """,
    re.VERBOSE,
)

#: Variables that cargo sets for compilers and build scripts, replacing the user's value, or that the toolchain's facts
#: cover.
_FROM_CARGO = re.compile(
    r"""
    TARGET | HOST | OPT_LEVEL | PROFILE | DEBUG | RUSTC(?:_.+)? | RUSTDOC | RUSTUP_.+ | DEP_.+
    | CARGO_(?:HOME|ENCODED_RUSTFLAGS|MANIFEST_LINKS|RUSTC_CURRENT_DIR)
    """,
    re.VERBOSE,
)
#: Variables that differ between users and shells. A build script of a fetched crate reads them only to find programs.
_USER_SPECIFIC = re.compile(
    r"PATH | HOME | USERPROFILE | USER | LOGNAME | SHELL | TMP | TEMP | TMPDIR | LANG | LC_.+ | TERM | XDG_.+",
    re.VERBOSE,
)

#: Arguments that this toolkit passes itself, or that would send cargo's output elsewhere.
_RESERVED = re.compile(
    r"""
    --(?:target-dir|target|artifact-dir|out-dir|manifest-path|message-format|profile|package|lib|bins?|tests?|examples?
       |bench(?:es)?|all-targets|crate-type|unit-graph|build-plan|release)(?:=.*)?
    | -- | -[^-vqjF].*
    """,
    re.VERBOSE | re.DOTALL,
)

_HASHED = "sha256:"

# No word boundary in front, since the flag may be attached, as in `-Ctarget-cpu=native`.
_NATIVE = re.compile(r"(?:target-cpu|-march|-mcpu)=native(?![\w.-])")

#: Variables that are not passed to cargo. They are set by the user's session, by a surrounding cargo, or by this
#: toolkit.
_IRRELEVANT = re.compile(
    r"""
    VIRTUAL_ENV.* | CONDA.* | PYTHON.* | PYENV_.* | UV_.* | PIP_.*
    | PYO3_PYTHON | PYO3_NO_PYTHON | PYO3_BUILD_EXTENSION_MODULE | PYO3_ENVIRONMENT_SIGNATURE
    | CARGO_TARGET_DIR | CARGO_BUILD_TARGET_DIR | CARGO_BUILD_BUILD_DIR | CARGO_INCREMENTAL
    | (?:CARGO_)?(?:MAKEFLAGS|MFLAGS) | MAKELEVEL
    | CARGO | CARGO_(?:PKG|MANIFEST|BIN|CFG|FEATURE|CRATE)_.* | CARGO_PRIMARY_PACKAGE | CARGO_TARGET_TMPDIR
    | OUT_DIR | NUM_JOBS
    | RUST_BACKTRACE | RUST_LIB_BACKTRACE | RUST_LOG | RUST_RECURSION_COUNT
    | LS_COLORS | PS[1-4] | PWD | OLDPWD | SHLVL | _ | COLUMNS | LINES
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Flags(Gathered):
    """
    The facts from flags, variables and configuration.
    """

    #: Whether any of them requests code for the host's own CPU.
    native: bool = field(default=False, kw_only=True)


def gather(spec: ExtensionSpec, environment: Mapping[str, str]) -> Flags:
    """
    Facts about the flags, variables and configuration files that apply to a crate.

    Raises `ManifestError` for a configuration file that cannot be read.
    """
    config = _cargo_config.read(spec.directory, environment, spec.workspace)
    facts = {REQUEST_VARIABLE + name: value for name, value in _rustflags(environment, spec.workspace)}
    if further := cargo_arguments(environment):
        facts[REQUEST_VARIABLE + _settings.CARGO_ARGUMENTS] = _cargo_config.relocatable(
            shlex.join(further), spec.workspace
        )
    # Collected before hashing: a fact may hold only a hash of the value.
    values = [*facts.values()]
    if target := _target(config, environment, spec.workspace):
        facts[f"{REQUEST}/target"] = target
    overridden = _overrides_rustflags(environment)
    for key, value in _cargo_config.relevant(config, spec.profile):
        if key == "build.target" or (
            overridden and key.endswith("rustflags") and key.startswith(("build.", "target."))
        ):
            continue
        text = _manifest.canonical(value)
        values.append(text)
        facts[f"{FLAGS}/config/{key}"] = _hashed(key, text) if key.startswith("env.") else text
    for name, value in environment.items():
        if value and _is_known(name, spec.profile):
            values.append(value)
            facts[_VARIABLE + name] = _cargo_config.relocatable(value, spec.workspace)
    for name in declared_names(spec, config):
        # A build script can tell an empty variable from one that is not set.
        if name in environment and _VARIABLE + name not in facts and REQUEST_VARIABLE + name not in facts:
            values.append(environment[name])
            facts[_VARIABLE + name] = _hashed(name, environment[name])
    return Flags(facts, Watched(config.present, config.absent), native=any(map(_NATIVE.search, values)))


def declared_names(spec: ExtensionSpec, config: _cargo_config.Config) -> tuple[str, ...]:
    """
    Variables that the crate declares, or that `[env]` of the configuration sets unless the environment does.
    """
    configured = _manifest.table(config.values, "env")
    return tuple(dict.fromkeys([*spec.env, *(name for name in configured if not _IRRELEVANT.fullmatch(name))]))


def declared_values(spec: ExtensionSpec, environment: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """
    The variables of `declared_names` with their values; `None` if not set.
    """
    config = _cargo_config.read(spec.directory, environment, spec.workspace)
    return [(name, environment.get(name)) for name in declared_names(spec, config)]


def is_accounted_for(name: str, *, foreign: bool) -> bool:
    """
    Whether a variable that a build has read is covered, so that it is not a seen input.

    A variable is covered if it is a fact already, if cargo or this toolkit sets it, or if it is not passed to cargo.
    With *foreign*, a fetched package read it; its reads of variables such as PATH, HOME and LANG do not count.
    """
    patterns = (_IRRELEVANT, _RUSTFLAGS, _KNOWN, _FROM_CARGO)
    return any(pattern.fullmatch(name) for pattern in patterns) or bool(foreign and _USER_SPECIFIC.fullmatch(name))


def cargo_arguments(environment: Mapping[str, str]) -> list[str]:
    """
    The user's extra arguments to cargo.

    Raises `SettingError` if they cannot be split, or if this toolkit sets one of them itself.
    """
    text = environment.get(_settings.CARGO_ARGUMENTS, "")
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise SettingError(_settings.CARGO_ARGUMENTS, text, f"arguments quoted as for a shell ({error})") from error
    for before, argument in zip(["", *found], found, strict=False):
        if _RESERVED.fullmatch(argument):
            raise SettingError(_settings.CARGO_ARGUMENTS, text, f"no `{argument}`, which the toolkit sets itself")
        file = (
            argument
            if before == "--config"
            else argument.partition("=")[2]
            if argument.startswith("--config=")
            else "="
        )
        if "=" not in file:
            raise SettingError(
                _settings.CARGO_ARGUMENTS,
                text,
                f"`--config KEY=VALUE`: edits of the file {file} would not cause a rebuild",
            )
    return found


def _target(config: _cargo_config.Config, environment: Mapping[str, str], root: Path) -> str:
    """
    The requested target triple; empty for the host.
    """
    if chosen := environment.get("CARGO_BUILD_TARGET"):
        return _cargo_config.relocatable(chosen, root)
    configured = _manifest.table(config.values, "build").get("target")
    return configured if isinstance(configured, str) else ",".join(_manifest.strings(configured))


def _rustflags(environment: Mapping[str, str], root: Path) -> Iterator[tuple[str, str]]:
    if (encoded := environment.get("CARGO_ENCODED_RUSTFLAGS")) is not None:
        if encoded:
            yield "CARGO_ENCODED_RUSTFLAGS", _cargo_config.relocatable(shlex.join(encoded.split("\x1f")), root)
        return
    overridden = _overrides_rustflags(environment)
    for name, value in environment.items():
        if _RUSTFLAGS.fullmatch(name) and value.split() and (name == "RUSTFLAGS" or not overridden):
            yield name, _cargo_config.relocatable(" ".join(value.split()), root)


def _overrides_rustflags(environment: Mapping[str, str]) -> bool:
    """
    Whether a variable overrides every other source of flags; for cargo even an empty one does.
    """
    return "CARGO_ENCODED_RUSTFLAGS" in environment or "RUSTFLAGS" in environment


def _is_known(name: str, profile: str) -> bool:
    if not _KNOWN.fullmatch(name) or _WITHOUT_EFFECT.fullmatch(name) or _RUSTFLAGS.fullmatch(name):
        return False
    if name.startswith("CARGO_PROFILE_") and profile in ("release", "dev"):
        # A custom profile inherits from a profile that is not known here, so all profiles count.
        return name.startswith(f"CARGO_PROFILE_{profile.upper()}_")
    return True


def _hashed(name: str, value: str) -> str:
    return f"{_HASHED}{_digest.sha256(_digest.framed((name, value)))}"


def is_hidden(value: str) -> bool:
    """
    Whether a fact holds only the hash of a variable's value.
    """
    return value.startswith(_HASHED)


def child_environment(environment: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """
    The environment for cargo; variables in *keep* are always passed.

    It holds no more than a build needs, so two shells, editors or virtual environments share one build. Raises
    `CacheUnavailable` if the user has no home and no safe one can be made.
    """
    child = {name: value for name, value in environment.items() if name in keep or not _IRRELEVANT.fullmatch(name)}
    # A build must not install toolchains by itself.
    child["RUSTUP_AUTO_INSTALL"] = "0"
    if "CARGO_HOME" not in child and _cargo_config.user_home(child) is None:
        # Cargo does not run without a home; in a container the user may have none.
        child["CARGO_HOME"] = _private_cargo_home()
    return child


def _private_cargo_home() -> str:
    """
    A home for cargo under the system's temporary folder.

    A user who can write there could make cargo run any program. So each folder must be trusted like a cache.
    """
    root = _warm.temporary_root()
    home = os.path.join(root, "cargo")
    for folder in (root, home):
        try:
            os.mkdir(folder, mode=0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise CacheUnavailable((f"{folder}: {error.strerror}",)) from error
        if (reason := _trust.problem(folder)) is not None:
            raise CacheUnavailable((reason,))
    return home
