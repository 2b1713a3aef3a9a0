"""The peer's side of each work, in PyTorch at its best on a CPU.

f32 products are measured at the precision setting that is fastest among those whose error is that of f32. "medium"
sends products to oneDNN, which is twice the default's speed on some processors, but multiplies in bf16 on those with
AMX.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import torch
import torch.nn.functional as F

from .work import Array, Side

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def prepare(threads: int) -> str:
    """Sets the number of threads and the best precision setting; gives that setting's name."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("medium")
    a, b = torch.randn(64, 768), torch.randn(64, 768)
    exact = a.double() @ b.double().T
    error = float(((a @ b.T).double() - exact).abs().max() / exact.abs().max())
    setting = "medium" if error < 1e-5 else "highest"
    torch.set_float32_matmul_precision(setting)
    return setting


def _read(*tensors: torch.Tensor) -> list[Array]:
    return [t.detach().float().numpy() for t in tensors]


class _Last:
    """Keeps what the last call gave, as a caller would."""

    value: tuple[torch.Tensor, ...] = ()

    def side(self, run: object) -> Side:
        def call() -> None:
            out = run()  # type: ignore[operator]
            self.value = out if isinstance(out, tuple) else (out,)

        return Side(call, lambda: _read(*self.value))


def linear(arrays: dict[str, Array], dtype: str, copies: int = 1) -> Side:
    x = torch.from_numpy(arrays["x"]).to(_DTYPES[dtype])
    w = torch.from_numpy(arrays["w"]).to(_DTYPES[dtype])
    weights = cycle([w.clone() for _ in range(copies)])
    return _Last().side(lambda: F.linear(x, next(weights)))


def attention(arrays: dict[str, Array], backward: bool) -> Side:
    q, k, v, dout = (torch.from_numpy(arrays[n]).transpose(1, 2).contiguous() for n in ("q", "k", "v", "dout"))

    def back(t: torch.Tensor) -> torch.Tensor:
        return t.transpose(1, 2)[0]

    def forward() -> tuple[torch.Tensor, ...]:
        return (F.scaled_dot_product_attention(q, k, v, is_causal=True),)

    def both() -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (q, k, v)]
            out = F.scaled_dot_product_attention(*leaves, is_causal=True)
            return (out.detach(), *torch.autograd.grad(out, leaves, dout))

    last = _Last()
    side = last.side(both if backward else forward)
    return Side(side.run, lambda: _read(*(back(t) for t in last.value)))


def softmax(arrays: dict[str, Array]) -> Side:
    x = torch.from_numpy(arrays["x"])
    return _Last().side(lambda: F.softmax(x, dim=-1))


def cross_entropy(arrays: dict[str, Array]) -> Side:
    logits, targets = torch.from_numpy(arrays["logits"]), torch.from_numpy(arrays["targets"].astype(np.int64))

    def run() -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            return torch.autograd.grad(F.cross_entropy(leaf, targets), leaf)

    return _Last().side(run)


def rmsnorm(arrays: dict[str, Array]) -> Side:
    x, dy, weight = (torch.from_numpy(np.asarray(arrays[n], np.float32)) for n in ("x", "dy", "weight"))

    def run() -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            leaf, gain = x.detach().requires_grad_(), weight.detach().requires_grad_()
            y = F.rms_norm(leaf, (x.shape[-1],), gain, 1e-5)
            dx, _ = torch.autograd.grad(y, (leaf, gain), dy)
            return y.detach(), dx

    return _Last().side(run)


def swiglu(arrays: dict[str, Array]) -> Side:
    gate, up = torch.from_numpy(arrays["gate"]), torch.from_numpy(arrays["up"])
    return _Last().side(lambda: F.silu(gate).mul_(up))


def add(arrays: dict[str, Array]) -> Side:
    a, b = torch.from_numpy(arrays["a"]), torch.from_numpy(arrays["b"])
    return _Last().side(lambda: a + b)


def rope(arrays: dict[str, Array]) -> Side:
    x = torch.from_numpy(arrays["x"])
    tokens, _, dim = x.shape
    angle = torch.outer(torch.arange(tokens, dtype=torch.float64), 10000.0 ** (-torch.arange(0, dim, 2) / dim).double())
    cosine, sine = angle.cos().float()[:, None], angle.sin().float()[:, None]

    def run() -> torch.Tensor:
        u, v = x.chunk(2, dim=-1)
        return torch.cat((u * cosine - v * sine, v * cosine + u * sine), dim=-1)

    return _Last().side(run)


def adamw(arrays: dict[str, Array]) -> Side:
    param = torch.nn.Parameter(torch.from_numpy(arrays["param"]).clone())
    param.grad = torch.from_numpy(arrays["grad"])
    optimizer = torch.optim.AdamW([param], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def run() -> torch.Tensor:
        optimizer.step()
        return param

    return _Last().side(run)


def top_p(arrays: dict[str, Array]) -> Side:
    logits = torch.from_numpy(arrays["logits"])

    def run() -> torch.Tensor:
        ordered, index = F.softmax(logits, dim=-1).sort(dim=-1, descending=True)
        ordered = ordered.masked_fill(ordered.cumsum(dim=-1) - ordered >= 0.9, 0.0)
        return index.gather(-1, torch.multinomial(ordered, 1))

    side = _Last().side(run)
    return Side(side.run, list)
