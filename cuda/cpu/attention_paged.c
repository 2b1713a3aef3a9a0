/*
 * Attention over paged caches, of many new tokens or one a sequence (Dao 2023, "FlashAttention-2", algorithm 1; Dao et
 * al. 2023, "Flash-Decoding"; Kwon et al. 2023, "PagedAttention").
 *
 * What a query gets does not depend on what else is in the call. For that its sums have one order, by the positions of
 * the keys alone, wherever they are computed:
 *
 *   score j       q . k_j, element after element, one chain of fma (scores are in units of ln 2)
 *   in a page     m = largest score, p_j = 2^(score j - m); s = sum of p_j, lane j mod VF by itself, then the lanes as
 * sum_each adds them; o = sum of p_j v_j, key after key, one chain of fma over pages    in the order of the table, from
 * (M, S, O) = (-FLT_MAX, 0, 0): M' = max(M, m), a = 2^(M - M'), b = 2^(m - M'), S' = fma(S, a, s b), O' = fma(O, a, o
 * b); the result is O / S
 *
 * Keys that a query does not see take no part: not even times zero, since what is stored for later tokens may be
 * infinite. So it does not matter how rows are grouped into tiles and tasks, nor whether a task computes all pages of
 * its rows and merges them as it goes, or tasks compute a page each and others merge them afterwards.
 *
 * The rows of a task are (token, query head) pairs of one sequence that share a key head, so that a page is read, and
 * converted, once for all of them.
 */
#include "attention_pack.h"
#include "paged_cache.h"

#include "../abi/attention.h"

#include <float.h>

enum {
  TASK_ROWS = 96,
  SPACE_ROWS = TASK_ROWS + TILE_ROWS_LOW, /* tiles begin at any row, and the last one may reach beyond the task's */
  PAGE_LD = NN_PAGE_TOKENS + 16,          /* between rows of scores; the padding as in attention_tile.h */
  ROWS_LD = TASK_ROWS + 16                /* vectors over the rows begin at any row, too */
};

NN_TILE(page_score_tile, NR, 1, PAGE_LD)
NN_TILE(page_value_tile, PAGE_LD, 1, NR)

/* Rows `first` .. first+rows-1 of the (token, head) pairs of a sequence, for each key head. */
typedef struct paged_block {
  int64_t sequence, first, rows, pages;
} paged_block;

typedef struct paged {
  const nn_attention_decode_paged_args *a;
  paged_sequences sequences;
  paged_block *blocks;
  int64_t count, group; /* blocks; query heads a key head */
  float *workspace;     /* of each worker */
  int64_t workspace_size;
} paged;

/* What a worker needs for a block. */
typedef struct paged_space {
  float *q, *keys, *values;           /* row panels, key panels, row panels */
  float *scores;                      /* [SPACE_ROWS][PAGE_LD] */
  float *part, *part_peak, *part_sum; /* of one page: row panels, [ROWS_LD] */
  float *out, *peak, *sum;            /* of those so far */
  float *keep, *take;                 /* [ROWS_LD]: what the two are multiplied by */
} paged_space;

static int64_t paged_space_size(int64_t dim) {
  return 3 * row_panels_size(SPACE_ROWS, dim) + key_panels_size(NN_PAGE_TOKENS, dim) +
         row_panels_size(NN_PAGE_TOKENS, dim) + SPACE_ROWS * PAGE_LD + 6 * ROWS_LD;
}

static paged_space paged_space_at(float *at, int64_t dim) {
  paged_space w;
  w.q = at;
  w.part = w.q + row_panels_size(SPACE_ROWS, dim);
  w.out = w.part + row_panels_size(SPACE_ROWS, dim);
  w.keys = w.out + row_panels_size(SPACE_ROWS, dim);
  w.values = w.keys + key_panels_size(NN_PAGE_TOKENS, dim);
  w.scores = w.values + row_panels_size(NN_PAGE_TOKENS, dim);
  w.part_peak = w.scores + SPACE_ROWS * PAGE_LD;
  w.part_sum = w.part_peak + ROWS_LD;
  w.peak = w.part_sum + ROWS_LD;
  w.sum = w.peak + ROWS_LD;
  w.keep = w.sum + ROWS_LD;
  w.take = w.keep + ROWS_LD;
  return w;
}

/* Keys of its sequence that row `row` of a block sees. */
NN_INLINE int64_t keys_of_row(const paged *f, const paged_block *b, int64_t row) {
  const int64_t fresh = paged_new_tokens(&f->sequences, b->sequence);
  const int64_t length = f->sequences.lengths[b->sequence];
  return length == 0 ? 0 : length - fresh + 1 + (b->first + row) / f->group;
}

/* The first `keys` keys of a page for one key head, transposed. */
NN_INLINE void page_keys(float *panels, const char *from, int64_t row_bytes, int64_t keys, int64_t dim,
                         int32_t format) {
  for (int64_t key = 0; key < round_up(keys, NR); key += VF) {
    float *to = panels + key / NR * NR * dim + key % NR;
    for (int64_t d = 0; d < dim; d += VF) {
      vf x[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) {
        x[i] = key + i < keys ? page_columns(from + (key + i) * row_bytes, d, dim, format) : vf_set1(0.0f);
      }
      transpose(x);
      const int64_t columns = smaller(VF, dim - d);
      NN_UNROLL for (int i = 0; i < VF; i++) {
        if (i < columns) {
          vf_store(to + (d + i) * NR, x[i]);
        }
      }
    }
  }
}

NN_INLINE void page_values(float *panels, const char *from, int64_t row_bytes, int64_t keys, int64_t dim,
                           int32_t format) {
  for (int64_t key = 0; key < keys; key++) {
    for (int64_t d = 0; d < dim; d += VF) {
      vf_store(panels + (d / NR * NN_PAGE_TOKENS + key) * NR + d % NR,
               page_columns(from + key * row_bytes, d, dim, format));
    }
  }
}

/* The queries of a block times the factor, and nothing before the first page. */
NN_INLINE void paged_begin(const paged *f, const paged_block *b, int64_t kv_head, const paged_space *w, int32_t dtype) {
  const nn_attention_decode_paged_args *a = f->a;
  const int64_t dim = a->head_dim, token = paged_first_token(&f->sequences, b->sequence);
  const split_factor factor = split_double((double)a->scale * 1.4426950408889634);
  const vf high = vf_set1(factor.high), low = vf_set1(factor.low);
  for (int64_t r = 0; r < b->rows + TILE_ROWS_LOW; r++) {
    const int64_t row = b->first + r, head = kv_head * f->group + row % f->group;
    const int64_t at = (token + row / f->group) * a->ld_q + head * dim;
    for (int64_t d = 0; d < dim; d += VF) {
      vf x = vf_set1(0.0f);
      if (r < b->rows) {
        x = load_columns(a->q, at, d, dim, dtype);
      }
      vf_store(w->q + (d / NR * SPACE_ROWS + r) * NR + d % NR, vf_fma(x, high, x * low));
    }
  }
  memset(w->out, 0, (size_t)row_panels_size(SPACE_ROWS, dim) * sizeof(float));
  for (int64_t r = 0; r < ROWS_LD; r += VF) {
    vf_store(w->peak + r, vf_set1(-FLT_MAX));
    vf_store(w->sum + r, vf_set1(0.0f));
  }
}

/* Replaces the scores of rows first .. rows-1 by powers of two; row r has `seen` + (offset + r) / group keys. */
static void page_soften(const paged_space *w, int64_t first, int64_t rows, int64_t seen, int64_t offset,
                        int64_t group) {
  for (int64_t r = first; r < rows; r += VF) {
    vf lanes[VF];
    int64_t count[VF];
    for (int i = 0; i < VF; i++) {
      const float *scores = w->scores + (r + i) * PAGE_LD;
      count[i] = r + i < rows ? smaller(NN_PAGE_TOKENS, seen + (offset + r + i) / group) : 0;
      lanes[i] = vf_set1(-FLT_MAX);
      int64_t j = 0;
      for (; j + VF <= count[i]; j += VF) {
        lanes[i] = vf_max(vf_load(scores + j), lanes[i]);
      }
      if (j < count[i]) {
        lanes[i] = vf_max(vf_keep_part(vf_load(scores + j), count[i] - j, -FLT_MAX), lanes[i]);
      }
    }
    vf_store(w->part_peak + r, largest_each(lanes));
    for (int i = 0; i < VF; i++) {
      float *scores = w->scores + (r + i) * PAGE_LD;
      const vf shift = vf_set1(w->part_peak[r + i]);
      lanes[i] = vf_set1(0.0f);
      int64_t j = 0;
      for (; j + VF <= count[i]; j += VF) {
        const vf p = vf_exp2(vf_load(scores + j) - shift);
        lanes[i] = lanes[i] + p;
        vf_store(scores + j, p);
      }
      if (j < count[i]) {
        const vf p = vf_keep_part(vf_exp2(vf_load(scores + j) - shift), count[i] - j, 0.0f);
        lanes[i] = lanes[i] + p;
        vf_store(scores + j, p);
      }
    }
    vf_store(w->part_sum + r, sum_each(lanes));
  }
}

/* Goes on with the chain of one row, over keys from .. to-1. */
static void page_value_rest(float *part, const float *p, const float *values, int64_t from, int64_t to, int64_t dim) {
  for (int64_t d = 0; d < dim; d += VF) {
    float *at = part + d / NR * SPACE_ROWS * NR + d % NR;
    const float *v = values + d / NR * NN_PAGE_TOKENS * NR + d % NR;
    vf sum = vf_load(at);
    for (int64_t j = from; j < to; j++) {
      sum = vf_fma(vf_set1(p[j]), vf_load(v + j * NR), sum);
    }
    vf_store(at, sum);
  }
}

/* The page's part of the rows of a block that see any of its keys; returns the first of them. */
static int64_t paged_page(const paged *f, const paged_block *b, int64_t kv_head, int64_t page, const paged_space *w) {
  const nn_attention_decode_paged_args *a = f->a;
  const int64_t dim = a->head_dim, group = f->group, row_bytes = a->page_bytes / (a->kv_heads * NN_PAGE_TOKENS);
  /* Row r sees `seen` + (first + r) / group keys of this page, of which there are 128 at most. */
  const int64_t seen = keys_of_row(f, b, 0) - b->first / group - page * NN_PAGE_TOKENS;
  const int64_t keys = smaller(NN_PAGE_TOKENS, seen + (b->first + b->rows - 1) / group);
  const int64_t first = larger(0, (1 - seen) * group - b->first);
  const int64_t at =
      f->sequences.page_table[b->sequence * a->max_pages + page] * a->page_bytes + kv_head * NN_PAGE_TOKENS * row_bytes;
  NN_SWITCH_PAGE(a->format, {
    page_keys(w->keys, (const char *)a->k_pages + at, row_bytes, keys, dim, FORMAT);
    page_values(w->values, (const char *)a->v_pages + at, row_bytes, keys, dim, FORMAT);
  });
  int64_t height;
  for (int64_t r = first; r < b->rows; r += height) {
    height = tile_rows(b->rows - r);
    const int64_t most = smaller(keys, seen + (b->first + smaller(r + height, b->rows) - 1) / group);
    for (int64_t key = 0; key < most; key += NR) {
      const tile_args t = {.a = w->q + r * NR,
                           .b = w->keys + key * dim,
                           .c = w->scores + r * PAGE_LD + key,
                           .a_chunk = SPACE_ROWS * NR,
                           .depth = dim,
                           .chunk = NR,
                           .fresh = 1};
      page_score_tile(&t, height, 2);
    }
  }
  page_soften(w, first, b->rows, seen, b->first, group);
  for (int64_t r = first; r < b->rows; r += height) {
    height = tile_rows(b->rows - r);
    const int64_t least = smaller(keys, seen + (b->first + r) / group); /* what all rows of the tile see */
    for (int64_t panel = 0; panel * NR < dim; panel++) {
      const tile_args t = {.a = w->scores + r * PAGE_LD,
                           .b = w->values + panel * NN_PAGE_TOKENS * NR,
                           .c = w->part + (panel * SPACE_ROWS + r) * NR,
                           .depth = least,
                           .chunk = least,
                           .fresh = 1};
      page_value_tile(&t, height, panel_vectors(dim, panel));
    }
    for (int64_t i = r; i < smaller(r + height, b->rows); i++) {
      const int64_t count = smaller(keys, seen + (b->first + i) / group);
      if (count > least) {
        page_value_rest(w->part + i * NR, w->scores + i * PAGE_LD, w->values, least, count, dim);
      }
    }
  }
  return first;
}

/* Takes a page's part of rows first .. rows-1 into what there is. */
static void paged_merge(const paged_space *w, int64_t first, int64_t rows, int64_t dim) {
  for (int64_t r = first; r < rows; r += VF) {
    const vf old = vf_load(w->peak + r), fresh = vf_load(w->part_peak + r), peak = vf_max(fresh, old);
    const vf keep = vf_exp2(old - peak), take = vf_exp2(fresh - peak);
    vf_store(w->peak + r, peak);
    vf_store(w->keep + r, keep);
    vf_store(w->take + r, take);
    vf_store(w->sum + r, vf_fma(vf_load(w->sum + r), keep, vf_load(w->part_sum + r) * take));
  }
  for (int64_t r = first; r < rows; r++) {
    const vf keep = vf_set1(w->keep[r]), take = vf_set1(w->take[r]);
    for (int64_t d = 0; d < dim; d += VF) {
      const int64_t at = (d / NR * SPACE_ROWS + r) * NR + d % NR;
      vf_store(w->out + at, vf_fma(vf_load(w->out + at), keep, vf_load(w->part + at) * take));
    }
  }
}

NN_INLINE void paged_store(const paged *f, const paged_block *b, int64_t kv_head, const paged_space *w, int32_t dtype) {
  const nn_attention_decode_paged_args *a = f->a;
  const int64_t dim = a->head_dim, token = paged_first_token(&f->sequences, b->sequence);
  for (int64_t r = 0; r < b->rows; r++) {
    const int64_t row = b->first + r, head = kv_head * f->group + row % f->group;
    const int64_t to = ((token + row / f->group) * a->heads + head) * dim;
    const vf sum = vf_set1(b->pages == 0 ? 1.0f : w->sum[r]); /* without keys the output is zero */
    for (int64_t d = 0; d < dim; d += VF) {
      const vf x = vf_load(w->out + (d / NR * SPACE_ROWS + r) * NR + d % NR) / sum;
      if (d + VF <= dim) {
        vf_store_as(a->out, to + d, x, dtype);
      } else {
        vf_store_part_as(a->out, to + d, dim - d, x, dtype);
      }
    }
  }
}

/* All pages of a block and key head. */
static void paged_task(void *arg, int64_t i, int32_t worker) {
  const paged *f = arg;
  const nn_attention_decode_paged_args *a = f->a;
  const paged_block *b = &f->blocks[i / a->kv_heads];
  const int64_t kv_head = i % a->kv_heads, dim = a->head_dim;
  const paged_space w = paged_space_at(f->workspace + worker * f->workspace_size, dim);
  NN_SWITCH_DTYPE(a->dtype, paged_begin(f, b, kv_head, &w, DT));
  for (int64_t page = 0; page < b->pages; page++) {
    const int64_t first = paged_page(f, b, kv_head, page, &w);
    paged_merge(&w, first, b->rows, dim);
  }
  NN_SWITCH_DTYPE(a->dtype, paged_store(f, b, kv_head, &w, DT));
}

/* Blocks of a call: all rows of each sequence, those that see the most keys first. */
static int64_t paged_cut(const paged *f, paged_block *blocks) {
  int64_t count = 0;
  for (int64_t b = 0; b < f->sequences.batch; b++) {
    const int64_t rows = paged_new_tokens(&f->sequences, b) * f->group;
    for (int64_t first = (rows - 1) / TASK_ROWS * TASK_ROWS; rows > 0 && first >= 0; first -= TASK_ROWS) {
      if (blocks) {
        paged_block *block = &blocks[count];
        *block = (paged_block){.sequence = b, .first = first, .rows = smaller(TASK_ROWS, rows - first)};
        block->pages = ceil_div(keys_of_row(f, block, block->rows - 1), NN_PAGE_TOKENS);
      }
      count++;
    }
  }
  return count;
}

static int32_t paged_attention(nncuda_ctx *ctx, const nn_attention_decode_paged_args *a) {
  paged f = {.a = a,
             .sequences = {.offsets = a->offsets,
                           .lengths = a->lengths,
                           .page_table = a->page_table,
                           .tokens = a->tokens,
                           .batch = a->batch,
                           .max_pages = a->max_pages,
                           .pages = a->pages},
             .group = a->heads / a->kv_heads,
             .workspace_size = round_up(paged_space_size(a->head_dim), 16)};
  const int32_t status = check_sequences(ctx, &f.sequences, 1);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  f.count = paged_cut(&f, NULL);
  if (f.count == 0) {
    return NNCUDA_SUCCESS;
  }
  f.blocks = nn_scratch(ctx, (size_t)f.count * sizeof *f.blocks);
  f.workspace = nn_scratch(ctx, (size_t)(f.workspace_size * nn_threads(ctx)) * sizeof(float));
  if (!f.blocks || !f.workspace) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  paged_cut(&f, f.blocks);
  nn_parallel(ctx, f.count * a->kv_heads, paged_task, &f);
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(flash_attention_paged)(nncuda_ctx *ctx, const void *args) { return paged_attention(ctx, args); }

int32_t NN_KERNEL(attention_decode_paged)(nncuda_ctx *ctx, const void *args) { return paged_attention(ctx, args); }
