"""
The situations of a checkout that decide where a module comes from, and the expected outcomes of a load.

Each situation changes a checkout whose cache holds `fx.alpha`.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

from missing_path import ABSENT

from rust_ext_loader.cache import _bundled
from rust_ext_loader.files import _digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from checkout import Checkout, Loaded

ALPHA = "alpha-1 part-1 middle-1"


#: Prelude that prints the verdict of `can_load`.
PRINT_VERDICT = """
verdict = rust_ext_loader.can_load(request["module"], **request["arguments"])
print("verdict", verdict.state.value, verdict.readiness.value, verdict.why, file=sys.stderr)
"""


def site(checkout: Checkout) -> Path:
    """
    Create a folder on `sys.path` with the parent package and return the package.
    """
    package = checkout.cache.parent / "site" / "fx"
    package.mkdir(parents=True, exist_ok=True)
    checkout.environment["PYTHONPATH"] = os.pathsep.join([checkout.variables()["PYTHONPATH"], str(package.parent)])
    return package


def bundle(checkout: Checkout, *, facts: Mapping[str, str] | None, content: bytes | None = None) -> Path:
    """
    Put the library beside its parent package, as a wheel does, with a sidecar if facts are given.
    """
    library = site(checkout) / f"alpha{EXTENSION_SUFFIXES[0]}"
    library.write_bytes(checkout.stored_library().read_bytes() if content is None else content)
    if facts is not None:
        _bundled.sidecar_of(library, "alpha").write_bytes(_bundled.sidecar("fx.alpha", library, facts))
    return library


def bundled_current(checkout: Checkout) -> None:
    bundle(checkout, facts=checkout.stored_facts())


def bundled_stale(checkout: Checkout) -> None:
    bundle(checkout, facts={**checkout.stored_facts(), "source/alpha/src/part.rs": "other"})


def bundled_for_another_python(checkout: Checkout) -> None:
    bundle(checkout, facts={**checkout.stored_facts(), "abi/tag": "cpython-2.7"})


def bundled_by_another_compiler(checkout: Checkout) -> None:
    bundle(checkout, facts={**checkout.stored_facts(), "toolchain/rustc": "1.0.0"})


def bundled_without_sidecar(checkout: Checkout) -> None:
    bundle(checkout, facts=None)


def bundled_unloadable(checkout: Checkout) -> None:
    bundle(checkout, facts=checkout.stored_facts(), content=b"not a library")


def wheel(checkout: Checkout) -> None:
    bundle(checkout, facts=checkout.stored_facts())
    nothing_stored(checkout)
    shutil.rmtree(checkout.root)


def nothing_installed(checkout: Checkout) -> None:
    site(checkout)
    nothing_stored(checkout)


def unchanged(checkout: Checkout) -> None:
    assert checkout.stored_library().exists()


def nothing_stored(checkout: Checkout) -> None:
    shutil.rmtree(checkout.cache)


def no_toolchain(checkout: Checkout) -> None:
    checkout.environment["PATH"] = ABSENT


def continuous_integration(checkout: Checkout) -> None:
    checkout.environment["CI"] = "true"


def stale_setting_warn(checkout: Checkout) -> None:
    checkout.environment["SGLANG_RUST_STALE"] = "warn"


def stale_setting_error(checkout: Checkout) -> None:
    checkout.environment["SGLANG_RUST_STALE"] = "error"


def no_cache_possible(checkout: Checkout) -> None:
    """
    Make both the cache and the fallback cache impossible to create.
    """
    nothing_stored(checkout)
    for folder in (checkout.cache, checkout.temporary):
        shutil.rmtree(folder, ignore_errors=True)
        folder.write_text("a file")


def truncated(checkout: Checkout) -> None:
    library = checkout.stored_library()
    library.write_bytes(library.read_bytes()[:1000])


def unloadable_entry(checkout: Checkout) -> None:
    """
    Store a library that the dynamic linker refuses, with a matching manifest.
    """
    library = checkout.stored_library()
    library.write_bytes(b"not a library")
    path = library.parent / "manifest.json"
    fields = {**json.loads(path.read_bytes()), "size": library.stat().st_size, "sha256": _digest.of_file(library)}
    path.write_text(json.dumps(fields))


def syntax_error(checkout: Checkout) -> None:
    checkout.write("alpha/src/part.rs", "nonsense")


def other_flags(checkout: Checkout) -> None:
    checkout.environment["RUSTFLAGS"] = "--cfg loud"


@dataclass(frozen=True)
class Loads:
    """
    The expected outcome is a loaded module.
    """

    #: `bundled`, `cached` or `built`.
    from_: str
    #: Parts of the only warning. Empty: no warning.
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
class Fails:
    """
    The expected outcome is an error and no module.
    """

    kind: str
    #: Parts of the message.
    message_parts: tuple[str, ...]

    def check(self, loaded: Loaded, checkout: Checkout, before: Path | None) -> None:
        assert loaded.types[:1] == (self.kind,), loaded.error
        assert "ImportError" in loaded.types
        for words in self.message_parts:
            assert words in str(loaded.error)
        assert not loaded.in_sys_modules


BUNDLED, CACHED, BUILT = Loads("bundled"), Loads("cached"), Loads("built")
FAILED = Fails("BuildFailed", ("fx.alpha could not be built", "alpha/src/part.rs:1:1", "full log: "))
NO_CARGO = Fails("ToolchainMissing", ("fx.alpha must be built, but `cargo` is not usable",))
IGNORED_WARNING = ("is stale (", "and is ignored; remove the file")
USED_WARNING = "and is used anyway, since there is no toolchain; run `rust-ext build fx.alpha`"
STALE_REASON = "alpha/src/part.rs changed"
NO_SIDECAR = "no `.rust-ext.json` file describes it"


def verdict(loaded: Loaded) -> str:
    return next(line for line in loaded.stderr.splitlines() if line.startswith("verdict "))


def readiness(loaded: Loaded) -> str:
    """
    The readiness in the printed verdict.
    """
    return verdict(loaded).split()[2]
