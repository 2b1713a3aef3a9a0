"""The steps of `nncuda dump` as Hugging Face transformers computes them, in f32: the other side of `--compare`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .dump import Dump


class PeerMissing(RuntimeError):
    """transformers or torch is not installed."""


def record(folder: Path, ids: Sequence[int], layers: Collection[int]) -> Dump:
    """Runs a folder's model over a prompt. PeerMissing without transformers and torch, and for a
    BitNet accelerate; ValueError for a model whose parts have other names.

    Of a BitNet there are no codes: transformers keeps rounded rows as the numbers that they stand for."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise PeerMissing(
            f"comparing with the model in {folder} needs transformers and torch, which are not installed here "
            "(pip install transformers torch); a dump that --save wrote is compared without them"
        ) from error

    try:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
    except ImportError as error:  # what only some models need
        raise PeerMissing(f"transformers cannot run the model in {folder}: {error}") from error
    steps: dict[str, np.ndarray] = {}
    hooks: list[Any] = []

    def keep(name: str, tensor: Any, heads: int | None = None) -> None:
        array = tensor.detach().reshape(len(ids), *((heads, -1) if heads else (-1,))).numpy()
        steps[name] = np.ascontiguousarray(array)

    def behind(module: Any, name: str, heads: int | None = None) -> None:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            keep(name, output[0] if isinstance(output, tuple) else output, heads)

        hooks.append(module.register_forward_hook(hook))

    def before(module: Any, name: str, heads: int | None = None) -> None:
        hooks.append(module.register_forward_pre_hook(lambda _module, inputs: keep(name, inputs[0], heads)))

    config = model.config
    module_of_model = __import__(type(model).__module__, fromlist=["apply_rotary_pos_emb"])
    rotate = module_of_model.apply_rotary_pos_emb
    calls = iter(range(config.num_hidden_layers))

    def rotate_and_keep(q: Any, k: Any, *rest: Any, **options: Any) -> Any:
        turned = rotate(q, k, *rest, **options)
        layer = next(calls)
        if layer in layers:
            for step, tensor in zip(("q_rope", "k_rope"), turned, strict=True):
                keep(f"layers.{layer}.{step}", tensor[0].transpose(0, 1), tensor.shape[1])
        return turned

    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    try:
        behind(model.model.embed_tokens, "embedding")
        for number in layers:
            layer, base = model.model.layers[number], f"layers.{number}"
            behind(layer.input_layernorm, f"{base}.attn_norm")
            behind(layer.self_attn.q_proj, f"{base}.q", heads)
            behind(layer.self_attn.k_proj, f"{base}.k", kv_heads)
            behind(layer.self_attn.v_proj, f"{base}.v", kv_heads)
            before(getattr(layer.self_attn, "attn_sub_norm", layer.self_attn.o_proj), f"{base}.attention", heads)
            if hasattr(layer.self_attn, "attn_sub_norm"):
                behind(layer.self_attn.attn_sub_norm, f"{base}.attn_sub_norm")
            behind(layer.self_attn.o_proj, f"{base}.attn_output")
            ffn_norm = getattr(layer, "pre_feedforward_layernorm", layer.post_attention_layernorm)  # Gemma's name
            before(ffn_norm, f"{base}.attn_residual")
            behind(ffn_norm, f"{base}.ffn_norm")
            if hasattr(layer.mlp, "gate_proj"):
                behind(layer.mlp.gate_proj, f"{base}.gate")
                behind(layer.mlp.up_proj, f"{base}.up")
                before(getattr(layer.mlp, "ffn_sub_norm", layer.mlp.down_proj), f"{base}.ffn_inner")
            if hasattr(layer.mlp, "ffn_sub_norm"):
                behind(layer.mlp.ffn_sub_norm, f"{base}.ffn_sub_norm")
            behind(layer.mlp, f"{base}.ffn")
            behind(layer, f"{base}.output")
        behind(model.model.norm, "norm")
    except AttributeError as error:
        raise ValueError(f"{folder}: {type(model).__name__} is not built like a Llama ({error})") from error
    module_of_model.apply_rotary_pos_emb = rotate_and_keep
    try:
        with torch.no_grad():
            keep("logits", model(input_ids=torch.tensor([list(ids)])).logits)  # scaled and bounded as the model has it
    finally:
        module_of_model.apply_rotary_pos_emb = rotate
        for hook in hooks:
            hook.remove()
    return Dump(f"{folder} in transformers {transformers.__version__}", tuple(ids), steps)
