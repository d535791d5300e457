"""
Command-line flags from the fields of a dataclass.

A field made by `flag` carries its default, its help text and its parser, so a setting and its flag are declared
once. A field without `flag` has no command-line flag.

Invariant: a flag that is not given keeps the default of its field.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_METADATA = "flag"


@dataclass(frozen=True, slots=True)
class Flag:
    """
    The command-line flag of a field.
    """

    help: str
    #: Title of the group in the help text.
    group: str
    #: Converts the argument; raises `argparse.ArgumentTypeError`.
    parse: Callable[[str], Any] | None
    metavar: str | None
    choices: Sequence[str] | None
    #: The default that the help text shows, if the field's own default only means "not given".
    shown_default: str | None


def flag(
    default: Any,  # noqa: ANN401  # has the type of the field
    *,
    help: str,  # noqa: A002  # the argument's name in argparse
    group: str,
    parse: Callable[[str], Any] | None = None,
    metavar: str | None = None,
    choices: Sequence[str] | None = None,
    shown_default: str | None = None,
) -> Any:  # noqa: ANN401  # as `dataclasses.field`, so that any field accepts it
    """
    A dataclass field that has a command-line flag. A boolean field becomes a switch.
    """
    described = Flag(help, group, parse, metavar, choices, shown_default)
    return field(default=default, metadata={_METADATA: described})


def add_flags(parser: argparse.ArgumentParser, groups: Iterable[str], *settings: type) -> None:
    """
    Declare the flags of the dataclasses *settings*. *groups* are the titles of their groups, in order.
    """
    by_title = {title: parser.add_argument_group(title) for title in groups}
    for each in (each for dataclass_ in settings for each in fields(dataclass_)):
        described = each.metadata.get(_METADATA)
        if described is not None:
            name = "--" + each.name.replace("_", "-")
            by_title[described.group].add_argument(name, default=argparse.SUPPRESS, **_options(described, each.default))


def given_flags(options: argparse.Namespace, settings: type) -> dict[str, Any]:
    """
    The fields of *settings* that were given on the command line, by name.
    """
    given = vars(options)
    return {each.name: given[each.name] for each in fields(settings) if each.name in given}


def _options(described: Flag, default: object) -> dict[str, Any]:
    if isinstance(default, bool):
        return {"action": "store_true", "help": described.help}
    shown = described.shown_default
    if shown is None and default is not None:
        shown = str(default)
    return {
        "type": described.parse,
        "metavar": described.metavar,
        "choices": described.choices,
        "help": described.help if shown is None else f"{described.help} (default: {shown})",
    }


def json_object(text: str) -> dict[str, Any]:
    """
    A JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("must be a JSON object")
    return value


def positive(text: str) -> int:
    """
    A whole number of at least 1.
    """
    return int(_limited_number("a whole number", text, 1))


def natural(text: str) -> int:
    """
    A whole number of at least 0.
    """
    return int(_limited_number("a whole number", text, 0))


def port(text: str) -> int:
    """
    A port number; 0 stands for any free port.
    """
    return int(_limited_number("a port number", text, 0, 65535))


def seconds(text: str) -> float:
    """
    A finite number of seconds, at least 0.
    """
    return _limited_number("a number", text, 0)


def _limited_number(kind: str, text: str, minimum: float, maximum: float = float("inf")) -> float:
    """
    The number in *text*, within the limits. *kind* names it in the error; `a number` may have a fraction.
    """
    try:
        value = float(text) if kind == "a number" else int(text)
    except ValueError:
        value = float("nan")
    if not minimum <= value <= maximum or value == float("inf"):
        limits = f"from {minimum:g} to {maximum:g}" if maximum < float("inf") else f"of at least {minimum:g}"
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind} {limits}")
    return value
