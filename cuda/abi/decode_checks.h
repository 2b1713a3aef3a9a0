#include "abi/checks.h"
#include "abi/decode.h"

NN_FLOPS(argmax, 0)
NN_FLOPS(count_tokens, 0)
NN_FLOPS(penalize_logits, 4.0 * a->rows * a->capacity)
NN_FLOPS(bias_logits, a->biases)
NN_FLOPS(mask_logits, 0)
NN_FLOPS(logprobs, 3.0 * a->rows * a->vocab)

#define DRAW(...)                                                                                                      \
  ((nn_sample_args){.logits = a->logits,                                                                               \
                    .temperature = a->temperature,                                                                     \
                    .seeds = a->seeds,                                                                                 \
                    .steps = a->steps,                                                                                 \
                    .ids = a->ids,                                                                                     \
                    .rows = a->rows,                                                                                   \
                    .vocab = a->vocab,                                                                                 \
                    .dtype = a->dtype,                                                                                 \
                    __VA_ARGS__})

static void count_draw(nn_call *call, int64_t rows, int64_t vocab) { call->flops = 3.0 * (double)rows * (double)vocab; }

NN_LOWER(sample, nn_sample_args, 8) {
  count_draw(call, a->rows, a->vocab);
  return DRAW(.top_k = NULL);
}

NN_LOWER(topk_sample, nn_sample_args, 9) {
  count_draw(call, a->rows, a->vocab);
  return DRAW(.top_k = a->top_k);
}

NN_LOWER(topp_sample, nn_sample_args, 10) {
  count_draw(call, a->rows, a->vocab);
  return DRAW(.top_k = a->top_k, .top_p = a->top_p);
}

NN_LOWER(minp_sample, nn_sample_args, 11) {
  count_draw(call, a->rows, a->vocab);
  return DRAW(.top_k = a->top_k, .top_p = a->top_p, .min_p = a->min_p);
}
