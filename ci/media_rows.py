"""
Define the tables of the media benchmark: rows, their cells, and the speed-ups that we aim for.

Invariant: cells of a row that must give the same bits have the same kind, setting and backend (`like`).
Standard library only.
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
    A side and its job; the other fields are those of `media_ways.Job`.
    """

    side: str
    kind: str
    image: str
    setting: str = ""
    like: str = ""
    batch: int = 1
    size: tuple[int, int] = (0, 0)

    @property
    def job(self) -> dict[str, object]:
        """
        The fields that the worker process needs, for JSON.
        """
        return {name: value for name, value in asdict(self).items() if name != "side"}


@dataclass(frozen=True)
class Row:
    """
    Cells by column, and the ratios that we aim for.

    `aims` says how many times as fast as a column `ours` should be. For the column `limit` it says at most how
    many times the time of that column `ours` should take.
    """

    label: str
    cells: Mapping[str, Cell]
    aims: Mapping[str, float] = field(default_factory=dict)


def pixel_rows(batch: int, *, oracles: bool) -> list[Row]:
    """
    Return the rows from encoded bytes to `pixel_values`; the aims are for one image on one thread.
    """
    rows = []
    for image in ("vga", "1080p", "12mp", _SCREENSHOT):
        if batch > 1 and image == "12mp":
            # Some sides keep every intermediate array of every image, and would need gigabytes.
            continue
        for setting in (DEFAULTS, QWEN3):
            job = ("pixel_values", image, setting)
            hugging_face = {
                "HF pil": Cell("hf_pil", *job, "pil", batch),
                "HF torchvision": Cell("hf_torchvision", *job, "torchvision", batch),
            }
            cells = {
                **(hugging_face if oracles else {}),
                "Pillow+NumPy": Cell("pillow", *job, "pil", batch),
                "ours, pil": Cell("ours", *job, "pil", batch),
                "ours, torchvision": Cell("ours", *job, "torchvision", batch),
            }
            if batch == 1:
                cells["limit"] = Cell("ours", "limit", image, setting)
            rows.append(Row(f"{image}, {_LABELS[setting]}", cells, _aims(image)))
    return rows


def _aims(image: str) -> dict[str, float]:
    pil, torchvision = {"12mp": (5, 4), _SCREENSHOT: (3, 3)}.get(image, (8, 3))
    return {"HF pil": pil, "HF torchvision": torchvision, "limit": 1.6}


def family_rows() -> list[Row]:
    """
    Return the rows of the model families that must match Pillow's pixels.
    """
    labels = {"inkling": "inkling, 1080p, scaled by 2, longer side at most 2048", "dsv41": "dsv41, 1080p on 784x1344"}
    return [
        Row(label, {"Pillow+NumPy": Cell("pillow", kind, "1080p"), "ours, pil": Cell("ours", kind, "1080p")})
        for kind, label in labels.items()
    ]


def part_rows(*, oracles: bool) -> list[Row]:
    """
    Return the rows that only decode, and those that only resize.
    """
    rows = []
    for image in ("vga", "1080p", "12mp", _SCREENSHOT):
        cells = {"Pillow+NumPy": Cell("pillow", "decode", image), "ours, pil": Cell("ours", "decode", image)}
        rows.append(
            Row(
                f"decode {image}",
                {**({"torch": Cell("hf_torchvision", "decode", image)} if oracles else {}), **cells},
            )
        )
    for image, size in (("vga", (644, 476)), ("1080p", (1316, 728)), ("12mp", (1148, 840)), ("1080p", (1920, 1088))):
        job = ("resize", image, "")
        cells = {
            "Pillow+NumPy": Cell("pillow", *job, "pil", size=size),
            "ours, pil": Cell("ours", *job, "pil", size=size),
            "ours, torchvision": Cell("ours", *job, "torchvision", size=size),
        }
        torch = {"torch": Cell("hf_torchvision", *job, "torchvision", size=size)} if oracles else {}
        rows.append(Row(f"resize {image} to {size[0]}x{size[1]}", {**torch, **cells}))
    return rows


def stage_rows() -> list[Row]:
    """
    Return the rows that split our time into stages.

    They use files that cost almost nothing to decode: a bitmap of the image in its own size and one in its target size.
    """
    rows = []
    for image in ("vga", "1080p", "12mp", _SCREENSHOT):
        for setting in (DEFAULTS, QWEN3):
            bitmap, fitted = f"{image}@bmp", f"{image}@{setting}"
            cells = {
                "all": Cell("ours", "pixel_values", image, setting, "pil"),
                "decode": Cell("ours", "decode", image),
                "bitmap": Cell("ours", "pixel_values", bitmap, setting, "pil"),
                "bitmap decode": Cell("ours", "decode", bitmap),
                "fitted": Cell("ours", "pixel_values", fitted, setting, "pil"),
                "fitted decode": Cell("ours", "decode", fitted),
            }
            rows.append(Row(f"{image}, {_LABELS[setting]}", cells))
    return rows
