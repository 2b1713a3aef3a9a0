"""This library's side of `nncuda bench --model`; see model_worker.py."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from nncuda import __version__
from nncuda.device import Context, Graph
from nncuda.infer.language_model import LanguageModel
from nncuda.infer.scheduler import Request
from nncuda.models.stored import StoredModel


class _Clock:
    """Seconds that graphs ran: what a step of decoding spends in the library, but for copying the drawn ids."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._launch = Graph.launch

    def __enter__(self) -> _Clock:
        launch = self._launch

        def timed(graph: Graph, *arguments: Any) -> None:
            began = time.perf_counter()
            launch(graph, *arguments)
            self.seconds += time.perf_counter() - began

        Graph.launch = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Graph.launch = self._launch  # type: ignore[method-assign]


class Nncuda:
    """The methods of `Side`."""

    def __init__(self, model: LanguageModel, context: int) -> None:
        self.name = f"nncuda {__version__}"
        self._model = model
        self._context = context
        self._requests: list[Request] = []

    def prefill(self, ids: list[int]) -> float:
        self._end()
        began = time.perf_counter()
        self._begin([ids], 1)
        return time.perf_counter() - began

    def start(self, prompts: list[list[int]]) -> list[int]:
        self._end()
        self._begin(prompts, None)
        return [request.tokens[0] for request in self._requests]  # some have more by now

    def step(self, count: int) -> tuple[float, float]:
        with _Clock() as inside:
            began = time.perf_counter()
            for _ in range(count):
                self._model.scheduler.step()
            seconds = time.perf_counter() - began
        return seconds, seconds - inside.seconds

    def answer(self, ids: list[int], count: int) -> tuple[float, float]:
        self._end()
        began = time.perf_counter()
        self._begin([ids], count)
        first = time.perf_counter() - began
        while self._requests[0].finish is None:
            self._model.scheduler.step()
        return first, time.perf_counter() - began

    def bytes_per_step(self, lengths: list[int]) -> int:
        """Bytes that a step must read at least when the sequences have that many tokens."""
        return self._model.engine.bytes_per_step(lengths)

    def _begin(self, prompts: list[list[int]], count: int | None) -> None:
        """Adds prompts, each for `count` tokens or for all that fit, and runs until each has its first."""
        for prompt in prompts:
            room = self._context - len(prompt) if count is None else count
            self._requests.append(Request(np.asarray(prompt, np.int32), room))
            self._model.scheduler.add(self._requests[-1])
        while not all(request.drawn for request in self._requests):
            self._model.scheduler.step()

    def _end(self) -> None:
        for request in self._requests:
            self._model.scheduler.cancel(request)
        self._requests.clear()


def open_side(model: str, threads: int, context: int, rows: int, device: str, isa: str | None = None) -> Nncuda:
    options = {"context": context, "cache_tokens": context * rows, "max_batch": rows, "weights": "auto"}
    ctx = Context(device, threads=threads if device == "cpu" else None, isa=isa)
    return Nncuda(LanguageModel(StoredModel.open(model), ctx, **options), context)
