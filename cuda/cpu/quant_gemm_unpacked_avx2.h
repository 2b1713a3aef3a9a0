/*
 * Products of several rows with block formats on AVX2. Weights are unpacked once for all rows of a panel: sixteen rows
 * of them side by side, a word of codes of each in a vector, as in the _R16 formats. Then four rows of activations meet
 * them at a time, whose integers stay in registers for a block.
 *
 * With VNNI a word is one instruction, and what codes exceed their weights by is where the integers start. Without it
 * words are added up in 16 bits as far as they fit there, unpacked_parts times a block, so that a word takes a
 * multiplication and an addition. Signed codes, whose pairs fill 16 bits, are unpacked to 16 bits, and so are the
 * activations that they meet: twice as many words, each of two codes. A block adds one product of scales and one fused
 * multiply-add to its words, and q6_k its two factors (q2_k, q3_k, too): of the multiplier's time words take 8 parts of
 * 10 with VNNI (of 12 in q6_k), 8 of 11 without (of 12 in q5, of 14 in q6_k), 16 of 18 in q8_0.
 */
#ifndef NN_CPU_QUANT_GEMM_UNPACKED_AVX2_H
#define NN_CPU_QUANT_GEMM_UNPACKED_AVX2_H

#include "quant_gemm_stream_avx2.h"
#include "transpose.h"

enum {
  UNPACKED_LEAST = 2,                 /* rows of the activations for which it is worth while */
  UNPACKED_BLOCKS = 8,                /* that are unpacked at once */
  UNPACKED_ROWS = 4,                  /* of the activations at a time */
  UNPACKED_WORDS = QUANT_BLOCK / 4,   /* of a block, with codes of 8 bits */
  UNPACKED_VECTORS = QUANT_ROWS / VF, /* that hold a word of each of QUANT_ROWS rows */
  UNPACKED_PARTS_MOST = 4,            /* of a block */
#if defined(__AVXVNNI__)
  UNPACKED_WIDEST = 1 /* bytes of a code that is multiplied */
#else
  UNPACKED_WIDEST = 2
#endif
};

/* What belongs to the codes of a block of QUANT_ROWS rows of weights: scales and minima; what the integers of each half
 * are multiplied by, where parts have factors, and what the minimum is, where they have minima. */
typedef struct unpacked_block {
  float scale[UNPACKED_VECTORS][VF], minimum[UNPACKED_VECTORS][VF];
  int32_t half[2][UNPACKED_VECTORS][VF];
  float least[2][UNPACKED_VECTORS][VF];
} unpacked_block;

/* Scratch memory of a task. `code`: unpacked_words of each block, of codes without a sign or, where unpacked_is_wide,
 * of signed ones in 16 bits: first bytes 0 and 2 of each word, then bytes 1 and 3. `start` of a row: for each part,
 * what the integers of each block start from. `x`: as many words of each block of each row, close together: rows that
 * lie a power of two apart compete for the same lines of the cache (3 to 8 % of the time). */
typedef struct unpacked_work {
  unpacked_block block[UNPACKED_BLOCKS];
  uint8_t code[UNPACKED_BLOCKS * UNPACKED_WIDEST * UNPACKED_WORDS][UNPACKED_VECTORS][4 * VF];
  int32_t start[QUANT_PANEL][UNPACKED_PARTS_MOST][UNPACKED_BLOCKS];
  int32_t x[QUANT_PANEL * UNPACKED_BLOCKS * UNPACKED_WIDEST * UNPACKED_WORDS];
} unpacked_work;

/* Whether codes and activations are multiplied in 16 bits. */
NN_INLINE int unpacked_is_wide(int32_t format) { return UNPACKED_WIDEST == 2 && nn_format_is_signed(format); }

/* Words of codes of a block. */
NN_INLINE int unpacked_words(const int32_t format) { return UNPACKED_WORDS << unpacked_is_wide(format); }

/* Bytes 0 and 2, and bytes 1 and 3, of each word, in 16 bits. */
NN_INLINE si unpacked_even(si bytes) { return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8); }
NN_INLINE si unpacked_odd(si bytes) { return _mm256_srai_epi16(bytes, 8); }

/* In how many parts the words of a block are added up. */
NN_INLINE int unpacked_parts(int32_t format) {
#if defined(__AVXVNNI__)
  return nn_format_has_factors(format) ? 2 : 1;
#else
  switch (format) {
  case NNCUDA_FORMAT_Q6_K:
    return 4;
  case NNCUDA_FORMAT_Q2_K:
  case NNCUDA_FORMAT_Q3_K:
  case NNCUDA_FORMAT_Q5_0:
  case NNCUDA_FORMAT_Q5_1:
  case NNCUDA_FORMAT_Q5_K:
    return 2;
  default:
    return 1;
  }
#endif
}

/* ---- weights ---- */

/* What multiplies a half whose part has a factor: 16-bit pairs of it without VNNI. */
NN_INLINE si unpacked_half(vw factor) {
  const si scale = (si)factor;
#if defined(__AVXVNNI__)
  return scale;
#else
  return _mm256_blend_epi16(scale, _mm256_slli_epi32(scale, 16), 0xaa);
#endif
}

/* Word g of the codes of VF rows of block b. */
NN_INLINE void unpacked_code(unpacked_work *work, int64_t b, int g, int v, si code, const int32_t format) {
  const int64_t at = b * unpacked_words(format) + g;
  if (unpacked_is_wide(format)) {
    si_store(work->code[at][v], unpacked_even(code));
    si_store(work->code[at + UNPACKED_WORDS][v], unpacked_odd(code));
  } else {
    si_store(work->code[at][v], code);
  }
}

/* Block i, block b = i % UNPACKED_BLOCKS of those that are unpacked at once, of VF rows of weights. Of blocks of 256 b
 * is to be a constant. */
NN_INLINE void unpacked_rows(unpacked_work *work, int64_t b, int v, quant_rows *w, uint64_t i, const int32_t format) {
  unpacked_block *to = &work->block[b];
  vf x[VF], scale, minimum = vf_set1(0.0f);
  quant_factors(w, i, &scale, &minimum, format);
  vf_store(to->scale[v], scale);
  vf_store(to->minimum[v], minimum);
  if (nn_format_has_factors(format)) {
    vw factor[2];
    quant_half_factors(w, i, 0, factor, format);
    si_store((uint8_t *)to->half[0][v], unpacked_half(factor[0]));
    si_store((uint8_t *)to->half[1][v], unpacked_half(factor[1]));
  }
  if (nn_format_has_part_minima(format)) {
    vw minima[2];
    quant_half_factors(w, i, 1, minima, format);
    vf_store(to->least[0][v], vw_converted(minima[0]));
    vf_store(to->least[1][v], vw_converted(minima[1]));
  }
  NN_UNROLL for (int j = 0; j < VF; j++) { x[j] = _mm256_castsi256_ps(quant_codes(w->row[j], i, format)); }
  transpose(x);
  NN_UNROLL for (int g = 0; g < UNPACKED_WORDS; g++) {
    unpacked_code(work, b, g, v, _mm256_castps_si256(x[g]), format);
  }
}

/* Blocks i0 .. i0+count-1 of the rows of weights from c on, which lie one by one. */
NN_INLINE void unpacked_plain(unpacked_work *work, const quant_piece *t, int64_t c, quant_rows w[UNPACKED_VECTORS],
                              uint64_t i0, int64_t count, const int32_t format) {
  const nn_format_block block = nn_format_block_of(format);
  const int64_t ahead = (int64_t)(i0 + UNPACKED_BLOCKS) * QUANT_BLOCK / block.elements * block.bytes;
  const int64_t bytes = UNPACKED_BLOCKS * QUANT_BLOCK / block.elements * block.bytes;
  for (int64_t r = 0; r < nn_min(QUANT_ROWS, t->columns - c); r++) {
    for (int64_t at = 0; at < bytes; at += 64) {
      __builtin_prefetch(t->w + (c + r) * t->row_bytes + ahead + at, 0, 2);
    }
  }
  for (int v = 0; v < UNPACKED_VECTORS; v++) {
    if (block.elements > QUANT_BLOCK) {
      NN_UNROLL for (int b = 0; b < UNPACKED_BLOCKS; b++) {
        unpacked_rows(work, b, v, &w[v], i0 / 8 * 8 + (uint64_t)b, format);
      }
      continue;
    }
    for (int64_t b = 0; b < count; b++) {
      unpacked_rows(work, b, v, &w[v], i0 + (uint64_t)b, format);
    }
  }
}

/* Half `half` of a block of 256 whose parts have factors, of VF of QUANT_ROWS interleaved rows. */
NN_INLINE void unpacked_factors(unpacked_work *work, const uint8_t *w, int v, int half, const int32_t format) {
  unpacked_block *to = &work->block[half * 4];
  NN_UNROLL for (int run = 0; run < 4; run++) {
    vw factor[2];
    interleaved_part_factors(w, v, half, run, factor, format);
    vf_store(to[run].scale[v], interleaved_scale(w, v));
    si_store((uint8_t *)to[run].half[0][v], unpacked_half(factor[0]));
    si_store((uint8_t *)to[run].half[1][v], unpacked_half(factor[1]));
    if (nn_format_has_part_minima(format)) {
      vf least[2];
      interleaved_part_minima(w, v, half, run, least);
      vf_store(to[run].minimum[v], interleaved_minimum(w, v));
      vf_store(to[run].least[0][v], least[0]);
      vf_store(to[run].least[1][v], least[1]);
    }
  }
  for (int g = 0; g < UNPACKED_WORDS; g++) {
    si c[4];
    interleaved_four(w, v, half, g, c, format);
    NN_UNROLL for (int run = 0; run < 4; run++) { unpacked_code(work, half * 4 + run, g, v, c[run], format); }
  }
}

/* A block of another format, as block b or, with 256 elements, as it and the next seven. */
NN_INLINE void unpacked_runs(unpacked_work *work, int64_t b, const uint8_t *w, int v, const int32_t format) {
  const int large = interleaved_is_large(format), words = interleaved_words(format);
  unpacked_block *to = &work->block[b];
  NN_UNROLL for (int run = 0; run < interleaved_runs(format); run++) {
    const int64_t low = b + interleaved_run_at(run, format);
    NN_UNROLL for (int g = 0; g < words; g++) {
      si c[2];
      if (format == NNCUDA_FORMAT_Q8_0) {
        unpacked_code(work, low, g, v, quant_signed(interleaved_word(w, interleaved_codes_at(format) + g * 4, v)),
                      format);
        continue;
      }
      interleaved_halves(w, v, run, g, c, 0, format);
      unpacked_code(work, low, g, v, c[0], format);
      unpacked_code(work, low + large, large ? g : g + words, v, c[1], format);
    }
  }
  NN_UNROLL for (int i = 0; i < interleaved_each(format); i++) {
    vf scale, minimum;
    interleaved_factors(w, v, i, &scale, &minimum, format);
    vf_store(to[i].scale[v], scale);
    vf_store(to[i].minimum[v], minimum);
  }
}

/* Bytes of UNPACKED_BLOCKS blocks of an _R16 format. */
NN_INLINE int64_t unpacked_bytes(const int32_t format) {
  const nn_format_block block = nn_format_block_of(format);
  return UNPACKED_BLOCKS * QUANT_BLOCK / block.elements * QUANT_ROWS * block.bytes;
}

/* Such blocks, which begin at w. They are not one run of memory: what is unpacked next is fetched, half of it here and
 * half beside the products. Four rows of cold weights in q4_0 take 1.7 times as long without. */
NN_INLINE void unpacked_interleaved(unpacked_work *work, const uint8_t *w, int64_t count, uintptr_t *next,
                                    const int32_t format) {
  const int64_t step = QUANT_ROWS * nn_format_block_of(format).bytes, each = interleaved_each(format);
  for (int v = 0; v < UNPACKED_VECTORS; v++) {
    if (nn_format_has_factors(format)) {
      unpacked_factors(work, w, v, 0, format);
      quant_fetch(next, step / 4);
      unpacked_factors(work, w, v, 1, format);
      continue;
    }
    for (int64_t b = 0; b < count; b += each) {
      quant_fetch(next, step / 4);
      unpacked_runs(work, b, w + b / each * step, v, format);
    }
  }
}

/* ---- where integers start ---- */

/* -2^offset times the sum of a part's activations; without VNNI, in two 16-bit halves, which with the products that are
 * added to them never leave 16 bits: each is less than half the codes' range away from zero. */
NN_INLINE si unpacked_start(si sums, int32_t offset) {
  const si zero = _mm256_setzero_si256();
#if defined(__AVXVNNI__)
  return _mm256_sub_epi32(zero, _mm256_slli_epi32(sums, offset));
#else
  const si each = _mm256_sub_epi32(zero, _mm256_slli_epi32(sums, offset - 1));
  return _mm256_blend_epi16(each, _mm256_slli_epi32(each, 16), 0xaa);
#endif
}

/* Of `count` blocks of a row of the activations. */
NN_INLINE void unpacked_starts(int32_t start[][UNPACKED_BLOCKS], const int8_t *x, int64_t count, const int32_t format) {
  const int parts = unpacked_parts(format), words = UNPACKED_WORDS / parts;
  const si one = _mm256_set1_epi16(1), ones = _mm256_set1_epi8(1);
  vf sums[VF];
  NN_UNROLL for (int b = 0; b < UNPACKED_BLOCKS; b++) {
    si s = _mm256_setzero_si256();
    if (b < count) {
      s = _mm256_madd_epi16(_mm256_maddubs_epi16(ones, si_load((const uint8_t *)x + b * QUANT_BLOCK)), one);
    }
    sums[b] = _mm256_castsi256_ps(s);
  }
  transpose(sums); /* word g of each block */
  NN_UNROLL for (int p = 0; p < parts; p++) {
    si all = _mm256_castps_si256(sums[p * words]);
    NN_UNROLL for (int g = 1; g < words; g++) { all = _mm256_add_epi32(all, _mm256_castps_si256(sums[p * words + g])); }
    _mm256_storeu_si256((__m256i *)(void *)start[p], unpacked_start(all, quant_offset(format)));
  }
}

/* Of `count` blocks of a row of the activations, what their products take. */
NN_INLINE void unpacked_x(int32_t *to, const int8_t *x, int64_t count, const int32_t format) {
  for (int64_t b = 0; b < count; b++, to += unpacked_words(format)) {
    const si bytes = si_load((const uint8_t *)x + b * QUANT_BLOCK);
    if (unpacked_is_wide(format)) {
      si_store((uint8_t *)to, unpacked_even(bytes));
      si_store((uint8_t *)(to + UNPACKED_WORDS), unpacked_odd(bytes));
    } else {
      si_store((uint8_t *)to, bytes);
    }
  }
}

/* ---- products ---- */

/* sum + a word of codes times a word of activations; in 16 bits without VNNI, but for wide ones. */
NN_INLINE si unpacked_dot(si sum, si w, si x, const int32_t format) {
#if defined(__AVXVNNI__)
  return quant_dot(sum, w, x, format);
#else
  return unpacked_is_wide(format) ? _mm256_add_epi32(sum, _mm256_madd_epi16(w, x))
                                  : _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
#endif
}

/* The integers of part p, times the factor of its half where the format has one. */
NN_INLINE si unpacked_part(si sum, const unpacked_block *w, int p, int v, const int32_t format) {
#if defined(__AVXVNNI__)
  return nn_format_has_factors(format) ? si_times(sum, si_load((const uint8_t *)w->half[p][v])) : sum;
#else
  if (unpacked_is_wide(format)) {
    return sum;
  }
  const si by = nn_format_has_factors(format) ? si_load((const uint8_t *)w->half[2 * p / unpacked_parts(format)][v])
                                              : _mm256_set1_epi16(1);
  return _mm256_madd_epi16(sum, by);
#endif
}

/* Block b of `rows` rows of the activations, which begin at x, with that of the weights: into sums, ld
 * apart. */
NN_INLINE void unpacked_step(const unpacked_work *work, int64_t b, const int32_t *x, const float *scale,
                             const float *total, const int32_t *halves, int64_t blocks, const int32_t *start,
                             float *sums, int64_t ld, const int rows, const int32_t format) {
  enum { START = UNPACKED_PARTS_MOST * UNPACKED_BLOCKS };
  const int parts = unpacked_parts(format), words = unpacked_words(format) / parts;
  const unpacked_block *w = &work->block[b];
  const int64_t at = b * unpacked_words(format), row_words = UNPACKED_BLOCKS * unpacked_words(format);
  si integers[UNPACKED_ROWS][UNPACKED_VECTORS];
  NN_UNROLL for (int p = 0; p < parts; p++) {
    si part[UNPACKED_ROWS][UNPACKED_VECTORS];
    NN_UNROLL for (int r = 0; r < rows; r++) {
      const si from = si_all(quant_offset(format) < 0 ? 0 : start[r * START + p * UNPACKED_BLOCKS]);
      NN_UNROLL for (int v = 0; v < UNPACKED_VECTORS; v++) { part[r][v] = from; }
    }
    NN_UNROLL for (int g = p * words; g < (p + 1) * words; g++) {
      si code[UNPACKED_VECTORS];
      NN_UNROLL for (int v = 0; v < UNPACKED_VECTORS; v++) { code[v] = si_load(work->code[at + g][v]); }
      NN_UNROLL for (int r = 0; r < rows; r++) {
        const si word = si_all(x[r * row_words + at + g]);
        NN_UNROLL for (int v = 0; v < UNPACKED_VECTORS; v++) {
          part[r][v] = unpacked_dot(part[r][v], code[v], word, format);
          __asm__("" : "+x"(part[r][v])); /* in this order: the compiler would add up all words of a vector first */
        }
      }
    }
    NN_UNROLL for (int r = 0; r < rows; r++) {
      NN_UNROLL for (int v = 0; v < UNPACKED_VECTORS; v++) {
        const si done = unpacked_part(part[r][v], w, p, v, format);
        integers[r][v] = p == 0 ? done : _mm256_add_epi32(integers[r][v], done);
      }
    }
  }
  NN_UNROLL for (int r = 0; r < rows; r++) {
    const vf x_scale = vf_set1(scale[r * blocks]);
    NN_UNROLL for (int v = 0; v < UNPACKED_VECTORS; v++) {
      vf sum = vf_load(sums + r * ld + v * VF);
      sum = vf_fma(x_scale * vf_load(w->scale[v]), si_float(integers[r][v]), sum);
      if (nn_format_has_part_minima(format)) {
        const vf whole =
            quant_least_integers(halves + 2 * r * blocks, vf_load(w->least[0][v]), vf_load(w->least[1][v]));
        sum = vf_fma(x_scale * vf_load(w->minimum[v]), whole, sum);
      }
      if (nn_format_has_minimum(format)) {
        sum = vf_fma(vf_set1(total[r * blocks]), vf_load(w->minimum[v]), sum);
      }
      vf_store(sums + r * ld + v * VF, sum);
    }
  }
}

/* What is unpacked, `count` blocks from i0 on of weights from column c on, with `rows` rows of a panel from row r on.
 * If `next` is not 0, what is left to fetch begins there. */
NN_INLINE void unpacked_run(const unpacked_work *work, const quant_piece *t, const quant_activations *acts, int64_t c,
                            int64_t i0, int64_t count, int64_t r, const int rows, uintptr_t next,
                            const int32_t format) {
  const int64_t blocks = t->k / QUANT_BLOCK, row = t->panel->tile * QUANT_ROWS + r;
  const int32_t *x = work->x + r * UNPACKED_BLOCKS * unpacked_words(format);
  const float *scale = acts->scale + row * blocks + i0;
  const float *total = acts->total + row * blocks + i0;
  const int32_t *halves = acts->sums + 2 * (row * blocks + i0);
  const int32_t *start = work->start[r][0];
  float *sums = t->sums + r * t->ld + c;
  for (int i = 0; i0 == 0 && i < rows; i++) {
    memset(sums + i * t->ld, 0, QUANT_ROWS * sizeof *sums);
  }
  for (int64_t b = 0; b < count; b++) {
    if (next) {
      quant_fetch(&next, unpacked_bytes(format) / UNPACKED_BLOCKS / 2);
    }
    unpacked_step(work, b, x, scale + b, total + b, halves + 2 * b, blocks, start + b, sums, t->ld, rows, format);
  }
}

/* The same with all rows of a panel. */
NN_INLINE void unpacked_product(const unpacked_work *work, const quant_piece *t, const quant_activations *acts,
                                int64_t c, int64_t i0, int64_t count, uintptr_t next, const int32_t format) {
  int64_t r = 0;
  for (; r + UNPACKED_ROWS <= t->panel->rows; r += UNPACKED_ROWS, next = 0) {
    unpacked_run(work, t, acts, c, i0, count, r, UNPACKED_ROWS, next, format);
  }
  for (; r < t->panel->rows; r++, next = 0) {
    unpacked_run(work, t, acts, c, i0, count, r, 1, next, format);
  }
}

/* Where the interleaved weights lie that are unpacked after blocks i0 .. of those from column c on. */
NN_INLINE uintptr_t unpacked_next(const quant_piece *t, int64_t c, int64_t i0, const int32_t format) {
  const int64_t at = i0 / UNPACKED_BLOCKS * unpacked_bytes(format);
  if (c + QUANT_ROWS < t->columns) {
    return quant_next(t, c, QUANT_ROWS) + (uintptr_t)at;
  }
  return (uintptr_t)(i0 + UNPACKED_BLOCKS < t->k / QUANT_BLOCK ? t->w + at + unpacked_bytes(format) : t->next);
}

/* A piece's sums; `form` is that of the activations, hence of the weights. */
NN_INLINE void unpacked_columns(const quant_piece *t, const int32_t form, const int32_t format) {
  const quant_activations *acts = &t->job->activations[form];
  unpacked_work *work = (unpacked_work *)(void *)t->work;
  const int64_t blocks = t->k / QUANT_BLOCK, row_codes = quant_row_codes(form, t->k);
  for (int64_t i0 = 0; i0 < blocks; i0 += UNPACKED_BLOCKS) {
    const int64_t count = nn_min(UNPACKED_BLOCKS, blocks - i0);
    const int8_t *x = acts->codes + t->panel->tile * QUANT_ROWS * row_codes + i0 * QUANT_BLOCK;
    for (int64_t r = 0; r < t->panel->rows; r++) {
      if (quant_offset(format) >= 0) {
        unpacked_starts(work->start[r], x + r * row_codes, count, format);
      }
      unpacked_x(work->x + r * UNPACKED_BLOCKS * unpacked_words(format), x + r * row_codes, count, format);
    }
    for (int64_t c = 0; c < t->columns; c += QUANT_ROWS) {
      uintptr_t next = 0;
      if (form == QUANT_FORM_INTERLEAVED) {
        const int64_t at = i0 / UNPACKED_BLOCKS * unpacked_bytes(format);
        next = unpacked_next(t, c, i0, format);
        unpacked_interleaved(work, t->w + c * t->row_bytes + at, count, &next, format);
      } else {
        quant_rows w[UNPACKED_VECTORS];
        for (int64_t v = 0; v < UNPACKED_VECTORS; v++) {
          quant_rows_at(&w[v], t, nn_min(c + v * VF, t->columns - 1));
        }
        unpacked_plain(work, t, c, w, (uint64_t)i0, count, format);
      }
      unpacked_product(work, t, acts, c, i0, count, next, format);
    }
  }
}

#endif
