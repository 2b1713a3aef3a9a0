"""The mixture-of-experts transformer and its training step, in float64.

Pre-norm blocks: RMSNorm -> attention -> +; RMSNorm -> mixture of experts -> +; then RMSNorm -> LM head (Jiang et al.
2024, "Mixtral of experts"). Parameters carry the names and shapes of a Mixtral checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace as Saved

import numpy as np

from nncuda.reference import loss as losses
from nncuda.reference import optimizer, random, rope
from nncuda.reference.arithmetic import Array
from nncuda.reference.layers import (
    Config,
    Parameters,
    Roundings,
    accumulate,
    dense,
    dense_backward,
    linear,
    linear_backward,
    mixture,
    mixture_backward,
    norm,
    norm_backward,
    self_attention,
    self_attention_backward,
)

__all__ = ["Config", "State", "Training", "forward", "initial", "loss_and_gradients", "shapes", "train_step"]

IGNORE_INDEX = -100


@dataclass(frozen=True)
class Training:
    """The options of training; each default is that of the model's own configuration."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    max_norm: float = 1.0
    warmup: int = 2000
    total: int = 100000
    max_lr: float = 3e-4
    min_lr: float = 3e-5


@dataclass
class State:
    """Parameters, moments, and how many updates were made."""

    params: Parameters
    m: Parameters = field(default_factory=dict)
    v: Parameters = field(default_factory=dict)
    step: int = 0

    def __post_init__(self) -> None:
        for moments in (self.m, self.v):
            for name, value in self.params.items():
                moments.setdefault(name, np.zeros_like(value))


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter, in the order in which the trainers keep them: matrices first, with those that
    one product takes together side by side (q, k, v; w1 and w3 of each expert, then w2 of each), the norms last."""
    hidden, ffn, head = config.hidden_size, config.intermediate_size, config.head_dim
    layers = [f"model.layers.{layer}" for layer in range(config.num_hidden_layers)]
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for block in layers:
        found[f"{block}.self_attn.q_proj.weight"] = (config.num_attention_heads * head, hidden)
        found[f"{block}.self_attn.k_proj.weight"] = (config.num_key_value_heads * head, hidden)
        found[f"{block}.self_attn.v_proj.weight"] = (config.num_key_value_heads * head, hidden)
        found[f"{block}.self_attn.o_proj.weight"] = (hidden, config.num_attention_heads * head)
        if not config.num_local_experts:
            found[f"{block}.mlp.gate_proj.weight"] = found[f"{block}.mlp.up_proj.weight"] = (ffn, hidden)
            found[f"{block}.mlp.down_proj.weight"] = (hidden, ffn)
            continue
        found[f"{block}.block_sparse_moe.gate.weight"] = (config.num_local_experts, hidden)
        experts = [f"{block}.block_sparse_moe.experts.{e}" for e in range(config.num_local_experts)]
        for expert in experts:
            found[f"{expert}.w1.weight"] = found[f"{expert}.w3.weight"] = (ffn, hidden)
        for expert in experts:
            found[f"{expert}.w2.weight"] = (hidden, ffn)
    if not config.tie_word_embeddings:
        found["lm_head.weight"] = (config.vocab_size, hidden)
    for block in layers:
        found[f"{block}.input_layernorm.weight"] = found[f"{block}.post_attention_layernorm.weight"] = (hidden,)
        for name in "qkv" if config.qkv_bias else ():
            found[f"{block}.self_attn.{name}_proj.bias"] = found[f"{block}.self_attn.{name}_proj.weight"][:1]
        for name in "qk" if config.qk_norm else ():
            found[f"{block}.self_attn.{name}_norm.weight"] = (head,)
        if config.ternary:
            found[f"{block}.self_attn.attn_sub_norm.weight"] = (config.num_attention_heads * head,)
            found[f"{block}.mlp.ffn_sub_norm.weight"] = (ffn,)
    found["model.norm.weight"] = (hidden,)
    return found


def initial(config: Config, seed: int, std: float = 0.02) -> Parameters:
    """Matrices from Normal(0, std), norms at 1, biases at 0. Parameter number i of `shapes` takes stream i of the
    generator."""
    params = {}
    for stream, (name, shape) in enumerate(shapes(config).items()):
        if len(shape) == 1:
            params[name] = np.zeros(shape) if name.endswith(".bias") else np.ones(shape)
        else:
            params[name] = random.normal(int(np.prod(shape)), 0, std, seed, stream, 0)["y"].reshape(shape)
    return params


def forward(
    params: Parameters, config: Config, input_ids: Array, roundings: Roundings | None = None
) -> tuple[Array, Saved]:
    """Logits [batch*length, vocab_size] of ``input_ids`` [batch, length], and what the backward pass needs.

    With ternary weights ``roundings`` say what products take of their factors; a test gives those of another pass.
    ``Saved.blocks[i].mixture.indices`` are the experts chosen in layer i, [batch*length, num_experts_per_tok].
    """
    batch, length = input_ids.shape
    divisors = np.array(config.rope_divisors) if config.rope_divisors else None
    tables = rope.rope_freqs_scaled(length, config.head_dim, 0, config.rope_theta, config.rope_ntk_alpha, 1.0, divisors)
    positions = np.tile(np.arange(length), batch)
    roundings = roundings or Roundings()
    if config.ternary:
        params = roundings.weights(params)
    x = params["model.embed_tokens.weight"][input_ids.ravel()]
    blocks = []
    for layer in range(config.num_hidden_layers):
        block = f"model.layers.{layer}"
        h, norm1 = norm(x, params, f"{block}.input_layernorm.weight", config)
        h = roundings.rows(h) if config.ternary else h
        a, attn = self_attention(h, params, f"{block}.self_attn", config, batch, positions, tables, roundings)
        x = x + a
        h, norm2 = norm(x, params, f"{block}.post_attention_layernorm.weight", config)
        if config.num_local_experts:
            y, mix = mixture(h, params, f"{block}.block_sparse_moe", config)
        else:
            h = roundings.rows(h) if config.ternary else h
            y, mix = dense(h, params, f"{block}.mlp", config, roundings)
        x = x + y
        blocks.append(Saved(norm1=norm1, attention=attn, norm2=norm2, mixture=mix))
    h, last = norm(x, params, "model.norm.weight", config)
    saved = Saved(input_ids=input_ids, blocks=blocks, norm=last, h=h, params=params)
    return linear(h, params[head_of(config)]), saved


def head_of(config: Config) -> str:
    """The parameter that the head multiplies by."""
    return "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"


def backward(dlogits: Array, saved: Saved, config: Config, aux_scale: float = 0.0) -> Parameters:
    """Gradients of all parameters: of the logits' ``dlogits``, plus ``aux_scale`` times the auxiliary loss."""
    grads: Parameters = {}
    params = saved.params  # as products took them
    tokens = len(dlogits)
    dh = linear_backward(dlogits, saved.h, params, head_of(config), grads)
    dx = norm_backward(dh, saved.norm, params, "model.norm.weight", grads)
    for layer in reversed(range(config.num_hidden_layers)):
        block, kept = f"model.layers.{layer}", saved.blocks[layer]
        if config.num_local_experts:
            dprobs = losses.aux_loss_backward(
                kept.mixture.counts, np.array([aux_scale]), tokens, config.router_aux_loss_coef
            )["dprobs"]
            dh = mixture_backward(dx, kept.mixture, params, f"{block}.block_sparse_moe", grads, dprobs)
        else:
            dh = dense_backward(dx, kept.mixture, params, f"{block}.mlp", grads)
        dx = dx + norm_backward(dh, kept.norm2, params, f"{block}.post_attention_layernorm.weight", grads)
        dh = self_attention_backward(dx, kept.attention, params, f"{block}.self_attn", grads)
        dx = dx + norm_backward(dh, kept.norm1, params, f"{block}.input_layernorm.weight", grads)
    table = np.zeros_like(params["model.embed_tokens.weight"])
    np.add.at(table, saved.input_ids.ravel(), dx)
    accumulate(grads, "model.embed_tokens.weight", table)
    return grads


def auxiliary_loss(saved: Saved, config: Config) -> float:
    """alpha sum over layers and experts of f P. Fedus, Zoph, Shazeer 2021, eq. 4, without the factor of experts."""
    loss = np.zeros(1)
    for block in saved.blocks if config.num_local_experts else ():
        loss = losses.aux_loss_forward(block.mixture.probs, block.mixture.counts, loss, config.router_aux_loss_coef)[
            "loss"
        ]
    return float(loss[0])


def loss_and_gradients(
    params: Parameters,
    config: Config,
    batches: Sequence[tuple[Array, Array]],
    roundings: Roundings | None = None,
) -> tuple[float, Parameters]:
    """Loss and gradients of micro-batches of (input_ids, targets), each [batch, length].

    The cross-entropy is the mean over all tokens of all micro-batches that are not ignored (target -100); the auxiliary
    loss, which is not linear in its tokens, is the mean of the micro-batches' own, each weighted by its tokens.
    """
    count = sum(int(np.sum(targets != IGNORE_INDEX)) for _, targets in batches)
    tokens = sum(input_ids.size for input_ids, _ in batches)
    loss, grads = 0.0, {}
    for input_ids, targets in batches:
        share = input_ids.size / tokens
        logits, saved = forward(params, config, input_ids, roundings)
        ce = losses.cross_entropy_forward(logits, targets.ravel(), IGNORE_INDEX)
        scale = np.array([1 / count if count else 0.0])
        loss += float(ce["loss_sum"][0] * scale[0]) + auxiliary_loss(saved, config) * share
        dlogits = losses.cross_entropy_backward(logits, targets.ravel(), ce["lse"], scale, IGNORE_INDEX)["dlogits"]
        for name, gradient in backward(dlogits, saved, config, share).items():
            accumulate(grads, name, gradient)
    return loss, {name: grads[name] for name in params}


def train_step(
    state: State, config: Config, training: Training, batches: Sequence[tuple[Array, Array]]
) -> dict[str, float]:
    """One update of ``state`` in place: loss, gradients, clip by the global norm, schedule, AdamW on every parameter.

    Weight decay is for matrices only. Returns loss, norm (before clipping) and lr.
    """
    loss, grads = loss_and_gradients(state.params, config, batches)
    everything = np.concatenate([g.ravel() for g in grads.values()])
    norm_ = optimizer.grad_norm(everything)["norm"]
    clip = optimizer.grad_clip(norm_, training.max_norm)["scale"]
    scheduled = optimizer.lr_schedule(
        np.array([state.step], np.int32), training.warmup, training.total, training.max_lr, training.min_lr
    )
    state.step = int(scheduled["step"][0])
    for name, value in state.params.items():
        flat = (value, state.m[name], state.v[name])
        param, m, v = (x.ravel() for x in flat)
        new = optimizer.adamw_step(
            grads[name].ravel(),
            scheduled["lr"],
            scheduled["step"],
            param,
            m,
            v,
            n_decay=value.size if value.ndim > 1 else 0,
            beta1=training.beta1,
            beta2=training.beta2,
            eps=training.eps,
            weight_decay=training.weight_decay,
            grad_scale=clip,
        )
        state.params[name] = new["param"].reshape(value.shape)
        state.m[name] = new["m"].reshape(value.shape)
        state.v[name] = new["v"].reshape(value.shape)
    return {"loss": loss, "norm": float(norm_[0]), "lr": float(scheduled["lr"][0])}
