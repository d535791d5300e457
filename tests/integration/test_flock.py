"""
File systems whose locks fail, block or have no effect: one message, a private target folder, and the right module.
"""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest
from checkout import Checkout
from children import killed_at_exit
from eventually import eventually
from processes import StartLine, tool, values

ALPHA = "alpha-1 part-1 middle-1"

#: A library that replaces `flock` for the lock files of the toolkit only.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int replacement(int operation)
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
        return replacement(operation);
    int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
    return real(descriptor, operation);
}
"""

#: The body of the replacement, and part of the message.
KINDS = {
    "no locks": ("errno = ENOLCK; return -1;", "No locks available"),
    "no such call": ("errno = ENOSYS; return -1;", "Function not implemented"),
    "not supported": ("errno = EOPNOTSUPP; return -1;", "Operation not supported"),
    "blocks unless LOCK_NB is set": (
        "if (!(operation & LOCK_NB)) for (;;) pause(); errno = ENOLCK; return -1;",
        "No locks available",
    ),
    "blocks forever": ("for (;;) pause(); return operation;", "no answer within"),
    "always succeeds": ("return 0 * operation;", "two processes can hold the same lock"),
}


def without_locks(checkout: Checkout, kind: str) -> dict[str, str]:
    """
    Variables with which a load uses the replacement.
    """
    if tool("cc") is None:
        pytest.skip("no C compiler")
    folder = checkout.cache.parent
    (folder / "flock.c").write_text(SHIM % KINDS[kind][0])
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "flock.so", folder / "flock.c", "-ldl"], check=True)
    return {"LD_PRELOAD": os.fspath(folder / "flock.so")}


#: Removes the replacement from the environment of cargo, because cargo calls `flock` too.
WITHOUT_PRELOAD = "import os; os.environ.pop('LD_PRELOAD')"


@pytest.mark.parametrize("kind", KINDS)
def test_builds_work_without_locks(plain: Checkout, tmp_path: Path, kind: str) -> None:
    """
    Processes whose locks do not work build in private folders, and each prints one message about it.

    The stored entry is right and the next load finds it. No private folder and no lock file is left.
    """
    variables = without_locks(plain, kind)
    start = StartLine(tmp_path)

    running = [
        plain.start(prelude=WITHOUT_PRELOAD + textwrap.dedent(start.prelude), variables=variables) for _ in range(3)
    ]
    with killed_at_exit(*running):
        start.go(len(running))
        answers = [plain.finish(process) for process in running]
    after = plain.load(prelude=WITHOUT_PRELOAD, variables=variables)

    assert values(answers) == [ALPHA] * 3
    for answer in answers:
        (line,) = [line for line in str(answer["stderr"]).splitlines() if "lock" in line]
        assert "cannot be locked" in line
        assert KINDS[kind][1] in line
    assert (after.value, after.cargo, after.stderr, after.warnings) == (ALPHA, (), "", ())
    assert list((plain.cache / "targets").iterdir()) == []


def test_the_first_of_two_unlocked_builds_is_used(plain: Checkout) -> None:
    """
    Of two processes that build the same module without a lock, the second takes the entry that the first stored.
    """
    variables = without_locks(plain, "no such call")
    built, artifacts = plain.cache.parent / "built", plain.cache / "artifacts"
    late = f"""{WITHOUT_PRELOAD}
import pathlib, sys
from rust_ext_loader.build import _build
sys.path.append({os.path.dirname(eventually.__code__.co_filename)!r})
from eventually import eventually

build = _build.build
def build_and_wait(*arguments, **named):
    result = build(*arguments, **named)
    open({os.fspath(built)!r}, "x").close()
    eventually(lambda: list(pathlib.Path({os.fspath(artifacts)!r}).glob("*/*/*/current*")), "the other build is stored")
    return result
_build.build = build_and_wait
"""
    one = plain.start(prelude=late, variables=variables)
    with killed_at_exit(one):
        eventually(built.exists, "it is built")
        # This load still finds no stored entry.
        other = plain.load(prelude=WITHOUT_PRELOAD, variables=variables)
        answer = plain.finish(one)

    assert [answer["value"], other.value] == [ALPHA] * 2
    assert (answer["file"], ["alpha"]) == (other.file, other.compiled)
    assert [other.file] == [os.fspath(path) for path in artifacts.rglob("*.so")]
