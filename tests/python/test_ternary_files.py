"""BitNets in files: every form gives the same codes and scales. What is wrong in one: tests/fuzz/seeds_ternary.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from nncuda import Context, kernels
from nncuda.cli import main
from nncuda.convert.ternary import tern2_bytes, ternary_bytes
from nncuda.formats import write_safetensors
from nncuda.formats.ternary import absmean, tern2_codes
from nncuda.models import StoredModel
from nncuda.models.llama import is_projection

CONFIG: dict[str, Any] = {
    "architectures": ["BitNetForCausalLM"],
    "model_type": "bitnet",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "hidden_act": "relu2",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
}
Q = "model.layers.1.self_attn.q_proj.weight"


def bitnet_config(**changes: Any) -> dict[str, Any]:
    """`CONFIG` with changes; `...` takes a key away."""
    return {key: value for key, value in {**CONFIG, **changes}.items() if value is not ...}


def method(linear_class: str = "autobitlinear", mode: str = "offline", **more: Any) -> dict[str, Any]:
    return {"quant_method": "bitnet", "linear_class": linear_class, "quantization_mode": mode, **more}


def shapes_of(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        rows = {"q": hidden, "k": keys, "v": keys, "o": hidden}
        block = f"model.layers.{layer}"
        shapes |= {f"{block}.self_attn.{part}_proj.weight": (size, hidden) for part, size in rows.items()}
        shapes |= {f"{block}.mlp.{part}_proj.weight": (ffn, hidden) for part in ("gate", "up")}
        shapes[f"{block}.mlp.down_proj.weight"] = (hidden, ffn)
        shapes[f"{block}.self_attn.attn_sub_norm.weight"] = (hidden,)
        shapes[f"{block}.mlp.ffn_sub_norm.weight"] = (ffn,)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{block}.{norm}.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def master_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights of a model, bf16."""
    rng = np.random.default_rng(seed)
    return {
        name: (0.05 * rng.standard_normal(shape, np.float32)).astype(ml_dtypes.bfloat16)
        for name, shape in shapes_of(config).items()
    }


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def test_absmean_is_what_its_definition_says() -> None:
    rng = np.random.default_rng(5)
    for shape in ((1, 1), (3, 16), (5, 23), (32, 128)):
        x = rng.standard_normal(shape, np.float32)
        codes, scale = absmean(x)
        mean = np.float64(0)
        for row in x.astype(np.float64):
            sums = [np.float64(0)] * 16
            for column, value in enumerate(row):
                sums[column % 16] += abs(value)
            for half in (8, 4, 2, 1):
                sums = [sums[j] + sums[j + half] for j in range(half)]
            mean += sums[0]
        assert scale == np.float32(mean / x.size) and scale.dtype == np.float32
        expected = np.clip(np.rint(x * (np.float32(1) / scale)), -1, 1)
        np.testing.assert_array_equal(codes, expected.astype(np.int8))
    codes, scale = absmean(np.zeros((4, 4), np.float32))
    assert scale == np.float32(1e-5) and not codes.any()
    with pytest.raises(ValueError, match="not finite"):
        absmean(np.array([[1.0, np.inf]], np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_kernels_give_the_same_bits(dtype: Any, ctx: Context) -> None:
    for shape in ((1, 1), (20, 37), (1500, 48)):  # the last is read in two pieces
        x = np.random.default_rng(7).standard_normal(shape, np.float32).astype(dtype)
        codes, scale = absmean(x)
        by_kernel, its_scale = kernels.ternary_quantize(ctx.tensor(x))
        np.testing.assert_array_equal(by_kernel.numpy(), codes)
        assert its_scale.numpy()[0] == scale
        packed = tern2_bytes(codes)
        stored, row_bytes = packed.shape
        by_kernel = kernels.ternary_pack(by_kernel, stored=stored, row_bytes=row_bytes)
        np.testing.assert_array_equal(by_kernel.numpy(), packed)


def test_tern2_is_what_the_header_says() -> None:
    rng = np.random.default_rng(6)
    for shape in ((1, 1), (16, 16), (20, 37), (48, 64)):
        codes = rng.integers(-1, 2, shape).astype(np.int8)
        packed = tern2_bytes(codes)
        rows, columns = -(-shape[0] // 16), -(-shape[1] // 16)
        assert packed.shape == (16 * rows, 4 * columns)
        flat = packed.reshape(-1)
        for r in range(16 * rows):
            for c in range(16 * columns):
                word = ((r // 16) * columns + c // 16) * 16 + r % 16
                bits = flat[4 * word + c % 4] >> (2 * (c % 16 // 4)) & 3
                assert bits == 1 + (codes[r, c] if r < shape[0] and c < shape[1] else 0)
        np.testing.assert_array_equal(tern2_codes(packed, shape), codes)


def test_a_folder_of_master_weights(tmp_path: Path) -> None:
    tensors = master_weights(CONFIG)
    for name, quantization in (("plain", ...), ("online", method(mode="online"))):
        model = StoredModel.open(
            write_folder(tmp_path / name, bitnet_config(quantization_config=quantization), tensors)
        )
        config = model.config
        assert (config.activation, config.sub_norms, config.ternary, config.tie_embeddings) == (
            "relu2",
            True,
            True,
            True,
        )
        assert (config.rope.base, config.rope.layout, config.norm_eps) == (500000.0, "half", 1e-5)
        shapes = config.shapes()
        assert set(model.matrices) == set(filter(is_projection, shapes))
        assert set(model.tensors) | set(model.matrices) == set(shapes)
        assert model.nbytes == sum(array.nbytes for array in tensors.values())
        for key, matrix in model.matrices.items():
            codes, scale = absmean(tensors[key])
            assert matrix.shape == shapes[key] and matrix.form == "bf16" and matrix.scale == scale
            np.testing.assert_array_equal(matrix.codes(), codes)
            np.testing.assert_array_equal(matrix.master, tensors[key])
    with pytest.raises(KeyError):
        model.ternary("model.norm.weight")


def gguf_folder(path: Path, form: str, tensors: Mapping[str, np.ndarray], architecture: str = "bitnet-b1.58") -> Path:
    """A GGUF file of the model with these master weights, its matrices in a ternary type."""
    from nncuda.formats.gguf_writer import NewTensor, write_gguf
    from nncuda.models.gguf_names import gguf_name

    keys = {"context_length": 64, "embedding_length": 256, "block_count": 2, "feed_forward_length": 512}
    keys |= {"attention.head_count": 4, "attention.head_count_kv": 2, "rope.dimension_count": 64, "vocab_size": 64}
    metadata = {"general.architecture": architecture} | {f"{architecture}.{key}": value for key, value in keys.items()}
    metadata |= {f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5, f"{architecture}.rope.freq_base": 5e5}
    ternary = set(filter(is_projection, tensors))
    plan = [NewTensor(gguf_name(n), form if n in ternary else "f32", x.shape) for n, x in tensors.items()]
    with write_gguf(path, metadata, plan) as writer:
        for name, array in tensors.items():
            if name in ternary:
                writer.write(gguf_name(name), ternary_bytes(form, *absmean(array)))
            else:
                writer.write(gguf_name(name), array.astype("<f4").view(np.uint8).reshape(-1))
    return path


@pytest.mark.parametrize("form", ["tq1_0", "tq2_0", "i2_s"])
def test_a_gguf_file(form: str, tmp_path: Path) -> None:
    tensors = master_weights(bitnet_config(hidden_size=256, intermediate_size=512))
    model = StoredModel.open(gguf_folder(tmp_path / "m.gguf", form, tensors))
    assert model.config.activation == "relu2" and model.config.rope.layout == "half" and model.config.tie_embeddings
    for name, matrix in model.matrices.items():
        codes, scale = absmean(tensors[name])
        assert matrix.form == form and matrix.scale == (scale if form == "i2_s" else np.float16(scale))
        np.testing.assert_array_equal(matrix.codes(), codes)
    other = StoredModel.open(gguf_folder(tmp_path / "m.gguf", form, tensors, "bitnet"))
    assert other.config.activation == "silu"


OURS = {"quant_method": "nncuda-tern2"}


def with_matrices(tensors: Mapping[str, np.ndarray], make: Any) -> dict[str, np.ndarray]:
    """`tensors`, each matrix being what `make` makes of its codes and scale: a matrix and its weight_scale."""
    found: dict[str, np.ndarray] = {}
    for name, array in tensors.items():
        if is_projection(name):
            found[name], scale = make(*absmean(array))
            found[f"{name}_scale"] = np.array([scale]).astype(scale.dtype)
        else:
            found[name] = array
    return found


def packed_by_hand(codes: np.ndarray) -> np.ndarray:
    """Hugging Face's packing, a byte at a time."""
    quarter = len(codes) // 4
    packed = np.zeros((quarter, codes.shape[1]), np.uint8)
    for row in range(len(codes)):
        packed[row % quarter] |= (codes[row] + 1).astype(np.uint8) << 2 * (row // quarter)
    return packed


FORMS: dict[str, tuple[dict[str, Any], Any]] = {
    "autobitlinear, packed": (method(), lambda codes, scale: (packed_by_hand(codes), scale)),
    "bitlinear, packed": (method("bitlinear"), lambda codes, scale: (packed_by_hand(codes), np.float32(1) / scale)),
    "autobitlinear, numbers": (method(), lambda codes, scale: (codes.astype(ml_dtypes.bfloat16), scale)),
    "ours": (OURS, lambda codes, scale: (tern2_bytes(codes), scale)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_of_ternary_weights(form: str, tmp_path: Path) -> None:
    config = bitnet_config(hidden_size=24, num_attention_heads=3, num_key_value_heads=1, intermediate_size=52)
    masters = master_weights(config)
    quantization, make = FORMS[form]
    tensors = with_matrices(masters, make)
    model = StoredModel.open(write_folder(tmp_path, {**config, "quantization_config": quantization}, tensors))
    for name, matrix in model.matrices.items():
        codes, scale = absmean(masters[name])
        stored = tensors[f"{name}_scale"][0]
        # Two roundings, of at most 2^-24 each.
        assert matrix.scale == (np.float32(1) / stored if form == "bitlinear, packed" else scale)
        assert abs(matrix.scale / scale - 1) < 3 * 2**-24
        np.testing.assert_array_equal(matrix.codes(), codes)
        assert matrix.master is None and matrix.shape == codes.shape
    if form == "ours":
        np.testing.assert_array_equal(model.ternary(Q).tern2(), tensors[Q])


def test_inspect_shows_ternary_matrices(tmp_path: Path) -> None:
    masters = master_weights(bitnet_config(hidden_size=256, intermediate_size=512))
    gguf_folder(tmp_path / "m.gguf", "i2_s", masters)
    write_folder(tmp_path / "folder", bitnet_config(hidden_size=256, intermediate_size=512), masters)
    codes, scale = absmean(masters[Q])
    for path, name, dtype, size in (
        ("m.gguf", "blk.1.attn_q.weight", "i2_s", 256 * 64 + 32),
        ("folder", Q, "ternary, bf16", 2 * 256 * 256),
    ):
        run = CliRunner().invoke(main, ["inspect", str(tmp_path / path), "--json"])
        assert run.exit_code == 0, run.output
        row = {"name": name, "shape": [256, 256], "dtype": dtype, "bytes": size}
        assert row in json.loads(run.output)["tensors"]
        run = CliRunner().invoke(main, ["inspect", str(tmp_path / path), "--json", "--ternary"])
        row |= {"scale": float(scale), "zeros": 1 - np.count_nonzero(codes) / codes.size}
        assert row in json.loads(run.output)["tensors"]
        shown = CliRunner().invoke(main, ["inspect", str(tmp_path / path), "--ternary"]).output
        assert f"{scale:.6g}" in shown
    write_safetensors(tmp_path / "x.safetensors", {"a": np.zeros(2, np.float32)})
    for arguments in (["--ternary"], ["--ternary", "--json"]):
        run = CliRunner().invoke(main, ["inspect", str(tmp_path / "x.safetensors"), *arguments])
        assert run.exit_code == 3
