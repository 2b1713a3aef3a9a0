/*
 * Register-tiled products for attention, and the packed forms that they read.
 *
 * All operands are f32 in scratch; 16-bit inputs are widened while they are packed. With ATTN_NR = 2 vectors:
 *
 *   row panels  [ceil(dim/ATTN_NR)][rows][ATTN_NR]       element (row, d) at panel d/ATTN_NR, row, d%ATTN_NR
 *   key panels  [ceil(keys/ATTN_NR)][head_dim][ATTN_NR]  the transpose, ATTN_NR keys side by side
 *
 * A row panel serves both as the left operand (ATTN_NR consecutive depths of a row are dense) and as the
 * right operand of a product over rows, so that one packing of q, k or dout is enough for all products of a step.
 *
 * Where the processor multiplies bf16 by dot products of vectors (ATTN_PAIRS), the same tiles take units of two bf16
 * that follow each other along the depth (attention_units.h) in place of f32: depths are then half as long, and a
 * right operand over rows needs a packing of its own, of pairs of rows. Sums are f32 either way.
 */
#ifndef NN_CPU_ATTENTION_TILE_H
#define NN_CPU_ATTENTION_TILE_H

#include "kernel.h"
#include "transpose.h"

#if defined(__AVX512BF16__)
#define ATTN_PAIRS 1
#include "attention_units.h"
enum { ATTN_UNIT = BF16_PAIR }; /* bf16 of a factor in a lane; only bf16 comes here */
#define ATTN_SWITCH_DTYPE(dtype, statement)                                                                            \
  {                                                                                                                    \
    enum { DT = NNCUDA_BF16 };                                                                                         \
    statement;                                                                                                         \
  }
#else
enum { ATTN_UNIT = 1 };
#define ATTN_SWITCH_DTYPE(dtype, statement) NN_SWITCH_DTYPE(dtype, statement)
#endif

/*
 * ATTN_TILE_ROWS * 2 accumulators, 2 right operands and a broadcast must fit into the registers: 32 with AVX-512,
 * 16 elsewhere, or 32 of half the size. ATTN_BLOCK_LD is the row stride of a block of scores; the padding keeps the
 * rows, which are read down a column in the backward pass, from falling into the same few sets of the cache. Blocks of
 * half or twice these sizes are as fast within 3 %.
 */
enum {
  ATTN_NR = 2 * VF,
  ATTN_DEPTH_STEP = 4, /* depths that the inner loop is unrolled by */
#if defined(NN_SIMD_AVX512)
  ATTN_TILE_ROWS = 12,
#else
  ATTN_TILE_ROWS = 6,
#endif
  ATTN_TILE_ROWS_MID = ATTN_TILE_ROWS / 3 * 2,
  ATTN_TILE_ROWS_LOW = ATTN_TILE_ROWS / 3,
  ATTN_MAX_HEAD_DIM = 256,
  ATTN_BLOCK_ROWS = 96,
  ATTN_BLOCK_KEYS = 256,
  ATTN_BLOCK_LD = ATTN_BLOCK_KEYS + 16,
  ATTN_PACKED_ROUND =
      1 << 19, /* floats of keys and values packed at a time: they stay in the cache, which gives 10 % */
};

/* Rows of the next tile when `left` rows are left; the last tile may reach beyond them, by less than
 * ATTN_TILE_ROWS_LOW. */
NN_INLINE int64_t tile_rows(int64_t left) {
  if (left > ATTN_TILE_ROWS + ATTN_TILE_ROWS_LOW || (left > ATTN_TILE_ROWS_MID && left <= ATTN_TILE_ROWS)) {
    return ATTN_TILE_ROWS;
  }
  return left > ATTN_TILE_ROWS_LOW ? ATTN_TILE_ROWS_MID : ATTN_TILE_ROWS_LOW;
}

/* Rows that the tiles of `rows` rows touch. */
NN_INLINE int64_t padded_rows(int64_t rows) { return nn_round_up(rows, ATTN_TILE_ROWS_LOW); }

/* Vectors of row panel `panel` that hold any of the `dim` columns. */
NN_INLINE int panel_vectors(int64_t dim, int64_t panel) { return dim - panel * ATTN_NR > VF ? 2 : 1; }

/* One product of a tile: c[rows][vectors] = start + sum over k of a * b. */
typedef struct tile_args {
  const float *a;       /* element (i, k) at i * a_row + k * a_k of its chunk */
  const float *b;       /* vector of depth k at k * ATTN_NR */
  float *c;             /* row i at i * c_row */
  const float *rescale; /* what each row of c is multiplied by before the product is added, or null to add it to c */
  int64_t a_chunk;      /* elements of `a` from one chunk of `chunk` depths to the next */
  int64_t depth, chunk;
  int32_t fresh;       /* 1: c starts from zero and is only written */
  const float *factor; /* what a fresh c is multiplied by, or null */
} tile_args;

/* c + a * b over lanes of `width` numbers each. */
NN_INLINE vf lane_dot(vf a, vf b, vf c, const int width) {
#if ATTN_PAIRS
  if (width == BF16_PAIR) {
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
  }
#endif
  (void)width;
  return vf_fma(a, b, c);
}

NN_INLINE void tile_step(vf acc[ATTN_TILE_ROWS][2], const float *a, const float *b, int64_t a_row, int rows,
                         int vectors, int width) {
  vf right[2];
  NN_UNROLL for (int v = 0; v < vectors; v++) { right[v] = vf_load(b + v * VF); }
  NN_UNROLL for (int i = 0; i < rows; i++) {
    const vf left = vf_set1(a[i * a_row]);
    NN_UNROLL for (int v = 0; v < vectors; v++) { acc[i][v] = lane_dot(left, right[v], acc[i][v], width); }
  }
}

NN_INLINE void tile_product(const tile_args *t, int64_t a_row, int64_t a_k, int64_t c_row, int rows, int vectors,
                            int width) {
  vf acc[ATTN_TILE_ROWS][2];
  NN_UNROLL for (int i = 0; i < rows; i++) {
    NN_UNROLL for (int v = 0; v < vectors; v++) { acc[i][v] = vf_set1(0.0f); }
  }
  const float *a = t->a, *b = t->b;
  int64_t left = t->depth;
  do {
    const float *step = a;
    int64_t k = nn_min(left, t->chunk);
    left -= k;
    for (; k >= ATTN_DEPTH_STEP; k -= ATTN_DEPTH_STEP, b += ATTN_DEPTH_STEP * ATTN_NR, step += ATTN_DEPTH_STEP * a_k) {
      NN_UNROLL for (int u = 0; u < ATTN_DEPTH_STEP; u++) {
        tile_step(acc, step + u * a_k, b + u * ATTN_NR, a_row, rows, vectors, width);
      }
    }
    for (; k > 0; k--, b += ATTN_NR, step += a_k) {
      tile_step(acc, step, b, a_row, rows, vectors, width);
    }
    a += t->a_chunk;
  } while (left > 0);
  float *c = t->c;
  if (t->fresh && t->factor) {
    const vf factor = vf_set1(*t->factor);
    NN_UNROLL for (int i = 0; i < rows; i++) {
      NN_UNROLL for (int v = 0; v < vectors; v++) { vf_store(c + i * c_row + v * VF, vf_mul(acc[i][v], factor)); }
    }
  } else if (t->fresh) {
    NN_UNROLL for (int i = 0; i < rows; i++) {
      NN_UNROLL for (int v = 0; v < vectors; v++) { vf_store(c + i * c_row + v * VF, acc[i][v]); }
    }
  } else if (t->rescale) {
    NN_UNROLL for (int i = 0; i < rows; i++) {
      const vf rescale = vf_set1(t->rescale[i]);
      NN_UNROLL for (int v = 0; v < vectors; v++) {
        float *p = c + i * c_row + v * VF;
        vf_store(p, vf_fma(vf_load(p), rescale, acc[i][v]));
      }
    }
  } else {
    NN_UNROLL for (int i = 0; i < rows; i++) {
      NN_UNROLL for (int v = 0; v < vectors; v++) {
        float *p = c + i * c_row + v * VF;
        vf_store(p, vf_add(vf_load(p), acc[i][v]));
      }
    }
  }
}

/* `name`(t, rows, vectors) for tiles of each height and width, whose lanes have `width` numbers of a factor. */
#define NN_UNIT_TILE(name, width, a_row, a_k, c_row)                                                                   \
  static __attribute__((noinline)) void name##_full(const tile_args *t) {                                              \
    tile_product(t, a_row, a_k, c_row, ATTN_TILE_ROWS, 2, width);                                                      \
  }                                                                                                                    \
  static __attribute__((noinline)) void name##_rest(const tile_args *t, int64_t rows, int vectors) {                   \
    if (vectors == 2) {                                                                                                \
      if (rows == ATTN_TILE_ROWS_MID) {                                                                                \
        tile_product(t, a_row, a_k, c_row, ATTN_TILE_ROWS_MID, 2, width);                                              \
      } else {                                                                                                         \
        tile_product(t, a_row, a_k, c_row, ATTN_TILE_ROWS_LOW, 2, width);                                              \
      }                                                                                                                \
    } else if (rows == ATTN_TILE_ROWS) {                                                                               \
      tile_product(t, a_row, a_k, c_row, ATTN_TILE_ROWS, 1, width);                                                    \
    } else if (rows == ATTN_TILE_ROWS_MID) {                                                                           \
      tile_product(t, a_row, a_k, c_row, ATTN_TILE_ROWS_MID, 1, width);                                                \
    } else {                                                                                                           \
      tile_product(t, a_row, a_k, c_row, ATTN_TILE_ROWS_LOW, 1, width);                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  NN_INLINE void name(const tile_args *t, int64_t rows, int vectors) {                                                 \
    if (rows == ATTN_TILE_ROWS && vectors == 2) {                                                                      \
      name##_full(t);                                                                                                  \
    } else {                                                                                                           \
      name##_rest(t, rows, vectors);                                                                                   \
    }                                                                                                                  \
  }
#define NN_TILE(name, a_row, a_k, c_row) NN_UNIT_TILE(name, 1, a_row, a_k, c_row)

/* Of natural logarithms in units of ln 2, and back. */
static const double LOG2E = 1.4426950408889634, LN2 = 0.6931471805599453;

/*
 * 2^x for x < 128 within 1 ulp, exact for whole x: a polynomial for the fraction, then the exponent. Attention keeps
 * its scores in units of ln 2, which saves the argument reduction of exp. Zero for -inf, NaN for NaN. The polynomials
 * of degree 6 have the least largest relative error on their interval, 2^-26, with their coefficients rounded to f32.
 */
#if defined(NN_SIMD_AVX512)
/* The instructions that take x apart and put the result together both go by the floor of x. */
NN_INLINE vf vf_exp2(vf x) {
  const vf r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  vf p = vf_set1(0x1.c7211p-13f);
  p = vf_fma(p, r, vf_set1(0x1.461958p-10f));
  p = vf_fma(p, r, vf_set1(0x1.3d28p-7f));
  p = vf_fma(p, r, vf_set1(0x1.c685p-5f));
  p = vf_fma(p, r, vf_set1(0x1.ebfd9ep-3f));
  p = vf_fma(p, r, vf_set1(0x1.62e42ap-1f));
  p = vf_fma(p, r, vf_set1(1.0f));
  return vf_ldexp(p, x);
}
#else
NN_INLINE vf vf_exp2(vf x) {
  const vf inside = vf_max(vf_set1(-160.0f), x); /* keeps NaN: the second operand wins */
  const vf n = vf_round(inside), r = vf_sub(inside, n);
  vf p = vf_set1(0x1.44138ap-13f);
  p = vf_fma(p, r, vf_set1(0x1.5f089p-10f));
  p = vf_fma(p, r, vf_set1(0x1.3b2a54p-7f));
  p = vf_fma(p, r, vf_set1(0x1.c6af6cp-5f));
  p = vf_fma(p, r, vf_set1(0x1.ebfbep-3f));
  p = vf_fma(p, r, vf_set1(0x1.62e43p-1f));
  p = vf_fma(p, r, vf_set1(1.0f));
  return vf_ldexp(p, vf_select_nan(x, vf_set1(0.0f), n));
}
#endif

#endif
