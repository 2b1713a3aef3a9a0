"""Folders of every family with random weights, as Hugging Face keeps them: what speed and agreement are measured on.

    python -m nncuda.bench.random_model build/tinyllama --shape tinyllama
    python -m nncuda.bench.random_model build/bitnet --shape bitnet-2b-4t --dtype bf16

Speed depends on sizes alone, so that no trained model needs to be fetched. Matrices are Normal(0, gain²/fan_in), with
gains at which attention is neither flat nor one-sided and logits have a standard deviation of about 3. What a layer
adds is divided by sqrt(2 layers) (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", 2.3):
layers as strong as what they are added to, one after the other, would make much of the least rounding, and no trained
model has them. BitNets have master weights, which are rounded to -1, 0 and 1 when they are loaded. Each tensor is
drawn from the seed and its own name and written in pieces of rows, so that a run of any size takes little memory.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..formats.block_formats import FORMATS
from ..formats.safetensors_writer import NewArray, write_in_pieces
from ..models.families import FAMILIES
from ..models.llama_folder import config_from_folder
from . import random_families, random_tokenizer

#: Elements drawn at a time.
_PIECE = 1 << 22


@dataclass(frozen=True)
class Shape:
    """Sizes of a model. `experts` above 0 makes it a Mixtral, `bitnet` a BitNet b1.58, with SiLU in place of the
    squared ReLU of its gate if `silu`, as llama.cpp computes them all; `tied` uses the embedding as the output matrix,
    too; `biases` gives q, k, v and o one each; `rope_scaling` is that key of config.json. `family` is one of
    `nncuda.models.families`, and `own` has its options of config.json beside those that all have."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int = 2048
    head_dim: int | None = None
    rope_base: float = 10000.0
    eps: float = 1e-5
    experts: int = 0
    experts_per_token: int = 0
    tied: bool = False
    biases: bool = False
    rope_scaling: dict[str, Any] | None = None
    bitnet: bool = False
    silu: bool = False
    family: str = "llama"
    own: dict[str, Any] = field(default_factory=dict)

    @property
    def dim(self) -> int:
        """Elements a head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for _, shape, _ in tensors(self))


SHAPES = {
    "tinyllama": Shape(layers=22, hidden=2048, ffn=5632, heads=32, kv_heads=4, vocabulary=32000),
    "small": Shape(layers=4, hidden=512, ffn=1536, heads=8, kv_heads=2, vocabulary=2000),
    "6.9b": Shape(layers=30, hidden=768, ffn=6144, heads=12, kv_heads=1, vocabulary=32000, context=32768,
                  experts=16, experts_per_token=4),
    # To show that everything runs.
    "tiny": Shape(layers=1, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=600, context=128),
    # Ma et al. 2025, "BitNet b1.58 2B4T Technical Report", and the published config.json.
    "bitnet-2b-4t": Shape(layers=30, hidden=2560, ffn=6912, heads=20, kv_heads=5, vocabulary=128256, context=4096,
                          rope_base=500000.0, tied=True, bitnet=True),
    "bitnet-small": Shape(layers=4, hidden=512, ffn=1536, heads=8, kv_heads=2, vocabulary=4000, rope_base=500000.0,
                          tied=True, bitnet=True),
}  # fmt: skip


def config(shape: Shape) -> dict[str, Any]:
    """The content of config.json."""
    if shape.bitnet:
        kind, name = "bitnet", "BitNet"
        # What transformers asks for to round master weights while it runs.
        online = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"}
        own: dict[str, Any] = {"attention_bias": False, "quantization_config": online}
    elif shape.experts and shape.family == "llama":
        kind, name = "mixtral", "Mixtral"
        own = {
            "num_local_experts": shape.experts,
            "num_experts_per_tok": shape.experts_per_token,
            "sliding_window": None,
        }
    elif shape.family != "llama":
        kind, name = shape.family, random_families.CLASSES[shape.family]
        own = shape.own
    else:
        kind, name = "llama", "Llama"
        own = {"attention_bias": shape.biases, "mlp_bias": False}
    begin, end = random_tokenizer.ends(shape.vocabulary) if shape.bitnet else (1, 2)
    return {
        "architectures": [f"{name}ForCausalLM"],
        "model_type": kind,
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.dim,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_base,
        "rope_scaling": shape.rope_scaling,
        "hidden_act": "silu" if shape.silu else FAMILIES[kind].activations[0],
        "tie_word_embeddings": shape.tied,
        "bos_token_id": begin,
        "eos_token_id": end,
        **own,
    }


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape and standard deviation of each tensor. A norm's gains are drawn around 1, Gemma's without it."""

    if shape.family != "llama":
        yield from random_families.tensors(config_from_folder(config(shape)))
        return

    def matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> tuple[str, tuple[int, ...], float]:
        return f"{name}.weight", (rows, columns), gain / math.sqrt(columns)

    added, sharp = 1 / math.sqrt(2 * shape.layers), 1.5
    if shape.bitnet:  # rounding to -1, 0 and 1 by the mean magnitude leaves 0.66 of a normal matrix's deviation
        added, sharp = 1.5 * added, 1.5 * sharp
    hidden, queries, keys = shape.hidden, shape.heads * shape.dim, shape.kv_heads * shape.dim
    # A tied matrix must serve both ends: rows of the length that an output wants.
    yield "model.embed_tokens.weight", (shape.vocabulary, hidden), 3.0 / math.sqrt(hidden) if shape.tied else 1.0
    for layer in range(shape.layers):
        base = f"model.layers.{layer}"
        yield f"{base}.input_layernorm.weight", (hidden,), 0.1
        for name, rows, columns, gain in (
            ("q_proj", queries, hidden, sharp),
            ("k_proj", keys, hidden, sharp),
            ("v_proj", keys, hidden, 1.0),
            ("o_proj", hidden, queries, added),
        ):
            yield matrix(f"{base}.self_attn.{name}", rows, columns, gain)
            if shape.biases:
                yield f"{base}.self_attn.{name}.bias", (rows,), 0.3
        yield f"{base}.post_attention_layernorm.weight", (hidden,), 0.1
        if shape.bitnet:
            yield f"{base}.self_attn.attn_sub_norm.weight", (queries,), 0.1
            yield f"{base}.mlp.ffn_sub_norm.weight", (shape.ffn,), 0.1
        if shape.experts:
            yield matrix(f"{base}.block_sparse_moe.gate", shape.experts, hidden, 2.0)
        for expert in range(max(shape.experts, 1)):
            feed = f"{base}.block_sparse_moe.experts.{expert}" if shape.experts else f"{base}.mlp"
            up, gate, down = ("w3", "w1", "w2") if shape.experts else ("up_proj", "gate_proj", "down_proj")
            yield matrix(f"{feed}.{gate}", shape.ffn, hidden)
            yield matrix(f"{feed}.{up}", shape.ffn, hidden)
            yield matrix(f"{feed}.{down}", hidden, shape.ffn, added)
    yield "model.norm.weight", (hidden,), 0.1
    if not shape.tied:
        yield matrix("lm_head", shape.vocabulary, hidden, 3.0)


def draw(name: str, size: tuple[int, ...], deviation: float, seed: int, gain: float = 1) -> Iterator[np.ndarray]:
    """The f32 tensor of this name in pieces of rows, whose number changes no bit. A norm's are drawn around `gain`."""
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    rows = max(1, _PIECE // math.prod(size[1:]))
    for first in range(0, size[0], rows):
        values = generator.standard_normal((min(rows, size[0] - first), *size[1:]), dtype=np.float32)
        values *= np.float32(deviation)
        if name.endswith("norm.weight"):
            values += np.float32(gain)
        yield values


def write_folder(
    folder: Path, shape: Shape, seed: int = 0, dtype: str = "f16", tokenizer_file: bytes | None = None
) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files; a tokenizer is trained unless one is given, as
    the bytes of a tokenizer.model, or for a BitNet of a tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(shape) | {"torch_dtype": _TORCH[dtype]}, indent=1) + "\n")
    make = random_tokenizer.byte_level if shape.bitnet else random_tokenizer.sentencepiece_model
    described = random_tokenizer.BYTE_LEVEL_CONFIG if shape.bitnet else random_tokenizer.SENTENCEPIECE_CONFIG
    kept = "tokenizer.json" if shape.bitnet else "tokenizer.model"
    (folder / kept).write_bytes(tokenizer_file or make(shape.vocabulary))
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=1) + "\n")
    kind = FORMATS[dtype].numpy
    assert kind is not None
    gain = 1 if FAMILIES[shape.family].gemma is None else 0
    new = [NewArray(name, kind, size) for name, size, _ in tensors(shape)]
    with write_in_pieces(folder / "model.safetensors", new) as writer:
        for name, size, deviation in tensors(shape):
            for piece in draw(name, size, deviation, seed, gain):
                writer.write(name, piece.astype(kind).view(np.uint8))


_TORCH = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--shape", "name", type=click.Choice(sorted(SHAPES)), default="tinyllama", show_default=True)
@click.option("--dtype", type=click.Choice(sorted(_TORCH)), default="f16", show_default=True, help="Of the weights.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--layers", type=click.IntRange(min=1), help="So many layers instead.")
@click.option("--untied", is_flag=True, help="A matrix of its own at the output, whatever the shape has.")
@click.option("--silu", is_flag=True, help="A BitNet with SiLU for its squared ReLU: the one that llama.cpp computes.")
def main(folder: Path, name: str, dtype: str, seed: int, layers: int | None, untied: bool, silu: bool) -> None:
    """Write a folder with a model of random weights."""
    shape = SHAPES[name] if layers is None else replace(SHAPES[name], layers=layers)
    shape = replace(shape, tied=shape.tied and not untied, silu=silu)
    write_folder(folder, shape, seed, dtype)
    click.echo(f"{folder}: {shape.parameters:,} parameters in {dtype}")


if __name__ == "__main__":
    main()
