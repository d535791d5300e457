"""
Target folders whose content was torn, and linkers that die: never a wrong library, never a build that fails for ever.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout
from processes import script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALPHA = "alpha-1 part-1 middle-1"
EDITED = "alpha-1 part-2 middle-1"

# What was compiled earlier, and is not compiled again for an edit beside it: as a fetched dependency, which is never cleaned.


def cut(path: Path) -> None:
    """
    Half of it is there.
    """
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    """
    As after a loss of power: the name is there, no byte is.
    """
    os.truncate(path, 0)


def blank(path: Path) -> None:
    """
    Zeros in the middle.
    """
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(data[:half] + bytes(4096) + data[half + 4096 :])


def remove(path: Path) -> None:
    """
    Gone.
    """
    path.unlink()


@pytest.mark.parametrize("harm", [cut, empty, blank, remove])
def test_a_torn_dependency_is_compiled_anew(plain: Checkout, harm: Callable[[Path], None]) -> None:
    """
    Whatever of a dependency's compiled code is torn, an edit of the crate is in the module, in one load.
    """
    plain.load()
    torn = [path for path in (plain.cache / "targets").rglob("libmiddle-*") if path.is_file()]
    assert {path.suffix for path in torn} >= {".rlib"}
    for path in torn:
        harm(path)
    plain.replace("alpha/src/part.rs", "part-1", "part-2")

    healed, after = plain.load(), plain.load()

    assert (healed.value, healed.warnings) == (EDITED, ())
    assert (after.value, after.cargo) == (EDITED, ())


@pytest.mark.parametrize("profile", ["release", "dev"])
def test_torn_state_of_cargo_is_no_obstacle(plain: Checkout, profile: str) -> None:
    """
    Nor do cargo's own notes matter, or what the compiler keeps between two builds: emptied, they cost time.
    """
    plain.replace(
        "alpha/Cargo.toml", 'python-module = "fx.alpha"', f'python-module = "fx.alpha"\nprofile = "{profile}"'
    )
    plain.load()
    for path in (plain.cache / "targets").rglob("*"):
        if path.is_file() and not path.name.startswith("rust-ext"):
            empty(path)
    plain.replace("alpha/src/part.rs", "part-1", "part-2")

    healed, after = plain.load(), plain.load()

    assert (healed.value, healed.warnings) == (EDITED, ())
    assert (after.value, after.cargo) == (EDITED, ())


def test_a_library_that_is_not_there_is_no_damage(plain: Checkout) -> None:
    """
    A link that fails for the sources' own reason is tried in an empty folder once, and after that not again until it is mended.
    """
    plain.load()
    wrong = '#[link(name = "nowhere")] unsafe extern "C" {}\nmod part;'
    plain.replace("alpha/src/lib.rs", "mod part;", wrong)

    first, second, third = plain.load(), plain.load(), plain.load()
    plain.replace("alpha/src/lib.rs", wrong, "mod part;")
    shutil.rmtree(plain.cache / "artifacts")

    for failed in (first, second, third):
        assert failed.reason == "build-failed"
        assert "nowhere" in str(failed.error)
    assert [len(failed.compiled) for failed in (first, second, third)] == [2, 1, 1]
    assert plain.load().value == ALPHA


def test_a_wrong_source_is_no_damage(plain: Checkout) -> None:
    """
    What the compiler refuses for its text is compiled once, and the dependencies stay as they are.
    """
    plain.load()
    plain.replace("alpha/src/part.rs", "pub const", "nonsense")

    assert [plain.load().compiled for _ in range(2)] == [["alpha"]] * 2


# Linkers that die.


def linker_that_dies(checkout: Checkout, times: int) -> None:
    """
    A linker that writes the first kilobyte of `alpha` and is killed, the first so many times.
    """
    folder = checkout.cache.parent
    linker = script(
        folder / "linker",
        f"""
        case "$*" in *libalpha.so*)
            for argument; do [ "$previous" = -o ] && output=$argument; previous=$argument; done
            echo died >> '{folder}/deaths'
            if [ "$(wc -l < '{folder}/deaths')" -le {times} ]; then
                head -c 1024 /dev/zero > "$output"
                kill -9 $$
            fi
        esac
        exec cc "$@"
        """,
    )
    checkout.environment["RUSTFLAGS"] = f"-Clinker={linker}"


def test_a_linker_that_died_is_told_of(plain: Checkout) -> None:
    """
    Where the linker writes a kilobyte and dies, the build failed: its words are the error, nothing is stored, the next load is right.
    """
    linker_that_dies(plain, 1)

    died = plain.load()

    assert died.reason == "build-failed"
    assert "signal: 9" in str(died.error)
    assert not list((plain.cache / "artifacts").rglob("*.so"))
    healed = plain.load()
    assert (healed.value, healed.compiled) == (ALPHA, ["alpha"])


def test_a_linker_that_died_once_is_tried_again(plain: Checkout) -> None:
    """
    In a folder that holds earlier outputs these may be to blame, so the link is tried once more in the same load.
    """
    linker_that_dies(plain, 1)
    plain.load("fx.beta")

    healed = plain.load()

    assert (healed.value, healed.compiled) == (ALPHA, ["alpha", "alpha"])
