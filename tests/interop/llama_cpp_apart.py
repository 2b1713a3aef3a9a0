"""llama.cpp in a thread of its own, beside which this library may run in the same process.

Its kernels for AMX load a configuration of tiles once a thread and expect it to stay, though the calling convention
makes it the callee's to change (x86-64 psABI, 3.2.1). This library's kernels release the tiles when they are done; on
the same thread llama.cpp then ends in an illegal instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nncuda.bench import llama_cpp_side


class LlamaCpp:
    """The methods of `llama_cpp_side.LlamaCpp`, with one worker thread: the one that calls it."""

    def __init__(self, *arguments: Any) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._side = self._thread.submit(llama_cpp_side.LlamaCpp, *arguments).result()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._side, name)
        return lambda *arguments: self._thread.submit(method, *arguments).result()
