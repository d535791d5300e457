"""
The README of `sglang-mm` is true: its Python runs, its family is the tested one, and what it names is there.
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
    found = [text for name, text in BLOCKS if name == language]
    assert found
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs(code: str) -> None:
    """
    Each block stands alone.
    """
    exec(compile(code, "README.md", "exec"), {})


def test_the_family_is_the_tested_one() -> None:
    """
    `tests/adding_a_model.rs` has the text, with the crate's public name.
    """
    (family,) = blocks("rust")
    _, _, body = family.partition("\n\n")

    assert body.replace("crate::{", "sglang_mm_core::{") in (CRATE / "tests/adding_a_model.rs").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("room", re.findall(r"^\| (`.*?) \|", README, re.MULTILINE))
def test_rooms_are_there(room: str) -> None:
    """
    What the tables name is a file, a folder or a function.
    """
    sources = [*CRATE.glob("src/**/*.rs")]
    stems = {part.removesuffix(".rs") for path in sources for part in path.relative_to(CRATE / "src").parts}
    functions = set(re.findall(r"pub fn (\w+)", "".join(path.read_text(encoding="utf-8") for path in sources)))

    for name in re.findall(r"`(?:common::)?(\w+)/?`", room):
        assert name in stems | functions


@pytest.mark.parametrize("path", re.findall(r"(?:rust|ci|tests)/[\w/.-]+\.(?:py|json)\b", README))
def test_files_are_there(path: str) -> None:
    """
    Paths are those of the checkout, or of the crate.
    """
    assert (ROOT / path).is_file() or (CRATE / path).is_file()
