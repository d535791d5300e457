"""
Set up other import hooks for Rust, for comparison with ours.

A *peer* is an import hook from PyPI with a small crate, already built. Its cost
is compared with the plain import of the same library by the same Python, so
that only the hook differs.

Invariant: all files are in `.tools/bench`, without the toolkit; a second set-up
builds nothing. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from environment import TOOLS, InstallFailed
from imports import Way, code_that_imports, own_environment, plain_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["IMPORTERS", "Importer", "environment", "own_environment", "peers", "variables_of"]

HOME = TOOLS / "bench"
REQUIREMENTS = ("maturin==1.16.0", "maturin-import-hook==0.3.0", "rustimport==1.7.1")

_CARGO_TOML = """\
[package]
name = "bench-maturin"
version = "0.1.0"
edition = "2024"

[lib]
name = "bench_maturin"
crate-type = ["cdylib"]

[dependencies]
pyo3 = { version = "0.29", features = ["abi3-py310"] }

[workspace]
"""
_PYPROJECT_TOML = """\
[build-system]
requires = ["maturin>=1,<2"]
build-backend = "maturin"

[project]
name = "bench-maturin"
version = "0.1.0"
requires-python = ">=3.10"
"""
_LIB_RS = """\
use pyo3::prelude::*;

#[pyfunction]
fn answer() -> i64 {
    42
}

#[pymodule]
fn %s(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(answer, module)?)
}
"""
_RUSTIMPORT_HEADER = """\
// rustimport
//: [package]
//: name = "bench_rustimport"
//: version = "0.1.0"
//: edition = "2024"
//: [lib]
//: crate-type = ["cdylib"]
//: [dependencies]
//: pyo3 = { version = "0.29", features = ["abi3-py310"] }
"""


@dataclass(frozen=True)
class Peer:
    """
    Another import hook.
    """

    hooked: Way
    #: The plain import of the same library, without the hook.
    plain: Way
    #: Rust source of the imported module.
    source: Path
    #: Whether the hook runs at every start of its interpreter.
    at_start: bool

    def edit(self, number: int) -> None:
        """
        Change one line of the source.
        """
        lines = self.source.read_text(encoding="utf-8").splitlines(keepends=True)
        (line,) = (index for index, text in enumerate(lines) if text.strip().isdigit())
        lines[line] = f"    {number}\n"
        self.source.write_text("".join(lines), encoding="utf-8")


@dataclass(frozen=True)
class Importer:
    """
    A command that imports `alpha` and prints its value, and the variables that the command needs.
    """

    name: str
    command: tuple[str, ...]
    variables: Mapping[str, str]


def peers() -> list[Peer]:
    """
    Return every peer, already built, with the plain import of the same library.
    """
    python = environment()
    return [_maturin(python), _rustimport(python)]


def environment() -> Path:
    """
    Return the peers' Python, with both hooks installed from PyPI.
    """
    home = HOME / "venv"
    python = home / "bin/python"
    stamp = home / "stamp"
    wanted = "\n".join((sys.version, *REQUIREMENTS))
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        print("installing the peers into .tools/bench ...", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(home)])
        _run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS])
        stamp.write_text(wanted, encoding="utf-8")
    return python


def _maturin(python: Path) -> Peer:
    """
    Set up maturin as its manual says: `maturin develop` once, and the hook installed for every start of this Python.
    """
    crate = HOME / "maturin"
    _write(crate / "Cargo.toml", _CARGO_TOML)
    _write(crate / "pyproject.toml", _PYPROJECT_TOML)
    _write(crate / "src/lib.rs", _LIB_RS % "bench_maturin")
    _run([str(python.parent / "maturin"), "develop", "--quiet"], variables_of(python), crate)
    # The hook gets its own Python, because an installed hook would also run in the plain import.
    hooked = HOME / "hooked"
    if not hooked.is_dir():
        shutil.copytree(python.parent.parent, hooked, symlinks=True)
    executable = hooked / "bin/python"
    _run([str(executable), "-m", "maturin_import_hook", "site", "install", "--force"], variables_of(executable), HOME)
    _run([str(hooked / "bin/maturin"), "develop", "--quiet"], variables_of(executable), crate)
    with_hook, plain = _pair("maturin import hook", executable, python, "bench_maturin", "", variables_of(executable))
    return Peer(with_hook, plain, crate / "src/lib.rs", at_start=True)


def _rustimport(python: Path) -> Peer:
    """
    Set up rustimport as its manual says: a source file with a header; the program imports the hook first.
    """
    folder = HOME / "rustimport"
    _write(folder / "bench_rustimport.rs", _RUSTIMPORT_HEADER + _LIB_RS % "bench_rustimport")
    variables = {
        **variables_of(python),
        "PYTHONPATH": str(folder),
        "RUSTIMPORT_CACHE_DIR": str(HOME / "rustimport-cache"),
    }
    hooked, plain = _pair("rustimport", python, python, "bench_rustimport", "import rustimport.import_hook", variables)
    return Peer(hooked, plain, folder / "bench_rustimport.rs", at_start=False)


def _pair(
    name: str, python: Path, plain_python: Path, module: str, before: str, variables: dict[str, str]
) -> tuple[Way, Way]:
    hooked = Way(name, (str(python), "-c", code_that_imports(module, before)), variables)
    hooked.run()
    library = hooked.run().library
    folder = HOME / f"plain-{module}"
    folder.mkdir(exist_ok=True)
    # The copy is outside the folder that the hook watches, and keeps its name, which must match `PyInit_<name>`.
    plain_variables = {**own_environment(), **plain_folder(_shared_object(library), module, str(folder))}
    return hooked, Way(
        f"plain import for {name}", (str(plain_python), "-c", code_that_imports(module)), plain_variables
    )


def _shared_object(loaded: str) -> str:
    """
    Return the library, also if the loaded module is a package around it.
    """
    if not loaded.endswith(".py"):
        return loaded
    (library,) = (path for path in Path(loaded).parent.iterdir() if path.suffix == ".so")
    return str(library)


def variables_of(python: Path) -> dict[str, str]:
    """
    Return the variables of an activated environment, given its Python.
    """
    own = {name: value for name, value in own_environment().items() if name != "CARGO_TARGET_DIR"}
    # The hook and maturin read the variables of an activated environment.
    path = os.pathsep.join((str(python.parent), own.get("PATH", os.defpath)))
    return {**own, "PATH": path, "VIRTUAL_ENV": str(python.parent.parent), "PYO3_PYTHON": str(python)}


def _write(path: Path, text: str) -> None:
    # Write only changed text, because a newer timestamp would make a hook build again.
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _run(command: list[str], variables: dict[str, str] | None = None, folder: Path | None = None) -> None:
    done = subprocess.run(
        command, check=False, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise InstallFailed(" ".join(command))


# A given workspace at `<place>/workspace`, whose member `alpha` is the module.

_PRINT_VALUE = "import alpha; print('value:', alpha.value)"


def _maturin_importer(place: Path) -> Importer:
    """
    Make a separate Python, with the crate installed and the hook at every start; release builds, as for all importers.
    """
    shutil.copytree(environment().parent.parent, place / "venv", symlinks=True)
    python = place / "venv/bin/python"
    variables = {**variables_of(python), "MATURIN_BUILD_DIR": str(place / "maturin-build")}
    crate = place / "workspace/alpha"
    _write(crate / "pyproject.toml", _PYPROJECT_TOML.replace("bench-maturin", "alpha"))
    _run([str(python), "-m", "maturin_import_hook", "site", "install", "--force", "--args=--release"], variables, place)
    _run([str(python.parent / "maturin"), "develop", "--quiet", "--release"], variables, crate)
    return Importer("maturin import hook", (str(python), "-c", _PRINT_VALUE), variables)


def _rustimport_importer(place: Path) -> Importer:
    """
    Put the crate's folder on the path, with the hook's marker file in it; release builds.
    """
    python = environment()
    _write(place / "workspace/alpha/.rustimport", "")
    variables = {
        **variables_of(python),
        "PYTHONPATH": str(place / "workspace"),
        "RUSTIMPORT_CACHE_DIR": str(place / "rustimport-cache"),
        "RUSTIMPORT_RELEASE_BINARIES": "true",
    }
    return Importer("rustimport", (str(python), "-c", f"import rustimport.import_hook; {_PRINT_VALUE}"), variables)


#: Each import hook, by a short name.
IMPORTERS = {"maturin": _maturin_importer, "rustimport": _rustimport_importer}
