"""Every argument of every kernel, spoiled in every way that the header forbids.

What is forbidden comes from the documentation of bindings.h alone, so that a new kernel is covered as soon as it stands
there. Each spoiled call must return the status for its cause and a sentence that names the argument, and must leave all
memory as it was. Run under AddressSanitizer, the same tests show that nothing out of bounds is touched on the way.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from raw import HEADER, LIB, C, Context, status_name
from samples import Sample, outside

from nncuda.binding.header import Function

KERNELS = sorted(HEADER.kernels.values(), key=lambda function: function.name)
FLOATS = ("f32", "f16", "bf16")
ENORMOUS = (2**63 - 1, 2**62, 2**61 + 1)

#: Index arrays whose line says where they come from instead of their range: one out of range would be an access out of
#: bounds all the same.
INDEX_RANGES = {
    ("cuda_softmax_topk_backward", "indices"): "0 .. cols-1",
    ("cuda_moe_gather", "row_slot"): "-1 .. tokens*k-1",
    ("cuda_moe_gather_backward", "slot_row"): "-1 .. tokens*k-1",
    ("cuda_moe_combine", "slot_row"): "-1 .. tokens*k-1",
    ("cuda_moe_combine_backward", "slot_row"): "-1 .. tokens*k-1",
    ("cuda_moe_combine_backward", "row_slot"): "-1 .. tokens*k-1",
    ("cuda_grouped_gemm", "offsets"): "0 .. rows",
    ("cuda_grouped_gemm_wgrad", "offsets"): "0 .. rows",
    ("cuda_cross_entropy_backward", "targets"): "0 .. vocab-1",
}

by_kernel = pytest.mark.parametrize("function", KERNELS, ids=lambda function: function.kernel)


def refuse(
    context: Context, sample: Sample, statuses: tuple[int, ...], word: str, **changed: int | float | None
) -> None:
    """The changed call must fail with one of the statuses, name the argument and write nothing."""
    before = sample.image()
    name = sample.function.name
    status = context.call(name, *sample.values(**changed))
    sentence = context.error
    assert status in statuses, f"{name} with {changed}: {status_name(status)}, {sentence!r}"
    assert sentence.startswith(f"{name}: "), sentence
    assert word in sentence, f"{name} with {changed}: {sentence!r} does not name {word}"
    assert sample.image() == before, f"{name} with {changed} wrote although it failed"


@by_kernel
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_sample_itself_is_valid(context, function, dtype):
    """Else the tests below would prove nothing."""
    sample = Sample(function, dtype=dtype)  # kept here: the call only gets addresses
    context.ok(function.name, *sample.values())


@by_kernel
def test_null_context(function):
    sample = Sample(function)
    before = sample.image()
    assert getattr(LIB, function.name)(None, *sample.values()) == C.ERROR_INVALID_CONTEXT
    assert sample.image() == before


@by_kernel
def test_null_pointers(context, function):
    sample = Sample(function)
    for param in function.pointers:
        if param.nullable:
            context.ok(function.name, *sample.values(**{param.name: None}))
            sample = Sample(function)
        else:
            refuse(context, sample, (C.ERROR_NULL_POINTER,), param.name, **{param.name: None})


@by_kernel
def test_misaligned_pointers(context, function):
    sample = Sample(function)
    for param in function.pointers:
        buffer = sample.buffers[param.name]
        for offset in {1, buffer.element // 2} - {0, buffer.element}:
            refuse(context, sample, (C.ERROR_MISALIGNED,), param.name, **{param.name: buffer.address + offset})


@by_kernel
def test_negative_and_enormous_sizes(context, function):
    sample = Sample(function)
    for param in function.of_kind("size"):
        for value in (-1, -(2**63), *ENORMOUS):
            refuse(context, sample, (C.ERROR_INVALID_SIZE,), param.name, **{param.name: value})


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
def test_products_that_wrap_to_small_numbers(context, function):
    """2^32 * 2^32 is 0 in 64 bits, and 2^62 * 4 too: every pair of sizes must be multiplied with care."""
    sample = Sample(function)
    for pair in sorted(multiplied(function)):
        for values in ((2**32, 2**32), (2**62, 4), (4, 2**62), (2**33 + 1, 2**31)):
            changed = dict(zip(pair, values, strict=True))
            before = sample.image()
            status = context.call(function.name, *sample.values(**changed))
            assert status == C.ERROR_INVALID_SIZE, f"{changed}: {status_name(status)}: {context.error}"
            assert sample.image() == before


@by_kernel
def test_sizes_of_zero_do_nothing(context, function):
    strides = {param.ld for param in function.pointers}
    for param in function.of_kind("size"):
        sample = Sample(function)
        if param.name in strides:
            refuse(context, sample, (C.ERROR_INVALID_SIZE,), param.name, **{param.name: 0})
            continue
        before = sample.image()
        context.ok(function.name, *sample.values(**{param.name: 0}))
        assert sample.image() == before, f"{function.name} with {param.name} = 0 wrote something"
        nothing = {pointer.name: None for pointer in function.pointers if not pointer.nullable}
        context.ok(function.name, *sample.values(**{param.name: 0}, **nothing))


@by_kernel
def test_row_strides_shorter_than_a_row(context, function):
    sample = Sample(function)
    for param in function.pointers:
        if param.ld:
            width = int(np.prod([dim.value(sample.sizes) for dim in param.dims[1:]]))
            refuse(context, sample, (C.ERROR_INVALID_SIZE,), param.ld, **{param.ld: width - 1})


@by_kernel
def test_flags(context, function):
    sample = Sample(function)
    for param in function.of_kind("flag"):
        for value in (-1, 2, 2**31 - 1, -(2**31)):
            refuse(context, sample, (C.ERROR_INVALID_VALUE,), param.name, **{param.name: value})


@by_kernel
def test_dtypes(context, function):
    sample = Sample(function)
    for param in function.of_kind("dtype"):
        allowed = {sample.dtypes.get(word, word) for word in param.dtypes}
        known = {word: HEADER.constants[f"NNCUDA_{word.upper()}"] for word in ("f32", "f16", "bf16", "i32", "i8")}
        wrong = [value for word, value in known.items() if word not in allowed]
        for value in (*wrong, -1, 5, 31, 32, 1000, 2**31 - 1, -(2**31)):
            refuse(context, sample, (C.ERROR_INVALID_DTYPE,), param.name, **{param.name: value})


@by_kernel
def test_options(context, function):
    sample = Sample(function)
    for param in function.of_kind("option"):
        if param.constants:
            values = [HEADER.constants[name] for name in param.constants]
            wrong: list[int | float] = [min(values) - 1, max(values) + 1, 2**31 - 1, -(2**31)]
        else:
            wrong = outside(param, sample.arguments)
        for value in wrong:
            refuse(context, sample, (C.ERROR_INVALID_VALUE,), param.name, **{param.name: value})


@by_kernel
def test_indices_out_of_range(context, function):
    for param in function.pointers:
        if param.dtype != "i32" or not param.reads:
            continue
        sample = Sample(function)
        given = INDEX_RANGES.get((function.name, param.name))
        text = param.text if given is None else given
        values = {int(value) for value in outside(type(param)(param.name, "int32_t", "", text), sample.arguments)}
        if not values:
            continue
        entries = sample.buffers[param.name].integers()
        for value in values | {-(2**31), 2**31 - 1} - ({2**31 - 1} if len(values) == 1 else set()):
            for position in {0, len(entries) // 2, len(entries) - 1}:
                kept = int(entries[position])
                entries[position] = value
                refuse(context, sample, (C.ERROR_OUT_OF_RANGE,), param.name)
                entries[position] = kept


@by_kernel
def test_outputs_that_overlap(context, function):
    """The same pointer only where the header says alias; a partial overlap never."""
    sample = Sample(function)
    for output in function.pointers:
        if not output.writes:
            continue
        for other in function.pointers:
            if other is output:
                continue
            # Both in one piece of memory that is large enough for either at any of the offsets below.
            room = 2 * max(buffer.bytes for buffer in sample.buffers.values()) + 4096
            memory = np.zeros(room, np.uint8)
            base = (int(memory.ctypes.data) + 255) // 256 * 256
            last = sample.buffers[other.name].bytes - sample.buffers[other.name].element
            for offset in (0, sample.buffers[output.name].element, last // 8 * 8):
                allowed = offset == 0 and (other.name in output.alias or output.name in other.alias)
                if allowed or offset > last or offset % sample.buffers[output.name].element:
                    continue
                changed = {output.name: base + offset, other.name: base}
                status = context.call(function.name, *sample.values(**changed))
                assert status == C.ERROR_ALIASED, f"{output.name}, {other.name}, {offset}: {status_name(status)}"
                assert output.name in context.error and other.name in context.error, context.error
                assert not memory.any(), f"{function.name} wrote although it failed"


@by_kernel
def test_outputs_in_place(context, function):
    """Where the header says alias, the result in place equals the result beside."""
    for output in function.pointers:
        for name in output.alias:
            beside, inside = Sample(function), Sample(function)
            if inside.buffers[name].stride != inside.buffers[output.name].stride:
                continue  # the aliases are dense or have the same ld in what follows
            context.ok(function.name, *beside.values())
            context.ok(function.name, *inside.values(**{output.name: inside.buffers[name].address}))
            wanted, got = beside.buffers[output.name], inside.buffers[name]
            for row in range(wanted.rows):
                begin, end = row * wanted.stride, row * wanted.stride + wanted.width
                assert np.array_equal(wanted.data[begin:end], got.data[begin:end]), f"{output.name} in {name}"
