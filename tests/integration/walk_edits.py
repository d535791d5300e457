"""
Steps of the random walk that change a checkout: edits, settings, versions, checkouts.

Each step makes one change to the current checkout or to the variables and returns a
description of it. The walk loads modules after every step.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection

import walk_tree
from walk_tree import CRATES_EDITED, MODULES, NOISE
from walking import Walk

#: Limits of checkouts and saved versions.
_MAX_CHECKOUTS = 3
_MAX_SAVED = 6
#: Ways to write a file. Most of them are rare, and some build tools miss such an edit.
WAYS = ("in place", "by rename", "same time", "its old time", "long ago")


# Texts.


def edit_a_source(walk: Walk, crates: Collection[str] = CRATES_EDITED) -> str:
    """
    Write another number into a source of one of these crates. There are only three numbers, so that states recur.
    """
    crate = walk.random.choice(sorted(crates))
    path = walk.random.choice(walk_tree.sources(walk.here.tree, crate))
    texts = (walk_tree.numbered(walk.here.tree[path], number) for number in (1, 2, 3))
    text = walk.random.choice([text for text in texts if text != walk.here.tree[path]])
    walk.here.write(path, text, how := walk.random.choice(WAYS))
    return f"{path}, {how}"


def edit_several_sources(walk: Walk) -> str:
    return "; ".join(edit_a_source(walk) for _ in range(walk.random.randint(2, 4)))


def edit_an_included_file(walk: Walk) -> str:
    """
    Edit a file that is not a Rust source: a declared input, or one that a build was seen to read.
    """
    listed = [path for path in walk.here.tree if path.startswith(walk_tree.LISTED)]
    path = walk.random.choice(sorted([walk_tree.DECLARED, walk_tree.UNDECLARED, walk_tree.README, *listed]))
    word = walk.here.tree[path].partition("-")[0]
    texts = (f"{word}-{number}\n" for number in (1, 2, 3))
    text = walk.random.choice([text for text in texts if text != walk.here.tree[path]])
    walk.here.write(path, text, how := walk.random.choice(WAYS))
    return f"{path}, {how}"


def add_or_delete_a_listed_file(walk: Walk) -> str:
    """
    Add or delete a file in a folder that a build script lists. No other input shows the change.
    """
    path = f"{walk_tree.LISTED}two"
    if path in walk.here.tree:
        walk.here.remove(path)
        return f"{path} deleted"
    walk.here.write(path, "two-1\n", walk.random.choice(WAYS))
    return f"{path} added"


def add_or_delete_a_module(walk: Walk) -> str:
    crate = walk.random.choice(CRATES_EDITED)
    name = walk.random.choice(("extra", "part"))
    has = name in walk_tree.modules(walk.here.tree, crate)
    change = walk_tree.without_module if has else walk_tree.with_module
    walk.here.become(change(walk.here.tree, crate, name))
    return f"{crate}::{name} {'deleted' if has else 'added'}"


def add_or_delete_a_file(walk: Walk) -> str:
    """
    Add or delete a file that no source includes. It is an input, since only the compiler knows which files it reads.
    """
    path = f"{walk.random.choice(CRATES_EDITED)}/src/unused.rs"
    if path in walk.here.tree:
        walk.here.remove(path)
        return f"{path} deleted"
    walk.here.write(path, "")
    return f"{path} added"


def edit_a_manifest(walk: Walk) -> str:
    """
    Switch a feature of a crate or of a dependency, or a setting of the profile, on or off.
    """
    path, off, on = walk.random.choice(
        [
            *(
                (
                    f"{crate}/Cargo.toml",
                    "[package.metadata.sglang]\n",
                    '[package.metadata.sglang]\nfeatures = ["tall"]\n',
                )
                for crate in ("left", "lone")
            ),
            *(
                (f"{crate}/Cargo.toml", '"../shared" }', '"../shared", features = ["wide"] }')
                for crate in ("left", "right")
            ),
            ("Cargo.toml", "incremental = false\n", "incremental = false\ndebug-assertions = true\n"),
        ]
    )
    text = walk.here.tree[path]
    walk.here.write(path, text.replace(on, off) if on in text else text.replace(off, on))
    return f"{path}, {on.removeprefix(off).strip()!r} {'off' if on in text else 'on'}"


def edit_the_configuration(walk: Walk) -> str:
    if walk_tree.CONFIG in walk.here.tree:
        walk.here.remove(walk_tree.CONFIG)
        return "removed"
    walk.here.write(walk_tree.CONFIG, '[build]\nrustflags = ["--cfg", "configured"]\n')
    return "added"


# Changes without effect.


def edit_an_unread_file(walk: Walk) -> str:
    """
    Write or remove a file that no build reads.
    """
    path = walk.random.choice(NOISE)
    if path in walk.here.tree and walk.random.random() < 0.3:
        walk.here.remove(path)
        return f"{path} removed"
    walk.here.write(path, f"{walk.random.random()}")
    return path


def comment_on_a_manifest(walk: Walk) -> str:
    path = walk.random.choice(["Cargo.toml", "Cargo.lock", *(f"{crate}/Cargo.toml" for crate in CRATES_EDITED)])
    walk.here.write(path, f"# {walk.random.random()}\n{walk.here.tree[path]}")
    return path


def touch(walk: Walk) -> str:
    """
    Give some files new timestamps and another mode, and keep their content.
    """
    paths = walk.random.sample(sorted(walk.here.tree), 5)
    for path in paths:
        then = walk.random.choice((None, (0, 0), (10**9, 10**9)))
        os.utime(walk.here.root / path, then)
        (walk.here.root / path).chmod(walk.random.choice((0o644, 0o640, 0o755)))
    return ", ".join(paths)


def set_an_idle_variable(walk: Walk) -> str:
    return _set(walk, walk_tree.IDLE_VARIABLES)


# Variables.


def set_a_variable(walk: Walk) -> str:
    return _set(walk, walk_tree.VARIABLES)


def change_an_input_of_a_record(walk: Walk) -> str:
    """
    Load twice, so that a record can decide the second load. Then make a change that must invalidate the record.
    """
    module = walk.random.choice(sorted(MODULES))
    for _ in range(2):
        walk.check(module)
    changes = (edit_a_source, edit_an_included_file, add_or_delete_a_file, add_or_delete_a_listed_file, set_a_variable)
    return f"{module}, then {walk.random.choice(changes)(walk)}"


def _set(walk: Walk, table: dict[str, tuple[str | None, ...]]) -> str:
    name = walk.random.choice(sorted(table))
    value = walk.random.choice([value for value in table[name] if value != walk.variables.get(name)])
    walk.variables = {other: kept for other, kept in walk.variables.items() if other != name}
    if value is not None:
        walk.variables[name] = value
    return f"{name}={value!r}"


# Versions and checkouts.


def save(walk: Walk) -> str:
    """
    Save the tree, with a commit if Git is installed.
    """
    here = walk.here
    name = f"s{walk.counts.steps}-{len(here.saved)}"
    if walk.has_git:
        here.git("add", "--all", "--force")
        here.git("commit", "--quiet", "--allow-empty", "--message", name)
        here.git("tag", name)
    here.saved = [*here.saved, (name, dict(here.tree))][-_MAX_SAVED:]
    return name


def switch(walk: Walk) -> str:
    """
    Save, then restore a saved tree, with Git or file by file.
    """
    here = walk.here
    save(walk)
    name, tree = walk.random.choice(here.saved)
    if walk.has_git and walk.random.random() < 0.7:
        here.git("checkout", "--quiet", "--force", name)
        here.tree = dict(tree)
        return f"to {name} by git"
    how = walk.random.choice(("in place", "by rename", "its old time"))
    here.become(tree, how)
    return f"to {name}, {how}"


def clone(walk: Walk) -> str:
    """
    Clone the current commit into another folder and continue there.
    """
    save(walk)
    name = f"clone-{walk.counts.steps}"
    if walk.has_git:
        walk.here.git("clone", "--quiet", os.fspath(walk.here.root), os.fspath(walk.folder / name))
    saved, tree = walk.here.saved, walk.here.tree
    walk.here = walk.add_place(name, tree)
    walk.here.saved = list(saved)
    if len(walk.places) > _MAX_CHECKOUTS:
        shutil.rmtree(walk.places.pop(0).root)
    return name


def go_to_another_checkout(walk: Walk) -> str:
    walk.here = walk.random.choice(walk.places)
    return walk.here.root.name


def rename_the_checkout(walk: Walk) -> str:
    """
    Rename the folder of the checkout. The notes in the cache about the old path do not apply to the new one.
    """
    root = walk.here.root.with_name(f"renamed-{walk.counts.steps}")
    walk.here.root.rename(root)
    walk.here.checkout.root = root
    walk.here.known.clear()
    return root.name
