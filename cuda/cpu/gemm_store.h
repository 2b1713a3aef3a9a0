/* The way from finished sums to C: alpha, beta, epilogue, and the one rounding to the result's dtype. */
#ifndef NN_CPU_GEMM_STORE_H
#define NN_CPU_GEMM_STORE_H

#include "gemm_job.h"
#include "stream.h"

/* Where in C some sums belong, and what becomes of them. */
typedef struct gemm_target {
  char *c;              /* row 0, column 0 of the piece */
  const char *residual; /* as c, or null */
  const char *bias;     /* at the piece's first column, or null */
  int64_t ld;
  int64_t rows, columns;
  float alpha, beta;
  int32_t activation;
  int32_t dtype;
  int32_t stream; /* past the caches */
} gemm_target;

/* The piece of C at (row, column), with the job's whole epilogue. */
NN_INLINE gemm_target gemm_target_at(const nn_gemm_args *x, const gemm_product *p, int64_t row, int64_t column,
                                     int64_t rows, int64_t columns) {
  const int64_t bytes = nn_dtype_bytes(x->dtype_c), at = (row * x->ldc + column) * bytes;
  return (gemm_target){.c = p->c + at,
                       .residual = p->residual == NULL ? NULL : p->residual + at,
                       .bias = x->bias == NULL ? NULL : (const char *)x->bias + column * bytes,
                       .ld = x->ldc,
                       .rows = rows,
                       .columns = columns,
                       .alpha = x->alpha,
                       .beta = x->beta,
                       .activation = x->activation,
                       .dtype = x->dtype_c,
                       .stream = nn_worth_streaming_from(NN_STREAM_BYTES_PRODUCT, x->m * x->n, x->dtype_c)};
}

/* Whether sums are only rounded. */
NN_INLINE int32_t target_plain(const gemm_target *t) {
  return t->alpha == 1.0f && t->beta == 0.0f && t->bias == NULL && t->residual == NULL &&
         t->activation == NNCUDA_ACTIVATION_NONE;
}

NN_INLINE void target_store_row(const gemm_target *t, int64_t r, const float *sums, int32_t dtype) {
  const int64_t at = r * t->ld;
  for (int64_t j = 0; j < t->columns; j += VF) {
    const int64_t n = nn_min(VF, t->columns - j);
    vf x = vf_mul(vf_load(sums + j), vf_set1(t->alpha));
    if (t->beta != 0.0f) {
      x = vf_fma(vf_set1(t->beta), vf_load_upto_as(t->c, at + j, n, dtype), x);
    }
    if (t->bias != NULL) {
      x = vf_add(x, vf_load_upto_as(t->bias, j, n, dtype));
    }
    if (t->activation == NNCUDA_ACTIVATION_SILU) {
      x = vf_mul(x, vf_sigmoid(x));
    }
    if (t->residual != NULL) {
      x = vf_add(x, vf_load_upto_as(t->residual, at + j, n, dtype));
    }
    vf_store_upto_as(t->c, at + j, n, x, dtype);
  }
}

#if NN_GEMM_PAIRS
/* The processor's own rounding to bf16 treats subnormals as zero; so do its products, hence plain sums have none. */
NN_INLINE void target_store_plain_bf16(const gemm_target *t, const float *sums, int64_t ld) {
  for (int64_t r = 0; r < t->rows; r++) {
    uint16_t *to = (uint16_t *)(void *)t->c + r * t->ld;
    const float *from = sums + r * ld;
    if (t->stream && t->columns == 2 * VF && nn_stream_head(to, 0, NNCUDA_BF16) == 0) {
      _mm512_stream_si512((__m512i *)(void *)to, (__m512i)_mm512_cvtne2ps_pbh(vf_load(from + VF), vf_load(from)));
      continue;
    }
    for (int64_t j = 0; j < t->columns; j += VF) {
      const int64_t left = t->columns - j;
      const __m256i x = (__m256i)_mm512_cvtneps_pbh(vf_load(from + j));
      if (left >= VF) {
        _mm256_storeu_si256((__m256i *)(void *)(to + j), x);
      } else {
        _mm256_mask_storeu_epi16(to + j, vf_mask(left), x);
      }
    }
  }
}
#endif

/* Plain sums in f32, past the caches. */
NN_INLINE void target_stream_f32(const gemm_target *t, const float *sums, int64_t ld) {
  for (int64_t r = 0; r < t->rows; r++) {
    for (int64_t v = 0; v < GEMM_NR; v += VF) {
      vf_stream((float *)(void *)t->c + r * t->ld + v, vf_load(sums + r * ld + v));
    }
  }
}

/* Sums [rows:ld, columns], padded so that whole vectors can be read, into C. */
static void target_store(const gemm_target *t, const float *sums, int64_t ld) {
  if (target_plain(t)) {
    if (t->dtype == NNCUDA_F32 && t->stream && t->columns == GEMM_NR && (uintptr_t)t->c % 64 == 0 && t->ld % 16 == 0) {
      target_stream_f32(t, sums, ld);
      return;
    }
#if NN_GEMM_PAIRS
    if (t->dtype == NNCUDA_BF16) {
      target_store_plain_bf16(t, sums, ld);
      return;
    }
#endif
  }
  for (int64_t r = 0; r < t->rows; r++) {
    NN_SWITCH_DTYPE(t->dtype, target_store_row(t, r, sums + r * ld, DT));
  }
}

#endif
