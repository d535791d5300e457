"""
Look up entries in an object store, and publish them there.

    artifacts/<module>/<source key>/<build key>/entries/<format>-<seen>.json   manifest, signature
    artifacts/<module>/<source key>/<build key>/libraries/<sha256>             the library, never changed

As on disk, one build key may have several entries, one per set of *seen* inputs.
The library is uploaded before the entry that names it, so a reader sees both or
neither.

Invariant: a library from the remote is code, and only a signature makes it
trusted. The signature is verified before the manifest is parsed and before the
library is downloaded. The library's digest is verified before its file gets its
name. An entry that is valid on one host only is never published.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from .._values import dataclass
from ..cache import _store
from ..facts._fingerprint import SHORT, Fingerprint, digest_of
from ..files import _digest
from . import _signature
from ._object_store import Bucket, RemoteFailed, run_with_limit
from ._signature import Signer, Statement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..declare._project import RemoteSettings

#: Version of the signed data and of an entry's fields, in addition to the manifest's own version.
FORMAT = 1

#: Bytes. An entry is small: its manifest has one line per fact.
_MAX_ENTRY_SIZE = 8 << 20
_MAX_LIBRARY_SIZE = 512 << 20
#: Number of entries of one build key that are read at most.
_MAX_ENTRIES = 64

#: Exceptions while reading fields of malformed JSON.
_MALFORMED = (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError)


class Refused(Exception):
    """
    An entry exists, but it must not be used.
    """


@dataclass(frozen=True, slots=True)
class Wanted:
    """
    The request: a module and its facts.
    """

    module: str
    fingerprint: Fingerprint
    #: Whether these seen inputs have the same values on this host.
    is_current: Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """
    The result of a lookup.
    """

    #: The origin of the downloaded library; `None` if no library was downloaded.
    origin: _store.Origin | None
    #: Names of refused entries, each with the reason.
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Offer:
    """
    An entry with a valid signature.
    """

    origin: _store.Origin
    sha256: str
    size: int


def look_up(settings: RemoteSettings, wanted: Wanted, destination: Path, seconds: float) -> Answer:
    """
    Download the newest library with exactly these facts into a new file. The file appears only when it is complete.

    Raises `RemoteFailed`, and `SettingError` for an invalid trusted key.
    """
    if not settings.public_keys:
        raise RemoteFailed(f"no public key is trusted for it; add one to {settings.keys_from}")
    _check_keys(settings)
    return run_with_limit(seconds, settings.url, lambda bucket: _look_up(bucket, settings, wanted, destination))


def _check_keys(settings: RemoteSettings) -> None:
    for key in settings.public_keys:
        _signature.public_key(key, settings.keys_from)


def _look_up(bucket: Bucket, settings: RemoteSettings, wanted: Wanted, destination: Path) -> Answer:
    refused: list[str] = []
    offers: list[_Offer] = []
    folder = _folder(wanted.module, wanted.fingerprint)
    for name in bucket.names(f"{folder}/entries/", _MAX_ENTRIES):
        # Entries of other formats belong to other versions of the toolkit.
        if not name.rpartition("/")[2].startswith(f"{_format()}-"):
            continue
        data = bucket.read_small(name, _MAX_ENTRY_SIZE)
        try:
            if data is not None and (offer := _verified(data, wanted, settings)) is not None:
                offers.append(offer)
        except Refused as why:
            refused.append(f"{name}: {why}")
    for offer in sorted(offers, key=lambda offer: offer.origin.began, reverse=True):
        try:
            _download(bucket, f"{folder}/libraries/{offer.sha256}", offer, destination)
        except FileNotFoundError:
            continue
        except Refused as why:
            refused.append(f"{folder}/libraries/{offer.sha256}: {why}")
            continue
        return Answer(offer.origin, tuple(refused))
    return Answer(None, tuple(refused))


def _verified(data: bytes, wanted: Wanted, settings: RemoteSettings) -> _Offer | None:
    """
    The verified entry; `None` if it is valid but not for this host. Raises `Refused`.
    """
    try:
        envelope = json.loads(data)
        text, sha256 = str(envelope["manifest"]), str(envelope["sha256"])
        signature, signed_by = envelope.get("signature"), envelope.get("signed_by")
    except _MALFORMED as error:
        raise Refused("it is not an entry") from error
    statement = _statement(wanted.module, wanted.fingerprint.build_key, sha256, text)
    if reason := _signature.rejection(statement, signature, signed_by, settings.public_keys):
        raise Refused(reason)
    try:
        manifest = json.loads(text)
        if not _agrees(manifest, wanted, sha256):
            raise Refused("its manifest does not match the signed statement")
        offer = _Offer(_origin(manifest, settings), sha256, int(manifest["size"]))
    except _MALFORMED as error:
        raise Refused("its manifest is damaged") from error
    if not 0 < offer.size <= _MAX_LIBRARY_SIZE:
        raise Refused(f"its library has {offer.size} bytes, but at most {_MAX_LIBRARY_SIZE} are accepted")
    if _store.is_for_newer_system(manifest) or not wanted.is_current(offer.origin.seen):
        return None
    return offer


def _agrees(manifest: dict[str, Any], wanted: Wanted, sha256: str) -> bool:
    return (
        manifest["format"] == _store.FORMAT
        and manifest["module"] == wanted.module
        and manifest["facts"] == wanted.fingerprint.facts
        and manifest["sha256"] == sha256
        and not manifest["host_bound"]
    )


def _origin(manifest: dict[str, Any], settings: RemoteSettings) -> _store.Origin:
    floor = None
    if manifest["glibc_floor"] is not None:
        major, minor, *_ = manifest["glibc_floor"]
        floor = int(major), int(minor)
    return _store.Origin(
        toolchain=str(manifest["toolchain"]),
        abi=str(manifest["abi"]),
        glibc_floor=floor,
        # The clock of the other host may be ahead.
        began=min(float(manifest["began"]), time.time()),
        seconds=float(manifest["seconds"]),
        token=None,
        seen={str(name): str(value) for name, value in manifest["seen"].items()},
        pulled=settings.redacted_url,
    )


def _download(bucket: Bucket, name: str, offer: _Offer, destination: Path) -> None:
    """
    Download a library into a new file; raises `Refused` if it is not the signed one.
    """
    hasher = hashlib.sha256()
    arriving = destination.with_name(f"{destination.name}.arriving")
    with arriving.open("wb") as file:
        for chunk in bucket.chunks(name, offer.size):
            hasher.update(chunk)
            file.write(chunk)
    if hasher.hexdigest() != offer.sha256:
        raise Refused("it is not the signed library")
    arriving.rename(destination)


def publish(settings: RemoteSettings, signer: Signer, entry: _store.Entry, seconds: float) -> bool:
    """
    Store an entry; false if the remote already has the same one with a trusted signature.

    Raises `RemoteFailed`, and `SettingError` for an invalid trusted key.
    """
    _check_keys(settings)
    manifest = (entry.folder / _store.MANIFEST).read_text("utf-8")
    return run_with_limit(
        seconds, settings.url, lambda bucket: _publish(bucket, settings, signer, entry, manifest), writing=True
    )


def _publish(bucket: Bucket, settings: RemoteSettings, signer: Signer, entry: _store.Entry, manifest: str) -> bool:
    fields = json.loads(manifest)
    module, sha256 = str(fields["module"]), str(fields["sha256"])
    wanted = Wanted(module, Fingerprint(entry.facts), lambda seen: seen == entry.seen)
    folder = _folder(module, wanted.fingerprint)
    name = f"{folder}/entries/{_format()}-{digest_of(entry.seen)[:SHORT]}.json"
    if _has_same_entry(bucket, name, folder, wanted, settings):
        return False
    # The library comes first, so a reader never sees an entry without its library.
    bucket.put(f"{folder}/libraries/{sha256}", entry.library)
    signature = signer.sign(_statement(module, entry.build_key, sha256, manifest))
    envelope = {"signature": signature, "signed_by": signer.public_key, "sha256": sha256, "manifest": manifest}
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary, "entry.json")
        file.write_text(json.dumps(envelope, indent=1), encoding="utf-8")
        bucket.put(name, file)
    return True


def _has_same_entry(bucket: Bucket, name: str, folder: str, wanted: Wanted, settings: RemoteSettings) -> bool:
    data = bucket.read_small(name, _MAX_ENTRY_SIZE)
    try:
        offer = None if data is None else _verified(data, wanted, settings)
    except Refused:
        return False
    return offer is not None and bucket.size(f"{folder}/libraries/{offer.sha256}") == offer.size


def bound_to_host(entry: _store.Entry) -> tuple[str, ...]:
    """
    The facts and inputs that are valid on this host only.
    """
    return tuple(json.loads((entry.folder / _store.MANIFEST).read_bytes())["host_bound"])


def _folder(module: str, fingerprint: Fingerprint) -> str:
    return f"artifacts/{module}/{fingerprint.source_key}/{fingerprint.build_key}"


def _format() -> str:
    return f"{_store.FORMAT}.{FORMAT}"


def _statement(module: str, build_key: str, sha256: str, manifest: str) -> Statement:
    digest = _digest.sha256(manifest.encode("utf-8", "surrogateescape"))
    return Statement(_format(), module, build_key, sha256, digest)
