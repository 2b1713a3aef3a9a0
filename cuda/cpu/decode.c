/*
 * Choosing tokens. A row is never sorted: the border of top_k and of top_p, the last token that may still be drawn, is
 * found by a radix search over the tokens that it may be, which adds up counts or probabilities a bucket.
 *
 * The order of tokens, higher logit first, then lower index, is that of their keys: 32-bit numbers that compare as the
 * logits do, equal for 0 and -0, and 0 for what is never drawn (NaN and -inf).
 */
#include "abi/decode.h"

#include "numbers/philox.h"
#include "reduce.h"

#include <float.h>
#include <string.h>

enum {
  PIECE = 1 << 14,  /* logits a task when there are few rows */
  FEW_ROWS = 8,     /* rows that are cut into pieces, so that they need not outnumber the threads */
  BLOCK = 1 << 10,  /* elements looked at as one before they are looked at one by one */
  SHORT = 64,       /* a list that is sorted rather than searched further */
  BUCKETS = 1 << 11 /* of one round of the radix search: 11, 11 and 10 bits of the key */
};

#define KEY_OF_INFINITY 0xff800000u

/* Keys, or weights as their bits: as numbers both compare as what they stand for. */
typedef uint32_t value __attribute__((may_alias));

NN_INLINE vw keys_of(vf x) {
  const vw u = vf_words(vf_add(x, vf_set1(0.0f))); /* -0 becomes 0 */
  const vw key = vw_xor(u, vw_or(vw_right_signed(u, 31), vw_set1(0x80000000u)));
  /* Below are -inf and negative NaN, above positive NaN. */
  const vw above = vw_sub(key, vw_set1(0x00800000u));
  return vw_and(key, vw_above(vw_set1(KEY_OF_INFINITY - 0x00800000u + 1), above));
}

NN_INLINE vf logits_of(vw key) {
  const vw negative = vw_xor(vw_right_signed(key, 31), vw_set1(UINT32_MAX));
  return vw_floats(vw_xor(key, vw_or(negative, vw_set1(0x80000000u))));
}

static float logit_of(uint32_t key) { return nn_f32_from_bits(key >> 31 ? key ^ 0x80000000u : ~key); }

/* ---- one row on its way to a token ---- */

/* The last token that may be drawn: none with a lower key, and of those with this key none with a higher index. */
typedef struct border {
  uint32_t key;
  int32_t index;
} border;

typedef struct sample_row {
  const void *logits; /* of all rows */
  int64_t first, vocab;
  int32_t dtype;
  uint32_t *keys, *most; /* [vocab], and the largest of each piece */
  float *weights;        /* [vocab] */
  int32_t *list;         /* [vocab]: indices that the border may still be */
  double *buckets;       /* [BUCKETS] */
  uint32_t best;         /* largest key, once all are known */
} sample_row;

/* Keys of elements begin .. end-1; returns the largest. */
NN_INLINE uint32_t make_keys(const sample_row *w, int64_t begin, int64_t end, int32_t dtype) {
  vw most = vw_set1(0);
  for (int64_t i = begin; i < end; i += VF) {
    const int64_t n = nn_min(end - i, VF);
    vw key;
    if (n == VF) {
      key = keys_of(vf_load_as(w->logits, w->first + i, dtype));
      vw_store(w->keys + i, key);
    } else {
      key = keys_of(vf_keep_part(vf_load_part_as(w->logits, w->first + i, n, dtype), n, -INFINITY));
      memcpy(w->keys + i, &key, (size_t)n * sizeof *w->keys);
    }
    most = vw_max(key, most);
  }
  return vw_largest(most);
}

/* Weights exp((logit - largest) / temperature) of elements begin .. end-1, 0 for keys of 0. */
static void make_weights(const sample_row *w, int64_t begin, int64_t end, float temperature) {
  const int infinite = w->best == KEY_OF_INFINITY; /* then only those are left, all alike */
  const float inverse = 1.0f / temperature;
  const vf most = vf_set1(infinite ? 0.0f : logit_of(w->best));
  const vf scale = vf_set1(infinite ? 0.0f : inverse < FLT_MAX ? inverse : FLT_MAX); /* 0 times it must be 0 */
  for (int64_t i = begin; i < end; i += VF) {
    const int64_t n = nn_min(end - i, VF);
    uint32_t tail[VF] = {0};
    const uint32_t *p = w->keys + i;
    if (n < VF) {
      memcpy(tail, p, (size_t)n * sizeof *tail);
      p = tail;
    }
    const vw key = vw_load(p), drawn = vw_above(key, vw_set1(0));
    vf x = logits_of(key);
    if (infinite) {
      x = vf_set1(0.0f);
    }
    const vf weight = vw_floats(vw_and(vf_words(vf_exp(vf_mul(vf_sub(x, most), scale))), drawn));
    if (n == VF) {
      vf_store(w->weights + i, weight);
    } else {
      vf_store_part(w->weights + i, n, weight);
    }
  }
}

/* Fills the list with the indices whose values are at least `least`, which is above 0; returns how many. */
static int64_t list_at_least(const value *values, int64_t n, uint32_t least, int32_t *list) {
  int64_t listed = 0, i = 0;
#if NN_SIMD_AVX512
  const __m512i bound = _mm512_set1_epi32((int)least), step = _mm512_set1_epi32(VF);
  __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (; i + VF <= n; i += VF, index = _mm512_add_epi32(index, step)) {
    const __mmask16 in = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(values + i), bound);
    _mm512_storeu_si512(list + listed, _mm512_maskz_compress_epi32(in, index)); /* listed <= i: it fits */
    listed += __builtin_popcount(in);
  }
#endif
  for (; i < n; i++) {
    list[listed] = (int32_t)i;
    listed += values[i] >= least;
  }
  return listed;
}

/* Insertion sort of a short list by falling keys; equal ones stay in index order. */
static void sort_list(const sample_row *w, int64_t listed) {
  for (int64_t j = 1; j < listed; j++) {
    const int32_t index = w->list[j];
    int64_t to = j;
    for (; to > 0 && w->keys[w->list[to - 1]] < w->keys[index]; to--) {
      w->list[to] = w->list[to - 1];
    }
    w->list[to] = index;
  }
}

/*
 * The border of the shortest run of first tokens whose measure (their number, or with `weighed` the sum of their
 * weights) reaches `target`; of all that are listed when it is not reached. The list, which is used up, is in index
 * order and holds every token of that run.
 */
static border find_border(const sample_row *w, int64_t listed, int weighed, double target) {
  static const struct {
    int shift;
    uint32_t mask;
  } rounds[] = {{21, 0x7ff}, {10, 0x7ff}, {0, 0x3ff}};
  double above = 0.0; /* measure of the tokens before those in the list */
  int round = 0;
  for (; round < 3 && listed > SHORT; round++) {
    const int shift = rounds[round].shift;
    const uint32_t mask = rounds[round].mask;
    memset(w->buckets, 0, BUCKETS * sizeof *w->buckets);
    for (int64_t j = 0; j < listed; j++) {
      const int32_t i = w->list[j];
      w->buckets[w->keys[i] >> shift & mask] += weighed ? (double)w->weights[i] : 1.0;
    }
    uint32_t at = 0;
    double before = above;
    for (uint32_t b = mask + 1; b-- > 0;) {
      if (w->buckets[b] == 0.0) {
        continue;
      }
      at = b; /* the last that is not empty, when rounding keeps the sum below the target */
      before = above;
      above += w->buckets[b];
      if (above >= target) {
        break;
      }
    }
    above = before;
    int64_t kept = 0;
    for (int64_t j = 0; j < listed; j++) {
      const int32_t i = w->list[j];
      w->list[kept] = i;
      kept += (w->keys[i] >> shift & mask) == at;
    }
    listed = kept;
  }
  if (round < 3) {
    sort_list(w, listed);
  } /* else all keys in the list are equal */
  int64_t j = 0;
  for (; j < listed - 1; j++) {
    above += weighed ? (double)w->weights[w->list[j]] : 1.0;
    if (above >= target) {
      break;
    }
  }
  return (border){.key = w->keys[w->list[j]], .index = w->list[j]};
}

/* Sets what lies after the border to 0 in `values`, which are the keys themselves or the weights. */
static void cut(const sample_row *w, border last, value *values) {
  static const uint32_t lanes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const vw lane = vw_load(lanes), last_key = vw_set1(last.key), nothing = vw_set1(0);
  int64_t i = 0;
  for (; i + VF <= w->vocab; i += VF) {
    const vw key = vw_load(w->keys + i), index = vw_add(lane, vw_set1((uint32_t)i));
    const vw tied = vw_select(vw_above(index, vw_set1((uint32_t)last.index)), nothing, vw_equal(key, last_key));
    vw_store(values + i, vw_and(vw_load(values + i), vw_or(vw_above(key, last_key), tied)));
  }
  for (; i < w->vocab; i++) {
    const uint32_t key = w->keys[i];
    values[i] = key > last.key || (key == last.key && i <= last.index) ? values[i] : 0;
  }
}

/* Sets weights below `least` to 0: that of the first token is 1. */
static void drop_below(const sample_row *w, float least) {
  for (int64_t i = 0; i < w->vocab; i++) {
    w->weights[i] = w->weights[i] >= least ? w->weights[i] : 0.0f;
  }
}

/* Where the largest key is first. */
static int32_t first_of_best(const sample_row *w) {
  int64_t i = 0;
  while (w->most[i / PIECE] != w->best) {
    i += PIECE;
  }
  while (w->keys[i] != w->best) {
    i++;
  }
  return (int32_t)i;
}

static double block_sum(const sample_row *w, int64_t begin) {
  return nn_sum_f64(w->weights + begin, nn_min(BLOCK, w->vocab - begin));
}

/* The first index whose cumulative weight is above u times the sum of all. */
static int32_t draw(const sample_row *w, double u) {
  double total = 0.0;
  for (int64_t begin = 0; begin < w->vocab; begin += BLOCK) {
    total += block_sum(w, begin);
  }
  const double target = u * total;
  double sum = 0.0;
  int64_t begin = 0; /* of the block that passes the target: the same sums again, so that there is one */
  for (double next = block_sum(w, 0); next <= target; next = sum + block_sum(w, begin)) {
    sum = next;
    begin += BLOCK;
  }
  const int64_t end = nn_min(begin + BLOCK, w->vocab);
  int64_t id = begin;
  for (int64_t i = begin; i < end && sum <= target; i++) {
    if (w->weights[i] > 0.0f) {
      id = i; /* one by one the sum may round to just below the target: then it is the last of the block */
      sum += (double)w->weights[i];
    }
  }
  return (int32_t)id;
}

/* ---- the rows of a call ---- */

/* What rows have while they are worked on stands in slots: one a row when they are few, else one a worker. */
typedef struct sample_job {
  const nn_sample_args *args;
  int64_t pieces, stride; /* of a row, and elements from one slot to the next */
  int32_t few;
  uint32_t *keys, *most; /* [slots, stride], [slots, pieces] */
  float *weights;        /* [slots, stride] */
  int32_t *list;         /* [slots, stride] */
  double *buckets;       /* [slots, BUCKETS] */
  uint32_t *best;        /* [slots]: of few rows the largest key, 0 once a row is settled */
} sample_job;

static sample_row row_of(const sample_job *job, int64_t slot, int64_t r) {
  const nn_sample_args *a = job->args;
  return (sample_row){.logits = a->logits,
                      .first = r * a->vocab,
                      .vocab = a->vocab,
                      .dtype = a->dtype,
                      .keys = job->keys + slot * job->stride,
                      .most = job->most + slot * job->pieces,
                      .weights = job->weights + slot * job->stride,
                      .list = job->list + slot * job->stride,
                      .buckets = job->buckets + slot * BUCKETS};
}

static void keys_piece(const sample_row *w, int64_t piece) {
  const int64_t begin = piece * PIECE, end = nn_min(begin + PIECE, w->vocab);
  NN_SWITCH_DTYPE(w->dtype, w->most[piece] = make_keys(w, begin, end, DT));
}

/* Ends a row that needs no draw (returns 1), else drops what top_k excludes. */
static int settle(sample_row *w, const nn_sample_args *a, int64_t r, int64_t pieces) {
  w->best = 0;
  for (int64_t piece = 0; piece < pieces; piece++) {
    w->best = w->most[piece] > w->best ? w->most[piece] : w->best;
  }
  if (w->best == 0) {
    a->ids[r] = 0;
    return 1;
  }
  if (a->temperature[r] == 0.0f || (a->top_k != NULL && a->top_k[r] == 1)) {
    a->ids[r] = first_of_best(w);
    return 1;
  }
  if (w->best == KEY_OF_INFINITY) {
    cut(w, (border){.key = KEY_OF_INFINITY, .index = INT32_MAX}, w->keys);
  }
  if (a->top_k != NULL && a->top_k[r] < w->vocab) {
    const int64_t listed = list_at_least(w->keys, w->vocab, 1, w->list);
    if (a->top_k[r] < listed) {
      cut(w, find_border(w, listed, 0, (double)a->top_k[r]), w->keys);
    }
  }
  return 0;
}

static int32_t finish(const sample_row *w, const nn_sample_args *a, int64_t r) {
  const double p = a->top_p == NULL ? 1.0 : (double)a->top_p[r];
  if (p < 1.0) {
    const double total = nn_sum_f64(w->weights, w->vocab);
    /* All weights below (1 - p) * total / vocab add up to less than (1 - p) * total: without them it is still p. */
    const float least = (float)(0.999 * (1.0 - p) * total / (double)w->vocab);
    const uint32_t bits = nn_f32_bits(least > FLT_MIN ? least : FLT_MIN);
    const int64_t listed = list_at_least((const value *)w->weights, w->vocab, bits, w->list);
    cut(w, find_border(w, listed, 1, p * total), (value *)w->weights);
  }
  if (a->min_p != NULL && a->min_p[r] > 0.0f) {
    drop_below(w, a->min_p[r]);
  }
  const uint32_t word = nn_philox((uint64_t)a->seeds[r], (uint64_t)a->steps[r], 0).w[0];
  return draw(w, (double)word * 0x1p-32);
}

NN_TASK_OF(row_task, sample_job, job, r) {
  sample_row w = row_of(job, worker, r);
  for (int64_t piece = 0; piece < job->pieces; piece++) {
    keys_piece(&w, piece);
  }
  if (!settle(&w, job->args, r, job->pieces)) {
    make_weights(&w, 0, w.vocab, job->args->temperature[r]);
    job->args->ids[r] = finish(&w, job->args, r);
  }
}

NN_TASK_OF(keys_task, sample_job, job, i) {
  const int64_t r = i / job->pieces;
  const sample_row w = row_of(job, r, r);
  keys_piece(&w, i % job->pieces);
}

NN_TASK_OF(settle_task, sample_job, job, r) {
  sample_row w = row_of(job, r, r);
  job->best[r] = settle(&w, job->args, r, job->pieces) ? 0 : w.best;
}

NN_TASK_OF(weights_task, sample_job, job, i) {
  const int64_t r = i / job->pieces;
  sample_row w = row_of(job, r, r);
  w.best = job->best[r];
  if (w.best != 0) {
    const int64_t begin = i % job->pieces * PIECE;
    make_weights(&w, begin, nn_min(begin + PIECE, w.vocab), job->args->temperature[r]);
  }
}

NN_TASK_OF(finish_task, sample_job, job, r) {
  if (job->best[r] != 0) {
    const sample_row w = row_of(job, r, r);
    job->args->ids[r] = finish(&w, job->args, r);
  }
}

static int32_t check_options(nncuda_ctx *ctx, const nn_sample_args *a) {
  for (int64_t r = 0; r < a->rows; r++) {
    if (!(a->temperature[r] >= 0.0f && a->temperature[r] < INFINITY)) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "temperature[%lld] is %g; it must be finite and at least 0",
                     (long long)r, (double)a->temperature[r]);
    }
    if (a->top_k != NULL && a->top_k[r] < 1) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "top_k[%lld] is %d; it must be at least 1", (long long)r,
                     a->top_k[r]);
    }
    if (a->top_p != NULL && !(a->top_p[r] > 0.0f && a->top_p[r] <= 1.0f)) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "top_p[%lld] is %g; it must be above 0 and at most 1",
                     (long long)r, (double)a->top_p[r]);
    }
    if (a->min_p != NULL && !(a->min_p[r] >= 0.0f && a->min_p[r] <= 1.0f)) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "min_p[%lld] is %g; it must be 0 to 1", (long long)r,
                     (double)a->min_p[r]);
    }
    if (a->steps[r] < 0) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "steps[%lld] is %d; it must be at least 0", (long long)r,
                     a->steps[r]);
    }
  }
  return NNCUDA_SUCCESS;
}

/* Few rows are worked on all at once, of many each worker has one. */
NN_PLAIN static sample_job sample_lay_out(const nn_sample_args *a, nn_workspace *w) {
  sample_job job = {.args = a, .pieces = nn_ceil_div(a->vocab, PIECE), .stride = nn_round_up(a->vocab, VF)};
  job.few = a->rows < FEW_ROWS && job.pieces > 1;
  const int64_t slots = job.few ? a->rows : w->machine->threads, values = slots * job.stride;
  job.keys = nn_workspace_piece(w, (size_t)values * sizeof *job.keys);
  job.most = nn_workspace_piece(w, (size_t)(slots * job.pieces) * sizeof *job.most);
  job.weights = nn_workspace_piece(w, (size_t)values * sizeof *job.weights);
  job.list = nn_workspace_piece(w, (size_t)values * sizeof *job.list);
  job.buckets = nn_workspace_piece(w, (size_t)(slots * BUCKETS) * sizeof *job.buckets);
  job.best = nn_workspace_piece(w, (size_t)slots * sizeof *job.best);
  return job;
}

static int32_t sample_rows(nncuda_ctx *ctx, const nn_sample_args *a) {
  NN_TRY(check_options(ctx, a));
  sample_job job = sample_lay_out(a, nn_workspace_of(ctx));
  if (job.few) {
    nn_parallel(ctx, a->rows * job.pieces, keys_task, &job);
    nn_parallel(ctx, a->rows, settle_task, &job);
    nn_parallel(ctx, a->rows * job.pieces, weights_task, &job);
    nn_parallel(ctx, a->rows, finish_task, &job);
  } else {
    nn_parallel(ctx, a->rows, row_task, &job);
  }
  return NNCUDA_SUCCESS;
}

NN_KERNEL_BY(sample, sample_rows, sample_lay_out)
NN_KERNEL_BY(topk_sample, sample_rows, sample_lay_out)
NN_KERNEL_BY(topp_sample, sample_rows, sample_lay_out)
NN_KERNEL_BY(minp_sample, sample_rows, sample_lay_out)

/* ---- argmax ---- */

typedef struct argmax_job {
  const nn_argmax_args *args;
  int64_t pieces;
  float *most;    /* [rows, pieces] */
  int32_t *index; /* [rows, pieces]: where it is first */
} argmax_job;

/* The maximum of each block is taken on its own, so that only the first block that holds the largest is searched. */
NN_INLINE void argmax_piece(const argmax_job *job, int64_t i, int32_t dtype) {
  const nn_argmax_args *a = job->args;
  const int64_t first = i / job->pieces * a->vocab, begin = first + i % job->pieces * PIECE;
  const int64_t end = nn_min(begin + PIECE, first + a->vocab);
  float most = -INFINITY;
  int64_t at = begin;
  for (int64_t block = begin; block < end; block += BLOCK) {
    const float here = nn_maximum(a->logits, block, nn_min(block + BLOCK, end), dtype);
    if (here > most) {
      most = here;
      at = block;
    }
  }
  if (most > -INFINITY) {
    while (nn_load_as(a->logits, at, dtype) != most) {
      at++;
    }
  }
  job->most[i] = most;
  job->index[i] = (int32_t)(at - first);
}

NN_TASK(argmax_task, argmax_job, NN_SWITCH_DTYPE(job->args->dtype, argmax_piece(job, task, DT)))

NN_PLAIN static argmax_job argmax_lay_out(const nn_argmax_args *a, nn_workspace *w) {
  argmax_job job = {.args = a, .pieces = nn_ceil_div(a->vocab, PIECE)};
  job.most = nn_workspace_piece(w, (size_t)(a->rows * job.pieces) * sizeof *job.most);
  job.index = nn_workspace_piece(w, (size_t)(a->rows * job.pieces) * sizeof *job.index);
  return job;
}

NN_WORKSPACE(argmax) { argmax_lay_out(args, w); }

int32_t NN_KERNEL(argmax)(nncuda_ctx *ctx, const void *args) {
  const nn_argmax_args *a = args;
  argmax_job job = argmax_lay_out(a, nn_workspace_of(ctx));
  nn_parallel(ctx, a->rows * job.pieces, argmax_task, &job);
  for (int64_t r = 0; r < a->rows; r++) {
    const float *most = job.most + r * job.pieces;
    int64_t best = 0;
    for (int64_t piece = 1; piece < job.pieces; piece++) {
      best = most[piece] > most[best] ? piece : best;
    }
    a->ids[r] = most[best] > -INFINITY ? job.index[r * job.pieces + best] : 0;
  }
  return NNCUDA_SUCCESS;
}
