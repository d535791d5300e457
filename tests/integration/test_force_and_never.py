"""
The modes `force` and `never` beyond the table of `test_modes`, and how a mode is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from missing_path import ABSENT
from situations import (
    ALPHA,
    PRINT_VERDICT,
    bundled_current,
    nothing_stored,
    readiness,
    verdict,
)

if TYPE_CHECKING:
    from checkout import Checkout


@pytest.mark.parametrize(
    ("mode", "same"),
    [
        pytest.param("auto", True, id="auto"),
        pytest.param("never", True, id="never"),
        pytest.param("force", False, id="force"),
    ],
)
def test_an_imported_module_is_not_replaced(built: Checkout, mode: str, same: bool) -> None:
    """
    A load of an imported module returns it. In mode `force` it fails and tells the user to start a new process.
    """
    loaded = built.load(
        mode=mode,
        prelude=f'rust_ext_loader.load_rust_extension("fx.alpha", workspace={str(built.root)!r})\n{PRINT_VERDICT}',
    )

    assert loaded.cargo == ()
    if same:
        assert (loaded.value, loaded.error) == (ALPHA, None)
    else:
        assert loaded.types[0] == "AlreadyImported"
        assert "start a new process" in str(loaded.error)
        assert loaded.in_sys_modules
    assert readiness(loaded) == ("ready" if same else "unavailable")


@pytest.mark.parametrize("mode", ["maybe", "", "AUTO"], ids=repr)
def test_an_unknown_mode_is_refused_first(plain: Checkout, mode: str) -> None:
    """
    An unknown mode is a `ValueError`, even if the workspace is missing or the module is already imported.
    """
    for prelude in ("", 'sys.modules["fx.alpha"] = sys'):
        loaded = plain.load(workspace=ABSENT, prelude=prelude, mode=mode)

        assert loaded.types[0] == "SettingError"
        assert "ValueError" in loaded.types
        problem = f"mode={mode!r} is invalid" if mode else "mode is empty or not set"
        assert loaded.error == f"{problem}; expected one of auto, never, force"


def test_the_argument_overrides_the_mode_variable(built: Checkout) -> None:
    """
    Without an argument `SGLANG_RUST_BUILD_MODE` sets the mode, from `os.environ` or from `environment`.
    """
    nothing_stored(built)

    assert built.load(variables={"SGLANG_RUST_BUILD_MODE": "never"}).reason == "not-found"
    assert built.load(environment={"SGLANG_RUST_BUILD_MODE": "never"}).reason == "not-found"
    assert built.load(variables={"SGLANG_RUST_BUILD_MODE": "never"}, mode="auto").value == ALPHA


def test_force_replaces_the_entry(built: Checkout) -> None:
    """
    After a forced build the next load takes the new library, even if a record of the old one exists.
    """
    settled = "from rust_ext_loader import _stat; _stat.UNSETTLED_NS = -(10**15)"
    old = built.load(prelude=settled)
    assert built.load().spawned == ()

    forced = built.load(mode="force")
    after = built.load()

    assert forced.compiled == ["alpha"]
    assert forced.file != old.file
    assert after.file == forced.file
    assert after.cargo == ()


def test_children_accept_a_forced_build(built: Checkout) -> None:
    """
    In mode `force` a process builds once for itself and its child processes. The next process builds again.
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
    A load with undeclared features needs its own build and entry. Without sources it fails.
    """
    bundled_current(built)
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


def test_never_distinguishes_a_damaged_entry_from_none(built: Checkout) -> None:
    """
    In mode `never` the error and the verdict say that a damaged entry was quarantined and where, in every process.
    """
    built.stored_library().write_bytes(b"damaged")

    for _ in range(2):
        refused = built.load(mode="never", prelude=PRINT_VERDICT)
        assert refused.reason == "not-found"
        assert "its cached copy was damaged (see " in str(refused.error)
        assert verdict(refused) == f"verdict missing unavailable {refused.error}"
    nothing_stored(built)
    refused = built.load(mode="never", prelude=PRINT_VERDICT)
    assert "it is not built, and SGLANG_RUST_BUILD_MODE=never forbids" in str(refused.error)
    assert verdict(refused) == f"verdict missing unavailable {refused.error}"


def test_a_damaged_entry_is_quarantined_and_rebuilt(built: Checkout) -> None:
    """
    The bytes of a damaged library are kept in the quarantine.
    """
    built.stored_library().write_bytes(b"damaged")
    assert built.load(mode="never").reason == "not-found"
    assert [path.read_bytes() for path in (built.cache / "quarantine").rglob("*.so")] == [b"damaged"]
    assert built.load().value == ALPHA


def test_a_cached_module_has_the_attributes_of_an_import(built: Checkout) -> None:
    """
    A missing parent becomes a namespace package. The module is set on its parent and has a complete spec.
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
    assert loaded.file == str(built.stored_library())
