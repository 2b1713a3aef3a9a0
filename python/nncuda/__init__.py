"""Language-model kernels for NVIDIA GPUs and for the CPU, behind one C ABI.

>>> import nncuda
>>> from nncuda import kernels
>>> with nncuda.Context() as ctx:
...     x = ctx.tensor([[1.0, 2.0], [3.0, 4.0]])
...     y = kernels.softmax(x).numpy()
"""

from __future__ import annotations

from typing import Any

from .context import Context
from .errors import (
    ArgumentError,
    DeviceError,
    DeviceNotFoundError,
    Error,
    LibraryError,
    OutOfMemoryError,
    OutOfRangeError,
    StateError,
    UnsupportedError,
)
from .graphs import Graph
from .profiles import Profile, Trace
from .streams import Event, Stream
from .tensor import Tensor

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Context",
    "DeviceError",
    "DeviceNotFoundError",
    "Error",
    "Event",
    "Graph",
    "LibraryError",
    "OutOfMemoryError",
    "OutOfRangeError",
    "Profile",
    "StateError",
    "Stream",
    "Tensor",
    "Trace",
    "UnsupportedError",
    "from_dlpack",
]


def from_dlpack(array: Any, ctx: Context) -> Tensor:
    """A tensor of `ctx` over the memory of another library's array, without a copy: see `Context.from_dlpack`."""
    return ctx.from_dlpack(array)
