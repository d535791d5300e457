"""
What a server is started with: its settings, and the cores that it may use.

Invariant: every field of the extension's `ServerArgs` is given. One that is missing here is
refused when the server starts, not when it is needed.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Protocol

from sglang.srt.rust_server import context
from sglang.srt.rust_server.extension import load_extension

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    #: Cores for the server, given how many are allowed and how many threads work on media.
    CoreBudget = Callable[[int, int], int]
    #: Those that the launching thread keeps, and those of the server; `None`: not pinned.
    CorePlan = tuple[list[int] | None, list[int] | None]

#: The distribution whose version the server reports.
DISTRIBUTION = "sglang-rust-extensions"

#: Fewer cores than this are not divided.
_FEWEST_CORES = 4


class ModelConfig(Protocol):
    """
    What a server must know of a model.
    """

    @property
    def context_len(self) -> int:
        """
        Most tokens of prompt and answer together.
        """

    @property
    def vocab_size(self) -> int:
        """
        Token ids are below it.
        """

    @property
    def is_multimodal(self) -> bool:
        """
        Whether it takes media.
        """

    def get_default_sampling_params(self) -> Mapping[str, Any]:
        """
        What its makers advise.
        """


class ServedScheduler(Protocol):
    """
    The scheduler, as a server sees it.
    """

    @property
    def model_config(self) -> ModelConfig:
        """
        What a server must know of its model.
        """

    @property
    def max_total_num_tokens(self) -> int:
        """
        Tokens that all requests may have together.
        """

    def rust_server_tokenizer_path(self) -> str | None:
        """
        Where the tokenizer is; `None`: the built-in one serves.
        """

    def compute_num_reserved_tokens(self) -> int:
        """
        Tokens that a request needs beyond its prompt and its answer, for drafts.
        """


def _build_server_args(scheduler: ServedScheduler, *, extension: ModuleType | None = None) -> Any:  # noqa: ANN401  # a type of the extension
    """
    The `ServerArgs` of *extension*, by default that of this package.
    """
    extension = extension or load_extension()
    serving = context.get_serving()
    preferred = serving.preferred_sampling_params
    return extension.ServerArgs(
        model_path=serving.model_path,
        served_model_name=serving.served_model_name,
        tokenizer_path=scheduler.rust_server_tokenizer_path(),
        revision=serving.revision,
        load_format=serving.load_format,
        weight_version=serving.weight_version,
        host=serving.host,
        port=serving.port,
        log_level=serving.log_level,
        log_level_http=serving.log_level_http,
        chat_template=serving.chat_template,
        tool_call_parser=serving.tool_call_parser,
        reasoning_parser=serving.reasoning_parser,
        stream_response_default_include_usage=serving.stream_response_default_include_usage,
        tokenizer_worker_num=serving.tokenizer_worker_num,
        detokenizer_worker_num=serving.detokenizer_worker_num,
        skip_tokenizer_init=serving.skip_tokenizer_init,
        incremental_streaming_output=serving.incremental_streaming_output,
        disaggregation_mode=getattr(extension.DisaggregationMode, serving.disaggregation_mode.capitalize()),
        model_config=_build_model_config(scheduler.model_config, extension),
        preferred_sampling_params=None if preferred is None else json.dumps(preferred),
        limit_mm_data_per_request=dict(serving.limit_mm_data_per_request or {}),
        allow_auto_truncate=serving.allow_auto_truncate,
        enable_return_hidden_states=serving.enable_return_hidden_states,
        num_reserved_tokens=scheduler.compute_num_reserved_tokens(),
        version=_version(),
        max_total_num_tokens=scheduler.max_total_num_tokens,
    )


def _build_model_config(model: ModelConfig, extension: ModuleType) -> Any:  # noqa: ANN401  # a type of the extension
    return extension.ModelConfig(
        context_len=model.context_len,
        vocab_size=model.vocab_size,
        is_multimodal=model.is_multimodal,
        default_sampling_params=extension.DefaultSamplingParams(**model.get_default_sampling_params()),
    )


def _build_frontend_config(extension: ModuleType) -> dict[str, Any]:
    """
    The argument for a `FrontendConfig`, or none where its defaults serve.
    """
    frontend = context.get_frontend()
    given = {name: getattr(frontend, name) for name in frontend.__slots__ if getattr(frontend, name) is not None}
    return {"frontend_config": extension.FrontendConfig(**given)} if given else {}


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"  # run from its sources


def default_core_budget(allowed_core_count: int, mm_workers: int) -> int:  # noqa: ARG001  # others depend on it
    """
    How many cores a server may use where nobody says.
    """
    return max(8, mm_workers + 4)


def _partition_cores(mm_workers: int = 0, server_core_budget: CoreBudget | None = None) -> CorePlan:
    """
    Divide the cores of this process between the thread that launches the server and the server.

    The first go to the launcher: one or two, with a fourth of them all as the limit. The next go to the server, as many as
    *server_core_budget* says or fewer. Both are `None`, for threads that are not pinned, where there are too few cores or the
    platform does not tell.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    try:
        allowed = sorted(os.sched_getaffinity(0))
    except OSError:
        return None, None
    if len(allowed) < _FEWEST_CORES:
        return None, None
    launch = min(2, len(allowed) // 4)
    budget = (server_core_budget or default_core_budget)(len(allowed), mm_workers)
    return allowed[:launch], allowed[launch : launch + budget]
