"""
Counts of what a warm import does.

`ci/bench.py` measures times. These tests count what costs time: the interpreter's audit
events and, if `strace` works, system calls. A test with a cold import verifies the counters.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from editable_install import RECORD_AT_ONCE, WARM_MODULES, Editable

if TYPE_CHECKING:
    from checkout import Checkout
    from editable_install import Ran

#: Modules of a warm load through the public call instead of the hook.
WARM_CALL_MODULES = WARM_MODULES | {"rust_ext_loader._api"}

#: Files that determine the value of `fx.alpha`, in a checkout of `tests/crates/plain`.
SOURCES = {
    "Cargo.toml", "Cargo.lock",
    "alpha/Cargo.toml", "alpha/src/lib.rs", "alpha/src/part.rs",
    "middle/Cargo.toml", "middle/src/lib.rs",
    "pymod/Cargo.toml", "pymod/src/lib.rs",
}  # fmt: skip

#: Modules that only a build needs, and that take longest to import.
BUILD_MODULES = {
    "rust_ext_loader._produce",
    "rust_ext_loader.build._build",
    "rust_ext_loader.files._locks",
    "subprocess",
    "filelock",
}

HOOK = "import fx.alpha"
CALL = "import rust_ext_loader; rust_ext_loader.load_rust_extension('fx.alpha')"
CALL_BY_FOLDER = (
    "import rust_ext_loader; rust_ext_loader.load_rust_extension('fx.alpha', workspace={root!r}, cache_dir={cache!r})"
)


@dataclass(frozen=True)
class Counts:
    """
    What one import did.
    """

    processes: int
    locks: int
    #: Opened files of the workspace, and the number of listed folders of it or of the cache.
    sources: frozenset[str]
    listed: int
    #: Other opened files, without the toolkit and the standard library: `record` or a path.
    opened: tuple[str, ...]
    #: Opened extension modules.
    linked: tuple[str, ...]


def count(ran: Ran, checkout: Checkout) -> Counts:
    assert not ran.error, ran.error
    ours = (str(checkout.root), str(checkout.cache))
    beside = [path for path in ran.opened if path.startswith(str(checkout.cache.parent))]
    sources = frozenset(
        path.removeprefix(f"{checkout.root}/") for path in beside if path.startswith(f"{checkout.root}/")
    )
    records = f"{checkout.cache}/records/"
    others = tuple(
        "record" if path.startswith(records) else path for path in beside if not path.startswith(f"{checkout.root}/")
    )
    return Counts(
        processes=len(ran.spawned) + len(ran.cargo),
        locks=len(ran.locked),
        sources=sources,
        listed=len([folder for folder in ran.listed if folder.startswith(ours)]),
        opened=others,
        linked=ran.linked,
    )


@pytest.mark.parametrize(
    ("code", "mode", "bundled", "modules"),
    [
        pytest.param(HOOK, "auto", False, WARM_MODULES, id="import"),
        pytest.param(HOOK, "never", False, WARM_MODULES, id="import in mode never"),
        pytest.param(HOOK, "auto", True, WARM_MODULES, id="import of a bundled module"),
        pytest.param(CALL, "auto", False, WARM_CALL_MODULES, id="call that asks the editable install"),
        pytest.param(CALL, "never", True, WARM_CALL_MODULES, id="call in mode never, for a bundled module"),
        pytest.param(CALL_BY_FOLDER, "auto", False, WARM_CALL_MODULES, id="call that names workspace and cache"),
    ],
)
def test_a_warm_import_opens_a_record_and_a_library(
    built: Checkout, code: str, mode: str, bundled: bool, modules: set[str]
) -> None:
    """
    A warm import opens one record and one library. It starts no process, takes no lock and reads no source.
    """
    editable = Editable(built)
    library = editable.bundle() if bundled else built.stored_library()
    code = code.format(root=str(built.root), cache=str(built.cache))
    variables = {"SGLANG_RUST_BUILD_MODE": mode}
    editable.run(f"{RECORD_AT_ONCE}\n{code}", variables)
    warm = editable.run(code, variables)

    assert count(warm, built) == Counts(
        processes=0, locks=0, sources=frozenset(), listed=0, opened=("record",), linked=(str(library),)
    )
    assert warm.imported <= modules


@pytest.mark.parametrize("code", [pytest.param(HOOK, id="import"), pytest.param(CALL, id="call")])
def test_a_cold_import_is_counted(plain: Checkout, code: str) -> None:
    """
    A cold import starts processes, takes locks and reads.

    Without its record the next import only reads. The import after that is warm.
    """
    editable = Editable(plain)
    cold = editable.run(f"{RECORD_AT_ONCE}\n{code}")
    shutil.rmtree(plain.cache / "records")
    again = editable.run(f"{RECORD_AT_ONCE}\n{code}")
    warm = editable.run(code)
    counted = [count(ran, plain) for ran in (cold, again, warm)]
    foreign = [len(ran.imported - WARM_CALL_MODULES) for ran in (cold, again, warm)]

    assert [(bool(one.processes), bool(one.locks), one.sources >= SOURCES, bool(one.listed)) for one in counted] == [
        (True, True, True, True),
        (False, False, True, True),
        (False, False, False, False),
    ]
    assert len({one.linked[-1] for one in counted}) == 1, "the module is linked last, and the same file each time"
    assert foreign[0] > foreign[1] > 20 > foreign[2] == 0
    assert again.imported & BUILD_MODULES == set(), "without a build no module of the build is imported"
    assert cold.imported >= BUILD_MODULES


# System calls.

#: Paths that do not exist. An access to them marks the beginning and the end of the import in the trace.
BEGIN, END = "/the-import-begins", "/the-import-ends"
CHANGE_CALLS = {
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "mkdirat",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
}
START_CALLS = {"execve", "execveat", "clone", "clone3", "fork", "vfork"}


@pytest.fixture(scope="module")
def strace(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    command = (program, "-f", "-qq", "-y", "-s", "4096", "-e", "trace=%file,%process,%network,%desc", "-o")
    probe = subprocess.run(
        [*command, str(tmp_path_factory.mktemp("strace") / "probe"), "true"],
        check=False,
        capture_output=True,
        text=True,
    )
    if probe.returncode != 0:
        pytest.skip(f"strace does not work here: {probe.stderr.strip()}")
    return command


def calls_between(trace: str, begin: str, end: str) -> list[tuple[str, str]]:
    """
    Names and arguments of the calls between two marks.
    """
    lines = re.findall(r"^\d+ +(\w+)\((.*)$", trace, re.MULTILINE)
    asked = [
        number
        for number, (name, arguments) in enumerate(lines)
        if "access" in name and (begin in arguments or end in arguments)
    ]
    first, last = asked
    return lines[first + 1 : last]


@pytest.mark.parametrize("code", [pytest.param(HOOK, id="import"), pytest.param(CALL, id="call")])
def test_system_calls_of_a_warm_import(built: Checkout, strace: tuple[str, ...], code: str) -> None:
    """
    A warm import starts no process, takes no lock, opens no connection and writes nothing.

    In the checkout and the cache it opens one record and one library.
    """
    editable = Editable(built)
    trace = built.cache.parent / "trace"

    def traced(before: str = "") -> list[tuple[str, str]]:
        marked = f"{before}\nimport posix; posix.access({BEGIN!r}, 0)\n{code}\nposix.access({END!r}, 0)"
        editable.run(marked, under=(*strace, str(trace)))
        return calls_between(trace.read_text(errors="replace"), BEGIN, END)

    editable.run(f"{RECORD_AT_ONCE}\n{code}")
    warm = traced()
    library = built.stored_library()
    (record,) = (built.cache / "records").iterdir()
    ours = (f'"{built.root}', f'"{built.cache}')

    assert [path for path in opened(warm) if path.startswith(ours)] == [f'"{record}"', f'"{library}"']
    assert [
        call for call in warm if call[0] in START_CALLS | CHANGE_CALLS or call[0] in ("flock", "socket", "connect")
    ] == []
    assert [call for call in warm if re.search(r"O_WRONLY|O_RDWR|O_CREAT|F_(OFD_)?SETLK", call[1])] == []

    record.unlink()
    cold = traced(RECORD_AT_ONCE)
    read = {path.strip('"').removeprefix(f"{built.root}/") for path in opened(cold)}

    assert read >= SOURCES, "the trace shows opened files"
    assert any("O_CREAT" in arguments for _, arguments in cold), "the trace shows created files"


def opened(calls: list[tuple[str, str]]) -> list[str]:
    """
    The quoted paths of all calls that open a file, including failed ones.
    """
    return [
        match[0]
        for name, arguments in calls
        if name in ("open", "openat", "openat2") and (match := re.search(r'"[^"]*"', arguments))
    ]
