"""
Which change makes the next load build, and which makes it build nothing.

Every row starts from a checkout whose entry is in the cache, put there by another
checkout of the same files: that it is found at all is the first law.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout, check_out

from rust_ext_loader import _ensure

if TYPE_CHECKING:
    from collections.abc import Callable

    from checkout import Loaded

ALPHA = "alpha-1 part-1 middle-1"
EVERYTHING = "inside-1 outside-1 maker-1-number-1 for-unix-1 inherited-1 normal-1 plain quiet unchecked"


def hit(loaded: Loaded, value: str) -> None:
    assert (loaded.value, loaded.error) == (value, None)
    assert loaded.cargo == ()


def test_a_cold_load_builds_and_a_second_hits(plain: Checkout) -> None:
    """
    Nothing there: cargo compiles the crate asked for and no other. There: no cargo.
    """
    cold, second = plain.load(), plain.load()

    assert (cold.value, cold.compiled) == (ALPHA, ["alpha"])
    hit(second, ALPHA)
    assert second.file == cold.file


def test_two_checkouts_of_one_commit_share_an_entry(tmp_path: Path) -> None:
    """
    Where a checkout lies, and when its files were written, is no fact.
    """
    cache = tmp_path / "cache"
    one, other = (check_out("plain", tmp_path / name, cache) for name in ("one", "other"))
    for path in other.root.rglob("*.rs"):
        os.utime(path, (1, 1))
    built = one.load()

    assert built.compiled == ["alpha"]
    hit(other.load(), ALPHA)
    assert other.load().file == built.file


# What must build.


def replace(name: str, old: str, new: str, older: float | None = None) -> Callable[[Checkout], None]:
    return lambda checkout: checkout.replace(name, old, new, older=older)


def write(name: str, text: str) -> Callable[[Checkout], object]:
    return lambda checkout: checkout.write(name, text)


def older_everywhere(checkout: Checkout) -> None:
    checkout.replace("alpha/src/part.rs", "part-1", "part-2", older=86400)
    checkout.replace("middle/src/lib.rs", "middle-1", "middle-2", older=86400)


@pytest.mark.parametrize(
    ("act", "value"),
    [
        pytest.param(replace("alpha/src/lib.rs", "alpha-1", "alpha-2"), "alpha-2 part-1 middle-1", id="the crate's root file"),
        pytest.param(replace("alpha/src/part.rs", "part-1", "part-2"), "alpha-1 part-2 middle-1", id="a module of the crate"),
        pytest.param(replace("middle/src/lib.rs", "middle-1", "middle-2"), "alpha-1 part-1 middle-2", id="a path dependency"),
        pytest.param(write("alpha/src/more.rs", ""), ALPHA, id="one more file"),
        pytest.param(replace("alpha/Cargo.toml", '"0.1.0"', '"0.1.0"\nauthors = ["a"]'), ALPHA, id="the crate's manifest"),
        pytest.param(replace("Cargo.toml", "opt-level = 0", "opt-level = 1"), ALPHA, id="the profile in force"),
    ],
)
def test_a_change_of_what_is_compiled_is_built(built: Checkout, act: Callable[[Checkout], object], value: str) -> None:
    """
    The next load runs the new code, compiles this crate once, and the load after it hits.
    """
    act(built)
    changed = built.load()

    assert (changed.value, changed.error) == (value, None)
    assert changed.compiled == ["alpha"]
    hit(built.load(), value)


@pytest.mark.parametrize(
    ("act", "value"),
    [
        pytest.param(replace("alpha/src/part.rs", "part-1", "part-2", 86400), "alpha-1 part-2 middle-1", id="in the crate"),
        pytest.param(replace("middle/src/lib.rs", "middle-1", "middle-2", 86400), "alpha-1 part-1 middle-2", id="in a dependency"),
        pytest.param(older_everywhere, "alpha-1 part-2 middle-2", id="in both"),
    ],
)
def test_an_older_time_hides_no_change(plain: Checkout, act: Callable[[Checkout], object], value: str) -> None:
    """
    Cargo judges by modification time; content that comes with an older one is compiled all the same, in the same target folder.
    """
    assert plain.load().value == ALPHA
    act(plain)
    changed = plain.load()

    assert (changed.value, changed.error) == (value, None)
    assert changed.compiled == ["alpha"]


def test_an_older_dependency_is_compiled_while_the_crate_is_edited_too(plain: Checkout) -> None:
    """
    A newer time on the crate must not let cargo link the old dependency into it.
    """
    assert plain.load().value == ALPHA
    plain.replace("middle/src/lib.rs", "middle-1", "middle-2", older=86400)
    plain.replace("alpha/src/lib.rs", "alpha-1", "alpha-2")

    assert plain.load().value == "alpha-2 part-1 middle-2"


@pytest.mark.parametrize(
    ("act", "value"),
    [
        pytest.param(
            replace("alpha/src/inside.txt", "-1", "-2"), EVERYTHING.replace("inside-1", "inside-2"), id="a file included from src"
        ),
        pytest.param(
            replace("shared/outside.txt", "-1", "-2"), EVERYTHING.replace("outside-1", "outside-2"), id="a declared file outside the crate"
        ),
        pytest.param(
            replace("alpha/data/number.txt", "-1", "-2"), EVERYTHING.replace("number-1", "number-2"), id="a file read by build.rs"
        ),
        pytest.param(replace("alpha/build.rs", "MADE={}-", "MADE={}+"), EVERYTHING.replace("maker-1-", "maker-1+"), id="build.rs"),
        pytest.param(replace("normal/src/lib.rs", "-1", "-2"), EVERYTHING.replace("normal-1", "normal-2"), id="a path dependency"),
        pytest.param(
            replace("inherited/src/lib.rs", "-1", "-2"),
            EVERYTHING.replace("inherited-1", "inherited-2"),
            id="a dependency by workspace = true",
        ),
        pytest.param(replace("maker/src/lib.rs", "-1", "-2"), EVERYTHING.replace("maker-1", "maker-2"), id="a build dependency"),
        pytest.param(
            replace("for-unix/src/lib.rs", "-1", "-2"), EVERYTHING.replace("for-unix-1", "for-unix-2"), id="a dependency of some targets"
        ),
        pytest.param(
            write("alpha/.cargo/config.toml", '[build]\nrustflags = ["--cfg", "loud"]\n'),
            EVERYTHING.replace("quiet", "loud"),
            id="flags in the crate's .cargo/config.toml",
        ),
        pytest.param(
            write(".cargo/config.toml", '[build]\nrustflags = ["--cfg", "loud"]\n'),
            EVERYTHING.replace("quiet", "loud"),
            id="flags in the workspace's .cargo/config.toml",
        ),
        pytest.param(
            write(".cargo/config.toml", "[profile.release]\ndebug-assertions = true\n"),
            EVERYTHING.replace("unchecked", "checked"),
            id="a profile in .cargo/config.toml",
        ),
    ],
)
def test_every_kind_of_input_is_one(inputs: Checkout, act: Callable[[Checkout], object], value: str) -> None:
    """
    Whatever the build reads from the checkout, an edit of it is in the next load.
    """
    act(inputs)
    changed = inputs.load()

    assert (changed.value, changed.error) == (value, None)


@pytest.mark.parametrize(
    ("variables", "value"),
    [
        pytest.param({"RUSTFLAGS": "--cfg loud"}, EVERYTHING.replace("quiet", "loud"), id="RUSTFLAGS"),
        pytest.param(
            {"CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS": "true"}, EVERYTHING.replace("unchecked", "checked"), id="CARGO_PROFILE_RELEASE_*"
        ),
        pytest.param({"FX_FLAVOUR": "sweet"}, EVERYTHING.replace("plain", "sweet"), id="a declared variable"),
    ],
)
def test_a_variable_and_back_is_a_hit(inputs: Checkout, variables: dict[str, str], value: str) -> None:
    """
    A variable that counts is built for once; without it the old entry is found, with it the new one.
    """
    changed = inputs.load(variables=variables)

    assert (changed.value, changed.error) == (value, None)
    assert changed.compiled == ["alpha"]
    hit(inputs.load(), EVERYTHING)
    hit(inputs.load(variables=variables), value)


def test_a_target_asked_for_is_built_for(built: Checkout) -> None:
    """
    `CARGO_BUILD_TARGET` counts, and its library is found in the folder of that target.
    """
    host = {"linux": "unknown-linux-gnu", "darwin": "apple-darwin"}[sys.platform]
    target = {"CARGO_BUILD_TARGET": f"{os.uname().machine.replace('arm64', 'aarch64')}-{host}"}
    changed = built.load(variables=target)

    assert (changed.value, changed.error) == (ALPHA, None)
    assert changed.compiled == ["alpha"]
    hit(built.load(variables=target), ALPHA)


def test_an_overlay_is_an_environment(built: Checkout) -> None:
    """
    Facts are read from `os.environ` with `environment` laid over it, for the facts as for the build.
    """
    changed = built.load(environment={"RUSTFLAGS": "--cfg loud"})

    assert changed.compiled == ["alpha"]
    hit(built.load(variables={"RUSTFLAGS": "--cfg loud"}), ALPHA)
    hit(built.load(variables={"RUSTFLAGS": "--cfg loud"}, environment={"RUSTFLAGS": ""}), ALPHA)


def test_branches_back_and_forth(built: Checkout) -> None:
    """
    A, B, A: the third load calls no cargo, and neither does B again.
    """
    hit(built.load(), ALPHA)
    built.replace("middle/src/lib.rs", "middle-1", "middle-2")
    assert built.load().compiled == ["alpha"]
    built.replace("middle/src/lib.rs", "middle-2", "middle-1")
    hit(built.load(), ALPHA)
    built.replace("middle/src/lib.rs", "middle-1", "middle-2")
    hit(built.load(), "alpha-1 part-1 middle-2")


def test_module_folders_may_have_any_name(plain: Checkout) -> None:
    """
    Inside `src` a folder named like a build's output or a virtual environment is a module like any other.
    """
    names = ["target", "env", "dist", "venv", "tests"]
    for name in names:
        plain.write(f"alpha/src/{name}/mod.rs", f'pub const WORD: &str = "{name}-1";\n')
    uses = "".join(f"mod {name};\n" for name in names)
    words = ", ".join(f"{name}::WORD" for name in names)
    plain.write("alpha/src/lib.rs", f'{uses}pymod::module!(PyInit_alpha, "alpha", [{words}].join(" "));\n')
    value = " ".join(f"{name}-1" for name in names)
    assert plain.load().value == value

    for name in names:
        plain.replace(f"alpha/src/{name}/mod.rs", f"{name}-1", f"{name}-2")
        value = " ".join(f"{name}-2" if word == f"{name}-1" else word for word in value.split())
        assert plain.load().value == value


def test_a_deleted_file_is_missed(built: Checkout) -> None:
    """
    Without a module's file the crate does not build, and the old entry is not taken for it; with the file back, it is.
    """
    (built.root / "alpha/src/part.rs").rename(built.root / "kept.rs")
    broken = built.load()
    assert broken.reason == "build-failed"
    assert "file not found for module `part`" in str(broken.error)

    (built.root / "kept.rs").rename(built.root / "alpha/src/part.rs")
    hit(built.load(), ALPHA)


# What must not.


def touch_everything(checkout: Checkout) -> None:
    for path in checkout.root.rglob("*"):
        os.utime(path)


def bump_of_another(checkout: Checkout) -> None:
    checkout.replace("beta/Cargo.toml", '"0.1.0"', '"0.2.0"')
    checkout.replace("Cargo.lock", 'name = "beta"\nversion = "0.1.0"', 'name = "beta"\nversion = "0.2.0"')


def registry_dependency_of_another(checkout: Checkout) -> None:
    checkout.write("beta/Cargo.toml", (checkout.root / "beta/Cargo.toml").read_text() + 'itoa = "1"\n')
    checkout.replace("Cargo.lock", ' "pymod",\n]\n\n[[package]]\nname = "middle"', ' "itoa",\n "pymod",\n]\n\n[[package]]\nname = "middle"')
    lock = (checkout.root / "Cargo.lock").read_text()
    source = 'source = "registry+https://github.com/rust-lang/crates.io-index"'
    checkout.write("Cargo.lock", f'{lock}\n[[package]]\nname = "itoa"\nversion = "1.0.1"\n{source}\nchecksum = "{"0" * 64}"\n')


def another_member(checkout: Checkout) -> None:
    shutil.copytree(checkout.root / "middle", checkout.root / "gamma")
    checkout.replace("gamma/Cargo.toml", "middle", "gamma")
    checkout.replace("Cargo.toml", '"beta"', '"beta", "gamma"')
    checkout.write("Cargo.lock", (checkout.root / "Cargo.lock").read_text() + '\n[[package]]\nname = "gamma"\nversion = "0.1.0"\n')


def name_the_toolchain(checkout: Checkout) -> None:
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    checkout.write("rust-toolchain.toml", f'[toolchain]\nchannel = "{os.path.basename(sysroot)}"\n')


def reordered(checkout: Checkout) -> None:
    checkout.replace(
        "alpha/Cargo.toml",
        'middle = { path = "../middle" }\npymod = { path = "../pymod" }',
        'pymod = { path = "../pymod" }\n\n[dependencies.middle]\npath = "../middle"',
    )


IDLE_CHANGES: dict[str, Callable[[Checkout], object]] = {
    "touch only": touch_everything,
    "an unrelated crate": replace("beta/src/lib.rs", "beta-1", "beta-2"),
    "README": write("alpha/README.md", "new"),
    "any Markdown file of the crate's root": write("alpha/CHANGES.md", "new"),
    "README of the workspace": write("README.md", "new"),
    "tests": write("alpha/tests/it.rs", "new"),
    "benches": write("alpha/benches/it.rs", "new"),
    "examples": write("alpha/examples/it.rs", "new"),
    "tests of a dependency": write("middle/tests/it.rs", "new"),
    "the user's own target folder": write("alpha/target/debug/it.rs", "new"),
    "Python beside the sources": write("alpha/src/helper.py", "new"),
    "a stub": write("alpha/src/alpha.pyi", "new"),
    "bytecode": write("alpha/src/__pycache__/helper.cpython-311.pyc", "new"),
    "a built library": write("alpha/src/alpha.abi3.so", "new"),
    "an editor's swap file": write("alpha/src/.lib.rs.swp", "new"),
    "an editor's copy": write("alpha/src/lib.rs~", "new"),
    "another editor's copy": write("alpha/src/#lib.rs#", "new"),
    "coverage": write("alpha/.coverage", "new"),
    "a profile's output": write("alpha/default.profraw", "new"),
    "Git": write(".git/HEAD", "new"),
    "a stray .rs in the workspace": write("elsewhere/src/lib.rs", "new"),
    "comment in the workspace's manifest": replace("Cargo.toml", "[workspace]", "# a comment\n[workspace]"),
    "comment in the crate's manifest": replace("alpha/Cargo.toml", "[lib]", "# a comment\n[lib]"),
    "comment in a dependency's manifest": replace("middle/Cargo.toml", "[package]", "# a comment\n[package]"),
    "comment in the lockfile": replace("Cargo.lock", "version = 4", "# a comment\nversion = 4"),
    "the same manifest, written otherwise": reordered,
    "version of another crate": bump_of_another,
    "lockfile: a dependency of another crate": registry_dependency_of_another,
    "another member appears": another_member,
    "another profile": replace("Cargo.toml", "[profile.release]", "[profile.dev]\nopt-level = 2\n\n[profile.release]"),
    "configuration without effect": write(".cargo/config.toml", "[term]\nquiet = true\n\n[net]\nretry = 3\n"),
    "a toolchain file that names the toolchain in use": name_the_toolchain,
}


@pytest.mark.parametrize("act", [pytest.param(act, id=name) for name, act in IDLE_CHANGES.items()])
def test_what_no_compiler_reads_changes_no_fact(built: Checkout, act: Callable[[Checkout], object]) -> None:
    """
    After such a change the module is still what the cache holds. Asked in this process: the next test loads it.
    """
    before = facts(built)
    act(built)

    assert facts(built) == before


def facts(checkout: Checkout, variables: dict[str, str] | None = None) -> dict[str, str]:
    request = _ensure.Request("fx.alpha", workspace=str(checkout.root), cache_dir=str(checkout.cache), overlay=variables)
    return dict(_ensure.snapshot(request).fingerprint.facts)


def test_what_no_compiler_reads_builds_nothing(built: Checkout) -> None:
    """
    After every such change at once cargo is not called.
    """
    hit(built.load(), ALPHA)
    for act in IDLE_CHANGES.values():
        act(built)

    hit(built.load(), ALPHA)


IDLE_VARIABLES: dict[str, dict[str, str]] = {
    "empty RUSTFLAGS": {"RUSTFLAGS": ""},
    "jobs": {"CARGO_BUILD_JOBS": "1"},
    "a compiler cache": {"RUSTC_WRAPPER": "sccache"},
    "colour": {"CARGO_TERM_COLOR": "always", "NO_COLOR": "1"},
    "the user's target folder": {"CARGO_TARGET_DIR": "/nowhere"},
    "incremental": {"CARGO_INCREMENTAL": "1"},
    "another profile": {"CARGO_PROFILE_DEV_OPT_LEVEL": "2"},
    "a virtual environment": {"VIRTUAL_ENV": "/nowhere", "PYO3_PYTHON": "/nowhere/python"},
    "locale, terminal, hash seed": {"LANG": "C", "LC_ALL": "C", "PYTHONHASHSEED": "7", "TERM": "dumb"},
    "a variable that this crate does not declare": {"FX_FLAVOUR": "sweet"},
}


@pytest.mark.parametrize("variables", [pytest.param(variables, id=name) for name, variables in IDLE_VARIABLES.items()])
def test_what_says_how_to_build_and_not_what_is_no_fact(built: Checkout, variables: dict[str, str]) -> None:
    """
    Such a variable, set or not, changes no fact.
    """
    assert facts(built, variables) == facts(built)


def test_what_says_how_to_build_and_not_what_builds_nothing(built: Checkout) -> None:
    """
    With all such variables set the entry made without them is found.
    """
    hit(built.load(variables={name: value for row in IDLE_VARIABLES.values() for name, value in row.items()}), ALPHA)


# Broken sources.


def test_a_syntax_error_is_told_in_the_compilers_words(built: Checkout) -> None:
    """
    The error has rustc's message with file and line, the command and the log; nothing is stored, and mended it works.
    """
    before = sorted((built.cache / "artifacts").rglob("current"))
    built.write("alpha/src/part.rs", "\npub const PART: &str = ;\n")
    broken = built.load()

    assert broken.types[:3] == ("BuildFailed", "RustExtensionError", "ImportError")
    assert broken.error is not None
    assert "error: expected expression, found `;`" in broken.error
    assert "alpha/src/part.rs:2:24" in broken.error
    assert "cargo rustc --locked" in broken.error
    log = Path(broken.error.rpartition("full log: ")[2])
    assert "error: expected expression, found `;`" in log.read_text(encoding="utf-8")
    assert not broken.in_sys_modules
    assert sorted((built.cache / "artifacts").rglob("current")) == before

    assert built.load().reason == "build-failed", "the next process tries again"
    built.write("alpha/src/part.rs", '\npub const PART: &str = "part-2";\n')
    assert built.load().value == "alpha-1 part-2 middle-1"


def test_a_warning_is_silent_unless_asked_for(built: Checkout) -> None:
    """
    A build that succeeds does not show the compiler's warnings; with the setting it does.
    """
    built.write("alpha/src/part.rs", 'pub const PART: &str = "part-2";\nfn unused() {}\n')
    assert "unused" not in built.load().stderr

    built.write("alpha/src/part.rs", 'pub const PART: &str = "part-3";\nfn unused() {}\n')
    assert "function `unused` is never used" in built.load(variables={"RUST_EXT_SHOW_WARNINGS": "1"}).stderr


# Without cargo.


def test_a_cached_entry_needs_no_cargo(built: Checkout) -> None:
    """
    With nothing on PATH a module that was built is loaded, by no process.
    """
    loaded = built.load(variables={"PATH": "/nonexistent"})

    hit(loaded, ALPHA)
    assert loaded.spawned == ()


def test_without_cargo_nothing_else_can_be_done(plain: Checkout) -> None:
    """
    Not built and no cargo: one clear `ImportError` that says what to do.
    """
    loaded = plain.load(variables={"PATH": "/nonexistent"})

    assert loaded.types[:3] == ("ToolchainMissing", "RustExtensionError", "ImportError")
    assert loaded.error == (
        "fx.alpha must be built, but `cargo` is not usable: it is not on PATH; install Rust (https://rustup.rs) or put it on PATH, "
        "or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never"
    )


# Sources that move while cargo runs. The `cargo` on PATH does the moving, so that it happens at that very moment.


def meddle(checkout: Checkout, *, before: str = ":", after: str = ":") -> None:
    """
    Run shell commands in the checkout just before and just after each compilation.
    """
    script = checkout.tools / "cargo"
    real = script.read_text(encoding="utf-8").rpartition("exec ")
    rest = real[2].rstrip("\n")
    script.write_text(
        f"{real[0]}\n"
        f'[ "$1" = rustc ] && (cd "{checkout.root}" && {before})\n{rest}\nstatus=$?\n'
        f'[ "$1" = rustc ] && (cd "{checkout.root}" && {after})\nexit $status\n',
        encoding="utf-8",
    )


def once(command: str) -> str:
    return f"if mkdir ../meddled 2>/dev/null; then {command}; fi"


def becomes(number: int) -> str:
    return f"sed -i.old s/part-./part-{number}/ alpha/src/part.rs && rm alpha/src/part.rs.old"


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"before": once(becomes(2))}, id="before it is read"),
        pytest.param({"after": once(becomes(2))}, id="after it was read"),
        pytest.param({"before": once(becomes(3)), "after": f"if grep -q part-3 alpha/src/part.rs; then {becomes(2)}; fi"}, id="twice"),
    ],
)
def test_an_edit_during_the_build_is_in_the_result(plain: Checkout, how: dict[str, str]) -> None:
    """
    What is loaded is what lies on disk at the end; what is stored says so.
    """
    meddle(plain, **how)
    loaded = plain.load()

    assert loaded.value == "alpha-1 part-2 middle-1"
    assert loaded.compiled == ["alpha", "alpha"]
    hit(plain.load(), "alpha-1 part-2 middle-1")
    plain.install_tools()
    plain.replace("alpha/src/part.rs", "part-2", "part-1")
    assert plain.load().value == ALPHA, "nothing was stored under the old text's key but the old text"


def test_an_edit_taken_back_during_the_build_leaves_no_trace(plain: Checkout) -> None:
    """
    Compiled from a text that was there only meanwhile: the same facts before and after do not make it right.
    """
    meddle(plain, before=once(becomes(2)), after=f"if grep -q part-2 alpha/src/part.rs; then {becomes(1)}; fi")

    assert plain.load().value == ALPHA
    hit(plain.load(), ALPHA)


def test_sources_that_keep_moving_are_named(plain: Checkout) -> None:
    """
    After three builds, each outrun, the file that keeps moving is named and nothing is stored.
    """
    meddle(plain, after="echo // >> alpha/src/part.rs")
    loaded = plain.load()

    assert loaded.types[:3] == ("SourcesMoved", "RustExtensionError", "ImportError")
    assert loaded.error == (
        "fx.alpha was built 3 times and its sources changed during each build: alpha/src/part.rs; "
        "stop what keeps writing there, then import again"
    )
    assert loaded.compiled == ["alpha"] * 3
    assert not list(plain.cache.rglob("manifest.json"))


# Places.


@pytest.mark.parametrize(
    "locale",
    [
        pytest.param({}, id="the session's locale"),
        pytest.param({"LANG": "C", "LC_ALL": "C"}, id="LANG=C"),
        pytest.param({"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, id="LANG=C, and Python believes it"),
    ],
)
def test_any_path_will_do(tmp_path: Path, locale: dict[str, str]) -> None:
    """
    Spaces, quotes and letters beyond ASCII in the paths of checkout and cache, whatever the locale.
    """
    folder = tmp_path / "dîr with späce" / "日本 'q' \"d\" $x"
    folder.mkdir(parents=True)
    checkout = check_out("plain", folder)
    # By its bytes, as a shell passes it.
    by_bytes = "import os; request['arguments']['workspace'] = os.environ['WORKSPACE']"
    variables = {**locale, "WORKSPACE": str(checkout.root)}

    assert checkout.load(prelude=by_bytes, variables=variables).value == ALPHA
    hit(checkout.load(prelude=by_bytes, variables=variables), ALPHA)
    checkout.replace("middle/src/lib.rs", "middle-1", "middle-2", older=60)
    assert checkout.load(prelude=by_bytes, variables=variables).value == "alpha-1 part-1 middle-2"


def test_a_file_name_need_not_be_text(plain: Checkout) -> None:
    """
    A name that is no UTF-8 counts by its bytes: the file is an input, another name is another input.
    """
    folder = os.fsencode(plain.root / "alpha" / "src")
    try:
        with open(folder + b"/\xff.txt", "wb") as file:
            file.write(b"one")
    except OSError:
        pytest.skip("this file system takes text names only")
    assert plain.load().value == ALPHA
    hit(plain.load(), ALPHA)

    os.rename(folder + b"/\xff.txt", folder + b"/\xfe.txt")
    renamed = plain.load()
    with open(folder + b"/\xfe.txt", "wb") as file:
        file.write(b"two")
    edited = plain.load()

    assert [(loaded.error, loaded.compiled) for loaded in (renamed, edited)] == [(None, ["alpha"])] * 2


def test_a_checkout_behind_a_link_is_the_same(built: Checkout, tmp_path: Path) -> None:
    """
    Reached through a symbolic link a checkout has the same entries, and one target folder.
    """
    link = tmp_path / "link"
    link.symlink_to(built.root)
    hit(built.load(workspace=str(link)), ALPHA)

    built.replace("alpha/src/part.rs", "part-1", "part-2")
    assert built.load(workspace=str(link)).compiled == ["alpha"]
    hit(built.load(), "alpha-1 part-2 middle-1")
    built.replace("alpha/src/part.rs", "part-2", "part-3")
    assert built.load().compiled == ["alpha"]
    assert len([path for path in (built.cache / "targets").iterdir() if path.is_dir()]) == 1


def test_a_moved_checkout_still_hits(built: Checkout) -> None:
    """
    After the folder was renamed nothing is built.
    """
    hit(built.load(), ALPHA)
    moved = built.root.rename(built.root.with_name("moved"))

    hit(built.load(workspace=str(moved)), ALPHA)
