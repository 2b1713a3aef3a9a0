/* Parts of block.cpp that know nothing of threads: in which order they run, and where lanes leave values. */
#ifndef NN_EMULATOR_BLOCK_H
#define NN_EMULATOR_BLOCK_H

#include "machine.h"

#include <cstddef>
#include <cstdlib>
#include <numeric>

/* Values that lanes gave, kept until all that may read them have continued. */
struct nn_buffer {
  nn_buffer *next;
  unsigned size_class, users;
  alignas(64) unsigned char data[64];
};

inline nn_buffer *nn_unused_buffers[16];

inline nn_buffer *nn_take_buffer(size_t bytes, unsigned users) {
  unsigned size_class = 0;
  while ((size_t)512 << size_class < bytes) {
    size_class++;
  }
  nn_buffer *b = nn_unused_buffers[size_class];
  if (b) {
    nn_unused_buffers[size_class] = b->next;
  } else {
    b = (nn_buffer *)aligned_alloc(64, offsetof(nn_buffer, data) + ((size_t)512 << size_class));
    b->size_class = size_class;
  }
  b->users = users;
  return b;
}

inline void nn_release_buffer(nn_buffer *b) {
  if (b && --b->users == 0) {
    b->next = nn_unused_buffers[b->size_class];
    nn_unused_buffers[b->size_class] = b;
  }
}

/* The order that was asked for, of threads and of the clusters of a grid. */
struct nn_order {
  int kind = nn_settings::FORWARD;
  uint64_t random_state = 0, count = 1, step = 1, offset = 0;

  unsigned random_bits() { /* xorshift64* */
    random_state ^= random_state >> 12, random_state ^= random_state << 25, random_state ^= random_state >> 27;
    return (unsigned)(random_state * 0x2545f4914f6cdd1dull >> 32);
  }

  /* One of the set bits. */
  unsigned pick(unsigned bits) {
    switch (kind) {
    case nn_settings::FORWARD:
      return (unsigned)__builtin_ctz(bits);
    case nn_settings::BACKWARD:
      return 31 - (unsigned)__builtin_clz(bits);
    default: {
      const unsigned turn = random_bits() & 31, turned = bits >> turn | bits << ((32 - turn) & 31);
      return ((unsigned)__builtin_ctz(turned) + turn) & 31;
    }
    }
  }

  /* Before a grid of so many clusters. */
  void begin(uint64_t clusters) {
    kind = nn_setting().order;
    count = clusters;
    if (kind == nn_settings::SHUFFLE) {
      if (!random_state) {
        random_state = nn_setting().seed * 0x9e3779b97f4a7c15ull | 1;
      }
      /* i -> step * i + offset is a permutation when step and the number of clusters have no common factor. */
      do {
        step = ((uint64_t)random_bits() << 32 | random_bits()) % count;
      } while (std::gcd(step, count) != 1);
      offset = random_bits() % count;
    }
  }

  /* The cluster that is the number-th to run. */
  uint64_t place(uint64_t number) const {
    return kind == nn_settings::FORWARD    ? number
           : kind == nn_settings::BACKWARD ? count - 1 - number
                                           : (uint64_t)(((unsigned __int128)number * step + offset) % count);
  }
};

#endif
