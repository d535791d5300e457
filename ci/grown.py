"""
Write a cargo workspace of a given size, whose extension can be built in a second.

`bench.alpha` depends on every other crate, and each of those also declares a
module: `bench.part0` and so on. The files are spread evenly over the crates, 25
per folder. No crate has external dependencies and there is almost no code, so
that a measurement shows the toolkit and not the compiler.

Invariant: the same size gives the same bytes, so that a second run in another
folder hits the cache of the first. Standard library only.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The minimal glue that CPython needs for an extension module, shared with the tests.
_PYMOD = ROOT / "tests/crates/plain/pymod"

PACKAGE = "bench"
MODULE = "bench.alpha"
_FILES_PER_FOLDER = 25
#: As long as a small source file, because a decision by content reads the files.
_TEXT = "// " + "filler text of a comment. " * 150 + "\n"

_WORKSPACE = """\
[workspace]
resolver = "3"
members = [{members}]

[profile.release]
opt-level = 0
debug = false
"""
_MANIFEST = """\
[package]
name = "{name}"
version = "0.1.0"
edition = "2024"

[package.metadata.sglang]
python-module = "bench.{name}"

[lib]
crate-type = {kinds}

[dependencies]
"""


@dataclass(frozen=True)
class Grown:
    """
    A written workspace.
    """

    root: Path
    #: Python modules that its crates declare.
    modules: tuple[str, ...]

    def edit(self, number: int) -> None:
        """
        Give the one line of a source file of `bench.alpha` another value.
        """
        (self.root / "alpha/src/line.rs").write_text(f"pub const LINE: u64 = {number};\n", encoding="utf-8")


def grow(root: Path, *, crates: int, files: int) -> Grown:
    """
    Write a workspace with these numbers of crates and files; each crate has at least a manifest and a `lib.rs`.
    """
    parts = [f"part{number}" for number in range(crates - 2)]
    members = ["alpha", *(["pymod"] if crates > 1 else []), *parts]
    root.mkdir(parents=True)
    (root / "Cargo.toml").write_text(
        _WORKSPACE.format(members=", ".join(f'"{name}"' for name in members)), encoding="utf-8"
    )
    for index, name in enumerate(members):
        # The manifest and `lib.rs` of each crate and the edited file count as files too.
        rest = max(0, files - 2 * crates - 1)
        modules = _add_files(root / name / "src", rest // crates + (index < rest % crates))
        _write_crate(root / name, name, members, modules)
    grown = Grown(root, ("bench.alpha", *(f"bench.{name}" for name in parts)))
    grown.edit(1)
    _write_lockfile(root, members)
    return grown


def _add_files(source: Path, count: int) -> str:
    """
    Add *count* files to a crate and return the `mod` declarations for them.
    """
    source.mkdir(parents=True)
    declarations = []
    for number in range(count):
        group = source / f"group{number // _FILES_PER_FOLDER}"
        group.mkdir(exist_ok=True)
        (group / f"file{number}.rs").write_text(_TEXT, encoding="utf-8")
        declarations.append(f'#[path = "{group.name}/file{number}.rs"]\nmod {group.name}_file{number};\n')
    return "".join(declarations)


def _write_crate(folder: Path, name: str, members: list[str], modules: str) -> None:
    pymod = (_PYMOD / "src/lib.rs").read_text(encoding="utf-8")
    if name == "pymod":
        shutil.copyfile(_PYMOD / "Cargo.toml", folder / "Cargo.toml")
        (folder / "src/lib.rs").write_text(pymod + modules, encoding="utf-8")
        return
    needs = _needs(name, members)
    manifest = _MANIFEST.format(name=name, kinds='["cdylib"]' if name == "alpha" else '["cdylib", "rlib"]')
    (folder / "Cargo.toml").write_text(
        manifest + "".join(f'{other} = {{ path = "../{other}" }}\n' for other in needs), encoding="utf-8"
    )
    value = (
        " + ".join(["line::LINE", *(f"{other}::LINE" for other in needs if other != "pymod")])
        if name == "alpha"
        else "LINE"
    )
    head = "mod line;\n" if name == "alpha" else "pub const LINE: u64 = 1;\n"
    macro = "pymod::module!"
    if not needs:
        # A workspace of one crate contains the glue as a module.
        (folder / "src/pymod.rs").write_text(pymod, encoding="utf-8")
        head, macro = f"#[macro_use]\nmod pymod;\nuse pymod::create;\n{head}", "module!"
    text = f'{head}{macro}(PyInit_{name}, "{name}", ({value}).to_string());\n{modules}'
    (folder / "src/lib.rs").write_text(text, encoding="utf-8")


def _needs(name: str, members: list[str]) -> list[str]:
    if name == "alpha":
        return [other for other in members if other != "alpha"]
    return ["pymod"] if name != "pymod" else []


def _write_lockfile(root: Path, members: list[str]) -> None:
    blocks = []
    for name in sorted(members):
        needs = "".join(f' "{other}",\n' for other in sorted(_needs(name, members)))
        blocks.append(
            f'[[package]]\nname = "{name}"\nversion = "0.1.0"\n' + (f"dependencies = [\n{needs}]\n" if needs else "")
        )
    (root / "Cargo.lock").write_text("version = 4\n\n" + "\n".join(blocks), encoding="utf-8")
