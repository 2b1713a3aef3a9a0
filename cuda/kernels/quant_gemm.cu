/* Rounds the activations of products with stored weights, and plans them. */
#include "kernels/quant_gemm.cuh"
#include "kernels/quant_workspace.h"

/* By count: the activations are small beside the weights. */
constexpr int THREADS = 256, BLOCKS_PER_SM = 8;

/* Rows from which the tensor cores multiply. With fewer, dp4a takes about as long as it takes to walk k one stage after
 * another. By count too. */
constexpr int64_t ROWS_FOR_MMA = 33;

/* Rows after the last group are not read. */
__device__ __forceinline__ int64_t rows_used(const int32_t *offsets, int64_t groups, int64_t m) {
  if (offsets == nullptr) {
    return m;
  }
  const int64_t end = offsets[groups];
  return end < 0 ? 0 : end < m ? end : m;
}

/*
 * Blocks of 32 to codes: 8 lanes have 4 elements each. A unit of x that is below 2^-100 counts as 0, which keeps its
 * reciprocal finite; one that is not finite makes the unit NaN, and with it every sum that it goes into.
 */
template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS) round_kernel(const T *x, uint32_t *codes, quant_unit *units, int64_t m,
                                                        int64_t k, const int32_t *offsets, int64_t groups) {
  constexpr int EACH = 4, LANES = NN_PART / EACH;
  const int64_t quads = rows_used(offsets, groups, m) * (k / EACH), step = (int64_t)gridDim.x * THREADS;
  /* Whole warps continue together, since their lanes meet. */
  for (int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x / NN_WARP * NN_WARP; first < quads; first += step) {
    const int64_t i = first + threadIdx.x % NN_WARP;
    float some[EACH];
    nn_load_at<WIDE, EACH>(some, x, i * EACH, quads * EACH);
    float most = 0.0f;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      most = nn_larger::of(fabsf(some[e]), most); /* NaN stays */
    }
    most = nn_warp_max<LANES>(most);
    const bool finite = most <= 3.402823466e38f;
    const bool zero = !finite || most < 0x1p-100f;
    const float inverse = zero ? 0.0f : __fdiv_rn(127.0f, most);
    uint32_t word = 0;
    int sum = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int code = zero ? 0 : (int)rintf(__fmul_rn(some[e], inverse));
      word |= ((uint32_t)code & 255u) << (8 * e);
      sum += code;
    }
    const int half = nn_warp_sum<LANES / 2>(sum), other = __shfl_xor_sync(NN_ALL_LANES, half, LANES / 2);
    if (i < quads) {
      codes[i] = word;
      if (i % LANES == 0) {
        const float d = zero ? 0.0f : __fdiv_rn(most, 127.0f);
        units[i / LANES] = {finite ? d : __int_as_float(0x7fffffff),
                            ((uint32_t)half & 0xffffu) | (uint32_t)other << 16};
      }
    }
  }
}

/* To the type of the weights. */
template <class F, class T>
__global__ void __launch_bounds__(THREADS)
    cast_kernel(const T *x, F *y, int64_t m, int64_t k, const int32_t *offsets, int64_t groups) {
  const int64_t elements = rows_used(offsets, groups, m) * k, step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < elements; i += step) {
    y[i] = nn_from_float<F>(nn_to_float(x[i]));
  }
}

/* ---- the launch ---- */

template <class T>
static int32_t round_activations(nncuda_ctx *ctx, quant_product &p, const T *x, const nn_quant_activations &forms) {
  static_assert(sizeof(quant_unit) == NN_UNIT_BYTES && NN_PART == 32);
  uint32_t *const codes = forms.codes;
  quant_unit *const units = static_cast<quant_unit *>(forms.units);
  p.codes = reinterpret_cast<const int8_t *>(codes);
  p.units = units;
  const auto kernel = nn_aligned_16(x) ? round_kernel<T, true> : round_kernel<T, false>;
  return nn_launch(ctx, kernel, dim3(nn_blocks(ctx, p.m * p.k / 4, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0, x, codes,
                   units, p.m, p.k, p.offsets, p.groups);
}

template <class F, class T> static int32_t cast_activations(nncuda_ctx *ctx, quant_product &p, const T *x, void *to) {
  F *const y = static_cast<F *>(to);
  return nn_launch(ctx, cast_kernel<F, T>, dim3(nn_blocks(ctx, p.m * p.k, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0, x,
                   y, p.m, p.k, p.offsets, p.groups);
}

/* Makes what a matrix of the format needs of the activations, unless it is there. */
template <class T>
static int32_t prepare_activations(nncuda_ctx *ctx, quant_product &p, const T *x, int32_t format,
                                   const nn_quant_activations &forms) {
  if (!nn_is_dtype(format)) {
    return p.codes == nullptr ? round_activations(ctx, p, x, forms) : NNCUDA_SUCCESS;
  }
  if (p.x[format] != nullptr) {
    return NNCUDA_SUCCESS;
  }
  int32_t status = NNCUDA_SUCCESS;
  void *const cast = forms.cast[format];
  p.x[format] = format == p.dtype ? static_cast<const void *>(x) : cast;
  if (format == p.dtype) {
    /* as it is */
  } else if (format == NNCUDA_FORMAT_F32) {
    status = cast_activations<float>(ctx, p, x, cast);
  } else if (format == NNCUDA_FORMAT_F16) {
    status = cast_activations<nn_f16>(ctx, p, x, cast);
  } else {
    status = cast_activations<nn_bf16>(ctx, p, x, cast);
  }
  p.x_wide[format] = nn_aligned_16(p.x[format]) && nn_rows_16(p.k, p.k, format);
  return status;
}

static int32_t run(nncuda_ctx *ctx, quant_product &p) {
  const int64_t rows = p.offsets == nullptr ? p.m : nn_ceil_div(p.m, p.groups);
  const bool one_form = p.combine != NN_QUANT_SWIGLU || quant_same_form(p.matrix[0], p.matrix[1]);
  return one_form && !nn_is_dtype(p.matrix[0].format) && rows >= ROWS_FOR_MMA && nn_gpu_arch(ctx) >= 80
             ? quant_run_mma(ctx, p, rows)
             : quant_run_rows(ctx, p, rows);
}

/* A launch for each form of weights. */
static int32_t run_forms(nncuda_ctx *ctx, quant_product &p) {
  if (p.combine == NN_QUANT_SWIGLU) {
    return run(ctx, p);
  }
  bool done[NN_QUANT_MATRICES] = {};
  for (int32_t i = 0; i < p.matrices; i++) {
    quant_product one = p;
    one.matrices = 0;
    for (int32_t j = i; j < p.matrices; j++) {
      if (!done[j] && quant_same_form(p.matrix[i], p.matrix[j])) {
        one.matrix[one.matrices++] = p.matrix[j];
        done[j] = true;
      }
    }
    const int32_t status = one.matrices == 0 ? NNCUDA_SUCCESS : run(ctx, one);
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
  }
  return NNCUDA_SUCCESS;
}

static int32_t launch(nncuda_ctx *ctx, const nn_gemm_quant_args *a) {
  quant_product p = {};
  p.offsets = a->offsets;
  p.bias = a->bias;
  p.residual = a->residual;
  p.y = a->y;
  p.groups = a->groups;
  p.m = a->m;
  p.n = a->n;
  p.k = a->k;
  p.matrices = a->matrices;
  p.combine = a->combine;
  p.activation = a->activation;
  p.dtype = a->dtype;
  p.first_offset = nn_rule_of(ctx, "offsets", "0");
  p.other_offsets = nn_range_of(ctx, "offsets", 0, a->m).noted("the number of rows");
  const nn_quant_activations forms = nn_quant_lay_out(a, nn_workspace_of(ctx));
  int64_t column = 0;
  for (int32_t i = 0; i < a->matrices; i++) {
    const nn_quant_matrix &from = a->matrix[i];
    const bool wide = nn_aligned_16(from.w) && from.row_bytes % 16 == 0;
    const int32_t plain = nn_format_of_interleaved(from.format), format = plain < 0 ? from.format : plain;
    p.matrix[i] = {static_cast<const uint8_t *>(from.w), from.n, from.row_bytes, column, 0, format, wide, plain >= 0};
    column += a->combine == NN_QUANT_COLUMNS ? from.n : 0;
    int32_t status = NNCUDA_SUCCESS;
    NN_SWITCH_FLOATS(a->dtype, status = prepare_activations(ctx, p, static_cast<const T *>(a->x), format, forms));
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
  }
  return run_forms(ctx, p);
}

#define QUANT_GEMM(op)                                                                                                 \
  NN_KERNEL_OF(op, nn_gemm_quant_args) { return launch(ctx, a); }

QUANT_GEMM(gemm_quant)
QUANT_GEMM(gemm_quant_qkv)
QUANT_GEMM(gemm_quant_swiglu)
