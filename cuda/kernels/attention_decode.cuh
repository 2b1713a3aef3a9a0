/* What the forms of attention_decode share. */
#ifndef NN_KERNELS_ATTENTION_DECODE_CUH
#define NN_KERNELS_ATTENTION_DECODE_CUH

#include "kernels/attention.cuh"

struct nn_decode {
  const void *q, *k, *v;
  const int32_t *lengths;
  void *out;
  float
      *partial; /* [batch][heads][most_runs][dim + 2]: output, maximum (in units of ln 2), sum of the powers below it */
  unsigned *arrivals; /* of the blocks that share heads */
  int64_t batch, capacity, ld_q, piece_keys, most_runs;
  int32_t heads, kv_heads, group, parts, dim; /* parts: blocks that share the heads of a group */
  nn_split factor;                            /* scale * log2(e) */
  bool wide;                                  /* the caches can be read 16 bytes at a time */
  nn_range range;
};

/* The pieces of so many keys, and their runs. */
struct nn_decode_runs {
  int64_t pieces, length, count;

  __device__ __forceinline__ nn_decode_runs(const nn_decode &p, int64_t keys)
      : pieces(nn_ceil_div(keys, p.piece_keys)), length(nn_run_length(pieces)), count(nn_ceil_div(pieces, length)) {}
};

#endif
