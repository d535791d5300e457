"""
Find the other CPythons on this machine, on which the toolkit is also tested.

For each minor version it takes the newest patch release. The minor version of the running interpreter is left out.

Invariant: every returned interpreter starts, is a new enough CPython and can
make a virtual environment. Standard library only; installs nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from prerequisites import OLDEST_PYTHON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PROBE = """
import ensurepip, json, sys, venv
print(json.dumps([sys.implementation.name, list(sys.version_info[:3]), sys.version_info.releaselevel, sys.executable]))
"""


@dataclass(frozen=True)
class Interpreter:
    """
    A CPython found on this machine.
    """

    executable: str
    version: tuple[int, ...]

    @property
    def minor(self) -> str:
        """
        The minor version, such as `3.12`.
        """
        return f"{self.version[0]}.{self.version[1]}"


def others() -> list[Interpreter]:
    """
    Return the CPythons of other minor versions than this one, oldest first.
    """
    best: dict[tuple[int, ...], Interpreter] = {}
    for candidate in _candidates():
        found = _probe(candidate)
        if found is None or not OLDEST_PYTHON <= found.version[:2] != sys.version_info[:2]:
            continue
        known = best.get(found.version[:2])
        if known is None or known.version < found.version:
            best[found.version[:2]] = found
    return [best[minor] for minor in sorted(best)]


def _candidates() -> Iterator[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from (str(path) for path in sorted(pyenv.glob("versions/3.*/bin/python3")))
    for folder in dict.fromkeys(os.environ.get("PATH", os.defpath).split(os.pathsep)):
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:
            continue
        # pyenv's shims start the interpreters that were yielded above.
        if os.path.basename(folder) != "shims":
            yield from (os.path.join(folder, name) for name in names if re.fullmatch(r"python3(\.\d+)?(\.exe)?", name))


def _probe(executable: str) -> Interpreter | None:
    try:
        done = subprocess.run(
            [executable, "-I", "-c", _PROBE], check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
        name, version, level, path = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Interpreter(path, tuple(version)) if name == "cpython" and level == "final" else None
