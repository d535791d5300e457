"""
What happens on a walk to the cache and to builds: loss, damage, races, deaths.

Each step says what it did. Those that are about a load hold it against the model
themselves, and leave a place whose next loads are as right as ever.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import walk_tree
from checkout import Loaded
from processes import PATIENCE, Gate, Start, alive, ended_at_last, meddle, wait_until
from walk_edits import WAYS, add_or_delete_a_listed_file, edit_a_source, edit_what_is_included
from walk_tree import MODULES
from walking import Walk, by_record

from rust_ext_loader.cache import _store

# The cache.


def wipe(walk: Walk) -> str:
    what = walk.random.choice(("everything", "records", "targets", "checkouts", "artifacts", "logs"))
    if what in ("everything", "artifacts"):
        walk.stored.clear()
    if what in ("everything", "checkouts"):
        for place in walk.places:
            place.known.clear()
    shutil.rmtree(walk.cache if what == "everything" else walk.cache / what, ignore_errors=True)
    return what


def _take_from_stored(walk: Walk) -> tuple[str, Path] | None:
    """
    The module and the file of some entry, which the walk counts on no longer: more often than not one that is needed next.
    """
    keys = [key for key, file in walk.stored.items() if file is not None]
    wanted = [key for key in map(walk.key, MODULES) if walk.stored.get(key)]
    chosen = walk.random.choice(wanted if wanted and walk.random.random() < 0.7 else keys) if keys else None
    return (chosen[0], Path(str(walk.stored.pop(chosen)))) if chosen else None


def lose_an_entry(walk: Walk) -> str:
    found = _take_from_stored(walk)
    if found is None:
        return "there is none"
    module, library = found
    shutil.rmtree(library.parent)
    walk.check(module)
    return f"one of {module}"


def _flip(path: Path) -> None:
    """
    Another byte in the middle, if there is one; size and time as they were.
    """
    status, data = path.stat(), bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


_HARM: tuple[Callable[[Path], None], ...] = (_flip, _flip, _cut, _empty, Path.unlink)


def damage_an_entry(walk: Walk) -> str:
    """
    Its library, its manifest or its pointer.
    """
    found = _take_from_stored(walk)
    if found is None:
        return "there is none"
    module, library = found
    path = walk.random.choice((library, library, library.with_name("manifest.json"), _store.pointer_of(library)))
    harm = walk.random.choice(_HARM)
    if path.name == "manifest.json" and harm is _flip:
        # What is not a fact is taken on trust: spoil one that is.
        manifest = json.loads(path.read_bytes())
        manifest["facts"]["request/package"] = "another"
        path.write_text(json.dumps(manifest))
    else:
        harm(path)
    if path.name == "manifest.json":
        # A record never asks it: the library is right.
        shutil.rmtree(walk.cache / "records", ignore_errors=True)
    walk.check(module)
    return f"{harm.__name__} {path.name} of {module}"


def damage_what_saves_time(walk: Walk) -> str:
    """
    Records, the state of target folders: without them every verdict is the same.
    """
    pattern = walk.random.choice(("records/*", "targets/*/rust-ext-state.json"))
    harm = walk.random.choice(_HARM)
    for path in walk.cache.glob(pattern):
        harm(path)
    return f"{harm.__name__} {pattern}"


# Loads of another kind.


def load_in_another_mode(walk: Walk) -> str:
    module, mode = walk.random.choice(sorted(MODULES)), walk.random.choice(("never", "force"))
    if mode == "force":
        # What stood before it, perhaps by a record, must not be what is loaded after it.
        walk.check(module)
    loaded = walk.load(module, mode)
    if mode == "force":
        walk.check_value(module, loaded)
        walk.check_built(module, loaded, "asked for")
        walk.note(module, loaded)
        walk.check(module)
    elif walk.key(module) in walk.stored:
        walk.check_value(module, loaded)
        walk.check_served(module, loaded)
    else:
        assert (loaded.reason, loaded.cargo) == ("not-found", ()), loaded
    return f"{module} {mode}"


def break_and_mend(walk: Walk) -> str:
    """
    A source that does not compile: nothing is stored, and the next process tries again.
    """
    module = walk.random.choice(sorted(MODULES))
    path = f"{walk.random.choice(sorted(walk_tree.closure(MODULES[module]) - {'pymod'}))}/src/lib.rs"
    text = walk.here.tree[path]
    walk.here.write(path, f"{text}!")
    for _ in range(walk.random.randint(1, 2)):
        loaded = walk.load(module)
        assert loaded.reason == "build-failed", loaded
    walk.here.write(path, text, walk.random.choice(WAYS))
    return f"{path} for {module}"


def load_together(walk: Walk) -> str:
    """
    Two to four processes at once: each gets what is right, and what is new is compiled once.
    """
    modules = [walk.random.choice(sorted(MODULES)) for _ in range(walk.random.randint(2, 4))]
    folder = walk.folder / f"start-{walk.counts.steps}"
    folder.mkdir()
    start = Start(folder)
    with walk.counted() as calls:
        processes = [walk.start(module, start.prelude) for module in modules]
        with ended_at_last(*processes):
            start.go(len(processes))
            answers = [Loaded(**walk.here.checkout.finish(process)) for process in processes]
    for module in sorted(set(modules)):
        mine = [answer for name, answer in zip(modules, answers, strict=True) if name == module]
        compiled = [call for call in calls if call[0] == "rustc" and MODULES[module] in call]
        assert len(compiled) == (walk.key(module) not in walk.stored), f"{module} in {modules}: {calls}"
        for answer in mine:
            walk.check_value(module, answer)
        if compiled:
            walk.check_reason(module, "".join(answer.stderr for answer in mine))
        assert len({answer.file for answer in mine}) == 1, mine
        walk.note(module, min(mine, key=by_record))
    return " ".join(modules)


# Builds that are disturbed.


def _edit_afresh(walk: Walk, crate: str) -> None:
    """
    A text that nobody has compiled yet.
    """
    path = f"{crate}/src/lib.rs"
    walk.here.write(path, walk_tree.numbered(walk.here.tree[path], 1000 + walk.counts.steps), walk.random.choice(WAYS))


def _pick(walk: Walk, crate: str) -> str:
    """
    A crate that is compiled for another one, or that one.
    """
    return walk.random.choice(sorted(walk_tree.closure(crate) - {"pymod"}))


class _HeldBuild:
    """
    A build of a text that nobody has compiled yet, held while rustc reads a crate that uses it.
    """

    def __init__(self, walk: Walk) -> None:
        self.module = walk.random.choice(sorted(MODULES))
        self.crate = _pick(walk, MODULES[self.module])
        self.edited = _pick(walk, self.crate)
        self._place, self._tree = walk.here, walk.here.tree
        _edit_afresh(walk, self.edited)
        self._gate = Gate(walk.here.checkout, self.crate)
        self.builder = walk.start(self.module)
        self._gate.reached(self.builder)

    def __str__(self) -> str:
        return f"{self.module}, edited in {self.edited} and held in {self.crate}"

    def take_away_the_gate(self, how: str) -> None:
        """
        Go back to the texts before, and let go whoever waits.
        """
        for crate in sorted({self.crate, self.edited}):
            root = f"{crate}/src/lib.rs"
            self._place.write(root, self._tree[root], how)
        self._gate.let_through()
        (self._place.root / self.crate / "src" / "gate").unlink()


def edit_during_a_build(walk: Walk) -> str:
    """
    What is loaded is what lies there in the end.
    """
    with walk.counted() as calls:
        held = _HeldBuild(walk)
        with ended_at_last(held.builder):
            ways = (edit_a_source, edit_what_is_included, add_or_delete_a_listed_file)
            edits = [walk.random.choice(ways)(walk) for _ in range(walk.random.randint(0, 2))]
            held.take_away_the_gate(walk.random.choice(WAYS))
            loaded = Loaded(**walk.here.checkout.finish(held.builder))
    walk.check_value(held.module, loaded)
    compiled = [call for call in calls if call[0] == "rustc"]
    assert 1 < len(compiled) <= 3, calls
    walk.counts.builds += 1
    walk.note(held.module, loaded)
    return f"{held}; {'; '.join(edits)}"


def edit_and_take_back_during_a_build(walk: Walk) -> str:
    """
    A text that is there only while cargo runs for the first time is in no result.
    """
    module = walk.random.choice(sorted(MODULES))
    _edit_afresh(walk, _pick(walk, MODULES[module]))
    path = walk.random.choice(walk_tree.read_by(walk.here.tree, MODULES[module]))
    meant, other = walk.folder / "meant", walk.folder / "other"
    shutil.copy2(walk.here.root / path, meant)
    other.write_text(walk_tree.numbered(walk.here.tree[path], 9), encoding="utf-8")
    meddle(
        walk.here.checkout,
        before=f"if [ -e '{other}' ]; then cp '{other}' {path}; fi",
        after=f"if [ -e '{other}' ]; then rm '{other}' && cp -p '{meant}' {path}; fi",
    )
    loaded = walk.load(module)
    walk.here.checkout.install_tools()
    walk.check_value(module, loaded)
    assert loaded.compiled == [MODULES[module]] * 2, loaded
    walk.check_reason(module, loaded.stderr)
    walk.note(module, loaded)
    return f"{module}, {path}"


def kill_a_compiling_builder(walk: Walk) -> str:
    """
    Killed while rustc reads; then the edit is taken back, mostly with its old time.
    """
    held = _HeldBuild(walk)
    with ended_at_last(held.builder):
        held.builder.kill()
        held.builder.wait(PATIENCE)
        wait_until(lambda: not alive(os.fspath(walk.cache)), "no compiler is left")
    held.take_away_the_gate(how := walk.random.choice(("its old time", "its old time", "long ago", "in place")))
    return f"{held}; taken back {how}; {_after_a_death(walk, held.module)}"


def _after_a_death(walk: Walk, module: str) -> str:
    """
    Load what the dead builder was about, more often than not with another edit, so that it must be built.
    """
    said = (
        edit_a_source(walk, walk_tree.closure(MODULES[module]) - {"pymod"}) if walk.random.random() < 0.7 else "no edit"
    )
    walk.check(module)
    return said


#: Code that kills the process which runs it at a point of its way, mostly through storing an entry; it needs `os`.
_DEATHS = {
    "before anything is staged": """
        from rust_ext_loader.cache import _store
        _store.publish = lambda *_: os.kill(os.getpid(), 9)
    """,
    "before the folder has its name": """
        from rust_ext_loader.files import _staging
        _staging.publish_folder = lambda *_: os.kill(os.getpid(), 9)
    """,
    "after the folder has its name": """
        from rust_ext_loader.files import _staging
        publish = _staging.publish_folder
        _staging.publish_folder = lambda *paths: (publish(*paths), os.kill(os.getpid(), 9))
    """,
    "before the pointer": """
        from rust_ext_loader.files import _staging
        write = _staging.write_atomically
        _staging.write_atomically = lambda path, data: os.kill(os.getpid(), 9) if path.name.startswith("current") else write(path, data)
    """,
    "after the pointer": """
        from rust_ext_loader.files import _staging
        write = _staging.write_atomically
        _staging.write_atomically = lambda path, data: (write(path, data), path.name.startswith("current") and os.kill(os.getpid(), 9))
    """,
    "before cargo": """
        from rust_ext_loader.build import _cargo
        _cargo.run = lambda *_, **__: os.kill(os.getpid(), 9)
    """,
    "after cargo": """
        from rust_ext_loader.build import _cargo
        run = _cargo.run
        _cargo.run = lambda *args, **kwargs: (run(*args, **kwargs), os.kill(os.getpid(), 9))
    """,
    "before the folder's state is settled": """
        from rust_ext_loader.build import _build
        _build.TargetState.settle = lambda *_: os.kill(os.getpid(), 9)
    """,
}


def kill_a_builder(walk: Walk) -> str:
    """
    Killed at a named point of its way; then, at times, what it compiled is taken back with its old time.
    """
    module = walk.random.choice(sorted(MODULES))
    crate, before = _pick(walk, MODULES[module]), walk.here.tree
    _edit_afresh(walk, crate)
    point = walk.random.choice(sorted(_DEATHS))
    process = walk.start(module, f"import os\n{textwrap.dedent(_DEATHS[point])}")
    with ended_at_last(process):
        assert process.wait(PATIENCE) == -signal.SIGKILL
        wait_until(lambda: not alive(os.fspath(walk.cache)), "no compiler is left")
    if point == "after the pointer":
        walk.stored[walk.key(module)] = None
    if walk.random.random() < 0.5:
        walk.here.become(before, "its old time")
    return f"{module}, edited in {crate}, {point}; {_after_a_death(walk, module)}"
