"""
Trees that are read-only, in layers, or spread over several disks.
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
from processes import settle

from rust_ext_loader.cache import _bundled

if TYPE_CHECKING:
    from collections.abc import Callable

    from processes import Mounts

ALPHA = "alpha-1 part-1 middle-1"

#: Tells on standard error of every attempt to change something on the disk.
WATCH = """
import os, sys

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate", "os.utime", "os.chown")

def tell(event, arguments):
    if event in CHANGES or (event == "open" and arguments[2] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and arguments[0] != os.devnull):
        print("tried", event, arguments, file=sys.stderr)

sys.addaudithook(tell)
"""

# Read-only.


def in_the_cache(checkout: Checkout) -> None:
    """
    Stored; everything is decided anew.
    """
    checkout.load()


def by_record(checkout: Checkout) -> None:
    """
    Stored, and known by a record.
    """
    settle(checkout)


def in_site_packages(checkout: Checkout) -> None:
    """
    Shipped in the package's folder, with a sidecar, and nowhere else.
    """
    checkout.load()
    stored, facts = checkout.stored(), checkout.stored_facts()
    package = checkout.cache.parent / "site" / "fx"
    package.mkdir(parents=True)
    library = package / f"alpha{EXTENSION_SUFFIXES[0]}"
    shutil.copy(stored, library)
    _bundled.sidecar_of(library, "alpha").write_bytes(_bundled.sidecar("fx.alpha", library, facts))
    shutil.rmtree(checkout.cache)
    checkout.environment["PYTHONPATH"] = os.pathsep.join([checkout.variables()["PYTHONPATH"], str(package.parent)])


@pytest.mark.parametrize("put", [in_the_cache, by_record, in_site_packages])
def test_what_is_fresh_needs_no_lock_and_no_write(
    plain: Checkout, mounts: Mounts, put: Callable[[Checkout], None]
) -> None:
    """
    With checkout, cache, site-packages, home and temporary folder read-only, what is fresh loads, and nothing was even tried.
    """
    put(plain)
    mounts.make_read_only(plain.cache.parent)

    loaded = mounts.inside(plain).load(prelude=WATCH)

    assert (loaded.value, loaded.warnings, loaded.stderr, loaded.compiled) == (ALPHA, (), "", [])


@pytest.mark.parametrize("cache", [True, False], ids=["with a cache elsewhere", "with the cache that it should hold"])
def test_a_read_only_home_is_no_hindrance(plain: Checkout, mounts: Mounts, cache: bool) -> None:
    """
    Where the home folder cannot be written, cargo's own in it included, a module is built and stored, at worst under the temporary folder.
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
    held = mounts.inside(plain)

    first, second = held.load(), held.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(plain.cache if cache else plain.temporary)
    assert (second.cargo, second.warnings, second.stderr) == ((), (), "")


# Several disks.


def on_a_disk_of_its_own(*parts: str) -> Callable[[Checkout, Mounts], None]:
    """
    A folder of the cache, or beside it, is a mount.
    """

    def act(checkout: Checkout, mounts: Mounts) -> None:
        folder = checkout.cache.parent.joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mounts.mount("-t", "tmpfs", "-o", "size=64m,mode=700", "none", folder)

    return act


def with_a_target_folder_of_the_user(checkout: Checkout, mounts: Mounts) -> None:
    """
    The user's own target folder is a mount, and his variable names it.
    """
    on_a_disk_of_its_own("mine")(checkout, mounts)
    checkout.environment["CARGO_TARGET_DIR"] = str(checkout.cache.parent / "mine")


@pytest.mark.parametrize(
    "spread",
    [
        pytest.param(on_a_disk_of_its_own("cache"), id="the cache"),
        pytest.param(on_a_disk_of_its_own("cache", "targets"), id="the target folders in it"),
        pytest.param(on_a_disk_of_its_own("tmp"), id="the temporary folder"),
        pytest.param(with_a_target_folder_of_the_user, id="the user's target folder"),
    ],
)
def test_it_may_be_spread_over_disks(
    plain: Checkout, mounts: Mounts, spread: Callable[[Checkout, Mounts], None]
) -> None:
    """
    No rename leaves its file system: what is built on one disk is stored on another, whole and without a complaint.
    """
    plain.cache.mkdir(mode=0o700)
    spread(plain, mounts)
    held = mounts.inside(plain)

    first, second = held.load(), held.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert (first.warnings, second.cargo) == ((), ())
    assert Path(str(first.file)).is_relative_to(plain.cache / "artifacts")


def test_a_cache_in_an_image_is_mended(plain: Checkout, mounts: Mounts) -> None:
    """
    Of a container's image no folder can be renamed; an entry in it that is damaged is set aside all the same, and made anew.
    """
    library = Path(str(plain.load().file))
    data = library.read_bytes()
    library.write_bytes(data[:-1])
    shutil.rmtree(plain.cache / "targets")
    image, layer = plain.cache.rename(plain.cache.parent / "image"), plain.cache.parent / "layer"
    plain.cache.mkdir()
    layer.mkdir()
    # Not every disk can hold a layer; this one can.
    mounts.mount("-t", "tmpfs", "none", layer)
    mounts.run("mkdir", layer / "upper", layer / "work")
    layers = f"lowerdir={image},upperdir={layer}/upper,workdir={layer}/work"
    try:
        mounts.mount("-t", "overlay", "-o", layers, "none", plain.cache)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no layered mounts: {error.stderr!r}")
    held = mounts.inside(plain)
    in_the_way = held.load(prelude=f"import os; assert os.path.exists({os.fspath(library)!r})")
    after = held.load(prelude=f"import os; assert not os.path.exists({os.fspath(library)!r})")

    assert [in_the_way.value, after.value] == [ALPHA, ALPHA]
    assert (in_the_way.compiled, in_the_way.warnings) == (["alpha"], ())
    assert (after.file, after.cargo) == (in_the_way.file, ())
