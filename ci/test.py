"""
Run every check of this repository, locally as in CI: `python3 ci/test.py`.

Sets up what is missing (`.venv`, `.tools/`), then runs the steps listed by
`--list` and closes with a table.

Invariant: needs only Python >= 3.10, Rust and a C compiler (and npm, for step
`tokenizer`), and names what is missing; a second run installs nothing. Standard
library only.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import prerequisites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from interpreters import Interpreter
    from steps import Step

#: The combinations in which the crates are built: plain Rust, with threads, and all that a Python module has.
FEATURES = {"none": (), "parallel": ("--features", "parallel"), "all": ("--all-features",)}
#: Linking a test binary that names pyo3 would need libpython; the Python side is tested through the built modules.
TESTED_FEATURES = ("none", "parallel")

SUITES = ("unit", "properties", "integration", "cli", "bindings", "server", "packaging")
#: What any Python must pass: the toolkit's own behaviour.
TOOLKIT_SUITES = ("unit", "properties", "integration")
#: Of the integration tests those in which the interpreter has the greatest part: what a CPython between the oldest and the newest runs.
IMPORT_TESTS = (
    "bundled",
    "cargo_arguments",
    "discovery",
    "force_and_never",
    "hook",
    "interpreters",
    "keys",
    "linked_libraries",
    "modes",
    "process_state",
    "records",
    "warm_import",
)
_WORKERS = ("-n", "2", "--dist", "worksteal")


def main() -> int:
    """
    Parse, set up, run.
    """
    options = _parse()
    _take_signals_back()
    prerequisites.require("fmt", "clippy")
    import environment
    import interpreters
    import steps

    chosen = [_oracle_step()] if options.oracles else _choose(list(_steps(interpreters.others())), options)
    if options.list:
        width = max((len(step.name) for step in chosen), default=0)
        for step in chosen:
            print(f"{step.name:<{width}}  {step.title}")
        return 0
    try:
        environment.main_environment().ready()
    except environment.InstallFailed as error:
        raise SystemExit(f"could not set up .venv: `{error}` failed") from None
    return steps.run_all(chosen, _variables())


def _take_signals_back() -> None:
    """
    Undo what a launcher ignored (`nohup`, a shell's `&`): tests interrupt processes, and those inherit it from here.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGCHLD", "SIGHUP", "SIGTERM"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run every check; set up what is missing.")
    parser.add_argument("--only", metavar="NAME", action="append", help="run this step (repeatable)")
    parser.add_argument("--fast", action="store_true", help="leave out the steps that take minutes")
    parser.add_argument(
        "--oracles", action="store_true", help="instead: compare with torch and transformers (gigabytes, once)"
    )
    parser.add_argument("--list", action="store_true", help="print the steps and stop")
    return parser.parse_args()


def _choose(known: list[Step], options: argparse.Namespace) -> list[Step]:
    unknown = sorted(set(options.only or ()) - {step.name for step in known})
    if unknown:
        raise SystemExit(f"no step named {', '.join(unknown)}; there are: {', '.join(step.name for step in known)}")
    return [step for step in known if (step.name in options.only if options.only else not (options.fast and step.slow))]


def _variables() -> dict[str, str]:
    import environment

    return {
        **os.environ,
        "PATH": environment.search_path(),
        # Constant over all steps: pyo3's build scripts run again whenever it changes.
        "PYO3_PYTHON": environment.main_environment().python,
        "PYTHONUNBUFFERED": "1",
    }


def _steps(pythons: list[Interpreter]) -> Iterator[Step]:
    yield from _python_steps()
    yield from _rust_steps()
    yield from _suite_steps()
    minors = [sys.version_info[:2], *(python.version[:2] for python in pythons)]
    for python in pythons:
        yield _other_python_step(python, whole=python.version[:2] in (min(minors), max(minors)))


def _python_steps() -> Iterator[Step]:
    from steps import Step

    yield Step("format", "Python is formatted", (("ruff", "format", "--check"),))
    yield Step("lint", "no lint without a reason beside it", (("ruff", "check"),))
    yield Step("types", "mypy, strict", (("mypy",),))
    yield Step("layers", "imports point down", (("lint-imports",),))


def _rust_steps() -> Iterator[Step]:
    from environment import cargo_tool
    from steps import Step

    yield Step("rust-format", "Rust is formatted", (("cargo", "fmt", "--all", "--check"),), "rust")
    for name, flags in FEATURES.items():
        command = ("cargo", "clippy", "--workspace", "--all-targets", "--locked", *flags, "--", "-D", "warnings")
        yield Step(f"clippy-{name}", f"clippy, features: {name}", (command,), "rust", slow=name == "all")
    yield Step(
        "deny",
        "licences, duplicates and sources of dependencies",
        (("cargo", "deny", "--locked", "check", "licenses", "bans", "sources"),),
        "rust",
        slow=True,
        prepare=lambda: cargo_tool("cargo-deny"),
    )
    for name in TESTED_FEATURES:
        command = ("cargo", "nextest", "run", "--workspace", "--locked", "--profile", "ci", *FEATURES[name])
        yield Step(
            f"rust-tests-{name}",
            f"the crates' tests, features: {name}",
            (command,),
            "rust",
            prepare=lambda: cargo_tool("cargo-nextest"),
        )
    yield _tokenizer_step()


def _tokenizer_step() -> Step:
    import qwen3
    from environment import cargo_tool
    from steps import Step

    def prepare() -> None:
        cargo_tool("cargo-nextest")
        qwen3.fetch()

    # As the crates' tests are built, so that nothing is compiled again.
    chosen = ("--run-ignored", "only", "-E", "package(sglang-server) & binary(qwen3) - test(cost)")
    command = ("cargo", "nextest", "run", "--workspace", "--locked", "--profile", "ci", *chosen)
    variables = {"SGLANG_TEST_QWEN3": str(qwen3.FILE)}
    return Step(
        "tokenizer", "Qwen3's own tokenizer, token by token", (command,), "rust", prepare=prepare, variables=variables
    )


def _suite_steps() -> Iterator[Step]:
    from steps import Step

    # Before the tests, where progress can be seen and no test's time limit applies.
    yield Step(
        "build", "the extension modules, as an import would build them", (("rust-ext", "build"),), "rust", slow=True
    )
    names = ("_multimodal", "_radix_tree", "_server")
    modules = tuple(f"sglang.srt.rust_extensions.{name}" for name in names)
    stubtest = ("python", "-m", "mypy.stubtest", "--mypy-config-file", "pyproject.toml", *modules)
    yield Step("stubs", "stubs say what the modules have", (stubtest,), slow=True)
    yield Step("golden", "every golden picture against Pillow", (("python", "ci/golden_table.py"),), slow=True)
    yield Step("tests-unit", "pure functions", (("pytest", *_folders("unit", "properties")),))
    rest = _folders(*(suite for suite in SUITES if suite not in ("unit", "properties")))
    rest.append("rust/sglang-mm/tests")
    yield Step("tests", "real builds, commands, modules and installs", (("pytest", *_WORKERS, *rest),), slow=True)


def _other_python_step(python: Interpreter, *, whole: bool) -> Step:
    from environment import toolkit_environment
    from steps import Step

    home = toolkit_environment(python.executable, python.minor)
    imports = [f"tests/integration/test_{name}.py" for name in IMPORT_TESTS]
    tests = _folders(*TOOLKIT_SUITES) if whole else [*_folders("unit", "properties"), *imports]
    command = (home.python, "-m", "pytest", *_WORKERS, *tests)
    title = (
        f"{'the toolkit' if whole else 'pure functions and imports'} on CPython {'.'.join(map(str, python.version))}"
    )
    # The long random walk is the main Python's.
    variables = {"RUST_EXT_WALK_SECONDS": os.environ.get("RUST_EXT_WALK_SECONDS", "15")}
    return Step(f"python-{python.minor}", title, (command,), slow=True, prepare=home.ready, variables=variables)


def _oracle_step() -> Step:
    from environment import oracle_environment
    from steps import Step

    home = oracle_environment()
    command = (home.python, "-m", "pytest", "tests/oracles")
    return Step(
        "oracles", "the crates' modules against torch, torchvision and transformers", (command,), prepare=home.ready
    )


def _folders(*suites: str) -> list[str]:
    from environment import ROOT

    return [f"tests/{suite}" for suite in suites if any((ROOT / "tests" / suite).glob("**/test_*.py"))]


if __name__ == "__main__":
    sys.exit(main())
