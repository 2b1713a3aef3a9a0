"""The plan of a rank is what a rank then needs and sends."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ranks import job
from small_models import TINY, random_batch

import nncuda
from nncuda.cli import main
from nncuda.cli.plan import require_fit
from nncuda.models import MoEConfig, MoETransformer
from nncuda.train import TrainConfig, Trainer
from nncuda.train.plan import Machine, Seat, plan_growth, plan_ranks, plan_training, training_work

#: Parameters are shared out in four pieces, so of eight ranks some have none.
MODEL = dataclasses.replace(TINY, vocab_size=211, hidden_size=40, num_experts=5, ffn_size=61)
RANKS = [1, 2, 3, 5, 8]
CASES: dict[str, dict[str, Any]] = {
    "f32": {},
    "bf16, moments in 8 bits": {"precision": "bf16", "moments": "f8"},
    "f16, rounds that are not run": {"precision": "f16", "batch_size": 59, "micro_batch_size": 2},
}


def options(**changes: Any) -> TrainConfig:
    usual = {
        "steps": 9,
        "warmup_steps": 1,
        "batch_size": 8,
        "micro_batch_size": 1,
        "replicas": 8,
        "sequence_length": 24,
    }
    return TrainConfig.from_dict(usual | changes)


def measured(comm: nncuda.Comm, train: TrainConfig) -> tuple[int, int]:
    """The most bytes of three steps, and those that one of them sent."""
    trainer = Trainer(MoETransformer(comm.ctx, MODEL, precision=train.precision, comm=comm), train, comm=comm)
    batch = [ids[trainer.rows()] for ids in random_batch(MODEL, train.batch_size, train.sequence_length)]
    for _ in range(3):
        before = trainer.bytes_sent
        trainer.train_step(*batch)
    return comm.ctx.bytes_peak, trainer.bytes_sent - before


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", CASES)
def test_plan_is_what_is_measured(name: str, ranks: int) -> None:
    train, machine = options(**CASES[name]), Machine("cpu", 1)
    found = job(ranks, lambda comm: measured(comm, train))
    for rank, (peak, sent) in enumerate(found):
        seat = Seat(rank, ranks)
        planned = plan_training(MODEL, train, machine, held_out=False, seat=seat)
        assert sum(planned.bytes.values()) == planned.peak and min(planned.bytes.values()) >= 0
        assert planned.peak == pytest.approx(peak, rel=0.01), seat
        assert training_work(MODEL, train, machine, seat).sent == sent, seat


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_the_rank_that_needs_most(name: str, ranks: int) -> None:
    """No rank needs, computes or sends more, whichever of them are looked at."""
    train, machine = options(**CASES[name]), Machine("cpu", 1)
    planned = plan_ranks(MODEL, train, machine, ranks)
    seats = [Seat(rank, ranks) for rank in range(ranks)]
    held = [plan_training(MODEL, train, machine, seat=seat).held for seat in seats]
    works = [training_work(MODEL, train, machine, seat) for seat in seats]
    assert planned.memory.held == max(held) and planned.seat.rank == held.index(max(held))
    assert planned.work.flops == max(work.flops for work in works)
    assert planned.sent == max(work.sent for work in works) > 0


#: Grains at the borders of experts are updated by ranks of other positions, and groups of ranks have others' sums:
#: model, precision, ranks, how many share the experts out, and bytes that one of the ranks sends.
BORDERS: list[tuple[dict[str, int], str, int, int, int]] = [
    (
        {"vocab_size": 426, "hidden_size": 96, "head_dim": 48, "ffn_size": 200, "num_experts": 8, "num_layers": 2},
        "bf16",
        12,
        4,
        2_337_040,
    ),
    (
        {"vocab_size": 449, "hidden_size": 128, "head_dim": 64, "ffn_size": 64, "num_experts": 2, "num_layers": 4},
        "f32",
        4,
        2,
        3_158_920,
    ),
]


@pytest.mark.parametrize(("sizes", "precision", "ranks", "size", "sent"), BORDERS)
def test_the_rank_that_sends_most(sizes: dict[str, int], precision: str, ranks: int, size: int, sent: int) -> None:
    """Also where it is not one that needs the most memory, nor one with the most weights to send."""
    model = dataclasses.replace(MoEConfig.preset("demo"), num_heads=2, num_kv_heads=2, experts_per_token=2, **sizes)
    train = options(batch_size=ranks, replicas=ranks, sequence_length=16, precision=precision)
    machine = Machine("cpu", 1)
    all_of_them = [training_work(model, train, machine, Seat(rank, ranks, size)).sent for rank in range(ranks)]
    assert plan_ranks(model, train, machine, ranks, size).sent == max(all_of_them) == sent


@pytest.mark.parametrize(("ranks", "size"), [(1, 1), (3, 1), (4, 2), (6, 6)])
@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 23, "replicas": 9},
        {"batch_size": 45, "micro_batch_size": 2, "replicas": 7, "precision": "f16", "reduce_dtype": "f16"},
        {"batch_size": 14, "replicas": 14, "precision": "bf16", "moments": "f8"},
    ],
)
def test_micro_batches_of_a_kind_are_run_once(
    ranks: int, size: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they come to is what all of them do when each is run."""
    model = dataclasses.replace(MODEL, num_experts=6, capacity_factor=1.2)
    train, machine = options(**changes), Machine("cpu", 1)
    run = []
    forward_backward = MoETransformer.forward_backward
    monkeypatch.setattr(
        MoETransformer, "forward_backward", lambda *given, **named: (run.append(1), forward_backward(*given, **named))
    )

    def plans() -> tuple[list[Any], int]:
        run.clear()
        seats = [Seat(rank, ranks, size) for rank in range(ranks)]
        found = [
            (plan_training(model, train, machine, seat=seat), training_work(model, train, machine, seat))
            for seat in seats
        ]
        return found, len(run)

    found, count = plans()
    monkeypatch.setattr(
        Trainer, "each_kind", property(lambda trainer: False, lambda trainer, value: None), raising=False
    )
    expected, all_of_them = plans()
    assert found == expected
    assert count <= all_of_them


def test_many_replicas_take_few_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many a rank runs."""
    run = []
    forward_backward = MoETransformer.forward_backward
    monkeypatch.setattr(
        MoETransformer, "forward_backward", lambda *given, **named: (run.append(1), forward_backward(*given, **named))
    )
    model, train = dataclasses.replace(MODEL, num_experts=6), options(batch_size=3000, replicas=1000)
    plan_ranks(model, train, Machine("cpu", 1), 1)
    assert 0 < len(run) < 40
    run.clear()
    plan_ranks(model, train, Machine("cpu", 1), 4, 2)
    assert 0 < len(run) < 160


def test_growth() -> None:
    """Each row is the plan of so many ranks; experts are shared out as far as ranks and experts allow."""
    model, train, machine = dataclasses.replace(MODEL, num_experts=6), options(), Machine("cpu", 1)
    rows = plan_growth(model, train, machine, plan_ranks(model, train, machine, 6, 3))
    assert [(row.seat.ranks, row.seat.expert_parallel) for row in rows] == [(1, 1), (2, 2), (4, 2), (6, 3)]
    assert rows[2] == plan_ranks(model, train, machine, 4, 2)
    assert rows[0].sent == 0 and rows[0].work == training_work(model, train, machine)
    assert [row.seat.ranks for row in plan_growth(model, train, machine, rows[0])] == [1]


def command(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["plan", *arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_time_and_efficiency() -> None:
    """What is sent takes its time behind what is computed; without a link there is none to tell."""
    flags = ["--preset", "6.9b", "--micro-batch-size", "1", "--replicas", "4", "--device", "h200", "--json"]
    alone, told, without = (
        json.loads(command(*flags, *more)) for more in ([], ["--ranks", "4", "--link", "2e9"], ["--ranks", "4"])
    )
    assert "ranks" not in alone and without["ranks"]["seconds"] is without["ranks"]["efficiency"] is None
    found = told["ranks"]
    assert (found["count"], found["sent"]) == (4, without["ranks"]["sent"])
    assert found["seconds"] == pytest.approx(told["work"]["seconds"] + found["sent"] / 2e9)
    assert found["efficiency"] == pytest.approx(alone["work"]["seconds"] / (4 * found["seconds"]))
    assert told["work"]["seconds"] < alone["work"]["seconds"] < 4.5 * told["work"]["seconds"]
    # Three quarters of the gradients in f32, to whom they belong, and the own quarter of the weights in bf16 to three.
    assert found["sent"] == pytest.approx((3 / 4 * 4 + 3 * 2 / 4) * told["parameters"]["total"], rel=0.001)


def test_growth_in_json() -> None:
    """The last row is what is planned, and one rank is as efficient as itself."""
    flags = ["--preset", "demo", "--micro-batch-size", "1", "--replicas", "6", "--device", "h200", "--link", "2e9"]
    flags += ["--json", "--ranks", "6", "--expert-parallel", "2"]
    without, found = (json.loads(command(*flags, *more)) for more in ([], ["--growth"]))
    rows = found.pop("growth")
    assert found == without and rows[-1] == found["ranks"] and rows[-1]["held"] == found["held"]
    assert [(row["count"], row["expert_parallel"]) for row in rows] == [(1, 1), (2, 2), (4, 2), (6, 2)]
    assert (rows[0]["sent"], rows[0]["efficiency"]) == (0, 1)
    four = json.loads(command(*flags[:-3], "4", "--expert-parallel", "2"))["ranks"]
    assert rows[2] == four


def test_page() -> None:
    """The plans in the documentation are what the command prints."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "several-machines.md").read_text(encoding="utf-8")
    shown = [part for part in page.split("```") if part.startswith("\n$ nncuda plan ")]
    assert len(shown) == 3
    for part in shown:
        line, _, expected = part.strip().partition("\n…\n")
        assert command(*line.split()[3:]).split()[-len(expected.split()) :] == expected.split()


def test_a_rank_is_asked_for_what_it_needs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fits as soon as several ranks share the moments out is started on them, and refused on one."""
    model = dataclasses.replace(MODEL, hidden_size=160, vocab_size=6000)
    train, machine = options(sequence_length=8, replicas=4), Machine("cpu", 1)
    needed = [plan_training(model, train, machine, seat=Seat(0, ranks)).held for ranks in (1, 4)]
    assert needed[1] < needed[0]
    monkeypatch.setattr(nncuda.Context, "memory_info", lambda self: (sum(needed) // 2, 1 << 40))

    def work(comm: nncuda.Comm) -> None:
        require_fit(comm.ctx, model, train, held_out=True, seat=Seat.of(comm))

    job(4, work)
    with pytest.raises(MemoryError, match="this run needs"):
        job(1, work)
