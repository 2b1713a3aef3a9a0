"""The wording of errors, where the header's text does not determine it; and which of several is reported.

Every argument of every kernel is spoiled in test_bad_input.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pytest
from raw import HEADER, C
from samples import Sample, refuse

NAN, INF = float("nan"), float("inf")
LEAST, MOST = -(2**31), 2**31 - 1


class Refused(NamedTuple):
    kernels: str
    #: What is spoiled, as the sentence names it: an argument, or an element of a tensor.
    place: str
    values: tuple[float, ...]
    #: The sentence behind the value, and one that does not begin with place and value.
    rest: str = ""
    sentence: str = ""
    #: Sizes and options of the call, and what else is put there.
    call: Mapping[str, int] = {}
    also: Mapping[str, float] = {}


ADAMW = "adamw_step adamw_step_bf16 adamw_step_f8"
GROUPED = "grouped_gemm grouped_gemm_wgrad gemm_quant gemm_quant_swiglu gemm_quant_backward"
GROUPS = {"groups": 2, "rows": 4, "m": 4}
EXPERTS = {"tokens": 3000, "k": 4, "experts": 16}
SLOTS = {"tokens": 300, "k": 2}
SAMPLED = {"rows": 6, "vocab": 10}
SAMPLERS = "sample topk_sample topp_sample minp_sample"
#: Lists of tokens, biases (one a row, but where `also` says so) and masks.
LISTED = {"rows": 5, "vocab": 30, "capacity": 4, "biases": 6, "n": 2, "words": 1}
BIASED = {"offsets[3]": 4, "offsets[4]": 5}
#: Two sequences in pages of 128 rows, five new tokens.
PAGES = {"tokens": 5, "batch": 2, "max_pages": 3, "pages": 5, "kv_heads": 1, "head_dim": 16, "format": 1}
LENGTHS = {"lengths[0]": 200, "lengths[1]": 2}
RAGGED = {"offsets[1]": 3, "offsets[2]": 5, **LENGTHS}
PAGED, DECODE, STEP = "kv_append_paged flash_attention_paged", "attention_decode_paged", "attention_step_paged"
BOTH = f"{DECODE} {STEP}"
ROOM = ", the new tokens to 128 * max_pages"

REFUSED = [
    Refused("embedding scatter_add", "ids[2]", (-1, 4, MOST, LEAST), "; it must be 0 to 3",
            call={"tokens": 4, "vocab": 4}),
    Refused("softmax_topk_backward", "indices[2, 1]", (-1, 5), "; it must be 0 to 4", call={"rows": 3, "k": 2}),
    Refused("softmax_topk", "k", (6,)),
    Refused("softmax_topk", "k", (65,), call={"cols": 70}),
    Refused("softmax_topk", "norm", (2,)),
    Refused("rmsnorm", "eps", (-1e-6, NAN, INF)),
    Refused("rope_forward rope_qk", "positions[2]", (-1, 9), "; it must be 0 to 8", call={"tokens": 3}),
    Refused("rope_forward", "layout", (2,)),
    Refused("rope_forward rope_freqs", "head_dim", (7,), "; it must be even"),
    Refused("rope_freqs", "base", (0.0, NAN)),
    Refused("rope_freqs", "ntk_alpha", (0.5,)),
    Refused("rope_freqs", "head_dim", (2,), also={"ntk_alpha": 2.0}),
    Refused("rope_freqs", "first", (-1,)),
    Refused("fill", "value", (128.0, -129.0, NAN), call={"dtype": C.I8}),
    Refused("fill", "value", (0.5, 2.0**31, INF), call={"dtype": C.I32}),
    Refused(ADAMW, "n_decay", (-1, 11), call={"n": 10}),
    Refused(ADAMW, "beta1", (-0.1, 1.0, NAN)),
    Refused(ADAMW, "beta2", (-0.1, 1.0)),
    Refused(ADAMW, "eps", (0.0, NAN)),
    Refused(ADAMW, "weight_decay", (-0.1, INF)),
    Refused(ADAMW, "step[0]", (0,), "; it must be at least 1"),
    Refused("adamw_step_f8", "blocks", (3,), "; it must be n / 256 rounded up, which is 2",
            call={"n": 300, "blocks": 2}),
    Refused("grad_clip", "max_norm", (0.0, -1.0, NAN)),
    Refused("lr_schedule", "step[0]", (-1, MOST)),
    Refused("lr_schedule", "total", (4,), "; it must be at least warmup, which is 5", also={"warmup": 5}),
    Refused("lr_schedule", "warmup", (-1,)),
    Refused("loss_scale_update", "growth", (0.5,)),
    Refused("loss_scale_update", "backoff", (0.0, 1.5)),
    Refused("loss_scale_update", "interval", (0,)),
    Refused("cross_entropy_forward cross_entropy_backward", "targets[13]", (30, -1, -99, MOST), "; it must be 0 to 29",
            call={"rows": 20, "vocab": 30}),
    Refused("aux_loss_forward", "alpha", (NAN,)),
    Refused("weighted_mean", "divisor", (0,), "; it must be at least 1"),
    Refused("moe_plan", "indices[2500, 3]", (-1, 16, MOST, LEAST), "; it must be 0 to 15", call=EXPERTS,
            also={"indices[2501, 0]": 99}),
    Refused("moe_output_backward", "indices[70, 1]", (-1, 5), "; it must be 0 to 4", call={**SLOTS, "experts": 5}),
    Refused("moe_gather moe_combine_backward moe_output_backward", "row_slot[141]", (-2, 600, LEAST),
            "; it must be -1 to 599", call=SLOTS),
    Refused("moe_gather_backward moe_combine moe_combine_backward moe_output_backward moe_input_backward",
            "slot_row[70, 1]", (-2, 600, LEAST), sentence="slot_row[141] is {}; it must be -1 to 599", call=SLOTS),
    Refused(GROUPED, "offsets[0]", (1,), "; it must be 0", call=GROUPS, also={"offsets[1]": 2, "offsets[2]": 4}),
    Refused(GROUPED, "offsets[2]", (2,), "; it must be 3 to 4", call=GROUPS, also={"offsets[1]": 3}),
    Refused(GROUPED, "offsets[2]", (5,), "; it must be 2 to 4", call=GROUPS, also={"offsets[1]": 2}),
    Refused(GROUPED, "offsets[1]", (-1,), "; it must be 0 to 4", call=GROUPS, also={"offsets[2]": 4}),
    Refused("gemm_beta", "lda", (3,), call={"k": 4}),
    Refused("gemm_beta", "ldb", (0,), call={"n": 4}),
    Refused("gemm_beta", "ldc", (-4,), call={"n": 4}),
    Refused("gemm_beta", "trans_a", (2,)),
    Refused("gemm_beta", "dtype_c", (C.BF16,)),
    Refused("flash_attention", "head_dim", (12, 264), "; it must be a multiple of 8, at most 256"),
    Refused("flash_attention attention_decode_paged", "heads", (3,), "; it must be a multiple of kv_heads"),
    Refused("flash_attention", "ld_q", (31,), "; it must be at least 32", call={"head_dim": 8}),
    Refused("flash_attention", "ld_kv", (8,), "; it must be at least 16", call={"head_dim": 8}),
    Refused("flash_attention", "q_len", (-1,)),
    Refused("flash_attention attention_decode_paged", "scale", (NAN, INF), sentence="scale is {}; it must be finite"),
    Refused("attention_decode", "lengths[2]", (-1, 41, LEAST, MOST), "; it must be 0 to 40, the capacity",
            call={"batch": 5, "capacity": 40}),
    Refused("kv_append", "starts[1]", (-1, 5, MOST, LEAST), "; it must be 0 to 4, capacity - len", call={"batch": 2}),
    Refused("kv_append", "len", (7,), "; it must be at most capacity, which is 6"),
    Refused("kv_trim", "lengths[1]", (-1, 7), "; it must be 0 to 6, the capacity"),
    Refused("kv_trim", "keep", (-1, 7), "; it must be 0 to capacity, which is 6"),
    *(
        Refused(PAGED, place, (bad,), rest, call=PAGES, also={**RAGGED, **also})
        for place, bad, rest, also in (
            ("offsets[0]", 1, "; it must be 0", {}),
            ("offsets[0]", 2, "; it must be 0", {}),
            ("offsets[1]", -1, "; it must be 0 to 5", {}),
            ("offsets[1]", 6, "; it must be 0 to 5, the number of tokens", {}),
            ("offsets[2]", 2, "; it must be 3 to 5, the number of tokens", {}),
            ("offsets[2]", 3, "; it must be 4 to 5, the number of tokens", {"offsets[1]": 4}),
            ("offsets[2]", 6, "; it must be 3 to 5", {"lengths[1]": 3}),
            ("lengths[0]", 2, f"; it must be 3 to 384{ROOM}", {}),
            ("lengths[0]", 385, f"; it must be 3 to 384{ROOM}", {}),
            ("lengths[0]", MOST, "", {}),
            ("lengths[1]", 1, f"; it must be 2 to 384{ROOM}", {}),
            ("lengths[1]", -1, "; it must be 2 to ", {}),
            ("page_table[0, 1]", 5, "; it must be 0 to 4", {}),
            ("page_table[1, 0]", LEAST, "; it must be 0 to 4", {}),
            ("page_table[1, 0]", MOST, "; it must be 0 to 4", {}),
        )
    ),
    Refused("flash_attention_paged", "page_table[0, 0]", (-1,), "; it must be 0 to 4", call=PAGES, also=RAGGED),
    Refused(DECODE, "lengths[1]", (-1,), f"; it must be 0 to 384{ROOM}", call=PAGES, also=LENGTHS),
    Refused(DECODE, "lengths[0]", (385,), f"; it must be 0 to 384{ROOM}", call=PAGES, also=LENGTHS),
    Refused(BOTH, "page_table[0, 1]", (-7,), "; it must be 0 to 4", call=PAGES, also=LENGTHS),
    Refused(BOTH, "page_table[1, 1]", (-1,), "; it must be 0 to 4", call=PAGES, also={**LENGTHS, "lengths[1]": 129}),
    Refused(BOTH, "format", (10,), "; it must be NNCUDA_FORMAT_F32 (0)", call=PAGES),
    Refused(BOTH, "page_bytes", (4095,), "; it must be 4096, the bytes of a page in this format", call=PAGES),
    Refused(BOTH, "head_dim", (16,), "; in this format it must be a multiple of 32", call=PAGES, also={"format": 14}),
    Refused(STEP, "lengths[1]", (-1, 0, 385), f"; it must be 1 to 384{ROOM}", call=PAGES, also=LENGTHS),
    Refused(STEP, "positions[1]", (-1, 9), "; it must be 0 to 8", call=PAGES, also=LENGTHS),
    Refused(STEP, "layout", (2,)),
    Refused(SAMPLERS, "temperature[4]", (-1e-30, NAN, INF, -INF), call=SAMPLED),
    Refused(SAMPLERS, "steps[4]", (-1, LEAST), call=SAMPLED),
    Refused("topk_sample topp_sample minp_sample", "top_k[4]", (0, -1, LEAST), call=SAMPLED),
    Refused("topp_sample minp_sample", "top_p[4]", (0.0, -0.5, 1.0000001, NAN, INF), call=SAMPLED),
    Refused("minp_sample", "min_p[4]", (-1e-30, 1.0000001, NAN, INF), call=SAMPLED),
    Refused("logprobs count_tokens", "ids[3]", (-1, 30, MOST, LEAST), "; it must be 0 to 29", call=LISTED),
    Refused("logprobs", "n", (129,), "; it must be at most 128", call=LISTED),
    Refused("count_tokens penalize_logits", "seen_lengths[3]", (-2, 5, MOST, LEAST),
            "; it must be -1 to 4, the capacity", call=LISTED),
    Refused("count_tokens", "seen_lengths[3]", (4,), "; it must be below the capacity where a token is new",
            call=LISTED, also={"ids[3]": 29}),
    Refused("penalize_logits", "presence[3]", (NAN, INF, -INF), call=LISTED),
    Refused("penalize_logits", "frequency[3]", (NAN, INF, -INF), call=LISTED),
    Refused("penalize_logits", "repetition[3]", (NAN, INF, 0.0, -1.0), call=LISTED),
    Refused("penalize_logits", "seen_ids[3, 0]", (-1, 30, MOST, LEAST),
            sentence="seen_ids[12] is {}; it must be 0 to 29, ascending in its row", call=LISTED,
            also={"seen_lengths[3]": 1}),
    Refused("penalize_logits", "seen_ids[3, 1]", (4, 3, -1, 30),
            sentence="seen_ids[13] is {}; it must be 5 to 29, ascending in its row", call=LISTED,
            also={"seen_ids[3, 0]": 4, "seen_lengths[3]": 2}),
    Refused("penalize_logits", "seen_counts[3, 0]", (-1, LEAST),
            sentence="seen_counts[12] is {}; it must be at least 0", call=LISTED, also={"seen_lengths[3]": 1}),
    Refused("bias_logits", "offsets[0]", (1, -1), "; it must be 0", call=LISTED),
    Refused("bias_logits", "offsets[3]", (0, -1, 7, MOST), "; it must be 2 to 6, the number of biases", call=LISTED),
    Refused("bias_logits", "bias[2]", (NAN, INF, -INF), call=LISTED),
    Refused("bias_logits", "ids[4]", (-1, 30, MOST, LEAST), "; it must be 0 to 29, ascending in its row", call=LISTED),
    Refused("bias_logits", "ids[3]", (7, 6, -1, 30), "; it must be 8 to 29, ascending in its row", call=LISTED,
            also={**BIASED, "ids[2]": 7}),
    Refused("mask_logits", "mask_of[3]", (-2, 2, MOST, LEAST), "; it must be -1 to 1", call=LISTED),
    *(
        Refused("quantize", place, (NAN,), sentence=f"x[{at}] is nan", call={"rows": 70, "k": 512, "format": 10},
                also={"x[69, 511]": NAN})
        for place, at in (("x[69, 511]", 69 * 512 + 511), ("x[40, 3]", 40 * 512 + 3), ("x[40, 2]", 40 * 512 + 2))
    ),
    Refused("uniform", "high", (0.5, NAN), also={"low": 1.0}),
    Refused("uniform", "high", (3e38,), also={"low": -3e38}),
    Refused("uniform", "low", (NAN,), also={"high": 1.0}),
    Refused("normal", "mean", (INF,)),
    Refused("normal", "std", (-1.0, NAN)),
]  # fmt: skip
STATUS = {"size": C.ERROR_INVALID_SIZE, "dtype": C.ERROR_INVALID_DTYPE, "pointer": C.ERROR_OUT_OF_RANGE}
CALLS = [(kernel, row, value) for row in REFUSED for kernel in row.kernels.split() for value in row.values]


@pytest.mark.parametrize(("kernel", "row", "value"), CALLS, ids=lambda part: getattr(part, "place", part))
def test_sentence(engine, cpu, kernel: str, row: Refused, value: float) -> None:
    function = HEADER.kernels[kernel]
    dtype = {C.I8: "i8", C.I32: "i32"}.get(row.call.get("dtype"), "f32")
    options = {name: number for name, number in row.call.items() if name == "format"}
    sample = Sample(function, row.call, dtype, engine, options)
    changed = {}
    for place, number in {**row.also, row.place: value}.items():
        name, *indices = re.findall(r"\w+", place)
        if indices:
            shape = [dim.value(sample.sizes) for dim in function.by_name[name].dims]
            sample.buffers[name].numbers()[np.ravel_multi_index([int(index) for index in indices], shape)] = number
        else:
            changed[name] = number
    status = STATUS.get(function.by_name[row.place.partition("[")[0]].kind, C.ERROR_INVALID_VALUE)
    begin = row.place + " is" + (f" {value}" if isinstance(value, int) else "")
    refuse(engine, cpu, sample, (status,), row.sentence.format(value) or begin + row.rest, **changed)


@pytest.mark.parametrize("row", [0, -1])
def test_maps_that_are_not_each_others_inverse(context, row: int) -> None:
    """Two slots with one row would both write it. Only the CPU looks."""
    sample = Sample(HEADER.kernels["moe_combine_backward"], {"tokens": 10, "k": 2})
    sample.buffers["slot_row"].numbers()[9] = row
    refuse(context, context, sample, (C.ERROR_OUT_OF_RANGE,), "slot_row")
