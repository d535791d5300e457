"""
Find out which changes each importer of Rust modules notices, and which make it compile needlessly.

The rows are those of `tests/integration/freshness_changes.py`. Every importer has a separate folder
with its workspace and its caches. Before each row the folder is restored, including timestamps.
If a row must cause a rebuild, the value of the imported module shows whether it happened. If a row
must not cause a rebuild, the number of compiled crates shows a needless one.

Invariant: all importers see the same files, changes and compiler; time is not
judged. Standard library only.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import environment
import peers

# The table of changes belongs to the tests.
sys.path.insert(0, str(environment.ROOT / "tests/integration"))

from freshness_changes import CHANGES, copy_workspace, probe_machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from freshness_changes import Change, Machine
    from peers import Importer

#: Wrapper of rustc that logs the crate. Cargo's queries, which compile nothing, have no `--emit`.
_COUNTER = """\
#!/bin/sh
case "$*" in *" --emit"*) printf '%s\\n' "$3" >> '{log}';; esac
exec "$@"
"""


@dataclass(frozen=True)
class Imported:
    """
    Outcome of one import in a fresh process.
    """

    #: The module's `value`; `None` if the import failed.
    value: str | None
    #: Number of crates that were compiled.
    compiled: int
    seconds: float
    output: str


@dataclass(frozen=True)
class Bench:
    """
    One importer, in a folder that can be restored.
    """

    importer: Importer
    folder: Path
    tools: Path

    def set_up(self) -> str:
        """
        Import until nothing is compiled any more, keep the folder as master copy, and return the module's value.
        """
        imported = self.run({})
        for _ in range(3):
            if imported.compiled or imported.value is None:
                imported = self.run({})
        if imported.compiled or imported.value is None:
            raise RuntimeError(
                f"{self.importer.name} still compiles in the fourth import: {imported.value!r}, "
                f"{imported.compiled} compiled\n{imported.output}"
            )
        self.folder.rename(self.master)
        return imported.value

    @property
    def master(self) -> Path:
        """
        Folder of the master copy.
        """
        return self.folder.with_name(f"{self.folder.name}.master")

    def after(self, change: Change, machine: Machine) -> Imported:
        """
        Restore the folder, make the change, import.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.master, self.folder, symlinks=True)
        change.act(self.folder / "workspace", machine)
        return self.run(change.environment(machine))

    def run(self, variables: Mapping[str, str]) -> Imported:
        """
        Import in a fresh process.
        """
        log = self.tools / "compiled"
        log.write_text("")
        counter = self.tools / "counting-rustc"
        counter.write_text(_COUNTER.format(log=log), encoding="utf-8")
        counter.chmod(0o755)
        started = time.perf_counter()
        done = subprocess.run(
            self.importer.command,
            check=False,
            cwd=self.folder,
            env={**self.importer.variables, "RUSTC_WRAPPER": str(counter), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - started
        values = [line.removeprefix("value: ") for line in done.stdout.splitlines() if line.startswith("value: ")]
        value = values[-1] if values and done.returncode == 0 else None
        return Imported(value, len(log.read_text().splitlines()), seconds, done.stdout + done.stderr)


def main(*, with_peers: bool, json_file: str | None) -> int:
    """
    Set up, run and print the table; write JSON if asked to.
    """
    environment.main_environment().ready()
    machine = probe_machine()
    rows: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="freshness-") as name:
        benches = _benches(Path(name).resolve(), with_peers=with_peers)
        before = {bench.importer.name: bench.set_up() for bench in benches}
        names = list(before)
        print(f"\n{'change':<58}{'expected':<10}" + "".join(f"{name:<22}" for name in names), flush=True)
        for change in CHANGES:
            if reason := change.impossible_on(machine):
                print(f"{change.name:<58}skipped: {reason}")
                continue
            cells = {
                bench.importer.name: _verdict(change, machine, before[bench.importer.name], bench) for bench in benches
            }
            expected = "rebuild" if change.must_rebuild else "nothing"
            print(f"{change.name:<58}{expected:<10}" + "".join(f"{cells[name]:<22}" for name in names), flush=True)
            rows.append({"change": change.name, "expected": expected, **cells})
    _totals(rows, names)
    if json_file:
        report = {"machine": platform.platform(), "rows": rows}
        Path(json_file).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _benches(folder: Path, *, with_peers: bool) -> list[Bench]:
    tools = folder / "tools"
    tools.mkdir()
    benches = []
    for slug, make in {"ours": _ours, "cargo": _bare_cargo, **(peers.IMPORTERS if with_peers else {})}.items():
        place = folder / slug
        place.mkdir()
        copy_workspace(place / "workspace")
        _use_stand_in(place / "workspace")
        benches.append(Bench(make(place), place, tools))
    return benches


def _use_stand_in(workspace: Path) -> None:
    """
    Rename the hand-written module glue from `pymod` to `pyo3`, because maturin requires a dependency of that name.
    """
    (workspace / "pymod").rename(workspace / "pyo3")
    for name in ("Cargo.toml", "Cargo.lock", "alpha/Cargo.toml", "alpha/src/lib.rs", "pyo3/Cargo.toml"):
        path = workspace / name
        text = path.read_text(encoding="utf-8").replace("pymod", "pyo3")
        if name in ("Cargo.lock", "pyo3/Cargo.toml"):
            text = text.replace('name = "pyo3"\nversion = "0.1.0"', 'name = "pyo3"\nversion = "0.29.0"')
        path.write_text(text, encoding="utf-8")


def _ours(place: Path) -> Importer:
    code = (
        "from rust_ext_loader import load_rust_extension\n"
        f"print('value:', load_rust_extension('fx.alpha', workspace={str(place / 'workspace')!r}).value)"
    )
    variables = {**_own_variables(), "RUST_EXT_CACHE_DIR": str(place / "cache")}
    return peers.Importer("ours", (environment.main_environment().python, "-c", code), variables)


_CARGO = """
import json, shutil, subprocess, sys
sys.path.insert(0, sys.argv[2])
command = ["cargo", "build", "--release", "--package", "alpha", "--message-format=json-render-diagnostics"]
built = subprocess.run(command, cwd=sys.argv[1], stdout=subprocess.PIPE, text=True, check=True)
for message in map(json.loads, built.stdout.splitlines()):
    target = message.get("target", {})
    if message["reason"] == "compiler-artifact" and target["name"] == "alpha" and "cdylib" in target["kind"]:
        shutil.copy(message["filenames"][0], sys.argv[2] + "/alpha.so")
import alpha
print("value:", alpha.value)
"""


def _bare_cargo(place: Path) -> Importer:
    """
    Work without an import hook: build in the crate's folder, then import.
    """
    site = place / "site"
    site.mkdir()
    command = (environment.main_environment().python, "-c", _CARGO, str(place / "workspace/alpha"), str(site))
    return peers.Importer("cargo build", command, _own_variables())


def _own_variables() -> dict[str, str]:
    return {
        name: value
        for name, value in peers.own_environment().items()
        if not name.startswith(("CARGO_", "RUST_EXT_", "SGLANG_"))
    }


def _verdict(change: Change, machine: Machine, before: str, bench: Bench) -> str:
    imported = bench.after(change, machine)
    expected = change.value_after(before, machine)
    if change.must_rebuild:
        if imported.value == expected and (expected is not None or change.complaint in imported.output):
            return "right"
        return "STALE" if imported.value == before else "FAILS"
    if imported.value != before:
        return "FAILS"
    return "nothing" if imported.compiled == 0 else f"COMPILES {imported.compiled}"


def _totals(rows: list[dict[str, str]], names: list[str]) -> None:
    must = [row for row in rows if row["expected"] == "rebuild"]
    rest = [row for row in rows if row["expected"] == "nothing"]
    print()
    for name in names:
        noticed = sum(row[name] == "right" for row in must)
        needless = sum(row[name].startswith("COMPILES") for row in rest)
        broken = sum(row[name] == "FAILS" for row in rows)
        fails = f", fails {broken} times" if broken else ""
        print(f"{name:<22} notices {noticed} of {len(must)}, compiles needlessly for {needless} of {len(rest)}{fails}")
