"""
Unit tests of the environment's facts: which variables and cargo settings decide about a build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import CacheUnavailable
from rust_ext_loader.facts import _environment

from .environment_facts import facts, spec_in

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[..., Path]


RELEVANT = [
    pytest.param("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", "clang", id="linker"),
    pytest.param("CARGO_PROFILE_RELEASE_LTO", "fat", id="profile"),
    pytest.param("CARGO_UNSTABLE_BUILD_STD", "std", id="unstable"),
    pytest.param("CC", "clang", id="C compiler"),
    pytest.param("CXX", "clang++", id="C++ compiler"),
    pytest.param("AR", "llvm-ar", id="archiver"),
    pytest.param("CFLAGS", "-O1", id="C flags"),
    pytest.param("CXXFLAGS", "-O1", id="C++ flags"),
    pytest.param("LDFLAGS", "-s", id="linker flags"),
    pytest.param("CFLAGS_x86_64-unknown-linux-gnu", "-O1", id="flags of a target"),
    pytest.param("CC_aarch64_unknown_linux_gnu", "gcc", id="compiler of a target"),
    pytest.param("HOST_CC", "gcc", id="host compiler"),
    pytest.param("TARGET_CFLAGS", "-O1", id="target flags"),
    pytest.param("PKG_CONFIG_PATH", "/opt/lib/pkgconfig", id="pkg-config"),
    pytest.param("PROTOC", "/opt/protoc", id="protoc"),
    pytest.param("MACOSX_DEPLOYMENT_TARGET", "12.0", id="oldest macOS"),
    pytest.param("SDKROOT", "/sdk", id="SDK"),
]


@pytest.mark.parametrize(("name", "value"), RELEVANT)
def test_variable_that_changes_the_output_is_a_fact(tmp_path: Path, name: str, value: str) -> None:
    """
    The value of the variable is stored in clear. If the variable is empty, it is not a fact.
    """
    assert facts(tmp_path, {name: value}) == {f"flags/env/{name}": value}
    assert facts(tmp_path, {name: ""}) == {}


IRRELEVANT = [
    "CARGO_BUILD_BUILD_DIR",
    "CARGO_BUILD_JOBS",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_PROFILE_DEV_DEBUG",
    "CARGO_TARGET_DIR",
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
    "CARGO_TERM_COLOR",
    "CC_TEST_REPORTER_ID",
    "LANG",
    "PATH",
    "PYTHONHASHSEED",
    "RUSTC_WRAPPER",
]


@pytest.mark.parametrize("name", IRRELEVANT)
def test_variable_that_cannot_change_the_output_is_no_fact(tmp_path: Path, name: str) -> None:
    """
    Wrappers, jobs, colours, folders, locale and other profiles are no facts.
    """
    assert facts(tmp_path, {name: "x"}) == {}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"RUSTFLAGS": " -Copt-level=3   -g"}, {"RUSTFLAGS": "-Copt-level=3 -g"}, id="RUSTFLAGS"),
        pytest.param({"CARGO_BUILD_RUSTFLAGS": "-g"}, {"CARGO_BUILD_RUSTFLAGS": "-g"}, id="build"),
        pytest.param({"CARGO_TARGET_X_RUSTFLAGS": "-g"}, {"CARGO_TARGET_X_RUSTFLAGS": "-g"}, id="target"),
        pytest.param(
            {"RUSTFLAGS": "-g", "CARGO_BUILD_RUSTFLAGS": "-O"}, {"RUSTFLAGS": "-g"}, id="RUSTFLAGS overrides others"
        ),
        pytest.param({"RUSTFLAGS": "", "CARGO_BUILD_RUSTFLAGS": "-O"}, {}, id="an empty RUSTFLAGS overrides others"),
        pytest.param(
            {"RUSTFLAGS": "-g", "CARGO_ENCODED_RUSTFLAGS": '-g\x1f--cfg\x1ff="a b"'},
            {"CARGO_ENCODED_RUSTFLAGS": "-g --cfg 'f=\"a b\"'"},
            id="encoded flags override RUSTFLAGS",
        ),
        pytest.param(
            {"RUSTFLAGS": "-g", "CARGO_ENCODED_RUSTFLAGS": ""}, {}, id="empty encoded flags override RUSTFLAGS"
        ),
    ],
)
def test_compiler_flags_are_part_of_the_request(
    tmp_path: Path, environment: dict[str, str], expected: dict[str, str]
) -> None:
    """
    The compiler flags that cargo uses are in both keys.
    """
    assert facts(tmp_path, environment) == {f"request/env/{name}": value for name, value in expected.items()}


def test_declared_variable_is_stored_as_a_hash(tmp_path: Path) -> None:
    """
    Unset, empty and two values give four different facts, and no value is stored in clear.
    """
    declared = ("TOKEN", "RUSTFLAGS", "CC")
    found = [
        facts(tmp_path, item, env=declared) for item in ({}, {"TOKEN": ""}, {"TOKEN": "secret"}, {"TOKEN": "other"})
    ]

    assert len({tuple(item.items()) for item in found}) == 4
    assert found[2]["flags/env/TOKEN"].startswith("sha256:")
    assert "secret" not in str(found)
    assert facts(tmp_path, {"CC": "clang", "RUSTFLAGS": "-g"}, env=declared) == {
        "flags/env/CC": "clang",
        "request/env/RUSTFLAGS": "-g",
    }


@pytest.mark.parametrize(
    ("environment", "config", "expected"),
    [
        pytest.param({"CARGO_BUILD_TARGET": "t"}, "", "t", id="a variable"),
        pytest.param({}, "[build]\ntarget = 't'", "t", id="the configuration"),
        pytest.param({}, "[build]\ntarget = ['t', 'u']", "t,u", id="several"),
        pytest.param({"CARGO_BUILD_TARGET": "t"}, "[build]\ntarget = 'u'", "t", id="the variable overrides"),
    ],
)
def test_target_is_part_of_the_request(plant: Plant, environment: dict[str, str], config: str, expected: str) -> None:
    """
    The target is in both keys. The variable and the configuration give the same fact.
    """
    root = plant({".cargo/config.toml": config, "crate/x": ""})

    assert facts(root, environment) == {"request/target": expected}


@pytest.mark.parametrize(
    ("environment", "config", "expected"),
    [
        pytest.param({"RUSTFLAGS": "-C target-cpu=native"}, "", True, id="RUSTFLAGS"),
        pytest.param({"CARGO_ENCODED_RUSTFLAGS": "-C\x1ftarget-cpu=native"}, "", True, id="encoded"),
        pytest.param({}, "[target.x]\nrustflags = ['-Ctarget-cpu=native']", True, id="configuration"),
        pytest.param({}, "[build]\nrustflags = ['-C', 'target-cpu=native']", True, id="configuration, two words"),
        pytest.param({"CFLAGS": "-march=native"}, "", True, id="C"),
        pytest.param({"CXXFLAGS_x86_64_unknown_linux_gnu": "-mcpu=native"}, "", True, id="C++ of a target"),
        pytest.param({"CC": "gcc -march=native"}, "", True, id="in the compiler's command"),
        pytest.param({"HOST_CXX": "g++ -march=native"}, "", True, id="in a host compiler's command"),
        pytest.param({}, "[env]\nCFLAGS = '-march=native'", True, id="a variable of the configuration"),
        pytest.param({}, "[env]\nCC = { value = 'gcc -march=native', force = true }", True, id="a forced variable"),
        pytest.param({"MINE": "-march=native"}, "", True, id="a declared variable"),
        pytest.param({"RUSTFLAGS": ""}, "[build]\nrustflags = ['-Ctarget-cpu=native']", False, id="overridden"),
        pytest.param({"RUSTFLAGS": "-C target-cpu=native-like"}, "", False, id="another CPU"),
        pytest.param({"RUSTFLAGS": "-C target-cpu=x86-64-v3"}, "", False, id="a named level"),
        pytest.param({"CC": "/opt/march=native/cc"}, "", False, id="a path"),
        pytest.param({"NOTES": "-march=native"}, "", False, id="a variable that no compiler reads"),
        pytest.param({}, "", False, id="nothing"),
    ],
)
def test_native_is_detected_in_flags(plant: Plant, environment: dict[str, str], config: str, expected: bool) -> None:
    """
    `native` is found in flags from every source, even if their values are stored as a hash.
    """
    root = plant({".cargo/config.toml": config})

    flags = _environment.gather(spec_in(root, env=("MINE",)), {"HOME": str(root / "home"), **environment})

    assert flags.native is expected


def test_cargo_gets_the_same_environment_from_every_shell() -> None:
    """
    Builds are shared by all shells, editors and virtual environments.
    """
    kept = {
        "PATH": "/bin",
        "HOME": "/h",
        "RUSTFLAGS": "-g",
        "CARGO_HOME": "/c",
        "RUSTUP_TOOLCHAIN": "x",
        "RUSTC_WRAPPER": "sccache",
        "MINE": "1",
    }
    noise = [
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_MAKEFLAGS",
        "CARGO_MANIFEST_DIR",
        "CARGO_PKG_NAME",
        "CARGO_TARGET_DIR",
        "CONDA_PREFIX",
        "MAKEFLAGS",
        "PYO3_PYTHON",
        "PYTHONPATH",
        "VIRTUAL_ENV",
    ]

    child = _environment.child_environment({**kept, **dict.fromkeys(noise, "x")})

    assert child == {**kept, "RUSTUP_AUTO_INSTALL": "0"}
    assert _environment.child_environment(child) == child


def test_declared_variable_reaches_the_build() -> None:
    """
    A declared variable is passed to cargo, even if it is removed for other crates.
    """
    environment = {"HOME": "/h", "CONDA_PREFIX": "/opt", "VIRTUAL_ENV": "/v"}

    child = _environment.child_environment(environment, ("CONDA_PREFIX", "UNSET"))

    assert child == {"HOME": "/h", "CONDA_PREFIX": "/opt", "RUSTUP_AUTO_INSTALL": "0"}


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    The folder for the private home of a user who has no entry in the password database.
    """
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "rust_ext_loader-4000000000"


def test_user_without_a_home_can_build(homeless: Path) -> None:
    """
    Cargo needs a home, so it gets a private folder, and the same one next time.
    """
    children = [_environment.child_environment({"PATH": "/bin"}) for _ in range(2)]

    assert [child["CARGO_HOME"] for child in children] == [str(homeless / "cargo")] * 2
    assert [path.stat().st_mode & 0o777 for path in (homeless, homeless / "cargo")] == [0o700, 0o700]


def _root_writable_for_all(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)


def _cargo_folder_writable_for_all(root: Path) -> None:
    (root / "cargo").mkdir(parents=True)
    (root / "cargo").chmod(0o777)


def _linked_root(root: Path) -> None:
    root.symlink_to(root.parent)


def _linked_cargo_folder(root: Path) -> None:
    root.mkdir(mode=0o700)
    (root / "cargo").symlink_to(root)


def _root_of_another_user(root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change the owner")
    root.mkdir(mode=0o700)
    os.chown(root, 12345, 12345)


def _file_in_place_of_root(root: Path) -> None:
    root.write_text("")


@pytest.mark.parametrize(
    "plant",
    [
        _root_writable_for_all,
        _cargo_folder_writable_for_all,
        _linked_root,
        _linked_cargo_folder,
        _root_of_another_user,
        _file_in_place_of_root,
    ],
)
def test_untrusted_private_home_is_refused(homeless: Path, plant: Callable[[Path], None]) -> None:
    """
    An untrusted private home is refused: a configuration in it could make cargo run any program.
    """
    plant(homeless)

    with pytest.raises(CacheUnavailable, match=re.escape(str(homeless))):
        _environment.child_environment({"PATH": "/bin"})
