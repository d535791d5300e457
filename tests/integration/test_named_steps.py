"""
Killed, or interrupted, at each named step on the way from the lock to the record: the next load is right.
"""

from __future__ import annotations

import itertools
import signal
from dataclasses import dataclass

import pytest
from checkout import Checkout, check_out
from processes import MOURNING, PATIENCE, Gate, alive, ended_at_last, load_through, wait_until


@dataclass(frozen=True)
class Step:
    """
    The moment before or after one call of a function, among all those whose arguments fit.
    """

    when: str
    #: `wing/_module.function`.
    call: str
    #: What is true of its arguments, by the names `first` and `name` (that of a path).
    fits: str = "True"
    #: Which of the calls that fit.
    number: int = 1

    def prelude(self, name: str) -> str:
        """
        Lines after which this process meets a signal there.
        """
        wing, _, call = self.call.rpartition("/")
        room, _, function = call.rpartition(".")
        module = room.partition(".")[0]
        return f"""
import os, signal
from rust_ext_loader{"." if wing else ""}{wing} import {module}
signal.signal(signal.SIGINT, signal.default_int_handler)
inner, calls = {room}.{function}, []
def step(*arguments, **named):
    first = arguments[0] if arguments else None
    name = getattr(first, "name", "")
    if {self.fits}:
        calls.append(first)
    here = {self.fits} and len(calls) == {self.number}
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

#: In the order in which they are met.
STEPS = {
    "lock taken": Step("after", "files/_locks._leave_name"),
    "looking again": Step("after", "build/_progress.Progress.announce"),
    "before cleaning": Step("before", "build/_cargo.clean"),
    "after cleaning": Step("after", "build/_cargo.clean"),
    "before the folder is unsettled": Step("before", WRITE, STATE),
    "the folder is unsettled": Step("after", WRITE, STATE),
    "cargo has begun": Step("before", "build/_cargo._follow"),
    "cargo has ended, nobody knows yet": Step("after", "build/_cargo._follow", number=2),
    "before the sources are looked at again": Step("after", "build/_cargo.run"),
    "before the folder is settled": Step("before", WRITE, STATE, 2),
    "the folder is settled": Step("after", WRITE, STATE, 2),
    "before it is stored": Step("before", "cache/_store.publish"),
    "before the copy": Step("before", "files/_staging.copy_into"),
    "after the copy": Step("after", "files/_staging.copy_into"),
    "before the manifest": Step("before", WRITE, "name == 'manifest.json'"),
    "after the manifest": Step("after", WRITE, "name == 'manifest.json'"),
    "before the rename": Step("before", "files/_staging.publish_folder"),
    "after the rename": Step("after", "files/_staging.publish_folder"),
    "before the pointer": Step("before", WRITE, "name.startswith('current')"),
    "after the pointer": Step("after", WRITE, "name.startswith('current')"),
    "before it is remembered": Step("before", "cache/_store.remember"),
    "after it is remembered": Step("after", "cache/_store.remember"),
    "before the record": Step("before", "_record.compose"),
}


#: From here on the entry is in force.
STORED = list(STEPS)[list(STEPS).index("after the pointer") :]


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """
    One checkout for all rows: whatever the dead leave behind piles up, and the next load must cope with it.
    """
    checkout = check_out("plain", tmp_path_factory.mktemp("worn"))
    assert checkout.load().error is None
    return checkout


@pytest.fixture
def edited(worn: Checkout) -> str:
    """
    What `fx.alpha` says after an edit that nobody has compiled yet.
    """
    number = next(_NUMBERS)
    worn.write("alpha/src/part.rs", f'pub const PART: &str = "part-{number}";\n')
    worn.write("middle/src/lib.rs", f'pub const WORD: &str = "middle-{number}";\n')
    return f"alpha-1 part-{number} middle-{number}"


_NUMBERS = itertools.count(10)


#: An interrupt unwinds, which a kill does not: what differs is where something must be ended, given back or taken away.
INTERRUPTED = [
    "lock taken",
    "the folder is unsettled",
    "cargo has begun",
    "before the sources are looked at again",
    "before the folder is settled",
    "after the copy",
    "after the rename",
    "after the pointer",
]


@pytest.mark.parametrize(
    ("step", "death"),
    [*((step, "SIGKILL") for step in STEPS), *((step, "SIGINT") for step in INTERRUPTED)],
)
def test_an_end_at_any_step_harms_nobody(worn: Checkout, edited: str, step: str, death: str) -> None:
    """
    Whoever ends at a named step leaves no compiler and no lock; the next load has the code as it is, and the one after it need not build.

    The next one builds if, and only if, nothing was stored.
    """
    process = worn.start(prelude=STEPS[step].prelude(death))
    with ended_at_last(process):
        if death == "SIGKILL":
            assert process.wait(PATIENCE) == -signal.SIGKILL
        else:
            answer = worn.finish(process)
            assert answer["types"][0] == "KeyboardInterrupt"
            assert answer["in_sys_modules"] is False
        wait_until(lambda: not alive(str(worn.cache)), "no compiler is left", MOURNING)

    again, after = worn.load(), worn.load()

    assert (again.value, again.warnings) == (edited, ())
    assert again.compiled == ([] if step in STORED else ["alpha"])
    assert (after.value, after.cargo, after.warnings) == (edited, (), ())


#: While the first interrupt is on its way up.
UNWINDING = "__import__('sys').exc_info()[0] is KeyboardInterrupt"


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(Step("before", "_process_group.ProcessGroup.close", UNWINDING), id="before it waits"),
        pytest.param(Step("before", "_process_group.ProcessGroup.kill", UNWINDING), id="before it kills"),
        pytest.param(Step("after", "_process_group.ProcessGroup.kill", UNWINDING), id="when it has killed"),
        pytest.param(Step("before", "_process_group._Word.say", UNWINDING), id="before it dismisses the watcher"),
    ],
)
def test_a_second_interrupt_changes_nothing(plain: Checkout, late: Step) -> None:
    """
    Ctrl-C once more, while the first one is ending the compilers: they end all the same, and the next load is right.
    """
    gate = Gate(plain)
    process = plain.start(prelude=late.prelude("SIGINT"))
    with ended_at_last(process):
        gate.reached(process)
        process.send_signal(signal.SIGINT)
        assert plain.finish(process)["types"][0] == "KeyboardInterrupt"
        wait_until(lambda: not alive(str(plain.cache)), "no compiler is left", MOURNING)
    gate.let_through()

    assert load_through(gate, plain)["value"] == "alpha-1 part-1 middle-1"
