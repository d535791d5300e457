"""
Write the expected tokens of Qwen3's tokenizer: `python generate_qwen3_golden.py .tools/qwen3-3.7.2/tokenizer.json`.

The Python package `tokenizers` (`pip install tokenizers==0.22.2`) computes the tokens. This program writes them to
`golden/qwen3.jsonl` next to this file, one text per line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

FILE = Path(__file__).with_name("golden") / "qwen3.jsonl"
TEXTS = [
    "",
    " ",
    "\n\n \t\r\n",
    "Hello, world!",
    "한국어 문장은 조사가 붙어서 띄어쓰기가 다릅니다.",
    "👨‍👩‍👧‍👦 é e\u0301 \u2028 ✅ 🇰🇷 \U0010ffff",
    "I'll don't WE'VE they'd 's",
    "1234567890 3.14159 ½ ٣",
    'fn main() {\n    println!("{}", x?.iter().map(|y| y * 2).sum::<u64>());\n}\n',
    "def f(x):\n\treturn {'a': [1, 2.5e-3], \"b\": None}\n\n\n",
    "中文和日本語のテキスト、混ぜて。",
    "नमस्ते दुनिया สวัสดีชาวโลก שלום עולם",
    (
        "<|im_start|>user\nWhat is this?<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    ),
    '<|im_start <|im_end|><tool_call>{"name": "f"}</tool_call>',
    "\u0000\u0001\u007f\u0085\u00a0\u200b\ufeff",
    "a" * 300,
    "https://example.org/a?b=c&d=%20#e user@example.org C:\\Windows\\system32",
]


def main() -> None:
    """
    Tokenize every text and rewrite the file.
    """
    tokenizer = Tokenizer.from_file(sys.argv[1])
    with FILE.open("w", encoding="utf-8", newline="\n") as file:
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            plain = tokenizer.decode(ids, skip_special_tokens=True)
            file.write(json.dumps({"text": text, "ids": ids, "plain": plain}) + "\n")


if __name__ == "__main__":
    main()
