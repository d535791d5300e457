"""
`_multimodal` in processes that fork, are interrupted, end early or ask for odd numbers of threads.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Every way into the pool, and a server that does something to the process in the midst of a fetch.
PREAMBLE = """
import hashlib, io, json, os, signal, socket, sys, threading
import numpy as np
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common, dsv41, inkling, qwen_vl

IMAGE = np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8)
SPEC = json.dumps({
    "image_token_id": 9, "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 1003520,
    "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
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

def server(meanwhile):
    listener = socket.create_server(("127.0.0.1", 0))
    def serve():
        while True:
            connection, _ = listener.accept()
            connection.recv(1 << 16)
            meanwhile()
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\npix")
            meanwhile()
            connection.sendall(b"els")
            connection.close()
    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/"
"""


def run(program: str, **environment: str) -> str:
    """
    What the program prints. It must end well, and soon, and say nothing on the side.
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
ending = threading.Event()

def busy():
    while not ending.is_set():
        work()

others = [threading.Thread(target=busy) for _ in range(BUSY)]
for other in others:
    other.start()
ends = []
for _ in range(10):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if work() == expected and common.fetch_bytes(url) == b"pixels" else 1)
    ends.append(os.waitpid(child, 0)[1])
ending.set()
for other in others:
    other.join()
print(ends == [0] * 10)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("busy", [0, 3], ids=["idle", "busy"])
def test_forked_children_work_and_fetch(busy: int) -> None:
    """
    Whatever the parent's threads do at that moment, its child has none of them and waits for none.
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


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_signals_wait_for_the_end_of_a_call() -> None:
    """
    A handler runs once the call is over and harms it in no way; Ctrl-C is a `KeyboardInterrupt` then.
    """
    assert run(SIGNALS) == "b'pixels' True\ninterrupted\nb'pixels'\n"


EXITS = """
started = threading.Barrier(5)

def busy():
    work()
    started.wait()
    while True:
        work()

for _ in range(4):
    threading.Thread(target=busy, daemon=True).start()
started.wait()
print("over")
"""


def test_an_interpreter_may_end_in_the_midst_of_work() -> None:
    """
    Threads that nobody waits for end with the process, quietly.
    """
    for _ in range(5):
        assert run(EXITS) == "over\n"


CROWD = """
expected = work()
got = []
crowd = [threading.Thread(target=lambda: got.append(work())) for _ in range(16)]
for one in crowd:
    one.start()
for one in crowd:
    one.join()
print(got == [expected] * 16)
"""


def test_sixteen_threads_get_the_same_bits() -> None:
    """
    One pool serves all threads of the interpreter.
    """
    assert run(CROWD) == "True\n"


THREADS = """
def tasks():
    return len(os.listdir("/proc/self/task"))

before = tasks()
print(work(), tasks() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize("number", ["0", "-1", "abc", "", " 4", "1e3", "9" * 30])
def test_odd_numbers_of_threads_are_no_number(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    As without the variable: a thread per core, up to eight.
    """
    monkeypatch.delenv("SGL_MM_RS_THREADS", raising=False)

    assert run(THREADS, SGL_MM_RS_THREADS=number) == run(THREADS)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_mistaken_number_does_not_take_all_threads_of_the_machine() -> None:
    """
    The pool has at most 1024 threads; a system that grants no such number works without a pool.
    """
    assert int(run(THREADS, SGL_MM_RS_THREADS="99999999").split()[1]) in (0, 1024)


ENVIRONMENT = """
over = threading.Event()
for index in range(3000):
    os.environ[f"FILLER_{index}"] = ""

def fetch():
    while not over.is_set():
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
over.set()
for other in others:
    other.join()
print("over")
"""


def test_the_environment_may_change_meanwhile() -> None:
    """
    It is read before other threads of the interpreter run: C's `getenv` and `putenv` at once may crash.
    """
    assert run(ENVIRONMENT) == "over\n"
