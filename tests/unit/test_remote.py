"""
Unit tests of the remote cache: a trusted entry is downloaded unchanged; any other entry is refused or a miss.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from missing_path import ABSENT

from rust_ext_loader._errors import SettingError
from rust_ext_loader.cache import _store
from rust_ext_loader.declare._project import RemoteSettings
from rust_ext_loader.facts._fingerprint import Fingerprint
from rust_ext_loader.remote import _entries, _signature
from rust_ext_loader.remote._entries import Answer, Wanted
from rust_ext_loader.remote._object_store import RemoteFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rust_ext_loader.remote._signature import Signer

MODULE = "fx.alpha"
FACTS = {"source/src/lib.rs": "aa", "abi/tag": "cp311", "toolchain/release": "1.95.0"}
BYTES = b"library of alpha" * 1000
SECONDS = 20.0


@dataclass
class World:
    """
    A cache that publishes entries, a folder as the remote, and a host that looks them up.
    """

    folder: Path
    signer: Signer
    stranger: Signer

    @property
    def settings(self) -> RemoteSettings:
        return RemoteSettings((self.folder / "remote").as_uri(), (self.signer.public_key,))

    def build(
        self,
        *,
        facts: Mapping[str, str] = FACTS,
        content: bytes = BYTES,
        module: str = MODULE,
        seen: Mapping[str, str] | None = None,
        began: float = 1000.0,
        floor: tuple[int, int] | None = None,
    ) -> _store.Entry:
        artifact = self.folder / "artifact"
        artifact.write_bytes(content)
        origin = _store.Origin("1.95.0", "cp311", floor, began, 1.0, "token", seen or {})
        return _store.publish(self.folder / "cache", module, Fingerprint(facts), artifact, "alpha.so", origin)

    def publish(self, entry: _store.Entry, signer: Signer | None = None) -> bool:
        (self.folder / "remote").mkdir(exist_ok=True)
        return _entries.publish(self.settings, signer or self.signer, entry, SECONDS)

    def look_up(
        self, facts: Mapping[str, str] = FACTS, is_current: Callable[[Mapping[str, str]], bool] = lambda _: True
    ) -> Answer:
        self.received.unlink(missing_ok=True)
        return _entries.look_up(self.settings, Wanted(MODULE, Fingerprint(facts), is_current), self.received, SECONDS)

    @property
    def received(self) -> Path:
        return self.folder / "received.so"

    def place(self, facts: Mapping[str, str] = FACTS, module: str = MODULE) -> Path:
        return self.folder / "remote" / _entries._folder(module, Fingerprint(facts))

    def entry_file(self, facts: Mapping[str, str] = FACTS, module: str = MODULE) -> Path:
        (file,) = (self.place(facts, module) / "entries").iterdir()
        return file

    def library_file(self, facts: Mapping[str, str] = FACTS, module: str = MODULE) -> Path:
        (file,) = (self.place(facts, module) / "libraries").iterdir()
        return file

    def edit(self, **fields: object) -> None:
        """
        Change fields of the published entry; `None` removes a field.
        """
        file = self.entry_file()
        envelope = {**json.loads(file.read_bytes()), **fields}
        file.write_text(
            json.dumps({name: value for name, value in envelope.items() if value is not None}), encoding="utf-8"
        )

    def manifest(self) -> str:
        return str(json.loads(self.entry_file().read_bytes())["manifest"])

    def sign_again(self, **fields: object) -> None:
        """
        Change fields of the published manifest and sign it with the trusted key.
        """
        self.sign_text(json.dumps({**json.loads(self.manifest()), **fields}))

    def sign_text(self, text: str) -> None:
        sha256 = str(json.loads(self.entry_file().read_bytes())["sha256"])
        statement = _entries._statement(MODULE, Fingerprint(FACTS).build_key, sha256, text)
        self.edit(manifest=text, signature=self.signer.sign(statement))


@pytest.fixture
def world(tmp_path: Path) -> World:
    signer, stranger = (_signature.new_private_key(str(tmp_path / name)) for name in ("key", "stranger"))
    return World(tmp_path, signer, stranger)


def test_published_entry_is_downloaded(world: World) -> None:
    """
    Every byte and the origin are the same, and the origin names the remote.
    """
    assert world.publish(world.build(seen={"seen/file/a": "11"}, floor=(2, 5)))

    answer = world.look_up()

    assert answer.refused == ()
    assert world.received.read_bytes() == BYTES
    assert answer.origin == _store.Origin(
        "1.95.0", "cp311", (2, 5), 1000.0, 1.0, None, {"seen/file/a": "11"}, pulled=(world.folder / "remote").as_uri()
    )


def test_missing_entry_is_a_miss(world: World) -> None:
    """
    If the remote has no entry, nothing is downloaded and nothing is refused.
    """
    (world.folder / "remote").mkdir()

    assert world.look_up() == Answer(None, ())
    world.publish(world.build())
    assert world.look_up({**FACTS, "abi/tag": "cp312"}) == Answer(None, ())


def test_publishing_again_changes_nothing(world: World) -> None:
    """
    An entry with the same facts is kept, unless its signature is not trusted or its library is missing.
    """
    assert world.publish(world.build())
    before = world.entry_file().read_bytes()

    assert not world.publish(world.build(content=b"another build"))
    assert world.entry_file().read_bytes() == before

    world.edit(signature="*")
    assert world.publish(world.build())
    assert world.look_up().origin is not None

    world.library_file().unlink()
    assert world.look_up() == Answer(None, ())
    assert world.publish(world.build())
    assert world.look_up().origin is not None


def test_each_set_of_seen_inputs_is_an_entry(world: World) -> None:
    """
    A lookup takes the newest entry whose seen inputs are current, as in the local cache.
    """
    for number in (1, 3, 2):
        world.publish(
            world.build(content=b"library %d" % number, seen={"seen/file/a": str(number)}, began=float(number))
        )

    assert world.look_up().origin is not None
    assert world.received.read_bytes() == b"library 3"
    assert world.look_up(is_current=lambda seen: seen["seen/file/a"] != "3").origin is not None
    assert world.received.read_bytes() == b"library 2"
    assert world.look_up(is_current=lambda _: False) == Answer(None, ())


def test_entry_for_a_newer_libc_is_a_miss(world: World) -> None:
    """
    A valid entry that needs a newer glibc than the host's is ignored, not refused.
    """
    world.publish(world.build(floor=(99, 0)))

    assert world.look_up() == Answer(None, ())


def test_start_time_in_the_future_is_corrected(world: World) -> None:
    """
    A start time in the future is replaced, because a forced build would seem older than the entry.
    """
    world.publish(world.build(began=1e12))

    origin = world.look_up().origin

    assert origin is not None
    assert origin.began < 1e11


def altered_library(world: World) -> None:
    world.library_file().write_bytes(BYTES[:-1] + b"x")


def cut_library(world: World) -> None:
    world.library_file().write_bytes(BYTES[:-1])


def another_library(world: World) -> None:
    other = {**FACTS, "abi/tag": "cp312"}
    world.publish(world.build(facts=other, content=b"another library"))
    shutil.copy(world.library_file(other), world.library_file())


def another_modules_entry(world: World) -> None:
    world.publish(world.build(module="fx.beta", content=b"library of beta"))
    shutil.copy(world.entry_file(module="fx.beta"), world.entry_file())


def another_build_keys_entry(world: World) -> None:
    other = {**FACTS, "abi/tag": "cp312"}
    world.publish(world.build(facts=other))
    shutil.copy(world.entry_file(other), world.entry_file())


def an_older_format(world: World) -> None:
    envelope = json.loads(world.entry_file().read_bytes())
    statement = dataclasses.replace(
        _entries._statement(MODULE, Fingerprint(FACTS).build_key, envelope["sha256"], envelope["manifest"]),
        format="1.1",
    )
    world.edit(signature=world.signer.sign(statement))


DOES_NOT_MATCH = "its signature does not match: it was altered, or made for another module, build key or format"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(altered_library, "it is not the signed library", id="one byte of the library"),
        pytest.param(cut_library, "it is not the signed library", id="the library's last byte"),
        pytest.param(another_library, "it is not the signed library", id="the library of another build"),
        pytest.param(another_modules_entry, DOES_NOT_MATCH, id="another module's entry"),
        pytest.param(another_build_keys_entry, DOES_NOT_MATCH, id="another build key's entry"),
        pytest.param(an_older_format, DOES_NOT_MATCH, id="an older format under the current name"),
        pytest.param(lambda world: world.edit(signature=None), "it is not signed", id="no signature"),
        pytest.param(lambda world: world.edit(sha256="0" * 64), DOES_NOT_MATCH, id="the library's digest"),
        pytest.param(
            lambda world: world.edit(manifest=world.manifest().replace("1.95.0", "1.96.0")),
            DOES_NOT_MATCH,
            id="the manifest",
        ),
        pytest.param(
            lambda world: world.edit(manifest=world.manifest() + " "), DOES_NOT_MATCH, id="a space after the manifest"
        ),
        pytest.param(lambda world: world.entry_file().write_bytes(b""), "it is not an entry", id="an empty entry"),
        pytest.param(
            lambda world: world.entry_file().write_bytes(b"\xff\xfe{}"),
            "it is not an entry",
            id="an entry of random bytes",
        ),
        pytest.param(
            lambda world: world.entry_file().write_text("[" * 100_000),
            "it is not an entry",
            id="a deeply nested entry",
        ),
        pytest.param(lambda world: world.entry_file().write_text("[]"), "it is not an entry", id="a list"),
        pytest.param(
            lambda world: world.entry_file().write_text('{"sha256": ""}'), "it is not an entry", id="no manifest"
        ),
        pytest.param(
            lambda world: world.sign_again(module="fx.beta"),
            "does not match the signed statement",
            id="signed: another module",
        ),
        pytest.param(
            lambda world: world.sign_again(facts={}), "does not match the signed statement", id="signed: other facts"
        ),
        pytest.param(
            lambda world: world.sign_again(format=1),
            "does not match the signed statement",
            id="signed: another format",
        ),
        pytest.param(
            lambda world: world.sign_again(sha256="0" * 64),
            "does not match the signed statement",
            id="signed: another library",
        ),
        pytest.param(
            lambda world: world.sign_again(host_bound=["seen/env/X"]),
            "does not match the signed statement",
            id="signed: valid on one host only",
        ),
        pytest.param(lambda world: world.sign_again(size=1 << 40), "at most", id="signed: library too large"),
        pytest.param(lambda world: world.sign_again(size="many"), "its manifest is damaged", id="signed: invalid size"),
        pytest.param(
            lambda world: world.sign_again(seen=7), "its manifest is damaged", id="signed: invalid seen inputs"
        ),
        pytest.param(lambda world: world.sign_text("no manifest"), "its manifest is damaged", id="signed: no manifest"),
    ],
)
def test_altered_entry_is_refused(world: World, damage: Callable[[World], object], message: str) -> None:
    """
    An altered entry is refused with a reason, and no file is created under the library's name.
    """
    world.publish(world.build())
    damage(world)

    answer = world.look_up()

    assert answer.origin is None
    assert len(answer.refused) == 1
    assert message in answer.refused[0]
    assert answer.refused[0].startswith(f"artifacts/{MODULE}/")
    assert not world.received.exists()


def test_untrusted_entry_is_refused(world: World) -> None:
    """
    The reason names the claimed signer. A trusted entry with the same key is still used.
    """
    world.publish(world.build(content=b"bad", seen={"seen/file/a": "1"}, began=9.0), world.stranger)
    assert f"signed by '{world.stranger.public_key}'" in "".join(world.look_up().refused)

    world.publish(world.build(content=b"good", began=1.0))
    answer = world.look_up()

    assert answer.origin is not None
    assert len(answer.refused) == 1
    assert world.received.read_bytes() == b"good"


def test_entry_of_another_format_is_ignored(world: World) -> None:
    """
    Several versions of the toolkit may share a remote; each format has its own names.
    """
    world.publish(world.build())
    file = world.entry_file()
    file.rename(file.with_name(file.name.replace(_entries._format(), "1.1")))

    assert world.look_up() == Answer(None, ())


def test_lookup_without_a_trusted_key_fails(world: World) -> None:
    """
    Without a trusted key no entry could be trusted, so the remote is not asked.
    """
    settings = RemoteSettings("s3://no-such-place", ())

    with pytest.raises(RemoteFailed, match=r"^no public key is trusted for it; add one to public-keys$"):
        _entries.look_up(settings, Wanted(MODULE, Fingerprint(FACTS), lambda _: True), world.received, SECONDS)


def test_invalid_trusted_key_is_an_error(world: World) -> None:
    """
    Lookup and publication fail and name the setting. They do not continue with the valid keys only.
    """
    settings = dataclasses.replace(
        world.settings, public_keys=(world.signer.public_key, "ed25519:secret"), keys_from="HERE"
    )
    entry = world.build()

    with pytest.raises(SettingError, match="HERE='ed25519:secret' is invalid; expected `ed25519:` and 32 bytes"):
        _entries.look_up(settings, Wanted(MODULE, Fingerprint(FACTS), lambda _: True), world.received, SECONDS)
    with pytest.raises(SettingError, match="HERE='ed25519:secret' is invalid"):
        _entries.publish(settings, world.signer, entry, SECONDS)


@pytest.mark.parametrize("url", [f"file://{ABSENT}", "bogus://place", "s3://", "no url"])
def test_invalid_url_fails(world: World, url: str) -> None:
    """
    An invalid URL raises `RemoteFailed` with one line of text.
    """
    settings = RemoteSettings(url, (world.signer.public_key,))

    with pytest.raises(RemoteFailed, match=r"^[^\n]+$"):
        _entries.look_up(settings, Wanted(MODULE, Fingerprint(FACTS), lambda _: True), world.received, SECONDS)
