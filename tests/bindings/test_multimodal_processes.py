"""
`_multimodal` in processes that fork, receive signals, exit during a call, or set invalid numbers of threads.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: `work` calls every kind of function that uses the thread pool. `server` runs *action* twice during each response.
PREAMBLE = """
import hashlib, io, json, os, signal, socket, sys, threading
import numpy as np
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common, dsv41, inkling, qwen_vl

IMAGE = np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8)
SPEC = json.dumps({
    "image_token_id": 9, "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
    "min_pixels": 3136, "max_pixels": 1003520, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
})

def file(kind):
    file = io.BytesIO()
    Image.fromarray(IMAGE).save(file, kind)
    return file.getvalue()

JPEG, PNG = file("JPEG"), file("PNG")

def work():
    digest = hashlib.sha256(common.resize_rgb(IMAGE, 301, 207))
    for height, width, bits in inkling.decode_patchify_batch([JPEG, PNG], 40, 1.5):
        digest.update(bits)
    digest.update(dsv41.resize_patchify(IMAGE, (700, 700), (600, 700), (50, 0), 14))
    digest.update(qwen_vl.process_mm([9, 9], [JPEG, PNG], SPEC)[1])
    return digest.hexdigest()

def server(action):
    listener = socket.create_server(("127.0.0.1", 0))
    def serve():
        while True:
            connection, _ = listener.accept()
            connection.recv(1 << 16)
            action()
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\npix")
            action()
            connection.sendall(b"els")
            connection.close()
    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/"
"""


def run(program: str, **environment: str) -> str:
    """
    The output of a program after the preamble. It must exit with 0 and write nothing to stderr.
    """
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), "")
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + program],
        env={**os.environ, **proxies, "REQUEST_TIMEOUT": "60", **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


FORKS = """
url = server(lambda: None)
expected = work()
assert common.fetch_bytes(url) == b"pixels"
stop = threading.Event()

def busy():
    while not stop.is_set():
        work()

others = [threading.Thread(target=busy) for _ in range(BUSY)]
for other in others:
    other.start()
statuses = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if work() == expected and common.fetch_bytes(url) == b"pixels" else 1)
    statuses.append(os.waitpid(child, 0)[1])
stop.set()
for other in others:
    other.join()
print(statuses == [0] * 10)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("busy", [0, 3], ids=["idle", "busy"])
def test_forked_children_work_and_fetch(busy: int) -> None:
    """
    A forked child does not inherit threads, so it must not wait for a thread of its parent.

    This holds even if the parent's threads were busy at the fork.
    """
    assert run(FORKS.replace("BUSY", str(busy))) == "True\n"


SIGNALS = """
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
print(common.fetch_bytes(server(lambda: [os.kill(os.getpid(), signal.SIGUSR1) for _ in range(100)])), len(seen) > 0)
try:
    common.fetch_bytes(server(lambda: os.kill(os.getpid(), signal.SIGINT)))
except KeyboardInterrupt:
    print("interrupted")
print(common.fetch_bytes(server(lambda: None)))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_signal_handlers_run_after_a_call() -> None:
    """
    A signal does not interrupt a call. Its handler runs when the call returns; SIGINT raises `KeyboardInterrupt` then.
    """
    assert run(SIGNALS) == "b'pixels' True\ninterrupted\nb'pixels'\n"


EXIT_WHILE_BUSY = """
started = threading.Barrier(5)

def busy():
    work()
    started.wait()
    while True:
        work()

for _ in range(4):
    threading.Thread(target=busy, daemon=True).start()
started.wait()
print("done")
"""


def test_interpreter_can_exit_during_a_call() -> None:
    """
    Daemon threads that are in a call end with the process, without a crash or a message.
    """
    for _ in range(5):
        assert run(EXIT_WHILE_BUSY) == "done\n"


SIXTEEN_THREADS = """
expected = work()
got = []
threads = [threading.Thread(target=lambda: got.append(work())) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(got == [expected] * 16)
"""


def test_sixteen_threads_get_the_same_bits() -> None:
    """
    All Python threads share one thread pool.
    """
    assert run(SIXTEEN_THREADS) == "True\n"


#: Prints the digest of the work, and how many threads the pool has.
COUNT_THREADS = """
def tasks():
    return len(os.listdir("/proc/self/task"))

before = tasks()
print(work(), tasks() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize("number", ["0", "-1", "abc", "", " 4", "1e3", "9" * 30])
def test_invalid_number_of_threads_is_ignored(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The pool has the default size: one thread per core, at most eight.
    """
    monkeypatch.delenv("SGL_MM_RS_THREADS", raising=False)

    assert run(COUNT_THREADS, SGL_MM_RS_THREADS=number) == run(COUNT_THREADS)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_number_of_threads_is_limited() -> None:
    """
    The pool has at most 1024 threads. If the system refuses that many, the work is done without a pool.
    """
    assert int(run(COUNT_THREADS, SGL_MM_RS_THREADS="99999999").split()[1]) in (0, 1024)


CHANGING_ENVIRONMENT = """
stop = threading.Event()
for index in range(3000):
    os.environ[f"FILLER_{index}"] = ""

def fetch():
    while not stop.is_set():
        try:
            common.fetch_bytes("http://127.0.0.1:1/")
        except ValueError:
            pass

others = [threading.Thread(target=fetch) for _ in range(4)]
for other in others:
    other.start()
for turn in range(30):
    for index in range(300):
        os.environ[f"CHANGED_{turn}_{index}"] = "x" * index
    for index in range(300):
        del os.environ[f"CHANGED_{turn}_{index}"]
stop.set()
for other in others:
    other.join()
print("done")
"""


def test_environment_can_change_during_a_fetch() -> None:
    """
    The environment is read before the interpreter lock is released: C's `getenv` may crash during a `putenv`.
    """
    assert run(CHANGING_ENVIRONMENT) == "done\n"
