"""The learning-rate schedule of a run: its usual warm-up, what is refused, and what goes on as it was."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from small_models import TINY

import nncuda
from nncuda.cli.demo import OPTIONS as DEMO
from nncuda.cli.demo import shortened
from nncuda.cli.options import build_configs, preset_vocabulary
from nncuda.formats import write_shard
from nncuda.models import PRESETS, USUAL_PRESET, MoEConfig
from nncuda.train import TrainConfig, TrainingRun, list_checkpoints, read_metrics
from nncuda.train.config import PRESETS as TRAIN_PRESETS


@pytest.mark.parametrize(
    ("steps", "warmup"), [(1, 0), (2, 1), (19, 1), (39, 1), (40, 2), (2000, 100), (40019, 2000), (40020, 2000)]
)
def test_the_usual_warmup_is_a_twentieth(steps: int, warmup: int) -> None:
    config = TrainConfig(steps=steps)
    assert config.warmup_steps == warmup and config.to_dict()["warmup_steps"] == warmup
    config.check_schedule()
    assert TrainConfig.from_dict(config.to_dict()) == config


def test_presets_have_training_options() -> None:
    assert TRAIN_PRESETS.keys() == PRESETS.keys()
    assert build_configs({}, None, {}, 4096) == build_configs({}, USUAL_PRESET, {}, 4096)
    model, train = build_configs({"train": {"steps": 50}}, "demo", {"learning_rate": 0.5}, 77)
    assert model == MoEConfig.preset("demo", vocab_size=77)
    assert train == TrainConfig.preset("demo", steps=50, learning_rate=0.5) and train.warmup_steps == 2
    assert preset_vocabulary({}, None) == MoEConfig.preset(USUAL_PRESET).vocab_size
    with pytest.raises(ValueError, match=r"no preset 'huge'; there are 6\.9b, demo, small"):
        TrainConfig.preset("huge")


def test_a_shorter_demonstration_is_judged_ten_times() -> None:
    assert shortened(70) == dataclasses.replace(DEMO, steps=70, warmup_steps=3, eval_every=7)
    assert shortened(3).eval_every == 1


def start(folder: Path, ctx: nncuda.Context, **options: object) -> TrainingRun:
    write_shard(folder / "data.tokens", [np.arange(600) % TINY.vocab_size], TINY.vocab_size)
    train = TrainConfig(**{"batch_size": 2, "sequence_length": 8, "save_every": 4, **options})  # type: ignore[arg-type]
    return TrainingRun.start(folder / "run", ctx, TINY, train, folder / "data.tokens")


@pytest.mark.parametrize("warmup", [8, 9, 2000])
def test_steps_that_end_in_the_warmup_are_refused(tmp_path: Path, ctx: nncuda.Context, warmup: int) -> None:
    with pytest.raises(ValueError, match=rf"warmup_steps is {warmup}, but there are 8 steps: .* such as 1, or none"):
        start(tmp_path, ctx, steps=8, warmup_steps=warmup)
    assert not (tmp_path / "run").exists()


def test_a_run_from_when_they_were_not_goes_on(tmp_path: Path, ctx: nncuda.Context) -> None:
    """Its rate rises to the end, as it would have."""
    run = start(tmp_path, ctx, steps=8, warmup_steps=7)
    run.stop()
    run.run()
    (checkpoint,) = list_checkpoints(run.checkpoints)
    state = json.loads((checkpoint / "training.json").read_text())
    state["train"]["warmup_steps"] = 16
    (checkpoint / "training.json").write_text(json.dumps(state))
    taken_up = TrainingRun.resume(run.folder, ctx, tmp_path / "data.tokens")
    assert taken_up.trainer.config == dataclasses.replace(run.trainer.config, warmup_steps=16)
    taken_up.run()
    rates = [record["learning_rate"] for record in read_metrics(run.folder / "metrics.jsonl")]
    np.testing.assert_allclose(rates[1:], 3e-4 * np.arange(2, 9) / 16, rtol=1e-6)
