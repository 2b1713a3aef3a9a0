/* Blocks of weights as vectors of bytes (AVX-512): 64 elements of a row, two blocks of 32, in their order. */
#ifndef NN_CPU_QUANT_GEMM_CODES_AVX512_H
#define NN_CPU_QUANT_GEMM_CODES_AVX512_H

#include "quant_gemm_isa.h"

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
  case NNCUDA_FORMAT_IQ4_NL:
  case NNCUDA_FORMAT_MXFP4:
  case NNCUDA_FORMAT_IQ4_XS: {
    const int64_t head = format == NNCUDA_FORMAT_MXFP4 ? 1 : 2, bytes = head + 16;
    const uint8_t *p = row + 2 * i * bytes + head, *other = p + (whole ? bytes : 0);
    if (format == NNCUDA_FORMAT_IQ4_XS) {
      p = row + i / 4 * 136 + 8 + i % 4 * 32;
      other = p + 16;
    }
    return quant_looked_up(quant_signed(quant_table(quant_table_of(format))), quant_nibbles(p, other));
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
    return quant_signed(codes);
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
  case NNCUDA_FORMAT_Q2_K:
  case NNCUDA_FORMAT_Q3_K: {
    const uint64_t half = i % 4 / 2, run = i % 2 * 2;
    const uint8_t *p = row + i / 4 * (format == NNCUDA_FORMAT_Q3_K ? 110 : 84);
    const __m512i two = quant_twice(p + (format == NNCUDA_FORMAT_Q3_K ? 32 : 16) + half * 32);
    const __m512i low = _mm512_and_si512(_mm512_srlv_epi16(two, quant_shifts(2 * (int64_t)run, 2 * (int64_t)run + 2)),
                                         _mm512_set1_epi8(3));
    if (format == NNCUDA_FORMAT_Q2_K) {
      return low;
    }
    const __m512i bit =
        _mm512_inserti64x4(_mm512_set1_epi8((char)(1 << 2 * (i % 4))), _mm256_set1_epi8((char)(2 << 2 * (i % 4))), 1);
    return _mm512_mask_add_epi8(low, _mm512_test_epi8_mask(quant_twice(p), bit), low, _mm512_set1_epi8(4));
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

#endif
