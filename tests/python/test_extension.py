"""Runs that become longer: the rates that follow, what is recorded, and that a kill leaves a longer run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from small_models import TINY

import nncuda
from nncuda.cli import main
from nncuda.formats import FormatError, SafetensorsFile, write_shard
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


def tensors(run: Path) -> dict[str, bytes]:
    last = list_checkpoints(run / "checkpoints")[-1]
    files = (SafetensorsFile(last / f"{name}.safetensors") for name in ("model", "optimizer"))
    return {f"{last.name} {name}": file[name].tobytes() for file in files for name in file}


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


def test_a_kill_leaves_an_extended_run(run: Path, ctx: nncuda.Context) -> None:
    """Right after it was recorded, before there is any checkpoint with it; and later."""
    whole = run.parent / "whole"
    shutil.copytree(run, whole)
    TrainingRun.extend(whole, ctx, data(run), changes={"steps": 14}).run()
    TrainingRun.extend(run, ctx, data(run), changes={"steps": 14})  # which makes no step
    resumed = TrainingRun.resume(run, ctx, data(run))
    assert resumed.notice is None
    resumed.stop()
    resumed.run()
    TrainingRun.resume(run, ctx, data(run)).run()
    assert rates(run) == rates(whole) and tensors(run) == tensors(whole)
    shutil.rmtree(list_checkpoints(run / "checkpoints")[-1])  # step 14: taken up behind the extension
    assert TrainingRun.resume(run, ctx, data(run)).trainer.config.steps == 14


def test_a_stopped_run_is_extended_where_it_stands(run: Path, ctx: nncuda.Context) -> None:
    for checkpoint in list_checkpoints(run / "checkpoints")[-2:]:
        shutil.rmtree(checkpoint)  # as if stopped after step 4
    TrainingRun.extend(run, ctx, data(run), changes={"steps": 14}).run()
    np.testing.assert_allclose(rates(run), schedule(8, 1, 0.01, 0.1)[:4] + schedule(14, 1, 0.01, 0.1)[4:], rtol=1e-5)


def test_what_is_no_extension(run: Path, ctx: nncuda.Context) -> None:
    record = (run / "run.json").read_text()
    for changes, words in (
        ({"steps": 8}, "steps is 8; this run has 8 already: extend it to more"),
        ({}, "steps is 8; this run has 8 already"),
        ({"steps": 20, "warmup_steps": 20}, "warmup_steps is 20, but there are 20 steps"),
        ({"steps": 20, "learning_rate": -1}, "learning_rate is -1; it must be a number"),
        ({"steps": 20, "seed": 1}, "a run goes on with the seed it has; it takes others of steps, "),
    ):
        with pytest.raises(ValueError, match=words):
            TrainingRun.extend(run, ctx, data(run), changes=changes)
    with pytest.raises(ValueError, match="a run goes on with the steps it has"):
        TrainingRun.resume(run, ctx, data(run), changes={"steps": 20})
    assert (run / "run.json").read_text() == record
    (run / "run.json").unlink()
    with pytest.raises(FormatError, match=r"run\.json: is not there, where an extension is recorded"):
        TrainingRun.extend(run, ctx, data(run), changes={"steps": 20})


GOOD = {"from_step": 8, "steps": 14, "learning_rate": 0.02, "min_rate_share": 0.1, "warmup_steps": 1}


@pytest.mark.parametrize(
    ("extensions", "words"),
    [
        (3, "extensions is 3; it must be a list"),
        ([GOOD, 3], "extensions has 3; an entry must have from_step, steps, learning_rate"),
        ([{**GOOD, "seed": 3}], "extensions has {.*; an entry must have from_step"),
        ([{**GOOD, "from_step": -1}], "extensions: from_step is -1; it must be a whole number, from 0 to 2147483647"),
        ([{**GOOD, "from_step": True}], "extensions: from_step is True; it must be a whole number"),
        ([{**GOOD, "steps": "x"}], "extensions: steps is 'x'; it must be a whole number"),
        ([{**GOOD, "learning_rate": None}], "extensions: learning_rate is None; it must be a number"),
    ],
)
def test_a_record_that_is_wrong(run: Path, ctx: nncuda.Context, extensions: object, words: str) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "extensions": extensions}))
    for take_up in (TrainingRun.resume, TrainingRun.extend):
        with pytest.raises(FormatError, match=rf"run\.json: {words}"):
            take_up(run, ctx, data(run), changes={"steps": 20} if take_up == TrainingRun.extend else None)


def test_the_command(run: Path) -> None:
    def said(*arguments: object, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["train", str(run), *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result.stderr

    assert said("--extend", "--steps", 10).startswith("extended at step 8 from 8 to 10 steps: the cosine ")
    assert [folder.name for folder in list_checkpoints(run / "checkpoints")][-1] == "step-00000010"
    assert "--extend needs --steps" in said("--extend", code=2)
    assert "give one of them" in said("--extend", "--resume", "--steps", 20, code=2)
    assert "leave out --seed. It takes --steps, --learning-rate, " in said("--extend", "--seed", 2, code=2)
    assert "steps is 10; this run has 10 already" in said("--extend", "--steps", 10, code=3)
