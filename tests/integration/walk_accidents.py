"""
Steps of the random walk that harm the cache or disturb builds: loss, damage, races, killed processes.

Each step returns a description of what it did. A step about a load checks that load
against the model itself. After each step the next loads must be right.
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
from children import killed_at_exit
from eventually import PATIENCE, eventually
from processes import Gate, StartLine, alive, run_around_compilation
from walk_edits import WAYS, add_or_delete_a_listed_file, edit_a_source, edit_an_included_file
from walk_tree import MODULES
from walking import Walk, by_record, is_for_editing

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
    Remove an entry from the model and return its module and library. Prefers entries that the next load needs.
    """
    keys = [key for key, file in walk.stored.items() if file is not None]
    wanted = [key for key in map(walk.stored_key, MODULES) if key is not None and walk.stored[key]]
    chosen = walk.random.choice(wanted if wanted and walk.random.random() < 0.7 else keys) if keys else None
    return (chosen[0], Path(str(walk.stored.pop(chosen)))) if chosen else None


def delete_an_entry(walk: Walk) -> str:
    found = _take_from_stored(walk)
    if found is None:
        return "no known entry"
    module, library = found
    shutil.rmtree(library.parent)
    walk.check(module)
    return f"one of {module}"


def _flip(path: Path) -> None:
    """
    Flip one bit in the middle of a file and keep its size and time.
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


#: Some files stay as they are, because damage to all of them is easier to notice.
_PROBABILITY_OF_HARM = 0.7

_HARM: tuple[Callable[[Path], None], ...] = (_flip, _flip, _cut, _empty, Path.unlink)


def damage_an_entry(walk: Walk) -> str:
    """
    Damage the library, the manifest or the pointer of an entry.
    """
    found = _take_from_stored(walk)
    if found is None:
        return "no known entry"
    module, library = found
    path = walk.random.choice((library, library, library.with_name("manifest.json"), _store.pointer_of(library)))
    harm = walk.random.choice(_HARM)
    if path.name == "manifest.json" and harm is _flip:
        # Manifest fields that are not facts are not verified, so damage a fact.
        manifest = json.loads(path.read_bytes())
        manifest["facts"]["request/package"] = "another"
        path.write_text(json.dumps(manifest))
    else:
        harm(path)
    if path.name == "manifest.json":
        # A load by record does not read the manifest, so it would still return the library, which is right.
        shutil.rmtree(walk.cache / "records", ignore_errors=True)
    walk.check(module)
    return f"{harm.__name__} {path.name} of {module}"


def damage_records_or_build_state(walk: Walk) -> str:
    """
    Damage the records, the state of target folders or the compiler's incremental state.

    All of them only save time, so no verdict may change.
    """
    pattern = walk.random.choice(("records/*", "targets/*/rust-ext-state.json", "targets/*/release/incremental/*/*/*"))
    harm = walk.random.choice(_HARM)
    for path in sorted(walk.cache.glob(pattern)):
        if path.is_file() and walk.random.random() < _PROBABILITY_OF_HARM:
            harm(path)
    return f"{harm.__name__} {pattern}"


# Other kinds of loads.


def load_in_another_mode(walk: Walk) -> str:
    module, mode = walk.random.choice(sorted(MODULES)), walk.random.choice(("never", "force"))
    if mode == "force":
        # Refresh the record first: a load after the forced build must not follow the old record.
        walk.check(module)
    loaded = walk.load(module, mode)
    if mode == "force":
        walk.check_value(module, loaded)
        walk.check_built(module, loaded, "mode `force`")
        walk.note(module, loaded)
        walk.check(module)
    elif walk.stored_key(module) is not None:
        walk.check_value(module, loaded)
        walk.check_cached(module, loaded)
    else:
        assert (loaded.reason, loaded.cargo) == ("not-found", ()), loaded
    return f"{module} {mode}"


def break_and_repair(walk: Walk) -> str:
    """
    Write a source that does not compile. Nothing is stored, and the next process tries again.
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
    Start two to four processes at once: each gets the right module, and a new module is compiled once.
    """
    modules = [walk.random.choice(sorted(MODULES)) for _ in range(walk.random.randint(2, 4))]
    folder = walk.folder / f"start-{walk.counts.steps}"
    folder.mkdir()
    start = StartLine(folder)
    with walk.counted() as calls:
        processes = [walk.start(module, start.prelude) for module in modules]
        with killed_at_exit(*processes):
            start.go(len(processes))
            answers = [Loaded(**walk.here.checkout.finish(process)) for process in processes]
    for module in sorted(set(modules)):
        mine = [answer for name, answer in zip(modules, answers, strict=True) if name == module]
        compiled = [call for call in calls if call[0] == "rustc" and MODULES[module] in call]
        assert len(compiled) == (walk.stored_key(module) is None), f"{module} in {modules}: {calls}"
        for answer in mine:
            walk.check_value(module, answer)
        if compiled:
            walk.check_reason(module, "".join(answer.stderr for answer in mine))
        assert len({answer.file for answer in mine}) == 1, mine
        walk.note(module, min(mine, key=by_record))
    return " ".join(modules)


# Disturbed builds.


def _edit_to_new_text(walk: Walk, crate: str) -> None:
    """
    Write a text into a crate that no build has compiled yet.
    """
    path = f"{crate}/src/lib.rs"
    walk.here.write(path, walk_tree.numbered(walk.here.tree[path], 1000 + walk.counts.steps), walk.random.choice(WAYS))


def _pick(walk: Walk, crate: str) -> str:
    """
    A random crate of those that a crate's build compiles, including itself.
    """
    return walk.random.choice(sorted(walk_tree.closure(crate) - {"pymod"}))


class _HeldBuild:
    """
    A build of new text. It is held while rustc reads a crate that uses the text.
    """

    def __init__(self, walk: Walk) -> None:
        self.module = walk.random.choice(sorted(MODULES))
        self.crate = _pick(walk, MODULES[self.module])
        self.edited = _pick(walk, self.crate)
        self._place, self._tree = walk.here, walk.here.tree
        _edit_to_new_text(walk, self.edited)
        self._gate = Gate(walk.here.checkout, self.crate)
        self.builder = walk.start(self.module)
        self._gate.reached(self.builder)

    def __str__(self) -> str:
        return f"{self.module}, edited in {self.edited} and held in {self.crate}"

    def remove_the_gate(self, how: str) -> None:
        """
        Restore the earlier texts and release the compiler that waits at the gate.
        """
        for crate in sorted({self.crate, self.edited}):
            root = f"{crate}/src/lib.rs"
            self._place.write(root, self._tree[root], how)
        self._gate.let_through()
        (self._place.root / self.crate / "src" / "gate").unlink()


def edit_during_a_build(walk: Walk) -> str:
    """
    Edit sources while cargo runs. The loaded module must match the sources at the end.
    """
    with walk.counted() as calls:
        held = _HeldBuild(walk)
        with killed_at_exit(held.builder):
            ways = (edit_a_source, edit_an_included_file, add_or_delete_a_listed_file)
            edits = [walk.random.choice(ways)(walk) for _ in range(walk.random.randint(0, 2))]
            held.remove_the_gate(walk.random.choice(WAYS))
            loaded = Loaded(**walk.here.checkout.finish(held.builder))
    walk.check_value(held.module, loaded)
    compiled = [call for call in calls if call[0] == "rustc"]
    assert 1 < len(compiled) <= 3, calls
    walk.counts.builds += 1
    walk.note(held.module, loaded)
    return f"{held}; {'; '.join(edits)}"


def edit_and_revert_during_a_build(walk: Walk) -> str:
    """
    Edit a file before cargo's first run and revert the edit after that run. No result may contain the reverted text.
    """
    module = walk.random.choice(sorted(MODULES))
    _edit_to_new_text(walk, _pick(walk, MODULES[module]))
    path = walk.random.choice(walk_tree.read_by(walk.here.tree, MODULES[module]))
    original, other = walk.folder / "original", walk.folder / "other"
    shutil.copy2(walk.here.root / path, original)
    other.write_text(walk_tree.numbered(walk.here.tree[path], 9), encoding="utf-8")
    run_around_compilation(
        walk.here.checkout,
        before=f"if [ -e '{other}' ]; then cp '{other}' {path}; fi",
        after=f"if [ -e '{other}' ]; then rm '{other}' && cp -p '{original}' {path}; fi",
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
    Kill a builder while rustc reads, then revert the edit, mostly with its old timestamp.
    """
    held = _HeldBuild(walk)
    with killed_at_exit(held.builder):
        held.builder.kill()
        held.builder.wait(PATIENCE)
        eventually(lambda: not alive(os.fspath(walk.cache)), "no compiler is left")
    held.remove_the_gate(how := walk.random.choice(("its old time", "its old time", "long ago", "in place")))
    return f"{held}; reverted {how}; {_load_after_a_kill(walk, held.module)}"


def _newest_library(walk: Walk, module: str) -> str:
    """
    The library that was stored last for a module.
    """
    pointers = walk.cache.glob(f"artifacts/{module}/*/*/current*")
    pointer = max(pointers, key=lambda path: path.stat().st_mtime_ns)
    (library,) = (pointer.parent / pointer.read_text(encoding="ascii").strip()).glob("*.so")
    return os.fspath(library)


def _load_after_a_kill(walk: Walk, module: str) -> str:
    """
    Load the module of the killed builder, mostly after another edit, so that it must be built.
    """
    edit = (
        edit_a_source(walk, walk_tree.closure(MODULES[module]) - {"pymod"}) if walk.random.random() < 0.7 else "no edit"
    )
    walk.check(module)
    return edit


#: Code that makes a process kill itself at a named point, mostly while it stores an entry. It needs `os`.
_KILL_POINTS = {
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
        def write_or_die(path, data):
            if path.name.startswith("current"):
                os.kill(os.getpid(), 9)
            write(path, data)
        _staging.write_atomically = write_or_die
    """,
    "after the pointer": """
        from rust_ext_loader.files import _staging
        write = _staging.write_atomically
        def write_and_die(path, data):
            write(path, data)
            if path.name.startswith("current"):
                os.kill(os.getpid(), 9)
        _staging.write_atomically = write_and_die
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
        _build.TargetState.mark_known = lambda *_: os.kill(os.getpid(), 9)
    """,
}


def kill_a_builder(walk: Walk) -> str:
    """
    Kill a builder at a named point. Sometimes revert the compiled text afterwards, with its old timestamp.
    """
    module = walk.random.choice(sorted(MODULES))
    crate, before = _pick(walk, MODULES[module]), walk.here.tree
    _edit_to_new_text(walk, crate)
    point = walk.random.choice(sorted(_KILL_POINTS))
    process = walk.start(module, f"import os\n{textwrap.dedent(_KILL_POINTS[point])}")
    with killed_at_exit(process):
        assert process.wait(PATIENCE) == -signal.SIGKILL
        eventually(lambda: not alive(os.fspath(walk.cache)), "no compiler is left")
    if point == "after the pointer":
        for_editing = is_for_editing(_newest_library(walk, module))
        walk.stored[walk.key_for_editing(module) if for_editing else walk.key(module)] = None
    if walk.random.random() < 0.5:
        walk.here.become(before, "its old time")
    return f"{module}, edited in {crate}, {point}; {_load_after_a_kill(walk, module)}"
