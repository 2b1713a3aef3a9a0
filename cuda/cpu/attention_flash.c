/*
 * Attention in blocks, with a running maximum and sum for each query (Dao 2023, algorithm 1).
 *
 * Keys are packed transposed and values in row panels, once for all query heads and query blocks that read them; a task
 * is one block of queries of one head. Scores are kept in units of ln 2 (the factor is folded into the packed
 * queries), so that a power of two replaces the exponential. Blocks of keys that the causal mask hides are skipped, and
 * on its diagonal a tile of rows stops at the last key that any of them sees. Blocks before the documents of all
 * queries are skipped, too, and a tile of rows begins at the first key that any of them sees. What is left out is what
 * would add zeros: a row's sums depend on its keys' places in the blocks alone.
 *
 * With AVX512_BF16 bf16 is multiplied as it is, by dot products of vectors (ATTN_PAIRS): the factor then goes to the
 * scores, and probabilities are rounded to bf16 for the product with the values, as the tensor cores of a GPU take
 * them. Their sums, and so the log-sum-exp, are those of the numbers before. None is negative and their sum is that of
 * the weights, so what rounding changes is at most 2^-8 of the mean of |v| with these weights, and less the more keys
 * count: a single one has the probability 1, which is not rounded.
 */
#include "attention_pack.h"
#include "attention_starts.h"

#include <float.h>

#include "abi/generated/attention.h"

typedef struct flash {
  const nn_flash_attention_args *a;
  float *keys, *values;      /* packed, of each (sequence, key head) in this round */
  float *workspace;          /* of each worker */
  int64_t round;             /* (sequence, key head) pairs that are packed at a time */
  int64_t first_pair, pairs; /* those in this round */
  int64_t query_blocks, key_blocks;
  int64_t keys_size, values_size, workspace_size;
  int64_t value_units; /* rows of a panel of values */
} flash;

NN_UNIT_TILE(score_tile, ATTN_UNIT, ATTN_NR, 1, ATTN_BLOCK_LD)
NN_UNIT_TILE(value_tile, ATTN_UNIT, ATTN_BLOCK_LD, 1, ATTN_NR)

/* What a worker needs for a block of queries. */
typedef struct flash_block {
  const int32_t *starts;       /* the first key that each sees, or null */
  float *q, *out, *scores;     /* row panels, row panels, [ATTN_BLOCK_ROWS][ATTN_BLOCK_LD]: then probabilities, of
                                  which ATTN_UNIT share a float */
  float *peak, *rescale, *sum; /* [ATTN_BLOCK_ROWS], [ATTN_BLOCK_ROWS], [ATTN_BLOCK_ROWS][VF]: lanes are
                                  added up at the end */
} flash_block;

NN_PLAIN NN_INLINE int64_t flash_block_size(int64_t head_dim) {
  return row_panels_size(ATTN_BLOCK_ROWS, head_dim / ATTN_UNIT) + row_panels_size(ATTN_BLOCK_ROWS, head_dim) +
         ATTN_BLOCK_ROWS * (ATTN_BLOCK_LD + 2 + VF);
}

NN_INLINE flash_block flash_block_at(float *workspace, int64_t head_dim) {
  flash_block b;
  b.starts = NULL;
  b.q = workspace;
  b.out = b.q + row_panels_size(ATTN_BLOCK_ROWS, head_dim / ATTN_UNIT);
  b.scores = b.out + row_panels_size(ATTN_BLOCK_ROWS, head_dim);
  b.sum = b.scores + ATTN_BLOCK_ROWS * ATTN_BLOCK_LD;
  b.peak = b.sum + ATTN_BLOCK_ROWS * VF;
  b.rescale = b.peak + ATTN_BLOCK_ROWS;
  return b;
}

static void flash_pack_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const flash *f = arg;
  const nn_flash_attention_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t local = i / f->key_blocks, pair = f->first_pair + local, begin = i % f->key_blocks * ATTN_BLOCK_KEYS;
  const int64_t end = nn_min(begin + ATTN_BLOCK_KEYS, s->kv_len);
  const int64_t offset = pair / s->kv_heads * s->kv_len * a->ld_kv + pair % s->kv_heads * s->head_dim;
  const int64_t bytes = nn_dtype_bytes(a->dtype);
  const char *k = (const char *)a->k + offset * bytes, *v = (const char *)a->v + offset * bytes;
  float *keys = f->keys + local * f->keys_size, *values = f->values + local * f->values_size;
#if ATTN_PAIRS
  pack_unit_keys(keys, (const uint16_t *)(const void *)k, a->ld_kv, begin, end, s->head_dim);
  pack_row_pairs(values, f->value_units, (const uint16_t *)(const void *)v, a->ld_kv, begin, end,
                 nn_ceil_div(end, ATTN_UNIT), s->head_dim);
#else
  NN_SWITCH_DTYPE(a->dtype, {
    pack_keys(keys, k, a->ld_kv, begin, end, s->head_dim, DT);
    pack_rows(values, s->kv_len, v, a->ld_kv, begin, end, end, s->head_dim, (split_factor){1.0f, 0.0f}, DT);
  });
#endif
}

/* Keys of a step that row r sees: `seen` + r with the causal mask, and in any case at most `keys`. */
NN_INLINE int64_t keys_seen(int64_t r, int64_t rows, int64_t keys, int64_t seen, int32_t causal) {
  return r >= rows ? 0 : causal ? nn_max(0, nn_min(keys, seen + r)) : keys;
}

/* The largest of `count` scores, lane by lane. */
NN_INLINE vf row_peaks(const float *scores, int64_t count) {
  const vf lowest = vf_set1(-INFINITY);
  vf a = lowest, b = lowest;
  int64_t j = 0;
  for (; j + 2 * VF <= count; j += 2 * VF) {
    a = vf_max(vf_load(scores + j), a);
    b = vf_max(vf_load(scores + j + VF), b);
  }
  for (; j < count; j += VF) {
    a = vf_max(vf_keep_part(vf_load(scores + j), nn_min(VF, count - j), -INFINITY), a);
  }
  return vf_max(a, b);
}

/* Replaces `count` scores by 2^(score - peak), what follows up to `end` by zero; returns the sum lane by lane. */
#if ATTN_PAIRS
NN_INLINE vf row_powers(float *scores, int64_t count, int64_t end, float peak) {
  const vf shift = vf_set1(peak);
  vf total[BF16_PAIR] = {vf_set1(0.0f), vf_set1(0.0f)};
  int64_t j = 0;
  for (; j < count; j += BF16_VECTOR) {
    vf p[BF16_PAIR];
    NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) {
      p[i] = vf_exp2(vf_sub(vf_load(scores + j + i * VF), shift));
      if (j + BF16_VECTOR > count) {
        p[i] = vf_keep_part(p[i], nn_max(0, nn_min(VF, count - j - i * VF)), 0.0f);
      }
      total[i] = vf_add(total[i], p[i]);
    }
    vf_store(scores + j / BF16_PAIR, units_of_row(p));
  }
  for (; j < end; j += BF16_VECTOR) {
    vf_store(scores + j / BF16_PAIR, vf_set1(0.0f));
  }
  return vf_add(total[0], total[1]);
}
#else
NN_INLINE vf row_powers(float *scores, int64_t count, int64_t end, float peak) {
  const vf shift = vf_set1(peak);
  vf total = vf_set1(0.0f);
  int64_t j = 0;
  for (; j + VF <= count; j += VF) {
    const vf p = vf_exp2(vf_sub(vf_load(scores + j), shift));
    total = vf_add(total, p);
    vf_store(scores + j, p);
  }
  if (j < count) {
    const vf p = vf_keep_part(vf_exp2(vf_sub(vf_load(scores + j), shift)), count - j, 0.0f);
    total = vf_add(total, p);
    vf_store(scores + j, p);
    j += VF;
  }
  for (; j < end; j += VF) {
    vf_store(scores + j, vf_set1(0.0f));
  }
  return total;
}
#endif

/* Hides the keys of a step that lie before a row's document. */
static void hide_before(const flash_block *b, int64_t rows, int64_t key, int64_t keys) {
  const vf lowest = vf_set1(-INFINITY);
  for (int64_t r = 0; r < rows; r++) {
    const int64_t before = keys_before(b->starts, r, key, keys);
    float *scores = b->scores + r * ATTN_BLOCK_LD;
    int64_t j = 0;
    for (; j + VF <= before; j += VF) {
      vf_store(scores + j, lowest);
    }
    for (; j < before; j++) {
      scores[j] = -INFINITY;
    }
  }
}

/*
 * The softmax of the scores of a step against the running maxima, VF rows at a time so that the reductions over lanes
 * and what depends on them are done for all of them at once. Rows without a key get NaN, which flash_task replaces.
 */
static void flash_soften(const flash_block *b, int64_t rows, int64_t keys, int64_t seen, int32_t causal) {
  for (int64_t r = 0; r < rows; r += VF) {
    vf tops[VF];
    for (int i = 0; i < VF; i++) {
      tops[i] = row_peaks(b->scores + (r + i) * ATTN_BLOCK_LD, keys_seen(r + i, rows, keys, seen, causal));
    }
    const vf old_peak = vf_load(b->peak + r), peak = vf_max(largest_each(tops), old_peak);
    vf_store(b->peak + r, peak);
    vf_store(b->rescale + r, vf_exp2(vf_sub(old_peak, peak)));
    for (int64_t i = r; i < r + VF; i++) {
      /* Zero as far as the tile of rows that this one belongs to reads, which is less than ATTN_TILE_ROWS further.
       */
      const int64_t count = keys_seen(i, rows, keys, seen, causal), end = nn_min(keys, count + ATTN_TILE_ROWS);
      const vf total = row_powers(b->scores + i * ATTN_BLOCK_LD, count, end, b->peak[i]);
      float *sum = b->sum + i * VF;
      vf_store(sum, vf_fma(vf_load(sum), vf_set1(b->rescale[i]), total));
    }
  }
}

/* Scores, softmax and output of the block's rows against keys first_key .. first_key+keys-1; row r sees `seen` + r of
 * them (at most `keys`), or all of them without the causal mask, but none before its document. */
static void flash_step(const flash_block *b, const float *key_panels, const float *values, int64_t value_units,
                       int64_t rows, int64_t first_key, int64_t keys, int64_t seen, int32_t causal, int32_t first,
                       int64_t dim, const float *factor) {
  const int64_t units = dim / ATTN_UNIT;
  for (int64_t key = 0; key < keys; key += ATTN_NR) {
    int64_t height;
    for (int64_t r = 0; r < rows; r += height) {
      height = tile_rows(rows - r);
      if ((causal && seen + r + height - 1 <= key) || keys_before(b->starts, r, first_key + key, ATTN_NR) == ATTN_NR) {
        continue;
      }
      const tile_args t = {.a = b->q + r * ATTN_NR,
                           .b = key_panels + key * units,
                           .c = b->scores + r * ATTN_BLOCK_LD + key,
                           .a_chunk = ATTN_BLOCK_ROWS * ATTN_NR,
                           .depth = units,
                           .chunk = ATTN_NR,
                           .fresh = 1,
                           .factor = factor};
      score_tile(&t, height, 2);
    }
  }
  if (b->starts) {
    hide_before(b, rows, first_key, keys);
  }
  flash_soften(b, rows, keys, seen, causal);
  for (int64_t panel = 0; panel * ATTN_NR < dim; panel++) {
    int64_t height;
    for (int64_t r = 0; r < rows; r += height) {
      height = tile_rows(rows - r);
      const int64_t depth = causal ? nn_min(keys, seen + r + height - 1) : keys;
      if (depth <= 0) {
        continue;
      }
      /* One is left, so that the tile is written. */
      const int64_t before = nn_min(keys_before(b->starts, r, first_key, keys), depth - 1) / ATTN_UNIT;
      const int64_t left = nn_ceil_div(depth, ATTN_UNIT) - before;
      const tile_args t = {.a = b->scores + r * ATTN_BLOCK_LD + before,
                           .b = values + (panel * value_units + before) * ATTN_NR,
                           .c = b->out + (panel * ATTN_BLOCK_ROWS + r) * ATTN_NR,
                           .rescale = b->rescale + r,
                           .depth = left,
                           .chunk = left,
                           .fresh = first};
      value_tile(&t, height, panel_vectors(dim, panel));
    }
  }
}

/* Divides by the sums and rounds; the log-sum-exp of each row goes to lse, if given. The first `blind` rows see no key.
 */
NN_INLINE void flash_finish(const flash_block *b, void *out, float *lse, int64_t ld, int64_t rows, int64_t blind,
                            int64_t dim, int32_t dtype) {
  for (int64_t first = 0; first < rows; first += VF) {
    vf sums[VF];
    for (int i = 0; i < VF; i++) {
      sums[i] = vf_load(b->sum + (first + i) * VF);
    }
    const vf sum = sum_each(sums);
    float factor[VF], logs[VF];
    vf_store(factor, vf_div(vf_set1(1.0f), sum));
    if (lse) {
      const split_factor ln2 = split_double(LN2);
      const vf peak = vf_load(b->peak + first);
      vf_store(logs, vf_fma(peak, vf_set1(ln2.high), vf_fma(peak, vf_set1(ln2.low), vf_log(sum))));
    }
    for (int64_t r = first; r < nn_min(rows, first + VF); r++) {
      if (lse) {
        lse[r] = r < blind ? -INFINITY : logs[r - first];
      }
      for (int64_t d = 0; d < dim; d += VF) {
        vf x = vf_mul(vf_load(b->out + (d / ATTN_NR * ATTN_BLOCK_ROWS + r) * ATTN_NR + d % ATTN_NR),
                      vf_set1(factor[r - first]));
        if (r < blind) {
          x = vf_set1(0.0f);
        }
        store_columns(out, r * ld, d, dim, x, dtype);
      }
    }
  }
}

/* A block of queries of one head; tasks count down from the last block, which sees the most keys. */
static void flash_task(void *arg, int64_t i, int32_t worker) {
  const flash *f = arg;
  const nn_flash_attention_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t group = s->heads / s->kv_heads, dim = s->head_dim, bytes = nn_dtype_bytes(a->dtype);
  const int64_t q_block = f->query_blocks - 1 - i % f->query_blocks, local = i / f->query_blocks / group;
  const int64_t pair = f->first_pair + local, sequence = pair / s->kv_heads;
  const int64_t head = pair % s->kv_heads * group + i / f->query_blocks % group;
  const int64_t row = q_block * ATTN_BLOCK_ROWS, rows = nn_min(ATTN_BLOCK_ROWS, s->q_len - row);
  flash_block b = flash_block_at(f->workspace + worker * f->workspace_size, dim);
  const int64_t out_ld = s->heads * dim;
  char *out = (char *)a->out + ((sequence * s->q_len + row) * out_ld + head * dim) * bytes;

  /* Query r of the block sees seen + r keys, of which there are kv_len. */
  const int64_t seen = row + s->kv_len - s->q_len + 1;
  const int64_t limit = a->causal ? nn_min(s->kv_len, seen + rows - 1) : s->kv_len;
  const split_factor factor = split_double(a->scale * LOG2E);
  const char *q = (const char *)a->q + ((sequence * s->q_len + row) * a->ld_q + head * dim) * bytes;
#if ATTN_PAIRS
  const float *score_factor = &factor.high;
  pack_unit_rows(b.q, ATTN_BLOCK_ROWS, (const uint16_t *)(const void *)q, a->ld_q, rows, padded_rows(rows), dim);
#else
  const float *score_factor = NULL; /* the queries have it */
  NN_SWITCH_DTYPE(a->dtype, pack_rows(b.q, ATTN_BLOCK_ROWS, q, a->ld_q, 0, rows, padded_rows(rows), dim, factor, DT));
#endif
  b.starts = a->starts ? a->starts + sequence * s->q_len + row : NULL;
  for (int64_t r = 0; r < ATTN_BLOCK_ROWS; r++) {
    b.peak[r] = b.starts ? -FLT_MAX : -INFINITY; /* finite where a row may see none of the first keys */
    vf_store(b.sum + r * VF, vf_set1(0.0f));
  }
  const int64_t begin = b.starts ? b.starts[0] / ATTN_BLOCK_KEYS * ATTN_BLOCK_KEYS : 0;
  for (int64_t key = begin; key < limit; key += ATTN_BLOCK_KEYS) {
    flash_step(&b, f->keys + local * f->keys_size + key * dim / ATTN_UNIT,
               f->values + local * f->values_size + key / ATTN_UNIT * ATTN_NR, f->value_units, rows, key,
               nn_min(ATTN_BLOCK_KEYS, limit - key), seen - key, a->causal, key == begin, dim, score_factor);
  }
  const int64_t blind =
      a->causal ? nn_max(0, nn_min(rows, 1 - seen)) : 0; /* the first rows of the block, without keys */
  float *lse = a->lse ? a->lse + (sequence * s->heads + head) * s->q_len + row : NULL;
  ATTN_SWITCH_DTYPE(a->dtype, flash_finish(&b, out, lse, out_ld, rows, blind, dim, DT));
}

NN_PLAIN static flash lay_out(const nn_flash_attention_args *a, nn_workspace *w) {
  const nn_attention_shape *s = &a->shape;
  flash f = {.a = a,
             .query_blocks = nn_ceil_div(s->q_len, ATTN_BLOCK_ROWS),
             .key_blocks = nn_ceil_div(s->kv_len, ATTN_BLOCK_KEYS),
             .value_units = nn_ceil_div(s->kv_len, ATTN_UNIT),
             .keys_size = key_panels_size(s->kv_len, s->head_dim / ATTN_UNIT),
             .values_size = row_panels_size(nn_ceil_div(s->kv_len, ATTN_UNIT), s->head_dim),
             .workspace_size = nn_round_up(flash_block_size(s->head_dim), 16)};
  const int64_t pairs = s->batch * s->kv_heads, pair_size = f.keys_size + f.values_size;
  f.round = nn_max(1, nn_min(pairs, ATTN_PACKED_ROUND / pair_size));
  f.workspace = nn_workspace_piece(w, (size_t)(f.workspace_size * w->machine->threads) * sizeof(float));
  f.keys = nn_workspace_piece(w, (size_t)(f.round * f.keys_size) * sizeof(float));
  f.values = nn_workspace_piece(w, (size_t)(f.round * f.values_size) * sizeof(float));
  return f;
}

static int32_t run(nncuda_ctx *ctx, const nn_flash_attention_args *a) {
  const nn_attention_shape *s = &a->shape;
  NN_TRY(check_starts(ctx, a->starts, s->batch, s->q_len));
  flash f = lay_out(a, nn_workspace_of(ctx));
  const int64_t pairs = s->batch * s->kv_heads;
  for (f.first_pair = 0; f.first_pair < pairs; f.first_pair += f.pairs) {
    f.pairs = nn_min(f.round, pairs - f.first_pair);
    nn_parallel(ctx, f.pairs * f.key_blocks, flash_pack_task, &f);
    nn_parallel(ctx, f.pairs * (s->heads / s->kv_heads) * f.query_blocks, flash_task, &f);
  }
  return NNCUDA_SUCCESS;
}

#if ATTN_PAIRS
NN_BF16_KERNEL_BY(flash_attention, nn_flash_attention_args, run, lay_out)
#else
NN_KERNEL_BY(flash_attention, run, lay_out)
#endif
