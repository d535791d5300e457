"""
A remote cache between two hosts: one pushes an entry, the other imports it without compiling.

An entry that is not trusted is built instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from checkout import Checkout, check_out
from commands import rust_ext
from missing_path import ABSENT
from object_server import URL, ObjectServer

from rust_ext_loader.remote import _signature

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALPHA = "alpha-1 part-1 middle-1"
#: Modules and libraries that a process must not import unless it asks a remote.
REMOTE_ONLY = {
    "rust_ext_loader.remote._remote",
    "rust_ext_loader.remote._object_store",
    "rust_ext_loader.remote._signature",
    "obstore",
    "cryptography",
}


@dataclass
class Hosts:
    """
    Two hosts with the same commit: one has built `fx.alpha` and pushes it, the other has an empty cache.
    """

    server: ObjectServer
    first: Checkout
    second: Checkout

    def push(self, *arguments: str) -> str:
        result = rust_ext(self.first, "push", *arguments, raw=True)
        assert result.code == 0, result.err
        return result.out

    def library(self) -> str:
        (key,) = (key for key in self.server.objects if "/libraries/" in key)
        return key

    def alter(self) -> None:
        """
        Flip one bit of the pushed library.
        """
        content = bytearray(self.server.objects[self.library()])
        content[len(content) // 2] ^= 1
        self.server.objects[self.library()] = bytes(content)


@pytest.fixture
def hosts(built: Checkout, tmp_path: Path) -> Iterator[Hosts]:
    key = tmp_path / "key.pem"
    public = _signature.new_private_key(str(key)).public_key
    table = f'[tool.rust-ext-loader.remote]\nurl = "{URL}"\npublic-keys = ["{public}"]\n'
    with ObjectServer().serving() as server:
        second = check_out("plain", tmp_path / "second")
        for checkout in (built, second):
            checkout.write("pyproject.toml", table)
            checkout.environment.update(server.variables())
        built.environment["RUST_EXT_SIGNING_KEY"] = str(key)
        yield Hosts(server, built, second)


@pytest.mark.parametrize("kind", ["object store", "folder"])
def test_one_host_imports_what_another_built(hosts: Hosts, tmp_path: Path, kind: str) -> None:
    """
    The second host imports the pushed entry without compiling. Its next import is warm and asks no remote.
    """
    if kind == "folder":
        for checkout in (hosts.first, hosts.second):
            checkout.environment["RUST_EXT_REMOTE_URL"] = (tmp_path / "shared").as_uri()
    assert hosts.push() == "fx.alpha  pushed\nfx.beta  pushed\n"
    assert hosts.push("fx.alpha") == "fx.alpha  present\n"

    pulled = hosts.second.load()

    assert (pulled.value, pulled.error, pulled.cargo, pulled.warnings) == (ALPHA, None, (), ())
    assert "pulled fx.alpha from" in pulled.stderr
    (manifest,) = hosts.second.cache.glob("artifacts/fx.alpha/*/*/*/manifest.json")
    assert json.loads(manifest.read_bytes())["pulled"] == (
        URL if kind == "object store" else (tmp_path / "shared").as_uri()
    )

    hosts.server.requests.clear()
    again = hosts.second.load()
    assert (again.value, again.cargo, hosts.server.requests) == (ALPHA, (), [])
    assert not REMOTE_ONLY & set(again.imported)


def test_of_many_waiting_processes_one_pulls(hosts: Hosts) -> None:
    """
    If eight processes start together without a cached module, one asks the remote, and all get the entry.
    """
    hosts.push("fx.alpha")
    hosts.server.requests.clear()

    processes = [hosts.second.start() for _ in range(8)]
    answers = [hosts.second.finish(process) for process in processes]

    assert [answer.get("value") for answer in answers] == [ALPHA] * 8
    assert [method for method, _ in hosts.server.requests] == ["LIST", "GET", "GET"]
    assert hosts.second.cargo_calls() == []


@pytest.mark.parametrize("harm", ["altered library", "another key", "unsigned"])
def test_an_untrusted_entry_is_built_instead(hosts: Hosts, tmp_path: Path, harm: str) -> None:
    """
    An entry that is altered, unsigned or signed by an unknown key is refused with one warning and never loaded.
    """
    hosts.push("fx.alpha")
    if harm == "altered library":
        hosts.alter()
    elif harm == "another key":
        hosts.second.environment["RUST_EXT_REMOTE_KEYS"] = _signature.new_private_key(
            str(tmp_path / "other.pem")
        ).public_key
    else:
        (key,) = (key for key in hosts.server.objects if key.endswith(".json"))
        hosts.server.objects[key] = json.dumps({**json.loads(hosts.server.objects[key]), "signature": ""}).encode()

    loaded = hosts.second.load()

    assert (loaded.value, loaded.compiled) == (ALPHA, ["alpha"])
    (warning,) = loaded.warnings
    assert warning.startswith(f"fx.alpha: refused entries of {URL}: artifacts/fx.alpha/")
    assert list((hosts.second.cache / "staging").iterdir()) == []
    expected = {
        "altered library": "it is not the signed library",
        "another key": "which is not a trusted public key",
        "unsigned": "it is not signed",
    }
    assert expected[harm] in warning


LOAD_BOTH = """
    try:
        rust_ext_loader.load_rust_extension("fx.beta", workspace=request["arguments"]["workspace"])
    except ImportError as error:
        answer["beta"] = str(error)
"""


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        pytest.param(
            {"fault": "hangs"}, "no answer within 1 s (limit: RUST_EXT_REMOTE_TIMEOUT=1)", id="the store hangs"
        ),
        pytest.param({"fault": "403"}, "403", id="the store forbids"),
        pytest.param(
            {"RUST_EXT_REMOTE_KEYS": "secret"},
            "RUST_EXT_REMOTE_KEYS='secret' is invalid",
            id="a malformed key",
        ),
        pytest.param({"missing": "obstore"}, "install `rust-ext-loader[remote]`", id="the extra is not installed"),
    ],
)
def test_a_failing_remote_causes_one_warning(hosts: Hosts, trouble: dict[str, str], message: str) -> None:
    """
    After any failure of the remote both modules are built, and the process asks and warns only once.
    """
    hosts.push()
    hosts.server.requests.clear()
    prelude = LOAD_BOTH
    if "fault" in trouble:
        hosts.server.faults["artifacts"] = trouble["fault"]
        hosts.second.environment["RUST_EXT_REMOTE_TIMEOUT"] = "1"
    elif "missing" in trouble:
        prelude = f'    sys.modules["{trouble["missing"]}"] = None\n{prelude}'
    else:
        hosts.second.environment.update(trouble)

    loaded = hosts.second.load(prelude=prelude)

    assert (loaded.value, sorted(loaded.compiled)) == (ALPHA, ["alpha", "beta"])
    (warning,) = loaded.warnings
    assert warning.startswith("this process ignores the remote cache from now on: ")
    assert message in warning
    assert warning.endswith("; fix that, or switch the remote off with RUST_EXT_REMOTE_URL= (empty)")
    assert ("RUST_EXT_REMOTE_TIMEOUT" in warning) == (trouble.get("fault") == "hangs")
    assert {key for _, key in hosts.server.requests if "fx.alpha" in key} == set()


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        pytest.param({}, {"mode": "never"}, id="never"),
        pytest.param({}, {"mode": "force"}, id="force"),
        pytest.param({"RUST_EXT_REMOTE_URL": ""}, {}, id="switched off"),
        pytest.param({"RUST_EXT_OFFLINE": "1"}, {}, id="offline"),
        pytest.param({"PATH": ABSENT}, {}, id="no toolchain"),
    ],
)
def test_when_the_remote_is_not_asked(hosts: Hosts, variables: dict[str, str], arguments: dict[str, str]) -> None:
    """
    The remote is not asked if nothing may be built or if a build is forced.

    Then the modules that only a remote needs are not imported either.
    """
    hosts.push()
    hosts.server.requests.clear()

    loaded = hosts.second.load(variables=variables, **arguments)

    assert hosts.server.requests == []
    assert not REMOTE_ONLY & set(loaded.imported)
    assert loaded.warnings == ()
    expected = {"never": "not-found", "force": None}.get(
        arguments.get("mode", ""), "toolchain-missing" if "PATH" in variables else None
    )
    assert loaded.reason == expected


def test_a_pulled_library_that_does_not_load_is_built(hosts: Hosts) -> None:
    """
    An entry with a valid signature whose library does not load is quarantined, built here, and not pulled again.
    """
    (library,) = (hosts.first.cache / "artifacts" / "fx.alpha").rglob("*.so")
    library.write_bytes(b"no library")
    path = library.parent / "manifest.json"
    manifest = {**json.loads(path.read_bytes()), "size": 10, "sha256": hashlib.sha256(b"no library").hexdigest()}
    path.write_text(json.dumps(manifest), encoding="utf-8")
    hosts.push("fx.alpha")
    hosts.server.requests.clear()

    loaded = hosts.second.load()

    assert (loaded.value, loaded.compiled) == (ALPHA, ["alpha"])
    assert [method for method, _ in hosts.server.requests] == ["LIST", "GET", "GET"]
    assert hosts.second.load().value == ALPHA


def test_a_host_bound_entry_is_not_pushed(hosts: Hosts) -> None:
    """
    An entry whose build depends on the value of a secret variable is not pushed. It is reported, and push succeeds.
    """
    for checkout in (hosts.first, hosts.second):
        checkout.replace(
            "alpha/Cargo.toml", 'python-module = "fx.alpha"', 'python-module = "fx.alpha"\nenv = ["MY_TOKEN"]'
        )
        checkout.environment["MY_TOKEN"] = "secret"
    assert hosts.first.load().value == ALPHA

    result = rust_ext(hosts.first, "push", "fx.alpha", "fx.beta", raw=True)

    assert result.code == 0, result.err
    alpha, beta = result.out.splitlines()
    assert alpha.startswith("fx.alpha  host-bound: not shared, because its build depends on ")
    assert "MY_TOKEN" in alpha
    assert beta == "fx.beta  pushed"
    assert not any("fx.alpha" in key for key in hosts.server.objects)


def test_seen_inputs_decide_on_other_hosts(hosts: Hosts) -> None:
    """
    Seen inputs are stored with the entry. On a host where they differ the entry is a miss, without a warning.

    That host's build becomes a second entry.
    """
    library = "alpha/src/lib.rs"
    for number, checkout in enumerate((hosts.first, hosts.second)):
        checkout.replace(
            "alpha/Cargo.toml", 'python-module = "fx.alpha"', 'python-module = "fx.alpha"\nexclude = ["src/note.txt"]'
        )
        checkout.write(library, (checkout.root / library).read_text() + '\nconst _: &str = include_str!("note.txt");\n')
        checkout.write("alpha/src/note.txt", f"note {number}\n")
    assert hosts.first.load().value == ALPHA
    assert hosts.push("fx.alpha") == "fx.alpha  pushed\n"

    elsewhere = hosts.second.load()
    assert (elsewhere.value, elsewhere.compiled, elsewhere.warnings) == (ALPHA, ["alpha"], ())

    shutil.rmtree(hosts.second.cache)
    hosts.second.write("alpha/src/note.txt", "note 0\n")
    same = hosts.second.load()
    assert (same.value, same.cargo, same.warnings) == (ALPHA, (), ())


def test_commands_pull_without_building(hosts: Hosts) -> None:
    """
    `pull` reports each module as pulled, present or absent, and never compiles. An absent module is a failure.
    """
    hosts.push("fx.alpha")

    first = rust_ext(hosts.second, "pull")
    assert first.code == 1
    assert first.out == "fx.alpha  pulled  [cache]/artifacts/fx.alpha/[...]/alpha.[suffix]\nfx.beta  absent\n"
    assert rust_ext(hosts.second, "pull", "fx.alpha").out.startswith("fx.alpha  present  ")

    hosts.push("fx.beta")
    result = rust_ext(hosts.second, "pull", "--json", raw=True)
    assert result.code == 0
    assert {name: row["outcome"] for name, row in json.loads(result.out)["modules"].items()} == {
        "fx.alpha": "present",
        "fx.beta": "pulled",
    }
    assert hosts.second.cargo_calls() == []
    assert hosts.second.load().value == ALPHA


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        pytest.param("no key", "RUST_EXT_SIGNING_KEY is empty or not set", id="no key is named"),
        pytest.param("open key", "mode 0644", id="others can read the key"),
        pytest.param("untrusted", "public half is trusted", id="the key is not trusted"),
        pytest.param("not built", "it is not built, so there is nothing to push", id="nothing is built"),
        pytest.param("forbidden", "lacked the necessary privileges", id="the store forbids"),
        pytest.param("no remote", "none is configured", id="there is no remote"),
    ],
)
def test_a_failed_push_is_one_error(hosts: Hosts, tmp_path: Path, trouble: str, message: str) -> None:
    """
    A push that fails exits with code 1 and one message, and stores no entry.
    """
    key = hosts.first.environment["RUST_EXT_SIGNING_KEY"]
    if trouble == "no key":
        del hosts.first.environment["RUST_EXT_SIGNING_KEY"]
    elif trouble == "open key":
        os.chmod(key, 0o644)
    elif trouble == "untrusted":
        _signature.new_private_key(str(tmp_path / "other.pem"))
        hosts.first.environment["RUST_EXT_SIGNING_KEY"] = str(tmp_path / "other.pem")
    elif trouble == "not built":
        shutil.rmtree(hosts.first.cache)
    elif trouble == "forbidden":
        hosts.server.faults["libraries"] = "403"
    else:
        hosts.first.environment["RUST_EXT_REMOTE_URL"] = ""

    outcome = rust_ext(hosts.first, "push", "fx.alpha", raw=True)

    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert "ignores the remote cache" not in outcome.err
    assert not any(key.endswith(".json") for key in hosts.server.objects)


@pytest.mark.parametrize("command", ["pull", "push"])
def test_an_error_common_to_all_modules_is_printed_once(hosts: Hosts, command: str) -> None:
    """
    Both modules fail because no remote is configured. The error is printed once.
    """
    hosts.first.environment["RUST_EXT_REMOTE_URL"] = ""

    result = rust_ext(hosts.first, command, raw=True)
    rows = json.loads(rust_ext(hosts.first, command, "--json", raw=True).out)["modules"]

    assert result.err == (
        "error: remote cache: none is configured; set `[tool.rust-ext-loader.remote] url` in pyproject.toml or "
        "RUST_EXT_REMOTE_URL\n"
    )
    assert (result.code, result.out) == (1, "")
    assert {name: row["outcome"] for name, row in rows.items()} == {"fx.alpha": "failed", "fx.beta": "failed"}


def test_push_makes_a_key_pair(hosts: Hosts, tmp_path: Path) -> None:
    """
    The public key goes to standard output, ready for `public-keys`. The private key goes into the named file.
    """
    result = rust_ext(hosts.first, "push", "--new-key", str(tmp_path / "new.pem"), raw=True)

    assert (result.code, result.err) == (0, "")
    assert result.out.strip() == _signature.read_private_key(str(tmp_path / "new.pem")).public_key
