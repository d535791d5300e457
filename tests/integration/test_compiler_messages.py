"""
Messages of the compiler: errors are always shown, warnings on request.
"""

from __future__ import annotations

from pathlib import Path

from checkout import Checkout


def test_a_syntax_error_shows_the_compilers_message(built: Checkout) -> None:
    """
    The error has rustc's message with file and line, the command and the log. Nothing is stored.
    """
    before = sorted((built.cache / "artifacts").rglob("current"))
    built.write("alpha/src/part.rs", "\npub const PART: &str = ;\n")
    broken = built.load()

    assert broken.types[:3] == ("BuildFailed", "RustExtensionError", "ImportError")
    assert broken.error is not None
    assert "error: expected expression, found `;`" in broken.error
    assert "alpha/src/part.rs:2:24" in broken.error
    assert "cargo rustc --locked" in broken.error
    log = Path(broken.error.rpartition("full log: ")[2])
    assert "error: expected expression, found `;`" in log.read_text(encoding="utf-8")
    assert not broken.in_sys_modules
    assert sorted((built.cache / "artifacts").rglob("current")) == before

    assert built.load().reason == "build-failed", "the next process tries again"
    built.write("alpha/src/part.rs", '\npub const PART: &str = "part-2";\n')
    assert built.load().value == "alpha-1 part-2 middle-1"


def test_warnings_are_shown_on_request(built: Checkout) -> None:
    """
    A successful build does not show the compiler's warnings unless the setting asks for them.
    """
    built.write("alpha/src/part.rs", 'pub const PART: &str = "part-2";\nfn unused() {}\n')
    assert "unused" not in built.load().stderr

    built.write("alpha/src/part.rs", 'pub const PART: &str = "part-3";\nfn unused() {}\n')
    assert "function `unused` is never used" in built.load(variables={"RUST_EXT_SHOW_WARNINGS": "1"}).stderr
