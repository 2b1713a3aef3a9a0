/*
 * Products of bf16 for attention, and the packed forms that they read: by tile registers with AMX, by dot products of
 * vectors with AVX512_BF16. Sums are f32.
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

#include "attention_pack.h"

#include <string.h>

typedef uint32_t unit;

/*
 * QUERIES is the width of a block of scores; TILE what rows and lanes are filled up to, and twice the depth of a step
 * of tile registers. With AMX the softmax takes about as long as the products: larger blocks of queries compute more
 * scores that the causal mask hides, smaller ones leave the products waiting for the keys.
 */
enum { TILE = 32, QUERIES = 64, PANELS = QUERIES / VF, PAIR = 2 };

/* c [rows, lanes] = a * b, or += with `add`; of a or b there may be a second part that goes to the same sums. */
typedef struct bf16_product {
  const unit *a, *a_low; /* rows, `a_step` apart; the second part or null */
  const unit *b, *b_low; /* lanes */
  float *c;
  int64_t a_step, units; /* units: the depth */
  int64_t panel;         /* units from one panel of lanes to the next, at least the depth */
  int64_t ld, rows, lanes;
  int32_t add;
} bf16_product;

#if defined(__AMX_BF16__)

static void tiles_open(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

/* Idle tile registers would make every later switch of threads save them. */
static void tiles_close(void) { _tile_release(); }

NN_INLINE void tile_depth(const unit *a, int64_t a_step, const unit *b, int64_t panel, int64_t units) {
  const unit *a2 = a + 16 * a_step, *b2 = b + panel * VF;
  for (int64_t p = 0; p < units; p += 16) {
    _tile_loadd(4, a + p, a_step * 4);
    _tile_loadd(6, b + p * VF, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b2 + p * VF, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a2 + p, a_step * 4);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

static __attribute__((noinline)) void multiply(const bf16_product *t) {
  /* The compiler does not know that tile loads and stores touch memory. */
  __asm__ volatile("" ::: "memory");
  for (int64_t lane = 0; lane < t->lanes; lane += TILE) {
    const unit *b = t->b + lane * t->panel;
    for (int64_t r = 0; r < t->rows; r += TILE) {
      float *c = t->c + r * t->ld + lane, *c2 = c + 16 * t->ld;
      if (t->add) {
        _tile_loadd(0, c, t->ld * 4);
        _tile_loadd(1, c + 16, t->ld * 4);
        _tile_loadd(2, c2, t->ld * 4);
        _tile_loadd(3, c2 + 16, t->ld * 4);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      tile_depth(t->a + r * t->a_step, t->a_step, b, t->panel, t->units);
      if (t->a_low) {
        tile_depth(t->a_low + r * t->a_step, t->a_step, b, t->panel, t->units);
      }
      if (t->b_low) {
        tile_depth(t->a + r * t->a_step, t->a_step, t->b_low + lane * t->panel, t->panel, t->units);
      }
      _tile_stored(0, c, t->ld * 4);
      _tile_stored(1, c + 16, t->ld * 4);
      _tile_stored(2, c2, t->ld * 4);
      _tile_stored(3, c2 + 16, t->ld * 4);
    }
  }
  __asm__ volatile("" ::: "memory");
}

#else

static void tiles_open(void) {}
static void tiles_close(void) {}

enum { DOT_ROWS = 8 };

NN_INLINE void dot_depth(vf sums[DOT_ROWS][2], const unit *a, int64_t a_step, const unit *b, int64_t panel,
                         int64_t units) {
  const unit *b2 = b + panel * VF;
  for (int64_t p = 0; p < units; p++) {
    const __m512bh x = (__m512bh)_mm512_loadu_ps(b + p * VF), x2 = (__m512bh)_mm512_loadu_ps(b2 + p * VF);
    NN_UNROLL for (int i = 0; i < DOT_ROWS; i++) {
      const __m512bh y = (__m512bh)_mm512_set1_epi32((int)a[i * a_step + p]);
      sums[i][0] = _mm512_dpbf16_ps(sums[i][0], y, x);
      sums[i][1] = _mm512_dpbf16_ps(sums[i][1], y, x2);
    }
  }
}

static __attribute__((noinline)) void multiply(const bf16_product *t) {
  for (int64_t lane = 0; lane < t->lanes; lane += TILE) {
    const unit *b = t->b + lane * t->panel;
    for (int64_t r = 0; r < t->rows; r += DOT_ROWS) {
      float *c = t->c + r * t->ld + lane;
      vf sums[DOT_ROWS][2];
      NN_UNROLL for (int i = 0; i < DOT_ROWS; i++) {
        sums[i][0] = t->add ? vf_load(c + i * t->ld) : vf_set1(0.0f);
        sums[i][1] = t->add ? vf_load(c + i * t->ld + VF) : vf_set1(0.0f);
      }
      dot_depth(sums, t->a + r * t->a_step, t->a_step, b, t->panel, t->units);
      if (t->a_low) {
        dot_depth(sums, t->a_low + r * t->a_step, t->a_step, b, t->panel, t->units);
      }
      if (t->b_low) {
        dot_depth(sums, t->a + r * t->a_step, t->a_step, t->b_low + lane * t->panel, t->panel, t->units);
      }
      NN_UNROLL for (int i = 0; i < DOT_ROWS; i++) {
        vf_store(c + i * t->ld, sums[i][0]);
        vf_store(c + i * t->ld + VF, sums[i][1]);
      }
    }
  }
}

#endif

NN_INLINE int64_t whole(int64_t n) { return round_up(n, TILE); }

/* Elements d .. d+31 of a row of `dim`, zeros from there on. */
NN_INLINE vf row_units(const uint16_t *row, int64_t d, int64_t dim) {
  const int64_t left = dim - d;
  const __mmask32 mask = left >= TILE ? ~(__mmask32)0 : left <= 0 ? 0 : ((__mmask32)1 << left) - 1;
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, row + d));
}

/* Unit p of the depth that runs down the rows, for columns d .. d+15: rows 2p and 2p+1, of `rows`. */
NN_INLINE vf column_units(const uint16_t *x, int64_t ld, int64_t p, int64_t rows, int64_t d, int64_t dim) {
  const int64_t left = dim - d;
  const __mmask16 columns = left >= VF ? (__mmask16)0xffff : left <= 0 ? 0 : vf_mask(left);
  const __mmask16 even = PAIR * p < rows ? columns : 0, odd = PAIR * p + 1 < rows ? columns : 0;
  const uint16_t *row = x + PAIR * p * ld + d;
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(even, row));
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(odd, row + ld));
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

NN_INLINE void store_units(unit *to, vf x) { _mm512_storeu_si512(to, _mm512_castps_si512(x)); }

/* Rows with the depth along them as they lie: `padded` rows of whole(dim) / 2 units. */
NN_INLINE void copy_rows(unit *to, const uint16_t *x, int64_t ld, int64_t rows, int64_t padded, int64_t dim) {
  const int64_t step = whole(dim) / PAIR;
  for (int64_t r = 0; r < padded; r++) {
    for (int64_t d = 0; d < dim; d += TILE) {
      store_units(to + r * step + d / PAIR, r < rows ? row_units(x + r * ld, d, dim) : vf_set1(0.0f));
    }
  }
}

/* Rows as lanes, the depth along them. */
NN_INLINE void rows_to_lanes(unit *to, const uint16_t *x, int64_t ld, int64_t rows, int64_t padded, int64_t dim) {
  const int64_t units = whole(dim) / PAIR;
  for (int64_t r = 0; r < padded; r += VF) {
    for (int64_t d = 0; d < dim; d += TILE) {
      vf y[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) {
        y[i] = r + i < rows ? row_units(x + (r + i) * ld, d, dim) : vf_set1(0.0f);
      }
      transpose(y);
      NN_UNROLL for (int i = 0; i < VF; i++) { store_units(to + r * units + (d / PAIR + i) * VF, y[i]); }
    }
  }
}

/* Columns as lanes, the depth down the rows. */
NN_INLINE void columns_to_lanes(unit *to, const uint16_t *x, int64_t ld, int64_t rows, int64_t padded, int64_t dim) {
  const int64_t units = padded / PAIR;
  for (int64_t p = 0; p < units; p++) {
    for (int64_t d = 0; d < whole(dim); d += VF) {
      store_units(to + d * units + p * VF, column_units(x, ld, p, rows, d, dim));
    }
  }
}

/* Columns as rows, `step` units apart, the depth down the rows. */
NN_INLINE void columns_to_rows(unit *to, int64_t step, const uint16_t *x, int64_t ld, int64_t rows, int64_t padded,
                               int64_t dim) {
  for (int64_t p = 0; p < padded / PAIR; p += VF) {
    for (int64_t d = 0; d < whole(dim); d += VF) {
      vf y[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) { y[i] = column_units(x, ld, p + i, rows, d, dim); }
      transpose(y);
      NN_UNROLL for (int i = 0; i < VF; i++) { store_units(to + (d + i) * step + p, y[i]); }
    }
  }
}

/* Sums [whole(dim)][QUERIES], times a factor a lane, into `rows` rows of bf16. The first `blind` rows
 * become zeros. */
NN_INLINE void store_lanes(uint16_t *to, int64_t ld, const float *sums, const vf factor[PANELS], int64_t blind,
                           int64_t rows, int64_t dim) {
  for (int64_t v = 0; v * VF < rows; v++) {
    for (int64_t d = 0; d < dim; d += VF) {
      vf x[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) { x[i] = vf_load(sums + (d + i) * QUERIES + v * VF) * factor[v]; }
      transpose(x);
      for (int64_t i = 0; i < smaller(VF, rows - v * VF); i++) {
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

/* The keys that query r of a block sees: the first `seen` + r with the causal mask, and in any case `keys`. */
typedef struct sight {
  int64_t seen, keys;
  int32_t causal;
} sight;

/* Keys that all the queries of lanes r .. r+15 see, and that any of them does. */
NN_INLINE int64_t seen_by_all(const sight *s, int64_t r) {
  return larger(0, s->causal ? smaller(s->keys, s->seen + r) : s->keys);
}
NN_INLINE int64_t seen_by_any(const sight *s, int64_t r) {
  return larger(0, s->causal ? smaller(s->keys, s->seen + r + VF - 1) : s->keys);
}

/* Which of the queries r .. r+15 see key j. */
NN_INLINE __mmask16 seeing(const sight *s, int64_t r, int64_t j) {
  if (j >= s->keys) {
    return 0;
  }
  const int64_t hidden = s->causal ? j - s->seen + 1 - r : 0; /* the first lanes, that do not */
  return hidden <= 0 ? (__mmask16)0xffff : hidden >= VF ? 0 : (__mmask16)(0xffffu << hidden);
}

/* The kernel for what `op` has of bf16; other dtypes are as without bf16 instructions. */
#define BF16_KERNEL(op)                                                                                                \
  int32_t NN_JOIN3(avx512, op, )(nncuda_ctx * ctx, const void *args);                                                  \
  int32_t NN_KERNEL(op)(nncuda_ctx * ctx, const void *args) {                                                          \
    const nn_##op##_args *a = args;                                                                                    \
    return a->dtype == NNCUDA_BF16 ? op(ctx, a) : NN_JOIN3(avx512, op, )(ctx, args);                                   \
  }

#endif
