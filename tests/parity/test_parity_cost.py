"""What a language costs beside the library: not how fast, but that it is measured alike, and that nothing grows."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import languages
import pytest
from runs import Workshop

from nncuda.bench.inference import bytes_a_token
from nncuda.models import MoEConfig
from tools import language_bench as bench

STEPS, EVERY = 2800, 50
#: What a line of `bench inference` tells, and what Python's tells besides.
INFERENCE = [
    "parameters", "active_parameters", "precision", "threads", "prompt", "tokens", "seconds_to_make",
    "seconds_to_first_token", "tokens_per_second", "bytes_a_token", "bytes_per_second", "bytes_peak", "bytes_grown",
]  # fmt: skip
PROBED = [
    "resident_when_made", "read_bytes_per_second", "share", "bytes_per_cpu_second", "read_bytes_per_cpu_second",
]  # fmt: skip
#: What may still come in 1000 steps: half a KiB a step, less than any tensor or record of a step takes.
GROWTH = 1 << 19
#: Go's runtime starts a thread more when it likes to; one a step, or a call, would be thousands.
THREADS = 2


@pytest.mark.case("the benchmark's worker")
def test_worker(workshop: Workshop, language: languages.Language) -> None:
    """It does what it is asked, on the same options and data as the commands, and says what it measured."""
    arguments = [*workshop.options("ragged"), "--data", workshop.folder / "shards", "--steps", 3, "--decode", 4]
    line = bench.measure_once(language.bench, [*map(str, arguments), "--threads", "1"])
    assert list(line) == ["language", *(key for key, _, _ in bench.MEASURES), "threads"]
    assert line["language"] == language.name and line["threads"] == 1
    assert 10 < line["call_nanoseconds"] < 1e6 and line["train_tokens_per_second"] > 100


@pytest.mark.case("the benchmark of inference")
def test_inference(language: languages.Language) -> None:
    """The same model, and the same bytes a token, from each; the probe of the memory is Python's."""
    options = ["--preset", "small", "--precision", "bf16", "--prompt", 20, "--tokens", 5, "--threads", 1, "--json"]
    line = json.loads(language.run("bench", "inference", *options).stdout)
    names = [*INFERENCE, *PROBED] if language.name == "python" else INFERENCE
    assert list(line) == ["language", *names] and line["language"] == language.name
    assert (line["parameters"], line["prompt"], line["tokens"], line["threads"]) == (15_345_920, 20, 5, 1)
    assert line["bytes_a_token"] == bytes_a_token(MoEConfig.preset("small"), "bf16", 24) and line["bytes_grown"] == 0
    assert 2 * 15_345_920 < line["bytes_peak"] < 2.2 * 15_345_920


def test_shortfalls() -> None:
    """The bars of the comparison: 3 % between compiled languages, 10 % for Python, in both tokens a second."""

    def medians(python: float, go: float, rust: float) -> dict[str, dict[str, float]]:
        speeds = {"python": python, "go": go, "rust": rust}
        return {name: {key: speed for key, _, _ in bench.MEASURES} for name, speed in speeds.items()}

    assert bench.shortfalls(medians(91, 98, 100)) == [] == bench.shortfalls({"python": medians(1, 1, 1)["python"]})
    assert bench.shortfalls(medians(101, 100, 99)) == []
    assert [text.split(" is ")[0] for text in bench.shortfalls(medians(89, 96, 100))] == [
        f"{kind}, tokens/s: {language}" for kind in ("training", "decoding") for language in ("python", "go")
    ]


@pytest.mark.case("no growth of memory or threads over 1000 steps")
def test_nothing_grows(workshop: Workshop, language: languages.Language, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resident memory and threads of the command, from its own account, around step 1600 and around step 2600."""
    # Go collects garbage when the heap has grown by this share, at first only at 4 MiB: so that what is held shows.
    monkeypatch.setenv("GOGC", "10")
    run = workshop.folder / "runs" / f"long-{language.name}"
    flags = ["--steps", STEPS, "--log-every", EVERY, "--save-every", 0, "--eval-every", 0, "--threads", 2]
    resident, threads = [], []
    with language.start("train", run, *workshop.options("small"), *flags) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["step"] < STEPS:
                resident.append(_account(process.pid, "VmRSS") * 1024)
                threads.append(_account(process.pid, "Threads"))
    assert process.returncode == 0 and len(resident) == STEPS // EVERY - 1
    early, late = slice(28, 36), slice(48, 56)
    before, after = statistics.median(resident[early]), statistics.median(resident[late])
    assert after - before <= GROWTH, f"from {before / 1024:.0f} KiB to {after / 1024:.0f} KiB"
    assert max(threads[late]) - max(threads[early]) <= THREADS, threads


def _account(pid: int, field: str) -> int:
    """A line of a process's own account."""
    with open(Path("/proc") / str(pid) / "status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{field}:"))
