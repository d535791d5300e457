"""
Compare `_multimodal.common` with the installed Pillow on every golden image, print a table, and fail on any difference.

Both decode and resize each image. A *verdict* is
`equal`, `refused` (by both), an *exception* (only Pillow decodes the file, for a reason
listed in `REASONS`) or `DIFFERENT`. The oracle is Pillow 13.0.0; any other version is an error.

    python ci/golden_table.py [--golden DIR]
"""

from __future__ import annotations

import argparse
import io
import sys
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ORACLE = "13.0.0"

Pixels: TypeAlias = NDArray[np.uint8]
Resample: TypeAlias = Literal["pil_lanczos", "pil_bicubic"]

FILTERS: dict[Resample, Image.Resampling] = {
    "pil_lanczos": Image.Resampling.LANCZOS,
    "pil_bicubic": Image.Resampling.BICUBIC,
}

#: Formats that the crate decodes, by Pillow's names.
SUPPORTED = {"BMP", "GIF", "JPEG", "MPO", "PNG", "WEBP"}

#: Images of up to this many pixels are also enlarged.
SMALL = 400_000


@dataclass(frozen=True)
class Oracle:
    """
    How Pillow decodes a file; `pixels` is `None` if it refuses.
    """

    format: str
    mode: str
    size: str
    pixels: Pixels | None


@dataclass(frozen=True)
class Row:
    """
    One line of the table.
    """

    file: str
    oracle: Oracle
    decode: str
    resize: str

    @property
    def differs(self) -> bool:
        """
        Whether this row fails the run.
        """
        return "DIFFERENT" in self.decode + self.resize


def wide_samples(data: bytes, _oracle: Oracle, error: str) -> bool:
    """
    Whether the file has 16-bit samples: Pillow either clips them or keeps their high byte, and the crate refuses them.
    """
    return "unsupported color" in error and data[12:16] == b"IHDR" and data[24] == 16


def unsupported_format(_data: bytes, oracle: Oracle, _error: str) -> bool:
    """
    Whether the file has a format that the crate does not decode.
    """
    return oracle.format not in SUPPORTED


#: Why the crate may refuse a file that Pillow decodes: the name of the reason, and the test for it.
REASONS: dict[str, Callable[[bytes, Oracle, str], bool]] = {
    "16-bit samples": wide_samples,
    "unsupported format": unsupported_format,
}


def ask_pillow(data: bytes) -> Oracle:
    """
    Decode with Pillow into RGB. These pixels are correct by definition.
    """
    kind, mode, size = "-", "-", "-"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                kind, mode, size = image.format or "-", image.mode, f"{image.width}x{image.height}"
                return Oracle(kind, mode, size, np.asarray(image.convert("RGB")))
    except Exception:  # noqa: BLE001 -- Pillow passes on any exception of its codecs
        return Oracle(kind, mode, size, None)


def targets(width: int, height: int) -> Iterator[tuple[int, int]]:
    """
    Yield sizes (width, height) that cover both pass orders, reduction and enlargement, and single pixels.
    """
    yield from [(224, 224), (37, 53), (1, 1), (width, max(1, height // 3)), (max(1, width // 3), height)]
    yield max(1, width * 2 // 3), max(1, height * 5 // 7)
    if width * height <= SMALL:
        yield from [(width * 2, height * 2), (max(1, width * 4 // 3), max(1, height // 2))]


def compare_resizes(pixels: Pixels) -> str:
    """
    Return `equal n/n`, or `DIFFERENT` with the first size that differs.
    """
    image = Image.fromarray(pixels)
    count = 0
    for width, height in targets(image.width, image.height):
        for name, resample in FILTERS.items():
            expected = np.asarray(image.resize((width, height), resample))
            if not np.array_equal(expected.ravel(), common.resize_rgb(pixels, width, height, name)):
                return f"DIFFERENT {name} {width}x{height}"
            count += 1
    return f"equal {count}/{count}"


def compare_decodes(data: bytes, oracle: Oracle) -> str:
    """
    Return the verdict on decoding one file.
    """
    try:
        height, width, pixels = common.image_decode_rgb(data)
    except ValueError as error:
        if oracle.pixels is None:
            return "refused"
        text = str(error)
        return next(
            (f"exception ({name})" for name, holds in REASONS.items() if holds(data, oracle, text)),
            f"DIFFERENT: {text}",
        )
    if oracle.pixels is None:
        return "DIFFERENT: Pillow refuses"
    same = oracle.pixels.shape == (height, width, 3) and np.array_equal(oracle.pixels.ravel(), pixels)
    return "equal" if same else "DIFFERENT: pixels"


def examine(path: Path) -> Row:
    """
    Compare decoding and resizing of one file.
    """
    data = path.read_bytes()
    oracle = ask_pillow(data)
    decode = compare_decodes(data, oracle)
    # Both resize Pillow's pixels, so that files that the crate refuses are covered too.
    resize = "-" if oracle.pixels is None else compare_resizes(np.ascontiguousarray(oracle.pixels))
    return Row(path.name, oracle, decode, resize)


def show(rows: list[Row]) -> None:
    """
    Print the table, then one line per format.
    """
    widest = max(len(row.file) for row in rows)
    for row in rows:
        print(
            f"{row.file:{widest}}  {row.oracle.format:5} {row.oracle.mode:5} {row.oracle.size:>11}  "
            f"{row.decode:30} {row.resize}"
        )
    by_format: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for name in (row.oracle.format, "all"):
            by_format[name].update(
                {"files": 1, row.decode.split(":")[0]: 1, f"resize {row.resize.split()[0]}": int(row.resize != "-")}
            )
    print()
    for name, counts in sorted(by_format.items(), key=lambda item: (item[0] == "all", item[0])):
        parts = ", ".join(f"{label} {count}" for label, count in sorted(counts.items()) if count and label != "files")
        print(f"{name:5} {counts['files']:4} files: {parts}")


def main() -> int:
    """
    Return 0 if no image differs, 1 if one differs, 2 if there are no images or Pillow has another version.
    """
    root = Path(__file__).resolve().parents[1]
    folders = [root.parent / "shared" / "golden", root / "tests" / "golden"]
    parser = argparse.ArgumentParser(description="Compare every golden image with Pillow.")
    parser.add_argument("--golden", type=Path, default=next((path for path in folders if path.is_dir()), folders[-1]))
    images = parser.parse_args().golden / "images_open"
    if PIL.__version__ != ORACLE:
        print(
            f"the expected bytes are those of Pillow {ORACLE}, but Pillow {PIL.__version__} is installed; "
            f"run: python -m pip install pillow=={ORACLE} (needs Python 3.11 or later)",
            file=sys.stderr,
        )
        return 2
    files = [path for path in sorted(images.glob("*")) if path.is_file() and path.name != "MANIFEST.tsv"]
    if not files:
        print(f"no images in {images}", file=sys.stderr)
        return 2
    rows = [examine(path) for path in files]
    show(rows)
    return int(any(row.differs for row in rows))


if __name__ == "__main__":
    sys.exit(main())
