"""
Seen inputs without a compiler: what is read from what it leaves behind, what is kept, and when that still stands.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rust_ext_loader._model import PathPackage
from rust_ext_loader.build import _observe
from rust_ext_loader.build._cargo import Artifact, BuildScript, CargoResult
from rust_ext_loader.build._target_state import TargetState
from rust_ext_loader.facts import _environment, _seen
from rust_ext_loader.facts._seen import Sight

needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no fifos here")


@pytest.mark.parametrize(
    ("text", "files", "variables"),
    [
        pytest.param("t/liba.so: a/lib.rs\n\na/lib.rs:\n", ["a/lib.rs"], [], id="one file"),
        pytest.param("t/a.d: a/my\\ lib.rs\n\na/my\\ lib.rs:\n", ["a/my lib.rs"], [], id="a space"),
        pytest.param("a/../../x.txt:\n/abs/y.txt:\n", ["a/../../x.txt", "/abs/y.txt"], [], id="outside, and absolute"),
        pytest.param("C:\\x\\y.rs:\n", ["C:\\x\\y.rs"], [], id="a drive"),
        pytest.param(
            "# env-dep:A=1\n# env-dep:B\n# env-dep:C=x=y:\n", [], ["A", "B", "C"], id="variables: set, unset, odd"
        ),
        pytest.param("", [], [], id="nothing"),
        pytest.param("a/line\u2028sep.rs:\n", ["a/line\u2028sep.rs"], [], id="no line end to rustc"),
        pytest.param("a/\udcff.rs:\n", ["a/\udcff.rs"], [], id="a name that is no text"),
    ],
)
def test_dep_info_is_read_as_rustc_writes_it(text: str, files: list[str], variables: list[str]) -> None:
    """
    Each file by a line of its own that ends in a colon; variables in comments.
    """
    assert _observe.parse_dep_info(text) == (files, variables)


@pytest.mark.parametrize(
    ("root", "path", "absolute", "name"),
    [
        pytest.param("w", "w/a/x.txt", True, "a/x.txt", id="inside"),
        pytest.param("w", "w/a/../x.txt", False, "x.txt", id="inside, by a detour"),
        pytest.param("w", "w/a/../../x.txt", False, "../x.txt", id="beside, as written"),
        pytest.param("w", "x.txt", True, "{top}/x.txt", id="beside, as absolute"),
        pytest.param("link", "w/a/x.txt", True, "a/x.txt", id="inside, and the root is a link"),
        pytest.param("w", "w/way/../x.txt", False, "way/../x.txt", id="behind a link"),
    ],
)
def test_a_path_is_called_so_that_a_copy_finds_its_own(
    tmp_path: Path, root: str, path: str, absolute: bool, name: str
) -> None:
    """
    From the workspace root on, unless the build named it otherwise; a `..` behind a link is left alone.
    """
    top = tmp_path.resolve()
    (top / "w/a").mkdir(parents=True)
    (top / "elsewhere/deep").mkdir(parents=True)
    (top / "elsewhere/x.txt").touch()
    (top / "link").symlink_to("w")
    (top / "w/way").symlink_to("../elsewhere/deep")

    found = _seen.name_of_file(str(top / path), str(top / root), given_as_absolute=absolute)
    assert found == _seen.FILE + name.format(top=top)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "folder/deep").mkdir(parents=True)
    (tmp_path / "file").write_text("1")
    (tmp_path / "folder/deep/one").write_text("1")
    return tmp_path


NAMES = (
    "seen/file/file",
    "seen/file/folder",
    "seen/file/nothing",
    "seen/env/SET",
    "seen/env/UNSET",
    "seen/place/folder",
)


def see(tree: Path, **environment: str) -> Sight:
    return Sight(str(tree), {"SET": "value", **environment})


def test_what_is_as_it_was_holds(tree: Path) -> None:
    """
    Every kind of name; looked at again by somebody else.
    """
    seen = see(tree).record(NAMES)

    assert set(seen) == set(NAMES)
    assert see(tree).holds(seen)
    assert see(tree).now(seen) == seen
    assert seen["seen/file/nothing"] == "nothing"
    assert seen["seen/env/UNSET"] == "unset"
    assert "value" not in str(seen)


@pytest.mark.parametrize(
    ("what", "act"),
    [
        ("seen/file/file", lambda tree: (tree / "file").write_text("2")),
        ("seen/file/file", lambda tree: (tree / "file").unlink()),
        ("seen/file/nothing", lambda tree: (tree / "nothing").touch()),
        ("seen/file/nothing", lambda tree: (tree / "nothing").mkdir()),
        ("seen/file/folder", lambda tree: (tree / "folder/deep/two").touch()),
        ("seen/file/folder", lambda tree: (tree / "folder/module.py").touch()),
        ("seen/file/folder", lambda tree: (tree / "folder/deep/one").rename(tree / "folder/one")),
        ("seen/file/folder", lambda tree: (tree / "folder/deep/one").write_text("2")),
        ("seen/file/folder", lambda tree: (tree / "folder/empty").mkdir()),
        ("seen/file/folder", lambda tree: (tree / "folder/nowhere").symlink_to("nothing")),
        pytest.param("seen/file/folder", lambda tree: os.mkfifo(tree / "folder/pipe"), marks=needs_fifo),
    ],
    ids=[
        *(
            "edited",
            "gone",
            "there now",
            "a folder now",
            "a file more",
            "a Python file more",
            "moved inside",
            "edited inside",
        ),
        *("an empty folder more", "a link to nothing more", "a pipe more"),
    ],
)
def test_whatever_moves_does_not_hold(tree: Path, what: str, act: object) -> None:
    """
    And of all names that one alone.
    """
    seen = see(tree).record(NAMES)
    assert callable(act)
    act(tree)

    now = see(tree).now(seen)
    assert [name for name in seen if now[name] != seen[name]] == [what]
    assert not see(tree).holds(seen)


@pytest.mark.parametrize(
    ("environment", "what"),
    [({"SET": "other"}, ["seen/env/SET"]), ({"SET": ""}, ["seen/env/SET"]), ({"UNSET": ""}, ["seen/env/UNSET"])],
)
def test_a_variable_is_its_value(tree: Path, environment: dict[str, str], what: list[str]) -> None:
    """
    Empty is not unset.
    """
    seen = see(tree).record(NAMES)
    now = see(tree, **environment).now(seen)

    assert [name for name in seen if now[name] != seen[name]] == what


@pytest.mark.parametrize(
    "name", ["folder/deep/.one.swp", "folder/one~", "folder/.git/HEAD", "folder/target/CACHEDIR.TAG", "folder/target/x"]
)
def test_droppings_in_a_folder_are_nothing(tree: Path, name: str) -> None:
    """
    Editors, version control and target folders come and go without a build.
    """
    (tree / "folder/target").mkdir()
    (tree / "folder/target/CACHEDIR.TAG").touch()
    seen = see(tree).record(NAMES)
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text("new")

    assert see(tree).holds(seen)


@needs_fifo
def test_a_pipe_is_not_read(tree: Path) -> None:
    """
    Whoever waits at its other end is left waiting.
    """
    os.mkfifo(tree / "pipe")
    assert see(tree).record(["seen/file/pipe"]) == {"seen/file/pipe": "no regular file"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seen/env/SET", "value"),
        ("seen/env/SET", "keyed"),
        ("seen/env/SET", "keyed:"),
        ("seen/env/SET", "keyed:zz:00"),
        ("seen/env/SET", f"keyed:{'00' * 65}:00"),
        ("seen/file/a\0b", ""),
        ("seen/file/\ud800", ""),
        ("seen/place/\ud800", ""),
        ("seen/env/\ud800", ""),
        ("seen/future/x", "1"),
        ("", ""),
    ],
)
def test_what_is_not_understood_does_not_hold(tree: Path, name: str, value: str) -> None:
    """
    A manifest of tomorrow, or a torn one: a miss, never an error.
    """
    assert not see(tree).holds({name: value})


def test_a_moment_is_one(tree: Path) -> None:
    """
    What was looked at once is not looked at again by the same decision.
    """
    sight = see(tree)
    seen = sight.record(NAMES)
    (tree / "file").write_text("2")

    assert sight.holds(seen)
    assert not see(tree).holds(seen)


def test_what_binds_to_a_host(tmp_path: Path) -> None:
    """
    Variables that are set, places, and paths that do not count from the workspace.
    """
    names = [
        "seen/file/a",
        "seen/file/../b",
        "seen/env/UNSET",
        f"seen/file/{tmp_path}/c",
        "seen/env/SET",
        "seen/place/p",
    ]
    seen = {name: see(tmp_path).record([name])[name] for name in names}
    assert _seen.host_bound(seen) == names[3:]
    assert _seen.variables(seen) == ["UNSET", "SET"]


@pytest.mark.parametrize(
    ("name", "local", "foreign"),
    [
        ("MY_FLAVOUR", False, False),
        ("OPENSSL_DIR", False, False),
        ("CARGO_MY_OWN", False, False),
        ("PATH", False, True),
        ("HOME", False, True),
        ("LC_ALL", False, True),
        ("RUSTFLAGS", True, True),
        ("CFLAGS", True, True),
        ("CC_x86_64-unknown-linux-gnu", True, True),
        ("CARGO_PROFILE_RELEASE_LTO", True, True),
        ("OUT_DIR", True, True),
        ("CARGO_CFG_TARGET_OS", True, True),
        ("CARGO_PKG_VERSION", True, True),
        ("TARGET", True, True),
        ("RUSTC", True, True),
        ("VIRTUAL_ENV", True, True),
        ("PYO3_PYTHON", True, True),
        ("PYO3_CROSS", False, False),
    ],
)
def test_which_variables_are_accounted_for(name: str, local: bool, foreign: bool) -> None:
    """
    Facts, what cargo sets and what never reaches a build; of fetched packages also what differs between shells.
    """
    assert (_environment.is_accounted_for(name, foreign=False), _environment.is_accounted_for(name, foreign=True)) == (
        local,
        foreign,
    )


LOCAL = "path+file:///w/alpha#0.1.0"
FETCHED = "registry+https://example.invalid/index#openssl@1.2.3"


def ran(tmp_path: Path, output: str | None, *, package: str, dep_info: str | None = "") -> list[_observe.Package]:
    """
    What is observed of one package that was compiled and ran a build script.
    """
    home = tmp_path / ("w/alpha" if package == LOCAL else "home/registry/src/openssl")
    deps, out = tmp_path / "target/deps", tmp_path / "target/build/x/out"
    for folder in (home, deps, out):
        folder.mkdir(parents=True)
    if output is not None:
        (out.parent / "output").write_text(output)
    if dep_info is not None:
        (deps / "alpha-0.d").write_text(dep_info)
    artifact = Artifact(
        package, str(home / "Cargo.toml"), "alpha", ("lib",), (str(deps / "libalpha-0.rlib"),), fresh=False
    )
    script = BuildScript(package, str(out), ("MADE",))
    result = CargoResult(True, (artifact,), "", "", (), 0, "", scripts=(script,))
    root = str(tmp_path / "w")
    hashed = {os.path.join(root, "alpha", "build.rs")}
    return _observe.observe(
        result,
        _observe.Surroundings(root, str(tmp_path / "target"), (str(tmp_path / "home/registry"),), hashed, {"DECLARED"}),
    )


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("cargo:rerun-if-changed=data", {"seen/file/alpha/data"}),
        ("cargo::rerun-if-changed=../data", {"seen/file/data"}),
        ("cargo::rerun-if-changed=build.rs", set()),
        ("cargo::rerun-if-changed=../../target/out.txt", set()),
        ("cargo::rerun-if-changed=/etc/hosts", {"seen/file//etc/hosts"}),
        ("cargo::rerun-if-env-changed=X", {"seen/env/X"}),
        ("cargo::rerun-if-env-changed=PATH", {"seen/env/PATH"}),
        ("cargo::rerun-if-env-changed=DECLARED", set()),
        ("cargo::rerun-if-env-changed=TARGET", set()),
        ("cargo::rerun-if-other=x", set()),
        ("rerun-if-changed=x", set()),
        ("  cargo::rerun-if-changed=x", {"seen/file/alpha/x"}),
        ("cargo::rerun-if-changed= x  ", {"seen/file/alpha/ x"}),
        ("cargo::rerun-if-changed=x\r", {"seen/file/alpha/x"}),
        ("cargo::rerun-if-changed=", {"seen/file/alpha"}),
        ("cargo::rerun-if-changed=..", {"seen/file/."}),
        ("cargo::rerun-if-changed={w}", {"seen/file/."}),
        ("cargo::rerun-if-changed={w}/x", {"seen/file/x"}),
        ("cargo::rerun-if-changed={w}er/x", {"seen/file/{w}er/x", "seen/place/."}),
    ],
)
def test_what_a_build_script_of_ours_asks_for(tmp_path: Path, line: str, names: set[str]) -> None:
    """
    Lines as cargo reads them, paths from its package's folder on; nothing that is a fact or an output.

    An absolute path near the workspace may have been found from there: another checkout's would be another.
    """
    w = str(tmp_path / "w")
    (package,) = ran(tmp_path, f"noise\n{line.replace('{w}', w)}\n", package=LOCAL)
    assert (package.names, package.unknown, package.spec) == (
        {name.replace("{w}", w) for name in names},
        [],
        "alpha@0.1.0",
    )


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("cargo:rerun-if-changed=wrapper.h", set()),
        ("cargo:rerun-if-changed=/usr/include/openssl", {"seen/file//usr/include/openssl"}),
        ("cargo:rerun-if-env-changed=OPENSSL_DIR", {"seen/env/OPENSSL_DIR"}),
        ("cargo:rerun-if-env-changed=PATH", set()),
    ],
)
def test_what_a_fetched_build_script_asks_for(tmp_path: Path, line: str, names: set[str]) -> None:
    """
    The lockfile pins what lies in its package, and nothing else.
    """
    (package,) = ran(tmp_path, f"{line}\n", package=FETCHED, dep_info="nothing of it:\n")
    assert (package.names, package.key) == (names, "openssl@1.2.3")


def test_what_rustc_says_of_a_package_of_ours(tmp_path: Path) -> None:
    """
    Its variables without those of its build script, and where it was told that it lies.
    """
    text = (
        "alpha/build.rs:\nalpha/../notes.txt:\n# env-dep:X=1\n# env-dep:MADE=1\n# env-dep:CARGO_MANIFEST_DIR=/w/alpha\n"
    )
    (package,) = ran(tmp_path, "", package=LOCAL, dep_info=text)
    assert package.names == {"seen/file/notes.txt", "seen/env/X", "seen/place/alpha"}


def test_what_was_not_left_behind_is_said(tmp_path: Path) -> None:
    """
    Not silence: somebody may wonder why an edit is not seen.
    """
    (package,) = ran(tmp_path, None, package=LOCAL, dep_info=None)
    assert [gap.rpartition(": ")[2] for gap in package.unknown] == [
        "No such file or directory",
        "the compiler wrote no dep-info",
    ]


def test_a_target_folder_knows_what_it_was_compiled_from(tree: Path) -> None:
    """
    Unknown until settled; afterwards outdated as soon as a digest or an undeclared file differs, and only if cargo knows it.
    """
    ours = PathPackage("ours", "0.1.0", tree / "ours", "d1")
    moved = PathPackage("ours", "0.1.0", tree / "ours", "d2")
    state = TargetState(tree, "release")
    locked = {"ours", "openssl"}

    def outdated(package: PathPackage, *, all_of_them: bool = False) -> list[str]:
        return state.outdated([package], locked, see(tree), all_of_them=all_of_them)

    assert (state.is_known(), outdated(ours)) == (False, [])
    state.unsettle([ours])
    assert (state.is_known(), outdated(ours)) == (True, ["ours"])
    state.settle(
        [ours],
        {str(tree / "ours"): see(tree).record(["seen/file/file"]), "openssl@1": see(tree).record(["seen/file/folder"])},
    )
    assert outdated(ours) == []
    assert outdated(moved) == ["ours"]
    assert outdated(ours, all_of_them=True) == ["openssl@1", "ours"]
    assert TargetState(tree, "dev").outdated([moved], locked, see(tree), all_of_them=True) == []
    assert state.seen_files(see(tree)) >= {str(tree / "file"), str(tree / "folder/deep/one")}

    (tree / "file").write_text("2")
    assert outdated(ours) == ["ours"]
    (tree / "folder/new").touch()
    assert outdated(ours) == ["openssl@1", "ours"]
    locked.remove("openssl")
    assert outdated(ours) == ["ours"]
    state.unsettle([ours])
    locked.add("openssl")
    assert outdated(ours) == ["openssl@1", "ours"]


def test_a_damaged_state_is_none(tree: Path) -> None:
    """
    Whichever bit is flipped: half a state would hide a package that must be cleaned.
    """
    state = TargetState(tree, "release")
    state.settle(
        [PathPackage("ours", "0.1.0", tree / "ours", "d1")], {str(tree / "ours"): see(tree).record(["seen/file/file"])}
    )
    path = tree / "rust-ext-state.json"
    whole = path.read_bytes()
    assert state.is_known()

    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert not state.is_known(), position
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert not state.is_known(), length
    path.write_bytes(whole)
    assert state.is_known()
