"""The same model on a GPU and on the CPU: training, checkpoints, generation; and that the device works alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import small_models

import nncuda
from nncuda.infer import Sampling, generate_batch
from nncuda.models import MoETransformer
from nncuda.train import Checkpoint, TrainConfig, Trainer
from nncuda.train.checkpoint import TrainingState, save_checkpoint

TINY = dataclasses.replace(small_models.TINY, capacity_factor=1.5)
OPTIONS = TrainConfig(
    steps=50, warmup_steps=5, batch_size=4, micro_batch_size=2, sequence_length=12, learning_rate=3e-3
)
STEPS = 50


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [small_models.learnable_batch(TINY, 4, 12, step) for step in range(count)]


def trained(
    ctx: nncuda.Context, steps: int, capture: bool = True, precision: str = "f32", **options: float
) -> tuple[Trainer, list[float]]:
    config = dataclasses.replace(OPTIONS, precision=precision, **options)
    trainer = Trainer(MoETransformer(ctx, TINY, seed=1, precision=config.precision), config, capture=capture)
    return trainer, [trainer.train_step(*batch).loss for batch in batches(steps)]


def bits(trainer: Trainer) -> list[np.ndarray]:
    arenas = trainer.model.parameters, trainer.first_moments, trainer.second_moments
    return [arena.data.numpy().view(np.int32) for arena in arenas]


def test_the_gpu_learns_what_the_cpu_learns(gpu: nncuda.Context) -> None:
    _, on_gpu = trained(gpu, STEPS)
    with nncuda.Context("cpu") as cpu:
        _, on_cpu = trained(cpu, STEPS)
    assert on_cpu[-1] < 0.8 * on_cpu[0]
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-3)


def test_two_runs_and_a_captured_one_have_the_same_bits(gpu: nncuda.Context) -> None:
    runs = [trained(gpu, 6, capture) for capture in (True, False, True)]
    for trainer, losses in runs[1:]:
        assert losses == runs[0][1]
        for one, other in zip(bits(runs[0][0]), bits(trainer), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_sixteen_bits(gpu: nncuda.Context, precision: str) -> None:
    """Steps are skipped, the scale falls and grows, captured or not; the losses are those of the CPU."""
    scaling = {"loss_scale": 2.0**20, "loss_scale_interval": 2} if precision == "f16" else {}
    runs = [trained(gpu, 6, capture, precision, **scaling) for capture in (True, False)]
    assert runs[0][1] == runs[1][1]
    for one, other in zip(*(bits(trainer) for trainer, _ in runs), strict=True):
        np.testing.assert_array_equal(one, other)
    state = runs[0][0].loss_scaling
    assert state == runs[1][0].loss_scaling
    assert precision == "bf16" or (state is not None and 0 < state.skipped < 6)
    with nncuda.Context("cpu") as cpu:
        _, losses = trained(cpu, 6, True, precision, **scaling)
    np.testing.assert_allclose(runs[0][1], losses, rtol=0.02)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The direction and the bytes of every copy of any context."""
    seen: list[tuple[str, int]] = []
    original = nncuda.Context._copy

    def counted(self: nncuda.Context, target: object, source: object, nbytes: int, kind: str) -> None:
        seen.append((kind, nbytes))
        original(self, target, source, nbytes, kind)

    monkeypatch.setattr(nncuda.Context, "_copy", counted)
    return seen


def test_a_step_reads_nothing_back(gpu: nncuda.Context, copies: list[tuple[str, int]]) -> None:
    """Only the loss comes back, when it is asked for."""
    trainer, _ = trained(gpu, 3)
    copies.clear()
    results = [trainer.train_step(*batch) for batch in batches(4)]
    assert "device_to_host" not in dict(copies) and len(copies) == 4 * 2  # ids, targets
    assert np.isfinite(results[-1].loss)
    assert copies[-1][0] == "device_to_host"


def test_a_run_moves_between_the_devices(gpu: nncuda.Context, tmp_path: Path) -> None:
    """A checkpoint of either is opened by the other, with the same values."""
    data = batches(8)
    with nncuda.Context("cpu") as cpu:
        whole, _ = trained(cpu, 8)
        half, _ = trained(cpu, 4)
        state = TrainingState(4, 16, 100, 0.0, OPTIONS, None)
        folder = save_checkpoint(tmp_path, half, state, None)
        loaded = Checkpoint(folder).trainer(gpu)
        for one, other in zip(bits(half), bits(loaded), strict=True):
            np.testing.assert_array_equal(one, other)
        for batch in data[4:]:
            loaded.train_step(*batch)
        assert loaded.step == 8
        for name, expected in whole.model.parameters.arrays().items():
            np.testing.assert_allclose(loaded.model.parameters[name].numpy(), expected, rtol=2e-3, atol=2e-4)


def test_bad_batches_change_nothing(gpu: nncuda.Context) -> None:
    trainer, _ = trained(gpu, 3)
    before = bits(trainer)
    inputs, targets = batches(1)[0]
    with pytest.raises(nncuda.OutOfRangeError, match="must be 0 to 47"):
        trainer.train_step(inputs + 48, targets)
    gpu.synchronize()
    for one, other in zip(before, bits(trainer), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.0), Sampling(top_k=5, seed=3), Sampling(top_p=0.8, seed=4)]
)
def test_both_write_the_same_text(gpu: nncuda.Context, sampling: Sampling) -> None:
    config = dataclasses.replace(TINY, init_std=0.5)
    prompts = [[1, 2, 3], [7], [40, 3, 3, 5, 8]]
    texts = []
    for ctx in (gpu, nncuda.Context("cpu")):
        model = MoETransformer(ctx, config, seed=9, training=False)
        texts.append(list(generate_batch(model, prompts, 12, sampling)))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(seed=2), Sampling(top_p=0.9, seed=4)])
def test_a_captured_decode_loop_writes_the_eager_text(gpu: nncuda.Context, sampling: Sampling) -> None:
    model = MoETransformer(gpu, dataclasses.replace(TINY, init_std=0.5), seed=9, training=False)
    prompts = [[1, 2, 3], [7]]
    eager = list(generate_batch(model, prompts, 10, sampling, capture=False))
    assert list(generate_batch(model, prompts, 10, sampling)) == eager


def test_only_ids_come_back_from_a_decode_loop(gpu: nncuda.Context, copies: list[tuple[str, int]]) -> None:
    """And nothing goes to the device, once the prompts are there; nor does its memory grow."""
    model = MoETransformer(gpu, TINY, seed=9, training=False)
    copies.clear()
    tokens = generate_batch(model, [[1, 2, 3], [7]], 10, Sampling(top_k=5))
    next(tokens)
    assert [nbytes for kind, nbytes in copies if kind == "device_to_host"] == [8]
    copies.clear()
    used = []
    for _ in tokens:
        used.append((gpu.bytes_used, gpu.bytes_arena))
    assert copies == [("device_to_host", 8)] * 9
    assert len(set(used[2:])) == 1
