"""
Decide whether an entry was published by a trusted signer.

A *statement* is the signed data: the format, the module, the build key and the
digests of library and manifest. Each part is preceded by its length, so no part can
be mistaken for part of its neighbour. The first line names the purpose, so a
signature for another purpose is not valid here.

Invariant: the verifier takes format, module and build key from its own request,
never from the received data. Keys are Ed25519. A private key is read only from
a file that no other user can read.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from .. import _settings
from .._errors import SettingError
from .._values import dataclass
from ..files._digest import framed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PURPOSE = b"rust-ext-loader remote entry\n"
_KIND = "ed25519:"


@dataclass(frozen=True, slots=True)
class Statement:
    """
    The signed data.
    """

    format: str
    module: str
    build_key: str
    library_sha256: str
    manifest_sha256: str

    @property
    def message(self) -> bytes:
        """
        The bytes to sign.
        """
        fields = (self.format, self.module, self.build_key, self.library_sha256, self.manifest_sha256)
        return _PURPOSE + framed(fields)


class Signer:
    """
    A private key.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def public_key(self) -> str:
        """
        Its public half as text: `ed25519:` and base64.
        """
        raw = self._key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return _KIND + base64.b64encode(raw).decode()

    def sign(self, statement: Statement) -> str:
        """
        A signature, in base64.
        """
        return base64.b64encode(self._key.sign(statement.message)).decode()


def rejection(statement: Statement, signature: object, signed_by: object, trusted: Iterable[str]) -> str | None:
    """
    Why a signature does not make a statement trusted; `None` if it does.

    *signed_by* is the key that the entry names; it affects only the text.
    """
    keys = {text: public_key(text) for text in trusted}
    if not isinstance(signature, str) or not signature:
        return "it is not signed"
    try:
        raw = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return "its signature is not base64"
    for key in keys.values():
        try:
            key.verify(raw, statement.message)
        except InvalidSignature:
            continue
        return None
    if signed_by in keys:
        return "its signature does not match: it was altered, or made for another module, build key or format"
    return f"it is signed by {str(signed_by)[:60]!r}, which is not a trusted public key"


def public_key(text: str, setting: str = "public key") -> Ed25519PublicKey:
    """
    Parse a public key from *setting*; raises `SettingError`.
    """
    kind, _, encoded = text.partition(":")
    try:
        # After another prefix, empty bytes are used. They are not a valid key, so the next line raises.
        raw = base64.b64decode(encoded, validate=True) if f"{kind}:" == _KIND else b""
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError as error:
        raise SettingError(
            setting, text[:60], f"`{_KIND}` and 32 bytes in base64, as `rust-ext push --new-key FILE` prints"
        ) from error


def read_private_key(path: str) -> Signer:
    """
    The private key in a PEM file that only its owner can read; raises `SettingError`.
    """
    try:
        # Non-blocking: opening a named pipe would otherwise wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            data = file.read(1 << 16) if stat.S_ISREG(status.st_mode) else b""
    except OSError as error:
        raise _invalid_key_file(path, error.strerror or str(error)) from error
    if hasattr(os, "geteuid") and (status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077):
        raise _invalid_key_file(path, f"it has mode {stat.S_IMODE(status.st_mode):04o} and user {status.st_uid}")
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _invalid_key_file(path, "it holds no private key, or one with a passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _invalid_key_file(path, f"it holds a key of type {type(key).__name__}")
    return Signer(key)


def _invalid_key_file(path: str, problem: str) -> SettingError:
    expected = "a PEM file with an Ed25519 private key without a passphrase, mode 0600, of this user"
    return SettingError(_settings.SIGNING_KEY, path, f"{expected} ({problem})")


def new_private_key(path: str) -> Signer:
    """
    Write a new key into a new file that only this user can read; raises `SettingError`.
    """
    key = Ed25519PrivateKey.generate()
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        expected = f"the name of a new file in a writable folder ({error.strerror or error})"
        raise SettingError("--new-key", path, expected) from error
    return Signer(key)
