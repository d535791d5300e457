"""
Say what the media benchmark compares: rows, the cells of each, and how far ahead we want to be.

Invariant: cells of a row that want the same bits are of one kind, setting and likeness. Standard library only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS, QWEN3 = "qwen2_vl_defaults", "qwen3_vl_published"
_LABELS = {DEFAULTS: "Qwen2-VL defaults", QWEN3: "Qwen3-VL"}
_SCREENSHOT = "screenshot"


@dataclass(frozen=True)
class Cell:
    """
    A side and its job: what `media_ways.Job` holds, as JSON.
    """

    side: str
    kind: str
    picture: str
    setting: str = ""
    like: str = ""
    batch: int = 1
    size: tuple[int, int] = (0, 0)

    @property
    def job(self) -> dict[str, object]:
        """
        The worker's part of it.
        """
        return {name: value for name, value in asdict(self).items() if name != "side"}


@dataclass(frozen=True)
class Row:
    """
    Cells by column, and by which factors `ours` should be ahead of which column.
    """

    label: str
    cells: Mapping[str, Cell]
    aims: Mapping[str, float] = field(default_factory=dict)


def pixel_rows(batch: int, *, oracles: bool) -> list[Row]:
    """
    Bytes to `pixel_values`; the aims are for one picture on one thread.
    """
    rows = []
    for picture in ("vga", "1080p", "12mp", _SCREENSHOT):
        if batch > 1 and picture == "12mp":
            # Gigabytes for those that hold every step of every picture.
            continue
        for setting in (DEFAULTS, QWEN3):
            what = ("pixel_values", picture, setting)
            theirs = {
                "HF pil": Cell("hf_pil", *what, "pil", batch),
                "HF torchvision": Cell("hf_torchvision", *what, "torchvision", batch),
            }
            cells = {
                **(theirs if oracles else {}),
                "Pillow+NumPy": Cell("pillow", *what, "pil", batch),
                "ours, pil": Cell("ours", *what, "pil", batch),
                "ours, torchvision": Cell("ours", *what, "torchvision", batch),
            }
            if batch == 1:
                cells["limit"] = Cell("ours", "limit", picture, setting)
            rows.append(Row(f"{picture}, {_LABELS[setting]}", cells, _aims(picture)))
    return rows


def _aims(picture: str) -> dict[str, float]:
    pil, torchvision = {"12mp": (5, 4), _SCREENSHOT: (3, 3)}.get(picture, (8, 3))
    return {"HF pil": pil, "HF torchvision": torchvision, "limit": 1.6}


def family_rows() -> list[Row]:
    """
    The families whose pixels are Pillow's.
    """
    labels = {"inkling": "inkling, 1080p, twice up to 2048", "dsv41": "dsv41, 1080p on 784x1344"}
    return [
        Row(label, {"Pillow+NumPy": Cell("pillow", kind, "1080p"), "ours, pil": Cell("ours", kind, "1080p")})
        for kind, label in labels.items()
    ]


def part_rows(*, oracles: bool) -> list[Row]:
    """
    Decode alone, resize alone.
    """
    rows = []
    for picture in ("vga", "1080p", "12mp", _SCREENSHOT):
        cells = {"Pillow+NumPy": Cell("pillow", "decode", picture), "ours, pil": Cell("ours", "decode", picture)}
        rows.append(
            Row(
                f"decode {picture}",
                {**({"torch": Cell("hf_torchvision", "decode", picture)} if oracles else {}), **cells},
            )
        )
    for picture, size in (("vga", (644, 476)), ("1080p", (1316, 728)), ("12mp", (1148, 840)), ("1080p", (1920, 1088))):
        what = ("resize", picture, "")
        cells = {
            "Pillow+NumPy": Cell("pillow", *what, "pil", size=size),
            "ours, pil": Cell("ours", *what, "pil", size=size),
            "ours, torchvision": Cell("ours", *what, "torchvision", size=size),
        }
        theirs = {"torch": Cell("hf_torchvision", *what, "torchvision", size=size)} if oracles else {}
        rows.append(Row(f"resize {picture} to {size[0]}x{size[1]}", {**theirs, **cells}))
    return rows


def stage_rows() -> list[Row]:
    """
    Our own stages, by files that cost nothing to decode: a bitmap of the picture, and one of its target size.
    """
    rows = []
    for picture in ("vga", "1080p", "12mp", _SCREENSHOT):
        for setting in (DEFAULTS, QWEN3):
            bitmap, fitted = f"{picture}@bmp", f"{picture}@{setting}"
            cells = {
                "all": Cell("ours", "pixel_values", picture, setting, "pil"),
                "decode": Cell("ours", "decode", picture),
                "bitmap": Cell("ours", "pixel_values", bitmap, setting, "pil"),
                "bitmap decode": Cell("ours", "decode", bitmap),
                "fitted": Cell("ours", "pixel_values", fitted, setting, "pil"),
                "fitted decode": Cell("ours", "decode", fitted),
            }
            rows.append(Row(f"{picture}, {_LABELS[setting]}", cells))
    return rows
