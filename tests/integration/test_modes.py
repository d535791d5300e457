"""
The table of situations and modes: where a module comes from, or what is said instead.

Each row prepares a situation, asks `can_load` and loads, in one new process. The
verdict must have told the truth.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader.cache import _bundled, _store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from checkout import Checkout, Loaded

ALPHA = "alpha-1 part-1 middle-1"

_ASK = """
verdict = rust_ext_loader.can_load(request["module"], **request["arguments"])
print("verdict", verdict.state.value, verdict.ready, verdict.may_build, verdict.why, file=sys.stderr)
"""

# Situations. A checkout arrives with `fx.alpha` in its cache.


def site(checkout: Checkout) -> Path:
    """
    A folder on `sys.path` with the parent package in it.
    """
    package = checkout.cache.parent / "site" / "fx"
    package.mkdir(parents=True, exist_ok=True)
    checkout.environment["PYTHONPATH"] = os.pathsep.join([checkout.variables()["PYTHONPATH"], str(package.parent)])
    return package


def bundle(checkout: Checkout, *, facts: Mapping[str, str] | None, content: bytes | None = None) -> Path:
    """
    Put the library beside its parent package, as a wheel does, with a sidecar if there are facts for one.
    """
    library = site(checkout) / f"alpha{EXTENSION_SUFFIXES[0]}"
    library.write_bytes(checkout.stored().read_bytes() if content is None else content)
    if facts is not None:
        _bundled.sidecar_of(library, "alpha").write_bytes(_bundled.sidecar("fx.alpha", library, facts))
    return library


def bundled_right(checkout: Checkout) -> None:
    bundle(checkout, facts=checkout.stored_facts())


def bundled_stale(checkout: Checkout) -> None:
    bundle(checkout, facts={**checkout.stored_facts(), "source/alpha/src/part.rs": "other"})


def bundled_for_another_python(checkout: Checkout) -> None:
    bundle(checkout, facts={**checkout.stored_facts(), "abi/tag": "cpython-2.7"})


def bundled_by_another_compiler(checkout: Checkout) -> None:
    bundle(checkout, facts={**checkout.stored_facts(), "toolchain/rustc": "1.0.0"})


def bundled_bare(checkout: Checkout) -> None:
    bundle(checkout, facts=None)


def bundled_unloadable(checkout: Checkout) -> None:
    bundle(checkout, facts=checkout.stored_facts(), content=b"not a library")


def wheel(checkout: Checkout) -> None:
    bundle(checkout, facts=checkout.stored_facts())
    nothing_stored(checkout)
    shutil.rmtree(checkout.root)


def no_wheel(checkout: Checkout) -> None:
    site(checkout)
    nothing_stored(checkout)


def as_it_is(checkout: Checkout) -> None:
    assert checkout.stored().exists()


def nothing_stored(checkout: Checkout) -> None:
    shutil.rmtree(checkout.cache)


def no_toolchain(checkout: Checkout) -> None:
    checkout.environment["PATH"] = "/nonexistent"


def continuous_integration(checkout: Checkout) -> None:
    checkout.environment["CI"] = "true"


def warn_all_the_same(checkout: Checkout) -> None:
    checkout.environment["SGLANG_RUST_STALE"] = "warn"


def refuse(checkout: Checkout) -> None:
    checkout.environment["SGLANG_RUST_STALE"] = "error"


def nowhere_to_note(checkout: Checkout) -> None:
    """
    No cache can be made, neither where it is meant to be nor in the temporary folder.
    """
    nothing_stored(checkout)
    for folder in (checkout.cache, checkout.temporary):
        shutil.rmtree(folder, ignore_errors=True)
        folder.write_text("a file")


def truncated(checkout: Checkout) -> None:
    library = checkout.stored()
    library.write_bytes(library.read_bytes()[:1000])


def forged(checkout: Checkout) -> None:
    """
    An entry whose manifest vouches for bytes that the linker refuses.
    """
    library = checkout.stored()
    library.write_bytes(b"not a library")
    path = library.parent / "manifest.json"
    fields = {**json.loads(path.read_bytes()), "size": library.stat().st_size, "sha256": _store.digest_of_file(library)}
    path.write_text(json.dumps(fields))


def syntax_error(checkout: Checkout) -> None:
    checkout.write("alpha/src/part.rs", "nonsense")


def broken_and_reverted_flags(checkout: Checkout) -> None:
    checkout.environment["RUSTFLAGS"] = "--cfg loud"


# Outcomes.


@dataclass(frozen=True)
class Came:
    """
    The module was loaded.
    """

    #: `bundled`, `cached` or `built`.
    from_: str
    #: What one warning says; nothing, and there is none.
    warned: tuple[str, ...] = ()

    def check(self, loaded: Loaded, checkout: Checkout, before: Path | None) -> None:
        assert (loaded.value, loaded.error) == (ALPHA, None)
        assert loaded.compiled == (["alpha"] if self.from_ == "built" else [])
        folder = checkout.cache.parent / "site" if self.from_ == "bundled" else checkout.cache / "artifacts"
        assert loaded.file is not None
        assert Path(loaded.file).is_relative_to(folder)
        if before is not None and self.from_ != "bundled":
            assert (loaded.file == str(before)) == (self.from_ == "cached")
        assert len(loaded.warnings) == (1 if self.warned else 0), loaded.warnings
        for words in self.warned:
            assert words in loaded.warnings[0]


@dataclass(frozen=True)
class Refused:
    """
    An error was raised, and the module is not there.
    """

    kind: str
    said: tuple[str, ...]

    def check(self, loaded: Loaded, checkout: Checkout, before: Path | None) -> None:
        assert loaded.types[:1] == (self.kind,), loaded.error
        assert "ImportError" in loaded.types
        for words in self.said:
            assert words in str(loaded.error)
        assert not loaded.in_sys_modules


BUNDLED, CACHED, BUILT = Came("bundled"), Came("cached"), Came("built")
FAILED = Refused("BuildFailed", ("fx.alpha could not be built", "alpha/src/part.rs:1:1", "full log: "))
NO_CARGO = Refused("ToolchainMissing", ("fx.alpha must be built, but `cargo` is not usable",))
LEFT_ASIDE = ("is left aside; it was built from something else",)
USED = "is used all the same, since there is no toolchain; it was built from something else"
STALE_PART = "alpha/src/part.rs changed"
BARE = "no sidecar describes it"


def row(
    name: str,
    *situation: Callable[[Checkout], object],
    auto: Came | Refused,
    never: Came | Refused,
    force: Came | Refused,
) -> list[object]:
    outcomes = {"auto": auto, "never": never, "force": force}
    return [pytest.param(situation, mode, outcome, id=f"{name}: {mode}") for mode, outcome in outcomes.items()]


CHECKOUT = [
    *row("bundled and right", bundled_right, auto=BUNDLED, never=BUNDLED, force=BUILT),
    *row("bundled and right, nothing stored", bundled_right, nothing_stored, auto=BUNDLED, never=BUNDLED, force=BUILT),
    *row(
        "bundled and right, no toolchain",
        bundled_right,
        nothing_stored,
        no_toolchain,
        auto=BUNDLED,
        never=BUNDLED,
        force=NO_CARGO,
    ),
    *row(
        "bundled and right, nowhere to note it, no toolchain",
        bundled_right,
        nowhere_to_note,
        no_toolchain,
        auto=BUNDLED,
        never=BUNDLED,
        force=NO_CARGO,
    ),
    *row(
        "bundled by another compiler",
        bundled_by_another_compiler,
        nothing_stored,
        auto=BUNDLED,
        never=BUNDLED,
        force=BUILT,
    ),
    *row(
        "bundled stale, stored",
        bundled_stale,
        auto=Came("cached", (*LEFT_ASIDE, STALE_PART)),
        never=Came("bundled", ("is used all the same, since the mode is `never`", STALE_PART)),
        force=BUILT,
    ),
    *row(
        "bundled stale, nothing stored",
        bundled_stale,
        nothing_stored,
        auto=Came("built", (*LEFT_ASIDE, STALE_PART)),
        never=Came("bundled", ("is used all the same, since the mode is `never`", STALE_PART)),
        force=BUILT,
    ),
    *row(
        "bundled for another Python",
        bundled_for_another_python,
        auto=Came("cached", (*LEFT_ASIDE, "abi tag 'cpython-2.7' -> ")),
        never=Came("bundled", ("abi tag 'cpython-2.7' -> ",)),
        force=BUILT,
    ),
    *row(
        "bundled without sidecar",
        bundled_bare,
        auto=Came("cached", (*LEFT_ASIDE, BARE)),
        never=Came("bundled", ("is used all the same, since the mode is `never`", BARE)),
        force=BUILT,
    ),
    *row(
        "bundled stale, no toolchain, stored",
        bundled_stale,
        no_toolchain,
        auto=CACHED,
        never=Came("bundled", (STALE_PART,)),
        force=NO_CARGO,
    ),
    *row(
        "bundled stale, no toolchain, nothing stored",
        bundled_stale,
        nothing_stored,
        no_toolchain,
        auto=Came("bundled", (USED, STALE_PART)),
        never=Came("bundled", (STALE_PART,)),
        force=NO_CARGO,
    ),
    *row(
        "bundled bare, no toolchain, nothing stored, CI",
        bundled_bare,
        nothing_stored,
        no_toolchain,
        continuous_integration,
        auto=Refused("StaleExtension", ("was built from something else", BARE, "SGLANG_RUST_STALE=warn")),
        never=Came("bundled", (BARE,)),
        force=NO_CARGO,
    ),
    *row(
        "the same, but a warning will do",
        bundled_bare,
        nothing_stored,
        no_toolchain,
        continuous_integration,
        warn_all_the_same,
        auto=Came("bundled", (USED, BARE)),
        never=Came("bundled", (BARE,)),
        force=NO_CARGO,
    ),
    *row(
        "the same outside CI, but refused",
        bundled_bare,
        nothing_stored,
        no_toolchain,
        refuse,
        auto=Refused("StaleExtension", (BARE,)),
        never=Came("bundled", (BARE,)),
        force=NO_CARGO,
    ),
    *row("nothing bundled, stored", as_it_is, auto=CACHED, never=CACHED, force=BUILT),
    *row("nothing bundled, stored, no toolchain", no_toolchain, auto=CACHED, never=CACHED, force=NO_CARGO),
    *row(
        "nothing bundled, nothing stored",
        nothing_stored,
        auto=BUILT,
        never=Refused(
            "ExtensionNotFound", ("SGLANG_RUST_BUILD_MODE=never forbids building it", "rust-ext build fx.alpha")
        ),
        force=BUILT,
    ),
    *row(
        "nothing bundled, stored for other flags",
        broken_and_reverted_flags,
        auto=BUILT,
        never=Refused("ExtensionNotFound", ("SGLANG_RUST_BUILD_MODE=never forbids building it",)),
        force=BUILT,
    ),
    *row(
        "nothing bundled, stored and torn",
        truncated,
        auto=BUILT,
        never=Refused("ExtensionNotFound", ("its cached copy was damaged",)),
        force=BUILT,
    ),
    *row(
        "stored and will not load",
        forged,
        auto=Came("built", ("cannot be loaded", "built anew")),
        never=Refused("ImportError", ("file too short",)),
        force=BUILT,
    ),
    *row(
        "bundled and will not load",
        bundled_unloadable,
        auto=Refused("ImportError", ("file too short",)),
        never=Refused("ImportError", ("file too short",)),
        force=BUILT,
    ),
    *row(
        "the build fails",
        syntax_error,
        auto=FAILED,
        never=Refused("ExtensionNotFound", ("SGLANG_RUST_BUILD_MODE=never forbids building it",)),
        force=FAILED,
    ),
]

INSTALLED = [
    *row(
        "installed wheel",
        wheel,
        auto=BUNDLED,
        never=BUNDLED,
        force=Refused(
            "ExtensionNotFound", ("mode `force` builds from source, and no workspace is known", "workspace=")
        ),
    ),
    *row(
        "nothing installed",
        no_wheel,
        auto=Refused(
            "ExtensionNotFound", ("no Rust extension fx.alpha: it is not installed, and no workspace is known",)
        ),
        never=Refused(
            "ExtensionNotFound",
            ("it is not installed, and no workspace is known that declares it; pass `workspace=`, or ",),
        ),
        force=Refused("ExtensionNotFound", ("no workspace is known that declares it",)),
    ),
]


def verdict(loaded: Loaded) -> str:
    return next(line for line in loaded.stderr.splitlines() if line.startswith("verdict "))


def told(loaded: Loaded) -> tuple[bool, bool]:
    """
    What the verdict said: ready, may build.
    """
    _, _, ready, may_build, *_ = verdict(loaded).split()
    return ready == "True", may_build == "True"


@pytest.mark.parametrize(("situation", "mode", "outcome"), CHECKOUT)
def test_in_a_checkout(
    built: Checkout, situation: tuple[Callable[[Checkout], object], ...], mode: str, outcome: Came | Refused
) -> None:
    """
    Where sources are at hand.
    """
    for prepare in situation:
        prepare(built)
    stored = sorted((built.cache / "artifacts" / "fx.alpha").rglob("*.so"))
    loaded = built.load(mode=mode, prelude=_ASK)

    outcome.check(loaded, built, stored[0] if stored else None)
    if mode == "never" or outcome == BUNDLED:
        assert loaded.spawned == ()
    ready, may_build = told(loaded)
    if loaded.compiled:
        assert may_build or outcome.warned if isinstance(outcome, Came) else may_build
    elif isinstance(outcome, Came):
        assert ready
    elif outcome.kind != "ImportError":
        assert not ready


@pytest.mark.parametrize(("situation", "mode", "outcome"), INSTALLED)
def test_where_no_sources_are(
    built: Checkout, situation: tuple[Callable[[Checkout], object], ...], mode: str, outcome: Came | Refused
) -> None:
    """
    An installed wheel is loaded as it is: no workspace, no process, no cache is touched.
    """
    for prepare in situation:
        prepare(built)
    loaded = built.load(mode=mode, workspace=None, prelude=_ASK)

    outcome.check(loaded, built, None)
    assert told(loaded) == (isinstance(outcome, Came), False)
    assert loaded.spawned == ()
    assert not built.cache.exists()


@pytest.mark.parametrize(
    ("mode", "same"),
    [
        pytest.param("auto", True, id="auto"),
        pytest.param("never", True, id="never"),
        pytest.param("force", False, id="force"),
    ],
)
def test_what_is_imported_already(built: Checkout, mode: str, same: bool) -> None:
    """
    A module that this process runs is never replaced: it is returned, or `force` is told to start a new process.
    """
    loaded = built.load(
        mode=mode, prelude=f'rust_ext_loader.load_rust_extension("fx.alpha", workspace={str(built.root)!r})\n{_ASK}'
    )

    assert loaded.cargo == ()
    if same:
        assert (loaded.value, loaded.error) == (ALPHA, None)
    else:
        assert loaded.types[0] == "AlreadyImported"
        assert "start a new process" in str(loaded.error)
        assert loaded.in_sys_modules
    assert told(loaded) == (same, False)


@pytest.mark.parametrize("mode", ["maybe", "", "AUTO"], ids=repr)
def test_an_unknown_mode_comes_before_anything_else(plain: Checkout, mode: str) -> None:
    """
    It is a `ValueError`, though the workspace is not even there, and though the module is imported already.
    """
    for prelude in ("", 'sys.modules["fx.alpha"] = sys'):
        loaded = plain.load(workspace="/nonexistent", prelude=prelude, mode=mode)

        assert loaded.types[0] == "SettingError"
        assert "ValueError" in loaded.types
        problem = f"mode={mode!r} is not understood" if mode else "mode is empty or not set"
        assert loaded.error == f"{problem}; expected one of auto, never, force"


def test_the_variable_says_the_mode_and_the_argument_overrules_it(built: Checkout) -> None:
    """
    `SGLANG_RUST_BUILD_MODE` counts where no argument is given, from `os.environ` or from the overlay.
    """
    nothing_stored(built)

    assert built.load(variables={"SGLANG_RUST_BUILD_MODE": "never"}).reason == "not-found"
    assert built.load(environment={"SGLANG_RUST_BUILD_MODE": "never"}).reason == "not-found"
    assert built.load(variables={"SGLANG_RUST_BUILD_MODE": "never"}, mode="auto").value == ALPHA


def test_force_replaces_the_entry(built: Checkout) -> None:
    """
    After a forced build the next ordinary load takes the new library, also where a shortcut to the old one was noted.
    """
    settled = "from rust_ext_loader.files import _stat; _stat.UNSETTLED_NS = -(10**15)"
    old = built.load(prelude=settled)
    assert built.load().spawned == ()

    forced = built.load(mode="force")
    after = built.load()

    assert forced.compiled == ["alpha"]
    assert forced.file != old.file
    assert after.file == forced.file
    assert after.cargo == ()


def test_force_is_accepted_by_children(built: Checkout) -> None:
    """
    A forcing process builds once for itself and the processes that it starts; the next one builds again.
    """
    child = 'import rust_ext_loader as r; print(r.load_rust_extension("fx.alpha", workspace=workspace).value)'
    prelude = f"""
        import subprocess
        workspace = request["arguments"]["workspace"]
        rust_ext_loader.load_rust_extension("fx.beta", workspace=workspace)
        rust_ext_loader.load_rust_extension("fx.alpha", workspace=workspace)
        del sys.modules["fx.alpha"]
        for _ in range(2):
            code = f"workspace = {{workspace!r}}; " + {child!r}
            out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
            assert out == {ALPHA + chr(10)!r}, out
    """
    forced = built.load(prelude=prelude, mode="auto", variables={"SGLANG_RUST_BUILD_MODE": "force"})

    assert forced.error is None
    assert forced.compiled == ["beta", "alpha"]
    assert built.load(mode="force").compiled == ["alpha"]


def test_extra_features_never_match_a_bundled_module(built: Checkout) -> None:
    """
    Features beyond the declared ones need a build of their own, stored beside the other; without sources they cannot be had.
    """
    bundled_right(built)
    built.write("alpha/Cargo.toml", (built.root / "alpha/Cargo.toml").read_text() + "\n[features]\nloud = []\n")
    built.replace("alpha/src/lib.rs", 'format!("alpha-1', 'format!("{}-1')
    built.replace(
        "alpha/src/lib.rs", "part::PART,", 'if cfg!(feature = "loud") { "ALPHA" } else { "alpha" }, part::PART,'
    )
    plain, loud, again = built.load(), built.load(features=["loud"]), built.load(features=["loud"])

    assert [plain.value, loud.value, again.value] == [ALPHA, "ALPHA-1 part-1 middle-1", "ALPHA-1 part-1 middle-1"]
    assert loud.cargo[-1][loud.cargo[-1].index("--features") + 1] == "loud"
    assert again.cargo == ()
    absent = built.load(features=["loud"], workspace=None)
    assert absent.reason == "not-found"
    assert "extra features need a build" in str(absent.error)


def test_never_tells_a_damaged_copy_from_none(built: Checkout) -> None:
    """
    Whoever forbids building learns that there was something to load, and where it lies now; so does the next process, and whoever asks.
    """
    built.stored().write_bytes(b"damaged")

    for _ in range(2):
        refused = built.load(mode="never", prelude=_ASK)
        assert refused.reason == "not-found"
        assert "its cached copy was damaged (see " in str(refused.error)
        assert verdict(refused) == f"verdict missing False False {refused.error}"
    nothing_stored(built)
    refused = built.load(mode="never", prelude=_ASK)
    assert "it is not built, and SGLANG_RUST_BUILD_MODE=never forbids" in str(refused.error)
    assert verdict(refused) == f"verdict missing False False {refused.error}"


def test_a_damaged_copy_is_kept_and_built_anew(built: Checkout) -> None:
    """
    Whoever wants to know what happened to it finds its bytes.
    """
    built.stored().write_bytes(b"damaged")
    assert built.load(mode="never").reason == "not-found"
    assert [path.read_bytes() for path in (built.cache / "quarantine").rglob("*.so")] == [b"damaged"]
    assert built.load().value == ALPHA


def test_no_stored_extension_is_put_in_place_half(built: Checkout) -> None:
    """
    Parents that nobody provides are namespace packages; the module is set on its parent, with the right spec and file.
    """
    check = """
        module = rust_ext_loader.load_rust_extension(request["module"], **request["arguments"])
        import fx
        assert fx.alpha is module is sys.modules["fx.alpha"]
        assert list(fx.__path__) == [] and fx.__spec__.loader is None or fx.__spec__.origin is None
        assert module.__spec__.name == "fx.alpha" and module.__spec__.parent == "fx"
        assert module.__spec__.origin == module.__file__ and module.__spec__.has_location
        assert module.__loader__ is module.__spec__.loader
    """
    loaded = built.load(prelude=check)

    assert loaded.error is None
    assert loaded.file == str(built.stored())


def test_another_candidate_beside_a_bundled_module_is_warned_of(built: Checkout) -> None:
    """
    A second library of the same module, which `import` would pass over or prefer, is never silently there.
    """
    library = bundle(built, facts=None)
    other = library.with_name(f"alpha{EXTENSION_SUFFIXES[-1]}")
    other.write_bytes(library.read_bytes())
    _bundled.sidecar_of(library, "alpha").write_bytes(_bundled.sidecar("fx.alpha", library, built.stored_facts()))
    loaded = built.load()

    assert loaded.file == str(library)
    assert len(loaded.warnings) == 1
    assert str(other) in loaded.warnings[0]
