"""
A container: built in one place, copied to another as another user's or an image's files, and imported there with nothing at hand.

There is no toolchain, no home, no account, no variable but those of the row. What
was copied has new inodes and new time stamps; the cache came along whole, with
records and notes of the place that it was made in.
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
from hooked import SETTLED, Editable
from processes import tool

from rust_ext_loader.cache import _bundled

if TYPE_CHECKING:
    from collections.abc import Callable

    from processes import Mounts

ALPHA = "alpha-1 part-1 middle-1"
IMPORT = "import fx.alpha; print(fx.alpha.value, fx.alpha.__file__)"

#: User ids that no account has: the one that runs in the container, and another.
STRANGER, OTHER = 12345, 54321

#: Where every system has an empty folder that anybody may enter: containers see the image there.
BUILT_AT, ELSEWHERE = Path("/mnt"), Path("/srv")


@dataclass(frozen=True)
class Image:
    """
    A folder with checkout, site-packages and cache, and the place where its processes see it.
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
    What a build stage leaves: everything in one folder, built and imported once there, by root, with a toolchain.
    """
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    folder = tmp_path_factory.mktemp("image")
    check_out("plain", folder).root.rename(folder / "src")
    for package in (ROOT / "rust_ext_loader", Path(filelock.__file__).parent, *_tomli()):
        shutil.copytree(package, folder / "site" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "python").mkdir()
    image = Image(folder, BUILT_AT)
    mounts_of_module.mount("--bind", folder, BUILT_AT)
    builder = mounts_of_module.inside(image.checkout(sys.executable), f"env RUST_EXT_CACHE_DIR={BUILT_AT}/cache")
    editable = Editable(builder, workspace=BUILT_AT / "src", site=folder / "site", seen_at=BUILT_AT / "site")
    for code in (f"{SETTLED}\n{IMPORT}", IMPORT):
        ran = editable.run(code)
        assert ran.out.startswith(f"{ALPHA} {BUILT_AT}/cache/"), ran
    assert list((folder / "cache" / "records").iterdir())
    return image


def _tomli() -> list[Path]:
    if sys.version_info >= (3, 11):
        return []
    import tomli  # type: ignore[import-not-found,unused-ignore]

    return [Path(tomli.__file__).parent]


# What a container is like.


def own(image: Image) -> None:
    """
    Everything belongs to the user of the container.
    """
    _chown(image.folder, STRANGER)


def baked(image: Image) -> None:
    """
    Everything belongs to root and can be read by all, as a layer of an image.
    """
    _chown(image.folder, 0)
    subprocess.run(["chmod", "-R", "go=u-w", image.folder], check=True)


def as_root_left_it(image: Image) -> None:
    """
    Everything belongs to root, and the cache, as we made it, is for root alone.
    """
    baked(image)
    subprocess.run(["chmod", "-R", "go=", image.folder / "cache"], check=True)


def of_another_user(image: Image) -> None:
    baked(image)
    _chown(image.folder / "cache", OTHER)


def shipped(image: Image) -> None:
    """
    The module lies in its package's folder, with a sidecar, and there is no cache.
    """
    library = stored(image.folder / "cache")
    facts = json.loads((library.parent / "manifest.json").read_bytes())["facts"]
    target = image.folder / "site" / "fx" / library.name
    shutil.copy(library, target)
    _bundled.sidecar_of(target, "alpha").write_bytes(_bundled.sidecar("fx.alpha", target, facts))
    shutil.rmtree(image.folder / "cache")
    (image.folder / "cache").mkdir()
    baked(image)


def _chown(folder: Path, user: int) -> None:
    subprocess.run(["chown", "-R", "-h", f"{user}:{user}", folder], check=True)


def copy_of(image: Image, folder: Path) -> Image:
    """
    Every file anew: other inodes, other time stamps.
    """
    shutil.copytree(image.folder, folder, symlinks=True, copy_function=shutil.copy)
    return Image(folder, image.place)


def start(
    mounts: Mounts,
    image: Image,
    variables: dict[str, str],
    *,
    installed_for: Path | None = None,
    read_only: tuple[str, ...] = (),
) -> Editable:
    """
    Mount an image in its place, with an empty `/tmp`; what runs there is another user's and has nothing else.
    """
    mounts.mount("--bind", image.folder, image.place)
    mounts.mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    for name in read_only:
        mounts.make_read_only(Path(name.format(place=image.place)))
    mounts.mount("--bind", sys.base_prefix, image.place / "python")
    # An interpreter that is moved has to be told where its own library is.
    needed = {"LD_LIBRARY_PATH": "{place}/python/lib"} if sysconfig.get_config_var("Py_ENABLE_SHARED") else {}
    everything = {"PATH": "/nonexistent", **needed, **variables}
    given = " ".join(f"{name}={value.format(place=image.place)}" for name, value in everything.items())
    user = f"{tool('setpriv')} --reuid={STRANGER} --regid={STRANGER} --clear-groups {tool('env')} -i {given}"
    executable = Path(sys._base_executable).resolve().relative_to(Path(sys.base_prefix).resolve())  # type: ignore[attr-defined]
    inside = mounts.inside(image.checkout(os.fspath(image.place / "python" / executable)), user)
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
    ("owner", "place", "variables", "read_only", "noted"),
    [
        pytest.param(own, BUILT_AT, CACHE_DIR, (), True, id="its own files, where they were built"),
        pytest.param(own, ELSEWHERE, CACHE_DIR, (), True, id="its own files, elsewhere"),
        pytest.param(
            own, BUILT_AT, CACHE_DIR, ("{place}", "/tmp"), False, id="its own files, read-only, and no place for notes"
        ),
        pytest.param(baked, BUILT_AT, CACHE_DIR, (), True, id="baked, where it was built"),
        pytest.param(baked, ELSEWHERE, CACHE_PATH, (), True, id="baked, elsewhere, on the search path"),
        pytest.param(baked, BUILT_AT, {**CACHE_DIR, **NEVER}, ("{place}",), True, id="baked, read-only, mode never"),
        pytest.param(
            baked,
            ELSEWHERE,
            {**CACHE_PATH, "CI": "true"},
            ("{place}", "/tmp"),
            False,
            id="baked, and no place for notes",
        ),
        pytest.param(shipped, BUILT_AT, {}, ("{place}",), True, id="bundled, read-only"),
        pytest.param(
            shipped, ELSEWHERE, NEVER, ("{place}", "/tmp"), False, id="bundled, mode never, and no place for notes"
        ),
    ],
)
def test_a_container_imports_what_its_image_holds(
    built_once: Image,
    mounts: Mounts,
    tmp_path: Path,
    owner: Callable[[Image], None],
    place: Path,
    variables: dict[str, str],
    read_only: tuple[str, ...],
    noted: bool,
) -> None:
    """
    No process is started and nothing is said; and where there is a place for a note, the second import is a plain one.
    """
    image = replace(copy_of(built_once, tmp_path / "copy"), place=place)
    owner(image)
    library = next(path for path in image.folder.rglob("alpha.*.so") if "targets" not in path.parts)
    container = start(mounts, image, variables, read_only=read_only)

    first, second = (
        container.run(f"import os; assert os.getuid() == {STRANGER}\n{SETTLED}\n{IMPORT}"),
        container.run(IMPORT),
    )

    for ran in (first, second):
        assert (ran.out, ran.error) == (f"{ALPHA} {place / library.relative_to(image.folder)}", "")
        assert (ran.spawned, ran.stderr) == ((), "")
    assert "hashlib" in first.imported
    assert ("hashlib" in second.imported) == (not noted)


@pytest.mark.parametrize(
    ("owner", "installed_for", "kind", "said"),
    [
        pytest.param(
            as_root_left_it,
            BUILT_AT,
            "ToolchainMissing",
            "/mnt/cache is closed to this user), but `cargo` is not usable",
            id="closed cache",
        ),
        pytest.param(
            of_another_user,
            BUILT_AT,
            "ToolchainMissing",
            f"/mnt/cache belongs to user {OTHER}), but `cargo` is not usable",
            id="distrusted cache",
        ),
    ],
)
def test_a_container_that_cannot_have_it_says_why(
    built_once: Image,
    mounts: Mounts,
    tmp_path: Path,
    owner: Callable[[Image], None],
    installed_for: Path,
    kind: str,
    said: str,
) -> None:
    """
    The module is there and is not taken: the reason is what the person who made the image needs to know.
    """
    image = copy_of(built_once, tmp_path / "copy")
    owner(image)
    ran = start(mounts, image, CACHE_DIR, installed_for=installed_for).run(IMPORT)

    assert ran.types[0] == kind
    assert said in ran.error + ran.stderr


def test_a_container_in_which_all_lies_elsewhere_finds_its_project(
    built_once: Image, mounts: Mounts, tmp_path: Path
) -> None:
    """
    The install names a folder that is not there; the project lies beside the interpreter as it did when it was installed.
    """
    image = copy_of(built_once, tmp_path / "copy")
    baked(image)
    ran = start(mounts, image, CACHE_DIR, installed_for=Path("/gone")).run(IMPORT)

    assert (ran.out.partition(" /")[0], ran.error, ran.spawned) == (ALPHA, "", ())


def test_a_project_that_moved(built: Checkout) -> None:
    """
    Project and virtual environment under another name: installed again, the module is there at once; moved back, it never went.
    """
    here = built.cache.parent / "here"
    here.mkdir()
    project = replace(built, root=built.root.rename(here / "project"), environment={"PATH": "/nonexistent"})
    before = Editable(project, site=here / "site").run(f"{SETTLED}\n{IMPORT}")
    assert before.out.startswith(f"{ALPHA} ")

    there = here.rename(here.with_name("there"))
    moved = Editable(project, site=there / "site").run(IMPORT)
    assert moved.types[0] == "ModuleNotFoundError"
    assert f"is gone ({project.root})" in moved.stderr
    again = Editable(replace(project, root=there / "project"), site=there / "site").run(IMPORT)
    assert (again.out, again.spawned, again.stderr) == (before.out, (), "")

    there.rename(here)
    back = Editable(project, site=here / "site").run(IMPORT)
    assert (back.out, back.spawned, back.stderr) == (before.out, (), "")
