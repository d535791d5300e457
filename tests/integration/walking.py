"""
The random walk: the current state of checkouts, cache and variables, and the check of a load against a model.

A `Place` is one checkout with the tree that it should hold. A `Walk` has several places
that share a cache, the variables, and the entries that the cache must hold. From these it
predicts the module's value for every load, whether it compiles, and the reasons that it prints.

Invariant: the steps depend on the seed only, not on time or on the order of folder
listings. The same seed takes the same steps.
"""

from __future__ import annotations

import contextlib
import json
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

#: Identifies a stored build: the module, its facts, and the checkout if it is a build for editing. A full build serves
#: every checkout, so the third part of its key is empty.
Key: TypeAlias = tuple[str, frozenset[tuple[str, str]], str]

#: Prelude of every load, which prints a line when a record decides.
_REPORT_RECORDS = """
import sys
from rust_ext_loader import _stat
from rust_ext_loader import _warm
def find(*arguments, find=_warm.find):
    library = find(*arguments)
    if library is not None:
        print("decided by a record", file=sys.stderr)
    return library
_warm.find = find
"""
#: File systems on this machine distinguish times that differ by more than this, so a record need not wait two seconds.
_SETTLE_SOON = "_stat.UNSETTLED_NS = 50_000_000"
#: Prelude that prints the verdict of `can_load` before the load.
_PRINT_VERDICT = """
verdict = rust_ext_loader.can_load(request["module"], **request["arguments"])
print(f"verdict {verdict.state.value}: {verdict.why}", file=sys.stderr)
"""


class Place:
    """
    One checkout, and the tree that it should hold.
    """

    def __init__(self, checkout: Checkout, tree: Tree) -> None:
        self.checkout = checkout
        self.tree: Tree = {}
        #: Facts of each module when the toolkit last decided about it in this checkout.
        self.known: dict[str, Facts] = {}
        #: The modules whose last decision used a build for editing.
        self.for_editing: set[str] = set()
        #: Saved states: a name, which is a tag if Git is used, and the tree.
        self.saved: list[tuple[str, Tree]] = []
        self._times: dict[tuple[str, str], int] = {}
        self.become(tree)

    @property
    def root(self) -> Path:
        return self.checkout.root

    def write(self, path: str, text: str, how: str = "in place") -> None:
        """
        Write a file in one of the ways of editors, tools and restored backups.
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
        Remove a file, and folders that become empty.
        """
        (self.root / path).unlink()
        with contextlib.suppress(OSError):
            for folder in (self.root / path).relative_to(self.root).parents:
                (self.root / folder).rmdir()
        self.tree = {name: text for name, text in self.tree.items() if name != path}

    def become(self, tree: Tree, how: str = "in place") -> None:
        """
        Change the checkout file by file to match a tree.
        """
        for path in sorted(self.tree.keys() - tree.keys()):
            self.remove(path)
        for path in sorted(tree):
            if self.tree.get(path) != tree[path]:
                self.write(path, tree[path], how)

    def assert_as_modelled(self) -> None:
        """
        The files on disk match the tree: neither a build nor the walk wrote anything else.
        """
        files = {path.relative_to(self.root).as_posix(): path for path in self.root.rglob("*") if path.is_file()}
        there = {name: path.read_text(encoding="utf-8") for name, path in files.items() if not name.startswith(".git/")}
        differing = sorted(name for name in there.keys() | self.tree.keys() if there.get(name) != self.tree.get(name))
        assert not differing, f"{self.root} differs from the model: {differing}"

    def git(self, *arguments: str) -> None:
        """
        Run Git in the checkout without the user's configuration.
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
    The counts of a walk.
    """

    steps: int = 0
    loads: int = 0
    by_record: int = 0
    from_cache: int = 0
    builds: int = 0
    for_editing: int = 0
    from_scratch: int = 0
    stale: int = 0
    unexplained: int = 0

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.loads} loads ({self.by_record} by record, {self.from_cache} from the cache, "
            f"{self.builds} builds, {self.for_editing} for editing), "
            f"{self.from_scratch} compared with a build from scratch, "
            f"{self.stale} stale loads, {self.unexplained} unexplained rebuilds"
        )


@dataclass
class Walk:
    """
    Several places, one cache, and the entries that it must hold.
    """

    folder: Path
    random: random.Random
    counts: Counts = field(default_factory=Counts)
    places: list[Place] = field(default_factory=list)
    #: The place that steps change.
    here: Place = field(init=False)
    variables: dict[str, str] = field(default_factory=dict)
    #: The entries that the cache must hold. The value is the library's path, or `None` if it is unknown.
    stored: dict[Key, str | None] = field(default_factory=dict)
    #: Code that breaks the toolkit on purpose, run before every load.
    breakage: str = ""
    has_git: bool = field(default_factory=lambda: tool("git") is not None)
    _from_scratch: dict[Key, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.here = self.add_place("first", walk_tree.first_tree())
        if self.has_git:
            self.here.git("init", "--quiet")

    @property
    def cache(self) -> Path:
        """
        The cache of all places.
        """
        return self.folder / "cache"

    def add_place(self, name: str, tree: Tree) -> Place:
        """
        Add a checkout with this tree.
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
        The current facts of a module.
        """
        return walk_tree.facts(self.here.tree, module, self.variables)

    def key(self, module: str) -> Key:
        """
        The key of the module's full build for the current facts.
        """
        return module, frozenset(self.facts(module).items()), ""

    def key_for_editing(self, module: str) -> Key:
        """
        The key of the module's build for editing in the current place.
        """
        return (*self.key(module)[:2], os.fspath(self.here.root))

    def stored_key(self, module: str) -> Key | None:
        """
        The key of the stored build that a load must use: the full one, else the one for editing.
        """
        keys = (self.key(module), self.key_for_editing(module))
        return next((key for key in keys if key in self.stored), None)

    def start(
        self, module: str, prelude: str = "", *, soon: bool = True, mode: str | None = None
    ) -> subprocess.Popen[str]:
        """
        Start a load in the current place, with the current variables.
        """
        text = "\n".join([_REPORT_RECORDS, _SETTLE_SOON if soon else "", self.breakage, textwrap.dedent(prelude)])
        return self.here.checkout.start(module, prelude=text, variables=self.variables, mode=mode)

    def load(self, module: str, mode: str | None = None) -> Loaded:
        """
        Load in the current place, in a new process.
        """
        soon, asks = self.random.random() < 0.8, self.random.random() < 0.2
        with self.counted() as calls:
            answer = self.here.checkout.finish(self.start(module, _PRINT_VERDICT if asks else "", soon=soon, mode=mode))
        return Loaded(**{**answer, "cargo": tuple(calls)})

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[tuple[str, ...]]]:
        """
        Collect the arguments of every cargo that runs in the block.
        """
        calls: list[tuple[str, ...]] = []
        before = len(self.here.checkout.cargo_calls())
        yield calls
        calls += self.here.checkout.cargo_calls()[before:]

    def check(self, module: str) -> None:
        """
        Load a module and compare all results with the model.
        """
        loaded = self.load(module)
        self.check_value(module, loaded)
        self.check_verdict(module, loaded)
        if self.stored_key(module) is not None:
            self.check_cached(module, loaded)
        else:
            self.check_built(module, loaded)
        self.note(module, loaded)

    def check_value(self, module: str, loaded: Loaded) -> None:
        """
        The value must match the current inputs. Sometimes it is also compared with a build from scratch.
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
            assert loaded.value == self.from_scratch(module), "the model and a build from scratch agree"

    def check_verdict(self, module: str, loaded: Loaded) -> None:
        """
        If `can_load` was called first, its verdict and reason must match the load.
        """
        verdict = re.search(r"(?m)^verdict (\w+): (.*)$", loaded.stderr)
        if verdict is None:
            return
        not_stored = "missing" if self.here.known.get(module) is None else "stale"
        assert verdict[1] == ("cached" if self.stored_key(module) is not None else not_stored), loaded.stderr
        assert verdict[1] == "cached" or f"building {module}: {verdict[2]}\n" in loaded.stderr, loaded.stderr

    def check_cached(self, module: str, loaded: Loaded) -> None:
        """
        The load must run no cargo and return the library that was stored last.
        """
        self.counts.from_cache += 1
        self.counts.by_record += by_record(loaded)
        if loaded.cargo:
            self.counts.unexplained += 1
            raise AssertionError(f"{module} is cached, but cargo ran: {loaded.cargo}\n{loaded.stderr}")
        key = self.stored_key(module)
        assert key is not None
        file = self.stored[key]
        assert file is None or loaded.file == file, f"{module} comes from {loaded.file}; stored last: {file}"

    def check_built(self, module: str, loaded: Loaded, expected_reason: str | None = None) -> None:
        """
        The crate must be compiled once, and the printed reason must name exactly the changed facts.
        """
        assert loaded.compiled == [MODULES[module]], f"{module} is new, and cargo ran {loaded.cargo}"
        self.check_reason(module, loaded.stderr, expected_reason)

    def check_reason(self, module: str, stderr: str, expected_reason: str | None = None) -> None:
        """
        Compare the one line that gives the reason of a build with the model.
        """
        self.counts.builds += 1
        lines = re.findall(rf"(?m)^((?:re)?building) {re.escape(module)}: (.*)$", stderr)
        known = self.here.known.get(module)
        names = walk_tree.changed_facts(known, self.facts(module)) if known is not None else set()
        nothing_moved = "its stored build is gone or damaged"
        if known is None:
            nothing_moved = "not built here yet"
        elif module in self.here.for_editing:
            nothing_moved = "no build of these sources is stored in this tier"
        wanted = expected_reason or ("" if names else nothing_moved)
        if len(lines) == 1 and lines[0][0] == ("building" if known is None else "rebuilding"):
            reason = lines[0][1]
            if reason == wanted or (not wanted and _names_all(reason, names)):
                return
        self.counts.unexplained += 1
        raise AssertionError(
            f"{module} was built because of {wanted or names or 'nothing'}; reason in the output: {lines}\n{stderr}"
        )

    def note(self, module: str, loaded: Loaded) -> None:
        """
        Update the model after a load, unless a record decided the load: then the toolkit notes nothing.
        """
        for_editing = is_for_editing(str(loaded.file))
        self.stored[self.key_for_editing(module) if for_editing else self.key(module)] = loaded.file
        if not by_record(loaded):
            self.here.known[module] = self.facts(module)
            (self.here.for_editing.add if for_editing else self.here.for_editing.discard)(module)
            self.counts.for_editing += for_editing and bool(loaded.compiled)

    def from_scratch(self, module: str) -> str:
        """
        The value after cargo alone compiled a copy of the checkout in an empty target folder.
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
        # Avoid the `cargo` that logs its arguments: this build must not be counted.
        return {**self.here.checkout.variables(), **self.variables, "PATH": os.environ["PATH"]}


def is_for_editing(library: str) -> bool:
    """
    Whether a stored library was built in the edit tier, from the manifest beside it.
    """
    manifest = json.loads(Path(library).with_name("manifest.json").read_bytes())
    return "tier/edit" in manifest["facts"]


def by_record(loaded: Loaded) -> bool:
    """
    Whether a record alone decided the load. The toolkit notes nothing for such a load.
    """
    return "decided by a record" in loaded.stderr


def _names_all(reason: str, names: Collection[str]) -> bool:
    """
    Whether a reason names each of these facts once. A long line ends with "and N more".
    """
    items = reason.split("; ")
    more = re.fullmatch(r"and (\d+) more", items[-1])
    unnamed = int(more[1]) if more else 0
    named = [name for item in items[: -1 if more else None] for name in names if item.startswith(f"{name} ")]
    named_items = len(items) - bool(more)
    return named_items + unnamed == len(names) and len(set(named)) == named_items
