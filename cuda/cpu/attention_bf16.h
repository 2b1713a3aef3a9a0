/*
 * The packed forms of bf16 that attention's products by the tile registers of AMX read, and what they share. Sums are
 * f32.
 *
 * Scores are computed transposed, keys down and queries across: what belongs to a query (its largest score, its sum,
 * its log-sum-exp) then lies in a lane of a vector, and probabilities leave the softmax as both kinds of factor that
 * the next products read, without a transpose. Factors are made of units, two bf16 that follow each other along the
 * depth of the product:
 *   rows   [rows][step]             unit p of row r at r * step + p: the left factor
 *   lanes  [lanes / VF][units][VF]  unit p of lane l at panel l / VF, p, l % VF: the right factor
 * Both are filled up with zeros to whole tiles of 32, so that no product has a rest.
 */
#ifndef NN_CPU_ATTENTION_BF16_H
#define NN_CPU_ATTENTION_BF16_H

#include "amx.h"
#include "attention_pack.h"
#include "attention_starts.h"
#include "attention_units.h"

#include <string.h>

/*
 * BF16_QUERIES is the width of a block of scores; BF16_TILE what rows and lanes are filled up to, and twice the depth
 * of a step of tile registers.
 *
 * Milliseconds of one core's time on a busy machine, for 8 sequences of 256 tokens, causal, 4 heads of 64 on one key
 * head:
 *   products of f32 after widening (attention_flash.c, attention_backward.c)      forward 3.1   gradients 9.0
 *   dot products of vectors (AVX512_BF16) on these forms                                  4.9            17.4
 *   tile registers, each head leaving its dK and dV for a second pass                     1.1             4.2
 *   tile registers, the heads of a key head in one task (attention_backward_bf16.c)                       2.9
 * Of the 2.9 about 1.5 go to the products, whose factors come from L2, and 0.6 to the softmax. That core's dot products
 * of vectors do no more than its multiply-adds. Where they do twice as much (Zen 5), attention_flash.c and
 * attention_backward.c use them, on forms of their own.
 */
enum { BF16_TILE = 32, BF16_QUERIES = 64, BF16_PANELS = BF16_QUERIES / VF };

NN_PLAIN NN_INLINE int64_t whole(int64_t n) { return nn_round_up(n, BF16_TILE); }

NN_INLINE void store_units(unit *to, vf x) { _mm512_storeu_si512(to, _mm512_castps_si512(x)); }

/* Rows with the depth along them as they lie: `padded` rows of whole(dim) / 2 units. */
NN_INLINE void copy_rows(unit *to, const uint16_t *x, int64_t ld, int64_t rows, int64_t padded, int64_t dim) {
  const int64_t step = whole(dim) / BF16_PAIR;
  for (int64_t r = 0; r < padded; r++) {
    for (int64_t d = 0; d < dim; d += BF16_TILE) {
      store_units(to + r * step + d / BF16_PAIR, r < rows ? row_units(x + r * ld, d, dim) : vf_set1(0.0f));
    }
  }
}

/* Rows as lanes, the depth along them. */
NN_INLINE void rows_to_lanes(unit *to, const uint16_t *x, int64_t ld, int64_t rows, int64_t padded, int64_t dim) {
  const int64_t units = whole(dim) / BF16_PAIR;
  for (int64_t r = 0; r < padded; r += VF) {
    for (int64_t d = 0; d < dim; d += BF16_TILE) {
      vf y[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) {
        y[i] = r + i < rows ? row_units(x + (r + i) * ld, d, dim) : vf_set1(0.0f);
      }
      transpose(y);
      NN_UNROLL for (int i = 0; i < VF; i++) { store_units(to + r * units + (d / BF16_PAIR + i) * VF, y[i]); }
    }
  }
}

/* Columns as lanes, the depth down the rows. */
NN_INLINE void columns_to_lanes(unit *to, const uint16_t *x, int64_t ld, int64_t rows, int64_t padded, int64_t dim) {
  const int64_t units = padded / BF16_PAIR;
  for (int64_t p = 0; p < units; p++) {
    for (int64_t d = 0; d < whole(dim); d += VF) {
      store_units(to + d * units + p * VF, column_units(x, ld, p, rows, d, dim));
    }
  }
}

/* Columns as rows, `step` units apart, the depth down the rows. */
NN_INLINE void columns_to_rows(unit *to, int64_t step, const uint16_t *x, int64_t ld, int64_t rows, int64_t padded,
                               int64_t dim) {
  for (int64_t p = 0; p < padded / BF16_PAIR; p += VF) {
    for (int64_t d = 0; d < whole(dim); d += VF) {
      vf y[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) { y[i] = column_units(x, ld, p + i, rows, d, dim); }
      transpose(y);
      NN_UNROLL for (int i = 0; i < VF; i++) { store_units(to + (d + i) * step + p, y[i]); }
    }
  }
}

/* Sums of columns, `step` apart, in panels of VF lanes, `panel` apart, times a factor a lane, into `rows` rows of bf16.
 * The first `blind` rows become zeros. */
NN_INLINE void store_lanes(uint16_t *to, int64_t ld, const float *sums, int64_t step, int64_t panel, const vf *factor,
                           int64_t blind, int64_t rows, int64_t dim) {
  for (int64_t v = 0; v * VF < rows; v++) {
    for (int64_t d = 0; d < dim; d += VF) {
      vf x[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) { x[i] = vf_load(sums + (d + i) * step + v * panel) * factor[v]; }
      transpose(x);
      for (int64_t i = 0; i < nn_min(VF, rows - v * VF); i++) {
        const int64_t r = v * VF + i;
        const vf y = r < blind ? vf_set1(0.0f) : x[i];
        if (d + VF <= dim) {
          vf_to_bf16(to + r * ld + d, y);
        } else {
          vf_store_part_as(to, r * ld + d, dim - d, y, NNCUDA_BF16);
        }
      }
    }
  }
}

/*
 * The keys that query r of a block sees: the first `seen` + r with the causal mask, and in any case `keys`, but none
 * before its document. Keys are counted from `key` of the sequence on; `starts` are those of `rows` queries, or null.
 * Lanes from `rows` on are no queries, whatever they see.
 */
typedef struct sight {
  int64_t seen, keys;
  int32_t causal;
  const int32_t *starts;
  int64_t key, rows;
} sight;

/* Keys that the causal mask lets all the queries of lanes r .. r+15 see, and any of them. */
NN_INLINE int64_t seen_by_all(const sight *s, int64_t r) {
  return nn_max(0, s->causal ? nn_min(s->keys, s->seen + r) : s->keys);
}
NN_INLINE int64_t seen_by_any(const sight *s, int64_t r) {
  return nn_max(0, s->causal ? nn_min(s->keys, s->seen + r + VF - 1) : s->keys);
}

/* Keys before the documents of all queries of `lanes` lanes from r on, whole pairs of them; and of any of them. */
NN_INLINE int64_t before_all(const sight *s, int64_t r) {
  return s->starts && r < s->rows ? keys_before(s->starts, r, s->key, s->keys) / BF16_PAIR * BF16_PAIR : 0;
}
NN_INLINE int64_t before_any(const sight *s, int64_t r, int64_t lanes) {
  return s->starts && r < s->rows ? keys_before(s->starts, nn_min(r + lanes, s->rows) - 1, s->key, s->keys) : 0;
}

/* Which of the queries r .. r+15 see key j. */
NN_INLINE __mmask16 seeing(const sight *s, int64_t r, int64_t j) {
  if (j >= s->keys) {
    return 0;
  }
  const int64_t hidden = s->causal ? j - s->seen + 1 - r : 0; /* the first lanes, that do not */
  __mmask16 sees = hidden <= 0 ? (__mmask16)0xffff : hidden >= VF ? 0 : (__mmask16)(0xffffu << hidden);
  if (s->starts && r < s->rows) {
    const __mmask16 queries = s->rows - r < VF ? vf_mask(s->rows - r) : (__mmask16)0xffff;
    const __m512i starts = _mm512_maskz_loadu_epi32(queries, s->starts + r);
    sees &= _mm512_cmple_epi32_mask(starts, _mm512_set1_epi32((int32_t)(s->key + j)));
  }
  return sees;
}

#endif
