"""
Unit tests of the CPU facts: which CPUs share a build for `native`.
"""

from __future__ import annotations

import os
import sys

import pytest

from rust_ext_loader.facts import _cpu

X86 = "processor : 0\nmodel name : A\ncpu MHz : 800.0\ncpu family : 6\nflags\t\t: fpu sse2 avx2\n\n"

IRRELEVANT = [
    pytest.param(X86 * 2, id="more cores"),
    pytest.param(X86.replace("800.0", "3200.0"), id="another clock rate"),
    pytest.param(X86.replace("fpu sse2 avx2", "avx2  fpu sse2"), id="another order"),
]
OTHER = [
    pytest.param(X86.replace(" avx2", ""), id="one feature less"),
    pytest.param(X86.replace("avx2", "avx2 avx512f"), id="one feature more"),
    pytest.param(X86 + X86.replace(" avx2", ""), id="a second kind of core"),
    pytest.param("processor : 0\nFeatures : fp asimd sve\n", id="ARM"),
    pytest.param("hart : 0\nisa : rv64imafdc\n", id="RISC-V"),
    pytest.param("cpu : POWER9\n", id="POWER"),
]


@pytest.mark.parametrize("text", IRRELEVANT)
def test_only_features_count(text: str) -> None:
    """
    The number of cores, the clock rate and the order of features do not change the digest.
    """
    assert _cpu.digest_of_cpuinfo(text) == _cpu.digest_of_cpuinfo(X86)


@pytest.mark.parametrize("text", OTHER)
def test_other_features_change_the_digest(text: str) -> None:
    """
    CPUs with other features do not share a build: its instructions could be illegal there.
    """
    assert _cpu.digest_of_cpuinfo(text) not in ("", _cpu.digest_of_cpuinfo(X86))


def test_cpuinfo_without_features_has_no_digest() -> None:
    """
    Without a line of features the CPU's name is used instead.
    """
    assert _cpu.digest_of_cpuinfo("processor : 0\nBogoMIPS : 48.00\n") == ""


def test_cpu_facts_start_no_process() -> None:
    """
    The facts exist without a subprocess, and are the same on a second call.
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


def test_cpu_name_is_used_without_cpuinfo(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without cpuinfo the CPU's name is used. Without that name, the host's name makes the facts unique.
    """
    monkeypatch.setattr(_cpu, "_from_linux", lambda: "")
    nameless = _cpu.facts()["cpu/features"]
    monkeypatch.setenv("PROCESSOR_IDENTIFIER", "Some CPU")

    assert nameless
    if sys.platform == "linux":
        assert nameless == f"{os.uname().machine} {os.uname().nodename}"
        assert _cpu.facts() == {"cpu/features": f"{os.uname().machine} Some CPU"}
