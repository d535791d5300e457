"""
Compute keys from facts, and explain why two keys differ.

A fingerprint is a set of named facts and a digest over them. The first part of
a fact's name is its group. The groups `source`, `resolution` and `request` form
the source key, which needs no toolchain. All groups together form the build
key. When two keys differ, `explain` lists the facts that differ.

Invariant: pure; nothing here reads the clock, the environment or the disk. No
timestamp and no absolute path is ever a fact. So a checkout that is copied,
moved or restored from a container layer still hits the cache.
"""

from __future__ import annotations

import json

from .._model import Tier
from .._values import dataclass
from ..files import _digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Part of every digest. Raise it when a digest or a fact changes its meaning.
FORMAT = 1

#: The groups of facts.
REQUEST, RESOLUTION, SOURCE = "request", "resolution", "source"
ABI, CPU, FLAGS, TOOLCHAIN = "abi", "cpu", "flags", "toolchain"
#: How a library for the edit loop is compiled. The full build has no such fact.
TIER = "tier"
#: Inputs that a build was seen to read. They are stored beside the facts and are not part of any key.
SEEN = "seen"

#: Facts that other modules read.
ABI_MACHINE, ABI_TAG = f"{ABI}/machine", f"{ABI}/tag"
TOOLCHAIN_RUSTC = f"{TOOLCHAIN}/rustc"
TIER_EDIT = f"{TIER}/edit"
#: Prefixes of facts: about files, locked packages, and variables with compiler flags.
SOURCE_FILE = f"{SOURCE}/"
LOCKED_PACKAGE = f"{RESOLUTION}/lock/"
REQUEST_VARIABLE = f"{REQUEST}/env/"

#: Groups of facts that decide the source key.
SOURCE_GROUPS = (REQUEST, RESOLUTION, SOURCE)
#: Groups of facts that depend on the host.
HOST_GROUPS = (ABI, CPU, FLAGS, TOOLCHAIN)

#: Value of a fact about a path that does not exist.
NOTHING = "nothing"
#: Value of a fact about a variable that is not set.
UNSET = "unset"

#: Hex digits of a key in a folder's name: 80 bits, short enough for Windows. The manifest holds the whole key.
SHORT = 20

#: Order in which changes are reported: the most informative groups first.
_REPORT_ORDER = (SOURCE, SEEN, REQUEST, FLAGS, RESOLUTION, TOOLCHAIN, CPU, ABI, TIER)


@dataclass(frozen=True, slots=True)
class Change:
    """
    One fact that differs. A value is `None` if the fact does not exist.
    """

    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        group, _, rest = self.name.partition("/")
        if group == SOURCE:
            verb = "added" if self.old is None else "removed" if self.new is None else "changed"
            return f"{rest} {verb}"
        if group == SEEN:
            kind, _, what = rest.partition("/")
            return f"{what} {self._verb_of_seen(kind)}"
        if rest.startswith("env/"):
            # For flags, a variable that is not set and an empty one mean the same.
            return f"{rest[4:]} {_quoted(self.old or '')} -> {_quoted(self.new or '')}"
        label = rest if group in (FLAGS, REQUEST) else f"{group} {rest}"
        inside = _differences_inside(self.old, self.new)
        return f"{label} ({inside})" if inside else f"{label} {_quoted(self.old)} -> {_quoted(self.new)}"

    def _verb_of_seen(self, kind: str) -> str:
        if kind == "place":
            return "was moved to another folder"
        appears, nothing, vanishes = ("set", UNSET, "unset") if kind == "env" else ("added", NOTHING, "removed")
        return appears if self.old == nothing else vanishes if self.new == nothing else "changed"


def _differences_inside(old: str | None, new: str | None) -> str:
    """
    The values that differ between two tables in JSON; empty if the texts are not tables.
    """
    try:
        before, after = dict(_leaves(json.loads(old or ""), "")), dict(_leaves(json.loads(new or ""), ""))
    except ValueError:
        return ""
    names = [name for name in sorted(before.keys() | after.keys()) if name and before.get(name) != after.get(name)]
    texts = [f"{name}: {_quoted(before.get(name))} -> {_quoted(after.get(name))}" for name in names[:2]]
    return ", ".join([*texts, f"{len(names) - 2} more"] if len(names) > 2 else texts)


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, json.dumps(value)


def _quoted(value: str | None) -> str:
    if value is None:
        return "(none)"
    return repr(value if len(value) <= 60 else f"{value[:57]}...")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """
    Every fact that can change the built bytes.
    """

    facts: Mapping[str, str]

    @property
    def tier(self) -> Tier:
        """
        How these facts are compiled.
        """
        return Tier.EDIT if TIER_EDIT in self.facts else Tier.FULL

    @property
    def source_key(self) -> str:
        """
        The digest of the facts that depend on the checkout alone, 64 hex digits.
        """
        return _key("source", self.select(SOURCE_GROUPS))

    @property
    def build_key(self) -> str:
        """
        The digest of all facts, 64 hex digits. A cache entry is stored under this key.
        """
        return _key("build", self.facts)

    def select(self, groups: Iterable[str]) -> dict[str, str]:
        """
        The facts in some groups.
        """
        wanted = tuple(groups)
        return {name: value for name, value in self.facts.items() if name.partition("/")[0] in wanted}

    def without(self, group: str) -> dict[str, str]:
        """
        The facts in every group but one.
        """
        return {name: value for name, value in self.facts.items() if name.partition("/")[0] != group}


def _key(kind: str, facts: Mapping[str, str]) -> str:
    return _digest.sha256(b"rust-ext-loader/%d\0" % FORMAT, _digest.framed([kind]), _digest.framed_items(facts))


def digest_of(facts: Mapping[str, str]) -> str:
    """
    The digest of any facts, 64 hex digits.
    """
    return _key("facts", facts)


def explain(old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    """
    The facts that differ, the most informative first.
    """
    names = sorted(old.keys() | new.keys(), key=lambda name: (_rank(name), name))
    return [Change(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _rank(name: str) -> int:
    group = name.partition("/")[0]
    return _REPORT_ORDER.index(group) if group in _REPORT_ORDER else len(_REPORT_ORDER)


def reason(changes: list[Change], *, known: bool) -> str:
    """
    Why there is no build of the current facts; *changes* are relative to the last build, if one is *known*.
    """
    if not known:
        return "not built here yet"
    return summary(changes) or "its stored build is gone or damaged"


def summary(changes: list[Change], at_most: int = 3) -> str:
    """
    The changes in one line.
    """
    texts = "; ".join(str(change) for change in changes[:at_most])
    more = len(changes) - at_most
    return f"{texts}; and {more} more" if more > 0 else texts
