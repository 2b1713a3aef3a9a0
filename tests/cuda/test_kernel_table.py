"""cmake/kernel_table.py makes the table of kernels in docs/gpu.md of what a build says and of what is written down."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "cmake" / "kernel_table.py"
if not TABLE.is_file():
    pytest.skip("needs the source tree", allow_module_level=True)
sys.path.insert(0, str(TABLE.parent))

import kernel_table  # noqa: E402
import sass  # noqa: E402

# As cuobjdump 13.0 writes them.
ELF = """\
.nv.info._Z4fillPf
\t<0x1>
\tAttribute:\tEIATTR_MAXREG_COUNT
\tFormat:\tEIFMT_HVAL
\tValue:\t0x40
\t<0x2>
\tAttribute:\tEIATTR_MAX_THREADS
\tFormat:\tEIFMT_SVAL
\tValue:\t0x80 0x2 0x1
.nv.info._Z4turnPf
\t<0x1>
\tAttribute:\tEIATTR_MAXREG_COUNT
\tFormat:\tEIFMT_HVAL
\tValue:\t0xff
"""


def test_threads_stand_in_the_object() -> None:
    assert kernel_table.threads_of(ELF) == {"_Z4fillPf": 256}


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "blocks"),
    [
        (168, 384, 229888, 1),
        (32, 128, 0, 16),
        (33, 128, 0, 12),
        (32, 1024, 33048, 2),
        (64, 128, 50000, 4),
        (8, 32, 0, 32),
    ],
)
def test_what_fits_a_multiprocessor(registers: int, threads: int, shared: int, blocks: int) -> None:
    assert kernel_table.blocks_of(registers, threads, shared) == blocks


def test_little_of_what_memory_needs_is_under_way() -> None:
    needed = 4.8e12 * 700e-9 / 132
    assert kernel_table.share_of(needed / 2) == "46 %" and kernel_table.share_of(4 * needed) == "92 %"


def test_a_line_counts_what_words_do_not_say() -> None:
    code = sass.Kernel("_Z4fillPf", "sm_90")
    found = kernel_table.Compiled(32, 256, 0, code)
    row = kernel_table.Row("a.cu", "fill", "to fill", "it fills", ("two boxes", 32768), "n", "torch")
    assert kernel_table.line(row, found) == "| to fill | it fills | 32 | 64 | two boxes | n | 92 % | torch |"
    counted = kernel_table.Row("a.cu", "fill", "to fill", "it fills", ("LDG.128", 16), "n", "torch", "half")
    assert kernel_table.line(counted, found) == "| to fill | it fills | 32 | 64 | 0 of 16 bytes | n | half | torch |"


def test_the_page_has_the_table_and_no_other() -> None:
    page = f"before\n{kernel_table.BEGIN}\nold\n{kernel_table.END}\nafter\n"
    assert kernel_table.replaced(page, "new") == f"before\n{kernel_table.BEGIN}\n\nnew\n\n{kernel_table.END}\nafter\n"
    with pytest.raises(ValueError, match="has no lines"):
        kernel_table.replaced("nothing", "new")


def test_rows_and_page_name_the_same_kernels() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    between = page[page.index(kernel_table.BEGIN) : page.index(kernel_table.END)]
    assert [line.split(" | ")[0] for line in between.splitlines() if line.startswith("| ")][1:] == [
        f"| {row.what}" for row in kernel_table.ROWS
    ]
    for row in kernel_table.ROWS:
        kernel = re.match(r"\w+", row.kernel)
        assert kernel is not None
        sources = [path for path in (ROOT / "cuda" / "kernels").glob("*.cu*") if f"{kernel[0]}(" in path.read_text()]
        assert (ROOT / "cuda" / "kernels" / row.source).is_file() and sources, row.kernel


def test_a_build_without_the_kernel_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{kernel_table.BEGIN}\n{kernel_table.END}\n")
    if sass.tool() is None:
        pytest.skip("needs cuobjdump")
    assert kernel_table.main(["--check", str(tmp_path), str(page)]) == 1
    assert "was gemm_wgmma_bf16.cu built?" in capsys.readouterr().err
