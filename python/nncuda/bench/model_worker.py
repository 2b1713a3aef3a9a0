"""One side of `nncuda bench --model` in a process of its own: a model that runs what its standard input asks for.

    python model_worker.py SIDE.py MODEL THREADS CONTEXT ROWS DEVICE [ISA]

SIDE.py has a function `open_side(model, threads, context, rows, device)` that gives an object with the methods of
`Side`; this library's takes the name of an instruction set, too. It has its own process, and perhaps its own Python, so
that its memory and its threads are its own; hence this file imports nothing but the standard library. A request is a
line of JSON, [method, arguments...], the answer another: {"result": ...} or {"error": ...}. The first line of all is
the answer to being opened: {"result": {"name": ..., "seconds_to_load": ...}}. A program in another language that takes
MODEL THREADS CONTEXT ROWS DEVICE and answers so is a side as well.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from typing import Any, Protocol


class Side(Protocol):
    """Sequences start afresh with each call but `step`; tokens are chosen greedily and read back one by one. Times in
    seconds."""

    #: The program and its version.
    name: str

    def prefill(self, ids: list[int]) -> float:
        """Time of reading so many ids, until the logits of the last are there."""

    def start(self, prompts: list[list[int]]) -> list[int]:
        """Reads prompts and gives their next tokens."""

    def step(self, count: int) -> tuple[float, float]:
        """Time of `count` more tokens for each prompt of `start`; and how much of it was spent outside the library."""

    def answer(self, ids: list[int], count: int) -> tuple[float, float]:
        """Time until the first token after a prompt, and until the last of `count`."""


def main() -> None:
    side_file, model, threads, context, rows, device, *isa = sys.argv[1:]
    # The answers have the process's standard output for themselves: libraries that print are sent elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path[:] = [
        each for each in sys.path if os.path.realpath(each or ".") != os.path.dirname(os.path.realpath(__file__))
    ]

    def say(**content: Any) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        spec = importlib.util.spec_from_file_location("side", side_file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        began = time.perf_counter()
        side: Side = module.open_side(model, int(threads), int(context), int(rows), device, *isa)
        say(result={"name": side.name, "seconds_to_load": time.perf_counter() - began})
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}")
        raise SystemExit(1) from error
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            say(result=getattr(side, method)(*arguments))
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
