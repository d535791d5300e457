"""
`RustServer` and its settings: how it is launched, drained and answered.
"""

from __future__ import annotations

import logging
import os
import sys
from array import array
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock, call, patch

import msgspec
import pytest
from fake_server import FakeServer, fake_extension, generate, server_class
from sglang.srt.rust_server import config, context, extension, wire
from sglang.srt.rust_server import server as server_module
from sglang.srt.rust_server.engine import EngineInfo
from sglang.srt.rust_server.scheduler import EngineModel
from sglang.srt.rust_server.server import RustServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INFO = EngineInfo(
    context_len=2048,
    vocab_size=512,
    max_total_num_tokens=65536,
    max_running_requests=8,
    default_sampling_params=(("temperature", 0.6),),
)


class StandIn:
    """
    A scheduler of which a server is asked for no more than it must know.
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
    Set the process's context, for one test.
    """
    yield lambda **parts: context.set_context(context.Context(**parts))
    context.set_context(context.Context())


@pytest.fixture(autouse=True)
def _unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_partition_cores", lambda *_: (None, None))
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)


def test_launch_uses_the_model_extension_and_instance_worker_state() -> None:
    """
    A model's package brings an extension and a way with media of its own, and is asked for each of them once.
    """
    module, spec, args = MagicMock(), object(), object()
    scheduler = MagicMock()
    scheduler.model_config.is_multimodal = True

    class OfModel(RustServer):
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
        patch.object(OfModel, "_partition_cores", return_value=(None, None)) as partition,
    ):
        server = OfModel.launch(scheduler)

    assert build.call_args_list == [call(scheduler, extension=module)]
    assert module.Server.call_args_list == [call(args, cores=None, port_offset=1)]
    assert module.Server.return_value.start_mm_workers.call_args_list == [call(spec, 8)]
    assert partition.call_args_list == [call(8)]
    assert type(server) is OfModel
    assert server.http_port == 30001
    assert server._multimodal_enabled
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


@pytest.mark.parametrize(
    ("nnodes", "joiner", "sizes", "tp_rank", "expected"),
    [
        pytest.param(1, False, {}, 0, 0, id="one process"),
        pytest.param(1, False, {"tp_size": 4}, 3, 3, id="each rank its own"),
        pytest.param(
            1, False, {"tp_size": 8, "attn_tp_size": 2, "attn_cp_size": 2}, 5, 1, id="ranks in groups of four"
        ),
        pytest.param(2, False, {"tp_size": 8}, 5, 1, id="second node"),
        pytest.param(4, False, {"tp_size": 8, "pp_size": 2}, 5, 1, id="two nodes a stage"),
        pytest.param(1, False, {"tp_size": 4, "pp_size": 2}, 3, 3, id="two stages on a node"),
        pytest.param(2, True, {"tp_size": 8}, 5, 5, id="joiner: one node has all"),
    ],
)
def test_each_rank_of_a_node_has_a_port(
    use_context: Any, nnodes: int, joiner: bool, sizes: dict[str, int], tp_rank: int, expected: int
) -> None:
    """
    The port is the base plus the place among the node's data-parallel ranks.
    """
    use_context(
        exec=context.Exec(nnodes, joiner),
        parallel=context.Parallel(tp_rank=tp_rank, **sizes),
        serving=context.Serving(port=4000),
    )

    server = server_class(fake_extension()).launch(StandIn())

    assert server.http_port == 4000 + expected
    assert server.server.options == {"cores": None, "port_offset": expected}  # type: ignore[attr-defined]


def test_any_free_port_is_the_servers_to_tell(use_context: Any) -> None:
    """
    Port 0 becomes the real one.
    """
    use_context(serving=context.Serving(port=0))

    assert server_class(fake_extension()).launch(StandIn()).http_port == FakeServer().address[1]


def test_cores_are_set_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Workers for media start on the server's cores; the launching thread ends up on its own.
    """
    events: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: events.append(list(cores)), raising=False)

    def partition(workers: int, _: object) -> tuple[list[int], list[int]]:
        events.append(workers)
        return [0, 1], [2, 3]

    monkeypatch.setattr(config, "_partition_cores", partition)

    class OfModel(server_class(fake_extension())):  # type: ignore[misc]
        def _start_multimodal(self, scheduler: Any) -> None:
            events.append(self._multimodal_enabled)

    server = OfModel.launch(StandIn(is_multimodal=True))

    assert events == [server_module.AUTO_MM_WORKERS, [2, 3], False, [0, 1]]
    assert server.server.options["cores"] == [2, 3]
    assert server._multimodal_enabled


def test_media_without_a_processor_are_refused_at_launch() -> None:
    """
    The error says what a package must bring.
    """
    with pytest.raises(RuntimeError, match="_start_multimodal"):
        server_class(fake_extension()).launch(StandIn(is_multimodal=True))


def test_every_setting_reaches_the_extension(use_context: Any) -> None:
    """
    All fields of the extension's `ServerArgs` are given, from the context and from the scheduler.
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

    args = dict(vars(config._build_server_args(StandIn(), extension=fake_extension())))  # type: ignore[arg-type]

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


def test_what_differs_of_the_frontend_is_given(use_context: Any) -> None:
    """
    Its defaults are the extension's own.
    """
    use_context(frontend=context.Frontend(drain_deadline=0.5))

    options = server_class(fake_extension()).launch(StandIn()).server.options  # type: ignore[attr-defined]

    assert options["frontend_config"] == SimpleNamespace(drain_deadline=0.5)


@pytest.mark.parametrize(
    ("allowed", "workers", "budget", "expected"),
    [
        pytest.param(None, 0, None, (None, None), id="not on this platform"),
        pytest.param(OSError, 0, None, (None, None), id="not told"),
        pytest.param(range(3), 0, None, (None, None), id="too few"),
        pytest.param(range(4), 0, None, ([0], [1, 2, 3]), id="fewest: one and the rest"),
        pytest.param(range(7), 0, None, ([0], [1, 2, 3, 4, 5, 6]), id="a fourth, rounded down"),
        pytest.param(range(8), 0, None, ([0, 1], [2, 3, 4, 5, 6, 7]), id="two at most"),
        pytest.param(range(32), 0, None, ([0, 1], list(range(2, 10))), id="eight for the server"),
        pytest.param(range(32), 8, None, ([0, 1], list(range(2, 14))), id="four beside those of media"),
        pytest.param([9, 3, 5, 7], 0, None, ([3], [5, 7, 9]), id="as they are numbered"),
        pytest.param(
            range(32),
            6,
            lambda count, workers: count // 8 + workers,
            ([0, 1], list(range(2, 12))),
            id="budget of one's own",
        ),
    ],
)
def test_cores_are_divided(
    monkeypatch: pytest.MonkeyPatch, allowed: Any, workers: int, budget: Any, expected: Any
) -> None:
    """
    The launcher keeps the first, the server gets the next.
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
    Once a launch, under exactly the name that is declared.
    """
    toolkit, module = ModuleType("rust_ext_loader"), fake_extension()
    load = MagicMock(return_value=module)
    toolkit.load_rust_extension = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rust_ext_loader", toolkit)

    RustServer.launch(StandIn())

    assert load.call_args_list == [call("sglang.srt.rust_extensions._server")]


def test_without_the_toolkit_a_plain_import_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A wheel has the module; what the toolkit itself raises is no reason to look elsewhere.
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


def drained(server: RustServer, sent: Sequence[wire.Request], max_recv: int = 0) -> list[wire.Request]:
    server.server.send(*sent)  # type: ignore[attr-defined]
    return server.drain(max_recv)


def test_each_request_gets_its_own_tokens() -> None:
    """
    Tokens of all requests arrive as one run, of which control messages have none.
    """
    server = RustServer(FakeServer(), 1)  # type: ignore[arg-type]
    sent: list[wire.Request] = [
        generate("a", [1, 2]),
        wire.AbortReq(rid="x"),
        generate("b", []),
        wire.FlushCacheReq(rid="y"),
        generate("c", [2**40, 0]),
    ]

    received = drained(server, sent)

    assert received == sent
    assert [request.input_ids for request in received if isinstance(request, wire.TokenizedGenerateReqInput)] == [
        array("q", [1, 2]),
        array("q"),
        array("q", [2**40, 0]),
    ]
    assert server.drain() == []


@pytest.mark.parametrize(("max_recv", "expected"), [(2, 2), (0, 4), (-1, 4), (9, 5)])
def test_a_poll_has_a_limit(max_recv: int, expected: int) -> None:
    """
    The one that is given, or the server's.
    """
    server = RustServer(FakeServer(), 1, max_per_poll=4)  # type: ignore[arg-type]

    assert len(drained(server, [generate(str(number)) for number in range(5)], max_recv)) == expected


def test_an_undecodable_message_fails_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    """
    Its client gets an error, and those behind it still get their own tokens.
    """
    fake = FakeServer()
    header = msgspec.msgpack.encode(["TokenizedGenerateReqInput", "bad", 5])
    fake.waiting += [(header, array("q", [7, 7, 7]).tobytes()), (b"\xc1", array("q", [8]).tobytes())]

    with caplog.at_level(logging.WARNING):
        received = drained(RustServer(fake, 1), [generate("good", [1])])  # type: ignore[arg-type]

    assert received == [generate("good", [1])]
    text = "undecodable request: Expected `str | null`, got `int` - at `TokenizedGenerateReqInput.http_worker_ipc`"
    assert fake.errors == {"bad": text}
    assert len(caplog.records) == 2


def test_results_of_media_are_taken_once_for_each_request() -> None:
    """
    Of generations alone, wrapped as the package wants it, and left out where a request has none.
    """

    class WithMedia(FakeServer):
        entries = {"a": 1, "x": 2}  # noqa: RUF012  # of one test

        def take_mm_result(self, rid: str) -> int | None:
            return self.entries.pop(rid, None)

    class OfModel(RustServer):
        def _wrap_mm_result(self, entry: Any) -> Any:
            return self.mm_spec, entry

    server = OfModel(WithMedia(), 1, mm_spec="spec")  # type: ignore[arg-type]
    received = drained(server, [generate("a"), generate("b"), wire.AbortReq(rid="x")])

    assert [getattr(request, "mm_inputs", "none") for request in received] == [("spec", 1), None, "none"]
    assert WithMedia.entries == {"x": 2}


def test_answers_go_to_who_asked() -> None:
    """
    A control result is a map; a step is a frame; after a shutdown nobody takes either.
    """
    fake = FakeServer()
    server = RustServer(fake, 1)  # type: ignore[arg-type]

    assert server.push_control_output(
        wire.FlushCacheReq(rid="f"), wire.FlushCacheReqOutput(success=True, message="done")
    )
    assert server.push_generation([wire.Step("g", [4, 5], 3)])
    server.shutdown()
    assert not server.push_generation([wire.Step("g", [6], 3)])
    assert fake.results == {"f": {"success": True, "message": "done"}}
    assert fake.pushed["g"].frames == [[4, 5], [6]]
    assert fake.pushed["g"].prompt_tokens == 3
