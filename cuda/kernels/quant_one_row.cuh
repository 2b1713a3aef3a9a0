/*
 * One row of x as a block of a product multiplies it: its codes in shared memory, made there of the row, and the whole
 * products of a part.
 */
#ifndef NN_KERNELS_QUANT_ONE_ROW_CUH
#define NN_KERNELS_QUANT_ONE_ROW_CUH

#include "kernels/norm_row.cuh"
#include "kernels/quant_gemm.cuh"

/* The codes of a row in shared memory: elements 0 .. 15 and 16 .. 31 of each part, so that lanes side by side meet no
 * bank twice. */
struct quant_row_codes {
  uint4 *low, *high;
  quant_unit *units;

  __device__ __forceinline__ quant_row_codes(unsigned char *shared, int64_t parts)
      : low(reinterpret_cast<uint4 *>(shared)), high(low + parts), units(reinterpret_cast<quant_unit *>(high + parts)) {
  }
  static size_t bytes(int64_t k) { return (size_t)(k / NN_PART) * (2 * sizeof(uint4) + sizeof(quant_unit)); }

  /* Four elements, number `quad` of all. Whole warps come here. */
  __device__ __forceinline__ void round(int64_t quad, int64_t quads, const float (&some)[4]) const {
    constexpr int LANES = NN_PART / 4;
    uint32_t word[1];
    const quant_unit unit = quant_round_part<4>(word, some);
    if (quad < quads) {
      uint4 *const half = quad % LANES < LANES / 2 ? low : high;
      reinterpret_cast<uint32_t *>(half + quad / LANES)[quad % (LANES / 2)] = word[0];
      if (quad % LANES == 0) {
        units[quad / LANES] = unit;
      }
    }
  }
};

/* By a whole block: made of the row, or copied. */
template <int THREADS>
__device__ __forceinline__ void quant_fetch_row(const quant_product &p, int64_t row, const quant_row_codes &to) {
  const int64_t parts = p.k / NN_PART, quads = p.k / 4;
  if (p.raw == nullptr) {
    const uint4 *const codes = reinterpret_cast<const uint4 *>(p.codes + row * p.k);
    for (int64_t i = threadIdx.x; i < parts; i += THREADS) {
      to.low[i] = codes[2 * i];
      to.high[i] = codes[2 * i + 1];
      to.units[i] = p.units[row * parts + i];
    }
    return;
  }
  const int64_t token = p.tokens.of(row);
  __shared__ float sums[NN_WARP];
  const float *const x = p.raw + token * p.k; /* of a row of zeros nothing is read */
  const float rstd = p.norm == nullptr ? 0.0f : nn_rms_of_row<THREADS>(x, p.k, p.eps, sums);
  nn_each_quad<THREADS>(x, p.norm, rstd, quads, token < 0 ? 0 : p.k,
                        [&](int64_t quad, const float(&some)[4]) { to.round(quad, quads, some); });
}

__device__ __forceinline__ int quant_dot(const uint32_t *a, const uint32_t *b, int sum) {
#pragma unroll
  for (int i = 0; i < NN_PART_WORDS / 2; i++) {
    sum = __dp4a((int)a[i], (int)b[i], sum);
  }
  return sum;
}

/* The whole product of 32 weights and codes. */
template <int FORMAT>
__device__ __forceinline__ int quant_part_product(const nn_part &part, const uint32_t (&codes)[NN_PART_WORDS],
                                                  const quant_unit &unit) {
  using S = nn_stored<FORMAT>;
  const int low = quant_dot(part.quants, codes, -S::MIDDLE * unit.low());
  if constexpr (S::HAS_FACTORS) {
    const int high = quant_dot(part.quants + 4, codes + 4, -S::MIDDLE * unit.high());
    return low * part.factor[0] + high * part.factor[1];
  } else {
    return quant_dot(part.quants + 4, codes + 4, low - S::MIDDLE * unit.high());
  }
}

/* Whether parts have a second term, of their minimum. */
template <int FORMAT> constexpr bool quant_has_second = nn_stored<FORMAT>::HAS_MINIMUM || nn_has_part_minima<FORMAT>;

/* The factors of that term. */
template <int FORMAT> __device__ __forceinline__ float2 quant_second_term(const nn_part &part, const quant_unit &unit) {
  if constexpr (nn_has_part_minima<FORMAT>) {
    const int whole = unit.low() * part.least[0] + unit.high() * part.least[1];
    return make_float2(__fmul_rn(unit.d, part.minimum), (float)whole);
  } else {
    return make_float2(unit.total(), part.minimum);
  }
}

#endif
