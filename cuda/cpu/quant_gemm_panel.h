/*
 * Products of many rows with block formats on AVX-512. Weights of PANEL_COLUMNS columns are unpacked PANEL_BLOCKS
 * blocks at a time, for all rows of the panel, into words of VF rows side by side: they stay in L1 while the rows pass
 * by, a few at once, and each word that is loaded meets several others in registers.
 *
 * What a block of VF columns needs of the two units that multiply, by its definition: 8 products of bytes, the product
 * of its scales and the multiply-add; with minima one more of those, and with factors of parts the two products with
 * these. So 8 of 10, 11 or 12 instructions, 80, 73 or 67 % (of 16 in q2_k, whose parts have minima: 50 %) of the peak
 * of products of bytes, is the most that a processor with VNNI can reach; conversions run beside them, in the units
 * that add.
 */
#ifndef NN_CPU_QUANT_GEMM_PANEL_H
#define NN_CPU_QUANT_GEMM_PANEL_H

#include "quant_gemm_vector.h"
#include "transpose.h"

enum {
  PANEL_BLOCKS = QUANT_RUN, /* unpacked at once: 22 KB, so that L1 has room for the activations */
  PANEL_WORDS = QUANT_BLOCK / 4,
  PANEL_COLUMNS = QUANT_COLUMNS,
  PANEL_VECTORS = PANEL_COLUMNS / VF,
  PANEL_ROWS = 4, /* of a tile, whose integers and sums fill the registers */
  PANEL_WIDTH = 2 /* vectors of a tile */
};

/* 32 weights of VF rows, in the words that quant_dot takes. */
typedef struct panel_block {
  uint8_t code[PANEL_WORDS][4 * VF];
  float scale[VF];
  float part[2][VF];  /* factors of its halves; formats with minima: these first */
  float least[3][VF]; /* q2_k: the minimum, and what multiplies it in its halves */
} panel_block;

typedef struct panel_work {
  panel_block block[PANEL_BLOCKS][PANEL_VECTORS];
} panel_work;

/* Rows of the activations, from a block on. */
typedef struct panel_rows {
  const int8_t *codes;
  const float *scale, *total;
  const int32_t *sums;
  int64_t blocks; /* from row to row */
  int32_t offset; /* what the codes of weights have too much, 2^offset, or -1 */
} panel_rows;

/* What the integers of a block become: */
enum {
  PANEL_CODES,  /* unsigned codes, which may have an offset */
  PANEL_SIGNED, /* as quant_signed gives them */
  PANEL_MINIMA, /* and minima */
  PANEL_PARTS,  /* and factors of the halves */
  PANEL_PARTS_MINIMA,
  PANEL_KINDS
};

NN_INLINE int32_t panel_kind(int32_t format) {
  if (nn_format_has_factors(format)) {
    return nn_format_has_part_minima(format) ? PANEL_PARTS_MINIMA : PANEL_PARTS;
  }
  return nn_format_has_minimum(format) ? PANEL_MINIMA : nn_format_is_signed(format) ? PANEL_SIGNED : PANEL_CODES;
}

/* ---- the tile ---- */

/* Words `from` .. of a block times those of the activations' rows. */
NN_INLINE void panel_words(si dot[][PANEL_WIDTH], const panel_block *w, const int8_t *x, int64_t row_codes,
                           const int from, const int words, const int rows, const int vectors, const int kind) {
  const int32_t format = kind == PANEL_SIGNED ? NNCUDA_FORMAT_Q8_0 : NNCUDA_FORMAT_Q4_0; /* as quant_dot's */
#pragma GCC unroll 8
  for (int g = from; g < from + words; g++) {
    si c[PANEL_WIDTH];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      c[v] = si_load(w[v].code[g]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      const si word = si_all((int32_t)quant_u32((const uint8_t *)x + r * row_codes + 4 * g));
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        dot[r][v] = quant_dot(dot[r][v], c[v], word, format);
      }
    }
  }
}

/* The integers of a block as f32, which they are exactly. */
NN_INLINE void panel_integers(vf integers[][PANEL_WIDTH], const panel_block *w, const panel_rows *x, int64_t b,
                              const int rows, const int vectors, const int kind) {
  const int parts = kind == PANEL_PARTS || kind == PANEL_PARTS_MINIMA ? 2 : 1, words = PANEL_WORDS / parts;
#pragma GCC unroll 2
  for (int p = 0; p < parts; p++) {
    si dot[PANEL_ROWS][PANEL_WIDTH];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      int32_t above = 0;
      if (kind == PANEL_PARTS) {
        above = x->sums[2 * (r * x->blocks + b) + p] * (1 << x->offset);
      } else if (kind == PANEL_PARTS_MINIMA) {
        above = 0;
      } else if (kind != PANEL_MINIMA && x->offset >= 0) {
        const int32_t *sums = x->sums + 2 * (r * x->blocks + b);
        above = (sums[0] + sums[1]) * (1 << x->offset);
      }
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        dot[r][v] = si_all(-above);
      }
    }
    panel_words(dot, w, x->codes + b * QUANT_BLOCK, x->blocks * QUANT_BLOCK, p * words, words, rows, vectors, kind);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) {
        vf y = si_float(dot[r][v]);
        if (parts == 2) { /* below 2^24 together: no rounding */
          const vf scale = vf_load(w[v].part[p]);
          if (p == 0) {
            y *= scale;
          } else {
            y = vf_fma(y, scale, integers[r][v]);
          }
        }
        integers[r][v] = y;
      }
    }
  }
}

/* `count` blocks into the sums [rows, vectors * VF], which lie `ld` apart. */
NN_INLINE void panel_tile(const panel_block *w, const panel_rows *x, int64_t count, float *sums, int64_t ld,
                          int32_t fresh, const int rows, const int vectors, const int kind) {
  vf sum[PANEL_ROWS][PANEL_WIDTH];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      sum[r][v] = fresh ? vf_set1(0.0f) : vf_load(sums + r * ld + v * VF);
    }
  }
  for (int64_t b = 0; b < count; b++, w += PANEL_VECTORS) {
    vf integers[PANEL_ROWS][PANEL_WIDTH];
    panel_integers(integers, w, x, b, rows, vectors, kind);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      const vf scale = vf_set1(x->scale[r * x->blocks + b]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        sum[r][v] = vf_fma(scale * vf_load(w[v].scale), integers[r][v], sum[r][v]);
      }
      if (kind == PANEL_PARTS_MINIMA) {
        const int32_t *of_row = x->sums + 2 * (r * x->blocks + b);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
          const vf whole = quant_least_integers(of_row, vf_load(w[v].least[1]), vf_load(w[v].least[2]));
          sum[r][v] = vf_fma(scale * vf_load(w[v].least[0]), whole, sum[r][v]);
        }
      }
      if (kind == PANEL_MINIMA) {
        const vf total = vf_set1(x->total[r * x->blocks + b]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
          sum[r][v] = vf_fma(total, vf_load(w[v].part[0]), sum[r][v]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      vf_store(sums + r * ld + v * VF, sum[r][v]);
    }
  }
}

typedef void (*panel_function)(const panel_block *w, const panel_rows *x, int64_t count, float *sums, int64_t ld,
                               int32_t fresh);

/* A function a kind: whole tiles, single rows, single vectors. */
#define PANEL_TILE(kind, rows, vectors)                                                                                \
  static __attribute__((noinline)) void kind##_##rows##_##vectors(                                                     \
      const panel_block *w, const panel_rows *x, int64_t count, float *sums, int64_t ld, int32_t fresh) {              \
    panel_tile(w, x, count, sums, ld, fresh, rows, vectors, kind);                                                     \
  }
#define PANEL_TILES(kind)                                                                                              \
  PANEL_TILE(kind, PANEL_ROWS, PANEL_WIDTH)                                                                            \
  PANEL_TILE(kind, PANEL_ROWS, 1)                                                                                      \
  PANEL_TILE(kind, 1, PANEL_WIDTH)                                                                                     \
  PANEL_TILE(kind, 1, 1)
PANEL_TILES(PANEL_CODES)
PANEL_TILES(PANEL_SIGNED)
PANEL_TILES(PANEL_MINIMA)
PANEL_TILES(PANEL_PARTS)
PANEL_TILES(PANEL_PARTS_MINIMA)
#undef PANEL_TILES
#undef PANEL_TILE

/* By kind, single rows, single vectors. */
#define PANEL_NAMES(kind)                                                                                              \
  {                                                                                                                    \
    {kind##_PANEL_ROWS_PANEL_WIDTH, kind##_PANEL_ROWS_1}, { kind##_1_PANEL_WIDTH, kind##_1_1 }                         \
  }
static const panel_function panel_tiles[PANEL_KINDS][2][2] = {PANEL_NAMES(PANEL_CODES), PANEL_NAMES(PANEL_SIGNED),
                                                              PANEL_NAMES(PANEL_MINIMA), PANEL_NAMES(PANEL_PARTS),
                                                              PANEL_NAMES(PANEL_PARTS_MINIMA)};
#undef PANEL_NAMES

/* ---- unpacking ---- */

/* Half `half` of a block of 256 whose parts have factors, of VF of 16 interleaved rows, as blocks b .. b+3. */
NN_INLINE void panel_unpack_half(panel_work *work, int64_t v, int64_t b, const uint8_t *w, int part, int half,
                                 const int32_t format) {
  panel_block(*to)[PANEL_VECTORS] = &work->block[b];
  for (int g = 0; g < PANEL_WORDS; g++) {
    si c[4];
    interleaved_four(w, part, half, g, c, format);
    for (int run = 0; run < 4; run++) {
      si_store(to[run][v].code[g], c[run]);
    }
  }
#pragma GCC unroll 4
  for (int run = 0; run < 4; run++) {
    vw factor[2];
    interleaved_part_factors(w, part, half, run, factor, format);
    vf_store(to[run][v].scale, interleaved_scale(w, part));
    vf_store(to[run][v].part[0], vw_converted(factor[0]));
    vf_store(to[run][v].part[1], vw_converted(factor[1]));
    if (nn_format_has_part_minima(format)) {
      vf least[2];
      interleaved_part_minima(w, part, half, run, least);
      vf_store(to[run][v].least[0], interleaved_minimum(w, part));
      vf_store(to[run][v].least[1], least[0]);
      vf_store(to[run][v].least[2], least[1]);
    }
  }
}

/* Such a block of 16 interleaved rows, as blocks b .. b+7 of vectors v .. of the scratch memory. */
NN_INLINE void panel_unpack_factors(panel_work *work, int64_t v, int64_t b, const uint8_t *w, const int32_t format) {
  for (int part = 0; part < INTERLEAVED_PARTS; part++, v++) {
    panel_unpack_half(work, v, b, w, part, 0, format);
    panel_unpack_half(work, v, b + 4, w, part, 1, format);
  }
}

/* A block of 16 interleaved rows, as block b, or from there on, of vectors v .. of the scratch memory. */
NN_INLINE void panel_unpack_interleaved(panel_work *work, int64_t v, int64_t b, const uint8_t *w,
                                        const int32_t format) {
  if (nn_format_has_factors(format)) {
    panel_unpack_factors(work, v, b, w, format);
    return;
  }
  const int large = interleaved_is_large(format), words = interleaved_words(format);
  for (int part = 0; part < INTERLEAVED_PARTS; part++, v++) {
#pragma GCC unroll 8
    for (int run = 0; run < interleaved_runs(format); run++) {
      const int64_t at = b + interleaved_run_at(run, format);
      panel_block *low = &work->block[at][v], *high = &work->block[at + large][v];
#pragma GCC unroll 8
      for (int g = 0; g < words; g++) {
        si c[2];
        if (format == NNCUDA_FORMAT_Q8_0) {
          si_store(low->code[g], quant_signed(interleaved_word(w, interleaved_codes_at(format) + g * 4, part)));
          continue;
        }
        interleaved_halves(w, part, run, g, c, 0, format);
        si_store(low->code[g], c[0]);
        si_store(high->code[large ? g : g + words], c[1]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < interleaved_each(format); i++) {
      panel_block *to = &work->block[b + i][v];
      vf scale, minimum;
      interleaved_factors(w, part, i, &scale, &minimum, format);
      vf_store(to->scale, scale);
      if (nn_format_has_minimum(format)) {
        vf_store(to->part[0], minimum);
      }
    }
  }
}

/* Blocks b0 .. b0+count-1 of columns c .. c+15 of a piece, whose rows are interleaved, as vectors v .. */
NN_INLINE void panel_take_interleaved(const quant_piece *t, panel_work *work, int64_t c, int64_t v, int64_t b0,
                                      int64_t count, uintptr_t next, const int32_t format) {
  const nn_format_block block = nn_format_block_of(format);
  const int64_t each = block.elements / QUANT_BLOCK, step = QUANT_ROWS * block.bytes;
  const uint8_t *w = t->w + c * t->row_bytes + b0 / each * step;
  next += (uintptr_t)(b0 / each * step);
  for (int64_t b = 0; b < count; b += each, w += step) {
    quant_fetch(&next, step);
    panel_unpack_interleaved(work, v, b, w, format);
  }
}

/* Scales and minima of block i of VF rows. */
NN_INLINE void panel_factors(panel_block *to, quant_rows *w, uint64_t i, const int32_t format) {
  vf scale, minimum;
  quant_factors(w, i, &scale, &minimum, format);
  vf_store(to->scale, scale);
  if (nn_format_has_minimum(format)) {
    vf_store(to->part[0], minimum);
  }
  if (nn_format_has_factors(format)) {
    vw factor[2];
    quant_half_factors(w, i, 0, factor, format);
    vf_store(to->part[0], vw_converted(factor[0]));
    vf_store(to->part[1], vw_converted(factor[1]));
  }
  if (nn_format_has_part_minima(format)) {
    vw minima[2];
    quant_half_factors(w, i, 1, minima, format);
    vf_store(to->least[0], minimum);
    vf_store(to->least[1], vw_converted(minima[0]));
    vf_store(to->least[2], vw_converted(minima[1]));
  }
}

/* Blocks b0 .. b0+count-1 of columns c .. c+VF-1 of a piece, whose rows lie one by one, as vector v. */
NN_INLINE void panel_take_rows(const quant_piece *t, panel_work *work, int64_t c, int64_t v, int64_t b0, int64_t count,
                               uintptr_t next, const int32_t format) {
  enum { AT_ONCE = VF / PANEL_WORDS }; /* blocks that quant_codes gives of a row */
  const int64_t bytes = VF * t->row_bytes, lines = nn_ceil_div(bytes * AT_ONCE, t->k / QUANT_BLOCK * 64);
  quant_rows w = {0};
  quant_rows_at(&w, t, c);
  next += (uintptr_t)(b0 / AT_ONCE * lines * 64);
  for (int64_t b = 0; b < count; b += AT_ONCE) {
    for (int64_t l = 0; l < lines; l++, next += 64) {
      __builtin_prefetch((const void *)next, 0, 2);
    }
    const int32_t whole = count - b >= AT_ONCE;
    vf words[VF];
    for (int64_t r = 0; r < VF; r++) {
      words[r] = (vf)quant_codes(w.row[r], (uint64_t)(b0 + b) / 2, whole, format);
    }
    transpose(words);
    for (int64_t j = 0; j < (whole ? AT_ONCE : 1); j++) {
      panel_block *to = &work->block[b + j][v];
      for (int64_t g = 0; g < PANEL_WORDS; g++) {
        vf_store((float *)(void *)to->code[g], words[j * PANEL_WORDS + g]);
      }
      panel_factors(to, &w, (uint64_t)(b0 + b + j), format);
    }
  }
}

/* ---- a piece ---- */

/* What is unpacked, times all rows of the panel, into columns c .. of their sums. */
static void panel_multiply(const quant_piece *t, const panel_work *work, int64_t c, int64_t vectors, int64_t b0,
                           int64_t count, int32_t kind, int32_t offset) {
  const int32_t form = quant_form_of(t->format);
  const quant_activations *acts = &t->job->activations[form];
  const int64_t rows = t->panel->rows, first = t->panel->tile * QUANT_ROWS;
  const int8_t *codes = acts->codes + first * quant_row_codes(form, t->k) + b0 * QUANT_BLOCK * rows;
  const int64_t at = first * (t->k / QUANT_BLOCK) + b0 * rows;
  for (int64_t r = 0; r < rows;) {
    const int32_t single = rows - r < PANEL_ROWS;
    const panel_rows x = {.codes = codes + r * count * QUANT_BLOCK,
                          .scale = acts->scale + at + r * count,
                          .total = acts->total + at + r * count,
                          .sums = acts->sums + 2 * (at + r * count),
                          .blocks = count,
                          .offset = offset};
    for (int64_t v = 0; v < vectors;) {
      const int32_t narrow = vectors - v < PANEL_WIDTH;
      panel_tiles[kind][single][narrow](&work->block[0][v], &x, count, t->sums + r * t->ld + c + v * VF, t->ld,
                                        b0 == 0);
      v += narrow ? 1 : PANEL_WIDTH;
    }
    r += single ? 1 : PANEL_ROWS;
  }
}

/* The sums of a piece in `format`, or in the _R16 format of that one. */
NN_INLINE void panel_columns(const quant_piece *t, const int interleaved, const int32_t format) {
  panel_work *work = (panel_work *)(void *)t->work;
  const int64_t blocks = t->k / QUANT_BLOCK, each = interleaved ? QUANT_ROWS : VF;
  for (int64_t c = 0; c < t->columns; c += PANEL_COLUMNS) {
    const int64_t columns = nn_min(PANEL_COLUMNS, t->columns - c);
    const uintptr_t next = quant_next(t, c, PANEL_COLUMNS);
    for (int64_t b0 = 0; b0 < blocks; b0 += PANEL_BLOCKS) {
      const int64_t count = nn_min(PANEL_BLOCKS, blocks - b0);
      for (int64_t j = 0; j < columns; j += each) {
        const uintptr_t then = next + (uintptr_t)(j * t->row_bytes);
        if (interleaved) {
          panel_take_interleaved(t, work, c + j, j / VF, b0, count, then, format);
        } else {
          panel_take_rows(t, work, c + j, j / VF, b0, count, then, format);
        }
      }
      panel_multiply(t, work, c, nn_ceil_div(columns, VF), b0, count, panel_kind(format), quant_offset(format));
    }
  }
}

#endif
