/*
 * Gradients of attention in blocks (Dao 2023, algorithm 2). With P = softmax(S), dP = dO V^T and D = rowsum(dO * O):
 *   dV = P^T dO,  dS = P * (dP - D),  dQ = scale * dS K,  dK = scale * dS^T Q.
 *
 * attention_gradients.h says which task computes what.
 *
 * With AVX512_BF16 S and dP, products of bf16, are multiplied as they are by dot products of vectors (ATTN_PAIRS), at
 * half the instructions. P and dS stay f32. Rounded to bf16 they would save three times as much, and cost too much: a
 * term changes by 2^-8 of it at most, and as the dS of a row add up to zero, two terms often make most of an element of
 * dQ. In 250 draws of 512 to 700 keys the three gradients came to 1.5, 1.1 and 1.2 times what the golden fixtures
 * allow. Two parts of bf16 each, as tile registers take them, need as many instructions as f32.
 */
#include "attention_gradients.h"

NN_UNIT_TILE(score_tile, ATTN_UNIT, ATTN_NR, 1, ATTN_BLOCK_LD)
NN_TILE(value_tile, ATTN_BLOCK_LD, 1, ATTN_NR)
NN_TILE(column_tile, 1, ATTN_BLOCK_LD, ATTN_NR)

/* Rows of a worker's row panels: its queries, and what a tile may reach beyond. */
NN_PLAIN NN_INLINE int64_t task_panel_rows(const gradients *f) {
  return nn_min(f->piece_rows, f->a->shape.q_len) + ATTN_TILE_ROWS;
}

/* What a worker needs. */
typedef struct backward_block {
  const int32_t *starts;        /* the first key that each of the task's queries sees, or null */
  float *q, *dout;              /* row panels of the task's queries, the left operands of S and dP */
  float *q_rows, *dout_rows;    /* the right operands of dK and dV: the same, but with ATTN_PAIRS those of f32 */
  float *dq;                    /* row panels */
  float *lse, *lse_low, *delta; /* [panel_rows]; lse is kept in two parts: rounding it costs P more than all else */
  float *keys, *values, *key_rows, *dk, *dv; /* of a block of keys: two in key panels, three in row panels */
  float *p, *ds;                             /* [ATTN_BLOCK_ROWS][ATTN_BLOCK_LD]; first the scores and dP */
} backward_block;

NN_PLAIN static int64_t backward_layout(backward_block *b, float *workspace, int64_t panel_rows, int64_t dim) {
  const int64_t rows = row_panels_size(panel_rows, dim), left = row_panels_size(panel_rows, dim / ATTN_UNIT);
  const int64_t right = ATTN_UNIT > 1 ? rows : 0, keys = key_panels_size(ATTN_BLOCK_KEYS, dim / ATTN_UNIT);
  const int64_t key_rows = row_panels_size(ATTN_BLOCK_KEYS, dim), scores = ATTN_BLOCK_ROWS * ATTN_BLOCK_LD;
  const int64_t sizes[] = {left, left, right,    right,    rows,     panel_rows, panel_rows, panel_rows,
                           keys, keys, key_rows, key_rows, key_rows, scores,     scores};
  float **const parts[] = {&b->q,    &b->dout,   &b->q_rows,   &b->dout_rows, &b->dq, &b->lse, &b->lse_low, &b->delta,
                           &b->keys, &b->values, &b->key_rows, &b->dk,        &b->dv, &b->p,   &b->ds};
  int64_t at = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    *parts[i] = workspace ? workspace + at : NULL;
    at += nn_round_up(sizes[i], 16);
  }
  if (ATTN_UNIT == 1) {
    b->q_rows = b->q;
    b->dout_rows = b->dout;
  }
  return at;
}

/* delta = rowsum(dout * out) and the log-sum-exp in units of ln 2, for rows 0 .. rows-1 of one head. */
NN_INLINE void pack_rowsums(const backward_block *b, const void *dout, const void *out, int64_t ld, const float *lse,
                            int64_t rows, int64_t dim, int32_t dtype) {
  const split_factor log2e = split_double(LOG2E);
  for (int64_t first = 0; first < rows; first += VF) {
    const vf x = vf_load_part(lse + first, nn_min(VF, rows - first));
    vf_store(b->delta + first, row_products(dout, out, ld, first, rows, dim, dtype));
    const vf high = vf_mul(x, vf_set1(log2e.high));
    vf_store(b->lse + first, high);
    vf_store(b->lse_low + first,
             vf_add(vf_fma(x, vf_set1(log2e.high), vf_sub(vf_set1(0.0f), high)), vf_mul(x, vf_set1(log2e.low))));
  }
}

/* Row r of a block sees `seen` + r keys with the causal mask, and in any case at most `keys`. */
NN_INLINE int64_t keys_seen(int64_t r, int64_t keys, int64_t seen, int32_t causal) {
  return causal ? nn_max(0, nn_min(keys, seen + r)) : keys;
}

/* Scores to probabilities and dP to dS, and zeros as far as the tiles that hold the last key seen may read. */
static void backward_soften(const backward_block *b, int64_t row, int64_t rows, int64_t key, int64_t keys, int64_t seen,
                            int32_t causal) {
  for (int64_t r = 0; r < padded_rows(rows); r++) {
    const int64_t count = r < rows ? keys_seen(r, keys, seen, causal) : 0;
    float *p = b->p + r * ATTN_BLOCK_LD, *ds = b->ds + r * ATTN_BLOCK_LD;
    const vf lse = vf_set1(b->lse[row + r]), lse_low = vf_set1(b->lse_low[row + r]);
    const vf delta = vf_set1(b->delta[row + r]), zero = vf_set1(0.0f);
    const int64_t before = r < rows && b->starts ? keys_before(b->starts, row + r, key, keys) : 0;
    int64_t j = 0;
    for (; j + VF <= before; j += VF) {
      vf_store(p + j, zero);
      vf_store(ds + j, zero);
    }
    for (; j + VF <= count; j += VF) {
      const vf x = vf_exp2(vf_sub(vf_sub(vf_load(p + j), lse), lse_low));
      vf_store(p + j, x);
      vf_store(ds + j, vf_mul(x, vf_sub(vf_load(ds + j), delta)));
    }
    if (j < count) {
      const vf x = vf_exp2(vf_sub(vf_sub(vf_load(p + j), lse), lse_low));
      vf_store(p + j, vf_keep_part(x, count - j, 0.0f));
      vf_store(ds + j, vf_keep_part(vf_mul(x, vf_sub(vf_load(ds + j), delta)), count - j, 0.0f));
      j += VF;
    }
    for (; j < count + ATTN_TILE_ROWS; j += VF) {
      vf_store(p + j, zero);
      vf_store(ds + j, zero);
    }
    for (j = before - before % VF; j < before; j++) {
      p[j] = ds[j] = 0.0f;
    }
  }
}

/* One block of queries (from row `row` of the task's) against one block of keys, from `first_key` on. `factor` is that
 * of the scores, or null. */
static void backward_step(const backward_block *b, int64_t panel_rows, int64_t row, int64_t rows, int64_t first_key,
                          int64_t keys, int64_t seen, int32_t causal, int64_t dim, const float *factor) {
  const int64_t units = dim / ATTN_UNIT;
  int64_t height;
  for (int32_t side = 0; side < 2; side++) {
    const float *left = side == 0 ? b->q : b->dout, *right = side == 0 ? b->keys : b->values;
    float *to = side == 0 ? b->p : b->ds;
    for (int64_t key = 0; key < keys; key += ATTN_NR) {
      for (int64_t r = 0; r < rows; r += height) {
        height = tile_rows(rows - r);
        if (keys_seen(r + height - 1, keys, seen, causal) > key &&
            keys_before(b->starts, row + r, first_key + key, ATTN_NR) < ATTN_NR) {
          const tile_args t = {.a = left + (row + r) * ATTN_NR,
                               .b = right + key * units,
                               .c = to + r * ATTN_BLOCK_LD + key,
                               .a_chunk = panel_rows * ATTN_NR,
                               .depth = units,
                               .chunk = ATTN_NR,
                               .fresh = 1,
                               .factor = side == 0 ? factor : NULL};
          score_tile(&t, height, 2);
        }
      }
    }
  }
  backward_soften(b, row, rows, first_key, keys, seen, causal);
  for (int64_t panel = 0; panel * ATTN_NR < dim; panel++) {
    const int vectors = panel_vectors(dim, panel);
    for (int32_t side = 0; side < 2; side++) {
      const float *left = side == 0 ? b->p : b->ds, *right = side == 0 ? b->dout_rows : b->q_rows;
      float *to = side == 0 ? b->dv : b->dk;
      for (int64_t key = 0; key < keys; key += height) {
        height = tile_rows(keys - key);
        const int64_t first = causal ? nn_max(0, key + 1 - seen) : 0; /* the first row that sees `key` */
        /* behind the last that sees any of these keys */
        const int64_t end = b->starts ? rows_before(b->starts + row, rows, first_key + key + height) : rows;
        if (first < end) {
          const tile_args t = {.a = left + first * ATTN_BLOCK_LD + key,
                               .b = right + (panel * panel_rows + row + first) * ATTN_NR,
                               .c = to + (panel * ATTN_BLOCK_KEYS + key) * ATTN_NR,
                               .depth = end - first,
                               .chunk = end - first};
          column_tile(&t, height, vectors);
        }
      }
    }
    for (int64_t r = 0; r < rows; r += height) {
      height = tile_rows(rows - r);
      const int64_t before = keys_before(b->starts, row + r, first_key, keys);
      const int64_t depth = keys_seen(nn_min(rows, r + height) - 1, keys, seen, causal) - before;
      if (depth > 0) {
        const tile_args t = {.a = b->ds + r * ATTN_BLOCK_LD + before,
                             .b = b->key_rows + (panel * ATTN_BLOCK_KEYS + before) * ATTN_NR,
                             .c = b->dq + (panel * panel_rows + row + r) * ATTN_NR,
                             .depth = depth,
                             .chunk = depth};
        value_tile(&t, height, vectors);
      }
    }
  }
}

static void clear(float *x, int64_t n) { memset(x, 0, (size_t)n * sizeof *x); }

/* Packs a task's queries: pointers are those of its first. */
NN_INLINE void pack_queries(const backward_block *b, int64_t panel_rows, const void *q, int64_t ld_q, const void *dout,
                            int64_t out_ld, int64_t rows, int64_t dim, split_factor factor, int32_t dtype) {
  const split_factor one = {1.0f, 0.0f};
#if ATTN_PAIRS
  pack_unit_rows(b->q, panel_rows, q, ld_q, rows, panel_rows, dim);
  pack_unit_rows(b->dout, panel_rows, dout, out_ld, rows, panel_rows, dim);
  factor = one; /* the scores get it */
#endif
  pack_rows(b->q_rows, panel_rows, q, ld_q, 0, rows, panel_rows, dim, factor, dtype);
  pack_rows(b->dout_rows, panel_rows, dout, out_ld, 0, rows, panel_rows, dim, one, dtype);
}

/* Packs a block of keys. */
NN_INLINE void pack_block(const backward_block *b, const void *k, const void *v, int64_t ld, int64_t keys, int64_t dim,
                          int32_t dtype) {
#if ATTN_PAIRS
  pack_unit_keys(b->keys, k, ld, 0, keys, dim);
  pack_unit_keys(b->values, v, ld, 0, keys, dim);
#else
  pack_keys(b->keys, k, ld, 0, keys, dim, dtype);
  pack_keys(b->values, v, ld, 0, keys, dim, dtype);
#endif
  pack_rows(b->key_rows, ATTN_BLOCK_KEYS, k, ld, 0, keys, keys, dim, (split_factor){1.0f, 0.0f}, dtype);
}

static void backward_task(void *arg, int64_t i, int32_t worker) {
  const gradients *f = arg;
  const nn_flash_attention_backward_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const gradient_task t = gradient_task_at(f, i);
  const int64_t dim = s->head_dim, bytes = nn_dtype_bytes(a->dtype), panel_rows = task_panel_rows(f);
  const int64_t rows = t.rows, seen = t.seen, out_ld = s->heads * dim;
  backward_block b;
  backward_layout(&b, (float *)(void *)(f->workspace + worker * f->workspace_size), panel_rows, dim);
  b.starts = t.starts;

  const char *dout = (const char *)a->dout + t.out * bytes, *out = (const char *)a->out + t.out * bytes;
  const float *lse = a->lse + t.lse;
  const split_factor factor = split_double(a->scale * LOG2E);
  const float *score_factor = ATTN_UNIT > 1 ? &factor.high : NULL; /* else the queries have it */
  ATTN_SWITCH_DTYPE(a->dtype, {
    pack_queries(&b, panel_rows, (const char *)a->q + t.q * bytes, a->ld_q, dout, out_ld, rows, dim, factor, DT);
    pack_rowsums(&b, dout, out, out_ld, lse, rows, dim, DT);
  });
  clear(b.dq, row_panels_size(panel_rows, dim));

  /* The partial results of keys that none of these queries sees must be zeros too. */
  for (int64_t key = 0; key < s->kv_len; key += ATTN_BLOCK_KEYS) {
    const int64_t keys = nn_min(ATTN_BLOCK_KEYS, s->kv_len - key), at = (t.kv + key * a->ld_kv) * bytes;
    const int64_t first = a->causal ? nn_max(0, key + 1 - seen) : 0; /* the first query that sees the block */
    const int64_t end = rows_before(t.starts, rows, key + keys);     /* behind the last that does */
    clear(b.dk, row_panels_size(ATTN_BLOCK_KEYS, dim));
    clear(b.dv, row_panels_size(ATTN_BLOCK_KEYS, dim));
    if (first < end) {
      const char *k = (const char *)a->k + at, *v = (const char *)a->v + at;
      ATTN_SWITCH_DTYPE(a->dtype, pack_block(&b, k, v, a->ld_kv, keys, dim, DT));
    }
    for (int64_t row = first; row < end; row += ATTN_BLOCK_ROWS) {
      backward_step(&b, panel_rows, row, nn_min(ATTN_BLOCK_ROWS, rows - row), key, keys, seen + row - key, a->causal,
                    dim, score_factor);
    }
    if (f->partial) {
      float *dk = f->partial + (2 * i * s->kv_len + key) * dim, *dv = dk + s->kv_len * dim;
      store_rows(dk, dim, b.dk, ATTN_BLOCK_KEYS, keys, dim, 1.0f, NNCUDA_F32);
      store_rows(dv, dim, b.dv, ATTN_BLOCK_KEYS, keys, dim, 1.0f, NNCUDA_F32);
    } else {
      ATTN_SWITCH_DTYPE(a->dtype, {
        store_rows((char *)a->dk + at, a->ld_kv, b.dk, ATTN_BLOCK_KEYS, keys, dim, f->dk_factor, DT);
        store_rows((char *)a->dv + at, a->ld_kv, b.dv, ATTN_BLOCK_KEYS, keys, dim, 1.0f, DT);
      });
    }
  }
  ATTN_SWITCH_DTYPE(a->dtype,
                    store_rows((char *)a->dq + t.q * bytes, a->ld_q, b.dq, panel_rows, rows, dim, a->scale, DT));
}

NN_PLAIN static gradients lay_out(const nn_flash_attention_backward_args *a, nn_workspace *w) {
  /* Packed queries that hold scale * log2(e) give a dK that wants ln 2. */
  gradients f = {.a = a, .dk_factor = ATTN_UNIT > 1 ? a->scale : (float)LN2};
  gradients_cut(&f, 1, ATTN_BLOCK_ROWS);
  backward_block unused;
  f.workspace_size = backward_layout(&unused, NULL, task_panel_rows(&f), a->shape.head_dim) * (int64_t)sizeof(float);
  gradients_lay_out(&f, w);
  return f;
}

static int32_t run(nncuda_ctx *ctx, const nn_flash_attention_backward_args *a) {
  NN_TRY(check_starts(ctx, a->starts, a->shape.batch, a->shape.q_len));
  gradients f = lay_out(a, nn_workspace_of(ctx));
  return gradients_run(ctx, &f, backward_task);
}

#if ATTN_PAIRS
NN_BF16_KERNEL_BY(flash_attention_backward, nn_flash_attention_backward_args, run, lay_out)
#else
NN_KERNEL_BY(flash_attention_backward, run, lay_out)
#endif
