"""The generated entry points: what a kernel of a made-up header is asked for, and that none can lack its checks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nncuda.binding import header
from tools import entries

ROOT = Path(__file__).resolve().parents[2]

HEADER = """\
#define NNCUDA_ABI_MAJOR 1
#define NNCUDA_ABI_MINOR 0
enum { NNCUDA_KIND_ONE = 0, NNCUDA_KIND_TWO = 4, NNCUDA_KIND_SIX = 6 };
typedef struct nncuda_ctx nncuda_ctx;
/* ====
 * section: family
 * ==== */
/**
 * Something.
 * @param x in dtype [rows*2:ld, cols/2]^swap : input
 * @param extra in? i32 [count+1] : more
 * @param y out i8 [rows] alias x : output
 * @param rows size : rows; must be at most cols and at most 9
 * @param cols size : columns
 * @param count size : of extra
 * @param ld size : stride
 * @param scale option : factor; must be above 0
 * @param kind option : NNCUDA_KIND_*: ONE or TWO
 * @param swap flag : swaps
 * @param dtype dtype : f32, bf16
 */
NNCUDA_API int32_t cuda_thing(nncuda_ctx *ctx, const void *x, const int32_t *extra, void *y, int64_t rows, int64_t cols,
                              int64_t count, int64_t ld, float scale, int32_t kind, int32_t swap, int32_t dtype);
"""

EXPECTED = """\
  nn_call_dtype(&call, "dtype", dtype, 1u << NNCUDA_F32 | 1u << NNCUDA_BF16);
  nn_call_flag(&call, "swap", swap);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "cols", cols);
  nn_call_size_if(&call, "count", count, extra != NULL);
  nn_call_require(&call, rows <= cols && rows <= 9, NNCUDA_ERROR_INVALID_SIZE,
      "rows is %lld; it must be at most cols, which is %lld, and at most 9", (long long)rows, (long long)cols);
  nn_call_require(&call, scale > 0, NNCUDA_ERROR_INVALID_VALUE, "scale is %g; it must be above 0", (double)scale);
  nn_call_require(&call, kind == NNCUDA_KIND_ONE || kind == NNCUDA_KIND_TWO, NNCUDA_ERROR_INVALID_VALUE,
      "kind is %d; it must be NNCUDA_KIND_ONE (0) or NNCUDA_KIND_TWO (4)", kind);
  nn_call_tensor(&call, NN_ROLE_IN, "x", x, dtype, "ld", ld, NN_SHAPE(swap ? "[cols/2, rows*2]" : "[rows*2, cols/2]",
      swap ? cols / 2 : nn_mul(2, rows), swap ? nn_mul(2, rows) : cols / 2));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "extra", extra, NNCUDA_I32, NULL, 0, NN_SHAPE("[count+1]",
      nn_add(count, 1)));
  nn_call_tensor(&call, NN_ROLE_OUT, "y", y, NNCUDA_I8, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_alias(&call, "y", "x");
  const nn_thing_args args = {x, extra, y, rows, cols, count, ld, scale, kind, swap, dtype};
  check_thing(&call, &args);
"""


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return entries.files(header.parse_text(HEADER), b"")


def test_an_entry_point_checks_what_its_lines_say(made: dict[str, str]) -> None:
    assert EXPECTED in made["cuda/abi/generated/family.c"]


@pytest.mark.parametrize("checks", ["NN_FLOPS(thing, 2.0 * a->rows)", ""])
def test_an_entry_point_without_its_checks_does_not_compile(made: dict[str, str], tmp_path: Path, checks: str) -> None:
    for name, text in {**made, "cuda/abi/family_checks.h": f'#include "abi/checks.h"\n'
                       f'#include "abi/generated/family.h"\n{checks}\n'}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "cuda/interface.h").unlink()  # the library's own has the statuses
    defined = ["-DNN_OP_thing=0", "-DNNCUDA_KIND_ONE=0", "-DNNCUDA_KIND_TWO=4"]
    flags = ["-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *defined]
    folders = [f"-I{tmp_path / 'cuda'}", f"-I{ROOT / 'cuda'}"]
    line = ["cc", *flags, *folders, str(tmp_path / "cuda/abi/generated/family.c")]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode == 0) == bool(checks), done.stderr
    assert bool(checks) or "check_thing" in done.stderr
