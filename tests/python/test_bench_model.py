"""`nncuda bench --model`: the sides' processes, and what is made of their figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from nncuda.bench import model as bench
from nncuda.bench import model_command, random_model
from nncuda.bench.command import bench as command

TINY = random_model.Shape(layers=1, hidden=32, ffn=32, heads=2, kv_heads=1, vocabulary=520, context=128)
WORK = bench.Work(prefill=8, decode=16, prompt=4, answer=3, batches=(2,), batch_prompt=3, batch_steps=4, rounds=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bench") / "model"
    random_model.write_folder(made, TINY)
    return made


def test_command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nncuda.bench.command.Work", lambda **changes: replace(WORK, **changes))
    monkeypatch.setattr(bench, "Bandwidth", lambda threads: type("Probe", (), {"read": lambda self: 1e9})())
    path = tmp_path / "figures.json"
    done = CliRunner().invoke(command, ["--model", str(folder), "--rounds", "1", "--threads", "1", "--json", str(path)])
    assert done.exit_code == 0, done.output
    assert "share of the probed bandwidth" in done.output and "2 together, tokens/s" in done.output
    content = json.loads(path.read_text())
    (side,), (rounds,) = content["sides"], content["rounds"]
    assert len(rounds["decode"]) == bench.PIECES and side["prefill"] > 0 and side["batched"]["2"] > 0
    assert 0 <= side["outside"] < 1 and side["memory"]["peak"] >= side["memory"]["file"] > 0
    assert side["first_token"] <= side["answer"] and side["seconds_to_load"] > 0
    weights = sum(each.stat().st_size for each in folder.glob("*.safetensors"))
    assert 0 < side["bandwidth"] / side["decode"] < 2 * weights


def test_a_single_sequence_is_kept_when_several_fail(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise bench.SideFailed("stopped")

    monkeypatch.setattr("nncuda.bench.command.Work", lambda **changes: replace(WORK, **changes))
    monkeypatch.setattr(bench, "Bandwidth", lambda threads: type("Probe", (), {"read": lambda self: 1e9})())
    monkeypatch.setattr(bench, "_batched", fails)
    path = tmp_path / "figures.json"
    done = CliRunner().invoke(command, ["--model", str(folder), "--rounds", "1", "--threads", "1", "--json", str(path)])
    assert done.exit_code == 1 and "stopped" in done.output
    (side,) = json.loads(path.read_text())["sides"]
    assert side["bandwidth"] > 0 and side["batched"] == {}


def test_ratios_are_of_the_same_round() -> None:
    def side(factor: float) -> bench.Figures:
        rates = [factor * drift for drift in (1.0, 5.0, 2.0)]
        times = [1 / rate for rate in rates]
        return bench.Figures("side", prefill=rates, decode=rates, first_token=times, answer=times, batched={4: rates})

    found = bench.ratios(side(3.0), side(2.0))
    assert found.pop("batched") == {"4": pytest.approx(1.5)}
    assert list(found.values()) == [pytest.approx(1.5)] * 4


def test_what_cannot_be_measured(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(bench.SideFailed, match="128 tokens of context; this measures up to 256"):
        bench.measure(folder, [], 1, replace(WORK, prefill=200))
    with pytest.raises(bench.SideFailed, match="cannot be started"):
        bench.Worker(bench.Program((str(tmp_path / "python"),)), folder, 1, 128, 1)
    monkeypatch.setattr(model_command, "_INTEROP", tmp_path / "nothing")
    for arguments, text in (
        (["--model", str(folder), "--against", "torch"], "against llama.cpp, ik_llama.cpp or nothing"),
        (["--against", "llama.cpp"], "are for --model"),
        (["--model", str(folder), "--against", "llama.cpp", "--python", "false"], "llama-cpp-python is not installed"),
    ):
        done = CliRunner().invoke(command, arguments)
        assert done.exit_code != 0 and text in done.output, done.output
