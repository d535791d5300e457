"""
Media preprocessing for multimodal models, with the same bytes as Pillow.

Each submodule can be imported both ways: `from sglang.srt.rust_extensions._multimodal
import common` and `import sglang.srt.rust_extensions._multimodal.common`.

These rules hold for all functions:

- The interpreter lock is released while Rust works.
- Returned arrays are flat, own their memory and can be reshaped without a copy.
- The bytes do not depend on the number of threads.
- Encoded files are `bytes` (borrowed, never copied), `bytearray`, `memoryview` or a sequence of ints from 0 to 255.
- Wrong types, such as `str` for an encoded file, raise `TypeError`. Negative or too large ints raise `OverflowError`.
- Invalid values raise `ValueError`. `MemoryError` means that an argument or a `bytes` result could not be copied.

`SGL_MM_RS_THREADS` sets the number of threads and is read once. The default is the number of cores, at most eight.
"""

from . import common as common
from . import dsv41 as dsv41
from . import inkling as inkling
from . import qwen_vl as qwen_vl

__all__ = ["common", "dsv41", "inkling", "qwen_vl"]
