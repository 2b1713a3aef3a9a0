"""Models that are small enough to train and to run in milliseconds, and their twins in the words of the reference."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

import nncuda
from nncuda import LanguageModel, kernels
from nncuda.formats import ternary
from nncuda.formats.block_formats import FORMATS, StoredTensor
from nncuda.models import MoEConfig, MoETransformer
from nncuda.models.adapter import save_adapter
from nncuda.models.llama import LlamaConfig, is_plain, is_projection
from nncuda.models.stored import StoredModel, StoredTensors
from nncuda.reference import model as reference
from nncuda.tokenizer import Tokenizer
from nncuda.train import TrainConfig, Trainer
from nncuda.train.checkpoint import TrainingState, save_checkpoint

TINY = MoEConfig(
    vocab_size=48,
    hidden_size=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    num_experts=4,
    experts_per_token=2,
    ffn_size=20,
    context=32,
    extended_context=64,
    init_std=0.2,  # large enough for attention and routing to be far from uniform
)

#: The same without experts and router.
DENSE = dataclasses.replace(TINY, num_experts=0, experts_per_token=0)

#: With the rotary embedding of Llama 3.1, of whose waves some stay, some are stretched, and some lie between.
LLAMA3 = dataclasses.replace(DENSE, rope_factor=8.0, rope_original=12, extended_context=32)

#: With the parts that Qwen2 has besides.
QWEN2 = dataclasses.replace(DENSE, qkv_bias=True, tie_embeddings=True)

#: With the norms of Qwen3.
QWEN3 = dataclasses.replace(DENSE, qk_norm=True)

#: With the ternary weights of BitNet b1.58: those of its 2B4T, and those of the first such models.
TERNARY = dataclasses.replace(DENSE, ternary=True, squared_relu=True, tie_embeddings=True)
TERNARY_SILU = dataclasses.replace(DENSE, ternary=True)


def reference_config(config: MoEConfig) -> reference.Config:
    """The same model for the reference."""
    return reference.Config(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        num_local_experts=config.num_experts,
        num_experts_per_tok=config.experts_per_token,
        intermediate_size=config.ffn_size,
        rope_theta=config.rope_base,
        rms_norm_eps=config.norm_eps,
        norm_topk_prob=config.norm_topk_prob,
        capacity_factor=config.capacity_factor,
        router_aux_loss_coef=config.aux_alpha,
        qk_norm=config.qk_norm,
        qkv_bias=config.qkv_bias,
        tie_word_embeddings=config.tie_embeddings,
        rope_divisors=config.rope_divisors(),
        ternary=config.ternary,
        squared_relu=config.squared_relu,
    )


def random_model(ctx: nncuda.Context, config: MoEConfig, seed: int) -> MoETransformer:
    """A model with random matrices whose biases and further norms are random, too, and not 0 and 1 as a new one's."""
    model, rng = MoETransformer(ctx, config, seed=seed), np.random.default_rng(seed)
    for name, tensor in model.parameters.items():
        if name.endswith(".bias"):
            tensor.copy_(rng.normal(0.0, 0.3, tensor.shape).astype(np.float32))
        elif name.endswith(("q_norm.weight", "k_norm.weight", "sub_norm.weight")):
            tensor.copy_(rng.normal(1.0, 0.3, tensor.shape).astype(np.float32))
    return model


def random_batch(config: MoEConfig, batch: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of random ids, int32 [batch, length]."""
    ids = np.random.default_rng(seed).integers(0, config.vocab_size, (batch, length + 1), dtype=np.int32)
    return ids[:, :-1].copy(), ids[:, 1:].copy()


def learnable_batch(config: MoEConfig, batch: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Something to learn: each token decides the next, but for a tenth of noise. int32 [batch, length]."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, config.vocab_size, (batch, length + 1)).astype(np.int32)
    for at in range(1, length + 1):
        follows = (5 * ids[:, at - 1] + 7) % config.vocab_size
        ids[:, at] = np.where(rng.random(batch) < 0.9, follows, ids[:, at])
    return ids[:, :-1].copy(), ids[:, 1:].copy()


def save_tiny(ctx: nncuda.Context, folder: Path) -> Path:
    """A checkpoint of `TINY` after one step of training; its own folder."""
    options = TrainConfig(steps=4, batch_size=2, sequence_length=8, warmup_steps=1)
    trainer = Trainer(MoETransformer(ctx, TINY, seed=4), options)
    trainer.train_step(*random_batch(TINY, 2, 8))
    return save_checkpoint(folder, trainer, TrainingState(1, 2, 10, 0.5, options, 1.25), None)


def llama_config(**changes: object) -> LlamaConfig:
    """A small Llama whose rows are whole blocks of every format but the K ones, and whose heads are of q8_0."""
    sizes = {
        "vocab_size": 96,
        "hidden_size": 64,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 32,
        "ffn_size": 96,
        "context": 1024,
    }
    sizes.update(changes)
    return LlamaConfig(**{"extended_context": sizes["context"], **sizes})


#: Of `llama_config`, for a model with ternary weights.
BITNET = {"activation": "relu2", "sub_norms": True, "ternary": True}


def stored_model(
    ctx: nncuda.Context, config: LlamaConfig, format: str = "f32", head: str | None = None, seed: int = 0
) -> StoredModel:
    """A model in memory with random weights, its matrices in `format` (the head in another, if one is named); those of
    a BitNet's layers as master weights in f32.

    Matrices are Normal(0, gain^2 / columns), with gains at which attention and experts choose and logits differ widely.
    """
    rng = np.random.default_rng(seed)
    shapes = config.shapes()
    parts, matrices = {}, {}
    for name, shape in shapes.items():
        if config.tie_embeddings and name == "lm_head.weight":
            parts[name] = parts["model.embed_tokens.weight"]
            continue
        gain = next((gain for part, gain in _GAINS.items() if part in name), 1.0)
        values = rng.standard_normal(shape, np.float32) * np.float32(gain / np.sqrt(shape[-1]))
        chosen = "f32" if is_plain(name) else head if head and name == "lm_head.weight" else format
        if name.endswith("norm.weight"):
            values = 1 + values
        if config.ternary and is_projection(name):
            stored = StoredTensor(name, "f32", shape, values.view(np.uint8).reshape(-1))
            matrices[name] = ternary.from_master("in memory", stored)
            continue
        block = FORMATS[chosen]
        data = values.view(np.uint8)
        if chosen != "f32":
            data = kernels.quantize(ctx.tensor(values.reshape(-1, shape[-1])), format=block.code,
                                    row_bytes=block.row_bytes(shape[-1])).numpy()  # fmt: skip
        parts[name] = [StoredTensor(name, chosen, shape, data.reshape(-1))]
    return StoredModel(Path("in memory"), config, StoredTensors(parts, shapes), matrices=matrices)


def language_model(ctx: nncuda.Context, tokenizer: Tokenizer, max_batch: int = 2) -> LanguageModel:
    """A Llama with random weights that reads and writes texts."""
    stored = stored_model(ctx, llama_config(vocab_size=tokenizer.vocab_size), "q8_0")
    stored.__dict__["tokenizer"] = tokenizer
    return LanguageModel(stored, ctx, context=256, max_batch=max_batch)


_GAINS = {"embed_tokens": 8.0, "q_proj": 2.0, "k_proj": 2.0, "moe.gate": 2.0, "lm_head": 3.0}


def numbers(ctx: nncuda.Context, stored: StoredModel) -> dict[str, np.ndarray]:
    """What a model's weights stand for, in f64; of a BitNet the master weights."""
    tensors = {
        name: kernels.dequantize(ctx.tensor(tensor.rows()), format=tensor.code, k=tensor.columns, dtype="f32")
        .numpy()
        .reshape(tensor.shape)
        for name, tensor in stored.tensors.items()
    }
    tensors |= {name: matrix.master for name, matrix in stored.matrices.items()}
    return {name: array.astype(np.float64) for name, array in tensors.items()}


RANK, ALPHA = 3, 5.0


def write_adapter(path: Path, config: LlamaConfig, targets: tuple[str, ...], seed: int = 0, rank: int = RANK) -> None:
    """A PEFT folder with factors as large as the weights that they are beside, of the matrices of all layers with these
    names, such as "self_attn.q_proj"."""
    random, made = np.random.default_rng(seed), {}
    for name, shape in config.shapes().items():
        if name.startswith("model.layers.") and name.removesuffix(".weight").split(".", 3)[-1] in targets:
            rows, columns = shape
            a = random.standard_normal((rank, columns)).astype(np.float32) / np.float32(columns**0.5)
            b = random.standard_normal((rows, rank)).astype(np.float32) * np.float32(0.3)
            made[name] = a, b
    save_adapter(path, made, alpha=ALPHA)
