"""
The modules of the edit benchmark: where each is declared, which line is edited, and copies of its sources.

The benchmark never edits this checkout. A *copy* is a folder with the sources of one module's
workspace. Every way of building has its own copy, so an edit for one does not affect another.

Invariant: an edit changes a text that is compiled into the library, and nothing that the library
computes. Standard library only.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from environment import ROOT, InstallFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

#: Folders that are not copied: what a build or an interpreter leaves behind.
_NOT_COPIED = ("target", "dist", "__pycache__", ".*_cache", "*.so")

#: Name of a profile that a user could write by hand: it has the default settings of the edit tier for all packages.
FAST_PROFILE = "quick"
_FAST_PROFILE_TOML = f"""
[profile.{FAST_PROFILE}]
inherits = "release"
incremental = true
codegen-units = 256
"""


@dataclass(frozen=True)
class Subject:
    """
    A module that is edited and imported.
    """

    module: str
    #: Its package, and the package's folder in the workspace.
    package: str
    directory: str
    features: tuple[str, ...]
    #: The name of the library that cargo builds, without prefix and suffix.
    library: str
    #: The edited file, from the package's folder, and a text that is in it once. An edit appends a number to the text.
    source: str
    text: str
    #: What is called to measure the speed of the code.
    call: str

    @property
    def leaf(self) -> str:
        """
        Last part of the module's name.
        """
        return self.module.rpartition(".")[2]

    @property
    def parent(self) -> str:
        """
        The package that contains the module.
        """
        return self.module.rpartition(".")[0]

    @property
    def is_small(self) -> bool:
        """
        Whether this is the small crate that this file defines. It is its own workspace.
        """
        return self is SMALL

    def edit(self, workspace: Path, number: int) -> None:
        """
        Change the line in a copy.
        """
        path = workspace / self.directory / self.source
        path.write_text(self._edited(number), encoding="utf-8")

    def _edited(self, number: int) -> str:
        path = ROOT / "rust" / self.directory / self.source
        original = _SMALL_LIB_RS if self.is_small else path.read_text(encoding="utf-8")
        if original.count(self.text) != 1:
            raise RuntimeError(f"{path}: the text {self.text!r} must be in it exactly once; adapt ci/edit_modules.py")
        return original.replace(self.text, f"{self.text} {number}")

    def edited_for_rustimport(self, number: int) -> str:
        """
        Return the small crate as one file with the header that rustimport reads.
        """
        return _RUSTIMPORT_HEADER + self._edited(number)


_PACKAGE = "sglang.srt.rust_extensions"
SMALL = Subject(
    "bench_small._small",
    "bench-small",
    ".",
    (),
    "bench_small",
    "src/lib.rs",
    "edit",
    "a loop of a million square roots",
)
#: By the leaf of the module's name.
SUBJECTS = {
    subject.leaf: subject
    for subject in (
        SMALL,
        Subject(
            f"{_PACKAGE}._radix_tree",
            "sglang-radix-tree",
            "sglang-radix-tree",
            ("python",),
            "sglang_radix_tree",
            "src/python.rs",
            "page_size must be positive, got {page_size}",
            "page hashes of 64k tokens",
        ),
        Subject(
            f"{_PACKAGE}._multimodal",
            "sglang-mm",
            "sglang-mm",
            ("parallel", "python"),
            "sglang_mm_core",
            "src/qwen_vl/smart_resize.rs",
            "smart_resize: empty image, {0}",
            "a VGA JPEG, resized, to the patches of Qwen2-VL, one thread",
        ),
        Subject(
            f"{_PACKAGE}._server",
            "sglang-server",
            "sglang-server",
            ("python",),
            "sglang_server",
            "src/api/mod.rs",
            "is not allowed for this path",
            "/tokenize of 1 MB of text over HTTP, byte tokenizer",
        ),
    )
}

_SMALL_CARGO_TOML = """\
[package]
name = "bench-small"
version = "0.1.0"
edition = "2024"

[package.metadata.sglang]
python-module = "bench_small._small"

[lib]
crate-type = ["cdylib"]

[dependencies]
pyo3 = { version = "0.30", features = ["abi3-py310"] }

[workspace]
"""
_SMALL_LIB_RS = """\
use pyo3::prelude::*;

#[pyfunction]
fn text() -> &'static str {
    "edit"
}

#[pyfunction]
fn sum_of_roots(count: u32) -> f64 {
    (0..count).map(|number| f64::from(number).sqrt()).sum()
}

#[pymodule]
fn _small(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(text, module)?)?;
    module.add_function(wrap_pyfunction!(sum_of_roots, module)?)
}
"""

_RUSTIMPORT_HEADER = """\
// rustimport
//: [package]
//: name = "_small"
//: version = "0.1.0"
//: edition = "2024"
//: [lib]
//: crate-type = ["cdylib"]
//: [dependencies]
//: pyo3 = { version = "0.30", features = ["abi3-py310"] }
"""


def workspace_copy(folder: Path, subject: Subject) -> Path:
    """
    Copy the sources of a module's workspace into a new folder; return the workspace.

    The copy has one profile more than the original, which is unused unless a command names it.
    """
    workspace = folder / ("small" if subject.is_small else "rust")
    if workspace.is_dir():
        return workspace
    if subject.is_small:
        _write_small(workspace)
    else:
        shutil.copytree(ROOT / "rust", workspace, ignore=shutil.ignore_patterns(*_NOT_COPIED), symlinks=True)
        # It holds the settings of the edit tier.
        shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    with (workspace / "Cargo.toml").open("a", encoding="utf-8") as manifest:
        manifest.write(_FAST_PROFILE_TOML)
    return workspace


def _write_small(workspace: Path) -> None:
    (workspace / "src").mkdir(parents=True)
    (workspace / "Cargo.toml").write_text(_SMALL_CARGO_TOML, encoding="utf-8")
    (workspace / "src/lib.rs").write_text(_SMALL_LIB_RS, encoding="utf-8")
    done = subprocess.run(
        ["cargo", "generate-lockfile", "--quiet"], check=False, cwd=workspace, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise InstallFailed("cargo generate-lockfile")
