"""
Run the worker of the media benchmark for one build of our module: `python ci/media_library.py LIBRARY IMAGES-JSON`.

Invariant: the import hook is not asked for the module, so the worker measures exactly this file.
"""

from __future__ import annotations

import json
import sys

from edit_calls import loaded


def main(library: str, images: dict[str, str]) -> int:
    """
    Answer requests as side `ours` until stdin ends.
    """
    sys.modules["sglang.srt.rust_extensions._multimodal"] = loaded("_multimodal", library)
    import media_worker

    return media_worker.main("ours", images)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
