"""
`rust-ext verify`: check cached libraries, and list undeclared inputs of their builds.

Invariant: builds nothing. A damaged entry is never reported as cached; the
lookup has moved it to the quarantine.
"""

from __future__ import annotations

import json

from .. import _ensure
from .._values import dataclass
from ..facts import _seen
from ._modules import add_modules, requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from ..cache._store import Entry


@dataclass(frozen=True, slots=True)
class _Input:
    """
    An undeclared input: the build read it, and no crate declares it.
    """

    kind: str
    name: str
    remark: str


_UNSET = "not set"
_BINDS = "binds the entry to this host"
_KINDS = {_seen.FILE: "file", _seen.VARIABLE: "variable", _seen.PLACE: "place"}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser(
        "verify",
        parents=[common],
        help="check every byte of cached libraries; with --inputs, list what their builds read",
    )
    add_modules(parser)
    parser.add_argument(
        "--inputs", action="store_true", help="list inputs that the build has read and no crate declares"
    )
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print the entry of each module; 1 if any has none for the current facts.
    """
    found = {request.module: _ensure.stored(request) for request in requests(options)}
    if options.json:
        rows = {module: _row(entry, with_inputs=options.inputs) for module, entry in found.items()}
        print(json.dumps({"modules": rows}, indent=1))
    else:
        for module, entry in found.items():
            print(f"{module}: {'not cached' if entry is None else f'intact, {entry.library}'}")
            if options.inputs:
                _print(entry)
    return 0 if all(found.values()) else 1


def _print(entry: Entry | None) -> None:
    found = _inputs(entry)
    # Build scripts read many variables that are never set. They are inputs too, but are printed on one line.
    unset = [read.name for read in found if read.remark == _UNSET]
    for read in found:
        if read.remark != _UNSET:
            print(f"  undeclared {read.kind} {read.name}{f' ({read.remark})' if read.remark else ''}")
    if unset:
        print(f"  undeclared variable{'s' if len(unset) > 1 else ''} {', '.join(unset)} ({_UNSET})")


def _row(entry: Entry | None, *, with_inputs: bool) -> dict[str, object]:
    row: dict[str, object] = {"library": None if entry is None else str(entry.library)}
    if with_inputs:
        row["undeclared"] = [
            {"kind": read.kind, "name": read.name, "host_bound": read.remark == _BINDS, "set": read.remark != _UNSET}
            for read in _inputs(entry)
        ]
    return row


def _inputs(entry: Entry | None) -> list[_Input]:
    """
    The undeclared inputs of an entry; files come first.
    """
    seen = entry.seen if entry else {}
    remarks = {name: _UNSET for name, value in seen.items() if _seen.is_unset(value)} | dict.fromkeys(
        _seen.host_bound(seen), _BINDS
    )
    return [
        _Input(kind, name[len(prefix) :], remarks.get(name, ""))
        for prefix, kind in _KINDS.items()
        for name in sorted(seen)
        if name.startswith(prefix)
    ]
