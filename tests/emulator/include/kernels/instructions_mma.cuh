/*
 * Twin of cuda/kernels/instructions_mma.cuh. Products are exact in f32 (apart from overflow and underflow of bf16 and
 * tf32 ones) and are added in f32 in the order of k; the hardware's order and rounding are not documented
 * (PTX 9.7.14.5.14), so the last bits differ.
 */
#ifndef NN_INSTRUCTIONS_MMA_CUH
#define NN_INSTRUCTIONS_MMA_CUH

#include "emulator/warp.h"
#include "kernels/instructions_convert.cuh"
#include "kernels/instructions_copy.cuh"
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

/* One row of a matrix of ldmatrix: 8 elements of 16 bits. */
struct nn_emulated_row {
  uint16_t element[8];
};

/* Each lane reads the row that it addresses, before any lane continues. */
inline const nn_emulated_row *nn_emulated_load_rows(uint32_t address, const char *what, nn_site site) {
  nn_emulated_requires(750, "ldmatrix");
  nn_emulated_row row;
  memcpy(&row, nn_emulated_shared_bytes(address, 16, 16, what), 16);
  return nn_emulated_gather(0xffffffffu, row, site.in(what));
}

inline void nn_ldmatrix_x4(uint32_t (&r)[4], uint32_t address, nn_site site = nn_site::here()) {
  const nn_emulated_row *rows = nn_emulated_load_rows(address, "ldmatrix", site);
  const unsigned g = nn_emulated_lane() / 4, t = nn_emulated_lane() % 4;
  for (int m = 0; m < 4; m++) {
    const uint16_t *row = rows[8 * m + g].element;
    r[m] = row[2 * t] | (uint32_t)row[2 * t + 1] << 16;
  }
}

inline void nn_ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t address, nn_site site = nn_site::here()) {
  const nn_emulated_row *rows = nn_emulated_load_rows(address, "ldmatrix.trans", site);
  const unsigned g = nn_emulated_lane() / 4, t = nn_emulated_lane() % 4;
  for (int m = 0; m < 4; m++) {
    const nn_emulated_row *matrix = rows + 8 * m;
    r[m] = matrix[2 * t].element[g] | (uint32_t)matrix[2 * t + 1].element[g] << 16;
  }
}

/* Each lane has all lanes' registers and addresses, and writes the row that it addresses. */
inline void nn_stmatrix_x4(uint32_t address, const uint32_t (&r)[4], nn_site site = nn_site::here()) {
  nn_emulated_requires(900, "stmatrix");
  struct registers {
    uint32_t r[4];
  };
  const registers *lanes = nn_emulated_gather(0xffffffffu, registers{{r[0], r[1], r[2], r[3]}}, site.in("stmatrix"));
  const unsigned matrix = nn_emulated_lane() / 8, row = nn_emulated_lane() % 8;
  uint32_t pairs[4];
  for (unsigned t = 0; t < 4; t++) {
    pairs[t] = lanes[4 * row + t].r[matrix];
  }
  memcpy(nn_emulated_shared_bytes(address, 16, 16, "stmatrix"), pairs, 16);
  nn_emulated_writes_of_block().note(address, 16, "stmatrix");
}

template <class T> struct nn_mma_type;
template <> struct nn_mma_type<nn_f16> {
  static constexpr bool is_f16 = true;
};
template <> struct nn_mma_type<nn_bf16> {
  static constexpr bool is_f16 = false;
};

template <class T> struct nn_emulated_operand;
template <> struct nn_emulated_operand<nn_f16> {
  static constexpr unsigned from = 750;
  static float value(uint16_t bits) { return nn_f16_to_f32(bits); }
};
template <> struct nn_emulated_operand<nn_bf16> {
  static constexpr unsigned from = 800;
  static float value(uint16_t bits) { return nn_bf16_to_f32(bits); }
};

/* What a lane holds of A and B, "low to high" over its registers (PTX 9.7.14.5). */
template <int A, int B> struct nn_emulated_fragments {
  float a[A], b[B];
};

template <class T> inline void nn_emulated_unpack(float *elements, uint32_t pair) {
  elements[0] = nn_emulated_operand<T>::value((uint16_t)pair);
  elements[1] = nn_emulated_operand<T>::value((uint16_t)(pair >> 16));
}

/*
 * From the formulas in PTX 9.7.14.5.8, turned round: who holds an element.
 *   A (row, k):  lane 4 * (row % 8) + k % 8 / 2, element k % 2 + 2 * (row / 8) + 4 * (k / 8)
 *   B (k, col):  lane 4 * col + k % 8 / 2,       element k % 2 + 2 * (k / 8)
 *   D element i: row g + 8 * (i / 2), column 2t + i % 2
 */
template <class T>
inline void nn_mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                            nn_site site = nn_site::here()) {
  nn_emulated_requires(nn_emulated_operand<T>::from, "mma.m16n8k16");
  nn_emulated_fragments<8, 4> mine;
  for (int i = 0; i < 4; i++) {
    nn_emulated_unpack<T>(mine.a + 2 * i, a[i]);
  }
  nn_emulated_unpack<T>(mine.b, b0);
  nn_emulated_unpack<T>(mine.b + 2, b1);
  const nn_emulated_fragments<8, 4> *lanes = nn_emulated_gather(0xffffffffu, mine, site.in("mma.m16n8k16"));
  const int g = (int)nn_emulated_lane() / 4, t = (int)nn_emulated_lane() % 4;
  for (int i = 0; i < 4; i++) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    for (int k = 0; k < 16; k++) {
      d[i] += lanes[4 * (row % 8) + k % 8 / 2].a[k % 2 + 2 * (row / 8) + 4 * (k / 8)] *
              lanes[4 * column + k % 8 / 2].b[k % 2 + 2 * (k / 8)];
    }
  }
}

/*
 * PTX 9.7.14.5.7 for .tf32, turned round: A (row, k) is element row / 8 + 2 * (k / 4) of lane 4 * (row % 8) + k % 4,
 * B (k, col) element k / 4 of lane 4 * col + k % 4. The 13 low bits of an operand, which tf32 does not have, must be 0:
 * what the hardware makes of others is not documented.
 */
inline void nn_mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                nn_site site = nn_site::here()) {
  nn_emulated_requires(800, "mma.m16n8k8 of tf32");
  if ((a[0] | a[1] | a[2] | a[3] | b0 | b1) & 0x1fffu) {
    nn_emulated_fail("mma.m16n8k8 of tf32: an operand has bits that tf32 lacks; use nn_f32_to_tf32");
  }
  nn_emulated_fragments<4, 2> mine;
  for (int i = 0; i < 4; i++) {
    mine.a[i] = __uint_as_float(a[i]);
  }
  mine.b[0] = __uint_as_float(b0);
  mine.b[1] = __uint_as_float(b1);
  const nn_emulated_fragments<4, 2> *lanes = nn_emulated_gather(0xffffffffu, mine, site.in("mma.m16n8k8 of tf32"));
  const int g = (int)nn_emulated_lane() / 4, t = (int)nn_emulated_lane() % 4;
  for (int i = 0; i < 4; i++) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    for (int k = 0; k < 8; k++) {
      d[i] += lanes[4 * (row % 8) + k % 4].a[row / 8 + 2 * (k / 4)] * lanes[4 * column + k % 4].b[k / 4];
    }
  }
}

/* Adds a product of signed bytes to d. A (row, k) is byte k % 4 of register row / 8 + 2 * (k / 16) of lane
 * 4 * (row % 8) + k % 16 / 4, B (k, col) byte k % 4 of register k / 16 of lane 4 * col + k % 16 / 4. */
template <int K>
inline void nn_emulated_mma_s8(int32_t (&d)[4], const uint32_t (&a)[K / 8], const uint32_t (&b)[K / 16], nn_site site) {
  struct fragments {
    uint32_t a[K / 8], b[K / 16];
  };
  fragments mine;
  memcpy(mine.a, a, sizeof mine.a);
  memcpy(mine.b, b, sizeof mine.b);
  const fragments *lanes = nn_emulated_gather(0xffffffffu, mine, site);
  const int g = (int)nn_emulated_lane() / 4, t = (int)nn_emulated_lane() % 4;
  for (int i = 0; i < 4; i++) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    uint32_t sum = (uint32_t)d[i]; /* wraps, as without .satfinite */
    for (int k = 0; k < K; k++) {
      const uint32_t left = lanes[4 * (row % 8) + k % 16 / 4].a[row / 8 + 2 * (k / 16)];
      const uint32_t right = lanes[4 * column + k % 16 / 4].b[k / 16];
      sum += (uint32_t)((int8_t)(left >> 8 * (k % 4)) * (int8_t)(right >> 8 * (k % 4)));
    }
    d[i] = (int32_t)sum;
  }
}

/* PTX 9.7.14.5.10 for .s8, turned round. */
inline void nn_mma_m16n8k32_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                               nn_site site = nn_site::here()) {
  nn_emulated_requires(750, "mma.m16n8k32 of s8");
  nn_emulated_mma_s8<32>(d, a, {b0, b1}, site.in("mma.m16n8k32 of s8"));
}

/* PTX 9.7.14.5.10 for .e4m3, turned round: where s8 has its elements. */
inline void nn_mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                 nn_site site = nn_site::here()) {
  nn_emulated_requires(890, "mma.m16n8k32 of e4m3");
  struct fragments {
    uint32_t a[4], b[2];
  };
  const fragments mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const fragments *lanes = nn_emulated_gather(0xffffffffu, mine, site.in("mma.m16n8k32 of e4m3"));
  const int g = (int)nn_emulated_lane() / 4, t = (int)nn_emulated_lane() % 4;
  for (int i = 0; i < 4; i++) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    for (int k = 0; k < 32; k++) {
      const uint32_t left = lanes[4 * (row % 8) + k % 16 / 4].a[row / 8 + 2 * (k / 16)];
      const uint32_t right = lanes[4 * column + k % 16 / 4].b[k / 16];
      d[i] += nn_e4m3_decoded((uint8_t)(left >> 8 * (k % 4))) * nn_e4m3_decoded((uint8_t)(right >> 8 * (k % 4)));
    }
  }
}

/* PTX 9.7.14.5.9 for .s8, turned round. */
inline void nn_mma_m16n8k16_s8(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, nn_site site = nn_site::here()) {
  nn_emulated_requires(800, "mma.m16n8k16 of s8");
  nn_emulated_mma_s8<16>(d, {a0, a1}, {b}, site.in("mma.m16n8k16 of s8"));
}

#endif
