"""
The settings of the edit tier: defaults, overrides per package, and errors for wrong values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rust_ext_loader import _settings
from rust_ext_loader._errors import ManifestError, SettingError
from rust_ext_loader.declare import _edit_tier

if TYPE_CHECKING:
    from pathlib import Path

    from rust_ext_loader.declare._edit_tier import EditSettings

DEFAULT = {"incremental": True, "codegen-units": 256}

#: Content of the project's file, and the overrides of the packages `alpha` and `beta`.
VALID = {
    "no settings": ("", DEFAULT, DEFAULT),
    "another table": ("[tool.rust-ext-loader]\nworkspace = '.'", DEFAULT, DEFAULT),
    "a changed default": (
        "[tool.rust-ext-loader]\nedit = { codegen-units = 16 }",
        {**DEFAULT, "codegen-units": 16},
        {**DEFAULT, "codegen-units": 16},
    ),
    "an addition for one package": (
        "[tool.rust-ext-loader.edit.package]\nalpha = { opt-level = 3 }",
        {**DEFAULT, "opt-level": 3},
        DEFAULT,
    ),
    "one package with its declared profile": ("[tool.rust-ext-loader.edit.package]\nalpha = false", {}, DEFAULT),
}

#: Content of the project's file, the line of the error, and a part of its text.
INVALID = {
    "neither table nor false": ("[tool.rust-ext-loader]\nedit = 3", 2, "`edit` must be a table of profile settings"),
    "true": ("[tool.rust-ext-loader]\nedit = true", 2, "`edit` must be a table"),
    "an unknown key": (
        "[tool.rust-ext-loader.edit]\nlto = false",
        2,
        "`edit.lto` is unknown; expected one of codegen-units, debug, incremental, opt-level, package",
    ),
    "a list": ("[tool.rust-ext-loader.edit]\nopt-level = [1]", 2, "`edit.opt-level` must be a boolean"),
    "packages as a number": ("[tool.rust-ext-loader.edit]\npackage = 1", 2, "`edit.package` must be a table"),
    "a package as a number": (
        "[tool.rust-ext-loader.edit.package]\nalpha = 1",
        2,
        "`edit.package.alpha` must be a table of profile settings",
    ),
}


def settings(folder: Path, text: str) -> EditSettings | None:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return _edit_tier.settings_of(folder)


@pytest.mark.parametrize(("text", "alpha", "beta"), VALID.values(), ids=VALID)
def test_overrides_of_each_package(
    text: str, alpha: dict[str, object], beta: dict[str, object], tmp_path: Path
) -> None:
    found = settings(tmp_path, text)

    assert found is not None
    assert (found.of_package("alpha"), found.of_package("beta")) == (alpha, beta)


def test_false_switches_the_tier_off(tmp_path: Path) -> None:
    assert settings(tmp_path, "[tool.rust-ext-loader]\nedit = false") is None


@pytest.mark.parametrize(("text", "line", "problem"), INVALID.values(), ids=INVALID)
def test_wrong_settings_are_an_error_with_file_and_line(text: str, line: int, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as raised:
        settings(tmp_path, text)

    assert problem in str(raised.value)
    assert f"pyproject.toml, line {line}:" in str(raised.value)


def test_settings_above_the_workspace_must_name_it(tmp_path: Path) -> None:
    """
    A `pyproject.toml` above applies only if its `workspace` is this one. It is watched in both cases.
    """
    workspace = tmp_path / "rust"
    workspace.mkdir()
    above = tmp_path / "pyproject.toml"
    above.write_text("[tool.rust-ext-loader]\nworkspace = 'other'\nedit = { codegen-units = 9 }", encoding="utf-8")
    foreign = _edit_tier.settings_of(workspace)
    above.write_text("[tool.rust-ext-loader]\nworkspace = 'rust'\nedit = { codegen-units = 9 }", encoding="utf-8")
    own = _edit_tier.settings_of(workspace)

    assert foreign is not None
    assert own is not None
    assert (foreign.common["codegen-units"], own.common["codegen-units"]) == (256, 9)
    assert str(above) in foreign.watched.present
    assert foreign.canonical != own.canonical


#: The variables, and whether the tier is on.
SWITCHES = {
    "nothing set": ({}, True),
    "off": ({"RUST_EXT_EDIT_TIER": "off"}, False),
    "in CI": ({"CI": "true"}, False),
    "on in CI": ({"CI": "true", "RUST_EXT_EDIT_TIER": "on"}, True),
    "empty": ({"RUST_EXT_EDIT_TIER": ""}, True),
}


@pytest.mark.parametrize(("variables", "expected"), SWITCHES.values(), ids=SWITCHES)
def test_the_tier_is_off_in_ci_unless_it_is_switched_on(variables: dict[str, str], expected: bool) -> None:
    assert _settings.edit_tier(variables) is expected


def test_another_value_of_the_switch_is_an_error() -> None:
    with pytest.raises(SettingError, match="RUST_EXT_EDIT_TIER"):
        _settings.edit_tier({"RUST_EXT_EDIT_TIER": "maybe"})
