"""
The bf16 bits of the image processors are those of torch's bfloat16.
"""

from __future__ import annotations

import numpy as np
import torch
from image_files import saved
from PIL import Image
from pillow_oracle import Bits, noise
from sglang.srt.multimodal.bfloat16 import bf16_bits
from sglang.srt.multimodal.deepseek_v41_image_processing import DeepseekV41ImageProcessor, ImagePlanner
from sglang.srt.multimodal.inkling.image_processing_rust import InklingRustImageProcessor


def bits(tensor: torch.Tensor) -> Bits:
    """
    The bits of a bfloat16 tensor.
    """
    array: Bits = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    return array


def test_rounding_equals_torchs() -> None:
    """
    float32 values are rounded to the same bf16 bits.
    """
    values = np.random.default_rng(0).normal(0, 3, 100_000).astype(np.float32)

    np.testing.assert_array_equal(bits(torch.from_numpy(values).to(torch.bfloat16)), bf16_bits(values))


def test_dsv41_tensor_shares_memory_with_the_array() -> None:
    """
    The tensor also has the shape and the values of the array.
    """
    image = DeepseekV41ImageProcessor(ImagePlanner(14, 2))([Image.fromarray(noise(30, 30))])[0]

    tensor = image.torch_pixel_values()

    assert tensor.dtype == torch.bfloat16
    assert tuple(tensor.shape) == image.pixel_values.shape
    np.testing.assert_array_equal(image.pixel_values, bits(tensor))
    image.pixel_values[0, 0, 0, 0] = 0x3F80
    assert tensor[0, 0, 0, 0].item() == 1.0


def test_inkling_tensor_equals_the_array() -> None:
    """
    The tensor has the shape and the values of the array, and its two frames share memory.
    """
    image = InklingRustImageProcessor()([saved(noise(40, 40))])[0]

    tensor = image.torch_pixel_values()

    assert tensor.dtype == torch.bfloat16
    assert tuple(tensor.shape) == image.pixel_values.shape
    assert tensor.stride(1) == 0
    np.testing.assert_array_equal(image.pixel_values, bits(tensor))
