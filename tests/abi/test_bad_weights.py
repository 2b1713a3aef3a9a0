"""Stored and packed weights in a form that the call does not take, or with invalid content."""

from __future__ import annotations

import numpy as np
import pytest
from raw import HEADER, C
from samples import Sample, refuse

FLOATS = ("f32", "f16", "bf16")
FORMATS = {name.removeprefix("NNCUDA_FORMAT_"): value for name, value in HEADER.constants.items()
           if name.startswith("NNCUDA_FORMAT_")}  # fmt: skip
#: The one of caches alone.
E4M3 = FORMATS.pop("E4M3")
#: Formats whose rows lie side by side, and what they are otherwise.
SIDE_BY_SIDE = {FORMATS[name]: FORMATS[name.removesuffix("_R16")] for name in FORMATS if name.endswith("_R16")}
#: Those that are read, and not stored.
READ_ALONE = ("IQ4_NL", "MXFP4", "IQ4_XS")
#: Where rows are taken one by one: kernels, and the option that says the format.
ONE_BY_ONE = ("quantize", "dequantize", "embedding_quant", "gemm_quant_backward")
PAGED = ("kv_append_paged", "flash_attention_paged", "attention_decode_paged", "attention_step_paged")
#: Products, their options of a format, and the size that says the rows of that matrix.
PRODUCTS = {
    "gemm_quant": {"format": "n"},
    "gemm_quant_qkv": {"format_q": "n_q", "format_k": "n_kv", "format_v": "n_kv"},
    "gemm_quant_swiglu": {"format_gate": "n", "format_up": "n"},
    "gemm_quant_route": {"format": "experts"},
    "gemm_quant_experts": {"format_gate": "n", "format_up": "n", "format_down": "dim"},
}
#: Sizes of a call whose rows are whole blocks of every format.
WIDE = {"k": 256, "dim": 256}
EXPERTS = {name: {"dim": 256, "n": 256} for name in ("gemm_quant_route", "gemm_quant_experts")}
NOT_FINITE = pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])


def pattern(value: float, dtype: str) -> np.ndarray:
    """The bytes of a number that is not finite."""
    bits = (np.float16(value) if dtype == "f16" else np.float32(value)).tobytes()
    return np.frombuffer(bits[2:] if dtype == "bf16" else bits, np.uint8)


@pytest.mark.parametrize("dtype", FLOATS)
@NOT_FINITE
def test_numbers_that_no_block_can_hold(engine, cpu, dtype, value):
    """The first of them is told; formats that are dtypes take any."""
    bits = pattern(value, dtype)
    for format_ in set(FORMATS.values()) - set(SIDE_BY_SIDE) - {FORMATS[name] for name in READ_ALONE}:
        kernel = HEADER.kernels["quantize"]
        sample = Sample(kernel, {"rows": 70, "k": 256}, dtype, engine, {"format": format_})
        for at in (66 * 256 + 7, 69 * 256 + 255):
            sample.buffers["x"].data[at * len(bits) : (at + 1) * len(bits)] = bits
        if format_ < FORMATS["Q4_0"]:
            sample.put()
            engine.ok(kernel.name, *sample.values())
            continue
        refuse(engine, cpu, sample, (C.ERROR_OUT_OF_RANGE,), f"x[{66 * 256 + 7}]")


@pytest.mark.parametrize("name", READ_ALONE)
def test_formats_that_are_read_alone(engine, cpu, name):
    sample = Sample(HEADER.kernels["quantize"], WIDE, context=engine, options={"format": FORMATS[name]})
    sentence = f"format is NNCUDA_FORMAT_{name} ({FORMATS[name]}), which is read and not stored"
    refuse(engine, cpu, sample, (C.ERROR_INVALID_VALUE,), sentence)


@pytest.mark.parametrize("format_", SIDE_BY_SIDE)
@pytest.mark.parametrize("kernel", ONE_BY_ONE)
def test_rows_side_by_side_are_for_products(engine, cpu, kernel, format_):
    plain = SIDE_BY_SIDE[format_]
    sizes = {"rows": 16, "vocab": 16, "k": 256, "dim": 256}
    sample = Sample(HEADER.kernels[kernel], sizes, context=engine, options={"format": format_})
    sentence = f"format is {format_}, sixteen rows side by side, which only products take; here it must be {plain}"
    refuse(engine, cpu, sample, (C.ERROR_INVALID_VALUE,), sentence)


@pytest.mark.parametrize("kernel", [*ONE_BY_ONE, *PRODUCTS])
def test_no_weights_are_in_the_format_of_caches(engine, cpu, kernel):
    for option in PRODUCTS.get(kernel, ("format",)):
        sample = Sample(HEADER.kernels[kernel], EXPERTS.get(kernel, WIDE), context=engine)
        sentence = f"{option} is NNCUDA_FORMAT_E4M3 ({E4M3}), in which caches are stored, not weights"
        refuse(engine, cpu, sample, (C.ERROR_INVALID_VALUE,), sentence, **{option: E4M3})


@pytest.mark.parametrize("format_", SIDE_BY_SIDE)
@pytest.mark.parametrize("kernel", PAGED)
def test_rows_side_by_side_are_no_cache(engine, cpu, kernel, format_):
    sample = Sample(HEADER.kernels[kernel], {"head_dim": 256, "kv_heads": 2}, context=engine)
    refuse(engine, cpu, sample, (C.ERROR_INVALID_VALUE,), f"format is {format_}; it must be", format=format_)


@pytest.mark.parametrize("format_", SIDE_BY_SIDE)
@pytest.mark.parametrize("kernel", PRODUCTS)
def test_rows_side_by_side_come_in_sixteens(engine, cpu, kernel, format_):
    for option, rows in PRODUCTS[kernel].items():
        for n in (8, 17):
            sizes = {**EXPERTS.get(kernel, WIDE), "n_q": 16, "n_kv": 16, rows: n}
            options = {**dict.fromkeys(PRODUCTS[kernel], FORMATS["F32"]), option: format_}  # which take any rows
            sample = Sample(HEADER.kernels[kernel], sizes, context=engine, options=options)
            sentence = f"{rows} is {n}; with {option} {format_} it must be a multiple of 16"
            refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), sentence)


def test_what_rows_side_by_side_are_made_of(engine, cpu):
    function = HEADER.kernels["interleave_rows"]
    for name, format_ in FORMATS.items():
        sizes = {"rows": 16, "k": 256}
        sample = Sample(function, sizes, context=engine, options={"format": format_})
        if format_ in SIDE_BY_SIDE.values():
            engine.ok(function.name, *sample.values())
        else:
            refuse(engine, cpu, sample, (C.ERROR_INVALID_VALUE,), f"format is {format_}; it must be NNCUDA_FORMAT_Q4_0")
        if name == "Q4_0":
            for rows in (1, 15, 17, 24):
                sample = Sample(function, {"rows": rows}, context=engine, options={"format": format_})
                sentence = f"rows is {rows}; it must be a multiple of 16"
                refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), sentence)


@pytest.mark.parametrize("value", [2, -2, 127, -128])
def test_codes_that_are_not_ternary(engine, cpu, value):
    """One at a time: of several, a GPU tells the one that it comes upon."""
    n, k = 37, 21
    sample = Sample(HEADER.kernels["ternary_pack"], {"n": n, "k": k}, context=engine)
    codes = sample.buffers["codes"].data.view(np.int8)
    for at in (n * k - 1, 16 * k, 16 * k - 1, 7, 0):
        codes[at] = value
        refuse(engine, cpu, sample, (C.ERROR_OUT_OF_RANGE,), f"codes[{at}] is {value}; it must be -1 to 1")
        codes[at] = 0


def test_packed_bits_that_are_no_code(engine, cpu):
    n, k = 19, 37
    sample = Sample(HEADER.kernels["ternary_unpack"], {"n": n, "k": k}, context=engine)
    w = sample.buffers["w"].data
    for row, column in ((18, 36), (16, 0), (15, 35), (3, 14), (3, 13), (0, 0)):
        w[:] = 0b01010101
        word = (row // 16 * 3 + column // 16) * 16 + row % 16
        w[4 * word + column % 4] |= 3 << (column % 16 // 4 * 2)
        refuse(engine, cpu, sample, (C.ERROR_OUT_OF_RANGE,), f"codes[{row * k + column}] is 2; it must be -1 to 1")


@pytest.mark.parametrize("dtype", FLOATS)
@NOT_FINITE
def test_weights_without_a_mean(engine, cpu, dtype, value):
    n, k = 40, 35
    bits = pattern(value, dtype)
    sample = Sample(HEADER.kernels["ternary_quantize"], {"n": n, "k": k}, dtype, engine)
    x = sample.buffers["x"].data
    for at in (n * k - 1, 17 * k + 16, 17 * k + 3, 0):
        place = slice(at * len(bits), (at + 1) * len(bits))
        kept, x[place] = x[place].copy(), bits
        refuse(engine, cpu, sample, (C.ERROR_OUT_OF_RANGE,), f"x[{at}] is ")
        x[place] = kept


def test_integers_have_no_scales(engine, cpu):
    """With dtype i32 the pointers of what follows the product must be null, else the scales must be there."""
    function = HEADER.kernels["bitlinear"]
    sample = Sample(function, dtype="i32", context=engine)
    without = dict.fromkeys(("scale", "w_scale", "residual"))
    engine.ok(function.name, *sample.values(**without))
    for name in without:
        given = without | {name: sample.buffers[name].address}
        sentence = "scale, w_scale and residual must be null with dtype i32, which gives the integers"
        refuse(engine, cpu, sample, (C.ERROR_INVALID_VALUE,), sentence, **given)
    for dtype in FLOATS:
        sample = Sample(function, dtype=dtype, context=engine)
        for name in ("scale", "w_scale"):
            sentence = f"{name} is null; only dtype i32 does without"
            refuse(engine, cpu, sample, (C.ERROR_NULL_POINTER,), sentence, **{name: None})


def test_columns_whose_sums_fit(engine, cpu):
    sample = Sample(HEADER.kernels["bitlinear"], {"m": 1, "n": 1, "k": 1 << 18}, context=engine)
    engine.ok("cuda_bitlinear", *sample.values())
    sample = Sample(HEADER.kernels["bitlinear"], {"m": 1, "n": 1, "k": (1 << 18) + 1}, context=engine)
    refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), "k is 262145; it must be at most 262144")


@pytest.mark.parametrize("kernel", ["ternary_pack", "ternary_unpack", "bitlinear"])
def test_packed_sizes(engine, cpu, kernel):
    """They are those of whole sixteens, also where a smaller or a larger piece would hold the weights."""
    sample = Sample(HEADER.kernels[kernel], {"n": 17, "k": 33}, context=engine)
    for stored in (16, 17, 48):
        sentence = f"stored is {stored}; it must be 32, n rounded up to a multiple of 16"
        refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), sentence, stored=stored)
    for row_bytes in (8, 9, 11, 16):
        sentence = f"row_bytes is {row_bytes}; it must be 12, four for every 16 of k 33"
        refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), sentence, row_bytes=row_bytes)
