"""
Decide in a millisecond whether what was right last time is still right.

A record holds, for one module, workspace, interpreter, mode and environment,
the stat of everything that the last full decision looked at and the library
that it chose. If all of it stands as it stood, that library is loaded. Anything
else is "in doubt", and the full decision is made by content.

Invariant: a record is only a shortcut; deleting it never changes a verdict. It
is not written while any time stamp is too young to be told from a later edit in
the same clock tick. One thing no stat can tell: an edit of the same length, in
place, after the clock was set back to the very tick of the edit before. This
module imports nothing that a plain interpreter has not loaded already: it *is*
the warm path.
"""

from __future__ import annotations

import _imp
import marshal
import os
import sys
import time

from .files import _stat, _trust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from typing import Any, TypeAlias

    #: What one record is about: plain values, as `marshal` takes them.
    Identity: TypeAlias = tuple[Any, ...]

#: Raise it whenever the fields below change meaning.
FORMAT = 4

#: Which field of a record names the library.
_LIBRARY = 7

#: Variables that can change what is built or which compiler is found. Too many only make more records.
_RELEVANT = (
    "AR",
    "CARGO",
    "CC",
    "CFLAGS",
    "CPPFLAGS",
    "CRATE_CC",
    "CXX",
    "HOST_",
    "LDFLAGS",
    "MACOSX_DEPLOYMENT_TARGET",
    "PATH",
    "PKG_CONFIG",
    "PROTOC",
    "PYO3_",
    "RANLIB",
    "RUST",
    "SDKROOT",
    "SGLANG_RUST_",
    "TARGET_",
)
#: The same, by their whole names.
_RELEVANT_NAMES = frozenset({"CI", "HOME", "USERPROFILE"})
#: Set anew for every job or package, some of them secret, and read by nothing that we build.
_IRRELEVANT = ("CARGO_REGISTR", "CARGO_PKG_", "CARGO_MANIFEST_")
#: Per-target forms such as `x86_64_unknown_linux_gnu_CC` or `CFLAGS_x86_64-unknown-linux-gnu`.
_RELEVANT_ENDS = ("_AR", "_ARFLAGS", "_CC", "_CFLAGS", "_CPPFLAGS", "_CXX", "_CXXFLAGS", "_LDFLAGS", "_RANLIB")

#: A pipe planted in a record's place must not hold the import.
_OPEN = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_CLOEXEC"):
    _OPEN |= getattr(os, _flag, 0)

_INTERPRETER = (sys.version, sys.implementation.cache_tag, sys.platform, sys.maxsize, getattr(sys, "abiflags", ""))


def _host() -> tuple[str, str]:
    """
    Machine and C library: a home folder may be shared by hosts that cannot load the same library.
    """
    machine = os.uname().machine if hasattr(os, "uname") else ""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else None
    except (ValueError, OSError):
        libc = None
    return machine, libc or ""


def relevant(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """
    The part of an environment that a record is made for.
    """
    return tuple(sorted((name, environment[name]) for name in environment if _is_relevant(name)))


def _is_relevant(name: str) -> bool:
    if name.startswith(_RELEVANT):
        return not name.startswith(_IRRELEVANT)
    return name in _RELEVANT_NAMES or name.endswith(_RELEVANT_ENDS)


def sealed(value: object) -> str:
    """
    A digest that stands for a value which may be secret; 128 bits, for comparing alone.
    """
    # The interpreter's own hash: hashlib would load OpenSSL, which costs more than all the rest of a warm import.
    data = ascii(value).encode("ascii")
    return (_imp.source_hash(FORMAT, data) + _imp.source_hash(~FORMAT, data)).hex()


def path_of(root: str, identity: Identity) -> str:
    """
    File of a record. The name may collide: the identity is stored and compared.
    """
    # Not of marshal's bytes, which depend on reference counts.
    return os.path.join(root, "records", sealed(identity))


def identify(
    module: str, workspace: str, mode: str, environment: Mapping[str, str], path: Iterable[str] | None
) -> Identity:
    """
    What one record is about; `path` is the `__path__` of the module's parent, if it has one.

    The workspace counts by its real path, since one name may lead to another checkout tomorrow.
    """
    place = (os.path.realpath(workspace), folders_of(path))
    return (module, place, mode, _INTERPRETER, _host(), sealed(relevant(environment)))


def folders_of(path: Iterable[str] | None) -> tuple[str, ...]:
    """
    Where `import` looks for a module: in its parent's path, without a parent in `sys.path`.
    """
    return tuple(os.path.abspath(folder) for folder in (sys.path if path is None else path))


def read(root: str, identity: Identity, environment: Mapping[str, str]) -> str | None:
    """
    The library to load, or `None` when in doubt.
    """
    try:
        if _trust.distrusted(os.lstat(root)):
            return None
        fields = _load(path_of(root, identity))
        if fields is None:
            return None
        version, stored, declared, search_path, present, stamps, absent, library, boot = fields
        if version != FORMAT or stored != identity:
            return None
        if any(sealed(environment.get(name)) != value for name, value in declared):
            return None
        if search_path is not None and search_path != tuple(sys.path):
            return None
        if boot is not None and boot != boot_id():
            return None
        if _stamps(_stat.signature(path) for path in present) != stamps:
            return None
        if any(os.path.lexists(path) for path in absent):
            return None
    except (OSError, ValueError, TypeError, EOFError):
        return None
    return library if isinstance(library, str) else None


def _stamps(signatures: Iterable[_stat.Signature | None]) -> bytes:
    """
    _stat.Signatures as bytes, which are compared sooner than hundreds of tuples are unpacked.
    """
    # As of version 2, which refers to nothing that it wrote before: equal values are equal bytes.
    return marshal.dumps([*signatures], 2)


def _load(path: str, *, stamp: bool = True) -> tuple[Any, ...] | None:
    descriptor = os.open(path, _OPEN)
    try:
        status = os.fstat(descriptor)
        # The record names code to run: it must be ours, as the code must.
        if _trust.distrusted(status):
            return None
        data = os.read(descriptor, status.st_size)
        if stamp and time.time() - status.st_mtime > _stat.USE_STAMP_SECONDS:
            _stamp(path)
    finally:
        os.close(descriptor)
    # A torn or altered record must not reach `marshal`, which trusts its input.
    if data[:8] != _imp.source_hash(FORMAT, data[8:]):
        return None
    fields = marshal.loads(data[8:])  # noqa: S302 - ours by owner and mode, whole by its checksum
    return fields if isinstance(fields, tuple) and len(fields) == 9 else None


def _stamp(path: str) -> None:
    try:
        os.utime(path)
    except OSError:
        # A root that cannot be written is nobody's to collect.
        return


def uses(root: str) -> dict[str, float]:
    """
    When each library was last led to by a record of this root, in seconds since the epoch, to the day.
    """
    found: dict[str, float] = {}
    folder = os.path.join(root, "records")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        try:
            used = os.stat(path).st_mtime
            fields = _load(path, stamp=False)
        except (OSError, ValueError, TypeError, EOFError):
            continue
        if fields and isinstance(fields[_LIBRARY], str):
            found[fields[_LIBRARY]] = max(used, found.get(fields[_LIBRARY], 0.0))
    return found


def find(roots: Iterable[str], identity: Identity, environment: Mapping[str, str]) -> str | None:
    """
    The library to load by the first record that is in no doubt.
    """
    for root in roots:
        library = read(root, identity, environment)
        if library is not None:
            return library
    return None


def compose(  # noqa: PLR0913 - the fields of a record, by name
    identity: Identity,
    *,
    declared: Iterable[tuple[str, str | None]],
    present: Mapping[str, _stat.Signature],
    absent: Iterable[str],
    library: str,
    started_ns: int,
    boot: str | None,
    renamed: Container[str] = (),
    search_path: tuple[str, ...] | None = None,
) -> bytes | None:
    """
    The bytes of a record, or `None` while any stamp is unsettled, or when this boot has no name.

    `search_path` is `sys.path`, if installed distributions were looked at; `boot` the name of this boot, if the CPU was.

    `started_ns` is the wall clock before the first of `present` was looked at (`started_at`). What is `renamed` is only ever replaced by
    another file, never written to: its stamps need not settle.
    """
    if boot == "":
        return None
    if not all(_stat.is_settled(found, started_ns) for path, found in present.items() if path not in renamed):
        return None
    values = tuple((name, sealed(value)) for name, value in declared)
    paths = tuple(sorted(present))
    stamps = _stamps(present[path] for path in paths)
    fields: tuple[Any, ...] = (
        FORMAT,
        identity,
        values,
        search_path,
        paths,
        stamps,
        tuple(sorted(absent)),
        library,
        boot,
    )
    data = marshal.dumps(fields)
    return _imp.source_hash(FORMAT, data) + data


def boot_id() -> str:
    """
    Names the running kernel's boot, since CPU features may differ after the next one.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
