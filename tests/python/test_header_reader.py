"""The reader of bindings.h: what it finds in the real header, and that it refuses what does not fit its grammar."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from nncuda.binding import header

ROOT = Path(__file__).resolve().parents[2]

FRAME = """\
#define NNCUDA_ABI_MAJOR 1
#define NNCUDA_ABI_MINOR 0
/* Kinds. */
enum { NNCUDA_KIND_ONE = 0, NNCUDA_KIND_TWO = 1 };
typedef struct nncuda_ctx nncuda_ctx;
/* ====
 * section: family
 * About the family.
 * ==== */
"""

GOOD = """\
/**
 * Halves: y = x / 2. It goes on. (Somebody 1999, eq. 1)
 * @param x in? dtype [rows:ld, cols/2, 3]^swap : input,
 *   on two lines
 * @param y out dtype [rows*cols+1] alias x : output
 * @param ids out i32 [1] host : a number
 * @param rows size : rows; must be even, at most cols
 * @param cols size : columns
 * @param ld size : stride
 * @param scale option default 1/sqrt(cols) : factor; must be finite and above 0, or -1 for none
 * @param kind option default NNCUDA_KIND_TWO : NNCUDA_KIND_*: TWO
 * @param swap flag : 1 swaps
 * @param dtype dtype : f32, bf16
 */
NNCUDA_API int32_t cuda_halve(nncuda_ctx *ctx, const void *x, void *y, int32_t *ids, int64_t rows, int64_t cols,
                              int64_t ld, float scale, int32_t kind, int32_t swap, int32_t dtype);
"""


def test_real_header_is_read() -> None:
    contract = header.parse(ROOT / "bindings.h")
    text = (ROOT / "bindings.h").read_text()
    declared = re.findall(r"^NNCUDA_API [^(]*?(\w+)\(", text, re.MULTILINE)
    assert list(contract.functions) == declared
    assert len(contract.kernels) == sum(name.startswith("cuda_") for name in declared)
    assert contract.abi[0] == 2
    assert contract.handles == ("nncuda_ctx", "nncuda_stream", "nncuda_event", "nncuda_graph", "nncuda_comm")
    assert contract.constants["NNCUDA_ERROR_INTERNAL"] == 70
    for kernel in contract.kernels.values():
        assert kernel.params[0].kind == "context", kernel.name
        assert any(param.writes for param in kernel.pointers), kernel.name
        assert kernel.summary.endswith(".") or kernel.summary.endswith(":"), kernel.summary


def test_every_field_of_a_function() -> None:
    contract = header.parse_text(FRAME + GOOD)
    function = contract.functions["cuda_halve"]
    assert (function.kernel, function.section, function.returns) == ("halve", "family", "int32_t")
    assert contract.sections[0].text == "About the family."
    assert function.summary == "Halves: y = x / 2."
    assert function.source == "Somebody 1999, eq. 1"
    x = function.by_name["x"]
    assert (x.ctype, x.direction, x.nullable, x.dtype, x.ld, x.swap_flag) == (
        "const void *",
        "in",
        True,
        "dtype",
        "ld",
        "swap",
    )
    assert x.text == "input, on two lines"
    assert x.shape_text == "[rows:ld, cols/2, 3]^swap"
    assert [dim.value({"rows": 5, "cols": 8}) for dim in x.dims] == [5, 4, 3]
    y = function.by_name["y"]
    assert y.alias == ("x",)
    assert y.dims[0].value({"rows": 5, "cols": 8}) == 41
    assert y.dims[0].solve(41, {"rows": 5}) == ("cols", 8)
    assert y.dims[0].solve(42, {"rows": 4}) is None
    assert y.dims[0].solve(41, {}) is None
    assert function.by_name["ids"].host
    assert function.by_name["scale"].root_of == "cols"
    assert function.by_name["kind"].constants == ("NNCUDA_KIND_ONE", "NNCUDA_KIND_TWO")
    assert function.by_name["kind"].taken == ("NNCUDA_KIND_TWO",)
    assert function.by_name["dtype"].dtypes == ("f32", "bf16")
    rows, scale = function.by_name["rows"].condition, function.by_name["scale"].condition
    assert rows is not None and scale is not None and function.by_name["cols"].condition is None
    assert (rows.names, rows.in_c("rows")) == (("cols",), "rows % 2 == 0 && rows <= cols")
    assert scale.in_c("scale") == "scale == -1 || (isfinite(scale) && scale > 0)"
    assert list(rows.nearest_outside(True, {"cols": 6})) == [1, 7]
    assert list(scale.nearest_outside(False, {}))[:2] == [float("inf"), 0]
    assert "NNCUDA_API" not in contract.cdef and "int32_t cuda_halve(" in contract.cdef


def test_one_line_comment() -> None:
    text = FRAME + (
        "/** Ends. @param handle out handle [1] host : the thing, or null */\n"
        "NNCUDA_API int32_t nncuda_thing_end(nncuda_ctx *ctx, nncuda_ctx **handle);\n"
    )
    function = header.parse_text(text).functions["nncuda_thing_end"]
    assert function.summary == "Ends."
    assert function.by_name["handle"].text == "the thing, or null"


BROKEN = [
    # what is replaced, by what, the line that the error must name, a part of its text
    ("@param rows size : rows;", "@param rows size rows;", 16, "does not fit the grammar"),
    ("@param rows size : rows; must be even, at most cols\n * @param cols size : columns", "@param cols size : columns",
     16, "where that of rows belongs"),
    (" * @param ld size : stride\n", "", 18, "where that of ld belongs"),
    (" * @param dtype dtype : f32, bf16\n", "", 23, "dtype has no @param line"),
    ("@param ld size : stride", "@param ld size : stride\n * @param more size : none", 19, "that of scale belongs"),
    ("in? dtype [rows", "in? dtyp [rows", 12, "neither one of"),
    ("in? dtype [rows", "in? f32 [rows", 12, "is f32, but its type is 'const void *'"),
    ("in? dtype [rows", "inn dtype [rows", 12, "does not fit the grammar"),
    ("in? dtype [rows", "out dtype [rows", 12, "exactly `in` is const"),
    ("[rows:ld, cols/2, 3]", "[rows, cols:ld]", 12, "only the first dimension has a stride"),
    ("[rows:ld, cols/2, 3]", "[rows:ld, width]", 12, "over width, which is no size parameter"),
    ("[rows:ld, cols/2, 3]", "[rows:ld, cols-1]", 12, "a dimension reads"),
    ("]^swap", "]^dtype", 12, "which is no flag"),
    ("alias x", "alias ids", 14, "only an output may be one"),
    ("default 1/sqrt(cols)", "default 1/sqrt(width)", 19, "no size parameter"),
    ("default 1/sqrt(cols)", "default many", 19, "only an option has a default"),
    ("NNCUDA_KIND_TWO :", "NNCUDA_KIND_SIX :", 20, "which is none of its values"),
    (": NNCUDA_KIND_*", ": NNCUDA_SORT_*", 20, "no enum has values"),
    ("KIND_*: TWO", "KIND_*: SIX", 20, "lists what is no value"),
    ("even, at most cols", "even or odd", 16, "no condition of a size or an option: 'even or odd'"),
    ("at most cols", "at most columns", 16, "columns, which is no size or option of its type"),
    ("at most cols", "at most scale", 16, "scale, which is no size or option of its type"),
    ("must be even", "must be finite", 16, "is int64_t, which cannot be finite"),
    ("1 swaps", "1 swaps; must be even", 21, "no condition of a size or an option"),
    ("dtype : f32, bf16", "dtype : f32, f64", 22, "allows 'f64'"),
    ("@param swap flag", "@return nothing\n * @param swap flag", 21, "only @param may start"),
    ("int64_t ld", "long ld", 24, "a type that the ABI does not use"),
    ("int64_t ld", "const ld", 24, "a type that the ABI does not use"),
    ("int64_t ld", "int32_t ld", 18, "is a size, but its type is 'int32_t'"),
    ("int32_t cuda_halve", "void cuda_halve", 24, "a function must read"),
    ("/**\n", "/*\n", 24, "without a documentation comment"),
    (");\n", ");\n/** Nobody. */\n", 26, "right before a function"),
    ("NNCUDA_KIND_TWO = 1", "NNCUDA_KIND_TWO", 4, "an enum value must read"),
    ("NNCUDA_KIND_TWO = 1", "NNCUDA_KIND_ONE = 1", 4, "defined twice"),
    ("typedef struct nncuda_ctx nncuda_ctx", "typedef struct ctx nncuda_ctx", 5, "a handle must read"),
    ("#define NNCUDA_ABI_MINOR 0", "", 26, "NNCUDA_ABI_MINOR is not defined"),
    (" * section: family\n", " * section family\n", 24, "outside every section"),
    ("NNCUDA_API int32_t", "extern int32_t", 24, "not part of the header's grammar"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "text"), BROKEN)
def test_what_does_not_fit_is_refused(old: str, new: str, line: int, text: str) -> None:
    whole = FRAME + GOOD
    assert old in whole
    with pytest.raises(header.HeaderError) as caught:
        header.parse_text(whole.replace(old, new, 1), "some.h")
    assert text in str(caught.value)
    assert str(caught.value).startswith(f"some.h:{line}:"), str(caught.value)


def test_a_second_declaration_is_refused() -> None:
    with pytest.raises(header.HeaderError, match="declared twice"):
        header.parse_text(FRAME + GOOD + GOOD)


def test_damage_is_an_error_of_the_header_and_nothing_else() -> None:
    """Pieces of the real header cut out or replaced: it is still read, or the error says where it broke."""
    text = (ROOT / "bindings.h").read_text()
    rng = random.Random(0)
    refused = 0
    for _ in range(150):
        start = rng.randrange(len(text))
        end = start + rng.randrange(1, 40)
        damaged = text[:start] + rng.choice(["", "@", "*", " size ", "\n", "[n]"]) + text[end:]
        try:
            contract = header.parse_text(damaged)
        except header.HeaderError as error:
            assert re.match(r"bindings\.h:\d+: ", str(error))
            refused += 1
        else:
            code = re.sub(r"/\*.*?\*/", "", damaged, flags=re.DOTALL)
            assert list(contract.functions) == re.findall(r"^NNCUDA_API [^(]*?(\w+)\(", code, re.MULTILINE)
    assert refused > 75, "most damage hits what is checked"
