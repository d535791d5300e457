"""
Decide within a millisecond whether the last decision is still valid.

A record belongs to one module, workspace, interpreter, mode and environment. It
holds the library that the last full decision chose, and the stat of every file
and folder that the decision read. If none changed, that library is loaded.
Otherwise the full decision is made again, by content.

Invariant: a record only saves time; deleting it never changes a decision. No
record is written while a timestamp is so young that a later edit in the same clock
tick would not change it. One kind of edit is not detected: an edit in place, of the same
length, after the clock was set back to the tick of the previous edit. This module
imports only modules that a fresh interpreter has already loaded, and modules of
this package that do the same.
"""

import _imp
import marshal
import os
import sys
import time

from . import _stat, _trust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from typing import Any, TypeAlias

    #: What a record belongs to: plain values that `marshal` accepts.
    Identity: TypeAlias = tuple[Any, ...]

#: Raise it when the fields below change their meaning.
FORMAT = 4

#: Index of the field that names the library.
_LIBRARY = 7

#: Prefixes of variables that can change the build or the compiler. An unneeded prefix only causes more records.
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
#: Full names of such variables.
_RELEVANT_NAMES = frozenset({"CI", "HOME", "USERPROFILE"})
#: Prefixes of variables that cargo sets per package, or that configure registries. Some are secret; no build reads
#: them.
_IRRELEVANT = ("CARGO_REGISTR", "CARGO_PKG_", "CARGO_MANIFEST_")
#: Per-target forms such as `x86_64_unknown_linux_gnu_CC` or `CFLAGS_x86_64-unknown-linux-gnu`.
_RELEVANT_ENDS = ("_AR", "_ARFLAGS", "_CC", "_CFLAGS", "_CPPFLAGS", "_CXX", "_CXXFLAGS", "_LDFLAGS", "_RANLIB")

#: A named pipe in the place of a record must not block the import.
_OPEN = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_CLOEXEC"):
    _OPEN |= getattr(os, _flag, 0)

_INTERPRETER = (sys.version, sys.implementation.cache_tag, sys.platform, sys.maxsize, getattr(sys, "abiflags", ""))


def _host() -> "tuple[str, str]":
    """
    Machine and C library: hosts that share a home folder may need different libraries.
    """
    machine = os.uname().machine if hasattr(os, "uname") else ""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else None
    except (ValueError, OSError):
        libc = None
    return machine, libc or ""


def relevant(environment: "Mapping[str, str]") -> "tuple[tuple[str, str], ...]":
    """
    The variables that a record depends on.
    """
    return tuple(sorted((name, environment[name]) for name in environment if _is_relevant(name)))


def _is_relevant(name: str) -> bool:
    if name.startswith(_RELEVANT):
        return not name.startswith(_IRRELEVANT)
    return name in _RELEVANT_NAMES or name.endswith(_RELEVANT_ENDS)


def sealed(value: object) -> str:
    """
    A 128-bit digest of a value that may be secret; only for comparing.
    """
    # Not hashlib: it would load OpenSSL, which costs more than the rest of a warm import.
    data = ascii(value).encode("ascii")
    return (_imp.source_hash(FORMAT, data) + _imp.source_hash(~FORMAT, data)).hex()


def path_of(root: str, identity: "Identity") -> str:
    """
    The file of a record. Names may collide, so the stored identity is compared.
    """
    # Not a digest of marshal's bytes, which depend on reference counts.
    return os.path.join(root, "records", sealed(identity))


def identify(
    module: str, workspace: str, mode: str, environment: "Mapping[str, str]", path: "Iterable[str] | None"
) -> "Identity":
    """
    What a record belongs to; `path` is the `__path__` of the module's parent, if it has one.

    The workspace is named by its real path, because a link may lead to another checkout later.
    """
    place = (os.path.realpath(workspace), folders_of(path))
    return (module, place, mode, _INTERPRETER, _host(), sealed(relevant(environment)))


def folders_of(path: "Iterable[str] | None") -> "tuple[str, ...]":
    """
    The folders in which `import` looks for a module: the parent's path, or `sys.path` without a parent.
    """
    return tuple(os.path.abspath(folder) for folder in (sys.path if path is None else path))


def read(root: str, identity: "Identity", environment: "Mapping[str, str]") -> "str | None":
    """
    The library to load, or `None` if anything may have changed.
    """
    try:
        if _trust.status_problem(os.lstat(root)):
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


def _stamps(signatures: "Iterable[_stat.Signature | None]") -> bytes:
    """
    Signatures as bytes: comparing bytes is faster than unpacking hundreds of tuples.
    """
    # Version 2 of the format has no back references, so equal values give equal bytes.
    return marshal.dumps([*signatures], 2)


def _load(path: str, *, stamp: bool = True) -> "tuple[Any, ...] | None":
    descriptor = os.open(path, _OPEN)
    try:
        status = os.fstat(descriptor)
        # The record names code to run, so it needs the same owner and permissions as the code.
        if _trust.status_problem(status):
            return None
        data = os.read(descriptor, status.st_size)
        if stamp and time.time() - status.st_mtime > _stat.USE_STAMP_SECONDS:
            _stamp(path)
    finally:
        os.close(descriptor)
    # `marshal` trusts its input, so a truncated or altered record must not reach it.
    if data[:8] != _imp.source_hash(FORMAT, data[8:]):
        return None
    fields = marshal.loads(data[8:])  # noqa: S302 - trusted by owner and mode, complete by its checksum
    return fields if isinstance(fields, tuple) and len(fields) == 9 else None


def _stamp(path: str) -> None:
    try:
        os.utime(path)
    except OSError:
        # Garbage collection never runs on a root that cannot be written, so the timestamp is not needed.
        return


def uses(root: str) -> "dict[str, float]":
    """
    When a record of this root last named each library: seconds since the epoch, accurate to a day.
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


def find(roots: "Iterable[str]", identity: "Identity", environment: "Mapping[str, str]") -> "str | None":
    """
    The library of the first record that is still valid.
    """
    for root in roots:
        library = read(root, identity, environment)
        if library is not None:
            return library
    return None


def compose(  # noqa: PLR0913 - the fields of a record, by name
    identity: "Identity",
    *,
    declared: "Iterable[tuple[str, str | None]]",
    present: "Mapping[str, _stat.Signature]",
    absent: "Iterable[str]",
    library: str,
    started_ns: int,
    boot: "str | None",
    renamed: "Container[str]" = (),
    search_path: "tuple[str, ...] | None" = None,
) -> "bytes | None":
    """
    The bytes of a record; `None` while a timestamp is not settled, or if the boot id is unknown.

    `search_path` is `sys.path` if installed distributions were read. `boot` is the boot id if CPU features were read.
    `started_ns` is the wall clock before the first file of `present` was read (`started_at`). Files in `renamed` are
    only replaced by a rename and never written in place, so their timestamps need not be settled.
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
    The id of the running kernel's boot; CPU features may differ after the next one. Empty if unknown.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
