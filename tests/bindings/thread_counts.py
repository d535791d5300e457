"""
Runs a program with thread pools of several sizes.
"""

from __future__ import annotations

import os
import subprocess
import sys


def outputs(program: str) -> set[str]:
    """
    The different outputs of a Python program with one to four threads. The set has one element if all are equal.
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
