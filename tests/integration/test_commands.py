"""
The command line: the output and the exit code of each command.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout
from commands import CommandResult, rust_ext, with_placeholders
from missing_path import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable


def test_list(plain: Checkout) -> None:
    """
    `list` prints module, package, features and folder without cargo or a cache, even from a folder in the workspace.
    """
    result = rust_ext(plain, "list", where=plain.root / "alpha" / "src", variables={"PATH": ABSENT})

    assert result == CommandResult(0, "fx.alpha  alpha  -  alpha\nfx.beta  beta  loud  beta\n", "")
    assert not plain.cache.exists()


def test_list_as_json(plain: Checkout) -> None:
    rows = json.loads(rust_ext(plain, "list", "--json").out)

    assert rows[1] == {
        "module": "fx.beta",
        "package": "beta",
        "library": "beta_native",
        "features": ["loud"],
        "profile": "release",
        "directory": "beta",
    }
    assert [row["module"] for row in rows] == ["fx.alpha", "fx.beta"]


def test_commands_before_and_after_builds_and_edits(plain: Checkout) -> None:
    """
    The output and exit code of each command for a module that is missing, built, up to date, edited and forced.
    """
    assert rust_ext(plain, "status") == CommandResult(
        1, "fx.alpha  missing     not built here yet\nfx.beta   missing     not built here yet\n", ""
    )
    assert rust_ext(plain, "explain", "fx.alpha") == CommandResult(0, "fx.alpha: not built here yet\n", "")
    assert rust_ext(plain, "build", "--mode", "never", "fx.alpha") == CommandResult(
        1,
        "",
        "error: no Rust extension fx.alpha: it is not built, and SGLANG_RUST_BUILD_MODE=never forbids building it; "
        "run `rust-ext build fx.alpha` or set SGLANG_RUST_BUILD_MODE=auto\n",
    )

    built = rust_ext(plain, "build")
    assert built.code == 0
    assert built.out == (
        "fx.alpha  [cache]/artifacts/fx.alpha/[...]/alpha.[suffix]\n"
        "fx.beta  [cache]/artifacts/fx.beta/[...]/beta.[suffix]\n"
    )
    assert rust_ext(plain, "build", "fx.alpha") == CommandResult(0, built.out.splitlines(keepends=True)[0], "")
    assert rust_ext(plain, "status") == CommandResult(
        0, "fx.alpha  cached      built from these facts\nfx.beta   cached      built from these facts\n", ""
    )
    assert rust_ext(plain, "explain", "fx.alpha") == CommandResult(0, "fx.alpha: nothing has changed\n", "")

    plain.replace("alpha/src/part.rs", "part-1", "part-2")
    edited = {"RUSTFLAGS": "--cfg loud"}
    moved = "alpha/src/part.rs changed\nRUSTFLAGS '' -> '--cfg loud'\n"
    assert rust_ext(plain, "explain", "fx.alpha", variables=edited) == CommandResult(0, moved, "")
    assert rust_ext(plain, "status", "fx.alpha", variables=edited) == CommandResult(
        1, f"fx.alpha  stale       {moved.strip().replace(chr(10), '; ')}\n", ""
    )
    refused = (
        "it is not built from the current sources (alpha/src/part.rs changed), and SGLANG_RUST_BUILD_MODE=never "
        "forbids building it"
    )
    assert refused in rust_ext(plain, "build", "--mode", "never", "fx.alpha").err

    before = len(plain.cargo_calls())
    assert rust_ext(plain, "build", "--mode", "force", "fx.beta").code == 0
    assert rust_ext(plain, "build", "--mode", "force", "fx.beta").code == 0
    assert [call[0] for call in plain.cargo_calls()[before:]].count("rustc") == 2


def test_build_takes_the_mode_from_option_or_variable(built: Checkout) -> None:
    """
    `build` takes the mode from the variable. The option takes precedence.
    """
    force = {"SGLANG_RUST_BUILD_MODE": "force"}
    for arguments, variables, compiled in (((), force, 1), (("--mode", "auto"), force, 0), ((), {}, 0)):
        before = len(built.cargo_calls())
        assert rust_ext(built, "build", "fx.alpha", *arguments, variables=variables).code == 0
        assert [call[0] for call in built.cargo_calls()[before:]].count("rustc") == compiled, (arguments, variables)


def test_a_missing_source_input_is_reported(built: Checkout) -> None:
    """
    A pattern in `source-inputs` without a match is reported: a typo would leave the intended file unwatched.
    """
    built.replace("alpha/Cargo.toml", "[lib]", 'source-inputs = ["../protoo", "../texts/*.txt", "src"]\n\n[lib]')
    output = built.load().stderr

    assert [line for line in output.splitlines() if line.startswith("note: ")] == [
        "note: no file matches protoo, which `source-inputs` names",
        "note: no file matches texts/*.txt, which `source-inputs` names",
    ]


def test_version(plain: Checkout) -> None:
    result = rust_ext(plain, "--version")

    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(r"rust-ext (\d+\.\d+\.\d+|\(not installed\))\n", result.out)


def test_a_rebuild_says_why_in_one_line(built: Checkout) -> None:
    """
    The line that announces a build names the changed facts.
    """
    built.load()
    built.replace("alpha/src/part.rs", "part-1", "part-2")
    output = with_placeholders(built, built.load(variables={"RUSTFLAGS": "--cfg loud"}).stderr)

    assert "rebuilding fx.alpha: alpha/src/part.rs changed; RUSTFLAGS '' -> '--cfg loud'\n" in output


def test_explain_as_json(built: Checkout) -> None:
    built.load()
    built.replace("Cargo.toml", "opt-level = 0", "opt-level = 1")
    explanation = json.loads(rust_ext(built, "explain", "--json", "fx.alpha").out)

    assert explanation["module"] == "fx.alpha"
    assert explanation["used_before"] is True
    assert [change["fact"] for change in explanation["changes"]] == ["resolution/profile/release"]


def test_status_as_json(built: Checkout) -> None:
    rows = json.loads(rust_ext(built, "status", "--json").out)

    assert [(row["module"], row["state"], row["readiness"]) for row in rows] == [
        ("fx.alpha", "cached", "ready"),
        ("fx.beta", "cached", "ready"),
    ]
    assert rows[0]["library"].startswith("[cache]/artifacts/fx.alpha/")


def no_change(_: Checkout) -> None:
    """
    Change nothing, because the row's command line is wrong.
    """


def break_member(checkout: Checkout) -> None:
    checkout.write("beta/Cargo.toml", "[package]\nname = 7 8\n")


def declare_twice(checkout: Checkout) -> None:
    checkout.replace("beta/Cargo.toml", "fx.beta", "fx.alpha")


@pytest.mark.parametrize(
    ("prepare", "arguments", "code", "out", "err"),
    [
        pytest.param(
            no_change,
            ("explain", "fx.alhpa"),
            1,
            "",
            "error: no Rust extension fx.alhpa: no crate of [workspace] declares it; "
            "did you mean fx.alpha? the declared modules are fx.alpha, fx.beta\n",
            id="typo in a name",
        ),
        pytest.param(
            declare_twice,
            ("list",),
            1,
            "",
            "error: fx.alpha is declared by [workspace]/alpha/Cargo.toml and by [workspace]/beta/Cargo.toml; "
            "keep one `python-module` line\n",
            id="declared twice",
        ),
        pytest.param(
            lambda checkout: (checkout.root / "Cargo.lock").unlink(),
            ("key",),
            1,
            "",
            "error: [workspace]/Cargo.lock does not exist; run `cargo generate-lockfile` beside it and commit "
            "the file\n",
            id="no lockfile",
        ),
        pytest.param(
            no_change,
            ("list", "--workspace", "/"),
            1,
            "",
            "error: /Cargo.toml: cannot be read: No such file or directory\n",
            id="no workspace there",
        ),
    ],
)
def test_a_failed_command_prints_one_message(
    plain: Checkout, prepare: Callable[[Checkout], object], arguments: tuple[str, ...], code: int, out: str, err: str
) -> None:
    """
    A failed command prints data on stdout, one line on stderr, no traceback, and exits with code 1.
    """
    prepare(plain)

    assert rust_ext(plain, *arguments) == CommandResult(code, out, err)


def test_list_reports_a_broken_member_beside_the_others(plain: Checkout) -> None:
    """
    `list` prints the valid members, reports the broken one with its line, and exits with code 1.
    """
    break_member(plain)
    result = rust_ext(plain, "list")

    assert (result.code, result.out) == (1, "fx.alpha  alpha  -  alpha\n")
    assert result.err.startswith("error: [workspace]/beta/Cargo.toml, line 2: ")
    assert result.err.count("\n") == 1


def test_a_wrong_command_line_is_exit_code_2(plain: Checkout) -> None:
    result = rust_ext(plain, "build", "--mode", "maybe")

    assert result.code == 2
    assert "invalid choice: 'maybe'" in result.err


def test_a_failed_build_does_not_stop_the_others(plain: Checkout) -> None:
    """
    `rust-ext build` continues after a failed build and exits with code 1. The compiler's errors are on stderr.
    """
    plain.write("alpha/src/part.rs", "nonsense")
    result = rust_ext(plain, "build")

    assert result.code == 1
    assert result.out == "fx.beta  [cache]/artifacts/fx.beta/[...]/beta.[suffix]\n"
    assert "error: fx.alpha could not be built: " in result.err
    assert "Traceback" not in result.err


def test_build_with_timings(plain: Checkout) -> None:
    """
    `build --timings` keeps cargo's report beside the log and prints where it is, or that nothing was compiled.
    """
    cold = rust_ext(plain, "build", "--timings", "fx.alpha", raw=True)

    _, line = cold.out.splitlines()
    told, _, path = line.partition("timings: ")
    report = Path(path)
    assert (cold.code, told, report.parent) == (0, "fx.alpha  ", plain.cache / "logs")
    assert "<html" in report.read_text(encoding="utf-8")
    assert report.with_suffix(".log").exists()
    assert not list(plain.cache.glob("targets/*/cargo-timings"))

    warm = rust_ext(plain, "build", "--timings", "fx.alpha")
    assert (warm.code, warm.out.splitlines()[1]) == (0, "fx.alpha  timings: nothing was compiled")
    assert "timings" not in rust_ext(plain, "build", "--mode", "force", "fx.alpha").out
    assert list(plain.cache.glob("logs/*.html")) == [report]


def test_build_with_timings_reports_each_module(plain: Checkout) -> None:
    """
    Each module has its own line, and only a compiled one has a report. A failed build has no line.
    """
    assert rust_ext(plain, "build", "fx.alpha").code == 0

    both = rust_ext(plain, "build", "--timings", raw=True).out.splitlines()

    assert both[1] == "fx.alpha  timings: nothing was compiled"
    assert re.fullmatch(r"fx\.beta  timings: \S+/logs/fx\.beta-\S+\.html", both[3])
    plain.replace("alpha/src/lib.rs", "mod part;", "mod part")
    failed = rust_ext(plain, "build", "--timings", "fx.alpha")
    assert (failed.code, failed.out) == (1, "")


def test_reports_of_timings_are_kept_like_logs(plain: Checkout) -> None:
    """
    The last ten reports of a module are kept.
    """
    logs = plain.cache / "logs"
    assert rust_ext(plain, "build", "fx.alpha").code == 0
    for number in range(10, 22):
        (logs / f"fx.alpha-20200101T0000{number}-1-000001.html").touch()

    assert rust_ext(plain, "build", "--timings", "--mode", "force", "fx.alpha").code == 0

    kept = sorted(path.name for path in logs.glob("fx.alpha-*.html"))
    assert (len(kept), kept[0]) == (10, "fx.alpha-20200101T000013-1-000001.html")
