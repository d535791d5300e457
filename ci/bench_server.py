"""
Measure the server against the alternatives: CPU, requests per second, latency and memory.

All sides run during the whole benchmark, each in a separate process. A round puts load on one
after the other, so that all see the same load of the machine. Before the rounds all must give the
same text. CPU time is that of the server process alone. Times are printed beside their aims; a
missed aim is no failure.

Invariant: one run measures everything that its tables compare. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from statistics import median

from promises import Row, show
from server_sides import PROMPT, SIDES, Case, Server, program, servers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds of unmeasured load before the rounds of a case.
_WARM = 0.2


@dataclass(frozen=True)
class Sample:
    """
    The measurements of one load on one side.
    """

    #: Microseconds of CPU.
    request_us: float
    token_us: float
    requests_per_s: float
    tokens_per_s: float
    #: Events per answer; a cumulative event may bring several new tokens.
    events: float
    #: Median and 99th percentile.
    first_ms: tuple[float, float]
    whole_ms: tuple[float, float]
    memory_mb: float


def main(
    *,
    rounds: int,
    seconds: float,
    sides: Sequence[str],
    connections: Sequence[int],
    tokens: Sequence[int],
    json_file: str | None,
) -> int:
    """
    Set up, measure, print; write JSON if asked to.
    """
    kinds = ("unary", "cumulative", "incremental")
    cases = [Case(kind, count, at_once) for kind in kinds for count in tokens for at_once in connections]
    for side in sides:
        print(f"{side:<8} {SIDES[side]}")
    print(
        f"{rounds} interleaved rounds of {seconds:g} s on {os.cpu_count()} cores shared with the load generator; "
        "medians, CPU [min .. max]"
    )
    load = [os.getloadavg()[0]]
    measured: dict[Case, dict[str, list[Sample]]] = {}
    with servers(sides, cases) as running:
        for case in cases:
            by_side = {side: running[side, case.kind == "incremental"] for side in sides}
            measured[case] = measure(case, by_side, rounds, seconds)
            _print(case, measured[case])
    load.append(os.getloadavg()[0])
    print(f"\nload average of the machine: {load[0]:.1f} before, {load[1]:.1f} after\n")
    show(_aims(measured))
    if json_file:
        report = {
            "machine": platform.platform(),
            "cores": os.cpu_count(),
            "load": load,
            "rounds": rounds,
            "seconds": seconds,
            "cases": [
                {**asdict(case), "sides": {side: [asdict(sample) for sample in of] for side, of in taken.items()}}
                for case, taken in measured.items()
            ],
        }
        with open(json_file, "w", encoding="utf-8") as file:
            file.write(json.dumps(report, indent=2) + "\n")
    return 0


# Measuring.


def measure(case: Case, by_side: dict[str, Server], rounds: int, seconds: float) -> dict[str, list[Sample]]:
    """
    Put load on all sides once per round, in a rotating order.
    """
    names = list(by_side)
    for server in by_side.values():
        check(case, server)
        sample(case, server, _WARM)
    taken: dict[str, list[Sample]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in (*names[shift:], *names[:shift]):
            taken[name].append(sample(case, by_side[name], seconds))
    return taken


def check(case: Case, server: Server) -> None:
    """
    Raise unless the answer is the prompt, repeated up to the number of tokens.
    """
    connection = http.client.HTTPConnection(server.address, timeout=60)
    connection.request("POST", "/generate", case.body, {"Content-Type": "application/json"})
    data = connection.getresponse().read().decode()
    connection.close()
    if case.kind == "unary":
        frames = [json.loads(data)]
    else:
        *events, done, end = data.split("\n\n")
        if (done, end) != ("data: [DONE]", ""):
            raise RuntimeError(f"{server.address}: {case}: the stream ends with {done!r}")
        frames = [json.loads(event.removeprefix("data: ")) for event in events]
    text = "".join(frame["text"] for frame in (frames if case.kind == "incremental" else frames[-1:]))
    expected = (PROMPT * (case.tokens // len(PROMPT) + 1))[: case.tokens]
    if (text, frames[-1]["meta_info"]["completion_tokens"]) != (expected, case.tokens):
        raise RuntimeError(
            f"{server.address}: {case}: answers {text!r} instead of {expected!r}, so it cannot be compared"
        )


def sample(case: Case, server: Server, seconds: float) -> Sample:
    """
    Put load on one server.
    """
    command = [program("http_load"), server.address, str(case.connections), str(seconds)]
    cpu = server.cpu()
    done = subprocess.run(command, check=False, input=case.body, stdout=subprocess.PIPE, text=True)
    cpu = server.cpu() - cpu
    if done.returncode != 0:
        raise RuntimeError(f"{server.address}: {case}: not every request was answered")
    seen = json.loads(done.stdout)
    requests = seen["requests"]
    return Sample(
        request_us=cpu / requests * 1e6,
        token_us=cpu / requests / case.tokens * 1e6,
        requests_per_s=requests / seen["seconds"],
        tokens_per_s=requests * case.tokens / seen["seconds"],
        events=max(seen["events"] / requests - 1, 0),
        first_ms=(seen["first_ms"]["p50"], seen["first_ms"]["p99"]),
        whole_ms=(seen["whole_ms"]["p50"], seen["whole_ms"]["p99"]),
        memory_mb=server.memory(),
    )


# Printing.


def _print(case: Case, taken: dict[str, list[Sample]]) -> None:
    print(f"\n{case.kind}, {case.tokens} tokens, {case.connections} connections")
    print(
        f"{'':<8} {'CPU us/request':>26} {'us/token':>9} {'requests/s':>11} {'tokens/s':>10} {'events':>7}"
        f" {'first ms p50 p99':>18} {'whole ms p50 p99':>18} {'MB':>6}",
        flush=True,
    )
    for side, of in taken.items():
        cpu = [sample.request_us for sample in of]
        first, whole = (
            f"{median(pair[0] for pair in pairs):.2f} {median(pair[1] for pair in pairs):.2f}"
            for pairs in ([sample.first_ms for sample in of], [sample.whole_ms for sample in of])
        )
        token, rate, tokens = (
            median(values) for values in zip(*((s.token_us, s.requests_per_s, s.tokens_per_s) for s in of), strict=True)
        )
        print(
            f"{side:<8} {f'{median(cpu):.0f} [{min(cpu):.0f} .. {max(cpu):.0f}]':>26} {token:>9.2f} {rate:>11.0f}"
            f" {tokens:>10.0f} {median(sample.events for sample in of):>7.1f} {first:>18} {whole:>18}"
            f" {of[-1].memory_mb:>6.0f}",
            flush=True,
        )


def _aims(measured: dict[Case, dict[str, list[Sample]]]) -> list[Row]:
    rows = []
    for case, taken in measured.items():
        cpu = {side: median(sample.request_us for sample in of) for side, of in taken.items()}
        rate = {side: median(sample.requests_per_s for sample in of) for side, of in taken.items()}
        name = f"{case.kind}, {case.tokens} tokens, {case.connections} connections"
        if {"ours", "fastapi"} <= cpu.keys():
            seen = (
                f"CPU {cpu['fastapi'] / cpu['ours']:.1f}x below, {rate['ours'] / rate['fastapi']:.1f}x the requests/s"
            )
            rows.append(
                Row(
                    f"{name}: ours against fastapi",
                    "CPU 8x below, 5x the requests/s" if case.kind != "unary" else "5x the requests/s",
                    seen,
                )
            )
        if {"null", "fastapi"} <= cpu.keys():
            seen = (
                f"CPU {cpu['fastapi'] / cpu['null']:.1f}x below, {rate['null'] / rate['fastapi']:.1f}x the requests/s"
            )
            rows.append(Row(f"{name}: null against fastapi", "", seen))
        if {"null", "axum"} <= cpu.keys():
            rows.append(Row(f"{name}: null against axum", "CPU at most 2x", f"CPU {cpu['null'] / cpu['axum']:.1f}x"))
    return [*rows, *_growth(measured)]


def _growth(measured: dict[Case, dict[str, list[Sample]]]) -> list[Row]:
    """
    Compare the cost of a token in a long stream with that in a short stream.
    """
    rows = []
    for case, taken in measured.items():
        comparable = [other for other in measured if (other.kind, other.connections) == (case.kind, case.connections)]
        longest = max(comparable, key=lambda other: other.tokens)
        if case.kind == "unary" or case.tokens == 1 or longest.tokens <= case.tokens:
            continue
        for side in taken:
            short, long = (median(sample.token_us for sample in measured[of][side]) for of in (case, longest))
            aim = "at most 1x" if case.kind == "incremental" else "grows with the bytes"
            name = f"{case.kind}, {case.connections} connections, {side}: a token of {longest.tokens} vs {case.tokens}"
            rows.append(Row(name, aim, f"{long:.2f} us / {short:.2f} us = {long / short:.2f}x"))
    return rows
