"""
`python -m rust_ext_loader`: the command line, if the script `rust-ext` is not on PATH.
"""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
