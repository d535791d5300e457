"""
`import fx.alpha` in a plain interpreter, through the `.pth` file of an editable install.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from editable_install import RECORD_AT_ONCE, WARM_MODULES, Editable

if TYPE_CHECKING:
    from pathlib import Path

    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"
IMPORT = "import fx.alpha; print(fx.alpha.value)"
#: Sets `sys.prefix` to the venv, as the start of an interpreter does without `-S`.
PROCESS_VENV = "import site; site.venv(set())"


def test_a_first_import_builds_and_later_ones_are_plain(plain: Checkout) -> None:
    """
    Once the module is built, an import starts no process and loads only the modules listed for a warm import.
    """
    editable = Editable(plain)

    cold = editable.run(f"{RECORD_AT_ONCE}\n{IMPORT}")
    warm = editable.run(IMPORT)

    assert (cold.out, cold.error) == (ALPHA, "")
    assert [call[0] for call in cold.cargo] == ["rustc"]
    assert (warm.out, warm.error) == (ALPHA, "")
    assert (warm.spawned, warm.cargo) == ((), ())
    assert warm.imported <= WARM_MODULES


@pytest.mark.parametrize(
    ("broken", "kind", "frames"),
    [
        pytest.param(
            "alpha/src/lib.rs",
            "BuildFailed",
            ["create_module", "locate", "locate", "_without_frames"],
            id="compile error",
        ),
        pytest.param(
            "alpha/Cargo.toml",
            "ManifestError",
            ["find_spec", "find_unrecorded", "_without_frames"],
            id="broken manifest",
        ),
    ],
)
def test_the_traceback_of_a_failed_import_is_short(plain: Checkout, broken: str, kind: str, frames: list[str]) -> None:
    """
    The traceback shows only a few frames of the hook between the import statement and the message.
    """
    editable = Editable(plain)
    plain.write(broken, "][")
    ran = editable.run("""
        import traceback
        try:
            import fx.alpha
        except ImportError as error:
            frames = traceback.extract_tb(error.__traceback__)
            print(type(error).__name__, *(frame.name for frame in frames if "rust_ext_loader" in frame.filename))
    """)

    assert ran.out.split() == [kind, *frames]


def test_an_import_outside_the_prefixes_loads_nothing(plain: Checkout) -> None:
    """
    An import of a name outside the prefixes loads no module of the toolkit, whether it is found or not.
    """
    ran = Editable(plain).run("""
        import colorsys
        try:
            import fxx
        except ModuleNotFoundError as error:
            print(error)
    """)

    assert ran.out == "No module named 'fxx'"
    assert {name for name in ran.imported if name.startswith("rust_ext_loader")} == set()


def test_find_spec_never_builds(plain: Checkout) -> None:
    """
    `find_spec` for an extension returns a spec without starting a process or writing a file.
    """
    editable = Editable(plain)
    ran = editable.run("""
        import importlib.util
        spec = importlib.util.find_spec("fx.alpha")
        print(spec.name, spec.origin, type(spec.loader).__name__, "fx.alpha" in sys.modules)
    """)

    assert ran.out == "fx.alpha None RustExtensionLoader False"
    assert ran.spawned == ()
    assert not plain.cache.exists()


def test_a_module_has_the_attributes_of_an_extension(plain: Checkout) -> None:
    """
    Name, file, spec and loader are those of an ordinary extension, and the parent has it as an attribute.
    """
    ran = Editable(plain).run("""
        from fx import alpha
        import importlib.machinery
        spec = alpha.__spec__
        print(alpha.__name__, alpha.__package__, spec.name, end=" ")
        print(spec.origin == alpha.__file__, spec.has_location, spec.parent)
        print(isinstance(alpha.__loader__, importlib.machinery.ExtensionFileLoader), spec.loader is alpha.__loader__)
        print(alpha is sys.modules["fx"].alpha is sys.modules["fx.alpha"])
        print(alpha.__loader__.get_filename("fx.alpha") == alpha.__file__)
        print(alpha.__file__)
    """)
    *facts, file = ran.out.splitlines()

    assert facts == ["fx.alpha fx fx.alpha True True fx", "True True", "True", "True"]
    assert file.startswith(str(plain.cache / "artifacts" / "fx.alpha"))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param("fx.nothing", "No module named 'fx.nothing'", id="not declared"),
        pytest.param(
            "fx.alpha.deeper", "No module named 'fx.alpha.deeper'; 'fx.alpha' is not a package", id="below an extension"
        ),
    ],
)
def test_an_undeclared_name_fails_with_pythons_own_error(plain: Checkout, name: str, error: str) -> None:
    """
    An undeclared name under the prefix fails with the error that Python raises without the hook.
    """
    ran = Editable(plain).run(f"import {name}")

    assert ran.types[0] == "ModuleNotFoundError"
    assert ran.error == error


def test_ordinary_modules_beside_extensions_are_left_alone(plain: Checkout) -> None:
    """
    A Python module under the same prefix is imported as without the hook.
    """
    editable = Editable(plain)
    (editable.package / "ordinary.py").write_text("value = 'python'\n")

    ran = editable.run("import fx.ordinary; print(fx.ordinary.value)")

    assert ran.out == "python"
    assert ran.cargo == ()


def test_a_broken_member_does_not_affect_other_modules(plain: Checkout) -> None:
    """
    A broken manifest affects only imports that find no module: Python modules and other extensions still import.
    """
    editable = Editable(plain)
    (editable.package / "ordinary.py").write_text("value = 'python'\n")
    plain.write("beta/Cargo.toml", "[package\n")

    assert editable.run("import fx.ordinary; print(fx.ordinary.value)").out == "python"
    ran = editable.run("import fx.beta")

    assert ran.types[:2] == ("ManifestError", "RustExtensionError")
    assert "beta/Cargo.toml, line 1" in ran.error


def test_a_missing_workspace_is_reported_on_import(plain: Checkout) -> None:
    """
    After the checkout of an editable install was removed, an import of its module fails and names the reason.
    """
    gone = plain.root / "gone"
    ran = Editable(plain, workspace=gone).run("import fx.alpha")

    assert (ran.types[0], ran.error) == ("ModuleNotFoundError", "No module named 'fx.alpha'")
    assert (
        f"fx.alpha: the workspace of its editable install does not exist ({gone}); if it was moved, install the "
        "project again" in ran.stderr
    )


@pytest.mark.parametrize("workspace", ["project", "project/rust"], ids=["the project itself", "a folder of it"])
def test_a_project_that_moved_with_its_environment_is_found_again(
    built: Checkout, tmp_path: Path, workspace: str
) -> None:
    """
    The folder named in the install is missing. The module is found in the project above the interpreter's own venv.
    """
    home = tmp_path / "project"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / ".venv"], check=True)
    shutil.copytree(built.root, tmp_path / workspace, dirs_exist_ok=True)
    moved = home.rename(tmp_path / "elsewhere")
    checkout = dataclasses.replace(built, python=str(moved / ".venv/bin/python"))
    editable = Editable(checkout, workspace=tmp_path / workspace)

    ran = editable.run(
        f"{PROCESS_VENV}; import fx.alpha, rust_ext_loader; "
        "print(fx.alpha.value, bool(rust_ext_loader.can_load('fx.alpha')))"
    )
    assert (ran.out, ran.error, ran.stderr) == ("alpha-1 part-1 middle-1 True", "", "")


def test_a_project_writable_by_others_is_not_used(plain: Checkout, tmp_path: Path) -> None:
    """
    A project beside the venv is not used if other users can write to it: they could have planted it.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    planted = plain.root.rename(tmp_path / "planted")
    planted.chmod(0o777)
    checkout = dataclasses.replace(plain, python=str(tmp_path / "venv/bin/python"), root=planted)

    ran = Editable(checkout, workspace=tmp_path / "gone" / "planted").run(f"{PROCESS_VENV}; import fx.alpha")
    assert ran.types[0] == "ModuleNotFoundError"


def test_an_ordinary_install_needs_no_workspace(plain: Checkout) -> None:
    """
    A module of an ordinary install is imported without a message about the missing workspace.
    """
    editable = Editable(plain, workspace=plain.root / "gone")
    (editable.package / "alpha.py").write_text("value = 'python'\n", encoding="utf-8")
    ran = editable.run("import fx.alpha; print(fx.alpha.value)")

    assert (ran.out, ran.stderr) == ("python", "")


def test_an_unknown_mode_is_refused_first(plain: Checkout) -> None:
    """
    An invalid mode in the variable is the error of the import, before the workspace is read.
    """
    ran = Editable(plain, workspace=plain.root / "gone").run("import fx.alpha", {"SGLANG_RUST_BUILD_MODE": "maybe"})

    assert ran.types[:2] == ("SettingError", "RustExtensionError")
    assert "ValueError" in ran.types
    assert ran.error == "SGLANG_RUST_BUILD_MODE='maybe' is invalid; expected one of auto, never, force"


def test_a_failed_import_leaves_no_module(plain: Checkout) -> None:
    """
    After a failed build no module is in `sys.modules` or on its parent. Once fixed, it imports in the same process.
    """
    good = (plain.root / "alpha/src/lib.rs").read_text()
    plain.write("alpha/src/lib.rs", "nonsense")
    ran = Editable(plain).run(f"""
        try:
            import fx.alpha
        except ImportError as error:
            print(type(error).__name__, "fx.alpha" in sys.modules, hasattr(sys.modules["fx"], "alpha"))
        open({str(plain.root / "alpha/src/lib.rs")!r}, "w").write({good!r})
        {IMPORT}
    """)

    assert ran.out.splitlines() == ["BuildFailed False False", ALPHA]


def test_the_public_call_uses_the_registered_workspace(plain: Checkout) -> None:
    """
    Without the argument `workspace`, `load_rust_extension` uses the editable install that registered the prefix.
    """
    ran = Editable(plain).run("""
        import rust_ext_loader
        print(rust_ext_loader.load_rust_extension("fx.alpha").value)
        print(bool(rust_ext_loader.can_load("fx.beta")), bool(rust_ext_loader.can_load("other.beta")))
    """)

    assert ran.out.splitlines() == [ALPHA, "True False"]


def test_an_extension_precedes_a_module_of_the_same_name(plain: Checkout) -> None:
    """
    A Python file of the same name does not shadow a declared extension.
    """
    editable = Editable(plain)
    (editable.package / "alpha.py").write_text("value = 'python'\n")

    assert editable.run(IMPORT).out == ALPHA
