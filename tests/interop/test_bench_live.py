"""The benchmarks' peers compute what our kernels compute: every kind of line, in PyTorch on the CPU."""

from __future__ import annotations

import os

import pytest

import nncuda

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs torch", allow_module_level=True)

import numpy as np
import torch

from nncuda.bench import catalogue, step, torch_step, torch_work
from nncuda.bench.ceilings import DeviceCeilings
from nncuda.bench.measure import measure
from nncuda.bench.timing import ONCE


def test_both_sides_agree() -> None:
    """The GPU's lines at tiny sizes; those of the CPU are the same kinds, beside top-p."""
    works = catalogue.gpu(quick=True)
    with nncuda.Context("cpu", threads=1) as ctx:
        torch_work.prepare(ctx)
        rows = list(measure(ctx, works, DeviceCeilings(1e9), {}, torch_work, ONCE))
    torch.set_grad_enabled(True)
    for work, row in zip(works, rows, strict=True):
        assert row.error is None and row.peer_missing is None, row
        assert (row.ratio is not None) == (work.peer is not None), row
    assert {work.peer for work in catalogue.cpu()} - {work.peer for work in works} == {"top_p"}


def test_results_that_differ_are_an_error() -> None:
    work = next(work for work in catalogue.gpu(quick=True) if work.peer == "add")

    class Wrong:
        sides = staticmethod(
            lambda ctx, work, sets: [torch_work.linear({"x": torch.ones(4, 4), "w": torch.ones(4, 4)})]
        )
        difference = staticmethod(lambda mine, theirs: float(np.nan))
        let_go = staticmethod(lambda: None)

    with nncuda.Context("cpu", threads=1) as ctx:
        (row,) = measure(ctx, [work], DeviceCeilings(1e9), {}, Wrong, ONCE)
    assert row.error is not None and "differ by nan" in row.error


def test_the_peers_step_is_the_same_model() -> None:
    for case in step.gpu_cases(quick=True):
        model = torch_step.Model(case.model, case.length)
        assert sum(p.numel() for p in model.parameters()) == case.model.num_parameters
        with nncuda.Context("cpu", threads=1) as ctx:
            loss = float(step.peer(ctx, case, compiled=False)())
        assert abs(loss - np.log(case.model.vocab_size)) < 0.2
