#include "decode.h"

#include "runtime/call.h"

#define NN_REQUIRE_IDS()                                                                                               \
  NN_REQUIRE(vocab <= INT32_MAX, NNCUDA_ERROR_INVALID_SIZE, "vocab is %lld; it must be at most %d", (long long)vocab,  \
             INT32_MAX)

int32_t cuda_argmax(nncuda_ctx *ctx, const void *logits, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype) {
  NN_BEGIN(argmax);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(vocab);
  NN_IN(logits, dtype, rows, vocab);
  NN_OUT(ids, NNCUDA_I32, rows);
  NN_REQUIRE_IDS();
  return NN_LAUNCH(nn_argmax_args, .logits = logits, .ids = ids, .rows = rows, .vocab = vocab, .dtype = dtype);
}

int32_t cuda_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int64_t *seeds,
                    const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype) {
  NN_BEGIN(sample);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(vocab);
  NN_IN(logits, dtype, rows, vocab);
  NN_IN(temperature, NNCUDA_F32, rows);
  NN_IN(seeds, NN_I64, rows);
  NN_IN(steps, NNCUDA_I32, rows);
  NN_OUT(ids, NNCUDA_I32, rows);
  NN_REQUIRE_IDS();
  NN_FLOPS(3.0 * (double)rows * (double)vocab);
  return NN_LAUNCH(nn_sample_args, .logits = logits, .temperature = temperature, .seeds = seeds, .steps = steps,
                   .ids = ids, .rows = rows, .vocab = vocab, .dtype = dtype);
}

int32_t cuda_topk_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k,
                         const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab,
                         int32_t dtype) {
  NN_BEGIN(topk_sample);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(vocab);
  NN_IN(logits, dtype, rows, vocab);
  NN_IN(temperature, NNCUDA_F32, rows);
  NN_IN(top_k, NNCUDA_I32, rows);
  NN_IN(seeds, NN_I64, rows);
  NN_IN(steps, NNCUDA_I32, rows);
  NN_OUT(ids, NNCUDA_I32, rows);
  NN_REQUIRE_IDS();
  NN_FLOPS(3.0 * (double)rows * (double)vocab);
  return NN_LAUNCH(nn_sample_args, .logits = logits, .temperature = temperature, .top_k = top_k, .seeds = seeds,
                   .steps = steps, .ids = ids, .rows = rows, .vocab = vocab, .dtype = dtype);
}

int32_t cuda_topp_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k,
                         const float *top_p, const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows,
                         int64_t vocab, int32_t dtype) {
  NN_BEGIN(topp_sample);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(rows);
  NN_SIZE(vocab);
  NN_IN(logits, dtype, rows, vocab);
  NN_IN(temperature, NNCUDA_F32, rows);
  NN_IN_OPT(top_k, NNCUDA_I32, rows);
  NN_IN(top_p, NNCUDA_F32, rows);
  NN_IN(seeds, NN_I64, rows);
  NN_IN(steps, NNCUDA_I32, rows);
  NN_OUT(ids, NNCUDA_I32, rows);
  NN_REQUIRE_IDS();
  NN_FLOPS(3.0 * (double)rows * (double)vocab);
  return NN_LAUNCH(nn_sample_args, .logits = logits, .temperature = temperature, .top_k = top_k, .top_p = top_p,
                   .seeds = seeds, .steps = steps, .ids = ids, .rows = rows, .vocab = vocab, .dtype = dtype);
}
