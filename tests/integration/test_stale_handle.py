"""
A network file system that has lost its handle to a file says so once; whoever asks again gets the file.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from checkout import Checkout
from processes import settle, tool

ALPHA = "alpha-1 part-1 middle-1"

#: The first opening of a file whose path holds `STALE` fails.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAND_IN(name)                                                             \\
    int name(const char *path, int flags, ...)                                     \\
    {                                                                              \\
        static int told;                                                           \\
        const char *stale = getenv("STALE");                                       \\
        va_list rest;                                                              \\
        va_start(rest, flags);                                                     \\
        int mode = va_arg(rest, int);                                              \\
        va_end(rest);                                                              \\
        if (stale && strstr(path, stale) && !told++) {                             \\
            write(2, "stale\\n", 6);                                               \\
            errno = ESTALE;                                                        \\
            return -1;                                                             \\
        }                                                                          \\
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \\
    }

STAND_IN(open)
STAND_IN(open64)
"""


@pytest.mark.parametrize(
    ("stale", "warm"),
    [
        pytest.param("/current", False, id="the pointer"),
        pytest.param("/manifest.json", False, id="the manifest"),
        pytest.param("/alpha.", False, id="the library"),
        pytest.param("/records/", True, id="the record"),
    ],
)
def test_a_stale_handle_is_asked_for_again(plain: Checkout, stale: str, warm: bool) -> None:
    """
    What cannot be opened the first time is sound: the module loads from where it lies, nothing is built or set aside.
    """
    if tool("cc") is None:
        pytest.skip("no C compiler")
    folder = plain.cache.parent
    (folder / "stale.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "stale.so", folder / "stale.c", "-ldl"], check=True)
    built = settle(plain) if warm else plain.load()
    if not warm:
        shutil.rmtree(plain.cache / "records", ignore_errors=True)

    loaded = plain.load(variables={"LD_PRELOAD": os.fspath(folder / "stale.so"), "STALE": stale})

    assert loaded.stderr == "stale\n"
    assert (loaded.value, loaded.file, loaded.compiled, loaded.warnings) == (ALPHA, built.file, [], ())
    assert not (plain.cache / "quarantine").exists()


@pytest.mark.parametrize("warm", [False, True], ids=["decided anew", "by record"])
def test_a_stale_handle_in_the_dynamic_linker_is_no_damage(plain: Checkout, warm: bool) -> None:
    """
    The same where the dynamic linker meets it: the library is opened once more.
    """
    built = settle(plain) if warm else plain.load()
    once = """
        import _imp, errno, os
        create = _imp.create_dynamic
        def create_or_fail(spec, *rest):
            # The decision may need libraries of Python's own first.
            if spec.name != "fx.alpha":
                return create(spec, *rest)
            _imp.create_dynamic = create
            text = f"{spec.origin}: cannot open shared object file: {os.strerror(errno.ESTALE)}"
            raise ImportError(text, name=spec.name, path=spec.origin)
        _imp.create_dynamic = create_or_fail
    """

    loaded = plain.load(prelude=once)

    assert (loaded.value, loaded.file, loaded.cargo, loaded.warnings) == (ALPHA, built.file, (), ())
    assert not (plain.cache / "quarantine").exists()
