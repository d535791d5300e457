"""
Define the steps of `ci/test.py`: each check, with its commands.

Invariant: third-party crates are compiled once for clippy and once for tests,
and other Pythons run only the tests whose result depends on the interpreter.
Standard library only.
"""

from __future__ import annotations

import os

import qwen3
from environment import (
    ROOT,
    TOOLS,
    cargo_tool,
    main_environment,
    oracle_environment,
    search_path,
    toolkit_environment,
)
from steps import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from interpreters import Interpreter

#: Runs the long suites in full. Read only by `tests/support/long_runs.py` and `rust/test-support/long_runs.rs`.
LONG_VARIABLE = "SGLANG_TEST_LONG"

#: Feature sets of the clippy runs. Each enables `python` in at least one crate, because pyo3 adds features to `syn`.
#: Without pyo3 all crates that depend on `syn` (serde, tokio, axum, ...) would be checked a second time.
_CLIPPY_FEATURES = (
    ("--all-features",),
    ("--features", "sglang-radix-tree/python"),
    ("--features", "sglang-radix-tree/python,parallel"),
)
#: Features of the crates' tests. `python` is left out, because a test binary with pyo3 would link libpython. The
#: Python side is tested through the built modules.
_TEST_FEATURES = ("--features", "parallel")
#: Tests that also run without `parallel`: those of the only crate with this feature.
_SERIAL_TESTS = ("--lib", "--test", "*", "-E", "package(sglang-mm)")

_NEXTEST = ("cargo", "nextest", "run", "--workspace", "--locked")
#: nextest writes its report here even if `CARGO_TARGET_DIR` points elsewhere.
_NEXTEST_REPORT = "rust/target/nextest/{profile}/junit.xml"

_SUITES = ("integration", "bindings", "server", "packaging")
_UNIT_SUITES = ("unit",)
#: Integration tests whose result depends on the interpreter: on its import system, its ABI or its processes.
#: `test_interpreters` is not among them: the main Python's run of it starts all the others.
_INTERPRETER_TESTS = (
    "bundled",
    "hook",
    "keys",
    "linked_libraries",
    "process_state",
    "records",
    "warm_import",
)
#: One worker more than CI has cores, because many tests wait for timestamps and timeouts.
_WORKERS = ("-n", "3", "--dist", "worksteal")

#: Folder of the extension modules' stubs.
_STUBS = ROOT / "rust/python/sglang/srt/rust_extensions"


def all_steps(others: Iterable[Interpreter], *, long: bool) -> Iterator[Step]:
    """
    Yield all steps in the order in which they run. *others* are the other Pythons; *long* is true with `--long`.
    """
    yield from _python_steps()
    yield from _rust_steps("long" if long else "ci")
    yield from _module_steps()
    yield from _suite_steps(long=long)
    for python in others:
        yield _other_python_step(python)


def oracle_step() -> Step:
    """
    Return the step of `--oracles`.
    """
    home = oracle_environment()
    command = (home.python, "-m", "pytest", "tests/oracles")
    title = "the crates' modules, compared with torch, torchvision and transformers"
    return Step("oracles", title, (command,), prepare=home.ready)


def variables(*, long: bool) -> dict[str, str]:
    """
    Return the environment of every step.
    """
    return {
        **os.environ,
        "PATH": search_path(),
        # The same in all steps, because pyo3's build scripts run again whenever this variable changes.
        "PYO3_PYTHON": main_environment().python,
        "PYTHONUNBUFFERED": "1",
        # Incremental compilation would add about a tenth more work without a benefit: no step compiles a crate twice.
        "CARGO_INCREMENTAL": "0",
        LONG_VARIABLE: "1" if long else "",
    }


def _python_steps() -> Iterator[Step]:
    yield Step("format", "Python is formatted", (("ruff", "format", "--check"),))
    yield Step("lint", "ruff; each suppressed lint has a reason", (("ruff", "check"),))
    yield Step("types", "mypy, strict", (("mypy",),))
    yield Step("layers", "modules import only from lower layers", (("lint-imports",),))


def _rust_steps(profile: str) -> Iterator[Step]:
    yield Step("rust-format", "Rust is formatted", (("cargo", "fmt", "--all", "--check"),), "rust")
    clippy = tuple(
        ("cargo", "clippy", "--workspace", "--all-targets", "--locked", *features, "--", "-D", "warnings")
        for features in _CLIPPY_FEATURES
    )
    yield Step("clippy", "clippy, with three sets of features", clippy, "rust")
    yield Step(
        "deny",
        "licences, duplicates and sources of dependencies",
        (("cargo", "deny", "--locked", "check", "licenses", "bans", "sources"),),
        "rust",
        slow=True,
        prepare=lambda: cargo_tool("cargo-deny"),
    )
    yield Step("shared-crates", "all modules select the same features", (("python", "ci/shared_crates.py"),))
    yield Step(
        "rust-tests",
        "the crates' tests, with threads",
        ((*_NEXTEST, "--profile", profile, *_TEST_FEATURES),),
        "rust",
        long=True,
        prepare=lambda: cargo_tool("cargo-nextest"),
        report=_NEXTEST_REPORT.format(profile=profile),
    )
    # nextest does not run the examples in doc comments.
    doc_tests = ("cargo", "test", "--doc", "--workspace", "--locked", *_TEST_FEATURES)
    yield Step("rust-examples", "the examples in the crates' documentation", (doc_tests,), "rust")
    yield Step(
        "rust-tests-serial",
        "the media crate without threads",
        ((*_NEXTEST, "--profile", "ci", *_SERIAL_TESTS),),
        "rust",
        prepare=lambda: cargo_tool("cargo-nextest"),
        report=_NEXTEST_REPORT.format(profile="ci"),
    )
    yield _tokenizer_step()


def _tokenizer_step() -> Step:
    def prepare() -> None:
        cargo_tool("cargo-nextest")
        qwen3.fetch()

    # Same features as in step `rust-tests`, so that nothing is compiled again.
    chosen = ("--test", "qwen3", "--run-ignored", "only", "-E", "not test(cost)")
    return Step(
        "tokenizer",
        "Qwen3's own tokenizer, token by token",
        ((*_NEXTEST, "--profile", "ci", *_TEST_FEATURES, *chosen),),
        "rust",
        prepare=prepare,
        variables={"SGLANG_TEST_QWEN3": str(qwen3.FILE)},
        report=_NEXTEST_REPORT.format(profile="ci"),
    )


def _module_steps() -> Iterator[Step]:
    # This step runs before the tests: it shows the progress of the builds, and no time limit of a test applies.
    title = "the extension modules, as an import would build them"
    yield Step("build", title, (("rust-ext", "build"),), "rust", slow=True, long=True)
    modules = sorted(f"sglang.srt.rust_extensions.{path.stem}" for path in _STUBS.glob("_[!_]*"))
    stubtest = ("python", "-m", "mypy.stubtest", "--mypy-config-file", "pyproject.toml", *modules)
    yield Step("stubs", "the stubs match the compiled modules", (stubtest,), slow=True)
    yield Step(
        "golden", "every golden image, decoded and resized as by Pillow", (("python", "ci/golden_table.py"),), slow=True
    )


def _suite_steps(*, long: bool) -> Iterator[Step]:
    minutes = "20" if long else "0.25"
    yield Step(
        "soak",
        f"the server under mixed load for {minutes} minutes",
        (("python", "ci/soak.py", "--minutes", minutes),),
        slow=True,
        long=True,
    )
    rest = (*_folders(_SUITES), "rust/sglang-mm/tests")
    if long:
        everything = (*_folders(_UNIT_SUITES), *rest)
        yield _pytest_step("tests", "the suites that CI samples, in full", ("-m", "sampled", "-v", *everything))
        return
    yield _pytest_step("tests-unit", "the unit tests", _folders(_UNIT_SUITES))
    yield _pytest_step("tests", "real builds, commands, modules and installs", (*_WORKERS, *rest), slow=True)


def _pytest_step(name: str, title: str, arguments: tuple[str, ...], *, slow: bool = False) -> Step:
    report = _report(name)
    return Step(name, title, (("pytest", f"--junit-xml={report}", *arguments),), slow=slow, long=True, report=report)


def _other_python_step(python: Interpreter) -> Step:
    name = f"python-{python.minor}"
    home = toolkit_environment(python.executable, python.minor)
    tests = [f"tests/integration/test_{subject}.py" for subject in _INTERPRETER_TESTS]
    report = _report(name)
    command = (home.python, "-m", "pytest", f"--junit-xml={report}", *_WORKERS, *_folders(_UNIT_SUITES), *tests)
    title = f"unit tests and imports on CPython {'.'.join(map(str, python.version))}"
    return Step(name, title, (command,), slow=True, prepare=home.ready, report=report)


def _report(step: str) -> str:
    return f"{TOOLS.name}/reports/{step}.xml"


def _folders(suites: Iterable[str]) -> tuple[str, ...]:
    folders = tuple(f"tests/{suite}" for suite in suites)
    for folder in folders:
        # Detects a renamed suite. Without any path, pytest would run all tests instead of failing.
        assert any((ROOT / folder).glob("**/test_*.py")), f"{folder} has no tests"
    return folders
