"""
Value classes behave like those of `dataclasses`, for the options that the toolkit uses.
"""
# ruff: noqa: ANN401 - classes are made by either library

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rust_ext_loader import _values
from rust_ext_loader._model import Readiness, State, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

BOTH = pytest.mark.parametrize(
    "library", [pytest.param(dataclasses, id="dataclasses"), pytest.param(_values, id="ours")]
)


def point(library: Any, **options: bool) -> Any:
    """
    A class with one field of each kind: required, default, default factory, not compared, keyword-only.
    """

    class Point:
        x: int
        y: int = 2
        tags: list[str] = library.field(default_factory=list)
        note: str = library.field(default="", compare=False)
        _: KW_ONLY
        z: int = 0
        w: int = library.field(default=1, kw_only=True)

        def total(self) -> int:
            return self.x + self.y + self.z + self.w

    return library.dataclass(**options)(Point)


KW_ONLY = dataclasses.KW_ONLY


@BOTH
@pytest.mark.parametrize("slots", [False, True])
def test_fields_are_set_in_order_by_name_and_by_default(library: Any, slots: bool) -> None:
    """
    The constructor takes fields by position or by name; defaults are not shared between values.
    """
    Point = point(library, slots=slots)  # noqa: N806 - a class
    one, other = Point(1), Point(1, 5, z=7, note="n")

    assert (one.x, one.y, one.tags, one.note, one.z, one.w, one.total()) == (1, 2, [], "", 0, 1, 4)
    assert (other.x, other.y, other.note, other.z, other.total()) == (1, 5, "n", 7, 14)
    assert one.tags is not other.tags
    assert hasattr(one, "__dict__") is not slots


@BOTH
@pytest.mark.parametrize(
    ("positional", "named"),
    [
        pytest.param((), {}, id="a required field is missing"),
        pytest.param((1, 2, [], "", 3), {}, id="a keyword-only field by position"),
        pytest.param((1,), {"x": 1}, id="a field twice"),
        pytest.param((1,), {"unknown": 1}, id="an unknown field"),
    ],
)
def test_wrong_arguments_are_refused(library: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    """
    The constructor raises `TypeError` for missing, repeated and unknown arguments.
    """
    with pytest.raises(TypeError):
        point(library)(*positional, **named)


@BOTH
def test_values_are_equal_if_their_fields_are(library: Any) -> None:
    """
    Values of the same class are compared by their fields, without those that have `compare=False`.
    """
    Point, Other = point(library), point(library)  # noqa: N806 - classes

    assert Point(1, note="a") == Point(1, note="b")
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert repr(Point(1, z=3)).endswith("Point(x=1, y=2, tags=[], note='', z=3, w=1)")
    with pytest.raises(TypeError):
        hash(Point(1))


@BOTH
@pytest.mark.parametrize("slots", [False, True])
def test_frozen_values_do_not_change(library: Any, slots: bool) -> None:
    """
    A frozen value refuses assignment and deletion of any attribute, and has a hash.
    """
    Point = point(library, frozen=True, slots=slots)  # noqa: N806 - a class
    value = Point(1, tags=())

    with pytest.raises(AttributeError):
        value.x = 2
    with pytest.raises(AttributeError):
        del value.x
    # With slots, `dataclasses` of Python 3.11 raises `TypeError` here by mistake.
    with pytest.raises((AttributeError, TypeError)):
        value.new = 2
    assert hash(value) == hash(Point(1, tags=()))
    assert value.x == 1


@BOTH
def test_a_value_can_be_copied_with_changes(library: Any) -> None:
    """
    `replace` returns a new value with some fields changed.
    """
    value = point(library, frozen=True)(1, z=3)
    changed = library.replace(value, x=5)

    assert (changed.x, changed.z, value.x) == (5, 3, 1)
    with pytest.raises(TypeError):
        library.replace(value, unknown=5)


@BOTH
def test_all_fields_can_be_keyword_only(library: Any) -> None:
    """
    With `kw_only` no field is positional, and one without a default may follow one with a default.
    """

    class Named:
        a: int = 1
        b: int

    made = library.dataclass(kw_only=True)(Named)

    assert (made(b=2).a, made(b=2).b, made.__match_args__) == (1, 2, ())
    with pytest.raises(TypeError):
        made(1, 2)


@BOTH
@pytest.mark.parametrize("slots", [False, True])
def test_fields_of_a_base_class_come_first(library: Any, slots: bool) -> None:
    """
    A class that inherits from a value class has the fields of both.
    """

    class Base:
        a: int
        b: int

    class More(library.dataclass(frozen=True, slots=slots)(Base)):  # type: ignore[misc]
        c: int = library.field(default=3, kw_only=True)

    made = library.dataclass(frozen=True, slots=slots)(More)

    assert (made(1, 2).c, made(1, b=2, c=5).c) == (3, 5)
    assert made(1, 2) != made(1, 3)
    assert [one.name for one in dataclasses.fields(made)] == ["a", "b", "c"]


def test_positional_fields_can_be_matched() -> None:
    """
    A `match` statement sees the fields that are not keyword-only, in their order.
    """
    assert point(_values).__match_args__ == point(dataclasses).__match_args__ == ("x", "y", "tags", "note")


def test_functions_of_dataclasses_accept_values() -> None:
    """
    Users may call `fields`, `replace` and `asdict` with a public value such as a `Verdict`.
    """
    value = point(_values, frozen=True, slots=True)(1, note="n")

    assert [one.name for one in dataclasses.fields(value)] == ["x", "y", "tags", "note", "z", "w"]
    assert dataclasses.asdict(value) == {"x": 1, "y": 2, "tags": [], "note": "n", "z": 0, "w": 1}
    assert dataclasses.replace(value, y=9).y == 9
    assert dataclasses.is_dataclass(value)


def test_a_decision_does_not_import_dataclasses() -> None:
    """
    Importing the modules of a decision does not import `dataclasses` or `inspect`.
    """
    code = "import sys, rust_ext_loader._ensure; print(*sorted({'dataclasses', 'inspect'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == []


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_frozen_values_can_be_copied_and_pickled(copied: Callable[[Any], Any]) -> None:
    """
    A copy is equal, and is a value of the same class. `Verdict` is public, so programs may send it to other processes.
    """
    verdict = Verdict(module="app._m", state=State.CACHED, readiness=Readiness.READY, why="because", library=None)

    assert copied(verdict) == verdict
    assert type(copied(verdict)) is Verdict
