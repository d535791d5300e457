"""
Unit tests of signatures: only a trusted key's signature over exactly this statement is accepted.
"""

from __future__ import annotations

import base64
import dataclasses
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rust_ext_loader._errors import SettingError
from rust_ext_loader.remote import _signature
from rust_ext_loader.remote._signature import Signer, Statement, rejection

STATEMENT = Statement("2.1", "fx.alpha", "b" * 64, "1" * 64, "2" * 64)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return _signature.new_private_key(str(tmp_path / "key.pem"))


@pytest.fixture
def other(tmp_path: Path) -> Signer:
    return _signature.new_private_key(str(tmp_path / "other.pem"))


def test_signature_of_a_trusted_key_is_accepted(signer: Signer, other: Signer) -> None:
    """
    One of several trusted keys is enough. The signer that the entry names does not matter.
    """
    signature = signer.sign(STATEMENT)

    assert rejection(STATEMENT, signature, signer.public_key, [signer.public_key]) is None
    assert rejection(STATEMENT, signature, signer.public_key, [other.public_key, signer.public_key]) is None
    assert rejection(STATEMENT, signature, "unknown", [signer.public_key]) is None


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Statement)])
def test_every_field_is_signed(signer: Signer, field: str) -> None:
    """
    A signature does not match a statement that differs in a single field.
    """
    altered = dataclasses.replace(STATEMENT, **{field: getattr(STATEMENT, field)[:-1] + "x"})

    reason = rejection(altered, signer.sign(STATEMENT), signer.public_key, [signer.public_key])

    assert reason == "its signature does not match: it was altered, or made for another module, build key or format"


@pytest.mark.parametrize(
    ("one", "another"),
    [
        pytest.param(("2.1", "fx.alpha"), ("2.1f", "x.alpha"), id="format and module"),
        pytest.param(("2.", "1fx.alpha"), ("2.1", "fx.alpha"), id="module and format"),
        pytest.param(("", "2.1fx.alpha"), ("2.1fx.alpha", ""), id="an empty field"),
    ],
)
def test_fields_are_separated_by_their_lengths(one: tuple[str, str], another: tuple[str, str]) -> None:
    """
    Statements whose fields differ are different, even if their joined texts are equal.
    """
    first, second = (dataclasses.replace(STATEMENT, format=pair[0], module=pair[1]) for pair in (one, another))

    assert first.message != second.message


def test_message_is_pinned() -> None:
    """
    The signed bytes change only with the format, so that later versions can verify old signatures.
    """
    assert Statement("2.1", "m", "b", "", "s").message == (
        b"rust-ext-loader remote entry\n\x03\0\0\0\0\0\0\x002.1\x01\0\0\0\0\0\0\0m"
        b"\x01\0\0\0\0\0\0\0b\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0s"
    )


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        pytest.param(None, "it is not signed", id="none"),
        pytest.param("", "it is not signed", id="empty"),
        pytest.param(7, "it is not signed", id="not a string"),
        pytest.param("*" * 88, "its signature is not base64", id="not base64"),
        pytest.param("é" * 88, "its signature is not base64", id="not ASCII"),
        pytest.param(base64.b64encode(b"short").decode(), "does not match", id="too short"),
        pytest.param(base64.b64encode(bytes(64)).decode(), "does not match", id="zeros"),
    ],
)
def test_invalid_signature_is_refused(signer: Signer, signature: object, message: str) -> None:
    """
    Checking an invalid signature returns a reason and never raises.
    """
    assert message in str(rejection(STATEMENT, signature, signer.public_key, [signer.public_key]))


def test_untrusted_key_is_named(signer: Signer, other: Signer) -> None:
    """
    If the signature is valid but its key is not trusted, the reason names the key.
    """
    reason = rejection(STATEMENT, other.sign(STATEMENT), other.public_key, [signer.public_key])

    assert reason == f"it is signed by '{other.public_key}', which is not a trusted public key"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519:",
        "ed25519:AAAA",
        "rsa:" + "A" * 43 + "=",
        "A" * 43 + "=",
        "ed25519:" + "é" * 43,
        "ed25519:" + "A" * 42 + "*=",
    ],
)
def test_invalid_public_key_is_an_error(text: str) -> None:
    """
    A misspelled key raises and is never trusted.
    """
    with pytest.raises(SettingError, match="32 bytes in base64"):
        _signature.public_key(text)


def test_new_key_is_private_to_its_owner(tmp_path: Path) -> None:
    """
    The file has mode 0600 under any umask and holds the same key; an existing file is not overwritten.
    """
    path = tmp_path / "key.pem"
    before = os.umask(0)
    try:
        made = _signature.new_private_key(str(path))
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == 0o600
    assert _signature.read_private_key(str(path)).public_key == made.public_key
    with pytest.raises(SettingError, match="exists"):
        _signature.new_private_key(str(path))


def ec_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def locked_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        pytest.param(None, 0o640, "mode 0640", id="readable by the group"),
        pytest.param(None, 0o604, "mode 0604", id="readable by all"),
        pytest.param(b"", 0o600, "it holds no private key", id="empty"),
        pytest.param(b"no key at all", 0o600, "it holds no private key", id="not PEM"),
        pytest.param(ec_key(), 0o600, "ECPrivateKey", id="another kind of key"),
        pytest.param(locked_key(), 0o600, "or one with a passphrase", id="with a passphrase"),
    ],
)
def test_invalid_key_file_is_refused(tmp_path: Path, content: bytes | None, mode: int, message: str) -> None:
    """
    A private key that other users can read, or of another kind, is not used.
    """
    path = tmp_path / "key.pem"
    _signature.new_private_key(str(path))
    if content is not None:
        path.write_bytes(content)
    path.chmod(mode)

    with pytest.raises(SettingError, match=message):
        _signature.read_private_key(str(path))


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo"])
def test_key_path_that_is_not_a_file_is_refused(tmp_path: Path, kind: str) -> None:
    """
    A missing file, a folder and a pipe are refused. Opening a pipe without a writer does not block.
    """
    path = tmp_path / "key.pem"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path, 0o600)

    with pytest.raises(SettingError, match=r"^RUST_EXT_SIGNING_KEY='.*key\.pem' is invalid; expected a PEM file"):
        _signature.read_private_key(str(path))
