"""
Unit tests of the ABI facts, which decide which Pythons share a library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import replace
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader.facts import _abi

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = _abi.Interpreter(
    implementation="cpython",
    version=(3, 11),
    cache_tag="cpython-311",
    soabi="cpython-311-x86_64-linux-gnu",
    pointer_bits=64,
    gil=True,
    debug=False,
    platform="linux",
    machine="x86_64",
    libc="glibc",
    suffixes=(".cpython-311-x86_64-linux-gnu.so", ".abi3.so", ".so"),
    executable="/usr/bin/python3.11",
)
LATER = replace(PYTHON, version=(3, 13), cache_tag="cpython-313", soabi="cpython-313-x86_64-linux-gnu")
STABLE = frozenset({"abi3-py310"})


@pytest.mark.parametrize(
    ("features", "python", "abi3"),
    [
        pytest.param({"abi3-py310"}, PYTHON, "cp310", id="stable"),
        pytest.param({"abi3-py312", "abi3-py310", "abi3"}, LATER, "cp310", id="the oldest of several"),
        pytest.param({"abi3"}, PYTHON, "cp311", id="without a version"),
        pytest.param({"macros"}, PYTHON, None, id="other features"),
        pytest.param({"abi3-py312"}, PYTHON, None, id="newer than this Python"),
        pytest.param({"abi3-py310"}, replace(PYTHON, gil=False), None, id="free-threaded"),
        pytest.param({"abi3-py310"}, replace(PYTHON, debug=True), None, id="debug"),
        pytest.param({"abi3-py310"}, replace(PYTHON, implementation="pypy"), None, id="PyPy"),
    ],
)
def test_stable_abi_depends_on_features_and_python(
    features: set[str], python: _abi.Interpreter, abi3: str | None
) -> None:
    """
    A library uses the stable ABI only if a feature requests it and Python is an ordinary CPython.
    """
    abi = _abi.gather(frozenset(features), python)

    assert abi.abi3 == abi3
    assert (abi.facts["abi/tag"] == f"abi3-{abi3}") == (abi3 is not None)
    assert abi.suffix == (".abi3.so" if abi3 else ".cpython-311-x86_64-linux-gnu.so")


def test_later_pythons_share_a_stable_abi_library() -> None:
    """
    Python 3.11 and 3.13 have the same facts for the stable ABI, and PyO3 runs no interpreter.
    """
    first, second = _abi.gather(STABLE, PYTHON), _abi.gather(STABLE, LATER)

    assert first.facts == second.facts
    assert first.build_environment == second.build_environment
    assert first.build_environment["PYO3_NO_PYTHON"] == "1"


DIFFERENT = [
    pytest.param({"implementation": "pypy"}, id="implementation"),
    pytest.param({"version": (3, 12)}, id="version"),
    pytest.param({"cache_tag": "cpython-312"}, id="cache tag"),
    pytest.param({"soabi": "cpython-311d-x86_64-linux-gnu"}, id="SOABI"),
    pytest.param({"pointer_bits": 32}, id="pointer size"),
    pytest.param({"gil": False}, id="GIL"),
    pytest.param({"debug": True}, id="debug"),
]
ELSEWHERE = [
    pytest.param({"platform": "darwin"}, id="platform"),
    pytest.param({"machine": "aarch64"}, id="machine"),
    pytest.param({"libc": "musl"}, id="libc"),
]


@pytest.mark.parametrize("change", [*DIFFERENT, *ELSEWHERE])
def test_each_property_of_python_is_a_fact(change: dict[str, object]) -> None:
    """
    Every property that can make a library unloadable changes the facts.
    """
    other = replace(PYTHON, **change)  # type: ignore[arg-type]

    assert _abi.gather(frozenset(), other).facts != _abi.gather(frozenset(), PYTHON).facts


@pytest.mark.parametrize("change", ELSEWHERE)
def test_machine_is_a_fact_of_a_stable_abi_library(change: dict[str, object]) -> None:
    """
    The stable ABI does not depend on the Python version, but it depends on the machine.
    """
    other = replace(PYTHON, **change)  # type: ignore[arg-type]

    assert _abi.gather(STABLE, other).facts != _abi.gather(STABLE, PYTHON).facts


@pytest.mark.parametrize("change", [{"executable": "/opt/python3.11"}, {"suffixes": (".so",)}])
def test_paths_and_suffixes_are_no_facts(change: dict[str, object]) -> None:
    """
    The interpreter's path and its suffixes do not change the facts.
    """
    other = replace(PYTHON, **change)  # type: ignore[arg-type]

    assert _abi.gather(frozenset(), other).facts == _abi.gather(frozenset(), PYTHON).facts


def test_windows_has_one_suffix() -> None:
    """
    A stable ABI library on Windows is a plain `.pyd`, and PyO3 gets the interpreter's path.
    """
    python = replace(PYTHON, platform="win32", libc="", suffixes=(".cp311-win_amd64.pyd", ".pyd"))

    abi = _abi.gather(STABLE, python)

    assert (abi.suffix, abi.build_environment.get("PYO3_NO_PYTHON")) == (".pyd", None)


def test_build_environment_names_the_interpreter() -> None:
    """
    The variables make PyO3 build an extension module, and name the interpreter if its path is known.
    """
    assert _abi.gather(frozenset(), PYTHON).build_environment == {
        "PYO3_BUILD_EXTENSION_MODULE": "1",
        "PYO3_PYTHON": "/usr/bin/python3.11",
    }
    assert "PYO3_PYTHON" not in _abi.gather(frozenset(), replace(PYTHON, executable="")).build_environment


def test_running_python() -> None:
    """
    The facts about the running Python match its suffix, pointer width and machine.
    """
    python = _abi.current()

    assert _abi.gather(frozenset()).suffix == EXTENSION_SUFFIXES[0]
    assert python.version == sys.version_info[:2]
    assert python.machine
    assert os.path.realpath(python.executable) == python.executable


@pytest.mark.parametrize(
    ("kernel", "bits", "machine"),
    [
        ("x86_64", 64, "x86_64"),
        ("x86_64", 32, "i686"),
        ("i686", 64, "x86_64"),
        ("i386", 64, "x86_64"),
        ("i686", 32, "i686"),
        ("aarch64", 64, "aarch64"),
        ("aarch64", 32, "armv8l"),
        ("armv8l", 64, "aarch64"),
        ("armv7l", 64, "aarch64"),
        ("arm", 64, "aarch64"),
        ("armv7l", 32, "armv7l"),
        ("arm64", 64, "arm64"),
        ("ppc64", 64, "ppc64"),
        ("ppc64le", 64, "ppc64le"),
        ("riscv64", 64, "riscv64"),
    ],
)
def test_machine_follows_the_pointer_width(kernel: str, bits: int, machine: str) -> None:
    """
    Under `setarch` the kernel reports another machine than the process uses.
    """
    assert _abi.of_width(kernel, bits) == machine


@pytest.mark.skipif(shutil.which("setarch") is None or sys.maxsize < 2**32, reason="needs setarch and 64 bits")
def test_setarch_changes_no_fact() -> None:
    """
    The same Python under `setarch`, which changes the kernel's personality, has the same machine.
    """
    code = "from rust_ext_loader.facts import _abi; print(_abi.current().machine)"
    root = os.path.dirname(os.path.dirname(os.path.abspath(_abi.__file__)))
    done = subprocess.run(
        ["setarch", "linux32", sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    if "setarch" in done.stderr:
        pytest.skip("this system does not allow setarch")

    assert done.stdout.strip() == _abi.current().machine


def test_virtual_environments_of_one_python_share_a_build(tmp_path: Path) -> None:
    """
    PyO3 gets the interpreter behind the virtual environment, so it compiles only once.
    """
    environments = []
    for name in ("one", "two"):
        venv.create(tmp_path / name, with_pip=False, symlinks=True)
        code = "from rust_ext_loader.facts import _abi; print(_abi.gather(frozenset()).build_environment)"
        root = os.path.dirname(os.path.dirname(os.path.abspath(_abi.__file__)))
        command = [str(tmp_path / name / "bin/python"), "-c", code]
        environments.append(
            subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": root}).stdout
        )

    assert environments[0] == environments[1]
    assert str(tmp_path).encode() not in environments[0]
