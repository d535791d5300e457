"""
The README of `sglang-mm` is correct: its Python blocks run, its example family is tested, and the names in it exist.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATE = ROOT / "rust/sglang-mm"
README = (CRATE / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """
    The code blocks of *language*. There must be at least one.
    """
    found = [text for name, text in BLOCKS if name == language]
    assert found
    return found


def items(section: str) -> list[str]:
    """
    The part before the colon of each list item in *section*. There must be at least one item.
    """
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^- (.*?`): ", text, re.MULTILINE)
    assert found
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_block_runs(code: str) -> None:
    """
    Each block runs without the others.
    """
    exec(compile(code, "README.md", "exec"), {})


def test_example_family_equals_the_tested_code() -> None:
    """
    `tests/adding_a_model.rs` contains the Rust block, with the crate's public name instead of `crate`.
    """
    (family,) = blocks("rust")
    _, _, body = family.partition("\n\n")

    assert body.replace("crate::{", "sglang_mm_core::{") in (CRATE / "tests/adding_a_model.rs").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("item", [*items("Architecture"), *items("Transforms")])
def test_listed_modules_and_functions_exist(item: str) -> None:
    """
    Every name in the lists of modules and transforms is a file, a folder or a function.
    """
    sources = [*CRATE.glob("src/**/*.rs")]
    stems = {part.removesuffix(".rs") for path in sources for part in path.relative_to(CRATE / "src").parts}
    functions = set(re.findall(r"pub fn (\w+)", "".join(path.read_text(encoding="utf-8") for path in sources)))

    for name in re.findall(r"`(?:common::)?(\w+)/?`", item):
        assert name in stems | functions


@pytest.mark.parametrize("path", re.findall(r"(?:rust|ci|tests)/[\w/.-]+\.(?:py|json)\b", README))
def test_named_files_exist(path: str) -> None:
    """
    Paths are relative to the checkout or to the crate.
    """
    assert (ROOT / path).is_file() or (CRATE / path).is_file()
