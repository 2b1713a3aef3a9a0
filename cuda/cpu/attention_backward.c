/*
 * Gradients of attention in blocks (Dao 2023, algorithm 2). With P = softmax(S), dP = dO V^T and D = rowsum(dO * O):
 *   dV = P^T dO,  dS = P * (dP - D),  dQ = scale * dS K,  dK = scale * dS^T Q.
 *
 * attention_gradients.h says which task computes what.
 *
 * With AVX512_BF16 bf16 is multiplied as it is, by dot products of vectors (ATTN_PAIRS). S and dP are sums of products
 * of the inputs, which are exact either way. P and dS would have to be rounded to bf16, a term by 2^-9 of it at most:
 * an element of dV by 2^-9 of sum |P dO|. That is as much as the rounding of the outputs where few terms make a sum;
 * where n terms of either sign do, these errors and the sum both grow as sqrt(n), but the outputs' rounding goes by the
 * largest element, some four times the usual one. So, as on Hopper, P and dS are rounded from ONE_PART_KEYS keys on.
 * With fewer, or with NNCUDA_CTX_TWO_PARTS, they are multiplied in f32: two parts of bf16 each, as tile registers take
 * them, would need as many instructions. In multiply-adds of f32 that is 4 products in place of 5, and 2.5 with
 * rounding.
 */
#include "attention_gradients.h"

enum { ONE_PART_KEYS = 512 };

NN_UNIT_TILE(score_tile, ATTN_UNIT, ATTN_NR, 1, ATTN_BLOCK_LD)
NN_TILE(value_tile, ATTN_BLOCK_LD, 1, ATTN_NR)
NN_TILE(column_tile, 1, ATTN_BLOCK_LD, ATTN_NR)

#if ATTN_PAIRS
/* dS of a row is ATTN_PAIR_LD units, and what runs down the rows takes every second row of a block. */
enum { ATTN_PAIR_LD = ATTN_BLOCK_KEYS / BF16_PAIR + 16 };
NN_UNIT_TILE(value_pair_tile, BF16_PAIR, ATTN_PAIR_LD, 1, ATTN_NR)
NN_UNIT_TILE(column_pair_tile, BF16_PAIR, 1, BF16_PAIR *ATTN_BLOCK_LD, ATTN_NR)
#else
enum { ATTN_PAIR_LD = 0 };
/* The packed queries hold scale * log2(e); dK wants scale. */
static const float DK_FACTOR = 0.6931471805599453f;
#endif

/* Rows of a worker's row panels: its queries, and what a tile may reach beyond. Even. */
NN_PLAIN NN_INLINE int64_t task_panel_rows(const gradients *f) {
  return nn_round_up(nn_min(f->piece_rows, f->a->shape.q_len) + ATTN_TILE_ROWS, 2);
}

/* What a worker needs. `width` is that of P and dS. */
typedef struct backward_block {
  const int32_t *starts;        /* the first key that each of the task's queries sees, or null */
  float *q, *dout;              /* row panels of the task's queries, the left operands of S and dP */
  float *q_rows, *dout_rows;    /* the right operands of dK and dV: the same, but with ATTN_PAIRS */
  float *dq;                    /* row panels */
  float *lse, *lse_low, *delta; /* [panel_rows]; lse is kept in two parts: rounding it costs P more than all else */
  float *keys, *values, *key_rows, *dk, *dv; /* of a block of keys: two in key panels, three in row panels */
  float *p, *ds;                             /* [ATTN_BLOCK_ROWS][ATTN_BLOCK_LD]; first the scores and dP */
  float *ds_rows;                            /* with a width of 2 [ATTN_BLOCK_ROWS][ATTN_PAIR_LD], of units of a row;
                                                ds are then units of two rows, and every second row is unused */
} backward_block;

NN_PLAIN static int64_t backward_layout(backward_block *b, float *workspace, int64_t panel_rows, int64_t dim,
                                        int32_t width) {
  const int64_t rows = row_panels_size(panel_rows, dim), row_units_size = row_panels_size(panel_rows, dim / ATTN_UNIT);
  const int64_t right = ATTN_UNIT > 1 ? rows / width : 0, scores = ATTN_BLOCK_ROWS * ATTN_BLOCK_LD;
  const int64_t key_rows = row_panels_size(ATTN_BLOCK_KEYS, dim),
                keys = key_panels_size(ATTN_BLOCK_KEYS, dim / ATTN_UNIT);
  const int64_t sizes[] = {row_units_size,
                           row_units_size,
                           right,
                           right,
                           rows,
                           panel_rows,
                           panel_rows,
                           panel_rows,
                           keys,
                           keys,
                           key_rows / width,
                           key_rows,
                           key_rows,
                           scores,
                           scores,
                           width > 1 ? ATTN_BLOCK_ROWS * ATTN_PAIR_LD : 0};
  float **const parts[] = {&b->q,       &b->dout,  &b->q_rows, &b->dout_rows, &b->dq,       &b->lse,
                           &b->lse_low, &b->delta, &b->keys,   &b->values,    &b->key_rows, &b->dk,
                           &b->dv,      &b->p,     &b->ds,     &b->ds_rows};
  int64_t at = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    *parts[i] = workspace ? workspace + at : NULL;
    at += nn_round_up(sizes[i], 16);
  }
  if (ATTN_UNIT == 1) {
    b->q_rows = b->q;
    b->dout_rows = b->dout;
  }
  if (width == 1) {
    b->ds_rows = b->ds;
  }
  return at;
}

/* delta = rowsum(dout * out) and the log-sum-exp in units of ln 2, for rows 0 .. rows-1 of one head. */
NN_INLINE void pack_rowsums(const backward_block *b, const void *dout, const void *out, int64_t ld, const float *lse,
                            int64_t rows, int64_t dim, int32_t dtype) {
  const split_factor log2e = split_double(1.4426950408889634);
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

#if ATTN_PAIRS
/* Lanes of a vector whose first key is `key` that lie within from .. to-1. */
NN_INLINE __mmask16 lanes_within(int64_t key, int64_t from, int64_t to) {
  const int64_t first = nn_max(0, nn_min(VF, from - key)), end = nn_max(0, nn_min(VF, to - key));
  return (__mmask16)(vf_mask(end) & ~vf_mask(first));
}

/* P and dS of keys j .. j+31 and two rows, from their scores and dP; lanes outside `mask` become zeros. */
NN_INLINE void soften_pair(const backward_block *b, int64_t r, int64_t j, const vf lse[BF16_PAIR],
                           const vf delta[BF16_PAIR], const __mmask16 mask[BF16_PAIR][BF16_PAIR],
                           const int32_t masked) {
  float *scores = b->p + r * ATTN_BLOCK_LD + j, *dp = b->ds + r * ATTN_BLOCK_LD + j;
  vf p[BF16_PAIR][BF16_PAIR], ds[BF16_PAIR][BF16_PAIR];
  NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) {
    NN_UNROLL for (int v = 0; v < BF16_PAIR; v++) {
      const int64_t at = i * ATTN_BLOCK_LD + v * VF;
      p[i][v] = vf_exp2(vf_sub(vf_load(scores + at), lse[i]));
      ds[i][v] = vf_mul(p[i][v], vf_sub(vf_load(dp + at), delta[i]));
      if (masked) {
        p[i][v] = _mm512_maskz_mov_ps(mask[i][v], p[i][v]);
        ds[i][v] = _mm512_maskz_mov_ps(mask[i][v], ds[i][v]);
      }
    }
  }
  NN_UNROLL for (int v = 0; v < BF16_PAIR; v++) {
    vf_store(scores + v * VF, units_of_rows(p[0][v], p[1][v]));
    vf_store(dp + v * VF, units_of_rows(ds[0][v], ds[1][v]));
    vf_store(b->ds_rows + (r + v) * ATTN_PAIR_LD + j / BF16_PAIR, units_of_row(ds[v]));
  }
}

/* As backward_soften, into units: of two rows for what runs down the rows, of a row for dQ. */
static void backward_soften_pairs(const backward_block *b, int64_t row, int64_t rows, int64_t key, int64_t keys,
                                  int64_t seen, int32_t causal) {
  for (int64_t r = 0; r < rows; r += BF16_PAIR) {
    int64_t before[BF16_PAIR], count[BF16_PAIR];
    vf lse[BF16_PAIR], delta[BF16_PAIR];
    for (int i = 0; i < BF16_PAIR; i++) {
      const int32_t query = r + i < rows;
      count[i] = query ? keys_seen(r + i, keys, seen, causal) : 0;
      before[i] = query ? keys_before(b->starts, row + r + i, key, keys) : 0;
      lse[i] = vf_set1(b->lse[row + r + i]);
      delta[i] = vf_set1(b->delta[row + r + i]);
    }
    const int64_t all = nn_min(count[0], count[1]), any = nn_max(count[0], count[1]);
    const int64_t none = nn_min(before[0], before[1]), some = nn_max(before[0], before[1]);
    /* As far as the tiles that hold the last key seen may read. */
    const int64_t end = nn_min(keys, any + ATTN_TILE_ROWS);
    for (int64_t j = 0; j < end; j += BF16_VECTOR) {
      if (j + BF16_VECTOR <= none || j >= any) {
        for (int v = 0; v < BF16_PAIR; v++) {
          vf_store(b->p + r * ATTN_BLOCK_LD + j + v * VF, vf_set1(0.0f));
          vf_store(b->ds + r * ATTN_BLOCK_LD + j + v * VF, vf_set1(0.0f));
          vf_store(b->ds_rows + (r + v) * ATTN_PAIR_LD + j / BF16_PAIR, vf_set1(0.0f));
        }
      } else if (j >= some && j + BF16_VECTOR <= all) {
        soften_pair(b, r, j, lse, delta, NULL, 0);
      } else {
        __mmask16 mask[BF16_PAIR][BF16_PAIR];
        for (int i = 0; i < BF16_PAIR * BF16_PAIR; i++) {
          const int q = i / BF16_PAIR, v = i % BF16_PAIR;
          mask[q][v] = lanes_within(j + v * VF, before[q], count[q]);
        }
        soften_pair(b, r, j, lse, delta, mask, 1);
      }
    }
  }
}
#endif

/* dV and dK of a tile of keys. */
NN_INLINE void column_product(const tile_args *t, int64_t height, int vectors, const int width) {
#if ATTN_PAIRS
  if (width == BF16_PAIR) {
    column_pair_tile(t, height, vectors);
    return;
  }
#endif
  (void)width;
  column_tile(t, height, vectors);
}

/* dQ of a tile of rows. */
NN_INLINE void value_product(const tile_args *t, int64_t height, int vectors, const int width) {
#if ATTN_PAIRS
  if (width == BF16_PAIR) {
    value_pair_tile(t, height, vectors);
    return;
  }
#endif
  (void)width;
  value_tile(t, height, vectors);
}

/* One block of queries (from row `row` of the task's, a multiple of `width`) against one block of keys, from
 * `first_key` on. `factor` is that of the scores, or null. */
NN_INLINE void backward_step(const backward_block *b, int64_t panel_rows, int64_t row, int64_t rows, int64_t first_key,
                             int64_t keys, int64_t seen, int32_t causal, int64_t dim, const float *factor,
                             const int width) {
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
#if ATTN_PAIRS
  if (width == BF16_PAIR) {
    backward_soften_pairs(b, row, rows, first_key, keys, seen, causal);
  } else {
    backward_soften(b, row, rows, first_key, keys, seen, causal);
  }
#else
  backward_soften(b, row, rows, first_key, keys, seen, causal);
#endif
  for (int64_t panel = 0; panel * ATTN_NR < dim; panel++) {
    const int vectors = panel_vectors(dim, panel);
    for (int32_t side = 0; side < 2; side++) {
      const float *left = side == 0 ? b->p : b->ds, *right = side == 0 ? b->dout_rows : b->q_rows;
      float *to = side == 0 ? b->dv : b->dk;
      for (int64_t key = 0; key < keys; key += height) {
        height = tile_rows(keys - key);
        const int64_t first = (causal ? nn_max(0, key + 1 - seen) : 0) / width; /* the first row that sees `key` */
        /* behind the last that sees any of these keys */
        const int64_t end = b->starts ? rows_before(b->starts + row, rows, first_key + key + height) : rows;
        const int64_t depth = nn_ceil_div(end, width) - first;
        if (depth > 0) {
          const tile_args t = {.a = left + first * width * ATTN_BLOCK_LD + key,
                               .b = right + ((panel * panel_rows + row) / width + first) * ATTN_NR,
                               .c = to + (panel * ATTN_BLOCK_KEYS + key) * ATTN_NR,
                               .depth = depth,
                               .chunk = depth};
          column_product(&t, height, vectors, width);
        }
      }
    }
    for (int64_t r = 0; r < rows; r += height) {
      height = tile_rows(rows - r);
      const int64_t before = keys_before(b->starts, row + r, first_key, keys) / width;
      const int64_t depth = nn_ceil_div(keys_seen(nn_min(rows, r + height) - 1, keys, seen, causal), width) - before;
      if (depth > 0) {
        const tile_args t = {.a = b->ds_rows + r * (width > 1 ? ATTN_PAIR_LD : ATTN_BLOCK_LD) + before,
                             .b = b->key_rows + (panel * ATTN_BLOCK_KEYS / width + before) * ATTN_NR,
                             .c = b->dq + (panel * panel_rows + row + r) * ATTN_NR,
                             .depth = depth,
                             .chunk = depth};
        value_product(&t, height, vectors, width);
      }
    }
  }
}

static void clear(float *x, int64_t n) { memset(x, 0, (size_t)n * sizeof *x); }

/* Packs a task's queries: pointers are those of its first. */
NN_INLINE void pack_queries(const backward_block *b, int64_t panel_rows, const void *q, int64_t ld_q, const void *dout,
                            int64_t out_ld, int64_t rows, int64_t dim, split_factor factor, int32_t dtype,
                            const int width) {
  const split_factor one = {1.0f, 0.0f};
#if ATTN_PAIRS
  (void)factor;
  pack_unit_rows(b->q, panel_rows, q, ld_q, rows, panel_rows, dim);
  pack_unit_rows(b->dout, panel_rows, dout, out_ld, rows, panel_rows, dim);
  if (width == BF16_PAIR) {
    pack_row_pairs(b->q_rows, panel_rows / BF16_PAIR, q, ld_q, 0, rows, panel_rows / BF16_PAIR, dim);
    pack_row_pairs(b->dout_rows, panel_rows / BF16_PAIR, dout, out_ld, 0, rows, panel_rows / BF16_PAIR, dim);
  } else {
    pack_rows(b->q_rows, panel_rows, q, ld_q, 0, rows, panel_rows, dim, one, dtype);
    pack_rows(b->dout_rows, panel_rows, dout, out_ld, 0, rows, panel_rows, dim, one, dtype);
  }
#else
  (void)width;
  pack_rows(b->q, panel_rows, q, ld_q, 0, rows, panel_rows, dim, factor, dtype);
  pack_rows(b->dout, panel_rows, dout, out_ld, 0, rows, panel_rows, dim, one, dtype);
#endif
}

/* Packs a block of keys. */
NN_INLINE void pack_block(const backward_block *b, const void *k, const void *v, int64_t ld, int64_t keys, int64_t dim,
                          int32_t dtype, const int width) {
#if ATTN_PAIRS
  pack_unit_keys(b->keys, k, ld, 0, keys, dim);
  pack_unit_keys(b->values, v, ld, 0, keys, dim);
  if (width == BF16_PAIR) {
    pack_row_pairs(b->key_rows, ATTN_BLOCK_KEYS / BF16_PAIR, k, ld, 0, keys, nn_ceil_div(keys, BF16_PAIR), dim);
    return;
  }
#else
  (void)width;
  pack_keys(b->keys, k, ld, 0, keys, dim, dtype);
  pack_keys(b->values, v, ld, 0, keys, dim, dtype);
#endif
  pack_rows(b->key_rows, ATTN_BLOCK_KEYS, k, ld, 0, keys, keys, dim, (split_factor){1.0f, 0.0f}, dtype);
}

NN_INLINE void backward_task_of(const gradients *f, int64_t i, int32_t worker, const int width) {
  const nn_flash_attention_backward_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const gradient_task t = gradient_task_at(f, i);
  const int64_t dim = s->head_dim, bytes = nn_dtype_bytes(a->dtype), panel_rows = task_panel_rows(f);
  const int64_t rows = t.rows, seen = t.seen, out_ld = s->heads * dim;
  backward_block b;
  backward_layout(&b, (float *)(void *)(f->workspace + worker * f->workspace_size), panel_rows, dim, width);
  b.starts = t.starts;

  const char *dout = (const char *)a->dout + t.out * bytes, *out = (const char *)a->out + t.out * bytes;
  const float *lse = a->lse + t.lse;
  const split_factor factor = split_double((double)a->scale * 1.4426950408889634);
  const float *score_factor = ATTN_UNIT > 1 ? &factor.high : NULL; /* else the queries have it */
  ATTN_SWITCH_DTYPE(a->dtype, {
    pack_queries(&b, panel_rows, (const char *)a->q + t.q * bytes, a->ld_q, dout, out_ld, rows, dim, factor, DT, width);
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
      ATTN_SWITCH_DTYPE(a->dtype, pack_block(&b, k, v, a->ld_kv, keys, dim, DT, width));
    }
    for (int64_t row = first / width * width; row < end; row += ATTN_BLOCK_ROWS) {
      backward_step(&b, panel_rows, row, nn_min(ATTN_BLOCK_ROWS, rows - row), key, keys, seen + row - key, a->causal,
                    dim, score_factor, width);
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

static void backward_task(void *arg, int64_t i, int32_t worker) { backward_task_of(arg, i, worker, 1); }

#if ATTN_PAIRS
static void backward_pair_task(void *arg, int64_t i, int32_t worker) { backward_task_of(arg, i, worker, BF16_PAIR); }
#endif

NN_PLAIN static gradients lay_out(const nn_flash_attention_backward_args *a, nn_workspace *w) {
#if ATTN_PAIRS
  const int32_t rounds = a->shape.kv_len >= ONE_PART_KEYS && !w->machine->two_parts;
  gradients f = {.a = a, .dk_factor = a->scale, .width = rounds ? BF16_PAIR : 1};
#else
  gradients f = {.a = a, .dk_factor = DK_FACTOR, .width = 1};
#endif
  gradients_cut(&f, 1, ATTN_BLOCK_ROWS);
  backward_block unused;
  f.workspace_size =
      backward_layout(&unused, NULL, task_panel_rows(&f), a->shape.head_dim, f.width) * (int64_t)sizeof(float);
  gradients_lay_out(&f, w);
  return f;
}

static int32_t run(nncuda_ctx *ctx, const nn_flash_attention_backward_args *a) {
  NN_TRY(check_starts(ctx, a->starts, a->shape.batch, a->shape.q_len));
  gradients f = lay_out(a, nn_workspace_of(ctx));
#if ATTN_PAIRS
  return gradients_run(ctx, &f, f.width == BF16_PAIR ? backward_pair_task : backward_task);
#else
  return gradients_run(ctx, &f, backward_task);
#endif
}

#if ATTN_PAIRS
NN_BF16_KERNEL_BY(flash_attention_backward, nn_flash_attention_backward_args, run, lay_out)
#else
NN_KERNEL_BY(flash_attention_backward, run, lay_out)
#endif
