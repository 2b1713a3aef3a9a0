/*
 * Gradients of attention in blocks (attention_backward.c) in bf16 by tile registers, on the forms of attention_bf16.h.
 *
 * P and dS are each multiplied as two bf16: their leading bits, and what is left of them. Rounded alone, they cost as
 * much as the rounding of the outputs wherever few terms make a sum (a short sequence, or a sharp softmax), which
 * leaves more than the error that the golden fixtures allow. Two parts leave 2^-14 of a term, a 32nd of the rounding of
 * the outputs. Since there are two, the leading bits may be cut instead of rounded.
 */
#include "kernel.h"

#if defined(__AMX_BF16__)

#include "attention_bf16.h"
#include "attention_gradients.h"

/* c [rows, lanes] = a * b, or += with `add`; a or b may have a second part, which goes to the same sums. */
typedef struct bf16_product {
  const unit *a, *a_low; /* rows, `a_step` apart; the second part or null */
  const unit *b, *b_low; /* lanes */
  float *c;
  int64_t a_step, units; /* units: the depth */
  int64_t panel;         /* units from one panel of lanes to the next, at least the depth */
  int64_t ld, rows, lanes;
  int32_t add;
} bf16_product;

/*
 * A step of 16 units: sums += a * b, and what their second parts add. Each is loaded once. The first step of a tile
 * begins with the sums at `from` or zeros, and stores those of the tile before at `last`, if that is not null, one by
 * one as their registers are needed: stored at once, they would wait for the last product, and the next tile for them.
 */
NN_INLINE void tile_step16(const bf16_product *t, int64_t a, int64_t b, const float *from, float *last,
                           const int32_t first) {
  const int64_t a2 = a + 16 * t->a_step, b2 = b + t->panel * VF, a_step = t->a_step * 4, step = t->ld * 4;
#define BEGIN(tile, at)                                                                                                \
  if (first) {                                                                                                         \
    if (last) {                                                                                                        \
      _tile_stored(tile, last + (at), step);                                                                           \
    }                                                                                                                  \
    if (from) {                                                                                                        \
      _tile_loadd(tile, from + (at), step);                                                                            \
    } else {                                                                                                           \
      _tile_zero(tile);                                                                                                \
    }                                                                                                                  \
  }
  _tile_loadd(4, t->a + a, a_step);
  _tile_loadd(6, t->b + b, 64);
  BEGIN(0, 0)
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, t->b + b2, 64);
  BEGIN(1, VF)
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, t->a + a2, a_step);
  BEGIN(2, 16 * t->ld)
  _tile_dpbf16ps(2, 5, 6);
  BEGIN(3, 16 * t->ld + VF)
  _tile_dpbf16ps(3, 5, 7);
#undef BEGIN
  if (t->b_low) {
    _tile_loadd(6, t->b_low + b, 64);
    _tile_loadd(7, t->b_low + b2, 64);
  }
  if (t->a_low) {
    _tile_loadd(4, t->a_low + a, a_step);
    _tile_loadd(5, t->a_low + a2, a_step);
  }
  if (t->a_low || t->b_low) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

static __attribute__((noinline)) void multiply(const bf16_product *t) {
  float *last = NULL;
  /* The compiler does not know that tile loads and stores touch memory. */
  __asm__ volatile("" ::: "memory");
  for (int64_t lane = 0; lane < t->lanes; lane += BF16_TILE) {
    for (int64_t r = 0; r < t->rows; r += BF16_TILE) {
      float *c = t->c + r * t->ld + lane;
      const int64_t a = r * t->a_step, b = lane * t->panel;
      tile_step16(t, a, b, t->add ? c : NULL, last, 1);
      for (int64_t p = 16; p < t->units; p += 16) {
        tile_step16(t, a + p, b + p * VF, NULL, NULL, 0);
      }
      last = c;
    }
  }
  if (last) {
    tile_store_four(last, t->ld * 4, 64, 64 * t->ld);
  }
  __asm__ volatile("" ::: "memory");
}

/*
 * A task takes all heads of a key head, so that dK and dV need no second pass, when there are enough key heads and what
 * belongs to their keys (14 bytes an element) stays in L2. STEP_KEYS is what a worker takes of them at a time.
 */
enum { STEP_KEYS = 64, STEP_UNITS = STEP_KEYS / BF16_PAIR, QUERY_UNITS = BF16_QUERIES / BF16_PAIR, KEPT = 1 << 16 };

/* A block of queries. */
typedef struct backward_queries {
  unit *q, *dout;                 /* lanes by query */
  unit *q_columns, *dout_columns; /* lanes by column */
  float *dq;                      /* [whole(dim)][BF16_QUERIES] */
  float *lse, *delta;             /* in units of ln 2 and negative; infinite and zero where there is no query */
} backward_queries;

/* A block of keys against a block of queries. `_low` are second parts. */
typedef struct backward_keys {
  unit *keys, *values, *key_columns; /* rows by key, by key, by column */
  float *dk, *dv;                    /* [STEP_KEYS][whole(dim)] */
  float *scores, *dp;                /* [STEP_KEYS][BF16_QUERIES] */
  unit *p, *p_low, *ds, *ds_low;     /* rows by key */
  unit *ds_lanes, *ds_lanes_low;     /* lanes by query */
} backward_keys;

NN_PLAIN NN_INLINE int64_t queries_size(int64_t dim) {
  return whole(dim) * (4 * QUERY_UNITS + BF16_QUERIES) + 2 * BF16_QUERIES;
}
NN_PLAIN NN_INLINE int64_t terms_size(void) { return STEP_KEYS * (2 * BF16_QUERIES + 6 * QUERY_UNITS); }
NN_PLAIN NN_INLINE int64_t keys_size(int64_t dim) { return whole(dim) * (3 * STEP_UNITS + 2 * STEP_KEYS); }

NN_INLINE backward_queries queries_at(char *workspace, int64_t dim) {
  const int64_t factor = whole(dim) * QUERY_UNITS;
  backward_queries b;
  b.q = (unit *)(void *)workspace;
  b.dout = b.q + factor;
  b.q_columns = b.dout + factor;
  b.dout_columns = b.q_columns + factor;
  b.dq = (float *)(void *)(b.dout_columns + factor);
  b.lse = b.dq + whole(dim) * BF16_QUERIES;
  b.delta = b.lse + BF16_QUERIES;
  return b;
}

/* What is computed of a step, and the keys themselves. */
NN_INLINE backward_keys keys_at(char *terms, char *keys, int64_t dim) {
  const int64_t factor = whole(dim) * STEP_UNITS, each = STEP_KEYS * QUERY_UNITS;
  backward_keys b;
  b.scores = (float *)(void *)terms;
  b.dp = b.scores + STEP_KEYS * BF16_QUERIES;
  b.p = (unit *)(void *)(b.dp + STEP_KEYS * BF16_QUERIES);
  b.p_low = b.p + each;
  b.ds = b.p_low + each;
  b.ds_low = b.ds + each;
  b.ds_lanes = b.ds_low + each;
  b.ds_lanes_low = b.ds_lanes + each;
  b.keys = (unit *)(void *)keys;
  b.values = b.keys + factor;
  b.key_columns = b.values + factor;
  b.dk = (float *)(void *)(b.key_columns + factor);
  b.dv = b.dk + whole(dim) * STEP_KEYS;
  return b;
}

/* The leading bits of a number, which are a bf16. */
NN_INLINE vf leading(vf x) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000)));
}

/* Units of lanes: the leading bits of x[0] and, of the next key, x[1]. */
NN_INLINE vf units_of_lanes(vf x0, vf x1) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(x0), 16);
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_castps_si512(leading(x1))));
}

/* P and dS of keys j, j+1 and the queries of lanes r .. r+31, into both forms; lanes outside `mask` become zeros. */
NN_INLINE void soften_pair(const backward_keys *b, const backward_queries *q, int64_t r, int64_t j, vf scale,
                           const __mmask16 mask[BF16_PAIR][2], const int32_t masked) {
  vf high[BF16_PAIR][2], low[BF16_PAIR][2];
  const int64_t at = j * QUERY_UNITS + r / BF16_PAIR;
  NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) {
    vf p_high[2], p_low[2];
    NN_UNROLL for (int v = 0; v < 2; v++) {
      const int64_t from = (j + i) * BF16_QUERIES + r + v * VF;
      vf p = vf_exp2(vf_fma(vf_load(b->scores + from), scale, vf_load(q->lse + r + v * VF)));
      vf ds = p * (vf_load(b->dp + from) - vf_load(q->delta + r + v * VF));
      if (masked) {
        p = _mm512_maskz_mov_ps(mask[i][v], p);
        ds = _mm512_maskz_mov_ps(mask[i][v], ds);
      }
      p_high[v] = leading(p);
      p_low[v] = p - p_high[v];
      high[i][v] = leading(ds);
      low[i][v] = ds - high[i][v];
    }
    store_units(b->p + at + i * QUERY_UNITS, units_of_row(p_high));
    store_units(b->p_low + at + i * QUERY_UNITS, units_of_row(p_low));
    store_units(b->ds + at + i * QUERY_UNITS, units_of_row(high[i]));
    store_units(b->ds_low + at + i * QUERY_UNITS, units_of_row(low[i]));
  }
  NN_UNROLL for (int v = 0; v < 2; v++) {
    const int64_t to = (r + v * VF) * STEP_UNITS + j / BF16_PAIR * VF;
    store_units(b->ds_lanes + to, units_of_lanes(high[0][v], high[1][v]));
    store_units(b->ds_lanes_low + to, units_of_lanes(low[0][v], low[1][v]));
  }
}

/* Zeros for keys j .. end-1 and the queries of lanes r .. r+31. */
NN_INLINE void clear_pairs(const backward_keys *b, int64_t r, int64_t j, int64_t end) {
  const vf zero = vf_set1(0.0f);
  for (; j < end; j += BF16_PAIR) {
    NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) {
      const int64_t row = (j + i) * QUERY_UNITS + r / BF16_PAIR, lane = (r + i * VF) * STEP_UNITS + j / BF16_PAIR * VF;
      store_units(b->p + row, zero);
      store_units(b->p_low + row, zero);
      store_units(b->ds + row, zero);
      store_units(b->ds_low + row, zero);
      store_units(b->ds_lanes + lane, zero);
      store_units(b->ds_lanes_low + lane, zero);
    }
  }
}

/* Scores to P and dP to dS, for `keys` keys. */
static void backward_soften(const backward_keys *b, const backward_queries *q, int64_t keys, const sight *s,
                            float factor) {
  const vf scale = vf_set1(factor);
  for (int64_t r = 0; r < BF16_QUERIES; r += BF16_TILE) {
    const int64_t all = nn_min(keys, seen_by_all(s, r)), any = nn_min(keys, seen_by_any(s, r + VF));
    const int64_t none = before_all(s, r), some = before_any(s, r, BF16_TILE);
    clear_pairs(b, r, 0, none);
    int64_t j = none;
    for (; j < any; j += BF16_PAIR) {
      if (j >= some && j + BF16_PAIR <= all) {
        soften_pair(b, q, r, j, scale, NULL, 0);
        continue;
      }
      const __mmask16 mask[BF16_PAIR][2] = {{seeing(s, r, j), seeing(s, r + VF, j)},
                                            {seeing(s, r, j + 1), seeing(s, r + VF, j + 1)}};
      soften_pair(b, q, r, j, scale, mask, 1);
    }
    clear_pairs(b, r, j, keys);
  }
}

/* One block of queries against `keys` keys, whole tiles of them. */
static void backward_step(const backward_keys *b, const backward_queries *q, int64_t keys, const sight *s, float factor,
                          int64_t dim) {
  const int64_t columns = whole(dim), depth = columns / BF16_PAIR;
  for (int32_t side = 0; side < 2; side++) {
    multiply(&(bf16_product){.a = side == 0 ? b->keys : b->values,
                             .b = side == 0 ? q->q : q->dout,
                             .c = side == 0 ? b->scores : b->dp,
                             .a_step = depth,
                             .units = depth,
                             .panel = depth,
                             .ld = BF16_QUERIES,
                             .rows = keys,
                             .lanes = BF16_QUERIES});
  }
  backward_soften(b, q, keys, s, factor);
  for (int32_t side = 0; side < 2; side++) {
    multiply(&(bf16_product){.a = side == 0 ? b->p : b->ds,
                             .a_low = side == 0 ? b->p_low : b->ds_low,
                             .b = side == 0 ? q->dout_columns : q->q_columns,
                             .c = side == 0 ? b->dv : b->dk,
                             .a_step = QUERY_UNITS,
                             .units = QUERY_UNITS,
                             .panel = QUERY_UNITS,
                             .ld = columns,
                             .rows = keys,
                             .lanes = columns,
                             .add = 1});
  }
  multiply(&(bf16_product){.a = b->key_columns,
                           .b = b->ds_lanes,
                           .b_low = b->ds_lanes_low,
                           .c = q->dq,
                           .a_step = STEP_UNITS,
                           .units = keys / BF16_PAIR,
                           .panel = STEP_UNITS,
                           .ld = BF16_QUERIES,
                           .rows = columns,
                           .lanes = BF16_QUERIES,
                           .add = 1});
}

/* Rows [rows][whole(dim)] times a factor into rows of a dtype. */
NN_INLINE void store_sums(void *to, int64_t ld, const float *sums, int64_t rows, int64_t dim, float factor,
                          int32_t dtype) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t d = 0; d < dim; d += VF) {
      const vf x = vf_load(sums + r * whole(dim) + d) * vf_set1(factor);
      store_columns(to, r * ld, d, dim, x, dtype);
    }
  }
}

static void clear(float *x, int64_t n) { memset(x, 0, (size_t)n * sizeof *x); }

/* Packs a block of `rows` queries; pointers are those of its first row. */
static void backward_pack(const backward_queries *b, const uint16_t *q, int64_t ld_q, const uint16_t *dout,
                          const uint16_t *out, int64_t out_ld, const float *lse, int64_t rows, int64_t dim) {
  rows_to_lanes(b->q, q, ld_q, rows, BF16_QUERIES, dim);
  rows_to_lanes(b->dout, dout, out_ld, rows, BF16_QUERIES, dim);
  columns_to_lanes(b->q_columns, q, ld_q, rows, BF16_QUERIES, dim);
  columns_to_lanes(b->dout_columns, dout, out_ld, rows, BF16_QUERIES, dim);
  for (int64_t r = 0; r < BF16_QUERIES; r += VF) {
    const int64_t count = nn_max(0, nn_min(VF, rows - r));
    vf x = vf_set1(0.0f);
    if (count > 0) {
      x = vf_load_part(lse + r, count) * vf_set1(-(float)LOG2E);
    }
    vf_store(b->lse + r, vf_keep_part(x, count, -INFINITY));
    vf_store(b->delta + r, row_products(dout, out, out_ld, r, rows, dim, NNCUDA_BF16));
  }
  clear(b->dq, whole(dim) * BF16_QUERIES);
}

/* The keys that one of a task's heads sees, after those before it; `last`: their dK and dV are complete. */
static void backward_head(const gradients *f, int64_t i, const gradient_task *t, char *workspace, int32_t first_head,
                          int32_t last) {
  const nn_flash_attention_backward_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t dim = s->head_dim, columns = whole(dim), bytes = (int64_t)sizeof(float);
  const int64_t each = queries_size(dim) * bytes;
  const uint16_t *k = (const uint16_t *)a->k + t->kv, *v = (const uint16_t *)a->v + t->kv;
  const float factor = (float)(a->scale * LOG2E);
  char *terms = workspace + nn_ceil_div(t->rows, BF16_QUERIES) * each, *kept = terms + terms_size() * bytes;
  /* The partial results of keys that none of these queries sees must be zeros too. */
  for (int64_t key = 0; key < s->kv_len; key += STEP_KEYS) {
    const backward_keys b = keys_at(terms, kept, dim);
    const int64_t keys = nn_min(STEP_KEYS, s->kv_len - key), padded = whole(keys), at = key * a->ld_kv;
    const int64_t first = a->causal ? nn_max(0, key + 1 - t->seen) : 0; /* the first query that sees the block */
    const int64_t end = rows_before(t->starts, t->rows, key + keys);    /* behind the last that does */
    if (first_head) {
      clear(b.dk, padded * columns);
      clear(b.dv, padded * columns);
      if (first < end) {
        copy_rows(b.keys, k + at, a->ld_kv, keys, padded, dim);
        copy_rows(b.values, v + at, a->ld_kv, keys, padded, dim);
        columns_to_rows(b.key_columns, STEP_UNITS, k + at, a->ld_kv, keys, padded, dim);
      }
    }
    for (int64_t row = first / BF16_QUERIES * BF16_QUERIES; row < end; row += BF16_QUERIES) {
      const backward_queries block = queries_at(workspace + row / BF16_QUERIES * each, dim);
      const sight sees = {.seen = t->seen + row - key,
                          .keys = keys,
                          .causal = a->causal,
                          .starts = t->starts ? t->starts + row : NULL,
                          .key = key,
                          .rows = nn_min(BF16_QUERIES, t->rows - row)};
      backward_step(&b, &block, padded, &sees, factor, dim);
    }
    if (last && f->partial) {
      float *dk = f->partial + (2 * i * s->kv_len + key) * dim, *dv = dk + s->kv_len * dim;
      store_sums(dk, dim, b.dk, keys, dim, 1.0f, NNCUDA_F32);
      store_sums(dv, dim, b.dv, keys, dim, 1.0f, NNCUDA_F32);
    } else if (last) {
      store_sums((uint16_t *)a->dk + t->kv + at, a->ld_kv, b.dk, keys, dim, f->dk_factor, NNCUDA_BF16);
      store_sums((uint16_t *)a->dv + t->kv + at, a->ld_kv, b.dv, keys, dim, 1.0f, NNCUDA_BF16);
    }
    kept += f->heads > 1 ? keys_size(dim) * bytes : 0;
  }
}

static void backward_task(void *arg, int64_t i, int32_t worker) {
  const gradients *f = arg;
  const nn_flash_attention_backward_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const gradient_task t = gradient_task_at(f, i);
  const int64_t dim = s->head_dim, out_ld = s->heads * dim, each = queries_size(dim) * (int64_t)sizeof(float);
  char *workspace = f->workspace + worker * f->workspace_size;
  const vf scale = vf_set1(a->scale), scales[BF16_PANELS] = {scale, scale, scale, scale};
  tile_registers_open();
  for (int64_t head = 0; head < t.heads; head++) {
    const int64_t q_at = t.q + head * dim, out_at = t.out + head * dim, lse_at = t.lse + head * s->q_len;
    for (int64_t row = 0; row < t.rows; row += BF16_QUERIES) {
      const backward_queries block = queries_at(workspace + row / BF16_QUERIES * each, dim);
      backward_pack(&block, (const uint16_t *)a->q + q_at + row * a->ld_q, a->ld_q,
                    (const uint16_t *)a->dout + out_at + row * out_ld, (const uint16_t *)a->out + out_at + row * out_ld,
                    out_ld, a->lse + lse_at + row, nn_min(BF16_QUERIES, t.rows - row), dim);
    }
    backward_head(f, i, &t, workspace, head == 0, head == t.heads - 1);
    for (int64_t row = 0; row < t.rows; row += BF16_QUERIES) {
      const backward_queries block = queries_at(workspace + row / BF16_QUERIES * each, dim);
      store_lanes((uint16_t *)a->dq + q_at + row * a->ld_q, a->ld_q, block.dq, BF16_QUERIES, VF, scales, 0,
                  nn_min(BF16_QUERIES, t.rows - row), dim);
    }
  }
  tile_registers_close();
}

NN_PLAIN static gradients flash_attention_backward_lay_out(const nn_flash_attention_backward_args *a, nn_workspace *w) {
  const nn_attention_shape *s = &a->shape;
  const int64_t dim = s->head_dim;
  const int32_t together = s->batch * s->kv_heads >= ATTN_TASKS_WANTED && s->kv_len * whole(dim) <= KEPT;
  gradients f = {.a = a, .dk_factor = a->scale};
  gradients_cut(&f, together ? s->heads / s->kv_heads : 1, BF16_QUERIES);
  const int64_t query_blocks = nn_ceil_div(nn_min(f.piece_rows, s->q_len), BF16_QUERIES);
  const int64_t key_blocks = f.heads > 1 ? nn_ceil_div(s->kv_len, STEP_KEYS) : 1;
  const int64_t size = query_blocks * queries_size(dim) + terms_size() + key_blocks * keys_size(dim);
  f.workspace_size = nn_round_up(size * (int64_t)sizeof(float), 64);
  gradients_lay_out(&f, w);
  return f;
}

static int32_t flash_attention_backward(nncuda_ctx *ctx, const nn_flash_attention_backward_args *a) {
  NN_TRY(check_starts(ctx, a->starts, a->shape.batch, a->shape.q_len));
  gradients f = flash_attention_backward_lay_out(a, nn_workspace_of(ctx));
  return gradients_run(ctx, &f, backward_task);
}

NN_BF16_KERNEL_BY(flash_attention_backward, nn_flash_attention_backward_args, flash_attention_backward,
                  flash_attention_backward_lay_out)

#endif
