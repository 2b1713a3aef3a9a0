/*
 * Attention of some queries to one page of keys and values, and how pages come together (Dao 2023, "FlashAttention-2",
 * algorithm 1; Kwon et al. 2023, "PagedAttention").
 *
 * What a query gets does not depend on what else is in the call. For that its sums have one order, by the positions of
 * the keys alone, wherever they are computed:
 *
 *   score j       q . k_j, element after element, one chain of fma (scores are in units of ln 2)
 *   in a page     m = largest score, p_j = 2^(score j - m);
 *                 s = sum of p_j, lane j mod VF by itself, then the lanes as sum_each adds them;
 *                 o = sum of p_j v_j, key after key, one chain of fma
 *   over pages    in the order of the table, from (M, S, O) = (-FLT_MAX, 0, 0):
 *                 M' = max(M, m), a = 2^(M - M'), b = 2^(m - M'), S' = fma(S, a, s b), O' = fma(O, a, o b);
 *                 the result is O / S
 *
 * Keys that a query does not see take no part: not even times zero, since what is stored for later tokens may be
 * infinite. So it does not matter how rows are grouped into tiles, nor in which form a page's numbers are when they are
 * multiplied. With a window a row's keys begin within a page, and its merge with the first page that has any.
 */
#ifndef NN_CPU_ATTENTION_PAGE_H
#define NN_CPU_ATTENTION_PAGE_H

#include "attention_pack.h"
#include "attention_page_keys.h"

#include <float.h>

enum {
  PAGE_LD = NN_PAGE_TOKENS + 16, /* between rows of scores; the padding as in attention_tile.h */
  /* Rows up to which values go straight from the page into products, and keys beside that past page_scores. */
  PAGE_STRAIGHT_ROWS = VF == 8 ? VF : ATTN_TILE_ROWS,
  PAGE_SCORE_ROWS = VF == 8 ? VF : ATTN_TILE_ROWS_MID
};

/* Queries and what becomes of them. Row panels are `height` rows high: tiles begin at any row, and the last one may
 * reach beyond the rows that there are. For the same reason vectors over the rows have room for VF more. */
typedef struct page_space {
  int64_t rows, height;
  float *q, *keys, *values;           /* row panels; one key panel; row panels of 128 */
  float *scores;                      /* [height][PAGE_LD] */
  float *part, *part_peak, *part_sum; /* of one page: row panels, and a number a row */
  float *out, *peak, *sum;            /* of the pages so far */
  float *old_factor, *new_factor;     /* what the two are multiplied by when they are merged */
  float cap;                          /* scores become cap * tanh(score), unless it is 0 */
} page_space;

/* A page of one key head. */
typedef struct page_rows {
  const char *k, *v;           /* the rows of the first token */
  const char *next_k, *next_v; /* those of the page that is needed after this one, or null */
  int64_t row_bytes, dim;
  int64_t step;    /* bytes from a row to the next */
  int64_t rows;    /* that are memory, whether seen or not */
  int32_t fetched; /* 1: this page is the next one of the page before */
} page_rows;

NN_PLAIN NN_INLINE int64_t page_height(int64_t rows) { return rows + ATTN_TILE_ROWS_LOW; }
NN_PLAIN NN_INLINE int64_t page_row_count(int64_t rows) { return nn_round_up(rows + VF, VF); }

/* Floats of a page's part, or of what was merged. */
NN_PLAIN NN_INLINE int64_t page_part_size(int64_t rows, int64_t dim) {
  return row_panels_size(page_height(rows), dim) + 2 * page_row_count(rows);
}

NN_PLAIN NN_INLINE int64_t page_space_size(int64_t rows, int64_t dim) {
  const int64_t height = page_height(rows);
  return row_panels_size(height, dim) + ATTN_NR * dim + row_panels_size(NN_PAGE_TOKENS, dim) + height * PAGE_LD +
         2 * page_part_size(rows, dim) + 2 * page_row_count(rows);
}

/* Where a page's part goes. */
NN_INLINE void page_part_at(page_space *w, float *at, int64_t dim) {
  w->part = at;
  w->part_peak = at + row_panels_size(w->height, dim);
  w->part_sum = w->part_peak + page_row_count(w->rows);
}

NN_INLINE page_space page_space_at(float *at, int64_t rows, int64_t dim) {
  page_space w = {.rows = rows, .height = page_height(rows)};
  w.q = at;
  w.keys = w.q + row_panels_size(w.height, dim);
  w.values = w.keys + ATTN_NR * dim;
  w.scores = w.values + row_panels_size(NN_PAGE_TOKENS, dim);
  w.out = w.scores + w.height * PAGE_LD;
  w.peak = w.out + row_panels_size(w.height, dim);
  w.sum = w.peak + page_row_count(rows);
  w.old_factor = w.sum + page_row_count(rows);
  w.new_factor = w.old_factor + page_row_count(rows);
  page_part_at(&w, w.new_factor + page_row_count(rows), dim);
  return w;
}

/* ---- scores ---- */

NN_TILE(page_score_tile, ATTN_NR, 1, PAGE_LD)

/*
 * Of few rows, a page is fetched while the one before it is computed, and that evenly: fetched all at once, or later,
 * it would be waited for, since only so many lines can be under way.
 */
NN_INLINE void page_fetch(const char *from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(from + i, 0, 2);
  }
}

/* The same of some rows. */
NN_INLINE void page_fetch_rows(const page_rows *page, const char *from, int64_t rows) {
  const int32_t whole = page->step == page->row_bytes;
  const int64_t pieces = whole ? 1 : rows, bytes = whole ? rows * page->row_bytes : page->row_bytes;
  for (int64_t i = 0; i < pieces; i++, from += page->step) {
    page_fetch(from, bytes);
  }
}

/* Keys key .. key+ATTN_NR-1 of a page, transposed; zeros from `keys` on. */
NN_INLINE void page_keys(float *panel, const page_rows *page, int64_t key, int64_t keys, int32_t format) {
  for (int64_t first = key; first < key + ATTN_NR; first += VF, panel += VF) {
    const char *from = page->k + first * page->step;
    for (int64_t d = 0; d < page->dim; d += VF) {
      if (first + VF <= keys && d + VF <= page->dim) {
        page_turn_floats(panel + d * ATTN_NR, from, page->step, d, format);
        continue;
      }
      vf x[VF];
      for (int i = 0; i < VF; i++) {
        x[i] = vf_set1(0.0f);
        if (first + i < keys) {
          x[i] = page_columns(from + i * page->step, d, page->dim, format);
        }
      }
      transpose(x);
      const int64_t columns = nn_min(VF, page->dim - d);
      NN_UNROLL for (int i = 0; i < VF; i++) {
        if (i < columns) {
          vf_store(panel + (d + i) * ATTN_NR, x[i]);
        }
      }
    }
  }
}

/* Which keys of a page row r sees: the last `window` of the first seen + (offset + r) / group, as far as they are in
 * it.
 */
typedef struct page_sight {
  int64_t seen, offset, group, window;
} page_sight;

/* The end of them, not above 128; none if it is not positive. */
NN_INLINE int64_t page_keys_of(page_sight s, int64_t row) {
  return nn_min(NN_PAGE_TOKENS, s.seen + (s.offset + row) / s.group);
}

/* The first of them; none if it is not below 128. */
NN_INLINE int64_t page_key_from(page_sight s, int64_t row) {
  return s.window == PAGED_ALL ? 0 : nn_max(0, s.seen + (s.offset + row) / s.group - s.window);
}

/* The first row that sees any. */
NN_INLINE int64_t page_first_row(page_sight s) { return nn_max(0, (1 - s.seen) * s.group - s.offset); }

/* The same rows, without those behind whose window begins after the page: in `seeing`, or all of them as they are. */
NN_INLINE const page_space *page_seeing_rows(const page_space *w, page_sight s, page_space *seeing) {
  if (s.window == PAGED_ALL) {
    return w;
  }
  *seeing = *w;
  seeing->rows = nn_min(w->rows, (NN_PAGE_TOKENS + s.window - s.seen) * s.group - s.offset);
  return seeing;
}

/* Scores of rows first .. rows-1. While they are computed, the values are fetched. */
NN_INLINE void page_scores(const page_space *w, const page_rows *page, page_sight sight, int64_t first,
                           int32_t format) {
  const int64_t keys = page_keys_of(sight, w->rows - 1), from = page_key_from(sight, first);
  for (int64_t key = from / ATTN_NR * ATTN_NR; key < keys; key += ATTN_NR) {
    page_fetch_rows(page, page->v + key * page->step, nn_min(ATTN_NR, keys - key));
    page_keys(w->keys, page, key, keys, format);
    int64_t height;
    for (int64_t r = first; r < w->rows; r += height) {
      height = tile_rows(w->rows - r);
      if (page_keys_of(sight, nn_min(r + height, w->rows) - 1) <= key) {
        continue;
      }
      const tile_args t = {.a = w->q + r * ATTN_NR,
                           .b = w->keys,
                           .c = w->scores + r * PAGE_LD + key,
                           .a_chunk = w->height * ATTN_NR,
                           .depth = page->dim,
                           .chunk = ATTN_NR,
                           .fresh = 1};
      page_score_tile(&t, height, 2);
    }
  }
}

/* Of the keys from `key` on, a panel of them; those beyond the page's last one get scores that nobody reads. */
NN_INLINE void page_score_panel(const page_space *w, const page_rows *page, int64_t key, int rows, int32_t format) {
  const int32_t stored = page_panel_format(format);
  const int columns = page_panel_columns(format);
  /* Of the next page's keys a share beside each column, hence a row beside dim / PAGE_PANEL_KEYS columns; where there
   * is no such page, nothing of these. */
  int64_t share = 0, gap = 0, left = page->dim;
  const char *next = page->k;
  if (page->next_k) {
    share = PAGE_PANEL_KEYS * page->row_bytes / page->dim;
    gap = page->step - page->row_bytes;
    left = page->dim / PAGE_PANEL_KEYS;
    next = page->next_k + key * page->step;
  }
  const int64_t columns_a_row = left;
  page_panel panel;
  vf acc[ATTN_TILE_ROWS_MID][2];
  NN_UNROLL for (int r = 0; r < rows; r++) { acc[r][0] = acc[r][1] = vf_set1(0.0f); }
  for (int64_t d = 0; d < page->dim; d += columns) {
    page_fill_panel(&panel, page->k + key * page->step, page->step, d, format);
    __asm__("" : "+m"(panel)); /* the panel is memory: kept in registers, it would push the sums out of them */
    const float *q = w->q + d / ATTN_NR * w->height * ATTN_NR + d % ATTN_NR;
    NN_UNROLL for (int c = 0; c < columns; c++, next += share) {
      page_fetch(next, share);
      if (--left == 0) {
        next += gap;
        left = columns_a_row;
      }
      const vf low = page_panel_load(&panel, c, 0, stored), high = page_panel_load(&panel, c, 1, stored);
      NN_UNROLL for (int r = 0; r < rows; r++) {
        const vf one = vf_set1(q[r * ATTN_NR + c]);
        acc[r][0] = vf_fma(one, low, acc[r][0]);
        acc[r][1] = vf_fma(one, high, acc[r][1]);
      }
    }
  }
  NN_UNROLL for (int r = 0; r < rows; r++) {
    vf_store(w->scores + r * PAGE_LD + key, acc[r][0]);
    vf_store(w->scores + r * PAGE_LD + key + VF, acc[r][1]);
  }
}

/* Queries side by side: element (d, row) at [d * VF + row]. */
NN_INLINE void page_turn_queries(const page_space *w, float *turned, int64_t dim) {
  for (int64_t d = 0; d < dim; d += VF) {
    vf x[VF];
    NN_UNROLL for (int64_t r = 0; r < VF; r++) {
      x[r] = vf_load(w->q + (d / ATTN_NR * w->height + nn_min(r, w->rows - 1)) * ATTN_NR + d % ATTN_NR);
    }
    transpose(x);
    NN_UNROLL for (int i = 0; i < VF; i++) { vf_store(turned + (d + i) * VF, x[i]); }
  }
}

/*
 * Of VF keys from `key` on, and of as many rows as a vector has lanes: with the rows in the lanes, keys need not be
 * turned. Each multiply-add loads a key's element then, which is all that two loads a cycle leave room for.
 */
NN_INLINE void page_score_lanes(const page_space *w, const page_rows *page, const float *queries, int64_t key,
                                int32_t format) {
  enum { LD = ATTN_MAX_HEAD_DIM + 16 }; /* not a power of two: keys would share sets of the cache */
  const char *from = page->k + key * page->step;
  float keys[VF * LD];
  for (int i = 0; i < VF; i++, from += page->step) {
    if (page->next_k) {
      page_fetch(page->next_k + (key + i) * page->step, page->row_bytes);
    }
    for (int64_t d = 0; d < page->dim; d += VF) {
      vf_store(keys + i * LD + d, page_whole_columns(from, d, format));
    }
  }
  vf scores[VF];
  NN_UNROLL for (int i = 0; i < VF; i++) { scores[i] = vf_set1(0.0f); }
#pragma GCC unroll 4
  for (int64_t d = 0; d < page->dim; d++) {
    const vf q = vf_load(queries + d * VF);
    NN_UNROLL for (int i = 0; i < VF; i++) { scores[i] = vf_fma(q, vf_set1(keys[i * LD + d]), scores[i]); }
  }
  transpose(scores);
  NN_UNROLL for (int r = 0; r < VF; r++) {
    if (r < w->rows) {
      vf_store(w->scores + r * PAGE_LD + key, scores[r]);
    }
  }
}

/* Of at most PAGE_SCORE_ROWS rows that all see the keys from .. keys-1. */
NN_INLINE void page_scores_straight(const page_space *w, const page_rows *page, int64_t from, int64_t keys,
                                    int32_t format) {
  float queries[ATTN_MAX_HEAD_DIM * VF];
  const int32_t lanes = VF == 8 && w->rows > ATTN_TILE_ROWS_MID;
  if (lanes) {
    page_turn_queries(w, queries, page->dim);
  }
  for (int64_t key = from / PAGE_PANEL_KEYS * PAGE_PANEL_KEYS; key < keys; key += PAGE_PANEL_KEYS) {
    if (!page->fetched) {
      page_fetch_rows(page, page->v + key * page->step, PAGE_PANEL_KEYS);
    }
    if (lanes) {
      page_score_lanes(w, page, queries, key, format);
      page_score_lanes(w, page, queries, key + VF, format);
      continue;
    }
    if (w->rows > ATTN_TILE_ROWS_LOW) {
      page_score_panel(w, page, key, ATTN_TILE_ROWS_MID, format);
    } else if (w->rows > 1) {
      page_score_panel(w, page, key, ATTN_TILE_ROWS_LOW, format);
    } else {
      page_score_panel(w, page, key, 1, format);
    }
  }
}

/* ---- softmax ---- */

/* Bounds the scores of rows first .. rows-1, those of their panels that nobody reads with them. */
static void page_cap(const page_space *w, page_sight sight, int64_t first) {
  const vf cap = vf_set1(w->cap);
  for (int64_t r = first; r < w->rows; r++) {
    float *scores = w->scores + r * PAGE_LD;
    for (int64_t j = page_key_from(sight, r) / VF * VF; j < page_keys_of(sight, r); j += VF) {
      vf_store(scores + j, vf_mul(cap, vf_tanh(vf_load(scores + j))));
    }
  }
}

/* The keys before the window of each row have the power 0. */
static void page_hide(const page_space *w, page_sight sight, int64_t first) {
  for (int64_t r = first; r < w->rows; r++) {
    const int64_t from = page_key_from(sight, r);
    for (int64_t j = 0; j < from; j++) {
      w->scores[r * PAGE_LD + j] = -INFINITY;
    }
  }
}

/* Replaces the scores of rows first .. rows-1 by powers of two. */
static void page_soften(const page_space *w, page_sight sight, int64_t first) {
  for (int64_t r = first; r < w->rows; r += VF) {
    vf lanes[VF];
    int64_t count[VF];
    for (int i = 0; i < VF; i++) {
      const float *scores = w->scores + (r + i) * PAGE_LD;
      count[i] = r + i < w->rows ? page_keys_of(sight, r + i) : 0;
      vf a = vf_set1(-FLT_MAX), b = a;
      int64_t j = 0;
      for (; j + 2 * VF <= count[i]; j += 2 * VF) {
        a = vf_max(vf_load(scores + j), a);
        b = vf_max(vf_load(scores + j + VF), b);
      }
      for (; j < count[i]; j += VF) {
        a = vf_max(vf_keep_part(vf_load(scores + j), nn_min(VF, count[i] - j), -FLT_MAX), a);
      }
      lanes[i] = vf_max(a, b);
    }
    vf_store(w->part_peak + r, largest_each(lanes));
    for (int i = 0; i < VF; i++) {
      float *scores = w->scores + (r + i) * PAGE_LD;
      const vf shift = vf_set1(w->part_peak[r + i]);
      vf sum = vf_set1(0.0f);
      int64_t j = 0;
      for (; j + VF <= count[i]; j += VF) {
        const vf p = vf_exp2(vf_sub(vf_load(scores + j), shift));
        sum = vf_add(sum, p);
        vf_store(scores + j, p);
      }
      if (j < count[i]) {
        const vf p = vf_keep_part(vf_exp2(vf_sub(vf_load(scores + j), shift)), count[i] - j, 0.0f);
        sum = vf_add(sum, p);
        vf_store(scores + j, p);
      }
      lanes[i] = sum;
    }
    vf_store(w->part_sum + r, sum_each(lanes));
  }
}

/* ---- output ---- */

NN_TILE(page_value_tile, PAGE_LD, 1, ATTN_NR)

NN_INLINE void page_values(float *panels, const page_rows *page, int64_t from, int64_t keys, int32_t format) {
  for (int64_t key = from; key < keys; key++) {
    for (int64_t d = 0; d < page->dim; d += VF) {
      vf_store(panels + (d / ATTN_NR * NN_PAGE_TOKENS + key) * ATTN_NR + d % ATTN_NR,
               page_columns(page->v + key * page->step, d, page->dim, format));
    }
  }
}

/* Goes on with the chain of one row, over keys from .. to-1. */
static void page_value_rest(float *part, const float *p, const float *values, int64_t height, int64_t from, int64_t to,
                            int64_t dim) {
  for (int64_t d = 0; d < dim; d += VF) {
    float *at = part + d / ATTN_NR * height * ATTN_NR + d % ATTN_NR;
    const float *v = values + d / ATTN_NR * NN_PAGE_TOKENS * ATTN_NR + d % ATTN_NR;
    vf sum = vf_load(at);
    for (int64_t j = from; j < to; j++) {
      sum = vf_fma(vf_set1(p[j]), vf_load(v + j * ATTN_NR), sum);
    }
    vf_store(at, sum);
  }
}

/* Whether the values of keys from .. to-1 are finite: then 0 times them changes no sum. */
static int32_t page_values_finite(const page_space *w, int64_t from, int64_t to, int64_t dim) {
  vf zeros = vf_set1(0.0f);
  for (int64_t d = 0; d < dim; d += VF) {
    const float *v = w->values + d / ATTN_NR * NN_PAGE_TOKENS * ATTN_NR + d % ATTN_NR;
    for (int64_t j = from; j < to; j++) {
      zeros = vf_fma(vf_load(v + j * ATTN_NR), vf_set1(0.0f), zeros);
    }
  }
  return vf_sum(zeros) == 0.0f;
}

/* What the chains of rows r .. end-1 begin with. */
static void page_value_nothing(const page_space *w, int64_t r, int64_t end, int64_t dim) {
  for (int64_t d = 0; d < dim; d += VF) {
    for (int64_t i = r; i < end; i++) {
      vf_store(w->part + (d / ATTN_NR * w->height + i) * ATTN_NR + d % ATTN_NR, vf_set1(0.0f));
    }
  }
}

/* Of many rows: the values are converted once for all tiles. */
NN_INLINE void page_output_packed(const page_space *w, const page_rows *page, page_sight sight, int64_t first,
                                  int32_t format) {
  const int64_t from = page_key_from(sight, first);
  page_values(w->values, page, from, page_keys_of(sight, w->rows - 1), format);
  const int64_t last = page_key_from(sight, w->rows - 1);
  const int32_t together = from == last || page_values_finite(w, from, last, page->dim);
  int64_t height;
  for (int64_t r = first; r < w->rows; r += height) {
    height = tile_rows(w->rows - r);
    const int64_t end = nn_min(r + height, w->rows), begin = page_key_from(sight, r);
    int64_t least = page_keys_of(sight, r); /* what all rows of the tile see, or have a power of 0 for */
    if (!together && page_key_from(sight, end - 1) > begin) {
      page_value_nothing(w, r, end, page->dim);
      least = begin;
    }
    for (int64_t panel = 0; panel * ATTN_NR < page->dim && least > begin; panel++) {
      const tile_args t = {.a = w->scores + r * PAGE_LD + begin,
                           .b = w->values + (panel * NN_PAGE_TOKENS + begin) * ATTN_NR,
                           .c = w->part + (panel * w->height + r) * ATTN_NR,
                           .depth = least - begin,
                           .chunk = least - begin,
                           .fresh = 1};
      page_value_tile(&t, height, panel_vectors(page->dim, panel));
    }
    for (int64_t i = r; i < end; i++) {
      const int64_t count = page_keys_of(sight, i), rest = least > begin ? least : page_key_from(sight, i);
      if (count > rest) {
        page_value_rest(w->part + i * ATTN_NR, w->scores + i * PAGE_LD, w->values, w->height, rest, count, page->dim);
      }
    }
  }
}

/* Vectors `vector` .. of rows `rows` from row r on, straight from the page. */
NN_INLINE void page_output_tile(const page_space *w, const page_rows *page, int64_t r, int64_t vector, int64_t begin,
                                int64_t keys, int rows, int vectors, int32_t format) {
  vf acc[ATTN_TILE_ROWS_MID][4];
  NN_UNROLL for (int i = 0; i < rows; i++) {
    NN_UNROLL for (int v = 0; v < vectors; v++) { acc[i][v] = vf_set1(0.0f); }
  }
  const float *p = w->scores + r * PAGE_LD;
  const char *from = page->v + begin * page->step;
  /* Of the next page's values a share beside each key, in the order of memory or, where rows lie apart, these vectors
   * of a row; where there is no such page, nothing of these. */
  int64_t share = 0, next_step = 0;
  const char *next = page->v;
  if (r == 0 && page->next_v) {
    const int32_t whole = page->step == page->row_bytes;
    share = vectors * VF * page->row_bytes / page->dim;
    next_step = whole ? share : page->step;
    next = page->next_v + vector * VF * page->row_bytes / page->dim * (whole ? NN_PAGE_TOKENS : 1);
  }
  for (int64_t j = begin; j < keys; j++, from += page->step, next += next_step) {
    page_fetch(next, share);
    vf x[4];
    NN_UNROLL for (int v = 0; v < vectors; v++) { x[v] = page_whole_columns(from, (vector + v) * VF, format); }
    NN_UNROLL for (int i = 0; i < rows; i++) {
      const vf weight = vf_set1(p[i * PAGE_LD + j]);
      NN_UNROLL for (int v = 0; v < vectors; v++) { acc[i][v] = vf_fma(weight, x[v], acc[i][v]); }
    }
  }
  NN_UNROLL for (int i = 0; i < rows; i++) {
    NN_UNROLL for (int v = 0; v < vectors; v++) {
      const int64_t d = (vector + v) * VF;
      vf_store(w->part + (d / ATTN_NR * w->height + r + i) * ATTN_NR + d % ATTN_NR, acc[i][v]);
    }
  }
}

/* Of so few rows that each number of the page is needed by a tile or two: nothing is stored in between. All rows see
 * the keys from .. keys-1. */
NN_INLINE void page_output_straight(const page_space *w, const page_rows *page, int64_t from, int64_t keys,
                                    int32_t format) {
  for (int64_t vector = 0; vector * VF < page->dim;) {
    const int64_t left = page->dim / VF - vector;
    if (w->rows == 1 && left >= 4) {
      page_output_tile(w, page, 0, vector, from, keys, 1, 4, format);
      vector += 4;
      continue;
    }
    const int64_t vectors = left >= 2 ? 2 : 1;
    for (int64_t r = 0; r < w->rows;) {
      const int64_t rows = w->rows - r > ATTN_TILE_ROWS_LOW ? ATTN_TILE_ROWS_MID : ATTN_TILE_ROWS_LOW;
      if (rows == ATTN_TILE_ROWS_MID && vectors == 2) {
        page_output_tile(w, page, r, vector, from, keys, ATTN_TILE_ROWS_MID, 2, format);
      } else if (rows == ATTN_TILE_ROWS_MID) {
        page_output_tile(w, page, r, vector, from, keys, ATTN_TILE_ROWS_MID, 1, format);
      } else if (vectors == 2) {
        page_output_tile(w, page, r, vector, from, keys, ATTN_TILE_ROWS_LOW, 2, format);
      } else {
        page_output_tile(w, page, r, vector, from, keys, ATTN_TILE_ROWS_LOW, 1, format);
      }
      r += rows;
    }
    vector += vectors;
  }
}

NN_INLINE void page_part_of(const page_space *w, const page_rows *page, page_sight sight, const int32_t format) {
  const int64_t first = page_first_row(sight), keys = page_keys_of(sight, w->rows - 1);
  const int64_t from = page_key_from(sight, first), last = page_key_from(sight, w->rows - 1);
  const int32_t straight =
      w->rows <= PAGE_STRAIGHT_ROWS && page->dim % VF == 0 && page_keys_of(sight, 0) == keys && from == last;
  if (straight && w->rows <= PAGE_SCORE_ROWS && page->dim % PAGE_PANEL_COLUMNS == 0 &&
      nn_round_up(keys, PAGE_PANEL_KEYS) <= page->rows) {
    page_scores_straight(w, page, from, keys, format);
  } else {
    page_scores(w, page, sight, first, format);
  }
  if (w->cap != 0.0f) {
    page_cap(w, sight, first);
  }
  if (last > 0) {
    page_hide(w, sight, first);
  }
  page_soften(w, sight, first);
  if (straight) {
    page_output_straight(w, page, from, keys, format);
  } else {
    if (page->next_k) {
      page_fetch_rows(page, page->next_k, ATTN_NR);
    }
    page_output_packed(w, page, sight, first, format);
  }
}

/* Each format in a function of its own: all in one take the compiler longer, and run no faster. */
#define PAGE_PART(name)                                                                                                \
  static                                                                                                               \
      __attribute__((noinline)) void page_part_##name(const page_space *w, const page_rows *page, page_sight sight) {  \
    page_part_of(w, page, sight, NNCUDA_FORMAT_##name);                                                                \
  }
PAGE_PART(F32)
PAGE_PART(F16)
PAGE_PART(BF16)
PAGE_PART(E4M3)
PAGE_PART(Q8_0)
#undef PAGE_PART

/* The page's part of the rows that see any of its keys. */
static void page_part(const page_space *all, const page_rows *page, page_sight sight, int32_t page_format) {
  page_space seeing;
  const page_space *w = page_seeing_rows(all, sight, &seeing);
  switch (page_format) {
#define CASE(name)                                                                                                     \
  case NNCUDA_FORMAT_##name:                                                                                           \
    page_part_##name(w, page, sight);                                                                                  \
    break;
    CASE(F32)
    CASE(F16)
    CASE(BF16)
    CASE(E4M3)
#undef CASE
  default:
    page_part_Q8_0(w, page, sight);
  }
}

/* ---- pages together ---- */

static void page_nothing(const page_space *w, int64_t dim) {
  memset(w->out, 0, (size_t)row_panels_size(w->height, dim) * sizeof(float));
  for (int64_t r = 0; r < page_row_count(w->rows); r += VF) {
    vf_store(w->peak + r, vf_set1(-FLT_MAX));
    vf_store(w->sum + r, vf_set1(0.0f));
  }
}

/* Takes a page's part of the rows that see any of it into what there is. */
static void page_merge(const page_space *all, page_sight sight, int64_t dim) {
  page_space seeing;
  const page_space *w = page_seeing_rows(all, sight, &seeing);
  const int64_t first = page_first_row(sight);
  for (int64_t r = first; r < w->rows; r += VF) {
    const vf old = vf_load(w->peak + r), fresh = vf_load(w->part_peak + r), peak = vf_max(fresh, old);
    const vf old_factor = vf_exp2(vf_sub(old, peak)), new_factor = vf_exp2(vf_sub(fresh, peak));
    vf_store(w->peak + r, peak);
    vf_store(w->old_factor + r, old_factor);
    vf_store(w->new_factor + r, new_factor);
    vf_store(w->sum + r, vf_fma(vf_load(w->sum + r), old_factor, vf_mul(vf_load(w->part_sum + r), new_factor)));
  }
  for (int64_t d = 0; d < dim; d += VF) {
    const int64_t panel = d / ATTN_NR * w->height * ATTN_NR + d % ATTN_NR;
    for (int64_t r = first; r < w->rows; r++) {
      float *out = w->out + panel + r * ATTN_NR;
      vf_store(out, vf_fma(vf_load(out), vf_set1(w->old_factor[r]),
                           vf_mul(vf_load(w->part + panel + r * ATTN_NR), vf_set1(w->new_factor[r]))));
    }
  }
}

#endif
