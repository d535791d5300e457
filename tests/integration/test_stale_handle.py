"""
A network file system that reports a stale file handle once: opening the file again succeeds.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from checkout import Checkout
from processes import load_until_recorded, tool

ALPHA = "alpha-1 part-1 middle-1"

#: A library in which the first `open` of a path that contains `STALE` fails.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPLACEMENT(name)                                                                   \\
    int name(const char *path, int flags, ...)                                              \\
    {                                                                                       \\
        static int failed;                                                                  \\
        const char *stale = getenv("STALE");                                                \\
        va_list rest;                                                                       \\
        va_start(rest, flags);                                                              \\
        int mode = va_arg(rest, int);                                                       \\
        va_end(rest);                                                                       \\
        if (stale && strstr(path, stale) && !failed++) {                                    \\
            write(2, "stale\\n", 6);                                                        \\
            errno = ESTALE;                                                                 \\
            return -1;                                                                      \\
        }                                                                                   \\
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode);\\
    }

REPLACEMENT(open)
REPLACEMENT(open64)
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
def test_a_stale_handle_is_opened_again(plain: Checkout, stale: str, warm: bool) -> None:
    """
    A file with a stale handle is valid: the cached module loads, and nothing is built or quarantined.
    """
    if tool("cc") is None:
        pytest.skip("no C compiler")
    folder = plain.cache.parent
    (folder / "stale.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "stale.so", folder / "stale.c", "-ldl"], check=True)
    built = load_until_recorded(plain) if warm else plain.load()
    if not warm:
        shutil.rmtree(plain.cache / "records", ignore_errors=True)

    loaded = plain.load(variables={"LD_PRELOAD": os.fspath(folder / "stale.so"), "STALE": stale})

    assert loaded.stderr == "stale\n"
    assert (loaded.value, loaded.file, loaded.compiled, loaded.warnings) == (ALPHA, built.file, [], ())
    assert not (plain.cache / "quarantine").exists()


@pytest.mark.parametrize("warm", [False, True], ids=["full decision", "by record"])
def test_a_stale_handle_in_the_dynamic_linker_is_opened_again(plain: Checkout, warm: bool) -> None:
    """
    If the dynamic linker meets the stale handle, the library is opened a second time.
    """
    built = load_until_recorded(plain) if warm else plain.load()
    once = """
        import _imp, errno, os
        create = _imp.create_dynamic
        def create_or_fail(spec, *rest):
            # The toolkit may import extension modules of Python itself first.
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
