"""
Each setting of the server is listed once in Rust, once in Python and once in the stub. The three lists must agree.

The tests read the lists from the sources. So a setting that is added in only one place fails here before anything is
compiled, and the failure names the other places. The last tests use the compiled module.
"""

from __future__ import annotations

import ast
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_server import fake_extension
from sglang.srt.rust_server import config, context
from sglang.srt.rust_server.engine import EngineInfo
from sglang.srt.rust_server.extension import load_extension
from sglang.srt.rust_server.scheduler import EngineModel

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORKSPACE = Path(__file__).parents[2] / "rust"
_RUST = _WORKSPACE / "sglang-server" / "src" / "config.rs"
_STUB = _WORKSPACE / "python" / "sglang" / "srt" / "rust_extensions" / "_server.pyi"

#: What the stub writes for a Rust type. Other types have the same name in both.
_PYTHON_TYPES = {
    "BTreeMap<String, i64>": "dict[str, int]",
    "Duration": "float",
    "Map<String, Value>": "str",  # JSON text
    "String": "str",
    "f64": "float",
    "i64": "int",
    "u16": "int",
    "usize": "int",
}

#: Fields of the Rust `FrontendConfig` that are arguments of `Server` in Python.
_QUEUES = {"to_scheduler_cap", "from_scheduler_cap", "stage_cap"}

#: Fields of `Serving` that `_build_server_args` converts to another type.
_CONVERTED = {"disaggregation_mode", "limit_mm_data_per_request", "preferred_sampling_params"}

#: Fields of `ServerArgs` whose values come from the scheduler or the package, so `Serving` does not have them.
_NOT_SETTINGS = {"max_total_num_tokens", "model_config", "num_reserved_tokens", "version"}


def rust_fields(struct: str) -> dict[str, str]:
    """
    The fields of a Rust struct, with their types as the stub writes them.
    """
    found = re.search(rf"^pub struct {struct} {{$(.*?)^}}$", _RUST.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found, f"{_RUST} has no struct {struct}"
    return {name: _python_type(type_) for name, type_ in re.findall(r"^    pub (\w+): (.+),$", found[1], re.MULTILINE)}


def _python_type(rust: str) -> str:
    optional = re.fullmatch(r"Option<(.+)>", rust)
    return f"{_python_type(optional[1])} | None" if optional else _PYTHON_TYPES.get(rust, rust)


def stub_parameters(class_: str) -> dict[str, tuple[str, Any]]:
    """
    The keyword-only parameters of a constructor in the stub: type, and default or `MISSING`.
    """
    classes = {each.name: each for each in ast.parse(_STUB.read_text("utf-8")).body if isinstance(each, ast.ClassDef)}
    functions = {each.name: each for each in classes[class_].body if isinstance(each, ast.FunctionDef)}
    arguments = functions["__new__"].args
    return {
        each.arg: (
            ast.unparse(each.annotation) if each.annotation else "",
            MISSING if default is None else ast.literal_eval(default),
        )
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }


def stub_types(class_: str) -> dict[str, str]:
    return {name: type_ for name, (type_, _) in stub_parameters(class_).items()}


def types_of(settings: type) -> dict[str, str]:
    """
    The fields of a Python dataclass, with their types as they are written.
    """
    return {each.name: str(each.type) for each in fields(settings)}


def disagreements(places: Mapping[str, Mapping[str, str]]) -> list[str]:
    """
    Return one line for each setting that is missing from a place, or that has different types in two places.
    """
    lines = []
    for name in sorted(set().union(*places.values())):
        types = {place: settings[name] for place, settings in places.items() if name in settings}
        lines += [
            f"`{name}` is missing in {place}, present in {', '.join(types)}" for place in places if place not in types
        ]
        if len(set(types.values())) > 1:
            lines.append(f"`{name}` has different types: {types}")
    return lines


def without(settings: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: type_ for name, type_ in settings.items() if name not in names}


@pytest.mark.parametrize("class_", ["ServerArgs", "ModelConfig", "DefaultSamplingParams"])
def test_rust_struct_and_stub_have_the_same_fields(class_: str) -> None:
    """
    The stub repeats the names and types of the Rust struct.
    """
    assert not disagreements({"config.rs": rust_fields(class_), "_server.pyi": stub_types(class_)})


@pytest.mark.parametrize(
    ("class_", "default"),
    [("ServerArgs", MISSING), ("ModelConfig", MISSING), ("DefaultSamplingParams", None), ("FrontendConfig", None)],
)
def test_stub_says_which_fields_are_required(class_: str, default: object) -> None:
    """
    Every field of `ServerArgs` and `ModelConfig` is required. Every field of the other classes is `None` by default.
    """
    assert {name for name, (_, given) in stub_parameters(class_).items() if given is not default} == set()


def test_every_field_of_the_python_table_is_a_server_argument() -> None:
    """
    `Serving` has each setting of `ServerArgs`, and nothing else.
    """
    excluded = _CONVERTED | _NOT_SETTINGS

    assert not disagreements(
        {
            "config.rs": without(rust_fields("ServerArgs"), *excluded),
            "_server.pyi": without(stub_types("ServerArgs"), *excluded),
            "context.py": without(types_of(context.Serving), *excluded),
        }
    )
    assert types_of(context.Serving).keys() & excluded == _CONVERTED


def test_every_server_argument_is_built() -> None:
    """
    `_build_server_args` gives each field of the Rust struct, including those that come from the scheduler.
    """

    class StandIn:
        info = EngineInfo(context_len=1, vocab_size=1, max_total_num_tokens=1, max_running_requests=1)
        model_config = EngineModel(info)
        max_total_num_tokens = 1

        def rust_server_tokenizer_path(self) -> None:
            return None

        def compute_num_reserved_tokens(self) -> int:
            return 0

    built = vars(config._build_server_args(StandIn(), extension=fake_extension()))  # type: ignore[arg-type]

    assert not disagreements(
        {"config.rs": dict.fromkeys(rust_fields("ServerArgs"), ""), "config.py": dict.fromkeys(built, "")}
    )


def test_frontend_settings_agree() -> None:
    """
    Apart from the three queue capacities, the Rust struct, the stub and the Python table have the same optional fields.
    """
    optional = {name: f"{type_} | None" for name, type_ in rust_fields("FrontendConfig").items()}

    assert not disagreements(
        {
            "config.rs": without(optional, *_QUEUES),
            "_server.pyi": stub_types("FrontendConfig"),
            "context.py": types_of(context.Frontend),
        }
    )
    assert optional.keys() >= _QUEUES
    assert {each.name for each in fields(context.Frontend) if each.default is not None} == set()


def test_a_disagreement_names_the_place() -> None:
    """
    The text of the failure says which list lacks which setting.
    """
    assert disagreements({"_server.pyi": {"a": "int", "b": "int"}, "config.rs": {"a": "str"}}) == [
        "`a` has different types: {'_server.pyi': 'int', 'config.rs': 'str'}",
        "`b` is missing in config.rs, present in _server.pyi",
    ]


#: A value for each type of the stub.
_VALUES = {"str": "x", "int": 1, "bool": False, "dict[str, int]": {}}


def _server_args(extension: Any) -> dict[str, Any]:
    parameters = without(stub_types("ServerArgs"), "disaggregation_mode", "model_config")
    values: dict[str, Any] = {
        name: None if type_.endswith("| None") else _VALUES[type_] for name, type_ in parameters.items()
    }
    values["disaggregation_mode"] = extension.DisaggregationMode.Null
    values["model_config"] = extension.ModelConfig(
        context_len=1, vocab_size=1, is_multimodal=False, default_sampling_params=extension.DefaultSamplingParams()
    )
    return values


def test_module_refuses_a_call_that_differs_from_the_stub() -> None:
    """
    The compiled `ServerArgs` takes exactly the parameters of the stub, by name.
    """
    extension = load_extension()
    values = _server_args(extension)

    extension.ServerArgs(**values)
    for name in values:
        with pytest.raises(TypeError, match=f"'{name}'"):
            extension.ServerArgs(**{key: value for key, value in values.items() if key != name})
    with pytest.raises(TypeError, match="unexpected keyword argument 'api_key'"):
        extension.ServerArgs(**values, api_key="secret")
    with pytest.raises(TypeError, match="positional"):
        extension.ServerArgs("x", **values)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        pytest.param("port", 65536, OverflowError, id="port out of range"),
        pytest.param("port", "30000", TypeError, id="text for a number"),
        pytest.param("host", None, TypeError, id="None for a required text"),
        pytest.param("tokenizer_worker_num", -1, OverflowError, id="negative count"),
        pytest.param("preferred_sampling_params", "{", ValueError, id="not JSON"),
        pytest.param("preferred_sampling_params", "[]", ValueError, id="JSON that is no object"),
        pytest.param("model_config", 7, TypeError, id="no ModelConfig"),
    ],
)
def test_module_raises_the_error_of_the_wrong_value(name: str, value: object, error: type[Exception]) -> None:
    """
    A wrong value raises the exception of its type conversion, as in a call of any extension function.
    """
    extension = load_extension()

    with pytest.raises(error):
        extension.ServerArgs(**{**_server_args(extension), name: value})
