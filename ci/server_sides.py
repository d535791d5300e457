"""
Start the servers that `bench_server` measures, each side in a separate process.

Invariant: all sides get the same requests and give the same answers; no process is left
running. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = environment.TOOLS / "bench/server"
PEER = environment.ROOT / "ci/server_peer.txt"
INCREMENTAL = "--incremental-streaming-output"

#: Every side makes each byte a token.
PROMPT = "native extensions, just imported"

#: For each side, what runs in the measured process.
SIDES = {
    "ours": "python -m sglang.srt.rust_server, the echo engine in Python in the same process",
    "null": "(a) the same crate, a scheduler in Rust that repeats the prompt in the same process",
    "axum": "(b) axum alone: answers with prepared bytes without reading the request; one write per event",
    "fastapi": "(c) FastAPI, uvicorn, uvloop, httptools, the same echo engine in the same process",
}


@dataclass(frozen=True)
class Case:
    """
    A request, and the number of connections that send it concurrently.
    """

    #: `unary`, `cumulative` or `incremental`.
    kind: str
    tokens: int
    connections: int

    @property
    def body(self) -> str:
        """
        The body of a request.
        """
        sampling = {"max_new_tokens": self.tokens, "ignore_eos": True}
        return json.dumps({"text": PROMPT, "sampling_params": sampling, "stream": self.kind != "unary"})

    @property
    def pieces(self) -> list[str]:
        """
        The answer, split as a server would write it event by event.
        """
        if self.kind == "unary":
            return [self._frame(0, self.tokens)]
        frames = [self._frame(sent if self.kind == "incremental" else 0, sent + 1) for sent in range(self.tokens)]
        events = [f"data: {frame}\n\n" for frame in frames]
        events[-1] += "data: [DONE]\n\n"
        return events

    def _frame(self, begin: int, end: int) -> str:
        ids = [PROMPT.encode()[index % len(PROMPT)] for index in range(begin, end)]
        meta: dict[str, object] = {
            "id": "0" * 32,
            "prompt_tokens": len(PROMPT),
            "completion_tokens": end,
            "finish_reason": None,
        }
        if end == self.tokens:
            meta |= {"finish_reason": {"type": "length", "length": end}, "e2e_latency": 0.0123456789}
        return json.dumps({"text": bytes(ids).decode(), "output_ids": ids, "meta_info": meta}, separators=(",", ":"))


class Server:
    """
    A process that serves one side.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """
        Wait until the process prints its address.
        """
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://([\d.]+:\d+)", line)
        if found is None:
            raise RuntimeError(f"{process.args!r} did not start: it printed {line!r}")
        self.address = found[1]
        self._proc = Path("/proc", str(process.pid))

    def cpu(self) -> float:
        """
        CPU seconds (user and system) of all its threads so far.
        """
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """
        Resident memory in megabytes.
        """
        return int((self._proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextlib.contextmanager
def servers(sides: Sequence[str], cases: Sequence[Case]) -> Iterator[dict[tuple[str, bool], Server]]:
    """
    Run a server for each side, with and without incremental streaming. The keys are (side, incremental).
    """
    HOME.mkdir(parents=True, exist_ok=True)
    answers = HOME / "answers.json"
    with contextlib.ExitStack() as running:
        started = {}
        for incremental in sorted({case.kind == "incremental" for case in cases}):
            for side in sides:
                if side == "axum":
                    of = [case for case in cases if (case.kind == "incremental") == incremental]
                    answers.write_text(json.dumps({case.body: case.pieces for case in of}), encoding="utf-8")
                command = [*_command(side, answers), *([INCREMENTAL] if incremental and side != "axum" else [])]
                variables = {**os.environ, "PYTHONPATH": str(environment.ROOT / "rust/python")}
                process = running.enter_context(
                    subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
                )
                running.callback(process.kill)
                started[side, incremental] = Server(process)
        yield started


def _command(side: str, answers: Path) -> list[str]:
    if side == "ours":
        return [
            environment.main_environment().python,
            "-m",
            "sglang.srt.rust_server",
            "--port",
            "0",
            "--log-level",
            "warning",
        ]
    if side == "fastapi":
        peer = environment.Environment(
            HOME / "venv", environment.main_environment().python, ("msgspec",), locked=(PEER,)
        )
        peer.ready()
        return [peer.python, str(environment.ROOT / "ci/server_peer.py")]
    return [program("null_scheduler")] if side == "null" else [program("bare_axum"), str(answers)]


@cache
def _programs() -> dict[str, str]:
    command = [
        "cargo",
        "build",
        "--locked",
        "--release",
        "-p",
        "sglang-server",
        "--examples",
        "--message-format",
        "json-render-diagnostics",
    ]
    built = subprocess.run(command, check=False, cwd=environment.ROOT / "rust", stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        raise RuntimeError("the programs of rust/sglang-server/examples do not compile")
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}


def program(name: str) -> str:
    """
    Build the crate's example programs, once, and return the path of one.
    """
    return _programs()[name]
