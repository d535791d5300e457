"""
Measure imports that are not warm: after an edit, in a fresh checkout, and in many processes at once.

Invariant: the rules of `bench_loader` hold; compilations are counted by a
wrapper of `cargo` that logs its calls. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import bare
from grown import MODULE, Grown, grow
from imports import Way, code_that_imports, median, own_environment, spread
from promises import Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from peers import Peer

CRATES, FILES = 4, 300
#: Processes that import one cold module at once.
_PROCESSES = 64
#: Other import hooks run in every fourth round only: each of their builds takes seconds.
_PEERS_EVERY = 4


def rows(home: Path, rounds: int, peers: Sequence[Peer]) -> list[Row]:
    """
    Measure all cases and return one row per promise.
    """
    home = home / "building"
    grown = grow(home / "workspace", crates=CRATES, files=FILES)
    hooked = bare.hooked(home / "hooked", grown, home / "cache")
    ours = Way("ours", (hooked.python, "-c", code_that_imports(MODULE)), hooked.environment)
    ours.run()
    return [
        *_edits(home, grown, ours, rounds, peers),
        _fresh_checkout(home, grown, hooked, rounds),
        *_concurrent_imports(home),
    ]


# One edited line.


def _edits(home: Path, grown: Grown, ours: Way, rounds: int, peers: Sequence[Peer]) -> list[Row]:
    """
    Measure an import after an edit, and cargo alone after the same edit in a copy of the workspace.
    """
    copy = grow(home / "copy", crates=CRATES, files=FILES)
    by_cargo = _cargo(copy.root, home / "copy-target", "--release", "--package", "alpha")
    peer_cargo = _cargo(peers[0].source.parents[1], home / "peer-target") if peers else None
    times: dict[str, list[float]] = {}

    def take(name: str, act: Callable[[], object]) -> None:
        start = time.perf_counter()
        act()
        times.setdefault(name, []).append(time.perf_counter() - start)

    for turn in range(rounds):
        grown.edit(turn + 2)
        copy.edit(turn + 2)
        pair = [("ours", ours.run), ("cargo", by_cargo)]
        for name, act in reversed(pair) if turn % 2 else pair:
            take(name, act)
        if peers and peer_cargo and turn % _PEERS_EVERY == 0:
            for peer in peers:
                peer.edit(turn + 100)
                take(peer.hooked.name, peer.hooked.run)
            take("cargo, of a peer's crate", peer_cargo)
    # Discard the first build in each way, because it compiles everything.
    return _edit_rows({name: taken[1:] for name, taken in times.items()}, [peer.hooked.name for peer in peers])


def _edit_rows(times: dict[str, list[float]], peers: Sequence[str]) -> list[Row]:
    extra = spread(one - other for one, other in zip(times["ours"], times["cargo"], strict=True))
    text = (
        f"{extra[1] / 1000:+.3f} [{extra[0] / 1000:+.3f} .. {extra[2] / 1000:+.3f}] s, {_ratio(times, 'ours', 'cargo')}"
    )
    found = [
        Row(
            "edit one line, import: whole process",
            "at most cargo + 0.3 s",
            f"{text}  ({_seconds(times['ours'])} against {_seconds(times['cargo'])})",
        )
    ]
    for name in peers:
        other = "cargo, of a peer's crate"
        found.append(
            Row(
                f"peer: {name}, one line edited",
                "",
                f"{_seconds(times[name])} against {_seconds(times[other])}, {_ratio(times, name, other)}",
            )
        )
    return found


def _cargo(folder: Path, target: Path, *arguments: str) -> Callable[[], object]:
    command = ["cargo", "build", "--quiet", *arguments]
    variables = {**own_environment(), "CARGO_TARGET_DIR": str(target), "PYO3_PYTHON": sys.executable}
    return lambda: subprocess.run(
        command, check=True, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True
    )


# A fresh checkout with a cache hit and no toolchain.


def _fresh_checkout(home: Path, grown: Grown, hooked: bare.Bare, rounds: int) -> Row:
    everything = "; ".join(f"import {module}" for module in grown.modules)
    # A build in the edit tier would be valid in its own checkout only.
    in_full = {**hooked.environment, "RUST_EXT_EDIT_TIER": "off"}
    Way("ours, all", (hooked.python, "-c", code_that_imports(MODULE, statement=everything)), in_full).run()
    # Everything is built now. Each import below runs in a new checkout, without a compiler or a home folder.
    empty = home / "empty"
    empty.mkdir()
    times = []
    for turn in range(rounds):
        checkout, cache = home / f"fresh-{turn}", home / f"fresh-cache-{turn}"
        shutil.copytree(grown.root, checkout)
        shutil.copytree(
            hooked.environment["RUST_EXT_CACHE_DIR"], cache, ignore=shutil.ignore_patterns("targets", "records", "logs")
        )
        variables = {**hooked.environment, "RUST_EXT_CACHE_DIR": str(cache), "PATH": str(empty), "HOME": str(empty)}
        calls = "; ".join(
            f"rust_ext_loader.load_rust_extension({module!r}, workspace={str(checkout)!r})" for module in grown.modules
        )
        code = code_that_imports(MODULE, before="import rust_ext_loader", statement=calls)
        times.append(Way("fresh checkout", (hooked.python, "-c", code), variables).run().wall)
        shutil.rmtree(checkout)
        shutil.rmtree(cache)
    case = f"fresh checkout, cached, no toolchain: {len(grown.modules)} modules"
    return Row(case, "under 1 s", f"{_seconds(times)} for all, whole process")


# Many processes at once.


def _concurrent_imports(home: Path) -> list[Row]:
    grown = grow(home / "together", crates=CRATES, files=FILES)
    tools = home / "tools"
    tools.mkdir()
    log = tools / "log"
    _write_logging_cargo(tools / "cargo", log)
    found = []
    for count in (1, _PROCESSES):
        hooked = bare.hooked(home / f"together-{count}", grown, home / f"together-cache-{count}")
        hooked = replace(
            hooked,
            environment={
                **hooked.environment,
                "PATH": os.pathsep.join((str(tools), os.environ.get("PATH", os.defpath))),
            },
        )
        log.write_text("")
        seconds, failed = _at_once(hooked, count)
        compiled = sum(line.startswith("rustc ") for line in log.read_text().splitlines())
        case, promised = (
            (f"{count} processes, cold module", "one compilation, no failure")
            if count > 1
            else ("1 process, cold module", "")
        )
        found.append(
            Row(
                case,
                promised,
                f"{compiled} compilation{'s' if compiled != 1 else ''}, {failed} failed, "
                f"{seconds:.2f} s until the last is done",
            )
        )
    return found


def _at_once(hooked: bare.Bare, count: int) -> tuple[float, int]:
    start = time.perf_counter()
    running = [
        subprocess.Popen(
            [hooked.python, "-c", f"import {MODULE}"],
            env=hooked.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(count)
    ]
    failed = sum(process.wait() != 0 for process in running)
    return time.perf_counter() - start, failed


def _write_logging_cargo(path: Path, log: Path) -> None:
    real = shutil.which("cargo")
    path.write_text(f"#!/bin/sh\necho \"$@\" >> '{log}'\nexec '{real}' \"$@\"\n", encoding="utf-8")
    path.chmod(0o755)


def _seconds(times: Sequence[float]) -> str:
    low, middle, high = spread(times)
    return f"{middle / 1000:.3f} [{low / 1000:.3f} .. {high / 1000:.3f}] s"


def _ratio(times: dict[str, list[float]], one: str, other: str) -> str:
    return f"{median(times[one]) / median(times[other]):.2f}x"
