/*
 * What products with stored weights need of a few rows of x, made by the product's own kernel: codes with their units,
 * or numbers of another type, of the rows as they are or normed. A block makes it of one row for itself, or the blocks
 * share it. The bits are those of the kernels in quant_gemm.cu, which make it of many rows.
 */
#ifndef NN_KERNELS_QUANT_PREPARE_CUH
#define NN_KERNELS_QUANT_PREPARE_CUH

#include "kernels/norm_row.cuh"
#include "kernels/quant_gemm.cuh"

template <class F> __device__ __forceinline__ void quant_put_quad(F *to, int64_t quad, const float (&some)[4]) {
  if (to != nullptr) {
    nn_store(to + quad * 4, some);
  }
}

/* The forms that the product needs, of all rows. A piece is a row that is normed or a token's, or a run of elements. */
template <int THREADS> __device__ __forceinline__ void quant_prepare_rows(const quant_product &p) {
  __shared__ float sums[NN_WARP];
  const quant_forms &to = p.made;
  const bool gathers = p.tokens.row_slot != nullptr;
  nn_share_work(p.shared, [&](int64_t piece) {
    const int64_t length = gathers || to.norm != nullptr ? p.k / 4 : QUANT_PIECE_QUADS, begin = piece * length;
    const int64_t left = quant_rows_used(p.offsets, p.groups, p.m) * (p.k / 4) - begin;
    if (left <= 0) {
      return;
    }
    const int64_t quads = left < length ? left : length, token = gathers ? p.tokens.of(piece) : 0;
    const float *const x = to.x + (gathers ? token * p.k : begin * 4); /* of a row of zeros nothing is read */
    const float rstd = to.norm != nullptr ? nn_rms_of_row<THREADS>(x, p.k, to.eps, sums) : 0.0f;
    nn_each_quad<THREADS>(x, to.norm, rstd, quads, token < 0 ? 0 : quads * 4, [&](int64_t at, const float(&some)[4]) {
      const int64_t quad = begin + at;
      if (at < quads) {
        quant_put_quad(to.f32, quad, some);
        quant_put_quad(to.f16, quad, some);
        quant_put_quad(to.bf16, quad, some);
      }
      if (to.codes != nullptr) {
        uint32_t word[1];
        const quant_unit unit = quant_round_part<4>(word, some);
        if (at < quads) {
          to.codes[quad] = word[0];
          if (quad % (NN_PART / 4) == 0) {
            to.units[quad / (NN_PART / 4)] = unit;
          }
        }
      }
    });
  });
}

#endif
