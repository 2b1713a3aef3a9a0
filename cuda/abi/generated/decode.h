/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_ABI_DECODE_GENERATED_H
#define NN_ABI_DECODE_GENERATED_H

#include <stdint.h>

typedef struct nn_argmax_args {
  const void *logits;
  int32_t *ids;
  int64_t rows;
  int64_t vocab;
  int32_t dtype;
} nn_argmax_args;

typedef struct nn_sample_parameters {
  const void *logits;
  const float *temperature;
  const int64_t *seeds;
  const int32_t *steps;
  int32_t *ids;
  int64_t rows;
  int64_t vocab;
  int32_t dtype;
} nn_sample_parameters;
enum { nn_sample_parameters_count = 8 };

typedef struct nn_topk_sample_parameters {
  const void *logits;
  const float *temperature;
  const int32_t *top_k;
  const int64_t *seeds;
  const int32_t *steps;
  int32_t *ids;
  int64_t rows;
  int64_t vocab;
  int32_t dtype;
} nn_topk_sample_parameters;
enum { nn_topk_sample_parameters_count = 9 };

typedef struct nn_topp_sample_parameters {
  const void *logits;
  const float *temperature;
  const int32_t *top_k;
  const float *top_p;
  const int64_t *seeds;
  const int32_t *steps;
  int32_t *ids;
  int64_t rows;
  int64_t vocab;
  int32_t dtype;
} nn_topp_sample_parameters;
enum { nn_topp_sample_parameters_count = 10 };

#endif
