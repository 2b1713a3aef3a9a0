"""Three trainers, one configuration: the same bits in every tensor and loss, whoever trains, begins or goes on."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import signal

import differences
import languages
import numpy as np
import pytest
from conftest import find
from runs import OPTIONS, PRECISIONS, STEPS, WORSENING, Workshop, metrics_of

from nncuda.bench import random_tokenizer
from nncuda.formats import write_shard
from nncuda.models.transformer import logits_rows
from nncuda.tokenizer import Tokenizer
from nncuda.train import list_checkpoints

HALF = 10
DESCRIBED = ("config", "tokenizer_config", "generation_config")
PAIRS = list(itertools.permutations(languages.NAMES, 2))


@pytest.mark.case("training, every tensor and loss")
@pytest.mark.parametrize("options", [*OPTIONS, *PRECISIONS])
def test_training(workshop: Workshop, language: languages.Language, options: str) -> None:
    """The reference has two threads, everybody one: Python's own column shows that the bits do not depend on them."""
    run = workshop.run(language.name, options)
    assert not (difference := differences.of_runs(workshop.reference(options), run)), difference
    assert len(metrics_of(run)) == OPTIONS.get(options, OPTIONS["small"]).steps


def test_losses_fall(workshop: Workshop) -> None:
    """What is compared is training: each configuration learns its data."""
    for options in OPTIONS:
        losses = [record["loss"] for record in metrics_of(workshop.reference(options))]
        assert losses[-1] < 0.95 * losses[0], options


def test_logits_come_in_chunks(workshop: Workshop) -> None:
    """The chunked configuration has more tokens than have their logits at once."""
    checkpoint = list_checkpoints(workshop.reference("chunked") / "checkpoints")[-1]
    assert logits_rows(json.loads((checkpoint / "config.json").read_text())["vocab_size"]) < 3 * 90


def test_slots_are_dropped(workshop: Workshop) -> None:
    """The ragged configuration has more slots than its experts take together, and other bits without that limit."""
    run = workshop.reference("ragged")
    state = json.loads((list_checkpoints(run / "checkpoints")[-1] / "config.json").read_text())
    tokens = 5 * 13
    slots = tokens * state["num_experts_per_tok"]
    capacity = math.ceil(state["nncuda"]["capacity_factor"] * slots / state["num_local_experts"])
    assert state["num_local_experts"] * capacity < slots
    unlimited = workshop.folder / "runs" / "unlimited"
    languages.find("python").run(
        "train", unlimited, *workshop.options("ragged"), "--capacity-factor", "none", "--steps", STEPS
    )
    assert metrics_of(unlimited)[0]["loss"] != metrics_of(run)[0]["loss"]


def test_gradients_are_clipped_and_accumulated(workshop: Workshop) -> None:
    run = workshop.reference("accumulated")
    limit = json.loads((list_checkpoints(run / "checkpoints")[-1] / "training.json").read_text())["train"]["clip_norm"]
    assert all(record["grad_norm"] > limit for record in metrics_of(run))
    whole = workshop.folder / "runs" / "whole"
    languages.find("python").run("train", whole, *workshop.options("accumulated"), "--micro-batch-size", 7)
    # The same loss in exact arithmetic; but each micro-batch balances its experts for itself.
    assert metrics_of(whole)[0]["loss"] == pytest.approx(metrics_of(run)[0]["loss"], rel=1e-6)
    assert metrics_of(whole)[-1]["loss"] != metrics_of(run)[-1]["loss"]


@pytest.mark.case("10 steps in another language, then the rest")
@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize(
    "options",
    [
        "small",
        "accumulated",
        "conversations",
        "documents",
        "bf16",
        "f16, overflowing",
        "moments in bf16",
        "moments in 8 bits",
    ],
)
def test_resume_in_another_language(workshop: Workshop, first: str, second: str, options: str) -> None:
    """As if the first had been killed behind step 10: its later checkpoints are gone, its later metrics are not."""
    find(first)
    run = workshop.cut(workshop.run(first, options), HALF, f"{options}-{first}-{second}")
    find(second).run("train", run, "--resume", "--threads", 1)
    assert not (difference := differences.of_runs(workshop.reference(options), run)), difference


@pytest.mark.case("interrupted, and taken up by the next language")
def test_interrupt_and_resume(workshop: Workshop, language: languages.Language) -> None:
    """An interrupt makes a language save and end well; the next one comes to the end of the unbroken run."""
    steps = ["--steps", 1500, "--save-every", 500]
    run = workshop.folder / "runs" / f"interrupted-{language.name}"
    with language.start("train", run, *workshop.options("small"), *steps) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if json.loads(line)["step"] == 20:
                process.send_signal(signal.SIGINT)
        error = process.stderr.read()
    assert process.returncode == 0, error
    stopped = int(list_checkpoints(run / "checkpoints")[-1].name.removeprefix("step-"))
    assert 20 <= stopped < 1500 and metrics_of(run)[-1]["step"] == stopped
    present = [name for name in languages.NAMES if name == language.name or _is_there(name)]
    following = present[(present.index(language.name) + 1) % len(present)]
    languages.find(following).run("train", run, "--resume")
    unbroken = workshop.folder / "runs" / "unbroken"
    if not unbroken.exists():
        languages.find("python").run("train", unbroken, *workshop.options("small"), *steps)
    assert not (difference := differences.of_runs(unbroken, run)), difference


def _is_there(name: str) -> bool:
    try:
        languages.find(name)
    except languages.MissingLanguageError:
        return False
    return True


@pytest.mark.case("the lines of metrics.jsonl on a pipe")
def test_metrics_on_a_pipe(workshop: Workshop, language: languages.Language) -> None:
    """What `train` prints where nobody looks is what it writes, line by line, and nothing more."""
    run = workshop.folder / "runs" / f"pipe-{language.name}"
    done = language.run("train", run, *workshop.options("accumulated"), "--steps", 5)
    assert done.stdout == (run / "metrics.jsonl").read_text() and done.stderr == ""
    assert [record["step"] for record in map(json.loads, done.stdout.splitlines())] == [1, 2, 3, 4, 5, 5]


@pytest.mark.case("checkpoints kept: the newest and the best")
def test_pruning(workshop: Workshop, language: languages.Language) -> None:
    reference, run = workshop.worsening(), workshop.folder / "runs" / f"worsening-{language.name}"
    language.run("train", run, *workshop.options("accumulated"), *WORSENING)
    kept = [sorted(entry.name for entry in (folder / "checkpoints").iterdir()) for folder in (reference, run)]
    assert kept[0] == kept[1] == ["step-00000004", "step-00000010", "step-00000012"]
    assert not (difference := differences.of_runs(reference, run)), difference


@pytest.mark.case("what a kill left half written is removed")
def test_leftovers(workshop: Workshop, language: languages.Language) -> None:
    run = workshop.cut(workshop.run(language.name, "small"), HALF, f"leftover-{language.name}")
    partial = run / "checkpoints" / ".partial-99999-step-00000011"
    shutil.copytree(run / "checkpoints" / f"step-{HALF:08d}", partial)
    with open(run / "metrics.jsonl", "a") as metrics:
        metrics.write('{"step": 31, "lo')  # cut off in the middle of a line
    language.run("train", run, "--resume")
    assert not partial.exists()
    assert not (difference := differences.of_runs(workshop.reference("small"), run)), difference


def test_tokenizer_travels(workshop: Workshop) -> None:
    checkpoint = list_checkpoints(workshop.reference("small") / "checkpoints")[-1]
    assert Tokenizer.load(checkpoint / "tokenizer.model").vocab_size == 320
    assert (checkpoint / "tokenizer_config.json").exists() and (checkpoint / "generation_config.json").exists()


@pytest.mark.case("a tokenizer of other ids, without padding, described for transformers")
def test_described_tokenizer(workshop: Workshop, language: languages.Language) -> None:
    """One as Llama's: begin and end are 1 and 2, a space is put before texts, nothing is for padding."""
    tokenizer, data = workshop.folder / "llama.model", workshop.folder / "llama.tokens"
    tokenizer.write_bytes(random_tokenizer.sentencepiece_model(500))
    write_shard(data, [np.arange(2000) % 500], 500)
    run = workshop.folder / "runs" / f"described-{language.name}"
    given = ["--steps", 1, "--warmup-steps", 0, "--tokenizer", tokenizer, "--data", data]
    language.run("train", run, *workshop.options("small"), *given)
    (checkpoint,) = list_checkpoints(run / "checkpoints")
    of = {name: json.loads((checkpoint / f"{name}.json").read_text()) for name in DESCRIBED}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    assert of["generation_config"] == ids and ids.items() <= of["config"].items()
    assert of["tokenizer_config"] == {
        "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "pad_token": None, "add_prefix_space": True, "legacy": True, "clean_up_tokenization_spaces": False,
        "tokenizer_class": "LlamaTokenizer",
    }  # fmt: skip
