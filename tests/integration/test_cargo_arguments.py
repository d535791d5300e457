"""
The arguments that cargo gets, and the settings for them that are refused.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from changes import add_metadata
from checkout import Checkout

if TYPE_CHECKING:
    from collections.abc import Callable

Keys = tuple[str, str]


COMMON = ("rustc", "--locked")
TAIL = ("--message-format=json-render-diagnostics",)


def lib(package: str, profile: str = "release") -> tuple[str, ...]:
    return ("--package", package, "--lib", "--crate-type", "cdylib", "--profile", profile)


def no_change(_: Checkout) -> None:
    return None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems need linker arguments")
@pytest.mark.parametrize(
    ("module", "prepare", "variables", "expected"),
    [
        pytest.param("fx.alpha", no_change, {}, (*COMMON, *lib("alpha"), *TAIL), id="plain"),
        pytest.param(
            "fx.beta", no_change, {}, (*COMMON, *lib("beta"), "--features", "loud", *TAIL), id="with features"
        ),
        pytest.param(
            "fx.alpha",
            lambda checkout: add_metadata(checkout, 'profile = "dev"'),
            {},
            (*COMMON, *lib("alpha", "dev"), *TAIL),
            id="in another profile",
        ),
        pytest.param(
            "fx.alpha",
            no_change,
            {"RUST_EXT_JOBS": "1", "RUST_EXT_OFFLINE": "1", "RUSTFLAGS": "--cfg loud"},
            (*COMMON, "--offline", "--jobs", "1", *lib("alpha"), *TAIL),
            id="with settings; the user's flags stay in the environment",
        ),
        pytest.param(
            "fx.alpha",
            no_change,
            {"RUST_EXT_PROFILE": "dev", "RUST_EXT_CARGO_ARGS": "-v --config 'profile.dev.debug = false'"},
            (*COMMON, *lib("alpha", "dev"), "-v", "--config", "profile.dev.debug = false", *TAIL),
            id="with another profile and further arguments",
        ),
    ],
)
def test_the_arguments_of_cargo(
    plain: Checkout,
    module: str,
    prepare: Callable[[Checkout], object],
    variables: dict[str, str],
    expected: tuple[str, ...],
) -> None:
    """
    A build runs cargo once for one crate, with exactly these arguments.
    """
    prepare(plain)
    loaded = plain.load(module, variables=variables)

    assert loaded.error is None
    assert [call for call in loaded.cargo if call[0] != "clean"] == [expected]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"RUST_EXT_PROFILE": "../x"},
            "RUST_EXT_PROFILE='../x' is invalid; expected the name of a cargo profile",
        ),
        ({"RUST_EXT_CARGO_ARGS": "'"}, "arguments quoted as for a shell (No closing quotation)"),
        ({"RUST_EXT_CARGO_ARGS": "--target-dir=/x"}, "no `--target-dir=/x`, which the toolkit sets itself"),
        ({"RUST_EXT_CARGO_ARGS": "--release"}, "no `--release`, which the toolkit sets itself"),
        ({"RUST_EXT_CARGO_ARGS": "-v -- -Copt-level=3"}, "no `--`, which the toolkit sets itself"),
        ({"RUST_EXT_CARGO_ARGS": "-p other"}, "no `-p`, which the toolkit sets itself"),
        (
            {"RUST_EXT_CARGO_ARGS": "--config more.toml"},
            "`--config KEY=VALUE`: edits of the file more.toml would not cause a rebuild",
        ),
        (
            {"RUST_EXT_CARGO_ARGS": "--config=more.toml"},
            "`--config KEY=VALUE`: edits of the file more.toml would not cause a rebuild",
        ),
    ],
)
def test_an_invalid_setting_is_refused(built: Checkout, variables: dict[str, str], message: str) -> None:
    """
    An invalid setting is an error that names it, and cargo is not run.
    """
    loaded = built.load(variables=variables)
    assert loaded.types[0] == "SettingError"
    assert message in (loaded.error or "")
    assert loaded.cargo == ()
