"""
Measure the speed of one built module: `python ci/edit_calls.py MODULE LIBRARY`.

It loads the library under its own name, without an import hook, and answers each line of stdin
with the CPU seconds of one call (user and system, all threads of this process).

Invariant: one library per process, and every library of a module does the same work.
"""

from __future__ import annotations

import http.client
import importlib.util
import io
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from sglang.srt.rust_extensions._server import Server

ROOT = Path(__file__).resolve().parent.parent
#: A line of stdin is answered after about this many seconds of calls.
_SECONDS = 0.3


def loaded(leaf: str, library: str) -> ModuleType:
    """
    Load a library as module *leaf*; the file may have any name.
    """
    spec = importlib.util.spec_from_file_location(leaf, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _small(module: ModuleType) -> Callable[[], object]:
    return lambda: module.sum_of_roots(1_000_000)


def _radix_tree(module: ModuleType) -> Callable[[], object]:
    tokens = list(range(1 << 16))
    return lambda: module.get_hash_str(tokens, None, 64)


def _multimodal(module: ModuleType) -> Callable[[], object]:
    import numpy as np
    from PIL import Image

    sys.path.insert(0, str(ROOT / "tests/oracles"))
    from qwen_vl_settings import SETTINGS

    # Smooth with some noise, as a photo is: pure noise would spend most of the time in the JPEG decoder.
    rows, columns = np.mgrid[:480, :640]
    noise = np.random.default_rng(0).integers(0, 16, (480, 640, 3))
    pixels = np.stack([rows * 200 // 480, columns * 200 // 640, (rows + columns) * 200 // 1120], axis=2) + noise
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG", quality=90)
    # Qwen2-VL: 640x480 is no multiple of its factor, 28, so the image is resized. For Qwen3-VL it would not be.
    setting = SETTINGS[0]
    size = module.qwen_vl.smart_resize_py(480, 640, setting.factor, setting.min_pixels, setting.max_pixels)
    assert size != (480, 640), "the call must include a resize"
    data, spec = file.getvalue(), setting.spec("pil")
    return lambda: module.qwen_vl.preprocess(data, spec)


def _server(module: ModuleType) -> Callable[[], object]:
    from sglang.srt.rust_server import config, context
    from sglang.srt.rust_server.engine import EngineInfo
    from sglang.srt.rust_server.scheduler import EngineModel

    info = EngineInfo(context_len=1 << 21, vocab_size=300, max_total_num_tokens=1 << 21, max_running_requests=1)
    scheduler: Any = SimpleNamespace(
        model_config=EngineModel(info),
        max_total_num_tokens=info.max_total_num_tokens,
        rust_server_tokenizer_path=lambda: None,
        compute_num_reserved_tokens=lambda: 0,
    )
    context.set_context(context.Context(serving=context.Serving(port=0)))
    server: Server = module.Server(config._build_server_args(scheduler, extension=module))  # noqa: SLF001  # as `RustServer` does
    host, port = server.address
    connection = http.client.HTTPConnection(host, port, timeout=60)
    body = json.dumps({"prompt": "native extensions, just imported. " * 30_000})

    # The server stops when its object is dropped, so the call keeps it.
    def call(_server: Server = server) -> None:
        connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == http.client.OK, text[:200]

    return call


CALLS = {"_small": _small, "_radix_tree": _radix_tree, "_multimodal": _multimodal, "_server": _server}


def main(leaf: str, library: str) -> int:
    """
    Answer until stdin ends.
    """
    os.environ["SGL_MM_RS_THREADS"] = "1"
    call = CALLS[leaf](loaded(leaf, library))
    call()
    for _ in sys.stdin:
        start, cpu, calls = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - start < _SECONDS:
            call()
            calls += 1
        print((time.process_time() - cpu) / calls, flush=True)
    # End without waiting for the server's threads, which wait for requests.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
