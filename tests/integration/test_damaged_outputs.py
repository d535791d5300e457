"""
Damaged files in target folders, and linkers that crash: never a wrong library, never a build that fails forever.
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

# Dependencies that an edit of the crate does not recompile, like a downloaded one, which is never cleaned.


def cut(path: Path) -> None:
    """
    Keep only the first half of the file.
    """
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    """
    Make the file empty, as a power failure can.
    """
    os.truncate(path, 0)


def blank(path: Path) -> None:
    """
    Overwrite a page in the middle of the file with zeros.
    """
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(data[:half] + bytes(4096) + data[half + 4096 :])


def remove(path: Path) -> None:
    """
    Remove the file.
    """
    path.unlink()


@pytest.mark.parametrize("harm", [cut, empty, blank, remove])
def test_a_damaged_dependency_is_recompiled(plain: Checkout, harm: Callable[[Path], None]) -> None:
    """
    If a dependency's compiled code is damaged, the load after an edit of the crate still returns the new code.
    """
    plain.load()
    damaged = [path for path in (plain.cache / "targets").rglob("libmiddle-*") if path.is_file()]
    assert {path.suffix for path in damaged} >= {".rlib"}
    for path in damaged:
        harm(path)
    plain.replace("alpha/src/part.rs", "part-1", "part-2")

    rebuilt, after = plain.load(), plain.load()

    assert (rebuilt.value, rebuilt.warnings) == (EDITED, ())
    assert (after.value, after.cargo) == (EDITED, ())


@pytest.mark.parametrize("profile", ["release", "dev"])
def test_damaged_state_of_cargo_only_costs_time(plain: Checkout, profile: str) -> None:
    """
    Empty files of cargo's fingerprints and of incremental compilation do not prevent the next build.
    """
    plain.replace(
        "alpha/Cargo.toml", 'python-module = "fx.alpha"', f'python-module = "fx.alpha"\nprofile = "{profile}"'
    )
    plain.load()
    for path in (plain.cache / "targets").rglob("*"):
        if path.is_file() and not path.name.startswith("rust-ext"):
            empty(path)
    plain.replace("alpha/src/part.rs", "part-1", "part-2")

    rebuilt, after = plain.load(), plain.load()

    assert (rebuilt.value, rebuilt.warnings) == (EDITED, ())
    assert (after.value, after.cargo) == (EDITED, ())


def test_a_missing_link_library_is_not_taken_for_damage(plain: Checkout) -> None:
    """
    A link that fails because of the sources is retried once in an empty folder, and not again for the same sources.
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


def test_a_compile_error_is_not_taken_for_damage(plain: Checkout) -> None:
    """
    Sources with a compile error are compiled once, and the dependencies are not cleaned.
    """
    plain.load()
    plain.replace("alpha/src/part.rs", "pub const", "nonsense")

    assert [plain.load().compiled for _ in range(2)] == [["alpha"]] * 2


# Linkers that crash.


def install_crashing_linker(checkout: Checkout, times: int) -> None:
    """
    Install a linker that writes part of `alpha` and then kills itself, for the first `times` calls.
    """
    folder = checkout.cache.parent
    linker = script(
        folder / "linker",
        f"""
        case "$*" in *libalpha.so*)
            for argument; do [ "$previous" = -o ] && output=$argument; previous=$argument; done
            echo failed >> '{folder}/deaths'
            if [ "$(wc -l < '{folder}/deaths')" -le {times} ]; then
                head -c 1024 /dev/zero > "$output"
                kill -9 $$
            fi
        esac
        exec cc "$@"
        """,
    )
    checkout.environment["RUSTFLAGS"] = f"-Clinker={linker}"


def test_a_killed_linker_is_reported(plain: Checkout) -> None:
    """
    If the linker is killed, the build fails with its message and stores nothing. The next load is right.
    """
    install_crashing_linker(plain, 1)

    failed = plain.load()

    assert failed.reason == "build-failed"
    assert "signal: 9" in str(failed.error)
    assert not list((plain.cache / "artifacts").rglob("*.so"))
    rebuilt = plain.load()
    assert (rebuilt.value, rebuilt.compiled) == (ALPHA, ["alpha"])


def test_a_killed_linker_is_retried_after_earlier_builds(plain: Checkout) -> None:
    """
    In a folder with earlier outputs, damage could be the cause. So the link is retried once in the same load.
    """
    install_crashing_linker(plain, 1)
    plain.load("fx.beta")

    rebuilt = plain.load()

    assert (rebuilt.value, rebuilt.compiled) == (ALPHA, ["alpha", "alpha"])
