"""
Run one media job the way one *side* does it: ours, Pillow with NumPy, or a Hugging Face backend.

Invariant: a job starts with encoded bytes in memory and ends with an array in memory. Objects
that a server makes once (specs, processors, target sizes) are made before the job starts.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common, dsv41, inkling, qwen_vl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/oracles"))

from qwen_vl_settings import IMAGE_TOKEN_ID, SETTINGS, Backend, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

BY_NAME = {setting.name: setting for setting in SETTINGS}

#: Runs a job and returns its result, which is discarded when only time is measured.
Call: TypeAlias = "Callable[[], Any]"

# Inkling's published settings: side of a patch, scale factor, limit of the longer side.
INKLING_PATCH, INKLING_FRACTION, INKLING_CAP = 40, 2.0, 2048
_MEAN, _STD = (
    np.array([0.48145466, 0.4578275, 0.40821073], np.float32),
    np.array([0.26862954, 0.2613026, 0.2757771], np.float32),
)
# DeepSeek's layout of a 16:9 image: canvas, size and start of the image on it, side of a patch.
DSV41_CANVAS, DSV41_SIZE, DSV41_START, DSV41_PATCH = (784, 1344), (756, 1344), (14, 0), 14


@dataclass(frozen=True)
class Job:
    """
    The computation (`kind`) and its image.

    `setting` names the Qwen-VL settings, `like` the backend whose bits the result must match.
    """

    kind: str
    image: str
    setting: str = ""
    like: str = ""
    batch: int = 1
    #: Width and height for jobs that resize to a given size.
    size: tuple[int, int] = (0, 0)


# Ours.


def ours(job: Job, data: bytes) -> Call:
    """
    Return a call of the extension module.
    """
    if job.kind == "pixel_values":
        return _ours_qwen_vl(job, data)
    if job.kind == "resize":
        pixels = _decoded(data)
        return lambda: common.resize_rgb(pixels, *job.size, "pil_bicubic" if job.like == "pil" else "aten_u8")
    if job.kind == "inkling":
        return lambda: inkling.decode_patchify(data, INKLING_PATCH, INKLING_FRACTION, INKLING_CAP)[2]
    if job.kind == "dsv41":
        return lambda: dsv41.resize_patchify(_decoded(data), DSV41_CANVAS, DSV41_SIZE, DSV41_START, DSV41_PATCH)
    if job.kind == "limit":
        return _limit(job, data)
    return lambda: common.image_decode_rgb(data)[2]


def _decoded(data: bytes) -> NDArray[np.uint8]:
    height, width, pixels = common.image_decode_rgb(data)
    return pixels.reshape(height, width, 3)


def _ours_qwen_vl(job: Job, data: bytes) -> Call:
    spec = BY_NAME[job.setting].spec(_backend(job))
    if job.batch == 1:
        return lambda: qwen_vl.preprocess(data, spec)[0]
    ids, files = [IMAGE_TOKEN_ID] * job.batch, [data] * job.batch
    return lambda: qwen_vl.process_mm(ids, files, spec)[1]


def _limit(job: Job, data: bytes) -> Call:
    """
    Return a call that is a lower bound for any implementation: it decodes, and writes as many bytes as the result has.
    """
    count = qwen_vl.preprocess(data, BY_NAME[job.setting].spec("pil"))[0].size

    def call() -> NDArray[np.float32]:
        common.image_decode_rgb(data)
        return np.full(count, 0.5, np.float32)

    return call


def _backend(job: Job) -> Backend:
    return "pil" if job.like == "pil" else "torchvision"


# Pillow and NumPy, written by hand.


def pillow(job: Job, data: bytes) -> Call:
    """
    Return a call that does the same job with Pillow and NumPy.
    """
    if job.kind == "pixel_values":
        one = _pillow_qwen_vl(BY_NAME[job.setting], data)
        return one if job.batch == 1 else lambda: np.concatenate([one() for _ in range(job.batch)])
    if job.kind == "resize":
        image = opened(data)
        return lambda: np.asarray(image.resize(job.size, Image.Resampling.BICUBIC))
    if job.kind == "inkling":
        return lambda: _pillow_inkling(data)
    if job.kind == "dsv41":
        return lambda: _pillow_dsv41(data)
    return lambda: np.asarray(opened(data))


def opened(data: bytes) -> Image.Image:
    """
    Decode with Pillow, as RGB.
    """
    with Image.open(io.BytesIO(data)) as image:
        rgb: Image.Image = image.convert("RGB")
    return rgb


def _pillow_qwen_vl(setting: Setting, data: bytes) -> Call:
    mean, std = np.array(setting.mean, np.float32), np.array(setting.std, np.float32)
    side, merge, frames = setting.patch_size, setting.merge_size, setting.temporal_patch_size
    before = opened(data).size
    height, width = qwen_vl.smart_resize_py(
        before[1], before[0], setting.factor, setting.min_pixels, setting.max_pixels
    )

    def call() -> NDArray[np.float32]:
        pixels = np.asarray(opened(data).resize((width, height), Image.Resampling.BICUBIC))
        values = (pixels / np.float32(255) - mean) / std
        blocks = values.reshape(height // setting.factor, merge, side, width // setting.factor, merge, side, 3)
        patches = blocks.transpose(0, 3, 1, 4, 6, 2, 5)[:, :, :, :, :, None]
        return np.broadcast_to(patches, (*patches.shape[:5], frames, side, side)).reshape(-1, 3 * frames * side * side)

    return call


def _bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _pillow_inkling(data: bytes) -> NDArray[np.uint16]:
    image, side = opened(data), INKLING_PATCH
    longer = max(image.size)
    ratio = min(longer * INKLING_FRACTION, max(INKLING_CAP, longer)) / longer
    width, height = (int(length * ratio + 0.5) for length in image.size)
    pixels = np.asarray(image.resize((width, height), Image.Resampling.LANCZOS))
    rows, columns = -(-height // side), width // side + 1
    canvas = np.full((rows * side, columns * side, 3), np.float32(-1 / 255))
    canvas[:height, :width] = pixels * np.float32(1 / 255)
    bits = _bf16((canvas - _MEAN) / _STD)
    return np.ascontiguousarray(bits.reshape(rows, side, columns, side, 3).transpose(0, 2, 1, 3, 4))


def _pillow_dsv41(data: bytes) -> NDArray[np.uint16]:
    canvas = np.full((*DSV41_CANVAS, 3), 127, np.uint8)
    (height, width), (top, left), side = DSV41_SIZE, DSV41_START, DSV41_PATCH
    canvas[top : top + height, left : left + width] = np.asarray(
        opened(data).resize((width, height), Image.Resampling.BICUBIC)
    )
    bits = _bf16((canvas / np.float32(255) - np.float32(0.5)) / np.float32(0.5))
    rows, columns = DSV41_CANVAS[0] // side, DSV41_CANVAS[1] // side
    return np.ascontiguousarray(bits.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3))


# Hugging Face and the libraries that it uses.


def hugging_face(job: Job, data: bytes) -> Call:
    """
    Return a call of the image processor, or of torch's own decode or resize.
    """
    import torch

    if job.kind == "pixel_values":
        processor = BY_NAME[job.setting].processor(_backend(job))

        def call() -> NDArray[np.float32]:
            patches: NDArray[np.float32] = processor(
                images=[opened(data) for _ in range(job.batch)], return_tensors="pt"
            )["pixel_values"].numpy()
            return patches

        return call
    if job.kind == "resize":
        from torchvision.transforms.v2 import InterpolationMode
        from torchvision.transforms.v2.functional import resize

        # Interleaved, as decoders produce it: the fastest layout for torch.
        planes = torch.from_numpy(_decoded(data)).permute(2, 0, 1)[None]
        width, height = job.size
        return lambda: (
            resize(planes, [height, width], interpolation=InterpolationMode.BICUBIC, antialias=True)
            .permute(0, 2, 3, 1)
            .numpy()
        )
    from torchvision.io import ImageReadMode, decode_image

    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return lambda: decode_image(encoded, ImageReadMode.RGB).permute(1, 2, 0).numpy()


SIDES: dict[str, Callable[[Job, bytes], Call]] = {
    "ours": ours,
    "pillow": pillow,
    "hf_pil": hugging_face,
    "hf_torchvision": hugging_face,
}
