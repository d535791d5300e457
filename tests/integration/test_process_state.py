"""
The process that loads, in the states that life brings it into.
"""

from __future__ import annotations

import os

from checkout import Checkout
from processes import run_script

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
