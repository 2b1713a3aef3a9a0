"""Language-model kernels for NVIDIA GPUs and for the CPU, behind one C ABI.

>>> import nncuda
>>> from nncuda import kernels
>>> with nncuda.Context() as ctx:
...     x = ctx.tensor([[1.0, 2.0], [3.0, 4.0]])
...     y = kernels.softmax(x).numpy()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .device import (
    Comm,
    Context,
    Event,
    ExpertEvent,
    Graph,
    Profile,
    Stream,
    Tensor,
    Trace,
    expert_schedule,
    expert_shards,
    replica_merges,
    shard,
)
from .errors import (
    ArgumentError,
    DeviceError,
    DeviceNotFoundError,
    Error,
    LibraryError,
    OutOfMemoryError,
    OutOfRangeError,
    PeerError,
    StateError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from . import kernels, layers, models, reference
    from .infer import LanguageModel, Sampling, serve_experts
    from .infer.contiguous import generate
    from .models import MoEConfig, MoETransformer
    from .train import TrainConfig, Trainer

# The one place of the version: the library, the packages and their metadata read it here; Cargo.toml and Go repeat it.
__version__ = "0.2.0"

# Imported when first asked for, so that `import nncuda` costs no more than contexts and tensors do.
_LATER = {
    "LanguageModel": "infer",
    "MoEConfig": "models",
    "MoETransformer": "models",
    "Sampling": "infer",
    "TrainConfig": "train",
    "Trainer": "train",
    "generate": "infer",
    "kernels": "",
    "layers": "",
    "models": "",
    "reference": "",
    "serve_experts": "infer",
}

__all__ = [
    "ArgumentError",
    "Comm",
    "Context",
    "DeviceError",
    "DeviceNotFoundError",
    "Error",
    "Event",
    "ExpertEvent",
    "Graph",
    "LanguageModel",
    "LibraryError",
    "MoEConfig",
    "MoETransformer",
    "OutOfMemoryError",
    "OutOfRangeError",
    "PeerError",
    "Profile",
    "Sampling",
    "StateError",
    "Stream",
    "Tensor",
    "Trace",
    "TrainConfig",
    "Trainer",
    "UnsupportedError",
    "expert_schedule",
    "expert_shards",
    "from_dlpack",
    "generate",
    "kernels",
    "layers",
    "models",
    "reference",
    "replica_merges",
    "serve_experts",
    "shard",
]


if not TYPE_CHECKING:  # to a type checker, any name at all would be one of this module

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module 'nncuda' has no attribute {name!r}")
        if not _LATER[name]:
            return importlib.import_module(f".{name}", __name__)
        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


def from_dlpack(array: Any, ctx: Context) -> Tensor:
    """A tensor of `ctx` over the memory of another library's array, without a copy: see `Context.from_dlpack`."""
    return ctx.from_dlpack(array)
