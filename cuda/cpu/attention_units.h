/* Units of bf16 products: two bf16 that follow each other along the depth, in a lane of 32 bits. A dot product of
 * vectors (AVX512_BF16) takes one unit a lane, a tile register 16 a row. */
#ifndef NN_CPU_ATTENTION_UNITS_H
#define NN_CPU_ATTENTION_UNITS_H

#include "kernel.h"

typedef uint32_t unit;

enum { BF16_PAIR = 2, BF16_VECTOR = BF16_PAIR * VF };

/* Elements d .. d+31 of a row of `dim`, zeros from there on. */
NN_INLINE vf row_units(const uint16_t *row, int64_t d, int64_t dim) {
  const int64_t left = dim - d;
  const __mmask32 mask = left >= BF16_VECTOR ? ~(__mmask32)0 : left <= 0 ? 0 : ((__mmask32)1 << left) - 1;
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, row + d));
}

/* Unit p of the depth that runs down the rows, for columns d .. d+15: rows 2p and 2p+1, of `rows`. */
NN_INLINE vf column_units(const uint16_t *x, int64_t ld, int64_t p, int64_t rows, int64_t d, int64_t dim) {
  const int64_t left = dim - d;
  const __mmask16 columns = left >= VF ? (__mmask16)0xffff : left <= 0 ? 0 : vf_mask(left);
  const __mmask16 even = BF16_PAIR * p < rows ? columns : 0, odd = BF16_PAIR * p + 1 < rows ? columns : 0;
  const uint16_t *row = x + BF16_PAIR * p * ld + d;
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(even, row));
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(odd, row + ld));
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

/* Numbers that follow each other, rounded: the units of a row. */
NN_INLINE vf units_of_row(const vf x[BF16_PAIR]) { return (vf)_mm512_cvtne2ps_pbh(x[1], x[0]); }

#endif
