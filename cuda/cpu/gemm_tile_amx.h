/*
 * Tiles of AMX: 32 rows by 32 columns of C in four tile registers, so that each of the four loads of a step (16 units,
 * 32 elements of k) feeds two products. A piece of 16 rows or columns uses half of them.
 */
#ifndef NN_CPU_GEMM_TILE_AMX_H
#define NN_CPU_GEMM_TILE_AMX_H

#include "gemm_store.h"

/* Every tile register: 16 rows of 64 bytes. */
static void tile_registers_open(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

/* Idle tile registers would make every later switch of threads save them. */
static void tile_registers_close(void) { _tile_release(); }

/*
 * What the rest of the core does while the tile registers multiply (a step of them takes some 64 cycles): the finished
 * sums of the tile before go on to C; the lines of C that this tile will go to, and the next panel of A, come nearer.
 */
typedef struct tile_background {
  gemm_target before; /* where `sums` [.., width] go, if rows are left */
  const float *sums;
  int64_t width;
  const char *c;           /* this tile's first line of C, or null */
  int64_t c_step;          /* in bytes */
  const char *a, *end;     /* the next line of A to fetch, and the end of its row */
  int64_t a_step, a_bytes; /* from row to row, and in a row */
  int64_t a_rows;          /* yet to be fetched */
  int64_t a_lines;         /* a step of the tile registers */
} tile_background;

/* The panel of A that comes next, to be fetched within `steps` steps. */
NN_INLINE void background_next(tile_background *t, const char *a, int64_t step, int64_t rows, int64_t bytes,
                               int64_t steps) {
  t->a = a;
  t->end = a + bytes;
  t->a_step = step;
  t->a_bytes = bytes;
  t->a_rows = rows;
  t->a_lines = nn_ceil_div(rows * nn_ceil_div(bytes, 64), steps);
}

NN_INLINE void background_fetch(tile_background *t) {
  const char *a = t->a;
  if (t->a_rows <= 0) {
    return;
  }
  for (int64_t i = 0; i < t->a_lines; i++, a += 64) {
    __builtin_prefetch(a, 0, 2);
  }
  if (a >= t->end) {
    t->end += t->a_step;
    a = t->end - t->a_bytes;
    t->a_rows--;
  }
  t->a = a;
}

static void background_store(tile_background *t) {
  if (t->before.rows > 0) {
    target_store(&t->before, t->sums, t->width);
    t->before.rows = 0;
  }
}

/* The products of a whole tile. `plain`: the tile before is whole, too, and only rounded to bf16. */
NN_INLINE void tile_multiply(const float *a, int64_t a_units, const float *b, int64_t depth, tile_background *t,
                             const int32_t plain) {
  const float *a2 = a + 16 * a_units, *sums = t->sums;
  const int64_t a_step = a_units * 4, each = nn_ceil_div(MR * 16, depth), c_step = t->c_step, ld = t->before.ld;
  const char *c = t->c;
  uint16_t *to = (uint16_t *)(void *)t->before.c;
  int64_t left = plain ? MR : 0, ahead = c == NULL ? 0 : MR;
  for (int64_t p = 0; p < depth; p += 16) {
    _tile_stream_loadd(6, b + p * 32, 64);
    _tile_loadd(4, a + p, a_step);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a2 + p, a_step);
    _tile_dpbf16ps(2, 5, 6);
    _tile_stream_loadd(7, b + p * 32 + 256, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    for (int64_t i = 0; i < each && left > 0; i++, left--, to += ld, sums += 2 * VF) {
      _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(vf_load(sums + VF), vf_load(sums)));
    }
    for (int64_t i = 0; i < each && ahead > 0; i++, ahead--, c += c_step) {
      __builtin_prefetch(c, 1);
    }
    background_fetch(t);
  }
  if (plain) {
    t->before.rows = 0;
  } else {
    background_store(t);
  }
}

/*
 * to [rows, width] = A * B, plus `from` unless that is null; both `ld` apart from row to row. A lies in rows, `a_units`
 * units apart; a panel of B is `width` (16 or 32) wide. B only passes by: loaded as such it leaves A in L1, which is
 * worth a quarter of the speed.
 */
static void tile_sum(const float *a, int64_t a_units, const float *b, int64_t depth, const float *from, float *to,
                     int64_t ld, int64_t rows, int64_t width, tile_background *background) {
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
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  if (tall && wide) {
    const gemm_target *before = &background->before;
    if (before->rows == MR && before->columns == NR && before->dtype == NNCUDA_BF16 && !before->stream &&
        target_plain(before)) {
      tile_multiply(a, a_units, b, depth, background, 1);
    } else {
      tile_multiply(a, a_units, b, depth, background, 0);
    }
  } else {
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
      background_fetch(background);
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

#endif
