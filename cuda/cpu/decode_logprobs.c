/*
 * Log-probabilities. A row is read twice: for its largest logit and its first tokens, and for the sum of exponentials.
 * The maximum of a block is taken on its own, so that few blocks are searched for first tokens one by one.
 */
#include "abi/decode.h"

#include "checks.h"
#include "reduce.h"

enum {
  BLOCK = 1 << 10, /* logits whose maximum, and whose sum, is taken at once */
  MOST_LISTED = 128
};

/* The first tokens of a row so far, in their order. */
typedef struct first_tokens {
  int64_t wanted, count;
  float logits[MOST_LISTED];
  int32_t ids[MOST_LISTED];
} first_tokens;

/* What a logit must exceed to be one of them; a later one loses against an equal one. */
static float least_of(const first_tokens *f) {
  return f->wanted == 0 ? INFINITY : f->count < f->wanted ? -INFINITY : f->logits[f->wanted - 1];
}

static void enter(first_tokens *f, float x, int32_t id) {
  int64_t at = f->count < f->wanted ? f->count++ : f->wanted - 1;
  for (; at > 0 && f->logits[at - 1] < x; at--) {
    f->logits[at] = f->logits[at - 1];
    f->ids[at] = f->ids[at - 1];
  }
  f->logits[at] = x;
  f->ids[at] = id;
}

NN_INLINE float find_first(const void *logits, int64_t first, int64_t vocab, first_tokens *f, int32_t dtype) {
  float largest = -INFINITY;
  for (int64_t begin = 0; begin < vocab; begin += BLOCK) {
    const int64_t end = nn_min(begin + BLOCK, vocab);
    const float most = nn_maximum(logits, first + begin, first + end, dtype);
    largest = most > largest ? most : largest;
    if (most > least_of(f)) {
      for (int64_t i = begin; i < end; i++) {
        const float x = nn_load_as(logits, first + i, dtype);
        if (x > least_of(f)) {
          enter(f, x, (int32_t)i);
        }
      }
    }
  }
  return largest;
}

/* log(sum(exp(x - largest))); with infinite logits the logarithm of their number. */
NN_INLINE double log_of_sum(const void *logits, int64_t first, int64_t vocab, float largest, int32_t dtype) {
  double sum = 0.0;
  if (largest == INFINITY) {
    for (int64_t i = first; i < first + vocab; i++) {
      sum += nn_load_as(logits, i, dtype) == INFINITY;
    }
  } else {
    for (int64_t begin = first; begin < first + vocab; begin += BLOCK) {
      const int64_t end = nn_min(begin + BLOCK, first + vocab);
      sum += (double)nn_exp_sum(logits, begin, end, largest, 1, dtype);
    }
  }
  return log(sum);
}

static float logprob_of(float x, float largest, double log_sum) {
  if (!(x > -INFINITY) || (largest == INFINITY && x < INFINITY)) {
    return -INFINITY; /* NaN too */
  }
  return (float)((largest == INFINITY ? 0.0 : (double)x - (double)largest) - log_sum);
}

NN_INLINE void logprobs_row(const nn_logprobs_args *a, int64_t r, int32_t dtype) {
  const int64_t first = r * a->vocab;
  first_tokens f = {.wanted = a->top_ids == NULL && a->top_logprobs == NULL ? 0 : a->n};
  const float largest = find_first(a->logits, first, a->vocab, &f, dtype);
  const double log_sum = largest == -INFINITY ? 0.0 : log_of_sum(a->logits, first, a->vocab, largest, dtype);
  a->logprobs[r] = logprob_of(nn_load_as(a->logits, first + a->ids[r], dtype), largest, log_sum);
  for (int64_t i = 0; i < f.wanted; i++) {
    const int32_t drawn = i < f.count && (largest < INFINITY || f.logits[i] == INFINITY);
    if (a->top_ids != NULL) {
      a->top_ids[r * a->n + i] = drawn ? f.ids[i] : -1;
    }
    if (a->top_logprobs != NULL) {
      a->top_logprobs[r * a->n + i] = drawn ? logprob_of(f.logits[i], largest, log_sum) : -INFINITY;
    }
  }
}

NN_TASK(logprobs_task, nn_logprobs_args, NN_SWITCH_DTYPE(job->dtype, logprobs_row(job, task, DT)))

int32_t NN_KERNEL(logprobs)(nncuda_ctx *ctx, const void *args) {
  const nn_logprobs_args *a = args;
  NN_TRY(nn_check_range(ctx, "ids", a->ids, a->rows, 0, a->vocab - 1, ""));
  nn_logprobs_args job = *a;
  nn_parallel(ctx, a->rows, logprobs_task, &job);
  return NNCUDA_SUCCESS;
}
