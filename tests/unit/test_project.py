"""
Unit tests of the remote's settings: which remote a workspace uses, and which keys it trusts.
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
        pytest.param({"rust/pyproject.toml": "[project]\n"}, None, id="a file without the table"),
        pytest.param({"rust/pyproject.toml": TABLE}, OURS, id="beside the workspace's manifest"),
        pytest.param({"pyproject.toml": NAMING + TABLE}, OURS, id="above, naming this workspace"),
        pytest.param({"pyproject.toml": TABLE}, None, id="above, naming no workspace"),
        pytest.param({"pyproject.toml": NAMING.replace("rust", "other") + TABLE}, None, id="above, naming another one"),
        pytest.param({"pyproject.toml": "[tool"}, None, id="a broken file above"),
        pytest.param(
            {"pyproject.toml": NAMING + TABLE.replace("ours", "theirs"), "rust/pyproject.toml": TABLE},
            OURS,
            id="the nearest file wins",
        ),
        pytest.param(
            {"pyproject.toml": NAMING + TABLE, "rust/pyproject.toml": NAMING},
            OURS,
            id="the nearest file with the table",
        ),
        pytest.param({"rust/pyproject.toml": TABLE.replace("url", "public-url")}, None, id="keys without a URL"),
    ],
)
def test_file_that_applies_to_a_workspace(
    plant: Plant, files: Mapping[str, str], expected: RemoteSettings | None
) -> None:
    """
    The file beside the workspace applies, else the nearest one above that names the workspace.
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
            id="another URL, the same keys",
        ),
        pytest.param({"RUST_EXT_REMOTE_URL": ""}, None, id="an empty URL"),
        pytest.param(
            {"RUST_EXT_REMOTE_KEYS": "ed25519:a, ed25519:b\n"},
            RemoteSettings(OURS.url, ("ed25519:a", "ed25519:b")),
            id="other keys",
        ),
        pytest.param({"RUST_EXT_REMOTE_KEYS": ""}, RemoteSettings(OURS.url, ()), id="no keys"),
        pytest.param({"RUST_EXT_OFFLINE": "1"}, None, id="offline"),
        pytest.param(
            {"RUST_EXT_OFFLINE": "1", "RUST_EXT_REMOTE_URL": "file:///share"},
            RemoteSettings("file:///share", OURS.public_keys),
            id="offline with a folder",
        ),
    ],
)
def test_environment_overrides_the_file(
    plant: Plant, variables: Mapping[str, str], expected: RemoteSettings | None
) -> None:
    """
    The variables replace URL and keys separately: another URL does not change the trusted keys.
    """
    root = plant({"pyproject.toml": TABLE})

    assert _project.remote(root, variables) == expected


@pytest.mark.parametrize(
    ("variables", "setting"),
    [
        pytest.param({}, "{root}/pyproject.toml: public-keys", id="from the file"),
        pytest.param({"RUST_EXT_REMOTE_KEYS": "ed25519:a"}, "RUST_EXT_REMOTE_KEYS", id="from the environment"),
    ],
)
def test_settings_name_the_source_of_the_keys(plant: Plant, variables: Mapping[str, str], setting: str) -> None:
    """
    The source of the keys is stored, so that an error about an invalid key can name the setting.
    """
    root = plant({"pyproject.toml": TABLE})
    found = _project.remote(root, variables)

    assert found is not None
    assert found.keys_from == setting.format(root=root)


def test_environment_alone_is_sufficient(plant: Plant) -> None:
    """
    With both variables set, no file is read, so a broken file does not matter.
    """
    root = plant({"pyproject.toml": "[tool"})
    variables = {"RUST_EXT_REMOTE_URL": "s3://mine", "RUST_EXT_REMOTE_KEYS": "ed25519:a"}

    assert _project.remote(root, variables) == RemoteSettings("s3://mine", ("ed25519:a",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[tool", "line 1", id="not TOML"),
        pytest.param("[tool.rust-ext-loader]\nremote = 1\n", "`remote` must be a table", id="not a table"),
        pytest.param(
            "[tool.rust-ext-loader.remote]\nurl = 1\n",
            "line 2: .*`url` must be a string",
            id="a URL that is not a string",
        ),
        pytest.param(
            TABLE.replace('["ed25519:one"]', '"one"'),
            "line 3: .*`public-keys` must be a list of strings",
            id="keys that are not a list",
        ),
        pytest.param(
            TABLE.replace('["ed25519:one"]', "[1]"),
            "`public-keys` must be a list of strings",
            id="a key that is not a string",
        ),
    ],
)
def test_invalid_table_is_an_error(plant: Plant, text: str, message: str) -> None:
    """
    The error names the file, the line and the expected value.
    """
    with pytest.raises(ManifestError, match=message):
        _project.remote(plant({"pyproject.toml": text}), {})


@pytest.mark.parametrize(
    ("mode", "owner", "counts"),
    [
        pytest.param(0o644, None, True, id="owned by the workspace's owner"),
        pytest.param(0o664, None, True, id="writable by a group"),
        pytest.param(0o646, None, False, id="writable by all"),
        pytest.param(0o644, 12345, False, id="owned by another user"),
    ],
)
def test_file_above_must_have_a_trusted_owner(plant: Plant, mode: int, owner: int | None, counts: bool) -> None:
    """
    In a shared folder any user can create a file that names a workspace below; it must not be trusted.
    """
    root = plant({"rust/Cargo.toml": "", "pyproject.toml": NAMING + TABLE})
    (root / "pyproject.toml").chmod(mode)
    if owner is not None:
        try:
            os.chown(root / "pyproject.toml", owner, owner)
        except OSError:
            pytest.skip("this user cannot change the owner")

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
def test_plain_http_is_for_this_host_only(plant: Plant, url: str, allowed: bool) -> None:
    """
    Plain HTTP is refused for other hosts: credentials and code must not be readable on the network.
    """
    root = plant({"pyproject.toml": TABLE.replace("s3://bucket/ours", url)})

    if allowed:
        assert _project.remote(root, {}) == RemoteSettings(url, OURS.public_keys)
    else:
        with pytest.raises(SettingError, match="https://"):
            _project.remote(root, {})


def test_redacted_url_has_no_secrets() -> None:
    """
    User names, passwords and signatures of a URL never appear in texts.
    """
    assert RemoteSettings("https://user:secret@host/x?sig=secret#secret", ()).redacted_url == "https://host/x"


def test_refused_url_is_quoted_without_secrets(plant: Plant) -> None:
    """
    The error about a plain `http://` URL names the host, but neither password nor signature.
    """
    url = "http://user:secret@example.org/x?sig=secret"
    root = plant({"pyproject.toml": TABLE.replace("s3://bucket/ours", url)})

    with pytest.raises(SettingError) as error:
        _project.remote(root, {})

    assert "http://example.org/x" in str(error.value)
    assert "secret" not in str(error.value)
