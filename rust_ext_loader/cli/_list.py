"""
`rust-ext list`: which extensions the workspace declares. Asks neither cargo nor the cache.
"""

from __future__ import annotations

import json
import os
import sys

from .. import _discover

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser("list", parents=[common], help="the declared extensions")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print module, package, features and folder of each; 1 if a member cannot be read or two declare one module.
    """
    declared = _discover.extensions(options.workspace)
    rows = [
        {
            "module": spec.module,
            "package": spec.package,
            "library": spec.library,
            "features": list(spec.features),
            "profile": spec.profile,
            "directory": os.path.relpath(spec.directory, declared.workspace).replace(os.sep, "/"),
        }
        for _, spec in sorted(declared.specs.items())
    ]
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            print(f"{row['module']}  {row['package']}  {','.join(spec_features(row))}  {row['directory']}")
    for problem in declared.broken:
        print(f"error: {problem}", file=sys.stderr)
    for module, manifests in sorted(declared.duplicates.items()):
        print(f"error: {_discover.DuplicateModule(module, manifests)}", file=sys.stderr)
    return 1 if declared.broken or declared.duplicates else 0


def spec_features(row: dict[str, object]) -> list[str]:
    """
    The features of a row, `-` for none, so that columns stay columns.
    """
    features = row["features"]
    return [str(feature) for feature in features] if isinstance(features, list) and features else ["-"]
