"""
Caches that cannot be written or trusted, and full disks: the load returns the right module, or one clear error.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout
from processes import Mounts, load_until_recorded, script, tool

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHA = "alpha-1 part-1 middle-1"

#: A user id without an account.
UNKNOWN_USER = 12345


@functools.cache
def may_change_owner() -> bool:
    """
    Whether this user may give files to another user.
    """
    return os.geteuid() == 0


def fallback_cache(checkout: Checkout) -> Path:
    """
    The cache that is used when no other cache is usable.
    """
    return checkout.temporary / f"rust_ext_loader-{os.getuid()}"


# Caches that cannot be written.


@pytest.mark.parametrize("warm", [False, True], ids=["full decision", "by record"])
def test_a_read_only_cache_serves_what_it_holds(plain: Checkout, mounts: Mounts, warm: bool) -> None:
    """
    A read-only cache serves its entries without cargo and without a warning: loading a cached module writes nothing.
    """
    built = load_until_recorded(plain) if warm else plain.load()
    mounts.make_read_only(plain.cache)

    loaded = mounts.inside(plain).load()

    assert (ALPHA, built.file) == (loaded.value, loaded.file)
    assert (loaded.cargo, loaded.warnings, loaded.stderr) == ((), (), "")
    if warm:
        assert loaded.spawned == ()


def test_a_read_only_cache_is_skipped_for_a_build(plain: Checkout, mounts: Mounts) -> None:
    """
    A module that a read-only cache does not hold is built in the next root, with one warning. The next load hits.
    """
    plain.cache.mkdir()
    mounts.make_read_only(plain.cache)
    inside = mounts.inside(plain)

    first, second = inside.load(), inside.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(fallback_cache(plain))
    (warning,) = first.warnings
    assert str(plain.cache) in warning
    assert str(fallback_cache(plain)) in warning
    assert (second.cargo, second.warnings) == ((), ())


def test_no_writable_cache_is_one_clear_error(plain: Checkout, mounts: Mounts) -> None:
    """
    If no root can be written, the error names each root with the reason, and the setting.
    """
    plain.cache.mkdir()
    mounts.make_read_only(plain.cache.parent)

    loaded = mounts.inside(plain).load()

    assert loaded.reason == "cache-unavailable"
    assert "ImportError" in loaded.types
    for part in (str(plain.cache), str(fallback_cache(plain)), "RUST_EXT_CACHE_DIR"):
        assert part in str(loaded.error)
    assert loaded.compiled == []


@pytest.mark.parametrize(
    "home",
    [
        pytest.param("os.environ.pop('HOME')", id="unset"),
        pytest.param("os.environ['HOME'] = ''", id="empty"),
        pytest.param("os.environ['HOME'] = os.environ['TMPDIR'] + '/absent'", id="nonexistent"),
        pytest.param("os.environ['HOME'] = 'somewhere'", id="relative"),
        pytest.param("os.environ['HOME'] = '/proc'", id="not writable"),
    ],
)
def test_no_home_folder_is_needed(plain: Checkout, home: str) -> None:
    """
    Without a home folder the cache is a private folder under the temporary folder. The next load hits it.
    """
    plain.environment |= {
        "RUST_EXT_CACHE_DIR": "",
        "XDG_CACHE_HOME": "",
        "CARGO_HOME": os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo"),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME") or os.path.expanduser("~/.rustup"),
    }

    first, second = plain.load(prelude=f"import os; {home}"), plain.load(prelude=f"import os; {home}")

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(fallback_cache(plain))
    assert stat.S_IMODE(fallback_cache(plain).stat().st_mode) == 0o700
    assert second.cargo == ()


def test_an_unknown_user_can_build(plain: Checkout) -> None:
    """
    A user id without an account, as in many containers, can build and then hits the cache.
    """
    unshare = [tool("unshare") or "", "--user", f"--map-user={UNKNOWN_USER}", f"--map-group={UNKNOWN_USER}", "--"]
    probe = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False) if unshare[0] else None
    if probe is None or probe.returncode:
        pytest.skip(f"no user namespaces: {probe.stderr if probe else 'no unshare'}")
    python = script(plain.cache.parent / "python-unknown", f'exec {" ".join(unshare)} "{sys.executable}" "$@"')
    unknown = Checkout(plain.root, plain.cache, plain.environment, python)

    first, second = unknown.load(prelude=f"import os; assert os.getuid() == {UNKNOWN_USER}"), unknown.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert (first.warnings, second.cargo) == ((), ())


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077])
def test_the_umask_does_not_matter(plain: Checkout, mask: int) -> None:
    """
    Written files are private to their owner under every umask, and the next load trusts them.
    """
    prelude = f"import os; os.umask({mask})"

    first, second = plain.load(prelude=prelude), plain.load(prelude=prelude)

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert (first.warnings, second.cargo) == ((), ())
    open_to_others = [path for path in (plain.cache, *plain.cache.rglob("artifacts")) if path.stat().st_mode & 0o077]
    assert open_to_others == []


# Caches that cannot be trusted.


def open_to_all(root: Path) -> None:
    """
    Every user may write to the root.
    """
    root.mkdir(exist_ok=True)
    root.chmod(0o777)


def open_to_a_group(root: Path) -> None:
    """
    A group may write to the root.
    """
    root.mkdir(exist_ok=True)
    root.chmod(0o770)


def owned_by_another_user(root: Path) -> None:
    """
    The root belongs to another user.
    """
    if not may_change_owner():
        pytest.skip("only root may change the owner of a folder")
    root.mkdir(mode=0o700, exist_ok=True)
    os.chown(root, UNKNOWN_USER, UNKNOWN_USER)


def behind_a_link(root: Path) -> None:
    """
    The root is a symbolic link, which another user could have planted.
    """
    elsewhere = root.with_name("elsewhere")
    if root.exists():
        root.rename(elsewhere)
    else:
        elsewhere.mkdir(mode=0o700)
    root.symlink_to(elsewhere)


def a_file(root: Path) -> None:
    """
    The root is a file.
    """
    if root.exists():
        shutil.rmtree(root)
    root.write_text("not a cache")


UNTRUSTED = [open_to_all, open_to_a_group, owned_by_another_user, behind_a_link, a_file]


@pytest.mark.parametrize("spoil", UNTRUSTED)
def test_an_untrusted_root_is_skipped(plain: Checkout, spoil: Callable[[Path], None]) -> None:
    """
    A root that another user could have filled is skipped with one warning and its reason. The next root is used.
    """
    spoil(plain.cache)

    first, second = plain.load(), plain.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(fallback_cache(plain))
    (warning,) = first.warnings
    assert str(plain.cache) in warning
    assert not plain.cache.is_dir() or not os.listdir(plain.cache)
    assert (second.cargo, second.warnings) == ((), ())


@pytest.mark.parametrize("spoil", UNTRUSTED)
def test_a_planted_fallback_cache_is_refused(plain: Checkout, spoil: Callable[[Path], None]) -> None:
    """
    The fallback cache under the temporary folder is refused, with the reason, if another user created it first.

    Any user can guess its name.
    """
    plain.environment |= {"RUST_EXT_CACHE_DIR": "", "XDG_CACHE_HOME": "/proc/nowhere"}
    spoil(fallback_cache(plain))

    loaded = plain.load()

    assert loaded.reason == "cache-unavailable"
    assert str(fallback_cache(plain)) in str(loaded.error)
    assert "RUST_EXT_CACHE_DIR" in str(loaded.error)
    assert not fallback_cache(plain).is_dir() or not os.listdir(fallback_cache(plain))


@pytest.mark.parametrize("warm", [False, True], ids=["full decision", "by record"])
@pytest.mark.parametrize("spoil", UNTRUSTED[:-1])
def test_nothing_is_loaded_from_an_untrusted_root(plain: Checkout, spoil: Callable[[Path], None], warm: bool) -> None:
    """
    If other users can change a root, its libraries are not loaded, not even through an existing record.
    """
    if warm:
        load_until_recorded(plain)
    else:
        plain.load()
    spoil(plain.cache)

    loaded = plain.load()

    assert loaded.value == ALPHA
    assert Path(str(loaded.file)).is_relative_to(fallback_cache(plain))


# Disks.


def test_a_disk_that_fills_up_while_storing(plain: Checkout, mounts: Mounts) -> None:
    """
    If an entry cannot be stored, the module is loaded from its target folder, with one warning and no partial entry.
    """
    plain.cache.mkdir(mode=0o700)
    mounts.mount("-t", "tmpfs", "-o", "size=64m,mode=700", "none", plain.cache)
    inside = mounts.inside(plain)
    fill = f"""
        import contextlib
        from rust_ext_loader.build import _build

        build = _build.build
        def build_and_fill(*arguments, **named):
            built = build(*arguments, **named)
            with contextlib.suppress(OSError), open({os.fspath(plain.cache / "filler")!r}, "wb", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass
            return built
        _build.build = build_and_fill
    """

    full = inside.load(prelude=fill)
    again = inside.load(prelude=f"import os; os.unlink({os.fspath(plain.cache / 'filler')!r})")
    after = inside.load()

    assert [full.value, again.value, after.value] == [ALPHA] * 3
    assert Path(str(full.file)).is_relative_to(plain.cache / "targets")
    (warning,) = full.warnings
    assert "No space left" in warning
    assert Path(str(again.file)).is_relative_to(plain.cache / "artifacts")
    assert (again.warnings, after.cargo) == ((), ())


@pytest.mark.parametrize("kilobytes", [16, 64, 256])
def test_a_disk_too_small_to_build(plain: Checkout, mounts: Mounts, kilobytes: int) -> None:
    """
    On a disk too small for a build the error says that no space is left. Once there is room, the next load works.
    """
    plain.cache.mkdir(mode=0o700)
    mounts.mount("-t", "tmpfs", "-o", f"size={kilobytes}k,mode=700", "none", plain.cache)
    inside = mounts.inside(plain)

    small = inside.load()
    mounts.mount("-o", "remount,size=64m", plain.cache)
    large, after = inside.load(), inside.load()

    assert "RustExtensionError" in small.types
    assert "No space left" in str(small.error)
    assert [large.value, after.value] == [ALPHA, ALPHA]
    assert (large.warnings, after.cargo) == ((), ())


def test_a_noexec_mount_is_skipped(plain: Checkout, mounts: Mounts) -> None:
    """
    A `noexec` mount is skipped with one warning, since no library can be loaded from it. The next root is used.
    """
    plain.cache.mkdir(mode=0o700)
    mounts.mount("-t", "tmpfs", "-o", "size=64m,mode=700,noexec", "none", plain.cache)
    inside = mounts.inside(plain)

    first, second = inside.load(), inside.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(fallback_cache(plain))
    (warning,) = first.warnings
    assert str(plain.cache) in warning
    assert "noexec" in warning
    assert (second.cargo, second.warnings) == ((), ())


def test_an_entry_on_a_noexec_mount_is_kept(plain: Checkout, mounts: Mounts) -> None:
    """
    An entry on a `noexec` mount is not quarantined: it is valid, but cannot be loaded from there.
    """
    built = plain.load()
    mounts.mount("--bind", plain.cache, plain.cache)
    mounts.mount("-o", "remount,bind,noexec", plain.cache)

    elsewhere, again = mounts.inside(plain).load(), plain.load()

    assert [elsewhere.value, again.value] == [ALPHA, ALPHA]
    assert Path(str(elsewhere.file)).is_relative_to(fallback_cache(plain))
    assert Path(str(built.file)).exists()
    assert again.cargo == ()
