"""Random calls of any kernel, as cases like the others.

Sizes, strides, dtypes, flags, options and absent pointers are drawn from what the header declares; the tables below add
what a declaration does not say: relations between sizes, and arguments that a forward call would have left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import attention, decode, loss, moe, optimizer, rmsnorm, softmax
from cases import gemm as products
from cases.case import WHOLE_NUMBERS, Arguments, Case, Draw, stored
from expected import fixture
from hypothesis import strategies as st

from nncuda.binding import header
from nncuda.reference import attention as attention_reference
from nncuda.reference.judge import dimensions

HEADER = header.parse()
Drawn = Callable[[st.SearchStrategy[Any]], Any]

#: One, primes, and one below, at and above the widths of vectors, warps, tiles and blocks.
EDGES = (1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 127, 128, 129, 251, 255, 256, 257, 509, 513,
         1021, 1025, 2049, 4099, 8191, 8193, 16897, 32771)  # fmt: skip
#: What the product of a call's sizes stays below, which bounds the time of the emulated call; for the samplers, how
#: often the recipe must draw again until no choice hangs on rounding.
MOST_WORK = {"gemm": 100_000, "attention": 60_000, "decode": 4_000}
MOST_WORK_ELSEWHERE = 36_000
#: The largest a size may be, where something else than work bounds it.
LARGEST = {"experts": 300, "max_position": 40, "head_dim": 256, "heads": 12, "batch": 300, "groups": 300}
LARGEST_OF_ATTENTION = {**LARGEST, "batch": 4}
#: Where the gradient of a single choice is zero, and nothing but rounding would be compared.
SMALLEST = {"flash_attention_backward": ("kv_len", 2), "cross_entropy_backward": ("vocab", 2),
            "softmax_topk_backward": ("cols", 2), "softmax_backward": ("cols", 2),
            **dict.fromkeys(("moe_route_backward", "moe_output_backward"), ("experts", 2))}  # fmt: skip
#: Options without an enum; those of other names are 1. Values of the optimiser's own stand in tests/golden/cases.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "divisor": (1, 3, 1000),
    "alpha": (1.0, 0.0, -0.75, 1.5),
    "beta": (0.0, 1.0, -0.5),
    "base": (10000.0, 500000.0),
    "by": (1, -300),
    "capacity": (0, 1, 3, 1000),
    "eps": (1e-5, 1e-3),
    "first": (0, 1, 4097),
    "high": (1.0, 2.5),
    "ignore_index": (-100, 0),
    "low": (0.0, -3.0),
    "max_norm": (0.5, 1e3, math.inf),
    "mean": (0.0, -2.0),
    "ntk_alpha": (1.0, 8.0),
    "offset": (0, 2**32 - 2, 12345),
    "scale": (0.35,),
    "separator": (0, 4),
    "seed": (7, -(2**40)),
    "std": (1.0, 0.05),
    "stream": (0, -5),
    "value": (0.1, -2.5),
}
#: Kernels that say what not-finite logits and ties give, and the tensor that may hold them.
ROWS = {
    "softmax": "x",
    "softmax_topk": "x",
    "argmax": "logits",
    "sample": "logits",
    "topk_sample": "logits",
    "topp_sample": "logits",
    "minp_sample": "logits",
    "logprobs": "logits",
}
CONTENTS = ("plain", "plain", "ties", "masked", "nan", "infinite")


class Call(dict[str, Any]):
    """The scalars of a call by name, the dtypes' names among them; `given` are the optional pointers that are there."""

    def __init__(self, function: header.Function) -> None:
        super().__init__()
        self.function = function
        self.given: set[str] = set()
        self.content = "plain"

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __str__(self) -> str:
        values = [f"{name}={value}" for name, value in self.items()]
        return ",".join([self.content, *values, *sorted(self.given)])


def sizes(drawn: Drawn, call: Call) -> None:
    """Every size but strides, one after another in any order, each within what the others leave of the work.

    The first may take all of it, or one of so many equal shares: long rows, many of them, and both.
    """
    function = call.function
    strides = {param.ld for param in function.pointers}
    names = [param.name for param in function.of_kind("size") if param.name not in strides]
    attention = function.section == "attention"
    largest = LARGEST_OF_ATTENTION if attention else LARGEST
    left = MOST_WORK.get(function.section, MOST_WORK_ELSEWHERE)
    shares = drawn(st.integers(1, len(names))) if names else 1
    for at, name in enumerate(drawn(st.permutations(names))):
        step = 1
        if name == "head_dim" and function.section in ("attention", "rope"):
            step = 8 if attention else 2
        share = left ** (1 / max(1, min(shares, len(names) - at)))
        most = max(step, min(int(share), largest.get(name, left)))
        choices = sorted({max(step, edge // step * step) for edge in EDGES if edge <= most} | {most // step * step})
        call[name] = drawn(st.sampled_from(choices))
        left = max(1, left // call[name])
    if function.kernel in SMALLEST:
        name, least = SMALLEST[function.kernel]
        call[name] = max(least, call[name])
    if "kv_heads" in call and "heads" in call:
        call["kv_heads"] = drawn(st.sampled_from([n for n in range(1, call.heads + 1) if call.heads % n == 0]))
    if function.kernel == "digest":
        call["width"] = drawn(st.sampled_from((1, 2, 4)))
    if function.kernel == "logprobs":
        call["n"] = min(call.n, 128)
    if "blocks" in call:
        call["blocks"] = -(-call.n // 256)
    if function.kernel in ("rope_freqs", "rope_freqs_scaled"):
        call["head_dim"] = max(4, call.head_dim)
    if "starts" in call.given and "q_len" in call:  # of documents
        call["q_len"] = call["kv_len"] = max(2, min(call.q_len, call.kv_len))
        call["causal"] = 1
    if function.kernel == "kv_append":
        call["capacity"] = max(call.capacity, call.len)
    if "k" in call and function.section in ("softmax", "moe"):
        call["k"] = min(call.k, 64, call.get("cols", call.get("experts", 8)))
    normed = ("softmax_topk_backward", "moe_route_backward", "moe_output_backward")
    if function.kernel in normed and call.norm and call.k == 1:
        call["k"] = 2


def strides(drawn: Drawn, call: Call) -> None:
    for param in call.function.pointers:
        if param.ld and param.ld not in call:
            width = math.prod(dim.value(call) for dim in dimensions(param, call)[1:])
            call[param.ld] = width + drawn(st.sampled_from((0, 0, 1, 8, width)))


def option(drawn: Drawn, call: Call, param: header.Param) -> Any:
    if param.constants:
        return drawn(st.sampled_from([HEADER.constants[name] for name in param.constants]))
    if param.root_of:
        return float(np.float32(call[param.root_of] ** -0.5))
    if param.name == "scale":
        return 0.35 if call.function.section != "rope" else drawn(st.sampled_from((1.0, 0.25)))
    if param.name == "keep":
        return drawn(st.integers(0, call.capacity))
    if call.get("dtype") in ("i32", "i8") and param.name == "value":
        return -101.0
    return drawn(st.sampled_from(OPTIONS.get(param.name, (1,))))


def random_case(drawn: Drawn, function: header.Function) -> Case:
    """A case of the kernel. `drawn` gives a value of a strategy, as hypothesis' data.draw does."""
    call = Call(function)
    for param in function.of_kind("dtype"):
        words = [call.get(word, word) for word in param.dtypes]
        call[param.name] = drawn(st.sampled_from(words))
    for param in function.of_kind("flag"):
        call[param.name] = drawn(st.integers(0, 1))
    call.given = {param.name for param in function.pointers if not param.nullable or drawn(st.booleans())}
    sizes(drawn, call)
    strides(drawn, call)
    if function.section != "optimizer":
        for param in function.of_kind("option"):
            call[param.name] = option(drawn, call, param)
    if function.kernel in ROWS:
        call.content = drawn(st.sampled_from(CONTENTS))
    dtypes = {param.name: call[param.name] for param in function.of_kind("dtype")}
    kinds = dict.fromkeys(dtypes.values()) or (WHOLE_NUMBERS.get(function.kernel, "f32"),)
    return Case(function.kernel, f"{'-'.join(kinds)}.{call}", lambda d: arguments(d, call), dtypes)


def arguments(d: Draw, call: Call) -> Arguments:
    """What the kernel's recipe gives, else random numbers of the declared shapes; null for what is not given."""
    function = call.function
    args: Arguments = {name: value for name, value in call.items() if name not in ("dtype", "dtype_c")}
    made = RECIPES[function.kernel](d, call) if function.kernel in RECIPES else {}
    for param in function.pointers:
        if param.reads and param.name not in made:
            made[param.name] = d.bell(*(dim.value(call) for dim in dimensions(param, call)), scale=2)
        if param.name not in call.given:
            made[param.name] = None
    return {**args, **made}


def with_content(d: Draw, call: Call, x: np.ndarray) -> np.ndarray:
    """Logits with what `call.content` says in some of the rows."""
    rows = d.uniform(len(x), 1) < 0.3
    some = d.uniform(*x.shape) < 0.2
    if call.content == "ties":
        return np.round(x)
    if call.content == "masked":
        return np.where(some | rows, -np.inf, x)
    if call.content == "nan":
        return np.where(some & rows, np.nan, np.where(some, -np.inf, x))
    if call.content == "infinite":
        return np.where(some & rows, np.inf, x)
    return x


def router(d: Draw, call: Call) -> Arguments:
    return {"x": with_content(d, call, softmax.distinct(d, call.rows, call.cols))}


def router_backward(d: Draw, call: Call) -> Arguments:
    return softmax.backward_of(d.bell(call.rows, call.cols), call.k, call.norm, d, call.dtype, "dprobs" in call.given)


def with_old(d: Draw, call: Call) -> Arguments:
    """C is read with a beta alone."""
    shape = [dim.value(call) for dim in call.function.by_name["c"].dims]
    return products.with_c(d, shape, call.get("alpha", 1.0), call.beta)


def group_offsets(d: Draw, call: Call) -> np.ndarray:
    """Ragged groups, half of them empty or all rows in one now and then; not all rows need belong to one."""
    kind = int(d.integers(1, high=4)[0])
    if kind == 0:
        ends = np.full(call.groups, call.rows)
        ends[: int(d.integers(1, high=call.groups)[0])] = 0
    else:
        ends = np.sort(d.integers(call.groups, high=call.rows + 1))
        if kind == 1:
            ends[1::2] = ends[: call.groups - 1 : 2]
        if kind == 2:
            ends[-1] = call.rows
    return np.concatenate([[0], ends]).astype(np.int32)


def grouped(d: Draw, call: Call) -> Arguments:
    starts = group_offsets(d, call)
    made = {**with_old(d, call), "offsets": starts}
    made.pop("alpha")
    for name in ("a", "b") if call.function.kernel.startswith("grouped_gemm_wgrad") else ("a",):
        dims = call.function.by_name[name].dims
        made[name] = products.unread(d.bell(*(dim.value(call) for dim in dims)), int(starts[-1]))
    if call.function.kernel == "grouped_gemm":
        products.unread(made["c"], int(starts[-1]))
    return made


def gated_groups(d: Draw, call: Call) -> Arguments:
    starts = group_offsets(d, call)
    made = {"offsets": starts}
    for name in (param.name for param in call.function.pointers if param.reads and param.name not in ("b", "offsets")):
        dims = call.function.by_name[name].dims
        made[name] = products.unread(d.bell(*(dim.value(call) for dim in dims)), int(starts[-1]))
    return made


def biased(d: Draw, call: Call) -> Arguments:
    starts = group_offsets(d, call)
    x = products.unread(d.bell(call.rows, call.dim), int(starts[-1]))
    return {"x": x, "bias": d.bell(call.groups, call.dim), "offsets": starts}


def gated(d: Draw, call: Call) -> Arguments:
    """Rows that are not used hold what must not be read."""
    if "used" not in call.given:
        return {}
    used = d.integers(1, high=call.rows + 1)
    names = [param.name for param in call.function.pointers if param.reads and param.name != "used"]
    return {"used": used, **{name: products.unread(d.bell(call.rows, call.dim, scale=2), used[0]) for name in names}}


def plan(call: Call) -> tuple[Callable[[Draw], np.ndarray], int, int, int]:
    """The routing of a mixture of experts, whose experts and capacity the call may not say."""
    experts = call.get("experts", call.k + 3)
    capacity = call.get("capacity", 2)
    return (lambda d: moe.choices(d, call.tokens, call.k, experts)), experts, capacity, call.get("dim", 1)


def document_starts(d: Draw, call: Call) -> np.ndarray:
    """Never falling in a sequence, and below the query's place: the gradient of a single key is rounding alone."""
    places = np.maximum.accumulate(d.integers(call.batch, call.q_len, high=call.q_len), axis=1)
    return np.minimum(places, np.maximum(np.arange(call.q_len, dtype=np.int32) - 1, 0))


def flash(d: Draw, call: Call) -> Arguments:
    tensors = {"starts": document_starts(d, call)} if "starts" in call.given else {}
    for name in ("q", "k", "v"):
        dims = call.function.by_name[name].dims
        tensors[name] = stored(d.bell(*(dim.value(call) for dim in dims), scale=1.5), call.dtype)
    return tensors


def flash_backward(d: Draw, call: Call) -> Arguments:
    tensors = flash(d, call)
    out = attention_reference.flash_attention(**tensors, batch=call.batch, scale=call.scale, causal=call.causal)
    saved = {"out": stored(out["out"], call.dtype), "lse": stored(out["lse"])}
    return {"dout": d.bell(call.batch * call.q_len, call.heads, call.head_dim), **tensors, **saved}


def probabilities(d: Draw, call: Call) -> Arguments:
    return {"probs": d.uniform(call.batch, call.heads, call.q_len, call.kv_len, low=0, high=2 / call.kv_len)}


def flash_decode(d: Draw, call: Call) -> Arguments:
    lengths = d.integers(call.batch, high=call.capacity + 1)
    made = attention.decode(d, lengths, call.capacity, call.heads, call.kv_heads, call.head_dim, 0)
    return {**made, "ld_q": call.ld_q}


def rotary(d: Draw, call: Call) -> Arguments:
    """Any tables will do, and any positions."""
    shape = (call.max_position, call.head_dim // 2)
    angles = d.uniform(*shape, low=-3, high=3)
    positions = d.integers(call.tokens, high=call.max_position)
    positions[-1] = call.max_position - 1
    return {"cosine": stored(np.cos(angles)), "sine": stored(np.sin(angles)), "positions": positions}


def losses(d: Draw, call: Call) -> Arguments:
    ignored = np.flatnonzero(d.uniform(call.rows) < -0.6)
    made = loss.forward(d, call.rows, call.vocab, ignored)
    if call.ignore_index != loss.IGNORED:
        made["targets"] = d.integers(call.rows, high=call.vocab)
    return {**made, "ignore_index": call.ignore_index}


def balance(d: Draw, call: Call) -> Arguments:
    made = loss.balance(d, call.tokens, call.experts, min(2, call.experts))
    return {name: made[name] for name in ("probs", "counts", "loss") if name in call.function.by_name}


def routed(d: Draw, call: Call) -> Arguments:
    made = moe.route(d, call.tokens, call.k, call.experts, call.capacity, call.dim, call.norm, "loss" in call.given)
    return {name: made[name] for name in ("logits", "x", "loss")}


def routed_backward(d: Draw, call: Call) -> Arguments:
    made = moe.route_backward(d, call.tokens, call.k, call.experts, call.norm)
    return {param.name: made[param.name] for param in call.function.pointers if param.reads}


def output_backward(d: Draw, call: Call) -> Arguments:
    made = moe.output_backward(d, call.tokens, call.k, call.experts, 2, call.dim, call.norm)
    return {param.name: made[param.name] for param in call.function.pointers if param.reads}


def input_backward(d: Draw, call: Call) -> Arguments:
    return moe.input_backward(d, call.tokens, min(call.k, call.experts), call.experts, 2, call.dim, call.beta)


def sampled(d: Draw, call: Call) -> Arguments:
    logits = with_content(d, call, d.bell(call.rows, call.vocab, scale=2))
    limit: dict[str, Any] = {"top_k": None} if "top_k" not in call.given else {}
    if "top_p" not in call.given:
        limit["top_p"] = 0
    return decode.drawn(d, call.function.kernel, call.dtype, logits, **limit)


def adamw(d: Draw, call: Call) -> Arguments:
    recipe = optimizer.adamw_f8 if "blocks" in call else optimizer.adamw
    made = recipe(d, call.n, int(d.integers(1, high=call.n + 1)[0]), int(d.integers(1, low=1, high=500)[0]))
    if call.function.kernel != "adamw_step":
        made["first"] = 256 * int(d.integers(1, high=1000)[0])
    return {**made, "grad_scale": np.array([0.03]), "skip": optimizer.i32(int(d.integers(1, high=2)[0]))}


def clip(d: Draw, call: Call) -> Arguments:
    made = optimizer.clip(3.7, 1.0, d.bell(call.n))
    return {**made, "loss_scale": np.array([4.0])}


def scaling(d: Draw, call: Call) -> Arguments:
    norm = (3.0, np.inf, np.nan)[int(d.integers(1, high=3)[0])]
    return {"norm": np.array([norm]), "loss_scale": np.array([1024.0]), "skipped": optimizer.i32(6),
            "good_steps": d.integers(1, high=5), "growth": 2.0, "backoff": 0.5, "interval": 5}  # fmt: skip


def bytes_of(d: Draw, call: Call) -> Arguments:
    sums = np.frombuffer(d.integers(16, high=256).astype(np.uint8).tobytes(), np.int64)
    return {"x": d.integers(call.n, call.width, high=256).astype(np.uint8), "sums": sums}


Recipe = Callable[[Draw, Call], Arguments]
RECIPES: dict[str, Recipe] = {
    "increment": lambda d, c: {"x": d.integers(c.n, low=-1000, high=1000)},
    **dict.fromkeys(("cast", "round"), lambda d, c: {"x": d.bell(c.n) * 10.0 ** d.integers(c.n, low=-40, high=39)}),
    "softmax": lambda d, c: {"x": with_content(d, c, d.bell(c.rows, c.cols, scale=3))},
    "softmax_backward": lambda d, c: softmax.backward(d, c.rows, c.cols, c.dtype),
    "softmax_topk": router,
    "softmax_topk_backward": router_backward,
    "rmsnorm_backward": lambda d, c: rmsnorm.backward(d, c.rows, c.cols, c.dtype, "dresidual" in c.given),
    "gemm_beta": with_old,
    "batched_gemm": with_old,
    "grouped_gemm": grouped,
    "grouped_gemm_wgrad": grouped,
    "grouped_gemm_wgrad_fp8": grouped,
    **dict.fromkeys(("grouped_gemm_fp8", "grouped_gemm_swiglu", "grouped_gemm_swiglu_backward"), gated_groups),
    **dict.fromkeys(("swiglu", "swiglu_backward"), gated),
    "grouped_bias": biased,
    "digest": bytes_of,
    "embedding": lambda d, c: {"ids": d.integers(c.tokens, high=c.vocab)},
    "scatter_add": lambda d, c: {"ids": d.integers(c.tokens, high=c.vocab)},
    "rope_freqs_scaled": lambda d, c: {"factors": d.uniform(c.head_dim // 2, low=0.5, high=32)},
    "rope_forward": rotary,
    "rope_backward": rotary,
    "rope_qk": rotary,
    "attention_output": lambda d, c: {
        "probs": d.uniform(c.batch, c.heads, c.q_len, c.kv_len, low=0, high=2 / c.kv_len)
    },
    "document_starts": lambda d, c: {"ids": d.integers(c.batch, c.length, high=30)},
    "flash_attention": flash,
    "flash_attention_backward": flash_backward,
    "attention_decode": flash_decode,
    "kv_append": lambda d, c: {"starts": d.integers(c.batch, high=c.capacity - c.len + 1)},
    "kv_trim": lambda d, c: {"lengths": d.integers(c.batch, high=c.capacity + 1)},
    "moe_plan": lambda d, c: {"indices": d.integers(c.tokens, c.k, high=c.experts)},
    "moe_gather": lambda d, c: moe.gather(d, *plan(c)),
    "moe_gather_backward": lambda d, c: moe.gather_backward(d, *plan(c)),
    "moe_combine": lambda d, c: moe.combine(d, *plan(c), with_residual="residual" in c.given),
    "moe_combine_backward": lambda d, c: moe.combine_backward(d, *plan(c)),
    "moe_route": routed,
    "moe_route_backward": routed_backward,
    "moe_output_backward": output_backward,
    "moe_input_backward": input_backward,
    "cross_entropy_forward": losses,
    "cross_entropy_backward": lambda d, c: loss.backward(losses(d, c), c.dtype),
    "aux_loss_forward": balance,
    "aux_loss_backward": lambda d, c: {"grad_scale": np.array([0.37]), **balance(d, c)},
    "adamw_step": adamw,
    "adamw_step_bf16": adamw,
    "adamw_step_f8": adamw,
    "grad_clip": clip,
    "lr_schedule": lambda d, c: {**optimizer.schedule(int(d.integers(1, high=110)[0])), "skip": d.integers(1, high=2)},
    "loss_scale_update": scaling,
    "argmax": lambda d, c: {"logits": with_content(d, c, d.bell(c.rows, c.vocab, scale=2))},
    "sample": sampled,
    "topk_sample": sampled,
    "topp_sample": sampled,
    "minp_sample": sampled,
    "count_tokens": lambda d, c: decode.counted(d, c.rows, c.vocab, c.capacity),
    "penalize_logits": lambda d, c: decode.penalized(d, c.rows, c.vocab, c.capacity),
    "bias_logits": lambda d, c: decode.biased(d, c.rows, c.vocab, c.biases),
    "mask_logits": lambda d, c: decode.masked(d, c.rows, c.vocab, c.n, c.words),
    "logprobs": lambda d, c: {
        "logits": with_content(d, c, d.bell(c.rows, c.vocab, scale=3)),
        "ids": d.integers(c.rows, high=c.vocab),
    },
}


__all__ = ["HEADER", "fixture", "random_case"]
