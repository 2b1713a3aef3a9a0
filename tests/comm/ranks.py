"""Jobs of several ranks, each a context of this process in a thread of its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import nncuda
from nncuda import kernels

_numbers = itertools.count()


def outcomes(ranks: int, work: Callable[[nncuda.Comm], Any], timeout: float = 20.0, **options: Any) -> list[Any]:
    """What `work` returns on each rank, or the exception that it raised."""
    name = f"job {next(_numbers)}"
    found: list[Any] = [None] * ranks

    def run(rank: int) -> None:
        try:
            with nncuda.Context(**{"threads": 1, **options}) as ctx:
                comm = nncuda.Comm(ctx, "threads", name, rank, ranks, timeout)
                try:
                    found[rank] = work(comm)
                finally:
                    comm.close()
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def job(ranks: int, work: Callable[[nncuda.Comm], Any], **options: Any) -> list[Any]:
    """What `work` returns on each rank."""
    found = outcomes(ranks, work, **options)
    for error in (one for one in found if isinstance(one, Exception)):
        raise error
    return found


def failures(ranks: int, work: Callable[[nncuda.Comm], Any], **options: Any) -> list[str]:
    """The sentence with which each rank lost the others, without the function's name; empty where it did not."""
    found = outcomes(ranks, work, **options)
    for error in (one for one in found if isinstance(one, Exception) and not isinstance(one, nncuda.PeerError)):
        raise error
    return [error.message.partition(": ")[2] if isinstance(error, nncuda.PeerError) else "" for error in found]


def gradients(replicas: int, n: int) -> np.ndarray:
    """One gradient a replica, of all sizes, so that the order of their sums shows in the bits."""
    rng = np.random.default_rng(replicas * 1_000_003 + n)
    return (rng.standard_normal((replicas, n)) * np.exp(rng.uniform(-6, 6, (replicas, n)))).astype(np.float32)


def rounded(x: np.ndarray, wire: str) -> np.ndarray:
    if wire == "f32":
        return x
    with np.errstate(over="ignore"):
        return x.astype(np.float16 if wire == "f16" else ml_dtypes.bfloat16).astype(np.float32)


def tree_sum(gradients: np.ndarray, wire: str = "f32", root: bool = True) -> np.ndarray:
    """The definition in bindings.h, section comm; all sums but that at the root are rounded."""
    if len(gradients) == 1:
        return gradients[0] if root else rounded(gradients[0], wire)
    half = 1 << (len(gradients) - 1).bit_length() - 1
    with np.errstate(invalid="ignore"):
        total = tree_sum(gradients[:half], wire, False) + tree_sum(gradients[half:], wire, False)
    return total if root else rounded(total, wire)


def summed(ctx: nncuda.Context, gradients: np.ndarray, first: int, last: int) -> list[nncuda.Tensor]:
    """The sums that a rank with the replicas first .. last-1 ends with, the oldest first."""
    stack: list[nncuda.Tensor] = []
    for replica in range(first, last):
        total = ctx.tensor(gradients[replica])
        for _ in range(nncuda.replica_merges(len(gradients), first, replica)):
            kernels.add(stack.pop(), total, y=total)
        stack.append(total)
    return stack


def reduce_scatter(comm: nncuda.Comm, gradients: np.ndarray, grain: int) -> tuple[np.ndarray, slice]:
    """What is in the gradients' memory afterwards, and this rank's shard of it."""
    (replicas, n), ctx = gradients.shape, comm.ctx
    *aside, x = summed(ctx, gradients, *nncuda.shard(replicas, 1, comm.ranks, comm.rank))
    partials = ctx.tensor(np.stack([part.numpy() for part in aside])) if aside else None
    shards = nncuda.expert_shards(n, grain, comm.ranks) if n else []
    comm.reduce_scatter(partials, x, shards, replicas)
    return x.numpy(), slice(*nncuda.shard(n, grain, comm.ranks, comm.rank))
