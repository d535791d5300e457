"""
The process that loads, in the states that life brings it into.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout
from processes import run_script, tool

if TYPE_CHECKING:
    pass

ALPHA = "alpha-1 part-1 middle-1"


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
