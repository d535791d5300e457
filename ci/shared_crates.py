"""
Check that all extension modules of the workspace share one compiled copy of each crate.

Cargo compiles a crate once for each set of features. If two modules select different features of
one crate, the crate and all crates that use it are compiled twice. Prints the number of crates of
each module and of all together; fails if a crate has two sets of features.

    python ci/shared_crates.py

Invariant: asks cargo about exactly the features with which the toolkit builds. Standard library
only. `cargo deny` finds crates in two versions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

RUST = Path(__file__).resolve().parent.parent / "rust"


@dataclass(frozen=True)
class Module:
    """
    An extension module: its Python name, its package and the features with which it is built.
    """

    name: str
    package: str
    features: tuple[str, ...]


@dataclass(frozen=True)
class Crate:
    """
    A crate as one module selects it. *label* is the name with its version.
    """

    label: str
    features: frozenset[str]


def modules() -> list[Module]:
    """
    Return all modules that the workspace declares.
    """
    packages = json.loads(_cargo("metadata", "--no-deps", "--format-version", "1"))["packages"]
    declared = [(package["name"], (package["metadata"] or {}).get("sglang")) for package in packages]
    return [
        Module(settings["python-module"], name, tuple(settings.get("features", ())))
        for name, settings in declared
        if settings
    ]


def crates(module: Module) -> set[Crate]:
    """
    Return the crates that a build of *module* compiles, for the target and for build scripts.
    """
    features = ("--features", ",".join(module.features)) if module.features else ()
    tree = _cargo(
        "tree",
        "--package",
        module.package,
        *features,
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}|{f}",
    )
    found = set()
    for line in tree.splitlines():
        package, _, selected = line.removesuffix(" (*)").partition("|")
        name, version, *_ = package.split(" ")
        found.add(Crate(f"{name} {version}", frozenset(filter(None, selected.split(",")))))
    return found


def main() -> int:
    """
    Print the numbers and the differences; return the exit code.
    """
    users: dict[str, dict[frozenset[str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for module in modules():
        found = crates(module)
        print(f"{module.name}: {len(found)} crates")
        for crate in found:
            users[crate.label][crate.features].append(module.package)
    print(f"all modules: {len(users)} crates")
    different = {label: sets for label, sets in users.items() if len(sets) > 1}
    for label, sets in sorted(different.items()):
        print(f"\n{label} is compiled {len(sets)} times:", file=sys.stderr)
        for features, packages in sets.items():
            print(f"  {', '.join(packages)}: features {', '.join(sorted(features)) or '(none)'}", file=sys.stderr)
    if different:
        print(
            "\nSelect the same features in all modules: in [workspace.dependencies] of rust/Cargo.toml,"
            " or by a dependency that only selects features, as in rust/sglang-mm/Cargo.toml.",
            file=sys.stderr,
        )
    return 1 if different else 0


def _cargo(*arguments: str) -> str:
    command = ("cargo", *arguments, "--locked")
    return subprocess.run(command, cwd=RUST, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
