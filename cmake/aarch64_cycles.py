"""The table of inner loops on AArch64 in docs/building.md: what LLVM's models of processors say of a build's.
An estimate: no processor has run them, and these models have no memory.

    python cmake/aarch64_cycles.py build/aarch64 docs/building.md           # writes it anew, between its marks
    python cmake/aarch64_cycles.py --check build/aarch64 docs/building.md   # fails when it would say something else

Of a source's object, the table has the innermost loop with the most of a given instruction. llvm-mca counts its cycles,
and what as many of that instruction take that wait for nothing: the share is of that peak, which is the model's own.
LLVM's model for Apple's M1 is that of an older core, Cyclone, and counts a product by one element as less work than one
of two vectors: there a share of a peak would say nothing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BEGIN, END = "<!-- loops: made by cmake/aarch64_cycles.py -->", "<!-- end of the loops -->"

#: The names that LLVM has for processors, and those in the table.
MODELS = {"neoverse-v1": "Neoverse V1", "neoverse-v2": "Neoverse V2", "apple-m1": "Apple M1"}
#: Models whose peak is not that of the loops.
UNEVEN = ("apple-m1",)
ITERATIONS = 200


@dataclass(frozen=True)
class Row:
    """A loop by its instruction set, source, the start of its function's name, and the instruction that it is for."""

    isa: str
    source: str
    function: str
    opcode: str
    what: str


ROWS = (
    Row("neon", "gemm", "", "fmla", "tile of a product in f32"),
    Row("neon", "attention_flash", "score_tile_full", "fmla", "attention, queries times keys"),
    Row("neon", "attention_flash", "value_tile_full", "fmla", "attention, powers times values"),
    Row("neon", "attention_paged", "page_part_F16", "fmla", "attention over pages in f16, decoding"),
    Row("dotprod", "quant_gemm", "columns_q4_0_r16", "sdot", "weights in q4_0, side by side"),
    Row("i8mm", "quant_gemm", "columns_q4_0_r16", "smmla", "the same"),
    Row("dotprod", "quant_gemm", "columns_q8_0_r16", "sdot", "weights in q8_0, side by side"),
    Row("i8mm", "quant_gemm", "columns_q8_0_r16", "smmla", "the same"),
    Row("dotprod", "quant_gemm", "columns_q6_k_r16", "sdot", "weights in q6_k, side by side"),
    Row("dotprod", "ternary_gemm", "vector_product", "sdot", "ternary weights"),
    Row("i8mm", "ternary_gemm", "vector_product", "smmla", "the same"),
)

#: One instruction of each kind that reads nothing which another writes.
_FREE = {
    "fmla": "fmla v{0}.4s, v30.4s, v31.4s",
    "sdot": "sdot v{0}.4s, v30.16b, v31.16b",
    "smmla": "smmla v{0}.4s, v30.16b, v31.16b",
}
_BYTES = {"q": 16, "d": 8, "s": 4, "x": 8, "w": 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("build", type=Path)
    parser.add_argument("page", type=Path)
    arguments = parser.parse_args()
    text = arguments.page.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    made = f"{before}{BEGIN}\n{table(arguments.build)}{END}{after}"
    if arguments.check and made != text:
        sys.exit(f"{arguments.page} has other loops than {arguments.build}; write it with {sys.argv[0]}")
    if not arguments.check:
        arguments.page.write_text(made)


def table(build: Path) -> str:
    heads = ["loop", "instruction set", "it has", "instructions", "bytes loaded", *MODELS.values()]
    lines = [heads, ["---"] * len(heads)]
    for row in ROWS:
        loop = inner_loop(build, row)
        count = counted(loop, row.opcode)
        free = [_FREE[row.opcode].format(i) for i in range(24)]
        cells = []
        for model in MODELS:
            taken, peak = analysed(loop, model)[0], analysed(free, model)[1] * count / len(free)
            share = f", {100 * peak / taken:.0f} %" if model not in UNEVEN else ""
            cells.append(f"{taken:.1f} cycles{share}")
        loaded = sum(map(bytes_loaded, loop))
        lines.append([row.what, f"`{row.isa}`", f"{count} `{row.opcode}`", str(len(loop)), str(loaded), *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("| --- ", "|---").replace("--- |", "---|")


def inner_loop(build: Path, row: Row) -> list[str]:
    """The instructions of the loop of `row`, in the order of the code. Raises SystemExit when there is none."""
    file = build / f"CMakeFiles/nncuda_cpu_{row.isa}.dir/cuda/cpu/{row.source}.c.o"
    found = [loop for name, code in functions(file) if name.startswith(row.function) for loop in innermost(code)]
    loop = max(found, key=lambda one: counted(one, row.opcode), default=[])
    if not counted(loop, row.opcode):
        sys.exit(f"{file} has no loop with {row.opcode} in a function {row.function}*")
    return loop


def functions(file: Path) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Each function of an object, and its instructions with their addresses."""
    command = ["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", str(file)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for part in re.split(r"\n(?=[0-9a-f]{16} <)", listing)[1:]:
        lines = re.findall(r"^ *([0-9a-f]+):\t(.*?)(?:\s*//.*)?$", part, re.M)
        yield part[part.index("<") + 1 : part.index(">")], [(int(at, 16), code.strip()) for at, code in lines]


def innermost(code: list[tuple[int, str]]) -> Iterator[list[str]]:
    """The loops of a function that have none inside: from the target of a jump back to that jump."""
    spans = []
    for at, text in code:
        jump = re.match(r"(?:b\.\w+|b|cbn?z|tbn?z)\t(?:.*, )?([0-9a-f]+) <", text)
        if jump and int(jump[1], 16) < at:
            spans.append((int(jump[1], 16), at))
    for begin, end in spans:
        if not any((a, b) != (begin, end) and begin <= a and b <= end for a, b in spans):
            yield [text for at, text in code if begin <= at <= end]


def counted(loop: list[str], opcode: str) -> int:
    return sum(text.split("\t")[0] == opcode for text in loop)


def bytes_loaded(text: str) -> int:
    """What a load brings, 0 for all else."""
    opcode, _, operands = text.partition("\t")
    if opcode in ("ldrb", "ldrsb"):
        return 1
    if opcode in ("ldrh", "ldrsh"):
        return 2
    if opcode in ("ldr", "ldur", "ldp"):
        size = 2 if operands[0] == "h" else 1 if operands[0] == "b" else _BYTES[operands[0]]
        return size * (2 if opcode == "ldp" else 1)
    lanes = re.match(r"\{(.*)\}", operands)
    if opcode.startswith("ld") and lanes:
        vectors = lanes[1].split(", ")
        if len(vectors) == 1 and "-" in lanes[1]:
            first, last = re.findall(r"v(\d+)", lanes[1])
            vectors = vectors * (int(last) - int(first) + 1)
        count, unit = re.search(r"\.(\d*)([bhsd])", lanes[1]).groups()  # type: ignore[union-attr]
        whole = {"b": 1, "h": 2, "s": 4, "d": 8}[unit] * (1 if opcode.endswith("r") else int(count or 1))
        return whole * len(vectors)
    return 0


def analysed(loop: list[str], model: str) -> tuple[float, float]:
    """Cycles of one iteration in a long run of them, and those it would take if nothing had to wait for a result."""
    program = next((path for name in ("llvm-mca-19", "llvm-mca") if (path := shutil.which(name))), None)
    if program is None:
        sys.exit("llvm-mca is missing; in Debian: apt-get install llvm-19")
    text = "\n".join(re.sub(r"[0-9a-f]+ <.*>$", "elsewhere", line) for line in loop)
    command = [program, "-mtriple=aarch64", f"-mcpu={model}", "-mattr=+dotprod,+i8mm", f"-iterations={ITERATIONS}"]
    done = subprocess.run(command, input=text + "\n", capture_output=True, text=True)
    found = re.search(r"^Total Cycles: +(\d+)$.*^Block RThroughput: +([\d.]+)$", done.stdout, re.M | re.S)
    if not found:
        sys.exit(f"{program} cannot take this loop: {done.stderr}")
    return int(found[1]) / ITERATIONS, float(found[2])


if __name__ == "__main__":
    main()
