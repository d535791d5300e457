"""
The extension's `Server` in a process: fork, signals and interpreter exit.

Each case runs in its own process, so that a hang or crash is detected.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from children import expect_line, killed_at_exit

#: Timeout of a case, in seconds.
_TIMEOUT = 60

_START = """
import os, signal, socket, sys, threading, time
from types import SimpleNamespace
from sglang.srt.rust_server import config, context
from sglang.srt.rust_server.engine import EngineInfo
from sglang.srt.rust_server.extension import load_extension
from sglang.srt.rust_server.scheduler import EngineModel

extension = load_extension()
context.set_context(context.Context(serving=context.Serving(port=0)))
info = EngineInfo(context_len=1024, vocab_size=300, max_total_num_tokens=64, max_running_requests=1)
scheduler = SimpleNamespace(model_config=EngineModel(info), max_total_num_tokens=64,
    rust_server_tokenizer_path=lambda: None, compute_num_reserved_tokens=lambda: 0)
args = config._build_server_args(scheduler, extension=extension)
start = lambda **options: extension.Server(args, **options)

def ask(server):
    client = socket.create_connection(server.address)
    body = b'{"input_ids": [1], "stream": true}'
    client.sendall(b"POST /generate HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    assert server.wait_request(20_000)
    return client
"""


def run(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _START + body], capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("server = start()", id="idle"),
        pytest.param("server = start(); client = ask(server)", id="request in flight"),
        pytest.param("server = start(); cycle = [server]; cycle.append(cycle)", id="reference cycle"),
        pytest.param(
            "server = start(); "
            "threading.Thread(target=server.wait_request, args=(10**9,), daemon=True).start(); time.sleep(0.1)",
            id="thread in wait_request",
        ),
        pytest.param(
            """
server = start(from_scheduler_cap=1)
def flood():
    while server.push_error("nobody", "x" * 100_000):
        pass
for _ in range(8):
    threading.Thread(target=flood, daemon=True).start()
time.sleep(0.1)
""",
            id="eight threads in push_error",
        ),
    ],
)
def test_the_interpreter_exits_without_a_shutdown(body: str) -> None:
    """
    The exit code is 0, and there is no output.
    """
    ended = run(body)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_methods_fail_in_a_forked_child() -> None:
    """
    Every method raises, dropping the server is quick, and the parent's server still works.
    """
    ended = run("""
server = start()
methods = [
    server.recv_requests, server.wait_request,
    lambda: server.push_error("x", "y"), lambda: server.push_control_result("x", b""),
    lambda: server.push_decode_result_batch(b"", []), server.shutdown,
]
child = os.fork()
if child == 0:
    refused = 0
    for method in methods:
        try:
            method()
        except RuntimeError as error:
            refused += "cannot be used in its forked child" in str(error)
    begin = time.monotonic()
    del methods, method, server
    os._exit(0 if refused == 6 and time.monotonic() - begin < 1 else 1)
print(os.waitpid(child, 0)[1])
client = ask(server)
print(len(server.recv_requests()))
""")

    assert (ended.stdout, ended.returncode) == ("0\n1\n", 0), ended.stderr


def test_a_forked_child_does_not_keep_the_port_listening() -> None:
    """
    The child inherits the socket. After the parent's shutdown, connections must be refused anyway.
    """
    ended = run("""
server = start()
child = os.fork()
if child == 0:
    signal.pause()
address = server.address
server.shutdown(0)
try:
    socket.create_connection(address, timeout=5)
except ConnectionRefusedError:
    print("refused")
os.kill(child, signal.SIGKILL)
""")

    assert (ended.stdout, ended.returncode) == ("refused\n", 0), ended.stderr


@pytest.mark.parametrize(
    "wait",
    [
        pytest.param("print('waiting', flush=True); server.wait_request(10**7)", id="wait_request"),
        pytest.param("client = ask(server); print('waiting', flush=True); server.shutdown(10**4)", id="shutdown"),
    ],
)
def test_ctrl_c_ends_a_wait(wait: str) -> None:
    """
    The wait ends even if it has a long timeout.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _START + "server = start(); " + wait],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed_at_exit(process):
        expect_line(process, "waiting")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=_TIMEOUT)

    assert process.returncode == -signal.SIGINT
    assert error.endswith("KeyboardInterrupt\n")


def test_recv_requests_does_not_block_while_another_thread_waits() -> None:
    """
    `recv_requests` holds the GIL, so it must never block.
    """
    ended = run("""
server = start()
waiter = threading.Thread(target=server.wait_request, args=(3000,))
waiter.start()
begin = time.monotonic()
while waiter.is_alive() and time.monotonic() - begin < 1:
    start_of_call = time.monotonic()
    server.recv_requests()
    assert time.monotonic() - start_of_call < 1, "it blocked"
server.shutdown(0)
waiter.join()
print("ended")
""")

    assert (ended.stdout, ended.returncode) == ("ended\n", 0), ended.stderr


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("start(to_scheduler_cap=0)", "to_scheduler_cap is 0; it must be from 1 to "),
        ("start(stage_channel_cap=2**63)", "stage_channel_cap is 9223372036854775808; it must be from 1 to "),
        ("extension.FrontendConfig(read_timeout=1e19)", "read_timeout must be a number of seconds from 0 to "),
    ],
)
def test_impossible_settings_are_refused(body: str, problem: str) -> None:
    """
    The constructor raises `ValueError`.
    """
    ended = run(body)

    assert problem in ended.stderr.splitlines()[-1]
    assert ended.stderr.splitlines()[-1].startswith("ValueError: ")
