"""`nncuda bench --model`: how fast a stored model runs, beside the bandwidth of the memory and beside another program.

Each side is a process of its own (model_worker.py) that loads the same file and uses as many threads; on a GPU there is
this library's side alone. In every round the sides take turns, a probe of the memory in front of each piece of
decoding, so that a drift of the machine meets all of them alike; medians of the rounds count, and for shares and ratios
the medians of each round's own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..binding import library
from ..device import Context
from ..models.stored import StoredModel
from .ceilings import Bandwidth, DeviceBandwidth

_HERE = Path(__file__).parent
#: Files of the sides: (this library's, llama.cpp's).
OURS, LLAMA_CPP = _HERE / "nncuda_side.py", _HERE / "llama_cpp_side.py"

#: Pieces that the decoded tokens of a round come in, a probe in front of each.
PIECES = 8


class SideFailed(RuntimeError):
    """A side could not be started, or could not do what it was asked for."""


@dataclass(frozen=True)
class Work:
    """What is measured: tokens of the prefill; tokens decoded after a prompt; a prompt and its answer; rows decoded
    together, each after `batch_prompt` tokens, for `batch_steps` steps; rounds of all of it."""

    prefill: int = 512
    decode: int = 128
    prompt: int = 35
    answer: int = 50
    batches: tuple[int, ...] = (1, 4, 16, 32)
    batch_prompt: int = 16
    batch_steps: int = 16
    rounds: int = 3

    @classmethod
    def tiny(cls) -> Work:
        """To show that everything runs."""
        return cls(prefill=9, decode=8, prompt=5, answer=3, batches=(2,), batch_prompt=3, batch_steps=4, rounds=1)

    @property
    def context(self) -> int:
        """Tokens that the longest sequence has."""
        longest = max(self.prefill, self.prompt + self.decode, self.prompt + self.answer)
        return -(-(longest + 1) // 128) * 128


@dataclass
class Figures:
    """What one side did, a value a round. Seconds, tokens a second, bytes a second; of decoding, a
    value a piece: `share` is that of the memory's bandwidth, `outside` that of the time spent outside the library."""

    name: str
    seconds_to_load_cold: float = 0.0
    seconds_to_load: float = 0.0
    first_token_cold: float = 0.0
    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    bandwidth: list[float] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    first_token: list[float] = field(default_factory=list)
    answer: list[float] = field(default_factory=list)
    batched: dict[int, list[float]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)


class Worker:
    """A side's process. Raises SideFailed with the side's own words when it fails."""

    def __init__(
        self, python: str, side: Path, model: Path, threads: int, context: int, rows: int, device: str = "cpu"
    ) -> None:
        environment = {**os.environ, library.ENVIRONMENT_VARIABLE: os.path.abspath(library.load().path)}
        numbers = map(str, (threads, context, rows))
        command = [python, str(_HERE / "model_worker.py"), str(side), str(model), *numbers, device]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        except OSError as error:
            raise SideFailed(f"{python} cannot be started: {error.strerror or error}") from error
        try:
            opened = self._answer()
        except SideFailed:
            self.close()
            raise
        self.name: str = opened["name"]
        self.seconds_to_load: float = opened["seconds_to_load"]

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SideFailed(f"{' '.join(map(str, self._process.args[:3]))} ended with {self._process.wait()}")
        content = json.loads(line)
        if "error" in content:
            raise SideFailed(content["error"])
        return content["result"]


def measure(
    model: Path,
    sides: Sequence[tuple[str, Path]],
    threads: int,
    work: Work = Work(),
    doing: Callable[[str], None] = lambda what: None,
    device: str = "cpu",
    keep: Callable[[list[Figures]], None] = lambda figures: None,
) -> list[Figures]:
    """Runs the work on each side, given as (Python, file of the side), in turns; ours is the first. `keep` is given the
    figures once more before several sequences are decoded together: all but those."""
    config = StoredModel.open(model).config
    if config.context < work.context:
        raise SideFailed(f"the model has {config.context} tokens of context; this measures up to {work.context}")
    files = sorted(model.glob("*.safetensors")) if model.is_dir() else [model]
    figures = [_load(model, files, python, side, threads, work, doing, device) for python, side in sides]
    probe = _probe(device, threads)
    rng = np.random.default_rng(0)

    def ids(count: int) -> list[int]:
        return rng.integers(3, config.vocab_size, count).tolist()

    workers: list[Worker] = []
    try:
        workers += [Worker(python, side, model, threads, work.context, 1, device) for python, side in sides]
        both = list(zip(workers, figures, strict=True))
        for worker in workers:
            worker.ask("prefill", ids(work.prefill))  # brings the file into memory, and threads and arenas to size
        for number in range(work.rounds):
            doing(f"round {number + 1} of {work.rounds}")
            text = ids(work.prefill)
            for worker, found in both:
                found.prefill.append(work.prefill / worker.ask("prefill", text))
            text = ids(work.prompt)
            for worker, found in both:
                first, seconds = worker.ask("answer", text, work.answer)
                found.first_token.append(first)
                found.answer.append(seconds)
            for worker in workers:
                worker.ask("start", [text])
            for piece in range(PIECES):
                count = work.decode * (piece + 1) // PIECES - work.decode * piece // PIECES
                length = work.prompt + work.decode * piece // PIECES + count // 2
                read = workers[0].ask("bytes_per_step", [length])
                for worker, found in both:
                    speed = probe()
                    seconds, outside = worker.ask("step", count)
                    found.decode.append(count / seconds)
                    found.bandwidth.append(read * count / seconds)
                    found.share.append(read * count / seconds / speed)
                    found.outside.append(outside / seconds)
        for worker, found in both:
            found.memory = worker.ask("memory")
    finally:
        for worker in workers:
            worker.close()
    keep(figures)
    _batched(model, sides, threads, work, figures, ids, doing, device)
    return figures


def _probe(device: str, threads: int) -> Callable[[], float]:
    """Measures the bandwidth of the memory that the model is in, bytes a second: of a CPU, reading; of a GPU, copying,
    read and written bytes counted, with 1 GiB."""
    if device == "cpu":
        return Bandwidth(threads).read
    return DeviceBandwidth(Context(device), 1 << 29).copy


def _load(
    model: Path,
    files: Sequence[Path],
    python: str,
    side: Path,
    threads: int,
    work: Work,
    doing: Callable[[str], None],
    device: str,
) -> Figures:
    """Loads twice: when the system has nothing of the file in memory, as far as it releases it, and when it has."""
    doing("loading")
    prompt = list(range(3, 3 + work.prompt))
    for path in files:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with Worker(python, side, model, threads, work.context, 1, device) as worker:
        found = Figures(worker.name, seconds_to_load_cold=worker.seconds_to_load)
        found.first_token_cold = worker.seconds_to_load + worker.ask("answer", prompt, 1)[0]
    with Worker(python, side, model, threads, work.context, 1, device) as worker:
        found.seconds_to_load = worker.seconds_to_load
    return found


def _batched(
    model: Path,
    sides: Sequence[tuple[str, Path]],
    threads: int,
    work: Work,
    figures: list[Figures],
    ids: Callable[[int], list[int]],
    doing: Callable[[str], None],
    device: str,
) -> None:
    """Tokens a second of several sequences together."""
    if not work.batches:
        return
    context = -(-(work.batch_prompt + work.batch_steps + 1) // 128) * 128
    workers: list[Worker] = []
    try:
        workers += [Worker(python, side, model, threads, context, max(work.batches), device) for python, side in sides]
        for rows in work.batches:
            doing(f"{rows} sequences together")
            prompts = [ids(work.batch_prompt) for _ in range(rows)]
            for _ in range(work.rounds):
                for worker, found in zip(workers, figures, strict=True):
                    worker.ask("start", prompts)
                    worker.ask("step", 2)  # the first steps make what later ones reuse
                    seconds, _ = worker.ask("step", work.batch_steps - 2)
                    found.batched.setdefault(rows, []).append(rows * (work.batch_steps - 2) / seconds)
    finally:
        for worker in workers:
            worker.close()


def summary(figures: Figures) -> dict[str, Any]:
    """Medians of what was measured a round; what was measured once is as it is."""
    content = asdict(figures)
    content["batched"] = {str(rows): statistics.median(values) for rows, values in figures.batched.items()}
    for name, value in content.items():
        if isinstance(value, list):
            content[name] = statistics.median(value) if value else None
    return content


def ratios(ours: Figures, theirs: Figures) -> dict[str, Any]:
    """How many times as fast ours is: medians of each round's own ratio."""

    def median(one: list[float], other: list[float], rates: bool = True) -> float:
        return statistics.median(a / b if rates else b / a for a, b in zip(one, other, strict=True))

    return {
        "prefill": median(ours.prefill, theirs.prefill),
        "decode": median(ours.decode, theirs.decode),
        "first_token": median(ours.first_token, theirs.first_token, rates=False),
        "answer": median(ours.answer, theirs.answer, rates=False),
        "batched": {str(rows): median(ours.batched[rows], theirs.batched[rows]) for rows in ours.batched},
    }
