"""
Modules that are linked to shared libraries, which may disappear, come back or change their names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import Checkout
from processes import run_script, tool

SOURCE = """
#[link(name = "one")]
unsafe extern "C" {
    fn one() -> std::ffi::c_int;
}
#[link(name = "two")]
unsafe extern "C" {
    fn two() -> std::ffi::c_int;
}
// SAFETY: they take nothing and do nothing.
pymod::module!(PyInit_alpha, "alpha", format!("{}", unsafe { one() + two() }));
"""


class Libraries:
    """
    Two libraries, in a folder for the linker and in another one for the dynamic linker.
    """

    def __init__(self, checkout: Checkout) -> None:
        self.linked, self.installed = checkout.cache.parent / "linked", checkout.cache.parent / "installed"
        self.linked.mkdir()
        self.installed.mkdir()
        for name in ("one", "two"):
            self.make(name, f"lib{name}.so.1")
        checkout.write("alpha/src/lib.rs", SOURCE)
        checkout.environment["RUSTFLAGS"] = f"-L{self.linked} -Clink-arg=-Wl,-rpath,{self.installed}"

    def make(self, name: str, called: str, *needs: str) -> None:
        """
        Compile and install a library whose function returns 1, with `called` as its soname.
        """
        source = self.linked / f"{name}.c"
        source.write_text(f"int {name}(void) {{ return 1; }}\n")
        options = ["-shared", "-fPIC", f"-Wl,-soname,{called}", "-Wl,--no-as-needed", f"-L{self.linked}"]
        subprocess.run(["cc", *options, "-o", self.linked / f"lib{name}.so", source, *needs], check=True)
        shutil.copy(self.linked / f"lib{name}.so", self.installed / called)


@pytest.fixture
def libraries(plain: Checkout) -> Libraries:
    if tool("cc") is None:
        pytest.skip("no C compiler")
    return Libraries(plain)


def test_all_missing_libraries_are_named(plain: Checkout, libraries: Libraries) -> None:
    """
    The error names every missing library. The module is rebuilt once, and not again by the next process.
    """
    assert plain.load().value == "2"
    for library in libraries.installed.iterdir():
        library.unlink()

    first, second = plain.load(), plain.load()

    for failed in (first, second):
        assert (failed.reason, failed.in_sys_modules) == ("library-missing", False)
        assert "but libraries it needs are missing: libone.so.1, libtwo.so.1; install them" in str(failed.error)
    assert [first.compiled, second.compiled] == [["alpha"], []]
    assert (len(first.warnings), second.warnings) == (1, ())


def test_a_module_loads_once_its_library_is_back(plain: Checkout, libraries: Libraries) -> None:
    """
    Once a missing library is back, the module loads in the process whose import failed, without a build.
    """
    plain.load()
    text = f"""
import pathlib, warnings
from rust_ext_loader import LibraryMissing, load_rust_extension

warnings.simplefilter("ignore")
library = pathlib.Path({os.fspath(libraries.installed / "libone.so.1")!r})
bytes = library.read_bytes()
library.unlink()
try:
    load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r})
except LibraryMissing as error:
    library.write_bytes(bytes)
    print(error.missing, load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r}).value)
"""
    assert run_script(plain, text) == "('libone.so.1',) 2\n"
    assert plain.load().cargo == ()


def test_a_library_with_a_new_soname_is_linked_by_a_rebuild(plain: Checkout, libraries: Libraries) -> None:
    """
    A system upgrade replaces a library by one with another soname. Each time the module is rebuilt and then loads.
    """
    for version in (1, 2, 3):
        if version > 1:
            libraries.make("one", f"libone.so.{version}")
            (libraries.installed / f"libone.so.{version - 1}").unlink()

        upgraded, after = plain.load(), plain.load()

        assert (upgraded.value, upgraded.compiled) == ("2", ["alpha"])
        assert (after.value, after.cargo, after.warnings) == ("2", (), ())


def test_a_missing_library_of_a_library_is_named(plain: Checkout, libraries: Libraries) -> None:
    """
    The module needs one library, which needs another one. If the second is missing, the error names it.
    """
    libraries.make("deep", "libdeep.so.1")
    libraries.make("two", "libtwo.so.1", "-ldeep", f"-Wl,-rpath,{libraries.installed}")
    assert plain.load().value == "2"
    (libraries.installed / "libdeep.so.1").unlink()

    failed = plain.load(mode="never")

    assert failed.reason == "library-missing"
    assert "missing: libdeep.so.1;" in str(failed.error)
    assert Path(str(failed.error).partition("(")[2].partition(")")[0]).exists()
