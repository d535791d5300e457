"""
`rust-ext build`: build every module now, before worker processes start.
"""

from __future__ import annotations

import os
import sys

from .. import _ensure, _warm
from .._errors import RustExtensionError
from ._modules import add_modules, requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser("build", parents=[common], help="build what is missing, stale or built for editing")
    add_modules(parser)
    parser.add_argument(
        "--mode",
        choices=_warm.MODES,
        help=f"`force` always compiles; `never` builds nothing (default: {_warm.BUILD_MODE}, else `auto`)",
    )
    parser.add_argument(
        "--timings",
        action="store_true",
        help="keep cargo's report of how long each crate took, and print where it is",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print the library of each module; continue after a failure, then return 1.
    """
    failures = 0
    mode = _warm.build_mode(options.mode, os.environ)
    reports: list[str] = []
    timings = reports.append if options.timings else None
    for request in requests(options, mode, always=mode == "force", full=True, timings=timings):
        reports.clear()
        try:
            print(f"{request.module}  {_ensure.locate(request)}", flush=True)
            if options.timings:
                print(f"{request.module}  timings: {_timings_text(reports)}", flush=True)
        except RustExtensionError as error:
            failures += 1
            print(f"error: {error}", file=sys.stderr)
    return 1 if failures else 0


def _timings_text(reports: list[str]) -> str:
    if not reports:
        return "nothing was compiled"
    return reports[-1] or "cargo wrote no report"
