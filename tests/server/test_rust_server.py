"""
Launching `RustServer`: its settings, its ports, its cores and the extension that it loads.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock, call, patch

import pytest
from fake_server import FakeServer, fake_extension, server_class
from sglang.srt.rust_server import config, context, extension
from sglang.srt.rust_server import server as server_module
from sglang.srt.rust_server.engine import EngineInfo
from sglang.srt.rust_server.scheduler import EngineModel
from sglang.srt.rust_server.server import RustServer

if TYPE_CHECKING:
    from collections.abc import Iterator

INFO = EngineInfo(
    context_len=2048,
    vocab_size=512,
    max_total_num_tokens=65536,
    max_running_requests=8,
    default_sampling_params=(("temperature", 0.6),),
)


class FakeScheduler:
    """
    A scheduler with only the members of `ServedScheduler`.
    """

    def __init__(self, *, is_multimodal: bool = False) -> None:
        fields = {name: getattr(INFO, name) for name in INFO.__slots__}
        self.model_config = EngineModel(EngineInfo(**{**fields, "is_multimodal": is_multimodal}))
        self.max_total_num_tokens = INFO.max_total_num_tokens

    def rust_server_tokenizer_path(self) -> str | None:
        return "tokenizer"

    def compute_num_reserved_tokens(self) -> int:
        return 5


@pytest.fixture
def use_context() -> Iterator[Any]:
    """
    Set the context of the process for one test.
    """
    yield lambda **parts: context.set_context(context.Context(**parts))
    context.set_context(context.Context())


@pytest.fixture(autouse=True)
def _unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_partition_cores", lambda *_: (None, None))
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)


def test_launch_uses_the_model_extension_and_instance_worker_state() -> None:
    """
    A subclass provides its own extension module and its own media processor. Each is requested once.
    """
    module, spec, args = MagicMock(), object(), object()
    scheduler = MagicMock()
    scheduler.model_config.is_multimodal = True

    class ModelServer(RustServer):
        @classmethod
        def _load_extension(cls) -> Any:
            return module

        def _start_multimodal(self, scheduler: Any) -> None:
            self.server.start_mm_workers(spec, 8)  # type: ignore[attr-defined]

    parallel = SimpleNamespace(
        nnodes=1, pp_size=1, tp_size=2, tp_rank=1, attn_tp_size=1, attn_cp_size=1, dp_size=2, attn_dp_rank=1
    )
    with (
        patch(
            "sglang.srt.rust_server.server.get_exec", return_value=SimpleNamespace(nnodes=1, is_ep_scale_joiner=False)
        ),
        patch("sglang.srt.rust_server.server.get_parallel", return_value=parallel),
        patch("sglang.srt.rust_server.server.get_mm", return_value=SimpleNamespace(mm_processor_worker_num=8)),
        patch("sglang.srt.rust_server.server.get_serving", return_value=SimpleNamespace(host="::", port=30000)),
        patch("sglang.srt.rust_server.server._build_server_args", return_value=args) as build,
        patch.object(ModelServer, "_partition_cores", return_value=(None, None)) as partition,
    ):
        server = ModelServer.launch(scheduler)

    assert build.call_args_list == [call(scheduler, extension=module)]
    assert module.Server.call_args_list == [call(args, cores=None, port_offset=1)]
    assert module.Server.return_value.start_mm_workers.call_args_list == [call(spec, 8)]
    assert partition.call_args_list == [call(8)]
    assert type(server) is ModelServer
    assert server.http_port == 30001
    assert server._multimodal_enabled
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


@pytest.mark.parametrize(
    ("nnodes", "joiner", "sizes", "tp_rank", "expected"),
    [
        pytest.param(1, False, {}, 0, 0, id="one process"),
        pytest.param(1, False, {"tp_size": 4}, 3, 3, id="one group per rank"),
        pytest.param(
            1, False, {"tp_size": 8, "attn_tp_size": 2, "attn_cp_size": 2}, 5, 1, id="ranks in groups of four"
        ),
        pytest.param(2, False, {"tp_size": 8}, 5, 1, id="second node"),
        pytest.param(4, False, {"tp_size": 8, "pp_size": 2}, 5, 1, id="two nodes per pipeline stage"),
        pytest.param(1, False, {"tp_size": 4, "pp_size": 2}, 3, 3, id="two pipeline stages on one node"),
        pytest.param(2, True, {"tp_size": 8}, 5, 5, id="joiner: one node holds all ranks"),
    ],
)
def test_each_rank_of_a_node_has_its_own_port(
    use_context: Any, nnodes: int, joiner: bool, sizes: dict[str, int], tp_rank: int, expected: int
) -> None:
    """
    The port is the base port plus the data-parallel rank on the node.
    """
    use_context(
        exec=context.Exec(nnodes, joiner),
        parallel=context.Parallel(tp_rank=tp_rank, **sizes),
        serving=context.Serving(port=4000),
    )

    server = server_class(fake_extension()).launch(FakeScheduler())

    assert server.http_port == 4000 + expected
    assert server.server.options == {"cores": None, "port_offset": expected}  # type: ignore[attr-defined]


def test_port_0_reports_the_real_port(use_context: Any) -> None:
    """
    `http_port` is the port that the extension listens on.
    """
    use_context(serving=context.Serving(port=0))

    assert server_class(fake_extension()).launch(FakeScheduler()).http_port == FakeServer().address[1]


def test_cores_are_pinned_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Media workers start on the server's cores. The launching thread ends up on its own cores.
    """
    events: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: events.append(list(cores)), raising=False)

    def partition(workers: int, _: object) -> tuple[list[int], list[int]]:
        events.append(workers)
        return [0, 1], [2, 3]

    monkeypatch.setattr(config, "_partition_cores", partition)

    class ModelServer(server_class(fake_extension())):  # type: ignore[misc]
        def _start_multimodal(self, scheduler: Any) -> None:
            events.append(self._multimodal_enabled)

    server = ModelServer.launch(FakeScheduler(is_multimodal=True))

    assert events == [server_module.AUTO_MM_WORKERS, [2, 3], False, [0, 1]]
    assert server.server.options["cores"] == [2, 3]
    assert server._multimodal_enabled


def test_multimodal_model_without_media_processor_fails_the_launch() -> None:
    """
    The error names the method that a subclass must override.
    """
    with pytest.raises(RuntimeError, match="_start_multimodal"):
        server_class(fake_extension()).launch(FakeScheduler(is_multimodal=True))


# Long: one line for each setting.
def test_every_setting_reaches_the_extension(use_context: Any) -> None:
    """
    Every field of the extension's `ServerArgs` is given, from the context or from the scheduler.
    """
    use_context(
        serving=context.Serving(
            host="::",
            port=1,
            model_path="m",
            served_model_name="s",
            disaggregation_mode="decode",
            preferred_sampling_params={"top_k": 3},
        )
    )

    args = dict(vars(config._build_server_args(FakeScheduler(), extension=fake_extension())))  # type: ignore[arg-type]

    assert vars(args.pop("model_config")) == {
        "context_len": 2048,
        "vocab_size": 512,
        "is_multimodal": False,
        "default_sampling_params": SimpleNamespace(temperature=0.6),
    }
    assert args == {
        "model_path": "m",
        "served_model_name": "s",
        "tokenizer_path": "tokenizer",
        "revision": None,
        "load_format": "auto",
        "weight_version": "default",
        "host": "::",
        "port": 1,
        "log_level": "info",
        "log_level_http": None,
        "chat_template": None,
        "tool_call_parser": None,
        "reasoning_parser": None,
        "stream_response_default_include_usage": False,
        "tokenizer_worker_num": 1,
        "detokenizer_worker_num": 1,
        "skip_tokenizer_init": False,
        "incremental_streaming_output": False,
        "disaggregation_mode": "Decode mode",
        "preferred_sampling_params": '{"top_k": 3}',
        "limit_mm_data_per_request": {},
        "allow_auto_truncate": False,
        "enable_return_hidden_states": False,
        "num_reserved_tokens": 5,
        "version": args["version"],
        "max_total_num_tokens": 65536,
    }
    assert args["version"]


def test_only_changed_frontend_settings_are_given(use_context: Any) -> None:
    """
    The other settings keep the extension's own defaults.
    """
    use_context(frontend=context.Frontend(drain_deadline=0.5))

    options = server_class(fake_extension()).launch(FakeScheduler()).server.options  # type: ignore[attr-defined]

    assert options["frontend_config"] == SimpleNamespace(drain_deadline=0.5)


@pytest.mark.parametrize(
    ("allowed", "workers", "budget", "expected"),
    [
        pytest.param(None, 0, None, (None, None), id="the platform has no affinity"),
        pytest.param(OSError, 0, None, (None, None), id="the system call fails"),
        pytest.param(range(3), 0, None, (None, None), id="too few cores"),
        pytest.param(range(4), 0, None, ([0], [1, 2, 3]), id="four cores: one for the launcher"),
        pytest.param(range(7), 0, None, ([0], [1, 2, 3, 4, 5, 6]), id="seven cores: a quarter, rounded down"),
        pytest.param(range(8), 0, None, ([0, 1], [2, 3, 4, 5, 6, 7]), id="eight cores: two for the launcher"),
        pytest.param(range(32), 0, None, ([0, 1], list(range(2, 10))), id="at most eight for the server"),
        pytest.param(range(32), 8, None, ([0, 1], list(range(2, 14))), id="media workers plus four"),
        pytest.param([9, 3, 5, 7], 0, None, ([3], [5, 7, 9]), id="in ascending order"),
        pytest.param(
            range(32),
            6,
            lambda count, workers: count // 8 + workers,
            ([0, 1], list(range(2, 12))),
            id="budget of the caller",
        ),
    ],
)
def test_cores_are_divided_between_launcher_and_server(
    monkeypatch: pytest.MonkeyPatch, allowed: Any, workers: int, budget: Any, expected: Any
) -> None:
    """
    The launching thread gets the first cores, the server the next ones.
    """
    monkeypatch.undo()

    def affinity(_: int) -> set[int]:
        if allowed is OSError:
            raise OSError
        return set(allowed)

    if allowed is None:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    else:
        monkeypatch.setattr(os, "sched_getaffinity", affinity, raising=False)

    assert config._partition_cores(workers, budget) == expected


def test_the_extension_is_loaded_by_its_name_through_the_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each launch loads it once, under the declared name.
    """
    toolkit, module = ModuleType("rust_ext_loader"), fake_extension()
    load = MagicMock(return_value=module)
    toolkit.load_rust_extension = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rust_ext_loader", toolkit)

    RustServer.launch(FakeScheduler())

    assert load.call_args_list == [call("sglang.srt.rust_extensions._server")]


def test_plain_import_only_without_the_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An installed wheel contains the module. An error of the toolkit itself does not fall back to a plain import.
    """
    module = ModuleType("a_module")
    monkeypatch.setitem(sys.modules, "a_module", module)
    monkeypatch.setitem(sys.modules, "rust_ext_loader", None)
    assert extension.load_extension("a_module") is module

    toolkit = ModuleType("rust_ext_loader")
    toolkit.load_rust_extension = MagicMock(side_effect=ImportError("no compiler"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rust_ext_loader", toolkit)
    with pytest.raises(ImportError, match="no compiler"):
        extension.load_extension("a_module")
