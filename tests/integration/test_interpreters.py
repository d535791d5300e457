"""
All CPythons of this machine with one cache: each gets a library for its ABI, and stable-ABI libraries are shared.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import filelock
import pytest
from checkout import ROOT, Checkout, check_out
from processes import run_script

OLDEST = (3, 10)
ALPHA = "alpha-1 part-1 middle-1"

_ABOUT = """
import sys, sysconfig
print(sys.implementation.name, *sys.version_info[:2], sysconfig.get_config_var("SOABI"))
"""


@functools.cache
def interpreters() -> dict[str, str]:
    """
    One interpreter for each ABI found on this machine, keyed by ABI. This interpreter comes first.
    """
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    named = [shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], 20)]
    found: dict[str, str] = {}
    for python in (sys.executable, *sorted(map(str, versions.glob("*/bin/python3"))), *filter(None, named)):
        about = subprocess.run([python, "-I", "-c", _ABOUT], capture_output=True, text=True, check=False).stdout.split()
        # The shim of a version that is not installed prints nothing.
        if len(about) == 4 and about[0] == "cpython" and (int(about[1]), int(about[2])) >= OLDEST:
            found.setdefault(about[3], python)
    return found


@pytest.fixture(scope="session")
def equipped(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, dict[str, str]]:
    """
    For each interpreter, variables with which the toolkit and its dependencies can be imported.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "needed"
    # All test workers share the folder, so only one of them installs.
    with filelock.FileLock(f"{shared}.lock"):
        return {abi: _equip(python, shared / abi) for abi, python in interpreters().items()}


def _equip(python: str, folder: Path) -> dict[str, str]:
    probe = "import filelock, sys; sys.version_info >= (3, 11) or __import__('tomli')"
    if not folder.exists() and subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode:
        command = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--target",
            str(folder),
            "filelock>=4.1",
            "tomli>=2; python_version < '3.11'",
        ]
        done = subprocess.run([*command, "--disable-pip-version-check"], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{python} cannot install `filelock`: {done.stderr.strip().splitlines()[-1:]}")
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}


def each(checkout: Checkout, equipped: dict[str, dict[str, str]]) -> dict[str, Checkout]:
    """
    The same checkout and cache for each interpreter.
    """
    return {
        abi: Checkout(checkout.root, checkout.cache, {**checkout.environment, **equipped[abi]}, python)
        for abi, python in interpreters().items()
    }


def test_each_interpreter_has_its_own_entry(plain: Checkout, equipped: dict[str, dict[str, str]]) -> None:
    """
    A library without the stable ABI is built once for each CPython in one cache. Each then loads its own library.
    """
    if len(equipped) < 2:
        pytest.skip("one CPython only")
    first = {abi: checkout.load() for abi, checkout in each(plain, equipped).items()}
    second = {abi: checkout.load() for abi, checkout in each(plain, equipped).items()}

    assert {loaded.error or loaded.value for loaded in (*first.values(), *second.values())} == {ALPHA}
    assert [loaded.compiled for loaded in first.values()] == [["alpha"]] * len(equipped)
    assert len({loaded.file for loaded in first.values()}) == len(equipped)
    assert all(abi in str(loaded.file) for abi, loaded in first.items())
    assert [(loaded.file, loaded.cargo) for loaded in second.values()] == [
        (loaded.file, ()) for loaded in first.values()
    ]


def test_a_stable_abi_entry_serves_every_interpreter(tmp_path: Path, equipped: dict[str, dict[str, str]]) -> None:
    """
    A library for the stable ABI is built once, by the first CPython, and loaded by all.
    """
    if len(equipped) < 2:
        pytest.skip("one CPython only")
    stable = check_out("stable-abi", tmp_path)
    loads = [checkout.load() for checkout in each(stable, equipped).values()]

    assert [loaded.error or loaded.value for loaded in loads] == ["stable-1"] * len(equipped)
    assert [loaded.compiled for loaded in loads] == [["alpha"]] + [[]] * (len(equipped) - 1)
    assert len({loaded.file for loaded in loads}) == 1
    assert str(loads[0].file).endswith(".abi3.so")


def test_interpreters_that_build_in_parallel_get_their_own_library(
    plain: Checkout, equipped: dict[str, dict[str, str]]
) -> None:
    """
    Interpreters that build in parallel in one cache each get a library compiled for them.
    """
    if len(equipped) < 2:
        pytest.skip("one CPython only")
    running = {abi: checkout.start() for abi, checkout in each(plain, equipped).items()}
    answers = {abi: Checkout.finish(process) for abi, process in running.items()}

    assert {answer.get("error") or answer["value"] for answer in answers.values()} == {ALPHA}
    assert all(abi in str(answer["file"]) for abi, answer in answers.items())


def test_manifests_are_read_by_tomli_without_tomllib(plain: Checkout) -> None:
    """
    On Python 3.10 manifests are read by `tomli`, and `tomllib` is not imported.
    """
    if sys.version_info < (3, 11):
        prelude = "import sys"
    else:
        # Register `tomllib` as `tomli` (both are the same parser), and make the toolkit see Python 3.10.
        prelude = (
            "import filelock, sys, tomllib\nsys.modules |= {'tomli': tomllib, 'tomllib': None}\n"
            "sys.version_info = (3, 10, 0, 'final', 0)"
        )
    text = f"""
{prelude}
from rust_ext_loader import load_rust_extension
print(load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r}).value)
print("tomli" in sys.modules, sys.modules.get("tomllib"))
"""
    assert run_script(plain, text) == f"{ALPHA}\nTrue None\n"


@pytest.mark.skipif(not any("310" in abi for abi in interpreters()), reason="no CPython 3.10 on this machine")
def test_python_3_10_reads_manifests_with_tomli(plain: Checkout, equipped: dict[str, dict[str, str]]) -> None:
    """
    A real Python 3.10 reads manifests with the real `tomli`.
    """
    (checkout,) = (checkout for abi, checkout in each(plain, equipped).items() if "310" in abi)

    loaded = checkout.load()

    assert loaded.value == ALPHA
    assert "tomli" in loaded.imported
    assert "tomllib" not in loaded.imported
