"""Ranks that share the experts out: what they train has the bits of one rank, and each holds its part alone."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from ranks import job, outcomes
from small_models import TINY, random_batch
from test_training import RAGGED, digests, errors_of, options, run, share, write_data

import nncuda
from nncuda.cli import main
from nncuda.errors import StateError
from nncuda.infer import LanguageModel
from nncuda.layers import ExpertParallel
from nncuda.models import MoEConfig, MoETransformer
from nncuda.models.held import HeldElements
from nncuda.models.parameters import GRAIN, ParameterLayout
from nncuda.train import TrainConfig, Trainer, TrainingRun
from nncuda.train.plan import Machine, Seat, plan_ranks, plan_training, training_work

#: Ranks, and how many of them share the experts out.
SHAPES = [(2, 2), (3, 3), (4, 2), (4, 4)]
#: Experts drop tokens.
MODEL = dataclasses.replace(RAGGED, num_experts=12, ffn_size=37)
#: Each expert is longer than what stays on one rank.
WIDE = dataclasses.replace(TINY, hidden_size=128, ffn_size=160, num_experts=12)
CASES: dict[str, tuple[MoEConfig, dict[str, Any]]] = {
    "f32": (MODEL, {}),
    "bf16, several micro-batches a replica, the last one ragged": (
        MODEL,
        {"precision": "bf16", "moments": "bf16", "batch_size": 21, "micro_batch_size": 2, "replicas": 5},
    ),
    "f16, moments in 8 bits": (MODEL, {"precision": "f16", "moments": "f8", "loss_scale": 2.0**24}),  # which overflows
    "recomputed": (MODEL, {"activation_checkpointing": 2, "recompute_experts": True, "batch_size": 7, "replicas": 7}),
    "wide, moments in 8 bits": (WIDE, {"batch_size": 4, "replicas": 4, "moments": "f8"}),
    "sums in bf16": (WIDE, {"batch_size": 9, "replicas": 7, "reduce_dtype": "bf16", "precision": "bf16"}),
    "sums in f16": (MODEL, {"precision": "f16", "reduce_dtype": "f16"}),
    "one piece": (dataclasses.replace(TINY, num_experts=12, ffn_size=4), {"precision": "bf16", "clip_norm": None}),
    "products in 8 bits": (MODEL, {"precision": "fp8", "batch_size": 9, "replicas": 5}),
}


def files(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def trained(comm: nncuda.Comm, size: int, config: MoEConfig, train: TrainConfig, capture: bool, folder: Path) -> Any:
    """What four steps tell; the checkpoint behind them is in the folder."""
    experts = ExpertParallel.of(comm, size, config.num_experts)
    model = MoETransformer(comm.ctx, config, seed=2, precision=train.precision, experts=experts, comm=comm)
    trainer = Trainer(model, train, capture=capture, comm=comm)
    told = []
    for seed in range(4):
        batch = random_batch(config, train.batch_size, train.sequence_length, seed)
        batch[1][0, :3] = -100
        done = trainer.train_step(*share(comm, trainer, batch))
        values = done.step, done.tokens, done.loss, done.aux_loss, done.grad_norm, done.skipped, done.loss_scale
        told.append(repr(values))  # in which NaN is NaN
        told.append(trainer.expert_counts().tolist())
    assert trainer.eager_reason is None or not capture
    trainer.save_checkpoint(folder)
    return told


def outcome(ranks: int, size: int, case: str, capture: bool = True) -> tuple[Any, dict[str, str]]:
    """What all ranks tell alike, and the files that they leave."""
    config, changes = CASES[case]
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "saved"
        told, *others = job(ranks, lambda comm: trained(comm, size, config, options(**changes), capture, folder))
        assert all(one == told for one in others)
        return told, files(folder)


@functools.cache
def alone(case: str) -> tuple[Any, dict[str, str]]:
    return outcome(1, 1, case)


@pytest.mark.parametrize(("ranks", "size"), SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_steps_have_the_bits_of_one_rank(case: str, ranks: int, size: int) -> None:
    assert outcome(ranks, size, case) == alone(case)


def test_steps_that_are_not_captured() -> None:
    for case in ("f32", "recomputed"):
        assert outcome(4, 2, case, capture=False) == alone(case)


@pytest.mark.parametrize("replicas", [4, 5, 6, 7])
def test_replicas_that_ranks_do_not_divide(replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that groups end with several sums, and ranks run other numbers of micro-batches."""
    monkeypatch.setitem(CASES, "replicas", (MODEL, {"batch_size": 9, "replicas": replicas}))
    expected = outcome(1, 1, "replicas")
    for ranks, size in ((4, 2), (4, 4), (3, 3)):
        assert outcome(ranks, size, "replicas") == expected, (ranks, size)


def test_runs_have_the_files_of_one_rank(tmp_path: Path) -> None:
    """Metrics, evaluations, of whose parts some ranks have none, and checkpoints; from one number of ranks and parts
    to others."""
    train = options(batch_size=9, precision="bf16", moments="f8")
    write_data(tmp_path, MODEL)
    run(tmp_path / "one", 1, MODEL, train)
    expected = digests(tmp_path / "one")
    run(tmp_path / "whole", 4, MODEL, train, expert_parallel=4)
    assert digests(tmp_path / "whole") == expected
    for ranks, size, stop in ((4, 2, 2), (3, 3, 4), (2, 1, 5), (6, 2, 0)):
        run(tmp_path / "several", ranks, MODEL, train, stop, size)
    found = digests(tmp_path / "several")
    extra = [path for path in found if "step-00000005" in path]
    assert len(extra) == 4
    assert {path: digest for path, digest in found.items() if path not in extra} == expected


def marked(layout: ParameterLayout, parts: Iterable[range]) -> np.ndarray:
    """Which elements the parts have; how often."""
    found = np.zeros(layout.size, np.int32)
    for part in parts:
        found[part.start : part.stop] += 1
    return found


def test_what_a_rank_holds() -> None:
    """Every element is held by whoever computes with it or updates it, and the pieces that travel are those that the
    receivers lack."""
    layout = ParameterLayout(WIDE)
    found = [HeldElements(layout, 4, rank, 2) for rank in range(4)]
    moves = list(dict.fromkeys(move for one in found for move in one.weight_moves(1))), found[0].gradient_moves(1)
    for rank, sent in enumerate(found[0].weights_sent()):
        assert sent == sum(end - begin for begin, end, sender, _ in moves[0] if sender == rank)
    assert np.sum([marked(layout, one.computes) for one in found], axis=0).min() >= 2
    for rank, one in enumerate(found):
        assert sorted(one.weight_moves(1)) == sorted(move for move in moves[0] if rank in move[2:])
        assert one.gradient_moves(1) == moves[1] and one.weights_sent() == found[0].weights_sent()
        assert all(part.start % GRAIN == 0 for part in one.updated)
        assert marked(layout, one.computes).max() == 1 and marked(layout, one.computes).sum() < layout.size
        mine, shard = marked(layout, [*one.dense, *one.own]), marked(layout, one.updated)
        weights, sums = (
            marked(layout, [range(begin, end) for begin, end, _, to in some if to == rank]) for some in moves
        )
        assert np.array_equal(weights, mine & (1 - shard))  # each once
        assert np.array_equal(sums, shard & (1 - mine))
        for begin, end, sender, _ in moves[1]:
            assert marked(layout, found[sender].own)[begin:end].all()


@pytest.mark.parametrize(("ranks", "size"), [(4, 4), (6, 2), (3, 3)])
def test_gradients_of_experts_stay_where_they_are(ranks: int, size: int) -> None:
    """But for grains that two positions, or an expert and something else, have a part of."""
    layout = ParameterLayout(WIDE)
    moves = HeldElements(layout, ranks, 0, size).gradient_moves(1)
    assert 0 < len(moves) <= 2 * size * 2 * len(layout.experts)
    assert max(end - begin for begin, end, *_ in moves) < GRAIN
    for rank in range(ranks):
        one = HeldElements(layout, ranks, rank, size)
        count = sum(map(len, one.updated))
        assert abs(count - layout.size / ranks) < 2 * GRAIN
        slots = one.slot_shards()
        assert [shard.end - shard.begin for shard, _ in slots] and slots[0][0].begin == 0
        assert sum(shard.end - shard.begin for shard, _ in slots) == sum(map(len, one.own)) == slots[-1][0].end


def test_memory_is_that_of_the_part() -> None:
    """What is held, in whole pages, and what the moments and the sums that wait take."""
    model = dataclasses.replace(WIDE, num_experts=24)

    def used(comm: nncuda.Comm, size: int) -> tuple[int, int]:
        experts = ExpertParallel.of(comm, size, model.num_experts)
        before = comm.ctx.bytes_used
        made = MoETransformer(comm.ctx, model, experts=experts)
        of_model = comm.ctx.bytes_used - before
        trainer = Trainer(made, options(replicas=6, batch_size=6), comm=comm)
        if made.held is not None:
            rest = of_model - 8 * sum(map(len, made.held.computes))
            assert 0 <= rest < 2 * 4096 * len(made.held.computes) + 10_000
        return of_model, trainer.ctx.bytes_used

    whole, parts = (np.max(job(6, lambda comm, size=size: used(comm, size)), axis=0) for size in (1, 6))
    assert list(parts < (0.4 * whole[0], 0.75 * whole[1])) == [True, True], (whole, parts)


FIRST_EXPERT = "model.layers.0.block_sparse_moe.experts.0.w1.weight"


def test_other_uses_are_refused(tmp_path: Path) -> None:
    def work(comm: nncuda.Comm) -> list[str]:
        experts = ExpertParallel(comm, 2, 4)
        model = MoETransformer(comm.ctx, TINY, experts=experts)
        trainer = Trainer(model, options(), comm=comm)
        told = []
        ids = np.zeros((1, 4), np.int32)
        for use in (
            lambda: model.parameters,
            model.state_dict,
            lambda: model.save(tmp_path / "model"),
            lambda: model.forward(ids),
            lambda: model.evaluate(ids, ids),
            lambda: model.prefill(ids[0], model.cache(1, 8), 0),
            trainer.gather_parameters,
            trainer.gather_gradients,
            lambda: LanguageModel.of(model),
        ):
            with pytest.raises(StateError) as error:
                use()
            told.append(error.value.message)
        if comm.rank == 1:  # so small a model is updated by the other one
            assert model.gradients is not None
            for look in (model.gradients.arrays, lambda: model.gradients[FIRST_EXPERT]):  # type: ignore[index]
                with pytest.raises(StateError, match="other ranks hold these parameters"):
                    look()
        with pytest.raises(ValueError, match="must be those that train it"):
            Trainer(model, options())
        return told

    first, second = job(2, work)
    assert set(first) == {"this rank holds experts 0 to 1 of 4 alone; save_checkpoint of its trainer writes all"}
    assert set(second) == {"this rank holds experts 2 to 3 of 4 alone; save_checkpoint of its trainer writes all"}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("ranks", "size"), [(4, 3), (4, 0), (2, 4), (3, 3), (4, -2)])
def test_sizes_that_do_not_divide(tmp_path: Path, ranks: int, size: int) -> None:
    data = write_data(tmp_path, TINY)

    def work(comm: nncuda.Comm) -> None:
        TrainingRun.start(tmp_path / "run", comm.ctx, TINY, options(), *data, comm=comm, expert_parallel=size)

    expected = f"expert_parallel is {size}; it must divide the {ranks} ranks and the 4 experts"
    told = errors_of(outcomes(ranks, work))
    assert all(expected in one for one in told) and any(one.startswith("ValueError") for one in told)
    with pytest.raises(ValueError, match=expected):
        plan_ranks(TINY, options(), Machine("cpu", 1), ranks, size)


@pytest.mark.parametrize("sizes", [(2, 4, 2, 2), (1, 2, 2, 2), (4, 4, 1, 1)])
def test_ranks_must_share_alike(sizes: tuple[int, ...]) -> None:
    def work(comm: nncuda.Comm) -> None:
        experts = ExpertParallel.of(comm, sizes[comm.rank], 4)
        Trainer(MoETransformer(comm.ctx, TINY, experts=experts), options(), comm=comm)

    told = errors_of(outcomes(4, work))
    assert all(one.startswith("PeerError") and "expert parallel" in one for one in told), told


def test_a_rank_that_fails_ends_the_job(tmp_path: Path) -> None:
    """Also for those that wait for its experts."""
    write_data(tmp_path, MODEL)

    def work(comm: nncuda.Comm) -> None:
        data = tmp_path / "train.tokens", tmp_path / "held-out.tokens"
        shared: dict[str, Any] = {"comm": comm, "expert_parallel": 2}
        training = TrainingRun.start(tmp_path / "run", comm.ctx, MODEL, options(), *data, **shared)
        for progress in training.steps():
            if progress.step == 3 and comm.rank == 2:
                training.trainer.model.norm = None  # type: ignore[assignment]  # in the middle of a round
                training.trainer.forget_capture()

    told = errors_of(outcomes(4, work))
    assert told[2].startswith("AttributeError"), told
    assert all(
        told[rank].startswith("PeerError") and "rank 2: 'NoneType' object" in told[rank] for rank in (0, 1, 3)
    ), told
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000002"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_loss": 0.5}, "above max_loss (0.5): the largest gradient is not searched for while experts are on"),
        ({"learning_rate": 1e30, "clip_norm": None}, "the place where it began is not searched for while experts are"),
    ],
)
def test_divergence(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    data = write_data(tmp_path, MODEL)

    def work(comm: nncuda.Comm) -> None:
        shared: dict[str, Any] = {"comm": comm, "expert_parallel": 2}
        TrainingRun.start(tmp_path / "run", comm.ctx, MODEL, options(**changes), *data, **shared).run()

    told = errors_of(outcomes(4, work))
    assert len(set(told)) == 1 and told[0].startswith("DivergedError the loss is") and expected in told[0]


PRODUCTS = ("cuda_grouped_gemm", "cuda_grouped_gemm_wgrad")
PLANNED: dict[str, tuple[MoEConfig, dict[str, Any]]] = {
    "f32": (WIDE, {}),
    "bf16, rounds that are not run": (WIDE, {"precision": "bf16", "batch_size": 59, "micro_batch_size": 2}),
    "more sums wait later": (WIDE, {"batch_size": 30, "micro_batch_size": 1, "replicas": 8}),
    "a capacity": (dataclasses.replace(WIDE, capacity_factor=1.2), {"batch_size": 24, "replicas": 5}),
}


@pytest.mark.parametrize(("ranks", "size"), [(3, 3), (4, 2)])
@pytest.mark.parametrize("name", PLANNED)
def test_plan_is_what_is_measured(name: str, ranks: int, size: int) -> None:
    """Of the bytes sent, those of the rows depend on what the experts are asked for."""
    config, changes = PLANNED[name]
    train, machine = options(**changes), Machine("cpu", 1)

    def measured(comm: nncuda.Comm) -> tuple[int, int]:
        experts = ExpertParallel(comm, size, config.num_experts)
        model = MoETransformer(comm.ctx, config, precision=train.precision, experts=experts)
        trainer = Trainer(model, train, comm=comm)
        batch = [ids[trainer.rows()] for ids in random_batch(config, train.batch_size, train.sequence_length)]
        for _ in range(3):
            before = trainer.bytes_sent
            trainer.train_step(*batch)
        return comm.ctx.bytes_peak, trainer.bytes_sent - before

    most = plan_ranks(config, train, machine, ranks, size)
    products = [
        [training_work(config, train, machine, Seat(rank, ranks)).kernels[name] for name in PRODUCTS]
        for rank in range(ranks)
    ]
    for rank, (peak, sent) in enumerate(job(ranks, measured)):
        seat = Seat(rank, ranks, size)
        planned = plan_training(config, train, machine, held_out=False, seat=seat)
        assert sum(planned.bytes.values()) == planned.peak and min(planned.bytes.values()) >= 0
        assert planned.peak == pytest.approx(peak, rel=0.01), seat
        work = training_work(config, train, machine, seat)
        assert work.sent == pytest.approx(sent, rel=0.2), seat
        assert plan_training(config, train, machine, seat=seat).held <= most.memory.held
        assert work.sent <= most.sent and work.flops <= most.work.flops
        # As much work for products as without, which the ranks of a group share evenly.
        first = rank // size * size
        expected = np.mean(products[first : first + size], axis=0)
        assert np.array([work.kernels[name] for name in PRODUCTS]) == pytest.approx(expected, rel=0.05)


def test_loading(tmp_path: Path) -> None:
    """A checkpoint of some ranks goes on with others, who share the experts out in another way."""

    def work(comm: nncuda.Comm, sizes: tuple[int, int]) -> str:
        train = options(precision="bf16")
        experts = ExpertParallel.of(comm, sizes[0], MODEL.num_experts)
        trainer = Trainer(MoETransformer(comm.ctx, MODEL, precision="bf16", experts=experts), train, comm=comm)
        folder = tmp_path / f"saved by {comm.ranks}"
        trainer.train_step(*share(comm, trainer, random_batch(MODEL, train.batch_size, train.sequence_length)))
        trainer.save_checkpoint(folder)
        again = Trainer.load(folder, comm=comm, expert_parallel=sizes[1])
        done = again.train_step(*share(comm, again, random_batch(MODEL, train.batch_size, train.sequence_length, 1)))
        return repr((done.loss, done.grad_norm))

    (expected,) = job(1, lambda comm: work(comm, (1, 1)))
    assert job(4, lambda comm: work(comm, (4, 2))) == [expected] * 4
    assert files(tmp_path / "saved by 1") == files(tmp_path / "saved by 4")


def test_plan_command() -> None:
    """A rank that holds a quarter of the experts needs less for them, but more for gradients than one that keeps those
    alone that it updates, as here without the flag. The flag is for several ranks."""
    flags = ["plan", "--preset", "6.9b", "--micro-batch-size", "1", "--batch-size", "4", "--replicas", "4", "--json"]
    flags += ["--available", "1TB", "--sequence-length", "256", "--threads", "1"]

    def command(*more: str) -> Result:
        return CliRunner().invoke(main, [*flags, *more])

    apart, shared = (
        json.loads(command("--ranks", "4", "--expert-parallel", size).stdout)["bytes"] for size in ("1", "4")
    )
    assert shared["weights"] < 0.6 * apart["weights"]
    assert [shared[kind] for kind in ("master", "moments")] == pytest.approx(
        [apart[kind] for kind in ("master", "moments")], rel=0.01
    )
    assert apart["gradients"] < shared["gradients"] < 1.01 * 4 * MoEConfig.preset("6.9b").num_parameters
    refused = command("--ranks", "4", "--expert-parallel", "3")
    assert refused.exit_code != 0
    assert "expert_parallel is 3; it must divide the 4 ranks and the 16 experts" in refused.stderr
    assert "--expert-parallel is for --ranks" in command("--expert-parallel", "2").output
