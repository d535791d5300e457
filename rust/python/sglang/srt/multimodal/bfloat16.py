"""
Converts float32 to bf16, stored as uint16 bits because NumPy has no bf16 type.

Invariant: values are rounded to nearest, ties to even. Only `as_torch` imports torch, when it
is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """
    The bits of the bf16 numbers nearest to *values*, which must be finite. The shape is kept.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    # Half of the lowest kept bit if that bit is set, else one less: ties round to even.
    half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    rounded: NDArray[np.uint32] = (bits + half) >> np.uint32(16)
    return rounded.astype(np.uint16)


def as_torch(bits: NDArray[np.uint16]) -> Any:  # noqa: ANN401 -- torch is no dependency, so its types are not known
    """
    A torch tensor of dtype `bfloat16` over the memory of *bits*, of the same shape and strides.

    Raises `ImportError` if torch is not installed.
    """
    torch = importlib.import_module("torch")
    # torch supports uint16 only in part; int16 has the same bits.
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
