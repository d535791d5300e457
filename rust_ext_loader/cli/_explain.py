"""
`rust-ext explain`: list the facts that changed since this checkout last used a module.
"""

from __future__ import annotations

import json
import sys

from .. import _ensure
from .._model import Tier

#: The end of the line "nothing has changed", by the tier of the build that was used last.
_TIERS = {Tier.FULL: "", Tier.EDIT: "; it was built for editing, and `rust-ext build` optimises"}

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser(
        "explain", parents=[common], help="show what changed since this checkout last used a module"
    )
    parser.add_argument("module", metavar="MODULE", help="dotted module name")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print one line per changed fact. Without a toolchain its facts are left out, and a note says so.
    """
    request = _ensure.Request(
        options.module, mode="auto", workspace=str(options.workspace), cache_dir=options.cache_dir
    )
    found = _ensure.changes(request)
    history = found.history
    complaint = found.missing.complaint if found.missing else None
    if complaint:
        print(f"note: toolchain facts are not compared: {complaint}", file=sys.stderr)
    if options.json:
        rows = [{"fact": change.name, "old": change.old, "new": change.new} for change in history.changes]
        report = {
            "module": options.module,
            "used_before": history.used_before,
            "changes": rows,
            "tier": history.tier.value,
            "toolchain_missing": complaint,
        }
        print(json.dumps(report, indent=1))
    elif not history.used_before:
        print(f"{options.module}: not built here yet")
    elif not history.changes:
        print(f"{options.module}: nothing has changed{_TIERS[history.tier]}")
    else:
        print("\n".join(str(change) for change in history.changes))
    return 0
