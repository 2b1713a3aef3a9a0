"""`nncuda eval` and `HarnessModel`: the scores that lm-evaluation-harness gives the same weights through transformers.

`make interop` installs the harness and runs this with NNCUDA_INTEROP=live.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from small_models import write_adapter

from nncuda.bench.random_model import Shape, write_folder
from nncuda.cli import main
from nncuda.models.stored import StoredModel

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs lm-eval and transformers", allow_module_level=True)

SCORES = Path(__file__).parent / "clients" / "lm_eval" / "scores.py"
SHAPE = Shape(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, vocabulary=600, context=256)
QUESTIONS = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("eval") / "model"
    write_folder(made, SHAPE, dtype="f32")
    return made


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")


def scores(folder: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, SCORES, folder, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def numbers(said: Any) -> list[float]:
    """Those in lists of lists."""
    if isinstance(said, list):
        return [number for one in said for number in numbers(one)]
    return [said] if isinstance(said, float) else []


def test_scores_are_those_of_transformers(folder: Path) -> None:
    ours, theirs = scores(folder, "--in-process"), scores(folder)
    assert ours["choices"]["metrics"] == theirs["choices"]["metrics"]
    # Each is a sum of f32 logarithms, which either side rounds to 24 bits, and adds up in another order.
    for task in ("choices", "windows"):
        pairs = list(zip(numbers(ours[task]["said"]), numbers(theirs[task]["said"]), strict=True))
        assert len(pairs) > 7 and all(math.isclose(a, b, rel_tol=1e-6) for a, b in pairs)
    # Random weights write bytes that are no UTF-8, and <unk>: the decoder of tokenizers has other signs for these than
    # SentencePiece, which ours follows.
    whole = [
        pair for pair in zip(texts(ours), texts(theirs), strict=True) if not set("".join(pair)) & {"\ufffd", "\u2047"}
    ]
    assert len(whole) >= 2 and all(one.strip() == other.strip() for one, other in whole)


def texts(found: dict[str, Any]) -> list[str]:
    return [text for one in found["written"]["said"] for text in one[0]]


def test_the_command(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "questions.jsonl"
    rows = [{"text": f"the sea {at}", "choices": ["is deep", "is wide"], "answer": at % 2} for at in range(QUESTIONS)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = tmp_path / "sea.yaml"
    task.write_text(
        f"task: sea\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\ntest_split: test\n"
        "output_type: multiple_choice\ndoc_to_text: '{{text}}'\ndoc_to_choice: '{{choices}}'\ndoc_to_target: answer\n"
        "metric_list: [{metric: acc}]\n"
    )
    found, said = tmp_path / "scores.json", tmp_path / "said.jsonl"
    line = ["eval", str(folder), "--task", str(task), "--threads", "1", "--json", str(found), "--samples", str(said)]
    result = CliRunner().invoke(main, line, catch_exceptions=False)
    assert result.exit_code == 0 and "sea" in result.output, result.output
    results = json.loads(found.read_text())["results"]["sea"]
    samples = [json.loads(one) for one in said.read_text().splitlines()]
    assert len(samples) == QUESTIONS and sum(one["acc"] for one in samples) / QUESTIONS == results["acc,none"]
    write_adapter(tmp_path / "adapter", StoredModel.open(folder).config, ("self_attn.q_proj",))
    with_adapter = [*line[:-1], str(tmp_path / "other.jsonl"), "--force", "--adapter", str(tmp_path / "adapter")]
    assert CliRunner().invoke(main, with_adapter, catch_exceptions=False).exit_code == 0
    others = [json.loads(one) for one in (tmp_path / "other.jsonl").read_text().splitlines()]
    assert len(others) == QUESTIONS and all(a["resps"] != b["resps"] for a, b in zip(samples, others, strict=True))
    again = CliRunner().invoke(main, line)
    assert again.exit_code == 2 and "exists; --force replaces it" in again.output
    found.unlink(), said.unlink()
    for other in (["--task", str(tmp_path / "none.yaml")], ["--task", str(tmp_path / "no-such-task")]):
        result = CliRunner().invoke(main, ["eval", str(folder), *other])
        assert result.exit_code == 2 and "--task: " in result.output, result.output
    task.write_text("dataset_path: json\n")
    result = CliRunner().invoke(main, ["eval", str(folder), "--task", str(task)])
    assert result.exit_code == 3 and "is no task of lm-evaluation-harness" in result.output, result.output
