"""
`rust-ext key`: the keys of every module, before anything is built, for a CI cache.
"""

from __future__ import annotations

import json

from .. import _ensure
from .._fingerprint import digest_of
from ._modules import add_modules, requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser("key", parents=[common], help="source key and build key, for a CI cache")
    add_modules(parser)
    parser.add_argument("--format", choices=("text", "json", "github"), default="text", help="`github` prints lines for $GITHUB_OUTPUT")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print the keys; with `github`, one key over all modules.
    """
    fingerprints = {request.module: _ensure.snapshot(request).fingerprint for request in requests(options)}
    keys = {name: {"source_key": found.source_key, "build_key": found.build_key} for name, found in fingerprints.items()}
    if options.format == "json":
        print(json.dumps({"modules": keys}, indent=1))
    elif options.format == "github":
        for kind in ("source_key", "build_key"):
            print(f"{kind}={digest_of({name: pair[kind] for name, pair in keys.items()})}")
    else:
        for name, pair in keys.items():
            print(f"{name}  {pair['source_key']}  {pair['build_key']}")
    return 0
