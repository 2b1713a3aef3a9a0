"""Runs that become longer: the rates that follow, and what is recorded. Kills and refusals: tests/parity."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_models import TINY

import nncuda
from nncuda.formats import FormatError, write_shard
from nncuda.reference.optimizer import lr_schedule
from nncuda.train import TrainConfig, TrainingRun, list_checkpoints, read_metrics

BEGUN = TrainConfig(steps=8, batch_size=2, sequence_length=8, save_every=2, learning_rate=0.01, keep_checkpoints=99)


@pytest.fixture
def run(tmp_path: Path, ctx: nncuda.Context) -> Path:
    """The folder of a run that is done."""
    write_shard(tmp_path / "data.tokens", [np.arange(900) ** 2 % TINY.vocab_size], TINY.vocab_size)
    TrainingRun.start(tmp_path / "run", ctx, TINY, BEGUN, tmp_path / "data.tokens").run()
    return tmp_path / "run"


def data(run: Path) -> Path:
    return run.parent / "data.tokens"


def schedule(steps: int, warmup: int, rate: float, share: float) -> list[float]:
    """The rate of each step, by the oracle."""
    return [
        float(lr_schedule(np.array([step], np.int32), warmup, steps, rate, rate * share)["lr"][0])
        for step in range(steps)
    ]


def rates(run: Path) -> list[object]:
    return [record["learning_rate"] for record in read_metrics(run / "metrics.jsonl") if "learning_rate" in record]


def test_the_cosine_is_stretched_to_the_new_end(run: Path, ctx: nncuda.Context) -> None:
    extended = TrainingRun.extend(run, ctx, data(run), changes={"steps": 14, "learning_rate": 0.02})
    extended.run()
    before, after = schedule(8, 1, 0.01, 0.1), schedule(14, 1, 0.02, 0.1)
    np.testing.assert_allclose(rates(run), before + after[8:], rtol=1e-5)
    x, y = (float(f"{rate:.2e}") for rate in (before[7], after[7]))
    assert extended.notice == (
        "extended at step 8 from 8 to 14 steps: the cosine is stretched to the new end, "
        f"and the rate at step 8 changes from {x} to {y}"
    )
    assert y > 9 * x
    (entry,) = json.loads((run / "run.json").read_text())["extensions"]
    assert entry == {"from_step": 8, "steps": 14, "learning_rate": 0.02, "min_rate_share": 0.1, "warmup_steps": 1}
    assert TrainingRun.resume(run, ctx, data(run)).trainer.config.steps == 14
    extended = TrainingRun.extend(run, ctx, data(run), changes={"steps": 40, "warmup_steps": None, "save_every": 5})
    assert extended.trainer.config.warmup_steps == 2 and extended.trainer.config.save_every == 5
    assert len(json.loads((run / "run.json").read_text())["extensions"]) == 2


def test_a_stopped_run_is_extended_where_it_stands(run: Path, ctx: nncuda.Context) -> None:
    for checkpoint in list_checkpoints(run / "checkpoints")[-2:]:
        shutil.rmtree(checkpoint)  # as if stopped after step 4
    TrainingRun.extend(run, ctx, data(run), changes={"steps": 14}).run()
    np.testing.assert_allclose(rates(run), schedule(8, 1, 0.01, 0.1)[:4] + schedule(14, 1, 0.01, 0.1)[4:], rtol=1e-5)


def test_a_run_without_a_record_is_not_extended(run: Path, ctx: nncuda.Context) -> None:
    (run / "run.json").unlink()
    with pytest.raises(FormatError, match=r"run\.json: is not there, where an extension is recorded"):
        TrainingRun.extend(run, ctx, data(run), changes={"steps": 20})
