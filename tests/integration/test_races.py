"""
Processes, threads and forks that load at the same time: each gets the current code, compiled once.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from checkout import Checkout, check_out
from children import killed_at_exit
from processes import Gate, StartLine, kill_at, linker_gate, load_through, load_until_recorded, run_script, values

ALPHA = "alpha-1 part-1 middle-1"
BETA = "BETA-1"


def load_together(checkout: Checkout, folder: Path, modules: list[str], mode: str = "auto") -> list[dict[str, object]]:
    """
    Load in parallel processes. All of them have imported the toolkit before the first one loads.
    """
    folder.mkdir()
    start = StartLine(folder)
    running = [checkout.start(module, prelude=start.prelude, mode=mode) for module in modules]
    with killed_at_exit(*running):
        start.go(len(running))
        return [checkout.finish(process) for process in running]


def compiled(checkout: Checkout) -> list[str]:
    """
    Sorted names of the packages that `cargo rustc` compiled so far.
    """
    return sorted(call[call.index("--package") + 1] for call in checkout.cargo_calls() if call[0] == "rustc")


# Parallel loads.


def test_sixteen_processes_compile_once(plain: Checkout, tmp_path: Path) -> None:
    """
    Sixteen processes that load a module that is not built yet share one compilation.
    """
    answers = load_together(plain, tmp_path / "cold", ["fx.alpha"] * 16)

    assert values(answers) == [ALPHA] * 16
    assert len({answer["file"] for answer in answers}) == 1
    assert compiled(plain) == ["alpha"]


def test_an_edit_is_compiled_once_for_all(plain: Checkout, tmp_path: Path) -> None:
    """
    After an edit, eight processes run the new code and share one compilation.
    """
    plain.load()
    plain.replace("alpha/src/part.rs", "part-1", "part-2")

    answers = load_together(plain, tmp_path / "edited", ["fx.alpha"] * 8)

    assert values(answers) == ["alpha-1 part-2 middle-1"] * 8
    assert compiled(plain) == ["alpha", "alpha"]


def test_two_crates_are_built_once_each(plain: Checkout, tmp_path: Path) -> None:
    """
    Processes that load two crates of one workspace in parallel get both, each compiled once.
    """
    answers = load_together(plain, tmp_path / "two", ["fx.alpha", "fx.beta"] * 4)

    assert values(answers) == [ALPHA, BETA] * 4
    assert compiled(plain) == ["alpha", "beta"]


def test_two_checkouts_build_side_by_side(tmp_path: Path) -> None:
    """
    A build in one checkout does not wait for a build in another, even with the same cache.
    """
    one = check_out("plain", tmp_path / "one", tmp_path / "cache")
    other = check_out("plain", tmp_path / "other", tmp_path / "cache")
    other.replace("alpha/src/part.rs", "part-1", "part-2")
    gate = Gate(one)
    held = one.start()
    with killed_at_exit(held):
        gate.reached(held)

        assert other.load().value == "alpha-1 part-2 middle-1"
        assert held.poll() is None

        gate.let_through()
        assert one.finish(held)["value"] == ALPHA


def test_forcing_processes_share_a_build(plain: Checkout, tmp_path: Path) -> None:
    """
    Forcing processes accept a build that began after they did: four that start together compile once.
    """
    first = plain.load()

    answers = load_together(plain, tmp_path / "forced", ["fx.alpha"] * 4, mode="force")

    assert values(answers) == [ALPHA] * 4
    assert first.file not in {answer["file"] for answer in answers}
    assert compiled(plain) == ["alpha", "alpha"]


@pytest.mark.parametrize("warm", [False, True], ids=["full decision", "by record"])
def test_a_forced_build_is_loaded_afterwards(plain: Checkout, warm: bool) -> None:
    """
    A forced build replaces the entry. Later loads use the new library, not the one that an earlier record names.
    """
    first = load_until_recorded(plain) if warm else plain.load()

    forced, later = plain.load(mode="force"), plain.load()

    assert [forced.value, later.value] == [ALPHA, ALPHA]
    assert forced.file != first.file
    assert (forced.file, ()) == (later.file, later.cargo)


def test_threads_compile_once(plain: Checkout) -> None:
    """
    Sixty-four threads of one process load two modules. All get the same two module objects, each compiled once.
    """
    text = f"""
import threading
from rust_ext_loader import load_rust_extension

line, got = threading.Barrier(64), []

def load(name):
    line.wait()
    got.append(load_rust_extension(name, workspace={os.fspath(plain.root)!r}))

threads = [threading.Thread(target=load, args=(("fx.alpha", "fx.beta")[number % 2],)) for number in range(64)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(got), sorted({{module.value for module in got}}), len(set(map(id, got))))
"""
    assert run_script(plain, text) == f"64 {sorted([ALPHA, BETA])} 2\n"
    assert compiled(plain) == ["alpha", "beta"]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_of_a_pool_compile_once(plain: Checkout, method: str) -> None:
    """
    Workers of `multiprocessing` share one compilation, whether spawned or forked.
    """
    text = f"""
import multiprocessing, rust_ext_loader

def load(_):
    return rust_ext_loader.load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r}).value

if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(8) as pool:
        print(set(pool.map(load, range(16), chunksize=1)))
"""
    assert run_script(plain, text) == f"{ {ALPHA} }\n"
    assert compiled(plain) == ["alpha"]


def test_a_forked_child_keeps_imported_modules(plain: Checkout) -> None:
    """
    A child that was forked after an import has the module, and can load another one.
    """
    text = f"""
import os
from rust_ext_loader import load_rust_extension

where = {os.fspath(plain.root)!r}
alpha = load_rust_extension("fx.alpha", workspace=where)
child = os.fork()
if not child:
    same = load_rust_extension("fx.alpha", workspace=where) is alpha
    beta = load_rust_extension("fx.beta", workspace=where)
    os._exit(0 if same and beta.value == {BETA!r} else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), load_rust_extension("fx.beta", workspace=where).value)
"""
    assert run_script(plain, text) == f"0 {BETA}\n"
    assert compiled(plain) == ["alpha", "beta"]


def test_a_half_linked_library_is_not_visible(plain: Checkout) -> None:
    """
    While the linker has written only a part of a library, waiting processes do not find it. They get the complete one.
    """
    gate = linker_gate(plain)
    running = [plain.start() for _ in range(4)]
    with killed_at_exit(*running):
        with gate.open("wb"):
            assert not list((plain.cache / "artifacts").rglob("*.so"))
            assert [process.poll() for process in running] == [None] * 4

        assert values([plain.finish(process) for process in running]) == [ALPHA] * 4
    assert compiled(plain) == ["alpha"]


# The lock.


def test_a_held_lock_does_not_delay_cached_modules(plain: Checkout) -> None:
    """
    A cached module loads without a lock, even while another process holds every lock of the cache.
    """
    plain.load()
    plain.load("fx.beta")
    locks = list(plain.cache.rglob("*.lock"))
    assert locks
    opened = [lock.open("r+b") for lock in locks]
    for lock in opened:
        fcntl.flock(lock, fcntl.LOCK_EX)

    answers = [plain.load(), plain.load("fx.beta")]

    assert [answer.value for answer in answers] == [ALPHA, BETA]
    assert [answer.stderr for answer in answers] == ["", ""]
    for lock in opened:
        lock.close()


def test_a_waiting_process_names_the_builder(plain: Checkout) -> None:
    """
    A waiting process prints which process builds what, on which host and since when. It then takes that build.
    """
    gate = Gate(plain)
    builder = plain.start()
    gate.reached(builder)
    waiter = plain.start()
    with killed_at_exit(builder, waiter):
        assert waiter.stderr is not None
        message = waiter.stderr.readline()

        for part in (
            "fx.alpha",
            str(builder.pid),
            os.uname().nodename,
            "building fx.alpha for ",
            ".lock",
            "RUST_EXT_LOCK_TIMEOUT",
        ):
            assert part in message

        gate.let_through()
        assert values([plain.finish(builder), plain.finish(waiter)]) == [ALPHA, ALPHA]
    assert compiled(plain) == ["alpha"]


def test_waiting_has_a_limit(plain: Checkout) -> None:
    """
    At the limit the wait ends with an error that names the setting, the lock and its holder. The builder continues.
    """
    gate = Gate(plain)
    builder = plain.start()
    with killed_at_exit(builder):
        gate.reached(builder)

        waiter = plain.load(variables={"RUST_EXT_LOCK_TIMEOUT": "0.5"})

        assert waiter.reason == "lock-timeout"
        assert "ImportError" in waiter.types
        for part in ("RUST_EXT_LOCK_TIMEOUT", str(builder.pid), ".lock", "0.5 s"):
            assert part in str(waiter.error)
        gate.let_through()
        assert plain.finish(builder)["value"] == ALPHA


def test_the_lock_of_a_dead_process_does_not_block(plain: Checkout) -> None:
    """
    A lock file and a holder file with any content have no effect once the holder is dead.
    """
    gate = Gate(plain)
    kill_at(gate, plain)
    left = [path for path in (plain.cache / "targets").iterdir() if path.is_file()]
    assert {".lock", ".holder"} <= {path.suffix for path in left}
    for path in left:
        if path.suffix == ".holder":
            path.write_text(json.dumps({"what": "fx.alpha", "pid": 1, "host": os.uname().nodename, "since": 0}))

    assert load_through(gate, plain)["value"] == ALPHA
