"""The page of models: what the engine runs, made from `nncuda.models.families` and the formats of weights."""

from __future__ import annotations

from collections.abc import Iterator

from nncuda.binding import header
from nncuda.formats.block_formats import FORMATS
from nncuda.models.families import FAMILIES, Family, Switch
from nncuda.models.llama import SCALINGS

PAGE = "docs/models.md"
OWNED = (PAGE,)

INTRODUCTION = """\
<!-- Generated from python/nncuda/models/families.py by `make generate`. Do not edit. -->
# Models

What [the engine](inference.md) runs in Python, Go and Rust, with the same bits: Hugging Face folders (`config.json`
and safetensors) and GGUF files of these families. A family is a description over the same layers
([adding one](adding-a-model.md)); the table is made of the descriptions.

| `model_type` | models | GGUF architecture | attention | feed-forward network | besides |
|---|---|---|---|---|---|
"""

REST = """
Heads may be shared (GQA, MQA), and the head may be the table of embeddings. Rotary embeddings: {scalings}
(`dynamic` up to the context alone; of `longrope` the long factors where the engine's context is longer than the
original one). Weights are multiplied as they are stored: f32, f16 and bf16 in folders, gpt-oss' experts in mxfp4, too,
and in GGUF files {formats}.

Every family gives transformers' logits in f32 within 1e-3 on a small model, and the same 200 greedy tokens
(`make interop`; `tests/interop/test_families_recorded.py`).

Its GGUF file in q8_0, as `nncuda quantize` writes it, runs in llama.cpp, too: either program is as far from exact
arithmetic as the other, within a quarter, and so it is with an adapter that `nncuda adapter` writes
(`tests/interop/test_families_llama_cpp_live.py`, which names the options of folders that llama.cpp does not have).

**Refused by name, never run wrongly**: a model of another family; sliding windows that are narrower than the context
in families without them in the table; blocks that differ in another way than that (`layer_types`,
`decoder_sparse_step`, `mlp_only_layers`); activations other than those above; an option of `config.json`, or a key of
the GGUF file's architecture, that is neither read nor known to change nothing, unless it says no (false, null, empty).
`make interop` goes through every option that transformers has for a family, with values other than the usual: the
logits are transformers', or the option is refused (`tests/interop/test_families_options_live.py`).

gpt-oss' folders may have their experts in 4 bits, as they are published, or as transformers writes them: either is made
into the rows of the products when it is loaded, so such experts never lie in the file's pages. llama.cpp puts the ends
of its YaRN at whole numbers, where the model has none; this engine computes what the folder says, of GGUF files, too.
Ranks do not divide experts with biases among them: that is refused by name. `nncuda quantize` leaves experts in 4 bits
as they are and rounds the rest.

Keys and values that have left every window of a layer stay in the cache's pages until their sequence drops them.

A file's tokenizer is that of its metadata, with the cuts and normalisers of these families
([formats](formats.md#cuts-of-byte-level-bpe)).

`nncuda quantize` writes GGUF files of every family but BitNet, which `nncuda convert` writes. What trains are this
library's own mixture of experts, Mixtral, Llama, Qwen2, Qwen3, BitNet and, within its window, Mistral
([training](training.md#from-trained-weights)); the rest is refused by name.
"""


def _switch(part: Switch, what: str) -> Iterator[str]:
    if part.key is not None:
        yield f"{what} by `{part.key}`"
    elif part.usual:
        yield what


def _attention(family: Family) -> str:
    parts = [*_switch(family.qkv_bias, "biases of q, k, v"), *_switch(family.o_bias, "of o")]
    norms = {"head": "norms of q and k, each head", "whole": "norms of q and k, all heads"}
    if family.qk_norm in norms:
        parts.append(norms[family.qk_norm])
    if family.sinks:
        parts.append("a sink a head")
    if family.partial_rotary:
        parts.append("a part of each head rotated")
    if family.window_period is not None:
        where = {0: "a window in all layers where the model has one", 2: "windows in every other layer"}
        parts.append(where.get(family.window_period, f"windows in all but each {family.window_period}th layer"))
    if family.gemma is not None and family.gemma.local_base:
        parts.append("a rotary embedding of their own there")
    return ", ".join(parts)


def _feed_forward(family: Family) -> str:
    gate = " or ".join(
        {"silu": "SwiGLU", "relu2": "squared ReLU", "gelu_pytorch_tanh": "GeGLU"}[name] for name in family.activations
    )
    experts = family.experts
    if experts is None:
        return gate + (", ternary weights" if family.ternary else "")
    parts = [f"experts (`{experts.count}`)"]
    parts += _switch(experts.norm, "weights normed")
    if experts.biased:
        parts.append("biases of router and experts, clipped gates")
    if experts.shared is not None:
        parts.append(f"a shared expert{', weighed by a sigmoid' if experts.shared_gate else ''}")
    return ", ".join(parts)


def _besides(family: Family) -> str:
    parts = []
    if family.scaled:
        parts.append("factors of embeddings, residuals, attention and logits")
    if family.ternary:
        parts.append("norms before the last products")
    if family.gemma is not None:
        caps = (("scores", family.gemma.scores_cap), ("logits", family.gemma.logits_cap))
        bounded = " and ".join(name for name, cap in caps if cap)
        parts += [f"soft caps of {bounded}"] if bounded else []
        parts.append("norms behind attention and feed-forward network")
    return ", ".join(parts)


def files(contract: header.Header, source: bytes) -> dict[str, str]:
    """The page by its path."""
    rows = [
        f"| `{family.name}` | {family.title} | {', '.join(f'`{name}`' for name in family.architectures)} | "
        f"{_attention(family)} | {_feed_forward(family)} | {_besides(family)} |\n"
        for family in FAMILIES.values()
    ]
    scalings = ", ".join(f"`{name}`" for name in SCALINGS if name != "none")
    rest = REST.format(scalings=scalings, formats=", ".join(FORMATS))
    return {PAGE: INTRODUCTION + "".join(rows) + rest}
