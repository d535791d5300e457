"""
How a library becomes a module, with a fake finder and loader instead of a library.

Integration tests load real libraries.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import pytest

from rust_ext_loader._api import ParentFinder, import_with
from rust_ext_loader._warm import RustExtensionLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class OneModule:
    """
    A finder and loader of a single pure module.
    """

    def __init__(self, name: str, failure: BaseException | None = None) -> None:
        self.name = name
        self.failure = failure

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == self.name else None  # type: ignore[arg-type]  # a loader by duck type

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if self.failure is not None:
            raise self.failure


@pytest.fixture(autouse=True)
def _clean_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("absent", "present"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "supplied"),
    [
        pytest.param("a", True, id="top"),
        pytest.param("a.b", True, id="between"),
        pytest.param("a.b.c", False, id="the module itself"),
        pytest.param("a.b.c.d", False, id="below it"),
        pytest.param("a.bb", False, id="a sibling"),
        pytest.param("aa", False, id="a name with the same prefix"),
    ],
)
def test_only_parents_are_supplied(name: str, supplied: bool) -> None:
    """
    The finder supplies namespace packages for the parents of the requested module, and for nothing else.
    """
    spec = ParentFinder("a.b.c").find_spec(name)

    assert (spec is not None) == supplied
    if spec is not None:
        assert spec.submodule_search_locations == []
        assert spec.loader is None


def test_missing_parents_are_namespace_packages() -> None:
    """
    Missing parents become packages without folders, each set as an attribute of its parent.
    """
    module = import_with(OneModule("absent.has.this"), "absent.has.this")

    assert sys.modules["absent.has.this"] is module
    assert sys.modules["absent.has"].this is module
    assert sys.modules["absent"].has is sys.modules["absent.has"]
    assert list(sys.modules["absent"].__path__) == []


def test_real_parents_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An existing parent package is imported, and no namespace package is created for it.
    """
    (tmp_path / "present").mkdir()
    (tmp_path / "present" / "__init__.py").write_text("here = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    import_with(OneModule("present.leaf"), "present.leaf")

    assert sys.modules["present"].here
    assert sys.modules["present"].__file__ == str(tmp_path / "present" / "__init__.py")


@pytest.mark.parametrize(
    "failure", [ImportError("no"), RuntimeError("no"), KeyboardInterrupt()], ids=lambda error: type(error).__name__
)
def test_a_failed_import_leaves_nothing_behind(failure: BaseException) -> None:
    """
    After a failure `sys.modules` has neither the module nor the created parents, and `sys.meta_path` is unchanged.
    """
    finders = list(sys.meta_path)

    with pytest.raises(type(failure)):
        import_with(OneModule("absent.ever.fails", failure), "absent.ever.fails")

    assert not [name for name in sys.modules if name.partition(".")[0] == "absent"]
    assert sys.meta_path == finders


def test_a_created_parent_in_use_is_kept() -> None:
    """
    A failed import removes the parents that it created, unless another module uses them.
    """
    import_with(OneModule("absent.works"), "absent.works")

    with pytest.raises(RuntimeError):
        import_with(OneModule("absent.ever.fails", RuntimeError("no")), "absent.ever.fails")

    assert "absent.works" in sys.modules
    assert "absent.ever" not in sys.modules
    assert not hasattr(sys.modules["absent"], "ever")


def test_other_threads_get_no_parent_packages() -> None:
    """
    While one thread imports, another thread's import of the same missing parent still fails.
    """
    finder = ParentFinder("a.b")
    answers = list[ModuleSpec | None]()
    thread = threading.Thread(target=lambda: answers.append(finder.find_spec("a")))
    thread.start()
    thread.join()

    assert answers == [None]
    assert finder.find_spec("a") is not None


def test_the_finder_is_removed() -> None:
    """
    After an import `sys.meta_path` is unchanged.
    """
    finders = list(sys.meta_path)

    import_with(OneModule("absent.stays"), "absent.stays")

    assert sys.meta_path == finders


def refused(library: str) -> ImportError:
    return ImportError("file too short", path=library)


class Opened(ModuleType):
    """
    The module that the fake linker returns.
    """


class Linker(RustExtensionLoader):
    """
    The loader, with a fake dynamic linker that refuses some files.
    """

    def __init__(
        self, library: str | None, locate: list[str], repaired: list[str], errors: dict[str, ImportError]
    ) -> None:
        self.calls: list[str] = []
        super().__init__(
            "m", library, self._next_of("locate", locate), lambda broken, _: self._repaired(broken, repaired)
        )
        self._errors = errors

    def _next_of(self, what: str, answers: list[str]) -> Callable[[], str]:
        def answer() -> str:
            self.calls.append(what)
            return answers.pop(0)

        return answer

    def _repaired(self, broken: str, answers: list[str]) -> str:
        self.calls.append(f"repair {broken}")
        return answers.pop(0)

    def _open(self, spec: ModuleSpec, library: str) -> ModuleType:
        self.calls.append(f"open {library}")
        if library in self._errors:
            raise self._errors[library]
        return Opened(library)


@pytest.mark.parametrize(
    ("library", "errors", "calls"),
    [
        pytest.param("known.so", {}, ["open known.so"], id="known from the record"),
        pytest.param(None, {}, ["locate", "open found.so"], id="located when it is created"),
        pytest.param(
            None, {"found.so": refused("found.so")},
            ["locate", "open found.so", "repair found.so", "open new.so"], id="refused by the linker, repaired once",
        ),
        pytest.param(
            None, {"found.so": refused("found.so"), "new.so": refused("new.so")},
            ["locate", "open found.so", "repair found.so", "open new.so", "ImportError"],
            id="refused again: the second error is raised",
        ),
        pytest.param(
            None, {"found.so": ImportError("raised by its init")},
            ["locate", "open found.so", "ImportError"], id="an ImportError of its init function",
        ),
        pytest.param(
            None, {"found.so": ImportError("of another library", path="other.so")},
            ["locate", "open found.so", "ImportError"], id="an error about another library",
        ),
    ],
)  # fmt: skip
def test_a_refused_library_is_repaired_once(
    library: str | None, errors: dict[str, ImportError], calls: list[str]
) -> None:
    """
    A repair follows only on an error of the linker about the module's own file, and only once.
    """
    loader = Linker(library, ["found.so"], ["new.so"], errors)
    spec = ModuleSpec("m", loader)
    try:
        loader.create_module(spec)
    except ImportError:
        loader.calls.append("ImportError")

    assert loader.calls == calls


def test_the_spec_names_the_library() -> None:
    """
    `__file__` and `__spec__.origin` are the library's path, as for other extension modules.
    """
    suffix = EXTENSION_SUFFIXES[0]
    spec = next(
        found
        for name in ("_queue", "_heapq", "_bisect", "_struct", "_json", "math")
        if (found := PathFinder.find_spec(name)) is not None and (found.origin or "").endswith(suffix)
    )
    assert spec.origin is not None

    loader = RustExtensionLoader(spec.name, None, lambda: str(spec.origin), lambda _, error: pytest.fail(str(error)))
    module = importlib.util.module_from_spec(ModuleSpec(spec.name, loader))

    assert module.__file__ == spec.origin
    assert module.__spec__ is not None
    assert module.__spec__.origin == spec.origin
    assert module.__spec__.has_location
    assert loader.get_filename(spec.name) == spec.origin


def test_creating_a_spec_locates_nothing() -> None:
    """
    The library is located when the module is created, not before.
    """
    loader = Linker(None, [], [], {})

    ModuleSpec("m", loader)

    assert loader.calls == []
