#include "abi/checks.h"
#include "abi/decode.h"

NN_FLOPS(argmax, 0)

static void draw(nn_call *call, int64_t rows, int64_t vocab) { call->flops = 3.0 * (double)rows * (double)vocab; }

NN_LOWER(sample, nn_sample_args, 8) {
  draw(call, a->rows, a->vocab);
  return (nn_sample_args){a->logits, a->temperature, NULL,    NULL,     a->seeds,
                          a->steps,  a->ids,         a->rows, a->vocab, a->dtype};
}

NN_LOWER(topk_sample, nn_sample_args, 9) {
  draw(call, a->rows, a->vocab);
  return (nn_sample_args){a->logits, a->temperature, a->top_k, NULL,     a->seeds,
                          a->steps,  a->ids,         a->rows,  a->vocab, a->dtype};
}

NN_LOWER(topp_sample, nn_sample_args, 10) {
  draw(call, a->rows, a->vocab);
  return (nn_sample_args){a->logits, a->temperature, a->top_k, a->top_p, a->seeds,
                          a->steps,  a->ids,         a->rows,  a->vocab, a->dtype};
}
