"""Gradients of which each rank keeps those alone that it updates. Their bits: test_training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import job, outcomes
from small_models import TINY, random_batch
from test_training import LENGTH, RAGGED, errors_of, options, share, write_data

import nncuda
from nncuda.errors import StateError
from nncuda.models import MoEConfig, MoETransformer, ParameterLayout
from nncuda.models.partitioned import PartitionedGradients
from nncuda.train import Trainer, TrainingRun
from nncuda.train.plan import Machine, Seat, plan_training
from nncuda.train.replicas import partitions_gradients

RANKS = 8
#: So many layers that three of them are less than all.
DEEP = MoEConfig(**{**RAGGED.to_dict(), "num_layers": 8})
#: All of it is updated by one rank.
SMALL = MoEConfig(**{**TINY.to_dict(), "num_layers": 8, "hidden_size": 8, "ffn_size": 8})


def model_of(comm: nncuda.Comm, partition: bool, **changes: Any) -> MoETransformer:
    return MoETransformer(comm.ctx, DEEP, seed=2, comm=comm, partition_gradients=partition, **changes)


def test_a_rank_keeps_the_sums_that_it_updates() -> None:
    def work(comm: nncuda.Comm) -> tuple[int, int]:
        found = []
        for partition in (True, False):
            model = model_of(comm, partition)
            trainer = Trainer(model, options(), comm=comm)
            trainer.train_step(*share(comm, trainer, random_batch(DEEP, 8, LENGTH)))
            assert model.gradients is not None
            own = [model.gradients.data.narrow(0, part.start, len(part)).numpy() for part in trainer.moments.own]
            found.append((b"".join(part.tobytes() for part in own), model.gradients.nbytes))
        (kept, less), (all_of_them, more) = found
        assert kept == all_of_them
        return less, more

    size = ParameterLayout(DEEP).size
    pieces = ParameterLayout(DEEP).backward_pieces()
    gains, largest = len(pieces[-1]), max(map(len, pieces[:-1]))
    for less, more in job(RANKS, work):
        assert more == 4 * size
        assert 0 <= less - 4 * 3 * largest <= 4 * (size // RANKS + 2 * 32768 + gains)


def test_pieces_cover_the_layout_once() -> None:
    for config in (TINY, DEEP, MoEConfig.preset("6.9b")):
        layout = ParameterLayout(config)
        *matrices, gains = layout.backward_pieces()
        assert len(matrices) == config.num_layers + 2 and gains == range(layout.num_decayed, layout.size)
        ends = [layout.num_decayed, *(piece.start for piece in matrices)]
        assert [piece.stop for piece in matrices] == ends[:-1] and ends[-1] == 0


def test_what_others_keep_is_refused() -> None:
    def work(comm: nncuda.Comm) -> None:
        model = model_of(comm, True)
        trainer = Trainer(model, options(), comm=comm)
        trainer.train_step(*share(comm, trainer, random_batch(DEEP, 8, LENGTH)))
        assert model.gradients is not None
        for look in (model.gradients.arrays, trainer.gather_gradients, lambda: dict(model.gradients)):  # type: ignore[arg-type]
            with pytest.raises(StateError):
                look()
        assert model.gradients["model.norm.weight"].shape == (DEEP.hidden_size,)
        trainer.gather_parameters()  # which are whole

    job(RANKS, work)


def test_only_with_one_micro_batch_a_rank() -> None:
    def work(comm: nncuda.Comm) -> None:
        assert partitions_gradients(DEEP, options(), "cpu", RANKS)
        assert not partitions_gradients(DEEP, options(batch_size=16), "cpu", RANKS)
        assert not partitions_gradients(DEEP, options(), "cpu", RANKS, expert_parallel=5)
        assert not partitions_gradients(DEEP, options(), "cpu", 4)
        assert not partitions_gradients(DEEP, options(), "cuda", RANKS)
        assert not partitions_gradients(RAGGED, options(), "cpu", RANKS)  # three of two layers are no less
        with pytest.raises(ValueError, match="each rank must run one micro-batch of an update"):
            Trainer(model_of(comm, True), options(batch_size=16), comm=comm)

    job(RANKS, work)
    with nncuda.Context(threads=1) as ctx:
        for alone in (None, nncuda.Comm(ctx, "self")):
            with pytest.raises(ValueError, match="partitioned among the ranks of a comm"):
                MoETransformer(ctx, TINY, comm=alone, partition_gradients=True)


def test_a_run_partitions_by_itself(tmp_path: Any) -> None:
    data = write_data(tmp_path, DEEP)

    def work(comm: nncuda.Comm) -> list[bool]:
        found = []
        for steps in (2, 4):
            if steps == 2:
                run = TrainingRun.start(tmp_path / "run", comm.ctx, DEEP, options(steps=4), *data, comm=comm)
            else:
                run = TrainingRun.resume(tmp_path / "run", comm.ctx, *data, comm=comm)
            found.append(isinstance(run.trainer.model.gradients, PartitionedGradients))
            for progress in run.steps():
                if progress.step == steps and comm.rank == 0:
                    run.stop()
        return found

    assert job(RANKS, work) == [[True, True]] * RANKS


@pytest.mark.parametrize("config", [DEEP, SMALL], ids=["several grains", "one grain"])
@pytest.mark.parametrize("changes", [{"max_loss": 0.5}, {"learning_rate": 1e30, "clip_norm": None}])
def test_divergence(tmp_path: Any, changes: dict[str, Any], config: MoEConfig) -> None:
    """Where it began is found as ever; the largest gradient is not, not even by a rank that has all."""
    assert partitions_gradients(config, options(), "cpu", RANKS)
    data = write_data(tmp_path, config)

    def work(comm: nncuda.Comm) -> None:
        folder = tmp_path / f"run of {comm.ranks}"
        TrainingRun.start(folder, comm.ctx, config, options(**changes), *data, comm=comm).run()

    (alone,) = errors_of(outcomes(1, work))
    if "max_loss" in changes:
        alone = alone.replace(
            alone[alone.index("the largest gradient") : alone.index(";")],
            "the largest gradient is not searched for while each rank keeps some of them",
        )
    assert errors_of(outcomes(RANKS, work)) == [alone] * RANKS


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_the_plan_counts_them(precision: str) -> None:
    train = options(precision=precision)

    def work(comm: nncuda.Comm) -> int:
        model = model_of(comm, partitions_gradients(DEEP, train, "cpu", RANKS), precision=precision)
        trainer = Trainer(model, train, comm=comm)
        for seed in range(3):
            trainer.train_step(*share(comm, trainer, random_batch(DEEP, 8, LENGTH, seed)))
        return comm.ctx.bytes_peak

    for rank, peak in enumerate(job(RANKS, work)):
        planned = plan_training(DEEP, train, Machine("cpu", 1), held_out=False, seat=Seat(rank, RANKS))
        assert planned.peak == pytest.approx(peak, rel=0.01), rank


def test_the_buffers_of_a_pass() -> None:
    """Neighbours in the order of the pass never share one, nor do the two before that are still under way."""
    with nncuda.Context.measuring(threads=1) as ctx:
        comm = nncuda.Comm(ctx, "self", rank=1, ranks=RANKS)
        gradients = model_of(comm, True).gradients
        assert isinstance(gradients, PartitionedGradients)
        pieces = gradients.layout.backward_pieces()
        places = [gradients.buffer(number) for number in range(len(pieces))]
        assert places[-1] is None
        addresses = [place.ptr for place in places if place is not None]
        assert all(len(set(addresses[at : at + 3])) == 3 for at in range(len(addresses) - 2))
        assert np.array_equal([place.size for place in places[:-1] if place is not None], [*map(len, pieces[:-1])])
