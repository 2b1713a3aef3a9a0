/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#include "abi/decode_checks.h"

#include "runtime/call.h"

NNCUDA_API int32_t cuda_argmax(nncuda_ctx *ctx, const void *logits, int32_t *ids, int64_t rows, int64_t vocab,
    int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_argmax);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_tensor(&call, NN_ROLE_IN, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_OUT, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_argmax_args args = {logits, ids, rows, vocab, dtype};
  check_argmax(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int64_t *seeds,
    const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_sample);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_tensor(&call, NN_ROLE_IN, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "temperature", temperature, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "seeds", seeds, NN_I64, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "steps", steps, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_OUT, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_sample_parameters given = {logits, temperature, seeds, steps, ids, rows, vocab, dtype};
  const nn_sample_args args = lower_sample(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_topk_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k,
    const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_topk_sample);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_tensor(&call, NN_ROLE_IN, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "temperature", temperature, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "top_k", top_k, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "seeds", seeds, NN_I64, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "steps", steps, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_OUT, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_topk_sample_parameters given = {logits, temperature, top_k, seeds, steps, ids, rows, vocab, dtype};
  const nn_sample_args args = lower_topk_sample(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_topp_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k,
    const float *top_p, const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab,
    int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_topp_sample);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_tensor(&call, NN_ROLE_IN, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "temperature", temperature, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "top_k", top_k, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "top_p", top_p, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "seeds", seeds, NN_I64, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "steps", steps, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_OUT, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_topp_sample_parameters given = {logits, temperature, top_k, top_p, seeds, steps, ids, rows, vocab, dtype};
  const nn_sample_args args = lower_topp_sample(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_minp_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k,
    const float *top_p, const float *min_p, const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows,
    int64_t vocab, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_minp_sample);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_tensor(&call, NN_ROLE_IN, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "temperature", temperature, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "top_k", top_k, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN | NN_ROLE_OPTIONAL, "top_p", top_p, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "min_p", min_p, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "seeds", seeds, NN_I64, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "steps", steps, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_OUT, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_minp_sample_parameters given = {logits, temperature, top_k, top_p, min_p, seeds, steps, ids, rows, vocab,
      dtype};
  const nn_sample_args args = lower_minp_sample(&call, &given);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_count_tokens(nncuda_ctx *ctx, const int32_t *ids, int32_t *seen_ids, int32_t *seen_counts,
    int32_t *seen_lengths, int64_t rows, int64_t vocab, int64_t capacity) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_count_tokens);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_size(&call, "capacity", capacity);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_require(&call, capacity <= 2147483647, NNCUDA_ERROR_INVALID_SIZE,
      "capacity is %lld; it must be at most 2147483647", (long long)capacity);
  nn_call_tensor(&call, NN_ROLE_IN, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_INOUT, "seen_ids", seen_ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows, capacity]", rows,
      capacity));
  nn_call_tensor(&call, NN_ROLE_INOUT, "seen_counts", seen_counts, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows, capacity]",
      rows, capacity));
  nn_call_tensor(&call, NN_ROLE_INOUT, "seen_lengths", seen_lengths, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_count_tokens_args args = {ids, seen_ids, seen_counts, seen_lengths, rows, vocab, capacity};
  check_count_tokens(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_penalize_logits(nncuda_ctx *ctx, void *logits, const float *presence, const float *frequency,
    const float *repetition, const int32_t *seen_ids, const int32_t *seen_counts, const int32_t *seen_lengths,
    int64_t rows, int64_t vocab, int64_t capacity, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_penalize_logits);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_size(&call, "capacity", capacity);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_require(&call, capacity <= 2147483647, NNCUDA_ERROR_INVALID_SIZE,
      "capacity is %lld; it must be at most 2147483647", (long long)capacity);
  nn_call_tensor(&call, NN_ROLE_INOUT, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "presence", presence, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "frequency", frequency, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "repetition", repetition, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_IN, "seen_ids", seen_ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows, capacity]", rows,
      capacity));
  nn_call_tensor(&call, NN_ROLE_IN, "seen_counts", seen_counts, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows, capacity]", rows,
      capacity));
  nn_call_tensor(&call, NN_ROLE_IN, "seen_lengths", seen_lengths, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_penalize_logits_args args = {logits, presence, frequency, repetition, seen_ids, seen_counts, seen_lengths,
      rows, vocab, capacity, dtype};
  check_penalize_logits(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_bias_logits(nncuda_ctx *ctx, void *logits, const int32_t *offsets, const int32_t *ids,
    const float *bias, int64_t rows, int64_t vocab, int64_t biases, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_bias_logits);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_size(&call, "biases", biases);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_tensor(&call, NN_ROLE_INOUT, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "offsets", offsets, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows+1]", nn_add(rows, 1)));
  nn_call_tensor(&call, NN_ROLE_IN, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[biases]", biases));
  nn_call_tensor(&call, NN_ROLE_IN, "bias", bias, NNCUDA_F32, NULL, 0, NN_SHAPE("[biases]", biases));
  const nn_bias_logits_args args = {logits, offsets, ids, bias, rows, vocab, biases, dtype};
  check_bias_logits(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_mask_logits(nncuda_ctx *ctx, void *logits, const int32_t *masks, const int32_t *mask_of,
    int64_t rows, int64_t vocab, int64_t n, int64_t words, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_mask_logits);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_size(&call, "n", n);
  nn_call_size(&call, "words", words);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_tensor(&call, NN_ROLE_INOUT, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "masks", masks, NNCUDA_I32, NULL, 0, NN_SHAPE("[n, words]", n, words));
  nn_call_tensor(&call, NN_ROLE_IN, "mask_of", mask_of, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  const nn_mask_logits_args args = {logits, masks, mask_of, rows, vocab, n, words, dtype};
  check_mask_logits(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}

NNCUDA_API int32_t cuda_logprobs(nncuda_ctx *ctx, const void *logits, const int32_t *ids, float *logprobs,
    int32_t *top_ids, float *top_logprobs, int64_t rows, int64_t vocab, int64_t n, int32_t dtype) {
  nn_call call;
  nn_call_begin(&call, ctx, NN_OP_logprobs);
  nn_call_dtype(&call, "dtype", dtype, NN_FLOATS);
  nn_call_size(&call, "rows", rows);
  nn_call_size(&call, "vocab", vocab);
  nn_call_size_if(&call, "n", n, top_ids != NULL || top_logprobs != NULL);
  nn_call_require(&call, vocab <= 2147483647, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most 2147483647",
      (long long)vocab);
  nn_call_require(&call, n <= 128, NNCUDA_ERROR_INVALID_SIZE, "n is %lld; it must be at most 128", (long long)n);
  nn_call_tensor(&call, NN_ROLE_IN, "logits", logits, dtype, NULL, 0, NN_SHAPE("[rows, vocab]", rows, vocab));
  nn_call_tensor(&call, NN_ROLE_IN, "ids", ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_OUT, "logprobs", logprobs, NNCUDA_F32, NULL, 0, NN_SHAPE("[rows]", rows));
  nn_call_tensor(&call, NN_ROLE_OUT | NN_ROLE_OPTIONAL, "top_ids", top_ids, NNCUDA_I32, NULL, 0, NN_SHAPE("[rows, n]",
      rows, n));
  nn_call_tensor(&call, NN_ROLE_OUT | NN_ROLE_OPTIONAL, "top_logprobs", top_logprobs, NNCUDA_F32, NULL, 0,
      NN_SHAPE("[rows, n]", rows, n));
  const nn_logprobs_args args = {logits, ids, logprobs, top_ids, top_logprobs, rows, vocab, n, dtype};
  check_logprobs(&call, &args);
  return nn_call_launch(&call, &args, sizeof args);
}
