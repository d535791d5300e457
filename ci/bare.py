"""
Make two kinds of interpreters, with and without our import hook. They differ in nothing else.

Each is a virtual environment without pip. The *hooked* one holds the toolkit
and its dependencies as wheels would install them, and the `.pth` file of an
editable install of a workspace. The *plain* one holds built modules only.

Invariant: all files are below the folder passed in. Standard library only; the
toolkit's dependencies come from PyPI in the locked versions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from environment import CONSTRAINTS, ROOT, InstallFailed
from grown import PACKAGE, Grown
from imports import own_environment

#: The toolkit's dependencies, as in `pyproject.toml`.
_DEPENDENCIES = ("filelock", "tomli; python_version < '3.11'")


@dataclass(frozen=True)
class Bare:
    """
    An interpreter of a virtual environment, and the variables with which it runs.
    """

    python: str
    site: Path
    environment: dict[str, str] = field(default_factory=dict)


def plain(folder: Path, libraries: list[str]) -> Bare:
    """
    Make an interpreter in which built modules are installed as plain files.
    """
    bare = _bare(folder, own_environment())
    for library in libraries:
        # Every Python accepts this suffix. The file name must match the library's init function.
        leaf = Path(library).name.partition(".")[0]
        shutil.copyfile(library, bare.site / PACKAGE / f"{leaf}{'.pyd' if os.name == 'nt' else '.so'}")
    return bare


def hooked(folder: Path, grown: Grown, cache: Path) -> Bare:
    """
    Make an interpreter with an editable install of a workspace.
    """
    return hooked_package(folder, PACKAGE, grown.root, cache)


def hooked_package(folder: Path, package: str, workspace: Path, cache: Path) -> Bare:
    """
    Make an interpreter with an editable install of a workspace whose modules are in *package*.
    """
    bare = _bare(folder, {**own_environment(), "RUST_EXT_CACHE_DIR": str(cache)}, package)
    for item in (ROOT / "rust_ext_loader", *_dependencies(folder.parent / "dependencies").iterdir()):
        shutil.copytree(item, bare.site / item.name, ignore=shutil.ignore_patterns("__pycache__"))
    sys.path.insert(0, str(ROOT))
    try:
        from rust_ext_loader.packaging._editable import pth_line
    finally:
        sys.path.remove(str(ROOT))
    (bare.site / "bench.pth").write_text(pth_line((package + ".",), str(workspace)) + "\n", encoding="utf-8")
    return bare


def _bare(folder: Path, environment: dict[str, str], package: str = PACKAGE) -> Bare:
    _run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(folder)])
    python = str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    site = Path(_run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    inside = site.joinpath(*package.split("."))
    inside.mkdir(parents=True)
    (inside / "__init__.py").touch()
    return Bare(python, site, environment)


def _dependencies(folder: Path) -> Path:
    if not folder.is_dir():
        _run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--target",
                str(folder),
                "-c",
                str(CONSTRAINTS),
                *_DEPENDENCIES,
            ]
        )
    return folder


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise InstallFailed(" ".join(command))
    return done.stdout
