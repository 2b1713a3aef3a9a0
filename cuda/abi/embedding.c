#include "embedding.h"

#include "runtime/call.h"

int32_t cuda_embedding(nncuda_ctx *ctx, const void *table, const int32_t *ids, void *y, int64_t tokens, int64_t vocab,
                       int64_t dim, int32_t dtype) {
  NN_BEGIN(embedding);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(vocab);
  NN_SIZE(dim);
  NN_IN(table, dtype, vocab, dim);
  NN_IN(ids, NNCUDA_I32, tokens);
  NN_OUT(y, dtype, tokens, dim);
  return NN_LAUNCH(nn_embedding_args, .table = table, .ids = ids, .y = y, .tokens = tokens, .vocab = vocab, .dim = dim,
                   .dtype = dtype);
}

int32_t cuda_scatter_add(nncuda_ctx *ctx, const void *x, const int32_t *ids, float *table, int64_t tokens,
                         int64_t vocab, int64_t dim, int32_t dtype) {
  NN_BEGIN(scatter_add);
  NN_DTYPE(dtype, NN_FLOATS);
  NN_SIZE(tokens);
  NN_SIZE(vocab);
  NN_SIZE(dim);
  NN_IN(x, dtype, tokens, dim);
  NN_IN(ids, NNCUDA_I32, tokens);
  NN_ACC(table, NNCUDA_F32, vocab, dim);
  NN_FLOPS((double)tokens * (double)dim);
  return NN_LAUNCH(nn_scatter_add_args, .x = x, .ids = ids, .table = table, .tokens = tokens, .vocab = vocab,
                   .dim = dim, .dtype = dtype);
}
