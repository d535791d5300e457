"""
Which CPUs share code that was made for one of them.
"""

from __future__ import annotations

import os
import sys

import pytest

from rust_ext_loader.facts import _cpu

X86 = "processor : 0\nmodel name : A\ncpu MHz : 800.0\ncpu family : 6\nflags\t\t: fpu sse2 avx2\n\n"

SAME = [
    pytest.param(X86 * 2, id="more cores"),
    pytest.param(X86.replace("800.0", "3200.0"), id="another clock"),
    pytest.param(X86.replace("fpu sse2 avx2", "avx2  fpu sse2"), id="another order"),
]
OTHER = [
    pytest.param(X86.replace(" avx2", ""), id="a feature less"),
    pytest.param(X86.replace("avx2", "avx2 avx512f"), id="a feature more"),
    pytest.param(X86 + X86.replace(" avx2", ""), id="a second kind of core"),
    pytest.param("processor : 0\nFeatures : fp asimd sve\n", id="ARM"),
    pytest.param("hart : 0\nisa : rv64imafdc\n", id="RISC-V"),
    pytest.param("cpu : POWER9\n", id="POWER"),
]


@pytest.mark.parametrize("text", SAME)
def test_what_a_core_can_do_counts_alone(text: str) -> None:
    """
    Not how many there are, nor how fast they happen to run.
    """
    assert _cpu.digest_of_cpuinfo(text) == _cpu.digest_of_cpuinfo(X86)


@pytest.mark.parametrize("text", OTHER)
def test_another_cpu_differs(text: str) -> None:
    """
    Whatever could be an illegal instruction is a fact.
    """
    assert _cpu.digest_of_cpuinfo(text) not in ("", _cpu.digest_of_cpuinfo(X86))


def test_a_kernel_that_names_no_features() -> None:
    """
    It says nothing, so the CPU's name has to do.
    """
    assert _cpu.digest_of_cpuinfo("processor : 0\nBogoMIPS : 48.00\n") == ""


def test_the_cpu_at_hand_starts_no_process() -> None:
    """
    It is known, and the same when asked again.
    """
    spawned: list[str] = []
    sys.addaudithook(
        lambda event, _: spawned.append(event) if event in ("subprocess.Popen", "os.system", "os.fork") else None
    )

    first = _cpu.facts()

    assert first == _cpu.facts()
    assert list(first) == ["cpu/features"]
    assert first["cpu/features"]
    assert spawned == []


def test_a_cpu_without_a_file_of_features_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And without a name it is the only one of its kind.
    """
    monkeypatch.setattr(_cpu, "_from_linux", lambda: "")
    nameless = _cpu.facts()["cpu/features"]
    monkeypatch.setenv("PROCESSOR_IDENTIFIER", "Some CPU")

    assert nameless
    if sys.platform == "linux":
        assert nameless == f"{os.uname().machine} {os.uname().nodename}"
        assert _cpu.facts() == {"cpu/features": f"{os.uname().machine} Some CPU"}
