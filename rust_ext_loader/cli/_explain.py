"""
`rust-ext explain`: which facts moved since this checkout last used a module.
"""

from __future__ import annotations

import json

from .. import _ensure

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser("explain", parents=[common], help="what moved since the module was last used here")
    parser.add_argument("module", metavar="MODULE", help="dotted module name")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print one line per fact that moved.
    """
    request = _ensure.Request(options.module, mode="auto", workspace=str(options.workspace), cache_dir=options.cache_dir)
    changes, known = _ensure.changes(request)
    if options.json:
        rows = [{"fact": change.name, "old": change.old, "new": change.new} for change in changes]
        print(json.dumps({"module": options.module, "used_before": known, "changes": rows}, indent=1))
    elif not known:
        print(f"{options.module}: not built here yet")
    elif not changes:
        print(f"{options.module}: nothing moved")
    else:
        print("\n".join(str(change) for change in changes))
    return 0
