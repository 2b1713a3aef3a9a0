"""A whole update, shared out over ranks as a trainer does it: gradients of replicas in, weights and moments out."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import gradients, job, summed

import nncuda
from nncuda import kernels

GRAIN, REPLICAS, N, DECAYED, STEPS = 32768, 5, 5 * 32768 + 1000, 100_000, 3
OPTIONS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}


def moments(ctx: nncuda.Context, kind: str, n: int) -> list[nncuda.Tensor]:
    if kind == "f8":
        blocks = -(-n // 256)
        return [ctx.zeros(n, "u8"), ctx.zeros(blocks), ctx.zeros(n, "u8"), ctx.zeros(blocks)]
    return [ctx.zeros(n, "bf16" if kind == "bf16" else "f32") for _ in range(2)]


def adamw(kind: str, begin: int, *tensors: nncuda.Tensor | None, **options: object) -> None:
    if kind == "f32":
        kernels.adamw_step(*tensors, **OPTIONS, **options)  # type: ignore[arg-type]
    else:
        kernel = kernels.adamw_step_bf16 if kind == "bf16" else kernels.adamw_step_f8
        kernel(*tensors, **OPTIONS, **options, first=begin)  # type: ignore[arg-type]


def train(comm: nncuda.Comm, kind: str) -> tuple[bytes, ...]:
    """The weights after some steps, this rank's parameters and moments, and the norm."""
    ctx = comm.ctx
    begin, end = nncuda.shard(N, GRAIN, comm.ranks, comm.rank)
    shards = nncuda.expert_shards(N, GRAIN, comm.ranks)
    own = moments(ctx, kind, end - begin)
    parameters, weights = ctx.tensor(gradients(1, N)[0]), ctx.zeros(N, "bf16")
    rate, step, norm = ctx.tensor([1e-2]), ctx.zeros(1, "i32"), ctx.empty(1)
    for _ in range(STEPS):
        step.copy_(step.numpy() + 1)
        *aside, total = summed(ctx, gradients(REPLICAS, N), *nncuda.shard(REPLICAS, 1, comm.ranks, comm.rank))
        partials = ctx.tensor(np.stack([part.numpy() for part in aside])) if aside else None
        comm.reduce_scatter(partials, total, shards, REPLICAS)
        comm.grad_norm(total, norm, shards)
        scale = kernels.grad_clip(norm, max_norm=1.0)
        gradient, parameter, copy = (tensor[begin:end] for tensor in (total, parameters, weights))
        decayed = min(max(DECAYED - begin, 0), end - begin)
        adamw(kind, begin, gradient, rate, step, scale, None, parameter, *own, n_decay=decayed, param_copy=copy)
        comm.all_gather(weights, 2 * GRAIN)
    return weights.numpy().tobytes(), norm.numpy().tobytes(), *(x.numpy().tobytes() for x in (parameter, *own))


@pytest.mark.parametrize("kind", ["f32", "bf16", "f8"])
def test_an_update_does_not_know_the_number_of_ranks(kind):
    def work(comm: nncuda.Comm) -> tuple[bytes, ...]:
        return train(comm, kind)

    (whole,) = job(1, work)
    for ranks in range(2, REPLICAS + 1):
        found = job(ranks, work)
        assert all(one[:2] == whole[:2] for one in found)
        assert [b"".join(parts) for parts in zip(*(one[2:] for one in found), strict=True)] == list(whole[2:])
