"""Stored models: one description of folders and GGUF files, and what `nncuda quantize` makes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from nncuda import Context, kernels
from nncuda.bench.random_model import Shape, write_folder
from nncuda.cli import main
from nncuda.cli.terminal import bytes_text
from nncuda.convert.quantize import FALLBACK, choose_formats, gguf_metadata, quantize_model
from nncuda.formats import FormatError, SafetensorsFile, write_safetensors
from nncuda.formats.block_formats import FORMATS
from nncuda.formats.gguf import GGUFFile
from nncuda.models import LlamaConfig, Rope, StoredModel
from nncuda.models.llama_folder import config_from_folder
from nncuda.models.llama_gguf import Seen, config_from_gguf
from nncuda.models.rope_scaling import llama3_divisors

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SMALL = Shape(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, vocabulary=600, context=64)
SHAPES = {
    "llama": SMALL,
    "tied": replace(SMALL, tied=True, head_dim=32),
    "biased": replace(SMALL, biases=True),
    "llama3": replace(SMALL, rope_scaling=LLAMA3, rope_base=500000.0),
    "linear": replace(SMALL, rope_scaling={"type": "linear", "factor": 4.0}),
    "mixtral": replace(SMALL, experts=4, experts_per_token=2),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    for name, shape in SHAPES.items():
        write_folder(root / name, shape, dtype="f32" if name == "llama" else "f16")
    return {name: root / name for name in SHAPES}


@pytest.fixture(scope="module")
def ctx():
    with Context() as made:
        yield made


def numbers(model: StoredModel, name: str) -> np.ndarray:
    return model.tensors[name].f32()


@pytest.mark.parametrize("name", SHAPES)
def test_a_folder_is_read_as_it_is(name: str, folders: dict[str, Path]) -> None:
    model, shape = StoredModel.open(folders[name]), SHAPES[name]
    config = model.config
    assert (config.num_layers, config.hidden_size, config.ffn_size) == (shape.layers, shape.hidden, shape.ffn)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (shape.heads, shape.kv_heads, shape.dim)
    assert (config.vocab_size, config.context, config.norm_eps) == (600, 64, 1e-5)
    assert (config.tie_embeddings, config.qkv_bias, config.o_bias) == (shape.tied, shape.biases, shape.biases)
    assert (config.num_experts, config.experts_per_token) == (shape.experts, shape.experts_per_token)
    assert config.rope.layout == "half" and model.num_parameters == shape.parameters
    assert {key: tensor.shape for key, tensor in model.tensors.items()} == config.shapes()
    file = SafetensorsFile(folders[name] / "model.safetensors")
    for key, parts in ((key, model.tensors.parts(key)) for key in model.tensors):
        for part in parts:
            np.testing.assert_array_equal(part.numbers(), file[part.name])
            assert part.data.base is not None and not part.data.flags.writeable
        if len(parts) > 1:
            stacked = np.stack([file[part.name] for part in parts])
            np.testing.assert_array_equal(model.tensors[key].numbers(), stacked)
    if shape.tied:
        assert model.tensors["lm_head.weight"] is model.tensors["model.embed_tokens.weight"]


def test_experts_that_follow_each_other_are_not_copied(tmp_path: Path, folders: dict[str, Path]) -> None:
    source = SafetensorsFile(folders["mixtral"] / "model.safetensors")
    model = StoredModel.open(folders["mixtral"])
    key = "model.layers.0.block_sparse_moe.w2.weight"
    copied = model.tensors[key]
    assert copied.data.base is None or copied.data.flags.writeable
    assert model.tensors[key] is copied
    fused = {}
    for name in source:
        head, _, tail = name.partition(".block_sparse_moe.experts.")
        if not tail:
            fused[name.replace(".block_sparse_moe.gate.", ".mlp.gate.")] = source[name]
            continue
        first = [source[f"{head}.block_sparse_moe.experts.{expert}.w1.weight"] for expert in range(4)]
        third = [source[f"{head}.block_sparse_moe.experts.{expert}.w3.weight"] for expert in range(4)]
        second = [source[f"{head}.block_sparse_moe.experts.{expert}.w2.weight"] for expert in range(4)]
        fused[f"{head}.mlp.experts.gate_up_proj"] = np.stack(
            [np.concatenate(pair) for pair in zip(first, third, strict=True)]
        )
        fused[f"{head}.mlp.experts.down_proj"] = np.stack(second)
    (tmp_path / "config.json").write_bytes((folders["mixtral"] / "config.json").read_bytes())
    write_safetensors(tmp_path / "model.safetensors", fused)
    other = StoredModel.open(tmp_path)
    assert not other.tensors[key].data.flags.writeable  # the file's pages
    for name in model.tensors:
        np.testing.assert_array_equal(other.tensors[name].numbers(), model.tensors[name].numbers())


@pytest.mark.parametrize("name", SHAPES)
def test_a_gguf_file_is_the_same_model(name: str, folders: dict[str, Path], tmp_path: Path, ctx: Context) -> None:
    model = StoredModel.open(folders[name])
    quantize_model(model, tmp_path / "m.gguf", "f32", ctx)
    other = StoredModel.open(tmp_path / "m.gguf")
    rope = replace(model.config.rope, layout="interleaved")
    if rope.scaling == "llama3":  # the file has what comes of the factor, not the factor
        rope = replace(rope, factor=1.0)
    assert replace(other.config, norm_eps=model.config.norm_eps) == replace(model.config, rope=rope)
    assert other.config.norm_eps == float(np.float32(model.config.norm_eps))
    dim = model.config.head_dim
    for key in model.tensors:
        ours, theirs = numbers(model, key), numbers(other, key)
        if ".q_proj." in key or ".k_proj." in key:
            # Pair i of a head: rows i and i + dim/2 of a folder, 2i and 2i + 1 of a GGUF file.
            heads = ours.reshape(-1, dim, *ours.shape[1:])
            turned = np.empty_like(heads)
            turned[:, 0::2], turned[:, 1::2] = heads[:, : dim // 2], heads[:, dim // 2 :]
            ours = turned.reshape(ours.shape)
        np.testing.assert_array_equal(theirs, ours)
    texts = ["Hello world", " ünï 日本 🙂\n", "<s>x</s>"]
    for text in texts:
        assert other.tokenizer.encode(text, begin=True) == model.tokenizer.encode(text, begin=True)
        assert other.tokenizer.encode(text, special=True) == model.tokenizer.encode(text, special=True)
    assert other.tokenizer.end_ids == model.tokenizer.end_ids == {2}
    assert other.tokenizer.adds_begin and model.tokenizer.adds_begin


@pytest.mark.parametrize("format_name", [name for name, entry in FORMATS.items() if entry.stores])
def test_matrices_are_those_that_the_kernel_makes(
    format_name: str, folders: dict[str, Path], tmp_path: Path, ctx: Context
) -> None:
    model = StoredModel.open(folders["llama"])
    formats = quantize_model(model, tmp_path / "m.gguf", format_name, ctx, output_format="q8_0")
    file = GGUFFile(tmp_path / "m.gguf")
    # Rows of 64 are no whole blocks of 256: the formats of the documented fallback.
    expected = FALLBACK.get(format_name, format_name)
    assert formats["model.layers.0.mlp.up_proj.weight"] == expected and formats["lm_head.weight"] == "q8_0"
    assert formats["model.norm.weight"] == "f32"
    assert file.metadata["general.file_type"] == FORMATS[format_name].file_type
    for theirs, ours in (("blk.1.ffn_down", "model.layers.1.mlp.down_proj"), ("token_embd", "model.embed_tokens")):
        values = numbers(model, f"{ours}.weight")
        stored = file[f"{theirs}.weight"]
        assert stored.format == expected
        entry = FORMATS[expected]
        rounded = kernels.quantize(ctx.tensor(values), format=entry.code, row_bytes=entry.row_bytes(values.shape[1]))
        np.testing.assert_array_equal(stored.rows(), rounded.numpy())


def test_the_head_has_more_bits_than_the_rest() -> None:
    config = small_config(hidden_size=512)
    for name, head in (("q4_0", "q6_k"), ("q5_k", "q6_k"), ("q6_k", "q6_k"), ("q8_0", "q8_0"), ("bf16", "bf16")):
        assert choose_formats(config, name)["lm_head.weight"] == head
        assert choose_formats(config, name)["model.embed_tokens.weight"] == name
    assert choose_formats(config, "q4_0", "f16")["lm_head.weight"] == "f16"
    tied = choose_formats(replace(config, tie_embeddings=True), "q4_0")
    assert tied["model.embed_tokens.weight"] == "q6_k" and "lm_head.weight" not in tied
    odd = choose_formats(replace(config, hidden_size=96, ffn_size=100), "q4_k")
    assert odd["model.layers.0.mlp.up_proj.weight"] == "q5_0" and odd["lm_head.weight"] == "q8_0"
    assert odd["model.layers.0.mlp.down_proj.weight"] == "f16"
    assert choose_formats(replace(config, hidden_size=96), "q3_k")["model.layers.0.mlp.up_proj.weight"] == "q4_0"


def small_config(**changes: Any) -> LlamaConfig:
    return replace(LlamaConfig(600, 64, 1, 4, 2, 16, 256, 64, 64), **changes)


def test_gguf_files_in_numbers_are_rounded_too(folders: dict[str, Path], tmp_path: Path) -> None:
    run = CliRunner()
    first, second, direct = (tmp_path / f"{name}.gguf" for name in ("f16", "q8_0", "direct"))
    for source, target, name in (
        (folders["mixtral"], first, "f16"),
        (first, second, "q8_0"),
        (folders["mixtral"], direct, "q8_0"),
    ):
        result = run.invoke(main, ["quantize", str(source), str(target), "--format", name], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert "parameters in" in result.output
    ours, theirs = GGUFFile(second), GGUFFile(direct)
    assert list(ours) == list(theirs)
    for name in ours:
        np.testing.assert_array_equal(ours[name].data, theirs[name].data)
    assert {key: value.type for key, value in ours.typed.items()} == {
        key: value.type for key, value in theirs.typed.items()
    }
    again = run.invoke(main, ["quantize", str(second), str(tmp_path / "no.gguf"), "--format", "q4_0"])
    assert again.exit_code == 3 and "is in q8_0 already; what is rounded here is f32, f16 or bf16" in again.output
    there = run.invoke(main, ["quantize", str(first), str(second), "--format", "q4_0"])
    assert there.exit_code == 2 and "--force replaces it" in there.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["direct.gguf", "f16.gguf", "q8_0.gguf"]


def test_weights_that_no_format_can_hold_are_refused(folders: dict[str, Path], tmp_path: Path, ctx: Context) -> None:
    for value, format_name, words in (
        (np.inf, "q8_0", r"is not finite, first at \[3, 5\] \(inf\)"),
        (np.nan, "f32", r"is not finite, first at \[3, 5\] \(nan\)"),
        (1e6, "f16", "has values that f16 cannot hold"),
    ):
        folder = tmp_path / format_name
        folder.mkdir()
        file = SafetensorsFile(folders["llama"] / "model.safetensors")
        tensors = {name: file[name].copy() for name in file}
        tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = value
        (folder / "config.json").write_bytes((folders["llama"] / "config.json").read_bytes())
        write_safetensors(folder / "model.safetensors", tensors)
        with pytest.raises(FormatError, match=f"model.layers.1.mlp.up_proj.weight {words}"):
            quantize_model(StoredModel.open(folder), tmp_path / "m.gguf", format_name, ctx)
        assert not (tmp_path / "m.gguf").exists()


def test_inspect_shows_a_gguf_file_and_a_folder(folders: dict[str, Path], tmp_path: Path, ctx: Context) -> None:
    quantize_model(StoredModel.open(folders["tied"]), tmp_path / "m.gguf", "q4_0", ctx)
    run = CliRunner()
    content = json.loads(run.invoke(main, ["inspect", str(tmp_path / "m.gguf"), "--json"]).output)
    assert content["kind"] == "GGUF, version 3" and content["metadata"]["llama.block_count"] == 2
    assert content["metadata"]["tokenizer.ggml.tokens"].startswith('600 × string: "<unk>", "<s>", "</s>"')
    assert content["formats"]["q4_0"] == {
        "tensors": 14,
        "bytes": sum(row["bytes"] for row in content["tensors"] if row["dtype"] == "q4_0"),
    }
    shown = run.invoke(main, ["inspect", str(tmp_path / "m.gguf")]).output
    assert "blk.1.ffn_down.weight" in shown and "64 × 96" in shown
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in shown.splitlines()]
    assert ["q4_0", "14", bytes_text(content["formats"]["q4_0"]["bytes"])] in rows and "{" not in shown, shown
    content = json.loads(run.invoke(main, ["inspect", str(folders["tied"]), "--json"]).output)
    assert content["kind"] == "model" and content["tokenizer"] == "600 pieces"
    assert len(content["tensors"]) == 2 + 9 * 2 and content["model"]["tie_embeddings"] is True


def test_inspect_shows_a_mixtral_that_only_the_engine_runs(folders: dict[str, Path], tmp_path: Path) -> None:
    values = json.loads((folders["mixtral"] / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((folders["mixtral"] / "model.safetensors").read_bytes())
    for scaling, words in (("linear", '"scaling": "linear"'), ("xpos", "rotary embedding of type 'xpos'")):
        values["rope_scaling"] = {"type": scaling, "factor": 2.0}
        (tmp_path / "config.json").write_text(json.dumps(values))
        assert words in CliRunner().invoke(main, ["inspect", str(tmp_path), "--json"]).output


# Configurations


def folder_values(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "model_type": "llama",
        "vocab_size": 600,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
    }
    values.update(changes)
    return {name: value for name, value in values.items() if value is not ...}


def test_what_a_folder_does_not_say_is_what_transformers_takes() -> None:
    config = config_from_folder(folder_values())
    assert (config.num_kv_heads, config.head_dim, config.norm_eps, config.rope) == (4, 16, 1e-6, Rope(10000.0))
    config = config_from_folder(folder_values(model_type="mixtral", num_attention_heads=8))
    assert (config.num_experts, config.experts_per_token, config.norm_eps) == (8, 2, 1e-5)
    assert config.num_kv_heads == 8
    assert config.rope.base == 1e6 and config.norm_topk_prob


def test_our_own_options_are_read() -> None:
    extra = {"extended_context": 512, "ntk_alpha": 8.0, "norm_topk_prob": False, "capacity_factor": None}
    config = config_from_folder(folder_values(model_type="mixtral", num_key_value_heads=2, nncuda=extra))
    assert config.rope.scaling == "ntk" and not config.norm_topk_prob and config.extended_context == 512
    assert config.rope_options(64) == {"base": 1e6, "ntk_alpha": 1.0, "scale": 1.0}
    assert config.rope_options(65) == {"base": 1e6, "ntk_alpha": 8.0, "scale": 1.0}
    with pytest.raises(ValueError, match="513 positions; this model has at most 512"):
        config.rope_options(513)
    metadata = gguf_metadata(config)
    again = config_from_gguf(metadata, Seen())
    assert replace(again, norm_eps=config.norm_eps) == replace(config, rope=replace(config.rope, layout="interleaved"))


def test_numbers_a_layer_that_are_equal_are_one() -> None:
    metadata = {**gguf_metadata(small_config()), "llama.attention.head_count_kv": np.array([2, 2], np.int32)}
    assert config_from_gguf(metadata, Seen()).num_kv_heads == 2


def test_divisors_of_llama3_are_those_of_transformers() -> None:
    # Llama 3.1: base 500000, heads of 128, factor 8, 1, 4, 8192. The frequencies between the two ends are what
    # transformers 5.23 computes in f32: about ten roundings of 2^-24 each.
    divisors = np.array(llama3_divisors(500000.0, 128, 8.0, 1.0, 4.0, 8192.0))
    assert (divisors[:29] == 1).all() and (divisors[35:] == 8).all()
    theirs = [
        0.0021665706299245358,
        0.0013718936825171113,
        0.0008567514596506953,
        0.0005248460220173001,
        0.0003126936499029398,
        0.0001785077911335975,
    ]
    ours = 500000.0 ** (-np.arange(29, 35) / 64) / divisors[29:35]
    np.testing.assert_allclose(ours, theirs, rtol=10 * 2.0**-24)
