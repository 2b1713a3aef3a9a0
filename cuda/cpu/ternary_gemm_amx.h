/*
 * Products with ternary weights through tile registers (AMX). A step of a panel, field by field, is already four rows
 * of a right operand: [k / 4][16 rows of weights][4]. So weights are unpacked by shifts and masks alone, a block of
 * columns at a time that stays in the first cache; the activations lie tile after tile, as they are read. Sums stay in
 * their registers over all of k. To put them by between blocks instead, and unpack once for all rows, measured slower
 * up to 32 rows of activations, the same at 64, and a tenth faster at 128.
 *
 * A product of 16 x 16 x 64 takes 16 cycles, which is the floor from about 32 rows on. Up to 16 rows it is what
 * unpacking stores, 16 cycles for 256 bytes of packed weights, or memory. Fewer than TERNARY_TILED_ROWS go through
 * vectors.
 */
#ifndef NN_CPU_TERNARY_GEMM_AMX_H
#define NN_CPU_TERNARY_GEMM_AMX_H

#include "amx.h"
#include "ternary_gemm_vector.h"

enum {
  TERNARY_TILE = TERNARY_PANEL,
  TERNARY_TILE_DEPTH = 64, /* columns of a tile: four steps of a panel */
  TERNARY_TILE_BYTES = TERNARY_TILE * TERNARY_TILE_DEPTH,
  TERNARY_BLOCK_TILES = 16, /* tiles of weights in a block, 16 KB, whatever the number of panels */
  TERNARY_TILED_ROWS = 4    /* from these on, rows go through tile registers: three rows are faster in vectors by a
                               quarter, four slower by a twentieth */
};

/* Scratch memory of a task. */
typedef struct tile_work {
  uint8_t codes[TERNARY_BLOCK_TILES][TERNARY_TILE_BYTES];
} tile_work;

/* Row r of the activations as row r % 16 of tiles [r / 16][column / 64]. */
NN_INLINE void tile_pack_row(const ternary_activations *acts, int64_t r, const int8_t *codes, int64_t k) {
  int8_t *to = (int8_t *)(uintptr_t)acts->x + r / TERNARY_TILE * TERNARY_TILE * acts->depth +
               r % TERNARY_TILE * TERNARY_TILE_DEPTH;
  __m512i total = _mm512_setzero_si512();
  for (int64_t c = 0; c < acts->depth; c += TERNARY_TILE_DEPTH, to += TERNARY_TILE_BYTES) {
    const __mmask64 here = ~(__mmask64)0 >> (TERNARY_TILE_DEPTH - nn_min(TERNARY_TILE_DEPTH, k - c));
    const __m512i x = _mm512_maskz_loadu_epi8(here, codes + c);
    _mm512_store_si512(to, x);
    total = _mm512_dpbusd_epi32(total, _mm512_set1_epi8(1), x);
  }
  acts->total[r] = _mm512_reduce_add_epi32(total);
}

/* `steps` steps of a panel; those that fill up a tile meet columns of zeros. Lines of `fetch` are asked for meanwhile.
 */
NN_INLINE void tile_unpack(uint8_t *codes, const uint8_t *w, int64_t steps, const uint8_t *fetch) {
  const __m512i mask = _mm512_set1_epi8(3);
  for (int64_t s = 0; s < steps; s++, codes += 4 * TERNARY_STEP_BYTES) {
    const __m512i words = _mm512_loadu_si512(w + s * TERNARY_STEP_BYTES);
    if (fetch != NULL) {
      __builtin_prefetch(fetch + s * TERNARY_STEP_BYTES, 0, 2);
    }
    _mm512_store_si512(codes, _mm512_and_si512(words, mask));
    _mm512_store_si512(codes + TERNARY_STEP_BYTES, _mm512_and_si512(_mm512_srli_epi32(words, 2), mask));
    _mm512_store_si512(codes + 2 * TERNARY_STEP_BYTES, _mm512_and_si512(_mm512_srli_epi32(words, 4), mask));
    _mm512_store_si512(codes + 3 * TERNARY_STEP_BYTES, _mm512_and_si512(_mm512_srli_epi32(words, 6), mask));
  }
}

/* Adds the products of one tile of activations with up to four panels, `step` tiles apart, to registers 0 .. 3. */
NN_INLINE void tile_line(const int8_t *x, const uint8_t (*codes)[TERNARY_TILE_BYTES], int64_t step, int64_t tiles,
                         int64_t wide) {
  for (int64_t i = 0; i < tiles; i++, x += TERNARY_TILE_BYTES, codes++) {
    _tile_loadd(4, x, TERNARY_TILE_DEPTH);
    _tile_loadd(5, codes[0], TERNARY_TILE_DEPTH);
    _tile_dpbsud(0, 4, 5);
    if (wide > 1) {
      _tile_loadd(6, codes[step], TERNARY_TILE_DEPTH);
      _tile_dpbsud(1, 4, 6);
    }
    if (wide > 2) {
      _tile_loadd(7, codes[2 * step], TERNARY_TILE_DEPTH);
      _tile_dpbsud(2, 4, 7);
    }
    if (wide > 3) {
      _tile_loadd(5, codes[3 * step], TERNARY_TILE_DEPTH);
      _tile_dpbsud(3, 4, 5);
    }
  }
}

/* Those of two tiles of activations, `below` bytes apart, with up to two panels: 0 and 1, then 2 and 3 of the second.
 */
NN_INLINE void tile_square(const int8_t *x, int64_t below, const uint8_t (*codes)[TERNARY_TILE_BYTES], int64_t step,
                           int64_t tiles, int64_t wide) {
  for (int64_t i = 0; i < tiles; i++, x += TERNARY_TILE_BYTES, codes++) {
    _tile_loadd(4, x, TERNARY_TILE_DEPTH);
    _tile_loadd(6, codes[0], TERNARY_TILE_DEPTH);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(5, x + below, TERNARY_TILE_DEPTH);
    _tile_dpbsud(2, 5, 6);
    if (wide > 1) {
      _tile_loadd(7, codes[step], TERNARY_TILE_DEPTH);
      _tile_dpbsud(1, 4, 7);
      _tile_dpbsud(3, 5, 7);
    }
  }
}

/* The sums of panels p .. p+wide-1 with tiles `i` .. `i`+tall-1 of the piece's rows; `most` is the largest `wide` of
 * the call. */
static void tile_sums(const ternary_piece *t, int64_t p, int64_t i, int64_t wide, int64_t most, int32_t tall) {
  const ternary_activations *acts = t->activations;
  tile_work *work = (tile_work *)(void *)t->work;
  const int64_t steps = t->panel_bytes / TERNARY_STEP_BYTES, tiles = acts->depth / TERNARY_TILE_DEPTH,
                step = TERNARY_BLOCK_TILES / most;
  const int64_t below = TERNARY_TILE * acts->depth, ld = t->ld * (int64_t)sizeof *t->sums;
  const int8_t *x = (const int8_t *)acts->x + (t->row / TERNARY_TILE + i) * below;
  tile_zero_four();
  for (int64_t first = 0; first < tiles; first += step) {
    const int64_t here = nn_min(step, tiles - first), from = first * (TERNARY_TILE_DEPTH / TERNARY_STEP);
    for (int64_t g = 0; g < wide; g++) {
      const uint8_t *w = t->w + (p + g) * t->panel_bytes + from * TERNARY_STEP_BYTES;
      const int64_t count = nn_min(here * (TERNARY_TILE_DEPTH / TERNARY_STEP), steps - from);
      if (i == 0) {
        tile_unpack(work->codes[g * step], w, count, panel_after(t, p + g + wide) + from * TERNARY_STEP_BYTES);
      } else { /* what comes next is on its way */
        tile_unpack(work->codes[g * step], w, count, NULL);
      }
    }
    if (tall > 1) {
      tile_square(x + first * TERNARY_TILE_BYTES, below, work->codes, step, here, wide);
    } else {
      tile_line(x + first * TERNARY_TILE_BYTES, work->codes, step, here, wide);
    }
  }
  int32_t *sums = t->sums + i * TERNARY_TILE * t->ld + p * TERNARY_PANEL;
  _tile_stored(0, sums, ld);
  if (wide > 1) {
    _tile_stored(1, sums + TERNARY_PANEL, ld);
  }
  if (tall > 1) { /* then no more than two panels */
    _tile_stored(2, sums + TERNARY_TILE * t->ld, ld);
    if (wide > 1) {
      _tile_stored(3, sums + TERNARY_TILE * t->ld + TERNARY_PANEL, ld);
    }
    return;
  }
  if (wide > 2) {
    _tile_stored(2, sums + 2 * TERNARY_PANEL, ld);
  }
  if (wide > 3) {
    _tile_stored(3, sums + 3 * TERNARY_PANEL, ld);
  }
}

static void tile_product(const ternary_piece *t) {
  const int64_t high = nn_ceil_div(t->rows, TERNARY_TILE), most = high > 1 ? 2 : 4;
  tile_configuration config = tile_registers_full();
  if (t->rows < TERNARY_TILE) { /* a product takes as many cycles as it has rows */
    for (int r = 0; r <= 4; r++) {
      config.rows[r] = (uint8_t)t->rows;
    }
  }
  tile_registers_configure(&config);
  for (int64_t p = 0; p < t->panels; p += most) {
    for (int64_t i = 0; i < high; i += 2) {
      tile_sums(t, p, i, nn_min(most, t->panels - p), most, i + 1 < high ? 2 : 1);
    }
  }
  tile_registers_close();
}

NN_PLAIN NN_INLINE ternary_form ternary_form_of(int64_t m) {
  const int32_t tiled = m >= TERNARY_TILED_ROWS;
  return (ternary_form){.tiled = tiled,
                        .rows = tiled ? TERNARY_TILE : 1,
                        .columns = tiled ? TERNARY_TILE_DEPTH : TERNARY_STEP,
                        .bytes = 1};
}

NN_PLAIN NN_INLINE int64_t ternary_work_bytes(void) { return sizeof(tile_work); }

NN_INLINE void ternary_pack_row(const ternary_activations *acts, int64_t r, const int8_t *codes, int64_t k) {
  if (acts->tiled) {
    tile_pack_row(acts, r, codes, k);
    return;
  }
  vector_pack_row(acts, r, codes, k);
}

NN_INLINE void ternary_product(const ternary_piece *t) {
  if (t->activations->tiled) {
    tile_product(t);
    return;
  }
  vector_product(t);
}

#endif
