"""
Undeclared inputs that a build was seen to read: every change is noticed, and reverting it is a cache hit.

`tests/crates/undeclared` includes files in, beside and beyond the crate, reads variables,
and has a build script that lists a folder and reads a `.proto`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from checkout import Checkout
from children import killed_at_exit
from editable_install import RECORD_AT_ONCE
from missing_path import ABSENT
from processes import Gate
from undeclared_words import value


class Change:
    """
    A change of a checkout that can be undone.
    """

    def __init__(
        self,
        file: str = "",
        text: str | None = None,
        variables: dict[str, str] | None = None,
        older: float | None = None,
    ) -> None:
        self.file = file
        self.text = text
        self.variables = variables or {}
        self.older = older
        self._was: bytes | None = None

    def do(self, checkout: Checkout) -> None:
        if not self.file:
            return
        path = checkout.root / self.file
        self._was = path.read_bytes() if path.exists() else None
        if self.text is None:
            path.unlink()
        else:
            checkout.write(self.file, self.text, older=self.older)

    def undo(self, checkout: Checkout) -> None:
        if not self.file:
            return
        path = checkout.root / self.file
        if self._was is None:
            path.unlink()
        else:
            path.write_bytes(self._was)


CHANGES = [
    pytest.param(
        Change("alpha/README.md", "readme-2\n"), value(readme="readme-2"), id="an included file that is not Rust"
    ),
    pytest.param(
        Change("texts/outside.txt", "outside-2\n"), value(outside="outside-2"), id="an included file outside the crate"
    ),
    pytest.param(
        Change("../beyond.txt", "beyond-2\n"), value(beyond="beyond-2"), id="an included file outside the workspace"
    ),
    pytest.param(
        Change("texts/helped.txt", "helped-2\n"), value(helped="helped-2"), id="an included file of a dependency"
    ),
    pytest.param(
        Change("proto/inner/api.proto", "proto-2\n"),
        value(generated="proto-2:one:none"),
        id="a .proto of the build script",
    ),
    pytest.param(
        Change("texts/folder/two", "2"), value(generated="proto-1:one+two:none"), id="a new file in a listed folder"
    ),
    pytest.param(
        Change("texts/folder/one"), value(generated="proto-1::none"), id="a file removed from a listed folder"
    ),
    pytest.param(Change(variables={"FX_SEEN": "1"}), value(seen="1"), id="option_env!"),
    pytest.param(Change(variables={"FX_SEEN": ""}), value(seen=""), id="option_env!, empty"),
    pytest.param(Change(variables={"FX_HELPER": "1"}), value(helper="1"), id="option_env! in a dependency"),
    pytest.param(Change(variables={"FX_SCRIPT": "1"}), value(generated="proto-1:one:1"), id="rerun-if-env-changed"),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_a_change_is_noticed_and_reverting_it_hits(undeclared: Checkout, change: Change, expected: str) -> None:
    """
    A change of an undeclared input causes one build. Reverting it causes none.
    """
    change.do(undeclared)
    changed = undeclared.load(variables=change.variables)

    assert (changed.value, changed.error) == (expected, None)
    assert changed.compiled == ["alpha"]

    change.undo(undeclared)
    back = undeclared.load()
    assert (back.value, back.cargo) == (value(), ())
    change.do(undeclared)
    again = undeclared.load(variables=change.variables)
    assert (again.value, again.cargo) == (expected, ())


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        pytest.param("texts/outside.txt", "outside-2\n", value(outside="outside-2"), id="of the crate"),
        pytest.param("texts/helped.txt", "helped-2\n", value(helped="helped-2"), id="of a dependency"),
        pytest.param(
            "proto/inner/api.proto", "proto-2\n", value(generated="proto-2:one:none"), id="of the build script"
        ),
    ],
)
def test_a_change_with_an_older_time_is_built(undeclared: Checkout, file: str, text: str, expected: str) -> None:
    """
    Cargo judges by timestamps. In a used target folder, an edit with an older timestamp is compiled anyway.
    """
    undeclared.replace("alpha/src/lib.rs", '.join(" ")', '.join(" ")\n')
    assert undeclared.load().compiled == ["alpha"]

    undeclared.write(file, text, older=86400)
    assert undeclared.load().value == expected


@pytest.mark.parametrize(
    ("change", "variables"),
    [
        pytest.param(("texts/unrelated.txt", "new"), {}, id="a file beside an included one"),
        pytest.param(("texts/folder/.one.swp", "swap"), {}, id="an editor's file in a listed folder"),
        pytest.param(("alpha/tests/new.rs", "fn"), {}, id="a test"),
        pytest.param(None, {"FX_MADE": "other"}, id="a variable that the build script sets itself"),
        pytest.param(None, {"FX_NOT_READ": "1"}, id="a variable that is not read"),
        pytest.param(None, {"OUT_DIR": ABSENT, "CARGO_MANIFEST_DIR": ABSENT}, id="variables that cargo sets"),
    ],
)
def test_a_change_of_unread_input_builds_nothing(
    undeclared: Checkout, change: tuple[str, str] | None, variables: dict[str, str]
) -> None:
    """
    Only inputs that the build read count.
    """
    if change:
        undeclared.write(*change)

    loaded = undeclared.load(variables=variables)
    assert (loaded.value, loaded.cargo) == (value(), ())


def test_the_warm_path_watches_seen_inputs(undeclared: Checkout) -> None:
    """
    Each of these changes invalidates the record. Mode `never` may not build, so the load fails.
    """
    for parameters in CHANGES:
        change = parameters.values[0]
        assert isinstance(change, Change)
        undeclared.load(mode="never", prelude=RECORD_AT_ONCE)
        warm = undeclared.load(mode="never")
        assert (warm.value, "rust_ext_loader._ensure" in warm.imported) == (value(), False)

        change.do(undeclared)
        assert undeclared.load(mode="never", variables=change.variables).reason == "not-found", parameters.id
        change.undo(undeclared)


def test_a_retargeted_link_is_noticed(undeclared: Checkout) -> None:
    """
    A link on the path of an included file counts by its target, even if both targets have the same times.
    """
    texts = undeclared.root / "texts"
    for name in ("one", "two"):
        (texts / name).mkdir()
        (texts / name / "outside.txt").write_text(f"outside-{name}\n")
        os.utime(texts / name / "outside.txt", (1, 1))
    (texts / "way").symlink_to("one")
    undeclared.replace("alpha/src/lib.rs", "texts/outside.txt", "texts/way/outside.txt")
    assert undeclared.load().value == value(outside="outside-one")

    (texts / "way").unlink()
    (texts / "way").symlink_to("two")
    assert undeclared.load().value == value(outside="outside-two")


def test_an_edit_of_a_seen_input_during_a_build_is_in_the_result(undeclared: Checkout) -> None:
    """
    If an input that was unknown before the build is edited after it was read, the result is discarded.
    """
    gate = Gate(undeclared)
    process = undeclared.start()
    with killed_at_exit(process):
        gate.reached(process)
        undeclared.write("proto/inner/api.proto", "proto-2\n")
        gate.let_through()
        gate.reached(process)
        gate.let_through()
        answer = undeclared.finish(process)

    assert answer["value"] == value(generated="proto-2:one:none")
    assert "proto/inner/api.proto changed during the build" in str(answer["stderr"])


def test_branches_that_read_different_files_share_a_cache(undeclared: Checkout) -> None:
    """
    Each branch has its own set of seen inputs. Switching hits, and an edit affects only branches that read the file.
    """
    undeclared.write("texts/other.txt", "other-1\n")
    here, there = "texts/outside.txt", "texts/other.txt"
    undeclared.replace("alpha/src/lib.rs", here, there)
    assert undeclared.load().value == value(outside="other-1")

    undeclared.replace("alpha/src/lib.rs", there, here)
    assert undeclared.load().cargo == ()
    undeclared.write("texts/other.txt", "other-2\n")
    assert undeclared.load().cargo == ()
    undeclared.replace("alpha/src/lib.rs", here, there)
    assert undeclared.load().value == value(outside="other-2")


def test_code_with_its_own_path_is_not_shared(undeclared: Checkout, tmp_path: Path) -> None:
    """
    `env!("CARGO_MANIFEST_DIR")` has another value in another checkout.
    """
    undeclared.replace("alpha/src/lib.rs", 'env!("FX_MADE")', 'env!("CARGO_MANIFEST_DIR")')
    first = undeclared.root
    assert undeclared.load().value == value(made=str(first / "alpha"))

    undeclared.root = first.rename(tmp_path / "moved")
    moved = undeclared.load()
    assert moved.value == value(made=str(tmp_path / "moved" / "alpha"))
    assert "alpha was moved to another folder" in moved.stderr or "not built here yet" in moved.stderr
    undeclared.root = undeclared.root.rename(first)
    assert undeclared.load().cargo == ()


#: The folder above the package, as a build script can compute it. The path is absolute and contains no `..`, so
#: nothing shows that it was computed from the checkout's path.
ABOVE = 'Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap()).parent().unwrap()'


@pytest.mark.parametrize(
    ("path", "file"),
    [
        pytest.param(f'{ABOVE}.join("proto")', "proto/inner/api.proto", id="in the workspace"),
        pytest.param(ABOVE, "proto/inner/api.proto", id="the workspace"),
        pytest.param(f'{ABOVE}.parent().unwrap().join("texts")', "../texts/api.txt", id="beside the workspace"),
    ],
)
def test_an_absolute_path_belongs_to_its_checkout(undeclared: Checkout, path: str, file: str) -> None:
    """
    A build script that reads a path above its package reads another file in another checkout: each has its own entry.
    """
    (undeclared.root.parent / "texts").mkdir()
    for name in ("proto/inner/api.proto", "../texts/api.txt"):
        undeclared.write(name, "ours\n")
    undeclared.replace(
        "alpha/build.rs",
        '"cargo::rerun-if-changed=../proto/inner/api.proto"',
        f'"cargo::rerun-if-changed={{}}", {path}.display()',
    )
    undeclared.replace("alpha/build.rs", '"../proto/inner/api.proto"', f'"../{file}"')
    assert undeclared.load().value == value(generated="ours:one:none")

    other = check_out_again(undeclared)
    other.write(file, "theirs\n")
    assert other.load().value == value(generated="theirs:one:none")
    assert (undeclared.load().value, other.load().value) == (
        value(generated="ours:one:none"),
        value(generated="theirs:one:none"),
    )
    other.write(file, "new\n")
    assert other.load().value == value(generated="new:one:none")


def check_out_again(checkout: Checkout) -> Checkout:
    """
    Copy a checkout and the files beside it, and use the same cache.
    """
    top = checkout.root.parent
    copy = Checkout(top / "again" / checkout.root.name, checkout.cache)
    shutil.copytree(top, copy.root.parent, ignore=shutil.ignore_patterns("again", "cache", "tools"))
    return copy


#: A pause longer than a tick of the file system's clock.
PAUSE = "std::thread::sleep(std::time::Duration::from_millis(100));\n    "


@pytest.mark.parametrize(
    "file",
    [
        pytest.param("src/generated.txt", id="its sources"),
        pytest.param("../texts/folder/generated", id="a folder that it lists"),
    ],
)
def test_a_build_script_may_write_into_the_sources(undeclared: Checkout, file: str) -> None:
    """
    A file that a build script writes with the same content in every build is not an edit, and does not cause rebuilds.
    """
    undeclared.replace(
        "alpha/build.rs", "let api =", f'{PAUSE}fs::write("{file}", "generated").expect("written");\n    let api ='
    )
    first = undeclared.load()
    assert first.error is None
    assert undeclared.load().cargo == ()

    undeclared.write("proto/inner/api.proto", "proto-2\n")
    second = undeclared.load()
    assert (second.error, second.value) == (None, (first.value or "").replace("proto-1", "proto-2"))
    assert undeclared.load().cargo == ()


def test_a_file_that_vanishes_during_a_build_prevents_an_entry(undeclared: Checkout) -> None:
    """
    A build whose input was removed after the compiler read it is not stored. The next build fails on the missing file.
    """
    text = undeclared.root / "texts/outside.txt"
    undeclared.replace("alpha/src/lib.rs", 'join(" ")', 'join("-")')
    vanish = f"""
        import os
        from rust_ext_loader.build import _observe
        before = _observe.observe
        _observe.observe = lambda *given: os.path.exists({str(text)!r}) and os.unlink({str(text)!r}) or before(*given)
    """
    assert "outside.txt" in (undeclared.load(prelude=vanish).error or "")
    assert undeclared.load().value is None

    text.write_text("outside-1\n")
    assert undeclared.load().value == value().replace(" ", "-")


def test_messages_contain_no_path_of_the_checkout(undeclared: Checkout) -> None:
    """
    `file!()`, which panics print, is the same in every checkout.
    """
    undeclared.replace("alpha/src/lib.rs", 'env!("FX_MADE")', "file!()")
    undeclared.replace("helper/src/lib.rs", 'None => "unset"', "None => file!()")
    assert undeclared.load().value == value(made="alpha/src/lib.rs", helper="helper/src/lib.rs")
