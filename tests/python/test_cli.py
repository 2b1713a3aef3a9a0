"""The command line: the whole path from text to text, and what it says when something is wrong."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
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
from nncuda.formats import SafetensorsFile, TokenShard, write_shard
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_resume_gives_the_same_bits(work: Path, tmp_path: Path, number: int) -> None:
    """Stopped by a real signal, taken up by `--resume`, the run ends where the unbroken one ended."""
    command = [sys.executable, "-c", "from nncuda.cli import main; main()"]
    arguments = ["train", str(tmp_path / "run"), "--config", str(work / "config.toml"), "--seed", "3", "--steps", "100"]
    whole = subprocess.run([*command, *arguments[:1], str(tmp_path / "whole"), *arguments[2:]], capture_output=True)
    assert whole.returncode == 0, whole.stderr
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not list_checkpoints(tmp_path / "run" / "checkpoints"):
        assert process.poll() is None
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    last = resolve_checkpoint(tmp_path / "run").name
    assert last < "step-00000100", "it had ended before the signal came"
    assert error.decode() == f"stopped after step {int(last[5:])} of 100; --resume continues from there\n"
    nncuda("train", tmp_path / "run", "--resume")
    for name in ("model", "optimizer"):
        found, expected = (
            SafetensorsFile(resolve_checkpoint(tmp_path / run) / f"{name}.safetensors") for run in ("run", "whole")
        )
        assert found.keys() == expected.keys()
        assert all(found[tensor].tobytes() == expected[tensor].tobytes() for tensor in expected)


def test_generate(work: Path) -> None:
    run = work / "run"
    greedy = nncuda("generate", run, "the quick", "--greedy", "--max-tokens", 12).output
    assert greedy == nncuda("generate", run, "-", "--temperature", 0, "--max-tokens", 12, stdin="the quick").output
    options = ["--max-tokens", 12, "--top-k", 50, "--top-p", 0.95, "--temperature", 0.9]
    drawn = [nncuda("generate", run, "the quick", *options, "--seed", seed).output for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    best = nncuda("generate", run, "the quick", "--greedy", "--best", "--max-tokens", 3).output
    assert (
        best == nncuda("generate", resolve_checkpoint(run, "best"), "the quick", "--greedy", "--max-tokens", 3).output
    )


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
    assert "it must be 0 to 319" in nncuda("generate", run, "1 320", "--ids", code=3).output
    assert "PROMPT has '-1'" in nncuda("generate", run, "5 -1", "--ids", code=2).output
    assert "at least one token" in nncuda("generate", run, "", "--ids", code=3).output


def test_precision_and_recomputation(work: Path, tmp_path: Path) -> None:
    """As options of a run and of its resumption, in what `inspect` says, and of `generate` on any model."""
    options = ["--precision", "f16", "--loss-scale", 2.0**24, "--activation-checkpointing", 2, "--recompute-experts"]
    nncuda("train", tmp_path / "run", "--config", work / "config.toml", *options, "--steps", 4)
    records = [record for record in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in record]
    assert records[0]["loss_scale"] == 2.0**24 and records[0]["grad_norm"] is records[0]["learning_rate"] is None
    content = json.loads(nncuda("inspect", tmp_path / "run", "--json").output)
    assert content["train"]["precision"] == "f16" and content["train"]["recompute_experts"] is True
    assert content["training state"]["loss_scaling"]["skipped"] == records[-1]["skipped_steps"] > 0
    assert "loss_scaling" not in json.loads(nncuda("inspect", work / "run", "--json").output)["training state"]
    nncuda("train", tmp_path / "run", "--resume")
    for precision in ("f32", "bf16", "f16"):
        found = nncuda(
            "generate", tmp_path / "run", "5 6 7", "--ids", "--max-tokens", 5, "--contiguous", "--precision", precision
        )
        assert len(found.output.split()) == 5
    for wrong in (["--precision", "f8"], ["--loss-scale", "much"]):
        nncuda("train", tmp_path / "new", "--config", work / "config.toml", *wrong, code=2)
    nncuda("train", tmp_path / "new", "--config", work / "config.toml", "--loss-scale", 2, code=3)


def test_training_writes_its_metrics_to_a_pipe(work: Path, tmp_path: Path) -> None:
    """The lines of metrics.jsonl and nothing else, each as it comes; behind a resume, the new ones."""
    command = [sys.executable, "-c", "from nncuda.cli import main; main()", "train"]
    options = ["--config", str(work / "config.toml"), "--steps"]
    with subprocess.Popen([*command, str(tmp_path / "long"), *options, "5000"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert process.poll() is None  # it has thousands of steps before it, each with a line
        process.send_signal(signal.SIGINT)
        printed = first + process.stdout.read()
    assert process.returncode == 0 and json.loads(first)["step"] == 1
    assert printed == (tmp_path / "long" / "metrics.jsonl").read_bytes()
    run = tmp_path / "run"
    subprocess.run([*command, str(run), *options, "8"], stdout=subprocess.PIPE, check=True)
    shutil.rmtree(run / "checkpoints" / "step-00000008")
    resumed = subprocess.run([*command, str(run), "--resume"], stdout=subprocess.PIPE, text=True, check=True).stdout
    steps = [json.loads(line)["step"] for line in resumed.splitlines()]
    assert steps[0] > 1 and steps[-1] == 8 and (run / "metrics.jsonl").read_text().endswith(resumed)


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


def test_what_commands_refuse(work: Path, tmp_path: Path) -> None:
    """Exit codes: 2 wrong use, 3 a wrong file; one line that says what it is, and no traceback."""

    def refused(code: int, problem: str, *arguments: object) -> None:
        result = nncuda(*arguments, code=code)
        assert problem in result.output.replace("\n", " "), result.output
        assert "Traceback" not in result.output

    run, config = work / "run", work / "config.toml"
    refused(3, "already holds a run", "train", run, "--config", config)
    refused(2, "leave out --steps. It takes --micro-batch-size,", "train", run, "--resume", "--steps", 9)
    refused(3, "save_every is -1; it must be", "train", run, "--resume", "--save-every", -1)
    refused(2, "leave out --preset", "train", run, "--resume", "--preset", "small")
    refused(2, "say what to train on", "train", tmp_path / "new")
    refused(3, "run.json", "train", tmp_path / "new", "--resume")
    refused(3, "num_heads", "train", tmp_path / "new", "--config", config, "--num-kv-heads", 3)
    refused(
        3,
        "a vocabulary of 320, the model one of 400",
        "train",
        tmp_path / "new",
        "--config",
        config,
        "--vocab-size",
        400,
    )
    refused(2, "neither a number nor 'none'", "train", tmp_path / "new", "--clip-norm", "much")
    for text, problem in (
        ("[model", "is not TOML"),
        ("[models]\n", "has 'models'"),
        ("[model]\nlayers = 3\n", "no model option 'layers'"),
        ("[train]\nsteps = 'many'\n", "steps is 'many'"),
        ("[data]\ndata = 3\n", "[data] has 'data'"),
        ("[model]\npreset = 'huge'\n", "no preset 'huge'"),
    ):
        (tmp_path / "wrong.toml").write_text(text)
        refused(
            3, problem, "train", tmp_path / "new", "--config", tmp_path / "wrong.toml", "--data", work / "train.tokens"
        )
    assert not (tmp_path / "new").exists()

    broken = tmp_path / "broken.tokens"
    broken.write_bytes((work / "train.tokens").read_bytes()[:-1])
    refused(3, "tokens take", "inspect", broken)
    refused(3, "tokens take", "train", tmp_path / "new", "--config", config, "--data", broken)
    (tmp_path / "x.bin").write_bytes(b"?")
    refused(3, "not a kind of file", "inspect", tmp_path / "x.bin")
    refused(3, "config.json: cannot be read", "generate", tmp_path, "a")
    refused(2, "does not exist", "generate", tmp_path / "absent", "a")
    refused(3, "65 tokens are more", "generate", run, "", "--max-tokens", 65, "--contiguous")
    refused(
        3, "has 1 tokens, 65 with the new ones; the context has room for 64", "generate", run, "", "--max-tokens", 65
    )
    refused(
        3, "not a SentencePiece model", "data", "encode", work / "text", "--tokenizer", config, "--out", tmp_path / "y"
    )
    assert not (tmp_path / "y").exists()
    refused(
        3,
        "no tokenizer of 9000 pieces",
        "tokenizer",
        "train",
        work / "text",
        "--out",
        tmp_path / "y",
        "--vocab-size",
        9000,
    )
    refused(4, "device", "generate", run, "a", "--device", "cuda:99")


def test_every_option_has_a_flag_and_a_help_text() -> None:
    text = nncuda("train", "--help").output
    for flag in (
        "--hidden-size",
        "--capacity-factor",
        "--no-norm-topk-prob",
        "--beta2",
        "--min-rate-share",
        "--clip-norm",
    ):
        assert flag in text
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
