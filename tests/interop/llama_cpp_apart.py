"""llama.cpp in a thread of its own, beside which this library may run in the same process.

Its kernels for AMX load a configuration of tiles once a thread and expect it to stay, though the calling convention
makes it the callee's to change (x86-64 psABI, 3.2.1). This library's kernels release the tiles when they are done; on
the same thread llama.cpp then ends in an illegal instruction.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llama_cpp as api
import numpy as np

from nncuda.bench import llama_cpp_side


class _Side(llama_cpp_side.LlamaCpp):
    def greedy(self, ids: list[int], count: int) -> np.ndarray:
        """i32 [count]: the tokens that follow a new sequence, each the likeliest."""
        tokens = self.start([ids])[:]
        for _ in range(count - 1):
            self.step(1)
            tokens += self.tokens()
        return np.array(tokens, np.int32)

    def adapt(self, path: str) -> None:
        """Puts the adapter of a GGUF file beside the model."""
        adapter = api.llama_adapter_lora_init(self._model, path.encode())
        if not adapter:
            raise RuntimeError(f"llama.cpp cannot open {path} beside its model")
        adapters = (api.llama_adapter_lora_p_ctypes * 1)(adapter)
        if status := api.llama_set_adapters_lora(self._context, adapters, 1, (ctypes.c_float * 1)(1.0)):
            raise RuntimeError(f"llama_set_adapters_lora returned {status}")


class LlamaCpp:
    """The methods of `_Side`, with one worker thread: the one that calls it."""

    def __init__(self, *arguments: Any) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._side = self._thread.submit(_Side, *arguments).result()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._side, name)
        return lambda *arguments: self._thread.submit(method, *arguments).result()
