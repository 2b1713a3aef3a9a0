/* Rounds the activations of products with stored weights, normed or as they are, where their own kernels do not
 * (quant_prepare.cuh), and plans them. */
#include "abi/generated/moe.h"
#include "abi/quant_experts.h"

#include "kernels/norm_row.cuh"
#include "kernels/parts.cuh"
#include "kernels/quant_gemm.cuh"
#include "kernels/quant_workspace.h"

/* By count: the activations are small beside the weights. */
constexpr int THREADS = 256, BLOCKS_PER_SM = 8;

/* Rows from which the tensor cores multiply. With fewer, dp4a takes about as long as it takes to walk k one stage after
 * another. By count too. */
constexpr int64_t ROWS_FOR_MMA = 33;

/* Rows of groups up to which the product itself makes what it needs of them: of 32 tokens with eight experts each. One
 * is a block's, and there are more blocks than that. By count. */
constexpr int64_t MOST_SHARED_SLOTS = 256;

/* Blocks of 32 to codes: 8 lanes have 4 elements each. */
template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS)
    round_kernel(const T *x, uint32_t *codes, quant_unit *units, int64_t m, int64_t k, const int32_t *offsets,
                 int64_t groups, quant_tokens tokens) {
  constexpr int EACH = 4, LANES = NN_PART / EACH;
  nn_let_next_start();
  nn_wait_for_kernels();
  const int64_t quads = quant_rows_used(offsets, groups, m) * (k / EACH), step = (int64_t)gridDim.x * THREADS;
  for (int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x / NN_WARP * NN_WARP; first < quads; first += step) {
    const int64_t i = first + threadIdx.x % NN_WARP;
    float some[EACH];
    if (tokens.row_slot == nullptr) {
      nn_load_at<WIDE, EACH>(some, x, i * EACH, quads * EACH);
    } else {
      const int64_t row = i * EACH / k, token = i < quads ? tokens.of(row) : -1;
      nn_load_at<WIDE, EACH>(some, x, token < 0 ? 0 : token * k + i * EACH - row * k, token < 0 ? 0 : (token + 1) * k);
    }
    uint32_t word[1];
    const quant_unit unit = quant_round_part<EACH>(word, some);
    if (i < quads) {
      codes[i] = word[0];
      if (i % LANES == 0) {
        units[i / LANES] = unit;
      }
    }
  }
}

/* To the type of the weights. */
template <class F, class T>
__global__ void __launch_bounds__(THREADS)
    cast_kernel(const T *x, F *y, int64_t m, int64_t k, const int32_t *offsets, int64_t groups, quant_tokens tokens) {
  nn_let_next_start();
  nn_wait_for_kernels();
  const int64_t elements = quant_rows_used(offsets, groups, m) * k, step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < elements; i += step) {
    int64_t from = i;
    if (tokens.row_slot != nullptr) {
      const int64_t row = i / k, token = tokens.of(row);
      from = token < 0 ? -1 : token * k + i - row * k;
    }
    y[i] = nn_from_float<F>(from < 0 ? 0.0f : nn_to_float(x[from]));
  }
}

/* ---- with a norm before it ---- */

struct quant_norm {
  const void *x, *weight;
  const int32_t *offsets;
  int64_t groups, m, k;
  float eps;
  /* What is made of the norm, each of it or null: codes with units, and numbers of each type. */
  uint32_t *codes;
  quant_unit *units;
  float *f32;
  nn_f16 *f16;
  nn_bf16 *bf16;
};

template <class F, int N>
__device__ __forceinline__ void put_norm(F *y, int64_t row_at, int64_t column, int64_t end, const float (&from)[N]) {
  if (y != nullptr) {
#pragma unroll
    for (int e = 0; e < N; e++) {
      if (column + e < end) {
        y[row_at + column + e] = nn_from_float<F>(from[e]);
      }
    }
  }
}

/* The bits of rmsnorm, rounded to T, and what the products need of them. */
template <class T, class SHAPE, bool WIDE> __global__ void __launch_bounds__(SHAPE::THREADS) norm_kernel(quant_norm a) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS;
  __shared__ float shared[2][NN_WARP]; /* in turn, so that one row need not wait for the one before */
  const int lane = threadIdx.x % LANES;
  nn_let_next_start();
  nn_wait_for_kernels();
  const int64_t rows = quant_rows_used(a.offsets, a.groups, a.m);
  int turn = 0;
  for (int64_t first = (int64_t)blockIdx.x * SHAPE::ROWS; first < rows; first += (int64_t)gridDim.x * SHAPE::ROWS) {
    const int64_t row = first + threadIdx.x / LANES, row_at = row * a.k, end = row < rows ? a.k : 0;
    const T *x = static_cast<const T *>(a.x) + row_at;
    float values[VECTORS][N], squares = 0.0f;
    const auto load = [&](int64_t at) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_load<WIDE>(values[v], x, at + (v * LANES + lane) * N, end, 0.0f);
      }
    };
    const auto finish = [&](float(&some)[N], int64_t column, float rstd) {
      float gain[N];
      nn_row_load<WIDE>(gain, static_cast<const T *>(a.weight), column, end, 0.0f);
      nn_rms_apply(some, rstd, gain);
#pragma unroll
      for (int e = 0; e < N; e++) {
        some[e] = nn_rounded<T>(some[e]);
      }
      put_norm(a.f32, row_at, column, end, some);
      put_norm(a.f16, row_at, column, end, some);
      put_norm(a.bf16, row_at, column, end, some);
      if (a.codes != nullptr) {
        uint32_t words[N / 4];
        const quant_unit unit = quant_round_part<N>(words, some);
        if (column < end) {
#pragma unroll
          for (int i = 0; i < N / 4; i++) {
            a.codes[(row_at + column) / 4 + i] = words[i];
          }
          if (column % NN_PART == 0) {
            a.units[(row_at + column) / NN_PART] = unit;
          }
        }
      }
    };
    if constexpr (SHAPE::form != NN_ROW_LONG) {
      load(0);
      nn_rms_square(squares, values);
      const float rstd = nn_rms_rstd<LANES>(squares, a.k, a.eps, shared[turn]);
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        finish(values[v], (v * LANES + lane) * N, rstd);
      }
    } else {
      for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
        load(at);
        nn_rms_square(squares, values);
      }
      const float rstd = nn_rms_rstd<LANES>(squares, a.k, a.eps, shared[turn]);
#pragma unroll 1
      for (int64_t at = 0; at < end; at += LANES * N) { /* more at once would not fit registers */
        nn_row_load<WIDE>(values[0], x, at + lane * N, end, 0.0f);
        finish(values[0], at + lane * N, rstd);
      }
    }
    turn ^= 1;
  }
}

/* ---- the launch ---- */

static void use_forms(quant_product &p, const nn_gemm_quant_args *a, const nn_quant_activations &forms) {
  p.codes = reinterpret_cast<const int8_t *>(forms.codes);
  p.units = static_cast<const quant_unit *>(forms.units);
  for (int32_t i = 0; i < 3; i++) {
    p.x[i] = forms.cast[i];
    p.x_wide[i] = nn_aligned_16(forms.cast[i]) && nn_rows_16(a->k, a->k, i);
  }
}

template <class T>
static int32_t norm_activations(nncuda_ctx *ctx, quant_product &p, const nn_gemm_quant_args *a,
                                const nn_quant_activations &forms) {
  const quant_norm n = {a->x,
                        a->norm,
                        a->offsets,
                        a->groups,
                        a->m,
                        a->k,
                        a->eps,
                        forms.codes,
                        static_cast<quant_unit *>(forms.units),
                        static_cast<float *>(forms.cast[NNCUDA_F32]),
                        static_cast<nn_f16 *>(forms.cast[NNCUDA_F16]),
                        static_cast<nn_bf16 *>(forms.cast[NNCUDA_BF16])};
  use_forms(p, a, forms);
  const bool wide = nn_aligned_16(a->x, a->norm) && nn_rows_16(a->k, a->k, a->dtype);
  NN_SWITCH_ROWS(a->k, a->dtype, wide,
                 return nn_launch_ahead(ctx, norm_kernel<T, SHAPE, WIDE>, dim3(nn_row_blocks(a->m, SHAPE::ROWS)),
                                        dim3(SHAPE::THREADS), 0, n));
  return NNCUDA_ERROR_INTERNAL;
}

template <class T>
static int32_t round_activations(nncuda_ctx *ctx, quant_product &p, const T *x, const nn_quant_activations &forms) {
  static_assert(sizeof(quant_unit) == NN_UNIT_BYTES && NN_PART == 32);
  uint32_t *const codes = forms.codes;
  quant_unit *const units = static_cast<quant_unit *>(forms.units);
  p.codes = reinterpret_cast<const int8_t *>(codes);
  p.units = units;
  const auto kernel = nn_aligned_16(x) ? round_kernel<T, true> : round_kernel<T, false>;
  return nn_launch_ahead(ctx, kernel, dim3(nn_blocks(ctx, p.m * p.k / 4, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0, x,
                         codes, units, p.m, p.k, p.offsets, p.groups, p.tokens);
}

template <class F, class T> static int32_t cast_activations(nncuda_ctx *ctx, quant_product &p, const T *x, void *to) {
  F *const y = static_cast<F *>(to);
  return nn_launch_ahead(ctx, cast_kernel<F, T>, dim3(nn_blocks(ctx, p.m * p.k, THREADS, BLOCKS_PER_SM)), dim3(THREADS),
                         0, x, y, p.m, p.k, p.offsets, p.groups, p.tokens);
}

/* Makes what a matrix of the format needs of the activations, unless it is there. */
template <class T>
static int32_t prepare_activations(nncuda_ctx *ctx, quant_product &p, const T *x, int32_t format,
                                   const nn_quant_activations &forms) {
  if (p.raw != nullptr && (format != p.dtype || p.tokens.row_slot != nullptr)) {
    return NNCUDA_SUCCESS;
  }
  if (!nn_is_dtype(format)) {
    return p.codes == nullptr ? round_activations(ctx, p, x, forms) : NNCUDA_SUCCESS;
  }
  if (p.x[format] != nullptr) {
    return NNCUDA_SUCCESS;
  }
  int32_t status = NNCUDA_SUCCESS;
  void *const cast = forms.cast[format];
  const bool as_it_is = format == p.dtype && p.tokens.row_slot == nullptr;
  p.x[format] = as_it_is ? static_cast<const void *>(x) : cast;
  if (as_it_is) {
    /* nothing to be made */
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

/* Rows of x that meet a matrix, about. */
static int64_t rows_of(const quant_product &p) { return p.offsets == nullptr ? p.m : nn_ceil_div(p.m, p.groups); }

static bool one_form(const quant_product &p) {
  return p.combine != NN_QUANT_SWIGLU || quant_same_form(p.matrix[0], p.matrix[1]);
}

/* Whether the product's kernel can itself make what it needs of x. */
static bool takes_raw(const nn_gemm_quant_args *a) {
  return a->dtype == NNCUDA_F32 && a->k % 4 == 0 &&
         (a->norm == nullptr ? nn_aligned_16(a->x) : nn_aligned_16(a->norm) && nn_rms_takes(a->x, a->k));
}

/* False leaves products of one row to quant_gemm_rows.cu: the same bits, to compare times. */
constexpr bool STREAMS = true;
/* Rows of one matrix, so that groups of rows of three are counted in 32 bits, and bytes of x beside the ring. */
constexpr int64_t STREAM_MOST_ROWS = 1 << 28, STREAM_MOST_BYTES = 48 << 10;

/* Whether one row of x meets weights that stream through shared memory: rows that are runs of 16 bytes, plain ones. */
static bool streams(nncuda_ctx *ctx, const quant_product &p) {
  bool all = STREAMS && nn_gpu_arch(ctx) >= 80 && p.m == 1 && p.offsets == nullptr && p.tokens.row_slot == nullptr &&
             p.combined.slot_row == nullptr && p.shared.pieces == 0 && p.k <= QUANT_ONE_ROW_MOST && one_form(p);
  for (int32_t i = 0; i < p.matrices; i++) {
    const quant_weights &matrix = p.matrix[i];
    all = all && !matrix.interleaved && matrix.wide && matrix.n <= STREAM_MOST_ROWS;
    if (nn_is_dtype(matrix.format)) {
      all = all && p.k % 8 == 0 && p.k * (matrix.format == NNCUDA_FORMAT_F32 ? 4 : 2) <= STREAM_MOST_BYTES;
    }
  }
  return all;
}

/* A product of one row, or of one row a group, rounds the row as it loads it, and before norms it for weights in blocks
 * or where they stream: no launch goes before. */
static bool leave_to_the_load(nncuda_ctx *ctx, const nn_gemm_quant_args *a, quant_product &p) {
  bool in_blocks = true;
  for (int32_t i = 0; i < p.matrices; i++) {
    in_blocks = in_blocks && !nn_is_dtype(p.matrix[i].format);
  }
  if (rows_of(p) > 1 || !one_form(p) || p.k > QUANT_ONE_ROW_MOST ||
      (a->norm != nullptr && !in_blocks && !streams(ctx, p))) {
    return false;
  }
  p.raw = static_cast<const float *>(a->x);
  p.norm = static_cast<const float *>(a->norm);
  p.eps = a->eps;
  return true;
}

/* The blocks of a product of a few rows make the forms together. */
static void leave_to_the_blocks(nncuda_ctx *ctx, const nn_gemm_quant_args *a, quant_product &p,
                                const nn_quant_activations &forms) {
  if (forms.codes == nullptr && forms.cast[0] == nullptr && forms.cast[1] == nullptr && forms.cast[2] == nullptr) {
    return;
  }
  use_forms(p, a, forms);
  p.made = {static_cast<const float *>(a->x),
            static_cast<const float *>(a->norm),
            a->eps,
            forms.codes,
            static_cast<quant_unit *>(forms.units),
            static_cast<float *>(forms.cast[NNCUDA_F32]),
            static_cast<nn_f16 *>(forms.cast[NNCUDA_F16]),
            static_cast<nn_bf16 *>(forms.cast[NNCUDA_BF16])};
  const bool by_row = a->norm != nullptr || p.tokens.row_slot != nullptr;
  p.shared = nn_shared_work_of(ctx, by_row ? a->m : nn_ceil_div(a->m * (a->k / 4), QUANT_PIECE_QUADS));
}

static bool uses_mma(nncuda_ctx *ctx, const quant_product &p) {
  return one_form(p) && !nn_is_dtype(p.matrix[0].format) && rows_of(p) >= ROWS_FOR_MMA && nn_gpu_arch(ctx) >= 80;
}

static int32_t run(nncuda_ctx *ctx, quant_product &p) {
  return uses_mma(ctx, p)  ? quant_run_mma(ctx, p, rows_of(p))
         : streams(ctx, p) ? quant_run_stream(ctx, p)
                           : quant_run_rows(ctx, p, rows_of(p));
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
    if (one.matrices > 0) {
      const int32_t status = run(ctx, one);
      if (status != NNCUDA_SUCCESS) {
        return status;
      }
      p.shared = {}; /* is made */
    }
  }
  return NNCUDA_SUCCESS;
}

static int32_t launch(nncuda_ctx *ctx, const nn_gemm_quant_args *a, const quant_tokens &tokens = {},
                      const quant_combine &combined = {}) {
  quant_product p = {};
  p.tokens = tokens;
  p.combined = combined;
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
  const nn_quant_activations forms = nn_quant_lay_out(a, tokens.row_slot != nullptr, nn_workspace_of(ctx));
  int64_t column = 0;
  for (int32_t i = 0; i < a->matrices; i++) {
    const nn_quant_matrix &from = a->matrix[i];
    const bool wide = nn_aligned_16(from.w) && from.row_bytes % 16 == 0;
    const int32_t plain = nn_format_of_interleaved(from.format), format = plain < 0 ? from.format : plain;
    p.matrix[i] = {static_cast<const uint8_t *>(from.w), from.n, from.row_bytes, column, 0, format, wide, plain >= 0};
    column += a->combine == NN_QUANT_COLUMNS ? from.n : 0;
  }
  int32_t status = NNCUDA_SUCCESS;
  const int64_t most_shared = p.offsets == nullptr ? NN_SHARED_WORK_ROWS : MOST_SHARED_SLOTS;
  if (takes_raw(a) && !leave_to_the_load(ctx, a, p) && p.m <= most_shared) {
    leave_to_the_blocks(ctx, a, p, forms);
  } else if (a->norm != nullptr && p.norm == nullptr) {
    NN_SWITCH_FLOATS(a->dtype, status = norm_activations<T>(ctx, p, a, forms));
  }
  for (int32_t i = 0; i < a->matrices && status == NNCUDA_SUCCESS; i++) {
    NN_SWITCH_FLOATS(a->dtype,
                     status = prepare_activations(ctx, p, static_cast<const T *>(a->x), p.matrix[i].format, forms));
  }
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  return run_forms(ctx, p);
}

#define QUANT_GEMM(op)                                                                                                 \
  NN_KERNEL_OF(op, nn_gemm_quant_args) { return launch(ctx, a); }

QUANT_GEMM(gemm_quant)
QUANT_GEMM(gemm_quant_qkv)
QUANT_GEMM(gemm_quant_swiglu)

/* ---- experts ---- */

/* Tokens up to which blocks of the last product add up the rows of a token: a block has 16 or 8 columns of all of them,
 * which it reads in runs of 64 or 32 bytes. More are left to moe_combine. By count. */
constexpr int64_t MOST_TOKENS_COMBINED = 32;

/* Counters at the front, which its blocks need for the rows that they share (nn_shared_work). */
constexpr int64_t SHARED_COUNTERS = 3;

NN_KERNEL(gemm_quant_experts) {
  const nn_quant_experts_space space = nn_quant_experts_lay_out(a, nn_workspace_of(ctx));
  const int64_t slots = a->tokens * a->k;
  const nn_gemm_quant_args inner = nn_experts_inner(a, a->x, space.inner),
                           outer = nn_experts_outer(a, space.inner, space.rows);
  const quant_tokens tokens = {a->row_slot, slots, a->k, nn_range_of(ctx, "row_slot", -1, slots - 1)};
  int32_t status = launch(ctx, &inner, tokens);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  quant_combine combined = {};
  static_assert(MOST_TOKENS_COMBINED < ROWS_FOR_MMA, "rows alone combine");
  if (a->tokens <= MOST_TOKENS_COMBINED && nn_ceil_div(a->dim, QUANT_LEAST_COLUMNS) <= NN_ARRIVALS - SHARED_COUNTERS) {
    unsigned *const arrivals = nn_gpu_arrivals(ctx) + SHARED_COUNTERS;
    combined = {a->weights, a->residual, a->slot_row, a->y,
                arrivals,   a->tokens,   a->k,        nn_range_of(ctx, "slot_row", -1, slots - 1)};
  }
  status = launch(ctx, &outer, {}, combined);
  if (status != NNCUDA_SUCCESS || combined.slot_row != nullptr) {
    return status;
  }
  const nn_moe_combine_args combine = {space.rows, a->weights, a->slot_row, a->residual, a->y,
                                       a->tokens,  a->k,       a->dim,      NNCUDA_F32};
  return nn_cuda_moe_combine(ctx, &combine);
}
