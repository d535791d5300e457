"""
Unit tests of the toolchain probe: which toolchain a crate's folder gets, and when its tools run.

Cargo and rustc are small scripts that log each call. The last test runs the
real programs.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader.facts import _memo, _toolchain

from .fake_toolchain import CARGO, HOUR_NS, RUSTC, Machine

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake tools are shell scripts")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """
    A machine on which no file has changed for an hour.
    """
    return Machine.make(tmp_path, monkeypatch)


def test_facts_hold_no_dates_and_paths(machine: Machine) -> None:
    """
    The facts are release, commit, host, LLVM and the version of cargo.
    """
    machine.tool("cargo", f"printf '{CARGO}\\nos: Debian\\nlibcurl: 8\\n'")

    assert machine.probe() == {
        "toolchain/rustc": "1.95.0",
        "toolchain/commit": "59807616e",
        "toolchain/host": "x86_64-unknown-linux-gnu",
        "toolchain/llvm": "22.1.2",
        "toolchain/cargo": "1.95.0 (f2d3ce0bd 2026-03-21)",
    }


def test_unchanged_tools_run_once(machine: Machine) -> None:
    """
    After the first probe, no process is started while no file changes.
    """
    first = machine.probe()
    runs = len(machine.calls)

    assert machine.probe() == first
    assert runs == 3
    assert len(machine.calls) == runs


def _rewrite_rustc(machine: Machine) -> None:
    machine.rustc(RUSTC.replace("1.95.0", "1.96.0"))


def _update_behind_the_proxy(machine: Machine) -> None:
    machine.tool("rustc", "# updated", "sysroot/bin")


def _add_cargo_first_on_path(machine: Machine) -> None:
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
        pytest.param(_add_cargo_first_on_path, id="another cargo first on PATH"),
        pytest.param(_write_toolchain_file, id="a toolchain file"),
        pytest.param(_change_rustup_settings, id="rustup's settings"),
        pytest.param(_link_a_toolchain, id="a linked toolchain"),
    ],
)
def test_each_change_runs_the_tools_again(machine: Machine, change: object) -> None:
    """
    Each change can select another compiler, so the memo is not used.
    """
    machine.probe()
    runs = len(machine.calls)
    change(machine)  # type: ignore[operator]
    machine.probe()

    assert len(machine.calls) == runs + 3


@pytest.mark.parametrize("name", ["RUSTUP_TOOLCHAIN", "RUSTUP_HOME", "CARGO_HOME"])
def test_each_relevant_variable_runs_the_tools_again(machine: Machine, name: str) -> None:
    """
    With another value the tools run again. With the old value, the old memo is used.
    """
    machine.probe()
    machine.probe(environment={name: str(machine.root / "x")})
    runs = len(machine.calls)
    machine.probe()

    assert runs == 6
    assert len(machine.calls) == runs


@pytest.mark.parametrize("name", ["RUSTC", "CARGO_BUILD_RUSTC"])
def test_compiler_from_a_variable(machine: Machine, name: str) -> None:
    """
    The variable names the compiler that cargo would run.
    """
    other = machine.rustc(RUSTC.replace("1.95.0", "1.96.0"), folder="other")

    assert machine.probe(environment={name: str(other)})["toolchain/rustc"] == "1.96.0"


def test_compiler_from_the_configuration(machine: Machine) -> None:
    """
    A relative path in the configuration is relative to the folder that contains `.cargo`.
    """
    machine.rustc(RUSTC.replace("1.95.0", "1.97.0"), folder="tree/tools")
    (machine.root / "tree/.cargo").mkdir()
    (machine.root / "tree/.cargo/config.toml").write_text('[build]\nrustc = "tools/rustc"\n')

    assert machine.probe()["toolchain/rustc"] == "1.97.0"


def test_recently_written_tools_are_not_remembered(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The memo is not written for recent files: another edit within the same clock tick would keep the signature.
    """
    now = _memo.now_ns() - HOUR_NS
    monkeypatch.setattr(_memo, "now_ns", lambda: now)
    machine.probe()
    machine.probe()

    assert len(machine.calls) == 6


def _write_invalid_json(memo: Path) -> None:
    memo.write_text("{")


def _write_empty_object(memo: Path) -> None:
    memo.write_text("{}")


def _make_writable_for_all(memo: Path) -> None:
    memo.chmod(0o666)


def _replace_by_link(memo: Path) -> None:
    memo.rename(memo.with_suffix(".real"))
    memo.symlink_to(memo.with_suffix(".real"))


def _make_folder_writable_for_all(memo: Path) -> None:
    memo.parent.chmod(0o777)


def _give_to_another_user(memo: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can change the owner")
    os.chown(memo, 12345, 12345)


@pytest.mark.parametrize(
    "damage",
    [
        _write_invalid_json,
        _write_empty_object,
        _make_writable_for_all,
        _make_folder_writable_for_all,
        _replace_by_link,
        _give_to_another_user,
    ],
)
def test_damaged_or_untrusted_memo_is_ignored(machine: Machine, damage: object) -> None:
    """
    The tools run again, and the facts are the same.
    """
    first = machine.probe()
    (memo,) = (machine.root / "cache/probes").iterdir()
    damage(memo)  # type: ignore[operator]

    assert machine.probe() == first
    assert len(machine.calls) == 6


def test_failure_to_write_a_memo_is_no_error(machine: Machine) -> None:
    """
    The probe works without a folder for memos, and with one that cannot be created.
    """
    (machine.root / "cache").write_text("a file")

    assert machine.probe(memo=False) == machine.probe()
    assert len(machine.calls) == 6


def test_deciding_files_are_watched(machine: Machine) -> None:
    """
    Existing files are watched, and so are paths at which a new file would be found first.
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
    The real toolchain is probed once. The second result comes from the memo.
    """
    spawned: list[str] = []
    sys.addaudithook(lambda event, _: spawned.append(event) if event == "subprocess.Popen" else None)
    first = _toolchain.probe(tmp_path, os.environ, tmp_path / "cache", "m")
    runs = len(spawned)
    second = _toolchain.probe(tmp_path, os.environ, tmp_path / "cache", "m")

    assert first == second
    assert first.release.count(".") == 2
    assert 0 < runs == len(spawned)
