"""
The errors and warnings that this package raises.

`RustExtensionError` is the base class. It is an `ImportError`, so a fallback
written as `except ImportError` works. Each subclass holds its details as fields, a
stable `reason` for programs, and a text that says what happened, where, and what
to do next.

Invariant: every error survives pickling, because its `args` rebuild it. The
module imports nothing, so the import hook can raise an error at no further cost.
"""

from __future__ import annotations


class RustExtensionError(ImportError):
    """
    Base class of every error that this package raises.
    """

    #: Stable name of the failure, for programs.
    reason = "error"

    def __reduce__(self) -> tuple[type[RustExtensionError], tuple[object, ...]]:
        return type(self), self.args


class ManifestError(RustExtensionError):
    """
    A manifest cannot be read, or it declares something impossible.
    """

    reason = "manifest"

    def __init__(self, where: str, problem: str, line: int | None = None) -> None:
        super().__init__(where, problem, line)
        self.where = where
        self.problem = problem
        self.line = line

    def __str__(self) -> str:
        line = "" if self.line is None else f", line {self.line}"
        return f"{self.where}{line}: {self.problem}"


class LockfileMissing(RustExtensionError):
    """
    The workspace has no `Cargo.lock`, so the versions of its dependencies are not fixed.
    """

    reason = "lockfile-missing"

    def __init__(self, lockfile: str) -> None:
        super().__init__(lockfile)
        self.lockfile = lockfile

    def __str__(self) -> str:
        return f"{self.lockfile} does not exist; run `cargo generate-lockfile` beside it and commit the file"


class LockfileOutdated(RustExtensionError):
    """
    `Cargo.lock` lacks a package that the manifests require.
    """

    reason = "lockfile-outdated"

    def __init__(self, lockfile: str, package: str) -> None:
        super().__init__(lockfile, package)
        self.lockfile = lockfile
        self.package = package

    def __str__(self) -> str:
        return f"{self.lockfile} does not contain package `{self.package}`; run `cargo check` beside it to update it"


class DuplicateModule(RustExtensionError):
    """
    Several packages declare the same Python module.
    """

    reason = "duplicate-module"

    def __init__(self, module: str, manifests: tuple[str, ...]) -> None:
        super().__init__(module, manifests)
        self.module = module
        self.manifests = manifests

    def __str__(self) -> str:
        return f"{self.module} is declared by {' and by '.join(self.manifests)}; keep one `python-module` line"


class ExtensionNotFound(RustExtensionError, ModuleNotFoundError):
    """
    No extension of this name was found, or the mode does not allow building it.
    """

    reason = "not-found"

    def __init__(self, module: str, problem: str, advice: str = "") -> None:
        super().__init__(module, problem, advice)
        self.name = module
        self.module = module
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"no Rust extension {self.module}: {self.problem}{advice}"


class AlreadyImported(RustExtensionError):
    """
    A rebuild was forced for a module that this process has already imported.
    """

    reason = "already-imported"

    def __init__(self, module: str) -> None:
        super().__init__(module)
        self.module = module

    def __str__(self) -> str:
        return (
            f"{self.module} is already imported, and a native module cannot be replaced in place; start a new process"
        )


class ToolchainMissing(RustExtensionError):
    """
    A build is needed and no usable Rust toolchain was found.

    `problem` is one of `missing`, `no-home`, `no-default`, `not-installed`, `too-old`, `no-answer`, `broken`.
    """

    reason = "toolchain-missing"

    def __init__(self, tool: str, problem: str, detail: str, needed_for: str = "", why: str = "") -> None:
        super().__init__(tool, problem, detail, needed_for, why)
        self.tool = tool
        self.problem = problem
        self.detail = detail
        self.needed_for = needed_for
        #: Why the module must be built.
        self.why = why

    def because(self, why: str) -> ToolchainMissing:
        """
        The same error with the reason why a build is needed.
        """
        return ToolchainMissing(self.tool, self.problem, self.detail, self.needed_for, why)

    @property
    def complaint(self) -> str:
        """
        What is wrong with the toolchain and how to repair it.
        """
        remedy = {
            "missing": "install Rust (https://rustup.rs) or put it on PATH",
            "no-home": "set CARGO_HOME to a folder of your own",
            "no-default": "run `rustup default stable`",
            "not-installed": "install that toolchain (`rustup toolchain install NAME`), "
            "or remove the setting that selects it (RUSTUP_TOOLCHAIN, a rust-toolchain file, an override)",
            "too-old": "run `rustup update`, or remove the setting that selects the old toolchain "
            "(RUSTUP_TOOLCHAIN, a rust-toolchain file, an override)",
            "no-answer": f"run `{self.tool} -vV` to see why it hangs, "
            "or raise RUST_EXT_PROBE_TIMEOUT (seconds) if it is only slow",
        }.get(self.problem, f"run `{self.tool} -vV` to see its error")
        return f"`{self.tool}` is not usable: {self.detail}; {remedy}"

    def __str__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        need = f"{self.needed_for} must be built{why}, but " if self.needed_for else ""
        return f"{need}{self.complaint}, or use a prebuilt module with SGLANG_RUST_BUILD_MODE=never"


class BuildFailed(RustExtensionError):
    """
    Cargo or the compiler failed; `output` holds what they printed.
    """

    reason = "build-failed"

    def __init__(self, module: str, problem: str, command: tuple[str, ...], output: str, log: str | None) -> None:
        super().__init__(module, problem, command, output, log)
        self.module = module
        self.problem = problem
        self.command = command
        self.output = output
        self.log = log

    def __str__(self) -> str:
        parts = [f"{self.module} could not be built: {self.problem}"]
        if self.output.strip():
            parts.append(self.output.strip("\n"))
        parts.append(f"command: {' '.join(self.command)}")
        if self.log:
            parts.append(f"full log: {self.log}")
        return "\n".join(parts)


class InvalidArtifact(RustExtensionError):
    """
    The build made a library that is not the declared extension module.
    """

    reason = "invalid-artifact"

    def __init__(self, module: str, library: str, problem: str) -> None:
        super().__init__(module, library, problem)
        self.module = module
        self.library = library
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.module}: {self.library} {self.problem}"


class LibraryMissing(RustExtensionError):
    """
    The module was found, but a shared library that it needs was not.
    """

    reason = "library-missing"

    def __init__(self, module: str, library: str, missing: tuple[str, ...]) -> None:
        super().__init__(module, library, missing)
        self.module = module
        self.library = library
        self.missing = missing

    def __str__(self) -> str:
        what = "a library it needs is missing" if len(self.missing) == 1 else "libraries it needs are missing"
        return (
            f"{self.module} was found ({self.library}), but {what}: {', '.join(self.missing)}; install "
            f"{'it' if len(self.missing) == 1 else 'them'} in a folder that the dynamic linker searches"
        )


class SourcesMoved(RustExtensionError):
    """
    The sources kept changing while they were being built.
    """

    reason = "sources-moved"

    def __init__(self, module: str, moved: tuple[str, ...], attempts: int) -> None:
        super().__init__(module, moved, attempts)
        self.module = module
        self.moved = moved
        self.attempts = attempts

    def __str__(self) -> str:
        return (
            f"{self.module} was built {self.attempts} times and its sources changed during each build: "
            f"{', '.join(self.moved)}; stop the program that writes there, then import again"
        )


class LockTimeout(RustExtensionError):
    """
    Another process held the build lock for longer than the limit.
    """

    reason = "lock-timeout"

    def __init__(self, lock_file: str, holder: str, seconds: float) -> None:
        super().__init__(lock_file, holder, seconds)
        self.lock_file = lock_file
        self.holder = holder
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"{self.lock_file} is still held by {self.holder} after {self.seconds:g} s; "
            "raise RUST_EXT_LOCK_TIMEOUT (seconds) if that build is only slow"
        )


class StaleExtension(RustExtensionError):
    """
    Only a stale bundled module is available, and `SGLANG_RUST_STALE=error` forbids using it.
    """

    reason = "stale"

    def __init__(self, module: str, library: str, differs: tuple[str, ...]) -> None:
        super().__init__(module, library, differs)
        self.module = module
        self.library = library
        self.differs = differs

    def __str__(self) -> str:
        return (
            f"{self.module}: {self.library} is stale ({'; '.join(self.differs)}) and there is no toolchain "
            "to rebuild it; install Rust, or accept the stale library with SGLANG_RUST_STALE=warn"
        )


class CacheUnavailable(RustExtensionError):
    """
    No cache folder is both trusted and writable.
    """

    reason = "cache-unavailable"

    def __init__(self, tried: tuple[str, ...]) -> None:
        super().__init__(tried)
        self.tried = tried

    def __str__(self) -> str:
        return (
            f"no cache folder can be used: {'; '.join(self.tried)}; "
            "set RUST_EXT_CACHE_DIR to a folder of your own (mode 0700) on a writable disk"
        )


class RemoteUnavailable(RustExtensionError):
    """
    The remote cache cannot be used; an import builds instead.
    """

    reason = "remote-unavailable"

    def __init__(self, remote: str, problem: str) -> None:
        super().__init__(remote, problem)
        self.remote = remote
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.remote}: {self.problem}"


class SettingError(RustExtensionError, ValueError):
    """
    A setting has an invalid value.
    """

    reason = "setting"

    def __init__(self, setting: str, value: str, expected: str) -> None:
        super().__init__(setting, value, expected)
        self.setting = setting
        self.value = value
        self.expected = expected

    def __str__(self) -> str:
        what = f"{self.setting}={self.value!r} is invalid" if self.value else f"{self.setting} is empty or not set"
        return f"{what}; expected {self.expected}"


class StaleExtensionWarning(RuntimeWarning):
    """
    A stale module is used, or ignored.
    """


class CacheWarning(RuntimeWarning):
    """
    The cache could not be used as intended. The module itself is correct.
    """
