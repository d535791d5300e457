"""
Containers: an image is built in one place, copied elsewhere, and its module is imported there by another user.

The container has no toolchain, no home folder, no account, and only the variables of the row. Copied files
have new inodes and new timestamps. The cache is copied whole, with the records of the build stage.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import pytest
from checkout import ROOT, Checkout, check_out
from editable_install import RECORD_AT_ONCE, Editable
from missing_path import ABSENT
from processes import tool

from rust_ext_loader.cache import _bundled

if TYPE_CHECKING:
    from collections.abc import Callable

    from processes import Mounts

ALPHA = "alpha-1 part-1 middle-1"
IMPORT = "import fx.alpha; print(fx.alpha.value, fx.alpha.__file__)"

#: User ids without an account: the user of the container, and another one.
CONTAINER_USER, OTHER_USER = 12345, 54321

#: Folders that exist and are empty on every system. Containers see the image there.
BUILT_AT, ELSEWHERE = Path("/mnt"), Path("/srv")


@dataclass(frozen=True)
class Image:
    """
    A folder with checkout, site-packages and cache, and the path under which the container's processes see it.
    """

    folder: Path
    place: Path

    def checkout(self, python: str) -> Checkout:
        return Checkout(self.folder / "src", self.folder / "cache", python=python)


def stored(folder: Path) -> Path:
    """
    The library of `fx.alpha` in a cache.
    """
    (library,) = (folder / "artifacts" / "fx.alpha").rglob("*.so")
    return library


@pytest.fixture(scope="module")
def built_once(mounts_of_module: Mounts, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """
    The result of a build stage: all files in one folder, built and imported once by root with a toolchain.
    """
    if os.geteuid() != 0:
        pytest.skip("only root may change the owner of files")
    folder = tmp_path_factory.mktemp("image")
    check_out("plain", folder).root.rename(folder / "src")
    for package in (ROOT / "rust_ext_loader", Path(filelock.__file__).parent, *_tomli()):
        shutil.copytree(package, folder / "site" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "python").mkdir()
    image = Image(folder, BUILT_AT)
    mounts_of_module.mount("--bind", folder, BUILT_AT)
    builder = mounts_of_module.inside(image.checkout(sys.executable), f"env RUST_EXT_CACHE_DIR={BUILT_AT}/cache")
    editable = Editable(builder, workspace=BUILT_AT / "src", site=folder / "site", seen_at=BUILT_AT / "site")
    for code in (f"{RECORD_AT_ONCE}\n{IMPORT}", IMPORT):
        ran = editable.run(code)
        assert ran.out.startswith(f"{ALPHA} {BUILT_AT}/cache/"), ran
    assert list((folder / "cache" / "records").iterdir())
    return image


def _tomli() -> list[Path]:
    if sys.version_info >= (3, 11):
        return []
    import tomli  # type: ignore[import-not-found,unused-ignore]

    return [Path(tomli.__file__).parent]


# States of an image.


def owned_by_container_user(image: Image) -> None:
    """
    All files belong to the user of the container.
    """
    _chown(image.folder, CONTAINER_USER)


def owned_by_root(image: Image) -> None:
    """
    All files belong to root and are readable by all users, as in a layer of an image.
    """
    _chown(image.folder, 0)
    subprocess.run(["chmod", "-R", "go=u-w", image.folder], check=True)


def readable_by_root_only(image: Image) -> None:
    """
    All files belong to root. The cache is readable by root only, as the toolkit creates it.
    """
    owned_by_root(image)
    subprocess.run(["chmod", "-R", "go=", image.folder / "cache"], check=True)


def cache_of_another_user(image: Image) -> None:
    owned_by_root(image)
    _chown(image.folder / "cache", OTHER_USER)


def bundled(image: Image) -> None:
    """
    The module is in its package's folder with a sidecar, and the cache is empty.
    """
    library = stored(image.folder / "cache")
    facts = json.loads((library.parent / "manifest.json").read_bytes())["facts"]
    target = image.folder / "site" / "fx" / library.name
    shutil.copy(library, target)
    _bundled.sidecar_of(target, "alpha").write_bytes(_bundled.sidecar("fx.alpha", target, facts))
    shutil.rmtree(image.folder / "cache")
    (image.folder / "cache").mkdir()
    owned_by_root(image)


def _chown(folder: Path, user: int) -> None:
    subprocess.run(["chown", "-R", "-h", f"{user}:{user}", folder], check=True)


def copy_of(image: Image, folder: Path) -> Image:
    """
    Copy every file of an image, so that inodes and timestamps are new.
    """
    shutil.copytree(image.folder, folder, symlinks=True, copy_function=shutil.copy)
    return Image(folder, image.place)


def start_container(
    mounts: Mounts,
    image: Image,
    variables: dict[str, str],
    *,
    installed_for: Path | None = None,
    read_only: tuple[str, ...] = (),
) -> Editable:
    """
    Mount an image at its path, with an empty `/tmp`, for an interpreter of another user with an empty environment.
    """
    mounts.mount("--bind", image.folder, image.place)
    mounts.mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    for name in read_only:
        mounts.make_read_only(Path(name.format(place=image.place)))
    mounts.mount("--bind", sys.base_prefix, image.place / "python")
    # An interpreter that was moved does not find its shared library without this variable.
    needed = {"LD_LIBRARY_PATH": "{place}/python/lib"} if sysconfig.get_config_var("Py_ENABLE_SHARED") else {}
    everything = {"PATH": ABSENT, **needed, **variables}
    given = " ".join(f"{name}={value.format(place=image.place)}" for name, value in everything.items())
    user = (
        f"{tool('setpriv')} --reuid={CONTAINER_USER} --regid={CONTAINER_USER} --clear-groups {tool('env')} -i {given}"
    )
    executable = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    python = image.place / "python" / executable.relative_to(Path(sys.base_prefix).resolve())
    inside = mounts.inside(image.checkout(os.fspath(python)), user)
    editable = Editable(
        inside,
        workspace=(installed_for or image.place) / "src",
        site=image.folder / "site",
        seen_at=image.place / "site",
    )
    probe = subprocess.run([inside.python, "-I", "-S", "-c", "pass"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"this Python does not run for another user: {probe.stderr}")
    return editable


CACHE_DIR = {"RUST_EXT_CACHE_DIR": "{place}/cache"}
CACHE_PATH = {"RUST_EXT_CACHE_PATH": "{place}/cache"}
NEVER = {"SGLANG_RUST_BUILD_MODE": "never"}


@pytest.mark.parametrize(
    ("owner", "place", "variables", "read_only", "recorded"),
    [
        pytest.param(
            owned_by_container_user,
            BUILT_AT,
            CACHE_DIR,
            (),
            True,
            id="files of the container's user, where it was built",
        ),
        pytest.param(
            owned_by_container_user, ELSEWHERE, CACHE_DIR, (), True, id="files of the container's user, elsewhere"
        ),
        pytest.param(
            owned_by_container_user,
            BUILT_AT,
            CACHE_DIR,
            ("{place}", "/tmp"),
            False,
            id="files of the container's user, read-only, no place for a record",
        ),
        pytest.param(owned_by_root, BUILT_AT, CACHE_DIR, (), True, id="files of root, where it was built"),
        pytest.param(owned_by_root, ELSEWHERE, CACHE_PATH, (), True, id="files of root, elsewhere, on the search path"),
        pytest.param(
            owned_by_root,
            BUILT_AT,
            {**CACHE_DIR, **NEVER},
            ("{place}",),
            True,
            id="files of root, read-only, mode never",
        ),
        pytest.param(
            owned_by_root,
            ELSEWHERE,
            {**CACHE_PATH, "CI": "true"},
            ("{place}", "/tmp"),
            False,
            id="files of root, no place for a record",
        ),
        pytest.param(bundled, BUILT_AT, {}, ("{place}",), True, id="bundled, read-only"),
        pytest.param(
            bundled, ELSEWHERE, NEVER, ("{place}", "/tmp"), False, id="bundled, mode never, no place for a record"
        ),
    ],
)
def test_a_container_imports_the_module_of_its_image(
    built_once: Image,
    mounts: Mounts,
    tmp_path: Path,
    owner: Callable[[Image], None],
    place: Path,
    variables: dict[str, str],
    read_only: tuple[str, ...],
    recorded: bool,
) -> None:
    """
    The import starts no process and prints nothing. If a record can be written, the second import is warm.
    """
    image = replace(copy_of(built_once, tmp_path / "copy"), place=place)
    owner(image)
    library = next(path for path in image.folder.rglob("alpha.*.so") if "targets" not in path.parts)
    container = start_container(mounts, image, variables, read_only=read_only)

    first, second = (
        container.run(f"import os; assert os.getuid() == {CONTAINER_USER}\n{RECORD_AT_ONCE}\n{IMPORT}"),
        container.run(IMPORT),
    )

    for ran in (first, second):
        assert (ran.out, ran.error) == (f"{ALPHA} {place / library.relative_to(image.folder)}", "")
        assert (ran.spawned, ran.stderr) == ((), "")
    assert "hashlib" in first.imported
    assert ("hashlib" in second.imported) == (not recorded)


@pytest.mark.parametrize(
    ("owner", "installed_for", "kind", "message"),
    [
        pytest.param(
            readable_by_root_only,
            BUILT_AT,
            "ToolchainMissing",
            "/mnt/cache is not readable by this user), but `cargo` is not usable",
            id="cache without read permission",
        ),
        pytest.param(
            cache_of_another_user,
            BUILT_AT,
            "ToolchainMissing",
            f"/mnt/cache belongs to user {OTHER_USER}), but `cargo` is not usable",
            id="cache of another user",
        ),
    ],
)
def test_a_container_that_cannot_use_the_cache_says_why(
    built_once: Image,
    mounts: Mounts,
    tmp_path: Path,
    owner: Callable[[Image], None],
    installed_for: Path,
    kind: str,
    message: str,
) -> None:
    """
    The cache holds the module but may not be used. The error tells the author of the image why.
    """
    image = copy_of(built_once, tmp_path / "copy")
    owner(image)
    ran = start_container(mounts, image, CACHE_DIR, installed_for=installed_for).run(IMPORT)

    assert ran.types[0] == kind
    assert message in ran.error + ran.stderr


def test_a_moved_image_finds_its_project(built_once: Image, mounts: Mounts, tmp_path: Path) -> None:
    """
    The folder that the install names is missing. The project is found beside the interpreter, as at install time.
    """
    image = copy_of(built_once, tmp_path / "copy")
    owned_by_root(image)
    ran = start_container(mounts, image, CACHE_DIR, installed_for=Path("/gone")).run(IMPORT)

    assert (ran.out.partition(" /")[0], ran.error, ran.spawned) == (ALPHA, "", ())


def test_a_renamed_project_must_be_installed_again(built: Checkout) -> None:
    """
    A renamed project must be installed again, and then loads its module at once. Renamed back, it needs no new install.
    """
    here = built.cache.parent / "here"
    here.mkdir()
    project = replace(built, root=built.root.rename(here / "project"), environment={"PATH": ABSENT})
    before = Editable(project, site=here / "site").run(f"{RECORD_AT_ONCE}\n{IMPORT}")
    assert before.out.startswith(f"{ALPHA} ")

    there = here.rename(here.with_name("there"))
    moved = Editable(project, site=there / "site").run(IMPORT)
    assert moved.types[0] == "ModuleNotFoundError"
    assert f"does not exist ({project.root})" in moved.stderr
    again = Editable(replace(project, root=there / "project"), site=there / "site").run(IMPORT)
    assert (again.out, again.spawned, again.stderr) == (before.out, (), "")

    there.rename(here)
    back = Editable(project, site=here / "site").run(IMPORT)
    assert (back.out, back.spawned, back.stderr) == (before.out, (), "")
