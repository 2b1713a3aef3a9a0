"""What is measured on a CPU and on a GPU, in the order of the tables."""

from __future__ import annotations

from . import decode, paged, products, stored, ternary
from .attention import attention
from .little import little
from .rows import Mover
from .work import Bar, Work

_COLD_WEIGHTS = 3 << 29  # bytes of weights in rotation: far beyond any cache
_COLD_PAGES = 1 << 28  # as many layers' caches take turns in a model


def cpu() -> list[Work]:
    """The sizes of the `small` model and of a batch of a few sequences."""
    shapes = [(2048, 768, 768), (2048, 768, 6144), (2048, 6144, 768), (512, 768, 32000), (2048, 2048, 2048)]
    rows = [(768, 6144), (2048, 5632), (2048, 32000)]
    layer = [(2048, 5632), (5632, 2048), (2048, 2048)]  # of TinyLlama
    bitnet = [(2560, 3840), (2560, 2560), (2560, 13824), (6912, 2560)]  # of BitNet b1.58 2B-4T
    move = Mover("f32")
    return [
        *(products.gemm(*shape, "f32", "fma_f32", Bar(times_peer=1.0)) for shape in shapes),
        *(products.gemm(*shape, "bf16", "dot_bf16", Bar(times_peer=0.95)) for shape in shapes),
        *(products.gemv(k, n, dtype, _COLD_WEIGHTS) for dtype in ("f32", "bf16") for k, n in rows),
        *(
            stored.product(1, k, n, name, "read", Bar(share=share), _COLD_WEIGHTS)
            for name, share in (("q4_0", 0.85), ("q8_0", 0.90), ("q6_k", None), ("f16", 0.85))
            for k, n in (*layer, (2048, 32000))
        ),
        *(
            stored.product(1, 5632, 2048, name, "read", Bar(share=0.88), _COLD_WEIGHTS)
            for name in ("q4_k", "q5_k", "q4_1", "q5_0", "q5_1")
        ),
        *(
            stored.product(1, 5632, 2048, name, "read", Bar(share=0.85), _COLD_WEIGHTS)
            for name in ("iq4_nl", "mxfp4", "iq4_xs", "q2_k", "q3_k")
        ),
        *(
            stored.product(512, k, n, name, "dot_bf16" if name in ("f16", "bf16") else "dot_int8", Bar())
            for name in ("q4_0", "q8_0", "q6_k", "q4_k", "f16", "bf16")
            for k, n in layer
        ),
        *(
            stored.gradient(512, 2048, 5632, name, dtype, floor, Bar())
            for name in ("q8_0", "q4_0")
            for dtype, floor in (("f32", "fma_f32"), ("bf16", "dot_bf16"))
        ),
        *(stored.ternary(1, k, n, "read", Bar(share=0.80), _COLD_WEIGHTS) for k, n in bitnet),
        *(stored.ternary(64, k, n, "dot_int8", Bar()) for k, n in bitnet),
        *(
            attention(
                tokens, 12, 12, 64, "f32", backward, "fma_f32",
                Bar(times_peer=1.4, share=0.60 if tokens >= 2048 else None),
            )
            for tokens in (512, 2048)
            for backward in (False, True)
        ),
        *(attention(2048, 12, 12, 64, "bf16", backward, "dot_bf16", Bar(share=0.60)) for backward in (False, True)),
        paged.prefill(512, 32, 4, 64, "fma_f32", Bar(share=0.45)),
        paged.decode(2048, 32, 4, 64, "read", Bar(share=0.5), _COLD_PAGES),
        paged.decode(16384, 32, 4, 64, "read", Bar(share=0.5), _COLD_PAGES),
        *(paged.decode(16384, 32, 4, 64, "read", Bar(), _COLD_PAGES, form) for form in ("f32", "bf16", "q8_0")),
        *(paged.decode_one_piece(16384, 32, 4, 64, dtype, "read", Bar(), _COLD_PAGES) for dtype in ("f32", "bf16")),
        move.softmax(2048, 32000, Bar(times_peer=1.5)),
        move.cross_entropy(512, 32000, Bar(times_peer=2.5)),
        move.rmsnorm(2048, 768, Bar(times_peer=8.0)),
        move.swiglu(2048, 6144, Bar(share=0.80)),
        move.rope(32768, 12, 64, Bar(share=0.80)),
        move.add(1 << 25, Bar(share=0.80)),
        move.adamw(50_000_000, Bar(times_peer=1.0)),
        decode.top_p(8, 32000, "read", Bar(times_peer=5.0), "top_p"),
    ]  # fmt: skip


def gpu(quick: bool = False) -> list[Work]:
    """The sizes of the "6.9b" model with 32 k tokens, and 8192³. `quick` has the same lines at sizes that take no time.

    Inputs and outputs of what is over soon take turns until they fill 256 MB, several times the L2 of any GPU so far.
    """
    cache = 0.0 if quick else 256e6
    turns = 1e4 if quick else cache  # the quick products take turns, too

    def of(full: int, tiny: int) -> int:
        return tiny if quick else full

    tokens, hidden, ffn = of(32768, 24), of(768, 16), of(6144, 32)
    experts, k, heads, dim = of(16, 4), of(4, 2), of(12, 2), of(64, 16)
    vocab, long, cube, many = of(32000, 96), of(16384, 40), of(8192, 48), of(1 << 27, 4096)
    fused = (heads + 2) * dim
    rows, words, draws = of(8192, 16), of(128256, 300), of(32, 2)
    model = [(hidden, fused), (hidden, hidden), (hidden, 2 * ffn), (ffn, hidden), (hidden, vocab)]
    half, share = of(4096, 32), Bar(share=0.85)

    def moving(move: Mover) -> list[Work]:
        return [
            move.add(many, share),
            move.swiglu(tokens, ffn, share),
            move.swiglu_backward(tokens, ffn, share),
            move.rope(tokens, heads, dim, share),
            move.rmsnorm(2 * tokens, hidden, share, backward=False),
            move.rmsnorm(2 * tokens, hidden, share),
            move.softmax(rows, vocab, share),
            move.cross_entropy(rows, vocab, share),
            move.gather(tokens, k, experts, hidden, share),
            move.combine(tokens, k, experts, hidden, share),
            move.combine(tokens, k, experts, hidden, share, backward=True),
        ]

    def attending(heads: int, kv_heads: int, dim: int, forward: float | None, both: float | None) -> list[Work]:
        return [
            attention(long, heads, kv_heads, dim, "bf16", backward, None, Bar(times_peer=1.0, rate=rate))
            for backward, rate in ((False, forward), (True, both))
        ]

    return [
        *(products.gemm(rows, *shape, "bf16", None, Bar(times_peer=0.95), turns) for shape in model),
        products.gemm(cube, cube, cube, "bf16", None, Bar(times_peer=0.95), turns),
        *(products.gemm(half, half, half, dtype, None, Bar(), turns) for dtype in ("f32", "tf32")),
        *(
            products.grouped(kind, tokens, k, experts, *shape, Bar(times_peer=1.0, rate=437e12))
            for shape in ((hidden, ffn), (ffn, hidden))
            for kind in ("forward", "inputs", "weights")
        ),
        *(
            products.grouped(kind, tokens, k, experts, *shape, Bar(times_peer=1.0), "fp8")
            for shape in ((hidden, ffn), (ffn, hidden))
            for kind in ("forward", "inputs", "weights")
        ),
        *attending(of(32, 2), of(32, 2), dim, 473e12, 284e12),
        *attending(of(16, 2), of(16, 2), 2 * dim, 650e12, 284e12),
        *attending(heads, 1, dim, None, None),
        *moving(Mover("bf16", cache)),
        *moving(Mover("f32", cache)),
        Mover("f32", cache).adamw(of(100_000_000, 4096), share),
        *little(of(8, 3), hidden, heads, dim, experts, k, ffn, of(128, 20), of(100, 3)),
        *(
            products.stored(m, of(2048, 256), of(n, 40), form, Bar(share=0.70 if m == 1 else None), turns)
            for form in ("q4_0", "q8_0", "q6_k", "f16")
            for m, n in ((1, 5632), (1, 32000), (of(512, 9), 5632))
        ),
        *(
            ternary.product(m, of(k, 64), of(n, 40), Bar(times_peer=times if m == 1 else None), part, calls)
            for part, calls in ((turns, 1), (0.0, of(100, 3)))
            for k, n, times in ((2560, 2560, 1.4), (2560, 13824, 3.2), (6912, 2560, 2.7))  # of BitNet b1.58 2B-4T
            for m in (1, of(64, 6), of(512, 9))
        ),
        paged.prefill(of(512, 130), of(32, 4), of(4, 2), of(64, 32), None, Bar(), of(100, 3)),
        paged.decode(of(2048, 131), of(32, 4), of(4, 2), of(64, 32), None, Bar(), cache),
        paged.decode(of(16384, 257), of(32, 4), of(4, 2), of(64, 32), None, Bar(), cache),
        decode.top_p(draws, words, None, Bar(times_peer=5.0), "sort", cache),
        decode.top_k(draws, words, None, Bar(times_peer=5.0), "sort", cache),
    ]
