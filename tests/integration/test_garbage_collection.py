"""
Garbage collection of a real cache: the command, parallel loads, and the automatic limit.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from children import expect_line, killed_at_exit
from commands import rust_ext
from processes import load_until_recorded, run_script

if TYPE_CHECKING:
    from checkout import Checkout

ALPHA = "alpha-1 part-1 middle-1"

_COLLECT_FOREVER = """
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
    Set the times of everything in a cache to `days` ago.
    """
    then = time.time() - days * 86400
    for where, _, names in os.walk(checkout.cache, topdown=False):
        for name in names:
            os.utime(Path(where, name), (then, then))
        os.utime(where, (then, then))


def test_gc_removes_unused_entries(plain: Checkout) -> None:
    """
    `gc` prints what it removed and its size. The next load builds.
    """
    plain.load()
    young = rust_ext(plain, "gc", "--max-size", "0", raw=True)
    assert (young.code, young.out.split()[0], entries(plain) != []) == (0, "freed", True)

    age(plain, 40)
    dry_run = rust_ext(plain, "gc", "--max-age", "30d", "--dry-run", raw=True)
    assert [line.split("  ")[0].strip() for line in dry_run.out.splitlines()[:-1]] == ["entry", "target folder"]
    assert dry_run.out.splitlines()[-1].startswith("would free ")
    done = json.loads(rust_ext(plain, "gc", "--max-age", "30d", "--json", raw=True).out)["roots"][0]
    assert done["bytes_freed"] > 0
    assert entries(plain) == []

    again = plain.load()
    assert (again.value, again.compiled) == (ALPHA, ["alpha"])


def test_a_warm_import_marks_its_entry_as_used(plain: Checkout) -> None:
    """
    A warm import reads only its record, and updates the time of use.
    """
    load_until_recorded(plain)
    age(plain, 40)
    # The record contains the stamps of the library, which `age` changed.
    load_until_recorded(plain)

    assert rust_ext(plain, "gc", "--max-age", "30d", raw=True).code == 0
    assert len(entries(plain)) == 1
    assert plain.load().cargo == ()


def test_loads_work_during_a_collection(plain: Checkout) -> None:
    """
    A collector that keeps one entry and has no grace period causes builds, but no failed import.
    """
    plain.load()
    script = plain.cache.parent / "collector.py"
    script.write_text(_COLLECT_FOREVER, encoding="utf-8")
    collector = plain.start_script(script, str(plain.cache))
    with killed_at_exit(collector):
        expect_line(collector, "ready")
        for old, new in [("part-1", "part-2"), ("part-2", "part-1")] * 2:
            plain.replace("alpha/src/part.rs", old, new)
            loaded = plain.load()
            assert (loaded.value, loaded.error) == (ALPHA.replace("part-1", new), None)


def test_a_build_enforces_the_cache_limit(plain: Checkout) -> None:
    """
    After a build the limit is enforced automatically. The entry that was used last is kept.
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


def test_the_warm_path_does_not_import_the_collector(plain: Checkout) -> None:
    """
    Only a build imports the garbage collector.
    """
    load_until_recorded(plain)
    assert "rust_ext_loader.cache._gc" not in plain.load().imported
    assert (
        run_script(plain, "import rust_ext_loader, sys; print('rust_ext_loader.cache._gc' in sys.modules)") == "False\n"
    )
