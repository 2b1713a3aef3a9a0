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
