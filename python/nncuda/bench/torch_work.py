"""The peer's side of each work, in PyTorch at its best, on the memory that our side's inputs lie in.

On a CPU, f32 products are measured at the precision setting that is fastest among those whose error is that of f32.
"medium" sends products to oneDNN, which is twice the default's speed on some processors, but multiplies in bf16 on
those with AMX. On a GPU the setting is what the work asks for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..device import Context, Tensor
from .timing import Effort, Stopwatch, Timed, host_clock, interleave
from .work import Side, Work

Inputs = dict[str, torch.Tensor]


def prepare(ctx: Context) -> str:
    """Sets the number of threads and the best precision setting; gives that setting's name."""
    torch.set_grad_enabled(False)
    if ctx.device_type != 1:
        torch.cuda.set_device(ctx.device_index)
        return "as the work asks"
    torch.set_num_threads(ctx.threads)
    torch.set_float32_matmul_precision("medium")
    a, b = torch.randn(64, 768), torch.randn(64, 768)
    exact = a.double() @ b.double().T
    error = float(((a @ b.T).double() - exact).abs().max() / exact.abs().max())
    setting = "medium" if error < 1e-5 else "highest"
    torch.set_float32_matmul_precision(setting)
    return setting


class _DeviceMemory:
    """A tensor's memory on a GPU as other libraries read it, without a copy. The interface knows no bf16: its bits go
    as integers."""

    def __init__(self, tensor: Tensor) -> None:
        codes = {"f32": "<f4", "f16": "<f2", "bf16": "<i2", "i32": "<i4", "i64": "<i8", "i8": "|i1", "u8": "|u1"}
        self._tensor = tensor
        self.__cuda_array_interface__ = {
            "shape": tensor.shape,
            "typestr": codes[tensor.dtype],
            "data": (tensor.ptr, False),
            "version": 2,
        }


def view(tensor: Tensor) -> torch.Tensor:
    """The same memory as a torch tensor."""
    if tensor.ctx.device_type == 1:
        array = np.asarray(tensor)
        found = torch.from_numpy(array.view(np.int16) if tensor.dtype == "bf16" else array)
    else:
        found = torch.as_tensor(_DeviceMemory(tensor), device=f"cuda:{tensor.ctx.device_index}")
    return found.view(torch.bfloat16) if tensor.dtype == "bf16" else found


def difference(mine: Tensor, theirs: torch.Tensor) -> float:
    """The largest difference as a share of the largest value."""
    mine.ctx.synchronize()
    own = view(mine).float().reshape(-1)
    other = theirs.detach().float().reshape(-1)
    return float((own - other).abs().max() / other.abs().max())


def clock(ctx: Context) -> Stopwatch:
    """torch's own clock on this device."""
    if ctx.device_type == 1:
        return host_clock
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def measure(run: Callable[[], object], repeats: int) -> float:
        torch.cuda.synchronize()
        run()
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    return measure


def sides(ctx: Context, work: Work, sets: list[dict[str, Tensor]]) -> list[Side]:
    """The peer's side for each set of inputs."""
    ctx.synchronize()  # the inputs are there before another stream reads them
    if ctx.device_type != 1:
        torch.set_float32_matmul_precision("high" if work.tf32 else "highest")
    make = globals()[work.peer]
    return [make({n: view(t) for n, t in each.items()}, **work.peer_options) for each in sets]


def timed(ctx: Context, work: Work, made: list[Side]) -> Timed:
    """Those sides in turn, as a graph where the work says so."""
    calls = [side.run for side in made] * work.calls
    if ctx.device_type == 1 or not work.captured:
        return Timed(lambda: [call() for call in calls], len(calls), clock(ctx))
    for side in made:
        side.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return Timed(graph.replay, len(calls), clock(ctx))


def let_go() -> None:
    """Gives back what torch keeps for later, so that both sides find a device as empty."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _last(run: Callable[[], torch.Tensor | tuple[torch.Tensor, ...]]) -> Side:
    """Keeps what the last call gave, as a caller would."""
    kept: list[object] = []

    def call() -> None:
        out = run()
        kept[:] = out if isinstance(out, tuple) else (out,)

    return Side(call, lambda: kept)


def linear(t: Inputs) -> Side:
    return _last(lambda: F.linear(t["x"], t["w"]))


def grouped(t: Inputs, kind: str) -> Side:
    product = getattr(F, "grouped_mm", None) or torch._grouped_mm
    a, b, ends = t["a"], t["b"], t["offsets"][1:].contiguous()
    factors = (a.T if kind == "weights" else a, b.transpose(1, 2) if kind == "forward" else b)
    return _last(lambda: product(*factors, offs=ends))


def attention(t: Inputs, backward: bool) -> Side:
    q, k, v, dout = (t[n][None].transpose(1, 2).contiguous() for n in ("q", "k", "v", "dout"))
    shared = q.shape[1] != k.shape[1]

    def forward() -> tuple[torch.Tensor, ...]:
        return (F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared),)

    def both() -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            out = F.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=shared)
            return (out.detach(), *torch.autograd.grad(out, leaves, dout))

    run = both if backward else forward
    backend = _fastest_backend(run) if q.is_cuda else None

    def chosen() -> tuple[torch.Tensor, ...]:
        if backend is None:
            return run()
        with sdpa_kernel(backend):
            return run()

    kept = _last(chosen)
    return Side(kept.run, lambda: [x.transpose(1, 2)[0] for x in kept.results()])


def _fastest_backend(run: Callable[[], object]) -> SDPBackend:
    """Which of torch's attentions is the fastest that takes these inputs."""
    speeds: dict[SDPBackend, float] = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):

        def attempt(backend: SDPBackend = backend) -> None:
            with sdpa_kernel(backend):
                run()
            torch.cuda.synchronize()

        try:
            speeds[backend] = interleave({"": Timed(attempt)}, Effort(rounds=3, inner_seconds=0.0))[""].median
        except RuntimeError:  # it does not take them
            continue
    if not speeds:
        raise RuntimeError("no backend of torch's attention takes these inputs")
    return min(speeds, key=lambda backend: speeds[backend])


def softmax(t: Inputs) -> Side:
    return _last(lambda: F.softmax(t["x"], dim=-1))


def cross_entropy(t: Inputs) -> Side:
    logits, targets = t["logits"], t["targets"].long()

    def run() -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            return torch.autograd.grad(F.cross_entropy(leaf, targets), leaf)

    return _last(run)


def rmsnorm(t: Inputs) -> Side:
    x, dy, weight = t["x"], t["dy"], t["weight"]

    def run() -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            leaf, gain = x.detach().requires_grad_(), weight.detach().requires_grad_()
            y = F.rms_norm(leaf, (x.shape[-1],), gain, 1e-5)
            dx, _ = torch.autograd.grad(y, (leaf, gain), dy)
            return y.detach(), dx

    return _last(run)


def rmsnorm_forward(t: Inputs) -> Side:
    return _last(lambda: F.rms_norm(t["x"], (t["x"].shape[-1],), t["weight"], 1e-5))


def swiglu(t: Inputs) -> Side:
    return _last(lambda: F.silu(t["gate"]).mul_(t["up"]))


def swiglu_backward(t: Inputs) -> Side:
    gate, up, dy = t["gate"], t["up"], t["dy"]

    def run() -> tuple[torch.Tensor, ...]:
        return torch.ops.aten.silu_backward(dy * up, gate), F.silu(gate).mul_(dy)

    return _last(run)


def add(t: Inputs) -> Side:
    return _last(lambda: t["a"] + t["b"])


def rope(t: Inputs) -> Side:
    x = t["x"]
    tokens, _, dim = x.shape
    frequency = 10000.0 ** (-torch.arange(0, dim, 2, device=x.device).double() / dim)
    angle = torch.outer(torch.arange(tokens, dtype=torch.float64, device=x.device), frequency)
    cosine, sine = (table.float()[:, None].to(x.dtype) for table in (angle.cos(), angle.sin()))

    return _last(lambda: rotated(x, cosine, sine))


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Heads [..., head_dim] turned by the rotary embedding, whose pairs are half a head apart."""
    u, v = x.chunk(2, dim=-1)
    return torch.cat((u * cosine - v * sine, v * cosine + u * sine), dim=-1)


def adamw(t: Inputs) -> Side:
    param = torch.nn.Parameter(t["param"].clone())
    param.grad = t["grad"]
    optimizer = torch.optim.AdamW([param], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def run() -> torch.Tensor:
        optimizer.step()
        return param

    return _last(run)


def gather(t: Inputs) -> Side:
    x, slots = t["x"], t["row_slot"].long()
    token = slots // (slots.numel() // x.shape[0])
    return _last(lambda: x.index_select(0, token))


def combine(t: Inputs) -> Side:
    y, weights, rows = t["y"], t["weights"], t["slot_row"].long()

    def run() -> torch.Tensor:
        return torch.bmm(weights[:, None].to(y.dtype), y[rows])[:, 0]

    return _last(run)


def combine_backward(t: Inputs) -> Side:
    y, weights, rows, slots, dout = t["y"], t["weights"], t["slot_row"].long(), t["row_slot"].long(), t["dout"]
    token = slots // weights.shape[1]

    def run() -> tuple[torch.Tensor, ...]:
        dy = dout.index_select(0, token) * weights.flatten().index_select(0, slots)[:, None].to(y.dtype)
        return dy, torch.bmm(y[rows], dout[:, :, None])[:, :, 0]

    return _last(run)


def top_p(t: Inputs) -> Side:
    """Sampling by a sort, as most programs do it; it draws other tokens than ours."""
    logits = t["logits"]

    def run() -> None:
        ordered, index = F.softmax(logits, dim=-1).sort(dim=-1, descending=True)
        ordered = ordered.masked_fill(ordered.cumsum(dim=-1) - ordered >= 0.9, 0.0)
        index.gather(-1, torch.multinomial(ordered, 1))

    return Side(run, list)


def sort(t: Inputs) -> Side:
    """The sort alone, of which a draw by sorting needs more."""
    logits = t["logits"]
    return Side(lambda: logits.sort(dim=-1, descending=True), list)
