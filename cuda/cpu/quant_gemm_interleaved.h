/*
 * Products of few rows with the _R16 formats, sixteen interleaved rows of weights: a word of each row fills a vector,
 * so that sums stay in their lanes and a matrix is one run of memory. Little remains besides reading: 27 vector
 * instructions for the 288 bytes of 16 blocks of q4_0.
 */
#ifndef NN_CPU_QUANT_GEMM_INTERLEAVED_H
#define NN_CPU_QUANT_GEMM_INTERLEAVED_H

#if NN_SIMD_NEON
#include "quant_gemm_pairs_neon.h"
#else
#include "quant_gemm_words.h"
#endif
#include "quant_gemm_interleaved_pairs.h"

/* Vectors that hold a word of each of 16 rows. */
enum { INTERLEAVED_PARTS = QUANT_ROWS / VF };
/* How far ahead weights are fetched. */
enum { INTERLEAVED_AHEAD = 4096 };

/* sums + the products of a word of each row with the same word of the activations. `full`: bytes of w use all 8 bits.
 */
NN_INLINE si si_dot(si sums, si w, const int8_t *word, const int full) {
  const si x = si_all((int32_t)quant_u32((const uint8_t *)word));
  return quant_dot(sums, w, x, full ? NNCUDA_FORMAT_Q8_0 : NNCUDA_FORMAT_Q4_0);
}

/* By how much the bytes of interleaved_integers exceed the codes. */
NN_INLINE int32_t interleaved_offset(int32_t format) {
  const int32_t offset = quant_offset(format);
  return offset < 0 ? 0 : 1 << offset;
}

/* Weights to fetch ahead: the lines of this piece in order, then those that follow. */
typedef struct interleaved_fetch {
  uintptr_t at, end, next;
} interleaved_fetch;

NN_INLINE void interleaved_fetch_line(interleaved_fetch *f) {
  __builtin_prefetch((const void *)f->at, 0, 2);
  f->at += 64;
  if (f->at >= f->end) {
    f->at = f->next, f->end = UINTPTR_MAX;
  }
}

/* What lies there is loaded again: words that the compiler keeps for the other vectors of rows are more than there are
 * registers, and it copies them to the stack. */
#define INTERLEAVED_LOAD_AGAIN(pointer) __asm__("" : "+r"(pointer))

/* The integers of a run of a vector of rows, one block or two, against `rows` rows of the activations, which begin at
 * x. Asks for a line a word, unless `fetch` is null. */
NN_INLINE void interleaved_integers(const uint8_t *w, int part, int run, const int8_t *x, int64_t row_codes,
                                    si integers[2][QUANT_ROWS_AT_ONCE], const int rows, interleaved_fetch *fetch,
                                    const int32_t format) {
#if NN_NEON_PAIRS
  if (rows == QUANT_ROWS_AT_ONCE) {
    for (int g = 0; fetch != NULL && g < interleaved_words(format); g++) {
      interleaved_fetch_line(fetch);
    }
    pairs_interleaved(w, part, run, x, row_codes, integers, format);
    return;
  }
#endif
  const int apart = interleaved_apart(format), raw = interleaved_has_four_bits(format);
  si low[QUANT_ROWS_AT_ONCE], high[QUANT_ROWS_AT_ONCE];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    low[r] = high[r] = si_all(0);
  }
#pragma GCC unroll 8
  for (int g = 0; g < interleaved_words(format); g++) {
    const int8_t *at = x + 4 * g;
    if (fetch != NULL) {
      interleaved_fetch_line(fetch);
    }
    if (format == NNCUDA_FORMAT_Q8_0) {
      const si c = quant_signed(interleaved_word(w, interleaved_codes_at(format) + g * 4, part));
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) { /* two chains, so that neither waits for itself */
        if (g % 2 == 0) {
          low[r] = si_dot(low[r], c, at + r * row_codes, 1);
        } else {
          high[r] = si_dot(high[r], c, at + r * row_codes, 1);
        }
      }
    } else {
      si c[2];
      interleaved_halves(w, part, run, g, c, raw, format);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) {
        low[r] = si_dot(low[r], c[0], at + r * row_codes, nn_format_is_signed(format));
        high[r] = si_dot(high[r], c[1], at + r * row_codes + apart, nn_format_is_signed(format));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    high[r] = raw ? quant_upper_sums(high[r]) : high[r];
    integers[0][r] = interleaved_is_large(format) ? low[r] : si_add(low[r], high[r]);
    integers[1][r] = high[r];
  }
}

/* A block of 16 rows, which is block i of 32 and, of a format of 256 elements, the next seven, against `rows` rows of
 * the activations. Not of formats with factors. */
NN_INLINE void interleaved_block(const uint8_t *w, const quant_activations *acts, int64_t first, int64_t i, int64_t k,
                                 vf sum[][INTERLEAVED_PARTS], const int rows, interleaved_fetch *fetch,
                                 const int32_t format) {
  const int64_t blocks = k / QUANT_BLOCK, row_codes = quant_row_codes(QUANT_FORM_INTERLEAVED, k);
  const int64_t bytes = QUANT_ROWS * nn_format_block_of(format).bytes / interleaved_runs(format);
  const int each = interleaved_is_large(format) ? 2 : 1; /* blocks of a run */
#pragma GCC unroll 8
  for (int run = 0; run < interleaved_runs(format); run++) {
    const int64_t block = i + run * each, begin = block / each * bytes;
    const int64_t lines = (begin + bytes) / 64 - begin / 64; /* that end in the run */
    for (int64_t l = interleaved_words(format); l < lines; l++) {
      interleaved_fetch_line(fetch);
    }
#pragma GCC unroll 2
    for (int part = 0; part < INTERLEAVED_PARTS; part++) {
      const int8_t *x = acts->codes + first * row_codes + block * QUANT_BLOCK;
      if (interleaved_is_large(format)) {
        INTERLEAVED_LOAD_AGAIN(w);
        INTERLEAVED_LOAD_AGAIN(x);
      }
      si integers[2][QUANT_ROWS_AT_ONCE];
      interleaved_integers(w, part, run, x, row_codes, integers, rows, part == 0 ? fetch : NULL, format);
#pragma GCC unroll 2
      for (int b = 0; b < each; b++) {
        vf scale, minimum;
        interleaved_factors(w, part, run * each + b, &scale, &minimum, format);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
          const int64_t at = (first + r) * blocks + block + b;
          si whole = integers[b][r];
          if (interleaved_offset(format) != 0) {
            const int32_t above = interleaved_offset(format) * (acts->sums[2 * at] + acts->sums[2 * at + 1]);
            whole = si_sub(whole, si_all(above));
          }
          sum[r][part] = vf_fma(vf_mul(vf_set1(acts->scale[at]), scale), si_float(whole), sum[r][part]);
          if (nn_format_has_minimum(format)) {
            sum[r][part] = vf_fma(vf_set1(acts->total[at]), minimum, sum[r][part]);
          }
        }
      }
    }
  }
}

/* Lines to ask for beside each of the sixteen words of a block of 256 whose parts have factors. */
NN_INLINE int interleaved_lines(int32_t format) { return format == NNCUDA_FORMAT_Q6_K ? 3 : 1; }

/* A block of 256 of q6_k of 16 rows: eight blocks, from i on. */
NN_INLINE void interleaved_large(const uint8_t *w, const quant_activations *acts, int64_t first, int64_t i, int64_t k,
                                 vf sum[][INTERLEAVED_PARTS], const int rows, interleaved_fetch *fetch) {
  const int64_t blocks = k / QUANT_BLOCK, row_codes = quant_row_codes(QUANT_FORM_INTERLEAVED, k);
  for (int part = 0; part < INTERLEAVED_PARTS; part++) {
    const vf scale = interleaved_scale(w, part);
    for (int half = 0; half < 2; half++) {
      const int64_t block = i + half * 4;
      const int8_t *codes = acts->codes + first * row_codes + block * QUANT_BLOCK;
      INTERLEAVED_LOAD_AGAIN(codes);
      vw total[QUANT_ROWS_AT_ONCE][4];
#pragma GCC unroll 2
      for (int p = 0; p < 2; p++) { /* of 16 elements of each block, which have a scale */
        si dot[QUANT_ROWS_AT_ONCE][4];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
          dot[r][0] = dot[r][1] = dot[r][2] = dot[r][3] = si_all(0);
        }
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
          si c[4];
          interleaved_four(w, part, half, p * 4 + g, c, NNCUDA_FORMAT_Q6_K);
#pragma GCC unroll 4
          for (int r = 0; r < rows; r++) {
            const int8_t *x = codes + r * row_codes + p * 16 + g * 4;
#pragma GCC unroll 4
            for (int run = 0; run < 4; run++) {
              dot[r][run] = si_dot(dot[r][run], c[run], x + run * QUANT_BLOCK, 0);
            }
          }
          for (int l = 0; part == 0 && l < interleaved_lines(NNCUDA_FORMAT_Q6_K); l++) {
            interleaved_fetch_line(fetch);
          }
        }
#pragma GCC unroll 4
        for (int run = 0; run < 4; run++) {
          vw factor[2];
          interleaved_part_factors(w, part, half, run, factor, NNCUDA_FORMAT_Q6_K);
#pragma GCC unroll 4
          for (int r = 0; r < rows; r++) {
            const int32_t above = 32 * acts->sums[2 * ((first + r) * blocks + block + run) + p];
            const vw scaled = vw_mul(vi_words(si_sub(dot[r][run], si_all(above))), factor[p]);
            total[r][run] = p == 0 ? scaled : vw_add(total[r][run], scaled);
          }
        }
      }
#pragma GCC unroll 4
      for (int run = 0; run < 4; run++) {
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
          const vf x_scale = vf_set1(acts->scale[(first + r) * blocks + block + run]);
          sum[r][part] = vf_fma(vf_mul(x_scale, scale), vw_converted(total[r][run]), sum[r][part]);
        }
      }
    }
  }
}

/* Half `half` of a block of 256 of q2_k or q3_k: four blocks of VF rows, from i on. */
NN_INLINE void interleaved_half(const uint8_t *w, const quant_activations *acts, int64_t first, int64_t i, int64_t k,
                                int part, int half, vf sum[][INTERLEAVED_PARTS], const int rows,
                                interleaved_fetch *fetch, const int32_t format) {
  const int64_t blocks = k / QUANT_BLOCK, row_codes = quant_row_codes(QUANT_FORM_INTERLEAVED, k);
  const int8_t *codes = acts->codes + first * row_codes + i * QUANT_BLOCK;
  INTERLEAVED_LOAD_AGAIN(codes);
  si dot[2][QUANT_ROWS_AT_ONCE][4]; /* of 16 elements of each block, which have a factor */
#pragma GCC unroll 2
  for (int p = 0; p < 2; p++) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      dot[p][r][0] = dot[p][r][1] = dot[p][r][2] = dot[p][r][3] = si_all(0);
    }
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
      si c[4];
      pairs_four(w, part, half, p * 4 + g, c, format);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) {
        const int8_t *x = codes + r * row_codes + p * 16 + g * 4;
#pragma GCC unroll 4
        for (int run = 0; run < 4; run++) {
          dot[p][r][run] = si_dot(dot[p][r][run], c[run], x + run * QUANT_BLOCK, 0);
        }
      }
      for (int l = 0; part == 0 && l < interleaved_lines(format); l++) {
        interleaved_fetch_line(fetch);
      }
    }
  }
  const vf scale = interleaved_scale(w, part);
#pragma GCC unroll 4
  for (int run = 0; run < 4; run++) {
    const si factors = pairs_factors(w, part, half, run, format);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      const int64_t at = (first + r) * blocks + i + run;
      const int32_t *sums = acts->sums + 2 * at;
      const vf x_scale = vf_set1(acts->scale[at]);
      si both = si_pairs(dot[0][r][run], dot[1][r][run], pairs_up(run));
      if (interleaved_offset(format) != 0) {
        both = si_sub_pairs(both, pairs_sums(sums, interleaved_offset(format)));
      }
      const vf integers = si_float(si_dot_pairs(both, factors));
      sum[r][part] = vf_fma(vf_mul(x_scale, scale), integers, sum[r][part]);
      if (nn_format_has_part_minima(format)) {
        const vf least = si_float(si_dot_pairs(pairs_sums(sums, 1), pairs_minima(w, part, half, run)));
        sum[r][part] = vf_fma(vf_mul(x_scale, interleaved_minimum(w, part)), least, sum[r][part]);
      }
    }
  }
}

/* Such a block of 16 rows: eight blocks, from i on. */
NN_INLINE void interleaved_halves_of(const uint8_t *w, const quant_activations *acts, int64_t first, int64_t i,
                                     int64_t k, vf sum[][INTERLEAVED_PARTS], const int rows, interleaved_fetch *fetch,
                                     const int32_t format) {
  for (int part = 0; part < INTERLEAVED_PARTS; part++) { /* half is a constant in each, by which bits are shifted */
    interleaved_half(w, acts, first, i, k, part, 0, sum, rows, fetch, format);
    interleaved_half(w, acts, first, i + 4, k, part, 1, sum, rows, fetch, format);
  }
}

/* All columns of a piece, whole sixteens, against `rows` rows of the activations from row `r0` on. */
NN_INLINE void interleaved_rows(const quant_piece *t, int64_t r0, const int rows, const int32_t format) {
  const quant_activations *acts = &t->job->activations[QUANT_FORM_INTERLEAVED];
  const int64_t first = t->panel->tile * QUANT_ROWS + r0, blocks = t->k / QUANT_BLOCK;
  const nn_format_block block = nn_format_block_of(format);
  const int64_t each = block.elements / QUANT_BLOCK, step = QUANT_ROWS * block.bytes;
  const uint8_t *w = t->w;
  interleaved_fetch fetch = {.end = (uintptr_t)(w + t->columns * t->row_bytes), .next = (uintptr_t)t->next};
  fetch.at = (uintptr_t)w + INTERLEAVED_AHEAD;
  if (fetch.at >= fetch.end) {
    fetch.at = fetch.next, fetch.end = UINTPTR_MAX;
  }
  for (int64_t c = 0; c < t->columns; c += QUANT_ROWS) {
    vf sum[QUANT_ROWS_AT_ONCE][INTERLEAVED_PARTS];
    for (int r = 0; r < rows; r++) {
      for (int part = 0; part < INTERLEAVED_PARTS; part++) {
        sum[r][part] = vf_set1(0.0f);
      }
    }
    for (int64_t i = 0; i < blocks; i += each, w += step) {
      if (nn_format_has_factors(format)) {
        const int64_t begin = i / each * step, lines = (begin + step) / 64 - begin / 64; /* that end in the block */
        for (int64_t l = 16 * interleaved_lines(format); l < lines; l++) {
          interleaved_fetch_line(&fetch);
        }
        if (format == NNCUDA_FORMAT_Q6_K) {
          interleaved_large(w, acts, first, i, t->k, sum, rows, &fetch);
        } else {
          interleaved_halves_of(w, acts, first, i, t->k, sum, rows, &fetch, format);
        }
      } else {
        interleaved_block(w, acts, first, i, t->k, sum, rows, &fetch, format);
      }
    }
    for (int r = 0; r < rows; r++) {
      for (int part = 0; part < INTERLEAVED_PARTS; part++) {
        vf_store(t->sums + (r0 + r) * t->ld + c + part * VF, sum[r][part]);
      }
    }
  }
}

#endif
