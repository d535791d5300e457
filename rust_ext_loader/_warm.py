"""
The warm path: load the library of the last decision if nothing has changed since.

A *record* belongs to one module, workspace, interpreter, mode and environment. It
holds the library that the last full decision chose, and the stat of every file
and folder that the decision read. If none changed, that library is loaded.
Otherwise `_hook` makes the full decision again, by content.

Invariant: a record only saves time; deleting it never changes a decision. One
kind of edit is not detected: an edit in place, of the same length, after the clock
was set back to the tick of the previous edit.

All of a warm import is in this module, because each further module would cost as
much as fifty checked files. It imports only modules that a fresh interpreter has already
loaded. `_hook` is imported only when no record is valid.
"""

import _imp
import marshal
import os
import sys
import time

# `importlib.machinery` would import `importlib` and `warnings`, which cost more than this module.
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType
    from typing import Any, TypeAlias

    from ._request import Request

    #: What a record belongs to: plain values that `marshal` accepts.
    Identity: TypeAlias = tuple[Any, ...]
    #: Size, mtime in ns, inode, ctime in ns.
    Signature: TypeAlias = tuple[int, int, int, int]

#: Raise it when the fields of a record change their meaning.
FORMAT = 5

#: `auto`, `never` or `force`: whether an import builds.
BUILD_MODE = "SGLANG_RUST_BUILD_MODE"
MODES = ("auto", "never", "force")
#: Root folder of the cache.
CACHE_DIR = "RUST_EXT_CACHE_DIR"
#: Parent folder of the host project's caches; this cache is its subfolder `rust_extensions`.
HOST_CACHE_DIR = "SGLANG_CACHE_DIR"
#: `1`: the cache is shared by a group. Files that its members wrote are trusted, and new files are made for the group.
#: Read from the process's own environment only.
SHARED = "RUST_EXT_SHARED"

#: Seconds between two updates of the timestamp that says when a library was last used.
USE_STAMP_SECONDS = 86400.0

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
_RELEVANT_NAMES = ("CI", "HOME", "USERPROFILE")
#: Prefixes of variables that cargo sets per package, or that configure registries. Some are secret; no build reads
#: them.
_IRRELEVANT = ("CARGO_REGISTR", "CARGO_PKG_", "CARGO_MANIFEST_")
#: Per-target forms such as `x86_64_unknown_linux_gnu_CC` or `CFLAGS_x86_64-unknown-linux-gnu`.
_RELEVANT_ENDS = ("_AR", "_ARFLAGS", "_CC", "_CFLAGS", "_CPPFLAGS", "_CXX", "_CXXFLAGS", "_LDFLAGS", "_RANLIB")

#: A named pipe in the place of a record must not block the import.
_OPEN = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_CLOEXEC"):
    _OPEN |= getattr(os, _flag, 0)

#: Opens a folder without permission to read it, only to resolve names in it; 0 where the system cannot.
FOLDER_FLAGS: int = getattr(os, "O_PATH", 0) and os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

_INTERPRETER = (sys.version, sys.implementation.cache_tag, sys.platform, sys.maxsize, getattr(sys, "abiflags", ""))


# The answer to the import system.


def find_spec(name: str, workspace: str, path: "Sequence[str] | None" = None) -> "ModuleSpec | None":
    """
    The spec of a declared extension, or `None` when the name is not one.

    Raises `ManifestError` if no crate declares the name, no other finder provides it, and a manifest is broken.
    """
    library = recorded(name, workspace, build_mode(None, os.environ), None, path)
    if library is not None:
        return spec_of(name, library, lambda: _hook().request(name, workspace))
    spec: ModuleSpec | None = _hook().find_unrecorded(name, workspace, path)
    return spec


def recorded(
    module: str, workspace: str, mode: str, cache_dir: "str | None", path: "Sequence[str] | None"
) -> "str | None":
    """
    The library of the last decision, if nothing has changed since; `path` is the parent's `__path__`.
    """
    if mode == "force":
        return None
    return find(write_roots(cache_dir, os.environ), identify(module, workspace, mode, os.environ, path), os.environ)


def spec_of(name: str, library: "str | None", request: "Callable[[], Request]") -> ModuleSpec:
    """
    The spec of an extension. If *library* is `None`, the library is located when the module is created.
    """

    def locate() -> str:
        located: str = _hook().locate(request())
        return located

    def repair(broken: str, error: ImportError) -> str:
        repaired: str = _hook().repair(request(), broken, error)
        return repaired

    return ModuleSpec(name, RustExtensionLoader(name, library, locate, repair), origin=library)


class RustExtensionLoader(ExtensionFileLoader):
    """
    Loads one extension module. If its library is unknown, it is located when the module is created.
    """

    def __init__(
        self,
        module: str,
        library: "str | None",
        locate: "Callable[[], str]",
        repair: "Callable[[str, ImportError], str]",
    ) -> None:
        super().__init__(module, library or "")
        self._library = library
        self._locate = locate
        self._repair = repair

    def create_module(self, spec: ModuleSpec) -> "ModuleType":
        """
        Locate the library, which may build it, and open it.

        If the dynamic linker refuses the library, `repair` is called once. An error that the module's own
        initialisation raises is not changed.
        """
        library = self._library or self._locate()
        try:
            return self._open(spec, library)
        except ImportError as error:
            if error.path != library:
                raise
            return self._open(spec, self._repair(library, error))

    def _open(self, spec: ModuleSpec, library: str) -> "ModuleType":
        self.path = spec.origin = library
        spec.has_location = True
        return super().create_module(spec)


def _hook() -> "ModuleType":
    # The only import of a higher layer: what to do without a valid record.
    from . import _hook

    return _hook


# The settings of a warm import.


def build_mode(argument: "str | None", environment: "Mapping[str, str]") -> str:
    """
    The mode: the argument, else the environment, else `auto`.

    Raises `SettingError` (a `ValueError`) if it is not one of `MODES`.
    """
    mode = argument if argument is not None else environment.get(BUILD_MODE) or "auto"
    if mode not in MODES:
        from ._errors import SettingError

        raise SettingError(BUILD_MODE if argument is None else "mode", mode, "one of " + ", ".join(MODES))
    return mode


def write_roots(argument: "str | None", environment: "Mapping[str, str]") -> "list[str]":
    """
    Roots to write to, preferred first. The caller skips a root that cannot be used.
    """
    return list(dict.fromkeys([cache_root(argument, environment), temporary_root()]))


def cache_root(argument: "str | None", environment: "Mapping[str, str]") -> str:
    """
    Absolute path of the preferred root to write to.

    `platformdirs` is not used: importing that package would cost more than the warm import itself.
    """
    if argument:
        return os.path.abspath(argument)
    if chosen := environment.get(CACHE_DIR):
        return os.path.abspath(chosen)
    if host := environment.get(HOST_CACHE_DIR):
        return os.path.join(os.path.abspath(host), "rust_extensions")
    if user := _user_cache_folder(environment):
        return os.path.join(user, "rust_ext_loader")
    return temporary_root()


def _user_cache_folder(environment: "Mapping[str, str]") -> str:
    if sys.platform == "win32":
        return environment.get("LOCALAPPDATA", "")
    xdg = environment.get("XDG_CACHE_HOME", "")
    if sys.platform != "darwin" and os.path.isabs(xdg):
        return xdg
    home = environment.get("HOME", "")
    # The password database is not used without HOME: in a container it often lacks the uid.
    if not os.path.isabs(home) or not os.path.isdir(home):
        return ""
    return os.path.join(home, "Library/Caches" if sys.platform == "darwin" else ".cache")


def temporary_root() -> str:
    """
    The fallback: a folder per user in the system's temporary folder.
    """
    folder = os.environ.get("TMPDIR") or os.environ.get("TEMP") or "/tmp"  # noqa: S108 - the folder in it is checked by owner and mode
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return os.path.join(os.path.abspath(folder), f"rust_ext_loader-{user}")


# The identity of a record.


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
    names = [
        name
        for name in environment
        if (
            not name.startswith(_IRRELEVANT)
            if name.startswith(_RELEVANT)
            else name in _RELEVANT_NAMES or name.endswith(_RELEVANT_ENDS)
        )
    ]
    return tuple([(name, environment[name]) for name in sorted(names)])


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


# Reading a record.


def find(roots: "Iterable[str]", identity: "Identity", environment: "Mapping[str, str]") -> "str | None":
    """
    The library of the first record that is still valid.
    """
    for root in roots:
        library = read(root, identity, environment)
        if library is not None:
            return library
    return None


def read(root: str, identity: "Identity", environment: "Mapping[str, str]") -> "str | None":
    """
    The library to load, or `None` if anything may have changed.
    """
    try:
        if status_problem(os.lstat(root)):
            return None
        fields = load(path_of(root, identity))
        if fields is None:
            return None
        version, stored, declared, search_path, present, absent, library, boot = fields
        if version != FORMAT or stored != identity:
            return None
        if any(sealed(environment.get(name)) != value for name, value in declared):
            return None
        if search_path is not None and search_path != tuple(sys.path):
            return None
        if boot is not None and boot != boot_id():
            return None
        if any(_packed_signatures(folder, names) != expected for folder, names, expected in present):
            return None
        if any(map(os.path.lexists, absent)):
            return None
    except (OSError, ValueError, TypeError, EOFError):
        return None
    return library if isinstance(library, str) else None


def load(path: str, *, stamp: bool = True) -> "tuple[Any, ...] | None":
    """
    The fields of a record; `None` if it is not trusted or damaged. With *stamp* its last use is noted.
    """
    descriptor = os.open(path, _OPEN)
    try:
        status = os.fstat(descriptor)
        # The record names code to run, so it needs the same owner and permissions as the code.
        if status_problem(status):
            return None
        data = os.read(descriptor, status.st_size)
        if stamp and time.time() - status.st_mtime > USE_STAMP_SECONDS:
            _note_use(path)
    finally:
        os.close(descriptor)
    # `marshal` trusts its input, so a truncated or altered record must not reach it.
    if data[:8] != _imp.source_hash(FORMAT, data[8:]):
        return None
    fields = marshal.loads(data[8:])  # noqa: S302 - trusted by owner and mode, complete by its checksum
    return fields if isinstance(fields, tuple) and len(fields) == 8 else None


def _note_use(path: str) -> None:
    try:
        os.utime(path)
    except OSError:
        # Garbage collection never runs on a root that cannot be written, so the timestamp is not needed.
        return


def _packed_signatures(folder: str, names: "tuple[str, ...]") -> bytes:
    """
    The packed signatures of files in one folder; if *folder* is empty, *names* are paths.
    """
    if not folder:
        return packed(signatures(names))
    # Relative to an open folder, the kernel resolves one component of each path instead of all.
    descriptor = os.open(folder, FOLDER_FLAGS)
    try:
        return packed(signatures(names, descriptor))
    finally:
        os.close(descriptor)


def packed(found: "list[Signature]") -> bytes:
    """
    Signatures as bytes: comparing bytes is faster than unpacking hundreds of tuples.
    """
    # Version 2 of the format has no back references, so equal values give equal bytes.
    return marshal.dumps(found, 2)


def signatures(paths: "Iterable[str]", folder: "int | None" = None) -> "list[Signature]":
    """
    The signatures of files and folders; *folder* is an open folder to which the paths are relative.

    ctime is compared as well as mtime, because tools can set mtime, but not ctime. Raises `OSError` if a path cannot be
    read.
    """
    stat = os.stat  # a lookup per file would be a twentieth of the cost
    return [
        (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)
        for status in [stat(path, dir_fd=folder) for path in paths]
    ]


def boot_id() -> str:
    """
    The id of the running kernel's boot; CPU features may differ after the next one. Empty if unknown.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


# Trust.


def is_shared() -> bool:
    """
    Whether this process trusts the caches of its group: `RUST_EXT_SHARED`, read from its own environment only.
    """
    return os.environ.get(SHARED, "") not in ("", "0", "false", "no")


def status_problem(status: "os.stat_result") -> "str | None":
    """
    Why a file with this status may not be run as code; `None` if it may.

    The file must belong to this user or to root, and no other user may write it. With `RUST_EXT_SHARED` it may also
    belong to one of this process's groups, and that group may write it. A symbolic link has mode 0777, so it is never
    trusted.
    """
    if not hasattr(os, "geteuid"):
        return None
    if is_shared() and not status.st_mode & 0o002 and status.st_gid in (os.getegid(), *os.getgroups()):
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {status.st_uid}"
    return f"is writable by others (mode {status.st_mode & 0o7777:04o})" if status.st_mode & 0o022 else None
