/* The forms of flash_attention, each with its tuning; attention_flash.cu chooses. */
#ifndef NN_KERNELS_ATTENTION_FLASH_CUH
#define NN_KERNELS_ATTENTION_FLASH_CUH

#include "kernels/attention_starts.cuh"

struct nn_flash {
  const void *q, *k, *v;
  const int32_t *starts; /* the first key that each query sees, or null */
  void *out;
  float *lse;
  nn_attention_sizes sizes;
  nn_split factor;     /* scale * log2(e) */
  int64_t tiles;       /* of queries, in each (sequence, key head) */
  bool wide, wide_out; /* q, k and v, or out, can be accessed 16 bytes at a time */
};

#endif
