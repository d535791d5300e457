"""
The value of the module in `tests/crates/undeclared`, word by word.
"""

from __future__ import annotations

#: The words of the value, by what each depends on.
WORDS = {
    "readme": "readme-1",
    "outside": "outside-1",
    "beyond": "beyond-1",
    "seen": "unset",
    "made": "made",
    "generated": "proto-1:one:none",
    "helped": "helped-1",
    "helper": "unset",
}


def value(**words: str) -> str:
    return " ".join({**WORDS, **words}.values())
