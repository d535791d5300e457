"""
Parse the command line, run one command, and return its exit code.

Exit codes: 0 success; 1 a module is missing, stale or broken, or an error that stderr
explains; 2 wrong command line; 130 interrupted.

Invariant: an error that this package raises on purpose is printed as one
message, never as a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .. import _warm
from .._errors import ManifestError, RustExtensionError
from ..declare import _discover
from . import _build, _explain, _gc, _key, _list, _pull, _push, _status, _verify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS = (_list, _status, _build, _explain, _key, _verify, _push, _pull, _gc)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run `rust-ext`, and return the exit code.
    """
    options = _parser().parse_args(arguments)
    try:
        if options.workspace is None:
            options.workspace = _workspace_here()
        code: int = options.run(options)
        sys.stdout.flush()
    except RustExtensionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of stdout has closed the pipe; flushing into it at exit would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _workspace_here() -> Path:
    try:
        here = Path.cwd()
    except OSError as error:
        raise ManifestError(
            ".", f"the current folder does not exist ({error.strerror}); change to another, or pass --workspace"
        ) from error
    found = _discover.find_workspace(here)
    if found is None:
        raise ManifestError(str(here), "there is no cargo workspace here or above; pass --workspace")
    return found


class _Version(argparse.Action):
    """
    Looks the version up only on request, because the look-up takes longer than most commands.
    """

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        try:
            version = metadata.version("rust-ext-loader")
        except metadata.PackageNotFoundError:
            version = "(not installed)"
        print(f"{parser.prog} {version}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rust-ext",
        description="Build and inspect the Rust extension modules that a cargo workspace declares.",
        epilog="Exit codes: 0 success; 1 a module is missing, stale or broken, or an error that stderr explains; "
        "2 wrong command line; 130 interrupted.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="folder of the cargo workspace (default: searched upward from here)",
    )
    common.add_argument(
        "--cache-dir",
        metavar="DIR",
        help=f"root of the cache (default: {_warm.CACHE_DIR}, else the user's cache folder)",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_to(commands, common)
    return parser
