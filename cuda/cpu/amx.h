/* The tile registers of AMX, as all products use them. */
#ifndef NN_CPU_AMX_H
#define NN_CPU_AMX_H

#include <immintrin.h>
#include <stdint.h>

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

#endif
