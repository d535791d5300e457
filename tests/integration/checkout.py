"""
A temporary copy of a fixture workspace, whose modules are loaded in new interpreters.

Every load runs in its own process, as in production. A `cargo` first on PATH logs its
arguments and then runs the real one, so tests count compilations instead of timing them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CRATES = Path(__file__).parents[1] / "crates"
ROOT = Path(__file__).parents[2]

#: Prefixes of variables of the test session that a load must not inherit.
_NOT_INHERITED = (
    "SGLANG_",
    "RUST_EXT_",
    "RUSTFLAGS",
    "CARGO_BUILD_",
    "CARGO_ENCODED_",
    "CARGO_PROFILE_",
    "CARGO_TARGET",
)

_LOAD = """
import json, sys, warnings
spawned = []
sys.addaudithook(lambda event, args: spawned.append(event) if event in (
    "subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system") else None)
request = json.loads(sys.argv[1])
answer = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        import rust_ext_loader
        if request["prelude"]:
            exec(request["prelude"])
        module = rust_ext_loader.load_rust_extension(request["module"], **request["arguments"])
        answer["value"] = getattr(module, "value", None)
        answer["file"] = module.__file__
    except BaseException as error:
        answer["error"] = str(error)
        answer["types"] = [kind.__name__ for kind in type(error).__mro__]
        answer["reason"] = getattr(error, "reason", None)
        answer["in_sys_modules"] = request["module"] in sys.modules
answer["spawned"] = spawned
answer["imported"] = sorted(sys.modules)
answer["warnings"] = [str(warning.message) for warning in caught]
print(json.dumps(answer))
"""


@dataclass(frozen=True)
class Loaded:
    """
    The result of one load in one process.
    """

    value: str | None = None
    file: str | None = None
    error: str | None = None
    types: tuple[str, ...] = ()
    reason: str | None = None
    in_sys_modules: bool = False
    spawned: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    stderr: str = ""
    #: Arguments of every cargo run during the load, without version queries.
    cargo: tuple[tuple[str, ...], ...] = ()

    @property
    def compiled(self) -> list[str]:
        """
        Packages that `cargo rustc` compiled.
        """
        return [call[call.index("--package") + 1] for call in self.cargo if call[0] == "rustc"]


@dataclass
class Checkout:
    """
    One copy of a fixture workspace, with its cache and its environment variables.
    """

    root: Path
    cache: Path
    environment: dict[str, str] = field(default_factory=dict)
    python: str = sys.executable

    def write(self, name: str, text: str, *, older: float | None = None) -> Path:
        """
        Write a file. `older` sets its modification time that many seconds into the past.
        """
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if older is not None:
            then = path.stat().st_mtime - older
            os.utime(path, (then, then))
        return path

    def replace(self, name: str, old: str, new: str, *, older: float | None = None) -> None:
        """
        Replace one piece of text in a file.
        """
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text, f"{name} holds no {old!r}"
        self.write(name, text.replace(old, new), older=older)

    def wait_until_settled(self) -> None:
        """
        Wait until every file timestamp is older than the two seconds that a record requires.
        """
        time.sleep(2.5)

    def start(
        self,
        module: str = "fx.alpha",
        *,
        prelude: str = "",
        variables: dict[str, str] | None = None,
        **arguments: object,
    ) -> subprocess.Popen[str]:
        """
        Start a load in a new interpreter.
        """
        arguments.setdefault("workspace", str(self.root))
        request = json.dumps({"module": module, "prelude": textwrap.dedent(prelude), "arguments": arguments})
        return subprocess.Popen(
            [self.python, "-c", _LOAD, request],
            env={**self.variables(), **(variables or {})},
            cwd=self.cache.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_script(self, script: Path, *arguments: str) -> subprocess.Popen[str]:
        """
        Start a script with the environment of a load.
        """
        return subprocess.Popen(
            [self.python, os.fspath(script), *arguments],
            env=self.variables(),
            cwd=self.cache.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def load(
        self,
        module: str = "fx.alpha",
        *,
        prelude: str = "",
        variables: dict[str, str] | None = None,
        **arguments: object,
    ) -> Loaded:
        """
        Load in a new interpreter and wait for the result.
        """
        before = len(self.cargo_calls())
        loaded = self.finish(self.start(module, prelude=prelude, variables=variables, **arguments))
        return Loaded(**{**loaded, "cargo": tuple(self.cargo_calls()[before:])})

    @staticmethod
    def finish(process: subprocess.Popen[str], timeout: float = 120) -> dict[str, Any]:
        """
        Wait for a started load and return its answer.
        """
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert process.returncode == 0, err
        answer = json.loads(out.splitlines()[-1])
        return {name: tuple(value) if isinstance(value, list) else value for name, value in answer.items()} | {
            "stderr": err
        }

    def variables(self) -> dict[str, str]:
        """
        The environment of a load: the session's variables that may be inherited, and those of this checkout.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        kept.pop("CI", None)
        return {
            **kept,
            "PATH": f"{self.tools}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "PYTHONPATH": str(ROOT),
            # Each test has its own temporary folder, because the fallback cache is in it.
            "TMPDIR": str(self.temporary),
            "RUST_EXT_CACHE_DIR": str(self.cache),
            **self.environment,
        }

    def stored_library(self, module: str = "fx.alpha") -> Path:
        """
        The library of a module in the cache. The cache must hold exactly one.
        """
        (library,) = (self.cache / "artifacts" / module).rglob("*.so")
        return library

    def stored_facts(self, module: str = "fx.alpha") -> dict[str, str]:
        """
        The facts of that library's build, from its manifest.
        """
        facts: dict[str, str] = json.loads((self.stored_library(module).parent / "manifest.json").read_bytes())["facts"]
        return facts

    @property
    def tools(self) -> Path:
        """
        Folder of the `cargo` that logs its arguments.
        """
        return self.cache.parent / "tools"

    @property
    def temporary(self) -> Path:
        """
        Temporary folder for the loads.
        """
        return self.cache.parent / "tmp"

    def install_tools(self) -> None:
        """
        Install the `cargo` that logs its arguments.
        """
        real = shutil.which("cargo")
        assert real is not None, "these tests need cargo"
        self.tools.mkdir(exist_ok=True)
        self.temporary.mkdir(exist_ok=True)
        log = self.cache.parent / "cargo.log"
        script = self.tools / "cargo"
        note = f"(IFS=\"$(printf '\\t')\"; printf '%s\\n' \"$*\") >> '{log}'"
        script.write_text(f"#!/bin/sh\n{note}\nexec '{real}' \"$@\"\n", encoding="utf-8")
        script.chmod(0o755)

    def cargo_calls(self) -> list[tuple[str, ...]]:
        """
        Arguments of every cargo run so far, without version queries.
        """
        log = self.cache.parent / "cargo.log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        calls = [tuple(line.split("\t")) for line in lines]
        return [call for call in calls if call[0] in ("rustc", "build", "clean", "metadata")]


def check_out(fixture: str, folder: Path, cache: Path | None = None) -> Checkout:
    """
    Copy a fixture workspace into `folder/<fixture>`.
    """
    root = folder / fixture
    shutil.copytree(CRATES / fixture, root, ignore=shutil.ignore_patterns("target"))
    checkout = Checkout(root, cache or folder / "cache")
    checkout.cache.parent.mkdir(parents=True, exist_ok=True)
    checkout.install_tools()
    return checkout
