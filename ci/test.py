"""
Run every check of this repository, locally as in CI: `python3 ci/test.py`.

Sets up what is missing (`.venv`, `.tools/`), runs the steps listed by `--list`,
and ends with a summary.

Invariant: needs only Python >= 3.10, Rust and a C compiler (and npm, for step
`tokenizer`), and names what is missing; a second run installs nothing. Standard
library only.
"""

from __future__ import annotations

import argparse
import signal
import sys

import prerequisites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from steps import Step


def main() -> int:
    """
    Parse, set up, run.
    """
    options = _parse()
    _restore_signals()
    prerequisites.require("fmt", "clippy")
    import checks
    import environment
    import interpreters
    import steps

    known = [checks.oracle_step()] if options.oracles else checks.all_steps(interpreters.others(), long=options.long)
    chosen = _choose(list(known), options)
    if options.list:
        width = max((len(step.name) for step in chosen), default=0)
        for step in chosen:
            print(f"{step.name:<{width}}  {step.title}")
        return 0
    try:
        environment.main_environment().ready()
    except environment.InstallFailed as error:
        raise SystemExit(f"could not set up .venv: `{error}` failed") from None
    return steps.run_all(chosen, checks.variables(long=options.long))


def _restore_signals() -> None:
    """
    Restore signals that a launcher ignored (`nohup`, a shell's `&`): tests interrupt processes, which inherit this.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGCHLD", "SIGHUP", "SIGTERM"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run every check; set up what is missing.")
    parser.add_argument("--only", metavar="NAME", action="append", help="run this step (repeatable)")
    parser.add_argument("--fast", action="store_true", help="skip the steps that take minutes")
    parser.add_argument(
        "--long",
        action="store_true",
        help="run only the suites that are sampled by default, and these in full (about two hours)",
    )
    parser.add_argument(
        "--oracles",
        action="store_true",
        help="run only the comparison with torch and transformers (installs gigabytes once)",
    )
    parser.add_argument("--list", action="store_true", help="print the steps and stop")
    return parser.parse_args()


def _choose(known: list[Step], options: argparse.Namespace) -> list[Step]:
    unknown = sorted(set(options.only or ()) - {step.name for step in known})
    if unknown:
        raise SystemExit(f"no step named {', '.join(unknown)}; the steps are: {', '.join(step.name for step in known)}")
    if options.only:
        return [step for step in known if step.name in options.only]
    if options.long:
        return [step for step in known if step.long]
    return [step for step in known if not (options.fast and step.slow)]


if __name__ == "__main__":
    sys.exit(main())
