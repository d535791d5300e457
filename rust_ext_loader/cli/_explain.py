"""
`rust-ext explain`: list the facts that changed since this checkout last used a module.
"""

from __future__ import annotations

import json
import sys

from .. import _ensure
from .._model import Tier

#: What is added for the tier of the build that was used last.
_TIERS = {Tier.FULL: "", Tier.EDIT: "; it was built for editing, and `rust-ext build` optimises"}

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser("explain", parents=[common], help="what changed since the module was last used here")
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
    moved = _ensure.changes(request)
    complaint = moved.missing.complaint if moved.missing else None
    if complaint:
        print(f"note: the toolchain is left out: {complaint}", file=sys.stderr)
    if options.json:
        rows = [{"fact": change.name, "old": change.old, "new": change.new} for change in moved.history.changes]
        story = {
            "module": options.module,
            "used_before": moved.history.used_before,
            "changes": rows,
            "tier": moved.history.tier.value,
            "toolchain_missing": complaint,
        }
        print(json.dumps(story, indent=1))
    elif not moved.history.used_before:
        print(f"{options.module}: not built here yet")
    elif not moved.history.changes:
        print(f"{options.module}: nothing has changed{_TIERS[moved.history.tier]}")
    else:
        print("\n".join(str(change) for change in moved.history.changes))
    return 0
