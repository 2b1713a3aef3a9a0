"""The comparison itself: it finds one changed bit, and says where and since when."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import differences
import numpy as np
import pytest
from runs import Workshop

from nncuda.formats import SafetensorsFile, write_safetensors
from nncuda.train import list_checkpoints

NAME = "model.layers.1.self_attn.o_proj.weight"


@pytest.fixture
def copy(workshop: Workshop, tmp_path: Path) -> Path:
    shutil.copytree(workshop.reference("small"), tmp_path / "run")
    return tmp_path / "run"


def test_one_bit(workshop: Workshop, copy: Path) -> None:
    """A moment's last bit, wrong from step 17 on: the message names step, file, tensor, index and both values."""
    for folder in list_checkpoints(copy / "checkpoints")[16:]:
        path = folder / "optimizer.safetensors"
        tensors = {name: array.copy() for name, array in SafetensorsFile(path).items()}
        tensors[f"first_moment.{NAME}"].view(np.uint32)[3, 5] ^= 1
        write_safetensors(path, tensors)
    message = differences.of_runs(workshop.reference("small"), copy)
    assert message.startswith("step-00000017 differs (equal up to step-00000016): optimizer.safetensors: ")
    assert f"first_moment.{NAME}[3, 5] is " in message and ", expected " in message and "(1 of 1024 " in message


def test_zeros_of_other_signs() -> None:
    """Equal numbers are not enough, and a NaN is equal to itself."""
    same = np.array([np.nan, 1.0], np.float32)
    assert differences.of_arrays("x", same, same.copy()) == ""
    message = differences.of_arrays("x", np.array([[1.0, 0.0]]), np.array([[1.0, -0.0]]))
    assert message.startswith("x[0, 1] is ")
    assert "float32" in differences.of_arrays("x", np.zeros(2), np.zeros(2, np.float32))
    scalars = np.array(1.0, np.float32), np.array(2.0, np.float32)
    assert differences.of_arrays("x", *scalars).startswith("x[] is ")


def test_metrics(workshop: Workshop, copy: Path) -> None:
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    record = json.loads(lines[4])
    record["grad_norm"] = float(np.nextafter(record["grad_norm"], 9))
    record["seconds"] = 1e9  # is measured, not computed
    (copy / "metrics.jsonl").write_text("\n".join([*lines[:4], json.dumps(record), *lines[5:]]) + "\n")
    message = differences.of_runs(workshop.reference("small"), copy)
    assert message.startswith("metrics of step 5.grad_norm is ")
    (copy / "metrics.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    assert "29 lines, expected 30" in differences.of_runs(workshop.reference("small"), copy)


def test_state_and_options(workshop: Workshop, copy: Path) -> None:
    path = list_checkpoints(copy / "checkpoints")[-1] / "training.json"
    state = json.loads(path.read_text())
    state["train"]["beta1"] = 0.5
    path.write_text(json.dumps(state))
    assert "training.json.train.beta1 is 0.5, expected 0.9" in differences.of_runs(workshop.reference("small"), copy)


def test_values_and_not_their_spelling() -> None:
    assert differences.of_values("x", {"a": 1, "b": [2.5]}, {"b": [2.5], "a": 1.0}) == ""
    assert differences.of_values("x", {"a": float("nan")}, {"a": float("nan")}) == ""
    for value, other in ((1, 2), (1, True), (0, None), ("1", 1), ([], {}), ({"a": 1}, {}), (0.1, 0.1 + 2**-56)):
        assert differences.of_values("x", value, other).startswith("x ")


def test_facts_of_a_sentence() -> None:
    one = differences.facts("Error: steps is 9.50 (run/run.json): from_step must be 1e3.")
    assert one == {9.5, 1000.0, "run/run.json", "from_step"}
    assert one == differences.facts("run/run.json has 1000 for 'from_step', but 9.5 steps")
    assert one != differences.facts("Error: steps is 9.51 (run/run.json): from_step must be 1e3.")


def test_a_run_that_failed_is_told_to_who_asks_later(workshop: Workshop) -> None:
    """With its cause, and it is not tried again."""
    tried = []

    def fail() -> None:
        tried.append(1)
        raise AssertionError("the disk is full")

    with pytest.raises(AssertionError, match="the disk is full"):
        workshop.once("fails", fail)
    with pytest.raises(AssertionError, match="fails was tried before, and failed: the disk is full"):
        workshop.once("fails", fail)
    assert len(tried) == 1
