"""
Records of the warm path: when the last decision may be used again without checking the inputs.
"""

from __future__ import annotations

import _imp
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rust_ext_loader import _warm

from .recorded_world import ENVIRONMENT, World

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write()
    return world


def test_an_unchanged_world_is_trusted(world: World) -> None:
    """
    If nothing changed, every read returns the library.
    """
    assert world.read() == str(world.library)
    assert world.read() == str(world.library)


def test_a_missing_record_has_no_answer(world: World) -> None:
    """
    Without a record the read returns `None`.
    """
    world.file.unlink()

    assert world.read() is None


def edit_keeping_mtime(world: World) -> None:
    before = world.source.stat()
    world.source.write_text("this is bil.rs")
    os.utime(world.source, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_keeping_mtime(world: World) -> None:
    before = world.source.stat()
    other = world.folder / "other"
    other.write_text("this is bil.rs")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(world.source)


def retarget(world: World) -> None:
    other = world.folder / "another-rustc"
    other.write_text(world.compiler.read_text())
    world.proxy.unlink()
    world.proxy.symlink_to(other)


def replace_library(world: World) -> None:
    other = world.folder / "other.so"
    other.write_bytes(world.library.read_bytes())
    other.replace(world.library)


def appear(world: World) -> None:
    world.config.parent.mkdir()
    world.config.write_text("")


def appear_dangling(world: World) -> None:
    world.config.parent.mkdir()
    world.config.symlink_to("nowhere")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.source.write_text("edited, and longer than before"), id="source edited"),
        pytest.param(edit_keeping_mtime, id="source edited: same size, mtime restored"),
        pytest.param(replace_keeping_mtime, id="source replaced: same size, same mtime"),
        pytest.param(lambda world: os.utime(world.source, (1, 1)), id="source older"),
        pytest.param(lambda world: os.utime(world.source), id="source touched"),
        pytest.param(lambda world: world.source.unlink(), id="source gone"),
        pytest.param(lambda world: (world.source.parent / "new.rs").touch(), id="file added to the folder"),
        pytest.param(appear, id="config file appeared"),
        pytest.param(appear_dangling, id="config file appeared as a dangling link"),
        pytest.param(
            lambda world: world.compiler.write_text("this is a new rustc"), id="compiler replaced at the link's target"
        ),
        pytest.param(retarget, id="link to the compiler retargeted"),
        pytest.param(lambda world: world.compiler.unlink(), id="compiler gone"),
        pytest.param(replace_library, id="library replaced by an equal file"),
        pytest.param(lambda world: world.library.write_bytes(b"short"), id="library truncated"),
        pytest.param(lambda world: world.library.unlink(), id="library gone"),
    ],
)
def test_a_change_invalidates_the_record(world: World, change: Callable[[World], object]) -> None:
    """
    A change of anything that the decision checked makes the read return `None`.
    """
    change(world)

    assert world.read() is None


def write_many_files(world: World) -> list[Path]:
    """
    Write the record of a folder with many files, which are checked relative to the opened folder.
    """
    files = [world.folder / "many" / f"file{number}.rs" for number in range(9)]
    files[0].parent.mkdir()
    for file in files:
        file.write_text(f"this is {file.name}")
    world.write(also=files)
    assert world.read() == str(world.library)
    return files


@pytest.mark.parametrize("number", [0, 4, 8])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda file: file.write_text("longer than it was before"), id="edited"),
        pytest.param(lambda file: file.unlink(), id="gone"),
        pytest.param(lambda file: file.rename(file.with_name("other")), id="renamed"),
        pytest.param(
            lambda file: Path(shutil.copy2(file, file.with_name("new"))).replace(file), id="replaced by a copy"
        ),
        pytest.param(lambda file: file.parent.rename(file.parent.with_name("elsewhere")), id="folder moved"),
        pytest.param(
            lambda file: shutil.copytree(file.parent, file.parent.with_name("copy")).rename(
                shutil.move(file.parent, file.parent.with_name("elsewhere")) and file.parent
            ),
            id="folder replaced by a copy",
        ),
    ],
)
def test_a_change_among_many_files_invalidates_the_record(
    world: World, number: int, change: Callable[[Path], object]
) -> None:
    """
    In a folder with many files, a change of any of them is detected.
    """
    change(write_many_files(world)[number])

    assert world.read() is None


def test_many_files_without_relative_paths(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If the system has no stat relative to an opened folder, each file is checked by its path.
    """
    monkeypatch.setattr(_warm, "FOLDER_FLAGS", 0)
    files = write_many_files(world)
    files[8].write_text("longer than it was before")

    assert world.read() is None


def test_no_folder_stays_open(world: World) -> None:
    """
    Reading a record closes every folder that it opens, also if a file in it is gone.
    """
    files = write_many_files(world)
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else pytest.skip("there is no /proc")
    files[3].unlink()

    assert world.read() is None
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("environment", "trusted"),
    [
        pytest.param(ENVIRONMENT, True, id="unchanged"),
        pytest.param({**ENVIRONMENT, "LANG": "C"}, True, id="another variable"),
        pytest.param({**ENVIRONMENT, "MY_FLAVOUR": "sour"}, False, id="declared variable changed"),
        pytest.param({"PATH": "/bin"}, False, id="declared variable gone"),
        pytest.param({**ENVIRONMENT, "MY_OTHER": ""}, False, id="declared variable appeared, with an empty value"),
    ],
)
def test_declared_variables_are_compared(world: World, environment: dict[str, str], trusted: bool) -> None:
    """
    A change of a variable that the crate declares invalidates the record.
    """
    assert (world.read(environment) is not None) == trusted


@pytest.mark.parametrize(
    "identity",
    [
        pytest.param(_warm.identify("fx.beta", "/ws", "auto", ENVIRONMENT, ["/site/fx"]), id="module"),
        pytest.param(_warm.identify("fx.alpha", "/other", "auto", ENVIRONMENT, ["/site/fx"]), id="workspace"),
        pytest.param(_warm.identify("fx.alpha", "/ws", "never", ENVIRONMENT, ["/site/fx"]), id="mode"),
        pytest.param(
            _warm.identify("fx.alpha", "/ws", "auto", {**ENVIRONMENT, "PATH": "/usr/bin"}, ["/site/fx"]),
            id="environment",
        ),
        pytest.param(
            _warm.identify("fx.alpha", "/ws", "auto", ENVIRONMENT, ["/venv/fx"]), id="folders of the parent package"
        ),
        pytest.param(_warm.identify("fx.alpha", "/ws", "auto", ENVIRONMENT, None), id="no parent package"),
    ],
)
def test_a_record_of_another_identity_is_not_used(world: World, identity: tuple[object, ...]) -> None:
    """
    File names may collide: a record at the path of another identity is not used for it.
    """
    place = Path(_warm.path_of(str(world.root), identity))
    assert place != world.file
    world.file.rename(place)

    assert _warm.read(str(world.root), identity, ENVIRONMENT) is None


def test_values_of_variables_are_not_written(world: World) -> None:
    """
    Secret values of variables are not in the record's file.
    """
    world.write(declared=[("MY_TOKEN", "s3cr3t-two")])

    assert b"s3cr3t" not in world.file.read_bytes()


@pytest.mark.parametrize(("folders", "trusted"), [(("/a", "/b"), True), (("/b", "/a"), False), (("/a",), False)])
def test_a_record_with_distributions_belongs_to_its_search_path(
    world: World, monkeypatch: pytest.MonkeyPatch, folders: tuple[str, ...], trusted: bool
) -> None:
    """
    If the decision read versions of distributions, the record is valid for the same `sys.path` only.
    """
    world.write(search_path=("/a", "/b"))
    monkeypatch.setattr(sys, "path", list(folders))

    assert (world.read() is not None) == trusted


@pytest.mark.parametrize("host", [("aarch64", "glibc 2.36"), ("x86_64", "glibc 2.17")])
def test_a_record_belongs_to_its_host(world: World, monkeypatch: pytest.MonkeyPatch, host: tuple[str, str]) -> None:
    """
    Hosts that share a home folder have separate records, since a library may not load on another machine or C library.
    """
    here = world.identity
    monkeypatch.setattr(_warm, "_host", lambda: host)

    assert world.identity != here


def test_without_a_boot_id_no_record_for_native_code(world: World) -> None:
    """
    A record of code for this CPU needs a boot id. Without one, a change of the CPU would go unnoticed.
    """
    assert world.compose(boot="") is None


def test_a_record_belongs_to_its_interpreter(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A record written by one Python is not used by another.
    """
    monkeypatch.setattr(_warm, "_INTERPRETER", ("another",))

    assert world.read() is None


def sealed(*fields: Any, version: int = _warm.FORMAT) -> bytes:  # noqa: ANN401 - as `marshal` takes it
    data = marshal.dumps(fields)
    return _imp.source_hash(version, data) + data


def test_a_sealed_record_with_wrong_fields_is_ignored(world: World) -> None:
    """
    A record with a valid seal is ignored if its version, its number of fields or their types are wrong.
    """
    nothing = ("", (), _warm.packed([]))
    rest = (world.identity, (), None, (nothing,), ())
    library = str(world.library)
    world.put(sealed(_warm.FORMAT, *rest, library, None))
    assert world.read() == library, "`sealed` must write what `_warm` reads"

    def with_present(*present: object) -> bytes:
        return sealed(_warm.FORMAT, world.identity, (), None, present, (), library, None)

    one, folder = _warm.packed([(1, 2, 3, 4)]), str(world.library.parent)
    for data in (
        sealed(_warm.FORMAT + 1, *rest, library, None),
        sealed(_warm.FORMAT, *rest, library, None, version=_warm.FORMAT + 1),
        sealed(_warm.FORMAT, *rest, library),
        sealed(_warm.FORMAT, *rest, library, None, None),
        sealed(_warm.FORMAT, *rest, 7, None),
        sealed(_warm.FORMAT, *rest, None, None),
        sealed(_warm.FORMAT, world.identity, 7, None, (nothing,), (), library, None),
        sealed(_warm.FORMAT, world.identity, (), None, 7, (), library, None),
        with_present(("", (library,), nothing[2])),
        with_present(("", (library,), marshal.dumps([None], 2))),
        with_present(("", (), one)),
        with_present(("", ("a\0b",), one)),
        with_present(("", 7, nothing[2])),
        with_present((7, (), nothing[2])),
        with_present((folder, (world.library.name,), one)),
        with_present((folder + "/gone", (), nothing[2])),
        with_present((library, (), nothing[2])),
        with_present(("", ())),
    ):
        world.put(data)
        assert world.read() is None, data


def flip(position: int) -> Callable[[World], None]:
    def act(world: World) -> None:
        data = bytearray(world.file.read_bytes())
        data[position] ^= 1
        world.file.write_bytes(bytes(data))

    return act


def cut(length: int) -> Callable[[World], object]:
    return lambda world: world.file.write_bytes(world.file.read_bytes()[:length])


def become(make: Callable[[Path, Path], object]) -> Callable[[World], object]:
    return lambda world: make(world.file, world.file.rename(world.folder / "moved"))


def change_owner(world: World) -> None:
    try:
        os.chown(world.file, 12345, 12345)
    except OSError:
        pytest.skip("only root may change the owner of files")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(cut(0), id="empty"),
        pytest.param(cut(7), id="shorter than a seal"),
        pytest.param(cut(8), id="only a seal"),
        pytest.param(cut(-1), id="last byte missing"),
        pytest.param(flip(0), id="seal altered"),
        pytest.param(flip(8), id="type altered"),
        pytest.param(flip(-5), id="content altered"),
        pytest.param(lambda world: world.file.write_bytes(os.urandom(200)), id="garbage"),
        pytest.param(lambda world: world.file.chmod(0o602), id="writable by all"),
        pytest.param(lambda world: world.file.chmod(0o620), id="writable by the group"),
        pytest.param(change_owner, id="of another user"),
        pytest.param(become(Path.symlink_to), id="behind a link"),
        pytest.param(become(lambda file, _: file.mkdir()), id="a folder"),
        pytest.param(become(lambda file, _: os.mkfifo(file)), id="a pipe without a writer"),
    ],
)
@pytest.mark.timeout(30)
def test_an_untrusted_record_is_ignored(world: World, change: Callable[[World], object]) -> None:
    """
    A truncated, altered or planted record is ignored, without blocking and without an error.
    """
    change(world)

    assert world.read() is None


def test_a_record_for_native_code_belongs_to_its_boot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    After a reboot, which may have changed the machine, the features of the CPU are read again.
    """
    world.write(boot="boot-1")
    monkeypatch.setattr(_warm, "boot_id", lambda: "boot-1")
    assert world.read() == str(world.library)

    monkeypatch.setattr(_warm, "boot_id", lambda: "boot-2")
    assert world.read() is None


@pytest.mark.parametrize(
    ("module", "more"),
    [
        pytest.param("_warm", set(), id="the warm path"),
        pytest.param("_hook", {"__future__", "rust_ext_loader._hook"}, id="called by an earlier version's `.pth` line"),
    ],
)
def test_the_warm_path_imports_little(module: str, more: set[str]) -> None:
    """
    The modules of a warm import load only the listed modules beyond those of a plain interpreter.
    """
    code = (
        f"import sys; before = set(sys.modules); import rust_ext_loader.{module}; "
        "print(*sorted(set(sys.modules) - before))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert set(out.split()) <= {"rust_ext_loader", "rust_ext_loader._warm", *more}
