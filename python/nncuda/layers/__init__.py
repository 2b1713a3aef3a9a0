"""Layers with a forward and a hand-written backward.

A layer holds views of its weights and of their gradients (None: inference only). `forward_keeping` also returns what
`backward` needs beside its input, which the caller hands in again, kept or recomputed; the layer itself remembers
nothing. `backward` gives the gradient of the input and uses up what was kept; the gradients of weight matrices become
`beta` times what they were plus what this call finds, so that beta 0 spares the first micro-batch a pass to set them to
zero. Gradients of norms' gains and of the embedding are always added to what is there.

Activations have the dtype of the weights, f32, bf16 or f16; gradients of weights are f32 always, and so are the
router's logits and probabilities.
"""

from .attention import Attention, Documents, HeadNorms, Heads, KVCache
from .block import BlockKept, TransformerBlock
from .dense import AllRows, DenseLayer
from .embedding import Embedding, FrozenEmbedding
from .expert_parallel import ExpertParallel, ParallelMoELayer
from .expert_products import ExpertProducts, Fp8Products
from .gated import GatedLayer
from .linear import FrozenLinear, Linear, LowRank
from .moe import ExpertUse, MoELayer, Router
from .norm import RMSNorm
from .rope import RopeTables
from .ternary import FrozenTernary, NormedLinear, TernaryLayer, TernaryLinear

__all__ = [
    "AllRows",
    "Attention",
    "BlockKept",
    "DenseLayer",
    "Documents",
    "Embedding",
    "ExpertParallel",
    "ExpertProducts",
    "ExpertUse",
    "Fp8Products",
    "FrozenEmbedding",
    "FrozenLinear",
    "FrozenTernary",
    "GatedLayer",
    "HeadNorms",
    "Heads",
    "KVCache",
    "Linear",
    "LowRank",
    "MoELayer",
    "NormedLinear",
    "ParallelMoELayer",
    "RMSNorm",
    "RopeTables",
    "Router",
    "TernaryLayer",
    "TernaryLinear",
    "TransformerBlock",
]
