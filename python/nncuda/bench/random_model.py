"""Llama and Mixtral folders with random weights, as Hugging Face keeps them: what speed and agreement are measured on.

    python -m nncuda.bench.random_model build/tinyllama --shape tinyllama

Speed depends on sizes alone, so that no trained model needs to be fetched. Matrices are Normal(0, gain²/fan_in), with
gains at which attention is neither flat nor one-sided and logits have a standard deviation of about 3. What a layer
adds is divided by sqrt(2 layers) (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", 2.3):
layers as strong as what they are added to, one after the other, would make much of the least rounding, and no trained
model has them. Each tensor is drawn from the seed and its own name, one at a time, and written at once: the largest one
is what a run keeps in memory.
"""

from __future__ import annotations

import io
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
import sentencepiece

_DTYPES: dict[str, tuple[str, Any]] = {
    "f32": ("F32", np.float32),
    "f16": ("F16", np.float16),
    "bf16": ("BF16", ml_dtypes.bfloat16),
}


@dataclass(frozen=True)
class Shape:
    """Sizes of a model. `experts` above 0 makes it a Mixtral; `tied` uses the embedding as the output matrix, too;
    `biases` gives q, k, v and o one each; `rope_scaling` is that key of config.json."""

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
}  # fmt: skip


def config(shape: Shape) -> dict[str, Any]:
    """The content of config.json."""
    moe = {"num_local_experts": shape.experts, "num_experts_per_tok": shape.experts_per_token, "sliding_window": None}
    return {
        "architectures": ["MixtralForCausalLM" if shape.experts else "LlamaForCausalLM"],
        "model_type": "mixtral" if shape.experts else "llama",
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
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **(moe if shape.experts else {"attention_bias": shape.biases, "mlp_bias": False}),
    }


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape and standard deviation of each tensor. A norm's gains are drawn around 1."""

    def matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> tuple[str, tuple[int, ...], float]:
        return f"{name}.weight", (rows, columns), gain / math.sqrt(columns)

    added = 1 / math.sqrt(2 * shape.layers)
    hidden, queries, keys = shape.hidden, shape.heads * shape.dim, shape.kv_heads * shape.dim
    # A tied matrix must serve both ends: rows of the length that an output wants.
    yield "model.embed_tokens.weight", (shape.vocabulary, hidden), 3.0 / math.sqrt(hidden) if shape.tied else 1.0
    for layer in range(shape.layers):
        base = f"model.layers.{layer}"
        yield f"{base}.input_layernorm.weight", (hidden,), 0.1
        for name, rows, columns, gain in (
            ("q_proj", queries, hidden, 1.5),
            ("k_proj", keys, hidden, 1.5),
            ("v_proj", keys, hidden, 1.0),
            ("o_proj", hidden, queries, added),
        ):
            yield matrix(f"{base}.self_attn.{name}", rows, columns, gain)
            if shape.biases:
                yield f"{base}.self_attn.{name}.bias", (rows,), 0.3
        yield f"{base}.post_attention_layernorm.weight", (hidden,), 0.1
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


def draw(name: str, size: tuple[int, ...], deviation: float, seed: int) -> np.ndarray:
    """The f32 tensor of this name."""
    values = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(size, dtype=np.float32)
    values *= np.float32(deviation)
    if name.endswith("norm.weight"):
        values += 1
    return values


def text(words: int, seed: int = 0) -> str:
    """Made-up text: words of syllables, frequent ones short, with numbers, signs and letters of several scripts."""
    rng = np.random.default_rng(seed)
    syllables = [a + b for a in "bdfghjklmnprstvwyz" for b in ("a", "e", "i", "o", "u", "ai", "ön", "er", "is", "ou")]
    lengths = rng.integers(1, 5, 40000)
    known = ["".join(rng.choice(syllables, n)) for n in np.sort(lengths)]
    drawn = np.minimum((rng.pareto(0.6, words) * 20).astype(np.int64), len(known) - 1)
    signs = rng.random(words)
    written = []
    for index, sign in zip(drawn, signs, strict=True):
        word = known[index]
        if sign < 0.05:
            word = word.capitalize() + ("," if sign < 0.03 else ".")
        elif sign < 0.07:
            word = str(int(sign * 1e9) % 10000)
        elif sign < 0.09:
            word = "".join(map(chr, rng.integers(0x4E00, 0x4E80, 2))) + chr(0x3B1 + index % 24)
        written.append(word)
    return " ".join(written)


def tokenizer(vocabulary: int) -> bytes:
    """A SentencePiece file as llama models have it: BPE, bytes for what it lacks, unknown 0, begin 1, end 2."""
    model = io.BytesIO()
    written = text(max(20000, 40 * vocabulary))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(written[at : at + 1000] for at in range(0, len(written), 1000)),
        model_writer=model,
        vocab_size=vocabulary,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def write_folder(
    folder: Path, shape: Shape, seed: int = 0, dtype: str = "f16", tokenizer_file: bytes | None = None
) -> None:
    """Writes config.json, model.safetensors and the tokenizer's files; a tokenizer is trained unless one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(shape) | {"torch_dtype": _TORCH[dtype]}, indent=1) + "\n")
    (folder / "tokenizer.model").write_bytes(tokenizer_file or tokenizer(shape.vocabulary))
    (folder / "tokenizer_config.json").write_text(json.dumps(_TOKENIZER_CONFIG, indent=1) + "\n")
    label, kind = _DTYPES[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, size, _ in tensors(shape):
        begin, end = end, end + math.prod(size) * np.dtype(kind).itemsize
        header[name] = {"dtype": label, "shape": list(size), "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name, size, deviation in tensors(shape):
            file.write(draw(name, size, deviation, seed).astype(kind).tobytes())


_TORCH = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}

_TOKENIZER_CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "add_bos_token": True,
    "add_eos_token": False,
    "legacy": False,
}


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--shape", "name", type=click.Choice(sorted(SHAPES)), default="tinyllama", show_default=True)
@click.option("--dtype", type=click.Choice(sorted(_DTYPES)), default="f16", show_default=True, help="Of the weights.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--layers", type=click.IntRange(min=1), help="So many layers instead.")
def main(folder: Path, name: str, dtype: str, seed: int, layers: int | None) -> None:
    """Write a folder with a model of random weights."""
    shape = SHAPES[name] if layers is None else replace(SHAPES[name], layers=layers)
    write_folder(folder, shape, seed, dtype)
    click.echo(f"{folder}: {shape.parameters:,} parameters in {dtype}")


if __name__ == "__main__":
    main()
