"""
`common.resize_rgb(..., "aten_u8")` gives the bytes of torch's antialiased bicubic resize, for both memory layouts.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pillow_oracle import noise
from sglang.srt.rust_extensions._multimodal import common
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as vision

SIDES = st.one_of(st.integers(1, 9), st.integers(1, 700))
PLANES, INTERLEAVED = torch.contiguous_format, torch.channels_last


def torch_resize(image: NDArray[np.uint8], width: int, height: int, layout: torch.memory_format) -> NDArray[np.uint8]:
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].contiguous(memory_format=layout)
    resized = vision.resize(planes, [height, width], interpolation=InterpolationMode.BICUBIC, antialias=True)
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy()).ravel()


def check(before: tuple[int, int], after: tuple[int, int]) -> None:
    """
    The bytes equal those of torch.
    """
    image = noise(*before)
    height, width = after
    resized = common.resize_rgb(image, width, height, "aten_u8")
    # torch 2.14 fails an internal assertion if it resizes planes to one pixel.
    for layout in (INTERLEAVED,) if after == (1, 1) else (INTERLEAVED, PLANES):
        assert np.array_equal(torch_resize(image, width, height, layout), resized), layout


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((480, 640), (476, 644), id="lower and wider: horizontal pass still first"),
        pytest.param((1080, 1920), (728, 1316), id="full HD for Qwen2-VL"),
        pytest.param((683, 1024), (686, 1036), id="slightly enlarged"),
        pytest.param((40, 50), (56, 56), id="enlarged"),
        pytest.param((300, 100), (60, 50), id="portrait"),
        pytest.param((1, 1), (7, 5), id="from one pixel"),
        pytest.param((97, 89), (1, 1), id="to one pixel"),
        pytest.param((40, 40), (40, 40), id="same size"),
        pytest.param((40, 40), (40, 17), id="width only"),
        pytest.param((40, 40), (17, 40), id="height only"),
        pytest.param((2048, 3), (8, 3), id="256 times lower: weights of 22 bits"),
        pytest.param((3, 4096), (3, 2), id="2048 times narrower"),
    ],
)
def test_resize_equals_torchs(before: tuple[int, int], after: tuple[int, int]) -> None:
    """
    The sizes are typical and extreme ones.
    """
    check(before, after)


@given(before=st.tuples(SIDES, SIDES), after=st.tuples(SIDES, SIDES))
@settings(max_examples=200, deadline=None)
def test_resize_equals_torchs_for_any_sizes(before: tuple[int, int], after: tuple[int, int]) -> None:
    """
    The sizes and target sizes are random.
    """
    check(before, after)
