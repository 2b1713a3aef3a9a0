/* Products of bytes without VNNI, on AVX-512 (quant_gemm_isa.h): pairs are added in 16 bits. */
#ifndef NN_CPU_QUANT_GEMM_PAIRS_H
#define NN_CPU_QUANT_GEMM_PAIRS_H

#include "quant_gemm_avx512.h"

enum { QUANT_SIGNED_OFFSET = -1 };

NN_INLINE si quant_signed(si w) { return w; }

/* Pairs fit 16 bits: 2 * 63 * 127 and, with the signs of the weights moved to x, 2 * 128 * 127. */
NN_INLINE si quant_dot(si sum, si w, si x, int32_t format) {
  if (nn_format_is_signed(format)) {
    x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    w = _mm512_abs_epi8(w);
  }
  return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(w, x), _mm512_set1_epi16(1)));
}

NN_INLINE si quant_upper(si w) { return si_and(si_right(w, 4), 15); }
NN_INLINE si quant_upper_sums(si sums) { return sums; }

#endif
