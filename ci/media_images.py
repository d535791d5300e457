"""
Find or make the images that the media benchmark decodes: three photos and a screenshot.

    python ci/media_images.py FOLDER

Prints a JSON object that maps names to paths. If `SGLANG_GOLDEN` names a folder, the images are
its `bench_*` files. Otherwise the script makes images of the same sizes in FOLDER, once, from the
photo of the tests.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

PHOTO = Path(__file__).resolve().parents[1] / "tests/golden/photo/rocket.jpg"

#: Name -> golden file, (width, height).
IMAGES = {
    "vga": ("bench_vga_420_baseline.jpg", (640, 480)),
    "1080p": ("bench_1080p_420_baseline.jpg", (1920, 1080)),
    "12mp": ("bench_12mp_420_baseline.jpg", (4000, 3000)),
    "screenshot": ("bench_screenshot_1920x1080.png", (1920, 1080)),
}


def main(folder: Path) -> int:
    """
    Make the images that are missing and print the paths.
    """
    golden = os.environ.get("SGLANG_GOLDEN")
    paths = {}
    for name, (file, size) in IMAGES.items():
        path = Path(golden, "images_open", file) if golden else folder / f"generated_{file}"
        if not golden and not path.is_file():
            _make(path, size)
        paths[name] = str(path)
    print(json.dumps(paths))
    return 0


def _make(path: Path, size: tuple[int, int]) -> None:
    if path.suffix == ".png":
        _screenshot(size).save(path)
        return
    with Image.open(PHOTO) as photo:
        pixels = np.asarray(photo.convert("RGB").resize(size, Image.Resampling.LANCZOS))
    # An enlarged photo is smoother than one from a camera: grain gives the entropy decoder a realistic load.
    grain = np.random.default_rng(0).normal(0, 2.5, pixels.shape)
    Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8)).save(path, quality=85, subsampling="4:2:0")


def _screenshot(size: tuple[int, int]) -> Image.Image:
    """
    Draw windows with small text, and one photo.
    """
    image = Image.new("RGB", size, (236, 238, 242))
    draw = ImageDraw.Draw(image)
    random = np.random.default_rng(0)
    for left in range(20, size[0] - 400, 460):
        draw.rectangle((left, 30, left + 440, size[1] - 30), fill="white", outline=(120, 130, 150))
        for top in range(40, size[1] - 50, 14):
            words = "".join(chr(letter) for letter in random.integers(97, 123, random.integers(10, 60)))
            draw.text((left + 10, top), words, fill=tuple(int(value) for value in random.integers(0, 120, 3)))
    with Image.open(PHOTO) as photo:
        image.paste(photo.convert("RGB"), (size[0] - photo.width, size[1] - photo.height))
    return image


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
