"""`nncuda dump`: the steps of a layer, their statistics, what is kept of them and how two dumps are compared."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

import nncuda
from nncuda.bench import random_model
from nncuda.cli.dump import dump as command
from nncuda.formats import FormatError
from nncuda.infer.dump import Dump, Statistics, compare, record
from nncuda.infer.engine import Engine
from nncuda.models.stored import StoredModel

SHAPE = random_model.Shape(layers=2, hidden=32, ffn=48, heads=4, kv_heads=2, vocabulary=520, context=64)
IDS = [1, 7, 300, 12, 7]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dump") / "model"
    random_model.write_folder(made, SHAPE, dtype="f32")
    return made


@pytest.fixture(scope="module")
def taken(folder: Path) -> Dump:
    with nncuda.Context("cpu", threads=1) as ctx:
        return record(Engine(StoredModel.open(folder), ctx, cache_format="f32"), IDS, [1], "model")


def test_steps_follow_from_one_another(folder: Path, taken: Dump) -> None:
    """Each is computed from those before it, in float64, by what the page of the module says that it is."""
    weights = {name: array.astype(np.float64) for name, array in load_file(folder / "model.safetensors").items()}
    steps = {name: array.astype(np.float64) for name, array in taken.steps.items()}
    layer = {name.removeprefix("layers.1."): array for name, array in steps.items() if name.startswith("layers.1.")}
    of_layer = {name.removeprefix("model.layers.1."): array for name, array in weights.items()}

    def rmsnorm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + SHAPE.eps) * gain

    def product(x: np.ndarray, name: str) -> np.ndarray:
        return x.reshape(len(IDS), -1) @ of_layer[f"{name}.weight"].T

    def same(name: str, value: np.ndarray) -> None:
        np.testing.assert_allclose(layer[name].reshape(value.shape), value, rtol=1e-4, atol=1e-5, err_msg=name)

    np.testing.assert_array_equal(steps["embedding"], weights["model.embed_tokens.weight"][IDS])
    for name in "qkv":
        same(name, product(layer["attn_norm"], f"self_attn.{name}_proj"))
    angle = np.arange(len(IDS))[:, None] * 10000.0 ** (-np.arange(4) / 4)
    for name in "qk":
        u, v = np.split(layer[name], 2, axis=-1)
        cosine, sine = np.cos(angle)[:, None], np.sin(angle)[:, None]
        same(f"{name}_rope", np.concatenate([u * cosine - v * sine, v * cosine + u * sine], -1))
    keys, values = (layer[name].repeat(2, axis=1) for name in ("k_rope", "v"))
    scores = np.einsum("qhd,khd->hqk", layer["q_rope"], keys) / np.sqrt(8)
    scores = np.exp(np.where(np.tri(len(IDS), dtype=bool), scores, -np.inf))
    same("attention", np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), values))
    same("attn_output", product(layer["attention"], "self_attn.o_proj"))
    same("ffn_norm", rmsnorm(layer["attn_residual"], of_layer["post_attention_layernorm.weight"]))
    same("gate", product(layer["ffn_norm"], "mlp.gate_proj"))
    same("up", product(layer["ffn_norm"], "mlp.up_proj"))
    same("ffn_inner", layer["gate"] / (1 + np.exp(-layer["gate"])) * layer["up"])
    same("ffn", product(layer["ffn_inner"], "mlp.down_proj"))
    same("output", layer["attn_residual"] + layer["ffn"])
    np.testing.assert_allclose(steps["norm"], rmsnorm(layer["output"], weights["model.norm.weight"]), rtol=1e-4)
    np.testing.assert_allclose(steps["logits"], steps["norm"] @ weights["lm_head.weight"].T, rtol=1e-4, atol=1e-4)
    assert not any(name.startswith("layers.0.") for name in steps)


def test_logits_are_those_without_a_dump(folder: Path, taken: Dump) -> None:
    with nncuda.Context("cpu", threads=1) as ctx:
        plain = Engine(StoredModel.open(folder), ctx, cache_format="f32").logits(IDS)
    np.testing.assert_array_equal(plain, taken.steps["logits"])


def test_saved_and_loaded(tmp_path: Path, taken: Dump) -> None:
    taken.save(tmp_path / "dump.safetensors")
    loaded = Dump.load(tmp_path / "dump.safetensors")
    assert list(loaded.steps) == list(taken.steps) and loaded.ids == taken.ids
    assert all(np.array_equal(loaded.steps[name], array) for name, array in taken.steps.items())
    save_file({"x": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(FormatError, match="not a dump"):
        Dump.load(tmp_path / "other.safetensors")


def test_the_first_difference_is_named(taken: Dump) -> None:
    steps = {name: array.copy() for name, array in taken.steps.items()}
    steps["layers.1.k"][3, 1, 5] += 1.0
    steps["norm"][0, 0] = np.nan
    found = compare(taken, dataclasses.replace(taken, steps=steps), 1e-3)
    differing = [each for each in found if each.index is not None]
    assert [(each.step, each.index) for each in differing] == [("layers.1.k", (3, 1, 5)), ("norm", (0, 0))]
    assert differing[0].largest == pytest.approx(1.0) and differing[1].largest == np.inf
    assert differing[0].theirs - differing[0].mine == pytest.approx(1.0)
    assert all(each.largest == 0 for each in compare(taken, taken, 0.0))


def test_what_cannot_be_compared(taken: Dump) -> None:
    with pytest.raises(ValueError, match="different tokens"):
        compare(taken, dataclasses.replace(taken, ids=(1, 2)), 0.0)
    with pytest.raises(ValueError, match="no step in common"):
        compare(taken, dataclasses.replace(taken, steps={}), 0.0)
    with pytest.raises(ValueError, match="logits has shape"):
        compare(taken, dataclasses.replace(taken, steps={"logits": np.zeros((2, 2))}), 0.0)


def test_statistics() -> None:
    found = Statistics.of(np.array([[1.0, np.nan], [-3.0, np.inf]], np.float32), 2)
    assert (found.least, found.greatest, found.mean, found.deviation, found.not_finite) == (-3, 1, -1, 2, 2)
    assert found.norm == pytest.approx(10**0.5) and found.first[0] == 1.0 and found.shape == (2, 2)
    assert np.isnan(Statistics.of(np.array([np.nan]), 0).mean)


def test_experts(tmp_path: Path) -> None:
    shape = dataclasses.replace(SHAPE, experts=3, experts_per_token=2)
    random_model.write_folder(tmp_path / "moe", shape, dtype="f32")
    with nncuda.Context("cpu", threads=1) as ctx:
        steps = record(Engine(StoredModel.open(tmp_path / "moe"), ctx), IDS, [0], "moe").steps
    router = np.exp(steps["layers.0.router"])
    chosen = np.argsort(-router, axis=-1, kind="stable")[:, :2]
    np.testing.assert_array_equal(steps["layers.0.experts"], chosen)
    weights = np.take_along_axis(router, chosen, -1)
    np.testing.assert_allclose(steps["layers.0.expert_weights"], weights / weights.sum(-1, keepdims=True), rtol=1e-5)
    added = steps["layers.0.attn_residual"] + steps["layers.0.ffn"]
    np.testing.assert_allclose(steps["layers.0.output"], added, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bitnet", [False, True], ids=["llama", "bitnet"])
def test_command(folder: Path, bitnet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if bitnet:
        folder = tmp_path / "bitnet"
        random_model.write_folder(folder, dataclasses.replace(SHAPE, bitnet=True), dtype="bf16")
    saved = tmp_path / "dump.safetensors"
    common = ["--model", str(folder), "--prompt", "1 7 300", "--ids", "--threads", "1"]
    shown = CliRunner().invoke(command, [*common, "--save", str(saved)])
    assert shown.exit_code == 0 and "layers.0.q_rope" in shown.output and "3 × 520" in shown.output, shown.output
    assert ("layers.0.attn_sub_norm_codes" in shown.output) == bitnet
    again = CliRunner().invoke(command, [*common, "--compare", str(saved)])
    assert again.exit_code == 0 and "no value differs" in again.output, again.output
    coarse = CliRunner().invoke(command, [*common, "--cache-format", "bf16", "--compare", str(saved)])
    assert coarse.exit_code == 1 and "first difference: layers.0.attention [" in coarse.output, coarse.output
    other = CliRunner().invoke(command, [*common, "--layer", "2"])
    assert isinstance(other.exception, ValueError) and "0 .. 1" in str(other.exception)
    monkeypatch.setitem(sys.modules, "transformers", None)
    without = CliRunner().invoke(command, [*common, "--compare", str(folder)])
    assert without.exit_code == 1 and "needs transformers and torch" in without.output, without.output
