/* attention_decode in the arithmetic of f32: keys and values are widened, a piece by vectors (attention_decode.h). */
#include "attention_decode.h"

enum {
  PIECE_KEYS_LEAST = 64,
  VALUE_KEYS = 32,                    /* values that the tile of the output passes over at a time */
  WIDE_LD = ATTN_MAX_HEAD_DIM + 16,   /* constant, so that the rows of a block are at constant distances */
  OUT_VECTORS = ATTN_NR == 32 ? 4 : 2 /* the tile of the output: with its 4 heads, what the registers hold */
};

/*
 * A task reads its rows in the order of memory, block by block, and spreads fetching the next block over the work on
 * this one: fetched all at once it would wait for the few lines that may be under way, and the hardware alone does not
 * fetch far enough, since each key head reads short pieces far apart. This is step i of n over `bytes` bytes.
 */
NN_INLINE void fetch_part(const char *from, int64_t bytes, int64_t i, int64_t n) {
  for (int64_t at = i * bytes / n / 64 * 64; at < (i + 1) * bytes / n; at += 64) {
    __builtin_prefetch(from + at);
  }
}

/* `rows` rows as f32, WIDE_LD elements apart and padded with zeros to whole vectors. */
NN_INLINE void widen_rows(float *to, const void *from, int64_t ld, int64_t rows, int64_t dim, int32_t dtype) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t d = 0; d < dim; d += VF) {
      vf_store(to + r * WIDE_LD + d, load_columns(from, r * ld, d, dim, dtype));
    }
  }
}

/* The dot products of q with VF rows. */
NN_INLINE vf dot_each(const float *q, const float *rows, int64_t dim) {
  vf sums[VF];
  NN_UNROLL for (int i = 0; i < VF; i++) { sums[i] = vf_set1(0.0f); }
  for (int64_t d = 0; d < dim; d += VF) {
    const vf x = vf_load(q + d);
    NN_UNROLL for (int i = 0; i < VF; i++) { sums[i] = vf_fma(vf_load(rows + i * WIDE_LD + d), x, sums[i]); }
  }
  return sum_each(sums);
}

/*
 * Adds to `vectors` vectors of the output of `heads` queries, from element d on; the last vector may reach beyond dim.
 * The output is padded to whole vectors. Beside each key it fetches `lines` cache lines.
 */
NN_INLINE void decode_values_tile(float *out, int64_t out_ld, const float *p, const float *v, int64_t ld, int64_t keys,
                                  int64_t d, int64_t dim, const char *fetch, int64_t lines, int heads, int vectors) {
  vf acc[4][OUT_VECTORS];
  NN_UNROLL for (int h = 0; h < heads; h++) {
    NN_UNROLL for (int i = 0; i < vectors; i++) { acc[h][i] = vf_load(out + h * out_ld + d + i * VF); }
  }
  for (int64_t j = 0; j < keys; j++) {
    for (int64_t i = 0; i < lines; i++, fetch += 64) {
      __builtin_prefetch(fetch);
    }
    vf x[OUT_VECTORS];
    NN_UNROLL for (int i = 0; i < vectors; i++) {
      x[i] = vectors == 1 ? load_columns(v, j * ld, d, dim, NNCUDA_F32) : vf_load(v + j * ld + d + i * VF);
    }
    NN_UNROLL for (int h = 0; h < heads; h++) {
      const vf weight = vf_set1(p[h * PIECE_KEYS + j]);
      NN_UNROLL for (int i = 0; i < vectors; i++) { acc[h][i] = vf_fma(weight, x[i], acc[h][i]); }
    }
  }
  NN_UNROLL for (int h = 0; h < heads; h++) {
    NN_UNROLL for (int i = 0; i < vectors; i++) { vf_store(out + h * out_ld + d + i * VF, acc[h][i]); }
  }
}

/* out[h] += sum over j of p[h][j] * v[j], for each of `heads` queries, while `bytes` bytes are fetched. */
NN_INLINE void decode_values(float *out, int64_t out_ld, const float *p, const float *v, int64_t ld, int64_t heads,
                             int64_t keys, int64_t dim, const char *fetch, int64_t bytes) {
  const int64_t tiles =
      (heads / 4 + heads % 4) * (dim / (OUT_VECTORS * VF) + nn_ceil_div(dim % (OUT_VECTORS * VF), VF));
  const int64_t lines = nn_ceil_div(bytes, tiles * keys * 64), step = bytes / tiles;
  for (int64_t d = 0; d < dim;) {
    const int64_t width = d + OUT_VECTORS * VF <= dim ? OUT_VECTORS : 1;
    for (int64_t h = 0; h < heads; fetch += step) {
      float *to = out + h * out_ld;
      const float *weights = p + h * PIECE_KEYS;
      if (heads - h < 4 && width == 1) {
        decode_values_tile(to, out_ld, weights, v, ld, keys, d, dim, fetch, lines, 1, 1);
      } else if (heads - h < 4) {
        decode_values_tile(to, out_ld, weights, v, ld, keys, d, dim, fetch, lines, 1, OUT_VECTORS);
      } else if (width == 1) {
        decode_values_tile(to, out_ld, weights, v, ld, keys, d, dim, fetch, lines, 4, 1);
      } else {
        decode_values_tile(to, out_ld, weights, v, ld, keys, d, dim, fetch, lines, 4, OUT_VECTORS);
      }
      h += heads - h < 4 ? 1 : 4;
    }
    d += width * VF;
  }
}

/* A piece of the keys of one sequence, for all heads. */
NN_INLINE void decode_piece(const decode *f, int64_t sequence, int64_t piece, int32_t worker, int32_t dtype) {
  const nn_attention_decode_args *a = f->a;
  const int64_t key = piece * f->piece_keys, keys = nn_min(f->piece_keys, a->lengths[sequence] - key);
  const int64_t heads = a->heads, kv_heads = a->kv_heads, group = heads / kv_heads, dim = a->head_dim;
  const int64_t q_ld = nn_round_up(dim, VF), ld = kv_heads * dim, bytes = nn_dtype_bytes(dtype), row_bytes = ld * bytes;
  if (keys <= 0) {
    return;
  }
  float *q = f->workspace + worker * f->workspace_size, *scores = q + heads * q_ld;
  float *wide = scores + heads * PIECE_KEYS;
  float *partial = f->partial + (sequence * heads * f->pieces + piece) * f->partial_size;
  const int64_t partial_ld = f->pieces * f->partial_size; /* from head to head */
  const int64_t at = (sequence * a->capacity + key) * row_bytes;
  const char *k = (const char *)a->k_cache + at, *v = (const char *)a->v_cache + at;

  const split_factor factor = split_double(a->scale * LOG2E);
  for (int64_t h = 0; h < heads; h++) {
    for (int64_t d = 0; d < dim; d += VF) {
      const vf x = load_columns(a->q, sequence * a->ld_q + h * dim, d, dim, dtype);
      vf_store(q + h * q_ld + d, vf_fma(x, vf_set1(factor.high), vf_mul(x, vf_set1(factor.low))));
      vf_store(partial + h * partial_ld + d, vf_set1(0.0f));
    }
  }
  for (int64_t r = 0; r < VF; r++) { /* rows that the last block does not have are multiplied, too */
    memset(wide + r * WIDE_LD, 0, (size_t)q_ld * sizeof(float));
  }
  for (int64_t j = 0; j < keys; j += VF) {
    const int64_t rows = nn_min(VF, keys - j), next = j + VF < keys ? nn_min(VF, keys - j - VF) : nn_min(VF, keys);
    const char *fetch = j + VF < keys ? k + (j + VF) * row_bytes : v;
    for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++) {
      widen_rows(wide, k + j * row_bytes + kv_head * dim * bytes, ld, rows, dim, dtype);
      for (int64_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
        fetch_part(fetch, next * row_bytes, h, heads);
        vf_store(scores + h * PIECE_KEYS + j, dot_each(q + h * q_ld, wide, dim));
      }
    }
  }
  for (int64_t h = 0; h < heads; h++) {
    float *result = partial + h * partial_ld + q_ld;
    decode_soften(scores + h * PIECE_KEYS, keys, result, result + 1);
  }
  for (int64_t j = 0; j < keys; j += VALUE_KEYS) {
    const int64_t rows = nn_min(VALUE_KEYS, keys - j), next = nn_min(VALUE_KEYS, keys - j - rows) * dim * bytes;
    for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++) {
      const char *values = v + j * row_bytes + kv_head * dim * bytes;
      const char *fetch = v + (j + VALUE_KEYS) * row_bytes + kv_head * next;
      float *out = partial + kv_head * group * partial_ld, *p = scores + kv_head * group * PIECE_KEYS + j;
      if (dtype == NNCUDA_F32) {
        decode_values(out, partial_ld, p, (const float *)values, ld, group, rows, dim, fetch, next);
      } else {
        widen_rows(wide, values, ld, rows, dim, dtype);
        decode_values(out, partial_ld, p, wide, WIDE_LD, group, rows, dim, fetch, next);
      }
    }
  }
}

NN_TASK(decode_task, decode,
        NN_SWITCH_DTYPE(job->a->dtype, decode_piece(job, task / job->pieces, task % job->pieces, worker, DT)))

/* Pieces are shorter when several key heads make the rows longer. A worker keeps queries, scores, widened rows. */
NN_PLAIN static decode lay_out(const nn_attention_decode_args *a, nn_workspace *w) {
  return decode_lay_out(a, w, a->kv_heads > 2 ? PIECE_KEYS_LEAST : PIECE_KEYS / a->kv_heads,
                        a->heads * (nn_round_up(a->head_dim, VF) + PIECE_KEYS) + VALUE_KEYS * WIDE_LD);
}

static int32_t run(nncuda_ctx *ctx, const nn_attention_decode_args *a) {
  decode f = lay_out(a, nn_workspace_of(ctx));
  return decode_run(ctx, &f, decode_task);
}

NN_KERNEL_BY(attention_decode, run, lay_out)
