"""Families of models: the engine against the reference, GGUF files against folders, and options that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import FAMILIES, IN_NO_GGUF

from nncuda import Context
from nncuda.bench.random_model import write_folder
from nncuda.convert.quantize import quantize_model
from nncuda.formats import FormatError
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
        ("mistral", {"model_type": "gpt_oss"}, "the model_type is 'gpt_oss'; this program runs 'llama', "),
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
