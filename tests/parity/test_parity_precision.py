"""bf16, f16 and recomputed activations: what is compared of them, tokens, descriptions and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import differences
import languages
import numpy as np
import pytest
from conftest import find
from runs import PRECISIONS, STEPS, Workshop, metrics_of

from nncuda.formats import SafetensorsFile, write_safetensors
from nncuda.train import list_checkpoints

Tensors = dict[str, np.ndarray]

HALF = 10
#: Options that make another run.
OTHER_BITS = {"--precision", "--moments", "--document-mask"}


def test_what_is_compared(workshop: Workshop) -> None:
    """Precisions have other bits than f32, recomputation has the same; some steps overflow, and the scale moves."""
    losses = {case: [record["loss"] for record in metrics_of(workshop.reference(case))] for case in PRECISIONS}
    plain = {
        name: [record["loss"] for record in metrics_of(workshop.reference(name))]
        for name in {options for options, _ in PRECISIONS.values()}
    }
    for case, (options, flags) in PRECISIONS.items():
        assert (losses[case] == plain[options]) == (not OTHER_BITS & set(flags)), case
    assert losses["experts again, bf16"] == losses["bf16"]
    records = metrics_of(workshop.reference("f16, overflowing"))
    skipped = [record for record in records if record["learning_rate"] is None]
    assert 0 < len(skipped) == records[-1]["skipped_steps"] < STEPS
    scales = [record["loss_scale"] for record in records]
    assert scales[0] == 2**24 and min(scales) < scales[-1]


@pytest.mark.case("tokens in bf16 and f16")
@pytest.mark.parametrize("language", languages.NAMES)
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_generation(workshop: Workshop, precision: str, language: str) -> None:
    arguments = ["2 50 60", "--ids", "--max-tokens", 24, "--precision", precision, "--seed", 3]
    for case in ("bf16", "every block again"):
        run = workshop.reference(case)
        expected = find("python").run("generate", run, *arguments, "--threads", 2).stdout
        assert len(expected.split()) == 24
        assert find(language).run("generate", run, *arguments, "--threads", 1).stdout == expected


@pytest.mark.case("inspect --json of a run in f16")
@pytest.mark.parametrize("language", languages.NAMES)
def test_inspect(workshop: Workshop, language: str) -> None:
    run = workshop.reference("f16, overflowing")
    described = [json.loads(find(name).run("inspect", run, "--json").stdout) for name in ("python", language)]
    assert described[0]["training state"]["loss_scaling"]["skipped"] > 0
    assert described[0]["train"]["precision"] == "f16"
    assert not (difference := differences.of_values("", *described)), difference


REFUSED = {
    "precision of nobody": (["--precision", "f8"], 2, ("--precision", "f8", "f32", "bf16", "f16", "fp8")),
    "moments of nobody": (["--moments", "f16"], 2, ("--moments", "f16", "f32", "bf16", "f8")),
    "sums of nobody": (["--reduce-dtype", "f8"], 2, ("--reduce-dtype", "f8", "f32", "bf16", "f16")),
    "sums in f16 without f16": (
        ["--precision", "bf16", "--reduce-dtype", "f16"],
        3,
        ("reduce_dtype is f16, but the precision is bf16; gradients fit into f16 only with the loss scale of",),
    ),
    "sums of one replica": (
        ["--reduce-dtype", "bf16"],
        3,
        ("reduce_dtype is bf16, but replicas is 1; gradients are rounded between replicas",),
    ),
    "documents without an end": (
        ["--document-mask", 320],
        3,
        ("document_mask is 320; this model has a vocabulary of 320",),
    ),
    "scale without f16": (["--loss-scale", 2], 3, ("loss_scale is given, but the precision is f32",)),
    "scale too large": (
        ["--precision", "f16", "--loss-scale", 2**25],
        3,
        ("loss_scale is 33554432.0; it must be a number, from 5.96046e-08 to 1.67772e+07",),
    ),
    "growth below 1": (
        ["--precision", "f16", "--loss-scale-growth", 0.5],
        3,
        ("loss_scale_growth is 0.5; it must be a number, from 1 to 1.67772e+07",),
    ),
    "interval of 0": (
        ["--precision", "f16", "--loss-scale-interval", 0],
        3,
        ("loss_scale_interval is 0; it must be a whole number, from 1 to 2147483647",),
    ),
    "more blocks than there are": (
        ["--activation-checkpointing", 7],
        3,
        ("activation_checkpointing is 7; this model has 2 blocks",),
    ),
    "nothing left for the experts": (
        ["--activation-checkpointing", 1, "--recompute-experts"],
        3,
        ("recompute_experts is for blocks that activation_checkpointing leaves; 1 leaves none",),
    ),
}


@pytest.mark.case("wrong options of precision and recomputation")
@pytest.mark.parametrize("language", languages.NAMES)
@pytest.mark.parametrize("name", REFUSED)
def test_refused_options(workshop: Workshop, tmp_path: Path, name: str, language: str) -> None:
    flags, code, words = REFUSED[name]
    done = find(language).run("train", tmp_path / "run", *workshop.options("small"), *flags, code=code)
    assert all(word in done.stderr for word in words), done.stderr


def scale_of(value: float) -> Callable[[Tensors], None]:
    def put(tensors: Tensors) -> None:
        tensors["second.scales"] = np.where(np.arange(len(tensors["second.scales"])) == 2, np.float32(value), 0.5)
        tensors["second.scales"] = tensors["second.scales"].astype(np.float32)

    return put


#: What is done to the moments of a checkpoint in 8 bits, and what is said of it.
MOMENTS: dict[str, tuple[Callable[[Tensors], object], str]] = {
    "of NaN": (scale_of(np.nan), "element 2 of tensor second.scales is "),
    "below zero": (scale_of(-0.5), "element 2 of tensor second.scales is -0.5; a scale is finite and at least 0"),
    "without end": (scale_of(np.inf), "element 2 of tensor second.scales is "),
    "with signs": (
        lambda t: t.update({"first.codes": t["first.codes"].view(np.int8)}),
        "first.codes is not u8 of shape [",
    ),
    "cut off": (lambda t: t.update({"first.codes": t["first.codes"][1:]}), "tensor first.codes is not u8 of shape ["),
    "with scales in f16": (
        lambda t: t.update({"first.scales": t["first.scales"].astype(np.float16)}),
        "tensor first.scales is not f32 of shape [",
    ),
    "with a scale too many": (
        lambda t: t.update({"first.scales": np.append(t["first.scales"], np.float32(1))}),
        "tensor first.scales is not f32 of shape [",
    ),
    "without scales": (lambda t: t.pop("first.scales"), "first.scales"),
}


@pytest.mark.case("damaged moments in 8 bits")
@pytest.mark.parametrize("language", languages.NAMES)
@pytest.mark.parametrize("name", MOMENTS)
def test_refused_moments(workshop: Workshop, name: str, language: str) -> None:
    spoil, words = MOMENTS[name]
    run = workshop.cut(workshop.run("python", "moments in 8 bits"), HALF, f"damaged {name} {language}")
    path = list_checkpoints(run / "checkpoints")[-1] / "optimizer.safetensors"
    tensors = dict(SafetensorsFile(path))
    spoil(tensors)
    path.unlink()
    write_safetensors(path, tensors)
    done = find(language).run("train", run, "--resume", code=3)
    assert str(path) in done.stderr.replace("\n", " ") and words in done.stderr.replace("\n", " "), done.stderr
