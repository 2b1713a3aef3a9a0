"""Training with moments in bf16 and in 8 bits: it learns, and resumes to the bit."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from small_models import TINY, learnable_batch, random_batch

import nncuda
from nncuda.formats import FormatError, SafetensorsFile
from nncuda.models import MoETransformer
from nncuda.train import Checkpoint, TrainConfig, Trainer
from nncuda.train.checkpoint import TrainingState, save_checkpoint

KINDS = ("f32", "bf16", "f8")
SMALL = ("bf16", "f8")


def options(kind: str, **changes: object) -> TrainConfig:
    return TrainConfig.from_dict(
        {
            "steps": 200,
            "warmup_steps": 10,
            "batch_size": 4,
            "sequence_length": 12,
            "learning_rate": 5e-3,
            "moments": kind,
            **changes,
        }
    )


def make(ctx: nncuda.Context, kind: str, *, capture: bool = True, **changes: object) -> Trainer:
    config = options(kind, **changes)
    return Trainer(MoETransformer(ctx, TINY, seed=2, precision=config.precision), config, capture=capture)


def state_of(trainer: Trainer) -> dict[str, bytes]:
    parameters = {name: array.tobytes() for name, array in trainer.model.parameters.arrays().items()}
    return parameters | {name: part.numpy().tobytes() for name, _, part in trainer.moments.parts()}


def save(trainer: Trainer, folder: Path) -> Path:
    return save_checkpoint(folder, trainer, TrainingState(trainer.step, 4, 100, 0.5, trainer.config))


def test_it_learns_as_with_f32(ctx: nncuda.Context) -> None:
    """The same task, whose loss falls from ln(vocab) to a hundredth: the mean over the last steps is within a fifth."""
    last = {}
    for kind in KINDS:
        trainer = make(ctx, kind)
        losses = [trainer.train_step(*learnable_batch(TINY, 4, 12, step)).loss for step in range(150)]
        last[kind] = float(np.mean(losses[-20:]))
    assert last["f32"] < 0.5 * math.log(TINY.vocab_size)
    for kind in SMALL:
        assert last[kind] == pytest.approx(last["f32"], rel=0.2)


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_captured_steps_have_the_same_bits(ctx: nncuda.Context, kind: str, precision: str) -> None:
    states = []
    for capture in (True, False):
        trainer = make(ctx, kind, capture=capture, precision=precision)
        for step in range(6):
            trainer.train_step(*random_batch(TINY, 4, 12, step))
        states.append(state_of(trainer))
    assert states[0] == states[1]


@pytest.mark.parametrize("kind", KINDS)
def test_resume_to_the_bit(ctx: nncuda.Context, tmp_path: Path, kind: str) -> None:
    trainer = make(ctx, kind)
    for step in range(4):
        trainer.train_step(*random_batch(TINY, 4, 12, step))
    other = Checkpoint(save(trainer, tmp_path)).trainer(ctx)
    assert other.config.moments == kind and state_of(other) == state_of(trainer)
    for step in range(4, 8):
        for each in (trainer, other):
            each.train_step(*random_batch(TINY, 4, 12, step))
    assert state_of(other) == state_of(trainer)


def test_what_a_checkpoint_holds(ctx: nncuda.Context, tmp_path: Path) -> None:
    size = TINY.num_parameters
    for kind in KINDS:
        trainer = make(ctx, kind)
        trainer.train_step(*random_batch(TINY, 4, 12))
        tensors = SafetensorsFile(save(trainer, tmp_path / kind) / "optimizer.safetensors")
        if kind == "f8":
            shapes = {name: (tensors.dtype(name), tensors.shape(name)) for name in tensors}
            codes, scales = (np.dtype(np.uint8), (size,)), (np.dtype(np.float32), (-(-size // 256),))
            assert shapes == {"first.codes": codes, "first.scales": scales, "second.codes": codes,
                              "second.scales": scales}  # fmt: skip
        else:
            wanted = np.dtype(np.float32 if kind == "f32" else ml_dtypes.bfloat16)
            assert {tensors.dtype(name) for name in tensors} == {wanted}
            assert len(tensors) == 2 * len(trainer.model.layout)
        assert ("moments" in trainer.config.to_dict()) == (kind != "f32")


@pytest.mark.parametrize(("written", "claimed"), [("f32", "bf16"), ("bf16", "f32"), ("f8", "bf16"), ("f32", "f8")])
def test_moments_of_another_kind_are_refused(ctx: nncuda.Context, tmp_path: Path, written: str, claimed: str) -> None:
    trainer = make(ctx, written)
    state = TrainingState(0, 0, 100, 0.5, options(claimed))
    folder = save_checkpoint(tmp_path, trainer, state)
    with pytest.raises(FormatError, match=r"optimizer\.safetensors: tensor"):
        Checkpoint(folder).trainer(ctx)


def test_wrong_kinds() -> None:
    for wrong in ("f16", "int8", 8, None):
        with pytest.raises(ValueError, match=f"moments is {wrong!r}; it must be one of f32, bf16, f8"):
            TrainConfig.from_dict({"moments": wrong})


@pytest.mark.parametrize("kind", SMALL)
def test_a_step_that_is_skipped_changes_nothing(ctx: nncuda.Context, kind: str) -> None:
    trainer = make(ctx, kind, precision="f16", loss_scale=2.0**24)
    before = state_of(trainer)
    result = trainer.train_step(*random_batch(TINY, 4, 12))
    assert result.skipped and state_of(trainer) == before
