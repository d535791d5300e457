"""
Unit tests of cargo's configuration: which files apply to a crate, and which settings are facts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import ManifestError
from rust_ext_loader.facts import _cargo_config, _environment

from .environment_facts import facts, spec_in

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[..., Path]


CONFIG = [
    pytest.param(
        {"crate/.cargo/config.toml": '[build]\nrustflags = "-g  -O"'},
        {"build.rustflags": '["-g","-O"]'},
        id="in the crate's folder",
    ),
    pytest.param(
        {".cargo/config.toml": "[profile.release]\nlto = true"}, {"profile.release.lto": "true"}, id="at the root"
    ),
    pytest.param({"home/.cargo/config.toml": '[build]\nx = "t"'}, {"build.x": '"t"'}, id="in the home"),
    pytest.param({"crate/.cargo/config": '[build]\nx = "t"'}, {"build.x": '"t"'}, id="without suffix"),
    pytest.param(
        {"crate/.cargo/config.toml": '[build]\nx = "near"', ".cargo/config.toml": '[build]\nx = "far"'},
        {"build.x": '"near"'},
        id="the closer value wins",
    ),
    pytest.param(
        {
            "crate/.cargo/config.toml": '[build]\nrustflags = ["near"]',
            ".cargo/config.toml": '[build]\nrustflags = ["far"]',
        },
        {"build.rustflags": '["far","near"]'},
        id="lists are joined",
    ),
    pytest.param(
        {
            ".cargo/config.toml": 'include = ["x.toml"]\n[build]\nx = "own"',
            ".cargo/x.toml": '[build]\nx = "x"\nrustc = "r"',
        },
        {"build.x": '"own"', "build.rustc": '"r"'},
        id="values of the including file win",
    ),
    pytest.param(
        {".cargo/config.toml": "[target.'cfg(unix)']\nlinker = './ld'"},
        {"target.cfg(unix).linker": '"ld"'},
        id="a linker",
    ),
    pytest.param(
        {"crate/.cargo/config.toml": '[source.crates-io]\nreplace-with = "v"\n[source.v]\ndirectory = "vendor"'},
        {"source.crates-io.replace-with": '"v"', "source.v.directory": '"crate/vendor"'},
        id="source replacement",
    ),
    pytest.param(
        {".cargo/config.toml": "[unstable]\nbuild-std = ['std']"}, {"unstable.build-std": '["std"]'}, id="unstable"
    ),
    pytest.param(
        {
            ".cargo/config.toml": """
            [alias]
            b = "build"
            [term]
            color = "never"
            [net]
            offline = true
            [http]
            proxy = "user:secret@host"
            [registries.x]
            token = "secret"
            [build]
            jobs = 3
            target-dir = "x"
            rustc-wrapper = "sccache"
            [profile.dev]
            debug = 0
            [target.x]
            runner = "qemu"
            """
        },
        {},
        id="settings that cannot change the output",
    ),
    pytest.param({".cargo/config.toml": "# a comment\n"}, {}, id="a comment"),
]


@pytest.mark.parametrize(("files", "expected"), CONFIG)
def test_configuration_is_merged_as_cargo_does(plant: Plant, files: dict[str, str], expected: dict[str, str]) -> None:
    """
    Only settings that can change the output are facts.
    """
    root = plant(files)
    (root / "crate").mkdir(exist_ok=True)

    assert facts(root, {}) == {f"flags/config/{key}": value for key, value in expected.items()}


def test_variables_of_the_configuration_are_stored_as_a_hash(plant: Plant) -> None:
    """
    A committed file may hold values that must not appear in a shared cache.
    """
    root = plant({".cargo/config.toml": '[env]\nTOKEN = "secret"\n'})

    found = facts(root, {})

    assert list(found) == ["flags/config/env.TOKEN"]
    assert found["flags/config/env.TOKEN"].startswith("sha256:")


def test_variable_that_the_configuration_sets_is_declared(plant: Plant) -> None:
    """
    Cargo does not overwrite a variable that is set, so the value in the environment counts.
    """
    root = plant({".cargo/config.toml": '[env]\nTOKEN = "x"\nVIRTUAL_ENV = "y"\n', "crate/x": ""})
    spec = spec_in(root, env=("MINE",))
    home = {"HOME": str(root / "home")}

    assert facts(root, {})["flags/config/env.TOKEN"] == facts(root, {"TOKEN": "secret"})["flags/config/env.TOKEN"]
    assert facts(root, {"TOKEN": "secret"})["flags/env/TOKEN"].startswith("sha256:")
    assert "flags/env/VIRTUAL_ENV" not in facts(root, {"VIRTUAL_ENV": "never passed on"})
    assert _environment.declared_values(spec, {**home, "TOKEN": "secret"}) == [("MINE", None), ("TOKEN", "secret")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("/co/x", ".", id="the folder"),
        pytest.param("/co/x/lib", "./lib", id="below it"),
        pytest.param("-L/co/x/lib -I/co/x", "-L./lib -I.", id="attached to a flag"),
        pytest.param("-L native=/co/x/lib", "-L native=./lib", id="after an equals sign"),
        pytest.param("--remap-path-prefix=/co/x=", "--remap-path-prefix=.=", id="before an equals sign"),
        pytest.param("/co/x:/co/x/y:/usr", ".:./y:/usr", id="a list of folders"),
        pytest.param("-Wl,-rpath,/co/x/lib", "-Wl,-rpath,./lib", id="between commas"),
        pytest.param("/co/xy/lib", "/co/xy/lib", id="a sibling"),
        pytest.param("/co/x.old", "/co/x.old", id="a sibling with a dot"),
        pytest.param("/mnt/co/x/lib", "/mnt/co/x/lib", id="in the middle of another path"),
        pytest.param("-L/mnt/co/x/lib", "-L/mnt/co/x/lib", id="in the middle of another path, attached to a flag"),
    ],
)
def test_workspace_folder_becomes_a_dot(text: str, expected: str) -> None:
    """
    The workspace folder is replaced only at the beginning of a path.
    """
    assert _cargo_config.relocatable(text, Path("/co/x")) == expected


def test_paths_inside_the_checkout_are_relative(plant: Plant) -> None:
    """
    Paths in the checkout become relative, so a copied checkout has the same facts.
    """
    text = '[build]\nrustflags = ["-L{}/lib"]\n'
    first, second = (plant({"crate/x": ""}, folder=name) for name in ("one", "two"))
    for root in (first, second):
        (root / ".cargo").mkdir()
        (root / ".cargo/config.toml").write_text(text.format(root))

    assert facts(first, {"CFLAGS": f"-I{first}/inc"}) == facts(second, {"CFLAGS": f"-I{second}/inc"})
    assert facts(first, {})["flags/config/build.rustflags"] == '["-L./lib"]'


def test_rustflags_override_those_of_the_configuration(plant: Plant) -> None:
    """
    Cargo takes flags from one source only, and an empty variable counts as a source.
    """
    root = plant({".cargo/config.toml": '[build]\nrustflags = ["-g"]\n'})

    assert facts(root, {"RUSTFLAGS": ""}) == {}
    assert facts(root, {}) == {"flags/config/build.rustflags": '["-g"]'}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("x = [", "line 1", id="not TOML"),
        pytest.param('include = ["config.toml"]', "includes itself", id="a cycle"),
        pytest.param('include = ["gone.toml"]', "does not exist", id="a missing file"),
    ],
)
def test_invalid_configuration_is_an_error(plant: Plant, text: str, words: str) -> None:
    """
    An invalid file, which cargo would refuse as well, is an error that names the file.
    """
    root = plant({".cargo/config.toml": text})

    with pytest.raises(ManifestError, match=words) as caught:
        facts(root, {})

    assert caught.value.where == str(root / ".cargo/config.toml")


def test_unreadable_home_has_no_configuration(tmp_path: Path) -> None:
    """
    The name of the home is too long for the system. Cargo finds no configuration in such a home either.
    """
    assert facts(tmp_path, {"HOME": str(tmp_path / ("h" * 300))}) == {}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user can read every folder")
def test_home_without_permission_has_no_configuration(plant: Plant) -> None:
    """
    A home without permission is ignored, as by cargo.
    """
    root = plant({"home/.cargo/config.toml": "[build]\nincremental = true\n"})
    (root / "home/.cargo").chmod(0)
    try:
        assert facts(root, {}) == {}
    finally:
        (root / "home/.cargo").chmod(0o700)


def test_dangling_link_as_configuration_is_not_absent(plant: Plant) -> None:
    """
    The link itself exists. A record that requires its absence would never be valid.
    """
    root = plant({".cargo/x": "", "crate/x": ""})
    (root / ".cargo/config.toml").symlink_to("gone.toml")

    watched = _environment.gather(spec_in(root), {"HOME": str(root / "home")}).watched

    assert not any(os.path.lexists(path) for path in watched.absent)
    assert str(root / ".cargo/gone.toml") in watched.absent


def test_existing_and_possible_configuration_files_are_watched(plant: Plant) -> None:
    """
    Existing files are watched, and so are paths in all folders above at which a new file would apply.
    """
    root = plant({".cargo/config.toml": "include = [{ path = 'x.toml', optional = true }]\n", "crate/x": ""})

    watched = _environment.gather(spec_in(root), {"HOME": str(root / "home"), "CARGO_HOME": str(root / "ch")}).watched

    assert watched.present == {str(root / ".cargo/config.toml")}
    assert {
        str(root / name)
        for name in ("crate/.cargo/config.toml", "crate/.cargo/config", ".cargo/config", ".cargo/x.toml")
    } <= watched.absent
    assert str(root / "ch/config.toml") in watched.absent
