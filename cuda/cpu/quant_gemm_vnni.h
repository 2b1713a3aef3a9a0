/* Products of bytes with VNNI (quant_gemm_isa.h): any unsigned byte of weights with a signed one. */
#ifndef NN_CPU_QUANT_GEMM_VNNI_H
#define NN_CPU_QUANT_GEMM_VNNI_H

#include "quant_gemm_avx512.h"

enum { QUANT_SIGNED_OFFSET = 7 };

NN_INLINE si quant_signed(si w) { return _mm512_xor_si512(w, _mm512_set1_epi8(-128)); }

NN_INLINE si quant_dot(si sum, si w, si x, int32_t format) {
  (void)format;
  return _mm512_dpbusd_epi32(sum, w, x);
}

NN_INLINE si quant_upper(si w) { return si_and(w, 0xf0); }
NN_INLINE si quant_upper_sums(si sums) { return _mm512_srai_epi32(sums, 4); }

#endif
