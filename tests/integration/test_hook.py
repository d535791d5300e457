"""
`import fx.alpha` in a plain interpreter, with what an editable install leaves in its site folder.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hooked import SETTLED, WARM, Editable

if TYPE_CHECKING:
    from pathlib import Path

    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"
IMPORT = "import fx.alpha; print(fx.alpha.value)"
#: What the start of an interpreter does that skips none of it.
IN_ITS_ENVIRONMENT = "import site; site.venv(set())"


def test_a_first_import_builds_and_later_ones_are_plain(plain: Checkout) -> None:
    """
    Once built, an import starts no process and loads nothing that a plain interpreter would not.
    """
    editable = Editable(plain)

    cold = editable.run(f"{SETTLED}\n{IMPORT}")
    warm = editable.run(IMPORT)

    assert (cold.out, cold.error) == (ALPHA, "")
    assert [call[0] for call in cold.cargo] == ["rustc"]
    assert (warm.out, warm.error) == (ALPHA, "")
    assert (warm.spawned, warm.cargo) == ((), ())
    assert warm.imported <= WARM


@pytest.mark.parametrize(
    ("broken", "kind", "ours"),
    [
        pytest.param(
            "alpha/src/lib.rs", "BuildFailed", ["create_module", "locate", "_without_frames"], id="compile error"
        ),
        pytest.param("alpha/Cargo.toml", "ManifestError", ["find_spec", "_without_frames"], id="broken manifest"),
    ],
)
def test_a_failed_import_shows_the_failure_and_not_our_insides(
    plain: Checkout, broken: str, kind: str, ours: list[str]
) -> None:
    """
    Below the line that imports come a few frames of the hook, then the message.
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

    assert ran.out.split() == [kind, *ours]


def test_a_foreign_import_costs_nothing(plain: Checkout) -> None:
    """
    A name outside the prefixes, found or not, loads nothing of ours.
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
    Asking whether an extension exists starts no process, writes nothing and says yes.
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


def test_a_module_knows_where_it_came_from(plain: Checkout) -> None:
    """
    Name, file, spec and loader are an ordinary extension's, and the parent has it as an attribute.
    """
    ran = Editable(plain).run("""
        from fx import alpha
        import importlib.machinery
        spec = alpha.__spec__
        print(alpha.__name__, alpha.__package__, spec.name, spec.origin == alpha.__file__, spec.has_location, spec.parent)
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
        pytest.param("fx.nothing", "No module named 'fx.nothing'", id="nobody declares it"),
        pytest.param(
            "fx.alpha.deeper", "No module named 'fx.alpha.deeper'; 'fx.alpha' is not a package", id="below an extension"
        ),
    ],
)
def test_what_nobody_declares_is_pythons_own_error(plain: Checkout, name: str, error: str) -> None:
    """
    A name under the prefix that no crate declares fails as if there were no hook.
    """
    ran = Editable(plain).run(f"import {name}")

    assert ran.types[0] == "ModuleNotFoundError"
    assert ran.error == error


def test_ordinary_modules_beside_extensions_are_left_alone(plain: Checkout) -> None:
    """
    A Python module under the same prefix is imported as ever.
    """
    editable = Editable(plain)
    (editable.package / "ordinary.py").write_text("value = 'python'\n")

    ran = editable.run("import fx.ordinary; print(fx.ordinary.value)")

    assert ran.out == "python"
    assert ran.cargo == ()


def test_a_broken_member_does_not_take_ordinary_modules_along(plain: Checkout) -> None:
    """
    With a broken manifest: Python modules import, the other extensions import, and only a name that nobody provides tells of it.
    """
    editable = Editable(plain)
    (editable.package / "ordinary.py").write_text("value = 'python'\n")
    plain.write("beta/Cargo.toml", "[package\n")

    assert editable.run("import fx.ordinary; print(fx.ordinary.value)").out == "python"
    ran = editable.run("import fx.beta")

    assert ran.types[:2] == ("ManifestError", "RustExtensionError")
    assert "beta/Cargo.toml, line 1" in ran.error


def test_a_workspace_that_is_gone_is_nobodys(plain: Checkout) -> None:
    """
    An editable install whose checkout was removed harms nobody: its names are unknown, and whoever asks for one is told why.
    """
    gone = plain.root / "gone"
    ran = Editable(plain, workspace=gone).run("import fx.alpha")

    assert (ran.types[0], ran.error) == ("ModuleNotFoundError", "No module named 'fx.alpha'")
    assert (
        f"fx.alpha: the workspace of its editable install is gone ({gone}); if it has moved, install the project again"
        in ran.stderr
    )


@pytest.mark.parametrize("workspace", ["project", "project/rust"], ids=["the project itself", "a folder of it"])
def test_a_project_that_moved_with_its_environment_is_found_again(
    built: Checkout, tmp_path: Path, workspace: str
) -> None:
    """
    The install names a folder that is gone; the project above the interpreter's own environment declares the module.
    """
    home = tmp_path / "project"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / ".venv"], check=True)
    shutil.copytree(built.root, tmp_path / workspace, dirs_exist_ok=True)
    moved = home.rename(tmp_path / "elsewhere")
    checkout = dataclasses.replace(built, python=str(moved / ".venv/bin/python"))
    editable = Editable(checkout, workspace=tmp_path / workspace)

    ran = editable.run(
        f"{IN_ITS_ENVIRONMENT}; import fx.alpha, rust_ext_loader; print(fx.alpha.value, bool(rust_ext_loader.can_load('fx.alpha')))"
    )
    assert (ran.out, ran.error, ran.stderr) == ("alpha-1 part-1 middle-1 True", "", "")


def test_a_project_of_somebody_else_is_not_taken_for_it(plain: Checkout, tmp_path: Path) -> None:
    """
    Beside an environment that lies in everybody's folder anybody could put one.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    planted = plain.root.rename(tmp_path / "planted")
    planted.chmod(0o777)
    checkout = dataclasses.replace(plain, python=str(tmp_path / "venv/bin/python"), root=planted)

    ran = Editable(checkout, workspace=tmp_path / "gone" / "planted").run(f"{IN_ITS_ENVIRONMENT}; import fx.alpha")
    assert ran.types[0] == "ModuleNotFoundError"


def test_a_name_that_lives_elsewhere_by_now_needs_no_workspace(plain: Checkout) -> None:
    """
    What an ordinary install provides is imported without a word about the editable one before it.
    """
    editable = Editable(plain, workspace=plain.root / "gone")
    (editable.package / "alpha.py").write_text("value = 'python'\n", encoding="utf-8")
    ran = editable.run("import fx.alpha; print(fx.alpha.value)")

    assert (ran.out, ran.stderr) == ("python", "")


def test_an_unknown_mode_is_refused_first(plain: Checkout) -> None:
    """
    A slip in the variable is an error of the import, before anything is looked at.
    """
    ran = Editable(plain, workspace=plain.root / "gone").run("import fx.alpha", {"SGLANG_RUST_BUILD_MODE": "maybe"})

    assert ran.types[:2] == ("SettingError", "RustExtensionError")
    assert "ValueError" in ran.types
    assert ran.error == "SGLANG_RUST_BUILD_MODE='maybe' is not understood; expected one of auto, never, force"


def test_a_failed_import_leaves_no_module(plain: Checkout) -> None:
    """
    When its build fails the module is not in `sys.modules` and not on its parent; mended, it imports in the same process.
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


def test_the_public_call_knows_the_registered_workspace(plain: Checkout) -> None:
    """
    Without a workspace of its own, `load_rust_extension` asks the editable install that registered the prefix.
    """
    ran = Editable(plain).run("""
        import rust_ext_loader
        print(rust_ext_loader.load_rust_extension("fx.alpha").value)
        print(bool(rust_ext_loader.can_load("fx.beta")), bool(rust_ext_loader.can_load("other.beta")))
    """)

    assert ran.out.splitlines() == [ALPHA, "True False"]


def test_the_extension_comes_before_a_module_of_the_same_name(plain: Checkout) -> None:
    """
    What a crate declares is not shadowed by a Python file that lies about.
    """
    editable = Editable(plain)
    (editable.package / "alpha.py").write_text("value = 'python'\n")

    assert editable.run(IMPORT).out == ALPHA
