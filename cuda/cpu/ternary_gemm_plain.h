/*
 * Products with ternary weights in vectors of 16 bytes, in what every compiler has: four rows of weights side by side,
 * as eight lanes of 16 bits. A field of two bits is masked out at the even bytes, then at the odd ones, and met by the
 * activations of those columns, widened once a call. Lanes are added over eight steps, at most 8 * 8 * 3 * 128, then as
 * 32 bits.
 */
#ifndef NN_CPU_TERNARY_GEMM_PLAIN_H
#define NN_CPU_TERNARY_GEMM_PLAIN_H

#include "ternary_gemm_job.h"

enum { TERNARY_STEPS_AT_ONCE = 8, TERNARY_QUADS = TERNARY_PANEL / 4 };

typedef uint16_t halves __attribute__((vector_size(16)));

NN_PLAIN NN_INLINE ternary_form ternary_form_of(int64_t m) {
  (void)m;
  return (ternary_form){.rows = 1, .columns = TERNARY_STEP, .bytes = sizeof(int16_t)};
}

NN_PLAIN NN_INLINE int64_t ternary_work_bytes(void) { return 0; }

/* Row r of the activations: of each four columns 0, 2, 1 and 3, in 16 bits. */
NN_INLINE void ternary_pack_row(const ternary_activations *acts, int64_t r, const int8_t *codes, int64_t k) {
  int16_t *x = (int16_t *)(uintptr_t)acts->x + r * acts->depth;
  int32_t total = 0;
  for (int64_t c = 0; c < acts->depth; c += 4) {
    int8_t four[4] = {0};
    memcpy(four, codes + c, (size_t)(k - c < 0 ? 0 : nn_min(4, k - c)));
    x[c] = four[0], x[c + 1] = four[2], x[c + 2] = four[1], x[c + 3] = four[3];
    total += four[0] + four[1] + four[2] + four[3];
  }
  acts->total[r] = total;
}

NN_INLINE void plain_steps(const uint8_t *w, const int16_t *x, int64_t steps, vi sum[TERNARY_QUADS]) {
  halves half[TERNARY_QUADS] = {0};
  for (int64_t s = 0; s < steps; s++, w += TERNARY_STEP_BYTES) {
    halves words[TERNARY_QUADS];
    memcpy(words, w, sizeof words);
    for (int i = 0; i < 4; i++) {
      for (int odd = 0; odd < 2; odd++, x += 2) {
        uint32_t pair;
        memcpy(&pair, x, sizeof pair);
        const halves columns = (halves)(vi){(int32_t)pair, (int32_t)pair, (int32_t)pair, (int32_t)pair};
        for (int q = 0; q < TERNARY_QUADS; q++) {
          half[q] += (words[q] >> (8 * odd + 2 * i) & 3) * columns;
        }
      }
    }
  }
  for (int q = 0; q < TERNARY_QUADS; q++) {
    const vi both = (vi)half[q];
    sum[q] += (vi)((uint32_t __attribute__((vector_size(16))))both << 16) >> 16;
    sum[q] += both >> 16;
  }
}

static void ternary_product(const ternary_piece *t) {
  const ternary_activations *acts = t->activations;
  for (int64_t p = 0; p < t->panels; p++) {
    const uint8_t *w = t->w + p * t->panel_bytes;
    for (int64_t r = 0; r < t->rows; r++) {
      const int16_t *x = (const int16_t *)acts->x + (t->row + r) * acts->depth;
      vi sum[TERNARY_QUADS] = {0};
      for (int64_t c = 0; c < acts->depth; c += TERNARY_STEPS_AT_ONCE * TERNARY_STEP) {
        plain_steps(w + c * 4, x + c, nn_min(TERNARY_STEPS_AT_ONCE, (acts->depth - c) / TERNARY_STEP), sum);
      }
      memcpy(t->sums + r * t->ld + p * TERNARY_PANEL, sum, sizeof sum);
    }
  }
}

#endif
