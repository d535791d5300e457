"""
How a library becomes a module, with a finder and a loader of our own and no library at all.

What needs a real library is shown by the integration tests.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import pytest

from rust_ext_loader._load import ParentFinder, RustExtensionLoader, import_with

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
        if name.partition(".")[0] in ("nobody", "somebody"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "supplied"),
    [
        pytest.param("a", True, id="top"),
        pytest.param("a.b", True, id="between"),
        pytest.param("a.b.c", False, id="the module itself"),
        pytest.param("a.b.c.d", False, id="below it"),
        pytest.param("a.bb", False, id="a sibling"),
        pytest.param("aa", False, id="same beginning, another name"),
    ],
)
def test_only_ancestors_are_supplied(name: str, supplied: bool) -> None:
    """
    A stand-in is made for the parents of the module asked for and for nothing else.
    """
    spec = ParentFinder("a.b.c").find_spec(name)

    assert (spec is not None) == supplied
    if spec is not None:
        assert spec.submodule_search_locations == []
        assert spec.loader is None


def test_missing_parents_are_namespace_packages() -> None:
    """
    Parents that nobody provides come into being as packages without folders, each set on the one above.
    """
    module = import_with(OneModule("nobody.has.this"), "nobody.has.this")

    assert sys.modules["nobody.has.this"] is module
    assert sys.modules["nobody.has"].this is module
    assert sys.modules["nobody"].has is sys.modules["nobody.has"]
    assert list(sys.modules["nobody"].__path__) == []


def test_real_parents_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A parent that a path provides is imported, and a stand-in is not even thought of.
    """
    (tmp_path / "somebody").mkdir()
    (tmp_path / "somebody" / "__init__.py").write_text("here = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    import_with(OneModule("somebody.leaf"), "somebody.leaf")

    assert sys.modules["somebody"].here
    assert sys.modules["somebody"].__file__ == str(tmp_path / "somebody" / "__init__.py")


@pytest.mark.parametrize(
    "failure", [ImportError("no"), RuntimeError("no"), KeyboardInterrupt()], ids=lambda error: type(error).__name__
)
def test_what_fails_leaves_nothing_behind(failure: BaseException) -> None:
    """
    The module is not in `sys.modules`, nor is any parent that was made up for it, and no finder of ours stays.
    """
    finders = list(sys.meta_path)

    with pytest.raises(type(failure)):
        import_with(OneModule("nobody.ever.fails", failure), "nobody.ever.fails")

    assert not [name for name in sys.modules if name.partition(".")[0] == "nobody"]
    assert sys.meta_path == finders


def test_a_stand_in_that_others_use_stays() -> None:
    """
    A failure takes back what it made and nothing that another load rests on.
    """
    import_with(OneModule("nobody.works"), "nobody.works")

    with pytest.raises(RuntimeError):
        import_with(OneModule("nobody.ever.fails", RuntimeError("no")), "nobody.ever.fails")

    assert "nobody.works" in sys.modules
    assert "nobody.ever" not in sys.modules
    assert not hasattr(sys.modules["nobody"], "ever")


def test_other_threads_are_supplied_nothing() -> None:
    """
    A name that does not exist does not come into being for whoever tries it meanwhile.
    """
    finder = ParentFinder("a.b")
    answers = list[ModuleSpec | None]()
    thread = threading.Thread(target=lambda: answers.append(finder.find_spec("a")))
    thread.start()
    thread.join()

    assert answers == [None]
    assert finder.find_spec("a") is not None


def test_no_finder_stays() -> None:
    """
    After an import the list of finders is what it was.
    """
    finders = list(sys.meta_path)

    import_with(OneModule("nobody.stays"), "nobody.stays")

    assert sys.meta_path == finders


def refused(library: str) -> ImportError:
    return ImportError("file too short", path=library)


class Opened(ModuleType):
    """
    What the stand-in for the dynamic linker returns.
    """


class Linker(RustExtensionLoader):
    """
    The loader, with a linker that refuses some files.
    """

    def __init__(
        self, library: str | None, locate: list[str], repaired: list[str], errors: dict[str, ImportError]
    ) -> None:
        self.asked: list[str] = []
        super().__init__(
            "m", library, self._next_of("locate", locate), lambda broken, _: self._repaired(broken, repaired)
        )
        self._errors = errors

    def _next_of(self, what: str, answers: list[str]) -> Callable[[], str]:
        def answer() -> str:
            self.asked.append(what)
            return answers.pop(0)

        return answer

    def _repaired(self, broken: str, answers: list[str]) -> str:
        self.asked.append(f"repair {broken}")
        return answers.pop(0)

    def _open(self, spec: ModuleSpec, library: str) -> ModuleType:
        self.asked.append(f"open {library}")
        if library in self._errors:
            raise self._errors[library]
        return Opened(library)


@pytest.mark.parametrize(
    ("library", "errors", "asked"),
    [
        pytest.param("known.so", {}, ["open known.so"], id="known from the record"),
        pytest.param(None, {}, ["locate", "open found.so"], id="decided upon late"),
        pytest.param(
            None, {"found.so": refused("found.so")},
            ["locate", "open found.so", "repair found.so", "open new.so"], id="refused by the linker, repaired once",
        ),
        pytest.param(
            None, {"found.so": refused("found.so"), "new.so": refused("new.so")},
            ["locate", "open found.so", "repair found.so", "open new.so", "ImportError"], id="refused again: its error, no second repair",
        ),
        pytest.param(
            None, {"found.so": ImportError("raised by its init")},
            ["locate", "open found.so", "ImportError"], id="its own ImportError is its own",
        ),
        pytest.param(
            None, {"found.so": ImportError("of another library", path="other.so")},
            ["locate", "open found.so", "ImportError"], id="another library's error is not ours",
        ),
    ],
)  # fmt: skip
def test_a_refused_library_gets_one_chance(
    library: str | None, errors: dict[str, ImportError], asked: list[str]
) -> None:
    """
    Only what the linker says about this very file leads to a repair, and only once.
    """
    loader = Linker(library, ["found.so"], ["new.so"], errors)
    spec = ModuleSpec("m", loader)
    try:
        loader.create_module(spec)
    except ImportError:
        loader.asked.append("ImportError")

    assert loader.asked == asked


def test_the_spec_tells_where_the_module_came_from() -> None:
    """
    `__file__` and `__spec__.origin` are the library's path, as of any other extension module.
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


def test_making_a_spec_asks_nothing() -> None:
    """
    Where the library is gets asked when the module is created, never before.
    """
    loader = Linker(None, [], [], {})

    ModuleSpec("m", loader)

    assert loader.asked == []
