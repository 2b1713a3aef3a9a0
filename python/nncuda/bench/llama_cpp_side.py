"""llama.cpp's side of `nncuda bench --model`, through the package llama-cpp-python; see model_worker.py.

It runs with that program's own defaults (weights mapped and repacked for the processor as it sees fit, f16 cache, flash
attention where it chooses it); threads, context and number of sequences are what the other side has.
"""

from __future__ import annotations

import ctypes
import time

import llama_cpp as api
import numpy as np

# The library keeps calling it as long as the process lives.
_QUIET = api.llama_log_callback(lambda level, text, data: None)


class LlamaCpp:
    """The methods of `Side`."""

    def __init__(self, model: str, threads: int, context: int, rows: int) -> None:
        self.name = f"llama.cpp (llama-cpp-python {api.__version__})"
        api.llama_log_set(_QUIET, ctypes.c_void_p(0))
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(model.encode(), api.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot open {model}")
        options = api.llama_context_default_params()
        # Each sequence has its own part of the cache.
        options.n_ctx, options.n_seq_max = context * rows, rows
        options.n_batch = max(context, 512)
        options.n_threads = options.n_threads_batch = threads
        self._context = api.llama_init_from_model(self._model, options)
        if not self._context:
            raise RuntimeError(f"llama.cpp makes no context for {context} tokens of {rows} sequences")
        self._vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self._batch = api.llama_batch_init(options.n_batch, 0, 1)
        self._next: list[int] = []
        self._positions: list[int] = []

    def logits(self, ids: list[int]) -> np.ndarray:
        """f32 [len(ids), vocabulary]: those after each token of a new sequence."""
        self._clear()
        self._run([(token, at, 0, True) for at, token in enumerate(ids)])
        return np.stack([self._logits_at(at) for at in range(len(ids))])

    def prefill(self, ids: list[int]) -> float:
        self._clear()
        began = time.perf_counter()
        self._read(0, ids)
        self._logits_at(-1)
        return time.perf_counter() - began

    def start(self, prompts: list[list[int]]) -> list[int]:
        self._clear()
        self._next, self._positions = [], [len(prompt) for prompt in prompts]
        for row, prompt in enumerate(prompts):
            self._read(row, prompt)
            self._next.append(int(self._logits_at(-1).argmax()))
        return self._next

    def step(self, count: int) -> tuple[float, float]:
        began, inside = time.perf_counter(), 0.0
        for _ in range(count):
            entered = time.perf_counter()
            self._run([(t, p, r, True) for r, (t, p) in enumerate(zip(self._next, self._positions, strict=True))])
            inside += time.perf_counter() - entered
            self._next = [int(self._logits_at(row).argmax()) for row in range(len(self._next))]
            self._positions = [position + 1 for position in self._positions]
        seconds = time.perf_counter() - began
        return seconds, seconds - inside

    def answer(self, ids: list[int], count: int) -> tuple[float, float]:
        began = time.perf_counter()
        self.start([ids])
        first = time.perf_counter() - began
        self.step(count - 1)
        return first, time.perf_counter() - began

    def tokens(self) -> list[int]:
        """The last token of each sequence."""
        return self._next

    def _clear(self) -> None:
        api.llama_memory_clear(api.llama_get_memory(self._context), False)

    def _read(self, row: int, ids: list[int]) -> None:
        self._run([(token, at, row, at == len(ids) - 1) for at, token in enumerate(ids)])

    def _run(self, tokens: list[tuple[int, int, int, bool]]) -> None:
        """Tokens with their position and sequence, and whether their logits are wanted."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for at, (token, position, row, wanted) in enumerate(tokens):
            batch.token[at], batch.pos[at], batch.logits[at] = token, position, wanted
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
        if status := api.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returned {status}")

    def _logits_at(self, at: int) -> np.ndarray:
        return np.ctypeslib.as_array(api.llama_get_logits_ith(self._context, at), (self._vocabulary,)).copy()


def open_side(model: str, threads: int, context: int, rows: int, device: str) -> LlamaCpp:
    if device != "cpu":
        raise ValueError(f"llama.cpp is measured on the CPU, not on {device}")
    return LlamaCpp(model, threads, context, rows)
