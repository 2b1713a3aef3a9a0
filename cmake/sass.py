"""What the machine code of kernels shows: loads under way, work between two waits, instructions that should not be.

    python cmake/sass.py build/cuda/CMakeFiles/nncuda_cuda.dir/cuda/kernels/gemm_rows.cu.o cuda/kernels/gemm_rows.cu

says for each kernel of the object what the sources wish of it, and fails when a wish is not met. `make cuda` does so
for all files (cmake/ptxas_report.py). A wish stands beside the kernel, in a comment of its own that begins so:

    // sass: nn_flash_wgmma_kernel<nn_bf16> on sm_90a: at least 66 MUFU.EX2 between waits, no CALL in loops

The name may go on with the first template arguments. Without `on`, the wish holds for every architecture. It is a list
of

    at least N, at most N, or no    OPCODE    nothing more, `in loops`, `between waits`, `out of turn` or `under way`
    at least N, at most N           registers

OPCODE is the start of one, further parts of it in any order: LDG.128 is also LDG.E.128.CONSTANT. What is counted:

    nothing more     instructions of the whole kernel
    in loops         those that the flow of control may come to again
    between waits    those after a wait for all but the last group of wgmma products, up to the next wait: what runs
                     while that group does. Where there are several such places, the most
    out of turn      those that do not lie after a BAR.SYNC and before the next BAR.ARV: who takes turns waits at a
                     barrier for its own, and passes it on by arriving at the next one's
    under way        the most that have been issued and not waited for, by the scoreboards in the instructions' control
                     bits; in loops, where there are some there. A loop counts what it started itself
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TOOLCHAIN = Path(__file__).resolve().parents[1] / "build" / "cuda-toolchain" / "13" / "bin"

HEAD = re.compile(r"^\s*(?:code for (?P<arch>sm_\w+)|Function : (?P<symbol>\S+))\s*$")
LINE = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;?\s*/\* 0x([0-9a-f]{16}) \*/"
)
SECOND = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
TARGET = re.compile(r"(?:^|\s)0x([0-9a-f]+)$")

WISHES = re.compile(
    r"^\s*(?://|/?\*)\s*sass: (\w+)(?:<([\w, ]+)>)?(?: on (sm_\w+(?:, sm_\w+)*))?: (\S.*?)\s*(?:\*/)?$", re.MULTILINE
)
WISH = re.compile(
    r"(?:(at least|at most) (\d+)|no) "
    r"(?:(registers)|([A-Z][A-Z0-9]+(?:\.\w+)*)(?: (in loops|between waits|out of turn|under way))?)"
)


@dataclass(frozen=True)
class Instruction:
    """One instruction. A scoreboard is a counter, 0 to 5, of results that are still to come."""

    at: int
    predicate: str
    opcode: str
    operands: str
    sets: int | None  # the scoreboard that counts its result
    waits: frozenset[int]  # the scoreboards that must be 0 before it is issued

    @property
    def target(self) -> int | None:
        """Where a branch goes, if it says so."""
        match = TARGET.search(self.operands) if self.opcode.split(".")[0] == "BRA" else None
        return int(match[1], 16) if match else None

    @property
    def ends(self) -> bool:
        """What follows is not reached from here."""
        return (
            not self.predicate
            and self.opcode.split(".")[0] in ("BRA", "BRX", "EXIT", "RET", "JMP")
            and (self.opcode != "BRA.DIV")
        )

    def is_a(self, wanted: str) -> bool:
        first, *others = wanted.split(".")
        name, *parts = self.opcode.split(".")
        return name == first and set(others) <= set(parts)


@dataclass
class Kernel:
    """The machine code of a function for one architecture."""

    symbol: str
    arch: str
    code: list[Instruction] = field(default_factory=list)

    def successors(self) -> list[list[int]]:
        """Which instructions may come after each, by their places in `code`."""
        places = {instruction.at: place for place, instruction in enumerate(self.code)}
        meets: dict[str, int] = {}  # where the warps that part at BSSY go on together
        following: list[list[int]] = []
        for place, instruction in enumerate(self.code):
            name = instruction.opcode.split(".")[0]
            goes = [] if instruction.ends or place + 1 == len(self.code) else [place + 1]
            if name == "BSSY" and (match := re.match(r"(\w+), 0x([0-9a-f]+)", instruction.operands)):
                meets[match[1]] = int(match[2], 16)
            target = meets.get(instruction.operands) if name == "BSYNC" else instruction.target
            if target in places:
                goes.append(places[target])
            following.append(goes)
        return following

    def loops(self) -> tuple[set[int], set[int]]:
        """The addresses of what may run again and again, and of where it begins anew."""
        following = self.successors()
        number = [0] * len(following)  # Tarjan's strongly connected components, without recursion
        low = [0] * len(following)
        part = [-1] * len(following)
        count = 0
        for root in range(len(following)):
            path: list[tuple[int, int]] = [] if number[root] else [(root, 0)]
            open_: list[int] = []
            while path:
                at, edge = path.pop()
                if edge == 0:
                    count += 1
                    number[at] = low[at] = count
                    open_.append(at)
                elif part[to := following[at][edge - 1]] < 0:
                    low[at] = min(low[at], low[to])
                if edge < len(following[at]):
                    path.append((at, edge + 1))
                    if not number[to := following[at][edge]]:
                        path.append((to, 0))
                elif low[at] == number[at]:
                    while part[at] < 0:
                        part[open_.pop()] = at
        inside, heads = set(), set()
        sizes = Counter(part)
        for at, goes in enumerate(following):
            if sizes[part[at]] > 1 or at in goes:
                inside.add(self.code[at].at)
                heads |= {self.code[to].at for to in goes if to <= at and part[to] == part[at]}
        return inside, heads


@dataclass(frozen=True)
class Wish:
    """One item of a comment; `bound` is "at least" or "at most", `what` None for registers."""

    kernel: str
    arguments: str
    archs: frozenset[str]
    bound: str
    number: int
    what: str | None
    where: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.kernel}<{self.arguments}>" if self.arguments else self.kernel

    @property
    def counted(self) -> str:
        return f"{self.what or 'registers'} {self.where}".rstrip()

    def concerns(self, symbol: str, name: str, arch: str) -> bool:
        """Whether it is about a function: its symbol, and its name as c++filt writes it."""
        if self.archs and arch not in self.archs:
            return False
        if not self.arguments:
            return symbol == self.kernel or f"{len(self.kernel)}{self.kernel}" in symbol
        return re.search(rf"\b{self.kernel}<{re.escape(self.arguments)}[,> ]", name) is not None

    def finding(self, arch: str, name: str, value: int) -> str:
        return f"{arch} {name}: {value} {self.counted} ({self.bound} {self.number})"

    def met(self, value: int) -> bool:
        return value >= self.number if self.bound == "at least" else value <= self.number


def control(word: int) -> tuple[int | None, frozenset[int]]:
    """The scoreboard that an instruction sets, and those that it waits for, by the upper half of its 128 bits."""
    sets = word >> 46 & 7
    waits = word >> 52 & 63
    return (None if sets == 7 else sets), frozenset(i for i in range(6) if waits >> i & 1)


def parse(text: str) -> list[Kernel]:
    """The functions in an output of `cuobjdump -sass`."""
    found: list[Kernel] = []
    arch = ""
    line: re.Match[str] | None = None
    for row in text.splitlines():
        if match := HEAD.match(row):
            if match["arch"]:
                arch = match["arch"]
            else:
                found.append(Kernel(match["symbol"], arch))
        elif match := LINE.match(row):
            line = match
        elif (match := SECOND.match(row)) and line is not None and found:
            sets, waits = control(int(match[1], 16))
            found[-1].code.append(Instruction(int(line[1], 16), line[2] or "", line[3], line[4], sets, waits))
            line = None
    return found


def under_way(kernel: Kernel, what: str) -> int:
    """The most instructions of a kind whose results are still to come, in loops if there are some there."""
    inside, heads = kernel.loops()
    only_loops = any(i.is_a(what) and i.at in inside for i in kernel.code)
    following = kernel.successors()
    pending = [[0] * 6 for _ in kernel.code]  # on the path forward that has most of each scoreboard
    most = 0
    for place, (i, counts) in enumerate(zip(kernel.code, pending, strict=True)):
        if i.at in heads:
            counts[:] = [0] * 6
        for scoreboard in i.waits:
            counts[scoreboard] = 0
        if match := re.match(r"SB(\d), 0x(\d)", i.operands if i.is_a("DEPBAR.LE") else ""):
            counts[int(match[1])] = min(counts[int(match[1])], int(match[2]))
        if i.is_a(what) and i.sets is not None:
            counts[i.sets] += 1
            if i.at in inside or not only_loops:
                most = max(most, sum(counts))
        for to in following[place]:
            if to > place:
                pending[to] = [max(pair) for pair in zip(pending[to], counts, strict=True)]
    return most


def between_waits(kernel: Kernel, what: str) -> int:
    """The most instructions of a kind after a wait that leaves one group of products running, before the next wait."""
    most, count = 0, None
    for i in kernel.code:
        if i.is_a("WARPGROUP.DEPBAR.LE"):
            count = 0 if i.operands.endswith("0x1") else None
        elif count is not None and i.is_a(what):
            count += 1
            most = max(most, count)
    return most


def out_of_turn(kernel: Kernel, what: str) -> int:
    """Instructions of a kind that do not lie after a BAR.SYNC and before the next BAR.ARV."""
    count, turn = 0, False
    for i in kernel.code:
        if i.is_a("BAR.SYNC") or i.is_a("BAR.ARV"):
            turn = i.is_a("BAR.SYNC")
        count += i.is_a(what) and not turn
    return count


def measure(kernel: Kernel, wish: Wish) -> int:
    """What a wish counts."""
    assert wish.what is not None
    if wish.where == "under way":
        return under_way(kernel, wish.what)
    if wish.where == "between waits":
        return between_waits(kernel, wish.what)
    if wish.where == "out of turn":
        return out_of_turn(kernel, wish.what)
    code = kernel.code
    if wish.where == "in loops":
        inside, _ = kernel.loops()
        code = [i for i in code if i.at in inside]
    return sum(i.is_a(wish.what) for i in code)


def wishes(text: str, source: str = "") -> Iterator[Wish]:
    """The wishes of a source file. ValueError: one that does not say what it wants."""
    for match in WISHES.finditer(text):
        archs = frozenset((match[3] or "").split(", ")) - {""}
        for item in match[4].split(", "):
            said = WISH.fullmatch(item)
            if said is None or (said[3] and not said[1]):
                raise ValueError(f"{source}: the check of machine code does not know the wish {item!r}")
            bound, number = said[1] or "at most", int(said[2] or 0)
            yield Wish(match[1], match[2] or "", archs, bound, number, said[4], said[5] or "", source)


def tool() -> Path | None:
    """cuobjdump, with nvdisasm beside it or on PATH."""
    homes = [Path(home) / "bin" for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if home]
    places = [str(path) for path in (*homes, Path("/usr/local/cuda/bin"), TOOLCHAIN)]
    found = shutil.which("cuobjdump") or shutil.which("cuobjdump", path=os.pathsep.join(places))
    return Path(found) if found else None


def disassemble(path: Path, archs: frozenset[str], cuobjdump: Path, symbol: str = "") -> list[Kernel]:
    """The functions of an object or cubin, or one of them, for some architectures (none: all that it has)."""
    environment = {**os.environ, "PATH": os.pathsep.join((str(cuobjdump.parent), os.environ.get("PATH", "")))}
    found: list[Kernel] = []
    for arch in sorted(archs) or [""]:
        command = [
            str(cuobjdump),
            "-sass",
            *(["-arch", arch] if arch else []),
            *(["-fun", symbol] if symbol else []),
            str(path),
        ]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed: {result.stderr.strip()}")
        found += parse(result.stdout)
    return found


def demangle(symbols: list[str]) -> dict[str, str]:
    """C++ names as they were written; the symbols themselves where there is no c++filt."""
    if not shutil.which("c++filt") or not symbols:
        return {symbol: symbol for symbol in symbols}
    result = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return dict(zip(symbols, result.stdout.splitlines(), strict=True))


def check(kernels: list[Kernel], wanted: list[Wish]) -> tuple[list[str], list[str], set[Wish]]:
    """(what was found, what of it is not as wished, the wishes that concern some kernel); registers are not in SASS."""
    names = demangle(sorted({kernel.symbol for kernel in kernels}))
    found, wrong, used = [], [], set()
    for wish in wanted:
        for kernel in kernels:
            if wish.what is None or not wish.concerns(kernel.symbol, names[kernel.symbol], kernel.arch):
                continue
            used.add(wish)
            value = measure(kernel, wish)
            found.append(wish.finding(kernel.arch, names[kernel.symbol], value))
            if not wish.met(value):
                wrong.append(f"{wish.source}: {found[-1]}")
    return found, wrong, used


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What sources wish of the machine code of their kernels.")
    parser.add_argument("object", type=Path, help="an object file or cubin")
    parser.add_argument("sources", type=Path, nargs="+", help="where the wishes stand")
    options = parser.parse_args(arguments)
    cuobjdump = tool()
    if cuobjdump is None:
        print("error: no cuobjdump on PATH or in CUDA_HOME; `make cuda-toolchain` fetches one", file=sys.stderr)
        return 1
    wanted = [wish for path in options.sources for wish in wishes(path.read_text(), path.name)]
    found, wrong, used = check(disassemble(options.object, frozenset(), cuobjdump), wanted)
    wrong += [f"{wish.source}: there is no {wish.name}" for wish in wanted if wish.what and wish not in used]
    print("\n".join(found))
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
