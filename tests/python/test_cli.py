"""The command line: the whole path from text to text, and what only Python's commands do.

What the commands of all languages do alike is in tests/parity: stopping and resuming, strategies of generation,
precisions, metrics on a pipe, refusals.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from small_models import TINY

from nncuda import Context
from nncuda.cli import main
from nncuda.extras import ExtraMissing
from nncuda.formats import TokenShard, write_shard
from nncuda.infer import Sampling, generate
from nncuda.infer.sampling import GREEDY
from nncuda.train import list_checkpoints, load_model, read_metrics, resolve_checkpoint
from nncuda.train.data import unigram_entropy

CONFIG = """
[model]
hidden_size = 32
num_layers = 2
num_heads = 4
head_dim = 8
num_experts = 4
experts_per_token = 2
ffn_size = 24
context = 32
extended_context = 64

[train]
steps = 6
batch_size = 4
sequence_length = 16
warmup_steps = 2
learning_rate = 0.003
eval_every = 3
eval_batches = 2
save_every = 2
clip_norm = "none"

[data]
data = "train.tokens"
held_out = "held-out.tokens"
tokenizer = "tokenizer.model"
"""


def nncuda(*arguments: object, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, tokenizer, shards, configuration and a finished run, all made by the commands."""
    work = tmp_path_factory.mktemp("work")
    for number in range(40):
        lines = [
            f"line {line} of file {number}: the quick brown fox\n\tjumps over {line * number}" for line in range(12)
        ]
        (work / "text").mkdir(exist_ok=True)
        (work / "text" / f"{number}.txt").write_text("\n".join(lines))
    (work / "text" / "picture.bin").write_bytes(b"\0\xff")
    tokenizer, text = work / "tokenizer.model", work / "text"
    nncuda("tokenizer", "train", text, "--out", tokenizer, "--vocab-size", 320, "--model-type", "bpe")
    out, held_out = work / "train.tokens", work / "held-out.tokens"
    nncuda(
        "data", "encode", text, "--tokenizer", tokenizer, "--out", out, "--held-out", held_out, "--held-out-share", 0.2
    )
    (work / "config.toml").write_text(CONFIG)
    nncuda("train", work / "run", "--config", work / "config.toml", "--threads", 2, "--seed", 3)
    return work


def test_from_text_to_a_trained_model(work: Path) -> None:
    shards = [TokenShard(work / name) for name in ("train.tokens", "held-out.tokens")]
    assert all(shard.vocab_size == 320 and shard.read()[0] == 2 and shard.read()[-1] == 3 for shard in shards)
    assert sum(np.count_nonzero(shard.read() == 3) for shard in shards) == 40  # one end for each file of text
    assert [folder.name for folder in list_checkpoints(work / "run" / "checkpoints")][-1] == "step-00000006"
    records = read_metrics(work / "run" / "metrics.jsonl")
    assert [record["step"] for record in records if "held_out_loss" in record] == [3, 6]
    state = json.loads((resolve_checkpoint(work / "run") / "training.json").read_text())
    assert state["train"]["seed"] == 3 and state["train"]["clip_norm"] is None and state["train"]["beta1"] == 0.9


def test_nothing_is_written_over_unawares(work: Path, tmp_path: Path) -> None:
    """Shards and tokenizers are replaced with --force alone, and a shard for training never takes in held-out text
    because the flag was forgotten."""

    def refused(problem: str, *arguments: object) -> None:
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        assert problem in nncuda(*arguments, code=2).output.replace("\n", " ")
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before

    out, held_out, tokenizer = tmp_path / "train.tokens", tmp_path / "held-out.tokens", tmp_path / "own.model"
    encode = ["data", "encode", work / "text", "--tokenizer", work / "tokenizer.model"]
    train = ["tokenizer", "train", work / "text", "--vocab-size", 320, "--model-type", "bpe"]
    nncuda(*encode, "--out", out, "--held-out", held_out)
    nncuda(*train, "--out", tokenizer)
    part = TokenShard(out).count
    refused(f"{out} exists; --force replaces it", *encode, "--out", out, "--held-out", held_out)
    refused(f"{held_out} exists; --force", *encode, "--out", tmp_path / "x.tokens", "--held-out", held_out)
    refused(f"{tokenizer} exists; --force replaces it", *train, "--out", tokenizer)
    refused(f"{held_out} is beside {out}, which would hold its text too", *encode, "--out", out, "--force")
    refused("it is the file of --out", *encode, "--out", out, "--held-out", out, "--force")
    refused("--no-held-out is given", *encode, "--out", out, "--held-out", held_out, "--no-held-out", "--force")
    for command in (encode, train):
        refused("which is no folder; make it first", *command, "--out", tmp_path / "none" / "deep" / "x")
    nncuda(*encode, "--out", out, "--held-out", held_out, "--force")
    assert TokenShard(out).count == part
    nncuda(*encode, "--out", out, "--no-held-out", "--force")
    assert TokenShard(out).count == part + TokenShard(held_out).count
    nncuda(*encode, "--out", held_out, "--force")  # is one of held-out text itself
    assert TokenShard(held_out).count == TokenShard(out).count


def test_generate_from_ids(work: Path, tmp_path: Path) -> None:
    """Ids in, ids out: the tokens of the library's own generator, with or without a tokenizer beside the model."""
    run = work / "run"
    with Context(threads=1) as ctx:
        model, _ = load_model(run, ctx)
        expected = list(generate(model, [2, 50, 60, 70], 9, Sampling(0.8, top_k=40, seed=5)))
        usual = list(generate(model, [2] * 60, 5, GREEDY))
    bare = tmp_path / "bare"
    shutil.copytree(resolve_checkpoint(run), bare)
    (bare / "tokenizer.model").unlink()
    options = ["--ids", "--max-tokens", 9, "--temperature", 0.8, "--top-k", 40, "--seed", 5]
    for folder, prompt in ((run, "2 50 60 70"), (bare, "2,50, 60,70\n")):
        for path in (["--contiguous"], ["--cache-format", "f32"]):
            assert nncuda("generate", folder, prompt, *options, *path).output == " ".join(map(str, expected)) + "\n"
    # Without --max-tokens, as many as the context of 64 leaves: the last one is not read again.
    for path in (["--contiguous"], ["--cache-format", "f32"]):
        written = nncuda("generate", bare, " ".join(["2"] * 60), "--ids", "--greedy", *path).output
        assert written.split() == list(map(str, usual))
    assert "PROMPT has '-1'" in nncuda("generate", run, "5 -1", "--ids", code=2).output


def test_generation_streams(work: Path) -> None:
    """Text arrives while the command is still running."""
    command = [sys.executable, "-c", "from nncuda.cli import main; main()", "generate", str(work / "run"), "the"]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    ours, its = socket.socketpair(
        socket.AF_UNIX, socket.SOCK_SEQPACKET
    )  # what is written apart is read apart, however late
    with (
        ours,
        subprocess.Popen([*command, "--max-tokens", "48", "--seed", "1"], stdout=its, env=environment) as process,
    ):
        its.close()
        chunks = []
        while chunk := ours.recv(65536):
            chunks.append(chunk)
    assert process.returncode == 0 and len(chunks) > 1


def test_inspect(work: Path) -> None:
    content = json.loads(nncuda("inspect", work / "run", "--json").output)
    assert content["kind"] == "checkpoint" and content["model"]["hidden_size"] == 32
    assert content["training state"]["step"] == 6 and content["train"]["steps"] == 6
    head = next(tensor for tensor in content["tensors"] if tensor["name"] == "lm_head.weight")
    assert head == {"name": "lm_head.weight", "shape": [320, 32], "dtype": "float32", "bytes": 320 * 32 * 4}
    text = nncuda("inspect", work / "run").output
    assert "model.layers.1.block_sparse_moe.experts.3.w2.weight" in text and "32 × 24" in text and "3.0 KiB" in text
    shard = json.loads(nncuda("inspect", work / "train.tokens", "--json").output)
    assert shard["kind"] == "token shard" and shard["vocabulary"] == 320 and shard["bytes per token"] == 2
    assert "320" in nncuda("inspect", work / "tokenizer.model").output
    optimizer = json.loads(
        nncuda("inspect", resolve_checkpoint(work / "run") / "optimizer.safetensors", "--json").output
    )
    assert len(optimizer["tensors"]) == 2 * len(content["tensors"])


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("config.json: cannot be read", "generate {work}/text a"),
        (
            "has 1 tokens, 65 with the new ones; the context has room for 64",
            "generate {work}/run 1 --ids --max-tokens 65",
        ),
        ("not a SentencePiece model", "data encode {work}/text --tokenizer {work}/config.toml --out {new}"),
        ("no tokenizer of 9000 pieces", "tokenizer train {work}/text --out {new} --vocab-size 9000"),
    ],
)
def test_what_the_commands_of_python_refuse(work: Path, tmp_path: Path, problem: str, arguments: str) -> None:
    """What all languages refuse alike: tests/parity/test_parity_refusals.py."""
    result = nncuda(*(word.format(work=work, new=tmp_path / "new") for word in arguments.split()), code=3)
    assert problem in result.output.replace("\n", " ") and "Traceback" not in result.output
    assert not (tmp_path / "new").exists()


def test_every_command_has_a_help_text() -> None:
    for command in ("tokenizer", "data", "generate", "inspect", "doctor", "verify", "bench", "demo", "report"):
        assert "Usage" in nncuda(command, "--help").output
    assert "version" in nncuda("--version").output


def test_training_without_tensorboard(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its extra a run has all but the events, and says so where it does not mix with the records."""
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    arguments = [
        "train",
        tmp_path / "run",
        "--config",
        work / "config.toml",
        "--seed",
        3,
        "--steps",
        2,
        "--warmup-steps",
        1,
    ]
    result = nncuda(*arguments)
    assert "pip install 'nncuda[tensorboard]'" in result.stderr and "nncuda[" not in result.stdout
    assert [record["step"] for record in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 2]
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert (work / "run" / "tensorboard").exists()


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main job, on little text and for a few steps; once more, it shows its results without training."""
    text = tmp_path / "text"
    text.mkdir()
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma".split()
    draw = np.random.default_rng(0)
    for number in range(60):
        letters = ["".join(draw.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(100)]
        (text / f"{number}.txt").write_text(" ".join(draw.choice([*words, *letters], 900)) + "\n")
    arguments = ["demo", "--text", text, "--out", tmp_path / "run", "--steps", 3]
    first = nncuda(*arguments).output
    run = tmp_path / "run"
    for name in ("loss.png", "experts.png", "metrics.jsonl", "tokenizer.model", "results.json", "report.html"):
        assert (run / name).stat().st_size > 0
    assert (run / "loss.png").read_bytes()[:4] == b"\x89PNG"
    results = json.loads((run / "results.json").read_text())
    assert results["unigram_entropy"] == pytest.approx(unigram_entropy(TokenShard(run / "held-out.tokens")))
    (*_, last) = (record for record in read_metrics(run / "metrics.jsonl") if "held_out_loss" in record)
    assert last == {"step": 3, "held_out_loss": results["held_out_loss"]}  # which the report shows, too
    assert f"held-out loss {results['held_out_loss']:.3f}" in first.replace("\n", " ")
    samples = (run / "samples.jsonl").read_text()
    assert [json.loads(line)["step"] for line in samples.splitlines()] == [1, 2, 3]
    page = (run / "report.html").read_text()
    noted = json.loads((run / "run.json").read_text())["device"]  # the page has the files that it draws
    assert noted in page and f"{results['unigram_entropy']!r}" in page
    assert "3 of 3 steps" in nncuda(*arguments).output
    assert (run / "samples.jsonl").read_text() == samples
    assert (run / "report.html").read_text() == page
    with monkeypatch.context() as without:
        (run / "loss.png").unlink()
        without.setitem(sys.modules, "matplotlib", None)
        assert "pip install 'nncuda[plot]'" in nncuda(*arguments).stderr and not (run / "loss.png").exists()
        without.delitem(sys.modules, "nncuda.train.plots")
        with pytest.raises(ExtraMissing, match=r"matplotlib, which `pip install 'nncuda\[plot\]'`"):
            importlib.import_module("nncuda.train.plots")
    for other in ((*arguments[:-1], 4), (*arguments, "--precision", "bf16")):
        assert "holds a different run" in nncuda(*other, code=1).output
    assert "device 'cuda:99'" in nncuda(*arguments, "--device", "cuda:99", code=4).output


def test_unigram_entropy(tmp_path: Path) -> None:
    write_shard(tmp_path / "x.tokens", [np.array([4, 4, 5, 6])], TINY.vocab_size)
    # Shares 1/2, 1/4, 1/4: 1/2 log 2 + 1/2 log 4.
    assert unigram_entropy(TokenShard(tmp_path / "x.tokens")) == pytest.approx(1.5 * np.log(2))
