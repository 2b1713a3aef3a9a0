"""Divergence: nothing is updated from the first bad step on, and the error says where that one went wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from small_models import TINY, random_batch
from test_run import start, tensors_of, write_data

import nncuda
from nncuda.models import MoETransformer
from nncuda.train import TrainConfig, Trainer, TrainingRun, list_checkpoints, read_metrics, resolve_checkpoint
from nncuda.train.divergence import DivergedError

BLOCK = "model.layers.1"
HUGE = 3e38
ADVICE = "the last checkpoint is from before that. A lower learning rate or a longer warm-up usually helps"


@dataclass(frozen=True)
class Fault:
    """Values for some parameters (all elements, or those of an index), and what the error says of them."""

    values: dict[str, float]
    place: str
    loss: str = "nan"
    at: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def plant(self, model: MoETransformer) -> None:
        for name, value in self.values.items():
            array = model.parameters[name].numpy()
            array[self.at.get(name, ...)] = value
            model.parameters[name].copy_(array)
        model.round_weights()


FAULTS = {
    "a weight": Fault(
        {f"{BLOCK}.block_sparse_moe.experts.2.w3.weight": math.nan},
        f"{BLOCK}.block_sparse_moe.experts.2.w3.weight is not finite, first at [7, 5] (nan)",
        at={f"{BLOCK}.block_sparse_moe.experts.2.w3.weight": (7, 5)},
        loss=".*",
    ),
    "a gain": Fault(
        {"model.norm.weight": -math.inf},
        "model.norm.weight is not finite, first at [3] (-inf)",
        at={"model.norm.weight": (3,)},
    ),
    "attention": Fault(
        {f"{BLOCK}.self_attn.o_proj.weight": HUGE},
        f"c of cuda_gemm in {BLOCK}.self_attn is not finite, first at [",
    ),
    "experts": Fault(
        {f"{BLOCK}.block_sparse_moe.experts.{expert}.w2.weight": HUGE for expert in range(4)},
        f"c of cuda_grouped_gemm in {BLOCK}.block_sparse_moe is not finite, first at [",
    ),
    "the last norm": Fault({"model.norm.weight": HUGE}, "y of cuda_rmsnorm in model.norm is not finite, first at ["),
    "the head": Fault({"lm_head.weight": HUGE}, "c of cuda_gemm in lm_head is not finite, first at [0, 0] ("),
}


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(tmp_path: Path, ctx: nncuda.Context, fault: str, precision: str) -> None:
    """Planted behind step 7, found at the report of step 10; the run continues from the checkpoint of step 5."""
    planted = FAULTS[fault]
    data = write_data(tmp_path)
    run = start(tmp_path / "run", ctx, data, log_every=10, eval_every=0, precision=precision)
    before: np.ndarray | None = None
    said = f"the loss is {planted.loss} at step 8: {re.escape(planted.place)}.*; {re.escape(ADVICE)}$"
    with pytest.raises(DivergedError, match=f"^{said}"):
        for progress in run.steps():
            if progress.step == 7:
                planted.plant(run.trainer.model)
                before = run.trainer.model.parameters.data.numpy()
    assert run.trainer.step == 10 and run.trainer.updates == 7
    np.testing.assert_array_equal(run.trainer.model.parameters.data.numpy(), before)  # NaN equals NaN here
    assert resolve_checkpoint(tmp_path / "run").name == "step-00000005"
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    (last,) = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert last["step"] == 10 and last["learning_rate"] is last["grad_norm"] is None


def test_a_diverged_run_goes_on_from_the_checkpoint(tmp_path: Path, ctx: nncuda.Context) -> None:
    """The fault came from outside, so without it the run comes to the bits of an unbroken one."""
    data = write_data(tmp_path)
    run = start(tmp_path / "run", ctx, data)
    with pytest.raises(DivergedError):
        for progress in run.steps():
            if progress.step == 8:
                FAULTS["a gain"].plant(run.trainer.model)
    TrainingRun.resume(tmp_path / "run", ctx, *data).run()
    start(tmp_path / "whole", ctx, data).run()
    found, expected = (tensors_of(resolve_checkpoint(tmp_path / name)) for name in ("run", "whole"))
    assert found == expected


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_trainer_that_is_restored_updates_again(ctx: nncuda.Context, precision: str) -> None:
    """Whatever the earlier steps were: they no longer affect whether to update."""
    trainer = Trainer(
        MoETransformer(ctx, TINY, seed=1, precision=precision),
        TrainConfig(batch_size=2, sequence_length=8, warmup_steps=0, precision=precision),
    )
    good = trainer.model.parameters["model.norm.weight"].numpy()
    FAULTS["a gain"].plant(trainer.model)
    batch = random_batch(TINY, 2, 8)
    assert trainer.train_step(*batch).skipped and trainer.updates == 0
    trainer.model.parameters["model.norm.weight"].copy_(good)
    trainer.model.round_weights()
    assert trainer.train_step(*batch).skipped and trainer.updates == 0  # until somebody says that all is well
    trainer.restore(0)
    for step in (1, 2):
        assert not trainer.train_step(*batch).skipped and trainer.updates == step


def test_a_fault_in_a_block_that_is_recomputed_has_its_place(tmp_path: Path, ctx: nncuda.Context) -> None:
    """Its first pass keeps nothing, and calls other parts of the block."""
    run = start(tmp_path / "run", ctx, write_data(tmp_path), log_every=10, eval_every=0, activation_checkpointing=1)
    with pytest.raises(DivergedError, match=re.escape(FAULTS["experts"].place)):
        for progress in run.steps():
            if progress.step == 7:
                FAULTS["experts"].plant(run.trainer.model)


@pytest.mark.parametrize("habit", ["report", "evaluate", "save", "stop"])
def test_no_checkpoint_of_a_diverged_state(tmp_path: Path, ctx: nncuda.Context, habit: str) -> None:
    """Whatever comes next behind the fault, it looks first."""
    every = dict.fromkeys(("log_every", "eval_every", "save_every"), 10**6)
    step = 12
    if habit != "stop":
        every[{"report": "log_every", "evaluate": "eval_every", "save": "save_every"}[habit]] = 4
    run = start(tmp_path / "run", ctx, write_data(tmp_path), **every)
    with pytest.raises(DivergedError, match=r"at step 10: model\.norm\.weight"):
        for progress in run.steps():
            if progress.step == 9:
                FAULTS["a gain"].plant(run.trainer.model)
            if habit == "stop" and progress.step == 11:
                run.stop()
                step = 11
    assert run.trainer.step == step
    found = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert [folder.name for folder in found] == (["step-00000004", "step-00000008"] if habit == "save" else [])


def test_gradients_that_overflow(ctx: nncuda.Context) -> None:
    """All is finite on the way forward. Rows of zeros have the largest 1/norm, which multiplies their gradient."""
    model = MoETransformer(ctx, TINY, seed=1)
    for name in (
        "model.embed_tokens.weight",
        f"{BLOCK}.self_attn.o_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
    ):
        model.parameters[name].zero_()
    for layer in range(2):
        for expert in range(4):
            model.parameters[f"model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"].zero_()
    model.parameters["lm_head.weight"].copy_(np.full((48, 24), 2e37) * np.linspace(-1, 1, 48)[:, None])
    said = diverged(Trainer(model, TrainConfig(batch_size=2, sequence_length=8, warmup_steps=0)))
    # Its gain's gradient is zero, as what enters the norm is.
    place = r"dx of cuda_rmsnorm_backward in backward of model\.norm is not finite, first at \[\d+, 0\] \(-?inf\); "
    assert re.match(r"the loss is 3\.871 at step 1: " + place, said), said


def test_a_gradient_of_a_parameter_that_overflows(ctx: nncuda.Context) -> None:
    """Each of 16 tokens wants 1/16 of 6e38 of each gain."""
    model = MoETransformer(ctx, TINY, seed=1)
    model.parameters.data.zero_()
    model.parameters["model.embed_tokens.weight"].copy_(np.ones((48, 24)))
    model.parameters["model.norm.weight"].copy_(np.full(24, 1e-20))
    model.parameters["lm_head.weight"].copy_(np.array([-3e38, 3e38] + [0] * 46)[:, None] * np.ones((1, 24)))
    ids = np.zeros((2, 8), np.int32)
    said = diverged(Trainer(model, TrainConfig(batch_size=2, sequence_length=8, warmup_steps=0)), ids=ids)
    assert ": the gradient of model.norm.weight is not finite, first at [0] (" in said


def test_a_norm_that_overflows(ctx: nncuda.Context) -> None:
    """No element of a gradient is infinite, but their norm is beyond f32."""
    model = MoETransformer(ctx, TINY, seed=1)
    model.parameters.data.zero_()
    model.parameters["model.embed_tokens.weight"].copy_(np.ones((48, 24)))
    model.parameters["model.norm.weight"].copy_(np.full(24, 1e38))  # so all that enters the head is 1e38
    said = diverged(Trainer(model, TrainConfig(batch_size=1, sequence_length=1, warmup_steps=0)))
    assert model.gradients is not None and np.isfinite(model.gradients.data.numpy()).all()
    # The target's row of the head has 24 times 1e38 * (1 - 1/48), the others little.
    assert (
        said == "the loss is 3.871 at step 1: the largest gradient is that of lm_head.weight (norm 4.8e+38); " + ADVICE
    )


def diverged(trainer: Trainer, batch_of: Callable | None = None, ids: np.ndarray | None = None) -> str:
    """What the first step says."""
    from nncuda.train.divergence import check_convergence

    batch = random_batch(TINY, trainer.config.batch_size, trainer.config.sequence_length)
    batch = batch if ids is None else (ids, ids)
    result = trainer.train_step(*batch)
    with pytest.raises(DivergedError) as error:
        check_convergence(trainer, result, batch_of or (lambda step: batch))
    return str(error.value)


def test_where_it_began_cannot_be_found(ctx: nncuda.Context) -> None:
    """The search needs memory too; without it the divergence is reported nevertheless."""
    model = MoETransformer(ctx, TINY, seed=1)
    FAULTS["a gain"].plant(model)

    def no_memory(step: int) -> None:
        raise nncuda.OutOfMemoryError(30, "bytes is 5; of 4 bytes in all 3 are free", "NNCUDA_ERROR_OUT_OF_MEMORY")

    said = diverged(Trainer(model, TrainConfig(batch_size=2, sequence_length=8)), no_memory)
    assert said == (
        "the loss is nan at step 1: where it began could not be found (bytes is 5; of 4 bytes in all 3 are free); "
        + ADVICE
    )


def test_huge_learning_rate(tmp_path: Path, ctx: nncuda.Context) -> None:
    data = write_data(tmp_path)
    run = start(tmp_path / "run", ctx, data, learning_rate=1e30, warmup_steps=3, save_every=1, max_loss=1e38)
    with pytest.raises(DivergedError, match=r"^the loss is .* at step \d+: .* is not finite, first at .*; the last"):
        run.run()
    assert None in read_metrics(tmp_path / "run" / "metrics.jsonl")[-1].values()
    for folder in list_checkpoints(tmp_path / "run" / "checkpoints"):
        assert all(np.isfinite(np.frombuffer(values, np.float32)).all() for values in tensors_of(folder).values())


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
def test_loss_that_explodes(tmp_path: Path, ctx: nncuda.Context, precision: str) -> None:
    """A loss that is a number, but far above what guessing gives."""
    scale = 64.0 if precision == "f16" else 1.0  # little enough that no gradient of the large loss overflows
    options = {"precision": precision, "loss_scale": scale} if precision == "f16" else {"precision": precision}
    run = start(tmp_path / "run", ctx, write_data(tmp_path), **options)
    limit = 10 * math.log(TINY.vocab_size)
    with pytest.raises(DivergedError) as error:
        for progress in run.steps():
            assert progress.loss < limit
            if progress.step == 6:
                head = run.trainer.model.parameters["lm_head.weight"]
                head.copy_(head.numpy() * 100)
                run.trainer.model.round_weights()
    loss, norm = re.fullmatch(
        r"the loss is ([\d.]+) at step 7, above max_loss \(38\.71\): the largest gradient is that of "
        rf"model\.embed_tokens\.weight \(norm ([\d.e+]+)\); {re.escape(ADVICE)}", str(error.value)
    ).groups()  # fmt: skip
    assert float(loss) > limit and f"{limit:.4g}" == "38.71"
    arrays = run.trainer.model.gradients.arrays()
    largest = max(np.linalg.norm(array.astype(np.float64)) for array in arrays.values()) / scale
    assert float(norm) == pytest.approx(largest, rel=0.05)
    assert resolve_checkpoint(tmp_path / "run").name == "step-00000005"
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["loss"] == pytest.approx(float(loss), rel=1e-3)


def test_max_loss_is_an_option(tmp_path: Path, ctx: nncuda.Context) -> None:
    data = write_data(tmp_path)
    with pytest.raises(DivergedError, match=r"at step 1, above max_loss \(0\.5\)"):
        start(tmp_path / "run", ctx, data, max_loss=0.5).run()
    assert TrainConfig().max_loss is None and "max_loss" not in TrainConfig().to_dict()
    assert TrainConfig(max_loss=7.0).to_dict()["max_loss"] == 7.0
    for value in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=f"max_loss is {value}; it must be a number, from 1e-30 to 1e"):
            TrainConfig(max_loss=value)


def test_why_a_step_runs_call_by_call(ctx: nncuda.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    options = TrainConfig(batch_size=4, sequence_length=16, warmup_steps=0)

    def reasons(trainer: Trainer, *batches: int) -> list[str | None]:
        found = []
        for size in batches:
            trainer.train_step(*random_batch(TINY, size, 16))
            found.append(trainer.eager_reason)
        return found

    first = "the first step of batches [4, 16] runs call by call"
    other = "the batch is [2, 16], the captured step was for [4, 16]"
    trainer = Trainer(MoETransformer(ctx, TINY), options)
    assert trainer.eager_reason is None
    assert reasons(trainer, 4, 4, 4, 2, 2, 4) == [
        first, None, None, other, None, "the batch is [4, 16], the captured step was for [2, 16]"
    ]  # fmt: skip
    assert reasons(trainer, 2) == ["the first step of batches [2, 16] runs call by call"]  # [4, 16] was not captured
    off = Trainer(MoETransformer(ctx, TINY), options, capture=False)
    assert reasons(off, 4, 4) == ["capture is off"] * 2

    def refuse(*_: object) -> None:
        raise nncuda.UnsupportedError(40, "this engine does not capture that", "NNCUDA_ERROR_UNSUPPORTED")

    failed = Trainer(MoETransformer(ctx, TINY), options)
    assert reasons(failed, 4) == [first]
    with monkeypatch.context() as patch:
        patch.setattr(MoETransformer, "_clear_gains", lambda self: refuse() if ctx._capture else clear(self))
        said = "the step could not be captured: this engine does not capture that"
        assert reasons(failed, 4) == [said]
    assert reasons(failed, 4, 2) == [said] * 2
    same = [trainer.model.parameters.data.numpy() for trainer in (off, failed)]
    assert reasons(off, 4, 2) and np.array_equal(off.model.parameters.data.numpy(), same[1])


clear = MoETransformer._clear_gains
