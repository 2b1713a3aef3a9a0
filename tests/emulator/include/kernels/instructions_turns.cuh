/*
 * Twin of cuda/kernels/instructions_turns.cuh. Blocks run one after another: what a block waits for has happened, or it
 * would wait for ever.
 */
#ifndef NN_INSTRUCTIONS_TURNS_CUH
#define NN_INSTRUCTIONS_TURNS_CUH

#include "kernels/instructions_tensor.cuh"
#include <stdint.h>
#include <string.h>

inline uint32_t nn_turn_ticket(uint32_t *tickets) { return (*tickets)++; }

inline void nn_count_raise(uint32_t *number) { ++*number; }

inline void nn_count_wait(const uint32_t *number, uint32_t count) {
  if (*number < count) {
    nn_emulated_fail("nn_count_wait: the number is %u, and no block before this one made it %u", *number, count);
  }
}

inline void nn_turn_wait(const uint32_t *number, uint32_t turn) {
  nn_emulated_requires(900, "fence.proxy.async");
  if (*number < turn) {
    nn_emulated_fail("nn_turn_wait: the number is %u, and no block before this one made it %u", *number, turn);
  }
}

inline void nn_turn_raise(uint32_t *number, uint32_t turn) {
  nn_emulated_requires(900, "fence.proxy.async");
  const nn_emulated_stores &stores = nn_emulated_stores_of_thread();
  if (!stores.open.empty() || !stores.groups.empty()) {
    nn_emulated_fail("nn_turn_raise: what this thread stores is not there yet");
  }
  if (*number < turn) {
    *number = turn;
  }
}

inline const unsigned char *nn_emulated_bulk(const void *global, uint32_t shared, uint32_t bytes,
                                             const char *instruction) {
  nn_emulated_requires(900, instruction);
  if ((uintptr_t)global % 16 != 0 || bytes % 16 != 0 || bytes == 0) {
    nn_emulated_fail("%s: %u bytes to %p: both must be multiples of 16", instruction, bytes, global);
  }
  nn_emulated_writes_of_block().read(shared, bytes, instruction);
  return nn_emulated_shared_bytes(shared, bytes, 16, instruction);
}

inline void nn_bulk_store(void *global, uint32_t shared, uint32_t bytes) {
  const unsigned char *from = nn_emulated_bulk(global, shared, bytes, "cp.async.bulk");
  nn_emulated_stores_of_thread().open.emplace_back([=] { memcpy(global, from, bytes); });
}

inline void nn_bulk_add(float *global, uint32_t shared, uint32_t bytes) {
  const unsigned char *from = nn_emulated_bulk(global, shared, bytes, "cp.reduce.async.bulk");
  nn_emulated_stores_of_thread().open.emplace_back([=] {
    for (uint32_t i = 0; i < bytes / 4; i++) {
      float x;
      memcpy(&x, from + 4 * i, 4);
      global[i] += x;
    }
  });
}

template <int PENDING> inline void nn_bulk_wait() { nn_tensor_store_wait<PENDING>(); }

#endif
