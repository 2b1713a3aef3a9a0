"""The table of kernels in docs/gpu.md: what a build says of the kernels that matter, beside what they are held to.

    python cmake/kernel_table.py build/cuda docs/gpu.md           # writes it anew, between its marks
    python cmake/kernel_table.py --check build/cuda docs/gpu.md   # fails when it would say something else (`make cuda`)

Registers are those of the *.ptxas beside each object, threads of a block stand in the object, loads under way are
counted in its machine code (cmake/sass.py). ROWS below has what no compiler knows: the design, the dynamic shared
memory, the floor and the anchor. All is for sm_90a, or sm_90 where a file has no code of its own for 90a.

The share that a kernel bound by memory may expect follows from the bytes that a multiprocessor has under way (Little's
law): of an H200's 4.8 TB/s, with 700 ns from a load to its data, each of 132 multiprocessors needs 25 KB. More does not
help, and 92 % is what copies reach. It says nothing of grids that are too small to fill the device.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import ptxas_report
import sass

BEGIN, END = "<!-- kernels: made by cmake/kernel_table.py -->", "<!-- end of the kernels -->"

#: What a multiprocessor of compute capability 9.0 has: registers, bytes of shared memory with 1 KiB that each block
#: takes for itself, warps, blocks.
REGISTERS, SHARED, SHARED_OF_BLOCK, WARPS, BLOCKS = 65536, 228 << 10, 1024, 64, 32
BANDWIDTH, LATENCY, MULTIPROCESSORS, OF_COPIES = 4.8e12, 700e-9, 132, 0.92

MEMORY = "memory"


@dataclass(frozen=True)
class Row:
    """A kernel by the start of its name and template arguments. `loads`: the opcode that is counted, and the bytes that
    each brings; or in words what is under way and the bytes a block has. `share`: MEMORY asks for Little's law."""

    source: str
    kernel: str
    what: str
    design: str
    loads: tuple[str, int]
    floor: str
    anchor: str
    share: str = MEMORY
    shared: int = 0


def read(what: str) -> str:
    return f"{what} / 4.8 TB/s"


TENSOR, ORDINARY, WHOLE, EIGHT_BITS = "/ 989 TFLOP/s", "/ 67 TFLOP/s", "/ 1979 TOP/s", "/ 1979 TFLOP/s"

#: In bf16 where nothing else is said.
ROWS = (
    Row(
        "gemm_wgmma_bf16.cu",
        "gemm_wgmma_kernel<nn_bf16, false, true, gemm_wgmma_tile<256>",
        "products, dense and of groups",
        "wgmma 128 x 256, one producer warp, a block an SM walks the tiles, in pairs that load B once",
        ("4 stages of 48 KiB by the copy engine", 196608),
        f"2 m n k {TENSOR}",
        "cuBLAS (asked: 0.95 of it); groups: 437 TFLOP/s",
        "98 % at k = 768, 99 % at 4096: a third of a tile's way to shared memory is not overlapped; without pairs "
        "81 %, by L2",
        229888,
    ),
    Row(
        "gemm_wgmma_bf16.cu",
        "gemm_wgmma_kernel<nn_bf16, false, true, gemm_wgmma_tile<128>",
        "products with few tiles",
        "wgmma 128 x 128, whole or in pieces of k, in pairs where rows of tiles are even",
        ("6 stages of 32 KiB by the copy engine", 196608),
        f"2 m n k {TENSOR}",
        "cuBLAS",
        "100 % of the multiprocessors that have a tile, up to 80 of them; with 128 in pairs 83 %, by L2",
        229920,
    ),
    Row(
        "gemm_wgmma_fp8.cu",
        "gemm_wgmma_codes_kernel<gemm_wgmma_code_tile<256, 1>",
        "products of groups in 8 bits",
        "wgmma of E4M3 128 x 256, as those of bf16; each 128 of k added up in f32 beside the other warpgroup's "
        "products",
        ("4 stages of 48 KiB by the copy engine", 196608),
        f"2 m n k {EIGHT_BITS}, beside the rounding",
        "DeepGEMM; torch's grouped products in bf16 (asked: no slower, with the rounding)",
        "96 % at k = 768, 99 % at 4096, if the additions hide as counted; without pairs 79 %, by L2",
        231552,
    ),
    Row(
        "gemm_wgmma_fp8.cu",
        "gemm_wgmma_codes_kernel<gemm_wgmma_code_tile<256, 2>",
        "their gradient of weights",
        "the same, with a scale a column",
        ("4 stages of 48 KiB by the copy engine", 196608),
        f"2 m n k {EIGHT_BITS}, beside the rounding",
        "as above",
        "as above; the additions take 704 of 1024 clocks, not 512",
        231552,
    ),
    Row(
        "gemm_mma_bf16.cu",
        "gemm_mma_kernel<nn_bf16, false, true, gemm_mma_tile<2, 2, 64, 64, 3, true, true, 2, 0>, "
        "gemm_mma_fragments<nn_bf16, false, true, gemm_mma_tile<2, 2, 64, 64, 3, true, true, 2, 0> >, 0>",
        "products that wgmma leaves out; all on sm_80",
        "mma 128 x 128, 3 stages by cp.async",
        ("3 stages of 16 KiB", 49152),
        f"2 m n k {TENSOR}",
        "cuBLAS on an A100",
        "62 % on sm_90, where mma alone reaches no more; sm_80: no count",
        49664,
    ),
    Row(
        "gemm_rows.cu",
        "gemm_rows_kernel<nn_bf16, 1>",
        "products of one row, the weight [out, in]",
        "a warp a row of the weight, each read once",
        ("LDG.128", 16),
        read("2 n k bytes"),
        "cuBLAS' gemv",
    ),
    Row(
        "gemm_rows.cu",
        "gemm_rows_kernel<nn_bf16, 8>",
        "products of eight rows",
        "the same, eight sums a row of the weight",
        ("LDG.128", 16),
        read("2 n k bytes"),
        "cuBLAS",
    ),
    Row(
        "gemm_simt.cu",
        "gemm_simt_kernel<float, false, true, gemm_simt_tile<4, 2, 2, 8>, 0>",
        "products in f32",
        "64 sums a thread, f32 arithmetic",
        ("LDG.128", 16),
        f"2 m n k {ORDINARY}",
        "cuBLAS without tf32",
        "not counted",
    ),
    Row(
        "attention_flash.cu",
        "nn_flash_wgmma_kernel<nn_bf16, 64, 3>",
        "attention forward, head_dim 64",
        "wgmma, 3 x 64 rows that start products in turn, softmax beside P V, a block an SM walks the tiles, "
        "long ones first",
        ("4 stages of K and V by the copy engine", 131072),
        f"4 q k d {TENSOR}",
        "FlashAttention-3 (asked: 473 TFLOP/s; measured: 471)",
        "at most 97 %: three warpgroups' powers take 1584 clocks, their products 1536",
        181888,
    ),
    Row(
        "attention_flash.cu",
        "nn_flash_wgmma_kernel<nn_bf16, 64, 2>",
        "the same, few rows",
        "2 x 64 rows",
        ("4 stages of K and V by the copy engine", 131072),
        f"4 q k d {TENSOR}",
        "FlashAttention-3",
        "not counted",
        164992,
    ),
    Row(
        "attention_flash.cu",
        "nn_flash_wgmma_kernel<nn_bf16, 128, 2>",
        "attention forward, head_dim 128",
        "2 x 64 rows that start products in turn, else as head_dim 64",
        ("2 stages of K and V by the copy engine", 131072),
        f"4 q k d {TENSOR}",
        "FlashAttention-3 (asked: 650 TFLOP/s; measured: 603)",
        "at most what products alone reach: powers take half their time",
        197696,
    ),
    Row(
        "attention_backward.cu",
        "nn_backward_wgmma_kernel<nn_bf16, 64, 1>",
        "attention backward, head_dim 64",
        "wgmma, 128 keys a block, S and dP once, dQ added in turns, heads of a group in shares",
        ("2 stages of Q and dO by the copy engine", 65536),
        f"10 q k d {TENSOR}",
        "FlashAttention-3 (asked, with forward: 284 TFLOP/s; measured: 453)",
        "56 %: powers take twice dP's time, dS and its way to shared memory as long as 2.5 products; with P and dS in "
        "two parts (below 512 keys) 8 products for 5",
        168072,
    ),
    Row(
        "attention_backward.cu",
        "nn_backward_wgmma_kernel<nn_bf16, 128, 1>",
        "attention backward, head_dim 128",
        "the same",
        ("2 stages of Q and dO by the copy engine", 65536),
        f"10 q k d {TENSOR}",
        "FlashAttention-3 (asked, with forward: 284 TFLOP/s; measured: 461)",
        "75 %: dS and its way to shared memory are not overlapped",
        182408,
    ),
    Row(
        "attention_backward.cu",
        "nn_backward_mma_keys_kernel<nn_bf16, 128>",
        "dK and dV where wgmma is left out; all on sm_80",
        "mma, S and dP twice, P and dS in two parts",
        ("tiles of Q and dO by cp.async", 16384),
        f"10 q k d {TENSOR}, with dQ",
        "FlashAttention-2",
        "not counted",
        49152,
    ),
    Row(
        "attention_paged.cu",
        "prompt_mma_kernel<paged_mma_layout<nn_f16, 128",
        "attention over pages, prompts",
        "mma, f16 pages, Q and P in two parts, 64 rows a block",
        ("3 stages of 16 KiB by cp.async", 49152),
        f"4 q k d {TENSOR}",
        "FlashInfer",
        "31 %, half of what mma reaches: two products for each",
        84592,
    ),
    Row(
        "attention_paged.cu",
        "prompt_mma_kernel<paged_mma_layout<nn_bf16, 128",
        "the same, pages in bf16",
        "mma, Q and P in three parts, 32 rows a block",
        ("3 stages of 16 KiB by cp.async", 49152),
        f"4 q k d {TENSOR}",
        "FlashInfer",
        "20 %, a third of what mma reaches",
        93552,
    ),
    Row(
        "attention_paged_decode.cu",
        "run_mma_kernel<paged_mma_layout<nn_bf16, 128",
        "attention over pages, decoding",
        "a block a run of pages, at most 64 runs a row; mma, Q and P in three parts",
        ("4 stages of 16 KiB by cp.async", 65536),
        read("4 k d bytes a key head"),
        "FlashInfer, vLLM's paged attention",
        shared=88832,
    ),
    Row(
        "attention_decode.cu",
        "run_kernel<nn_bf16>",
        "attention, decoding, a cache of one piece",
        "a block a run of pieces of 16 KiB of keys",
        ("K and V of a piece by cp.async", 32768),
        read("4 k d bytes a key head"),
        "Flash-Decoding",
        shared=37888,
    ),
    Row(
        "quant_gemm_stream.cu",
        "stream_kernel<10>",
        "weights in q4_0, one row",
        "dp4a, a lane every 32nd block, two blocks an SM walk the rows",
        ("8 warps with 3 stages of 2.3 KB by cp.async", 55296),
        read("n k * 18 / 32 bytes"),
        "llama.cpp's mul_mat_vec_q (asked: 60 % of HBM)",
        shared=66560,
    ),
    Row(
        "quant_gemm_stream.cu",
        "stream_kernel<14>",
        "weights in q8_0, one row",
        "the same",
        ("8 warps with 2 stages of 4.4 KB by cp.async", 69632),
        read("n k * 34 / 32 bytes"),
        "llama.cpp's mul_mat_vec_q",
        shared=80896,
    ),
    Row(
        "quant_gemm_mma.cu",
        "mma_kernel<10, false, quant_tile<2, 4, 4, 4, 2, 1>",
        "weights in q4_0, prompts",
        "mma of whole numbers, 128 x 128, f32 after each 32 columns",
        ("LDG", 4),
        f"2 m n k {WHOLE}",
        "llama.cpp's mul_mat_q",
        "17 %, 340 TOP/s: three f32 operations follow each integer",
        67584,
    ),
    Row(
        "ternary_gemm_rows.cu",
        "rows_kernel<1, 1, true",
        "ternary weights, one row",
        "dp4a, four lanes 64 bytes of a panel",
        ("LDG", 16),
        read("n k / 4 bytes"),
        "BitNet's GPU kernels",
    ),
    Row(
        "rmsnorm.cu",
        "rmsnorm_kernel<nn_bf16, nn_row_shape<(nn_row_form)2, nn_bf16>, true, false",
        "norm",
        "rows in registers",
        ("LDG.128", 16),
        read("4 bytes an element"),
        "torch.compile",
    ),
    Row(
        "elementwise.cu",
        "flat_kernel<add, nn_bf16, nn_bf16, 8>",
        "add",
        "raw loads first",
        ("LDG.128", 16),
        read("6 bytes an element"),
        "the device's copy",
    ),
    Row(
        "elementwise.cu",
        "gate_kernel<swiglu, nn_bf16, 8>",
        "swiglu",
        "raw loads first",
        ("LDG.128", 16),
        read("6 bytes an element"),
        "torch.compile",
    ),
    Row(
        "loss.cu",
        "entropy_kernel<nn_bf16, 512, true>",
        "cross-entropy forward",
        "a block a row, once through it",
        ("LDG.128", 16),
        read("2 bytes a logit"),
        "Liger",
    ),
    Row(
        "decode_parts.cu",
        "choose_kernel<nn_bf16, 8>",
        "top-k and top-p, up to 132 rows",
        "three launches, at most 64 blocks a row; tokens by bucket, then those of the border's bucket sorted",
        ("LDG.128", 16),
        "6 bytes a logit / 4.8 TB/s, and three launches",
        "FlashInfer's sampling",
        "bound by latency: of 128256 logits a block has 4032; 24 KiB of sums a row and block",
    ),
    Row(
        "decode.cu",
        "sample_kernel<nn_bf16, 8>",
        "the same, more rows or few logits",
        "radix search, an SM a row, six passes",
        ("LDG.128", 16),
        "2 bytes a logit and pass / 64 bytes a clock",
        "FlashInfer's sampling",
        "14 us for each row of 128256 logits that an SM has",
    ),
)


def blocks_of(registers: int, threads: int, shared: int) -> int:
    """Blocks that fit a multiprocessor. Registers are given to warps in units of 256."""
    warps = -(-threads // 32)
    of_registers = REGISTERS // (-(-registers * 32 // 256) * 256 * warps)
    return min(of_registers, SHARED // (shared + SHARED_OF_BLOCK), WARPS // warps, BLOCKS)


def threads_of(elf: str) -> dict[str, int]:
    """The threads that a block may have, by symbol, as `cuobjdump -elf` prints them."""
    found: dict[str, int] = {}
    symbol = ""
    lines = iter(elf.splitlines())
    for line in lines:
        if match := re.match(r"\.nv\.info\.(\S+)\s*$", line):
            symbol = match[1]
        elif symbol and "EIATTR_MAX_THREADS" in line:
            next(lines, "")
            sizes = [int(size, 16) for size in re.findall(r"0x[0-9a-f]+", next(lines, ""))]
            if len(sizes) == 3:
                found[symbol] = sizes[0] * sizes[1] * sizes[2]
    return found


def share_of(bytes_under_way: float) -> str:
    needed = BANDWIDTH * LATENCY / MULTIPROCESSORS
    return f"{100 * OF_COPIES * min(1.0, bytes_under_way / needed):.0f} %"


@dataclass(frozen=True)
class Compiled:
    """What a build says of one kernel."""

    registers: int
    threads: int
    shared: int
    code: sass.Kernel


def find(objects: Path, row: Row, cuobjdump: Path) -> Compiled:
    """LookupError: the build has no such kernel, or several."""
    path = objects / f"{row.source}.o"
    notes = path.with_name(path.name + ".ptxas")
    if not notes.is_file():
        raise LookupError(f"{notes} is not there: was {row.source} built?")
    functions = ptxas_report.parse(notes.read_text(), row.source)
    names = sass.demangle(sorted({item.symbol for item in functions}))
    kernel, _, arguments = row.kernel.partition("<")
    arguments = arguments.removesuffix(">")
    wanted = rf"\b{kernel}<{re.escape(arguments)}[,> ]" if arguments else rf"\b{kernel}\("
    archs = {item.arch for item in functions}
    arch = "sm_90a" if "sm_90a" in archs else "sm_90"
    these = [item for item in functions if item.arch == arch and re.search(wanted, names[item.symbol])]
    if len(these) != 1:
        raise LookupError(f"{row.source} has {len(these)} kernels {row.kernel} for {arch}; a row is of one")
    symbol = these[0].symbol
    command = [str(cuobjdump), "-elf", "-arch", arch, str(path)]
    environment = {**os.environ, "PATH": os.pathsep.join((str(cuobjdump.parent), os.environ.get("PATH", "")))}
    elf = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    (code,) = (item for item in sass.disassemble(path, frozenset({arch}), cuobjdump, symbol) if item.symbol == symbol)
    return Compiled(these[0].registers, threads_of(elf)[symbol], these[0].shared + row.shared, code)


def line(row: Row, found: Compiled) -> str:
    blocks = blocks_of(found.registers, found.threads, found.shared)
    what, each = row.loads
    if re.fullmatch(r"[A-Z]+(\.\w+)?", what):
        count = sass.under_way(found.code, what)
        of_block = count * each * found.threads
        loads = f"{count} of {each} bytes"
    else:
        of_block, loads = each, what
    share = share_of(blocks * of_block) if row.share == MEMORY else row.share
    warps = blocks * -(-found.threads // 32)
    cells = (row.what, row.design, str(found.registers), str(warps), loads, row.floor, share, row.anchor)
    return f"| {' | '.join(cells)} |"


def table(build: Path) -> str:
    cuobjdump = sass.tool()
    if cuobjdump is None:
        raise LookupError("no cuobjdump on PATH or in CUDA_HOME; `make cuda-toolchain` fetches one")
    objects = build / "CMakeFiles" / "nncuda_cuda.dir" / "cuda" / "kernels"
    head = "| kernel | design | registers | warps an SM | loads under way | floor | expected share | anchor |"
    return "\n".join(
        [head, "|---|---|---|---|---|---|---|---|", *(line(row, find(objects, row, cuobjdump)) for row in ROWS)]
    )


def replaced(page: str, new: str) -> str:
    """The page with another table. ValueError: it has no place for one."""
    begin, end = page.find(BEGIN), page.find(END)
    if begin < 0 or end < begin:
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r} for the table to stand between")
    return f"{page[: begin + len(BEGIN)]}\n\n{new}\n\n{page[end:]}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The table of kernels in docs/gpu.md.")
    parser.add_argument("build", type=Path, help="the build folder")
    parser.add_argument("page", type=Path, help="where the table stands")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page would change")
    options = parser.parse_args(arguments)
    try:
        page = options.page.read_text()
        new = replaced(page, table(options.build))
    except (LookupError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if new == page:
        return 0
    if options.check:
        old = set(page.splitlines())
        print("\n".join(text for text in new.splitlines() if text not in old), file=sys.stderr)
        print(
            f"error: {options.page} does not say so; `python cmake/kernel_table.py {options.build} {options.page}` "
            "writes it",
            file=sys.stderr,
        )
        return 1
    options.page.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
