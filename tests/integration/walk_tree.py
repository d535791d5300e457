"""
The workspace of the random walk as a value, and what must come of it.

A *tree* maps paths to texts. `value` says what a module built from it answers,
`facts` what decides about that build: of two trees with the same facts one build
must do, and two with different facts may not share one.

Invariant: worked out from the texts and variables alone. Neither the toolkit nor
cargo is asked, so that both can be held against it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from checkout import CRATES

Tree: TypeAlias = dict[str, str]
#: Each named as the toolkit names it when it says what moved.
Facts: TypeAlias = dict[str, str]

MODULES = {"fx.left": "left", "fx.right": "right", "fx.lone": "lone"}
_DEPENDENCIES = {
    "left": ("deep", "pymod", "shared"),
    "right": ("deep", "pymod", "shared"),
    "lone": ("pymod",),
    "shared": ("deep",),
    "deep": (),
    "pymod": (),
}
#: Crates whose sources are edited.
CRATES_EDITED = ("left", "right", "lone", "shared", "deep")

FLAVOUR = "FX_FLAVOUR"
#: Asked for by code of `shared` and by the build script of `right`, and declared by nobody.
SEEN, SCRIPT = "FX_SEEN", "FX_SCRIPT"
CHECKED = "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS"
#: Variables that decide, and the values they take; `None` is "not set".
VARIABLES: dict[str, tuple[str | None, ...]] = {
    FLAVOUR: (None, "", "sweet", "sour"),
    "RUSTFLAGS": (None, "", "--cfg loud"),
    CHECKED: (None, "true", "false"),
    SEEN: (None, "", "seen"),
    SCRIPT: (None, "", "script"),
}
#: Variables that decide nothing.
IDLE_VARIABLES: dict[str, tuple[str | None, ...]] = {
    "CARGO_BUILD_JOBS": (None, "1"),
    "CARGO_INCREMENTAL": (None, "1"),
    "CARGO_PROFILE_DEV_OPT_LEVEL": (None, "2"),
    "PYTHONHASHSEED": (None, "7"),
    "FX_UNDECLARED": (None, "1"),
}

CONFIG = ".cargo/config.toml"
DECLARED = "texts/declared.txt"
#: Included by `left`, one of them a file that is no source by its name; declared by nobody.
UNDECLARED, README = "texts/undeclared.txt", "left/README.md"
#: Read as a whole by the build script of `right`.
LISTED = "texts/listed/"
#: Files that no build reads.
NOISE = (
    "README.md",
    "right/README.md",
    "shared/CHANGES.md",
    "left/tests/it.rs",
    "right/examples/it.rs",
    "shared/tests/it.rs",
    "left/target/debug/it.rs",
    "right/src/helper.py",
    "left/src/.lib.rs.swp",
    "shared/.coverage",
    "elsewhere/src/lib.rs",
)

#: A word with a number: in quotes in a source, alone in a text.
_NUMBERED = re.compile(r'(?:(?<=")|^)([a-z]+)-(\d+)(?="|\n)')
_COMMENT = re.compile(r"(?m)^#.*\n")
#: What the toolkit reads of it are facts of their own.
_METADATA = re.compile(r"(?m)^\[package\.metadata\..*\n(?:.+\n)*")


def first_tree() -> Tree:
    """
    The tree that every walk begins with.
    """
    roots = {"": CRATES / "walk", "pymod/": CRATES / "plain" / "pymod"}
    return {
        prefix + path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for prefix, root in roots.items()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "target" not in path.parts
    }


def closure(crate: str) -> set[str]:
    """
    A crate and all that it depends on.
    """
    return {crate}.union(*map(closure, _DEPENDENCIES[crate]))


def sources(tree: Tree, crate: str) -> list[str]:
    """
    Files of a crate that hold a numbered word.
    """
    return [
        path
        for path in sorted(tree)
        if path.startswith(f"{crate}/src/") and path.endswith(".rs") and _NUMBERED.search(tree[path])
    ]


def numbered(text: str, number: int) -> str:
    """
    A source with another number in its word.
    """
    return _NUMBERED.sub(rf"\1-{number}", text, count=1)


def read_by(tree: Tree, crate: str) -> list[str]:
    """
    Files with a numbered word that the build of a crate reads.
    """
    read = [path for name in sorted(closure(crate)) for path in sources(tree, name)]
    return read + {"left": [DECLARED, UNDECLARED, README], "right": [f"{LISTED}one"], "lone": []}[crate]


def modules(tree: Tree, crate: str) -> list[str]:
    """
    Modules that a crate's root file names.
    """
    return re.findall(r"(?m)^mod (\w+);", tree[f"{crate}/src/lib.rs"])


def with_module(tree: Tree, crate: str, name: str) -> Tree:
    """
    The tree in which a crate has one more module.
    """
    root = f"{crate}/src/lib.rs"
    text = f"mod {name};\n" + re.sub(r"(WORDS: .*)\];", rf"\1, {name}::WORD];", tree[root])
    return {**tree, root: text, f"{crate}/src/{name}.rs": f'pub const WORD: &str = "{name}-1";\n'}


def without_module(tree: Tree, crate: str, name: str) -> Tree:
    """
    The tree in which a crate lacks a module.
    """
    root = f"{crate}/src/lib.rs"
    text = tree[root].replace(f"mod {name};\n", "").replace(f", {name}::WORD", "")
    return {path: text if path == root else kept for path, kept in tree.items() if path != f"{crate}/src/{name}.rs"}


def value(tree: Tree, module: str, variables: Mapping[str, str]) -> str:
    """
    What the module answers.
    """
    crate = MODULES[module]
    if crate == "lone":
        return _words(tree, crate)
    tall = _declared_features(tree, crate) == "tall"
    own = [_words(tree, crate), _switches(tree, variables, tall=tall)]
    if crate == "left":
        own += [variables.get(FLAVOUR, "plain"), *(tree[path].strip() for path in (DECLARED, UNDECLARED, README))]
    else:
        own += ["+".join([*sorted(text.strip() for text in _listed(tree)), variables.get(SCRIPT, "none")])]
    wide = 'features = ["wide"]' in tree[f"{crate}/Cargo.toml"]
    return " ".join(
        [
            *own,
            _words(tree, "shared"),
            _switches(tree, variables, wide=wide),
            variables.get(SEEN, "unseen"),
            _words(tree, "deep"),
        ]
    )


def _listed(tree: Tree) -> list[str]:
    return [tree[path] for path in sorted(tree) if path.startswith(LISTED)]


def _words(tree: Tree, crate: str) -> str:
    listed = re.search(r"WORDS: .*\[(.*)\];", tree[f"{crate}/src/lib.rs"])
    assert listed is not None, f"no words in {crate}"
    words = [word.strip().removesuffix("::WORD") for word in listed[1].split(",")]
    texts = [word if word.startswith('"') else tree[f"{crate}/src/{word}.rs"] for word in words]
    found = [_NUMBERED.search(text) for text in texts]
    return "+".join(f"{word[1]}-{word[2]}" for word in found if word is not None)


def _switches(tree: Tree, variables: Mapping[str, str], *, tall: bool = False, wide: bool = False) -> str:
    on = {
        "loud": "loud" in variables.get("RUSTFLAGS", ""),
        "configured": CONFIG in tree and "RUSTFLAGS" not in variables,
        "checked": (variables.get(CHECKED) or str("debug-assertions = true" in tree["Cargo.toml"])).lower() == "true",
        "tall": tall,
        "wide": wide,
    }
    return f"[{','.join(name for name, is_on in on.items() if is_on)}]"


def _declared_features(tree: Tree, crate: str) -> str:
    found = re.search(r'(?m)^features = \["(\w+)"\]', tree[f"{crate}/Cargo.toml"])
    return found[1] if found else ""


def facts(tree: Tree, module: str, variables: Mapping[str, str]) -> Facts:
    """
    All that decides about a module, whatever the time and place.
    """
    crate = MODULES[module]
    reached = closure(crate)
    found = {path: text for path, text in tree.items() if path.partition("/")[0] in reached and path not in NOISE}
    for name in reached:
        found[f"resolution manifest/{name}"] = _METADATA.sub("", _COMMENT.sub("", found.pop(f"{name}/Cargo.toml")))
    if crate == "left":
        found |= {path: tree[path] for path in (DECLARED, UNDECLARED, README)}
    if crate == "right":
        found[LISTED.rstrip("/")] = repr(sorted((path, text) for path, text in tree.items() if path.startswith(LISTED)))
    found["features"] = _declared_features(tree, crate)
    found["resolution profile/release"] = _COMMENT.sub("", tree["Cargo.toml"]).partition("[profile.release]")[2]
    if CONFIG in tree and "RUSTFLAGS" not in variables:
        found["config/build.rustflags"] = tree[CONFIG]
    found |= {name: variables[name] for name in ("RUSTFLAGS", CHECKED) if variables.get(name)}
    # To these, empty and not set are two things.
    asked_for = {"left": (FLAVOUR, SEEN), "right": (SCRIPT, SEEN), "lone": ()}[crate]
    return found | {name: variables[name] for name in asked_for if name in variables}


def moved(old: Facts, new: Facts) -> set[str]:
    """
    Names of the facts that differ.
    """
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
