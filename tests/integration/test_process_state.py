"""
Loads in unusual states of the process: SIGCHLD ignored, or a build that failed before.
"""

from __future__ import annotations

import os

from checkout import Checkout
from processes import run_script

ALPHA = "alpha-1 part-1 middle-1"


def test_a_load_works_with_sigchld_ignored(plain: Checkout) -> None:
    """
    With SIGCHLD ignored no exit status is available: a valid crate loads, a broken one fails with the compiler's error.
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


def test_a_load_after_a_failed_build_works(plain: Checkout) -> None:
    """
    Once its source is fixed, a module that did not compile loads in the same process.
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
