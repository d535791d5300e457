"""
Unit tests of observing a build: which inputs its compilers and build scripts have read.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rust_ext_loader.build import _observe
from rust_ext_loader.build._cargo import CargoResult
from rust_ext_loader.build._messages import Artifact, BuildScript


@pytest.mark.parametrize(
    ("text", "files", "variables"),
    [
        pytest.param("t/liba.so: a/lib.rs\n\na/lib.rs:\n", ["a/lib.rs"], [], id="one file"),
        pytest.param("t/a.d: a/my\\ lib.rs\n\na/my\\ lib.rs:\n", ["a/my lib.rs"], [], id="a space"),
        pytest.param("a/../../x.txt:\n/abs/y.txt:\n", ["a/../../x.txt", "/abs/y.txt"], [], id="outside and absolute"),
        pytest.param("C:\\x\\y.rs:\n", ["C:\\x\\y.rs"], [], id="a drive letter"),
        pytest.param(
            "# env-dep:A=1\n# env-dep:B\n# env-dep:C=x=y:\n", [], ["A", "B", "C"], id="variables: set, unset, unusual"
        ),
        pytest.param("", [], [], id="nothing"),
        pytest.param("a/line\u2028sep.rs:\n", ["a/line\u2028sep.rs"], [], id="a Unicode line separator in a name"),
        pytest.param("a/\udcff.rs:\n", ["a/\udcff.rs"], [], id="a name that is not UTF-8"),
    ],
)
def test_parsing_of_dep_info(text: str, files: list[str], variables: list[str]) -> None:
    """
    In dep-info each file has a line that ends in a colon, and variables are in comments.
    """
    assert _observe.parse_dep_info(text) == (files, variables)


LOCAL = "path+file:///w/alpha#0.1.0"


FETCHED = "registry+https://example.invalid/index#openssl@1.2.3"


def observed(tmp_path: Path, output: str | None, *, package: str, dep_info: str | None = "") -> list[_observe.Package]:
    """
    The observed inputs of one package that was compiled and ran a build script.
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
        package=package,
        package_manifest=str(home / "Cargo.toml"),
        target_name="alpha",
        kinds=("lib",),
        filenames=(str(deps / "libalpha-0.rlib"),),
        fresh=False,
    )
    script = BuildScript(package, str(out), ("MADE",))
    result = CargoResult(
        succeeded=True,
        artifacts=(artifact,),
        output="",
        warnings="",
        command=(),
        status=0,
        problem="",
        scripts=(script,),
    )
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
def test_directives_of_a_local_build_script(tmp_path: Path, line: str, names: set[str]) -> None:
    """
    Lines are parsed as by cargo, paths are relative to the package, and facts and outputs are left out.

    An absolute path near the workspace may depend on the checkout's place, so another checkout may read another file.
    """
    w = str(tmp_path / "w")
    (package,) = observed(tmp_path, f"noise\n{line.replace('{w}', w)}\n", package=LOCAL)
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
def test_directives_of_a_fetched_build_script(tmp_path: Path, line: str, names: set[str]) -> None:
    """
    Files outside a fetched package are observed, because the lockfile pins only files inside it.
    """
    (package,) = observed(tmp_path, f"{line}\n", package=FETCHED, dep_info="unrelated:\n")
    assert (package.names, package.key) == (names, "openssl@1.2.3")


def test_dep_info_of_a_local_package(tmp_path: Path) -> None:
    """
    Dep-info gives files, variables that the build script does not set, and whether the package's path was read.
    """
    text = (
        "alpha/build.rs:\nalpha/../notes.txt:\n# env-dep:X=1\n# env-dep:MADE=1\n# env-dep:CARGO_MANIFEST_DIR=/w/alpha\n"
    )
    (package,) = observed(tmp_path, "", package=LOCAL, dep_info=text)
    assert package.names == {"seen/file/notes.txt", "seen/env/X", "seen/place/alpha"}


def test_missing_build_output_is_reported(tmp_path: Path) -> None:
    """
    Missing output is reported, so that a user can find out why an edit is not detected.
    """
    (package,) = observed(tmp_path, None, package=LOCAL, dep_info=None)
    script, library = package.unknown
    assert script.startswith("build script of alpha@0.1.0: ")
    assert script.endswith("output cannot be read (No such file or directory)")
    assert library.endswith("alpha@0.1.0: the compiler wrote no dep-info")
