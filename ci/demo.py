"""
Show the main job on this machine: an import that builds a real extension, once.

1. A new interpreter imports the media module and resizes a photo.
2. Further interpreters show what later imports cost.
3. In a temporary copy of the checkout one line of the server is edited, twice: only that
   crate is rebuilt, for editing; the reason and the time until the import has finished are printed.
4. The server is started, streams one answer, and is stopped.

Invariant: does not change the checkout, and verifies this; when interrupted, it
ends the processes that it started and removes its folders. Standard library
only; names the prerequisites that are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import prerequisites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PHOTO = ROOT / "tests/golden/photo/rocket.jpg"

#: The edited file, and a text in one of its messages, to which the number of the edit is appended.
EDITED = "rust/sglang-server/src/api/mod.rs"
TEXT = "is not allowed for this path"
#: The modules that are imported before and after. The second one is built from the edited file.
MODULES = ("sglang.srt.rust_extensions._multimodal", "sglang.srt.rust_extensions._server")

#: After an interrupt, compilers may write into a temporary folder for this many seconds.
_LAST_WRITES = 10

#: Names that are not copied: everything that git ignores, and git's own folder.
_NOT_COPIED = (".git", ".venv", ".tools", "target", "__pycache__", ".*_cache", ".hypothesis", "*.so")


def main() -> int:
    """
    Set up and run the four parts; return 130 after an interrupt.
    """
    options = _parse()
    prerequisites.require()
    for name in ("SIGHUP", "SIGTERM"):
        # A signal that a launcher ignores (`nohup`) stays ignored.
        if (number := getattr(signal, name, None)) is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        return _run_parts(fresh=options.fresh)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def _run_parts(*, fresh: bool) -> int:
    import environment

    before = _git_status()
    _say("Setting up .venv with both distributions, editable")
    try:
        environment.main_environment().ready()
    except environment.InstallFailed as error:
        raise SystemExit(f"could not set up .venv: `{error}` failed") from None
    with _cache(fresh=fresh) as variables:
        _photo(variables)
        _import_times(variables)
        _edit_in_a_copy(variables)
        _serve(variables)
    after = _git_status()
    _say("Done")
    print("the checkout is unchanged" if before == after else f"the checkout CHANGED:\n{after}", flush=True)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Show an import that builds a real extension, once.")
    parser.add_argument("--fresh", action="store_true", help="start with an empty cache, as on a new machine")
    return parser.parse_args()


@contextlib.contextmanager
def _cache(*, fresh: bool) -> Iterator[dict[str, str]]:
    import imports

    variables = imports.own_environment()
    if not fresh:
        yield variables
        return
    with _temporary_folder() as folder:
        yield {**variables, "RUST_EXT_CACHE_DIR": str(folder)}


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rust-ext-demo-"))
    try:
        yield folder
    finally:
        until = time.monotonic() + _LAST_WRITES
        while folder.exists() and time.monotonic() < until:
            shutil.rmtree(folder, ignore_errors=True)


def _photo(variables: dict[str, str]) -> None:
    _say("1. A new interpreter: `from sglang.srt.rust_extensions._multimodal import common`")
    _python(variables, str(ROOT / "ci/demo_photo.py"), str(PHOTO))


def _import_times(variables: dict[str, str]) -> None:
    import environment
    import imports

    _say("2. Later imports, compared with a plain import of the same file")
    python = environment.main_environment().python
    with imports.pair(python, MODULES[0], variables) as (ours, plain):
        # The two kinds of imports alternate, so that both see the same load of the machine.
        runs = [(ours.run(), plain.run()) for _ in range(11)]
    for name, taken in (("ours", [run[0] for run in runs]), ("plain", [run[1] for run in runs])):
        statement = imports.median(item.statement for item in taken) * 1000
        cpu = imports.median(item.cpu for item in taken) * 1000
        print(
            f"{name:<6} import {statement:6.2f} ms, whole process {cpu:6.1f} ms of CPU   "
            f"(median of {len(taken)} processes)"
        )
    print("ours checks whether an input has changed; plain only loads the file")
    print(f"file   {runs[0][0].library}", flush=True)


def _serve(variables: dict[str, str]) -> None:
    _say("4. `python -m sglang.srt.rust_server --engine echo`: one answer, streamed")
    _python(variables, str(ROOT / "ci/demo_server.py"))


def _edit_in_a_copy(variables: dict[str, str]) -> None:
    _say("3. In a temporary copy, one source line of the server is edited")
    with _temporary_folder() as folder:
        copy, cache = folder / "checkout", folder / "cache"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_NOT_COPIED), symlinks=True)
        # The copy has its own cache for what it builds, and reads the existing one.
        variables = {**variables, "RUST_EXT_CACHE_PATH": _cache_root(variables), "RUST_EXT_CACHE_DIR": str(cache)}
        # The edit tier is what this part shows, also under `CI=true`.
        variables["RUST_EXT_EDIT_TIER"] = "on"
        print(
            "-- before the edit; the copy has no compiled objects yet, so the server is built with all its\n"
            "   dependencies, which takes minutes on two cores:",
            flush=True,
        )
        _load(MODULES[0], copy, variables)
        _load(MODULES[1], copy, variables, mode="force")
        print("\n-- after the first edit, which also starts the compiler's incremental state:", flush=True)
        _edit_one_line(copy / EDITED, 1)
        print(f"   rust-ext explain {MODULES[1]}", flush=True)
        _python(variables, "-m", "rust_ext_loader", "explain", "--workspace", str(copy / "rust"), MODULES[1])
        for module in MODULES:
            _load(module, copy, variables)
        print(f"   compiled: {', '.join(_compiled(cache))}", flush=True)
        print("\n-- after the second edit; the time is what any later edit costs:", flush=True)
        _edit_one_line(copy / EDITED, 2)
        _load(MODULES[1], copy, variables)
        print(f"   compiled: {', '.join(_compiled(cache))}", flush=True)


def _load(module: str, copy: Path, variables: dict[str, str], mode: str = "auto") -> None:
    arguments = f"{module!r}, workspace={str(copy / 'rust')!r}, mode={mode!r}"
    code = f"import rust_ext_loader as loader; loader.load_rust_extension({arguments})"
    built = _entries(variables, module)
    start = time.monotonic()
    _python(variables, "-c", code)
    result = "built" if _entries(variables, module) > built else "from cache"
    seconds = time.monotonic() - start
    print(f"   {module.rpartition('.')[2]:<12} {result:<10} {seconds:7.2f} s until the import has finished", flush=True)


def _entries(variables: dict[str, str], module: str) -> int:
    return sum(1 for _ in Path(variables["RUST_EXT_CACHE_DIR"]).glob(f"artifacts/{module}/*/*/*/manifest.json"))


def _compiled(cache: Path) -> list[str]:
    log = max(cache.glob("logs/*.log"), key=lambda path: path.stat().st_mtime_ns)
    return re.findall(r"^ *Compiling (\S+)", log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)


def _edit_one_line(source: Path, number: int) -> None:
    """
    Append a number to the message, in place of the number of an earlier edit.
    """
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    (index,) = (index for index, line in enumerate(lines) if TEXT in line)
    lines[index] = re.sub(rf"{TEXT}( \(edit \d+\))?", f"{TEXT} (edit {number})", lines[index])
    print(f"   {EDITED}:{index + 1}  {lines[index].strip()}", flush=True)
    source.write_text("".join(lines), encoding="utf-8")


def _cache_root(variables: dict[str, str]) -> str:
    code = "import os; from rust_ext_loader import _warm; print(_warm.cache_root(None, os.environ))"
    import environment

    done = subprocess.run(
        [environment.main_environment().python, "-c", code],
        check=True,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip()


def _python(variables: dict[str, str], *arguments: str) -> None:
    import environment

    command = (environment.main_environment().python, *arguments)
    # In a separate session, so that Ctrl-C reaches only this process; it ends the other one without a traceback.
    with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code != 0:
        raise SystemExit(f"`{' '.join(arguments)}` ended with {code}; the output above says why")


def _git_status() -> str:
    try:
        done = subprocess.run(
            ["git", "status", "--porcelain"],
            check=False,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError:
        return ""
    return done.stdout


def _say(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
