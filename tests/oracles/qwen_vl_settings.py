"""
The published settings of the Qwen-VL image processors, in the form of `_multimodal` and in that of transformers.

Invariant: both forms have the same values. Settings that are not listed here have transformers' defaults. transformers
is imported only by `Setting.processor`, when it is called.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

#: An image processor of Hugging Face, named after the library that resizes the image.
Backend: TypeAlias = Literal["pil", "torchvision"]
BACKENDS: tuple[Backend, ...] = ("pil", "torchvision")

IMAGE_TOKEN = "<|image_pad|>"
#: The id of `IMAGE_TOKEN` in the published vocabularies.
IMAGE_TOKEN_ID = 151655

_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_HALF = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Setting:
    """
    The settings of the image processor of a checkpoint.
    """

    name: str
    patch_size: int
    min_pixels: int
    max_pixels: int
    mean: tuple[float, float, float] = _CLIP_MEAN
    std: tuple[float, float, float] = _CLIP_STD
    merge_size: int = 2
    temporal_patch_size: int = 2

    @property
    def factor(self) -> int:
        """
        The height and width of a resized image are multiples of this number of pixels.
        """
        return self.patch_size * self.merge_size

    def spec(self, backend: Backend, image_token_id: int = IMAGE_TOKEN_ID) -> str:
        """
        The settings as JSON for `_multimodal.qwen_vl`.
        """
        return json.dumps(
            {
                "family": "qwen_vl",
                "image_token_id": image_token_id,
                "patch_size": self.patch_size,
                "merge_size": self.merge_size,
                "temporal_patch_size": self.temporal_patch_size,
                "min_pixels": self.min_pixels,
                "max_pixels": self.max_pixels,
                "image_mean": self.mean,
                "image_std": self.std,
                "resample": {"pil": "pil", "torchvision": "aten_u8"}[backend],
            }
        )

    def processor(self, backend: Backend) -> Any:
        """
        The image processor of transformers with these settings.
        """
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

        kind = {"pil": Qwen2VLImageProcessorPil, "torchvision": Qwen2VLImageProcessor}[backend]
        return kind(
            patch_size=self.patch_size,
            merge_size=self.merge_size,
            temporal_patch_size=self.temporal_patch_size,
            size={"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels},
            image_mean=list(self.mean),
            image_std=list(self.std),
        )


#: The defaults of the class, and the settings of the published checkpoints: Qwen2-VL and Qwen2.5-VL; Qwen3-VL and
#: Qwen3.5.
SETTINGS = (
    Setting("qwen2_vl_defaults", patch_size=14, min_pixels=3136, max_pixels=1_003_520),
    Setting("qwen2_vl_published", patch_size=14, min_pixels=3136, max_pixels=12_845_056),
    Setting("qwen3_vl_published", patch_size=16, min_pixels=65_536, max_pixels=16_777_216, mean=_HALF, std=_HALF),
)
