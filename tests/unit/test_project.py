"""
Which remote a workspace uses, and whom it trusts: the project's file, the environment, and nobody else's file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rust_ext_loader._errors import ManifestError, SettingError
from rust_ext_loader.declare import _project
from rust_ext_loader.declare._project import RemoteSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Plant = Callable[..., Path]

TABLE = '[tool.rust-ext-loader.remote]\nurl = "s3://bucket/ours"\npublic-keys = ["ed25519:one"]\n'
NAMING = '[tool.rust-ext-loader]\nworkspace = "rust"\n'
OURS = RemoteSettings("s3://bucket/ours", ("ed25519:one",))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, None, id="no file"),
        pytest.param({"rust/pyproject.toml": "[project]\n"}, None, id="a file that does not speak of it"),
        pytest.param({"rust/pyproject.toml": TABLE}, OURS, id="beside the workspace's manifest"),
        pytest.param({"pyproject.toml": NAMING + TABLE}, OURS, id="above, naming the workspace"),
        pytest.param({"pyproject.toml": TABLE}, None, id="above, naming none"),
        pytest.param({"pyproject.toml": NAMING.replace("rust", "other") + TABLE}, None, id="above, naming another"),
        pytest.param({"pyproject.toml": "[tool"}, None, id="a broken file above, which may be anybody's"),
        pytest.param(
            {"pyproject.toml": NAMING + TABLE.replace("ours", "theirs"), "rust/pyproject.toml": TABLE},
            OURS,
            id="the nearest speaks",
        ),
        pytest.param(
            {"pyproject.toml": NAMING + TABLE, "rust/pyproject.toml": NAMING}, OURS, id="the nearest that speaks of it"
        ),
        pytest.param({"rust/pyproject.toml": TABLE.replace("url", "public-url")}, None, id="keys without a place"),
    ],
)
def test_the_file_that_speaks_for_a_workspace(
    plant: Plant, files: Mapping[str, str], expected: RemoteSettings | None
) -> None:
    """
    The workspace's own, else the nearest above that names it.
    """
    root = plant({"rust/Cargo.toml": "", **files})

    assert _project.remote(root / "rust", {}) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, OURS, id="nothing"),
        pytest.param(
            {"RUST_EXT_REMOTE_URL": "gs://mine"},
            RemoteSettings("gs://mine", OURS.public_keys),
            id="another place, the same trust",
        ),
        pytest.param({"RUST_EXT_REMOTE_URL": ""}, None, id="no place"),
        pytest.param(
            {"RUST_EXT_REMOTE_KEYS": "ed25519:a, ed25519:b\n"},
            RemoteSettings(OURS.url, ("ed25519:a", "ed25519:b")),
            id="other keys",
        ),
        pytest.param({"RUST_EXT_REMOTE_KEYS": ""}, RemoteSettings(OURS.url, ()), id="trust in nobody"),
        pytest.param({"RUST_EXT_OFFLINE": "1"}, None, id="no network"),
        pytest.param(
            {"RUST_EXT_OFFLINE": "1", "RUST_EXT_REMOTE_URL": "file:///share"},
            RemoteSettings("file:///share", OURS.public_keys),
            id="a folder needs no network",
        ),
    ],
)
def test_the_environment_decides_over_the_file(
    plant: Plant, variables: Mapping[str, str], expected: RemoteSettings | None
) -> None:
    """
    Place and trust are set apart: to name a place gives it no trust.
    """
    root = plant({"pyproject.toml": TABLE})

    assert _project.remote(root, variables) == expected


@pytest.mark.parametrize(
    ("variables", "setting"),
    [
        pytest.param({}, "{root}/pyproject.toml: public-keys", id="the file's"),
        pytest.param({"RUST_EXT_REMOTE_KEYS": "ed25519:a"}, "RUST_EXT_REMOTE_KEYS", id="the environment's"),
    ],
)
def test_keys_know_where_they_were_written(plant: Plant, variables: Mapping[str, str], setting: str) -> None:
    """
    Whoever wrote one that is none has to find it.
    """
    root = plant({"pyproject.toml": TABLE})
    found = _project.remote(root, variables)

    assert found is not None
    assert found.keys_from == setting.format(root=root)


def test_the_environment_alone_is_enough(plant: Plant) -> None:
    """
    With both in the environment no file is asked, be it broken.
    """
    root = plant({"pyproject.toml": "[tool"})
    variables = {"RUST_EXT_REMOTE_URL": "s3://mine", "RUST_EXT_REMOTE_KEYS": "ed25519:a"}

    assert _project.remote(root, variables) == RemoteSettings("s3://mine", ("ed25519:a",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[tool", "line 1", id="no TOML"),
        pytest.param("[tool.rust-ext-loader]\nremote = 1\n", "`remote` must be a table", id="no table"),
        pytest.param(
            "[tool.rust-ext-loader.remote]\nurl = 1\n", "line 2: .*`url` must be a string", id="a place that is no text"
        ),
        pytest.param(
            TABLE.replace('["ed25519:one"]', '"one"'),
            "line 3: .*`public-keys` must be a list of strings",
            id="keys that are no list",
        ),
        pytest.param(
            TABLE.replace('["ed25519:one"]', "[1]"),
            "`public-keys` must be a list of strings",
            id="a key that is no text",
        ),
    ],
)
def test_what_means_nothing_is_said(plant: Plant, text: str, said: str) -> None:
    """
    File, line and what was expected.
    """
    with pytest.raises(ManifestError, match=said):
        _project.remote(plant({"pyproject.toml": text}), {})


@pytest.mark.parametrize(
    ("mode", "owner", "counts"),
    [
        pytest.param(0o644, None, True, id="of the same owner"),
        pytest.param(0o664, None, True, id="of a team that shares a group"),
        pytest.param(0o646, None, False, id="that anybody can write"),
        pytest.param(0o644, 12345, False, id="of a stranger"),
    ],
)
def test_a_file_above_must_be_of_somebody_who_could_change_the_workspace(
    plant: Plant, mode: int, owner: int | None, counts: bool
) -> None:
    """
    Above a checkout in a shared folder anybody may put a file that names it: that gives him nobody's trust.
    """
    root = plant({"rust/Cargo.toml": "", "pyproject.toml": NAMING + TABLE})
    (root / "pyproject.toml").chmod(mode)
    if owner is not None:
        try:
            os.chown(root / "pyproject.toml", owner, owner)
        except OSError:
            pytest.skip("this user cannot give files away")

    assert (_project.remote(root / "rust", {}) is not None) == counts


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://example.org/x", True),
        ("http://localhost:9000/x", True),
        ("http://127.0.0.1/x", True),
        ("http://[::1]:9000/x", True),
        ("http://example.org/x", False),
        ("HTTP://example.org/x", False),
        ("http://localhost.example.org/x", False),
        ("http://127.0.0.1@example.org/x", False),
        ("http://localhost:80@example.org/x", False),
    ],
)
def test_plain_http_stays_on_this_host(plant: Plant, url: str, allowed: bool) -> None:
    """
    Credentials and code do not travel for everybody to read.
    """
    root = plant({"pyproject.toml": TABLE.replace("s3://bucket/ours", url)})

    if allowed:
        assert _project.remote(root, {}) == RemoteSettings(url, OURS.public_keys)
    else:
        with pytest.raises(SettingError, match="https://"):
            _project.remote(root, {})


def test_secrets_of_a_url_are_not_shown() -> None:
    """
    Names, passwords and signatures in a URL stay out of every text.
    """
    assert RemoteSettings("https://user:secret@host/x?sig=secret#secret", ()).redacted_url == "https://host/x"
