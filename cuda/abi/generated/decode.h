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

typedef struct nn_minp_sample_parameters {
  const void *logits;
  const float *temperature;
  const int32_t *top_k;
  const float *top_p;
  const float *min_p;
  const int64_t *seeds;
  const int32_t *steps;
  int32_t *ids;
  int64_t rows;
  int64_t vocab;
  int32_t dtype;
} nn_minp_sample_parameters;
enum { nn_minp_sample_parameters_count = 11 };

typedef struct nn_count_tokens_args {
  const int32_t *ids;
  int32_t *seen_ids;
  int32_t *seen_counts;
  int32_t *seen_lengths;
  int64_t rows;
  int64_t vocab;
  int64_t capacity;
} nn_count_tokens_args;

typedef struct nn_penalize_logits_args {
  void *logits;
  const float *presence;
  const float *frequency;
  const float *repetition;
  const int32_t *seen_ids;
  const int32_t *seen_counts;
  const int32_t *seen_lengths;
  int64_t rows;
  int64_t vocab;
  int64_t capacity;
  int32_t dtype;
} nn_penalize_logits_args;

typedef struct nn_bias_logits_args {
  void *logits;
  const int32_t *offsets;
  const int32_t *ids;
  const float *bias;
  int64_t rows;
  int64_t vocab;
  int64_t biases;
  int32_t dtype;
} nn_bias_logits_args;

typedef struct nn_mask_logits_args {
  void *logits;
  const int32_t *masks;
  const int32_t *mask_of;
  int64_t rows;
  int64_t vocab;
  int64_t n;
  int64_t words;
  int32_t dtype;
} nn_mask_logits_args;

typedef struct nn_logprobs_args {
  const void *logits;
  const int32_t *ids;
  float *logprobs;
  int32_t *top_ids;
  float *top_logprobs;
  int64_t rows;
  int64_t vocab;
  int64_t n;
  int32_t dtype;
} nn_logprobs_args;

#endif
