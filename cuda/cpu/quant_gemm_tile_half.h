/*
 * Products with f16 and bf16 weights in the tile registers of AMX, which multiply bf16.
 *
 * f16: each number is the sum of two bf16, exactly: its 11 bits are 8 and 3. A tile of the activations has 8 of its
 * rows, each as a column of high parts and one of low parts; the tiles of weights, of high and of low parts, meet the
 * same one. The four sums of a result are added last. An infinity has no such parts and gives NaN. bf16: steps of 32
 * elements go to four sums in turn. A multiplication waits for the one before that has the same sum, and takes three
 * times as long as the unit is busy with it.
 */
#ifndef NN_CPU_QUANT_GEMM_TILE_HALF_H
#define NN_CPU_QUANT_GEMM_TILE_HALF_H

#include "quant_gemm_tile.h"

enum {
  HALF_STEP = 32 /* elements of k in a tile */,
  HALF_STEPS = 16 /* unpacked at once */,
  HALF_LINE = 1024,
  HALF_AHEAD = 320
};

/* Two vectors of f32, of which the upper halves alone are taken: lane by lane, pairs of bf16. */
NN_INLINE __m512i half_pairs(vf a, vf b) {
  const __m512i upper = _mm512_set1_epi32((int32_t)0xffff0000);
  return _mm512_ternarylogic_epi32(_mm512_srli_epi32((__m512i)a, 16), (__m512i)b, upper, 0xf8); /* a | (b & upper) */
}

/* 32 f16 as pairs of high and of low parts: elements i and i + 16. */
NN_INLINE void half_split(vf a, vf b, __m512i *high, __m512i *low) {
  const __m512i upper = _mm512_set1_epi32((int32_t)0xffff0000);
  *high = half_pairs(a, b);
  *low = half_pairs(a - (vf)_mm512_and_si512((__m512i)a, upper), b - (vf)_mm512_and_si512((__m512i)b, upper));
}

/* n of 32 16-bit numbers, then zeros. */
NN_INLINE __m512i half_load(const void *p, int64_t n) {
  return n >= HALF_STEP ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16((__mmask32)((1ull << n) - 1), p);
}

/* Step s of row `lane` of a tile of the activations. */
NN_INLINE void half_round(char *tile, int64_t lane, int64_t s, vf a, vf b, int32_t form) {
  const __m512i lines = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                           _mm512_set1_epi32(64));
  if (form == QUANT_FORM_F16) {
    const vf first = _mm512_cvtph_ps(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    const vf second = _mm512_cvtph_ps(_mm512_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    char *to = tile + (2 * s + lane / 8) * HALF_LINE + lane % 8 * 8;
    __m512i high, low;
    half_split(first, second, &high, &low);
    _mm512_i32scatter_epi32(to, lines, high, 1);
    _mm512_i32scatter_epi32(to + 4, lines, low, 1);
  } else {
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(vf_round_bf16(a)), vf_round_bf16(b), 1);
    _mm512_i32scatter_epi32(tile + s * HALF_LINE + lane * 4, lines, both, 1);
  }
}

/* Row `row` of x into row `to` of the factor. */
NN_INLINE void half_round_row(const quant_activations *acts, int32_t form, int64_t to, const void *x, int64_t row,
                              int64_t k, int32_t dtype) {
  const int64_t steps = nn_ceil_div(k, HALF_STEP);
  char *tile = (char *)acts->values + to / QUANT_ROWS * steps * (form == QUANT_FORM_F16 ? 2 : 1) * HALF_LINE;
  for (int64_t s = 0; s < steps; s++) {
    const int64_t at = row * k + s * HALF_STEP, n = nn_min(k - s * HALF_STEP, HALF_STEP);
    const vf a = vf_load_upto_as(x, at, n, dtype);
    const vf b = n > VF ? vf_load_upto_as(x, at + VF, n - VF, dtype) : vf_set1(0.0f);
    half_round(tile, to % QUANT_ROWS, s, a, b, form);
  }
}

typedef struct half_weights {
  const uint8_t *row[QUANT_TILE];
  int64_t row_bytes, k, rows;
} half_weights;

/* Asks for what the 16 rows have some steps on; past their ends, for the first of the rows at `next`. Little ahead,
 * so that each row is a run of its own to the processor, too: asking for the next rows as a whole, in order, reads a
 * quarter less a second. */
NN_INLINE void half_fetch(const half_weights *w, int64_t row_bytes, int64_t s, uintptr_t next) {
  const int64_t at = s * 64 + HALF_AHEAD;
#pragma GCC unroll 16
  for (int r = 0; r < QUANT_TILE; r++) {
    const uintptr_t p =
        at < row_bytes ? (uintptr_t)w->row[r] + (uintptr_t)at : next + (uintptr_t)(r * row_bytes + at - row_bytes);
    __builtin_prefetch((const void *)p, 0, 2);
  }
}

/* Step s of 16 rows, of which all 32 elements are there, or not (`whole`): known when compiling, since a branch a row
 * would take as long as the rest. Conversions from memory need no instruction that moves lanes. */
NN_INLINE void half_unpack_rows(const half_weights *w, int64_t s, char *to, const int whole, const int32_t format) {
  const int64_t rest = w->k - s * HALF_STEP;
#pragma GCC unroll 16
  for (int r = 0; r < QUANT_TILE; r++) {
    const uint8_t *p = w->row[r] + s * 64;
    if (format != NNCUDA_FORMAT_F16) {
      _mm512_store_si512(to + r * 64, half_load(p, whole ? HALF_STEP : rest));
      continue;
    }
    __m512i high, low;
    if (whole) {
      half_split(vf_from_f16((const uint16_t *)(const void *)p), vf_from_f16((const uint16_t *)(const void *)(p + 32)),
                 &high, &low);
    } else {
      const __m512i both = half_load(p, rest);
      half_split(_mm512_cvtph_ps(_mm512_castsi512_si256(both)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1)),
                 &high, &low);
    }
    _mm512_store_si512(to + r * 64, high);
    _mm512_store_si512(to + HALF_LINE + r * 64, low);
  }
}

NN_INLINE void half_unpack(const half_weights *w, int64_t s, char *to, const int32_t format) {
  if ((s + 1) * HALF_STEP <= w->k) {
    half_unpack_rows(w, s, to, 1, format);
  } else {
    half_unpack_rows(w, s, to, 0, format);
  }
}

/* Step s of a tile of 16 rows of each factor, those of weights `step` bytes apart. Registers 0 to 3: sums. */
NN_INLINE void half_multiply(const char *w, int64_t step, const char *x, int64_t s, int32_t few, const int32_t format) {
  if (format == NNCUDA_FORMAT_F16) {
    _tile_loadd(4, w, step);
    _tile_loadd(6, x, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, w + HALF_LINE, step);
    _tile_dpbf16ps(1, 5, 6);
    if (!few) {
      _tile_loadd(7, x + HALF_LINE, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
    return;
  }
  _tile_loadd(4, w, step);
  _tile_loadd(6, x, 64);
  switch (s % 4) {
  case 0:
    _tile_dpbf16ps(0, 4, 6);
    break;
  case 1:
    _tile_dpbf16ps(1, 4, 6);
    break;
  case 2:
    _tile_dpbf16ps(2, 4, 6);
    break;
  default:
    _tile_dpbf16ps(3, 4, 6);
  }
}

/* The four sums of a tile lie one behind the other. */
enum { HALF_SUMS_BYTES = QUANT_TILE_SUMS * sizeof(float) };

/* The four sums of each result of a tile, added: columns c .. c+15 of rows r0 .. */
NN_INLINE void half_finish(const quant_piece *t, int64_t c, int64_t r0, const float *sums, const int32_t format) {
  const int64_t rows = nn_min(QUANT_TILE, t->panel->rows - r0);
  const __m512i lanes = _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 4);
  for (int64_t r = 0; r < rows; r++) {
    vf sum;
    if (format == NNCUDA_FORMAT_F16) {
      const float *high = sums + r / 8 * 2 * QUANT_TILE_SUMS + r % 8 * 2, *low = high + QUANT_TILE_SUMS;
      const vf mixed = _mm512_i32gather_ps(lanes, high + 1, 4) + _mm512_i32gather_ps(lanes, low, 4);
      sum = _mm512_i32gather_ps(lanes, high, 4) + (mixed + _mm512_i32gather_ps(lanes, low + 1, 4));
    } else {
      const float *p = sums + r;
      sum = (_mm512_i32gather_ps(lanes, p, 4) + _mm512_i32gather_ps(lanes, p + QUANT_TILE_SUMS, 4)) +
            (_mm512_i32gather_ps(lanes, p + 2 * QUANT_TILE_SUMS, 4) +
             _mm512_i32gather_ps(lanes, p + 3 * QUANT_TILE_SUMS, 4));
    }
    vf_store(t->sums + (r0 + r) * t->ld + c, sum);
  }
}

NN_INLINE void half_tiles(const quant_piece *t, const int32_t format) {
  const int32_t f16 = format == NNCUDA_FORMAT_F16;
  const char *activations = (const char *)t->job->activations[quant_form_of(format)].values;
  tile_work *work = (tile_work *)(void *)t->work;
  const int64_t steps = nn_ceil_div(t->k, HALF_STEP), tiles = nn_ceil_div(t->panel->rows, QUANT_TILE);
  const int64_t step_bytes = (f16 ? 2 : 1) * HALF_LINE;
  const int32_t few = t->panel->rows <= QUANT_TILE / 2;
  char *codes = (char *)work->code;
  activations += t->panel->tile * steps * step_bytes;
  tile_registers_open();
  for (int64_t c = 0; c < t->columns; c += QUANT_TILE) {
    half_weights w = {.row_bytes = t->row_bytes, .k = t->k, .rows = nn_min(QUANT_TILE, t->columns - c)};
    for (int64_t r = 0; r < QUANT_TILE; r++) {
      w.row[r] = t->w + (c + nn_min(r, w.rows - 1)) * t->row_bytes;
    }
    const uintptr_t next = quant_next(t, c, QUANT_TILE);
    if (tiles == 1) { /* weights pass by once; as they lie, where they can be read so */
      tile_zero_four();
      for (int64_t s = 0; s < steps; s++) {
        half_fetch(&w, t->row_bytes, s, next);
        char *here = codes + s % 4 * step_bytes;
        if (!f16 && w.rows == QUANT_TILE && (s + 1) * HALF_STEP <= t->k) {
          half_multiply((const char *)w.row[0] + s * 64, t->row_bytes, activations + s * step_bytes, s, few, format);
        } else {
          half_unpack(&w, s, here, format);
          half_multiply(here, 64, activations + s * step_bytes, s, few, format);
        }
      }
      tile_store_four(work->sums, 64, HALF_SUMS_BYTES, 2 * HALF_SUMS_BYTES);
    }
    for (int64_t s0 = 0; s0 < steps && tiles > 1; s0 += HALF_STEPS) {
      const int64_t end = nn_min(s0 + HALF_STEPS, steps);
      for (int64_t s = s0; s < end; s++) {
        half_fetch(&w, t->row_bytes, s, next);
        half_unpack(&w, s, codes + (s - s0) * step_bytes, format);
      }
      for (int64_t i = 0; i < tiles; i++) {
        float *sums = work->sums + i * 4 * QUANT_TILE_SUMS;
        if (s0 == 0) {
          tile_zero_four();
        } else {
          tile_load_four(sums, 64, HALF_SUMS_BYTES, 2 * HALF_SUMS_BYTES);
        }
        const char *x = activations + i * steps * step_bytes;
        for (int64_t s = s0; s < end; s++) {
          half_multiply(codes + (s - s0) * step_bytes, 64, x + s * step_bytes, s, 0, format);
        }
        tile_store_four(sums, 64, HALF_SUMS_BYTES, 2 * HALF_SUMS_BYTES);
      }
    }
    for (int64_t i = 0; i < tiles; i++) {
      half_finish(t, c, i * QUANT_TILE, work->sums + i * 4 * QUANT_TILE_SUMS, format);
    }
  }
  tile_registers_close();
}

#endif
