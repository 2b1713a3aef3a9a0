/* Packing of queries, keys and values into the forms that attention_tile.h multiplies. */
#ifndef NN_CPU_ATTENTION_PACK_H
#define NN_CPU_ATTENTION_PACK_H

#include "attention_tile.h"

/* A factor as the sum of two floats, so that a product with it is rounded (nearly) once where there is an FMA. */
typedef struct split_factor {
  float high, low;
} split_factor;

NN_INLINE split_factor split_double(double x) {
  const float high = (float)x;
  return (split_factor){high, (float)(x - (double)high)};
}

/* Floats of row panels over `rows` rows. */
NN_PLAIN NN_INLINE int64_t row_panels_size(int64_t rows, int64_t dim) {
  return nn_ceil_div(dim, ATTN_NR) * ATTN_NR * rows;
}

/* Floats of key panels over `keys` keys. */
NN_PLAIN NN_INLINE int64_t key_panels_size(int64_t keys, int64_t dim) { return nn_round_up(keys, ATTN_NR) * dim; }

/* VF elements of a row of `dim`, from element d on; what lies beyond the row is zero. */
NN_INLINE vf load_columns(const void *source, int64_t row, int64_t d, int64_t dim, int32_t dtype) {
  return d + VF <= dim ? vf_load_as(source, row + d, dtype) : vf_load_part_as(source, row + d, dim - d, dtype);
}

NN_INLINE void store_columns(void *to, int64_t row, int64_t d, int64_t dim, vf x, int32_t dtype) {
  if (d + VF <= dim) {
    vf_store_as(to, row + d, x, dtype);
  } else {
    vf_store_part_as(to, row + d, dim - d, x, dtype);
  }
}

/*
 * Rows begin .. end-1 of row panels that are `panel_rows` high. Row r of the source starts at element r * ld. Rows from
 * `end` up to `zero_end` are set to zero.
 */
NN_INLINE void pack_rows(float *panels, int64_t panel_rows, const void *source, int64_t ld, int64_t begin, int64_t end,
                         int64_t zero_end, int64_t dim, split_factor factor, int32_t dtype) {
  const vf high = vf_set1(factor.high), low = vf_set1(factor.low);
  for (int64_t r = begin; r < zero_end; r++) {
    for (int64_t d = 0; d < dim; d += VF) {
      vf x = vf_set1(0.0f);
      if (r < end) {
        x = load_columns(source, r * ld, d, dim, dtype);
      }
      vf_store(panels + (d / ATTN_NR * panel_rows + r) * ATTN_NR + d % ATTN_NR, vf_fma(x, high, vf_mul(x, low)));
    }
  }
}

/* Row panels times a factor into rows of any dtype. */
NN_INLINE void store_rows(void *to, int64_t ld, const float *panels, int64_t panel_rows, int64_t rows, int64_t dim,
                          float factor, int32_t dtype) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t d = 0; d < dim; d += VF) {
      const vf x = vf_mul(vf_load(panels + (d / ATTN_NR * panel_rows + r) * ATTN_NR + d % ATTN_NR), vf_set1(factor));
      store_columns(to, r * ld, d, dim, x, dtype);
    }
  }
}

/*
 * Lane i of the result is the sum, or the largest, of the lanes of x[i]; a NaN may be lost among the largest. The
 * halving steps are written out since compilers do not unroll a loop over powers of two, and x would go through memory.
 */
#if defined(NN_SIMD_AVX512)
/* Of each pair of vectors, lanes that differ in one bit are added, and that bit then says which of the two it was. */
NN_INLINE void sum_pairs(vf x[VF], int bit) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i side = _mm512_and_si512(lane, _mm512_set1_epi32(bit));
  const __mmask16 second = _mm512_test_epi32_mask(side, side);
  const __m512i other = _mm512_xor_si512(lane, _mm512_set1_epi32(bit));
  const __m512i pick = _mm512_mask_add_epi32(other, second, other, _mm512_set1_epi32(VF));
  NN_UNROLL for (int i = 0; i < bit; i++) {
    x[i] = _mm512_mask_blend_ps(second, x[i], x[i + bit]) + _mm512_permutex2var_ps(x[i], pick, x[i + bit]);
  }
}

NN_INLINE vf sum_each(vf x[VF]) {
  sum_pairs(x, 8);
  sum_pairs(x, 4);
  sum_pairs(x, 2);
  sum_pairs(x, 1);
  return x[0];
}
#else
NN_INLINE vf sum_each(vf x[VF]) {
  transpose(x);
  if (VF == 8) {
    NN_UNROLL for (int i = 0; i < 4; i++) { x[i] = vf_add(x[i], x[i + VF - 4]); }
  }
  return vf_add(vf_add(x[0], x[2]), vf_add(x[1], x[3]));
}
#endif

NN_INLINE void larger_half(vf x[VF], int half) {
  NN_UNROLL for (int i = 0; i < half; i++) { x[i] = vf_max(x[i], x[i + half]); }
}

NN_INLINE vf largest_each(vf x[VF]) {
  transpose(x);
  if (VF >= 16) {
    larger_half(x, VF / 2);
  }
  if (VF >= 8) {
    larger_half(x, 4);
  }
  larger_half(x, 2);
  return vf_max(x[0], x[1]);
}

/* Keys begin .. end-1 of key panels, begin a multiple of ATTN_NR; the last panel is filled up with zeros. */
NN_INLINE void pack_keys(float *panels, const void *source, int64_t ld, int64_t begin, int64_t end, int64_t dim,
                         int32_t dtype) {
  for (int64_t key = begin; key < nn_round_up(end, ATTN_NR); key += VF) {
    float *to = panels + key / ATTN_NR * ATTN_NR * dim + key % ATTN_NR;
    for (int64_t d = 0; d < dim; d += VF) {
      vf x[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) {
        x[i] = key + i < end ? load_columns(source, (key + i) * ld, d, dim, dtype) : vf_set1(0.0f);
      }
      transpose(x);
      const int64_t columns = nn_min(VF, dim - d);
      NN_UNROLL for (int i = 0; i < VF; i++) {
        if (i < columns) {
          vf_store(to + (d + i) * ATTN_NR, x[i]);
        }
      }
    }
  }
}

#if ATTN_PAIRS
/* The same forms of units of bf16 that follow each other in a row: a left operand, and keys. Depths are dim / 2. */
NN_INLINE void pack_unit_rows(float *panels, int64_t panel_rows, const uint16_t *source, int64_t ld, int64_t end,
                              int64_t zero_end, int64_t dim) {
  for (int64_t r = 0; r < zero_end; r++) {
    for (int64_t d = 0; d < dim; d += BF16_VECTOR) {
      const int64_t u = d / BF16_PAIR;
      vf_store(panels + (u / ATTN_NR * panel_rows + r) * ATTN_NR + u % ATTN_NR,
               r < end ? row_units(source + r * ld, d, dim) : vf_set1(0.0f));
    }
  }
}

NN_INLINE void pack_unit_keys(float *panels, const uint16_t *source, int64_t ld, int64_t begin, int64_t end,
                              int64_t dim) {
  const int64_t units = dim / BF16_PAIR;
  for (int64_t key = begin; key < nn_round_up(end, ATTN_NR); key += VF) {
    float *to = panels + key / ATTN_NR * ATTN_NR * units + key % ATTN_NR;
    for (int64_t u = 0; u < units; u += VF) {
      vf x[VF];
      NN_UNROLL for (int i = 0; i < VF; i++) {
        x[i] = key + i < end ? row_units(source + (key + i) * ld, u * BF16_PAIR, dim) : vf_set1(0.0f);
      }
      transpose(x);
      NN_UNROLL for (int i = 0; i < VF; i++) {
        if (i < units - u) {
          vf_store(to + (u + i) * ATTN_NR, x[i]);
        }
      }
    }
  }
}

/* Units of rows begin .. end-1 two by two, a right operand over rows: row panels that are `panel_units` high. `begin`
 * is even; what lies behind `end` is zero, up to unit `zero_end`. */
NN_INLINE void pack_row_pairs(float *panels, int64_t panel_units, const uint16_t *source, int64_t ld, int64_t begin,
                              int64_t end, int64_t zero_end, int64_t dim) {
  for (int64_t u = begin / BF16_PAIR; u < zero_end; u++) {
    for (int64_t d = 0; d < dim; d += VF) {
      vf_store(panels + (d / ATTN_NR * panel_units + u) * ATTN_NR + d % ATTN_NR,
               column_units(source, ld, u, end, d, dim));
    }
  }
}
#endif

#endif
