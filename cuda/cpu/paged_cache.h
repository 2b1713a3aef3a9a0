/*
 * Paged caches of keys and values: what their kernels ask of offsets, lengths and page tables, and rows of a page.
 *
 * A page is [kv_heads, 128, head_dim] rows in a format. It is bytes and nothing more, and may lie at any address.
 */
#ifndef NN_CPU_PAGED_CACHE_H
#define NN_CPU_PAGED_CACHE_H

#include "checks.h"
#include "e4m3.h"
#include "quant_blocks.h"

/* The sequences of a call. */
typedef struct paged_sequences {
  const int32_t *offsets; /* [batch + 1], or null where each has one new token */
  const int32_t *lengths, *page_table;
  int64_t tokens, batch, max_pages, pages;
} paged_sequences;

/* Those of a kernel's arguments, whichever of the kernels. */
#define PAGED_SEQUENCES(a)                                                                                             \
  {(a)->offsets, (a)->lengths, (a)->page_table, (a)->tokens, (a)->batch, (a)->max_pages, (a)->pages}

NN_INLINE int64_t paged_first_token(const paged_sequences *s, int64_t b) { return s->offsets ? s->offsets[b] : b; }

NN_INLINE int64_t paged_new_tokens(const paged_sequences *s, int64_t b) {
  return s->offsets ? s->offsets[b + 1] - s->offsets[b] : 1;
}

/* Rows that a token sees at most; PAGED_ALL, which no length exceeds, where there is no window. */
enum { PAGED_ALL = INT32_MAX };
NN_PLAIN NN_INLINE int64_t paged_window(int64_t window) { return window == 0 ? PAGED_ALL : nn_min(window, PAGED_ALL); }

/* The offsets, that each length takes in its sequence's new tokens, and the pages of the rows that the call touches: of
 * each new token its own and those before it, `window` together. */
static int32_t check_sequences(nncuda_ctx *ctx, const paged_sequences *s, int64_t window) {
  if (s->offsets) {
    NN_TRY(nn_check_offsets(ctx, s->offsets, s->batch, s->tokens, "tokens"));
  }
  /* A table may have more columns than lengths can count. */
  const int64_t room = s->max_pages > INT32_MAX / NN_PAGE_TOKENS ? INT32_MAX : s->max_pages * NN_PAGE_TOKENS;
  for (int64_t b = 0; b < s->batch; b++) {
    const int64_t fresh = s->offsets ? paged_new_tokens(s, b) : 0, length = s->lengths[b];
    const int64_t first = length - nn_max(fresh, 1) + 1 - window; /* row */
    if (length < fresh || length > room) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE,
                     "lengths[%lld] is %lld; it must be %lld to %lld, the new tokens to %d * max_pages", (long long)b,
                     (long long)length, (long long)fresh, (long long)room, NN_PAGE_TOKENS);
    }
    if (s->offsets && fresh == 0) {
      continue;
    }
    const int64_t end = nn_ceil_div(length, NN_PAGE_TOKENS);
    for (int64_t i = nn_max(first, 0) / NN_PAGE_TOKENS; i < end; i++) {
      const int32_t page = s->page_table[b * s->max_pages + i];
      if (page < 0 || page >= s->pages) {
        return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "page_table[%lld, %lld] is %d; it must be 0 to %lld",
                       (long long)b, (long long)i, page, (long long)s->pages - 1);
      }
    }
  }
  return NNCUDA_SUCCESS;
}

/* Runs `statement` with FORMAT a compile-time constant. */
#define NN_SWITCH_PAGE(format, statement)                                                                              \
  switch (format) {                                                                                                    \
    NN_CASE_OF(case NNCUDA_FORMAT_F32, FORMAT, NNCUDA_FORMAT_F32, statement)                                           \
    NN_CASE_OF(case NNCUDA_FORMAT_F16, FORMAT, NNCUDA_FORMAT_F16, statement)                                           \
    NN_CASE_OF(case NNCUDA_FORMAT_BF16, FORMAT, NNCUDA_FORMAT_BF16, statement)                                         \
    NN_CASE_OF(case NNCUDA_FORMAT_E4M3, FORMAT, NNCUDA_FORMAT_E4M3, statement)                                         \
    NN_CASE_OF(default, FORMAT, NNCUDA_FORMAT_Q8_0, statement)                                                         \
  }

/* Bytes of an element in a format without blocks. */
NN_INLINE int64_t page_element_bytes(int32_t format) { return nn_format_block_of(format).bytes; }

/* VF elements at any address; `n` < VF of them, then zeros, in the part form. A format that is a dtype has its number.
 */
NN_INLINE vf page_load(const char *from, int32_t dtype) {
  if (dtype == NNCUDA_FORMAT_E4M3) {
    return e4m3_load(from, VF);
  }
#if NN_SIMD_AVX512 || NN_SIMD_AVX2 || NN_SIMD_NEON
  return vf_load_as(from, 0, dtype);
#else
  uint32_t aligned[VF];
  memcpy(aligned, from, (size_t)(VF * nn_dtype_bytes(dtype)));
  return vf_load_as(aligned, 0, dtype);
#endif
}

NN_INLINE vf page_load_part(const char *from, int64_t n, int32_t dtype) {
  if (dtype == NNCUDA_FORMAT_E4M3) {
    return e4m3_load(from, n);
  }
  uint32_t aligned[VF] = {0};
  memcpy(aligned, from, (size_t)(n * nn_dtype_bytes(dtype)));
  return vf_load_as(aligned, 0, dtype);
}

/* The scale of a block, for all its elements. */
NN_INLINE vf page_block_scale(const nn_block_q8_0 *block) {
#if NN_SIMD_AVX512 || NN_SIMD_AVX2
  uint16_t scale;
  memcpy(&scale, block->d, sizeof scale);
  const __m128 wide = _mm_cvtph_ps(_mm_cvtsi32_si128(scale));
#if NN_SIMD_AVX512
  return _mm512_broadcastss_ps(wide);
#else
  return _mm256_broadcastss_ps(wide);
#endif
#else
  return vf_set1(nn_q_get_f16(block->d));
#endif
}

/* Elements d .. d+VF-1 of a row that begins at `row`. The product with the scale of a block is exact. */
NN_INLINE vf page_whole_columns(const char *row, int64_t d, int32_t format) {
  if (format == NNCUDA_FORMAT_Q8_0) {
    const nn_block_q8_0 *block = (const nn_block_q8_0 *)row + d / NN_QK;
    return vf_mul(vf_from_i8(block->q + d % NN_QK), page_block_scale(block));
  }
  return page_load(row + d * page_element_bytes(format), format);
}

/* The same of a row of `dim`; zeros beyond it. */
NN_INLINE vf page_columns(const char *row, int64_t d, int64_t dim, int32_t format) {
  if (format == NNCUDA_FORMAT_Q8_0 || d + VF <= dim) { /* blocks end with a vector */
    return page_whole_columns(row, d, format);
  }
  return page_load_part(row + d * page_element_bytes(format), dim - d, format);
}

#endif
