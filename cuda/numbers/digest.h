/*
 * The mixing of cuda_digest; the rule is in bindings.h, section digest. Plain C, so that both engines include it.
 */
#ifndef NN_NUMBERS_DIGEST_H
#define NN_NUMBERS_DIGEST_H

#include "numbers/sizes.h"

typedef struct nn_digest_sums {
  uint64_t first, second;
} nn_digest_sums;

/* What an element with these bits, at this index, adds to the sums. */
NN_NUMBER_FUNCTION void nn_digest_add(nn_digest_sums *sums, uint64_t index, uint32_t bits) {
  uint64_t z = (index << 32 | bits) + (1 + (index >> 32)) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  sums->first += z;
  z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
  sums->second += z ^ z >> 32;
}

#endif
