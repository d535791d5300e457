"""
Which toolchain a crate's folder gets, what is wrong with it, and how rarely it is asked.

Cargo and rustc are small scripts here that note each call; one test at the end
asks the real ones.
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

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")

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
    A PATH with stand-ins for cargo and rustc, and a crate.
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
    A machine on which nothing has moved for an hour.
    """
    made = Machine(tmp_path.resolve())
    made.crate.mkdir(parents=True)
    made.tool("cargo", f"echo '{CARGO}'")
    made.rustc()
    made.tool("rustc", "", "sysroot/bin")
    now = _memo.now_ns()
    monkeypatch.setattr(_memo, "now_ns", lambda: now + HOUR_NS)
    return made


def test_facts_leave_out_what_does_not_matter(machine: Machine) -> None:
    """
    Release, commit, host, LLVM and cargo's version; no dates of a build, no paths.
    """
    machine.tool("cargo", f"printf '{CARGO}\\nos: Debian\\nlibcurl: 8\\n'")

    assert machine.probe() == {
        "toolchain/rustc": "1.95.0",
        "toolchain/commit": "59807616e",
        "toolchain/host": "x86_64-unknown-linux-gnu",
        "toolchain/llvm": "22.1.2",
        "toolchain/cargo": "1.95.0 (f2d3ce0bd 2026-03-21)",
    }


def test_nothing_is_asked_twice(machine: Machine) -> None:
    """
    While nothing moves, no process is started.
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
def test_whatever_could_choose_another_compiler_asks_again(machine: Machine, change: object) -> None:
    """
    Each of them makes the memo void.
    """
    machine.probe()
    asked = len(machine.calls)
    change(machine)  # type: ignore[operator]
    machine.probe()

    assert len(machine.calls) == asked + 3


@pytest.mark.parametrize("name", ["RUSTUP_TOOLCHAIN", "RUSTUP_HOME", "CARGO_HOME"])
def test_variables_that_choose_a_compiler_ask_again(machine: Machine, name: str) -> None:
    """
    And the old value finds its memo again.
    """
    machine.probe()
    machine.probe(environment={name: str(machine.root / "x")})
    asked = len(machine.calls)
    machine.probe()

    assert asked == 6
    assert len(machine.calls) == asked


@pytest.mark.parametrize("name", ["RUSTC", "CARGO_BUILD_RUSTC"])
def test_a_compiler_named_by_a_variable(machine: Machine, name: str) -> None:
    """
    It is the one that cargo would run.
    """
    other = machine.rustc(RUSTC.replace("1.95.0", "1.96.0"), folder="other")

    assert machine.probe(environment={name: str(other)})["toolchain/rustc"] == "1.96.0"


def test_a_compiler_named_by_the_configuration(machine: Machine) -> None:
    """
    Likewise, relative to the folder around `.cargo`.
    """
    machine.rustc(RUSTC.replace("1.95.0", "1.97.0"), folder="tree/tools")
    (machine.root / "tree/.cargo").mkdir()
    (machine.root / "tree/.cargo/config.toml").write_text('[build]\nrustc = "tools/rustc"\n')

    assert machine.probe()["toolchain/rustc"] == "1.97.0"


def test_unsettled_files_are_not_remembered(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A compiler written this very second may be written again without its stamp moving.
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
        pytest.skip("only root can give a file away")
    os.chown(memo, 12345, 12345)


@pytest.mark.parametrize("harm", [_garble, _empty, _open_to_all, _open_its_folder, _link, _of_another_user])
def test_a_memo_that_cannot_be_trusted_is_none(machine: Machine, harm: object) -> None:
    """
    Then the tools are asked, and the verdict is the same.
    """
    first = machine.probe()
    (memo,) = (machine.root / "cache/probes").iterdir()
    harm(memo)  # type: ignore[operator]

    assert machine.probe() == first
    assert len(machine.calls) == 6


def test_nowhere_to_remember_is_no_error(machine: Machine) -> None:
    """
    Neither no folder nor one that cannot be made.
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
    pytest.param("cargo", "exit 0", "broken", "it prints nothing", id="silent"),
    pytest.param("rustc", "echo 'rustc 1.95.0'", "broken", "rustc 1.95.0", id="another thing by that name"),
]


@pytest.mark.parametrize(("tool", "body", "problem", "detail"), PROBLEMS)
def test_each_way_to_be_unusable_has_its_own_name(
    machine: Machine, tool: str, body: str | None, problem: str, detail: str
) -> None:
    """
    And is never remembered.
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
    pytest.param("exec sleep 600", id="itself"),
    pytest.param("sleep 600; true", id="through a wrapper"),
    pytest.param("sleep 600 & exit 0", id="whoever it left behind"),
    pytest.param("trap '' INT TERM; while :; do sleep 600; done", id="deaf to signals"),
    pytest.param("while :; do echo talk; done", id="talking for ever"),
]


def held_open(machine: Machine, tool: str, body: str) -> int:
    """
    Let a tool and all it starts hold a pipe, of which this is the other end.
    """
    pipe = machine.root / "held"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    machine.tool(tool, f"exec 9>{pipe}\necho held >&9\n{body}")
    os.set_blocking(end, True)
    return end


@pytest.mark.parametrize("body", HANGING)
@pytest.mark.parametrize("tool", ["cargo", "rustc"])
def test_a_tool_that_does_not_answer(machine: Machine, tool: str, body: str) -> None:
    """
    There is a limit, which the error names with its setting; nothing of the tool outlives it.
    """
    end = held_open(machine, tool, body)

    with pytest.raises(
        ToolchainMissing, match=r"did not answer within 0\.5 s; .* raise RUST_EXT_PROBE_TIMEOUT \(seconds\)"
    ) as caught:
        machine.probe(environment={"RUST_EXT_PROBE_TIMEOUT": "0.5"})

    assert (caught.value.tool, caught.value.problem) == (tool, "no-answer")
    with os.fdopen(end, "rb") as pipe:
        # To the end, which comes when nobody holds it any more.
        assert set(pipe) == {b"held\n"}


def test_an_interrupted_probe_leaves_nothing_behind(machine: Machine) -> None:
    """
    Ctrl-C is not kept waiting for a tool that hangs.
    """

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        # Two tools are asked at once and each of them interrupts; the second finds the first one's end under way.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        raise Interrupted

    # Once: it is asked two questions.
    end = held_open(machine, "rustc", 'case "$*" in *sysroot*) kill -USR1 $PPID; esac; sleep 600')
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            machine.probe()
    finally:
        signal.signal(signal.SIGUSR1, before)

    with os.fdopen(end, "rb") as pipe:
        assert set(pipe) == {b"held\n"}


def test_without_a_home_and_a_place_for_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Cargo does not run then; where there is no cargo anyway, that is what is said.
    """
    (machine.root / "file").write_text("")
    monkeypatch.setenv("TMPDIR", str(machine.root / "file"))
    # As for a user that no password database knows.
    monkeypatch.setattr(_cargo_config, "user_home", lambda _: None)

    with pytest.raises(ToolchainMissing, match=r"it has no home, and none can be made .*; set CARGO_HOME") as caught:
        machine.probe()
    assert caught.value.problem == "no-home"
    with pytest.raises(ToolchainMissing, match="it is not on PATH"):
        machine.probe(environment={"PATH": "/nonexistent"})


def test_a_limit_that_means_nothing_is_refused(machine: Machine) -> None:
    with pytest.raises(SettingError, match="RUST_EXT_PROBE_TIMEOUT='soon' is invalid"):
        machine.probe(environment={"RUST_EXT_PROBE_TIMEOUT": "soon"})


def test_rustup_is_told_to_install_nothing(machine: Machine) -> None:
    """
    Whatever the environment says.
    """
    machine.tool("cargo", f"echo \"install=$RUSTUP_AUTO_INSTALL\" >> {machine.root}/log; echo '{CARGO}'")
    machine.probe(environment={"RUSTUP_AUTO_INSTALL": "1"})

    assert "install=0" in machine.calls


@pytest.mark.parametrize(
    ("asked", "too_old"),
    [("1.95", False), ("1.95.0", False), ("1.80.1", False), ("1.95.1", True), ("1.96", True), ("2.0", True)],
)
def test_too_old(machine: Machine, asked: str, too_old: bool) -> None:
    """
    Compared number by number, from the memo as well.
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


def test_an_ignored_sigchld_changes_nothing(machine: Machine) -> None:
    """
    Then no exit status is to be had, and what was printed decides.
    """
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert machine.probe(memo=False)["toolchain/rustc"] == "1.95.0"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_all_that_was_looked_at_is_watched(machine: Machine) -> None:
    """
    What is there, and what would be found first if it were there.
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


def test_absence_is_what_was_looked_for(machine: Machine) -> None:
    """
    Without cargo each place it could come to is watched, and the compiler that is there too; with both there is no absence.
    """
    assert _toolchain.absence(machine.crate, machine.environment) is None

    (machine.root / "bin/cargo").unlink()
    alone = {**machine.environment, "PATH": f"{machine.root}/first:{machine.root}/bin"}
    absence = _toolchain.absence(machine.crate, alone)

    assert absence is not None
    assert str(machine.root / "bin/rustc") in absence.present
    assert {str(machine.root / name) for name in ("first/cargo", "bin/cargo", "first/rustc")} <= absence.absent


def test_a_tool_that_is_a_link_to_nowhere_is_not_called_absent(machine: Machine) -> None:
    """
    It is there and could lead somewhere again.
    """
    link = machine.root / "first/cargo"
    link.parent.mkdir()
    link.symlink_to(machine.root / "gone")

    watched = _toolchain.probe(machine.crate, machine.environment, None, "m").gathered.watched

    assert str(link) not in watched.absent
    assert str(machine.root / "gone") in watched.absent


@pytest.mark.skipif(shutil.which("cargo") is None or shutil.which("rustc") is None, reason="no Rust here")
def test_the_real_toolchain(tmp_path: Path) -> None:
    """
    It answers, and the second time from the memo.
    """
    spawned: list[str] = []
    sys.addaudithook(lambda event, _: spawned.append(event) if event == "subprocess.Popen" else None)
    first = _toolchain.probe(tmp_path, os.environ, tmp_path / "cache", "m")
    asked = len(spawned)
    second = _toolchain.probe(tmp_path, os.environ, tmp_path / "cache", "m")

    assert first == second
    assert first.release.count(".") == 2
    assert 0 < asked == len(spawned)
