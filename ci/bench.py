"""
Measure: `python3 ci/bench.py cold`, `... edit`, `... loader`, `... growth`, `... freshness`, `... media`, `... server`.

There is one subcommand per subject. Each prints a table and, with `--json FILE`,
writes the same numbers as JSON. Benchmarks are not part of the tests.

Invariant: needs only what `ci/demo.py` needs; other import hooks are installed
from PyPI into `.tools/bench`. Standard library only.
"""

from __future__ import annotations

import argparse
import sys

import prerequisites

#: With fewer rounds a millisecond cannot be told from noise.
MIN_ROUNDS = 40
#: Default file of the plot.
PLOT = prerequisites.ROOT / "dist/growth.svg"
#: The modules of `edit_modules`, which an old Python could not import to print this script's help.
_EDITED = ("_small", "_radix_tree", "_multimodal", "_server")


def main() -> int:
    """
    Parse the command line, check the machine, run the benchmark.
    """
    options = _parser().parse_args()
    prerequisites.require()
    from environment import InstallFailed

    try:
        if options.command == "growth":
            import bench_growth

            return bench_growth.main(rounds=options.rounds, svg=options.svg, json_file=options.json)
        if options.command == "freshness":
            import bench_freshness

            return bench_freshness.main(with_peers=options.peers, json_file=options.json)
        if options.command == "media":
            if options.edit:
                import bench_media_edit

                return bench_media_edit.main(rounds=options.rounds, json_file=options.json)
            import bench_media

            return bench_media.main(rounds=options.rounds, oracles=options.oracles, json_file=options.json)
        if options.command == "server":
            return _server(options)
        if options.command == "cold":
            import bench_cold

            return bench_cold.main(rounds=max(1, options.rounds), json_file=options.json)
        if options.command == "edit":
            import bench_edit

            return bench_edit.main(
                modules=options.modules, rounds=max(1, options.rounds), with_peers=options.peers, json_file=options.json
            )
        import bench_loader

        return bench_loader.main(
            rounds=max(MIN_ROUNDS, options.rounds), with_peers=options.peers, json_file=options.json
        )
    except (InstallFailed, RuntimeError) as error:
        raise SystemExit(f"could not set up the benchmark: {error}") from None


def _server(options: argparse.Namespace) -> int:
    import bench_server
    import environment
    from server_sides import SIDES

    environment.main_environment().ready()
    return bench_server.main(
        rounds=options.rounds,
        seconds=options.seconds,
        sides=[side for side in SIDES if options.peers or side != "fastapi"],
        connections=options.connections,
        tokens=options.tokens,
        json_file=options.json,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure, and print a table.")
    commands = parser.add_subparsers(dest="command", required=True)
    loader = commands.add_parser(
        "loader", help="cost of an import, compared with its promised limits and with other import hooks"
    )
    loader.add_argument(
        "--rounds", type=int, default=MIN_ROUNDS, help="new processes per way (default and minimum: %(default)s)"
    )
    freshness = commands.add_parser(
        "freshness", help="which changes trigger a rebuild, needed or not: ours, cargo, other import hooks"
    )
    server = commands.add_parser(
        "server", help="CPU, rate and latency of the server: ours, a scheduler in Rust, bare axum, FastAPI"
    )
    _add_server_options(server)
    cold = commands.add_parser("cold", help="first import of each module from empty caches: ours, cargo")
    cold.add_argument("--rounds", type=int, default=1, help="rounds, each from empty caches (default: %(default)s)")
    edit = commands.add_parser(
        "edit", help="time from an edited line to the finished import: ours, cargo, maturin, other import hooks"
    )
    _add_edit_options(edit)
    for command in (loader, freshness, server, edit):
        command.add_argument(
            "--no-peers",
            dest="peers",
            action="store_false",
            help="skip the peers: the tools for comparison that must be installed from PyPI",
        )
    growth = commands.add_parser("growth", help="cost of an import by number of files and crates, and by stage")
    growth.add_argument("--rounds", type=int, default=15, help="new processes per way and size (default: %(default)s)")
    growth.add_argument(
        "--svg", metavar="FILE", default=str(PLOT), help="write the plot to this file (default: %(default)s)"
    )
    media = commands.add_parser("media", help="images to patches: ours, Pillow with NumPy, the Hugging Face backends")
    media.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: %(default)s)")
    compared = media.add_mutually_exclusive_group()
    compared.add_argument(
        "--edit",
        action="store_true",
        help="compare the module as the edit tier builds it with its declared profile, and nothing else",
    )
    compared.add_argument(
        "--oracles",
        action="store_true",
        help="also measure torch and transformers (installs gigabytes into .tools/oracles once)",
    )
    for command in (loader, freshness, growth, media, server, cold, edit):
        command.add_argument("--json", metavar="FILE", help="also write the numbers to this file")
    return parser


def _add_edit_options(edit: argparse.ArgumentParser) -> None:
    edit.add_argument(
        "--modules",
        nargs="+",
        choices=_EDITED,
        default=_EDITED,
        metavar="MODULE",
        help="modules to edit: %(choices)s (default: all, which compiles for half an hour on two cores)",
    )
    edit.add_argument("--rounds", type=int, default=3, help="edits per way after the first one (default: %(default)s)")


def _add_server_options(server: argparse.ArgumentParser) -> None:
    server.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: %(default)s)")
    server.add_argument("--seconds", type=float, default=1.0, help="length of a load (default: %(default)s)")
    server.add_argument(
        "--connections",
        type=int,
        nargs="+",
        default=[1, 64, 512],
        metavar="N",
        help="concurrent clients (default: 1 64 512)",
    )
    server.add_argument(
        "--tokens", type=int, nargs="+", default=[1, 32, 256], metavar="N", help="tokens per answer (default: 1 32 256)"
    )


if __name__ == "__main__":
    sys.exit(main())
