"""
Garbage collection of a real cache: the command, loads beside it, and the limit that holds by itself.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from commands import rust_ext
from processes import ended_at_last, run_script, settle

if TYPE_CHECKING:
    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"

_COLLECT_FOR_EVER = """
import sys
from pathlib import Path
from rust_ext_loader.cache import _gc
print("ready", flush=True)
while True:
    _gc.collect(Path(sys.argv[1]), _gc.Limits(max_size=0, keep=1), grace=-1)
"""


def entries(checkout: Checkout) -> list[Path]:
    return sorted(path.parent for path in (checkout.cache / "artifacts").rglob("manifest.json"))


def age(checkout: Checkout, days: float) -> None:
    """
    Make all that a cache holds look unused for so long.
    """
    then = time.time() - days * 86400
    for where, _, names in os.walk(checkout.cache, topdown=False):
        for name in names:
            os.utime(Path(where, name), (then, then))
        os.utime(where, (then, then))


def test_the_command_takes_away_what_nobody_uses(plain: Checkout) -> None:
    """
    It says what went and how much that was; the next load builds, since nothing else is lost.
    """
    plain.load()
    young = rust_ext(plain, "gc", "--max-size", "0", plainly=True)
    assert (young.code, young.out.split()[0], entries(plain) != []) == (0, "freed", True)

    age(plain, 40)
    told = rust_ext(plain, "gc", "--max-age", "30d", "--dry-run", plainly=True)
    assert [line.split("  ")[0].strip() for line in told.out.splitlines()[:-1]] == ["entry", "target folder"]
    assert told.out.splitlines()[-1].startswith("would free ")
    done = json.loads(rust_ext(plain, "gc", "--max-age", "30d", "--json", plainly=True).out)["roots"][0]
    assert done["bytes_freed"] > 0
    assert entries(plain) == []

    again = plain.load()
    assert (again.value, again.compiled) == (ALPHA, ["alpha"])


def test_a_warm_import_keeps_what_it_uses(plain: Checkout) -> None:
    """
    It reads nothing but its record, and that is stamped.
    """
    settle(plain)
    age(plain, 40)
    # The library's own time stamps are part of the record.
    settle(plain)

    assert rust_ext(plain, "gc", "--max-age", "30d", plainly=True).code == 0
    assert len(entries(plain)) == 1
    assert plain.load().cargo == ()


def test_loads_and_collectors_do_not_meet(plain: Checkout) -> None:
    """
    A collector without grace, that leaves one entry, costs builds and never an import.
    """
    plain.load()
    script = plain.cache.parent / "collector.py"
    script.write_text(_COLLECT_FOR_EVER, encoding="utf-8")
    collector = plain.start_script(script, str(plain.cache))
    with ended_at_last(collector):
        assert collector.stdout is not None
        assert collector.stdout.readline() == "ready\n"
        for old, new in [("part-1", "part-2"), ("part-2", "part-1")] * 2:
            plain.replace("alpha/src/part.rs", old, new)
            loaded = plain.load()
            assert (loaded.value, loaded.error) == (ALPHA.replace("part-1", new), None)


def test_a_cache_holds_to_its_limit(plain: Checkout) -> None:
    """
    After a build, without being asked; what was used last stays.
    """
    plain.load()
    age(plain, 2)
    plain.environment["RUST_EXT_CACHE_LIMIT"] = "1k"
    plain.replace("alpha/src/part.rs", "part-1", "part-2")
    before = entries(plain)
    loaded = plain.load()

    assert loaded.compiled == ["alpha"]
    assert loaded.file is not None
    assert entries(plain) == [Path(loaded.file).parent]
    assert before != entries(plain)


def test_nothing_is_imported_for_it_on_the_warm_path(plain: Checkout) -> None:
    """
    What collects is imported by what builds alone.
    """
    settle(plain)
    assert "rust_ext_loader.cache._gc" not in plain.load().imported
    assert (
        run_script(plain, "import rust_ext_loader, sys; print('rust_ext_loader.cache._gc' in sys.modules)") == "False\n"
    )
