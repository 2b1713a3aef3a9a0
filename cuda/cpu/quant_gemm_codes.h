/* Blocks of weights as vectors of bytes: 64 elements of a row, two blocks of 32, in their order. */
#ifndef NN_CPU_QUANT_GEMM_CODES_H
#define NN_CPU_QUANT_GEMM_CODES_H

#include "quant_gemm_block.h"

#if NN_SIMD_AVX512

/* What is subtracted from the bytes as they come: 2^quant_offset, or nothing (-1). */
NN_INLINE int32_t quant_offset(int32_t format) {
  switch (format) {
  case NNCUDA_FORMAT_Q4_0:
    return 3;
  case NNCUDA_FORMAT_Q5_0:
    return 4;
  case NNCUDA_FORMAT_Q6_K:
    return 5;
#if defined(__AVX512VNNI__)
  case NNCUDA_FORMAT_Q8_0:
    return 7;
#endif
  default:
    return -1;
  }
}

/* Two runs of 16 bytes, four bits an element: low halves, high halves of the first; low, high of the second. */
NN_INLINE __m512i quant_nibbles(const uint8_t *a, const uint8_t *b) {
  const __m256i two = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)a)),
                                              _mm_loadu_si128((const __m128i *)(const void *)b), 1);
  const __m512i twice =
      _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), _mm512_castsi256_si512(two));
  const __m512i shift =
      _mm512_setr_epi64(0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004);
  return _mm512_and_si512(_mm512_srlv_epi16(twice, shift), _mm512_set1_epi8(15));
}

NN_INLINE __m512i quant_twice(const uint8_t *p) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* A shift of 16-bit lanes, one count for each block. */
NN_INLINE __m512i quant_shifts(int64_t first, int64_t second) {
  return _mm512_inserti64x4(_mm512_set1_epi16((short)first), _mm256_set1_epi16((short)second), 1);
}

/* Blocks 2i and 2i+1 of 32 of a row. `whole` is 0 where the row ends with block 2i, which then stands for the other,
 * too: nothing past the row may be read. For formats of 256 elements, i % 4 is to be a constant. */
NN_INLINE __m512i quant_codes(const uint8_t *row, uint64_t i, int32_t whole, int32_t format) {
  switch (format) {
  case NNCUDA_FORMAT_Q4_0:
  case NNCUDA_FORMAT_Q4_1: {
    const int64_t head = format == NNCUDA_FORMAT_Q4_1 ? 4 : 2, bytes = head + 16;
    const uint8_t *p = row + 2 * i * bytes + head;
    return quant_nibbles(p, p + (whole ? bytes : 0));
  }
  case NNCUDA_FORMAT_Q5_0:
  case NNCUDA_FORMAT_Q5_1: {
    const int64_t head = format == NNCUDA_FORMAT_Q5_1 ? 8 : 6, bytes = head + 16;
    const uint8_t *p = row + 2 * i * bytes + head, *other = p + (whole ? bytes : 0);
    const __mmask64 high = (uint64_t)quant_u32(other - 4) << 32 | quant_u32(p - 4);
    const __m512i low = quant_nibbles(p, other);
    return _mm512_mask_add_epi8(low, high, low, _mm512_set1_epi8(16));
  }
  case NNCUDA_FORMAT_Q8_0: {
    const uint8_t *p = row + 2 * i * 34 + 2, *other = p + (whole ? 34 : 0);
    const __m512i codes =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p)),
                           _mm256_loadu_si256((const __m256i *)(const void *)other), 1);
#if defined(__AVX512VNNI__)
    return _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
#else
    return codes;
#endif
  }
  case NNCUDA_FORMAT_Q4_K:
    return _mm512_and_si512(_mm512_srlv_epi16(quant_twice(row + i / 4 * 144 + 16 + i % 4 * 32), quant_shifts(0, 4)),
                            _mm512_set1_epi8(15));
  case NNCUDA_FORMAT_Q5_K: {
    const uint8_t *p = row + i / 4 * 176;
    const __m512i low =
        _mm512_and_si512(_mm512_srlv_epi16(quant_twice(p + 48 + i % 4 * 32), quant_shifts(0, 4)), _mm512_set1_epi8(15));
    const __m512i bit =
        _mm512_inserti64x4(_mm512_set1_epi8((char)(1 << 2 * (i % 4))), _mm256_set1_epi8((char)(2 << 2 * (i % 4))), 1);
    return _mm512_mask_add_epi8(low, _mm512_test_epi8_mask(quant_twice(p + 16), bit), low, _mm512_set1_epi8(16));
  }
  default: {
    const uint8_t *p = row + i / 4 * 210;
    const uint64_t half = i % 4 / 2, upper = i % 2;
    __m512i low = _mm512_loadu_si512(p + half * 64), high = quant_twice(p + 128 + half * 32);
    if (upper) {
      low = _mm512_srli_epi16(low, 4);
      high = _mm512_srlv_epi16(high, quant_shifts(0, 2));
    } else {
      high = _mm512_sllv_epi16(high, quant_shifts(4, 2));
    }
    high = _mm512_and_si512(high, _mm512_set1_epi8(48));
    return _mm512_ternarylogic_epi32(low, _mm512_set1_epi8(15), high, 0xea); /* low & 15 | high */
  }
  }
}

/* sum + products of bytes of weights and of signed bytes, four a lane. */
NN_INLINE __m512i quant_dot(__m512i sum, __m512i w, __m512i x, int32_t format) {
#if defined(__AVX512VNNI__)
  (void)format;
  return _mm512_dpbusd_epi32(sum, w, x);
#else
  /* Pairs fit 16 bits: 2 * 63 * 127 and, with signs moved to x, 2 * 128 * 127. */
  if (format == NNCUDA_FORMAT_Q8_0) {
    x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    w = _mm512_abs_epi8(w);
  }
  return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(w, x), _mm512_set1_epi16(1)));
#endif
}

#endif
#endif
