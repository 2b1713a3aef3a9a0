"""Cases that are too large to store: big enough for every kernel to cut its work into tasks, tiles and blocks."""

from . import attention, decode, gemm, loss, moe, optimizer, rmsnorm, softmax
from .case import FLOATS, case

ATTENTION = (
    (2, 130, 130, 4, 1, 64, 1),
    (1, 33, 300, 2, 2, 72, 1),
    (1, 257, 129, 2, 2, 16, 1),
    (1, 66, 66, 2, 1, 256, 0),
    (1, 70, 70, 4, 2, 128, 1),
)
PRODUCTS = ((150, 170, 530), (1, 530, 300), (3, 130, 1100), (65, 70, 33))


def cases():
    for dtype in FLOATS:
        yield from of_dtype(dtype)
    yield from gemm_shapes("bf16", "f32")
    for k, experts, capacity in ((2, 8, 0), (3, 10, 150)):
        yield case(
            "moe_plan",
            f"tokens3000-k{k}-experts{experts}-capacity{capacity}",
            lambda d, k=k, e=experts, c=capacity: {
                "indices": moe.choices(d, 3000, k, e),
                "experts": e,
                "capacity": c,
            },
        )
    yield case("increment", "n40003", lambda d: {"x": d.integers(40003, high=1 << 20), "by": 3})
    yield case("aux_loss_forward", "tokens5000", lambda d: loss.balance(d, 5000, 16, 4))
    yield case("random_bits", "n100001", lambda d: {"n": 100001, "seed": 7, "stream": 1, "offset": 2**32 - 3})
    yield case(
        "rope_freqs",
        "positions3000",
        lambda d: {"positions": 3000, "head_dim": 64, "first": 1000, "base": 10000.0, "ntk_alpha": 8.0},
    )


def of_dtype(dtype):
    yield case("silu", "n40003", lambda d: {"x": d.bell(40003, scale=3)}, dtype)
    yield case("add", "n40003", lambda d: {"a": d.bell(40003), "b": d.bell(40003)}, dtype)
    yield case("fill", "n100003", lambda d: {"n": 100003, "value": 0.1}, dtype)
    yield case("zero_grad", "n100003", lambda d: {"n": 100003}, dtype)
    yield case("swiglu", "rows301", lambda d: {"gate": d.bell(301, 130), "up": d.bell(301, 130), "ld": 260}, dtype)
    yield case(
        "swiglu_backward",
        "rows301",
        lambda d: {"dy": d.bell(301, 130), "gate": d.bell(301, 130), "up": d.bell(301, 130), "ld": 260},
        dtype,
    )
    for rows, cols in ((300, 257), (7, 5001)):
        label = f"rows{rows}-cols{cols}"
        yield case("softmax", label, lambda d, r=rows, n=cols: {"x": d.bell(r, n, scale=3)}, dtype)
        yield case("softmax_backward", label, lambda d, r=rows, n=cols: softmax.backward(d, r, n, dtype), dtype)
        yield case("rmsnorm", label, lambda d, r=rows, n=cols: rmsnorm.forward(d, r, n), dtype)
        yield case("rmsnorm_backward", label, lambda d, r=rows, n=cols: rmsnorm.backward(d, r, n, dtype, 1), dtype)
        yield case("cross_entropy_forward", label, lambda d, r=rows, n=cols: loss.forward(d, r, n, [3, 5]), dtype)
        yield case(
            "cross_entropy_backward",
            label,
            lambda d, r=rows, n=cols: loss.backward(loss.forward(d, r, n, [3, 5]), dtype),
            dtype,
        )
    yield case("rmsnorm_backward", "rows2100-cols33", lambda d: rmsnorm.backward(d, 2100, 33, dtype, 0), dtype)
    yield case("softmax_topk", "rows1500", lambda d: softmax.router(softmax.distinct(d, 1500, 16), 4, 1), dtype)
    yield case(
        "softmax_topk_backward",
        "rows1500",
        lambda d: softmax.backward_of(d.bell(1500, 16), 4, 1, d, dtype, True),
        dtype,
    )
    yield from gemm_shapes(dtype, dtype)
    yield case(
        "embedding",
        "tokens3000",
        lambda d: {"table": d.bell(50, 65), "ids": d.integers(3000, high=50)},
        dtype,
    )
    yield case(
        "scatter_add",
        "tokens3000",
        lambda d: {"x": d.bell(3000, 65), "ids": d.integers(3000, high=50), "table": d.bell(50, 65)},
        dtype,
    )
    for shape in ATTENTION if dtype != "f16" else ATTENTION[:1]:
        yield from attention.of_shape(dtype, *shape)
    for lengths, heads, kv_heads, head_dim in (([2000, 1, 1300], 4, 1, 64), ([700, 699], 8, 2, 128)):
        yield case(
            "attention_decode",
            f"heads{heads}-{kv_heads}-dim{head_dim}",
            lambda d, s=lengths, h=heads, kv=kv_heads, n=head_dim: attention.decode(d, s, max(s), h, kv, n, 0),
            dtype,
        )
    routing = (lambda d: moe.choices(d, 900, 3, 10)), 10, 250
    yield case("moe_gather", "tokens900", lambda d: moe.gather(d, *routing, 70), dtype)
    yield case("moe_gather_backward", "tokens900", lambda d: moe.gather_backward(d, *routing, 70), dtype)
    yield case("moe_combine", "tokens900", lambda d: moe.combine(d, *routing, 70, with_residual=1), dtype)
    yield case("moe_combine_backward", "tokens900", lambda d: moe.combine_backward(d, *routing, 70), dtype)
    yield case("adamw_step", "n50001", lambda d: optimizer.adamw(d, 50001, 30000, 7), dtype)
    yield case("grad_norm", "n200003", lambda d: {"grad": d.bell(200003)}, dtype)
    yield case("grad_clip", "n50001", lambda d: optimizer.clip(3.7, 1.0, d.bell(50001)), dtype)
    place = {"n": 100001, "seed": -9, "stream": 5, "offset": 2**32 - 7}
    yield case("uniform", "n100001", lambda d: {**place, "low": -1.0, "high": 2.0}, dtype)
    yield case("normal", "n100001", lambda d: {**place, "mean": 0.0, "std": 0.02}, dtype)
    yield case("argmax", "rows9-vocab5000", lambda d: {"logits": d.bell(9, 5000)}, dtype)
    for kernel in ("sample", "topk_sample", "topp_sample"):
        yield case(
            kernel,
            "rows3-vocab900",
            lambda d, k=kernel: decode.drawn(d, k, dtype, d.bell(3, 900, scale=2)),
            dtype,
        )


def gemm_shapes(dtype, dtype_c):
    kinds = {"dtype": dtype, "dtype_c": dtype_c}
    for m, n, k in PRODUCTS if dtype == dtype_c != "f16" else PRODUCTS[:1]:
        for trans_a, trans_b in gemm.TRANSPOSES if m > 1 else gemm.TRANSPOSES[:2]:
            yield case(
                "gemm",
                f"m{m}-n{n}-k{k}-ta{trans_a}-tb{trans_b}",
                lambda d, m=m, n=n, k=k, ta=trans_a, tb=trans_b: {
                    "a": gemm.swapped(d, m, k, ta),
                    "b": gemm.swapped(d, k, n, tb),
                    "trans_a": ta,
                    "trans_b": tb,
                },
                **kinds,
            )
    yield case(
        "batched_gemm",
        "batch7",
        lambda d: {
            "a": d.bell(7, 40, 60),
            "b": d.bell(7, 60, 50),
            "trans_a": 0,
            "trans_b": 0,
            **gemm.with_c(d, (7, 40, 50), 1.0, 1.0),
        },
        **kinds,
    )
    counts = [70, 0, 1, 129]
    yield case(
        "grouped_gemm",
        "rows210",
        lambda d: {
            "a": gemm.unread(d.bell(210, 90), 200),
            "b": d.bell(4, 130, 90),
            "offsets": gemm.offsets(counts),
            "c": gemm.nan(210, 130),
            "beta": 0.0,
            "trans_b": 1,
        },
        **kinds,
    )
    yield case(
        "grouped_gemm_wgrad",
        "rows210",
        lambda d: {
            "a": gemm.unread(d.bell(210, 90), 200),
            "b": gemm.unread(d.bell(210, 130), 200),
            "offsets": gemm.offsets(counts),
            "c": d.bell(4, 90, 130),
            "beta": 1.0,
        },
        **kinds,
    )
    if dtype == dtype_c:
        yield case(
            "gemm_epilogue",
            "m130-n270-k300",
            lambda d: {
                "a": d.bell(130, 300),
                "b": d.bell(270, 300, scale=0.1),
                "bias": d.bell(270),
                "residual": d.bell(130, 270),
                "activation": 1,
            },
            dtype,
        )
