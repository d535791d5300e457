"""
Measure one side of the media benchmark: digest of the result, time, peak memory.

    python ci/media_worker.py SIDE IMAGES-JSON

Reads requests from stdin, one JSON object per line, and answers each with a JSON object.

Invariant: one side per process, so that no side shares a heap with another.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from media_ways import BY_NAME, SIDES, Job, opened
from PIL import Image
from sglang.srt.rust_extensions._multimodal import qwen_vl

if TYPE_CHECKING:
    from media_ways import Call


def digest(call: Call) -> dict[str, Any]:
    """
    Return a digest of the result, for comparison with other sides.
    """
    result = np.ascontiguousarray(call())
    return {"digest": hashlib.sha256(result.tobytes()).hexdigest(), "bytes": result.nbytes}


def timed(call: Call, calls: int) -> dict[str, Any]:
    """
    Return the seconds of one call: CPU (user and system, all threads) and wall.
    """
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        call()
    return {"cpu": (time.process_time() - cpu) / calls, "wall": (time.perf_counter() - wall) / calls}


def peak(side: str, job: Job, data: bytes) -> dict[str, Any]:
    """
    Return the peak of bytes that the first call allocates.

    It runs in a child that was forked before this process ran a job. The child first processes a tiny image, so
    that code and threads are loaded.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(_peak_here(side, job, data)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="ascii") as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return {"peak": int(found)}


def _peak_here(side: str, job: Job, data: bytes) -> int:
    tiny = io.BytesIO()
    Image.new("RGB", (48, 48)).save(tiny, "PNG")
    SIDES[side](job, tiny.getvalue())()
    call = SIDES[side](job, data)
    ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def main(side: str, images: dict[str, str]) -> int:
    """
    Answer requests until stdin ends.
    """
    if side.startswith("hf_"):
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        torch.set_num_threads(int(os.environ["SGL_MM_RS_THREADS"]))

    @cache
    def read(image: str) -> bytes:
        name, _, size = image.partition("@")
        return _bitmap(read(name), size) if size else Path(images[name]).read_bytes()

    @cache
    def call_of(job: Job) -> Call:
        return SIDES[side](job, read(job.image))

    for line in sys.stdin:
        request = json.loads(line)
        job = Job(**{**request["job"], "size": tuple(request["job"]["size"])})
        if request["do"] == "peak":
            answer = peak(side, job, read(job.image))
        elif request["do"] == "digest":
            answer = digest(call_of(job))
        else:
            answer = timed(call_of(job), request["calls"])
        print(json.dumps(answer), flush=True)
    return 0


def _bitmap(data: bytes, size: str) -> bytes:
    """
    Return a bitmap, which costs almost nothing to decode.

    For `name@bmp` it has the image's size, for `name@SETTING` the size to which that setting resizes.
    """
    image = opened(data)
    if size != "bmp":
        setting = BY_NAME[size]
        height, width = qwen_vl.smart_resize_py(
            image.height, image.width, setting.factor, setting.min_pixels, setting.max_pixels
        )
        image = image.resize((width, height))
    file = io.BytesIO()
    image.save(file, "BMP")
    return file.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
