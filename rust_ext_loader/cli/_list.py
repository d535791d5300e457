"""
`rust-ext list`: list the extensions that the workspace declares. Uses neither cargo nor the cache.
"""

from __future__ import annotations

import json
import os
import sys

from .._errors import DuplicateModule
from ..declare import _discover

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from .._model import ExtensionSpec


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser("list", parents=[common], help="show the declared extensions")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print module, package, features and folder of each; 1 if a member cannot be read or a module is declared twice.
    """
    declared = _discover.extensions(options.workspace)
    specs = [spec for _, spec in sorted(declared.specs.items())]
    if options.json:
        print(json.dumps([_row(spec, declared.workspace) for spec in specs], indent=1))
    else:
        for spec in specs:
            # A dash keeps the number of columns constant.
            print(
                f"{spec.module}  {spec.package}  {','.join(spec.features) or '-'}  {_folder(spec, declared.workspace)}"
            )
    for problem in declared.broken:
        print(f"error: {problem}", file=sys.stderr)
    for module, manifests in sorted(declared.duplicates.items()):
        print(f"error: {DuplicateModule(module, manifests)}", file=sys.stderr)
    return 1 if declared.broken or declared.duplicates else 0


def _row(spec: ExtensionSpec, workspace: Path) -> dict[str, object]:
    return {
        "module": spec.module,
        "package": spec.package,
        "library": spec.library,
        "features": list(spec.features),
        "profile": spec.profile,
        "directory": _folder(spec, workspace),
    }


def _folder(spec: ExtensionSpec, workspace: Path) -> str:
    return os.path.relpath(spec.directory, workspace).replace(os.sep, "/")
