"""
bf16 numbers, as their bits: NumPy has no such type.

Invariant: rounding is to nearest, ties to even; torch is imported only by who asks for
its tensors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """
    The bits of the bf16 numbers nearest to finite float32 *values*, in their shape.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    # Just below a half, and a half where the kept part is odd.
    half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    rounded: NDArray[np.uint32] = (bits + half) >> np.uint32(16)
    return rounded.astype(np.uint16)


def as_torch(bits: NDArray[np.uint16]) -> Any:  # noqa: ANN401 -- torch is no dependency, so its types are not known
    """
    A torch tensor of dtype `bfloat16` over the memory of *bits*, of the same shape and strides.

    Raises `ImportError` where torch is not installed.
    """
    torch = importlib.import_module("torch")
    # torch has no arithmetic for uint16 everywhere, and reinterprets int16 just as well.
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
