"""
`qwen_vl.process_mm` gives the results of Hugging Face's processor and model for a prompt with images.

Prompts consist of whole words, so the processor can use a small vocabulary defined here. `get_rope_index` of a model
needs only its configuration, no weights.
"""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from qwen_vl_settings import BACKENDS, IMAGE_TOKEN, SETTINGS, Backend, Setting
from sglang.srt.rust_extensions._multimodal import qwen_vl
from tokenizers import Tokenizer, models, pre_tokenizers

SPECIAL = (IMAGE_TOKEN, "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
WORDS = ("<unk>", *SPECIAL, *(f"word{number}" for number in range(40)))
IMAGE, START, END = WORDS.index(IMAGE_TOKEN), WORDS.index("<|vision_start|>"), WORDS.index("<|vision_end|>")
FIRST_WORD = len(SPECIAL) + 1

#: The models of each generation, by the prefix of their class names.
GENERATIONS = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3VLMoe", "Qwen3_5", "Qwen3_5Moe")

text = st.lists(st.integers(FIRST_WORD, len(WORDS) - 1), max_size=6)
#: Height and width in tokens.
grids = st.tuples(st.integers(1, 40), st.integers(1, 40))


@cache
def tokenizer() -> Any:
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", additional_special_tokens=list(SPECIAL)
    )


@cache
def processor(setting: Setting, backend: Backend) -> Any:
    return transformers.Qwen2VLProcessor(
        image_processor=setting.processor(backend),
        tokenizer=tokenizer(),
        video_processor=transformers.Qwen2VLVideoProcessor(),
    )


@cache
def model(generation: str) -> Any:
    configuration = getattr(transformers, f"{generation}Config")()
    configuration.text_config.num_hidden_layers = configuration.vision_config.depth = 1
    # The meta device allocates no weights.
    with torch.device("meta"):
        return getattr(transformers, f"{generation}Model")(configuration)


def positions(generation: str, ids: list[int], grid: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    """
    The model's flat position rows and its delta.
    """
    kinds = [int(token == IMAGE) for token in ids]
    rows, delta = model(generation).get_rope_index(
        torch.tensor([ids]), torch.tensor([kinds]), image_grid_thw=torch.tensor(grid)
    )
    return rows.flatten().tolist(), int(delta)


@pytest.mark.parametrize("generation", GENERATIONS)
@given(first=text, images_and_texts=st.lists(st.tuples(grids, text), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_positions_equal_the_models(
    generation: str, first: list[int], images_and_texts: list[tuple[tuple[int, int], list[int]]]
) -> None:
    """
    The prompts and grids are random. Each image is between a start and an end token, as in every chat template.
    """
    ids, items = list(first), []
    for (height, width), after in images_and_texts:
        begin = len(ids) + 1
        ids += [START, *[IMAGE] * (height * width), END, *after]
        items.append((begin, begin + height * width - 1, 1, 2 * height, 2 * width))
    rows, delta = positions(generation, ids, [(time, height, width) for _, _, time, height, width in items])

    got, got_delta = qwen_vl.mrope_image_only_py(len(ids), items, 2)

    assert (got.tolist(), got_delta) == (rows, delta)


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    first=text,
    images_and_texts=st.lists(
        st.tuples(st.tuples(st.integers(1, 150), st.integers(1, 150)), text), min_size=1, max_size=4
    ),
    setting=st.sampled_from(SETTINGS),
)
@settings(max_examples=40, deadline=None)
def test_results_of_a_request_equal_those_of_processor_and_model(
    backend: Backend, first: list[int], images_and_texts: list[tuple[tuple[int, int], list[int]]], setting: Setting
) -> None:
    """
    The test compares the expanded prompt, the bits of all patches, grids, offsets, positions and the delta.
    """
    ids, images, files = list(first), [], []
    for number, (size, after) in enumerate(images_and_texts):
        ids += [START, IMAGE, END, *after]
        pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
        images.append(Image.fromarray(pixels))
        file = io.BytesIO()
        images[-1].save(file, "PNG")
        files.append(file.getvalue())
    expected = processor(setting, backend)(
        images=images, text=[" ".join(WORDS[token] for token in ids)], return_tensors="pt"
    )
    expanded = expected["input_ids"][0].tolist()
    grid = [tuple(row) for row in expected["image_grid_thw"].tolist()]
    places = np.flatnonzero(np.array(expanded) == IMAGE)

    input_ids, features, grids_, _, offsets, mrope, delta = qwen_vl.process_mm(ids, files, setting.spec(backend, IMAGE))

    assert input_ids == expanded
    assert [tuple(one) for one in grids_] == grid
    assert np.array_equal(features.view(np.uint32), expected["pixel_values"].numpy().ravel().view(np.uint32))
    assert np.array_equal(np.concatenate([np.arange(start, end + 1) for start, end in offsets]), places)
    assert [end + 1 - start for start, end in offsets] == [height * width // 4 for _, height, width in grid]
    assert (mrope.tolist(), delta) == positions("Qwen2VL", expanded, grid)
