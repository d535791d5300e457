"""
Media preprocessing for multimodal models, exact to Pillow's bytes.

Each submodule can be imported both ways: `from sglang.srt.rust_extensions._multimodal
import common` and `import sglang.srt.rust_extensions._multimodal.common`.

Throughout: the interpreter is released while Rust works; arrays come back flat, own
their memory and may be reshaped at no cost; the bytes do not depend on the number of
threads. Encoded files are `bytes` (borrowed, never copied), `bytearray`, `memoryview`
or a sequence of small ints; a `str` is a `TypeError`. An int that is negative or too
large is an `OverflowError`; what is wrong with a value is a `ValueError`; a `MemoryError`
says that an argument, or the bytes that come back, could not be copied.

`SGL_MM_RS_THREADS`, read once, sets the number of threads; without it they are as many
as the cores, at most eight.
"""

from . import common as common
from . import dsv41 as dsv41
from . import inkling as inkling
from . import qwen_vl as qwen_vl

__all__ = ["common", "dsv41", "inkling", "qwen_vl"]
