/*
 * Products of 8-bit activations with ternary weights (bindings.h, section ternary): the problem as its kernels see it,
 * and the way from whole sums to y.
 *
 * Files: ternary_gemm.cu chooses, ternary_prepare.cuh rounds a few rows of x, ternary_gemm_rows.cu multiplies for few
 * rows, ternary_gemm_mma.cu for many on the tensor cores. Sums are whole numbers and exact, so that neither the choice
 * nor the order of additions shows in a bit.
 *
 * The kernels multiply codes with what is stored, code + 1, and take the sum of the codes away again: a weight is two
 * bits shifted into place, and a stored 3, which is not a code, counts as 2.
 */
#ifndef NN_KERNELS_TERNARY_GEMM_CUH
#define NN_KERNELS_TERNARY_GEMM_CUH

#include "abi/ternary.h"

#include "kernels/quant_format.cuh"
#include "kernels/shared_work.cuh"
#include "kernels/ternary_unit.cuh"

/* Of a panel, sixteen rows, sixteen columns are 64 bytes in one piece: a word for each row. */
constexpr int TERNARY_PANEL = NN_TERNARY_ROWS, TERNARY_UNIT = 64;

/* Rows that the product's kernel rounds itself, and before norms where there are gains. */
struct ternary_raw {
  const float *x, *norm;
  float eps;
  int8_t *codes; /* where blocks that share the rows leave them: those of the product */
  float *scale;
};

struct ternary_product {
  const int8_t *codes; /* [m, k]; null: each block rounds the one row for itself */
  const float *scale, *w_scale;
  const uint8_t *w; /* [panels, units, 64] */
  const void *residual;
  void *y;
  int64_t m, n, k, panels;
  int32_t units; /* of sixteen columns, in a panel */
  int32_t dtype;
  bool wide;  /* rows of codes, and w, are runs of 16 bytes */
  bool pairs; /* elements 2i and 2i + 1 of a row of y and residual may be read and written as one */
  ternary_raw raw;
  nn_shared_work shared; /* the rows, where blocks share them */

  /* Of a row of codes; there is none of whole numbers. */
  __device__ __forceinline__ float scale_of(int64_t row) const { return dtype == NNCUDA_I32 ? 0.0f : scale[row]; }
};

/* Four codes of four columns each: of word w those at bits 2i of its bytes. */
__device__ __forceinline__ uint32_t ternary_bytes(uint32_t w, int i) { return w >> (2 * i) & 0x03030303u; }

/* The sum of sixteen codes of the activations. */
__device__ __forceinline__ int32_t ternary_sum(const uint4 &x, int32_t sum) {
  const int ones = 0x01010101;
  return __dp4a((int)x.x, ones, __dp4a((int)x.y, ones, __dp4a((int)x.z, ones, __dp4a((int)x.w, ones, sum))));
}

__device__ __forceinline__ float ternary_scaled(const ternary_product &p, float scale, int64_t column, int32_t sum) {
  return __fmul_rn(__int2float_rn(sum), __fmul_rn(scale, p.w_scale[column]));
}

/* One element of y, of a row of codes with this scale. */
__device__ __forceinline__ void ternary_finish(const ternary_product &p, int64_t row, float scale, int64_t column,
                                               int32_t sum) {
  const int64_t at = row * p.n + column;
  if (p.dtype == NNCUDA_I32) {
    static_cast<int32_t *>(p.y)[at] = sum;
    return;
  }
  const float x = ternary_scaled(p, scale, column, sum);
  nn_put_element(p.y, at, p.residual == nullptr ? x : __fadd_rn(x, nn_element_of(p.residual, at, p.dtype)), p.dtype);
}

template <class T>
__device__ __forceinline__ void ternary_finish_pair_as(const ternary_product &p, int64_t at, float (&x)[2]) {
  if (p.residual != nullptr) {
    float past[2];
    nn_load(past, static_cast<const T *>(p.residual) + at);
    x[0] = __fadd_rn(x[0], past[0]);
    x[1] = __fadd_rn(x[1], past[1]);
  }
  nn_store(static_cast<T *>(p.y) + at, x);
}

/* Elements `column`, which is even, and column + 1, as far as they are there. */
__device__ __forceinline__ void ternary_finish_pair(const ternary_product &p, int64_t row, int64_t column, int32_t sum,
                                                    int32_t next) {
  if (column >= p.n) {
    return;
  }
  const float scale = p.scale_of(row);
  if (!p.pairs) {
    ternary_finish(p, row, scale, column, sum);
    if (column + 1 < p.n) {
      ternary_finish(p, row, scale, column + 1, next);
    }
    return;
  }
  const int64_t at = row * p.n + column;
  if (p.dtype == NNCUDA_I32) {
    *reinterpret_cast<int2 *>(static_cast<int32_t *>(p.y) + at) = make_int2(sum, next);
    return;
  }
  float x[2] = {ternary_scaled(p, scale, column, sum), ternary_scaled(p, scale, column + 1, next)};
  if (p.dtype == NNCUDA_F32) {
    ternary_finish_pair_as<float>(p, at, x);
  } else if (p.dtype == NNCUDA_F16) {
    ternary_finish_pair_as<nn_f16>(p, at, x);
  } else {
    ternary_finish_pair_as<nn_bf16>(p, at, x);
  }
}

/* Brings panels to the second cache: no kernel writes them, and so it is done while the kernels before still run. */
template <int THREADS>
__device__ __forceinline__ void ternary_prefetch(const ternary_product &p, int64_t panel, int panels) {
  constexpr int64_t LINE = 128;
  const int64_t end = panel + panels < p.panels ? panel + panels : p.panels, bytes = p.units * (int64_t)TERNARY_UNIT;
  for (int64_t at = panel * bytes + threadIdx.x * LINE; at < end * bytes; at += THREADS * LINE) {
    nn_prefetch(p.w + at);
  }
}

/* Columns up to which a block has room for the codes of one row: 32 KiB. */
constexpr int64_t TERNARY_ONE_ROW_MOST = 32768;

/* Start the product: any number of rows, best for few; and, from sm_75 and where p.wide, more than a few. */
int32_t ternary_run_rows(nncuda_ctx *ctx, const ternary_product &p);
int32_t ternary_run_mma(nncuda_ctx *ctx, const ternary_product &p);

#endif
