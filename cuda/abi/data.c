/*
 * The order of training data: a host function, the same on every engine, since the data lies on the host.
 */
#include "numbers/philox.h"
#include "runtime/context.h"

enum { ROUNDS = 4 };

/* F(round, half) of the Feistel network. The upper half of the block keeps its counters apart from those of numbers. */
static uint64_t scramble(uint64_t seed, uint64_t epoch, uint64_t round, uint64_t half) {
  return nn_philox(seed, (((uint64_t)1 << 31) + round) << 32 | half, epoch).w[0];
}

/* x within 0 .. windows-1 under the permutation of its epoch; `bits` of windows-1. The network permutes 0 .. 2^bits-1,
 * less than twice as many as are wanted, so that following a cycle until it comes back inside takes two steps on
 * average. */
static uint64_t permute(uint64_t seed, uint64_t epoch, uint64_t x, uint64_t windows, int bits) {
  const int right_bits = bits - bits / 2;
  const uint64_t right_mask = ((uint64_t)1 << right_bits) - 1, left_mask = ((uint64_t)1 << bits / 2) - 1;
  do {
    uint64_t left = x >> right_bits, right = x & right_mask;
    for (uint64_t round = 0; round < ROUNDS; round += 2) {
      left ^= scramble(seed, epoch, round, right) & left_mask;
      right ^= scramble(seed, epoch, round + 1, left) & right_mask;
    }
    x = left << right_bits | right;
  } while (x >= windows);
  return x;
}

static int32_t check(nncuda_ctx *ctx, int64_t first, int64_t count, int64_t windows, const int64_t *indices) {
  if (first < 0) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "first is %lld; it must be at least 0", (long long)first);
  }
  if (count < 0 || count > INT64_MAX - first) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_SIZE, "count is %lld; it must be 0 to %lld", (long long)count,
                   (long long)(INT64_MAX - first));
  }
  if (windows < 1) {
    return nn_fail(ctx, NNCUDA_ERROR_INVALID_VALUE, "windows is %lld; it must be at least 1", (long long)windows);
  }
  if (count > 0 && indices == NULL) {
    return nn_fail(ctx, NNCUDA_ERROR_NULL_POINTER, "indices is null; it must point to %lld numbers", (long long)count);
  }
  if ((uintptr_t)indices % sizeof *indices != 0) {
    return nn_fail(ctx, NNCUDA_ERROR_MISALIGNED, "indices is %p; it must be a multiple of 8 bytes", (void *)indices);
  }
  return NNCUDA_SUCCESS;
}

int32_t nncuda_data_order(nncuda_ctx *ctx, int64_t seed, int64_t first, int64_t count, int64_t windows,
                          int64_t *indices) {
  int32_t status = nn_ctx_enter(ctx, "nncuda_data_order");
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  status = check(ctx, first, count, windows, indices);
  if (status == NNCUDA_SUCCESS) {
    int bits = 0;
    while ((uint64_t)(windows - 1) >> bits != 0) {
      bits++;
    }
    for (int64_t i = 0; i < count; i++) {
      const int64_t position = first + i;
      indices[i] = (int64_t)permute((uint64_t)seed, (uint64_t)(position / windows), (uint64_t)(position % windows),
                                    (uint64_t)windows, bits);
    }
  }
  return nn_ctx_leave(ctx, status);
}
