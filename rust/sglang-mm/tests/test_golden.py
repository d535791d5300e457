"""
Family `inkling` gives the patches that `golden.json` keeps.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from generate_golden import FILE, PATCH_SIZE, SIZES, Fixture, digest, fixture, fixtures, png
from pillow_oracle import noise
from sglang.srt.rust_extensions._multimodal import inkling

GOLDEN: list[Fixture] = json.loads(FILE.read_bytes())


def test_the_file_is_what_is_generated() -> None:
    """
    No fixture is of another picture or another formula.
    """
    assert fixtures() == GOLDEN


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden['height']}x{golden['width']}")
def test_patches(golden: Fixture) -> None:
    """
    The pixels, as an array and as a PNG, give the golden bits.
    """
    image = noise(golden["height"], golden["width"])

    height, width, patches = inkling.decode_patchify(png(image), PATCH_SIZE)

    assert golden == {"height": height, "width": width, "pixels": digest(image), "patches": digest(patches)}
    np.testing.assert_array_equal(patches, inkling.patchify_rgb(image, PATCH_SIZE))


def test_a_batch_is_its_images() -> None:
    """
    All pictures in one call give what each gives alone.
    """
    batch = inkling.decode_patchify_batch([png(noise(*size)) for size in SIZES], PATCH_SIZE)

    assert [(golden["height"], golden["width"], golden["patches"]) for golden in GOLDEN] == [
        (height, width, digest(patches)) for height, width, patches in batch
    ]


def test_another_picture_has_another_digest() -> None:
    """
    The digests can tell pictures apart.
    """
    assert len({golden["patches"] for golden in GOLDEN}) == len(GOLDEN)
    assert fixture(41, 40)["patches"] not in {golden["patches"] for golden in GOLDEN}
