"""
Decide which packages belong to a cargo workspace, without running cargo.

As for cargo, the root package is a member, and so is every package that `members`
lists and `exclude` does not. A path dependency of a member is a member if it is
below the root. Other manifests in the tree (`target/`, vendored code, fixtures) are not members.

Invariant: a member that cannot be read is recorded as an error and does not
affect the others. Only an unreadable root manifest raises.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._errors import ManifestError
from .._model import Watched
from .._values import dataclass, field
from ..files._watching import watch
from . import _manifest, _patterns, _toml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MANIFEST = "Cargo.toml"


@dataclass(frozen=True)
class Workspace:
    """
    A root and its members.
    """

    #: Folder of the root manifest. Links are resolved, so a checkout behind a symbolic link is the same checkout.
    root: Path
    #: The root manifest.
    manifest: Mapping[str, Any]
    #: Parsed manifests of the members, by folder.
    members: Mapping[Path, Mapping[str, Any]]
    #: Errors of members that cannot be read.
    broken: tuple[ManifestError, ...]
    #: The paths that change if a member is added or any manifest is edited.
    watched: Watched = field(default_factory=Watched)


def read_workspace(path: Path) -> Workspace:
    """
    The workspace of a folder or a `Cargo.toml`: its own, or the workspace above that it is a member of.

    Raises `ManifestError` if the manifest cannot be read.
    """
    folder = Path(os.path.realpath(path.parent if path.name == MANIFEST else path))
    manifest = _toml.load(folder / MANIFEST)
    if "workspace" not in manifest:
        root = root_of(folder, manifest)
        if root is not None and folder in (above := read_workspace(root)).members:
            return above
    members = _Members(folder, manifest)
    if "workspace" not in manifest:
        members.probed.update(str(above / MANIFEST) for above in folder.parents)
    members.collect()
    return Workspace(folder, manifest, members.found, tuple(members.broken), watch(members.probed))


def root_of(folder: Path, manifest: Mapping[str, Any]) -> Path | None:
    """
    Folder of the workspace root above a package, found as cargo does; `None` if the package is not in a workspace.
    """
    pointer = _manifest.table(manifest, "package").get("workspace")
    if isinstance(pointer, str):
        return Path(os.path.normpath(folder / pointer))
    for above in folder.parents:
        if not has_manifest(above):
            continue
        try:
            candidate = _toml.load(above / MANIFEST)
        except ManifestError:
            return None
        if "workspace" in candidate:
            return None if _is_excluded(folder, above, candidate) else above
    return None


def has_manifest(folder: Path) -> bool:
    """
    Whether a folder has a manifest. A folder that this user cannot read counts as having none.
    """
    return os.path.isfile(folder / MANIFEST)


def _is_excluded(folder: Path, root: Path, manifest: Mapping[str, Any]) -> bool:
    table = _manifest.table(manifest, "workspace")

    def under(key: str) -> bool:
        # Cargo compares prefixes here and does not expand globs.
        return any(
            _manifest.is_inside(folder, os.path.normpath(root / item)) for item in _manifest.strings(table.get(key))
        )

    return under("exclude") and not under("members")


@dataclass
class _Members:
    """
    Finds the members, starting at the root.
    """

    root: Path
    manifest: Mapping[str, Any]
    found: dict[Path, Mapping[str, Any]] = field(default_factory=dict)
    broken: list[ManifestError] = field(default_factory=list)
    #: Every path whose existence or content decided the result.
    probed: set[str] = field(default_factory=set)
    _seen: set[Path] = field(default_factory=set)

    def collect(self) -> None:
        self.probed.add(str(self.root / MANIFEST))
        if "package" in self.manifest:
            self._visit(self.root, self.manifest)
        for pattern in _manifest.strings(_manifest.table(self.manifest, "workspace").get("members")):
            for folder in self._matching(pattern):
                self.probed.add(str(folder / MANIFEST))
                if _patterns.is_glob(pattern) and not has_manifest(folder):
                    continue
                if not _is_excluded(folder, self.root, self.manifest):
                    self._enter(folder)

    def _matching(self, pattern: str) -> Iterator[Path]:
        if not _patterns.is_glob(pattern):
            yield Path(os.path.normpath(self.root / pattern))
            return
        import glob

        self.probed.update(_glob_parents(pattern, self.root))
        for match in sorted(glob.glob(pattern, root_dir=self.root, recursive=True)):
            yield Path(os.path.normpath(self.root / match))

    def _enter(self, folder: Path) -> None:
        if folder in self._seen:
            return
        try:
            manifest = _toml.load(folder / MANIFEST)
        except ManifestError as error:
            self._seen.add(folder)
            self.broken.append(error)
            return
        self._visit(folder, manifest)

    def _visit(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self._seen.add(folder)
        if "package" not in manifest:
            return
        self.found[folder] = manifest
        resolved = _manifest.resolve(manifest, folder, self.manifest, self.root, dev=True)
        for dependency in _manifest.dependencies(resolved, folder):
            if dependency.directory is not None and self._may_belong(dependency.directory):
                self._enter(dependency.directory)

    def _may_belong(self, folder: Path) -> bool:
        if _is_excluded(folder, self.root, self.manifest):
            return False
        self.probed.add(str(folder / MANIFEST))
        if not has_manifest(folder):
            return False
        if _manifest.is_inside(folder, self.root):
            return "workspace" in self.manifest
        try:
            manifest = _toml.load(folder / MANIFEST)
        except ManifestError:
            return False
        return root_of(folder, manifest) == self.root


def _glob_parents(pattern: str, root: Path) -> Iterator[str]:
    """
    The folders in which a new entry could match a pattern.
    """
    import glob

    parts = pattern.split("/")
    fixed = next(index for index, part in enumerate(parts) if _patterns.is_glob(part))
    yield os.path.normpath(root.joinpath(*parts[:fixed]))
    for length in range(fixed + 1, len(parts) + (parts[-1] == "**")):
        for match in glob.iglob("/".join(parts[:length]), root_dir=root, recursive=True):
            if os.path.isdir(root / match):
                yield os.path.normpath(root / match)
