"""
Threads in the model families: results do not depend on their number, and calls release the interpreter lock.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
import thread_counts
from image_files import saved
from pillow_oracle import noise
from sglang.srt.rust_extensions._multimodal import dsv41, inkling

if TYPE_CHECKING:
    from collections.abc import Callable

DIGEST = """
import hashlib, io, numpy as np
from PIL import Image
from sglang.srt.rust_extensions._multimodal import dsv41, inkling
digest = hashlib.sha256()
files = []
for size in [(301, 407), (40, 40), (999, 30)]:
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    files.append(file.getvalue())
    digest.update(inkling.patchify_rgb(image, 14))
    digest.update(dsv41.resize_patchify(image, (518, 308), (511, 300), (3, 5), 14))
for height, width, bits, content in inkling.preprocess_images(files, 40, 2.0, 700):
    digest.update(bits)
print(digest.hexdigest())
"""


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    """
    One to four threads give the same bits.
    """
    assert len(thread_counts.outputs(DIGEST)) == 1


IMAGE = noise(600, 800)
BMP = saved(IMAGE, "BMP")

CALLS: dict[str, Callable[[], object]] = {
    "inkling.patchify_rgb": lambda: inkling.patchify_rgb(IMAGE, 40),
    "inkling.decode_patchify": lambda: inkling.decode_patchify(BMP, 40, 1.5),
    "inkling.decode_patchify_batch": lambda: inkling.decode_patchify_batch([BMP, BMP], 40, 1.5),
    "inkling.preprocess_images": lambda: inkling.preprocess_images([BMP, BMP], 40, 1.5),
    "inkling.rescale_patchify_hash": lambda: inkling.rescale_patchify_hash(IMAGE, BMP, 40, 1.5),
    "dsv41.resize_patchify": lambda: dsv41.resize_patchify(IMAGE, (700, 700), (600, 700), (50, 0), 14),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_call_releases_the_interpreter_lock(call: Callable[[], object]) -> None:
    """
    Another Python thread runs during a call, although the interpreter itself would not switch threads.
    """
    interval = sys.getswitchinterval()
    turns = 0
    running = threading.Event()
    done = threading.Event()

    def count_turns() -> None:
        nonlocal turns
        running.set()
        while not done.is_set():
            turns += 1
            time.sleep(0)

    other = threading.Thread(target=count_turns)
    other.start()
    running.wait()
    try:
        # The interval is longer than any call, so the other thread runs only if the call releases the lock.
        sys.setswitchinterval(60)
        before = turns
        call()
        after = turns
    finally:
        sys.setswitchinterval(interval)
        done.set()
        other.join()

    assert after > before
