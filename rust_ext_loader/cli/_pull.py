"""
`rust-ext pull`: fetch built modules from the remote cache, without building.
"""

from __future__ import annotations

import json
import sys

from .. import _ensure
from .._errors import RustExtensionError
from ._modules import add_modules, requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser(
        "pull", parents=[common], help="fetch modules that were built elsewhere from these sources; build nothing"
    )
    add_modules(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print the result for each module; 1 if any is neither here nor in the remote cache.
    """
    rows: dict[str, dict[str, object]] = {}
    printed: set[str] = set()
    for request in requests(options):
        try:
            pulled = _ensure.pull(request)
        except (RustExtensionError, OSError) as error:
            # A failure of the remote affects every module, so it is printed once.
            if str(error) not in printed:
                print(f"error: {error}", file=sys.stderr)
            printed.add(str(error))
            rows[request.module] = {"outcome": "failed", "library": None, "why": str(error)}
            continue
        entry = pulled.entry
        outcome = pulled.outcome.value
        rows[request.module] = {
            "outcome": outcome,
            "library": None if entry is None else str(entry.library),
            "why": None,
        }
        if not options.json:
            print(f"{request.module}  {outcome}{'' if entry is None else f'  {entry.library}'}", flush=True)
    if options.json:
        print(json.dumps({"modules": rows}, indent=1))
    return 0 if all(row["library"] for row in rows.values()) else 1
