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

#endif
