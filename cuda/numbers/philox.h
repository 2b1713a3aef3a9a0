/*
 * Philox4x32-10, a counter-based generator: a keyed bijection of 128-bit counters whose images pass for random. Number
 * i of a sequence is a function of (key, i) alone, so every thread, engine and language makes it on its own. (Salmon,
 * Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3 and table 2) Plain C, so that
 * both engines include it.
 */
#ifndef NN_NUMBERS_PHILOX_H
#define NN_NUMBERS_PHILOX_H

#include "numbers/sizes.h"

/* The multipliers of the two halves, and what the key grows by from round to round: the golden ratio and sqrt(3) - 1.
 */
#define NN_PHILOX_M0 0xD2511F53u
#define NN_PHILOX_M1 0xCD9E8D57u
#define NN_PHILOX_W0 0x9E3779B9u
#define NN_PHILOX_W1 0xBB67AE85u
#define NN_PHILOX_ROUNDS 10

typedef struct nn_philox_words {
  uint32_t w[4];
} nn_philox_words;

/* The four words of counter (block low, block high, stream low, stream high) under `key`. */
NN_NUMBER_FUNCTION nn_philox_words nn_philox(uint64_t key, uint64_t block, uint64_t stream) {
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int round = 0; round < NN_PHILOX_ROUNDS; round++) {
    const uint64_t a = (uint64_t)c0 * NN_PHILOX_M0, b = (uint64_t)c2 * NN_PHILOX_M1;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)a;
    k0 += NN_PHILOX_W0;
    k1 += NN_PHILOX_W1;
  }
  const nn_philox_words words = {{c0, c1, c2, c3}};
  return words;
}

#endif
