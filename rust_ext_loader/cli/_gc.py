"""
`rust-ext gc`: remove the least recently used entries until the cache is within limits.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from .. import _settings, _warm
from .._errors import SettingError
from ..cache import _gc, _roots


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser(
        "gc",
        parents=[common],
        help="remove the least recently used items until the cache is within its limits",
        description="Items are cached builds, target folders, quarantined builds and local copies. "
        "Items that were used within the last hour are kept.",
    )
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        type=_size,
        help=f"total size to keep, as in 5G (default without --max-age: {_settings.CACHE_LIMIT}, else 10 GB)",
    )
    parser.add_argument(
        "--max-age", metavar="AGE", type=_age, help="remove items that were not used for this long, as in 30d or 12h"
    )
    parser.add_argument(
        "--keep",
        metavar="N",
        type=_count,
        default=0,
        help="keep the N most recently used builds of each module, regardless of the limits",
    )
    parser.add_argument("--dry-run", action="store_true", help="print only; remove nothing")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(run=run)


def _size(text: str) -> int:
    try:
        return _settings.parse_size("--max-size", text)
    except SettingError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _age(text: str) -> float:
    try:
        return _settings.parse_age("--max-age", text)
    except SettingError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of entries")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """
    For each writable root, print what was removed and how much is left.
    """
    size = options.max_size
    if size is None and options.max_age is None:
        size = _settings.size(_settings.CACHE_LIMIT, os.environ, _settings.DEFAULT_LIMIT)
    limits = _gc.Limits(size, options.max_age, options.keep)
    found = {}
    for root in map(Path, _warm.write_roots(options.cache_dir, os.environ)):
        if root.exists():
            if (reason := _roots.ready(root)) is not None:
                print(f"error: nothing can be removed: {reason}", file=sys.stderr)
                return 1
            found[root] = _gc.collect(root, limits, dry_run=options.dry_run)
    if options.json:
        print(json.dumps({"roots": [_row(root, done) for root, done in found.items()]}, indent=1))
    else:
        for root, done in found.items():
            # The fallback root is created on first use and is usually empty.
            if done.size or len(found) == 1:
                _print(root, done, "would free" if options.dry_run else "freed")
    return 0


def _row(root: Path, done: _gc.Collected) -> dict[str, object]:
    gone = [{"path": str(item.path), "kind": item.kind, "bytes": item.size, "used": item.used} for item in done.removed]
    return {"root": str(root), "bytes_before": done.size, "bytes_freed": done.freed, "gone": gone}


def _print(root: Path, done: _gc.Collected, verb: str) -> None:
    for item in done.removed:
        used = time.strftime("%Y-%m-%d", time.localtime(item.used))
        print(f"{item.kind:13}  {_settings.spell_size(item.size):>8}  last used {used}  {item.path}")
    print(f"{verb} {_settings.spell_size(done.freed)} of {_settings.spell_size(done.size)} in {root}")
