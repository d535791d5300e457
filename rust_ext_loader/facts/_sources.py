"""
Decide which files of a package are inputs of its build, and read them.

Every regular file is an input, unless it can never reach the compiler: Python files,
built libraries, files of editors and test runners, version control, and nested
packages. A few names are skipped only directly under the package's root, such as
`target`, `tests` and `*.md`. If a build reads a skipped file
anyway, dep-info shows it after the build.

Invariant: only path and content decide; Git and timestamps are never used. For a
link, both its target and the content behind it are inputs.
"""

from __future__ import annotations

import os
import re
import stat

from .._model import Watched
from .._values import dataclass, field
from ..declare import _manifest, _patterns
from ..declare._workspace import MANIFEST
from ..files import _digest, _watching
from . import _cargo_config
from ._fingerprint import NOTHING
from ._lockfile import LOCKFILE
from ._toolchain import TOOLCHAIN_FILES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: Marks folders that can be recreated; cargo puts it into target folders.
_CACHE_TAG = "CACHEDIR.TAG"

#: Folders that are never read.
_FOREIGN_FOLDERS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".hypothesis",
        ".idea",
        ".vscode",
    }
)
#: Names that are skipped directly under a package's root. Other modules read them (toolchain, configuration, lockfile,
#: manifest), or the build of a library never does.
_ROOT_ONLY = frozenset(
    {
        "target",
        "tests",
        "benches",
        "examples",
        _cargo_config.FOLDER,
        *TOOLCHAIN_FILES,
        LOCKFILE,
        MANIFEST,
    }
)
#: Files that editors, desktops and coverage tools create.
_EDITOR_FILES = r"""
    .*~ | \.?\#.* | \..*\.sw[a-p] | \.DS_Store | Thumbs\.db | 4913
    | \.coverage(?:\..*)? | .*\.prof(?:raw|data)
"""
#: Files that are no inputs of a package: `_EDITOR_FILES`, Python files and built libraries.
_NEVER = re.compile(rf"{_EDITOR_FILES} | .*\.(?:py|pyi|pyc|pyo) | .*\.(?:so|pyd|dll|dylib|pdb)", re.VERBOSE | re.DOTALL)
#: Files that are no inputs of a folder that a build was seen to read.
_NEVER_IF_SEEN = re.compile(_EDITOR_FILES, re.VERBOSE | re.DOTALL)

_NOT_REGULAR = "no regular file"


@dataclass
class Sources:
    """
    The files found so far.
    """

    #: Returns the name of a path in facts.
    name_of: Callable[[str], str]
    digests: dict[str, str] = field(default_factory=dict)
    #: The regular files among `present`, under the paths by which they were found.
    files: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)

    def add_package(self, folder: str, exclude: tuple[str, ...] = ()) -> None:
        """
        Add every file that a package's build may read.
        """
        self._walk(_Walk(exclude, is_package=True), folder, "")

    def add_declared(self, folder: str, pattern: str) -> None:
        """
        Add the files that an entry of `source-inputs` matches; an entry without a match is recorded as well.
        """
        path = os.path.normpath(os.path.join(folder, pattern))
        if _patterns.is_glob(pattern):
            self._add_glob(folder, pattern)
        elif os.path.isdir(path):
            self._walk(_Walk((), is_package=False), path, "")
        elif os.path.lexists(path):
            self._add_path(path)
        else:
            self._missing(path)

    def add_everything(self, folder: str) -> None:
        """
        Add everything below a folder that a build was seen to read.

        The names of folders, pipes and devices count as well, because the build may have listed the folder.
        """
        self._walk(_Walk((), is_package=False, never=_NEVER_IF_SEEN, record_names=True), folder, "")

    def _missing(self, path: str) -> None:
        self.digests[self.name_of(path)] = NOTHING
        self.absent.add(path)

    def _add_glob(self, folder: str, pattern: str) -> None:
        fixed = _patterns.fixed_part(pattern.replace(os.sep, "/"))
        base = os.path.normpath(os.path.join(folder, fixed))
        rest = pattern[len(fixed) :].lstrip("/")
        if not os.path.isdir(base):
            self.absent.add(base)
        before = len(self.digests)
        self._walk(_Walk((), is_package=False, only=(rest,)), base, "")
        if len(self.digests) == before:
            self.digests.setdefault(f"{self.name_of(base)}/{rest}", NOTHING)

    def _add_path(self, path: str) -> None:
        if os.path.islink(path):
            self._add_link(path)
        else:
            self._add_file(path)

    def _add_file(self, path: str, link: str = "") -> None:
        digest = file_digest(path)
        if digest is not None:
            self.digests[self.name_of(path)] = f"{digest}{link}"
            self.files.add(path)
            self.present.add(path)

    def _add_link(self, path: str) -> str | None:
        """
        Add a link; if it leads to a folder, return the folder's real path.
        """
        target = os.readlink(path)
        if os.path.isabs(target):
            name = self.name_of(os.path.normpath(target))
            # The path of the checkout must not become a fact. The content behind the link is an input in any case.
            target = "(outside)" if name.startswith("..") else name
        arrow = f" -> {_manifest.posix(target)}"
        try:
            mode = os.stat(path).st_mode
        except OSError:
            self.digests[self.name_of(path)] = f"{NOTHING}{arrow}"
            watched = _watching.watch([path])
            self.present |= watched.present
            self.absent |= watched.absent
            return None
        if stat.S_ISREG(mode):
            self._add_file(path, arrow)
        if not stat.S_ISDIR(mode):
            return None
        self.digests[self.name_of(path)] = f"folder{arrow}"
        return os.path.realpath(path)

    def _walk(self, walk: _Walk, folder: str, relative: str) -> None:
        self.present.add(folder)
        entries = _entries(folder)
        if relative and walk.is_package and any(entry.name == MANIFEST for entry in entries):
            # Another package. It is an input only if it is a dependency, and then it is added separately.
            self.present.add(os.path.join(folder, MANIFEST))
            return
        if relative and not walk.is_package and any(entry.name == _CACHE_TAG for entry in entries):
            # A cargo target folder, which every build changes.
            return
        if relative and walk.record_names:
            self.digests[self.name_of(folder)] = "folder"
        for entry in entries:
            below = f"{relative}/{entry.name}" if relative else entry.name
            if not walk.skips(entry.name, below, at_root=not relative):
                self._visit(walk, entry, below)

    def _visit(self, walk: _Walk, entry: os.DirEntry[str], below: str) -> None:
        if entry.is_symlink():
            self._follow(walk, entry, below)
        elif entry.is_dir(follow_symlinks=False):
            if not _patterns.covers(below, walk.exclude):
                self._walk(walk, entry.path, below)
        elif not entry.is_file(follow_symlinks=False):
            if walk.record_names:
                self.digests[self.name_of(entry.path)] = _NOT_REGULAR
        elif walk.wants(entry.name, below):
            self._add_file(entry.path)

    def _follow(self, walk: _Walk, entry: os.DirEntry[str], below: str) -> None:
        is_folder = os.path.isdir(entry.path)
        if not is_folder and not walk.wants(entry.name, below):
            return
        real = self._add_link(entry.path)
        if real is None or real in walk.linked or _patterns.covers(below, walk.exclude):
            return
        # If the link's target contains the link, it is being walked already: following the link would loop.
        if not _manifest.is_inside(os.path.realpath(os.path.dirname(entry.path)), real):
            walk.linked.add(real)
            self._walk(walk, entry.path, below)


@dataclass
class _Walk:
    """
    The rules of one walk over a tree.
    """

    exclude: tuple[str, ...]
    is_package: bool
    #: If set, only files that match are added.
    only: tuple[str, ...] | None = None
    #: Names of files to skip, unless `only` is set.
    never: re.Pattern[str] = _NEVER
    #: Whether folders, pipes and devices are recorded by name.
    record_names: bool = False
    #: Real folders that were entered through links; each is entered once.
    linked: set[str] = field(default_factory=set)

    def skips(self, name: str, below: str, *, at_root: bool) -> bool:
        if name in _FOREIGN_FOLDERS or (at_root and self.is_package and (name in _ROOT_ONLY or name.endswith(".md"))):
            return True
        return bool(self.exclude) and _patterns.matches(below, self.exclude)

    def wants(self, name: str, below: str) -> bool:
        if self.only is not None:
            return _patterns.matches(below, self.only)
        return self.never.fullmatch(name) is None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        # Deleted, or not readable: the build cannot read it either.
        return []


@dataclass(frozen=True, slots=True)
class Look:
    """
    The content of a path.
    """

    #: A digest; it starts with `folder:` for a folder. `nothing` if the path does not exist.
    value: str
    watched: Watched


def look_at(path: str) -> Look:
    """
    Read a file or a whole folder.
    """
    if not os.path.isdir(path):
        watched = _watching.watch([path])
        if os.path.exists(path) and not os.path.isfile(path):
            # Reading from a pipe or a device would change its state.
            return Look(_NOT_REGULAR, watched)
        return Look(file_digest(path) or NOTHING, watched)
    sources = Sources(lambda found: _manifest.posix(os.path.relpath(found, path)))
    sources.add_everything(path)
    digest = _digest.sha256(_digest.framed_items(sources.digests))
    return Look(f"folder:{digest}", Watched(frozenset(sources.present), frozenset(sources.absent)))


def file_digest(path: str) -> str | None:
    """
    SHA-256 of a regular file; `None` if it does not exist, `unreadable` if it cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable"
    try:
        return _digest.of_open_file(descriptor)
    except OSError:
        return "unreadable"
    finally:
        os.close(descriptor)
