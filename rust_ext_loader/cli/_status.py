"""
`rust-ext status`: show where each extension would come from, and why. Builds nothing.
"""

from __future__ import annotations

import dataclasses
import json

from .. import _ensure
from .._model import Readiness
from ._modules import add_modules, requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser(
        "status", parents=[common], help="show whether modules are bundled, cached, stale or missing, and why"
    )
    add_modules(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print one line per module; 1 if any import would have to compile first.
    """
    verdicts = [_ensure.judge(request) for request in requests(options)]
    if options.json:
        rows = [
            {
                **dataclasses.asdict(verdict),
                "state": verdict.state.value,
                "readiness": verdict.readiness.value,
                "tier": verdict.tier and verdict.tier.value,
            }
            for verdict in verdicts
        ]
        print(json.dumps(rows, indent=1))
    else:
        width = max((len(verdict.module) for verdict in verdicts), default=0)
        for verdict in verdicts:
            print(f"{verdict.module:{width}}  {verdict.state.value:10}  {verdict.why}")
    return 0 if all(verdict.readiness is Readiness.READY for verdict in verdicts) else 1
