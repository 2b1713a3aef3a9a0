/*
 * Tiles of AMX: 32 rows by 32 columns of C in four tile registers, so that each of the four loads of a step (16 units,
 * 32 elements of k) feeds two products. A piece of 16 rows or columns uses half of them.
 */
#ifndef NN_CPU_GEMM_TILE_AMX_H
#define NN_CPU_GEMM_TILE_AMX_H

#include "amx.h"
#include "gemm_pack.h"
#include "gemm_store.h"

#include <string.h>

/*
 * What the rest of the core does while the tile registers multiply (a step of them takes some 64 cycles): the finished
 * sums of the previous tile are stored to C; the lines of C for this tile and the next panel of A are prefetched; where
 * A cannot be read in place, that panel is packed, too. A row of a panel has a line for each step of a tile: so a tile
 * fetches a few rows.
 */
typedef struct tile_background {
  gemm_target before; /* where `sums` [.., width] go, if rows are left */
  const float *sums;
  int64_t width;
  const char *c;   /* the first line of this tile's C, or of the next one's, or null */
  int64_t c_step;  /* in bytes */
  int32_t c_lines; /* of a row: 1 or 2 */
  const char *a;   /* the next panel of A, `rows` rows `a_step` bytes apart */
  int64_t a_step, rows;
  int64_t fetched, copied; /* of them */
  int64_t each;            /* rows a tile, in either way */
  float *to;               /* where they are packed, GEMM_DEPTH apart, or null */
} tile_background;

/* Whether the next panel is packed into `to`: it has no row or column that needs padding. It is to be there after the
 * tiles before it; packing follows fetching at a tile's distance. */
NN_INLINE int32_t background_next(tile_background *t, const gemm_next *next, float *to) {
  const int32_t copy = next->rows == GEMM_MR && next->k == next->units * GEMM_UNIT && !next->in_place;
  t->a = next->a;
  t->a_step = next->step;
  t->rows = next->rows;
  t->to = copy ? to : NULL;
  t->fetched = 0;
  t->copied = copy ? 0 : next->rows;
  t->each = nn_ceil_div(next->rows, !copy || next->tiles == 1 ? next->tiles : next->tiles - 1);
  return copy;
}

/* What a tile does of that: in each of its steps a line of some rows. */
typedef struct tile_rows {
  const char *fetch, *from;
  char *to;
  int64_t step, fetch_rows, copy_rows;
} tile_rows;

NN_INLINE tile_rows background_rows(tile_background *t) {
  const int64_t ready = t->fetched;
  tile_rows rows = {.fetch = t->a + t->fetched * t->a_step,
                    .from = t->a + t->copied * t->a_step,
                    .to = t->to == NULL ? NULL : (char *)(t->to + t->copied * GEMM_DEPTH),
                    .step = t->a_step,
                    .fetch_rows = nn_min(t->each, t->rows - t->fetched),
                    .copy_rows = nn_min(t->each, (t->copied < t->rows ? ready : t->rows) - t->copied)};
  t->fetched += rows.fetch_rows;
  t->copied += rows.copy_rows;
  return rows;
}

/* The lines from byte `at` on. */
NN_INLINE void rows_step(const tile_rows *t, int64_t at) {
  const char *fetch = t->fetch + at, *from = t->from + at;
  for (int64_t i = 0; i < t->fetch_rows; i++, fetch += t->step) {
    __builtin_prefetch(fetch, 0, 2);
  }
  for (int64_t i = 0; i < t->copy_rows; i++, from += t->step) {
    _mm512_store_si512(t->to + at + i * (GEMM_DEPTH * 4), _mm512_loadu_si512(from));
  }
}

/* Ends the packing of the next panel. */
static void background_end(tile_background *t, int64_t units) {
  for (; t->copied < t->rows; t->copied++) {
    memcpy(t->to + t->copied * GEMM_DEPTH, t->a + t->copied * t->a_step, (size_t)(units * 4));
  }
}

static void background_store(tile_background *t) {
  if (t->before.rows > 0) {
    target_store(&t->before, t->sums, t->width);
    t->before.rows = 0;
  }
}

/* The lines of C that are fetched during the next tile, from `c` on; none if that is null. */
NN_INLINE void background_touches(tile_background *t, const void *c, int64_t ld, int32_t dtype) {
  t->c = c;
  t->c_step = ld * nn_dtype_bytes(dtype);
  t->c_lines = dtype == NNCUDA_F32 ? 2 : 1;
}

/* The products of a whole tile. `plain`: the tile before is whole, too, and only rounded to bf16. Loads come before
 * products: where something else keeps the core busy, a step takes 100 ns instead of 116 with both in turns, and
 * else as long. */
NN_INLINE void tile_multiply(const float *a, int64_t a_units, const float *b, int64_t depth, tile_background *t,
                             const int32_t plain) {
  const tile_rows next = background_rows(t);
  const float *a2 = a + 16 * a_units, *sums = t->sums;
  const int64_t a_step = a_units * 4, each = nn_ceil_div(GEMM_MR * 16, depth), c_step = t->c_step, ld = t->before.ld;
  const char *c = t->c;
  const int32_t c_lines = t->c_lines;
  uint16_t *to = (uint16_t *)(void *)t->before.c;
  int64_t left = plain ? GEMM_MR : 0, ahead = c == NULL ? 0 : GEMM_MR;
  for (int64_t p = 0; p < depth; p += 16) {
    _tile_stream_loadd(6, b + p * 32, 64);
    _tile_loadd(4, a + p, a_step);
    _tile_loadd(5, a2 + p, a_step);
    _tile_stream_loadd(7, b + p * 32 + 256, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    for (int64_t i = 0; i < each && left > 0; i++, left--, to += ld, sums += 2 * VF) {
      _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(vf_load(sums + VF), vf_load(sums)));
    }
    for (int64_t i = 0; i < each && ahead > 0; i++, ahead--, c += c_step) {
      __builtin_prefetch(c, 1, 2);
      if (c_lines == 2) {
        __builtin_prefetch(c + 64, 1, 2);
      }
    }
    rows_step(&next, p * 4);
  }
  if (plain) {
    t->before.rows = 0;
  } else {
    background_store(t);
  }
}

/*
 * to [rows, width] = A * B, plus `from` unless that is null; both `ld` apart from row to row. A lies in rows, `a_units`
 * units apart; a panel of B is `width` (16 or 32) wide. B only passes by: loaded as such it leaves A in L1, and tiles
 * 256 deep reach 0.92 of the peak instead of 0.67.
 */
static void tile_sum(int32_t lanes, const float *a, int64_t a_units, const float *b, int64_t depth, const float *from,
                     float *to, int64_t ld, int64_t rows, int64_t width, tile_background *background) {
  (void)lanes; /* A is packed in rows either way */
  const float *a2 = a + 16 * a_units, *from2 = from + 16 * ld;
  float *to2 = to + 16 * ld;
  const int64_t a_step = a_units * 4, step = ld * 4;
  const int tall = rows > 16, wide = width > 16;
  if (from != NULL) {
    _tile_loadd(0, from, step);
    if (wide) {
      _tile_loadd(1, from + 16, step);
    }
    if (tall) {
      _tile_loadd(2, from2, step);
    }
    if (tall && wide) {
      _tile_loadd(3, from2 + 16, step);
    }
  } else {
    tile_zero_four();
  }
  if (tall && wide) {
    const gemm_target *before = &background->before;
    if (before->rows == GEMM_MR && before->columns == GEMM_NR && before->dtype == NNCUDA_BF16 && !before->stream &&
        target_plain(before)) {
      tile_multiply(a, a_units, b, depth, background, 1);
    } else {
      tile_multiply(a, a_units, b, depth, background, 0);
    }
  } else {
    const tile_rows next = background_rows(background);
    for (int64_t p = 0; p < depth; p += 16) {
      _tile_loadd(4, a + p, a_step);
      _tile_loadd(6, b + p * width, 64);
      _tile_dpbf16ps(0, 4, 6);
      if (wide) {
        _tile_loadd(7, b + p * width + 256, 64);
        _tile_dpbf16ps(1, 4, 7);
      }
      if (tall) {
        _tile_loadd(5, a2 + p, a_step);
        _tile_dpbf16ps(2, 5, 6);
      }
      rows_step(&next, p * 4);
    }
    background_store(background);
  }
  _tile_stored(0, to, step);
  if (wide) {
    _tile_stored(1, to + 16, step);
  }
  if (tall) {
    _tile_stored(2, to2, step);
  }
  if (tall && wide) {
    _tile_stored(3, to2 + 16, step);
  }
}

/* The sums wait in one half of `sums` until the next tile stores them. */
NN_INLINE void tile_finish(int32_t lanes, const float *a, int64_t a_step, const float *b, int64_t units, float *from,
                           float (*sums)[GEMM_MR * GEMM_NR], int64_t rows, int64_t width, const gemm_target *target,
                           tile_background *background) {
  float *to = sums[background->sums == sums[0]];
  background_touches(background, target->stream ? NULL : target->c, target->ld, target->dtype);
  tile_sum(lanes, a, a_step, b, units, from, to, width, rows, width, background);
  background->before = *target;
  background->sums = to;
  background->width = width;
  background->c = NULL;
}

NN_INLINE void tiles_open(void) { tile_registers_open(); }
NN_INLINE void tiles_close(void) { tile_registers_close(); }

NN_INLINE void pack_across(float *to, const char *from, int64_t ld, int64_t rows, int64_t k, int64_t units,
                           int32_t dtype) {
  pack_rows_transposed(to, from, ld, rows, panel_rows(rows), k, units, dtype);
}

/* In whole lines: not when a row or column needs padding, nor when rows start within lines; nor, if the panel is read
 * several times, when its rows compete for few sets of L1 (their bits 6 to 11 choose one). */
NN_INLINE int32_t tile_reads(const nn_gemm_args *x, const char *a, int64_t columns, int64_t rows, int64_t k,
                             int64_t units) {
  const int64_t step = x->lda * 2;
  return rows % GEMM_TILE_ROWS == 0 && k == units * GEMM_UNIT &&
         (columns < 8 * GEMM_NR || (step % 64 == 0 && step % 2048 != 0 && (uintptr_t)a % 64 == 0));
}

NN_INLINE int64_t tile_units(int64_t k, int64_t units) {
  (void)k;
  return units;
}

#endif
