"""What ptxas and the machine code say of the kernels of a build: registers, shared memory, stack, spills, and what the
sources wish besides.

    python cmake/ptxas_report.py build/cuda cuda/kernels

reads every *.ptxas that cmake/ptxas.sh left in a build folder, writes the whole table to build/cuda/ptxas.txt, prints a
summary a file, and fails when a kernel has a stack frame or spills, or wgmma products that ptxas made wait for each
other, without a reason. The reason stands in the kernel's file, in a comment of its own that begins so:

    // spills: flash_backward on sm_75, sm_80: the two accumulators of a 128-wide head are 256 registers

It also fails when the machine code is not as a comment beside a kernel wishes (`// sass: ...`, cmake/sass.py).

The name is that of the kernel or device function, whatever its template arguments; without `on`, it holds on every
architecture. Code that clang made for a check (in a folder named sm_70) is listed, but nothing is asked of it, since
nobody runs it.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import sass

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(sm_\w+)'")
PROPERTIES = re.compile(r"Function properties for (\S+)")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
#: A launch asks for more than 48 KiB of shared memory where 12 or more of them are dynamic (kernels/kernel.cuh).
MOST_FIXED_SHARED = 36 << 10
FIXED_SHARED_RULE = f"it must be at most {MOST_FIXED_SHARED}, for launches to know when to ask for more than 48 KiB"
SERIALISED = re.compile(r"\((C75\d\d)\) (Potential Performance Loss: .*?)(?:,? in (?:the )?function '(\S+)'|$)")
EXCUSE = re.compile(r"^\s*(?://|/?\*)\s*spills: (\w+)(?: on (sm_\w+(?:, sm_\w+)*))?: (\S.*)", re.MULTILINE)


@dataclass
class Function:
    """One kernel, or one device function that was not inlined, on one architecture. Sizes in bytes."""

    symbol: str
    arch: str
    source: str
    checked_only: bool
    registers: int = 0
    shared: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    losses: list[str] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        return bool(self.stack or self.spill_stores or self.spill_loads or self.losses)

    def text(self, name: str) -> str:
        losses = "".join(f"; {loss}" for loss in self.losses)
        return (
            f"{self.arch:7} {self.registers:3} registers {self.shared:6} shared {self.stack:5} stack "
            f"{self.spill_stores:5}/{self.spill_loads} spilled  {name}{losses}"
        )


@dataclass(frozen=True)
class Excuse:
    """A reason given in a source file. No architectures: all."""

    name: str
    archs: frozenset[str]
    reason: str
    source: str


def parse(text: str, source: str = "", checked_only: bool = False) -> list[Function]:
    """The functions that an output of `ptxas -v` tells of, in its order."""
    found: dict[tuple[str, str], Function] = {}
    losses: list[tuple[str, str]] = []
    arch, entry, current = "", None, None

    def function(symbol: str) -> Function:
        return found.setdefault((symbol, arch), Function(symbol, arch, source, checked_only))

    for line in text.splitlines():
        if match := ENTRY.search(line):
            arch = match[2]
            current = entry = function(match[1])
        elif match := PROPERTIES.search(line):
            current = function(match[1])
        elif (match := FRAME.search(line)) and current is not None:
            current.stack, current.spill_stores, current.spill_loads = map(int, match.groups())
        elif match := SERIALISED.search(line):
            losses.append((match[3] or "", f"{match[1]} {match[2]}"))
        elif (match := USED.search(line)) and entry is not None:
            entry.registers = int(match[1])
            shared = SHARED.search(line)
            entry.shared = int(shared[1]) if shared else 0
    for symbol, loss in losses:
        blamed = [item for item in found.values() if item.symbol == symbol and item.arch == "sm_90a"]
        for item in blamed or [found.setdefault((symbol, arch), Function(symbol, arch, source, checked_only))]:
            item.losses.append(loss)
    return list(found.values())


def excuses(text: str, source: str = "") -> list[Excuse]:
    """The reasons that a source file gives."""
    return [
        Excuse(match[1], frozenset((match[2] or "").split(", ")) - {""}, match[3].rstrip(" */"), source)
        for match in EXCUSE.finditer(text)
    ]


def excuse_of(function: Function, given: list[Excuse]) -> Excuse | None:
    """The reason that covers a function. Its name stands in the symbol behind its own length."""
    for excuse in given:
        named = function.symbol == excuse.name or f"{len(excuse.name)}{excuse.name}" in function.symbol
        if named and (not excuse.archs or function.arch in excuse.archs):
            return excuse
    return None


def wished(
    path: Path, functions: list[Function], names: dict[str, str], wanted: list[sass.Wish]
) -> tuple[list[str], list[str]]:
    """(what was found, what of it is not as wished) of the functions in the object beside a *.ptxas, which says how
    many registers there are; all else is read in the machine code."""
    found, wrong = [], []
    archs: set[str] = set()
    for wish in wanted:
        for item in functions:
            if not wish.concerns(item.symbol, names[item.symbol], item.arch):
                continue
            if wish.what is not None:
                archs.add(item.arch)
                continue
            found.append(wish.finding(item.arch, names[item.symbol], item.registers))
            if not wish.met(item.registers):
                wrong.append(f"{wish.source}: {found[-1]}")
    if archs:
        cuobjdump = sass.tool()
        if cuobjdump is None:
            return found, [
                *wrong,
                f"{path.name}: no cuobjdump on PATH or in CUDA_HOME; `make cuda-toolchain` fetches one",
            ]
        seen, unlike, used = sass.check(sass.disassemble(path.with_suffix(""), frozenset(archs), cuobjdump), wanted)
        found, wrong = found + seen, wrong + unlike
        wrong += [
            f"{w.source}: {path.name} has no machine code of {w.name}" for w in wanted if w.what and w not in used
        ]
    return found, wrong


def _source(path: Path) -> str:
    return path.name.removesuffix(".ptxas").removesuffix(".o")


def report(build: Path, sources: Path) -> tuple[str, str, list[str]]:
    """(the whole table, the summary, what is wrong) of a build folder."""
    written = {path.name for path in sources.rglob("*.cu")}  # objects of sources that are gone may lie about
    files = [path for path in sorted(build.rglob("*.ptxas")) if _source(path) in written]
    if not files:
        return "", "", [f"{build} holds no *.ptxas: was it built with the GPU engine?"]
    given = [item for path in sorted(sources.rglob("*.cu*")) for item in excuses(path.read_text(), str(path.name))]
    apart = sources / "spills.txt"  # reasons of files that stay as a GPU has run them
    if apart.exists():
        given += excuses(apart.read_text(), apart.name)
    wanted = [wish for path in sorted(sources.rglob("*.cu*")) for wish in sass.wishes(path.read_text(), path.name)]
    table, summary, wrong, used = [], [], [], set()
    concerned: set[sass.Wish] = set()
    for path in files:
        text = path.read_text()
        source = _source(path)
        checked_only = "sm_70" in path.parts
        functions = parse(text, source, checked_only)
        if not functions:  # a file of host code
            continue
        names = sass.demangle([item.symbol for item in functions])
        seconds = re.search(r"^seconds (\d+)", text)
        label = f"{source} (clang's check)" if checked_only else source
        table.append(f"{label}:")
        for item in functions:
            name = names[item.symbol]
            table.append("  " + item.text(name))
            if item.shared > MOST_FIXED_SHARED:
                wrong.append(f"{source}: {name} has {item.shared} bytes of fixed shared memory; {FIXED_SHARED_RULE}")
            if not item.bad:
                continue
            excuse = excuse_of(item, given)
            if excuse is not None:
                used.add(excuse)
                table.append(f"          accepted ({excuse.source}): {excuse.reason}")
            elif not checked_only:
                wrong.append(f"{source}: {item.text(name)}")
        if not checked_only:
            own = [
                w for w in wanted if any(w.concerns(item.symbol, names[item.symbol], item.arch) for item in functions)
            ]
            concerned.update(own)
            found, unlike = wished(path, functions, names, own)
            table += [f"  wished: {line}" for line in found]
            wrong += unlike
        archs = sorted({item.arch for item in functions})
        registers = max(item.registers for item in functions)
        spilling = sum(item.bad for item in functions)
        summary.append(
            f"{label}: {len(functions)} functions for {' '.join(archs)}, at most {registers} registers, "
            f"{spilling} with stack or spills, {seconds[1] if seconds else '?'} s"
        )
    known = "\n".join(line for line in table if not line.endswith(":"))
    for excuse in given:
        if not re.search(rf"\b{excuse.name}\b|{len(excuse.name)}{excuse.name}", known):
            wrong.append(f"{excuse.source}: a reason for the spills of {excuse.name}, but there is no such kernel")
        elif excuse not in used:
            summary.append(f"{excuse.source}: {excuse.name} no longer spills in this build; its reason may go")
    for wish in wanted:
        if wish not in concerned:
            wrong.append(f"{wish.source}: a wish for the machine code of {wish.name}, but there is no such kernel")
    return "\n".join(table) + "\n", "\n".join(summary), wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Registers, stack frames and spills of the kernels of a build.")
    parser.add_argument("build", type=Path, help="the build folder")
    parser.add_argument("sources", type=Path, help="the folder of the kernels, where reasons for spills stand")
    options = parser.parse_args(arguments)
    table, summary, wrong = report(options.build, options.sources)
    if table:
        (options.build / "ptxas.txt").write_text(table)
        print(f"{summary}\nEvery kernel: {options.build / 'ptxas.txt'}")
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    if wrong:
        print(
            f"{len(wrong)} without a reason, or unlike a wish. Use fewer registers, or say beside the kernel why it "
            "must be so: `// spills: KERNEL on sm_75: REASON`",
            file=sys.stderr,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
