"""
Run a program under pools of several sizes.
"""

from __future__ import annotations

import os
import subprocess
import sys


def outputs(program: str) -> set[str]:
    """
    What the Python program prints, in processes with one to four threads; one text if the number does not show.
    """
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "SGL_MM_RS_THREADS": str(threads)},
            check=True,
            capture_output=True,
            text=True,
            timeout=600,
        ).stdout
        for threads in range(1, 5)
    }
