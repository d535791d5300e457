"""
Test the distributions of the extension modules, built by their back end and installed in an empty site folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKSPACE = ROOT / "rust"


def python(code: str, cwd: Path, **variables: str) -> str:
    """
    Run code in a fresh interpreter and return its output.
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="needs the build back end")
    out = tmp_path_factory.mktemp("wheel")
    python(f"import hatchling.build as back_end; back_end.build_editable({str(out)!r})", WORKSPACE)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture
def site_folder(wheel: Path, tmp_path: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_only_an_editable_install_depends_on_the_toolkit(wheel: Path) -> None:
    """
    The editable wheel requires the toolkit; the project's own metadata does not.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (item for item in archive.namelist() if item.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(name).decode())

    assert "rust-ext-loader" in metadata.get_all("Requires-Dist", [])
    assert (
        "rust-ext-loader"
        not in (WORKSPACE / "pyproject.toml").read_text().partition("[project]")[2].partition("[tool")[0]
    )


def test_stub_imports_nothing_for_other_names(site_folder: Path) -> None:
    """
    Neither the start of the interpreter nor other imports import the toolkit.
    """
    printed = python(
        f"""
        import site, sys
        before = set(sys.modules)
        site.addsitedir({str(site_folder)!r})
        print(sorted(set(sys.modules) - before))
        import json, email.message
        try:
            import sglang.no_such_module
        except ModuleNotFoundError:
            pass
        print([name for name in sys.modules if name.startswith("rust_ext_loader")])
        print([finder.rust_ext_workspace for finder in sys.meta_path if hasattr(finder, "rust_ext_workspace")])
        """,
        site_folder,
        PYTHONPATH=str(ROOT),
    )

    assert printed.splitlines() == ["[]", "[]", str([str(WORKSPACE)])]


def test_python_packages_come_from_the_checkout(site_folder: Path) -> None:
    """
    The image processors are found in namespace packages, and importing them builds nothing.
    """
    printed = python(
        f"""
        import site, sys
        site.addsitedir({str(site_folder)!r})
        from sglang.srt.multimodal import deepseek_v41_image_processing
        from sglang.srt.multimodal.inkling import image_processing_rust
        print(deepseek_v41_image_processing.__file__, image_processing_rust.__file__, sep="\\n")
        print([name for name in sys.modules if name.startswith(("sglang.srt.rust_extensions", "torch"))])
        """,
        site_folder,
        PYTHONPATH=str(ROOT),
    )

    processors = WORKSPACE / "python/sglang/srt/multimodal"
    assert printed.splitlines() == [
        str(processors / "deepseek_v41_image_processing.py"),
        str(processors / "inkling/image_processing_rust.py"),
        "[]",
    ]


def test_declared_module_has_a_spec_before_it_is_built(site_folder: Path, tmp_path: Path) -> None:
    """
    `importlib.util.find_spec` finds the module without a cached build, and builds nothing.
    """
    cache = tmp_path / "cache"
    printed = python(
        f"""
        import importlib.util, site
        site.addsitedir({str(site_folder)!r})
        print(importlib.util.find_spec("sglang.srt.rust_extensions._multimodal").loader.__class__.__name__)
        print(importlib.util.find_spec("sglang.srt.rust_extensions._no_such"))
        """,
        site_folder,
        PYTHONPATH=str(ROOT),
        RUST_EXT_CACHE_DIR=str(cache),
    )

    assert printed.splitlines() == ["RustExtensionLoader", "None"]
    assert not list(cache.glob("artifacts/*"))


def test_standard_wheel_is_refused(tmp_path: Path) -> None:
    """
    A standard wheel is refused, because it would lack its extension modules.
    """
    pytest.importorskip("hatchling", reason="needs the build back end")
    printed = python(
        f"""
        import hatchling.build as back_end
        try:
            back_end.build_wheel({str(tmp_path)!r})
        except NotImplementedError as error:
            print(error)
        """,
        WORKSPACE,
    )

    assert printed.startswith("not supported yet: a standard wheel of sglang-rust-extensions")
    assert not list(tmp_path.iterdir())


def test_source_distribution_contains_the_toolkit(tmp_path: Path) -> None:
    """
    The build hook of an unpacked source distribution finds the toolkit inside it.
    """
    pytest.importorskip("hatchling", reason="needs the build back end")
    python(
        f"""
        import tarfile, hatchling.build as back_end
        with tarfile.open({str(tmp_path)!r} + "/" + back_end.build_sdist({str(tmp_path)!r})) as archive:
            archive.extractall({str(tmp_path)!r}, filter="data")
        """,
        WORKSPACE,
    )
    (unpacked,) = (item for item in tmp_path.iterdir() if item.is_dir())
    assert (unpacked / "python/sglang/srt/multimodal/inkling/image_processing_rust.py").is_file()
    wheel = python(
        f"import hatchling.build as back_end; print(back_end.build_editable({str(tmp_path)!r}))", unpacked
    ).split()[-1]

    with zipfile.ZipFile(tmp_path / wheel) as archive:
        assert str(unpacked) in archive.read("_sglang_rust_extensions_hook.pth").decode("ascii")
