"""
`rust-ext key`: print the keys of every module, before anything is built, for a CI cache.

The source key needs no toolchain. Without a toolchain the build key is omitted
(`-`, `null`, no line) with a reason on stderr, and the exit code is still 0.
"""

from __future__ import annotations

import json
import sys

from .. import _ensure
from ..facts._fingerprint import digest_of
from ._modules import add_modules, requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser(
        "key", parents=[common], help="print the source key and, given a toolchain, the build key, for a CI cache"
    )
    add_modules(parser)
    parser.add_argument(
        "--format", choices=("text", "json", "github"), default="text", help="`github` prints lines for $GITHUB_OUTPUT"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print the keys; `github` prints one key over all modules.
    """
    keys: dict[str, dict[str, str | None]] = {}
    complaints: dict[str, None] = {}
    for request in requests(options):
        observed = _ensure.observe(request)
        facts = observed.facts
        keys[request.module] = {"source_key": facts.fingerprint.source_key, "build_key": facts.build_key}
        if observed.missing is not None:
            complaints[observed.missing.complaint] = None
    for complaint in complaints:
        print(f"note: no build key, because it needs a toolchain: {complaint}", file=sys.stderr)
    if options.format == "json":
        print(json.dumps({"modules": keys}, indent=1))
    elif options.format == "github":
        for kind in ("source_key", "build_key"):
            known = {name: key for name, pair in keys.items() if (key := pair[kind]) is not None}
            if len(known) == len(keys):
                print(f"{kind}={digest_of(known)}")
    else:
        for name, pair in keys.items():
            # A dash keeps the number of columns constant.
            print(f"{name}  {pair['source_key']}  {pair['build_key'] or '-'}")
    return 0
