"""
Many processes at once, and other programs beside them: test runners, editors, forks, processes with old code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from checkout import Checkout
from children import expect_line, killed_at_exit
from commands import rust_ext
from eventually import PATIENCE, eventually
from long_runs import amount
from processes import Gate, StartLine, alive, run_script, tool, values

ALPHA = "alpha-1 part-1 middle-1"


def compiled(checkout: Checkout) -> int:
    """
    The number of `cargo rustc` runs so far.
    """
    return sum(call[0] == "rustc" for call in checkout.cargo_calls())


def load_together(checkout: Checkout, folder: Path, count: int) -> list[object]:
    """
    Load in `count` parallel processes and return their values.
    """
    folder.mkdir()
    start = StartLine(folder)
    running = [checkout.start(prelude=start.prelude) for _ in range(count)]
    with killed_at_exit(*running):
        start.go(count)
        return values([checkout.finish(process, timeout=300) for process in running])


@pytest.mark.sampled
def test_eight_processes_load_in_several_rounds(plain: Checkout, tmp_path: Path) -> None:
    """
    Eight processes load a module that is not built, and eight load it after each edit. Each round compiles once.
    """
    for number in range(1, amount(sample=3, full=20) + 1):
        plain.write("alpha/src/part.rs", f'pub const PART: &str = "part-{number}";\n')

        assert load_together(plain, tmp_path / str(number), 8) == [f"alpha-1 part-{number} middle-1"] * 8
        assert compiled(plain) == number


def test_processes_that_start_together_compile_once(plain: Checkout, tmp_path: Path) -> None:
    """
    64 processes that load a cold module in parallel share one compilation.
    """
    assert load_together(plain, tmp_path / "cold", 64) == [ALPHA] * 64
    assert compiled(plain) == 1


@pytest.mark.parametrize("prebuilt", [False, True], ids=["cold", "built before"])
def test_workers_of_a_test_run_compile_once(plain: Checkout, prebuilt: bool) -> None:
    """
    Four workers of `pytest -n 4` that import a cold module compile once. After `rust-ext build` they do not compile.
    """
    if prebuilt:
        assert rust_ext(plain, "build", "fx.alpha").code == 0
        assert compiled(plain) == 1
    tests = plain.cache.parent / "test_it.py"
    tests.write_text(
        textwrap.dedent(f"""
        import pytest, rust_ext_loader
        alpha = rust_ext_loader.load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r})

        @pytest.mark.parametrize("number", range(8))
        def test_value(number):
            assert alpha.value == {ALPHA!r}
        """)
    )
    options = ["-q", "-n", "4", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", os.fspath(tests.parent)]
    command = [sys.executable, "-m", "pytest", *options, os.fspath(tests)]

    run = subprocess.run(command, env=plain.variables(), capture_output=True, text=True, timeout=300, check=False)

    assert "8 passed" in run.stdout, run.stdout + run.stderr
    assert compiled(plain) == 1


# Processes with old code.


def test_old_code_keeps_running_while_new_code_replaces_it(plain: Checkout) -> None:
    """
    A process keeps the library that it mapped, unchanged, while others force builds, edit and rebuild.
    """
    text = f"""
import hashlib, pathlib, sys
from rust_ext_loader import load_rust_extension

alpha = load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r})
library = pathlib.Path(alpha.__file__)
before = hashlib.sha256(library.read_bytes()).hexdigest(), library.stat().st_ino
print("loaded", flush=True)
sys.stdin.readline()
mapped = [line for line in open("/proc/self/maps") if alpha.__file__ in line]
assert mapped and not any("(deleted)" in line for line in mapped)
assert before == (hashlib.sha256(library.read_bytes()).hexdigest(), library.stat().st_ino)
assert load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r}) is alpha
print(alpha.value)
"""
    old = subprocess.Popen(
        [plain.python, "-c", text],
        env=plain.variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed_at_exit(old):
        expect_line(old, "loaded")
        assert plain.load(mode="force").value == ALPHA
        plain.replace("alpha/src/part.rs", "part-1", "part-2")
        assert plain.load().value == "alpha-1 part-2 middle-1"
        plain.replace("alpha/src/part.rs", "part-2", "part-1")
        assert plain.load(mode="force").value == ALPHA

        out, err = old.communicate("go\n", timeout=PATIENCE)
    assert (out, old.returncode) == (f"{ALPHA}\n", 0), err


# Modes.


def test_modes_do_not_disturb_each_other(plain: Checkout) -> None:
    """
    During a build, mode `never` neither waits nor builds.

    Mode `force` waits and then builds again, because the running build began earlier.
    """
    gate = Gate(plain)
    auto = plain.start()
    with killed_at_exit(auto):
        gate.reached(auto)
        never = plain.load(mode="never")
        force = plain.start(mode="force")
        with killed_at_exit(force):
            assert force.stderr is not None
            assert "waiting for" in force.stderr.readline()
            gate.let_through()
            assert plain.finish(auto)["value"] == ALPHA
            gate.reached(force)
            gate.let_through()
            assert plain.finish(force)["value"] == ALPHA

    assert (never.reason, never.stderr) == ("not-found", "")
    assert plain.load(mode="never").value == ALPHA
    assert compiled(plain) == 2


# Forks.

FORKING = """
import os, sys, threading
from rust_ext_loader import load_rust_extension

def build():
    print(load_rust_extension("fx.alpha", workspace=sys.argv[1]).value, flush=True)

builder = threading.Thread(target=build)
builder.start()
sys.stdin.readline()
child = os.fork()
if not child:
    # Lives until the other end of the pipe is closed.
    os.close(1)
    os.close(2)
    os.read(int(sys.argv[2]), 1)
    os._exit(0)
print("forked", child, flush=True)
builder.join()
"""


@pytest.mark.parametrize("killed", [False, True], ids=["the builder lives", "the builder is killed"])
def test_a_fork_during_a_build_holds_no_lock(plain: Checkout, killed: bool) -> None:
    """
    A child that was forked during a thread's build, and outlives it, holds neither the lock nor the compilers.
    """
    gate = Gate(plain)
    reader, writer = os.pipe()
    command = [plain.python, "-W", "ignore::DeprecationWarning", "-c", FORKING, os.fspath(plain.root), str(reader)]
    pipe = subprocess.PIPE
    parent = subprocess.Popen(
        command, env=plain.variables(), stdin=pipe, stdout=pipe, stderr=pipe, text=True, pass_fds=[reader]
    )
    os.close(reader)
    with killed_at_exit(parent), os.fdopen(writer, "wb"):
        gate.reached(parent)
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write("fork\n")
        parent.stdin.flush()
        child = int(parent.stdout.readline().split()[1])
        if killed:
            parent.kill()
            parent.wait(PATIENCE)
            eventually(
                lambda: not any("rustc" in command.split(" ")[0] for command in alive(str(plain.cache))),
                "no compiler is left",
            )
        gate.let_through()
        if not killed:
            expect_line(parent, ALPHA)
            plain.replace("alpha/src/part.rs", "part-1", "part-2")
        following = plain.start()
        with killed_at_exit(following):
            gate.reached(following)
            gate.let_through()
            answer = plain.finish(following)
        # The child is still alive.
        os.kill(child, 0)

    assert answer["value"] == (ALPHA if killed else "alpha-1 part-2 middle-1")
    assert "waiting for" not in str(answer["stderr"])


# Editors.


def test_cargo_check_in_an_editor_does_not_delay_a_load(plain: Checkout) -> None:
    """
    A load neither waits for nor disturbs a `cargo check` that has locked the user's own target folder.
    """
    cargo = tool("cargo")
    assert cargo is not None
    gate = Gate(plain, "beta")
    check = subprocess.Popen(
        [cargo, "check", "--offline", "--package", "beta"],
        cwd=plain.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed_at_exit(check):
        gate.reached(check)

        loaded = plain.load()

        assert (loaded.value, loaded.compiled) == (ALPHA, ["alpha"])
        assert check.poll() is None
        gate.let_through()
        assert check.wait(PATIENCE) == 0
    assert not list((plain.root / "target").rglob("*alpha*"))


# Repeated loads.


def test_a_damaged_entry_is_rebuilt_by_the_next_load(plain: Checkout) -> None:
    """
    Mode `never` fails on a damaged entry. The next load in the same process may build, and does.
    """
    library = plain.load().file
    text = f"""
import os
from rust_ext_loader import ExtensionNotFound, load_rust_extension

os.truncate({library!r}, 100)
try:
    load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r}, mode="never")
except ExtensionNotFound as error:
    print(load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r}).value)
"""
    assert run_script(plain, text) == f"{ALPHA}\n"
