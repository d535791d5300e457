"""
Show the server: start it with the echo engine, stream one answer, stop it.

Invariant: the server has ended when this process ends, also after an error. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time

#: Seconds within which the server stops and answers.
_STOP = 20

#: Seconds that the engine takes per token; without a delay all tokens would arrive in one event.
STEP = 0.02

#: Characters of one to four bytes; the engine makes each byte a token.
PROMPT = "native extensions that just import: café, 한국어, 👍"


def main() -> int:
    """
    Return 0 if the answer is the prompt and the server stops cleanly, 130 after an interrupt.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run()
    except KeyboardInterrupt:
        return 130


def _run() -> int:
    start = time.monotonic()
    engine = ("--engine", "echo", "--engine-args", json.dumps({"delay": STEP}))
    command = [sys.executable, "-m", "sglang.srt.rust_server", *engine, "--port", "0", "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            host, port = _address(server)
            print(f"listening on {host}:{port} after {time.monotonic() - start:.2f} s", flush=True)
            answered = _stream(host, port)
            server.send_signal(signal.SIGTERM)
            begin = time.monotonic()
            code = server.wait(_STOP)
        finally:
            server.kill()
    print(f"stopped with exit code {code} after {time.monotonic() - begin:.2f} s", flush=True)
    return 0 if answered == PROMPT and code == 0 else 1


def _address(server: subprocess.Popen[str]) -> tuple[str, int]:
    assert server.stdout is not None
    line = server.stdout.readline()
    found = re.search(r"http://([^/:]+):(\d+)", line)
    if found is None:
        raise SystemExit(f"the server did not start: it printed {line!r}")
    return found[1], int(found[2])


def _stream(host: str, port: int) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=_STOP)
    body = json.dumps({"text": PROMPT, "stream": True, "sampling_params": {"max_new_tokens": 200}})
    connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != http.client.OK:
        raise SystemExit(f"status {response.status}: {response.read().decode(errors='replace')}")
    text, frames = "", 0
    for line in response:
        data = line.decode().removeprefix("data: ").strip()
        if not data:
            continue
        if data == "[DONE]":
            break
        whole = json.loads(data)["text"]
        print(whole[len(text) :], end="", flush=True)
        text, frames = whole, frames + 1
    print(f"\n{frames} events", flush=True)
    connection.close()
    return text


if __name__ == "__main__":
    sys.exit(main())
