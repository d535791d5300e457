"""
The edit tier: which builds are in it, where its entries are used, and when the compiler's incremental state is removed.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import check_out
from commands import rust_ext
from processes import Gate, kill_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from checkout import Checkout, Loaded

BEFORE, AFTER = "alpha-1 part-1 middle-1", "alpha-2 part-1 middle-1"
FOR_EDITING = "for editing in"


@pytest.fixture
def edited(plain: Checkout) -> Checkout:
    """
    A checkout whose `fx.alpha` was built in full and then edited.
    """
    first = plain.load()
    assert (first.value, FOR_EDITING in first.stderr) == (BEFORE, False)
    edit(plain, 1, 2)
    return plain


def edit(checkout: Checkout, old: int, new: int, crate: str = "alpha") -> None:
    checkout.replace(f"{crate}/src/lib.rs", f"{crate}-{old}", f"{crate}-{new}")


def tier_of(loaded: Loaded) -> str:
    """
    The tier of the loaded library, from the manifest beside it.
    """
    facts = json.loads((Path(str(loaded.file)).parent / "manifest.json").read_bytes())["facts"]
    return "edit" if "tier/edit" in facts else "full"


def overrides(loaded: Loaded) -> set[str]:
    """
    The profile overrides among the arguments of the last cargo run.
    """
    return {value for option, value in itertools.pairwise(loaded.cargo[-1]) if option == "--config"}


def edited_packages(loaded: Loaded) -> set[str]:
    """
    The packages that the overrides name.
    """
    return {value.split('"')[1].partition("@")[0] for value in overrides(loaded)}


def incremental(checkout: Checkout) -> list[Path]:
    """
    The incremental state of each crate in the checkout's target folder.
    """
    return sorted(checkout.cache.glob("targets/*/release/incremental/*"))


def test_an_edit_is_built_for_editing(edited: Checkout) -> None:
    """
    The message says so and names the command for the full build. Only the edited package gets other settings.
    """
    loaded = edited.load()

    assert (loaded.value, tier_of(loaded)) == (AFTER, "edit")
    assert "built fx.alpha for editing in " in loaded.stderr
    assert "; `rust-ext build` optimises" in loaded.stderr
    assert overrides(loaded) == {
        f'profile.release.package."alpha@0.1.0".{setting}' for setting in ("incremental=true", "codegen-units=256")
    }


def test_only_edited_packages_and_their_users_are_in_the_edit_tier(edited: Checkout) -> None:
    """
    An edited package stays in the tier until its full build. Packages that do not use it keep their objects.
    """
    assert edited_packages(edited.load()) == {"alpha"}
    edit(edited, 1, 2, "middle")
    assert edited_packages(edited.load()) == {"alpha", "middle"}
    edit(edited, 2, 3)
    assert edited_packages(edited.load()) == {"alpha", "middle"}
    assert rust_ext(edited, "build", "fx.alpha").code == 0
    edit(edited, 3, 4)

    loaded = edited.load()

    assert (loaded.value, edited_packages(loaded)) == ("alpha-4 part-1 middle-2", {"alpha"})


def test_a_compile_error_does_not_compile_other_packages_again(edited: Checkout) -> None:
    """
    Packages that were fresh in the failed build are fresh in the next build too.
    """
    edited.load()
    edited.replace("alpha/src/lib.rs", "mod part;", "mod part")
    assert edited.load().reason == "build-failed"
    edited.replace("alpha/src/lib.rs", "mod part", "mod part;")
    edit(edited, 2, 3)

    loaded = edited.load()

    assert (loaded.value, edited_packages(loaded)) == (AFTER.replace("2", "3"), {"alpha"})


def test_the_next_edit_reuses_the_incremental_state(edited: Checkout) -> None:
    """
    `cargo clean` is not run, and the state of each crate stays in its folder.
    """
    edited.load()
    before = {path: path.stat().st_ino for path in incremental(edited)}
    edit(edited, 2, 3)

    loaded = edited.load()

    assert (loaded.value, loaded.compiled) == (AFTER.replace("2", "3"), ["alpha"])
    assert [call[0] for call in loaded.cargo] == ["rustc"]
    assert before
    assert {path: path.stat().st_ino for path in incremental(edited)} == before


def test_a_compile_error_keeps_the_incremental_state(edited: Checkout) -> None:
    """
    A compile error is common while a crate is edited, so it must not make the next build slow.
    """
    edited.load()
    before = {path: path.stat().st_ino for path in incremental(edited)}
    edit(edited, 2, 3)
    edited.replace("alpha/src/lib.rs", "mod part;", "mod part")
    assert edited.load().reason == "build-failed"
    edited.replace("alpha/src/lib.rs", "mod part", "mod part;")

    assert edited.load().value == AFTER.replace("2", "3")
    assert {path: path.stat().st_ino for path in incremental(edited)} == before


def test_a_reverted_edit_uses_the_full_build(edited: Checkout) -> None:
    edited.load()
    edit(edited, 2, 1)

    loaded = edited.load()

    assert (loaded.value, loaded.cargo, tier_of(loaded)) == (BEFORE, (), "full")


@pytest.mark.parametrize(
    ("variables", "tier"),
    [
        pytest.param({"RUST_EXT_EDIT_TIER": "off"}, "full", id="off"),
        pytest.param({"CI": "true"}, "full", id="in CI"),
        pytest.param({"CI": "true", "RUST_EXT_EDIT_TIER": "on"}, "edit", id="on in CI"),
        pytest.param({"RUSTFLAGS": "--cfg other"}, "full", id="other flags, so the first build in another folder"),
        pytest.param({"RUST_EXT_PROFILE": "dev"}, "full", id="profile dev, which is incremental already"),
    ],
)
def test_settings_select_the_tier_of_an_edit(edited: Checkout, variables: dict[str, str], tier: str) -> None:
    loaded = edited.load(variables=variables)

    assert (loaded.value, tier_of(loaded)) == (AFTER, tier)
    assert (FOR_EDITING in loaded.stderr) == (tier == "edit")


def test_a_project_can_switch_the_tier_off(edited: Checkout) -> None:
    edited.write("pyproject.toml", "[tool.rust-ext-loader]\nedit = false\n")

    assert tier_of(edited.load()) == "full"


def test_changed_settings_of_the_tier_cause_a_rebuild(edited: Checkout) -> None:
    """
    The settings of the tier are a fact, and a record notices that the project's file changed.
    """
    edited.load()
    edited.wait_until_settled()
    assert edited.load().cargo == ()
    assert edited.load().cargo == ()
    edited.write("pyproject.toml", "[tool.rust-ext-loader]\nedit = { codegen-units = 7 }\n")

    loaded = edited.load()

    assert loaded.value == AFTER
    assert any("codegen-units=7" in argument for call in loaded.cargo for argument in call)


def test_another_checkout_does_not_use_a_build_for_editing(edited: Checkout, tmp_path: Path) -> None:
    """
    A copy of the checkout with the same cache builds in full.
    """
    edited.load()
    copy = check_out("plain", tmp_path / "copy", edited.cache)
    edit(copy, 1, 2)

    loaded = copy.load()

    assert (loaded.value, loaded.compiled, tier_of(loaded)) == (AFTER, ["alpha"], "full")


def test_mode_never_warns_about_a_build_for_editing_in_every_process(edited: Checkout) -> None:
    edited.load()

    for _ in range(2):
        edited.wait_until_settled()
        loaded = edited.load(mode="never")
        assert (loaded.value, loaded.cargo) == (AFTER, ())
        (warning,) = loaded.warnings
        assert "was built for editing and is used anyway, since the mode is `never`" in warning
        assert "run `rust-ext build fx.alpha` to optimise it" in warning


def test_the_full_build_replaces_the_build_for_editing(edited: Checkout) -> None:
    """
    `rust-ext build` makes the full build. The next load uses it, even if there is a record of the build for editing.
    """
    edited.load()
    edited.wait_until_settled()
    edited.load()
    assert any((edited.cache / "records").iterdir())
    status = rust_ext(edited, "status", "--json", "fx.alpha", raw=True)
    built = rust_ext(edited, "build", "fx.alpha", raw=True)

    loaded = edited.load()

    assert json.loads(status.out)[0]["tier"] == "edit"
    assert json.loads(status.out)[0]["why"] == "built for editing from these facts; `rust-ext build` optimises"
    assert (built.code, "rebuilding fx.alpha: no build of these sources is stored in this tier" in built.err) == (
        0,
        True,
    )
    assert (loaded.value, loaded.cargo, tier_of(loaded)) == (AFTER, (), "full")
    assert str(loaded.file) in built.out
    after = rust_ext(edited, "status", "--json", "fx.alpha", raw=True)
    assert json.loads(after.out)[0]["tier"] == "full"


def test_explain_names_the_tier(edited: Checkout) -> None:
    edited.load()

    text = rust_ext(edited, "explain", "fx.alpha")
    fields = json.loads(rust_ext(edited, "explain", "--json", "fx.alpha").out)

    assert text.out == "fx.alpha: nothing has changed; it was built for editing, and `rust-ext build` optimises\n"
    assert (fields["tier"], fields["changes"]) == ("edit", [])


def test_key_and_verify_ignore_a_build_for_editing(edited: Checkout) -> None:
    """
    The commands look for the full build and do not find one.
    """
    full = rust_ext(edited, "key", "--format", "json", raw=True).out
    edited.load()
    verified = rust_ext(edited, "verify", "fx.alpha", raw=True)

    assert rust_ext(edited, "key", "--format", "json", raw=True).out == full
    assert (verified.code, verified.out) == (1, "fx.alpha: not cached\n")


# When the incremental state is removed.


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _delete(path: Path) -> None:
    path.unlink()


def _change_the_word(path: Path) -> None:
    """
    Change a string in an object, and keep size and modification time.
    """
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"middle-1", b"middle-X"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("harm", [_truncate, _delete, _change_the_word])
def test_damaged_incremental_state_is_not_used(edited: Checkout, harm: Callable[[Path], None]) -> None:
    """
    The compiler would link a damaged object without noticing, so the state with the damage is removed.
    """
    edited.load()
    objects = [
        path for state in incremental(edited) for path in state.rglob("*") if path.is_file() and path.suffix == ".o"
    ]
    assert any(b"middle-1" in path.read_bytes() for path in objects), "some object contains the word to change"
    for path in objects:
        harm(path)
    edited.write("middle/src/lib.rs", 'pub const WORD: &str = "middle-1";\n\n// A comment.\n')
    edit(edited, 2, 3)

    assert edited.load().value == AFTER.replace("2", "3")


def test_foreign_incremental_state_is_not_used(edited: Checkout, tmp_path: Path) -> None:
    """
    If a backup tool restores the state of an earlier build, the state is removed.
    """
    edited.load()
    states = incremental(edited)
    for number, state in enumerate(states):
        shutil.copytree(state, tmp_path / f"saved-{number}")
    edit(edited, 2, 3)
    edited.load()
    for number, state in enumerate(states):
        shutil.rmtree(state)
        shutil.copytree(tmp_path / f"saved-{number}", state)
    before = {path: path.stat().st_ino for path in states}
    edit(edited, 3, 4)

    assert edited.load().value == AFTER.replace("2", "4")
    assert not any(path.exists() and path.stat().st_ino == inode for path, inode in before.items())


def test_the_incremental_state_of_a_killed_build_is_not_used(edited: Checkout) -> None:
    """
    After a build for editing was killed during the compilation, the next one compiles that crate without its state.
    """
    edited.load()
    text = (edited.root / "alpha/src/lib.rs").read_text(encoding="utf-8")
    gate = Gate(edited)
    kill_at(gate, edited)
    (edited.root / "alpha/src/gate").unlink()
    edited.write("alpha/src/lib.rs", text)
    edit(edited, 2, 5)

    loaded = edited.load()

    assert (loaded.value, tier_of(loaded)) == (AFTER.replace("2", "5"), "edit")


def test_an_older_time_does_not_hide_an_edit(edited: Checkout) -> None:
    """
    Cargo compares timestamps. A dependency that was replaced by an older file is compiled again in both tiers.
    """
    edited.load()
    for number in (2, 3):
        edited.write("middle/src/lib.rs", f'pub const WORD: &str = "middle-{number}";\n', older=10_000)
        assert edited.load().value == AFTER.replace("middle-1", f"middle-{number}")
        edited.write("middle/src/lib.rs", f'pub const WORD: &str = "middle-{number}0";\n', older=20_000)
        loaded = edited.load(variables={"RUST_EXT_EDIT_TIER": "off"})
        assert (loaded.value, tier_of(loaded)) == (AFTER.replace("middle-1", f"middle-{number}0"), "full")


def test_cargo_cleans_outputs_at_unknown_paths(edited: Checkout) -> None:
    """
    If the outputs are at other paths than expected, the toolkit does not find them, so `cargo clean` removes them.
    """
    keep_outputs = "from rust_ext_loader.build import _outputs\n_outputs.discard = lambda *_: None"
    edited.load()
    edited.write("middle/src/lib.rs", 'pub const WORD: &str = "middle-2";\n', older=10_000)

    loaded = edited.load(prelude=keep_outputs, variables={"RUST_EXT_EDIT_TIER": "off"})

    assert loaded.value == AFTER.replace("middle-1", "middle-2")
    assert [call[0] for call in loaded.cargo] == ["rustc", "clean", "rustc"]
