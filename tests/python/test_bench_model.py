"""`nncuda bench --model`: the sides' processes, and what is made of their figures."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from nncuda.bench import model as bench
from nncuda.bench import model_command, random_model
from nncuda.bench.command import bench as command
from nncuda.golden.runner import available_isas

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


#: A peer that is a program of its own, as ik_llama.cpp's is: it takes the arguments of a side and answers in its lines.
STAND_IN = """\
#!{python}
import json, sys
model, threads, context, rows, device = sys.argv[1:]
assert device == "cpu" and open(model, "rb").read(5) == b"peers"
say = lambda result: print(json.dumps({{"result": result}}), flush=True)
say({{"name": "stand-in (1)", "seconds_to_load": 0.25}})
for line in sys.stdin:
    method, *arguments = json.loads(line)
    methods = {{"prefill": lambda ids: 0.5, "start": lambda prompts: [3] * len(prompts),
               "step": lambda count: [0.5 * count, 0.0], "answer": lambda ids, count: [0.5, 0.5 * count]}}
    say(methods[method](*arguments))
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return path


def test_another_program_and_its_own_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nncuda.bench.command.Work", lambda **changes: replace(WORK, **changes))
    monkeypatch.setattr(bench, "Bandwidth", lambda threads: type("Probe", (), {"read": lambda self: 1e9})())
    path, peers = tmp_path / "figures.json", tmp_path / "peers.gguf"
    peers.write_bytes(b"peers file")
    binary = program(tmp_path / "peer", STAND_IN)
    isas = available_isas()[-2:]
    options = ["--model", folder, "--against", "ik_llama.cpp", "--binary", binary, "--peer-model", peers, "--rounds", 3,
               "--threads", 1, "--isa", ",".join(isas), "--json", path]  # fmt: skip
    done = CliRunner().invoke(command, list(map(str, options)))
    assert done.exit_code == 0, done.output
    content = json.loads(path.read_text())
    assert [(side["ours"], side["isa"]) for side in content["sides"]] == [*((True, isa) for isa in isas), (False, None)]
    peer = content["sides"][-1]
    assert peer["name"] == "stand-in (1)" and peer["seconds_to_load"] == 0.25 and peer["memory"]["peak"] > 0
    assert peer["prefill"] == WORK.prefill / 0.5 and peer["decode"] == 2.0 and peer["share"] is None
    ours = content["sides"][0]
    assert ours["share"] > 0 and ours["memory"]["peak"] > 0
    assert len(content["times_as_fast"]) == len(isas)
    for rounds, times in zip(content["rounds"], content["times_as_fast"], strict=False):
        assert times["prefill"] == pytest.approx(sorted(rounds["prefill"])[1] / peer["prefill"])
    options[options.index("--json") :] = ["--compare", path]
    done = CliRunner().invoke(command, list(map(str, options)))
    assert done.exit_code in (0, 1) and "within the spread of the rounds" in done.output, done.output


def test_a_program_that_is_no_side(folder: Path, tmp_path: Path) -> None:
    chatty = bench.Program((str(program(tmp_path / "chatty", "#!{python}\nprint('hello')\n")),), ours=False)
    with pytest.raises(bench.SideFailed, match="chatty is no side of this benchmark: it wrote 'hello"):
        bench.Worker(chatty, folder, 1, 128, 1)
    gone = program(tmp_path / "gone", '#!{python}\nprint(\'{{"result": {{"name": "a", "seconds_to_load": 1}}}}\')\n')
    with (
        bench.Worker(bench.Program((str(gone),)), folder, 1, 128, 1) as worker,
        pytest.raises(bench.SideFailed, match=r"gone .* ended with 0"),
    ):
        worker._process.wait()
        worker.ask("prefill", [3])


def test_what_cannot_be_measured(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(bench.SideFailed, match="128 tokens of context; this measures up to 256"):
        bench.measure(folder, [], 1, replace(WORK, prefill=200))
    with pytest.raises(bench.SideFailed, match="cannot be started"):
        bench.Worker(bench.Program((str(tmp_path / "python"),)), folder, 1, 128, 1)
    monkeypatch.setattr(model_command, "_INTEROP", tmp_path / "nothing")
    for arguments, text in (
        (["--model", str(folder), "--against", "torch"], "against llama.cpp, ik_llama.cpp or nothing"),
        (["--against", "llama.cpp"], "are for --model"),
        (["--model", str(folder), "--against", "ik_llama.cpp"], "needs --binary"),
        (["--model", str(folder), "--binary", __file__], "--binary is for --against ik_llama.cpp"),
        (["--model", str(folder), "--peer-model", __file__], "--peer-model is for --against"),
        (["--binary", __file__], "are for --model"),
        (["--model", str(folder), "--isa", "sse9"], "'sse9' is none of baseline, avx2"),
        (["--model", str(folder), "--against", "llama.cpp", "--python", "false"], "llama-cpp-python is not installed"),
    ):
        done = CliRunner().invoke(command, arguments)
        assert done.exit_code != 0 and text in done.output, done.output
