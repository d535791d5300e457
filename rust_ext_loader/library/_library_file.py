"""
Decide, before a library is published, whether it can be the declared module.

Three properties are checked. The library exports the function that Python calls
first. It is for this machine. If it is declared abi3, it uses only the stable
ABI.

Invariant: only the file's bytes are read. The library is not loaded, so none of
its code runs, and no tool of the platform is needed.
"""

from __future__ import annotations

import os

from ._object_formats import LibraryFile, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LibraryFile", "host_glibc", "inspect", "problem"]

#: Other names of the same machine.
_MACHINE_ALIASES = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "arm64": "aarch64",
    "i386": "x86",
    "i486": "x86",
    "i586": "x86",
    "i686": "x86",
}

#: The format that `import` loads, by system; everywhere else it is ELF.
_FORMATS = {"darwin": "mach-o", "win32": "pe", "windows": "pe", "cygwin": "pe"}

#: Symbols with a leading underscore that are part of the stable ABI in every version; its macros use them.
_STABLE_UNDERSCORED = frozenset(
    """
    _PyArg_ParseTupleAndKeywords_SizeT _PyArg_ParseTuple_SizeT _PyArg_Parse_SizeT _PyArg_VaParseTupleAndKeywords_SizeT
    _PyArg_VaParse_SizeT _PyErr_BadInternalCall _PyObject_CallFunction_SizeT _PyObject_CallMethod_SizeT
    _PyObject_GC_New _PyObject_GC_NewVar _PyObject_GC_Resize _PyObject_New _PyObject_NewVar _PyState_AddModule
    _PyThreadState_Init _PyThreadState_Prealloc _PyTrash_begin _PyTrash_deposit_object _PyTrash_destroy_chain
    _PyTrash_end _PyTrash_thread_deposit_object _PyTrash_thread_destroy_chain _PyWeakref_CallableProxyType
    _PyWeakref_ProxyType _PyWeakref_RefType _Py_BuildValue_SizeT _Py_CheckRecursionLimit _Py_CheckRecursiveCall
    _Py_Dealloc _Py_DecRef _Py_EllipsisObject _Py_FalseStruct _Py_IncRef _Py_NegativeRefcount _Py_NoneStruct
    _Py_NotImplementedStruct _Py_RefTotal _Py_SetRefcnt _Py_SwappedOp _Py_TrueStruct _Py_VaBuildValue_SizeT
    """.split()  # noqa: SIM905 - a list of names, one a line, would be longer than the module
)

#: Common public symbols that no version of the stable ABI has. The list is short on purpose: a false alarm would stop a
#: good build. Symbols that joined the stable ABI later (buffers, vectorcall, `PyUnicode_AsUTF8`) are valid for a module
#: that requires that version.
_NEVER_STABLE = frozenset(
    """
    PyCell_New PyCell_Get PyCell_Set PyCode_New PyCode_NewEmpty PyCode_NewWithPosOnlyArgs PyCode_Addr2Line PyCoro_New
    PyDict_SetDefault PyEval_SetProfile PyEval_SetTrace PyFrame_New PyFrame_GetBack PyFrame_GetLocals PyFunction_New
    PyFunction_GetCode PyFunction_NewWithQualName PyGen_New PyInstanceMethod_New PyInterpreterState_Head
    PyInterpreterState_Next PyInterpreterState_ThreadHead PyMethod_New PyMethod_Function PyMethod_Self
    PyObject_CallFinalizer PyObject_CallFinalizerFromDealloc PyRun_AnyFileExFlags PyRun_FileExFlags
    PyRun_SimpleStringFlags PyRun_StringFlags PyThreadState_Next PyUnicode_AsUnicode PyUnicode_AsUnicodeAndSize
    PyUnicode_CopyCharacters PyUnicode_Fill PyUnicode_FromKindAndData PyUnicode_FromUnicode PyUnicode_New
    """.split()  # noqa: SIM905 - as above
)


def inspect(path: Path) -> LibraryFile:
    """
    Read a library; raises `ValueError` if the file is not a library or is damaged, `OSError` if it cannot be read.
    """
    return read(path.read_bytes())


def problem(library: LibraryFile, *, leaf: str, machine: str, system: str, abi3: bool) -> str | None:
    """
    Why this library cannot be the module; `None` if it can. The text continues a sentence that starts with the library.

    *leaf* is the last part of the module's name, *machine* the machine of this process, *system* is `sys.platform`.
    """
    expected = _FORMATS.get(system.lower(), "elf")
    if library.format != expected:
        return f"is {library.format}; {system} loads {expected}"
    if _plain_machine(machine) not in library.machine.split("+"):
        return f"is for {library.machine}, but this Python runs on {_plain_machine(machine)}"
    init = _init_name(leaf)
    if init not in library.exports_init:
        instead = ", ".join(sorted(library.exports_init)) or "no module at all"
        return f"does not export {init}, it exports {instead}; rename the `#[pymodule]` to `{leaf}`"
    if abi3 and (unstable := _unstable(library)):
        more = f" and {len(unstable) - 5} more" if len(unstable) > 5 else ""
        return f"is declared abi3, but uses symbols outside the stable ABI: {', '.join(unstable[:5])}{more}"
    return None


def _plain_machine(name: str) -> str:
    name = name.lower()
    if name.startswith("armv"):
        # 32-bit programs on any ARM core; also `armv8l`.
        return "arm"
    return _MACHINE_ALIASES.get(name, name)


def _init_name(leaf: str) -> str:
    # PEP 489: names in C are ASCII.
    if leaf.isascii():
        return f"PyInit_{leaf}"
    return f"PyInitU_{leaf.encode('punycode').decode('ascii').replace('-', '_')}"


def _unstable(library: LibraryFile) -> list[str]:
    private = {name for name in library.undefined if name.startswith("_Py") and name not in _STABLE_UNDERSCORED}
    return sorted(private | (library.undefined & _NEVER_STABLE))


def host_glibc() -> tuple[int, int] | None:
    """
    The glibc version of this process; `None` for another C library.
    """
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        major, minor, *_ = version.split(".")
        return (int(major), int(minor)) if name == "glibc" else None
    except (AttributeError, OSError, ValueError):
        # Not Unix, or a C library without this query (musl).
        return None
