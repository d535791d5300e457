"""
The DeepSeek-V4.1 processor: plans follow the published formulas, and Rust and Pillow give the same bits.
"""

from __future__ import annotations

import importlib.abc
import logging
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pillow_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from pillow_oracle import Place, noise
from pillow_version import needs_pillow_13, pillow_13  # noqa: F401 -- the fixture of the mark
from sglang.srt.multimodal.deepseek_v41_image_processing import DeepseekV41ImageProcessor, ImagePlan, ImagePlanner
from sglang.srt.rust_extensions._multimodal import dsv41

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

EXTENSION = "sglang.srt.rust_extensions._multimodal"

RATIOS = st.none() | st.integers(1, 5) | st.floats(0.2, 8)
PLANNERS = st.builds(
    ImagePlanner,
    patch_size=st.integers(1, 32),
    downsample_ratio=st.integers(1, 4),
    max_wh_ratio=RATIOS,
    min_pixels=st.none() | st.integers(1, 500_000),
    max_n_token=st.none() | st.integers(4, 3000),
)
SIDES = st.one_of(st.integers(1, 60), st.integers(1, 9000))


def formula(planner: ImagePlanner, height: float, width: float) -> tuple[int, int]:
    """
    The height and width of the canvas by the published formula, without the limit on tokens.
    """
    p = planner.patch_size
    if planner.max_wh_ratio is not None and width > height * planner.max_wh_ratio:
        width = height * planner.max_wh_ratio
    if planner.min_pixels is not None and 0 < height * width < planner.min_pixels:
        factor = math.sqrt(planner.min_pixels / (height * width))
        height, width = int(height * factor), int(width * factor)
    return max(1, math.ceil(height / p)) * p, max(1, math.ceil(width / p)) * p


def tokens(planner: ImagePlanner, canvas: tuple[int, int]) -> int:
    """
    The number of tokens of a canvas by the published formula.
    """
    rows, columns = (math.ceil(side / planner.patch_size / planner.downsample_ratio) for side in canvas)
    return rows * (columns + 1) + 2


def planned(planner: ImagePlanner, height: int, width: int) -> ImagePlan | None:
    """
    The plan, or None for an image that is too thin.
    """
    try:
        return planner.plan(height, width)
    except ValueError as error:
        if "too thin" not in str(error):
            raise
        return None


@settings(max_examples=500, deadline=None)
@given(planner=PLANNERS, height=SIDES, width=SIDES)
def test_plans_follow_the_formulas(planner: ImagePlanner, height: int, width: int) -> None:
    """
    The canvas has the size of the formula, or a smaller size if the formula gives too many tokens.
    """
    plan = planned(planner, height, width)
    if plan is None:
        return
    canvas = formula(planner, height, width)

    assert plan.grid == (plan.output_size[0] // planner.patch_size, plan.output_size[1] // planner.patch_size)
    assert tokens(planner, plan.output_size) == planner.num_tokens(plan)
    rows, columns = planner.token_grid(plan)
    assert rows * (columns + 1) + 2 == planner.num_tokens(plan)
    if planner.max_n_token is None or tokens(planner, canvas) <= planner.max_n_token:
        assert canvas == plan.output_size
    else:
        assert planner.num_tokens(plan) <= planner.max_n_token
        assert plan.output_size[0] <= canvas[0]
        assert plan.output_size[1] <= canvas[1]


@settings(max_examples=300, deadline=None)
@given(patch_size=st.integers(1, 32), ratio=st.integers(1, 4), limit=st.integers(4, 400), height=SIDES, width=SIDES)
def test_canvas_is_the_largest_within_the_token_limit(
    patch_size: int, ratio: int, limit: int, height: int, width: int
) -> None:
    """
    If the formula exceeds the limit, the longer side gets the largest number of patches within the image and the limit.

    The shorter side is in proportion.
    """
    planner = ImagePlanner(patch_size, ratio, max_n_token=limit)
    plan = planned(planner, height, width)
    if plan is None or tokens(planner, formula(planner, height, width)) <= limit:
        return
    longer, shorter = (height, width) if height >= width else (width, height)
    patches = max(plan.grid) if height != width else plan.grid[0]

    def canvas(patches: int) -> tuple[int, int]:
        other = max(1, patches * shorter // longer)
        rows, columns = (patches, other) if height >= width else (other, patches)
        return rows * patch_size, columns * patch_size

    assert canvas(patches) == plan.output_size
    assert patches == max(1, longer // patch_size) or tokens(planner, canvas(patches + 1)) > limit


@pytest.mark.parametrize("patch_size", [1, 4, 14])
def test_place_equals_that_of_pillows_pad(patch_size: int) -> None:
    """
    For every small size, the image has the place on the canvas that `ImageOps.pad` gives it.
    """
    planner = ImagePlanner(patch_size, 1)
    for height in range(1, 50):
        for width in range(1, 50):
            plan = planner.plan(height, width)
            (top, left), (resize_height, resize_width) = plan.padding_start, plan.resize_size
            padded = ImageOps.pad(Image.new("L", (width, height), 255), plan.output_size[::-1], color=0)

            assert padded.getbbox() == (left, top, left + resize_width, top + resize_height), (height, width)


@settings(max_examples=300, deadline=None)
@given(planner=PLANNERS, height=SIDES, width=SIDES)
def test_image_is_centred_on_the_canvas(planner: ImagePlanner, height: int, width: int) -> None:
    """
    An image that is too wide covers the canvas. Any other image has the canvas's height or width and is centred.
    """
    plan = planned(planner, height, width)
    if plan is None:
        return
    sides = zip(plan.output_size, plan.resize_size, plan.padding_start, strict=True)

    if planner.max_wh_ratio is not None and width >= planner.max_wh_ratio * height:
        assert plan == ImagePlan(plan.output_size, plan.output_size, (0, 0), planner.patch_size)
    assert any(out == resize for out, resize in zip(plan.output_size, plan.resize_size, strict=True))
    for out, resize, start in sides:
        assert 0 < resize <= out
        assert start == round((out - resize) / 2)


@pytest.mark.parametrize(
    ("planner", "size", "expected"),
    [
        pytest.param(
            ImagePlanner(14, 2), (53, 37), ImagePlan((56, 42), (56, 39), (0, 2), 14), id="halves round to even"
        ),
        pytest.param(
            ImagePlanner(14, 2, max_wh_ratio=2), (10, 100), ImagePlan((14, 28), (14, 28), (0, 0), 14), id="too wide"
        ),
        pytest.param(
            ImagePlanner(14, 2, max_wh_ratio=2),
            (50, 100),
            ImagePlan((56, 112), (56, 112), (0, 0), 14),
            id="exactly the maximum ratio",
        ),
        pytest.param(
            ImagePlanner(14, 2, max_wh_ratio=2),
            (100, 10),
            ImagePlan((112, 14), (112, 11), (0, 2), 14),
            id="height is not limited",
        ),
        pytest.param(
            ImagePlanner(10, 1, min_pixels=400), (5, 5), ImagePlan((20, 20), (20, 20), (0, 0), 10), id="enlarged"
        ),
        pytest.param(
            ImagePlanner(10, 1, min_pixels=400), (20, 20), ImagePlan((20, 20), (20, 20), (0, 0), 10), id="large enough"
        ),
        pytest.param(
            ImagePlanner(10, 1, min_pixels=2),
            (1, 1),
            ImagePlan((10, 10), (10, 10), (0, 0), 10),
            id="enlargement rounds down to 1",
        ),
        pytest.param(
            ImagePlanner(10, 1, max_n_token=8),
            (30, 20),
            ImagePlan((20, 10), (15, 10), (2, 0), 10),
            id="too many tokens",
        ),
        pytest.param(
            ImagePlanner(10, 1, max_n_token=11),
            (30, 20),
            ImagePlan((30, 20), (30, 20), (0, 0), 10),
            id="exactly the maximum of tokens",
        ),
    ],
)
def test_plan_of_an_example(planner: ImagePlanner, size: tuple[int, int], expected: ImagePlan) -> None:
    """
    One example per rule, computed by hand.
    """
    assert expected == planner.plan(*size)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"patch_size": 0, "downsample_ratio": 1}, "patch_size must be positive, got 0"),
        ({"patch_size": 1, "downsample_ratio": -1}, "downsample_ratio must be positive"),
        ({"patch_size": 1, "downsample_ratio": 1, "max_wh_ratio": math.nan}, "max_wh_ratio must be positive"),
        ({"patch_size": 1, "downsample_ratio": 1, "max_wh_ratio": math.inf}, "max_wh_ratio must be positive"),
        ({"patch_size": 1, "downsample_ratio": 1, "min_pixels": 0}, "min_pixels must be positive"),
        ({"patch_size": 1, "downsample_ratio": 1, "max_n_token": 3}, "max_n_token must be at least 4"),
    ],
)
def test_invalid_settings_are_refused(settings_: dict[str, Any], message: str) -> None:
    """
    The constructor of the planner raises, and the message names the setting.
    """
    with pytest.raises(ValueError, match=message):
        ImagePlanner(**settings_)


@pytest.mark.parametrize(
    ("size", "message"),
    [((0, 5), "must have pixels"), ((5, 0), "must have pixels"), ((10_000, 1), "too thin"), ((1, 10_000), "too thin")],
)
def test_images_without_pixels_are_refused(size: tuple[int, int], message: str) -> None:
    """
    Like Pillow, the planner refuses an image that has no pixels, or that would have no pixels after the resize.
    """
    planner = ImagePlanner(1, 1, max_n_token=100)

    with pytest.raises(ValueError, match=message):
        planner.plan(*size)


def noise_image(mode: str, height: int, width: int) -> Image.Image:
    """
    A noise image in one of Pillow's modes.
    """
    image = Image.fromarray(noise(height, width))
    if mode == "RGBA":
        image.putalpha(Image.fromarray(noise(height, width)[..., 0]))
    return image.convert(mode)


@needs_pillow_13
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "CMYK"])
@pytest.mark.parametrize("max_wh_ratio", [None, 1.5])
def test_rust_and_pillow_agree(mode: str, max_wh_ratio: float | None) -> None:
    """
    Both back ends give the oracle's bits, in the shape that the model expects.
    """
    planner = ImagePlanner(14, 3, max_wh_ratio=max_wh_ratio, min_pixels=2000, max_n_token=60)
    images = [
        noise_image(mode, height, width)
        for height, width in [(53, 37), (37, 53), (28, 28), (300, 90), (90, 300), (1, 1)]
    ]
    rust, pil = DeepseekV41ImageProcessor(planner), DeepseekV41ImageProcessor(planner, "pil")

    assert (rust.backend, pil.backend) == ("rust", "pil")
    for image, from_rust, from_pil in zip(images, rust(images), pil(images), strict=True):
        plan = planner.plan(image.height, image.width)
        place = Place(plan.output_size, plan.resize_size, plan.padding_start, plan.patch_size)
        expected = pillow_oracle.dsv41(np.array(image.convert("RGB")), place).reshape(-1, 3, 14, 14)
        for got in (from_rust, from_pil):
            assert got.pixel_values.dtype == np.uint16
            np.testing.assert_array_equal(expected, got.pixel_values)
            assert (got.grid, got.token_grid, got.num_tokens) == (
                plan.grid,
                planner.token_grid(plan),
                planner.num_tokens(plan),
            )


class Failing(importlib.abc.MetaPathFinder):
    """
    Makes the import of the extension module fail.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == EXTENSION:
            raise self.error
        return None


@pytest.fixture(params=[ImportError, OSError, RuntimeError, AttributeError])
def unloadable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """
    Makes the import of the extension module fail; gives the name of the exception.
    """
    for name in [EXTENSION, *(name for name in sys.modules if name.startswith(EXTENSION + "."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Failing(request.param("no such library")), *sys.meta_path])
    yield request.param.__name__
    # Restores the loaded module for later tests.
    monkeypatch.undo()


def test_failed_load_falls_back_to_pillow(unloadable: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    A failed load logs one warning with the cause, and images are processed with Pillow.
    """
    with caplog.at_level(logging.WARNING):
        processor = DeepseekV41ImageProcessor(ImagePlanner(14, 2))

    assert processor.backend == "pil"
    assert [f"{unloadable}: no such library" in record.getMessage() for record in caplog.records] == [True]
    assert processor([noise_image("RGB", 30, 30)])[0].pixel_values.shape == (9, 3, 14, 14)


def test_module_without_the_function_falls_back_to_pillow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    An older build of the extension, which lacks the function, causes a fallback too.
    """
    monkeypatch.delattr(dsv41, "resize_patchify")

    assert DeepseekV41ImageProcessor(ImagePlanner(14, 2)).backend == "pil"
    assert "resize_patchify" in caplog.text


def test_backend_pil_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """
    Backend "pil" uses Pillow without a warning; an unknown backend is refused.
    """
    assert DeepseekV41ImageProcessor(ImagePlanner(14, 2), "pil").backend == "pil"
    assert not caplog.records
    backend: Any = "cuda"
    with pytest.raises(ValueError, match="unknown backend 'cuda'"):
        DeepseekV41ImageProcessor(ImagePlanner(14, 2), backend)


def test_error_about_an_image_causes_no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An exception from Rust while an image is processed is raised.
    """

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("refused")

    monkeypatch.setattr(dsv41, "resize_patchify", refuse)
    processor = DeepseekV41ImageProcessor(ImagePlanner(14, 2))

    assert processor.backend == "rust"
    with pytest.raises(RuntimeError, match=r"^refused$"):
        processor([noise_image("RGB", 30, 30)])
