"""
Make the virtual environments and tools that the scripts of this folder use.

`.venv` holds both distributions as editable installs, with the development extras.
`.tools/` holds cargo subcommands and one environment per further Python. Each
environment has a *stamp*: a digest of all inputs that determine its content.

Invariant: exact versions come from the text files of this folder. If the stamp
is current, no installer runs and no network is needed. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
TOOLS = ROOT / ".tools"
CONSTRAINTS = ROOT / "ci/constraints.txt"
ORACLES = ROOT / "ci/oracles.txt"

#: Files that determine the content of an environment.
_INPUTS = (
    "pyproject.toml",
    "ci/constraints.txt",
    "rust/pyproject.toml",
    "rust/hatch_build.py",
    "rust_ext_loader/packaging/_editable.py",
)


class InstallFailed(Exception):
    """
    An installer failed; it has printed its error.
    """


@dataclass(frozen=True)
class Environment:
    """
    A virtual environment: its folder, its Python and its packages.
    """

    folder: Path
    #: Python executable that creates it.
    base: str
    #: Arguments to pip, after the constraints.
    requirements: tuple[str, ...]
    #: Requirement files of further packages, which are installed without their dependencies.
    locked: tuple[Path, ...] = ()

    @property
    def scripts(self) -> Path:
        """
        Folder of its executables.
        """
        return self.folder / ("Scripts" if os.name == "nt" else "bin")

    @property
    def python(self) -> str:
        """
        Its interpreter.
        """
        return str(self.scripts / "python")

    def ready(self) -> None:
        """
        Create or update it unless its stamp is current.
        """
        stamp = self.folder / "stamp"
        wanted = self._digest()
        if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted and _identity(self.python):
            return
        print(f"installing into {self.folder.relative_to(ROOT)} ...", flush=True)
        if _identity(self.python) != _identity(self.base):
            # The folder belongs to another Python, was moved or is broken. Otherwise it is kept: it may be in use.
            _install(self.base, "-m", "venv", "--clear", str(self.folder))
        pip = (self.python, "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS))
        # The build back end comes first, so that its version is locked too: an isolated build would take the newest.
        _install(*pip, "hatchling", "editables")
        _install(*pip, "--no-build-isolation", *self.requirements)
        for lock in self.locked:
            _install(*pip, "--no-deps", "--requirement", str(lock))
        stamp.write_text(wanted, encoding="ascii")

    def _digest(self) -> str:
        hasher = hashlib.sha256()
        # An editable install holds absolute paths: a checkout that moved is installed again.
        for part in (str(ROOT).encode(), _identity(self.base), *(item.encode() for item in self.requirements)):
            hasher.update(b"%d:%s" % (len(part), part))
        for path in (*(ROOT / name for name in _INPUTS), *self.locked):
            hasher.update(os.fsencode(path.relative_to(ROOT)) + b"\0" + path.read_bytes() + b"\0")
        # An editable install depends on only one thing in a manifest: the module names.
        for path in sorted(ROOT.glob("rust/*/Cargo.toml")):
            hasher.update(
                b"".join(line for line in path.read_bytes().splitlines() if line.startswith(b"python-module"))
            )
        return hasher.hexdigest()


def main_environment() -> Environment:
    """
    Return `.venv`: both distributions and the development tools.
    """
    return Environment(VENV, sys.executable, ("-e", f"{ROOT}[dev]", "-e", str(ROOT / "rust")))


def toolkit_environment(base: str, version: str) -> Environment:
    """
    Return an environment of another Python with the toolkit and its test dependencies.
    """
    return Environment(TOOLS / f"python-{version}", base, ("-e", f"{ROOT}[test]"))


def oracle_environment() -> Environment:
    """
    Return an environment with the crates' modules and their oracles: torch, torchvision and transformers (gigabytes).
    """
    requirements = ("-e", f"{ROOT}[test]", "-e", str(ROOT / "rust"), "pillow")
    return Environment(TOOLS / "oracles", sys.executable, requirements, locked=(ORACLES,))


def cargo_tool(name: str) -> None:
    """
    Install a cargo subcommand in the version of `ci/<name>.txt`, unless any version of it is already installed.
    """
    if shutil.which(name, path=search_path()):
        return
    lock = ROOT / f"ci/{name}.txt"
    print(f"installing {name} into .tools ...", flush=True)
    pip = (
        main_environment().python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-warn-script-location",
        "--prefix",
        str(TOOLS),
    )
    try:
        _install(*pip, "--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(lock))
    except InstallFailed:
        (version,) = re.findall(r"==(\S+)", lock.read_text(encoding="ascii"))
        print(f"no binary for this platform; compiling {name} {version} once, which takes minutes ...", flush=True)
        _install("cargo", "install", "--quiet", "--locked", "--root", str(TOOLS), f"{name}@{version}")


def search_path() -> str:
    """
    Return PATH with `.venv` in front and `.tools/bin` at the end.
    """
    folders = [str(main_environment().scripts), os.environ.get("PATH", os.defpath), str(TOOLS / "bin")]
    return os.pathsep.join(folders)


def _identity(python: str) -> bytes:
    """
    Return the version and prefix of a Python executable; empty if it does not run.
    """
    command = [python, "-c", "import sys; print(sys.version, sys.base_prefix)"]
    try:
        return subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ).stdout
    except OSError:
        return b""


def _install(*command: str) -> None:
    quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    done = subprocess.run(command, check=False, cwd=ROOT, env=quiet, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise InstallFailed(" ".join(command))
