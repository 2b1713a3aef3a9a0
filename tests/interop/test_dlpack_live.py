"""Memory shared with PyTorch and JAX through DLPack, live: values, dtypes, strides, and who keeps it alive."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import numpy as np
import pytest

import nncuda
from nncuda import kernels

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs torch and JAX", allow_module_level=True)

import jax
import jax.numpy as jnp
import torch

DTYPES = {
    "f32": (torch.float32, jnp.float32),
    "f16": (torch.float16, jnp.float16),
    "bf16": (torch.bfloat16, jnp.bfloat16),
    "i32": (torch.int32, jnp.int32),
    "i8": (torch.int8, jnp.int8),
}


@pytest.fixture
def ctx() -> Iterator[nncuda.Context]:
    with nncuda.Context(threads=2) as context:
        yield context


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_both_ways(ctx: nncuda.Context, dtype: str) -> None:
    theirs = DTYPES[dtype][0]
    tensor = ctx.tensor(np.arange(12).reshape(3, 4), dtype)
    shared = torch.from_dlpack(tensor)
    assert shared.dtype == theirs and shared.shape == (3, 4) and shared.data_ptr() == tensor.ptr
    shared[1, 2] = 50
    assert tensor.narrow(0, 1, 1).narrow(1, 2, 1).item() == 50
    source = torch.arange(12).reshape(3, 4).to(theirs)
    back = ctx.from_dlpack(source)
    assert back.dtype == dtype and back.ptr == source.data_ptr()
    kernels.fill(back, value=7.0)
    assert torch.equal(source, torch.full((3, 4), 7, dtype=theirs))


def test_torch_strides(ctx: nncuda.Context) -> None:
    tensor = ctx.tensor(np.arange(24, dtype=np.float32).reshape(4, 6))
    columns = torch.from_dlpack(tensor.narrow(1, 2, 3))
    assert columns.stride() == (6, 1)
    assert torch.equal(columns, torch.arange(24.0).reshape(4, 6)[:, 2:5])
    source = torch.arange(24.0).reshape(4, 6)
    part = ctx.from_dlpack(source[:, 2:5])
    assert part.ld == 6
    kernels.scale(part.contiguous(), alpha=2.0)
    np.testing.assert_array_equal(part.numpy(), source[:, 2:5].numpy())
    with pytest.raises(BufferError, match="strides"):
        ctx.from_dlpack(source.T)


def test_torch_keeps_our_memory_and_we_keep_torchs(ctx: nncuda.Context) -> None:
    before = ctx.bytes_used
    shared = torch.from_dlpack(ctx.tensor(np.arange(1000.0)))
    gc.collect()
    assert ctx.bytes_used > before
    ctx.zeros(1000)  # would land on the memory if it had been freed
    assert shared.sum().item() == 499500
    del shared
    gc.collect()
    assert ctx.bytes_used == before
    back = ctx.from_dlpack(torch.arange(1000.0))
    gc.collect()
    trash = [torch.full((1000,), -1.0) for _ in range(50)]
    assert back.numpy().sum() == 499500 and len(trash) == 50


def test_torch_outlives_the_context() -> None:
    ctx = nncuda.Context(threads=1)
    shared = torch.from_dlpack(ctx.tensor([1.0, 2.0]))
    ctx.close()
    assert shared.tolist() == [1.0, 2.0]
    del ctx
    gc.collect()
    assert shared.sum().item() == 3.0


def test_torch_frees_in_another_thread(ctx: nncuda.Context) -> None:
    """Autograd drops what it saved in its own thread."""
    before = ctx.bytes_used
    x = torch.from_dlpack(ctx.tensor(np.ones(100, np.float32))).requires_grad_()
    (x * x).sum().backward()
    assert torch.equal(x.grad, torch.full((100,), 2.0))
    del x
    gc.collect()
    ctx.empty(1)
    gc.collect()
    assert ctx.bytes_used == before


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_both_ways(ctx: nncuda.Context, dtype: str) -> None:
    theirs = DTYPES[dtype][1]
    tensor = ctx.tensor(np.arange(12).reshape(3, 4), dtype)
    shared = jax.dlpack.from_dlpack(tensor)
    assert shared.dtype == theirs and shared.shape == (3, 4)
    np.testing.assert_array_equal(np.asarray(shared, np.float32), tensor.numpy().astype(np.float32))
    source = jnp.arange(12).reshape(3, 4).astype(theirs)
    back = ctx.from_dlpack(source)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back.numpy().astype(np.float32), np.asarray(source, np.float32))
    if back.readonly:
        with pytest.raises(ValueError, match="read-only"):
            kernels.fill(back, value=1.0)
