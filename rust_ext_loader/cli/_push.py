"""
`rust-ext push`: sign what is built here, and publish it for other hosts. Meant for CI.

A module that is valid on this host only is listed and skipped; that is not a
failure. A module that could be shared, but was not, is a failure.
"""

from __future__ import annotations

import json
import os
import sys

from .. import _ensure, _settings
from .._errors import RemoteUnavailable, RustExtensionError, SettingError
from ._modules import add_modules, requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from types import ModuleType

    from ..remote._signature import Signer


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser("push", parents=[common], help="sign what is built and publish it in the remote cache")
    add_modules(parser)
    parser.add_argument(
        "--new-key", metavar="FILE", help="make a signing key in a new file, print its public half, and do nothing else"
    )
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """
    Print the result for each module; continue after a failure, then return 1.
    """
    if options.new_key:
        print(_signatures().new_private_key(options.new_key).public_key)
        return 0
    signer = _signer()
    rows: dict[str, dict[str, object]] = {}
    printed: set[str] = set()
    for request in requests(options):
        try:
            pushed = _ensure.push(request, signer)
        except RustExtensionError as error:
            # A failure of the remote affects every module, so it is printed once.
            if str(error) not in printed:
                print(f"error: {error}", file=sys.stderr)
            printed.add(str(error))
            rows[request.module] = {"outcome": "failed", "why": [str(error)]}
            continue
        rows[request.module] = {"outcome": pushed.outcome, "why": list(pushed.bound_by)}
        if not options.json:
            print(f"{request.module}  {pushed.outcome}{_because(pushed.bound_by)}", flush=True)
    if options.json:
        print(json.dumps({"modules": rows}, indent=1))
    return 1 if any(row["outcome"] == "failed" for row in rows.values()) else 0


def _because(bound_by: tuple[str, ...]) -> str:
    return f": not shared, because its build depends on {', '.join(bound_by)} of this host" if bound_by else ""


def _signer() -> Signer:
    path = os.environ.get(_settings.SIGNING_KEY)
    if not path:
        raise SettingError(
            _settings.SIGNING_KEY,
            "",
            "the file of the private key to sign with (`rust-ext push --new-key FILE` makes one)",
        )
    signer: Signer = _signatures().read_private_key(path)
    return signer


def _signatures() -> ModuleType:
    try:
        from ..remote import _signature
    except ImportError as error:
        raise RemoteUnavailable("signing", f"{error}; install `rust-ext-loader[remote]`") from error
    return _signature
