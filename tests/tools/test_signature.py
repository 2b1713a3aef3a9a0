"""The arguments of a kernel in compiled languages: what is solved from shapes is what the shapes were made of."""

import random

import pytest

from nncuda.binding import header
from tools.signature import Signature, signature

KERNELS = header.parse().kernels


def solve(found: Signature, shapes: dict[str, tuple[int, ...]], sizes: dict[str, int]) -> dict[str, int]:
    """Sizes by the rule that generated code follows; `shapes` leaves out the tensors that are not given."""
    sizes = dict(sizes)
    for step in found.solves:
        if step.param.name not in shapes:
            sizes[step.size] = 1
            continue
        divisor = step.dim.coefficient
        for name in step.others:
            divisor *= sizes[name]
        value = (shapes[step.param.name][step.at] - step.dim.offset) * step.dim.divisor
        assert divisor and value % divisor == 0
        sizes[step.size] = value // divisor
    return sizes


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("optional", [True, False])
def test_shapes_tell_their_sizes(name, optional):
    function = KERNELS[name]
    found = signature(function)
    draw = random.Random(name)
    names = [param.name for param in function.of_kind("size") if param.name not in found.strides]
    sizes = {size: 2 * draw.randint(1, 40) for size in names}  # even: head_dim / 2 is a dimension
    shapes = {
        param.name: tuple(dim.value(sizes) for dim in param.dims)
        for param in function.pointers
        if optional or not param.nullable
    }
    passed = {param.name: sizes[param.name] for param in found.arguments if param.kind == "size"}
    solved = solve(found, shapes, passed)
    for param in function.pointers:
        if param.name in shapes:
            assert tuple(dim.value(solved) for dim in param.dims) == shapes[param.name]
    assert set(solved) == set(names)


@pytest.mark.parametrize("name", KERNELS)
def test_every_parameter_is_passed_or_follows(name):
    function = KERNELS[name]
    found = signature(function)
    covered = {param.name for param in found.arguments}
    covered |= {step.size for step in found.solves} | set(found.dtypes) | set(found.strides)
    assert covered | {"ctx"} == {param.name for param in function.params} | {"ctx"}
    dims = sum(len(param.dims) for param in function.pointers)
    assert len(found.solves) + len(found.checks) == dims


def test_only_what_no_tensor_tells_is_passed():
    passed = {
        name: [param.name for param in signature(function).arguments if param.kind in ("size", "dtype")]
        for name, function in KERNELS.items()
    }
    assert {name: sizes for name, sizes in passed.items() if sizes} == {
        "flash_attention": ["batch"],
        "flash_attention_paged": ["kv_heads"],
        "attention_decode_paged": ["kv_heads"],
        "interleave_rows": ["k"],
        "round": ["dtype"],  # what f32 is rounded to
        "count_tokens": ["vocab"],  # which ids are held against, before any logits are there
    }
