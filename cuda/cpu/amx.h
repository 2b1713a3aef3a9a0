/* The tile registers of AMX, as all products use them. */
#ifndef NN_CPU_AMX_H
#define NN_CPU_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* What ldtilecfg reads. It is an operand of the instruction as a whole, so that no store to it is left out. */
typedef struct tile_configuration {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_configuration;

/* Every tile register: 16 rows of 64 bytes. */
static inline tile_configuration tile_registers_full(void) {
  tile_configuration config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  return config;
}

static inline void tile_registers_configure(const tile_configuration *config) {
  __asm__ volatile("ldtilecfg %0" : : "m"(*config));
}

static inline void tile_registers_open(void) {
  const tile_configuration config = tile_registers_full();
  tile_registers_configure(&config);
}

/* Idle tile registers would make every later switch of threads save them. */
static inline void tile_registers_close(void) { _tile_release(); }

/* Registers 0 to 3 as two by two tiles, `step` bytes from row to row, the second of a row `right` bytes on and the
 * second row `below`. */
#define NN_TILES_INLINE static inline __attribute__((always_inline, unused))
NN_TILES_INLINE void tile_zero_four(void) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

NN_TILES_INLINE void tile_load_four(const void *from, int64_t step, int64_t right, int64_t below) {
  const char *p = (const char *)from;
  _tile_loadd(0, p, step);
  _tile_loadd(1, p + right, step);
  _tile_loadd(2, p + below, step);
  _tile_loadd(3, p + below + right, step);
}

NN_TILES_INLINE void tile_store_four(void *to, int64_t step, int64_t right, int64_t below) {
  char *p = (char *)to;
  _tile_stored(0, p, step);
  _tile_stored(1, p + right, step);
  _tile_stored(2, p + below, step);
  _tile_stored(3, p + below + right, step);
}

#endif
