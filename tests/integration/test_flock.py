"""
File systems whose locks fail, never answer or mean nothing: a word, a folder of one's own, and the right module.
"""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest
from checkout import Checkout
from processes import Start, ended_at_last, tool, values, wait_until

ALPHA = "alpha-1 part-1 middle-1"

#: Stands in for `flock` on the lock files of the toolkit, and nowhere else.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int stand_in(int operation)
{
    %s
}

int flock(int descriptor, int operation)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    if (strstr(path, "/targets/") && strstr(path, ".lock"))
        return stand_in(operation);
    int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
    return real(descriptor, operation);
}
"""

#: What the stand-in does, and what is said of it.
KINDS = {
    "no locks": ("errno = ENOLCK; return -1;", "No locks available"),
    "no such call": ("errno = ENOSYS; return -1;", "Function not implemented"),
    "not supported": ("errno = EOPNOTSUPP; return -1;", "Operation not supported"),
    "blocks unless told not to": (
        "if (!(operation & LOCK_NB)) for (;;) pause(); errno = ENOLCK; return -1;",
        "No locks available",
    ),
    "blocks for ever": ("for (;;) pause(); return operation;", "no answer within"),
    "says yes to all": ("return 0 * operation;", "locks keep nobody out"),
}


def without_locks(checkout: Checkout, kind: str) -> dict[str, str]:
    """
    Variables with which a load meets such locks.
    """
    if tool("cc") is None:
        pytest.skip("no C compiler")
    folder = checkout.cache.parent
    (folder / "flock.c").write_text(SHIM % KINDS[kind][0])
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "flock.so", folder / "flock.c", "-ldl"], check=True)
    return {"LD_PRELOAD": os.fspath(folder / "flock.so")}


#: For the loading process alone: cargo has its own way with locks.
ALONE = "import os; os.environ.pop('LD_PRELOAD')"


@pytest.mark.parametrize("kind", KINDS)
def test_locks_that_do_not_work_are_not_needed(plain: Checkout, tmp_path: Path, kind: str) -> None:
    """
    Processes that cannot lock one another out build in folders of their own, each with one word about it.

    What is stored is right, the next one finds it without a lock, and neither a folder nor a lock file stays.
    """
    variables = without_locks(plain, kind)
    start = Start(tmp_path)

    running = [plain.start(prelude=ALONE + textwrap.dedent(start.prelude), variables=variables) for _ in range(3)]
    with ended_at_last(*running):
        start.go(len(running))
        answers = [plain.finish(process) for process in running]
    after = plain.load(prelude=ALONE, variables=variables)

    assert values(answers) == [ALPHA] * 3
    for answer in answers:
        (line,) = [line for line in str(answer["stderr"]).splitlines() if "lock" in line]
        assert "cannot be locked" in line
        assert KINDS[kind][1] in line
    assert (after.value, after.cargo, after.stderr, after.warnings) == (ALPHA, (), "", ())
    assert list((plain.cache / "targets").iterdir()) == []


def test_who_builds_alone_takes_what_was_stored_meanwhile(plain: Checkout) -> None:
    """
    Of two that build the same at once without a lock, the first to store it wins: the other leaves its own aside.
    """
    variables = without_locks(plain, "no such call")
    built, artifacts = plain.cache.parent / "built", plain.cache / "artifacts"
    late = f"""{ALONE}
import pathlib, time
from rust_ext_loader.build import _build

build = _build.build
def build_and_wait(*arguments, **named):
    result = build(*arguments, **named)
    open({os.fspath(built)!r}, "x").close()
    while not list(pathlib.Path({os.fspath(artifacts)!r}).glob("*/*/*/current*")):
        time.sleep(0.01)
    return result
_build.build = build_and_wait
"""
    one = plain.start(prelude=late, variables=variables)
    with ended_at_last(one):
        wait_until(built.exists, "it is built")
        # Whoever comes now finds nothing stored.
        other = plain.load(prelude=ALONE, variables=variables)
        answer = plain.finish(one)

    assert [answer["value"], other.value] == [ALPHA] * 2
    assert (answer["file"], ["alpha"]) == (other.file, other.compiled)
    assert [other.file] == [os.fspath(path) for path in artifacts.rglob("*.so")]
