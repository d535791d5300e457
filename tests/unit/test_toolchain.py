"""
Unit tests of the toolchain probe: which toolchain a crate's folder gets, what is wrong with it, and when it is asked.

Cargo and rustc are small scripts that log each call. The last test runs the
real programs.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import SettingError, ToolchainMissing
from rust_ext_loader.facts import _cargo_config, _memo, _toolchain

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")

RUSTC = """\
rustc 1.95.0 (59807616e 2026-04-14)
binary: rustc
commit-hash: 59807616e
host: x86_64-unknown-linux-gnu
release: 1.95.0
LLVM version: 22.1.2"""
CARGO = "cargo 1.95.0 (f2d3ce0bd 2026-03-21)"
HOUR_NS = 3_600_000_000_000


@dataclass
class Machine:
    """
    A crate, and a PATH with fake versions of cargo and rustc.
    """

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.root}/first:{self.root}/bin:/usr/bin:/bin", "HOME": str(self.root / "home")}

    @property
    def crate(self) -> Path:
        return self.root / "tree/crate"

    @property
    def calls(self) -> list[str]:
        log = self.root / "log"
        return log.read_text().splitlines() if log.exists() else []

    def tool(self, name: str, body: str, folder: str = "bin") -> Path:
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.root}/log\n{body}\n')
        path.chmod(0o755)
        return path

    def rustc(self, version: str = RUSTC, folder: str = "bin") -> Path:
        answers = f'case "$*" in -vV) cat <<END\n{version}\nEND\n;; *sysroot*) echo {self.root}/sysroot;; esac'
        return self.tool("rustc", answers, folder)

    def probe(self, *, memo: bool = True, **options: object) -> dict[str, str]:
        environment = {**self.environment, **options.pop("environment", {})}  # type: ignore[dict-item]
        root = self.root / "cache" if memo else None
        found = _toolchain.probe(self.crate, environment, root, "m", **options)  # type: ignore[arg-type]
        return dict(found.gathered.facts)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """
    A machine on which no file has changed for an hour.
    """
    made = Machine(tmp_path.resolve())
    made.crate.mkdir(parents=True)
    made.tool("cargo", f"echo '{CARGO}'")
    made.rustc()
    made.tool("rustc", "", "sysroot/bin")
    now = _memo.now_ns()
    monkeypatch.setattr(_memo, "now_ns", lambda: now + HOUR_NS)
    return made


def test_facts_hold_no_dates_and_paths(machine: Machine) -> None:
    """
    They are release, commit, host, LLVM and the version of cargo.
    """
    machine.tool("cargo", f"printf '{CARGO}\\nos: Debian\\nlibcurl: 8\\n'")

    assert machine.probe() == {
        "toolchain/rustc": "1.95.0",
        "toolchain/commit": "59807616e",
        "toolchain/host": "x86_64-unknown-linux-gnu",
        "toolchain/llvm": "22.1.2",
        "toolchain/cargo": "1.95.0 (f2d3ce0bd 2026-03-21)",
    }


def test_unchanged_tools_are_asked_once(machine: Machine) -> None:
    """
    While no file changes, no process is started.
    """
    first = machine.probe()
    asked = len(machine.calls)

    assert machine.probe() == first
    assert asked == 3
    assert len(machine.calls) == asked


def _rewrite_rustc(machine: Machine) -> None:
    machine.rustc(RUSTC.replace("1.95.0", "1.96.0"))


def _update_behind_the_proxy(machine: Machine) -> None:
    machine.tool("rustc", "# updated", "sysroot/bin")


def _put_one_in_front(machine: Machine) -> None:
    machine.tool("cargo", f"echo '{CARGO}'", "first")


def _write_toolchain_file(machine: Machine) -> None:
    (machine.root / "tree/rust-toolchain.toml").write_text("[toolchain]\n")


def _change_rustup_settings(machine: Machine) -> None:
    (machine.root / "home/.rustup").mkdir(parents=True)
    (machine.root / "home/.rustup/settings.toml").write_text("")


def _link_a_toolchain(machine: Machine) -> None:
    (machine.root / "home/.rustup/toolchains/x").mkdir(parents=True)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_rewrite_rustc, id="the compiler"),
        pytest.param(_update_behind_the_proxy, id="the compiler behind a proxy"),
        pytest.param(_put_one_in_front, id="another cargo first on PATH"),
        pytest.param(_write_toolchain_file, id="a toolchain file"),
        pytest.param(_change_rustup_settings, id="rustup's settings"),
        pytest.param(_link_a_toolchain, id="a linked toolchain"),
    ],
)
def test_each_change_asks_the_tools_again(machine: Machine, change: object) -> None:
    """
    Each change can select another compiler, so the memo is not used.
    """
    machine.probe()
    asked = len(machine.calls)
    change(machine)  # type: ignore[operator]
    machine.probe()

    assert len(machine.calls) == asked + 3


@pytest.mark.parametrize("name", ["RUSTUP_TOOLCHAIN", "RUSTUP_HOME", "CARGO_HOME"])
def test_each_relevant_variable_asks_the_tools_again(machine: Machine, name: str) -> None:
    """
    With the old value, the old memo is used again.
    """
    machine.probe()
    machine.probe(environment={name: str(machine.root / "x")})
    asked = len(machine.calls)
    machine.probe()

    assert asked == 6
    assert len(machine.calls) == asked


@pytest.mark.parametrize("name", ["RUSTC", "CARGO_BUILD_RUSTC"])
def test_compiler_from_a_variable(machine: Machine, name: str) -> None:
    """
    The variable names the compiler that cargo would run.
    """
    other = machine.rustc(RUSTC.replace("1.95.0", "1.96.0"), folder="other")

    assert machine.probe(environment={name: str(other)})["toolchain/rustc"] == "1.96.0"


def test_compiler_from_the_configuration(machine: Machine) -> None:
    """
    A relative path starts at the folder around `.cargo`.
    """
    machine.rustc(RUSTC.replace("1.95.0", "1.97.0"), folder="tree/tools")
    (machine.root / "tree/.cargo").mkdir()
    (machine.root / "tree/.cargo/config.toml").write_text('[build]\nrustc = "tools/rustc"\n')

    assert machine.probe()["toolchain/rustc"] == "1.97.0"


def test_recently_written_tools_are_not_remembered(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Another edit within the same clock tick would not change the signature.
    """
    now = _memo.now_ns() - HOUR_NS
    monkeypatch.setattr(_memo, "now_ns", lambda: now)
    machine.probe()
    machine.probe()

    assert len(machine.calls) == 6


def _garble(memo: Path) -> None:
    memo.write_text("{")


def _empty(memo: Path) -> None:
    memo.write_text("{}")


def _open_to_all(memo: Path) -> None:
    memo.chmod(0o666)


def _link(memo: Path) -> None:
    memo.rename(memo.with_suffix(".real"))
    memo.symlink_to(memo.with_suffix(".real"))


def _open_its_folder(memo: Path) -> None:
    memo.parent.chmod(0o777)


def _of_another_user(memo: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can change the owner")
    os.chown(memo, 12345, 12345)


@pytest.mark.parametrize("harm", [_garble, _empty, _open_to_all, _open_its_folder, _link, _of_another_user])
def test_damaged_or_untrusted_memo_is_ignored(machine: Machine, harm: object) -> None:
    """
    The tools are asked again, with the same result.
    """
    first = machine.probe()
    (memo,) = (machine.root / "cache/probes").iterdir()
    harm(memo)  # type: ignore[operator]

    assert machine.probe() == first
    assert len(machine.calls) == 6


def test_failure_to_write_a_memo_is_no_error(machine: Machine) -> None:
    """
    Neither without a folder for memos nor with one that cannot be created.
    """
    (machine.root / "cache").write_text("a file")

    assert machine.probe(memo=False) == machine.probe()
    assert len(machine.calls) == 6


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
    The failure is never remembered.
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
        # Two tools run at once and each of them interrupts; the second signal arrives while the first is handled.
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
        machine.probe(environment={"PATH": "/nonexistent"})


def test_invalid_time_limit_is_refused(machine: Machine) -> None:
    with pytest.raises(SettingError, match="RUST_EXT_PROBE_TIMEOUT='soon' is not understood"):
        machine.probe(environment={"RUST_EXT_PROBE_TIMEOUT": "soon"})


def test_rustup_must_not_install_toolchains(machine: Machine) -> None:
    """
    Automatic installation is off, even if the environment switches it on.
    """
    machine.tool("cargo", f"echo \"install=$RUSTUP_AUTO_INSTALL\" >> {machine.root}/log; echo '{CARGO}'")
    machine.probe(environment={"RUSTUP_AUTO_INSTALL": "1"})

    assert "install=0" in machine.calls


@pytest.mark.parametrize(
    ("asked", "too_old"),
    [("1.95", False), ("1.95.0", False), ("1.80.1", False), ("1.95.1", True), ("1.96", True), ("2.0", True)],
)
def test_too_old_toolchain_is_refused(machine: Machine, asked: str, too_old: bool) -> None:
    """
    Versions are compared as numbers, also when they come from a memo.
    """
    for _ in range(2):
        if not too_old:
            assert machine.probe(rust_version=asked)["toolchain/rustc"] == "1.95.0"
            continue
        with pytest.raises(
            ToolchainMissing,
            match=rf"rustc 1\.95\.0 is older than {asked}, which the crate requires; run `rustup update`",
        ):
            machine.probe(rust_version=asked)

    assert len(machine.calls) == 3


def test_ignored_sigchld_changes_nothing(machine: Machine) -> None:
    """
    Without exit statuses, the printed output decides.
    """
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert machine.probe(memo=False)["toolchain/rustc"] == "1.95.0"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_deciding_files_are_watched(machine: Machine) -> None:
    """
    These are existing files, and paths at which a new file would be found first.
    """
    watched = _toolchain.probe(machine.crate, machine.environment, None, "m").gathered.watched

    assert {str(machine.root / name) for name in ("bin/cargo", "bin/rustc", "sysroot/bin/rustc")} <= watched.present
    assert {
        str(machine.root / name)
        for name in (
            "first/cargo",
            "first/rustc",
            "tree/crate/rust-toolchain",
            "tree/rust-toolchain.toml",
            "home/.rustup/settings.toml",
        )
    } <= watched.absent


def test_missing_tools_are_watched(machine: Machine) -> None:
    """
    Without cargo, every path where it would be found is watched. With both tools the result is `None`.
    """
    assert _toolchain.absence(machine.crate, machine.environment) is None

    (machine.root / "bin/cargo").unlink()
    alone = {**machine.environment, "PATH": f"{machine.root}/first:{machine.root}/bin"}
    absence = _toolchain.absence(machine.crate, alone)

    assert absence is not None
    assert str(machine.root / "bin/rustc") in absence.present
    assert {str(machine.root / name) for name in ("first/cargo", "bin/cargo", "first/rustc")} <= absence.absent


def test_tool_that_is_a_dangling_link_is_not_absent(machine: Machine) -> None:
    """
    The link exists, and its target may be created.
    """
    link = machine.root / "first/cargo"
    link.parent.mkdir()
    link.symlink_to(machine.root / "gone")

    watched = _toolchain.probe(machine.crate, machine.environment, None, "m").gathered.watched

    assert str(link) not in watched.absent
    assert str(machine.root / "gone") in watched.absent


@pytest.mark.skipif(shutil.which("cargo") is None or shutil.which("rustc") is None, reason="needs Rust")
def test_real_toolchain(tmp_path: Path) -> None:
    """
    It is probed once, and the second result comes from the memo.
    """
    spawned: list[str] = []
    sys.addaudithook(lambda event, _: spawned.append(event) if event == "subprocess.Popen" else None)
    first = _toolchain.probe(tmp_path, os.environ, tmp_path / "cache", "m")
    asked = len(spawned)
    second = _toolchain.probe(tmp_path, os.environ, tmp_path / "cache", "m")

    assert first == second
    assert first.release.count(".") == 2
    assert 0 < asked == len(spawned)
