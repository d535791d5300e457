"""
Unit tests of unusable toolchains: how each problem is reported.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import SettingError, ToolchainMissing
from rust_ext_loader.facts import _cargo_config

from .fake_toolchain import CARGO, Machine

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """
    A machine on which no file has changed for an hour.
    """
    return Machine.make(tmp_path, monkeypatch)


PROBLEMS = [
    pytest.param("cargo", None, "missing", "it is not on PATH", id="no cargo"),
    pytest.param("rustc", None, "missing", "it is not on PATH", id="no rustc"),
    pytest.param(
        "cargo",
        "echo 'error: rustup could not choose a version of cargo to run, because one was not specified explicitly, "
        "and no default is configured.' >&2; exit 1",
        "no-default",
        "rustup could not choose a version of cargo to run",
        id="no default",
    ),
    pytest.param(
        "rustc",
        "echo 'error: no override and no default toolchain set' >&2; exit 1",
        "no-default",
        "no override",
        id="older rustup",
    ),
    pytest.param(
        "rustc",
        "echo \"error: toolchain '1.80' is not installed\" >&2; exit 1",
        "not-installed",
        "toolchain '1.80'",
        id="not installed",
    ),
    pytest.param("rustc", "echo 'Illegal instruction' >&2; exit 132", "broken", "Illegal instruction", id="broken"),
    pytest.param("cargo", "exit 0", "broken", "it prints nothing", id="no output"),
    pytest.param("rustc", "echo 'rustc 1.95.0'", "broken", "rustc 1.95.0", id="another program of that name"),
]


@pytest.mark.parametrize(("tool", "body", "problem", "detail"), PROBLEMS)
def test_each_unusable_toolchain_has_its_problem(
    machine: Machine, tool: str, body: str | None, problem: str, detail: str
) -> None:
    """
    Each problem is reported, and the failure is never remembered.
    """
    if body is None:
        (machine.root / "bin" / tool).unlink()
    else:
        machine.tool(tool, body)
    path = {"PATH": str(machine.root / "bin")} if body is None else {}

    with pytest.raises(ToolchainMissing) as caught:
        machine.probe(environment=path)

    assert (caught.value.tool, caught.value.problem, caught.value.needed_for) == (tool, problem, "m")
    assert detail in caught.value.detail
    assert not (machine.root / "cache").exists()


HANGING = [
    pytest.param("exec sleep 600", id="the tool itself"),
    pytest.param("sleep 600; true", id="a child of a wrapper"),
    pytest.param("sleep 600 & exit 0", id="a child in the background"),
    pytest.param("trap '' INT TERM; while :; do sleep 600; done", id="ignores signals"),
    pytest.param("while :; do echo talk; done", id="endless output"),
]


def held_open(machine: Machine, tool: str, body: str) -> int:
    """
    Return the read end of a pipe that a tool and all its children hold open.
    """
    pipe = machine.root / "held"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    machine.tool(tool, f"exec 9>{pipe}\necho held >&9\n{body}")
    os.set_blocking(end, True)
    return end


@pytest.mark.parametrize("body", HANGING)
@pytest.mark.parametrize("tool", ["cargo", "rustc"])
def test_tool_that_does_not_answer_is_killed(machine: Machine, tool: str, body: str) -> None:
    """
    The error names the limit and its setting, and no process of the tool is left.
    """
    end = held_open(machine, tool, body)

    with pytest.raises(
        ToolchainMissing, match=r"did not answer within 0\.5 s; .* raise RUST_EXT_PROBE_TIMEOUT \(seconds\)"
    ) as caught:
        machine.probe(environment={"RUST_EXT_PROBE_TIMEOUT": "0.5"})

    assert (caught.value.tool, caught.value.problem) == (tool, "no-answer")
    with os.fdopen(end, "rb") as pipe:
        # Read to the end, which comes when no process holds the pipe any more.
        assert set(pipe) == {b"held\n"}


def test_interrupted_probe_leaves_no_process(machine: Machine) -> None:
    """
    Ctrl-C does not wait for a tool that hangs.
    """

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        # A further signal must not interrupt the handling of this one.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        raise Interrupted

    # Only one of the two calls of rustc sends the signal.
    end = held_open(machine, "rustc", 'case "$*" in *sysroot*) kill -USR1 $PPID; esac; sleep 600')
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            machine.probe()
    finally:
        signal.signal(signal.SIGUSR1, before)

    with os.fdopen(end, "rb") as pipe:
        assert set(pipe) == {b"held\n"}


def test_toolchain_without_a_possible_home(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Cargo cannot run without a home. If cargo is missing as well, the error says that instead.
    """
    (machine.root / "file").write_text("")
    monkeypatch.setenv("TMPDIR", str(machine.root / "file"))
    # As for a user without an entry in the password database.
    monkeypatch.setattr(_cargo_config, "user_home", lambda _: None)

    with pytest.raises(ToolchainMissing, match=r"it has no home, and none can be made .*; set CARGO_HOME") as caught:
        machine.probe()
    assert caught.value.problem == "no-home"
    with pytest.raises(ToolchainMissing, match="it is not on PATH"):
        machine.probe(environment={"PATH": str(machine.root / "absent")})


def test_invalid_time_limit_is_refused(machine: Machine) -> None:
    with pytest.raises(SettingError, match="RUST_EXT_PROBE_TIMEOUT='soon' is invalid"):
        machine.probe(environment={"RUST_EXT_PROBE_TIMEOUT": "soon"})


def test_rustup_must_not_install_toolchains(machine: Machine) -> None:
    """
    Automatic installation by rustup is off, even if the environment switches it on.
    """
    machine.tool("cargo", f"echo \"install=$RUSTUP_AUTO_INSTALL\" >> {machine.root}/log; echo '{CARGO}'")
    machine.probe(environment={"RUSTUP_AUTO_INSTALL": "1"})

    assert "install=0" in machine.calls


@pytest.mark.parametrize(
    ("required", "too_old"),
    [("1.95", False), ("1.95.0", False), ("1.80.1", False), ("1.95.1", True), ("1.96", True), ("2.0", True)],
)
def test_too_old_toolchain_is_refused(machine: Machine, required: str, too_old: bool) -> None:
    """
    Versions are compared as numbers, also when they come from a memo.
    """
    for _ in range(2):
        if not too_old:
            assert machine.probe(rust_version=required)["toolchain/rustc"] == "1.95.0"
            continue
        with pytest.raises(
            ToolchainMissing,
            match=rf"rustc 1\.95\.0 is older than {required}, which the crate requires; run `rustup update`",
        ):
            machine.probe(rust_version=required)

    assert len(machine.calls) == 3


def test_ignored_sigchld_changes_nothing(machine: Machine) -> None:
    """
    With SIGCHLD ignored there are no exit statuses, and the printed output is used instead.
    """
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert machine.probe(memo=False)["toolchain/rustc"] == "1.95.0"
    finally:
        signal.signal(signal.SIGCHLD, before)
