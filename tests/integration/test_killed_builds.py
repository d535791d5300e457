"""
Builders that are killed or interrupted: their compilers end with them, and later builds are right.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout
from children import killed_at_exit
from eventually import PATIENCE, eventually
from processes import COMPILER_EXIT_LIMIT, Gate, alive, kill_at, linker_gate, load_through

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHA = "alpha-1 part-1 middle-1"

#: Restores the handler of SIGINT. A shell starts background processes with SIGINT ignored.
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
OWN_GROUP = "import os; os.setsid()"


def kill_process(process: subprocess.Popen[str]) -> None:
    """
    Kill only the Python process, as the kernel does when memory runs out.
    """
    process.kill()


def kill_group(process: subprocess.Popen[str]) -> None:
    """
    Kill Python's process group, as a job runner does.
    """
    os.killpg(process.pid, signal.SIGKILL)


def terminate(process: subprocess.Popen[str]) -> None:
    """
    Send SIGTERM to the Python process, which ends without cleaning up.
    """
    process.terminate()


@pytest.mark.parametrize("end", [kill_process, kill_group, terminate])
def test_compilers_end_with_their_python(plain: Checkout, end: Callable[[subprocess.Popen[str]], None]) -> None:
    """
    When a builder dies, no cargo, rustc or watcher outlives it, and the next load builds the right module.
    """
    gate = Gate(plain)
    builder = plain.start(prelude=OWN_GROUP)
    with killed_at_exit(builder):
        gate.reached(builder)
        assert any("rustc" in command for command in alive(str(plain.cache)))
        end(builder)
        builder.wait(PATIENCE)

        eventually(lambda: not alive(str(plain.cache)), "no compiler is left", within=COMPILER_EXIT_LIMIT)
    gate.let_through()
    assert not list((plain.cache / "artifacts").rglob("*.so"))

    assert load_through(gate, plain)["value"] == ALPHA
    assert plain.load().cargo == ()


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        pytest.param("alpha/src/part.rs", "part-1", "part-2", "alpha-1 part-2 middle-1", id="in the crate"),
        pytest.param(
            "middle/src/lib.rs",
            "middle-1",
            "middle-2",
            "alpha-1 part-1 middle-2",
            id="in a dependency that is compiled already",
        ),
    ],
)
def test_an_older_edit_after_a_killed_build_is_compiled(
    plain: Checkout, file: str, old: str, new: str, expected: str
) -> None:
    """
    An edit after a killed build is compiled even if its timestamp is older than the killed build's output.
    """
    gate = Gate(plain)
    kill_at(gate, plain, within=COMPILER_EXIT_LIMIT)
    plain.replace(file, old, new, older=86400)

    assert load_through(gate, plain)["value"] == expected


def test_the_output_of_a_killed_build_is_not_trusted(plain: Checkout) -> None:
    """
    If a killed build compiled an edited dependency, reverting its text and timestamp compiles it again.
    """
    plain.load()
    gate = Gate(plain)
    plain.replace("middle/src/lib.rs", "middle-1", "middle-2")
    kill_at(gate, plain, within=COMPILER_EXIT_LIMIT)
    plain.replace("middle/src/lib.rs", "middle-2", "middle-1", older=86400)

    assert load_through(gate, plain)["value"] == ALPHA


def test_a_library_that_was_half_linked_is_never_used(plain: Checkout) -> None:
    """
    A builder that is killed while the linker writes leaves a partial library. Neither cargo nor the toolkit uses it.
    """
    gate = linker_gate(plain)
    builder = plain.start()
    with killed_at_exit(builder):
        with gate.open("wb"):
            builder.kill()
            builder.wait(PATIENCE)
            eventually(lambda: not alive(str(plain.cache)), "no linker is left", within=COMPILER_EXIT_LIMIT)
        assert {path.stat().st_size for path in (plain.cache / "targets").rglob("libalpha.so")} == {1024}

    again = plain.start()
    with killed_at_exit(again):
        gate.open("wb").close()
        assert plain.finish(again)["value"] == ALPHA


def test_a_waiter_takes_over_from_a_killed_builder(plain: Checkout) -> None:
    """
    When a builder is killed, the process that waited for it builds at once.
    """
    gate = Gate(plain)
    builder, waiter = plain.start(), None
    gate.reached(builder)
    waiter = plain.start()
    with killed_at_exit(builder, waiter):
        assert waiter.stderr is not None
        assert "waiting for" in waiter.stderr.readline()
        builder.kill()
        builder.wait(PATIENCE)
        eventually(
            lambda: not any("rustc" in command.split(" ")[0] for command in alive(str(plain.cache))),
            "the old compiler is gone",
        )
        gate.let_through()
        gate.reached(waiter)
        gate.let_through()

        assert plain.finish(waiter)["value"] == ALPHA


def test_an_interrupt_ends_the_build(plain: Checkout) -> None:
    """
    Ctrl-C during a build raises `KeyboardInterrupt`. No compiler is left, no module is imported, nothing is stored.
    """
    gate = Gate(plain)
    builder = plain.start(prelude=INTERRUPTIBLE)
    with killed_at_exit(builder):
        gate.reached(builder)
        builder.send_signal(signal.SIGINT)
        answer = plain.finish(builder)

        eventually(lambda: not alive(str(plain.cache)), "no compiler is left", within=COMPILER_EXIT_LIMIT)
    gate.let_through()
    assert "KeyboardInterrupt" in str(answer["types"])
    assert answer["in_sys_modules"] is False
    assert not list((plain.cache / "artifacts").rglob("*.so"))

    assert load_through(gate, plain)["value"] == ALPHA


def test_an_interrupted_waiter_does_not_affect_the_builder(plain: Checkout) -> None:
    """
    Ctrl-C in a waiting process raises `KeyboardInterrupt` there. The builder continues.
    """
    gate = Gate(plain)
    builder = plain.start()
    gate.reached(builder)
    waiter = plain.start(prelude=INTERRUPTIBLE)
    with killed_at_exit(builder, waiter):
        assert waiter.stderr is not None
        waiter.stderr.readline()
        waiter.send_signal(signal.SIGINT)

        assert "KeyboardInterrupt" in str(plain.finish(waiter)["types"])
        gate.let_through()
        assert plain.finish(builder)["value"] == ALPHA


def test_a_load_after_an_interrupt_works(plain: Checkout) -> None:
    """
    An interrupted load does not affect the next load in the same process.
    """
    gate = Gate(plain)
    again = f"""
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            rust_ext_loader.load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r})
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
    """
    process = plain.start(prelude=again)
    with killed_at_exit(process):
        gate.reached(process)
        process.send_signal(signal.SIGINT)
        eventually(
            lambda: not any("rustc" in command.split(" ")[0] for command in alive(str(plain.cache))),
            "the first compiler is gone",
        )
        gate.let_through()
        gate.reached(process)
        gate.let_through()

        assert plain.finish(process)["value"] == ALPHA
