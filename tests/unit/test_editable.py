"""
Unit tests of the line in the `.pth` file: it supports any path, and adds one finder even if it runs several times.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from rust_ext_loader import _api, _hook, _warm
from rust_ext_loader.packaging._editable import prefixes_of, pth_line

PREFIXES = ("host.native.",)

AWKWARD_FOLDERS = [
    pytest.param("/srv/project/rust", id="plain"),
    pytest.param("/srv/my project/rust", id="space"),
    pytest.param('/srv/it\'s "here"/rust', id="both quotes"),
    pytest.param("/srv/проект/наука-🦀", id="not ASCII"),
    pytest.param("/srv/back\\slash/%s {x}", id="backslash, per cent and brace"),
    pytest.param("/srv/new\nline\r/rust", id="line breaks"),
    pytest.param("/srv/odd-\udcff-byte", id="a byte that is not UTF-8"),
]


@pytest.fixture(autouse=True)
def meta_path(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    finders: list[object] = [object()]
    monkeypatch.setattr(sys, "meta_path", finders)
    return finders


def start_interpreter(*lines: str) -> None:
    """
    Execute lines as `site` does: one at a time, inside a function.
    """
    for line in lines:
        exec(line)


@pytest.mark.parametrize("workspace", AWKWARD_FOLDERS)
def test_any_workspace_path_survives_the_line(workspace: str, meta_path: list[object]) -> None:
    """
    The line is one line of ASCII, and the finder has exactly the given workspace and prefixes.
    """
    line = pth_line(PREFIXES, workspace)
    start_interpreter(line)

    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert line.startswith("import ")
    assert vars(type(meta_path[0]))["rust_ext_workspace"] == workspace
    assert vars(type(meta_path[0]))["rust_ext_prefixes"] == PREFIXES


def test_only_one_finder_per_prefixes(meta_path: list[object]) -> None:
    """
    Running the line again, or the line of another checkout, adds no finder. Other prefixes get their own finder.
    """
    start_interpreter(pth_line(PREFIXES, "/first"), pth_line(PREFIXES, "/first"), pth_line(PREFIXES, "/second"))
    start_interpreter(pth_line(("other.",), "/third"))

    assert [getattr(finder, "rust_ext_workspace", None) for finder in meta_path] == ["/third", "/first", None]


def test_only_names_with_a_prefix_reach_the_hook(meta_path: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    For a name with the prefix the hook gets workspace and parent path. For other names it is not called.
    """
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(_warm, "find_spec", lambda *arguments: calls.append(arguments))
    start_interpreter(pth_line(PREFIXES, "/work"))
    finder: SimpleNamespace = meta_path[0]  # type: ignore[assignment]

    finder.find_spec("host", None)
    finder.find_spec("host.native", ["/a"])
    finder.find_spec("host.nativeX", ["/a"])
    assert calls == []

    finder.find_spec("host.native._fast", ["/a"])
    assert calls == [("host.native._fast", "/work", ["/a"])]


def test_lines_of_earlier_versions_find_their_function() -> None:
    """
    An install that is older than the toolkit calls `_hook.find_spec`, which is the function that new lines call.
    """
    assert _hook.find_spec is _warm.find_spec


def test_hook_finds_the_workspace_of_a_stub(meta_path: list[object]) -> None:
    """
    `registered_workspace` returns the workspace of the finder that the line has added.
    """
    start_interpreter(pth_line(PREFIXES, "/work"))

    assert _api.registered_workspace("host.native._fast", meta_path) == "/work"
    assert _api.registered_workspace("host.other", meta_path) is None


def test_relative_workspace_is_refused() -> None:
    """
    An installed line must not depend on the current folder.
    """
    with pytest.raises(ValueError, match="absolute path"):
        pth_line(PREFIXES, "rust")


@pytest.mark.parametrize(
    ("modules", "prefixes"),
    [
        pytest.param([], (), id="nothing declared"),
        pytest.param(["a.b._x", "a.b._y"], ("a.b.",), id="one parent"),
        pytest.param(["z._x", "a._y"], ("a.", "z."), id="sorted"),
        pytest.param(["_alone"], ("_alone",), id="no parent"),
    ],
)
def test_prefixes_are_the_parent_packages(modules: list[str], prefixes: tuple[str, ...]) -> None:
    """
    Prefixes are as long as possible, so that few other names match.
    """
    assert prefixes_of(modules) == prefixes
