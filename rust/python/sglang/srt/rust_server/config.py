"""
The arguments of the extension's `Server`: its settings, and the cores that it may use.

Invariant: every field of the extension's `ServerArgs` is given. A missing field is an error when the server starts,
not when the field is first used.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Protocol

from sglang.srt.rust_server import context
from sglang.srt.rust_server.extension import load_extension

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    #: Maps the number of allowed cores and the number of media worker threads to the number of cores for the server.
    CoreBudget = Callable[[int, int], int]
    #: The cores of the launching thread and the cores of the server. `None`: the threads are not pinned.
    CorePlan = tuple[list[int] | None, list[int] | None]

#: The distribution whose version the server reports.
DISTRIBUTION = "sglang-rust-extensions"

#: With fewer cores than this, no thread is pinned.
_MIN_CORES_TO_PIN = 4


class ModelConfig(Protocol):
    """
    The limits and defaults of a model that the server needs.
    """

    @property
    def context_len(self) -> int:
        """
        Maximum number of tokens of a prompt and its completion together.
        """

    @property
    def vocab_size(self) -> int:
        """
        Token ids are below this number.
        """

    @property
    def is_multimodal(self) -> bool:
        """
        Whether the model accepts media.
        """

    def get_default_sampling_params(self) -> Mapping[str, Any]:
        """
        Sampling parameters from the model's own configuration.
        """


class ServedScheduler(Protocol):
    """
    The part of a scheduler that the server needs.
    """

    @property
    def model_config(self) -> ModelConfig:
        """
        The limits and defaults of its model.
        """

    @property
    def max_total_num_tokens(self) -> int:
        """
        Maximum number of tokens of all running requests together.
        """

    def rust_server_tokenizer_path(self) -> str | None:
        """
        The path of the tokenizer; `None` selects the built-in byte tokenizer.
        """

    def compute_num_reserved_tokens(self) -> int:
        """
        Number of tokens in each context that are reserved for speculative drafts.
        """


def _build_server_args(scheduler: ServedScheduler, *, extension: ModuleType | None = None) -> Any:  # noqa: ANN401  # a class of the extension, which is loaded at run time
    """
    The `ServerArgs` of *extension*, by default of this package's own extension.
    """
    extension = extension or load_extension()
    serving = context.get_serving()
    preferred = serving.preferred_sampling_params
    settings = {each.name: getattr(serving, each.name) for each in fields(context.Serving)}
    settings |= {
        # The extension takes these fields in a different form.
        "disaggregation_mode": getattr(extension.DisaggregationMode, serving.disaggregation_mode.capitalize()),
        "preferred_sampling_params": None if preferred is None else json.dumps(preferred),
        "limit_mm_data_per_request": dict(serving.limit_mm_data_per_request or {}),
        # The scheduler supplies these fields.
        "tokenizer_path": scheduler.rust_server_tokenizer_path(),
        "model_config": _build_model_config(scheduler.model_config, extension),
        "num_reserved_tokens": scheduler.compute_num_reserved_tokens(),
        "max_total_num_tokens": scheduler.max_total_num_tokens,
        "version": _version(),
    }
    return extension.ServerArgs(**settings)


def _build_model_config(model: ModelConfig, extension: ModuleType) -> Any:  # noqa: ANN401  # as above
    return extension.ModelConfig(
        context_len=model.context_len,
        vocab_size=model.vocab_size,
        is_multimodal=model.is_multimodal,
        default_sampling_params=extension.DefaultSamplingParams(**model.get_default_sampling_params()),
    )


def _build_frontend_config(extension: ModuleType) -> dict[str, Any]:
    """
    The keyword argument `frontend_config` for the extension's `Server`; empty if every setting has its default.
    """
    frontend = context.get_frontend()
    settings = {each.name: getattr(frontend, each.name) for each in fields(context.Frontend)}
    given = {name: value for name, value in settings.items() if value is not None}
    return {"frontend_config": extension.FrontendConfig(**given)} if given else {}


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"  # not installed: run from a checkout


def default_core_budget(allowed_core_count: int, mm_workers: int) -> int:  # noqa: ARG001  # signature of `CoreBudget`
    """
    The number of cores for a server, unless a subclass overrides it.
    """
    return max(8, mm_workers + 4)


def _partition_cores(mm_workers: int = 0, server_core_budget: CoreBudget | None = None) -> CorePlan:
    """
    Divide the cores of this process between the launching thread and the server.

    The launching thread gets the first two cores, or the first one if there are fewer than eight. The server gets the
    next cores: as many as *server_core_budget* returns, or all that are left. Both are `None` (not pinned) if there are
    fewer than four cores or the platform does not report them.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    try:
        allowed = sorted(os.sched_getaffinity(0))
    except OSError:
        return None, None
    if len(allowed) < _MIN_CORES_TO_PIN:
        return None, None
    launch = min(2, len(allowed) // 4)
    budget = (server_core_budget or default_core_budget)(len(allowed), mm_workers)
    return allowed[:launch], allowed[launch : launch + budget]
