"""
The results of the look-ups for one request: the input of `_decide`.

A `Question` names something to look up, and a field of `Sightings` holds the answer.
`_gather` looks it up and sets the field.

Invariant: values only. Nothing here reads the disk, the environment or the clock.
"""

from __future__ import annotations

import enum

from ._model import ExtensionSpec, Tier
from ._values import dataclass
from .facts._fingerprint import SEEN, SOURCE, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ._errors import ExtensionNotFound, ToolchainMissing
    from .cache._store import Entry
    from .declare._edit_tier import EditSettings
    from .facts._fingerprint import Change
    from .facts._snapshot import Snapshot


class Question(enum.Enum):
    """
    Something that must be looked up before a decision can be made.
    """

    #: Is a library bundled, and does it match the sources?
    BUNDLED = enum.auto()
    #: What are all the facts, the toolchain's included?
    FACTS = enum.auto()
    #: Which cached entry has exactly these facts?
    CACHED = enum.auto()
    #: Which cached entry has these facts, ignoring the toolchain's?
    CACHED_BY_ANY_TOOLCHAIN = enum.auto()
    #: Is the edit tier on, and which cached entry was built in it from these facts?
    EDIT_TIER = enum.auto()
    #: What has changed since this checkout last used the module?
    HISTORY = enum.auto()
    #: Is a stale bundled library an error?
    STALE_IS_ERROR = enum.auto()


class Unasked(enum.Enum):
    """
    Stands for the answer to a question that was not asked yet.
    """

    UNASKED = enum.auto()


UNASKED = Unasked.UNASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledLibrary:
    """
    The library in the package's folder that `import` would load.
    """

    library: Path
    #: Further libraries of the same module, which `import` would pass over.
    rivals: tuple[Path, ...] = ()
    #: Why the library does not match the sources; empty if it matches.
    staleness: tuple[str, ...] = ()
    #: Undeclared inputs that its build read.
    seen: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """
    What changed between the build that this checkout used last and the current facts.
    """

    changes: tuple[Change, ...] = ()
    #: Whether the checkout has used the module before.
    used_before: bool = False
    #: For each existing cache root that cannot be read, the reason.
    unusable_roots: tuple[str, ...] = ()
    #: Folder of a damaged entry of the same sources.
    damaged: Path | None = None
    #: Whether this checkout has compiled the module before, in the target folder that a build would use.
    compiled_here: bool = False
    #: The tier of the build that this checkout used last.
    tier: Tier = Tier.FULL

    @property
    def why(self) -> str:
        """
        Why no build of the current sources was found.
        """
        return "; ".join([self.reason, *self.unusable_roots])

    @property
    def reason(self) -> str:
        """
        Why no build of the current sources was found, judging by the changes alone.
        """
        if self.tier is Tier.EDIT and not self.changes:
            return "no build of these sources is stored in this tier"
        return reason([*self.changes], known=self.used_before)

    @property
    def is_edited(self) -> bool:
        """
        Whether this checkout has compiled the module before, and its sources changed since the last full build.
        """
        groups = {change.name.partition("/")[0] for change in self.changes}
        edited = not groups.isdisjoint((SOURCE, SEEN)) or (self.tier is Tier.EDIT and not groups)
        return self.compiled_here and edited


@dataclass(frozen=True, slots=True, kw_only=True)
class EditTier:
    """
    The edit tier of one request.
    """

    settings: EditSettings
    #: The entry that was built in it from the current facts.
    entry: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """
    The answers to the questions about one request, as far as they are known.
    """

    module: str
    #: The declaration; an error if the workspace has none; `None` without a workspace.
    declaration: ExtensionSpec | ExtensionNotFound | None
    #: Whether the request asks for more features than are declared.
    extra_features: bool = False
    bundled: BundledLibrary | Unasked | None = UNASKED
    facts: Snapshot | ToolchainMissing | Unasked = UNASKED
    cached: Entry | Unasked | None = UNASKED
    cached_by_any_toolchain: Entry | Unasked | None = UNASKED
    #: `None` if the tier is off.
    edit_tier: EditTier | Unasked | None = UNASKED
    history: History | Unasked = UNASKED
    stale_is_error: bool | Unasked = UNASKED
