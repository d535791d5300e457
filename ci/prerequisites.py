"""
Check the prerequisites that the scripts cannot install, and print how to get the missing ones.

There are three: a new enough Python, Rust, and a linker. `environment` installs
the rest.

Invariant: this module and the scripts that call it parse on Python 3.7, so that
an old Python can report that it is too old. Standard library only; changes
nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 10)


def require(*components: str) -> None:
    """
    End the process with a list of the missing prerequisites, if there are any.
    """
    missing = [problem for problem in (_python(), _rust(components), _linker()) if problem]
    if missing:
        raise SystemExit("Missing on this machine:\n\n" + "\n".join("- " + problem for problem in missing))


def _python() -> str:
    if sys.version_info < OLDEST_PYTHON:
        wanted, found = ".".join(map(str, OLDEST_PYTHON)), sys.version.split()[0]
        return (
            f"Python >= {wanted} (this is {found}, {sys.executable}): install one from python.org, your package "
            "manager or pyenv, and run this script with it."
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        return f"Python's module `{error.name}`: on Debian and Ubuntu a separate package, `apt install python3-venv`."
    return ""


def _rust(components: tuple[str, ...]) -> str:
    needed = oldest_rust()
    if not shutil.which("cargo") or not shutil.which("rustc"):
        problem = f"Rust >= {needed}: `cargo` and `rustc` are not on PATH."
        return f"{problem} Install rustup from rustup.rs, then open a new shell."
    found = _output("rustc", "--version")
    version = re.match(r"rustc (\d+)\.(\d+)", found)
    if version is None:
        return "A working Rust: `rustc --version` printed no version. With rustup: `rustup default stable`."
    if tuple(map(int, version.groups())) < tuple(map(int, needed.split("."))):
        return f"Rust >= {needed} (this is {found.split()[1]}): `rustup update stable`."
    absent = [component for component in components if not _output("cargo", component, "--version")]
    if absent:
        return (
            "Rust's "
            + " and ".join(absent)
            + ": `rustup component add "
            + " ".join(_COMPONENTS[name] for name in absent)
            + "`."
        )
    return ""


#: Name of a cargo subcommand -> rustup component that contains it.
_COMPONENTS = {"fmt": "rustfmt", "clippy": "clippy"}


def _linker() -> str:
    if sys.platform == "win32" or shutil.which("cc"):
        return ""
    if sys.platform == "darwin":
        return "A C compiler and linker (`cc`): `xcode-select --install`."
    return "A C compiler and linker (`cc`): `apt install build-essential`, `dnf install gcc` or `apk add build-base`."


def oldest_rust() -> str:
    """
    Return the workspace's `rust-version`.
    """
    declared = re.search(
        r'^rust-version = "([\d.]+)"', (ROOT / "rust/Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    return declared.group(1) if declared else "0.0"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
