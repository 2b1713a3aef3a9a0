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
#: Files of the sides in Python: (this library's, llama.cpp's).
OURS, LLAMA_CPP = _HERE / "nncuda_side.py", _HERE / "llama_cpp_side.py"

#: Pieces that the decoded tokens of a round come in, a probe in front of each.
PIECES = 8


class SideFailed(RuntimeError):
    """A side could not be started, or could not do what it was asked for."""


@dataclass(frozen=True)
class Program:
    """A side to start: the command in front of the arguments that all sides take (model_worker.py). `ours` is whether
    it is this library, and `isa` the instruction set that it shall use, if not the widest. `model` is the file it
    reads, where that is another one than this library's."""

    command: tuple[str, ...]
    ours: bool = True
    isa: str | None = None
    model: Path | None = None

    @classmethod
    def in_python(cls, python: str, side: Path, ours: bool = True, isa: str | None = None) -> Program:
        """A side that is a file with a function `open_side`."""
        return cls((python, str(_HERE / "model_worker.py"), str(side)), ours, isa)

    def reads(self, model: Path) -> Path:
        """What it reads where `model` is measured."""
        return self.model or model


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
    value a piece: `share` is that of the memory's bandwidth, `outside` that of the time spent outside the library.
    `bandwidth` and `share` are empty where it reads another file than this library, whose bytes are not known."""

    name: str
    ours: bool = True
    isa: str | None = None
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
        self, program: Program, model: Path, threads: int, context: int, rows: int, device: str = "cpu"
    ) -> None:
        environment = {**os.environ, library.ENVIRONMENT_VARIABLE: os.path.abspath(library.load().path)}
        self._model = program.reads(model)
        numbers = map(str, (threads, context, rows))
        self._command = [*program.command, str(self._model), *numbers, device, *([program.isa] if program.isa else [])]
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        except OSError as error:
            raise SideFailed(f"{self._command[0]} cannot be started: {error.strerror or error}") from error
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
        try:
            self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the process is gone, as its answer says
        return self._answer()

    def memory(self) -> dict[str, int]:
        """Bytes of the process: the most that was resident at any time, what is resident now of the model's own file,
        and of memory that belongs to no file. Zeros where the system does not tell."""
        found = {"peak": 0, "file": 0, "anonymous": 0}
        own = Path(f"/proc/{self._process.pid}")
        try:
            for line in (own / "status").read_text().splitlines():
                if line.startswith(("VmHWM:", "RssAnon:")):
                    found["peak" if line.startswith("VmHWM:") else "anonymous"] = int(line.split()[1]) * 1024
            inside, real = False, os.path.realpath(self._model)
            for line in (own / "smaps").read_text().splitlines():
                if "-" in line.split(" ", 1)[0]:
                    file = line.partition("/")[2]
                    inside = file != "" and os.path.realpath("/" + file).startswith(real)
                elif inside and line.startswith("Rss:"):
                    found["file"] += int(line.split()[1]) * 1024
        except OSError:
            pass
        return found

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SideFailed(f"{' '.join(self._command[:3])} ended with {self._process.wait()}")
        try:
            content = json.loads(line)
        except ValueError as error:
            raise SideFailed(f"{self._command[0]} is no side of this benchmark: it wrote {line[:80]!r}") from error
        if "error" in content:
            raise SideFailed(content["error"])
        return content["result"]


def measure(
    model: Path,
    sides: Sequence[Program],
    threads: int,
    work: Work = Work(),
    doing: Callable[[str], None] = lambda what: None,
    device: str = "cpu",
    keep: Callable[[list[Figures]], None] = lambda figures: None,
) -> list[Figures]:
    """Runs the work on each side in turns; the first is ours. `keep` is given the figures once more before several
    sequences are decoded together: all but those."""
    config = StoredModel.open(model).config
    if config.context < work.context:
        raise SideFailed(f"the model has {config.context} tokens of context; this measures up to {work.context}")
    figures = [_load(model, side, threads, work, doing, device) for side in sides]
    probe = _probe(device, threads)
    rng = np.random.default_rng(0)

    def ids(count: int) -> list[int]:
        return rng.integers(3, config.vocab_size, count).tolist()

    workers: list[Worker] = []
    try:
        workers += [Worker(side, model, threads, work.context, 1, device) for side in sides]
        both = list(zip(workers, figures, strict=True))
        same_file = [side.reads(model) == model for side in sides]
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
                for (worker, found), same in zip(both, same_file, strict=True):
                    speed = probe()
                    seconds, outside = worker.ask("step", count)
                    found.decode.append(count / seconds)
                    if same:
                        found.bandwidth.append(read * count / seconds)
                        found.share.append(read * count / seconds / speed)
                    found.outside.append(outside / seconds)
        for worker, found in both:
            found.memory = worker.memory()
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


def _load(model: Path, side: Program, threads: int, work: Work, doing: Callable[[str], None], device: str) -> Figures:
    """Loads twice: when the system has nothing of the file in memory, as far as it releases it, and when it has."""
    doing("loading")
    prompt = list(range(3, 3 + work.prompt))
    read = side.reads(model)
    for path in sorted(read.glob("*.safetensors")) if read.is_dir() else [read]:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with Worker(side, model, threads, work.context, 1, device) as worker:
        found = Figures(worker.name, side.ours, side.isa, seconds_to_load_cold=worker.seconds_to_load)
        found.first_token_cold = worker.seconds_to_load + worker.ask("answer", prompt, 1)[0]
    with Worker(side, model, threads, work.context, 1, device) as worker:
        found.seconds_to_load = worker.seconds_to_load
    return found


def _batched(
    model: Path,
    sides: Sequence[Program],
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
        workers += [Worker(side, model, threads, context, max(work.batches), device) for side in sides]
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
