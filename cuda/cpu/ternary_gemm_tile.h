/*
 * Products with ternary weights through tile registers (AMX). A step of a panel, field by field, is already four rows
 * of a right operand: [k / 4][16 rows of weights][4]. So weights are unpacked by shifts and masks alone, DEPTH columns
 * of a group of panels at a time, and stay in the first cache while all rows of activations pass over them; the
 * activations lie tile after tile, as they are read. Products of 16 x 16 x 64 take 16 cycles each, which is the floor
 * from about 32 rows on.
 */
#ifndef NN_CPU_TERNARY_GEMM_TILE_H
#define NN_CPU_TERNARY_GEMM_TILE_H

#include "ternary_gemm_vector.h"

#if defined(__AMX_INT8__)
#define TERNARY_TILES 1

#include "amx.h"

enum {
  TILE = PANEL,
  TILE_DEPTH = 64, /* columns of a tile: four steps of a panel */
  TILE_BYTES = TILE * TILE_DEPTH,
  GROUP = 2,      /* panels that are unpacked together */
  GROUP_TILES = 8 /* tiles of each of them: 512 columns */
};

/* Scratch memory of a task. */
typedef struct tile_work {
  uint8_t codes[GROUP][GROUP_TILES][TILE_BYTES];
} tile_work;

/* Row r of the activations as row r % 16 of tiles [r / 16][column / 64]. */
NN_INLINE void tile_take_row(const ternary_left *left, int64_t r, const int8_t *codes, int64_t k) {
  int8_t *to = (int8_t *)(uintptr_t)left->x + r / TILE * TILE * left->depth + r % TILE * TILE_DEPTH;
  __m512i total = _mm512_setzero_si512();
  for (int64_t c = 0; c < left->depth; c += TILE_DEPTH, to += TILE_BYTES) {
    const __mmask64 here = ~(__mmask64)0 >> (TILE_DEPTH - least(TILE_DEPTH, k - c));
    const __m512i x = _mm512_maskz_loadu_epi8(here, codes + c);
    _mm512_store_si512(to, x);
    total = _mm512_dpbusd_epi32(total, _mm512_set1_epi8(1), x);
  }
  left->total[r] = _mm512_reduce_add_epi32(total);
}

/* `steps` steps of a panel; those that fill up a tile meet columns of zeros. Lines of `fetch` are asked for meanwhile.
 */
NN_INLINE void tile_unpack(uint8_t *codes, const uint8_t *w, int64_t steps, const uint8_t *fetch) {
  const __m512i mask = _mm512_set1_epi8(3);
  for (int64_t s = 0; s < steps; s++, w += STEP_BYTES, fetch += STEP_BYTES, codes += 4 * STEP_BYTES) {
    const __m512i words = _mm512_loadu_si512(w);
    __builtin_prefetch(fetch, 0, 2);
    _mm512_store_si512(codes, _mm512_and_si512(words, mask));
    _mm512_store_si512(codes + STEP_BYTES, _mm512_and_si512(_mm512_srli_epi32(words, 2), mask));
    _mm512_store_si512(codes + 2 * STEP_BYTES, _mm512_and_si512(_mm512_srli_epi32(words, 4), mask));
    _mm512_store_si512(codes + 3 * STEP_BYTES, _mm512_and_si512(_mm512_srli_epi32(words, 6), mask));
  }
}

/* `tall` tiles of activations times `wide` panels over `tiles` tiles of columns. Registers: sums 0 .. 3, activations 4
 * and 5, weights 6 and 7. */
NN_INLINE void tile_block(const int8_t *x, int64_t x_step, const uint8_t (*codes)[GROUP_TILES][TILE_BYTES],
                          int64_t tiles, int32_t *sums, int64_t ld, int32_t fresh, const int tall, const int wide) {
  const int64_t bytes = ld * (int64_t)sizeof *sums;
  int32_t *low = sums + TILE * ld;
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, bytes);
    if (wide > 1) {
      _tile_loadd(1, sums + TILE, bytes);
    }
    if (tall > 1) {
      _tile_loadd(2, low, bytes);
      if (wide > 1) {
        _tile_loadd(3, low + TILE, bytes);
      }
    }
  }
  for (int64_t i = 0; i < tiles; i++) {
    _tile_loadd(4, x + i * TILE_BYTES, TILE_DEPTH);
    _tile_loadd(6, codes[0][i], TILE_DEPTH);
    _tile_dpbsud(0, 4, 6);
    if (wide > 1) {
      _tile_loadd(7, codes[1][i], TILE_DEPTH);
      _tile_dpbsud(1, 4, 7);
    }
    if (tall > 1) {
      _tile_loadd(5, x + x_step + i * TILE_BYTES, TILE_DEPTH);
      _tile_dpbsud(2, 5, 6);
      if (wide > 1) {
        _tile_dpbsud(3, 5, 7);
      }
    }
  }
  _tile_stored(0, sums, bytes);
  if (wide > 1) {
    _tile_stored(1, sums + TILE, bytes);
  }
  if (tall > 1) {
    _tile_stored(2, low, bytes);
    if (wide > 1) {
      _tile_stored(3, low + TILE, bytes);
    }
  }
}

static void tile_product(const ternary_piece *t) {
  const ternary_left *left = t->left;
  tile_work *work = (tile_work *)(void *)t->work;
  const int64_t steps = t->panel_bytes / STEP_BYTES, all = left->depth / TILE_DEPTH;
  const int64_t x_step = TILE * left->depth, high = ceil_div(t->rows, TILE);
  tile_configuration config = tile_registers_full();
  if (t->rows < TILE) { /* a product takes as many cycles as it has rows */
    config.rows[0] = config.rows[1] = config.rows[4] = (uint8_t)t->rows;
  }
  tile_registers_configure(&config);
  for (int64_t p = 0; p < t->panels; p += GROUP) {
    const int64_t wide = least(GROUP, t->panels - p);
    for (int64_t first = 0; first < all; first += GROUP_TILES) {
      const int64_t tiles = least(GROUP_TILES, all - first), step = first * (TILE_DEPTH / STEP);
      for (int64_t g = 0; g < wide; g++) {
        tile_unpack(work->codes[g][0], t->w + (p + g) * t->panel_bytes + step * STEP_BYTES,
                    least(tiles * (TILE_DEPTH / STEP), steps - step), panel_after(t, p + g + wide) + step * STEP_BYTES);
      }
      for (int64_t i = 0; i < high; i += 2) {
        const int8_t *x = (const int8_t *)left->x + (t->row / TILE + i) * x_step + first * TILE_BYTES;
        int32_t *sums = t->sums + i * TILE * t->ld + p * PANEL;
        const int tall = i + 1 < high ? 2 : 1;
        switch (2 * tall + (int)wide) {
#define CASE(high_, wide_)                                                                                             \
  case 2 * (high_) + (wide_):                                                                                          \
    tile_block(x, x_step, work->codes, tiles, sums, t->ld, first == 0, high_, wide_);                                  \
    break;
          CASE(1, 1)
          CASE(1, 2)
          CASE(2, 1)
          CASE(2, 2)
#undef CASE
        }
      }
    }
  }
  tile_registers_close();
}

#endif
#endif
