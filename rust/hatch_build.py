"""
Decide what a distribution of the extension modules contains.

An editable install gets the `.pth` line of the import hook and a dependency on
the toolkit. It builds no module; imports do. A source distribution gets a copy
of the toolkit, so that it can be built without the folder beside it.

Invariant: the toolkit comes from the folder beside this one, or from the copy
in `_vendor`. It never comes from a package index or from an installed
distribution.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLKIT = "rust_ext_loader"
VENDORED = "_vendor"
PTH = "_sglang_rust_extensions_hook.pth"


class ExtensionModulesHook(BuildHookInterface):  # type: ignore[type-arg]  # its parameter only types `build_config`
    """
    The build hook that hatchling calls once per wheel or source distribution.
    """

    PLUGIN_NAME = "custom"
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """
        Add files to the distribution.
        """
        if self.target_name == "sdist":
            build_data["force_include"][str(toolkit_folder(Path(self.root)) / TOOLKIT)] = f"{VENDORED}/{TOOLKIT}"
        elif version == "editable":
            self._editable(build_data)
        else:
            raise NotImplementedError(
                f"not supported yet: a {version} wheel of {self.metadata.core.raw_name} needs built extension modules; "
                "install the checkout instead: `pip install -e . -e rust`"
            )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """
        Remove the temporary file that was packed.
        """
        if self._scratch is not None:
            self._scratch.cleanup()

    def _editable(self, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        line, problems = editable_line(root)
        for problem in problems:
            self.app.display_warning(
                f"{problem}\nFix it, then import the module. If the module is in a new package, install again first."
            )
        self._scratch = tempfile.TemporaryDirectory()
        pth = Path(self._scratch.name, PTH)
        pth.write_text(line + "\n", encoding="ascii")
        build_data["force_include_editable"][str(pth)] = PTH
        build_data["dependencies"].append("rust-ext-loader")


def editable_line(root: Path) -> tuple[str, list[str]]:
    """
    The `.pth` line for all declared modules, and the problems of broken declarations.

    The line covers modules with broken declarations too.
    """
    with importable(toolkit_folder(root)):
        from rust_ext_loader.declare import _discover
        from rust_ext_loader.packaging import _editable

        declared = _discover.extensions(root)
        duplicates = [
            str(_discover.DuplicateModule(module, manifests)) for module, manifests in declared.duplicates.items()
        ]
        # A broken declaration may be fixed later, without another install.
        modules = {*declared.specs, *declared.duplicates, *declared.broken_modules}
        line = _editable.pth_line(_editable.prefixes_of(modules), str(root))
        return line, [*map(str, declared.broken), *duplicates]


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """
    Put *folder* first on `sys.path` within the block.

    `sys.path` is restored, because the process belongs to the installer.
    """
    before = sys.path[:]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


def toolkit_folder(root: Path) -> Path:
    """
    The folder to import the toolkit from.
    """
    for folder in (root.parent, root / VENDORED):
        if (folder / TOOLKIT / "__init__.py").is_file():
            return folder
    raise FileNotFoundError(
        f"{TOOLKIT} is neither beside {root} nor in {root / VENDORED}: "
        "build from a complete checkout or from a source distribution"
    )
