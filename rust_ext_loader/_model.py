"""
Values that several modules share: frozen value classes and enums.

Invariant: nothing here reads the disk, the environment or the clock.
"""

from __future__ import annotations

import enum

from ._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ExtensionSpec:
    """
    One declared extension: a cargo package and the Python module that is built from it.
    """

    #: Dotted name of the Python module.
    module: str
    #: Name of the cargo package.
    package: str
    #: Name of the library target, as cargo reports it.
    library: str
    #: The package's `Cargo.toml`.
    manifest: Path
    #: Folder of the workspace root's `Cargo.toml`.
    workspace: Path
    features: tuple[str, ...] = ()
    profile: str = "release"
    #: Additional inputs: files, folders or globs, relative to the crate.
    source_inputs: tuple[str, ...] = ()
    #: Environment variables that the build reads.
    env: tuple[str, ...] = ()
    #: Installed Python distributions whose versions are facts.
    key_on: tuple[str, ...] = ()
    #: Globs of files that are not inputs, relative to the crate.
    exclude: tuple[str, ...] = ()

    @property
    def leaf(self) -> str:
        """
        Last part of the module's name: the `PyInit_` suffix.
        """
        return self.module.rpartition(".")[2]

    @property
    def directory(self) -> Path:
        """
        The crate's folder.
        """
        return self.manifest.parent


@dataclass(frozen=True, slots=True)
class Watched:
    """
    The paths whose stat shows whether a set of facts changed.
    """

    #: Files and folders that exist. A folder is watched because files can be added to it.
    present: frozenset[str] = frozenset()
    #: Paths that do not exist and would change a fact if they did.
    absent: frozenset[str] = frozenset()

    def __or__(self, other: Watched) -> Watched:
        return Watched(self.present | other.present, self.absent | other.absent)


@dataclass(frozen=True, slots=True)
class Gathered:
    """
    The facts from one source, and the paths to watch for changes.
    """

    facts: Mapping[str, str]
    watched: Watched = field(default_factory=Watched)


@dataclass(frozen=True, slots=True)
class PathPackage:
    """
    A package of the dependency closure whose sources are local files.
    """

    name: str
    version: str
    directory: Path
    #: Digest of the names and contents of its files.
    digest: str
    #: Folders of the packages that it depends on directly.
    uses: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class Toolchain:
    """
    The cargo and compiler that would build in a crate's folder.
    """

    cargo: str
    #: `release` line of `rustc -vV`.
    release: str
    host: str
    gathered: Gathered


class Mode(enum.Enum):
    """
    Whether an import may or must build; the values of `SGLANG_RUST_BUILD_MODE`.
    """

    #: Build what is missing or stale.
    AUTO = "auto"
    #: Never build.
    NEVER = "never"
    #: Build even if a matching library exists.
    FORCE = "force"


class State(enum.Enum):
    """
    Where a module would come from.
    """

    #: This process has imported it already.
    IMPORTED = "imported"
    #: From the folder of its package.
    BUNDLED = "bundled"
    #: From a cache entry that matches.
    CACHED = "cached"
    #: An earlier build or a bundled library does not match the sources, or mode `force` replaces it.
    STALE = "stale"
    #: No build of it is found, and no library is bundled.
    MISSING = "missing"
    #: No workspace declares it, and it is not installed.
    UNDECLARED = "undeclared"
    #: An error, such as a broken manifest, prevents a decision.
    BROKEN = "broken"


class Tier(enum.Enum):
    """
    How a library was compiled.
    """

    #: With the declared profile, as it is published, pushed and bundled.
    FULL = "full"
    #: For the edit loop of one checkout: quick to compile, and less optimised.
    EDIT = "edit"


class Readiness(enum.Enum):
    """
    Whether an import would succeed, and at what cost.
    """

    #: The import succeeds without compiling.
    READY = "ready"
    #: The import compiles first, which may fail.
    NEEDS_BUILD = "needs-build"
    #: The import fails.
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Whether a module could be imported, and from where. A verdict is truthy unless the import is known to fail.
    """

    module: str
    state: State
    readiness: Readiness
    #: The library that would be loaded, or the stale one that is bundled.
    library: str | None
    why: str
    #: How the library was compiled; `None` if it is not a cached one.
    tier: Tier | None = None

    def __bool__(self) -> bool:
        return self.readiness is not Readiness.UNAVAILABLE
