/* What both engines' kernels of decoding share. */
#ifndef NN_ABI_DECODE_H
#define NN_ABI_DECODE_H

#include "abi/generated/decode.h"

/* Of sample, topk_sample, topp_sample and minp_sample: the kernels differ in which limits they are given. */
typedef struct nn_sample_args {
  const void *logits;
  const float *temperature;
  const int32_t *top_k; /* null for no limit */
  const float *top_p;   /* null for no limit */
  const float *min_p;   /* null for no limit */
  const int64_t *seeds;
  const int32_t *steps;
  int32_t *ids;
  int64_t rows, vocab;
  int32_t dtype;
} nn_sample_args;

#endif
