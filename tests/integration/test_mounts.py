"""
Checkouts and caches on read-only, layered or several file systems.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout
from processes import load_until_recorded

from rust_ext_loader.cache import _bundled

if TYPE_CHECKING:
    from collections.abc import Callable

    from processes import Mounts

ALPHA = "alpha-1 part-1 middle-1"

#: Prints every attempt to change the file system on standard error.
WATCH = """
import os, sys

CHANGES = {
    f"os.{call}"
    for call in ("mkdir", "rename", "remove", "rmdir", "chmod", "link", "symlink", "truncate", "utime", "chown")
}
WRITING = os.O_CREAT | os.O_WRONLY | os.O_RDWR

def tell(event, arguments):
    if event in CHANGES or (event == "open" and arguments[2] & WRITING and arguments[0] != os.devnull):
        print("tried", event, arguments, file=sys.stderr)

sys.addaudithook(tell)
"""

# Read-only file systems.


def in_the_cache(checkout: Checkout) -> None:
    """
    The module is cached, without a record.
    """
    checkout.load()


def by_record(checkout: Checkout) -> None:
    """
    The module is cached, with a record.
    """
    load_until_recorded(checkout)


def in_site_packages(checkout: Checkout) -> None:
    """
    The module is only in its package's folder, with a sidecar.
    """
    checkout.load()
    stored, facts = checkout.stored_library(), checkout.stored_facts()
    package = checkout.cache.parent / "site" / "fx"
    package.mkdir(parents=True)
    library = package / f"alpha{EXTENSION_SUFFIXES[0]}"
    shutil.copy(stored, library)
    _bundled.sidecar_of(library, "alpha").write_bytes(_bundled.sidecar("fx.alpha", library, facts))
    shutil.rmtree(checkout.cache)
    checkout.environment["PYTHONPATH"] = os.pathsep.join([checkout.variables()["PYTHONPATH"], str(package.parent)])


@pytest.mark.parametrize("put", [in_the_cache, by_record, in_site_packages])
def test_loading_a_current_module_writes_nothing(
    plain: Checkout, mounts: Mounts, put: Callable[[Checkout], None]
) -> None:
    """
    If every folder is read-only, a current module loads, and the load does not even try to write or lock.
    """
    put(plain)
    mounts.make_read_only(plain.cache.parent)

    loaded = mounts.inside(plain).load(prelude=WATCH)

    assert (loaded.value, loaded.warnings, loaded.stderr, loaded.compiled) == (ALPHA, (), "", [])


@pytest.mark.parametrize("cache", [True, False], ids=["with a cache elsewhere", "with the cache in the home folder"])
def test_a_read_only_home_folder_does_not_prevent_builds(plain: Checkout, mounts: Mounts, cache: bool) -> None:
    """
    With a read-only home folder, including cargo's, a module is built and stored, if necessary in the temporary folder.
    """
    home = plain.cache.parent / "home"
    (home / ".cargo").mkdir(parents=True)
    plain.environment |= {
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME") or os.path.expanduser("~/.rustup"),
        "HOME": str(home),
    }
    if not cache:
        plain.environment |= {"RUST_EXT_CACHE_DIR": "", "XDG_CACHE_HOME": ""}
    mounts.make_read_only(home)
    inside = mounts.inside(plain)

    first, second = inside.load(), inside.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(plain.cache if cache else plain.temporary)
    assert (second.cargo, second.warnings, second.stderr) == ((), (), "")


# Several file systems.


def on_its_own_mount(*parts: str) -> Callable[[Checkout, Mounts], None]:
    """
    Mount a separate file system at a folder of the cache, or at one beside it.
    """

    def act(checkout: Checkout, mounts: Mounts) -> None:
        folder = checkout.cache.parent.joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mounts.mount("-t", "tmpfs", "-o", "size=64m,mode=700", "none", folder)

    return act


def with_a_target_folder_of_the_user(checkout: Checkout, mounts: Mounts) -> None:
    """
    Mount a separate file system at the target folder that CARGO_TARGET_DIR names.
    """
    on_its_own_mount("mine")(checkout, mounts)
    checkout.environment["CARGO_TARGET_DIR"] = str(checkout.cache.parent / "mine")


@pytest.mark.parametrize(
    "spread",
    [
        pytest.param(on_its_own_mount("cache"), id="the cache"),
        pytest.param(on_its_own_mount("cache", "targets"), id="the target folders in it"),
        pytest.param(on_its_own_mount("tmp"), id="the temporary folder"),
        pytest.param(with_a_target_folder_of_the_user, id="the user's target folder"),
    ],
)
def test_folders_may_be_on_several_file_systems(
    plain: Checkout, mounts: Mounts, spread: Callable[[Checkout, Mounts], None]
) -> None:
    """
    A library built on one file system is stored on another without a warning: no rename crosses file systems.
    """
    plain.cache.mkdir(mode=0o700)
    spread(plain, mounts)
    inside = mounts.inside(plain)

    first, second = inside.load(), inside.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert (first.warnings, second.cargo) == ((), ())
    assert Path(str(first.file)).is_relative_to(plain.cache / "artifacts")


def test_a_damaged_entry_in_an_overlay_is_rebuilt(plain: Checkout, mounts: Mounts) -> None:
    """
    A damaged entry in a lower layer is quarantined and rebuilt, although folders of a lower layer cannot be renamed.
    """
    library = Path(str(plain.load().file))
    data = library.read_bytes()
    library.write_bytes(data[:-1])
    shutil.rmtree(plain.cache / "targets")
    image, layer = plain.cache.rename(plain.cache.parent / "image"), plain.cache.parent / "layer"
    plain.cache.mkdir()
    layer.mkdir()
    # The upper layer needs a file system that supports overlays, such as tmpfs.
    mounts.mount("-t", "tmpfs", "none", layer)
    mounts.run("mkdir", layer / "upper", layer / "work")
    layers = f"lowerdir={image},upperdir={layer}/upper,workdir={layer}/work"
    try:
        mounts.mount("-t", "overlay", "-o", layers, "none", plain.cache)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no layered mounts: {error.stderr!r}")
    inside = mounts.inside(plain)
    first = inside.load(prelude=f"import os; assert os.path.exists({os.fspath(library)!r})")
    after = inside.load(prelude=f"import os; assert not os.path.exists({os.fspath(library)!r})")

    assert [first.value, after.value] == [ALPHA, ALPHA]
    assert (first.compiled, first.warnings) == (["alpha"], ())
    assert (after.file, after.cargo) == (first.file, ())
