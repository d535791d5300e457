"""
A load that is killed or interrupted at a named step, from the lock to the record: the next load is right.
"""

from __future__ import annotations

import itertools
import signal
from dataclasses import dataclass

import pytest
from checkout import Checkout, check_out
from children import killed_at_exit
from eventually import PATIENCE, eventually
from processes import COMPILER_EXIT_LIMIT, Gate, alive, load_through


@dataclass(frozen=True)
class Step:
    """
    The moment before one call of a function, or after it.
    """

    when: str
    #: `subpackage/_module.function`.
    call: str
    #: Condition on the call's arguments, over `first` and `name` (the name of a path).
    condition: str = "True"
    #: Which of the matching calls.
    number: int = 1

    def prelude(self, name: str) -> str:
        """
        Code after which this process gets a signal at that moment.
        """
        package, _, call = self.call.rpartition("/")
        room, _, function = call.rpartition(".")
        module = room.partition(".")[0]
        return f"""
import os, signal
from rust_ext_loader{"." if package else ""}{package} import {module}
signal.signal(signal.SIGINT, signal.default_int_handler)
inner, calls = {room}.{function}, []
def step(*arguments, **named):
    first = arguments[0] if arguments else None
    name = getattr(first, "name", "")
    if {self.condition}:
        calls.append(first)
    here = {self.condition} and len(calls) == {self.number}
    if here and {self.when == "before"}:
        signal.raise_signal(signal.{name})
    result = inner(*arguments, **named)
    if here and {self.when == "after"}:
        signal.raise_signal(signal.{name})
    return result
{room}.{function} = step
"""


STATE = "name == 'rust-ext-state.json'"
WRITE = "files/_staging.write_atomically"

#: In the order in which a load reaches them.
STEPS = {
    "lock taken": Step("after", "files/_locks._write_holder_file"),
    "looking up again": Step("after", "build/_progress.Progress.announce"),
    "before outputs are removed": Step("before", "build/_outputs.discard"),
    "after outputs are removed": Step("after", "build/_outputs.discard"),
    "before the packages are marked unknown": Step("before", WRITE, STATE),
    "after the packages are marked unknown": Step("after", WRITE, STATE),
    "cargo has begun": Step("before", "build/_cargo._follow"),
    "cargo has ended, its result is not read": Step("after", "build/_cargo._follow"),
    "before the sources are checked again": Step("after", "build/_cargo.run"),
    "before the incremental state is noted": Step("before", "build/_target_state.TargetState.note_incremental"),
    "after the incremental state is noted": Step("after", "build/_target_state.TargetState.note_incremental"),
    "before the folder is marked settled": Step("before", "build/_target_state.TargetState.mark_known"),
    "after the folder is marked settled": Step("after", "build/_target_state.TargetState.mark_known"),
    "before it is stored": Step("before", "cache/_store.publish"),
    "before the copy": Step("before", "files/_staging.copy_into"),
    "after the copy": Step("after", "files/_staging.copy_into"),
    "before the manifest": Step("before", WRITE, "name == 'manifest.json'"),
    "after the manifest": Step("after", WRITE, "name == 'manifest.json'"),
    "before the rename": Step("before", "files/_staging.publish_folder"),
    "after the rename": Step("after", "files/_staging.publish_folder"),
    "before the pointer": Step("before", WRITE, "name.startswith('current')"),
    "after the pointer": Step("after", WRITE, "name.startswith('current')"),
    "before it is remembered": Step("before", "cache/_checkouts.remember"),
    "after it is remembered": Step("after", "cache/_checkouts.remember"),
    "before the record": Step("before", "_record.compose"),
}


#: Steps after which the entry can be found.
STORED = list(STEPS)[list(STEPS).index("after the pointer") :]


@pytest.fixture(scope="module")
def reused(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """
    One checkout for all rows: files that killed loads leave behind accumulate, and the next load must cope with them.
    """
    checkout = check_out("plain", tmp_path_factory.mktemp("reused"))
    assert checkout.load().error is None
    return checkout


@pytest.fixture
def edited(reused: Checkout) -> str:
    """
    The value of `fx.alpha` after an edit that was never compiled.
    """
    number = next(_NUMBERS)
    reused.write("alpha/src/part.rs", f'pub const PART: &str = "part-{number}";\n')
    reused.write("middle/src/lib.rs", f'pub const WORD: &str = "middle-{number}";\n')
    return f"alpha-1 part-{number} middle-{number}"


_NUMBERS = itertools.count(10)


#: An interrupt unwinds the stack, a kill does not. These are the steps at which unwinding releases something.
INTERRUPTED = [
    "lock taken",
    "after the packages are marked unknown",
    "cargo has begun",
    "before the sources are checked again",
    "before the folder is marked settled",
    "after the copy",
    "after the rename",
    "after the pointer",
]


@pytest.mark.parametrize(
    ("step", "death"),
    [*((step, "SIGKILL") for step in STEPS), *((step, "SIGINT") for step in INTERRUPTED)],
)
def test_a_load_that_ends_at_any_step_does_no_harm(reused: Checkout, edited: str, step: str, death: str) -> None:
    """
    A load that ends at a named step leaves no compiler and no lock. The next load has the current code.

    That next load compiles only if no entry was stored.
    """
    process = reused.start(prelude=STEPS[step].prelude(death))
    with killed_at_exit(process):
        if death == "SIGKILL":
            assert process.wait(PATIENCE) == -signal.SIGKILL
        else:
            answer = reused.finish(process)
            assert answer["types"][0] == "KeyboardInterrupt"
            assert answer["in_sys_modules"] is False
        eventually(lambda: not alive(str(reused.cache)), "no compiler is left", within=COMPILER_EXIT_LIMIT)

    again, after = reused.load(), reused.load()

    assert (again.value, again.warnings) == (edited, ())
    assert again.compiled == ([] if step in STORED else ["alpha"])
    assert (after.value, after.cargo, after.warnings) == (edited, (), ())


#: Condition that is true while the first interrupt unwinds the stack.
UNWINDING = "__import__('sys').exc_info()[0] is KeyboardInterrupt"


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(Step("before", "_process_group.ProcessGroup.close", UNWINDING), id="before it waits"),
        pytest.param(Step("before", "_process_group.ProcessGroup.kill", UNWINDING), id="before it kills"),
        pytest.param(Step("after", "_process_group.ProcessGroup.kill", UNWINDING), id="when it has killed"),
        pytest.param(
            Step("before", "_process_group._LinePipe.write_line", UNWINDING), id="before it releases the watcher"
        ),
    ],
)
def test_a_second_interrupt_changes_nothing(plain: Checkout, late: Step) -> None:
    """
    A second Ctrl-C while the first one ends the compilers changes nothing: they end, and the next load is right.
    """
    gate = Gate(plain)
    process = plain.start(prelude=late.prelude("SIGINT"))
    with killed_at_exit(process):
        gate.reached(process)
        process.send_signal(signal.SIGINT)
        assert plain.finish(process)["types"][0] == "KeyboardInterrupt"
        eventually(lambda: not alive(str(plain.cache)), "no compiler is left", within=COMPILER_EXIT_LIMIT)
    gate.let_through()

    assert load_through(gate, plain)["value"] == "alpha-1 part-1 middle-1"
