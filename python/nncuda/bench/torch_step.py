"""The peer of the training-step benchmark: the MoE transformer of DESIGN section 4, written in plain PyTorch.

It is written the way a good PyTorch user would write it for speed: fused QKV and gate|up products, scaled-dot-product
attention, tokens sorted by expert and multiplied slice by slice, fused AdamW. Both eager and `torch.compile` run it;
the benchmark takes whichever is faster.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import MoEConfig
from .torch_work import rotated


class Block(nn.Module):
    """One pre-norm block: attention, then a mixture of SwiGLU experts."""

    def __init__(self, s: MoEConfig) -> None:
        super().__init__()
        self.s = s
        self.norm1 = nn.RMSNorm(s.hidden_size, eps=1e-5)
        self.norm2 = nn.RMSNorm(s.hidden_size, eps=1e-5)
        self.qkv = nn.Linear(s.hidden_size, (s.num_heads + 2 * s.num_kv_heads) * s.head_dim, bias=False)
        self.out = nn.Linear(s.num_heads * s.head_dim, s.hidden_size, bias=False)
        self.router = nn.Linear(s.hidden_size, s.num_experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(s.num_experts, 2 * s.ffn_size, s.hidden_size).normal_(0, 0.02))
        self.down = nn.Parameter(torch.empty(s.num_experts, s.hidden_size, s.ffn_size).normal_(0, 0.02))
        for layer in (self.qkv, self.out, self.router):
            nn.init.normal_(layer.weight, 0, 0.02)

    def attend(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        s = self.s
        batch, tokens, _ = x.shape
        q, k, v = (
            self.qkv(self.norm1(x))
            .view(batch, tokens, -1, s.head_dim)
            .transpose(1, 2)
            .split((s.num_heads, s.num_kv_heads, s.num_kv_heads), dim=1)
        )
        q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s.num_kv_heads != s.num_heads)
        return x + self.out(out.transpose(1, 2).reshape(batch, tokens, -1))

    def route(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights [tokens, k], experts [tokens, k] and the load-balancing loss."""
        probs = F.softmax(self.router(x), dim=-1, dtype=torch.float32)
        weights, experts = probs.topk(self.s.experts_per_token, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        share = torch.bincount(experts.flatten(), minlength=self.s.num_experts).float() / x.shape[0]
        return weights, experts, self.s.aux_alpha * (share * probs.mean(dim=0)).sum()

    def mix(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        """The experts' outputs for x [tokens, hidden], weighted and summed."""
        s = self.s
        slots = experts.flatten()
        order = slots.argsort(stable=True)
        counts = torch.bincount(slots, minlength=s.num_experts).tolist()
        token = order // s.experts_per_token
        rows = x.index_select(0, token).split(counts)
        products = []
        for expert, part in enumerate(rows):
            gate, up = (part @ self.gate_up[expert].T).chunk(2, dim=-1)
            products.append((F.silu(gate) * up) @ self.down[expert].T)
        weighed = torch.cat(products) * weights.flatten().index_select(0, order)[:, None]
        return torch.zeros_like(x).index_add_(0, token, weighed)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
        x = self.attend(x, cosine, sine)
        y = self.norm2(x).flatten(0, 1)
        weights, experts, aux = self.route(y)
        return x + self.mix(y, weights, experts).view_as(x), aux


class Model(nn.Module):
    """The whole model, with its loss."""

    def __init__(self, s: MoEConfig, length: int) -> None:
        super().__init__()
        self.s = s
        self.embed = nn.Embedding(s.vocab_size, s.hidden_size)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.num_layers))
        self.norm = nn.RMSNorm(s.hidden_size, eps=1e-5)
        self.head = nn.Linear(s.hidden_size, s.vocab_size, bias=False)
        nn.init.normal_(self.embed.weight, 0, 0.02)
        nn.init.normal_(self.head.weight, 0, 0.02)
        frequency = s.rope_base ** (-torch.arange(0, s.head_dim, 2, dtype=torch.float64) / s.head_dim)
        angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
        self.register_buffer("cosine", angle.cos().float(), persistent=False)
        self.register_buffer("sine", angle.sin().float(), persistent=False)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.embed(ids)
        aux = torch.zeros((), device=x.device)
        for block in self.blocks:
            x, one = block(x, self.cosine, self.sine)
            aux = aux + one
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + aux


class Step:
    """One training step: loss, gradients, clipping, AdamW. The loss stays on the device. With `autocast` the products
    take their factors in that dtype, and parameters and moments stay f32."""

    def __init__(
        self,
        s: MoEConfig,
        length: int,
        compiled: bool,
        device: str = "cpu",
        autocast: torch.dtype | None = None,
    ) -> None:
        torch.manual_seed(0)
        self.autocast = torch.autocast(device.partition(":")[0], autocast, enabled=autocast is not None)
        with torch.device(device):
            self.model = Model(s, length)
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        gains = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}],
            lr=3e-4,
            betas=(0.9, 0.95),
            fused=True,
        )
        if compiled:
            self.loss = torch.compile(self.model, dynamic=None)
        else:
            self.loss = self.model

    def __call__(self, ids: Tensor, targets: Tensor) -> Tensor:
        with self.autocast:
            loss = self.loss(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()
