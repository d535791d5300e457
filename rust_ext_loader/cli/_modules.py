"""
Decide which modules a command is about: the named ones, or all that the workspace declares.
"""

from __future__ import annotations

from .. import _ensure
from .._errors import DuplicateModule
from ..declare import _discover

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator


def add_modules(parser: argparse.ArgumentParser) -> None:
    """
    Declare the positional argument.
    """
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="dotted module name (default: every declared one)")


def requests(
    options: argparse.Namespace,
    mode: str | None = None,
    *,
    always: bool = False,
    full: bool = False,
    timings: Callable[[str], None] | None = None,
) -> Iterator[_ensure.Request]:
    """
    One request per module.

    Without names, raises the workspace's first error: the list of all modules would be incomplete.
    """
    for module in options.modules or _every_module(options):
        yield _ensure.Request(
            module,
            mode=mode,
            workspace=str(options.workspace),
            cache_dir=options.cache_dir,
            always=always,
            full=full,
            timings=timings,
        )


def _every_module(options: argparse.Namespace) -> list[str]:
    declared = _discover.extensions(options.workspace)
    if declared.broken:
        raise declared.broken[0]
    for module, manifests in declared.duplicates.items():
        raise DuplicateModule(module, manifests)
    return sorted(declared.specs)
