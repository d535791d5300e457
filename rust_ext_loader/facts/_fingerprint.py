"""
Decide whether two builds would give the same bytes, and say why not.

A fingerprint is a set of named facts and a digest over them. The first part of
a fact's name is its group: `source`, `resolution` and `request` make the source
key, which needs no toolchain; all groups together make the build key. When two
keys differ, `explain` names the facts that moved.

Invariant: nothing here reads the clock, the environment or the disk. No
modification time and no absolute path is ever a fact, so a checkout may be
copied, moved or restored from a container layer and still hit the cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..files import _digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Part of every digest. Raise it whenever a digest or a fact changes meaning.
FORMAT = 1

#: The groups of facts.
REQUEST, RESOLUTION, SOURCE = "request", "resolution", "source"
ABI, CPU, FLAGS, TOOLCHAIN = "abi", "cpu", "flags", "toolchain"
#: Inputs that a build was seen to read; kept beside the facts, part of no key.
SEEN = "seen"

#: Groups of facts that decide the source key.
SOURCE_GROUPS = (REQUEST, RESOLUTION, SOURCE)
#: Groups that only the machine at hand can tell.
HOST_GROUPS = (ABI, CPU, FLAGS, TOOLCHAIN)

#: Value of a fact about a path at which nothing is.
NOTHING = "nothing"
#: Value of a fact about a variable that is not set.
UNSET = "unset"

#: Digits of a key in a folder's name: 80 bits, short enough for Windows. The manifest holds the whole key.
SHORT = 20

#: What changes go by when they are put into one line, most telling first.
_SAYING_ORDER = (SOURCE, SEEN, REQUEST, FLAGS, RESOLUTION, TOOLCHAIN, CPU, ABI)


@dataclass(frozen=True, slots=True)
class Change:
    """
    One fact that differs; `None` stands for a fact that is not there.
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
            # A variable that is not set and one that is empty ask for the same.
            return f"{rest[4:]} {_shown(self.old or '')} -> {_shown(self.new or '')}"
        label = rest if group in (FLAGS, REQUEST) else f"{group} {rest}"
        inside = _what_differs_inside(self.old, self.new)
        return f"{label} ({inside})" if inside else f"{label} {_shown(self.old)} -> {_shown(self.new)}"

    def _verb_of_seen(self, kind: str) -> str:
        if kind == "place":
            return "lies elsewhere"
        appears, nothing, vanishes = ("set", UNSET, "unset") if kind == "env" else ("added", NOTHING, "removed")
        return appears if self.old == nothing else vanishes if self.new == nothing else "changed"


def _what_differs_inside(old: str | None, new: str | None) -> str:
    """
    Which values differ of two tables; empty if these are no tables.
    """
    try:
        before, after = dict(_leaves(json.loads(old or ""), "")), dict(_leaves(json.loads(new or ""), ""))
    except ValueError:
        return ""
    names = [name for name in sorted(before.keys() | after.keys()) if name and before.get(name) != after.get(name)]
    said = [f"{name}: {_shown(before.get(name))} -> {_shown(after.get(name))}" for name in names[:2]]
    return ", ".join([*said, f"{len(names) - 2} more"] if len(names) > 2 else said)


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, json.dumps(value)


def _shown(value: str | None) -> str:
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
    def source_key(self) -> str:
        """
        64 hex digits over what a checkout alone can tell.
        """
        return _key("source", self.select(SOURCE_GROUPS))

    @property
    def build_key(self) -> str:
        """
        64 hex digits over everything: the name of a cache entry.
        """
        return _key("build", self.facts)

    def select(self, groups: Iterable[str]) -> dict[str, str]:
        """
        The facts of some groups.
        """
        wanted = tuple(groups)
        return {name: value for name, value in self.facts.items() if name.partition("/")[0] in wanted}

    def without(self, group: str) -> dict[str, str]:
        """
        The facts of every group but one.
        """
        return {name: value for name, value in self.facts.items() if name.partition("/")[0] != group}


def _key(kind: str, facts: Mapping[str, str]) -> str:
    return _digest.sha256(b"rust-ext-loader/%d\0" % FORMAT, _digest.framed([kind]), _digest.framed_items(facts))


def digest_of(facts: Mapping[str, str]) -> str:
    """
    64 hex digits over any facts.
    """
    return _key("facts", facts)


def explain(old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    """
    Exactly the facts that differ, most telling first.
    """
    names = sorted(old.keys() | new.keys(), key=lambda name: (_rank(name), name))
    return [Change(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _rank(name: str) -> int:
    group = name.partition("/")[0]
    return _SAYING_ORDER.index(group) if group in _SAYING_ORDER else len(_SAYING_ORDER)


def reason(changes: list[Change], *, known: bool) -> str:
    """
    Why there is no build of what is there now, `changes` being what moved since the last one that is *known*.
    """
    if not known:
        return "not built here yet"
    return summary(changes) or "its stored build is gone or damaged"


def summary(changes: list[Change], at_most: int = 3) -> str:
    """
    The changes in one line.
    """
    said = "; ".join(str(change) for change in changes[:at_most])
    more = len(changes) - at_most
    return f"{said}; and {more} more" if more > 0 else said
