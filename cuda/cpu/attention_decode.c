/*
 * Attention of one query a sequence over its cache (Dao et al. 2023, "Flash-Decoding"): the keys are cut into pieces of
 * a fixed number, each piece leaves its maximum, sum and output in scratch, and a second pass combines them in order.
 * What limits it is reading the cache, which each task does once for all query heads that share the key head.
 */
#include "attention_pack.h"

#include "../abi/attention.h"

enum {
  PIECE_KEYS = 256,
  AHEAD = 2 * VF, /* rows that are fetched before they are used: a row of one head is too short for the hardware to */
  OUT_VECTORS = 4,
  OUT_HEADS = 4
};

typedef struct decode {
  const nn_attention_decode_args *a;
  float *partial, *workspace; /* [batch][heads][pieces][head_dim + 2]: output, maximum, sum; and of each worker */
  int64_t pieces, partial_size, workspace_size;
} decode;

NN_INLINE void prefetch_row(const void *row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch((const char *)row + at);
  }
}

/* Scores of `keys` keys for each of `heads` queries: scores[h][j] = q[h] . k[j]. Queries are padded to whole vectors.
 */
NN_INLINE void decode_scores(float *scores, const float *q, const char *k, int64_t ld, int64_t heads, int64_t keys,
                             int64_t dim, int32_t dtype) {
  const int64_t q_ld = round_up(dim, VF), bytes = nn_dtype_bytes(dtype);
  for (int64_t j = 0; j < keys; j += VF) {
    for (int64_t i = j + AHEAD; i < smaller(keys, j + AHEAD + VF); i++) {
      prefetch_row(k + i * ld * bytes, dim * bytes);
    }
    for (int64_t h = 0; h < heads; h++) {
      vf sums[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) { sums[i] = vf_set1(0.0f); }
      for (int64_t d = 0; d < dim; d += VF) {
        const vf x = vf_load(q + h * q_ld + d);
        if (j + VF <= keys && d + VF <= dim) {
          NN_UNROLL for (int i = 0; i < VF; i++) {
            sums[i] = vf_fma(vf_load_as(k, (j + i) * ld + d, dtype), x, sums[i]);
          }
        } else {
          for (int i = 0; i < smaller(VF, keys - j); i++) {
            sums[i] = vf_fma(load_columns(k, (j + i) * ld, d, dim, dtype), x, sums[i]);
          }
        }
      }
      vf_store(scores + h * PIECE_KEYS + j, sum_each(sums));
    }
  }
}

/* The softmax of `keys` scores against their own maximum: scores become 2^(score - maximum). */
NN_INLINE void decode_soften(float *scores, int64_t keys, float *peak, float *sum) {
  vf top = vf_set1(-INFINITY);
  for (int64_t j = 0; j < keys; j += VF) {
    top = vf_max(vf_keep_part(vf_load(scores + j), smaller(VF, keys - j), -INFINITY), top);
  }
  *peak = vf_maximum(top);
  vf total = vf_set1(0.0f);
  for (int64_t j = 0; j < keys; j += VF) {
    const vf p = vf_keep_part(vf_exp2(vf_load(scores + j) - vf_set1(*peak)), smaller(VF, keys - j), 0.0f);
    total = total + p;
    vf_store(scores + j, p);
  }
  *sum = vf_sum(total);
}

/* `vectors` vectors of the output of `heads` queries, from element d on; the last vector may reach beyond dim. */
NN_INLINE void decode_values_tile(float *out, int64_t out_ld, const float *p, const char *v, int64_t ld, int64_t keys,
                                  int64_t d, int64_t dim, int heads, int vectors, int32_t dtype) {
  vf acc[OUT_HEADS][OUT_VECTORS];
  NN_UNROLL for (int h = 0; h < heads; h++) {
    NN_UNROLL for (int i = 0; i < vectors; i++) { acc[h][i] = vf_set1(0.0f); }
  }
  for (int64_t j = 0; j < keys; j++) {
    if (j + AHEAD < keys) {
      prefetch_row(v + ((j + AHEAD) * ld + d) * nn_dtype_bytes(dtype), vectors * VF * nn_dtype_bytes(dtype));
    }
    vf x[OUT_VECTORS];
    NN_UNROLL for (int i = 0; i < vectors; i++) {
      x[i] = vectors == 1 ? load_columns(v, j * ld, d, dim, dtype) : vf_load_as(v, j * ld + d + i * VF, dtype);
    }
    NN_UNROLL for (int h = 0; h < heads; h++) {
      const vf weight = vf_set1(p[h * PIECE_KEYS + j]);
      NN_UNROLL for (int i = 0; i < vectors; i++) { acc[h][i] = vf_fma(weight, x[i], acc[h][i]); }
    }
  }
  NN_UNROLL for (int h = 0; h < heads; h++) {
    NN_UNROLL for (int i = 0; i < vectors; i++) {
      vf_store_part(out + h * out_ld + d + i * VF, smaller(VF, dim - d - i * VF), acc[h][i]);
    }
  }
}

NN_INLINE void decode_values(float *out, int64_t out_ld, const float *p, const char *v, int64_t ld, int64_t heads,
                             int64_t keys, int64_t dim, int32_t dtype) {
  int64_t step;
  for (int64_t d = 0; d < dim; d += step) {
    step = d + OUT_VECTORS * VF <= dim ? OUT_VECTORS * VF : VF;
    int64_t h = 0;
    for (; h + OUT_HEADS <= heads; h += OUT_HEADS) {
      float *to = out + h * out_ld;
      if (step == VF) {
        decode_values_tile(to, out_ld, p + h * PIECE_KEYS, v, ld, keys, d, dim, OUT_HEADS, 1, dtype);
      } else {
        decode_values_tile(to, out_ld, p + h * PIECE_KEYS, v, ld, keys, d, dim, OUT_HEADS, OUT_VECTORS, dtype);
      }
    }
    for (; h < heads; h++) {
      float *to = out + h * out_ld;
      if (step == VF) {
        decode_values_tile(to, out_ld, p + h * PIECE_KEYS, v, ld, keys, d, dim, 1, 1, dtype);
      } else {
        decode_values_tile(to, out_ld, p + h * PIECE_KEYS, v, ld, keys, d, dim, 1, OUT_VECTORS, dtype);
      }
    }
  }
}

/* A piece of the keys of one sequence, for one key head and all its query heads. */
NN_INLINE void decode_piece(const decode *f, int64_t sequence, int64_t piece, int64_t kv_head, int32_t worker,
                            int32_t dtype) {
  const nn_attention_decode_args *a = f->a;
  const int64_t key = piece * PIECE_KEYS, keys = smaller(PIECE_KEYS, a->lengths[sequence] - key);
  const int64_t dim = a->head_dim, group = a->heads / a->kv_heads, q_ld = round_up(dim, VF), ld = a->kv_heads * dim;
  const int64_t head = kv_head * group, bytes = nn_dtype_bytes(dtype);
  if (keys <= 0) {
    return;
  }
  float *q = f->workspace + worker * f->workspace_size, *scores = q + group * q_ld;
  const split_factor factor = split_double((double)a->scale * 1.4426950408889634);
  for (int64_t h = 0; h < group; h++) {
    for (int64_t d = 0; d < dim; d += VF) {
      const vf x = load_columns(a->q, sequence * a->ld_q + (head + h) * dim, d, dim, dtype);
      vf_store(q + h * q_ld + d, vf_fma(x, vf_set1(factor.high), x * vf_set1(factor.low)));
    }
  }
  const int64_t at = (((sequence * a->capacity) + key) * a->kv_heads + kv_head) * dim * bytes;
  decode_scores(scores, q, (const char *)a->k_cache + at, ld, group, keys, dim, dtype);
  float *partial = f->partial + ((sequence * a->heads + head) * f->pieces + piece) * f->partial_size;
  for (int64_t h = 0; h < group; h++) {
    float *result = partial + h * f->pieces * f->partial_size;
    decode_soften(scores + h * PIECE_KEYS, keys, result + dim, result + dim + 1);
  }
  const char *v = (const char *)a->v_cache + at;
  decode_values(partial, f->pieces * f->partial_size, scores, v, ld, group, keys, dim, dtype);
}

/* Neighbouring tasks read neighbouring memory: the key heads of a piece lie side by side. */
static void decode_task(void *arg, int64_t i, int32_t worker) {
  const decode *f = arg;
  const int64_t kv_heads = f->a->kv_heads, piece = i / kv_heads % f->pieces, sequence = i / kv_heads / f->pieces;
  NN_SWITCH_DTYPE(f->a->dtype, decode_piece(f, sequence, piece, i % kv_heads, worker, DT));
}

NN_INLINE void decode_combine(const decode *f, int64_t row, int32_t dtype) {
  const nn_attention_decode_args *a = f->a;
  const int64_t dim = a->head_dim, pieces = ceil_div(a->lengths[row / a->heads], PIECE_KEYS);
  const float *partial = f->partial + row * f->pieces * f->partial_size;
  float peak = -INFINITY;
  for (int64_t p = 0; p < pieces; p++) {
    const float top = partial[p * f->partial_size + dim];
    peak = top > peak ? top : peak;
  }
  vf sum = vf_set1(0.0f); /* in each lane */
  for (int64_t p = 0; p < pieces; p++) {
    const float *x = partial + p * f->partial_size + dim;
    sum = vf_fma(vf_set1(x[1]), vf_exp2(vf_set1(x[0] - peak)), sum);
  }
  for (int64_t d = 0; d < dim; d += VF) {
    const int64_t n = smaller(VF, dim - d);
    vf total = vf_set1(0.0f);
    for (int64_t p = 0; p < pieces; p++) {
      const float *x = partial + p * f->partial_size;
      total = vf_fma(vf_load_part(x + d, n), vf_exp2(vf_set1(x[dim] - peak)), total);
    }
    if (pieces > 0) {
      total = total / sum;
    }
    vf_store_part_as(a->out, row * dim + d, n, total, dtype);
  }
}

static void decode_combine_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const decode *f = arg;
  NN_SWITCH_DTYPE(f->a->dtype, decode_combine(f, i, DT));
}

int32_t NN_KERNEL(attention_decode)(nncuda_ctx *ctx, const void *args) {
  const nn_attention_decode_args *a = args;
  int64_t longest = 0;
  for (int64_t b = 0; b < a->batch; b++) {
    if (a->lengths[b] < 0 || a->lengths[b] > a->capacity) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "lengths[%lld] is %d; it must be 0 to %lld, the capacity",
                     (long long)b, a->lengths[b], (long long)a->capacity);
    }
    longest = larger(longest, a->lengths[b]);
  }
  const int64_t group = a->heads / a->kv_heads;
  decode f = {.a = a, .pieces = larger(1, ceil_div(longest, PIECE_KEYS)), .partial_size = a->head_dim + 2};
  f.workspace_size = round_up(group * (round_up(a->head_dim, VF) + PIECE_KEYS), 16);
  f.workspace = nn_scratch(ctx, (size_t)(f.workspace_size * nn_threads(ctx)) * sizeof(float));
  f.partial = nn_scratch(ctx, (size_t)(a->batch * a->heads * f.pieces * f.partial_size) * sizeof(float));
  if (!f.workspace || !f.partial) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  nn_parallel(ctx, a->batch * f.pieces * a->kv_heads, decode_task, &f);
  nn_parallel(ctx, a->batch * a->heads, decode_combine_task, &f);
  return NNCUDA_SUCCESS;
}
