"""
Where a module can come from: the situations that a checkout can be in, and what a load comes to.

A checkout arrives with `fx.alpha` in its cache.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

from rust_ext_loader.cache import _bundled, _store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from checkout import Checkout, Loaded

ALPHA = "alpha-1 part-1 middle-1"


ASK = """
verdict = rust_ext_loader.can_load(request["module"], **request["arguments"])
print("verdict", verdict.state.value, verdict.ready, verdict.may_build, verdict.why, file=sys.stderr)
"""


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


def verdict(loaded: Loaded) -> str:
    return next(line for line in loaded.stderr.splitlines() if line.startswith("verdict "))


def told(loaded: Loaded) -> tuple[bool, bool]:
    """
    What the verdict said: ready, may build.
    """
    _, _, ready, may_build, *_ = verdict(loaded).split()
    return ready == "True", may_build == "True"
