"""
Disks that are full, caches that cannot be written or trusted, files that are torn: a right module, or one clear error.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout, Loaded, check_out
from processes import Mounts, run_script, script, tool, wait_until

from rust_ext_loader import _staging, _store
from rust_ext_loader._fingerprint import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALPHA = "alpha-1 part-1 middle-1"

#: A user id that no account has.
STRANGER = 12345


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    """
    A private mount namespace, where this user may make one.
    """
    missing = [name for name in ("unshare", "nsenter", "mount") if tool(name) is None]
    if missing:
        pytest.skip(f"no {missing[0]} on this machine")
    try:
        namespace = Mounts()
    except OSError as error:
        pytest.skip(f"no private mounts: {error}")
    yield namespace
    namespace.close()


@functools.cache
def may_give_away() -> bool:
    """
    Whether this user may give files to another one.
    """
    return os.geteuid() == 0


def inside(mounts: Mounts, checkout: Checkout) -> Checkout:
    """
    The same checkout, loaded by processes that see the private mounts.
    """
    return Checkout(checkout.root, checkout.cache, checkout.environment, mounts.python(checkout.cache.parent))


def last_resort(checkout: Checkout) -> Path:
    """
    The cache that is used when no other can be.
    """
    return checkout.temporary / f"rust_ext_loader-{os.getuid()}"


def libraries(root: Path) -> list[Path]:
    """
    Published libraries of a cache.
    """
    return sorted((root / "artifacts").rglob("*.so"))


def settle(checkout: Checkout) -> Loaded:
    """
    Load until the warm path's record is written, which waits for time stamps to come of age.
    """
    wait_until(lambda: checkout.load().value is not None and any((checkout.cache / "records").glob("*")), "a record")
    return checkout.load()


# Caches that cannot be written.


@pytest.mark.parametrize("warm", [False, True], ids=["decided anew", "by record"])
def test_a_read_only_cache_serves_what_it_holds(plain: Checkout, mounts: Mounts, warm: bool) -> None:
    """
    Nothing has to be written to load what is built: a read-only cache serves it, without cargo and without a word.
    """
    built = settle(plain) if warm else plain.load()
    mounts.make_read_only(plain.cache)

    loaded = inside(mounts, plain).load()

    assert (ALPHA, built.file) == (loaded.value, loaded.file)
    assert (loaded.cargo, loaded.warnings, loaded.stderr) == ((), (), "")
    if warm:
        assert loaded.spawned == ()


def test_a_read_only_cache_is_passed_over_for_a_build(plain: Checkout, mounts: Mounts) -> None:
    """
    What a read-only cache does not hold is built in the next root, with one warning that says so; then it is a hit.
    """
    plain.cache.mkdir()
    mounts.make_read_only(plain.cache)
    held = inside(mounts, plain)

    first, second = held.load(), held.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(last_resort(plain))
    (warning,) = first.warnings
    assert str(plain.cache) in warning
    assert str(last_resort(plain)) in warning
    assert (second.cargo, second.warnings) == ((), ())


def test_nowhere_to_build_is_one_clear_error(plain: Checkout, mounts: Mounts) -> None:
    """
    Where no root can be written, the error names each with its reason, and the setting.
    """
    plain.cache.mkdir()
    mounts.make_read_only(plain.cache.parent)

    loaded = inside(mounts, plain).load()

    assert loaded.reason == "cache-unavailable"
    assert "ImportError" in loaded.types
    for part in (str(plain.cache), str(last_resort(plain)), "RUST_EXT_CACHE_DIR"):
        assert part in str(loaded.error)
    assert loaded.compiled == []


@pytest.mark.parametrize(
    "home",
    [
        pytest.param("os.environ.pop('HOME')", id="unset"),
        pytest.param("os.environ['HOME'] = ''", id="empty"),
        pytest.param("os.environ['HOME'] = '/nonexistent'", id="nonexistent"),
        pytest.param("os.environ['HOME'] = 'somewhere'", id="relative"),
        pytest.param("os.environ['HOME'] = '/proc'", id="not writable by anybody"),
    ],
)
def test_no_home_is_needed(plain: Checkout, home: str) -> None:
    """
    Without a home folder the cache is a private one under the temporary folder, and hits the next time.
    """
    plain.environment |= {
        "RUST_EXT_CACHE_DIR": "",
        "XDG_CACHE_HOME": "",
        "CARGO_HOME": os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo"),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME") or os.path.expanduser("~/.rustup"),
    }

    first, second = plain.load(prelude=f"import os; {home}"), plain.load(prelude=f"import os; {home}")

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(last_resort(plain))
    assert stat.S_IMODE(last_resort(plain).stat().st_mode) == 0o700
    assert second.cargo == ()


def test_an_unknown_user_can_build(plain: Checkout) -> None:
    """
    A user id that no password database knows, as in many containers, builds and hits.
    """
    unshare = [tool("unshare") or "", "--user", f"--map-user={STRANGER}", f"--map-group={STRANGER}", "--"]
    probe = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False) if unshare[0] else None
    if probe is None or probe.returncode:
        pytest.skip(f"no user namespaces: {probe.stderr if probe else 'no unshare'}")
    python = script(plain.cache.parent / "python-stranger", f'exec {" ".join(unshare)} "{sys.executable}" "$@"')
    stranger = Checkout(plain.root, plain.cache, plain.environment, python)

    first, second = stranger.load(prelude=f"import os; assert os.getuid() == {STRANGER}"), stranger.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert (first.warnings, second.cargo) == ((), ())


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077])
def test_the_umask_does_not_matter(plain: Checkout, mask: int) -> None:
    """
    Whatever the umask, what is written is private to its owner and trusted the next time.
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
    Anybody may write there.
    """
    root.mkdir(exist_ok=True)
    root.chmod(0o777)


def open_to_a_group(root: Path) -> None:
    """
    A group may write there.
    """
    root.mkdir(exist_ok=True)
    root.chmod(0o770)


def another_users(root: Path) -> None:
    """
    It belongs to somebody else.
    """
    if not may_give_away():
        pytest.skip("only root may give a folder away")
    root.mkdir(mode=0o700, exist_ok=True)
    os.chown(root, STRANGER, STRANGER)


def behind_a_link(root: Path) -> None:
    """
    It is a symbolic link, which another user could have planted.
    """
    elsewhere = root.with_name("elsewhere")
    if root.exists():
        root.rename(elsewhere)
    else:
        elsewhere.mkdir(mode=0o700)
    root.symlink_to(elsewhere)


def a_file(root: Path) -> None:
    """
    It is no folder at all.
    """
    if root.exists():
        shutil.rmtree(root)
    root.write_text("not a cache")


UNTRUSTED = [open_to_all, open_to_a_group, another_users, behind_a_link, a_file]


@pytest.mark.parametrize("spoil", UNTRUSTED)
def test_an_untrusted_root_is_passed_over(plain: Checkout, spoil: Callable[[Path], None]) -> None:
    """
    A root that somebody else could have filled is left alone: one warning with the reason, and the next root is used.
    """
    spoil(plain.cache)

    first, second = plain.load(), plain.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(last_resort(plain))
    (warning,) = first.warnings
    assert str(plain.cache) in warning
    assert not plain.cache.is_dir() or not os.listdir(plain.cache)
    assert (second.cargo, second.warnings) == ((), ())


@pytest.mark.parametrize("warm", [False, True], ids=["decided anew", "by record"])
@pytest.mark.parametrize("spoil", UNTRUSTED[:-1])
def test_nothing_is_loaded_from_an_untrusted_root(plain: Checkout, spoil: Callable[[Path], None], warm: bool) -> None:
    """
    What a root holds is not loaded once others could have changed it, not even by a record that says it is right.
    """
    if warm:
        settle(plain)
    else:
        plain.load()
    spoil(plain.cache)

    loaded = plain.load()

    assert loaded.value == ALPHA
    assert Path(str(loaded.file)).is_relative_to(last_resort(plain))


# Entries that are torn.


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """
    One checkout for the whole table below, since every row leaves a sound entry behind.
    """
    return check_out("plain", tmp_path_factory.mktemp("stored"))


def rewrite(path: Path, data: bytes) -> None:
    """
    Other content, with the old time stamp.
    """
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def flip(library: Path) -> None:
    """
    One bit, in the middle.
    """
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    rewrite(library, bytes(data))


def blank(library: Path) -> None:
    """
    A page of zeros, in the middle.
    """
    data = library.read_bytes()
    half = len(data) // 2
    rewrite(library, data[:half] + bytes(4096) + data[half + 4096 :])


def replace_by_folder(path: Path) -> None:
    """
    A folder where a file should be.
    """
    path.unlink()
    path.mkdir()


def replace_by_link(path: Path) -> None:
    """
    A link to the very bytes, but where others may change them.
    """
    copy = path.parents[5] / "copy"
    shutil.copy(path, copy)
    path.unlink()
    path.symlink_to(copy)


def edit_manifest(manifest: Path, **fields: object) -> None:
    """
    Give fields of a manifest other values.
    """
    manifest.write_text(json.dumps(json.loads(manifest.read_bytes()) | fields))


def escape(library: Path) -> None:
    """
    The manifest names a sound library outside its folder.
    """
    shutil.copy(library, library.parents[1] / "outside.so")
    edit_manifest(library.parent / "manifest.json", library="../outside.so")


def point_outside(library: Path) -> None:
    """
    The pointer leads to a sound entry outside its slot.
    """
    slot = library.parents[1]
    shutil.copytree(library.parent, slot.parent / "outside")
    (slot / "current").write_text("../outside")


def point_to_itself(library: Path) -> None:
    """
    The pointer names the slot, which looks like an entry.
    """
    slot = library.parents[1]
    for path in library.parent.iterdir():
        shutil.copy(path, slot / path.name)
    (slot / "current").write_text(".")


def replace_slot_by_file(library: Path) -> None:
    """
    A file where the entry's folders should be.
    """
    shutil.rmtree(library.parents[1])
    library.parents[1].write_text("")


def manifest_of(library: Path) -> Path:
    """
    Beside the library.
    """
    return library.parent / "manifest.json"


def pointer_of(library: Path) -> Path:
    """
    Above the entry.
    """
    return library.parents[1] / "current"


HARM: dict[str, Callable[[Path], object]] = {
    "library truncated": lambda library: os.truncate(library, library.stat().st_size // 2),
    "library without its last byte": lambda library: os.truncate(library, library.stat().st_size - 1),
    "library longer": lambda library: library.write_bytes(library.read_bytes() + b"x"),
    "library with one bit flipped": flip,
    "library with a page of zeros": blank,
    "library empty": lambda library: os.truncate(library, 0),
    "library gone": lambda library: library.unlink(),
    "library a folder": replace_by_folder,
    "library a link": replace_by_link,
    "library writable by others": lambda library: library.chmod(0o777),
    "entry writable by others": lambda library: library.parent.chmod(0o777),
    "slot writable by others": lambda library: library.parents[1].chmod(0o777),
    "manifest gone": lambda library: manifest_of(library).unlink(),
    "manifest empty": lambda library: manifest_of(library).write_bytes(b""),
    "manifest torn": lambda library: os.truncate(manifest_of(library), 100),
    "manifest of no sense": lambda library: manifest_of(library).write_bytes(b"\xff\x00nonsense"),
    "manifest a list": lambda library: manifest_of(library).write_text("[1, 2]"),
    "manifest a bare word": lambda library: manifest_of(library).write_text("null"),
    "manifest without fields": lambda library: manifest_of(library).write_text("{}"),
    "manifest nested without end": lambda library: manifest_of(library).write_text("[" * 100_000),
    "manifest a folder": lambda library: replace_by_folder(manifest_of(library)),
    "manifest writable by others": lambda library: manifest_of(library).chmod(0o666),
    "manifest of another format": lambda library: edit_manifest(manifest_of(library), format=99),
    "manifest of other facts": lambda library: edit_manifest(manifest_of(library), facts={"request/package": "other"}),
    "manifest with fields of other kinds": lambda library: edit_manifest(manifest_of(library), facts=3, library=[], glibc_floor="x"),
    "manifest with odd facts": lambda library: edit_manifest(manifest_of(library), facts={"request/package": 3}),
    "manifest with a glibc of the future": lambda library: edit_manifest(manifest_of(library), glibc_floor=[99, 0]),
    "manifest that began never": lambda library: edit_manifest(manifest_of(library), began=None),
    "manifest that leads outside": escape,
    "pointer gone": lambda library: pointer_of(library).unlink(),
    "pointer empty": lambda library: pointer_of(library).write_bytes(b""),
    "pointer of no sense": lambda library: pointer_of(library).write_bytes(b"\xff\x00"),
    "pointer to nothing": lambda library: pointer_of(library).write_text("18c0-missing"),
    "pointer that leads outside": point_outside,
    "pointer to the slot itself": point_to_itself,
    "pointer to the slot above": lambda library: pointer_of(library).write_text(".."),
    "pointer that is absolute": lambda library: pointer_of(library).write_text(os.fspath(library.parent)),
    "pointer a folder": lambda library: replace_by_folder(pointer_of(library)),
    "slot a file": replace_slot_by_file,
    "entry gone": lambda library: shutil.rmtree(library.parent),
    "all entries gone": lambda library: shutil.rmtree(library.parents[4]),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_torn_entry_is_a_miss(stored: Checkout, harm: str) -> None:
    """
    An entry that is not what it was is not loaded but made anew, without a complaint; then it is a hit.
    """
    sound = stored.load()
    assert sound.value == ALPHA
    if not harm.startswith("library"):
        # A record vouches for the library alone, and would serve it still.
        shutil.rmtree(stored.cache / "records", ignore_errors=True)
    HARM[harm](Path(str(sound.file)))

    healed, after = stored.load(), stored.load()

    assert healed.value == ALPHA
    assert healed.compiled == ["alpha"]
    assert healed.warnings == ()
    assert healed.file != sound.file
    assert Path(str(healed.file)).is_relative_to(stored.cache / "artifacts")
    assert (healed.file, ALPHA, ()) == (after.file, after.value, after.cargo)


def test_an_entry_under_another_name_is_a_miss(stored: Checkout) -> None:
    """
    An entry answers only for the facts in its manifest, wherever it was copied to.
    """
    old = stored.load()
    stored.replace("alpha/src/part.rs", "part-1", "part-2")
    new = stored.load()
    slot_of_new, entry_of_old = Path(str(new.file)).parents[1], Path(str(old.file)).parent
    shutil.copytree(entry_of_old, slot_of_new / "planted")
    (slot_of_new / "current").write_text("planted")
    shutil.rmtree(stored.cache / "records", ignore_errors=True)

    loaded = stored.load()
    stored.replace("alpha/src/part.rs", "part-2", "part-1")

    assert (loaded.value, loaded.compiled) == ("alpha-1 part-2 middle-1", ["alpha"])


def test_a_torn_record_only_costs_time(plain: Checkout) -> None:
    """
    A record that is torn, foreign or absurd changes no verdict.
    """
    built = settle(plain)
    (record,) = (plain.cache / "records").iterdir()
    data = record.read_bytes()

    for harm in (b"", data[:7], data[:40], data[:-1], data[:8] + b"nonsense", bytes(len(data)), data[::-1]):
        record.write_bytes(data)
        record.write_bytes(harm)
        loaded = plain.load()

        assert (ALPHA, built.file, ()) == (loaded.value, loaded.file, loaded.cargo)


# Disks.


def test_a_disk_that_fills_up_while_storing(plain: Checkout, mounts: Mounts) -> None:
    """
    When an entry cannot be stored, the module is loaded from where it was built, with one warning; nothing is half there.
    """
    plain.cache.mkdir(mode=0o700)
    mounts.mount("-t", "tmpfs", "-o", "size=64m,mode=700", "none", plain.cache)
    held = inside(mounts, plain)
    fill = f"""
        import contextlib
        from rust_ext_loader import _build

        build = _build.build
        def build_and_fill(*arguments, **named):
            built = build(*arguments, **named)
            with contextlib.suppress(OSError), open({os.fspath(plain.cache / "filler")!r}, "wb", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass
            return built
        _build.build = build_and_fill
    """

    full = held.load(prelude=fill)
    again = held.load(prelude=f"import os; os.unlink({os.fspath(plain.cache / 'filler')!r})")
    after = held.load()

    assert [full.value, again.value, after.value] == [ALPHA] * 3
    assert Path(str(full.file)).is_relative_to(plain.cache / "targets")
    (warning,) = full.warnings
    assert "No space left" in warning
    assert Path(str(again.file)).is_relative_to(plain.cache / "artifacts")
    assert (again.warnings, after.cargo) == ((), ())


@pytest.mark.parametrize("kilobytes", [16, 64, 256])
def test_a_disk_too_small_to_build(plain: Checkout, mounts: Mounts, kilobytes: int) -> None:
    """
    On a disk too small for a build the error says what is full; once there is room the next load works.
    """
    plain.cache.mkdir(mode=0o700)
    mounts.mount("-t", "tmpfs", "-o", f"size={kilobytes}k,mode=700", "none", plain.cache)
    held = inside(mounts, plain)

    small = held.load()
    mounts.mount("-o", "remount,size=64m", plain.cache)
    large, after = held.load(), held.load()

    assert "RustExtensionError" in small.types
    assert "No space left" in str(small.error)
    assert [large.value, after.value] == [ALPHA, ALPHA]
    assert (large.warnings, after.cargo) == ((), ())


def test_a_disk_without_execution_is_passed_over(plain: Checkout, mounts: Mounts) -> None:
    """
    Nothing can be loaded from a `noexec` mount: one warning says so, and the next root is used.
    """
    plain.cache.mkdir(mode=0o700)
    mounts.mount("-t", "tmpfs", "-o", "size=64m,mode=700,noexec", "none", plain.cache)
    held = inside(mounts, plain)

    first, second = held.load(), held.load()

    assert [first.value, second.value] == [ALPHA, ALPHA]
    assert Path(str(first.file)).is_relative_to(last_resort(plain))
    (warning,) = first.warnings
    assert str(plain.cache) in warning
    assert "noexec" in warning
    assert (second.cargo, second.warnings) == ((), ())


def test_an_entry_on_a_disk_without_execution_is_left_in_peace(plain: Checkout, mounts: Mounts) -> None:
    """
    An entry that lies on a `noexec` mount is sound: it is not set aside, only not used from there.
    """
    built = plain.load()
    mounts.mount("--bind", plain.cache, plain.cache)
    mounts.mount("-o", "remount,bind,noexec", plain.cache)

    elsewhere, again = inside(mounts, plain).load(), plain.load()

    assert [elsewhere.value, again.value] == [ALPHA, ALPHA]
    assert Path(str(elsewhere.file)).is_relative_to(last_resort(plain))
    assert (built.file, ()) == (again.file, again.cargo)


# Libraries.

RAISING = """
use std::ffi::{c_char, c_void};

unsafe extern "C" {
    static PyExc_KIND: *mut c_void;
    fn PyErr_SetString(kind: *mut c_void, text: *const c_char);
}

#[unsafe(no_mangle)]
pub extern "C" fn PyInit_alpha() -> *mut c_void {
    // SAFETY: called from the import system, with the GIL held.
    unsafe { PyErr_SetString(PyExc_KIND, c"not today".as_ptr()) };
    std::ptr::null_mut()
}
"""


@pytest.mark.parametrize("kind", ["ValueError", "ImportError"])
def test_what_an_init_raises_passes_through(plain: Checkout, kind: str) -> None:
    """
    A module whose init raises is right, only unhappy: its error passes through, nothing of it stays, nothing is rebuilt.
    """
    plain.write("alpha/src/lib.rs", RAISING.replace("PyExc_KIND", f"PyExc_{kind}"))

    first, second = plain.load(), plain.load()

    for loaded in (first, second):
        assert loaded.error == "not today"
        assert loaded.types[0] == kind
        assert not loaded.in_sys_modules
        assert loaded.warnings == ()
    assert [first.compiled, second.compiled] == [["alpha"], []]
    assert not (plain.cache / "quarantine").exists()


def forge(library: Path, data: bytes) -> None:
    """
    Bytes that their manifest vouches for.
    """
    library.chmod(0o700)
    library.write_bytes(data)
    edit_manifest(manifest_of(library), size=len(data), sha256=_store.digest_of_file(library))


@pytest.mark.parametrize("everywhere", [False, True], ids=["only the stored one", "the one it was copied from, too"])
def test_a_library_that_the_linker_refuses_is_built_anew(plain: Checkout, everywhere: bool) -> None:
    """
    A stored library that will not load is set aside, with one warning, and built anew in the same load.
    """
    library = Path(str(plain.load().file))
    refused = library.read_bytes().replace(b"libc.so.6\0", b"gone.so.6\0")
    assert refused != library.read_bytes()
    forge(library, refused)
    if everywhere:
        for output in (plain.cache / "targets").rglob("libalpha.so"):
            output.write_bytes(refused)

    healed, after = plain.load(), plain.load()

    assert [healed.value, after.value] == [ALPHA, ALPHA]
    (warning,) = healed.warnings
    assert str(library) in warning
    assert not library.exists()
    assert [refused] == [path.read_bytes() for path in (plain.cache / "quarantine").rglob("*.so")]
    assert (healed.file, (), ()) == (after.file, after.cargo, after.warnings)


def test_a_torn_build_folder_is_built_anew(plain: Checkout) -> None:
    """
    Cargo believes its own outputs by their time stamps; a library torn there is noticed, and compiled again.
    """
    library = Path(str(plain.load().file))
    shutil.rmtree(plain.cache / "artifacts")
    for output in (plain.cache / "targets").rglob("libalpha.so"):
        data = output.read_bytes()
        output.write_bytes(data[: len(data) // 2])

    healed, after = plain.load(), plain.load()

    assert [healed.value, after.value] == [ALPHA, ALPHA]
    assert library.name == Path(str(healed.file)).name
    assert after.cargo == ()


def test_a_library_that_lacks_another_is_built_once_more(plain: Checkout) -> None:
    """
    A module that is linked to a library which has gone is tried once more; then its error says which one is missing.
    """
    if tool("cc") is None:
        pytest.skip("no C compiler")
    linked, loaded_from = plain.cache.parent / "linked", plain.cache.parent / "loaded"
    linked.mkdir()
    (linked / "needed.c").write_text("int needed(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", linked / "libneeded.so", linked / "needed.c"], check=True)
    shutil.copytree(linked, loaded_from)
    plain.write(
        "alpha/src/lib.rs",
        """
#[link(name = "needed")]
unsafe extern "C" {
    fn needed() -> std::ffi::c_int;
}
// SAFETY: it takes nothing and does nothing.
pymod::module!(PyInit_alpha, "alpha", format!("{}", unsafe { needed() }));
""",
    )
    plain.environment["RUSTFLAGS"] = f"-L{linked} -Clink-arg=-Wl,-rpath,{loaded_from}"
    assert plain.load().value == "1"
    (loaded_from / "libneeded.so").unlink()

    lacking = plain.load()
    shutil.copy(linked / "libneeded.so", loaded_from)

    assert "ImportError" in lacking.types
    assert "libneeded.so" in str(lacking.error)
    assert lacking.compiled == ["alpha"]
    assert plain.load().value == "1"


# The process.


def test_ignored_children_do_not_matter(plain: Checkout) -> None:
    """
    Where SIGCHLD is ignored no exit status can be had: a good crate loads, a broken one brings the compiler's words.
    """
    ignore = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"

    good = plain.load(prelude=ignore)
    plain.replace("alpha/src/lib.rs", "mod part;", "mod part; nonsense")
    broken = plain.load(prelude=ignore)
    plain.replace("alpha/src/lib.rs", "mod part; nonsense", "mod part;")

    assert good.value == ALPHA
    assert broken.reason == "build-failed"
    assert "alpha/src/lib.rs:" in str(broken.error) or "src/lib.rs:" in str(broken.error)
    assert "nonsense" in str(broken.error)
    assert plain.load(prelude=ignore).value == ALPHA


def test_a_failed_load_does_not_poison_the_next(plain: Checkout) -> None:
    """
    Once its source is mended, a module that could not be built loads in the same process.
    """
    text = f"""
import pathlib
from rust_ext_loader import BuildFailed, load_rust_extension

source = pathlib.Path({os.fspath(plain.root / "alpha/src/part.rs")!r})
right = source.read_text()
source.write_text("nonsense")
try:
    load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r})
except BuildFailed as error:
    source.write_text(right)
    print(load_rust_extension("fx.alpha", workspace={os.fspath(plain.root)!r}).value)
"""
    assert run_script(plain, text) == f"{ALPHA}\n"


FLOCK = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/file.h>
#include <unistd.h>

int flock(int descriptor, int operation)
{
    %s
}
"""

FLOCKS = {
    "no locks": "errno = ENOLCK; return -1;",
    "no such call": "errno = ENOSYS; return -1;",
    "not supported": "errno = EOPNOTSUPP; return -1;",
    "blocks for ever unless told not to": "if (!(operation & LOCK_NB)) for (;;) pause(); errno = ENOLCK; return -1;",
}


@pytest.mark.parametrize("kind", FLOCKS)
def test_locks_that_do_not_work_are_not_needed(plain: Checkout, kind: str) -> None:
    """
    Where the file system cannot lock, each process builds in a folder of its own; what is stored is right, and no folder stays.
    """
    if tool("cc") is None:
        pytest.skip("no C compiler")
    folder = plain.cache.parent
    (folder / "flock.c").write_text(FLOCK % FLOCKS[kind])
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "flock.so", folder / "flock.c"], check=True)
    # For this process alone: cargo has its own way with locks.
    variables = {"LD_PRELOAD": os.fspath(folder / "flock.so")}
    prelude = "import os; os.environ.pop('LD_PRELOAD')"

    running = [plain.start(prelude=prelude, variables=variables) for _ in range(3)]
    answers = [plain.finish(process) for process in running]
    after = plain.load(prelude=prelude, variables=variables)

    assert [answer["value"] for answer in answers] == [ALPHA] * 3
    assert "cannot be locked" in str(answers[0]["stderr"])
    assert (after.value, after.cargo, after.stderr) == (ALPHA, (), "")
    assert [path for path in (plain.cache / "targets").iterdir() if path.is_dir()] == []


# The store itself, without a compiler.

FACTS = Fingerprint({"request/package": "alpha", "source/alpha": "1", "toolchain/rustc": "1.95.0"})
ORIGIN = _store.Origin("1.95.0", "cp311", None, 1.0, 1.0, None)


def store(root: Path, artifact: Path) -> _store.Entry:
    """
    Store one library as the build of `FACTS`.
    """
    return _store.publish(root, "fx.alpha", FACTS, artifact, "alpha.so", ORIGIN)


def fork_at(count: int, work: Callable[[], object]) -> int:
    """
    Do some work in a forked child that is killed at its nth step on the disk; the child's status.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    steps = 0

    def step(name: str) -> None:
        """
        Count one step, or die before it.
        """
        nonlocal steps
        if name in ("open", "os.mkdir", "os.rename", "os.chmod", "os.remove", "os.rmdir", "write", "fsync"):
            steps += 1
            if steps > count:
                os.kill(os.getpid(), signal.SIGKILL)

    write, fsync = os.write, os.fsync

    def write_as_step(descriptor: int, data: bytes) -> int:
        step("write")
        return write(descriptor, data)

    def fsync_as_step(descriptor: int) -> None:
        step("fsync")
        fsync(descriptor)

    try:
        sys.addaudithook(lambda name, _: step(name))
        os.write = write_as_step  # type: ignore[assignment]  # takes what is written here
        os.fsync = fsync_as_step  # type: ignore[assignment]  # likewise
        work()
    finally:
        os._exit(0)


def test_death_at_any_step_leaves_an_entry_whole_or_absent(tmp_path: Path) -> None:
    """
    Killed before the first, second, ... step on the disk, a publisher leaves an entry that is whole or none, and the way free.
    """
    artifact = tmp_path / "built.so"
    artifact.write_bytes(os.urandom(100_000))
    found = []
    for count in range(1000):
        root = tmp_path / str(count)
        status = fork_at(count, lambda root=root: store(root, artifact))  # type: ignore[misc]
        entry = _store.look_up([root], "fx.alpha", FACTS)
        found.append(entry is not None)
        assert entry is None or entry.library.read_bytes() == artifact.read_bytes()

        store(root, artifact)
        again = _store.look_up([root], "fx.alpha", FACTS)
        assert again is not None
        assert again.library.read_bytes() == artifact.read_bytes()
        if status == 0:
            break

    # Absent at first, there from one step on, and never gone again.
    assert found == sorted(found)
    assert found.count(False) > 8
    assert found[-1]


def test_litter_of_the_dead_is_swept(tmp_path: Path) -> None:
    """
    What killed publishers left in the staging folder is removed after a day, and not while somebody may still write it.
    """
    artifact = tmp_path / "built.so"
    artifact.write_bytes(b"bytes")
    young, old = tmp_path / "cache/staging/young", tmp_path / "cache/staging/old"
    for folder in (young, old):
        folder.mkdir(parents=True)
        (folder / "half").write_bytes(b"half")
    then = time.time() - 2 * 86400
    os.utime(old, (then, then))

    store(tmp_path / "cache", artifact)

    assert [young] == list((tmp_path / "cache/staging").iterdir())


def test_publishers_race_to_one_whole_entry(tmp_path: Path) -> None:
    """
    Processes that publish one key at once, again and again, all succeed; readers meanwhile see an entry whole or none.
    """
    artifact = tmp_path / "built.so"
    artifact.write_bytes(os.urandom(100_000))
    root = tmp_path / "cache"

    def publish() -> None:
        for _ in range(20):
            store(root, artifact)
            entry = _store.look_up([root], "fx.alpha", FACTS)
            assert entry is not None
            assert entry.library.read_bytes() == artifact.read_bytes()

    assert in_children(8, publish) == [0] * 8
    assert list((root / "staging").iterdir()) == []


def test_fifty_processes_make_one_root(tmp_path: Path) -> None:
    """
    Processes that prepare one missing root at once all succeed.
    """
    root = tmp_path / "deep" / "er" / "cache"

    def prepare() -> None:
        assert _store.ready_root(root) is None
        assert _staging.distrust(root) is None

    assert in_children(50, prepare) == [0] * 50
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def in_children(count: int, work: Callable[[], None]) -> list[int]:
    """
    Do the same in so many forked children that start together; their statuses.
    """
    reader, writer = os.pipe()
    children = []
    for _ in range(count):
        child = os.fork()
        if not child:
            status = 1
            try:
                os.close(writer)
                os.read(reader, 1)
                work()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.close(reader)
    os.close(writer)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_every_publication_is_a_new_file(tmp_path: Path) -> None:
    """
    A file that a process may have mapped is never written again: each publication has an inode of its own.
    """
    artifact = tmp_path / "built.so"
    artifact.write_bytes(b"first")
    one = store(tmp_path / "cache", artifact)
    artifact.write_bytes(b"second")
    other = store(tmp_path / "cache", artifact)

    assert one.library.stat().st_ino != other.library.stat().st_ino
    assert [one.library.read_bytes(), other.library.read_bytes()] == [b"first", b"second"]
    current = _store.look_up([tmp_path / "cache"], "fx.alpha", FACTS)
    assert current is not None
    assert current.library == other.library
