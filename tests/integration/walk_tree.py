"""
A model of the random walk's workspace, and the module values that follow from it.

A *tree* maps paths to texts. `value` computes what a module built from it returns.
`facts` computes the facts of that build: trees with the same facts must share one build,
and trees with different facts must not.

Invariant: the model uses only texts and variables, and neither the toolkit nor cargo. So
it can check both of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from checkout import CRATES

Tree: TypeAlias = dict[str, str]
#: Keys are the names that the toolkit prints when a fact changed.
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
#: Crates whose sources the walk edits.
CRATES_EDITED = ("left", "right", "lone", "shared", "deep")

FLAVOUR = "FX_FLAVOUR"
#: Read by code of `shared` and by the build script of `right`, but not declared.
SEEN, SCRIPT = "FX_SEEN", "FX_SCRIPT"
CHECKED = "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS"
#: Variables that affect a build, and their values. `None` is "not set".
VARIABLES: dict[str, tuple[str | None, ...]] = {
    FLAVOUR: (None, "", "sweet", "sour"),
    "RUSTFLAGS": (None, "", "--cfg loud"),
    CHECKED: (None, "true", "false"),
    SEEN: (None, "", "seen"),
    SCRIPT: (None, "", "script"),
}
#: Variables that do not affect a build.
IDLE_VARIABLES: dict[str, tuple[str | None, ...]] = {
    "CARGO_BUILD_JOBS": (None, "1"),
    "CARGO_INCREMENTAL": (None, "1"),
    "CARGO_PROFILE_DEV_OPT_LEVEL": (None, "2"),
    "PYTHONHASHSEED": (None, "7"),
    "FX_UNDECLARED": (None, "1"),
}

CONFIG = ".cargo/config.toml"
DECLARED = "texts/declared.txt"
#: Files that `left` includes and does not declare. Markdown files in a crate's folder are not sources.
UNDECLARED, README = "texts/undeclared.txt", "left/README.md"
#: Folder that the build script of `right` lists and reads.
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

#: A word with a number: quoted in a source, alone in a text file.
_NUMBERED = re.compile(r'(?:(?<=")|^)([a-z]+)-(\d+)(?="|\n)')
_COMMENT = re.compile(r"(?m)^#.*\n")
#: Manifest tables whose values are separate facts.
_METADATA = re.compile(r"(?m)^\[package\.metadata\..*\n(?:.+\n)*")


def first_tree() -> Tree:
    """
    The tree at the start of every walk.
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
    A crate and its dependencies, recursively.
    """
    return {crate}.union(*map(closure, _DEPENDENCIES[crate]))


def sources(tree: Tree, crate: str) -> list[str]:
    """
    Source files of a crate that contain a numbered word.
    """
    return [
        path
        for path in sorted(tree)
        if path.startswith(f"{crate}/src/") and path.endswith(".rs") and _NUMBERED.search(tree[path])
    ]


def numbered(text: str, number: int) -> str:
    """
    A source with another number in its first word.
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
    Modules that a crate's root file declares.
    """
    return re.findall(r"(?m)^mod (\w+);", tree[f"{crate}/src/lib.rs"])


def with_module(tree: Tree, crate: str, name: str) -> Tree:
    """
    The tree with one more module in a crate.
    """
    root = f"{crate}/src/lib.rs"
    text = f"mod {name};\n" + re.sub(r"(WORDS: .*)\];", rf"\1, {name}::WORD];", tree[root])
    return {**tree, root: text, f"{crate}/src/{name}.rs": f'pub const WORD: &str = "{name}-1";\n'}


def without_module(tree: Tree, crate: str, name: str) -> Tree:
    """
    The tree without a module of a crate.
    """
    root = f"{crate}/src/lib.rs"
    text = tree[root].replace(f"mod {name};\n", "").replace(f", {name}::WORD", "")
    return {path: text if path == root else kept for path, kept in tree.items() if path != f"{crate}/src/{name}.rs"}


def value(tree: Tree, module: str, variables: Mapping[str, str]) -> str:
    """
    The value of the module.
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
    The facts that decide whether a module is rebuilt. They do not depend on time and path.
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
    # For these variables, empty and not set are different values.
    asked_for = {"left": (FLAVOUR, SEEN), "right": (SCRIPT, SEEN), "lone": ()}[crate]
    return found | {name: variables[name] for name in asked_for if name in variables}


def changed_facts(old: Facts, new: Facts) -> set[str]:
    """
    Names of the facts that differ.
    """
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
