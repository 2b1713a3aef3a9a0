"""Replicas on one rank: which micro-batches each has, and the tree in which their gradients are added."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from small_models import TINY, random_batch

import nncuda
from nncuda import kernels
from nncuda.dtypes import to_numpy
from nncuda.models import MoETransformer
from nncuda.train import TrainConfig, Trainer
from nncuda.train.config import canonical
from nncuda.train.replicas import Replicas

LENGTH = 12
DEEP = dataclasses.replace(TINY, capacity_factor=1.2)


def make(ctx: nncuda.Context, capture: bool = False, **options: object) -> Trainer:
    values = {"steps": 9, "warmup_steps": 1, "sequence_length": LENGTH, "micro_batch_size": 1, **options}
    config = TrainConfig.from_dict(values)
    return Trainer(MoETransformer(ctx, DEEP, seed=2, precision=config.precision), config, capture=capture)


def gradient_of(trainer: Trainer, parts: list[tuple[np.ndarray, np.ndarray]], tokens: int, batch: int) -> np.ndarray:
    """The gradient of a replica's micro-batches, as a single trainer adds them up, in a batch of that many targets."""
    ctx, model = trainer.ctx, trainer.model
    one = ctx.tensor(np.ones(1, np.float32))
    factor = kernels.weighted_mean(one, divisor=tokens)
    for number, (inputs, targets) in enumerate(parts):
        share = kernels.weighted_mean(one, ctx.tensor(np.array([len(inputs)], np.int32)), divisor=batch)
        sums, aux = ctx.empty((model.loss_pieces(inputs.size),)), ctx.zeros((1,))
        model.forward_backward(inputs, targets, factor, share, sums, aux, accumulate=number > 0)
    return model.gradients.data.numpy()


def tree(gradients: list[np.ndarray]) -> np.ndarray:
    """The sum that bindings.h describes; `+` of f32 arrays rounds as the kernel does."""
    if len(gradients) == 1:
        return gradients[0]
    half = 1
    while 2 * half < len(gradients):
        half *= 2
    return tree(gradients[:half]) + tree(gradients[half:])


def rounding_tree(gradients: list[np.ndarray], dtype: str, root: bool = True) -> np.ndarray:
    """The same, in which everything below the root is rounded."""
    if len(gradients) == 1:
        total = gradients[0]
    else:
        half = 1 << (len(gradients) - 1).bit_length() - 1
        total = rounding_tree(gradients[:half], dtype, False) + rounding_tree(gradients[half:], dtype, False)
    return total if root else total.astype(to_numpy(dtype)).astype(np.float32)


@pytest.mark.parametrize(
    ("replicas", "batch", "micro"), [(1, 5, 2), (2, 2, 1), (3, 7, 2), (5, 5, 1), (8, 9, 1), (8, 21, 1)]
)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_gradients_are_added_in_the_tree(
    ctx: nncuda.Context, replicas: int, batch: int, micro: int, precision: str
) -> None:
    inputs, targets = random_batch(DEEP, batch, LENGTH)
    targets[0, :5] = -100
    tokens = int(np.count_nonzero(targets != -100))
    trainer = make(ctx, batch_size=batch, micro_batch_size=micro, replicas=replicas, precision=precision)
    parts = [(inputs[at : at + micro], targets[at : at + micro]) for at in range(0, batch, micro)]
    expected = tree([gradient_of(trainer, parts[replica::replicas], tokens, batch) for replica in range(replicas)])
    trainer.train_step(inputs, targets)
    assert trainer.model.gradients.data.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("replicas", [2, 3, 5, 8])
@pytest.mark.parametrize(("precision", "reduce"), [("f32", "bf16"), ("bf16", "bf16"), ("f16", "bf16"), ("f16", "f16")])
def test_gradients_are_rounded_between_replicas(
    ctx: nncuda.Context, replicas: int, precision: str, reduce: str
) -> None:
    inputs, targets = random_batch(DEEP, 9, LENGTH)
    options = {"batch_size": 9, "replicas": replicas, "precision": precision, "reduce_dtype": reduce}
    if precision == "f16":
        options["loss_scale"] = 1.0
    trainer = make(ctx, **options)
    parts = [(inputs[at : at + 1], targets[at : at + 1]) for at in range(9)]
    found = [gradient_of(trainer, parts[replica::replicas], inputs.size, 9) for replica in range(replicas)]
    trainer.train_step(inputs, targets)
    gradient = trainer.model.gradients.data.numpy()
    assert gradient.tobytes() == rounding_tree(found, reduce).tobytes() != tree(found).tobytes()


def test_what_gradients_may_be_rounded_to() -> None:
    config = TrainConfig(micro_batch_size=1, replicas=2, reduce_dtype="bf16")
    assert config.to_dict()["reduce_dtype"] == "bf16" and "reduce_dtype" not in TrainConfig().to_dict()
    assert "replicas=2\nreduce_dtype=bf16\n" in canonical(config)
    with pytest.raises(ValueError, match=r"^reduce_dtype is 'f64'; it must be one of f32, bf16, f16$"):
        TrainConfig(reduce_dtype="f64")  # type: ignore[arg-type]
    sentence = "reduce_dtype is f16, but the precision is bf16; gradients fit into f16 only with the loss scale of"
    with pytest.raises(ValueError, match=f"^{sentence} precision f16$"):
        TrainConfig(micro_batch_size=1, replicas=2, reduce_dtype="f16", precision="bf16")
    sentence = "reduce_dtype is bf16, but replicas is 1; gradients are rounded between replicas"
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        TrainConfig(reduce_dtype="bf16")


def test_replicas_change_the_sum(ctx: nncuda.Context) -> None:
    """Or the tests here could not tell whether there are any."""
    inputs, targets = random_batch(DEEP, 8, LENGTH)
    found = set()
    for replicas in (1, 3, 8):
        trainer = make(ctx, batch_size=8, replicas=replicas)
        result = trainer.train_step(inputs, targets)
        found.add((result.loss, trainer.model.gradients.data.numpy().tobytes()))
    assert len(found) == 3 and len({loss for loss, _ in found}) == 1


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("replicas", [1, 5])
def test_a_captured_step_has_the_same_bits(ctx: nncuda.Context, replicas: int, precision: str) -> None:
    ends = []
    for capture in (False, True):
        trainer = make(ctx, capture, batch_size=7, replicas=replicas, precision=precision)
        told = [
            (done.loss, done.aux_loss, done.grad_norm)
            for done in (trainer.train_step(*random_batch(DEEP, 7, LENGTH, seed)) for seed in range(4))
        ]
        assert (trainer.eager_reason is None) == capture
        ends.append((told, trainer.model.parameters.data.numpy().tobytes(), trainer.model.expert_counts().tolist()))
    assert ends[0] == ends[1]


def test_how_many_there_may_be(ctx: nncuda.Context) -> None:
    with pytest.raises(ValueError, match="replicas is 8; an update of batch_size 8 in micro-batches of 4 has 2, so it"):
        TrainConfig(batch_size=8, micro_batch_size=4, replicas=8)
    with pytest.raises(ValueError, match=r"replicas is 2; .* in micro-batches of 8 has 1"):
        TrainConfig(replicas=2)
    with pytest.raises(ValueError, match="replicas is 0"):
        TrainConfig(micro_batch_size=1, replicas=0)
    assert TrainConfig(batch_size=7, micro_batch_size=2, replicas=4).to_dict()["replicas"] == 4
    assert "replicas" not in TrainConfig(batch_size=7, micro_batch_size=2).to_dict()
    trainer = make(ctx, batch_size=4, replicas=4)
    with pytest.raises(ValueError, match="a batch of 3 has fewer micro-batches of 1 than there are replicas, 4"):
        trainer.train_step(*random_batch(DEEP, 3, LENGTH))
    assert trainer.step == 0


@pytest.mark.parametrize("total", range(1, 18))
def test_sums_that_wait(ctx: nncuda.Context, total: int) -> None:
    """Every rank of every number of them has its share, in few sums; a rank alone is left with one."""
    for ranks in range(1, total + 1):
        shares = [Replicas(ctx, 4, total, ranks, rank) for rank in range(ranks)]
        assert [replica for share in shares for replica in share.own] == list(range(total))
        assert sorted(number for share in shares for number in share.micro_batches(29)) == list(range(29))
        for share in shares:
            assert len(share.own) in (total // ranks, -(-total // ranks))
            assert share.nbytes <= 16 * max(0, 2 * (len(share.own) - 1).bit_length())
    alone = Replicas(ctx, 4, total)
    assert alone.aside is None
    assert alone.nbytes == 16 * max(bin(done).count("1") for done in range(total))  # one for each power of two
