"""
Family `inkling` gives the patches whose digests are in `golden.json`.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from generate_golden import FILE, PATCH_SIZE, SIZES, Fixture, digest, fixture, fixtures, png
from pillow_oracle import noise
from sglang.srt.rust_extensions._multimodal import inkling

GOLDEN: list[Fixture] = json.loads(FILE.read_bytes())


def test_golden_file_is_up_to_date() -> None:
    """
    `generate_golden.py` gives the content of `golden.json`.
    """
    assert fixtures() == GOLDEN


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden['height']}x{golden['width']}")
def test_patches_equal_the_golden_ones(golden: Fixture) -> None:
    """
    An image gives the golden bits, both as an array and as a PNG.
    """
    image = noise(golden["height"], golden["width"])

    height, width, patches = inkling.decode_patchify(png(image), PATCH_SIZE)

    assert golden == {"height": height, "width": width, "pixels": digest(image), "patches": digest(patches)}
    np.testing.assert_array_equal(patches, inkling.patchify_rgb(image, PATCH_SIZE))


def test_batch_equals_its_images() -> None:
    """
    All images in one call give the same patches as one call per image.
    """
    batch = inkling.decode_patchify_batch([png(noise(*size)) for size in SIZES], PATCH_SIZE)

    assert [(golden["height"], golden["width"], golden["patches"]) for golden in GOLDEN] == [
        (height, width, digest(patches)) for height, width, patches in batch
    ]


def test_different_images_have_different_digests() -> None:
    """
    The digests distinguish images, so the other tests would detect wrong patches.
    """
    assert len({golden["patches"] for golden in GOLDEN}) == len(GOLDEN)
    assert fixture(41, 40)["patches"] not in {golden["patches"] for golden in GOLDEN}
