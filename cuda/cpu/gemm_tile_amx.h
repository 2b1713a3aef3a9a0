/*
 * Tiles of AMX: 32 rows by 32 columns of C in four tile registers, so that each of the four loads of a step (16 units,
 * 32 elements of k) feeds two products. A piece of 16 rows or columns uses half of them.
 */
#ifndef NN_CPU_GEMM_TILE_AMX_H
#define NN_CPU_GEMM_TILE_AMX_H

#include "gemm_job.h"

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
 * C [rows, width] = A * B, or += with `add`. A lies in rows, `a_units` units apart; a panel of B is `width` (16 or 32)
 * wide. B only passes by: loaded as such it leaves A in L1, which is worth a quarter of the speed (2,000 GFLOP/s of a
 * core that reaches 3,100 without loads, 1,500 otherwise, with B in L2 and 384 deep).
 */
static void tile_sum(const float *a, int64_t a_units, const float *b, int64_t depth, float *c, int64_t ldc, int32_t add,
                     int64_t rows, int64_t width) {
  const float *a2 = a + 16 * a_units;
  float *c2 = c + 16 * ldc;
  const int64_t a_step = a_units * 4, c_step = ldc * 4, b_step = width * 4;
  const int tall = rows > 16, wide = width > 16;
  if (add) {
    _tile_loadd(0, c, c_step);
    if (wide) {
      _tile_loadd(1, c + 16, c_step);
    }
    if (tall) {
      _tile_loadd(2, c2, c_step);
    }
    if (tall && wide) {
      _tile_loadd(3, c2 + 16, c_step);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  if (tall && wide) {
    for (int64_t p = 0; p < depth; p += 16) {
      _tile_stream_loadd(6, b + p * 32, 128);
      _tile_loadd(4, a + p, a_step);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, a2 + p, a_step);
      _tile_dpbf16ps(2, 5, 6);
      _tile_stream_loadd(7, b + p * 32 + 16, 128);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  } else {
    for (int64_t p = 0; p < depth; p += 16) {
      _tile_loadd(4, a + p, a_step);
      _tile_loadd(6, b + p * width, b_step);
      _tile_dpbf16ps(0, 4, 6);
      if (wide) {
        _tile_loadd(7, b + p * width + 16, b_step);
        _tile_dpbf16ps(1, 4, 7);
      }
      if (tall) {
        _tile_loadd(5, a2 + p, a_step);
        _tile_dpbf16ps(2, 5, 6);
      }
    }
  }
  _tile_stored(0, c, c_step);
  if (wide) {
    _tile_stored(1, c + 16, c_step);
  }
  if (tall) {
    _tile_stored(2, c2, c_step);
  }
  if (tall && wide) {
    _tile_stored(3, c2 + 16, c_step);
  }
}

#endif
