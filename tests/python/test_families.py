"""Families of models: the engine against the reference, GGUF files against folders, and options that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from family_models import FAMILIES, FP4, IN_NO_GGUF, pack_experts
from safetensors.numpy import load_file, save_file

from nncuda import Context, kernels
from nncuda.bench.random_model import write_folder
from nncuda.convert.quantize import quantize_model
from nncuda.formats import FormatError
from nncuda.infer.divided_experts import DividedExperts
from nncuda.infer.engine import Engine
from nncuda.models.families import FAMILIES as ALL
from nncuda.models.families import NEUTRAL_OPTIONS
from nncuda.models.llama_folder import config_from_folder, options_of
from nncuda.models.rope_scaling import yarn_divisors
from nncuda.models.stored import StoredModel
from nncuda.reference import llama as reference

IDS = np.random.default_rng(3).integers(0, 600, 24).astype(np.int32)


@pytest.fixture(scope="module")
def ctx():
    with Context("cpu", threads=1) as made:
        yield made


def folder(place: Path, case: str, dtype: str = "f32") -> Path:
    write_folder(place / case, FAMILIES[case], seed=2, dtype=dtype)
    return place / case


def logits(path: Path, ctx: Context, **options: Any) -> np.ndarray:
    return Engine(StoredModel.open(path), ctx, cache_format="f32", **options).logits(IDS)


@pytest.mark.parametrize("case", FAMILIES)
def test_logits_are_those_of_the_reference(case: str, tmp_path: Path, ctx: Context) -> None:
    path = folder(tmp_path, case)
    model = StoredModel.open(path)
    params = {name: tensor.f32().reshape(tensor.shape).astype(np.float64) for name, tensor in model.tensors.items()}
    wanted = reference.forward(params, model.config, IDS)
    found = logits(path, ctx, context=256)
    assert np.abs(found - wanted).max() < 1e-4
    in_place = logits(path, ctx, context=256, weights="file")
    np.testing.assert_array_equal(found, in_place)


@pytest.mark.parametrize("case", [case for case in FAMILIES if case not in IN_NO_GGUF])
def test_a_gguf_file_is_the_same_model(case: str, tmp_path: Path, ctx: Context) -> None:
    path = folder(tmp_path, case)
    model = StoredModel.open(path)
    quantize_model(model, tmp_path / "m.gguf", "f32", ctx)
    other = StoredModel.open(tmp_path / "m.gguf")
    assert other.file is not None
    architecture = ALL[model.config.family].architectures[0]
    assert other.file.metadata["general.architecture"] == architecture
    assert other.config.rope.layout == ("interleaved" if ALL[model.config.family].interleaved else "half")
    # Rows in another order are added up in another order; no more than that differs.
    found = logits(tmp_path / "m.gguf", ctx, context=256)
    assert np.abs(found - logits(path, ctx, context=256)).max() < 1e-4


@pytest.mark.parametrize("case", ["gemma2", "gemma3", "phi3_window"])
def test_windows_have_the_same_bits_in_any_pieces(case: str, tmp_path: Path, ctx: Context) -> None:
    """Over the border of a page, where windows begin in an earlier one, and in calls that begin within a window."""
    path = folder(tmp_path, case)
    ids = np.random.default_rng(5).integers(0, 600, 160).astype(np.int32)
    model = StoredModel.open(path)
    whole = Engine(model, ctx, context=256).logits(ids)
    np.testing.assert_array_equal(Engine(model, ctx, context=256, piece=37).logits(ids), whole)
    # Windows of 12 in both layers reach 22 tokens back together; a layer without one sees the first.
    ids[0] = (ids[0] + 1) % 600
    changed = Engine(model, ctx, context=256).logits(ids)
    assert (changed[-1] == whole[-1]).all() == (case == "phi3_window")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gpt-oss with its experts as they are published."""
    place = tmp_path_factory.mktemp("packed")
    pack_experts(folder(place, "gpt_oss"), place / "mxfp4")
    return place / "mxfp4"


def test_published_experts_are_the_numbers_of_their_blocks(packed: Path, ctx: Context) -> None:
    """Gate and up out of alternate rows, the elements of each block in GGUF's order."""
    model, files = StoredModel.open(packed), load_file(packed / "model.safetensors")
    for theirs, first, step, own in (("gate_up", 0, 2, "w1"), ("gate_up", 1, 2, "w3"), ("down", 0, 1, "w2")):
        prefix = f"model.layers.1.mlp.experts.{theirs}_proj"
        blocks, scales = files[f"{prefix}_blocks"][:, first::step], files[f"{prefix}_scales"][:, first::step]
        wanted = FP4[np.stack([blocks & 15, blocks >> 4], -1).reshape(*scales.shape, 32)]
        wanted = wanted * np.exp2(scales.astype(np.float64) - 127)[..., None]
        stored = model.tensors[f"model.layers.1.block_sparse_moe.{own}.weight"]
        found = kernels.dequantize(ctx.tensor(stored.rows()), format=stored.code, dtype="f32", k=stored.columns)
        np.testing.assert_array_equal(found.numpy().ravel(), wanted.ravel())
        bias = files[f"{prefix}_bias"][:, first::step]
        np.testing.assert_array_equal(model.tensors[f"model.layers.1.block_sparse_moe.{own}.bias"].f32(), bias)
    assert model.nbytes == model.tensors.nbytes < (packed / "model.safetensors").stat().st_size


def test_published_experts_have_the_same_bits_in_a_gguf_file(packed: Path, tmp_path: Path, ctx: Context) -> None:
    formats = quantize_model(StoredModel.open(packed), tmp_path / "m.gguf", "f32", ctx)
    assert set(formats.values()) == {"f32", "mxfp4"}
    wanted = logits(packed, ctx, context=256)
    np.testing.assert_array_equal(logits(tmp_path / "m.gguf", ctx, context=256), wanted)
    # They are the numbers of 4 bits nearest to those of the folder in f32, so not far from its logits.
    plain = logits(folder(tmp_path, "gpt_oss"), ctx, context=256)
    assert np.corrcoef(plain.ravel(), wanted.ravel())[0, 1] > 0.9


def test_ranks_do_not_divide_experts_with_biases(packed: Path, ctx: Context) -> None:
    ranks: Any = SimpleNamespace(ctx=ctx, ranks=2, rank=0)
    with pytest.raises(ValueError, match="mxfp4 has experts with biases; the engine does not divide these among ranks"):
        DividedExperts(ranks, StoredModel.open(packed))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blocks": None}, "lacks the tensor model.layers.0.mlp.experts.down_proj_blocks of shape"),
        ({"scales": None}, "lacks the tensor model.layers.0.mlp.experts.down_proj_scales of shape"),
        ({"blocks": np.float32}, "down_proj_blocks has dtype float32; it must be uint8"),
        ({"scales": slice(1)}, r"down_proj_scales has shape \[1, 64, 3\]; the configuration makes it \[6, 64, 3\]"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(packed: Path, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    tensors = load_file(packed / "model.safetensors")
    for kind, made in change.items():
        name = f"model.layers.0.mlp.experts.down_proj_{kind}"
        old = tensors.pop(name)
        if made is not None:
            tensors[name] = old[made] if isinstance(made, slice) else old.astype(made)
    (tmp_path / "config.json").write_text((packed / "config.json").read_text())
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match=words):
        StoredModel.open(tmp_path)


def test_long_sequences_have_the_long_factors(tmp_path: Path, ctx: Context) -> None:
    path = folder(tmp_path, "phi3_long")
    config = StoredModel.open(path).config
    assert config.rope_divisors(256)[:6] == config.rope.divisors
    assert config.rope_divisors(257)[:6] == config.rope.long_divisors
    assert np.abs(logits(path, ctx, context=256) - logits(path, ctx, context=512)).max() > 0.1


def test_divisors_of_yarn_go_from_one_to_the_factor() -> None:
    divisors = np.array(yarn_divisors(1e6, 128, 4.0, 32.0, 1.0, 32768.0))
    assert divisors[0] == 1 and divisors[-1] == 4 and (np.diff(divisors) >= 0).all()


def values(case: str) -> dict[str, Any]:
    from nncuda.bench.random_model import config

    return config(FAMILIES[case])


@pytest.mark.parametrize("case", FAMILIES)
def test_an_option_of_another_family_is_refused_by_its_name(case: str) -> None:
    family = ALL[FAMILIES[case].family]
    foreign = set().union(*(options_of(other) for other in ALL.values())) - options_of(family) - NEUTRAL_OPTIONS
    assert foreign
    for name in (*sorted(foreign), "use_alibi"):
        for value in (True, 7, 0.5, "x", [1], {"a": 1}):
            with pytest.raises(ValueError, match=name):
                config_from_folder(values(case) | {name: value})
        for value in (None, False, [], {}, ""):
            assert config_from_folder(values(case) | {name: value}) == config_from_folder(values(case))


@pytest.mark.parametrize("case", FAMILIES)
def test_what_may_have_one_value_alone_is_refused_with_another(case: str) -> None:
    for name, needed in ALL[FAMILIES[case].family].fixed:
        for value in (True, 7, "x", [1]):
            if value == needed and value is not True:
                continue
            with pytest.raises(ValueError, match=name):
                config_from_folder(values(case) | {name: value})


@pytest.mark.parametrize(
    ("case", "change", "words"),
    [
        ("mistral", {"sliding_window": -1}, "sliding_window is -1; this engine attends to all of the context"),
        ("gemma2", {"sliding_window": None}, "sliding_window is None; it must be a whole number, from 1"),
        (
            "gemma2",
            {"layer_types": ["full_attention", "sliding_attention"]},
            "layer_types is .*; this engine has 'slid",
        ),
        ("gemma2", {"layer_types": ["sliding_attention"]}, "layer_types is "),
        ("gemma2", {"attn_logit_softcapping": 0}, "attn_logit_softcapping is 0.0; it must be above 0"),
        ("gemma2", {"query_pre_attn_scalar": -1}, "query_pre_attn_scalar is -1.0; it must be above 0"),
        ("gemma2", {"hidden_activation": "gelu"}, "hidden_activation is 'gelu'; this engine has 'gelu_pytorch_tanh'"),
        (
            "gemma2",
            {"use_bidirectional_attention": True},
            "'use_bidirectional_attention' is True; this engine does not",
        ),
        ("qwen2", {"use_sliding_window": True}, "sliding_window is 64; this engine attends"),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is"),
        ("qwen3", {"hidden_act": "gelu"}, "hidden_act is 'gelu'; this engine has 'silu'"),
        ("qwen3_moe", {"mlp_only_layers": [0]}, r"mlp_only_layers is \[0\]; this engine has \[\]"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv is 8.0; this engine has None"),
        ("granite", {"attention_bias": True}, "o_bias is True; it must be false with a residual_scale"),
        ("phi3", {"partial_rotary_factor": 0.2}, "of 16 elements it must leave an even number"),
        ("qwen2", {"partial_rotary_factor": 0.5}, "this engine rotates whole heads"),
        ("mistral", {"rope_scaling": {"rope_type": "xpos"}}, "rotary embedding of type 'xpos'; this engine has"),
        ("mistral", {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "speed": 1}}, "has the option 'speed'"),
        ("mistral", {"rope_scaling": {"rope_type": "yarn", "factor": 0.5}}, "rotary embedding of yarn with"),
        ("phi3_long", {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}}, "long_factor is missing"),
        (
            "gemma3",
            {"rope_parameters": {"rope_theta": 1e4}},
            "rope_parameters is .*; it must be an object with 'full_att",
        ),
        (
            "gemma3",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}},
            "rope_type of 'sliding_attention' is 'linear'; this engine has plain angles there",
        ),
        ("gemma3", {"model_type": "gemma3"}, "the model_type is 'gemma3'; this program runs 'llama', "),
        ("mistral", {"model_type": "gemma"}, "the model_type is 'gemma'; this program runs 'llama', "),
        ("mistral", {"model_type": "gpt_neox"}, "the model_type is 'gpt_neox'; this program runs 'llama', "),
        ("gpt_oss", {"sliding_window": None}, "sliding_window is None; it must be a whole number, from 1"),
        ("gpt_oss", {"experts_per_token": 4}, "experts_per_token is 4; num_experts_per_tok makes it 3"),
        ("gpt_oss", {"swiglu_limit": 6.0}, "swiglu_limit is 6.0; this engine has 7.0"),
        ("gpt_oss", {"quantization_config": {"quant_method": "awq"}}, "quantization_config is .*; this engine has the"),
        (
            "gpt_oss",
            {"quantization_config": {"quant_method": "mxfp4", "dequantize": True}},
            "quantization_config has the option 'dequantize', which is unknown here",
        ),
    ],
)
def test_what_is_not_supported_is_refused(case: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config_from_folder(values(case) | change)


def test_fused_tensors_of_the_wrong_shape_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, "phi3")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 4}))
    with pytest.raises(FormatError, match=r"qkv_proj.weight has shape \[128, 64\]; the configuration makes it"):
        StoredModel.open(path)


@pytest.mark.parametrize("case", IN_NO_GGUF)
def test_what_gguf_files_have_no_words_for_is_in_none(case: str, tmp_path: Path, ctx: Context) -> None:
    with pytest.raises(FormatError, match=IN_NO_GGUF[case]):
        quantize_model(StoredModel.open(folder(tmp_path, case)), tmp_path / "m.gguf", "f32", ctx)
    assert not (tmp_path / "m.gguf").exists()
