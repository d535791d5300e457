"""
Measure: `python3 ci/bench.py loader`.

One subcommand per thing measured; each prints a table and, with `--json FILE`,
writes the same numbers for machines. Never part of the tests.

Invariant: needs no more than the demo does; peers are fetched by name from
PyPI into `.tools/bench`. Standard library only.
"""

from __future__ import annotations

import argparse
import sys

import prerequisites

#: Fewer rounds than this do not tell a millisecond from noise.
FEWEST_ROUNDS = 40


def main() -> int:
    """
    Parse, check the machine, hand over.
    """
    parser = argparse.ArgumentParser(description="Measure, and print a table.")
    commands = parser.add_subparsers(dest="command", required=True)
    loader = commands.add_parser("loader", help="the cost of an import: ours, plain, and other import hooks")
    loader.add_argument("--rounds", type=int, default=FEWEST_ROUNDS, help="fresh processes per way (default and least: %(default)s)")
    loader.add_argument("--no-peers", dest="peers", action="store_false", help="leave out the other import hooks")
    loader.add_argument("--json", metavar="FILE", help="write the numbers here too")
    options = parser.parse_args()
    prerequisites.require()
    import bench_loader
    from environment import InstallFailed

    try:
        return bench_loader.main(rounds=max(FEWEST_ROUNDS, options.rounds), with_peers=options.peers, json_file=options.json)
    except (InstallFailed, RuntimeError) as error:
        raise SystemExit(f"could not set up what is measured: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
