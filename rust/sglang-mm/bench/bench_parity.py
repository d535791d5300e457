"""
Compare family `inkling` with Python implementations: check that the bits are equal, then measure times.

    python rust/sglang-mm/bench/bench_parity.py [--rounds N]

The run fails if the patches of one of six sizes are not equal bit for bit. Differences of decoded pixels from the
installed Pillow are only reported. Times are wall and CPU time (user + system, all threads) per image, for one 1080p
JPEG of quality 90. Each is the median over rounds; a round runs every implementation once. Numba is included if
installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common, inkling

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from pillow_oracle import Bits, Pixels, noise
from pillow_oracle import inkling as oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    #: By name: the number of images that one call processes, and the call.
    Implementations = dict[str, tuple[int, Callable[[], Bits]]]

PATCH_SIZE = 40
SIZES = [(480, 640), (1080, 1920), (200, 320), (37, 53), (40, 40), (1, 1)]
BATCH = 5


def photo(height: int, width: int) -> Pixels:
    """
    Smooth shapes with some noise, so that a JPEG of it is about as large as that of a photo.
    """
    y, x = np.mgrid[:height, :width].astype(np.float32)
    waves = [128 + 100 * np.sin(x / (90 + 40 * channel)) * np.cos(y / (70 - 10 * channel)) for channel in range(3)]
    grain = noise(height, width).astype(np.float32) / 16
    return np.clip(np.stack(waves, -1) + grain, 0, 255).astype(np.uint8)


def encoded(image: Pixels, kind: str, **options: int) -> bytes:
    """
    The image as an encoded file.
    """
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


def python_tables() -> tuple[Bits, Bits]:
    """
    The bits of every sample value per channel, and those of padding, computed with the oracle.
    """
    all_values = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], 3, axis=2)
    bits = oracle(all_values, 1)[2].reshape(256, 2, 3)
    return bits[:, 0], bits[0, 1]


def pillow_and_numpy(file: bytes, values: Bits, padding: Bits) -> Bits:
    """
    An optimised Python implementation: decode, look values up in a table, cut into patches.
    """
    with Image.open(io.BytesIO(file)) as image:
        rgb = np.asarray(image.convert("RGB"))
    height, width, _ = rgb.shape
    rows, columns = -(-height // PATCH_SIZE), width // PATCH_SIZE + 1
    canvas = np.empty((rows * PATCH_SIZE, columns * PATCH_SIZE, 3), np.uint16)
    canvas[height:], canvas[:, width:] = padding, padding
    for channel in range(3):
        canvas[:height, :width, channel] = values[:, channel][rgb[..., channel]]
    patches = canvas.reshape(rows, PATCH_SIZE, columns, PATCH_SIZE, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(patches).ravel()


def numba_kernel() -> Callable[[Pixels, Bits, Bits], Bits] | None:
    """
    A compiled loop that looks values up and cuts patches; None if Numba is not installed.
    """
    if importlib.util.find_spec("numba") is None:
        return None
    numba: Any = importlib.import_module("numba")

    def cut(rgb: Pixels, values: Bits, padding: Bits) -> Bits:
        height, width, _ = rgb.shape
        rows, columns = -(-height // PATCH_SIZE), width // PATCH_SIZE + 1
        out = np.empty((rows, columns, PATCH_SIZE, PATCH_SIZE, 3), np.uint16)
        for row in numba.prange(rows):
            for column in range(columns):
                for y in range(PATCH_SIZE):
                    for x in range(PATCH_SIZE):
                        from_y, from_x = row * PATCH_SIZE + y, column * PATCH_SIZE + x
                        for channel in range(3):
                            inside = from_y < height and from_x < width
                            out[row, column, y, x, channel] = (
                                values[rgb[from_y, from_x, channel], channel] if inside else padding[channel]
                            )
        return out.ravel()

    kernel: Callable[[Pixels, Bits, Bits], Bits] = numba.njit(parallel=True)(cut)
    return kernel


def assert_patches_are_equal() -> None:
    """
    Fail unless the patches of all `SIZES` are equal bit for bit. Some sizes are whole numbers of patches, some are not.
    """
    for height, width in SIZES:
        image = noise(height, width)
        if not np.array_equal(oracle(image, PATCH_SIZE)[2], inkling.patchify_rgb(image, PATCH_SIZE)):
            raise SystemExit(f"patches of {height}x{width} differ from those of Pillow and NumPy")
    print(f"patches of {len(SIZES)} sizes: equal bit for bit")


def report_decoding(image: Pixels) -> None:
    """
    Print how far decoded pixels differ from Pillow's, for PNG and JPEG.
    """
    for name, file in (("PNG", encoded(image, "PNG")), ("JPEG q90", encoded(image, "JPEG", quality=90))):
        height, width, pixels = common.image_decode_rgb(file)
        with Image.open(io.BytesIO(file)) as opened:
            expected = np.asarray(opened.convert("RGB"))
        difference = abs(pixels.reshape(height, width, 3).astype(np.int16) - expected)
        count, most = np.count_nonzero(difference), difference.max()
        print(f"{name}: {count} of {expected.size} values differ from Pillow {PIL.__version__}'s, at most by {most}")


def implementations(image: Pixels) -> Implementations:
    """
    The implementations to time. All except `patchify_rgb` start from the same encoded file.
    """
    file = encoded(image, "JPEG", quality=90)
    values, padding = python_tables()
    found: Implementations = {"Pillow + NumPy": (1, lambda: pillow_and_numpy(file, values, padding))}
    kernel = numba_kernel()
    if kernel is not None:

        def with_numba() -> Bits:
            with Image.open(io.BytesIO(file)) as opened:
                return kernel(np.asarray(opened.convert("RGB")), values, padding)

        found["Pillow + Numba"] = (1, with_numba)
    found["decode_patchify"] = (1, lambda: inkling.decode_patchify(file, PATCH_SIZE)[2])
    found[f"batch of {BATCH}"] = (BATCH, lambda: inkling.decode_patchify_batch([file] * BATCH, PATCH_SIZE)[-1][2])
    found["patchify_rgb"] = (1, lambda: inkling.patchify_rgb(image, PATCH_SIZE))
    return found


def measure(found: Implementations, rounds: int) -> None:
    """
    Print the median wall and CPU time per image. The first round is a warm-up and is not counted.
    """
    walls: dict[str, list[float]] = {name: [] for name in found}
    cpus: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(rounds + 1):
        for name, (images, call) in found.items():
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if turn:
                walls[name].append(wall / images)
                cpus[name].append(cpu / images)
    print(f"\n1080p JPEG of quality 90, ms per image, median of {rounds}   wall     CPU")
    for name in found:
        print(f"{name:<50} {statistics.median(walls[name]) * 1e3:7.2f} {statistics.median(cpus[name]) * 1e3:7.2f}")


def main() -> None:
    """
    Check the results, then measure.
    """
    parser = argparse.ArgumentParser(description="Compare family `inkling` with Pillow and NumPy.")
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    image = photo(1080, 1920)
    assert_patches_are_equal()
    report_decoding(image)
    found = implementations(image)
    _, pillow = found["Pillow + NumPy"]
    for name, (_, call) in found.items():
        if name != "patchify_rgb" and not np.array_equal(pillow(), call()):
            raise SystemExit(f"the patches of {name} differ from those of Pillow and NumPy")
    measure(found, rounds)


if __name__ == "__main__":
    main()
