/*
 * Products with stored weights (bindings.h, section quant): the problem as its kernels see it, which rows of x meet
 * which matrix, and the way from finished sums to y.
 *
 * Files: quant_gemm.cu rounds the activations of many rows, plans and chooses; quant_prepare.cuh rounds those of a few;
 * quant_gemm_stream.cu multiplies for one row of x, quant_gemm_rows.cu for few, and quant_gemm_mma.cu for many on the
 * tensor cores.
 *
 * What decides bits is the same in all of them. With a block format the products of 32 weights are whole numbers, exact
 * whatever instruction makes them, and the blocks of a row are added in order: sum = fma(d * scale, products, sum),
 * then sum = fma(d * (sum of the codes), minimum, sum) where there are minima. With a format that is a dtype, runs of 8
 * elements go in turn to 32 sums, which are added in pairs at the end. So a row has the same bits for any m.
 */
#ifndef NN_KERNELS_QUANT_GEMM_CUH
#define NN_KERNELS_QUANT_GEMM_CUH

#include "abi/quant.h"

#include "kernels/quant_format.cuh"
#include "kernels/shared_work.cuh"

/* What goes with 32 codes of the activations: their unit, and their sums by halves, 16 bits each. */
struct quant_unit {
  float d;
  uint32_t sums;

  __device__ __forceinline__ int low() const { return (int16_t)sums; }
  __device__ __forceinline__ int high() const { return (int)sums >> 16; }
  /* Of all 32, in units of x. */
  __device__ __forceinline__ float total() const { return __fmul_rn(d, (float)(low() + high())); }
};

/*
 * N elements of a part, of which the neighbouring lanes have the others, as codes; the part's unit is in the first of
 * its lanes. A unit of x that is below 2^-100 counts as 0, which keeps its reciprocal finite; one that is not finite
 * makes the unit NaN, and with it every sum that it goes into. Whole warps come here, since their lanes meet.
 */
template <int N>
__device__ __forceinline__ quant_unit quant_round_part(uint32_t (&words)[N / 4], const float (&some)[N]) {
  constexpr int LANES = NN_PART / N;
  float most = 0.0f;
#pragma unroll
  for (int e = 0; e < N; e++) {
    most = nn_larger::of(fabsf(some[e]), most); /* NaN stays */
  }
  most = nn_warp_max<LANES>(most);
  const bool finite = most <= 3.402823466e38f;
  const bool zero = !finite || most < 0x1p-100f;
  const float inverse = zero ? 0.0f : __fdiv_rn(127.0f, most);
  int sum = 0;
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    words[i] = 0;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int code = zero ? 0 : (int)rintf(__fmul_rn(some[4 * i + e], inverse));
      words[i] |= ((uint32_t)code & 255u) << (8 * e);
      sum += code;
    }
  }
  const int half = nn_warp_sum<LANES / 2>(sum), other = __shfl_xor_sync(NN_ALL_LANES, half, LANES / 2);
  const float d = zero ? 0.0f : __fdiv_rn(most, 127.0f);
  return {finite ? d : __int_as_float(0x7fffffff), ((uint32_t)half & 0xffffu) | (uint32_t)other << 16};
}

struct quant_weights {
  const uint8_t *w;
  int64_t n, row_bytes;
  int64_t column, first_tile; /* in y; of the tiles across y */
  int32_t format;
  bool wide;        /* rows are runs of 16 bytes */
  bool interleaved; /* they lie sixteen side by side: the _R16 form of `format` */
};

/* Rows of x that are multiplied: those after the last group are not read. */
__device__ __forceinline__ int64_t quant_rows_used(const int32_t *offsets, int64_t groups, int64_t m) {
  if (offsets == nullptr) {
    return m;
  }
  const int64_t end = offsets[groups];
  return end < 0 ? 0 : end < m ? end : m;
}

/* What a product's blocks make of x, f32, before they multiply: each of it or null. With gains, of its norm. */
struct quant_forms {
  const float *x, *norm;
  float eps;
  uint32_t *codes;
  quant_unit *units;
  float *f32;
  nn_f16 *f16;
  nn_bf16 *bf16;
};

/* Runs of four elements of x that a block takes at a time where they are not normed. By count. */
constexpr int64_t QUANT_PIECE_QUADS = 1024;
/* Rows that are tokens in the order of their experts: row r is token row_slot[r] / each, or zero where that is -1. */
struct quant_tokens {
  const int32_t *row_slot; /* null: rows lie as they are multiplied */
  int64_t rows, each;
  nn_range slots;

  /* -1 for a row of zeros. */
  __device__ __forceinline__ int64_t of(int64_t row) const {
    const int32_t slot = row_slot == nullptr ? (int32_t)row : row_slot[row];
    return row_slot == nullptr ? row : slot >= 0 && slot <= slots.high ? slot / each : -1;
  }
  /* By one block of a call. */
  __device__ __forceinline__ void check() const {
    for (int64_t r = threadIdx.x; row_slot != nullptr && r < rows; r += blockDim.x) {
      slots.holds(r, row_slot[r]);
    }
  }
};

/* What becomes of rows that are a token's: out = residual + sum over its rows of weight * row, as moe_combine has it.
 * Blocks count at `arrivals`, those of some columns at one place, and the last one adds up. */
struct quant_combine {
  const float *weights, *residual;
  const int32_t *slot_row; /* null: nothing becomes of them */
  float *out;
  unsigned *arrivals;
  int64_t tokens, each;
  nn_range rows;
};

struct quant_product {
  quant_weights matrix[NN_QUANT_MATRICES];
  const int8_t *codes;     /* [m, k], or null when no matrix is in blocks */
  const quant_unit *units; /* [m, k / 32] */
  const void *x[3];        /* [m, k] as f32, f16 and bf16, where a matrix is of that type */
  const int32_t *offsets;
  const void *bias, *residual;
  void *y;
  int64_t groups, m, n, k;
  int32_t matrices, combine, activation, dtype;
  bool x_wide[3];
  /* One row of x at a time, in f32: each block rounds it, and before norms it where there are gains. */
  const float *raw, *norm;
  float eps;
  /* Several: the blocks share it. */
  nn_shared_work shared;
  quant_forms made;
  quant_tokens tokens;
  quant_combine combined;
  nn_rule first_offset; /* with their words, since the host follows those */
  nn_range other_offsets;

  /* offsets[0] = 0, never falling, the last at most m. One block of a call looks, and reports the first that is bad;
   * what tiles_of meets of them it leaves out. */
  __device__ __forceinline__ void check_offsets() const {
    if (offsets == nullptr || blockIdx.x != 0 || blockIdx.y != 0) {
      return;
    }
    tokens.check();
    for (int64_t g = threadIdx.x; g < groups; g += blockDim.x) {
      if (g == 0 && offsets[0] != 0) {
        first_offset.broken_by(0, offsets[0]);
      }
      nn_range range = other_offsets;
      range.low = offsets[g];
      if (range.low >= 0 && range.low <= range.high) { /* else that one is the bad one */
        range.holds(g + 1, offsets[g + 1]);
      }
    }
  }
};

/* Rows of x that meet one matrix of each group. */
struct quant_rows {
  int64_t group, first;
  int32_t count;
};

/* Tile number `tile` of up to ROWS rows; false after the last. A whole warp calls it. */
template <int ROWS> __device__ __forceinline__ bool quant_find(const quant_product &p, int64_t tile, quant_rows &to) {
  if (p.offsets == nullptr) {
    const int64_t first = tile * ROWS;
    to = {0, first, (int32_t)(p.m - first < ROWS ? p.m - first : ROWS)};
    return first < p.m;
  }
  const int lane = threadIdx.x % NN_WARP;
  int64_t before = 0;
  for (int64_t group = 0; group < p.groups; group += NN_WARP) {
    const int64_t g = group + lane;
    int32_t begin = 0, end = 0;
    if (g < p.groups) {
      begin = p.offsets[g];
      end = p.offsets[g + 1];
    }
    if (begin < 0 || end < begin || end > p.m) {
      begin = end = 0;
    }
    const int32_t tiles = (int32_t)nn_ceil_div(end - begin, ROWS);
    const int32_t through = nn_warp_scan(tiles);
    const unsigned later = __ballot_sync(NN_ALL_LANES, tile < before + through);
    if (later != 0) {
      const int found = __ffs((int)later) - 1;
      const int32_t at = (int32_t)(tile - before) - __shfl_sync(NN_ALL_LANES, through - tiles, found);
      begin = __shfl_sync(NN_ALL_LANES, begin, found) + at * ROWS;
      end = __shfl_sync(NN_ALL_LANES, end, found);
      to = {group + found, begin, end - begin < ROWS ? end - begin : ROWS};
      return true;
    }
    before += __shfl_sync(NN_ALL_LANES, through, NN_WARP - 1);
  }
  return false;
}

/* Tiles of ROWS rows that there can be at most. */
template <int ROWS> inline int64_t quant_row_tiles(const quant_product &p) {
  return p.offsets == nullptr ? nn_ceil_div(p.m, ROWS) : p.m / ROWS + (p.groups < p.m ? p.groups : p.m);
}

/* Lays tiles of `columns` columns across y, matrix by matrix, and counts them. */
inline int64_t quant_column_tiles(quant_product &p, int64_t columns) {
  int64_t tiles = 0;
  for (int32_t i = 0; i < p.matrices; i++) {
    p.matrix[i].first_tile = tiles;
    tiles += p.combine == NN_QUANT_SWIGLU && i > 0 ? 0 : nn_ceil_div(p.matrix[i].n, columns);
  }
  return tiles;
}

/* The matrix of a tile. */
__device__ __forceinline__ int quant_matrix_of(const quant_product &p, int64_t tile) {
  int which = 0;
  if (p.combine == NN_QUANT_COLUMNS) {
    while (which + 1 < p.matrices && tile >= p.matrix[which + 1].first_tile) {
      which++;
    }
  }
  return which;
}

__device__ __forceinline__ float quant_silu(float x) { return x / (1.0f + expf(-x)); }

template <class T>
__device__ __forceinline__ void quant_finish_as(const quant_product &p, int64_t row, int64_t column, float x) {
  if (p.bias != nullptr) {
    x += nn_to_float(static_cast<const T *>(p.bias)[column]);
  }
  if (p.activation == NNCUDA_ACTIVATION_SILU) {
    x = quant_silu(x);
  }
  const int64_t at = row * p.n + column;
  if (p.residual != nullptr) {
    x += nn_to_float(static_cast<const T *>(p.residual)[at]);
  }
  static_cast<T *>(p.y)[at] = nn_from_float<T>(x);
}

/* One element of y. */
__device__ __forceinline__ void quant_finish(const quant_product &p, int64_t row, int64_t column, float x) {
  if (p.dtype == NNCUDA_F32) {
    quant_finish_as<float>(p, row, column, x);
  } else if (p.dtype == NNCUDA_F16) {
    quant_finish_as<nn_f16>(p, row, column, x);
  } else {
    quant_finish_as<nn_bf16>(p, row, column, x);
  }
}

inline bool quant_same_form(const quant_weights &a, const quant_weights &b) {
  return a.format == b.format && a.interleaved == b.interleaved;
}

/* Columns up to which a block of one row of x has room for its codes, beside 16 KiB: 40 KiB. */
constexpr int64_t QUANT_ONE_ROW_MOST = 32768;

/* Fewest columns of a block of quant_run_rows. */
constexpr int64_t QUANT_LEAST_COLUMNS = 8;

/* Start the product; every matrix has what it needs of the activations. All have one form, but that rows take a gate
 * and an up of two; mma takes blocks, from sm_80 on. `rows`: of x that meet a matrix, about. */
int32_t quant_run_rows(nncuda_ctx *ctx, quant_product &p, int64_t rows);
int32_t quant_run_mma(nncuda_ctx *ctx, quant_product &p, int64_t rows);

/* One row of x by weights that quant_streams (quant_gemm.cu) says yes to. */
int32_t quant_run_stream(nncuda_ctx *ctx, quant_product &p);
int32_t quant_run_stream_dtype(nncuda_ctx *ctx, quant_product &p);

#endif
