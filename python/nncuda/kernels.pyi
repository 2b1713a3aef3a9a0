# Generated from bindings.h by `make generate`. Do not edit.
from typing import Literal, overload

from .device import Context, Tensor
from .dtypes import DTypeLike, FloatLike

__all__: list[str]

ACTIVATION_NONE: int
ACTIVATION_SILU: int
ROPE_HALF: int
ROPE_INTERLEAVED: int
FORMAT_F32: int
FORMAT_F16: int
FORMAT_BF16: int
FORMAT_Q4_0: int
FORMAT_Q4_1: int
FORMAT_Q5_0: int
FORMAT_Q5_1: int
FORMAT_Q8_0: int
FORMAT_Q4_K: int
FORMAT_Q5_K: int
FORMAT_Q6_K: int
FORMAT_IQ4_NL: int
FORMAT_MXFP4: int
FORMAT_E4M3: int
FORMAT_IQ4_XS: int
FORMAT_Q2_K: int
FORMAT_Q3_K: int
FORMAT_Q4_0_R16: int
FORMAT_Q4_1_R16: int
FORMAT_Q5_0_R16: int
FORMAT_Q5_1_R16: int
FORMAT_Q8_0_R16: int
FORMAT_Q4_K_R16: int
FORMAT_Q5_K_R16: int
FORMAT_Q6_K_R16: int
FORMAT_IQ4_NL_R16: int
FORMAT_MXFP4_R16: int
FORMAT_IQ4_XS_R16: int
FORMAT_Q2_K_R16: int
FORMAT_Q3_K_R16: int

def silu(x: Tensor, *, y: Tensor | None = None) -> Tensor:
    """SiLU: y = x * sigmoid(x)."""

def silu_backward(dy: Tensor, x: Tensor, *, dx: Tensor | None = None) -> Tensor:
    """Gradient of SiLU: dx = dy * s * (1 + x * (1 - s)), s = sigmoid(x)."""

def add(a: Tensor, b: Tensor, *, y: Tensor | None = None) -> Tensor:
    """Sum: y = a + b."""

def mul(a: Tensor, b: Tensor, *, y: Tensor | None = None) -> Tensor:
    """Product, element by element: y = a * b."""

def scale(x: Tensor, *, alpha: float, y: Tensor | None = None) -> Tensor:
    """Scaling: y = alpha * x."""

def swiglu(gate: Tensor, up: Tensor, used: Tensor | None = None, *, y: Tensor | None = None) -> Tensor:
    """SwiGLU gate: y = silu(gate) * up."""

def swiglu_backward(dy: Tensor, gate: Tensor, up: Tensor, used: Tensor | None = None, *, dgate: Tensor | None = None, dup: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Gradient of the SwiGLU gate: dgate = dy * up * silu'(gate), dup = dy * silu(gate)."""

def relu2_gate(gate: Tensor, up: Tensor, *, y: Tensor | None = None) -> Tensor:
    """Squared-ReLU gate: y = max(gate, 0)^2 * up."""

def cast(x: Tensor, *, dtype_y: FloatLike | None = None, y: Tensor | None = None) -> Tensor:
    """Conversion, rounding to nearest-even; f32 too large for the 16-bit type becomes infinity, NaN stays NaN."""

def round(x: Tensor, *, dtype: FloatLike | None = None, y: Tensor | None = None) -> Tensor:
    """y = x, rounded to a 16-bit type as cuda_cast rounds, and f32 again."""

def fill(y: Tensor | None = None, *, value: float, n: int | tuple[int, ...] | None = None, dtype: DTypeLike | None = None, ctx: Context | None = None) -> Tensor:
    """Sets every element to a value, rounded to the dtype (for i32 and i8 it must be a whole number in range)."""

def increment(x: Tensor, *, by: int = 1) -> None:
    """Counts on: x += by."""

def softcap(x: Tensor, *, cap: float, y: Tensor | None = None) -> Tensor:
    """Bounds scores softly: y = cap * tanh(x / cap)."""

def geglu(gate: Tensor, up: Tensor, *, y: Tensor | None = None) -> Tensor:
    """GELU gate: y = gelu(gate) * up, where gelu(x) = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))."""

def swiglu_clipped(gate: Tensor, up: Tensor, *, alpha: float = 1.702, limit: float = 7.0, y: Tensor | None = None) -> Tensor:
    """Clipped SwiGLU gate: with g = min(gate, limit) and u = up held between -limit and limit, y = g * sigmoid(alpha * g) * (u + 1)."""

def relu2_gate_backward(dy: Tensor, gate: Tensor, up: Tensor, *, dgate: Tensor | None = None, dup: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Gradient of the squared-ReLU gate: dgate = 2 * dy * up * max(gate, 0), dup = dy * max(gate, 0)^2."""

def act_dequant_i8(codes: Tensor, scale: Tensor, *, dtype: FloatLike | None = None, x: Tensor | None = None) -> Tensor:
    """What rows in 8 bits stand for: x = codes * scale."""

def grouped_bias(x: Tensor, bias: Tensor, offsets: Tensor, *, y: Tensor | None = None) -> Tensor:
    """Biases of grouped rows, such as those of experts: y[r] = x[r] + bias[g] for the rows offsets[g] .. offsets[g+1]-1."""

def softmax(x: Tensor, *, y: Tensor | None = None) -> Tensor:
    """Softmax of each row: y = exp(x - max) / sum(exp(x - max))."""

def softmax_backward(dy: Tensor, y: Tensor, *, dx: Tensor | None = None) -> Tensor:
    """Gradient of softmax: dx = y * (dy - sum(dy * y))."""

def softmax_topk(x: Tensor, *, norm: bool = False, k: int | None = None, weights: Tensor | None = None, indices: Tensor | None = None, probs: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The router: softmax over all columns in f32, then the k largest of each row in falling order."""

def softmax_topk_backward(dweights: Tensor, weights: Tensor, indices: Tensor, probs: Tensor, dprobs: Tensor | None = None, *, norm: bool = False, dtype: FloatLike | None = None, dx: Tensor | None = None) -> Tensor:
    """Gradient of the router with respect to its logits; no gradient passes through the choice of indices."""

@overload
def rmsnorm(x: Tensor, weight: Tensor, *, eps: float, y: Tensor | None = None, rstd: Literal[False] | None = None) -> Tensor:
    """RMSNorm: y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps)."""

@overload
def rmsnorm(x: Tensor, weight: Tensor, *, eps: float, y: Tensor | None = None, rstd: Tensor | Literal[True]) -> tuple[Tensor, Tensor]:
    """RMSNorm: y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps)."""

@overload
def rmsnorm_residual(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, sum: Tensor | None = None, y: Tensor | None = None, rstd: Literal[False] | None = None) -> tuple[Tensor, Tensor]:
    """Residual sum and its RMSNorm in one pass: sum = x + residual (rounded to dtype), y = rmsnorm(sum)."""

@overload
def rmsnorm_residual(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, sum: Tensor | None = None, y: Tensor | None = None, rstd: Tensor | Literal[True]) -> tuple[Tensor, Tensor, Tensor]:
    """Residual sum and its RMSNorm in one pass: sum = x + residual (rounded to dtype), y = rmsnorm(sum)."""

def rmsnorm_backward(dy: Tensor, x: Tensor, weight: Tensor, rstd: Tensor, dresidual: Tensor | None, dweight: Tensor, *, dx: Tensor | None = None) -> Tensor:
    """Gradient of RMSNorm: with xhat = x * rstd and g = dy * weight, dx = dresidual + rstd * (g - xhat * mean(g * xhat)); dweight += sum over rows of dy * xhat."""

def gemm(a: Tensor, b: Tensor, *, trans_a: bool = False, trans_b: bool = False, dtype_c: FloatLike | None = None, c: Tensor | None = None) -> Tensor:
    """Matrix product: C = op(A) * op(B)."""

def gemm_beta(a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0, trans_a: bool = False, trans_b: bool = False, dtype_c: FloatLike | None = None) -> Tensor:
    """Matrix product with leading dimensions: C = alpha * op(A) * op(B) + beta * C."""

def gemm_epilogue(a: Tensor, b: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *, activation: Literal['none', 'silu'] | int = 'none', c: Tensor | None = None) -> Tensor:
    """A linear layer in one pass: C = activation(A * W^T + bias) + residual."""

def batched_gemm(a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0, trans_a: bool = False, trans_b: bool = False, dtype_c: FloatLike | None = None) -> Tensor:
    """One product a batch entry: C[i] = alpha * op(A[i]) * op(B[i]) + beta * C[i], each dense."""

def grouped_gemm(a: Tensor, b: Tensor, offsets: Tensor, c: Tensor | None = None, *, beta: float = 0.0, trans_b: bool = False, dtype_c: FloatLike | None = None) -> Tensor:
    """One product a group of rows (the experts' products): for each group g and its rows r in offsets[g] .. offsets[g+1]-1, C[r] = A[r] * op(B[g]) + beta * C[r]."""

def grouped_gemm_wgrad(a: Tensor, b: Tensor, offsets: Tensor, c: Tensor | None = None, *, beta: float = 0.0, groups: int | None = None, dtype_c: FloatLike | None = None) -> Tensor:
    """The weights' gradients of grouped_gemm: C[g] = A_g^T * B_g + beta * C[g], summed over the rows of group g."""

def grouped_gemm_swiglu(a: Tensor, b: Tensor, offsets: Tensor, *, n: int | None = None, gate_up: Tensor | None = None, y: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The experts' first products and their gate: grouped_gemm by B^T, whose columns are gates and, behind them, ups, then swiglu of the two halves of its rows, with the bits of these two calls."""

def grouped_gemm_swiglu_backward(a: Tensor, b: Tensor, offsets: Tensor, gate_up: Tensor) -> None:
    """Gradient of the experts' gate from that of what they give: dy = A * B of each group, as grouped_gemm has it, is the gradient of y in grouped_gemm_swiglu, from which swiglu_backward gives those of gate and up, in their place; with the bits of these two calls."""

def grouped_gemm_fp8(a: Tensor, b: Tensor, offsets: Tensor, *, trans_b: bool = False, dtype_c: FloatLike | None = None, c: Tensor | None = None) -> Tensor:
    """grouped_gemm with factors in 8 bits: C[r] = fp8(A)[r] * op(fp8(B)[g])."""

def grouped_gemm_wgrad_fp8(a: Tensor, b: Tensor, offsets: Tensor, c: Tensor | None = None, *, beta: float = 0.0, groups: int | None = None, dtype_c: FloatLike | None = None) -> Tensor:
    """grouped_gemm_wgrad with factors in 8 bits: C[g] = fp8(A)_g^T * fp8(B)_g + beta * C[g]."""

def embedding(table: Tensor, ids: Tensor, *, y: Tensor | None = None) -> Tensor:
    """Gathers rows of a table: y[t] = table[ids[t]]."""

def scatter_add(x: Tensor, ids: Tensor, table: Tensor) -> None:
    """Adds rows into a table, in the order of the tokens: table[ids[t]] += x[t]."""

def pool_rows(x: Tensor, sum: Tensor) -> None:
    """Adds rows to a sum of two f32, the nearest and what is left of it: sum[0] + sum[1] += x[0] + x[1] + .... Each row is added without error to sum[0], the error to sum[1], and of both the nearest f32 is taken again."""

def pool_unit(sum: Tensor, *, y: Tensor | None = None) -> Tensor:
    """The vector of length 1 in the direction of a sum, which is that of the mean: y = s / |s|, s = sum[0] + sum[1]; zeros where s is zero."""

def rope_freqs(cosine: Tensor | None = None, sine: Tensor | None = None, *, first: int = 0, base: float = 10000.0, ntk_alpha: float = 1.0, positions: int | None = None, head_dim: int | None = None, ctx: Context | None = None) -> tuple[Tensor, Tensor]:
    """Tables of rotary embedding: for position p and pair i, the angle p * b^(-2i/head_dim), computed in f64; its cosine and sine, rounded to f32."""

def rope_freqs_scaled(factors: Tensor | None = None, *, first: int = 0, base: float = 10000.0, ntk_alpha: float = 1.0, scale: float = 1.0, positions: int | None = None, head_dim: int | None = None, cosine: Tensor | None = None, sine: Tensor | None = None, ctx: Context | None = None) -> tuple[Tensor, Tensor]:
    """Tables of rotary embedding as rope_freqs, stretched: for position p and pair i, the angle scale * p * b^(-2i/head_dim) / factors[i], computed in f64."""

def rope_forward(x: Tensor, cosine: Tensor, sine: Tensor, positions: Tensor, *, layout: Literal['half', 'interleaved'] | int = 'half', y: Tensor | None = None) -> Tensor:
    """Rotates each pair (u, v) of each head by the angle of its token's position: (u cos - v sin, v cos + u sin)."""

def rope_qk(q: Tensor, k: Tensor, cosine: Tensor, sine: Tensor, positions: Tensor, *, layout: Literal['half', 'interleaved'] | int = 'half') -> None:
    """rope_forward of queries and keys in one call, in place."""

def rope_backward(dy: Tensor, cosine: Tensor, sine: Tensor, positions: Tensor, *, layout: Literal['half', 'interleaved'] | int = 'half', dx: Tensor | None = None) -> Tensor:
    """Gradient of rope_forward: the rotation by the opposite angle."""

def attention_scores(q: Tensor, k: Tensor, *, scale: float | None = None, causal: bool = False, scores: Tensor | None = None) -> Tensor:
    """Scores: s = scale * q * k^T, with -inf where `causal` hides the key."""

def attention_output(probs: Tensor, v: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Output: out = probs * v."""

@overload
def flash_attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor | None = None, *, scale: float | None = None, causal: bool = False, batch: int | None = None, q_len: int | None = None, kv_len: int | None = None, out: Tensor | None = None, lse: Literal[False] | None = None) -> Tensor:
    """Attention without storing the scores: out = softmax(scale * q * k^T) * v, and the log-sum-exp of the scaled scores."""

@overload
def flash_attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor | None = None, *, scale: float | None = None, causal: bool = False, batch: int | None = None, q_len: int | None = None, kv_len: int | None = None, out: Tensor | None = None, lse: Tensor | Literal[True]) -> tuple[Tensor, Tensor]:
    """Attention without storing the scores: out = softmax(scale * q * k^T) * v, and the log-sum-exp of the scaled scores."""

def flash_attention_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, starts: Tensor | None = None, *, scale: float | None = None, causal: bool = False, batch: int | None = None, q_len: int | None = None, kv_len: int | None = None, dq: Tensor | None = None, dk: Tensor | None = None, dv: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of flash_attention; the probabilities are recomputed from lse."""

def document_starts(ids: Tensor, *, separator: int, starts: Tensor | None = None, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Where the documents of packed sequences begin."""

def attention_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, *, scale: float | None = None, out: Tensor | None = None) -> Tensor:
    """Attention of one new query a sequence over its cache, split over the keys."""

def flash_attention_paged(q: Tensor, k_pages: Tensor, v_pages: Tensor, offsets: Tensor, lengths: Tensor, page_table: Tensor, sinks: Tensor | None = None, *, scale: float | None = None, window: int = 0, softcap: float = 0.0, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int = 'f16', kv_heads: int | None = None, out: Tensor | None = None) -> Tensor:
    """Causal attention of new tokens over paged caches."""

def attention_decode_paged(q: Tensor, k_pages: Tensor, v_pages: Tensor, lengths: Tensor, page_table: Tensor, sinks: Tensor | None = None, *, scale: float | None = None, window: int = 0, softcap: float = 0.0, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int = 'f16', kv_heads: int | None = None, out: Tensor | None = None) -> Tensor:
    """Attention of one new query a sequence over its pages, split over the keys."""

def attention_step_paged(q: Tensor, k: Tensor, v: Tensor, cosine: Tensor, sine: Tensor, positions: Tensor, lengths: Tensor, page_table: Tensor, sinks: Tensor | None, k_pages: Tensor, v_pages: Tensor, *, scale: float | None = None, window: int = 0, softcap: float = 0.0, layout: Literal['half', 'interleaved'] | int = 'half', format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int = 'f16', out: Tensor | None = None) -> Tensor:
    """A layer's attention in a decoding step, in one call: rope_qk of one new query and key a sequence, kv_append_paged of the key and its value, then attention_decode_paged over the lengths[b] rows that sequence b has with them; the same bits as those three."""

def kv_append(k: Tensor, v: Tensor, starts: Tensor, k_cache: Tensor, v_cache: Tensor, *, batch: int | None = None, len: int | None = None) -> None:
    """Appends the keys and values of new tokens to each sequence's cache, at rows starts[b] .. starts[b]+len-1."""

def kv_trim(k_cache: Tensor, v_cache: Tensor, lengths: Tensor, *, keep: int) -> None:
    """Drops the oldest rows of each cache so that at most `keep` remain: the newest move to the front, lengths follow."""

def kv_append_paged(k: Tensor, v: Tensor, offsets: Tensor, lengths: Tensor, page_table: Tensor, k_pages: Tensor, v_pages: Tensor, *, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int = 'f16') -> None:
    """Writes the keys and values of new tokens into their sequences' pages."""

def moe_plan(indices: Tensor, *, capacity: int = 0, tokens: int | None = None, k: int | None = None, experts: int | None = None, counts: Tensor | None = None, offsets: Tensor | None = None, slot_row: Tensor | None = None, row_slot: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Plans which row each slot takes."""

def moe_gather(x: Tensor, row_slot: Tensor, *, tokens: int | None = None, k: int | None = None, y: Tensor | None = None) -> Tensor:
    """Brings tokens into row order: y[r] = x[row_slot[r] / k]."""

def moe_route(logits: Tensor, x: Tensor, loss: Tensor | None = None, *, norm: bool = False, capacity: int = 0, alpha: float = 0.0, tokens: int | None = None, k: int | None = None, weights: Tensor | None = None, indices: Tensor | None = None, probs: Tensor | None = None, counts: Tensor | None = None, offsets: Tensor | None = None, slot_row: Tensor | None = None, row_slot: Tensor | None = None, y: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Routes tokens to their experts and brings them there: softmax_topk of the logits, moe_plan, moe_gather and, with `loss`, aux_loss_forward, with the bits that these give one after the other."""

def moe_route_backward(dweights: Tensor, weights: Tensor, indices: Tensor, probs: Tensor, counts: Tensor, grad_scale: Tensor, *, alpha: float, norm: bool = False, dtype: FloatLike | None = None, dlogits: Tensor | None = None) -> Tensor:
    """Gradient of moe_route with respect to the logits: softmax_topk_backward, whose dprobs is what aux_loss_backward gives, with the bits of these two calls."""

def moe_gather_backward(dy: Tensor, slot_row: Tensor, *, tokens: int | None = None, k: int | None = None, dx: Tensor | None = None) -> Tensor:
    """Gradient of moe_gather: dx[t] = sum over j of dy[slot_row[t, j]], dropped slots left out."""

def moe_combine(y: Tensor, weights: Tensor, slot_row: Tensor, residual: Tensor | None = None, *, tokens: int | None = None, k: int | None = None, out: Tensor | None = None) -> Tensor:
    """Weighs the experts' outputs and brings them back into token order: out[t] = residual[t] + sum over j of weights[t, j] * y[slot_row[t, j]], dropped slots left out."""

def moe_combine_backward(dout: Tensor, y: Tensor, weights: Tensor, slot_row: Tensor, row_slot: Tensor, *, tokens: int | None = None, k: int | None = None, dy: Tensor | None = None, dweights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Gradients of moe_combine: dy[r] = weights[t, j] * dout[t] for the slot (t, j) of row r, zero for rows without a slot; dweights[t, j] = dout[t] . y[slot_row[t, j]], zero for dropped slots."""

def moe_output_backward(dout: Tensor, y: Tensor, weights: Tensor, indices: Tensor, probs: Tensor, counts: Tensor, slot_row: Tensor, row_slot: Tensor, grad_scale: Tensor, *, alpha: float, norm: bool = False, tokens: int | None = None, k: int | None = None, dy: Tensor | None = None, dweights: Tensor | None = None, dlogits: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """What the gradient of a layer of experts begins with: moe_combine_backward, and moe_route_backward of the gradient of the weights that it gives, with the bits of these two calls."""

def moe_input_backward(dlogits: Tensor, x: Tensor, gate: Tensor, drows: Tensor, slot_row: Tensor, dgate: Tensor | None = None, *, beta: float = 0.0, tokens: int | None = None, k: int | None = None, dtype_c: FloatLike | None = None, dx: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """What the gradient of a layer of experts ends with, those of the router's gate and of the tokens: dgate = dlogits^T * x + beta * dgate, and dx[t] = sum over j of drows[slot_row[t, j]] + dlogits[t] * gate, as gemm_beta has the one, moe_gather_backward and gemm_beta the other."""

@overload
def cross_entropy_forward(logits: Tensor, targets: Tensor, *, ignore_index: int = -100, losses: Literal[False] | None = None, lse: Tensor | None = None, loss_sum: Tensor | None = None, count: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of each row: losses = lse - logits[target], lse = log(sum(exp(logits))); zero where the target is ignore_index."""

@overload
def cross_entropy_forward(logits: Tensor, targets: Tensor, *, ignore_index: int = -100, losses: Tensor | Literal[True], lse: Tensor | None = None, loss_sum: Tensor | None = None, count: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cross-entropy of each row: losses = lse - logits[target], lse = log(sum(exp(logits))); zero where the target is ignore_index."""

def cross_entropy_backward(logits: Tensor, targets: Tensor, lse: Tensor, grad_scale: Tensor, *, ignore_index: int = -100, dlogits: Tensor | None = None) -> Tensor:
    """Gradient of grad_scale * sum(losses): dlogits = grad_scale * (exp(logits - lse) - onehot(target)); zero where ignored."""

def aux_loss_forward(probs: Tensor, counts: Tensor, loss: Tensor, *, alpha: float) -> None:
    """Load-balancing loss of one layer: loss += alpha * sum over experts of f * P, f = counts / tokens, P = mean of probs over tokens."""

def aux_loss_backward(counts: Tensor, grad_scale: Tensor, *, alpha: float, tokens: int | None = None, dprobs: Tensor | None = None) -> Tensor:
    """Gradient of grad_scale * aux loss with respect to probs: dprobs = grad_scale * alpha * f / tokens; none through f."""

def weighted_mean(x: Tensor, weights: Tensor | None = None, *, divisor: int = 1, y: Tensor | None = None) -> Tensor:
    """Mean of what was summed in parts: y = sum of weights * x / divisor, in f64 in a fixed order, rounded once."""

@overload
def adamw_step(grad: Tensor, lr: Tensor, step: Tensor, grad_scale: Tensor | None, skip: Tensor | None, param: Tensor, m: Tensor, v: Tensor, *, n_decay: int, beta1: float, beta2: float, eps: float, weight_decay: float, dtype: FloatLike | None = None, param_copy: Literal[False] | None = None) -> None:
    """AdamW with decoupled weight decay, for t = step[0] >= 1 and g = grad * grad_scale: m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g^2; param = param*(1 - lr*weight_decay) - lr * (m/(1-beta1^t)) / (sqrt(v/(1-beta2^t)) + eps)."""

@overload
def adamw_step(grad: Tensor, lr: Tensor, step: Tensor, grad_scale: Tensor | None, skip: Tensor | None, param: Tensor, m: Tensor, v: Tensor, *, n_decay: int, beta1: float, beta2: float, eps: float, weight_decay: float, dtype: FloatLike | None = None, param_copy: Tensor | Literal[True]) -> Tensor:
    """AdamW with decoupled weight decay, for t = step[0] >= 1 and g = grad * grad_scale: m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g^2; param = param*(1 - lr*weight_decay) - lr * (m/(1-beta1^t)) / (sqrt(v/(1-beta2^t)) + eps)."""

@overload
def adamw_step_bf16(grad: Tensor, lr: Tensor, step: Tensor, grad_scale: Tensor | None, skip: Tensor | None, param: Tensor, m: Tensor, v: Tensor, *, n_decay: int, beta1: float, beta2: float, eps: float, weight_decay: float, first: int = 0, dtype: FloatLike | None = None, param_copy: Literal[False] | None = None) -> None:
    """AdamW as adamw_step has it, its moments kept in bf16: they are widened, updated in f32, used for the parameters, and rounded by chance (see above) as they are stored."""

@overload
def adamw_step_bf16(grad: Tensor, lr: Tensor, step: Tensor, grad_scale: Tensor | None, skip: Tensor | None, param: Tensor, m: Tensor, v: Tensor, *, n_decay: int, beta1: float, beta2: float, eps: float, weight_decay: float, first: int = 0, dtype: FloatLike | None = None, param_copy: Tensor | Literal[True]) -> Tensor:
    """AdamW as adamw_step has it, its moments kept in bf16: they are widened, updated in f32, used for the parameters, and rounded by chance (see above) as they are stored."""

@overload
def adamw_step_f8(grad: Tensor, lr: Tensor, step: Tensor, grad_scale: Tensor | None, skip: Tensor | None, param: Tensor, m: Tensor, m_scale: Tensor, r: Tensor, r_scale: Tensor, *, n_decay: int, beta1: float, beta2: float, eps: float, weight_decay: float, first: int = 0, dtype: FloatLike | None = None, param_copy: Literal[False] | None = None) -> None:
    """AdamW as adamw_step has it, its moments kept in 8 bits, blockwise (Dettmers, Lewis, Shleifer, Zettlemoyer 2022, section 2.1): each 256 consecutive elements, the last ones fewer, have one f32 scale s, the largest magnitude among them, and each element a code for a number q of 0 .. 1; it is s * q, the largest one exactly."""

@overload
def adamw_step_f8(grad: Tensor, lr: Tensor, step: Tensor, grad_scale: Tensor | None, skip: Tensor | None, param: Tensor, m: Tensor, m_scale: Tensor, r: Tensor, r_scale: Tensor, *, n_decay: int, beta1: float, beta2: float, eps: float, weight_decay: float, first: int = 0, dtype: FloatLike | None = None, param_copy: Tensor | Literal[True]) -> Tensor:
    """AdamW as adamw_step has it, its moments kept in 8 bits, blockwise (Dettmers, Lewis, Shleifer, Zettlemoyer 2022, section 2.1): each 256 consecutive elements, the last ones fewer, have one f32 scale s, the largest magnitude among them, and each element a code for a number q of 0 .. 1; it is s * q, the largest one exactly."""

def zero_grad(grad: Tensor | None = None, *, n: int | tuple[int, ...] | None = None, dtype: FloatLike | None = None, ctx: Context | None = None) -> Tensor:
    """Sets gradients to zero."""

def grad_norm(grad: Tensor, *, norm: Tensor | None = None) -> Tensor:
    """Euclidean norm: norm = sqrt(sum(grad^2))."""

def grad_clip(norm: Tensor, loss_scale: Tensor | None = None, grad: Tensor | None = None, *, max_norm: float, n: int | None = None, dtype: FloatLike | None = None, scale: Tensor | None = None) -> Tensor:
    """Clips by the global norm: with s = loss_scale (1 if null) and g = norm/s, scale = min(1, max_norm / (g + 1e-6)) / s; where grad is given it is multiplied by scale."""

def lr_schedule(skip: Tensor | None, step: Tensor, *, warmup: int, total: int, max_lr: float, min_lr: float, lr: Tensor | None = None) -> Tensor:
    """Advances the step and gives its rate: t = ++step[0]; up to `warmup` steps lr = max_lr * t / warmup, then lr = min_lr + (max_lr - min_lr) * (1 + cos(pi * (t - warmup) / (total - warmup))) / 2, from `total` on min_lr."""

def loss_scale_update(norm: Tensor, loss_scale: Tensor, good_steps: Tensor, skipped: Tensor, *, growth: float, backoff: float, interval: int, skip: Tensor | None = None) -> Tensor:
    """Dynamic loss scaling: when norm is not finite, skip = 1, skipped += 1, loss_scale *= backoff, good_steps = 0; else skip = 0 and good_steps += 1, and each time it reaches `interval` loss_scale *= growth and good_steps = 0."""

def argmax(logits: Tensor, *, ids: Tensor | None = None) -> Tensor:
    """The first token of each row in the order above."""

def sample(logits: Tensor, temperature: Tensor, seeds: Tensor, steps: Tensor, *, ids: Tensor | None = None) -> Tensor:
    """Draws from softmax(logits / temperature)."""

def topk_sample(logits: Tensor, temperature: Tensor, top_k: Tensor, seeds: Tensor, steps: Tensor, *, ids: Tensor | None = None) -> Tensor:
    """Draws among the first top_k tokens of each row."""

def topp_sample(logits: Tensor, temperature: Tensor, top_k: Tensor | None, top_p: Tensor, seeds: Tensor, steps: Tensor, *, ids: Tensor | None = None) -> Tensor:
    """Draws among the shortest run of first tokens whose probability reaches top_p (of those that top_k leaves, if given)."""

def minp_sample(logits: Tensor, temperature: Tensor, top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor, seeds: Tensor, steps: Tensor, *, ids: Tensor | None = None) -> Tensor:
    """Draws among the tokens, of those that top_k and then top_p leave, if given, whose probability is at least min_p times that of the first one: exp((logit - largest) / temperature) >= min_p."""

def count_tokens(ids: Tensor, seen_ids: Tensor, seen_counts: Tensor, seen_lengths: Tensor, *, vocab: int | None = None) -> None:
    """Adds the token that was drawn for each row to the row's list: to its count, or as a new token with a count of 1."""

def penalize_logits(logits: Tensor, presence: Tensor, frequency: Tensor, repetition: Tensor, seen_ids: Tensor, seen_counts: Tensor, seen_lengths: Tensor) -> None:
    """Makes tokens of a row's list less likely."""

def bias_logits(logits: Tensor, offsets: Tensor, ids: Tensor, bias: Tensor) -> None:
    """Adds to some logits of each row r: bias[i] to that of token ids[i], for i = offsets[r] .. offsets[r+1]-1."""

def mask_logits(logits: Tensor, masks: Tensor, mask_of: Tensor) -> None:
    """Sets the logits of tokens that a row's mask does not allow to -inf."""

@overload
def logprobs(logits: Tensor, ids: Tensor, *, n: int | None = None, logprobs: Tensor | None = None, top_ids: Literal[False] | None = None, top_logprobs: Literal[False] | None = None) -> Tensor:
    """Log-probabilities, log softmax(logits), of one token of each row, and of the first n in the order above if they are asked for."""

@overload
def logprobs(logits: Tensor, ids: Tensor, *, n: int | None = None, logprobs: Tensor | None = None, top_ids: Literal[False] | None = None, top_logprobs: Tensor | Literal[True]) -> tuple[Tensor, Tensor]:
    """Log-probabilities, log softmax(logits), of one token of each row, and of the first n in the order above if they are asked for."""

@overload
def logprobs(logits: Tensor, ids: Tensor, *, n: int | None = None, logprobs: Tensor | None = None, top_ids: Tensor | Literal[True], top_logprobs: Literal[False] | None = None) -> tuple[Tensor, Tensor]:
    """Log-probabilities, log softmax(logits), of one token of each row, and of the first n in the order above if they are asked for."""

@overload
def logprobs(logits: Tensor, ids: Tensor, *, n: int | None = None, logprobs: Tensor | None = None, top_ids: Tensor | Literal[True], top_logprobs: Tensor | Literal[True]) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, log softmax(logits), of one token of each row, and of the first n in the order above if they are asked for."""

def quantize(x: Tensor, *, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, row_bytes: int | None = None, y: Tensor | None = None) -> Tensor:
    """Stores rows in a format."""

def dequantize(x: Tensor, *, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, k: int | None = None, dtype: FloatLike | None = None, y: Tensor | None = None) -> Tensor:
    """The numbers that stored rows stand for: in f32 as the `gguf` package computes them, to the bit, then rounded to `dtype`."""

def embedding_quant(table: Tensor, ids: Tensor, *, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, dim: int | None = None, dtype: FloatLike | None = None, y: Tensor | None = None) -> Tensor:
    """Gathers and dequantizes rows of a stored table: y[t] = table[ids[t]]."""

def gemm_quant(x: Tensor, w: Tensor, offsets: Tensor | None = None, bias: Tensor | None = None, residual: Tensor | None = None, *, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, activation: Literal['none', 'silu'] | int = 'none', groups: int | None = None, n: int | None = None, y: Tensor | None = None) -> Tensor:
    """A linear layer with stored weights: y = activation(x * W^T + bias) + residual."""

def gemm_quant_qkv(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, bias: Tensor | None = None, norm: Tensor | None = None, *, format_q: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, format_k: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, format_v: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, eps: float = 0.0, n: int | None = None, y: Tensor | None = None) -> Tensor:
    """Queries, keys and values in one call, as they come from three gemm_quant: y = [x * Wq^T, x * Wk^T, x * Wv^T] + bias."""

def gemm_quant_swiglu(x: Tensor, w_gate: Tensor, w_up: Tensor, offsets: Tensor | None = None, norm: Tensor | None = None, *, format_gate: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, format_up: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, eps: float = 0.0, groups: int | None = None, n: int | None = None, y: Tensor | None = None) -> Tensor:
    """The gated unit in one call: y = silu(x * Wg^T) * (x * Wu^T), each product and the silu in f32."""

def gemm_quant_route(x: Tensor, gains: Tensor, w: Tensor, *, eps: float, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, norm: bool = False, tokens: int | None = None, k: int | None = None, y: Tensor | None = None, logits: Tensor | None = None, weights: Tensor | None = None, indices: Tensor | None = None, probs: Tensor | None = None, counts: Tensor | None = None, offsets: Tensor | None = None, slot_row: Tensor | None = None, row_slot: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The router of a stored mixture of experts: rmsnorm of the residual stream, gemm_quant of what that gives, softmax_topk and moe_plan, with the bits of these calls."""

def gemm_quant_experts(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, weights: Tensor, offsets: Tensor, slot_row: Tensor, row_slot: Tensor, residual: Tensor | None = None, *, format_gate: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, format_up: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, format_down: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, tokens: int | None = None, experts: int | None = None, k: int | None = None, dim: int | None = None, n: int | None = None, y: Tensor | None = None) -> Tensor:
    """The experts of a stored mixture: y[t] = residual[t] + sum over a token's experts of weight * ((silu(x[t] * Wg^T) * (x[t] * Wu^T)) * Wd^T), as moe_gather, gemm_quant_swiglu, gemm_quant and moe_combine give it, with the bits of these calls."""

def interleave_rows(x: Tensor, *, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, k: int | None = None, y: Tensor | None = None) -> Tensor:
    """Puts the stored rows of a matrix into the order that products on a CPU read fastest: sixteen of them side by side, so that one word of each fills a vector."""

def act_quant_i8(x: Tensor, *, codes: Tensor | None = None, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Rounds rows to 8 bits, each with a scale of its own: with a = max(max |x|, 1e-5), codes = rint(x * (127/a)), ties to even, scale = a/127, all in f32."""

def rmsnorm_quant_i8(x: Tensor, weight: Tensor, *, eps: float, codes: Tensor | None = None, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """RMSNorm and act_quant_i8 in one pass: the bits of cuda_rmsnorm, its result rounded to dtype, then of cuda_act_quant_i8."""

def ternary_quantize(x: Tensor, *, codes: Tensor | None = None, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Ternary weights by their mean magnitude: with s = max(mean |x|, 1e-5), codes = rint(x * (1/s)) cut to -1 .. 1, ties to even."""

def ternary_pack(codes: Tensor, *, stored: int | None = None, row_bytes: int | None = None, w: Tensor | None = None) -> Tensor:
    """Packs ternary weights."""

def ternary_unpack(w: Tensor, *, n: int | None = None, k: int | None = None, codes: Tensor | None = None) -> Tensor:
    """The codes of packed weights."""

def bitlinear(codes: Tensor, scale: Tensor | None, w: Tensor, w_scale: Tensor | None = None, residual: Tensor | None = None, *, n: int | None = None, dtype: DTypeLike | None = None, y: Tensor | None = None) -> Tensor:
    """A linear layer with ternary weights: y = float(codes * W^T) * (scale * w_scale) + residual, the product of integers exact, its conversion to f32, the product of the scales, the product of the two and the sum each rounded once to f32."""

def bitlinear_norm(x: Tensor, norm: Tensor | None, w: Tensor, w_scale: Tensor, residual: Tensor | None = None, *, eps: float = 0.0, y: Tensor | None = None) -> Tensor:
    """A linear layer with ternary weights and the norm before it: bitlinear of what rmsnorm_quant_i8 makes of x, or act_quant_i8 where there are no gains, with the bits of these two calls."""

def gemm_quant_backward(dy: Tensor, w: Tensor, offsets: Tensor | None = None, dx: Tensor | None = None, *, format: Literal['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k', 'iq4_nl', 'mxfp4', 'e4m3', 'iq4_xs', 'q2_k', 'q3_k', 'q4_0_r16', 'q4_1_r16', 'q5_0_r16', 'q5_1_r16', 'q8_0_r16', 'q4_k_r16', 'q5_k_r16', 'q6_k_r16', 'iq4_nl_r16', 'mxfp4_r16', 'iq4_xs_r16', 'q2_k_r16', 'q3_k_r16'] | int, beta: float = 0.0, groups: int | None = None, n: int | None = None, k: int | None = None) -> Tensor:
    """The gradient of a linear layer with stored weights with respect to its input: dx = dy * W + beta * dx, of the layer y = x * W^T that gemm_quant computes."""

def bitlinear_backward(dy: Tensor, w: Tensor, w_scale: Tensor, dx: Tensor | None = None, *, beta: float = 0.0, k: int | None = None) -> Tensor:
    """The gradient of a linear layer with ternary weights with respect to its input: dx = dy * (w_scale * W) + beta * dx, of the layer that bitlinear computes, with the rounding of its input to 8 bits taken as the identity."""

def digest(x: Tensor, sums: Tensor, *, first: int = 0) -> None:
    """Adds up a digest of memory that hangs on each of its bits and on where it is, in whole numbers modulo 2^64, so that parts may be taken in any order, by anyone, and their sums added."""

def random_bits(y: Tensor | None = None, *, seed: int, stream: int = 0, offset: int = 0, n: int | tuple[int, ...] | None = None, ctx: Context | None = None) -> Tensor:
    """The generator's own 32-bit words."""

def uniform(y: Tensor | None = None, *, seed: int, low: float = 0.0, high: float = 1.0, stream: int = 0, offset: int = 0, n: int | tuple[int, ...] | None = None, dtype: FloatLike | None = None, ctx: Context | None = None) -> Tensor:
    """Uniform numbers: y = low + (high - low) * (word >> 8) * 2^-24, so low <= y, and y < high before rounding."""

def normal(y: Tensor | None = None, *, seed: int, mean: float = 0.0, std: float = 1.0, stream: int = 0, offset: int = 0, n: int | tuple[int, ...] | None = None, dtype: FloatLike | None = None, ctx: Context | None = None) -> Tensor:
    """Normal numbers by Box and Muller (1958): each pair of words (a, b) with u = ((a >> 8) + 1) * 2^-24, w = (b >> 8) * 2^-24 gives r*cos(2 pi w) and r*sin(2 pi w), r = sqrt(-2 log u); y = mean + std * that."""
