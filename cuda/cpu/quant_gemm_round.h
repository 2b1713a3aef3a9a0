/* The activations of a product with stored weights, rounded once a call. */
#ifndef NN_CPU_QUANT_GEMM_ROUND_H
#define NN_CPU_QUANT_GEMM_ROUND_H

#include "quant_gemm_tile_half.h"

#include <string.h>

/* Magnitudes below this count as zero: 127 / a stays finite. */
#define QUANT_LEAST 0x1p-100f

#if NN_SIMD_AVX512

/* Codes of 32 elements; their scale; the sums of either half of the codes. */
NN_INLINE void quant_round_block(const void *x, int64_t at, int8_t *codes, float *scale, int32_t sums[2],
                                 int32_t dtype) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  vf a = vf_load_as(x, at, dtype), b = vf_load_as(x, at + VF, dtype);
  /* As integers, magnitudes have the same order, with infinity and NaN above all numbers. */
  const int32_t bits = _mm512_reduce_max_epi32(
      _mm512_max_epi32(_mm512_and_si512((__m512i)a, magnitude), _mm512_and_si512((__m512i)b, magnitude)));
  const float largest = nn_f32_from_bits((uint32_t)bits);
  if (bits >= 0x7f800000 || largest < QUANT_LEAST) { /* codes are zero; the scale says what they stand for */
    memset(codes, 0, QUANT_BLOCK);
    *scale = bits >= 0x7f800000 ? NAN : 0.0f;
    sums[0] = sums[1] = 0;
    return;
  }
  const vf inverse = vf_set1(127.0f / largest);
  const __m512i first = _mm512_cvtps_epi32(a * inverse), second = _mm512_cvtps_epi32(b * inverse);
  _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(first));
  _mm_storeu_si128((__m128i *)(void *)(codes + VF), _mm512_cvtepi32_epi8(second));
  *scale = largest / 127.0f;
  sums[0] = _mm512_reduce_add_epi32(first);
  sums[1] = _mm512_reduce_add_epi32(second);
}

#else

/* The largest magnitude of 32 elements; NaN if one is not finite. */
NN_INLINE float quant_largest(const void *x, int64_t at, int32_t dtype) {
  const vf zero = vf_set1(0.0f);
  vf most = zero, odd = zero; /* x - x is NaN where x is not finite, else zero */
  for (int64_t i = 0; i < QUANT_BLOCK; i += VF) {
    const vf v = vf_load_as(x, at + i, dtype);
    most = vf_max(vf_max(v, zero - v), most);
    odd += v - v;
  }
  const float largest = vf_maximum(most), none = vf_sum(odd);
  return none == none ? largest : none;
}

/* Codes of 32 elements; their scale; the sums of either half of the codes. */
NN_INLINE void quant_round_block(const void *x, int64_t at, int8_t *codes, float *scale, int32_t sums[2],
                                 int32_t dtype) {
  const float largest = quant_largest(x, at, dtype);
  const int32_t zero = !(largest >= QUANT_LEAST); /* NaN, too: its scale says it */
  const vf inverse = vf_set1(zero ? 0.0f : 127.0f / largest);
  sums[0] = sums[1] = 0;
  float lanes[QUANT_BLOCK];
  for (int64_t i = 0; i < QUANT_BLOCK; i += VF) {
    vf_store(lanes + i, vf_round((zero ? vf_set1(0.0f) : vf_load_as(x, at + i, dtype)) * inverse));
  }
  for (int64_t i = 0; i < QUANT_BLOCK; i++) {
    codes[i] = (int8_t)(int32_t)lanes[i];
    sums[i / 16] += codes[i];
  }
  *scale = largest < QUANT_LEAST ? 0.0f : largest / 127.0f;
}

#endif

/* A vector of x, rounded to the type that `form` is of. */
NN_INLINE vf quant_round_vector(vf x, int32_t form) {
  uint16_t half[VF];
  if (form == QUANT_FORM_F16) {
    vf_to_f16(half, x);
    return vf_from_f16(half);
  }
  if (form == QUANT_FORM_BF16) {
    vf_to_bf16(half, x);
    return vf_from_bf16(half);
  }
  return x;
}

/* Codes of block i of row `to` to where the products look for them. */
NN_INLINE void quant_put_codes(const quant_activations *acts, int32_t form, int32_t tiled, int64_t to, int64_t i,
                               int64_t k, const int8_t codes[QUANT_BLOCK]) {
  const int64_t tile = to / QUANT_ROWS, lane = to % QUANT_ROWS, row_codes = quant_row_codes(form, k);
  if (!tiled) {
    memcpy(acts->codes + to * row_codes + i * QUANT_BLOCK, codes, QUANT_BLOCK);
  } else if (form == QUANT_FORM_INTERLEAVED) {
    int8_t *pair = acts->codes + tile * QUANT_ROWS * row_codes + i / 2 * (2 * QUANT_BLOCK * QUANT_ROWS);
    memcpy(pair + lane * 2 * QUANT_BLOCK + i % 2 * QUANT_BLOCK, codes, QUANT_BLOCK);
  } else {
    int8_t *p = acts->codes + (tile * k + i * QUANT_BLOCK) * QUANT_ROWS + lane * 4;
    for (int64_t j = 0; j < QUANT_BLOCK; j += 4, p += 4 * QUANT_ROWS) {
      memcpy(p, codes + j, 4);
    }
  }
}

/* Row r of a panel into the rounded factor. */
NN_INLINE void quant_round_row(const quant_activations *acts, int32_t form, const quant_panel *panel, int64_t r,
                               const void *x, int64_t k, int32_t dtype) {
  const int64_t row = panel->row + r, to = panel->tile * QUANT_ROWS + r;
  if (form == QUANT_FORM_BLOCKS || form == QUANT_FORM_INTERLEAVED) {
    const int64_t blocks = k / QUANT_BLOCK, tile = to / QUANT_ROWS, lane = to % QUANT_ROWS;
    const int32_t tiled = quant_tiled(panel->rows);
    for (int64_t i = 0; i < blocks; i++) {
      int8_t codes[QUANT_BLOCK];
      int32_t sums[2];
      const int64_t at = tiled ? (tile * blocks + i) * QUANT_ROWS + lane : to * blocks + i;
      quant_round_block(x, row * k + i * QUANT_BLOCK, codes, &acts->scale[at], sums, dtype);
      quant_put_codes(acts, form, tiled, to, i, k, codes);
      if (form == QUANT_FORM_BLOCKS) {
        acts->total[at] = acts->scale[at] * (float)(sums[0] + sums[1]);
      } else if (!tiled) {
        acts->sums[2 * at] = sums[0];
        acts->sums[2 * at + 1] = sums[1];
      }
    }
    return;
  }
#if QUANT_TILES
  if (form != QUANT_FORM_F32) {
    const int64_t steps = nn_ceil_div(k, HALF_STEP);
    char *tile = (char *)acts->values + to / QUANT_ROWS * steps * (form == QUANT_FORM_F16 ? 2 : 1) * HALF_LINE;
    for (int64_t s = 0; s < steps; s++) {
      const int64_t at = row * k + s * HALF_STEP, n = nn_min(k - s * HALF_STEP, HALF_STEP);
      const vf a = vf_load_upto_as(x, at, n, dtype);
      const vf b = n > VF ? vf_load_upto_as(x, at + VF, n - VF, dtype) : vf_set1(0.0f);
      half_round(tile, to % QUANT_ROWS, s, a, b, form);
    }
    return;
  }
#endif
  float *values = acts->values + to * k;
  int64_t i = 0;
  for (; i + VF <= k; i += VF) {
    vf_store(values + i, quant_round_vector(vf_load_as(x, row * k + i, dtype), form));
  }
  if (i < k) {
    vf_store_part(values + i, k - i, quant_round_vector(vf_load_part_as(x, row * k + i, k - i, dtype), form));
  }
}

#endif
