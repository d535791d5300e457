"""
Unit tests of `_cargo`: how it interprets cargo's messages, with a fake cargo and with the real one.
"""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest
from missing_path import ABSENT

from rust_ext_loader.build import _cargo, _messages
from rust_ext_loader.build._cargo import CargoResult
from rust_ext_loader.build._messages import Artifact
from rust_ext_loader.build._progress import Progress

from .fake_cargo import FAILED, FINISHED, Recorder, check, needs_cargo, needs_posix

ARTIFACT = json.dumps(
    {
        "reason": "compiler-artifact",
        "package_id": "path+file:///w/mm#0.1.0",
        "manifest_path": "/w/mm/Cargo.toml",
        "target": {"name": "mm", "kind": ["cdylib"], "crate_types": ["cdylib"]},
        "filenames": ["/w/target/libmm.so"],
        "fresh": True,
    }
)


# --- messages of a fake cargo ---


@pytest.mark.parametrize(
    ("fed", "kept", "overwritten"),
    [
        pytest.param(["a\nb\n"], ["a", "b"], [], id="lines"),
        pytest.param(["a", "b\n"], ["ab"], [], id="a line in pieces"),
        pytest.param(["a\r\nb\n"], ["a", "b"], [], id="Windows line ends"),
        pytest.param(["a\r", "\nb\n"], ["a", "b"], [], id="a line end in pieces"),
        pytest.param(
            ["    Building [==>  ] 1/9: x  \r"], [], ["    Building [==>  ] 1/9: x  \r"], id="a bar is reported at once"
        ),
        pytest.param(
            ["    Building [=> ] 1/9: x \rwarning: w\n"],
            ["warning: w"],
            ["    Building [=> ] 1/9: x "],
            id="a line that overwrites a bar",
        ),
        pytest.param(["  old\rnew\n"], ["new"], ["  old"], id="any overwritten text"),
        pytest.param(["no end"], ["no end"], [], id="no line end"),
        pytest.param(["   Fetch [=>  ] 3/4\r", "   \r"], [], ["   Fetch [=>  ] 3/4\r"], id="blanks that clear a bar"),
        pytest.param(["", ""], [], [], id="nothing"),
    ],
)
def test_overwritten_lines_are_not_output(fed: list[str], kept: list[str], overwritten: list[str]) -> None:
    """
    Text before a carriage return will be overwritten, so it is not output.
    """
    screen = _messages.Screen()
    lines, replaced = list[str](), list[str]()
    for text in fed:
        more = screen.feed(text)
        lines += more[0]
        replaced += more[1]

    assert lines + screen.end() == kept
    assert replaced == overwritten


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("    Building [=====>     ] 12/57: serde, regex      ", (12, 57, "serde, regex"), id="building"),
        pytest.param("    Building [           ] 0/1", (0, 1, ""), id="no names"),
        pytest.param("       Fetch [===>       ] 42.10%, 1.2MiB/s", None, id="a percentage"),
        pytest.param(
            "    Blocking waiting for file lock on build directory",
            (0, 0, "cargo is waiting for file lock on build directory"),
            id="blocked",
        ),
        pytest.param("   Compiling serde v1.0.0", None, id="a status line"),
        pytest.param("error: Building [=>] 1/2", None, id="a diagnostic"),
    ],
)
def test_progress_is_read_from_bars(line: str, expected: tuple[int, int, str] | None) -> None:
    """
    A progress bar gives the number of compiled crates, of all crates, and the names of the current ones.
    """
    assert _messages.event_of(line) == expected


STDERR = r"""
printf '   Compiling mm v0.1.0 (/w/mm)\n' >&2
printf '    Building [=>  ] 3/7: mm   \r   \r' >&2
printf 'warning: unused variable\n --> src/lib.rs:1:1\n\n' >&2
printf 'error[E0308]: mismatched types\n --> src/lib.rs:2:2\n\n' >&2
printf 'warning: `mm` (lib) generated 1 warning\n' >&2
printf '    Finished dev\n' >&2
"""


@needs_posix
def test_output_contains_the_diagnostics(tmp_path: Path) -> None:
    """
    Diagnostics go to the output, warnings also to `warnings`, status lines only to the log, bars to the progress.
    """
    progress, log = Recorder(), io.BytesIO()
    result = check(
        tmp_path, f"{STDERR}\necho 'not json'\necho '{ARTIFACT}'\necho '{FINISHED}'", progress=progress, log=log
    )

    assert result.succeeded
    assert result.problem == ""
    assert result.status == 0
    assert result.artifacts == (
        Artifact(
            package="path+file:///w/mm#0.1.0",
            package_manifest="/w/mm/Cargo.toml",
            target_name="mm",
            kinds=("cdylib",),
            filenames=("/w/target/libmm.so",),
            fresh=True,
        ),
    )
    assert result.output == (
        "warning: unused variable\n --> src/lib.rs:1:1\n\n"
        "error[E0308]: mismatched types\n --> src/lib.rs:2:2\n\n"
        "warning: `mm` (lib) generated 1 warning\n"
    )
    assert result.warnings == "warning: unused variable\n --> src/lib.rs:1:1\n\nwarning: `mm` (lib) generated 1 warning"
    assert log.getvalue().decode() == f"   Compiling mm v0.1.0 (/w/mm)\n{result.output}    Finished dev\n"
    assert progress.updates == [(3, 7, "mm")]
    assert result.command == (str(tmp_path / "cargo"), "rustc")


@needs_posix
def test_colour_is_not_in_the_output(tmp_path: Path) -> None:
    """
    On a terminal cargo is asked for colour. `rendered` keeps it, `output` and the log do not.
    """
    progress, log = Recorder(), io.BytesIO()
    progress.colour = True
    script = rf"""printf '\r\033[K\033[1m\033[31merror\033[0m: '$CARGO_TERM_COLOR'\n' >&2; echo '{FAILED}'"""
    result = check(tmp_path, script, progress=progress, log=log)

    assert result.output == "error: always\n"
    assert result.rendered == "\x1b[1m\x1b[31merror\x1b[0m: always\n"
    assert log.getvalue() == b"error: always\n"


@needs_posix
@pytest.mark.parametrize(
    ("script", "succeeded", "status", "problem"),
    [
        pytest.param(f"echo '{FINISHED}'", True, 0, "", id="success"),
        pytest.param(f"echo '{FINISHED}'; exit 3", True, 3, "", id="the message decides, not the status"),
        pytest.param(
            f"echo '{FAILED}'; exit 101", False, 101, "cargo reports a failed build (status 101)", id="failure"
        ),
        pytest.param("exit 0", False, 0, "cargo ended without a final message (status 0)", id="no message, status 0"),
        pytest.param(
            "exit 101", False, 101, "cargo exited before it compiled (status 101)", id="refused before building"
        ),
        pytest.param("kill -9 $$", False, -9, "cargo ended without a final message (signal 9)", id="killed"),
        pytest.param("kill -2 $$; sleep 60", False, -2, "interrupted", id="interrupted"),
        pytest.param(
            "printf '{\"reason\":'", False, 0, "cargo ended without a final message (status 0)", id="half a message"
        ),
        pytest.param(
            'printf \'[]\\n3\\n{"reason":"compiler-artifact"}\\n\'',
            False,
            0,
            "cargo ended without a final message (status 0)",
            id="messages of a wrong form",
        ),
        pytest.param(f"printf '%s' '{FINISHED}'", True, 0, "", id="no line end"),
    ],
)
def test_the_final_message_decides(script: str, succeeded: bool, status: int, problem: str, tmp_path: Path) -> None:
    """
    Without a final message a build has failed, and the problem says how cargo ended.
    """
    result = check(tmp_path, script)

    assert (result.succeeded, result.status, result.problem) == (succeeded, status, problem)


@needs_posix
def test_a_cargo_that_cannot_be_started_is_a_result(tmp_path: Path) -> None:
    """
    A missing program, a file that is not executable, and a missing folder are reported as a failed result.
    """
    options = {"environment": os.environ, "progress": Recorder(), "log": None, "time_limit": 60.0}
    (tmp_path / "plain").write_text("no program")
    for cargo, directory in [
        (f"{ABSENT}/cargo", tmp_path),
        (str(tmp_path / "plain"), tmp_path),
        ("cargo", tmp_path / "missing"),
    ]:
        result = _cargo.run(["build"], cargo=cargo, directory=directory, **options)  # type: ignore[arg-type]

        assert not result.succeeded
        assert result.problem.startswith("cargo could not be started")


@needs_posix
def test_a_full_disk_for_the_log_does_not_fail_the_build(tmp_path: Path) -> None:
    """
    If the log cannot be written, the build continues without it.
    """

    class Full(io.BytesIO):
        def write(self, _data: object) -> int:
            raise OSError(28, "No space left on device")

    assert check(tmp_path, f"echo 'error: x' >&2; echo '{FINISHED}'", log=Full()).output == "error: x\n"


@needs_posix
def test_invalid_utf_8_is_preserved(tmp_path: Path) -> None:
    """
    A path that is not valid UTF-8 reaches the log unchanged.
    """
    log = io.BytesIO()
    check(tmp_path, rf"printf 'error: \377/x\n' >&2; echo '{FINISHED}'", log=log)

    assert log.getvalue() == b"error: \xff/x\n"


# --- the real cargo ---


@pytest.fixture
def crate(tmp_path: Path) -> Path:
    """
    A crate without dependencies.
    """
    (tmp_path / "src").mkdir()
    (tmp_path / "Cargo.toml").write_text(
        '[package]\nname = "mm"\nversion = "0.1.0"\nedition = "2021"\n'
        '[lib]\ncrate-type = ["cdylib"]\n'
        '[profile.quick]\ninherits = "dev"\n'
        "[workspace]\n"
    )
    (tmp_path / "Cargo.lock").write_text('version = 4\n[[package]]\nname = "mm"\nversion = "0.1.0"\n')
    write(tmp_path, "ONE")
    return tmp_path


def write(crate: Path, text: str, *, at: float | None = None) -> None:
    source = crate / "src" / "lib.rs"
    source.write_text(f'#[no_mangle]\npub static PyInit_mm: &str = "THE TEXT IS {text}";\n')
    if at is not None:
        os.utime(source, (at, at))


def build(crate: Path, profile: str = "dev", progress: Progress | None = None) -> CargoResult:
    return _cargo.run(
        ["rustc", "--locked", "--lib", "--crate-type", "cdylib", "--profile", profile, _cargo.MESSAGE_FORMAT],
        cargo="cargo",
        directory=crate,
        environment={**os.environ, "CARGO_TARGET_DIR": str(crate / "target")},
        progress=progress or Recorder(),
        log=None,
        time_limit=300,
    )


def clean(crate: Path, profile: str = "dev", packages: tuple[str, ...] = ("mm",)) -> CargoResult:
    environment = {**os.environ, "CARGO_TARGET_DIR": str(crate / "target")}
    return _cargo.clean(packages, cargo="cargo", directory=crate, environment=environment, profile=profile)


def text_of(result: CargoResult) -> bytes:
    (artifact,) = result.artifacts
    data = Path(next(name for name in artifact.filenames if name.endswith((".so", ".dylib", ".dll")))).read_bytes()
    return data[data.index(b"THE TEXT IS ") :][12:15]


@needs_cargo
def test_real_builds(crate: Path) -> None:
    """
    The output of the real cargo is understood: progress, artifact, freshness, an error, and a missing lockfile.
    """
    progress = Recorder()
    first, second = build(crate, progress=progress), build(crate)
    (crate / "src" / "lib.rs").write_text("fn main() { 1 + }")
    broken = build(crate)
    (crate / "Cargo.lock").unlink()
    refused = build(crate)

    assert (first.succeeded, first.status, first.problem, first.output) == (True, 0, "", "")
    assert first.artifacts[0].target_name == "mm"
    assert first.artifacts[0].kinds == ("cdylib",)
    assert Path(first.artifacts[0].package_manifest).samefile(crate / "Cargo.toml")
    assert not first.artifacts[0].fresh
    assert (0, 1, "mm") in progress.updates
    assert second.artifacts[0].fresh
    assert (broken.succeeded, broken.problem) == (False, "cargo reports a failed build (status 101)")
    assert broken.output.startswith("error: expected expression, found `}`\n --> src/lib.rs:1:17\n")
    assert (refused.succeeded, refused.problem) == (False, "cargo exited before it compiled (status 101)")
    assert "--locked" in refused.output


@needs_cargo
@pytest.mark.parametrize("profile", ["dev", "release", "quick"])
def test_a_cleaned_package_is_compiled_despite_an_older_timestamp(profile: str, crate: Path) -> None:
    """
    Cargo does not notice a change with an older timestamp. After a clean, cargo compiles the package in that profile.
    """
    build(crate, profile)
    write(crate, "TWO", at=time.time() - 86400)
    hidden = build(crate, profile)
    old_text = text_of(hidden)
    cleaned = clean(crate, profile)
    seen = build(crate, profile)

    assert (hidden.artifacts[0].fresh, old_text) == (True, b"ONE")
    assert (cleaned.succeeded, cleaned.problem) == (True, "")
    assert (seen.artifacts[0].fresh, text_of(seen)) == (False, b"TWO")


@needs_cargo
def test_cleaning_one_profile_does_not_affect_others(crate: Path) -> None:
    """
    After a development build was cleaned, the release build is still fresh.
    """
    build(crate, "release")
    build(crate, "dev")
    clean(crate, "dev")

    assert build(crate, "release").artifacts[0].fresh
    assert not build(crate, "dev").artifacts[0].fresh


@needs_cargo
def test_a_failed_clean_is_a_result(crate: Path) -> None:
    """
    The message of a failed `cargo clean` is kept.
    """
    result = clean(crate, packages=("no-such-package",))

    assert not result.succeeded
    assert result.problem == "cargo could not clean (status 101)"
    assert "no-such-package" in result.output
