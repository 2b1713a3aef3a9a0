"""The plan of a run's memory is what is then measured, and a run that cannot fit says what would."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from small_models import random_batch

import nncuda
from nncuda.cli import main
from nncuda.cli.plan import require_fit
from nncuda.formats import write_shard
from nncuda.infer import generate_batch
from nncuda.models import PRESETS, MoEConfig, MoETransformer
from nncuda.models.parameters import ParameterLayout
from nncuda.train import TrainConfig, Trainer
from nncuda.train.devices import DEVICES
from nncuda.train.fit import ways_to_fit
from nncuda.train.plan import (
    KINDS,
    Machine,
    inference_work,
    plan_inference,
    plan_training,
    training_work,
)

WIDE = MoEConfig(
    vocab_size=512, hidden_size=96, num_layers=4, num_heads=6, num_kv_heads=2, head_dim=16, num_experts=4,
    experts_per_token=2, ffn_size=128, context=256, extended_context=512,
)  # fmt: skip
SHAPES = {
    "wide": WIDE,
    "deep": dataclasses.replace(WIDE, num_layers=9, hidden_size=64),
    "many experts": dataclasses.replace(WIDE, num_experts=16, experts_per_token=4, num_layers=2, capacity_factor=1.5),
    "large vocabulary": dataclasses.replace(WIDE, vocab_size=6000, num_layers=2),  # three chunks of logits
    "multi-query": dataclasses.replace(WIDE, num_kv_heads=1, num_layers=3),
}
OPTIONS = {
    "f32": {},
    "bf16": {"precision": "bf16"},
    "f16": {"precision": "f16"},
    "accumulated": {"micro_batch_size": 3},
    "accumulated in bf16": {"micro_batch_size": 2, "precision": "bf16"},
    "four replicas": {"micro_batch_size": 1, "replicas": 4},
    "every block": {"activation_checkpointing": 1, "precision": "bf16"},
    "every second block": {"activation_checkpointing": 2, "micro_batch_size": 4},
    "experts": {"recompute_experts": True, "precision": "f16"},
    "moments in bf16": {"moments": "bf16"},
    "moments in 8 bits": {"moments": "f8", "precision": "bf16"},
    "both": {"activation_checkpointing": 2, "recompute_experts": True},
}
CASES = [("wide", name) for name in OPTIONS] + [
    (shape, name) for shape in list(SHAPES)[1:] for name in ("f32", "accumulated in bf16", "every second block")
]
#: Of what is measured. What is planned is what is called, so all that may differ is when Python frees a tensor.
TOLERANCE = 0.01


def train_options(**options: object) -> TrainConfig:
    return TrainConfig.from_dict({"steps": 9, "warmup_steps": 1, "batch_size": 8, "sequence_length": 128, **options})


def measured(ctx: nncuda.Context, model: MoEConfig, train: TrainConfig, capture: bool) -> tuple[int, int, int]:
    """Most bytes after three steps, of them scratch now, and the most with an evaluation behind them."""
    trainer = Trainer(MoETransformer(ctx, model, precision=train.precision), train, capture=capture)
    batch = random_batch(model, train.batch_size, train.sequence_length)
    for _ in range(3):
        trainer.train_step(*batch)
    steps, scratch = ctx.bytes_peak, ctx.bytes_arena
    trainer.model.evaluate(*(ids[: train.micro_batch_size] for ids in batch))
    return steps, scratch, ctx.bytes_peak


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize(("shape", "name"), CASES)
def test_plan_is_what_is_measured(shape: str, name: str, capture: bool) -> None:
    model, train = SHAPES[shape], train_options(**OPTIONS[name])
    with nncuda.Context("cpu", threads=2) as ctx:
        machine = Machine.of(ctx)
        steps, scratch, whole = measured(ctx, model, train, capture)
    planned = plan_training(model, train, machine, capture=capture, held_out=False)
    assert sum(planned.bytes.values()) == planned.peak == planned.held and min(planned.bytes.values()) >= 0
    assert planned.peak == pytest.approx(steps, rel=TOLERANCE)
    assert planned.bytes["scratch"] == pytest.approx(scratch, rel=TOLERANCE)
    assert plan_training(model, train, machine, capture=capture).peak == pytest.approx(whole, rel=TOLERANCE)


@pytest.mark.parametrize("preset", ["demo", "small"])
def test_presets(preset: str) -> None:
    model, train = MoEConfig.preset(preset), TrainConfig.preset(preset)
    with nncuda.Context("cpu", threads=2) as ctx:
        machine = Machine.of(ctx)
        _, _, whole = measured(ctx, model, train, capture=True)
    assert plan_training(model, train, machine).peak == pytest.approx(whole, rel=TOLERANCE)


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_micro_batches_that_are_not_run_count(replicas: int) -> None:
    """Of seven micro-batches up to four are left out where a step is planned, and none where it is made."""
    train = train_options(batch_size=7, micro_batch_size=1, replicas=replicas, precision="f16", sequence_length=64)
    with nncuda.Context("cpu", threads=2) as ctx:
        machine = Machine.of(ctx)
        steps, _, _ = measured(ctx, WIDE, train, capture=True)
        trainer = Trainer(MoETransformer(ctx, WIDE, precision="f16"), train, capture=False)
        batch = random_batch(WIDE, 7, 64)
        trainer.train_step(*batch)
        with ctx.profile() as profile:
            trainer.train_step(*batch)
    assert plan_training(WIDE, train, machine, held_out=False).peak == pytest.approx(steps, abs=100)
    made = {one["kernel"]: (one["flops"], one["bytes"]) for one in profile.json()["kernels"]}
    assert training_work(WIDE, train, machine).kernels == made


def test_work_and_time() -> None:
    """Most operations of a step are products: 6 a parameter that a token meets, but for the embedding and attention."""
    model, train = MoEConfig.preset("6.9b"), TrainConfig.preset("6.9b")
    h200 = DEVICES["h200"]
    machine = Machine("cuda", capability=h200.capability, multiprocessors=h200.multiprocessors)
    work = training_work(model, dataclasses.replace(train, activation_checkpointing=0), machine)
    tokens = train.batch_size * train.sequence_length
    products = 6 * tokens * (model.num_active_parameters - model.vocab_size * model.hidden_size)
    assert products < work.flops < 1.2 * products
    seconds = work.seconds(h200, "bf16")
    assert max(work.flops / h200.flops_16, work.bytes / h200.bandwidth) < seconds < 3 * work.flops / h200.flops_16
    assert work.seconds(DEVICES["t4"], "bf16") > 5 * seconds
    token = inference_work(model, "bf16", machine, 1, 4096)
    weights = 2 * (model.num_active_parameters - model.vocab_size * model.hidden_size)
    assert weights < token.flops < 1.2 * weights  # and attention over 4096 keys
    assert 0.9 * 2 * model.num_parameters < token.bytes < 1.1 * 2 * model.num_parameters


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512", "avx512bf16", "amx"])
@pytest.mark.parametrize("threads", [1, 5])
def test_scratch_of_every_instruction_set(isa: str, threads: int) -> None:
    """What kernels take hangs on the width of vectors and the number of workers."""
    train = train_options(precision="bf16")
    with nncuda.Context("cpu", threads=threads) as ctx:
        if nncuda.device.INSTRUCTION_SETS.index(isa) > nncuda.device.INSTRUCTION_SETS.index(ctx.isa):
            pytest.skip(f"this processor has no {isa}")
        ctx.isa = isa
        machine = Machine.of(ctx)
        assert machine == Machine("cpu", threads, isa)
        steps, scratch, _ = measured(ctx, WIDE, train, capture=True)
    planned = plan_training(WIDE, train, machine, held_out=False)
    assert planned.peak == pytest.approx(steps, rel=TOLERANCE)
    assert planned.bytes["scratch"] == pytest.approx(scratch, rel=TOLERANCE)


def test_checkpointing_falls_as_planned() -> None:
    """12 and 24 layers: what is spared is what was planned."""
    for layers in (12, 24):
        model = dataclasses.replace(WIDE, num_layers=layers, hidden_size=48, num_heads=3, num_kv_heads=1)
        spared = []
        for every in (0, 1):
            train = train_options(batch_size=2, activation_checkpointing=every)
            with nncuda.Context("cpu", threads=2) as ctx:
                machine = Machine.of(ctx)
                steps, _, _ = measured(ctx, model, train, capture=True)
            planned = plan_training(model, train, machine, held_out=False)
            spared.append((planned.peak, steps))
        (planned_all, measured_all), (planned_less, measured_less) = spared
        assert measured_less < 0.75 * measured_all
        # To the grain that scratch comes in.
        assert abs((planned_all - planned_less) - (measured_all - measured_less)) <= (1 << 18) + 100


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_inference(precision: str) -> None:
    with nncuda.Context("cpu", threads=2) as ctx:
        model = MoETransformer(ctx, WIDE, training=False, precision=precision)
        prompts = [np.arange(200) % WIDE.vocab_size] * 3
        assert len(list(generate_batch(model, prompts, 57))) == 57
        planned = plan_inference(WIDE, precision, Machine.of(ctx), batch=3, capacity=256, prompt=200)
        assert planned.peak == pytest.approx(ctx.bytes_peak, rel=TOLERANCE)
    assert planned.bytes["weights"] == WIDE.num_parameters * (4 if precision == "f32" else 2)
    assert planned.bytes["cache"] == 2 * WIDE.num_layers * 3 * 256 * 2 * 16 * (4 if precision == "f32" else 2)


def test_parameters_by_kind() -> None:
    for name in PRESETS:
        config = MoEConfig.preset(name)
        layout = ParameterLayout(config)
        expert = sum(spec.size for spec in layout if ".experts.0." in spec.name)
        idle = config.num_experts - config.experts_per_token
        assert (config.num_parameters, config.num_active_parameters) == (layout.size, layout.size - idle * expert)
    kinds = MoEConfig.preset("6.9b").parameters_by_kind()
    assert kinds["experts"] == (30 * 16 * 3 * 768 * 6144, 30 * 4 * 3 * 768 * 6144)


def test_pages_of_a_gpu() -> None:
    """A GPU gives more than is asked for, and keeps a captured step's scratch beside that of calls; never less."""
    train = train_options(activation_checkpointing=1, precision="bf16")
    planned = plan_training(WIDE, train, Machine("cuda", capability=90))
    assert planned.peak < planned.held < 1.2 * planned.peak
    host = plan_training(WIDE, train, Machine("cpu", 2))
    assert host.held == host.peak


def test_ways_to_fit() -> None:
    """Each way, taken, needs what it says; none is one that a smaller change makes needless."""
    machine, train = Machine("cpu", 2), train_options()
    needed = plan_training(WIDE, train, machine).held
    for share in (0.95, 0.8, 0.6, 0.5):
        free = int(share * needed)
        ways, _ = ways_to_fit(WIDE, train, machine, free)
        assert len(ways) == 3, share
        for way in ways:
            changed = dataclasses.replace(train, **way.changes)
            assert plan_training(WIDE, changed, machine).held == way.held <= free
        for way in ways:
            assert not any(other.changes.items() < way.changes.items() for other in ways)
    ways, least = ways_to_fit(WIDE, train, machine, 1000)
    assert ways == [] and least is not None
    assert least.held < needed and least.changes["sequence_length"] == 1


def command(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_command() -> None:
    flags = ["plan", "--preset", "small", "--threads", 2]
    told = json.loads(command(*flags, "--available", "300MiB", "--json"))
    assert set(told["bytes"]) == set(KINDS) and sum(told["bytes"].values()) == told["peak"]
    assert told["free"] == 300 << 20 and not told["fits"] and len(told["ways"]) == 3
    assert told["parameters"]["total"] == 15_345_920
    assert set(told["work"]) == {"flops", "bytes", "seconds"} and told["work"]["seconds"] is None
    assert told["work"]["flops"] > 6 * 8 * 256 * 4_000_000
    text = command(*flags, "--available", "300MiB")
    assert "It does not fit" in text and "It fits with --micro-batch-size" in text
    assert "It fits, with" in command(*flags, "--available", "1GB")
    assert json.loads(command(*flags, "--json"))["free"] > 1 << 20
    large = [
        "--preset",
        "6.9b",
        "--device",
        "cuda",
        "--available",
        "141GB",
        "--precision",
        "bf16",
        "--activation-checkpointing",
        1,
    ]
    named = json.loads(command("plan", "--preset", "6.9b", "--device", "h200", "--json"))
    assert named["free"] == 141 * 10**9 and named["fits"] and 1 < named["work"]["seconds"] < 60
    told = json.loads(command("plan", *large, "--sequence-length", 4096, "--micro-batch-size", 1, "--json"))
    assert told["fits"] and 18 * told["parameters"]["total"] < told["peak"] < 141e9
    told = json.loads(command(*flags, "--inference", "--batch-size", 4, "--context", 512, "--prompt", 9, "--json"))
    assert told["bytes"]["cache"] == 2 * 4 * 4 * 512 * 64 * 4


def test_page() -> None:
    """The plan in the documentation is what the command prints."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    (shown,) = (part for part in page.split("```") if part.startswith("\n$ nncuda plan "))
    line, _, expected = shown.strip().partition("\n")
    assert command(*line.split()[2:]).split() == expected.split()


def test_run_that_cannot_fit_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    write_shard(tmp_path / "train.tokens", [rng.integers(0, 64, 4000)], 64)
    flags = ["--preset", "demo", "--num-layers", 1, "--ffn-size", 64, "--hidden-size", 32, "--steps", 1]
    flags += ["--data", tmp_path / "train.tokens", "--batch-size", 4, "--sequence-length", 64, "--threads", 2]
    monkeypatch.setattr(nncuda.Context, "memory_info", lambda self: (3 << 20, 1 << 30))
    said = command("train", tmp_path / "run", *flags, code=4)
    assert said.startswith("Error: this run needs ") and "cpu has 3.0 MiB free" in said
    assert "It fits with --micro-batch-size" in said and "--start-anyway" in said
    assert not (tmp_path / "run").exists()
    command("train", tmp_path / "run", *flags, "--start-anyway")
    assert "this run needs" in command("train", tmp_path / "run", "--resume", code=4)
    command("train", tmp_path / "run", "--resume", "--start-anyway")


def test_nothing_makes_it_fit(ctx: nncuda.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nncuda.Context, "memory_info", lambda self: (1 << 16, 1 << 30))
    with pytest.raises(
        MemoryError, match=r"The least that options can reach is .* the model itself is too large\. --start"
    ):
        require_fit(ctx, WIDE, train_options(), held_out=False)
    monkeypatch.setattr(nncuda.Context, "memory_info", lambda self: (24 << 30, 24 << 30))
    with pytest.raises(MemoryError, match=r"too large\. A model that fits is --preset small \(\d+\.\d MiB\)\. --start"):
        require_fit(ctx, MoEConfig.preset("6.9b"), TrainConfig.preset("6.9b"), held_out=True)
