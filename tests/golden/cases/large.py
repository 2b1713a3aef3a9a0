"""Cases that are too large or too many to store: sizes around vectors, blocks and tasks, and large enough for every
kernel to cut its work. By kernel: a recipe of the draw, the dtype and sizes, and the sizes of each case."""

import numpy as np

from . import (
    activation,
    attention,
    decode,
    digest,
    embedding,
    gemm,
    kvcache,
    lora,
    loss,
    moe,
    optimizer,
    quant,
    rmsnorm,
    rope,
    softmax,
    ternary,
)
from .case import FLOATS, Case, case, stored

FLAT = ((1000,), (16384,), (16385,), (40003,))
#: Rows, columns, and the distance of rows.
GATES = ((4, 1000, 1003), (70, 300, 300), (301, 130, 260), (2, 16385, 16388))
#: Around groups of four vectors, and blocks of 1024.
ROWS = (
    *((37, 256), (300, 257), (40, 300), (2, 1023), (2, 1024), (3, 1025), (2, 1088), (7, 5001), (3, 8192), (3, 8193)),
    (2, 33001),
)
NORMS = (
    *((300, 40), (37, 256), (37, 257), (40, 300), (37, 1024), (2, 1025), (7, 5001), (3, 8192), (3, 8193), (3, 20001)),
    (2, 33001),
)
#: Rows, experts, k, norm.
ROUTERS = (
    *((1500, 16, 4, 1), (300, 24, 5, 0), (3, 5, 5, 1), (4, 64, 64, 1), (21, 17, 3, 0), (21, 65, 64, 1)),
    *((21, 257, 8, 0), (21, 1024, 64, 1), (21, 1025, 9, 0), (2, 1500, 64, 0)),
)
#: Tokens, heads, head_dim, gap between rows.
ROTATED = (*((7, 3, n, gap) for n in (4, 6, 10, 16, 24, 32, 40, 80, 128, 250) for gap in (0, 5)), (700, 5, 40, 0))
TABLES = ((40, 9, 16), (33, 50, 17), (300, 11, 130), (70, 40, 768), (3, 4, 20001), (3000, 50, 65), (70000, 3, 1))
STEPS = ((1000, 1000, 1), (16384, 8192, 7), (50001, 30000, 100000))
#: Around the blocks of the one pass over logits; the last is one task a row forward and several a row backward.
LOGITS = (
    *((300, 33), (3, 2047), (3, 2048), (3, 2049), (5, 4096), (5, 4097), (13, 5001), (5, 16385), (1000, 37), (1100, 2)),
    *((2, 50257), (3, 70001)),
)
#: Tokens, k, experts, capacity: k = experts, pieces of uneven length, many experts.
PLANS = (
    *((64, 8, 8, 0), (100, 2, 64, 3), (512, 4, 16, 0), (513, 4, 16, 128), (1000, 3, 7, 1), (2048, 4, 16, 640)),
    *((3000, 2, 1500, 0), (4099, 3, 16, 10**12)),
)
MOVES = (
    *((1, 4, 4, 0, 64), (33, 4, 8, 10, 31), (64, 3, 3, 0, 33), (50, 2, 5, 15, 768), (200, 4, 16, 20, 17)),
    *((600, 4, 16, 140, 130), (1500, 4, 16, 300, 65)),
)
PRODUCTS = (
    *((1, 33, 7), (2, 100, 65), (3, 17, 130), (4, 5, 257), (5, 67, 31), (6, 16, 64), (7, 129, 2), (8, 40, 300)),
    *((9, 1, 1), (13, 31, 37), (14, 32, 512), (15, 33, 513), (16, 16, 16), (17, 47, 1023), (29, 64, 33), (31, 97, 64)),
    *((32, 32, 32), (33, 15, 1100), (61, 83, 259), (100, 1, 70), (128, 8, 96), (1, 530, 300), (3, 130, 1100)),
    *((65, 70, 33), (150, 170, 530)),
)
#: Rows a power of two apart, and rows that begin anywhere in a line, where several panels of A meet a wide B: lda last.
PACKED = ((192, 512, 1024, 1024), (80, 300, 1088, 1091), (193, 515, 512, 3072))
#: Of groups: their rows, the rows behind them, columns, terms.
GROUPS = (
    *(((5, 0, 1, 17, 0), 0, 33, 65), ((0, 0, 64), 1, 64, 16), ((40,), 2, 7, 600), ((33, 14, 0, 16), 1, 20, 1)),
    *(((1, 2, 3, 4, 5, 6, 7, 8, 9), 0, 130, 30), ((70, 0, 1, 129), 10, 130, 90), ((1, 0, 3, 20, 1), 1, 1300, 130)),
    ((700, 1, 520), 0, 35, 17),
)
#: batch, q_len, kv_len, heads, kv_heads, head_dim, causal; what queries are multiplied by: above 1 the softmax gets
#: sharp. Every query head of a key head leaves dK and dV of its own: in the two before the last, more of them are added
#: than there are pieces of queries, 8 at most.
ATTENTION = (
    *((200, 1, 1, 1, 1, 8, 1, 1), (16, 1, 300, 4, 2, 64, 1, 1), (40, 3, 5, 2, 1, 8, 0, 1), (2, 65, 65, 4, 1, 40, 1, 1)),
    *((1, 13, 290, 2, 1, 64, 1, 1), (1, 290, 13, 2, 1, 40, 1, 1), (1, 129, 31, 3, 3, 80, 0, 1)),
    *((1, 97, 257, 2, 2, 128, 1, 1), (1, 66, 66, 2, 1, 256, 0, 1), (1, 24, 24, 2, 1, 24, 1, 1)),
    (1, 50, 67, 2, 1, 256, 1, 1),
    *((1, 300, 300, 1, 1, 64, 1, 30), (1, 530, 530, 1, 1, 32, 1, 1), (2, 130, 130, 4, 1, 64, 1, 1)),
    *((1, 33, 300, 2, 2, 72, 1, 8), (1, 257, 129, 2, 2, 16, 1, 1), (8, 70, 70, 3, 1, 16, 1, 1)),
    *((1, 20, 20, 9, 1, 16, 1, 1), (2, 30, 30, 22, 2, 8, 1, 1), (2, 200, 210, 6, 3, 8, 1, 1)),
)
#: heads, kv_heads, head_dim, lengths
DECODING = (
    *((4, 2, 64, (0, 1, 15, 16, 40)), (12, 1, 64, (700, 256, 513)), (2, 2, 40, (300, 257)), (6, 2, 8, (33, 9))),
    *((5, 1, 256, (289,)), (4, 4, 128, (65, 270)), (3, 1, 24, (50, 1, 0)), (4, 1, 64, (2000, 1, 1300))),
)
#: The format of pages, heads, kv_heads, head_dim, elements behind a token's queries, lengths, new tokens.
PREFILLING = (
    *(("f32", 4, 2, 64, 0, (5,), (5,)), ("f16", 4, 4, 80, 0, (1, 127, 0, 128), (1, 5, 0, 128))),
    *(("f16", 16, 2, 64, 256, (129, 3), (129, 2)), ("bf16", 12, 1, 128, 0, (640, 129), (30, 1))),
    *(("f32", 3, 1, 256, 8, (260,), (131,)), ("q8_0", 8, 1, 64, 0, (130, 40), (130, 7))),
    *(("f16", 130, 1, 8, 0, (20,), (9,)), ("bf16", 6, 2, 64, 128, (150,), (40,)), ("f16", 3, 3, 24, 0, (50,), (50,))),
    ("q8_0", 2, 1, 32, 0, (70,), (70,)),
)
PAGED = (
    *(("f32", 4, 2, 64, 0, (0, 1, 127, 128, 129, 640)), ("f16", 4, 4, 80, 24, (3, 0, 255))),
    *(("bf16", 12, 1, 128, 0, (640, 1)), ("q8_0", 8, 1, 64, 128, (300, 129)), ("f16", 2, 1, 256, 0, (257,))),
    *(("f16", 130, 1, 8, 0, (140,)), ("f16", 8, 1, 64, 0, (131, 7)), ("f32", 3, 3, 24, 0, (12,))),
)
#: Starts, length, capacity, kv_heads, head_dim.
STORED = (((0, 8, 4), 1, 9, 2, 16), ((4, 0), 5, 9, 1, 64), ((1, 0), 300, 301, 3, 40))
#: kv_heads, head_dim, lengths, new tokens
APPENDED = ((1, 32, (1,), (1,)), (2, 64, (0, 127, 128, 129, 640), (0, 1, 128, 3, 513)), (3, 96, (300, 5), (44, 0)))


def vectors(*names, scale=1.0, **scalars):
    return lambda d, dtype, n: {**{name: d.bell(n, scale=scale) for name in names}, **scalars}


def of_n(**scalars):
    return lambda d, dtype, n: {"n": n, **scalars}


def gates(*names):
    return lambda d, dtype, rows, dim, ld: {**{name: d.bell(rows, dim, scale=2) for name in names}, "ld": ld}


def rotation(x, ld_x="ld_x", ld_y="ld_y"):
    def recipe(d, dtype, tokens, heads, head_dim, gap, layout):
        angles = d.uniform(50, head_dim // 2, low=-3, high=3)
        tables = {"cosine": stored(np.cos(angles)), "sine": stored(np.sin(angles))}
        lds = {ld_x: heads * head_dim + gap, ld_y: heads * head_dim + 2 * gap}
        positions = d.integers(tokens, high=50)
        return {x: d.bell(tokens, heads, head_dim), **tables, "positions": positions, "layout": layout, **lds}

    return recipe


def routing(of, **more):
    def recipe(d, dtype, tokens, k, experts, capacity, dim):
        return of(d, lambda d: moe.choices(d, tokens, k, experts), experts, capacity, dim, **more)

    return recipe


def anywhere(d, dtype, tokens, k, rows, dim):
    """As no plan has it: a slot may have several rows, and any row may have no slot."""
    return {"x": d.bell(tokens, dim), "row_slot": d.integers(rows, low=-1, high=tokens * k), "tokens": tokens, "k": k}


def plan(d, dtype, tokens, k, experts, capacity):
    return {"indices": moe.choices(d, tokens, k, experts), "experts": experts, "capacity": capacity}


def routed(d, dtype, *sizes):
    return moe.route(d, *sizes, norm=1, loss=1)


def one_expert(d, dtype, tokens, capacity):
    return {"indices": np.full((tokens, 1), 3, np.int32), "experts": 5, "capacity": capacity}


def lost(d, dtype, rows, vocab):
    return loss.forward(d, rows, vocab, slice(1, -1, 3))


def cached(d, dtype, starts, length, capacity, kv_heads, head_dim):
    return kvcache.append(d, starts, length, capacity, kv_heads, head_dim, 2 * kv_heads * head_dim + 8)


def trimmed(d, dtype, keep):
    return kvcache.trim(d, [0, 7, 13, 20], 20, 2, 24, keep)


def ended(d, dtype, m, n, k):
    return ternary.product(d, m, n, k, dtype, residual=True)


def appended(d, dtype, kv_heads, head_dim, lengths, fresh, storage):
    return kvcache.append_paged(d, storage, lengths, fresh, kv_heads, head_dim, 2 * kv_heads * head_dim, 0)


def prefilled(d, dtype, storage, heads, kv_heads, head_dim, extra, lengths, fresh=None):
    return attention.paged(d, storage, lengths, fresh, heads, kv_heads, head_dim, extra, 0)


def stepped(d, dtype, storage, heads, kv_heads, head_dim, extra, lengths):
    lengths = [max(length, 1) for length in lengths]
    return attention.step_paged(d, storage, lengths, heads, kv_heads, head_dim, extra, len(lengths) % 2)


def decoded(d, dtype, heads, kv_heads, head_dim, lengths):
    return attention.decode(d, lengths, max(lengths), heads, kv_heads, head_dim, 8)


LAYOUTS = tuple((*sizes, layout) for sizes in ROTATED for layout in (0, 1))
WEIGHTS = ((130, 129), (64, 1000), (5, 2560), (300, 333))
PLACE = {"seed": -9, "stream": 5, "offset": 2**32 - 7}
#: In every dtype.
TABLE = {
    "silu": (vectors("x", scale=3), FLAT),
    "silu_backward": (vectors("dy", "x", scale=3), FLAT),
    "add": (vectors("a", "b"), FLAT),
    "mul": (vectors("a", "b"), FLAT),
    "scale": (vectors("x", alpha=-0.37), FLAT),
    "fill": (of_n(value=0.1), ((129,), (100003,))),
    "zero_grad": (of_n(), ((64,), (100003,))),
    "swiglu": (gates("gate", "up"), GATES),
    "relu2_gate": (gates("gate", "up"), GATES),
    "swiglu_backward": (gates("dy", "gate", "up"), (*GATES, (50, 1501, 3002))),
    "relu2_gate_backward": (gates("dy", "gate", "up"), GATES),
    "softmax": (lambda d, dtype, *sizes: {"x": d.bell(*sizes, scale=3)}, ROWS),
    "softmax_backward": (lambda d, dtype, *sizes: softmax.backward(d, *sizes, dtype), ROWS),
    "softmax_topk": (
        lambda d, dtype, rows, cols, k, norm: softmax.router(softmax.distinct(d, rows, cols), k, norm),
        ROUTERS,
    ),
    "softmax_topk_backward": (
        lambda d, dtype, rows, cols, k, norm, probs: softmax.backward_of(d.bell(rows, cols), k, norm, d, dtype, probs),
        tuple((*sizes, i % 2) for i, sizes in enumerate(ROUTERS)),
    ),
    "rmsnorm": (lambda d, dtype, *sizes: rmsnorm.forward(d, *sizes), NORMS),
    "rmsnorm_residual": (lambda d, dtype, *sizes: rmsnorm.added(d, *sizes), NORMS),
    "rmsnorm_backward": (
        lambda d, dtype, rows, cols, residual: rmsnorm.backward(d, rows, cols, dtype, residual),
        (*((*sizes, 1) for sizes in NORMS), (2100, 33, 0), (3000, 51, 1), (8300, 20, 0), (40000, 3, 0)),
    ),
    "rope_forward": (rotation("x"), LAYOUTS),
    "rope_backward": (rotation("dy", "ld_y", "ld_x"), LAYOUTS),
    "embedding": (
        lambda d, dtype, *sizes: embedding.table(d, *sizes),
        TABLES,
    ),
    "scatter_add": (lambda d, dtype, *sizes: embedding.scattered(d, *sizes), TABLES),
    "adamw_step": (lambda d, dtype, *sizes: optimizer.adamw(d, *sizes), STEPS),
    "grad_norm": (vectors("grad"), (*FLAT, (300001,))),
    "grad_clip": (lambda d, dtype, n: optimizer.clip(3.7, 1.0, d.bell(n)), ((50001,),)),
    "cross_entropy_forward": (lost, LOGITS),
    "cross_entropy_backward": (lambda d, dtype, *sizes: loss.backward(lost(d, dtype, *sizes), dtype), LOGITS),
    "moe_gather": (routing(moe.gather), MOVES),
    "moe_gather_backward": (routing(moe.gather_backward), MOVES),
    "moe_combine": (routing(moe.combine, with_residual=1), MOVES),
    "moe_combine_backward": (routing(moe.combine_backward), MOVES),
    "moe_output_backward": (
        lambda d, dtype, *sizes: moe.output_backward(d, *sizes, norm=1),
        ((1, 4, 5, 0, 64), (33, 4, 8, 10, 31), (50, 2, 65, 15, 768), (600, 4, 24, 140, 130), (6, 3, 1500, 0, 17)),
    ),
    "moe_route_backward": (
        lambda d, dtype, *sizes: moe.route_backward(d, *sizes, norm=1),
        ((300, 2, 24), (40, 4, 300), (6, 3, 1500)),
    ),
    "attention_decode": (decoded, DECODING),
    "flash_attention_paged": (prefilled, PREFILLING),
    "attention_decode_paged": (prefilled, PAGED),
    "attention_step_paged": (stepped, PAGED),
    "kv_append": (cached, STORED),
    "kv_trim": (trimmed, ((0,), (1,), (7,), (12,), (20,))),
    "kv_append_paged": (appended, tuple((*sizes, storage) for sizes in APPENDED for storage in kvcache.STORAGE)),
    "act_dequant_i8": (lambda d, dtype, *sizes: activation.eight_bits(d, *sizes), ((9, 100), (4, 2560), (70, 65))),
    "act_quant_i8": (lambda d, dtype, *sizes: {"x": d.bell(*sizes)}, ((9, 100), (4, 2560), (70, 65))),
    "ternary_quantize": (lambda d, dtype, *sizes: {"x": d.bell(*sizes, scale=0.05)}, WEIGHTS),
    "bitlinear": (ended, ((1, 50, 700), (20, 40, 100), (70, 33, 6912), (1, 3000, 300))),
    "uniform": (of_n(**PLACE, low=-1.0, high=2.0), ((100001,),)),
    "normal": (of_n(**PLACE, mean=0.0, std=0.02), ((100001,),)),
    "argmax": (lambda d, dtype, *sizes: {"logits": d.bell(*sizes)}, ((9, 5000), (24, 1025), (3, 50001))),
    **{
        kernel: (
            lambda d, dtype, rows, vocab, kernel=kernel: decode.drawn(d, kernel, dtype, d.bell(rows, vocab, scale=2)),
            ((3, 900),),
        )
        for kernel in ("sample", "topk_sample", "topp_sample", "minp_sample")
    },
    "penalize_logits": (lambda d, dtype, *sizes: decode.penalized(d, *sizes), ((9, 5000, 900), (2, 50001, 8193))),
    "bias_logits": (lambda d, dtype, *sizes: decode.biased(d, *sizes), ((9, 5000, 2700), (2, 50001, 600))),
    "mask_logits": (lambda d, dtype, *sizes: decode.masked(d, *sizes), ((9, 5000, 4, 157), (3, 50001, 2, 1500))),
    "logprobs": (lambda d, dtype, *sizes: decode.of_choice(d, *sizes), ((9, 5000, 5), (24, 1025, 20), (3, 50001, 128))),
}
#: Without a dtype.
TABLE_OF_F32 = {
    "moe_plan": (plan, PLANS),
    "aux_loss_forward": (
        lambda d, dtype, tokens, experts: loss.balance(d, tokens, experts, min(4, experts)),
        ((511, 16), (512, 16), (513, 7), (5000, 16), (100, 300), (3, 9000)),
    ),
    "aux_loss_backward": (
        lambda d, dtype, tokens, experts: loss.balance_gradient(d, tokens, experts, min(4, experts), 0.25),
        ((513, 7), (5001, 13), (3, 9000)),
    ),
    "weighted_mean": (lambda d, dtype, n: loss.mean(d, n, True, 77), ((1000,), (5000,))),
    "count_tokens": (
        lambda d, dtype, *sizes: decode.counted(d, *sizes),
        ((9, 5000, 900), (2, 50001, 8193), (3, 300, 300)),
    ),
    "pool_rows": (
        lambda d, dtype, *sizes: embedding.pooled(d, *sizes, more=True),
        ((300, 257), (5, 4099), (1025, 64), (40, 1000)),
    ),
    "pool_unit": (lambda d, dtype, dim: embedding.unit(d, dim, 1.0), ((511,), (4096,), (50001,))),
    "increment": (lambda d, dtype, n: {"x": d.integers(n, high=1 << 20), "by": 3}, FLAT),
    "digest": (
        lambda d, dtype, n, width: digest.elements(d, n, 2**32 - 1000, width, (1, -2)),
        ((16385, 4), (40003, 2), (100001, 1)),
    ),
    "random_bits": (of_n(seed=7, stream=1, offset=2**32 - 3), ((100001,),)),
    "rope_freqs": (
        lambda d, dtype, *sizes: rope.freqs(d, *sizes, 10000.0, 8.0),
        ((3000, 64, 1000), (300, 128, 0), (40, 20, 10**6)),
    ),
}


#: Of moe_input_backward: tokens, k, experts, capacity, dim.
INPUTS = (1, 4, 5, 0, 64), (33, 4, 8, 10, 31), (50, 2, 64, 15, 768), (600, 6, 24, 140, 136), (300, 3, 300, 0, 72)


def named(kernel, recipe, sizes, dtype="", **dtypes) -> Case:
    label = "-".join(str(size).replace(" ", "") for size in sizes)
    return case(kernel, label, lambda d: recipe(d, dtype, *sizes), dtype, **dtypes)


def cases():
    for dtype in FLOATS:
        for kernel, (recipe, table) in TABLE.items():
            for sizes in table:
                yield named(kernel, recipe, sizes, dtype)
        yield named("moe_gather", anywhere, (10, 2, 20, 21), dtype)
        for sizes in (
            (1, 4, 5, 0, 64),
            (33, 4, 8, 10, 31),
            (50, 2, 64, 15, 768),
            (600, 6, 24, 140, 136),
            (300, 3, 300, 0, 72),
        ):
            for dtype_c in {dtype: 0, "f32": 0}:
                yield named("moe_input_backward", moe_input, sizes, dtype, dtype_c=dtype_c)
        for sizes in ((300, 2, 5, 0, 130), (2100, 2, 24, 60, 9), (40, 4, 300, 0, 65), (6, 3, 1500, 2, 17)):
            yield named("moe_route", routed, sizes, dtype, dtype_logits="f32")
        yield from products(dtype, dtype)
        for shape in ATTENTION:
            yield from attention.of_shape(dtype, *shape, extras=(shape[3] % 2 * 5,))
    yield from products("f16", "f32")
    yield from products("bf16", "f32")
    for kernel, (recipe, table) in TABLE_OF_F32.items():
        for sizes in table:
            yield named(kernel, recipe, sizes)
    for capacity in (0, 1, 1000):
        yield named("moe_plan", one_expert, (5000, capacity))
    for name in quant.FORMATS:
        block = quant.BLOCKS[name]
        for m, n in ((1, 1), (7, 33), (17, 70), (40, 130)):
            for k in (256, 2048) if block == 256 else (32, 544) if block == 32 else (31, 516):
                yield named("gemm_quant", lambda d, _, m, n, k, name: quant.product(d, m, n, k, name),
                            (m, n, k, name), "f32")  # fmt: skip
    for name in ("q8_0", "q4_k", "bf16"):
        yield named("gemm_quant_backward", lambda d, _, m, n, k, name: lora.product(d, m, n, k, name, 0.0),
                    (17, 300, 768, name), "f32")  # fmt: skip
    yield named("bitlinear_backward", lambda d, _, *sizes: lora.ternary_product(d, *sizes, 1.0), (12, 300, 530), "f32")
    for sizes in ((16641, 5547, 9), (40001, 30003, 5)):
        for kernel, recipe in (("adamw_step_bf16", optimizer.adamw), ("adamw_step_f8", optimizer.adamw_f8)):
            yield named(kernel, lambda d, dtype, *sizes, of=recipe: {**of(d, *sizes), "first": 0}, sizes, "bf16")


def moe_input(d, dtype, *sizes):
    return moe.input_backward(d, *sizes, beta=1.0)


def gated(d, dtype, *sizes):
    return gemm.gated(d, *sizes)


def sloped(d, dtype, *sizes):
    return gemm.slopes(d, *sizes)


def products(dtype, dtype_c):
    """Every shape both ways of each factor, one of its dtypes or another."""

    def one(kernel, recipe, sizes, *more):
        return named(kernel, lambda d, _, *sizes: recipe(d, *sizes, *more), sizes, dtype, dtype_c=dtype_c)

    options = ((1.0, 0.0), (1.0, 1.0), (-0.5, 0.0), (2.0, -1.5), (0.0, 1.0))
    for i, shape in enumerate(PRODUCTS):
        for both in gemm.TRANSPOSES if dtype == dtype_c != "f16" else gemm.TRANSPOSES[i % 4 :][:1]:
            yield one("gemm", gemm.product, (*shape, *both))
        gaps = (1 + i % 3,) * 3
        yield one("gemm_beta", gemm.apart, (*shape, *gemm.TRANSPOSES[i % 4], *gaps, *options[i % 5]))
        if dtype == dtype_c:
            ends = int(i % 2 > 0), int(i % 3 > 0), int(i % 5 < 2)
            yield named("gemm_epilogue", lambda d, _, *sizes: gemm.followed(d, *sizes, 0.3), (*shape, *ends), dtype)
    for i, shape in enumerate(((1, 1, 40, 30), (2, 9, 33, 65), (7, 40, 50, 60), (40, 3, 3, 3))):
        yield one("batched_gemm", gemm.many, (*shape, *gemm.TRANSPOSES[i]), 0.5, 2.0)
    for i, (counts, spare, n, k) in enumerate(GROUPS):
        sizes, beta = (counts, sum(counts) + spare), (0.0, 1.0, -0.5)[i % 3]
        yield one("grouped_gemm", gemm.of_rows, (*sizes, n, k, beta, (i + 1) % 2))
        if dtype == dtype_c:
            yield named("grouped_gemm_swiglu", gated, (*sizes, n, k), dtype)
            yield named("grouped_gemm_swiglu_backward", sloped, (*sizes, n, k), dtype)
        yield one("grouped_gemm_wgrad", gemm.of_terms, (*sizes, k, n, beta))
        if dtype != "f16":
            yield one("grouped_gemm_fp8", gemm.rows_in_8_bits, (*sizes, n, k, i % 2))
            yield one("grouped_gemm_wgrad_fp8", gemm.terms_in_8_bits, (*sizes, k, n, beta))
    if dtype == "bf16":  # as many tiles as a GPU has multiprocessors, so that it takes large ones
        yield one("grouped_gemm_fp8", gemm.rows_in_8_bits, ([3, 2], 6, 17000, 130, 1))
        yield one("grouped_gemm_wgrad_fp8", gemm.terms_in_8_bits, ([4, 0, 1, 140] * 3, 435, 390, 390, 1.0))
    if dtype == "bf16":
        for m, n, k, lda in PACKED:
            yield one("gemm_beta", gemm.apart, (m, n, k, 0, 1, lda - k, 0, 5, 1.0, 0.0))
