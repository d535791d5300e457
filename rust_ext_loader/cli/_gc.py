"""
`rust-ext gc`: take away what has not been used for longest, down to some limits.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from .. import _gc, _settings, _store
from .._errors import CacheUnavailable, SettingError


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """
    Declare the command.
    """
    parser = commands.add_parser("gc", parents=[common], help="remove what has not been used for longest")
    parser.add_argument("--max-size", metavar="SIZE", type=_size, help=f"what may stay in all, as in 5G (default: {_settings.CACHE_LIMIT})")
    parser.add_argument("--max-age", metavar="AGE", type=_age, help="what was not used for so long goes, as in 30d or 12h")
    parser.add_argument("--keep", metavar="N", type=int, default=0, help="the N entries of each module that were used last stay anyway")
    parser.add_argument("--dry-run", action="store_true", help="only tell")
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


def run(options: argparse.Namespace) -> int:
    """
    Print what went and how much is left.
    """
    root = Path(_settings.write_roots(options.cache_dir, os.environ)[0])
    if root.exists() and (reason := _store.ready_root(root)) is not None:
        raise CacheUnavailable((reason,))
    size = options.max_size
    if size is None and options.max_age is None:
        size = _settings.size(_settings.CACHE_LIMIT, os.environ, _settings.DEFAULT_LIMIT)
    done = _gc.collect(root, _gc.Limits(size, options.max_age, options.keep), dry_run=options.dry_run)
    if options.json:
        rows = [{"path": str(item.path), "kind": item.kind, "bytes": item.size, "used": item.used} for item in done.gone]
        print(json.dumps({"root": str(root), "bytes_before": done.size, "bytes_freed": done.freed, "gone": rows}, indent=1))
        return 0
    for item in done.gone:
        used = time.strftime("%Y-%m-%d", time.localtime(item.used))
        print(f"{item.kind:13}  {_settings.spell_size(item.size):>8}  last used {used}  {item.path}")
    verb = "would free" if options.dry_run else "freed"
    print(f"{verb} {_settings.spell_size(done.freed)} of {_settings.spell_size(done.size)} in {root}")
    return 0
