/*
 * Keys of a page side by side, in the format that they are stored in: panels of PAGE_PANEL_KEYS keys, of which a
 * product with queries reads a vector of keys for each column. Turning 8- and 16-bit elements before they are widened
 * takes half as many instructions as turning what they are widened to, or fewer, and the panel stays in the first
 * cache.
 */
#ifndef NN_CPU_ATTENTION_PAGE_KEYS_H
#define NN_CPU_ATTENTION_PAGE_KEYS_H

#include "attention_tile.h"
#include "paged_cache.h"

enum {
  PAGE_PANEL_KEYS = ATTN_NR,
  PAGE_PANEL_COLUMNS = 32 /* that are turned at once, at most; rows have a multiple of it */
};

/* Of some columns, each after the other, the keys' elements; in Q8_0, of a block of columns, the keys' scales, too. */
typedef struct page_panel {
  _Alignas(64) char elements[PAGE_PANEL_COLUMNS * PAGE_PANEL_KEYS * 2];
  _Alignas(64) float scales[PAGE_PANEL_KEYS];
} page_panel;

/* Columns d .. d+VF-1 of keys 0 .. VF-1 as f32, into a panel of f32. */
NN_INLINE void page_turn_floats(float *to, const char *from, int64_t step, int64_t d, int32_t format) {
  vf x[VF];
  NN_UNROLL for (int i = 0; i < VF; i++) { x[i] = page_whole_columns(from + i * step, d, format); }
  transpose(x);
  NN_UNROLL for (int i = 0; i < VF; i++) { vf_store(to + i * PAGE_PANEL_KEYS, x[i]); }
}

#if NN_SIMD_AVX512
/* A step of turning: pairs of vectors `distance` apart, whose elements come to lie alternately. */
#define PAGE_TURN(to, from, distance, low, high)                                                                       \
  NN_UNROLL for (int i = 0; i < 16; i += 2 * (distance)) {                                                             \
    NN_UNROLL for (int j = 0; j < (distance); j++) {                                                                   \
      (to)[i + 2 * j] = low((from)[i + j], (from)[i + j + (distance)]);                                                \
      (to)[i + 2 * j + 1] = high((from)[i + j], (from)[i + j + (distance)]);                                           \
    }                                                                                                                  \
  }

/* 32 bytes of each of 32 keys: those of keys i and i + 16 in one vector. */
NN_INLINE void page_load_keys(__m512i x[16], const char *from, int64_t step) {
  NN_UNROLL for (int i = 0; i < 16; i++) {
    const __m256i low = _mm256_loadu_si256((const __m256i *)(from + i * step));
    x[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low),
                              _mm256_loadu_si256((const __m256i *)(from + (i + 16) * step)), 1);
  }
}

/* 16 columns of 16 bits. */
NN_INLINE void page_turn_words(char *to, const char *from, int64_t step) {
  __m512i x[16], y[16];
  page_load_keys(x, from, step);
  PAGE_TURN(y, x, 1, _mm512_unpacklo_epi16, _mm512_unpackhi_epi16)
  PAGE_TURN(x, y, 2, _mm512_unpacklo_epi32, _mm512_unpackhi_epi32)
  PAGE_TURN(y, x, 4, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64)
  /* y[8g + c] has, of keys 8g .. 8g+7 and 16+8g .., columns c, c+8, c, c+8 in its quarters. */
  const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  NN_UNROLL for (int c = 0; c < 8; c++) {
    _mm512_store_si512(to + c * 64, _mm512_permutex2var_epi64(y[c], even, y[8 + c]));
    _mm512_store_si512(to + (8 + c) * 64, _mm512_permutex2var_epi64(y[c], odd, y[8 + c]));
  }
}

/* 32 columns of 8 bits. */
NN_INLINE void page_turn_bytes(char *to, const char *from, int64_t step) {
  __m512i x[16], y[16];
  page_load_keys(x, from, step);
  PAGE_TURN(y, x, 1, _mm512_unpacklo_epi8, _mm512_unpackhi_epi8)
  PAGE_TURN(x, y, 2, _mm512_unpacklo_epi16, _mm512_unpackhi_epi16)
  PAGE_TURN(y, x, 4, _mm512_unpacklo_epi32, _mm512_unpackhi_epi32)
  PAGE_TURN(x, y, 8, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64)
  /* x[c] has, of 16 keys in each quarter, columns c, c+16, c, c+16. */
  NN_UNROLL for (int c = 0; c < 16; c++) {
    const __m512i keys = _mm512_shuffle_i64x2(x[c], x[c], 0xd8);
    _mm256_store_si256((__m256i *)(to + c * 32), _mm512_castsi512_si256(keys));
    _mm256_store_si256((__m256i *)(to + (c + 16) * 32), _mm512_extracti64x4_epi64(keys, 1));
  }
}

/* In which format a panel of a page is, and how many columns are turned at once. */
NN_INLINE int32_t page_panel_format(int32_t format) { return format; }

NN_INLINE int page_panel_columns(int32_t format) {
  return format == NNCUDA_FORMAT_Q8_0 || format == NNCUDA_FORMAT_E4M3 ? 32 : 16;
}

/* Columns d .. of the keys that begin at `from`. */
NN_INLINE void page_fill_panel(page_panel *panel, const char *from, int64_t step, int64_t d, int32_t format) {
  if (format == NNCUDA_FORMAT_Q8_0) {
    const char *block = from + d / NN_QK * (int64_t)sizeof(nn_block_q8_0);
    uint16_t scales[PAGE_PANEL_KEYS];
    NN_UNROLL for (int i = 0; i < PAGE_PANEL_KEYS; i++) {
      memcpy(&scales[i], ((const nn_block_q8_0 *)(block + i * step))->d, sizeof scales[i]);
    }
    NN_UNROLL for (int v = 0; v < 2; v++) {
      vf_store(panel->scales + v * VF, page_load((const char *)(scales + v * VF), NNCUDA_F16));
    }
    page_turn_bytes(panel->elements, (const char *)((const nn_block_q8_0 *)block)->q, step);
  } else if (format == NNCUDA_FORMAT_E4M3) {
    page_turn_bytes(panel->elements, from + d, step);
  } else if (format == NNCUDA_FORMAT_F32) {
    NN_UNROLL for (int v = 0; v < 2; v++) {
      page_turn_floats((float *)panel->elements + v * VF, from + v * VF * step, step, d, format);
    }
  } else {
    page_turn_words(panel->elements, from + d * 2, step);
  }
}
#else
NN_INLINE int32_t page_panel_format(int32_t format) {
  (void)format;
  return NNCUDA_FORMAT_F32;
}

NN_INLINE int page_panel_columns(int32_t format) {
  (void)format;
  return VF;
}

NN_INLINE void page_fill_panel(page_panel *panel, const char *from, int64_t step, int64_t d, int32_t format) {
  NN_UNROLL for (int v = 0; v < 2; v++) {
    page_turn_floats((float *)panel->elements + v * VF, from + v * VF * step, step, d, format);
  }
}
#endif

/* The keys' elements of column c of a panel, the `v`th vector. */
NN_INLINE vf page_panel_load(const page_panel *panel, int c, int v, int32_t format) {
  const int at = c * PAGE_PANEL_KEYS + v * VF;
  if (format == NNCUDA_FORMAT_Q8_0) {
    return vf_mul(vf_from_i8((const int8_t *)panel->elements + at), vf_load(panel->scales + v * VF));
  }
  return page_load(panel->elements + at * page_element_bytes(format), format);
}

#endif
