"""Every argument of every kernel, spoiled in every way that the header forbids.

What is forbidden comes from the documentation of bindings.h alone, so that a new kernel is covered as soon as it stands
there. Each spoiled call must return the status for its cause and a sentence that names the argument, and must leave all
memory as it was. Run under AddressSanitizer, the same tests show that nothing out of bounds is touched on the way.

A GPU must refuse the same calls in the same words as the CPU. What only the device can see, an index out of range, is
told at the next synchronise; then inputs and everything around outputs must be as they were, and the context usable.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from raw import HEADER, LIB, C, status_name
from samples import Memory, Sample, forbidden, outside, refuse

from nncuda.binding.header import Function

KERNELS = sorted(HEADER.kernels.values(), key=lambda function: function.name)
FLOATS = ("f32", "f16", "bf16")
ENORMOUS = (2**63 - 1, 2**62, 2**61 + 1)

#: Index arrays whose line says where they come from instead of their range: one out of range would be an access out of
#: bounds all the same.
INDEX_RANGES = {
    ("cuda_softmax_topk_backward", "indices"): "0 .. cols-1",
    ("cuda_moe_route_backward", "indices"): "0 .. experts-1",
    ("cuda_moe_output_backward", "indices"): "0 .. experts-1",
    ("cuda_moe_output_backward", "slot_row"): "-1 .. tokens*k-1",
    ("cuda_moe_output_backward", "row_slot"): "-1 .. tokens*k-1",
    ("cuda_moe_input_backward", "slot_row"): "-1 .. tokens*k-1",
    ("cuda_moe_gather", "row_slot"): "-1 .. tokens*k-1",
    ("cuda_moe_gather_backward", "slot_row"): "-1 .. tokens*k-1",
    ("cuda_moe_combine", "slot_row"): "-1 .. tokens*k-1",
    ("cuda_moe_combine_backward", "slot_row"): "-1 .. tokens*k-1",
    ("cuda_moe_combine_backward", "row_slot"): "-1 .. tokens*k-1",
    ("cuda_gemm_quant_experts", "offsets"): "0 .. tokens*k",
    ("cuda_gemm_quant_experts", "slot_row"): "-1 .. tokens*k-1",
    ("cuda_gemm_quant_experts", "row_slot"): "-1 .. tokens*k-1",
    ("cuda_grouped_gemm", "offsets"): "0 .. rows",
    ("cuda_grouped_gemm_wgrad", "offsets"): "0 .. rows",
    ("cuda_grouped_gemm_fp8", "offsets"): "0 .. rows",
    ("cuda_grouped_gemm_wgrad_fp8", "offsets"): "0 .. rows",
    ("cuda_grouped_gemm_swiglu", "offsets"): "0 .. rows",
    ("cuda_grouped_gemm_swiglu_backward", "offsets"): "0 .. rows",
    ("cuda_cross_entropy_backward", "targets"): "0 .. vocab-1",
}

#: Pointers that may be null with another dtype only: test_bad_weights.py.
NEEDED = {("cuda_bitlinear", "scale"), ("cuda_bitlinear", "w_scale")}

#: Numbers in device memory that may be any, whatever their text says of others.
ANY = {("cuda_adamw_step", "lr")}

by_kernel = pytest.mark.parametrize("function", KERNELS, ids=lambda function: function.kernel)


@by_kernel
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_sample_itself_is_valid(engine, function, dtype):
    """Else the tests below would prove nothing."""
    sample = Sample(function, dtype=dtype, context=engine)  # kept here: the call only gets addresses
    engine.ok(function.name, *sample.values())
    engine.ok("nncuda_ctx_synchronize")


@by_kernel
def test_null_context(function):
    sample = Sample(function)
    before = sample.image()
    assert getattr(LIB, function.name)(None, *sample.values()) == C.ERROR_INVALID_CONTEXT
    assert sample.image() == before


@by_kernel
def test_null_pointers(engine, cpu, function):
    sample = Sample(function, context=engine)
    for param in function.pointers:
        if param.nullable and (function.name, param.name) not in NEEDED:
            engine.ok(function.name, *sample.values(**{param.name: None}))
            sample = Sample(function, context=engine)
        else:
            refuse(engine, cpu, sample, (C.ERROR_NULL_POINTER,), param.name, **{param.name: None})


@by_kernel
def test_misaligned_pointers(engine, cpu, function):
    sample = Sample(function, context=engine)
    for param in function.pointers:
        buffer = sample.buffers[param.name]
        for offset in {1, buffer.element // 2} - {0, buffer.element}:
            refuse(engine, cpu, sample, (C.ERROR_MISALIGNED,), param.name, **{param.name: buffer.address + offset})


@by_kernel
def test_negative_and_enormous_sizes(engine, cpu, function):
    sample = Sample(function, context=engine)
    for param in function.of_kind("size"):
        for value in (-1, -(2**63), *ENORMOUS):
            refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), param.name, **{param.name: value})


def multiplied(function: Function) -> set[tuple[str, str]]:
    """Pairs of sizes whose product is part of some tensor's size."""
    pairs = set()
    for param in function.pointers:
        names = [name for dim in param.dims for name in dim.names]
        pairs |= set(itertools.combinations(names, 2))
        if param.ld:
            pairs |= {(name, param.ld) for name in param.dims[0].names}
    return pairs


@by_kernel
def test_products_that_wrap_to_small_numbers(engine, function):
    """2^32 * 2^32 is 0 in 64 bits, and 2^62 * 4 too: every pair of sizes must be multiplied with care."""
    sample = Sample(function, context=engine)
    for pair in sorted(multiplied(function)):
        for values in ((2**32, 2**32), (2**62, 4), (4, 2**62), (2**33 + 1, 2**31)):
            changed = dict(zip(pair, values, strict=True))
            before = sample.image()
            status = engine.call(function.name, *sample.values(**changed))
            assert status == C.ERROR_INVALID_SIZE, f"{changed}: {status_name(status)}: {engine.error}"
            assert sample.image() == before


@by_kernel
def test_sizes_of_zero_do_nothing(engine, cpu, function):
    strides = {param.ld for param in function.pointers}
    for param in function.of_kind("size"):
        sample = Sample(function, context=engine)
        if param.name in strides:
            refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), param.name, **{param.name: 0})
            continue
        changed = sample.following(**{param.name: 0}) | {param.name: 0}
        before = sample.image()
        engine.ok(function.name, *sample.values(**changed))
        assert sample.image() == before, f"{function.name} with {param.name} = 0 wrote something"
        nothing = {pointer.name: None for pointer in function.pointers if not pointer.nullable}
        engine.ok(function.name, *sample.values(**changed, **nothing))


@by_kernel
def test_sizes_at_odds_with_those_that_say_them(engine, cpu, function):
    """Bytes of rows and pages, and the columns of a joint product."""
    sample = Sample(function, context=engine)
    for name in sample.derived:
        for value in (sample.sizes[name] - 1, sample.sizes[name] + 1, 2 * sample.sizes[name]):
            refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), name, **{name: value})


@by_kernel
def test_rows_that_end_within_a_block(engine, cpu, function):
    sample = Sample(function, context=engine)
    elements = "head_dim" if "page_bytes" in sample.sizes else "dim" if "dim" in sample.sizes else "k"
    for param in function.of_kind("option"):
        if param.name.startswith("format"):
            blocks = {param.name: HEADER.constants["NNCUDA_FORMAT_Q8_0"]}
            refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), elements, **{elements: 40}, **blocks)


@by_kernel
def test_row_strides_shorter_than_a_row(engine, cpu, function):
    sample = Sample(function, context=engine)
    for param in function.pointers:
        if param.ld:
            width = int(np.prod([dim.value(sample.sizes) for dim in param.dims[1:]]))
            refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), param.ld, **{param.ld: width - 1})


@by_kernel
def test_flags(engine, cpu, function):
    sample = Sample(function, context=engine)
    for param in function.of_kind("flag"):
        for value in (-1, 2, 2**31 - 1, -(2**31)):
            refuse(engine, cpu, sample, (C.ERROR_INVALID_VALUE,), param.name, **{param.name: value})


@by_kernel
def test_dtypes(engine, cpu, function):
    sample = Sample(function, context=engine)
    for param in function.of_kind("dtype"):
        allowed = {sample.dtypes.get(word, word) for word in param.dtypes}
        known = {word: HEADER.constants[f"NNCUDA_{word.upper()}"] for word in ("f32", "f16", "bf16", "i32", "i8")}
        wrong = [value for word, value in known.items() if word not in allowed]
        for value in (*wrong, -1, 5, 31, 32, 1000, 2**31 - 1, -(2**31)):
            refuse(engine, cpu, sample, (C.ERROR_INVALID_DTYPE,), param.name, **{param.name: value})


@by_kernel
def test_options(engine, cpu, function):
    sample = Sample(function, context=engine)
    for param in function.of_kind("option"):
        if param.constants:
            values = [HEADER.constants[name] for name in param.constants]
            wrong: list[int | float] = [2**31 - 1, -(2**31)]
            taken = {HEADER.constants[name] for name in param.taken}
            wrong += sorted(set(range(min(values) - 1, max(values) + 2)) - taken)
        else:
            wrong = forbidden(param, sample.arguments)
        for value in wrong:
            refuse(engine, cpu, sample, (C.ERROR_INVALID_VALUE,), param.name, **{param.name: value})


@by_kernel
def test_conditions_of_sizes(engine, cpu, function):
    sample = Sample(function, context=engine)
    for param in function.of_kind("size"):
        for value in forbidden(param, sample.arguments):
            refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), param.name, **{param.name: value})


@by_kernel
def test_indices_out_of_range(engine, cpu, function):
    """And the other numbers that the kernel reads from memory and holds against a range."""
    for param in function.pointers:
        if param.dtype not in ("i32", "f32") or not param.reads or (function.name, param.name) in ANY:
            continue
        sample = Sample(function, context=engine)
        given = INDEX_RANGES.get((function.name, param.name))
        text = param.text if given is None else given
        whole = param.dtype == "i32"
        ctype = "int32_t" if whole else "float"
        values = set(outside(type(param)(param.name, ctype, "", text), sample.arguments))
        if not values:
            continue
        if whole:
            values = {int(value) for value in values}
            values |= {-(2**31), 2**31 - 1} - ({2**31 - 1} if len(values) == 1 else set())
        entries = sample.buffers[param.name].numbers()
        for value in values:
            for position in {0, len(entries) // 2, len(entries) - 1}:
                kept = entries[position]
                entries[position] = value
                refuse(engine, cpu, sample, (C.ERROR_OUT_OF_RANGE,), param.name)
                entries[position] = kept
        sample.put()
        engine.ok(function.name, *sample.values())
        engine.ok("nncuda_ctx_synchronize")


#: Kernels whose rows lie group by group: what counts the groups, and what the rows.
GROUPED = {
    **dict.fromkeys(("grouped_gemm", "grouped_gemm_wgrad"), ("groups", "rows")),
    **dict.fromkeys(("gemm_quant", "gemm_quant_swiglu", "gemm_quant_backward"), ("groups", "m")),
    **dict.fromkeys(("flash_attention_paged", "kv_append_paged"), ("batch", "tokens")),
}


@pytest.mark.parametrize("kernel", GROUPED)
@pytest.mark.parametrize("offsets", [(1, 2, 3), (0, 2, 1), (0, 4, 3), (0, -1, 3), (0, 3, 6), (0, 6, 6)])
def test_offsets_that_fall_or_begin_late_or_end_past_the_rows(engine, cpu, kernel, offsets):
    sample = Sample(HEADER.kernels[kernel], dict.fromkeys(GROUPED[kernel], 2) | {GROUPED[kernel][1]: 5}, context=engine)
    sample.buffers["offsets"].numbers()[:] = offsets
    refuse(engine, cpu, sample, (C.ERROR_OUT_OF_RANGE,), "offsets")


@pytest.mark.parametrize("kernel", ["gemm_quant", "gemm_quant_swiglu", "gemm_quant_backward"])
def test_groups_need_offsets(engine, cpu, kernel):
    sample = Sample(HEADER.kernels[kernel], {"groups": 2}, context=engine)
    refuse(engine, cpu, sample, (C.ERROR_INVALID_SIZE,), "groups", offsets=None)


@by_kernel
def test_memory_of_another_device(engine, cpu, function):
    """A GPU takes memory of the host neither page-locked nor not; the CPU takes any."""
    if not engine.on_gpu:
        return
    sample = Sample(function, context=engine)
    locked = engine.made("nncuda_malloc_host", 1 << 16)
    for param in function.pointers:
        pageable = int(sample.buffers[param.name].memory.ctypes.data) // 64 * 64 + 64
        for address in (pageable, locked.value):
            before = sample.image()
            arguments = sample.values(**{param.name: address})
            engine.fails(C.ERROR_WRONG_DEVICE, param.name, function.name, *arguments)
            assert sample.image() == before
    engine.ok("nncuda_free_host", locked)


@by_kernel
def test_outputs_that_overlap(engine, function):
    """The same pointer only where the header says alias; a partial overlap never."""
    sample = Sample(function, context=engine)
    for output in function.pointers:
        if not output.writes:
            continue
        for other in function.pointers:
            if other is output:
                continue
            # Both in one piece of memory that is large enough for either at any of the offsets below.
            room = 2 * max(buffer.bytes for buffer in sample.buffers.values()) + 4096
            memory = Memory(np.zeros(room, np.uint8), engine)
            base = (memory.address + 255) // 256 * 256
            last = sample.buffers[other.name].bytes - sample.buffers[other.name].element
            for offset in (0, sample.buffers[output.name].element, last // 8 * 8):
                allowed = offset == 0 and (other.name in output.alias or output.name in other.alias)
                if allowed or offset > last or offset % sample.buffers[output.name].element:
                    continue
                changed = {output.name: base + offset, other.name: base}
                status = engine.call(function.name, *sample.values(**changed))
                assert status == C.ERROR_ALIASED, f"{output.name}, {other.name}, {offset}: {status_name(status)}"
                assert output.name in engine.error and other.name in engine.error, engine.error
                assert not memory.get().any(), f"{function.name} wrote although it failed"


@by_kernel
def test_outputs_in_place(engine, function):
    """Where the header says alias, the result in place equals the result beside."""
    for output in function.pointers:
        for name in output.alias:
            beside, inside = Sample(function, context=engine), Sample(function, context=engine)
            if inside.buffers[name].stride != inside.buffers[output.name].stride:
                continue  # the aliases are dense or have the same ld in what follows
            engine.ok(function.name, *beside.values())
            engine.ok(function.name, *inside.values(**{output.name: inside.buffers[name].address}))
            wanted, got = beside.buffers[output.name], inside.buffers[name]
            one, other = wanted.now(), got.now()
            for row in range(wanted.rows):
                begin, end = row * wanted.stride, row * wanted.stride + wanted.width
                assert np.array_equal(one[begin:end], other[begin:end]), f"{output.name} in {name}"
