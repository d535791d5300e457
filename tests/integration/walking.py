"""
Walk at random through what happens to a checkout, and hold every load against an oracle.

A `Place` is one checkout and the tree that it should hold. A `Walk` knows several
places that share a cache, the variables in force, and what the cache must hold by
now: so it can tell of each load what the module answers, whether something is
compiled, and for which named reasons.

Invariant: what happens next depends on the seed alone, never on time or on the
order in which a folder is listed. The same seed walks the same way.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import walk_tree
from checkout import Checkout, Loaded
from from_scratch import build_from_scratch
from processes import tool
from walk_tree import MODULES, Facts, Tree

#: What a stored build goes by: the module and its facts.
Key: TypeAlias = tuple[str, frozenset[tuple[str, str]]]

#: What every load does first: it tells when a record decides.
_TELL = """
import sys
from rust_ext_loader.files import _stat
from rust_ext_loader import _record
def find(*arguments, find=_record.find):
    library = find(*arguments)
    if library is not None:
        print("decided by a record", file=sys.stderr)
    return library
_record.find = find
"""
#: Times that lie further apart than this are told apart by file systems here: records are made soon, and are as sound as after two seconds.
_SOON_SETTLED = "_stat.UNSETTLED_NS = 50_000_000"
#: Ask before loading.
_FORETELL = """
verdict = rust_ext_loader.can_load(request["module"], **request["arguments"])
print(f"foretold {verdict.state.value}: {verdict.why}", file=sys.stderr)
"""


class Place:
    """
    One checkout, and what it should hold.
    """

    def __init__(self, checkout: Checkout, tree: Tree) -> None:
        self.checkout = checkout
        self.tree: Tree = {}
        #: Facts that the toolkit noted when it last decided about a module here.
        self.known: dict[str, Facts] = {}
        #: States that can be gone back to: Git's name, if Git is used, and the tree.
        self.saved: list[tuple[str, Tree]] = []
        self._times: dict[tuple[str, str], int] = {}
        self.become(tree)

    @property
    def root(self) -> Path:
        return self.checkout.root

    def write(self, path: str, text: str, how: str = "in place") -> None:
        """
        Give a file a text, in one of the ways that editors, tools and restored backups have.
        """
        file = self.root / path
        before = file.stat().st_mtime_ns if file.exists() else None
        file.parent.mkdir(parents=True, exist_ok=True)
        if how == "by rename":
            file.with_name("walk.tmp~").write_text(text, encoding="utf-8")
            file.with_name("walk.tmp~").rename(file)
        else:
            file.write_text(text, encoding="utf-8")
        known = self._times.get((path, text))
        then = {"same time": before, "its old time": known, "long ago": 10**18}.get(how)
        if then is not None:
            os.utime(file, ns=(then, then))
        self._times.setdefault((path, text), file.stat().st_mtime_ns)
        self.tree = {**self.tree, path: text}

    def remove(self, path: str) -> None:
        """
        Take a file away, and the folders that are empty then.
        """
        (self.root / path).unlink()
        with contextlib.suppress(OSError):
            for folder in (self.root / path).relative_to(self.root).parents:
                (self.root / folder).rmdir()
        self.tree = {name: text for name, text in self.tree.items() if name != path}

    def become(self, tree: Tree, how: str = "in place") -> None:
        """
        Change file by file what differs.
        """
        for path in sorted(self.tree.keys() - tree.keys()):
            self.remove(path)
        for path in sorted(tree):
            if self.tree.get(path) != tree[path]:
                self.write(path, tree[path], how)

    def assert_as_modelled(self) -> None:
        """
        What lies on disk is the tree: a build writes nothing into a checkout, and neither does the walk by mistake.
        """
        files = {path.relative_to(self.root).as_posix(): path for path in self.root.rglob("*") if path.is_file()}
        there = {name: path.read_text(encoding="utf-8") for name, path in files.items() if not name.startswith(".git/")}
        differing = sorted(name for name in there.keys() | self.tree.keys() if there.get(name) != self.tree.get(name))
        assert not differing, f"{self.root} is not as it should be: {differing}"

    def git(self, *arguments: str) -> None:
        """
        Run Git here, with nobody's configuration.
        """
        identity = [
            "-c",
            "user.name=walk",
            "-c",
            "user.email=walk@example.org",
            "-c",
            "commit.gpgsign=false",
            "-c",
            "gc.auto=0",
        ]
        variables = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        subprocess.run(["git", *identity, *arguments], cwd=self.root, env=variables, check=True, capture_output=True)


@dataclass
class Counts:
    """
    What a walk came by.
    """

    steps: int = 0
    loads: int = 0
    by_record: int = 0
    from_cache: int = 0
    builds: int = 0
    from_scratch: int = 0
    stale: int = 0
    unexplained: int = 0

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.loads} loads ({self.by_record} by record, {self.from_cache} from the cache, {self.builds} builds), "
            f"{self.from_scratch} compared with a build from scratch, {self.stale} stale loads, {self.unexplained} unexplained rebuilds"
        )


@dataclass
class Walk:
    """
    Places, one cache, and what must be in it.
    """

    folder: Path
    random: random.Random
    counts: Counts = field(default_factory=Counts)
    places: list[Place] = field(default_factory=list)
    #: The place that things happen to.
    here: Place = field(init=False)
    variables: dict[str, str] = field(default_factory=dict)
    #: What the cache must hold: the file of each module and set of facts, if it is known which.
    stored: dict[Key, str | None] = field(default_factory=dict)
    #: Run before every load: a walk can be told to walk with a broken toolkit.
    breakage: str = ""
    has_git: bool = field(default_factory=lambda: tool("git") is not None)
    _from_scratch: dict[Key, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.here = self.settle_in("first", walk_tree.first_tree())
        if self.has_git:
            self.here.git("init", "--quiet")

    @property
    def cache(self) -> Path:
        """
        The cache that all places share.
        """
        return self.folder / "cache"

    def settle_in(self, name: str, tree: Tree) -> Place:
        """
        One more checkout with this tree.
        """
        checkout = Checkout(self.folder / name, self.cache)
        checkout.root.mkdir(exist_ok=True)
        checkout.install_tools()
        place = Place(checkout, {})
        if not any(checkout.root.iterdir()):
            place.become(tree)
        place.tree = dict(tree)
        self.places.append(place)
        return place

    def facts(self, module: str) -> Facts:
        """
        What decides about a module here and now.
        """
        return walk_tree.facts(self.here.tree, module, self.variables)

    def key(self, module: str) -> Key:
        """
        What a stored build of the module, as it is here and now, goes by.
        """
        return module, frozenset(self.facts(module).items())

    def start(
        self, module: str, prelude: str = "", *, soon: bool = True, mode: str | None = None
    ) -> subprocess.Popen[str]:
        """
        Begin a load here, with the variables in force.
        """
        text = "\n".join([_TELL, _SOON_SETTLED if soon else "", self.breakage, textwrap.dedent(prelude)])
        return self.here.checkout.start(module, prelude=text, variables=self.variables, mode=mode)

    def load(self, module: str, mode: str | None = None) -> Loaded:
        """
        Load here in a new process.
        """
        soon, asks = self.random.random() < 0.8, self.random.random() < 0.2
        with self.counted() as calls:
            answer = self.here.checkout.finish(self.start(module, _FORETELL if asks else "", soon=soon, mode=mode))
        return Loaded(**{**answer, "cargo": tuple(calls)})

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[tuple[str, ...]]]:
        """
        Every cargo that runs meanwhile, known afterwards.
        """
        calls: list[tuple[str, ...]] = []
        before = len(self.here.checkout.cargo_calls())
        yield calls
        calls += self.here.checkout.cargo_calls()[before:]

    def check(self, module: str) -> None:
        """
        Load a module and hold all that can be seen of it against the model.
        """
        loaded = self.load(module)
        self.check_value(module, loaded)
        self.check_foretold(module, loaded)
        if self.key(module) in self.stored:
            self.check_served(module, loaded)
        else:
            self.check_built(module, loaded)
        self.note(module, loaded)

    def check_value(self, module: str, loaded: Loaded) -> None:
        """
        The module is what the present inputs make of it; now and then cargo's word is asked for.
        """
        self.counts.loads += 1
        expected = walk_tree.value(self.here.tree, module, self.variables)
        if loaded.value != expected:
            self.counts.stale += loaded.error is None
            raise AssertionError(
                f"{module} answers {loaded.value!r} instead of {expected!r}\n{loaded.error or ''}\n{loaded.stderr}"
            )
        after_a_change = not loaded.compiled and self.here.known.get(module) not in (None, self.facts(module))
        if self.random.random() < (0.5 if after_a_change else 0.1):
            assert loaded.value == self.from_scratch(module), "the oracle and a build from scratch agree"

    def check_foretold(self, module: str, loaded: Loaded) -> None:
        """
        If `can_load` was asked before, it said what came to pass, and why.
        """
        foretold = re.search(r"(?m)^foretold (\w+): (.*)$", loaded.stderr)
        if foretold is None:
            return
        not_stored = "missing" if self.here.known.get(module) is None else "stale"
        assert foretold[1] == ("cached" if self.key(module) in self.stored else not_stored), loaded.stderr
        assert foretold[1] == "cached" or f"building {module}: {foretold[2]}\n" in loaded.stderr, loaded.stderr

    def check_served(self, module: str, loaded: Loaded) -> None:
        """
        Nothing ran, and what was loaded is what was stored last.
        """
        self.counts.from_cache += 1
        self.counts.by_record += by_record(loaded)
        if loaded.cargo:
            self.counts.unexplained += 1
            raise AssertionError(f"{module} is in the cache as it is now, and yet: {loaded.cargo}\n{loaded.stderr}")
        file = self.stored[self.key(module)]
        assert file is None or loaded.file == file, f"{module} comes from {loaded.file}; stored last: {file}"

    def check_built(self, module: str, loaded: Loaded, said: str | None = None) -> None:
        """
        The crate was compiled once, and the reason that was given names what moved and nothing else.
        """
        assert loaded.compiled == [MODULES[module]], f"{module} is new, and cargo ran {loaded.cargo}"
        self.check_reason(module, loaded.stderr, said)

    def check_reason(self, module: str, stderr: str, said: str | None = None) -> None:
        """
        The one line that says why a build began.
        """
        self.counts.builds += 1
        lines = re.findall(rf"(?m)^((?:re)?building) {re.escape(module)}: (.*)$", stderr)
        known = self.here.known.get(module)
        names = walk_tree.moved(known, self.facts(module)) if known is not None else set()
        nothing_moved = "not built here yet" if known is None else "its stored build is gone or damaged"
        wanted = said or ("" if names else nothing_moved)
        if len(lines) == 1 and lines[0][0] == ("building" if known is None else "rebuilding"):
            reason = lines[0][1]
            if reason == wanted or (not wanted and _names_all(reason, names)):
                return
        self.counts.unexplained += 1
        raise AssertionError(
            f"{module} was built because of {wanted or names or 'nothing'}; said was: {lines}\n{stderr}"
        )

    def note(self, module: str, loaded: Loaded) -> None:
        """
        Know from now on what the toolkit knows: a warm load notes nothing.
        """
        self.stored[self.key(module)] = loaded.file
        if not by_record(loaded):
            self.here.known[module] = self.facts(module)

    def from_scratch(self, module: str) -> str:
        """
        What the module answers when bare cargo compiles a copy of what lies on disk, in an empty target folder.
        """
        key = self.key(module)
        if key not in self._from_scratch:
            self.counts.from_scratch += 1
            copy = self.folder / "copy"
            shutil.copytree(self.here.root, copy, ignore=shutil.ignore_patterns(".git"))
            try:
                self._from_scratch[key] = build_from_scratch(copy, module, self._plain_variables())
            finally:
                shutil.rmtree(copy)
        return self._from_scratch[key]

    def _plain_variables(self) -> Mapping[str, str]:
        # The counting cargo is not ours to disturb.
        return {**self.here.checkout.variables(), **self.variables, "PATH": os.environ["PATH"]}


def by_record(loaded: Loaded) -> bool:
    """
    Whether a load was decided by a record alone, which notes nothing.
    """
    return "decided by a record" in loaded.stderr


def _names_all(reason: str, names: Collection[str]) -> bool:
    """
    Whether a reason names these facts, each once, as far as a line goes.
    """
    items = reason.split("; ")
    more = re.fullmatch(r"and (\d+) more", items[-1])
    unnamed = int(more[1]) if more else 0
    named = [name for item in items[: -1 if more else None] for name in names if item.startswith(f"{name} ")]
    said = len(items) - bool(more)
    return said + unnamed == len(names) and len(set(named)) == said
