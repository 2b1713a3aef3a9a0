"""The table of speeds against what is asked of them, from the packed files that the calls of a session left.

    python tests/gpu/speeds.py FOLDER > speeds.md

FOLDER has call-*.tar.gz. A line without a figure says so: it was not measured.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nncuda.bench import step

#: Of an H200: dense bf16 products and memory, by its datasheet.
PEAK, MEMORY = 989e12, 4.8e12
Files = dict[str, Any]
#: The call that measures a variant beside the library's own lines, for it may be on another machine.
LAST = "call-4"


@dataclass(frozen=True)
class Line:
    """`figures` gives what was measured, a name and a value each; the least of them is held against `asked`."""

    what: str
    asked: float
    unit: str
    figures: Callable[[Files], list[tuple[str, float]]]


def read(folder: Path) -> Files:
    """The content of every JSON file that the calls left, by its name; of the last call, with the call's in front."""
    found: Files = {}
    for packed in sorted(folder.glob("call-*.tar.gz")):
        with tarfile.open(packed) as reader:
            for member in reader.getmembers():
                name = Path(member.name).name
                if name.endswith(".json") and not name.startswith("verified"):
                    stream = reader.extractfile(member)
                    assert stream is not None
                    own = name == "parts.json" or packed.name.startswith(LAST)
                    try:
                        found[f"{packed.name.split('.')[0]}-{name}" if own else name] = json.loads(stream.read())
                    except json.JSONDecodeError as error:  # of a part that was stopped while it wrote
                        print(f"{packed.name}: {name} is left out: {error}", file=sys.stderr)
    return found


def rows(files: Files, file: str, *texts: str, name: str | None = None) -> list[dict[str, Any]]:
    """Lines of the benchmark in whose group and name all texts are, as far as they were measured. `name` is a whole
    one: "T 16384 forward" is also a part of "T 16384 forward + backward"."""
    found = [r for r in files.get(file, {}).get("rows", []) if r["seconds"] and name in (None, r["name"])]
    return [r for r in found if all(text in f"{r['group']}, {r['name']}" for text in texts)]


def ratio(file: str, *texts: str) -> Callable[[Files], list[tuple[str, float]]]:
    """The peer's time over ours."""
    return lambda files: [(r["name"], r["ratio"]) for r in rows(files, file, *texts) if r["ratio"]]


def rate(file: str, *texts: str, name: str | None = None) -> Callable[[Files], list[tuple[str, float]]]:
    """TFLOP/s."""
    return lambda files: [(r["name"], r["flops"] / 1e12) for r in rows(files, file, *texts, name=name)]


def decoding(file: str) -> Callable[[Files], list[tuple[str, float]]]:
    """The share of the memory's bandwidth."""

    def figures(files: Files) -> list[tuple[str, float]]:
        return [(side["name"], side["bandwidth"] / MEMORY) for side in files.get(file, {}).get("sides", [])]

    return figures


def training(file: str, case: str) -> Callable[[Files], list[tuple[str, float]]]:
    """The share of the peak of the products."""

    def figures(files: Files) -> list[tuple[str, float]]:
        flops = {each.name: each.flops_a_token for each in step.gpu_cases()}
        found = [each for each in files.get(file, {}).get("steps", []) if each["name"].startswith(case)]
        return [(f["name"], f["tokens_per_second"]["nncuda"] * flops[f["name"]] / PEAK) for f in found]

    return figures


LONGEST = "T 16384 forward"
LINES = [
    Line("dense products bf16, of cuBLAS's speed", 0.95, "x", ratio("products.json", "products bf16")),
    Line("grouped products", 437, "TFLOP/s", rate("grouped.json", "grouped_gemm")),
    Line("attention forward, head_dim 64", 473, "TFLOP/s", rate("attention.json", "32 heads x 64", name=LONGEST)),
    Line("attention forward, head_dim 128", 650, "TFLOP/s", rate("attention.json", "heads x 128", name=LONGEST)),
    Line("attention forward + backward", 284, "TFLOP/s", rate("attention.json", "heads x", "forward + backward")),
    Line("decoding TinyLlama f16, of the memory's speed", 0.75, "", decoding("decode-tinyllama-f16.json")),
    Line("decoding TinyLlama q4_0, of the memory's speed", 0.60, "", decoding("decode-tinyllama-q4_0.json")),
    Line("training step of 6.9 B, of the products' peak", 0.45, "", training("step-6.9B.json", "6.9 B")),
]


def variants(files: Files) -> Iterator[tuple[str, str, float]]:
    """Each variant's speed beside the library's: name, line of the benchmark, how many times as fast it is."""
    last = tuple(file for file in files if file.startswith(f"{LAST}-usual-"))
    for own, call in ((("products.json", "grouped.json", "attention.json"), ""), (last, f"{LAST}-")):
        usual = {(row["group"], row["name"]): row["seconds"] for file in own for row in rows(files, file)}
        for file in files:
            if file.startswith(f"{call}variant-"):
                for row in rows(files, file):
                    if before := usual.get((row["group"], row["name"])):
                        yield file.removesuffix(".json"), f"{row['group']}, {row['name']}", before / row["seconds"]


def table(files: Files) -> str:
    text = ["| what | asked | least measured | where | |", "|---|---|---|---|---|"]
    for line in LINES:
        asked = f"{line.asked:g} {line.unit}".strip()
        figures = line.figures(files)
        if not figures:
            text.append(f"| {line.what} | {asked} | not measured | | |")
            continue
        name, value = min(figures, key=lambda each: each[1])
        mark = "reached" if value >= line.asked else "short"
        text.append(f"| {line.what} | {asked} | {value:.3g} {line.unit} | {name} | {mark} |")
    other = list(variants(files))
    if other:
        text += ["", "| variant | line | times as fast as the library |", "|---|---|---|"]
        text += [f"| {name} | {line} | {times:.2f} |" for name, line, times in other]
    order = files.get("fixed-order.json", {}).get("torch")
    if order:
        share = order["true"] / order["false"] - 1
        text += ["", f"torch's own determinism costs it {share:.1%} of a step; ours has no switch that turns it off."]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    if not list(Path(sys.argv[1]).glob("call-*.tar.gz")):
        raise SystemExit(f"{sys.argv[1]} has no call-*.tar.gz")
    print(table(read(Path(sys.argv[1]))), end="")
