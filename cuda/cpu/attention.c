/* The two products of attention on their own, with the scores in memory between them. */
#include "attention_pack.h"

#include "abi/generated/attention.h"

NN_TILE(score_tile, ATTN_NR, 1, ATTN_BLOCK_LD)
NN_TILE(value_tile, ATTN_BLOCK_LD, 1, ATTN_NR)

static const split_factor ONE = {1.0f, 0.0f};

typedef struct products {
  const void *args;
  float *workspace; /* of each worker */
  int64_t workspace_size;
} products;

/* One block of scores: -inf from the first key on that the query does not see. */
NN_INLINE void store_scores(const nn_attention_scores_args *a, const float *scores, int64_t at, int64_t rows,
                            int64_t keys, int64_t seen, int32_t dtype) {
  const vf scale = vf_set1(a->scale);
  for (int64_t r = 0; r < rows; r++) {
    const int64_t count = a->causal ? nn_max(0, nn_min(keys, seen + r)) : keys, to = at + r * a->shape.kv_len;
    for (int64_t j = 0; j < keys; j += VF) {
      vf x = vf_set1(-INFINITY);
      if (j < count) {
        x = vf_keep_part(vf_mul(vf_load(scores + r * ATTN_BLOCK_LD + j), scale), nn_min(VF, count - j), -INFINITY);
      }
      store_columns(a->scores, to, j, keys, x, dtype);
    }
  }
}

/* A block of queries of one head against a block of keys. */
static void scores_task(void *arg, int64_t i, int32_t worker) {
  const products *f = arg;
  const nn_attention_scores_args *a = f->args;
  const nn_attention_shape *s = &a->shape;
  const int64_t dim = s->head_dim, bytes = nn_dtype_bytes(a->dtype);
  const int64_t key_blocks = nn_ceil_div(s->kv_len, ATTN_BLOCK_KEYS),
                query_blocks = nn_ceil_div(s->q_len, ATTN_BLOCK_ROWS);
  const int64_t key = i % key_blocks * ATTN_BLOCK_KEYS, keys = nn_min(ATTN_BLOCK_KEYS, s->kv_len - key);
  const int64_t row = i / key_blocks % query_blocks * ATTN_BLOCK_ROWS, rows = nn_min(ATTN_BLOCK_ROWS, s->q_len - row);
  const int64_t head = i / key_blocks / query_blocks, sequence = head / s->heads; /* head counts over sequences */
  const int64_t kv_head = head % s->heads / (s->heads / s->kv_heads), ld_q = s->heads * dim, ld_kv = s->kv_heads * dim;
  const int64_t seen = row + s->kv_len - s->q_len + 1 - key; /* row r of the block sees seen + r keys of it */
  float *q = f->workspace + worker * f->workspace_size, *k = q + row_panels_size(ATTN_BLOCK_ROWS, dim);
  float *scores = k + key_panels_size(ATTN_BLOCK_KEYS, dim);

  if (!a->causal || seen + rows - 1 > 0) {
    const int64_t q_at = ((sequence * s->q_len + row) * s->heads + head % s->heads) * dim;
    const int64_t k_at = ((sequence * s->kv_len + key) * s->kv_heads + kv_head) * dim;
    NN_SWITCH_DTYPE(a->dtype, {
      pack_rows(q, ATTN_BLOCK_ROWS, (const char *)a->q + q_at * bytes, ld_q, 0, rows, padded_rows(rows), dim, ONE, DT);
      pack_keys(k, (const char *)a->k + k_at * bytes, ld_kv, 0, keys, dim, DT);
    });
    for (int64_t j = 0; j < keys; j += ATTN_NR) {
      int64_t height;
      for (int64_t r = 0; r < rows; r += height) {
        height = tile_rows(rows - r);
        const tile_args t = {.a = q + r * ATTN_NR,
                             .b = k + j * dim,
                             .c = scores + r * ATTN_BLOCK_LD + j,
                             .a_chunk = ATTN_BLOCK_ROWS * ATTN_NR,
                             .depth = dim,
                             .chunk = ATTN_NR,
                             .fresh = 1};
        score_tile(&t, height, 2);
      }
    }
  }
  const int64_t at = (head * s->q_len + row) * s->kv_len + key;
  NN_SWITCH_DTYPE(a->dtype, store_scores(a, scores, at, rows, keys, seen, DT));
}

/* `size` floats for each worker. */
NN_PLAIN static products lay_out_products(const void *args, int64_t size, nn_workspace *w) {
  products f = {.args = args, .workspace_size = size};
  f.workspace = nn_workspace_piece(w, (size_t)(size * w->machine->threads) * sizeof(float));
  return f;
}

NN_PLAIN static products scores_lay_out(const nn_attention_scores_args *a, nn_workspace *w) {
  const int64_t dim = a->shape.head_dim,
                factors = row_panels_size(ATTN_BLOCK_ROWS, dim) + key_panels_size(ATTN_BLOCK_KEYS, dim);
  return lay_out_products(a, factors + ATTN_BLOCK_ROWS * ATTN_BLOCK_LD, w);
}

NN_WORKSPACE(attention_scores) { scores_lay_out(args, w); }

int32_t NN_KERNEL(attention_scores)(nncuda_ctx *ctx, const void *args) {
  const nn_attention_scores_args *a = args;
  const nn_attention_shape *s = &a->shape;
  products f = scores_lay_out(a, nn_workspace_of(ctx));
  const int64_t blocks = nn_ceil_div(s->kv_len, ATTN_BLOCK_KEYS) * nn_ceil_div(s->q_len, ATTN_BLOCK_ROWS);
  nn_parallel(ctx, s->batch * s->heads * blocks, scores_task, &f);
  return NNCUDA_SUCCESS;
}

/* Output of a block of queries of one head, from all keys in blocks. */
NN_INLINE void output_block(const products *f, int64_t head, int64_t row, int32_t worker, int32_t dtype) {
  const nn_attention_output_args *a = f->args;
  const nn_attention_shape *s = &a->shape;
  const int64_t dim = s->head_dim, bytes = nn_dtype_bytes(dtype), rows = nn_min(ATTN_BLOCK_ROWS, s->q_len - row);
  const int64_t sequence = head / s->heads, kv_head = head % s->heads / (s->heads / s->kv_heads);
  float *probs = f->workspace + worker * f->workspace_size, *values = probs + ATTN_BLOCK_ROWS * ATTN_BLOCK_LD;
  float *out = values + row_panels_size(ATTN_BLOCK_KEYS, dim);
  for (int64_t key = 0; key < s->kv_len; key += ATTN_BLOCK_KEYS) {
    const int64_t keys = nn_min(ATTN_BLOCK_KEYS, s->kv_len - key);
    const int64_t v_at = ((sequence * s->kv_len + key) * s->kv_heads + kv_head) * dim;
    pack_rows(values, ATTN_BLOCK_KEYS, (const char *)a->v + v_at * bytes, s->kv_heads * dim, 0, keys, keys, dim, ONE,
              dtype);
    for (int64_t r = 0; r < padded_rows(rows); r++) {
      for (int64_t j = 0; j < keys; j += VF) {
        vf x = vf_set1(0.0f);
        if (r < rows) {
          x = load_columns(a->probs, (head * s->q_len + row + r) * s->kv_len + key, j, keys, dtype);
        }
        vf_store(probs + r * ATTN_BLOCK_LD + j, x);
      }
    }
    for (int64_t panel = 0; panel * ATTN_NR < dim; panel++) {
      int64_t height;
      for (int64_t r = 0; r < rows; r += height) {
        height = tile_rows(rows - r);
        const tile_args t = {.a = probs + r * ATTN_BLOCK_LD,
                             .b = values + panel * ATTN_BLOCK_KEYS * ATTN_NR,
                             .c = out + (panel * ATTN_BLOCK_ROWS + r) * ATTN_NR,
                             .depth = keys,
                             .chunk = keys,
                             .fresh = key == 0};
        value_tile(&t, height, panel_vectors(dim, panel));
      }
    }
  }
  const int64_t out_at = ((sequence * s->q_len + row) * s->heads + head % s->heads) * dim;
  store_rows((char *)a->out + out_at * bytes, s->heads * dim, out, ATTN_BLOCK_ROWS, rows, dim, 1.0f, dtype);
}

static void output_task(void *arg, int64_t i, int32_t worker) {
  const products *f = arg;
  const nn_attention_output_args *a = f->args;
  const int64_t query_blocks = nn_ceil_div(a->shape.q_len, ATTN_BLOCK_ROWS);
  NN_SWITCH_DTYPE(a->dtype, output_block(f, i / query_blocks, i % query_blocks * ATTN_BLOCK_ROWS, worker, DT));
}

NN_PLAIN static products output_lay_out(const nn_attention_output_args *a, nn_workspace *w) {
  const int64_t dim = a->shape.head_dim,
                panels = row_panels_size(ATTN_BLOCK_KEYS, dim) + row_panels_size(ATTN_BLOCK_ROWS, dim);
  return lay_out_products(a, ATTN_BLOCK_ROWS * ATTN_BLOCK_LD + panels, w);
}

NN_WORKSPACE(attention_output) { output_lay_out(args, w); }

int32_t NN_KERNEL(attention_output)(nncuda_ctx *ctx, const void *args) {
  const nn_attention_output_args *a = args;
  const nn_attention_shape *s = &a->shape;
  products f = output_lay_out(a, nn_workspace_of(ctx));
  nn_parallel(ctx, s->batch * s->heads * nn_ceil_div(s->q_len, ATTN_BLOCK_ROWS), output_task, &f);
  return NNCUDA_SUCCESS;
}
