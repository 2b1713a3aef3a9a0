/* Storing rows in a format and reading them back. Rows that are stored are dense, so a matrix is one run of blocks, cut
 * into pieces of NN_QK_LARGE elements whatever the format: whole blocks of each. Rows that are read may lie apart. */
#include "abi/quant.h"

#include "checks.h"
#include "quant_encode.h"
#include "quant_encode_k.h"

typedef struct conversion {
  const void *from;
  void *to;
  uint8_t *bad; /* of quantize, a task: whether it saw a number that is not finite */
  int64_t n;
  int64_t k, row_bytes; /* of dequantize: elements of a row, and bytes from one row to the next */
  int32_t format, dtype;
} conversion;

/* Elements first .. end-1 of a task. */
static int64_t task_begin(int64_t task, int64_t n, int64_t *end) {
  const int64_t begin = task * NN_CHUNK;
  *end = begin + NN_CHUNK < n ? begin + NN_CHUNK : n;
  return begin;
}

NN_PLAIN static int64_t tasks_of(int64_t n) { return nn_ceil_div(n, NN_CHUNK); }

NN_INLINE void decode_piece(int32_t format, const void *from, int64_t n, void *y, int64_t at, int32_t dtype) {
  if (dtype == NNCUDA_F32) {
    nn_decode(format, from, n, (float *)y + at);
    return;
  }
  float piece[NN_QK_LARGE];
  nn_decode(format, from, n, piece);
  NN_EACH_VECTOR(0, n, 0, 0, nn_put(y, at + i, lanes, nn_get(piece, i, lanes, NNCUDA_F32, MODE), dtype, MODE));
}

/* The numbers of elements 0 .. n-1 of stored bytes, to element `at` of y on. */
static void decode_elements(int32_t format, const uint8_t *from, int64_t n, void *y, int64_t at, int32_t dtype) {
  const nn_format_block block = nn_format_block_of(format);
  for (int64_t i = 0; i < n; i += NN_QK_LARGE) {
    const int64_t count = nn_min(n - i, NN_QK_LARGE);
    NN_SWITCH_DTYPE(dtype, decode_piece(format, from + i / block.elements * block.bytes, count, y, at + i, DT));
  }
}

NN_TASK_OF(dequantize_task, conversion, r, task) {
  int64_t end;
  const int64_t begin = task_begin(task, r->n, &end);
  const nn_format_block block = nn_format_block_of(r->format);
  for (int64_t i = begin; i < end;) {
    const int64_t column = i % r->k, count = nn_min(r->k - column, end - i);
    const uint8_t *row = (const uint8_t *)r->from + i / r->k * r->row_bytes;
    decode_elements(r->format, row + column / block.elements * block.bytes, count, r->to, i, r->dtype);
    i += count;
  }
}

int32_t NN_KERNEL(dequantize)(nncuda_ctx *ctx, const void *args) {
  const nn_dequantize_args *a = args;
  conversion r = {.from = a->x,
                  .to = a->y,
                  .n = a->rows * a->k,
                  .k = a->k,
                  .row_bytes = a->row_bytes,
                  .format = a->format,
                  .dtype = a->dtype};
  nn_parallel(ctx, tasks_of(r.n), dequantize_task, &r);
  return NNCUDA_SUCCESS;
}

NN_TASK_OF(embedding_quant_task, nn_embedding_quant_args, a, task) {
  int64_t count;
  const int64_t first = nn_first_row(task, nn_rows_per_task(a->dim), a->tokens, &count);
  for (int64_t t = first; t < first + count; t++) {
    decode_elements(a->format, (const uint8_t *)a->table + a->ids[t] * a->row_bytes, a->dim, a->y, t * a->dim,
                    a->dtype);
  }
}

int32_t NN_KERNEL(embedding_quant)(nncuda_ctx *ctx, const void *args) {
  nn_embedding_quant_args a = *(const nn_embedding_quant_args *)args;
  NN_TRY(nn_check_range(ctx, "ids", a.ids, a.tokens, 0, a.vocab - 1, ""));
  nn_parallel(ctx, nn_ceil_div(a.tokens, nn_rows_per_task(a.dim)), embedding_quant_task, &a);
  return NNCUDA_SUCCESS;
}

/* A number that is not finite minus itself is NaN, and NaN stays in a sum. */
NN_INLINE uint8_t any_bad(const void *x, int64_t begin, int64_t end, int32_t dtype) {
  vf sum = vf_set1(0.0f);
  NN_EACH_VECTOR(begin, end, 0, 0, {
    const vf v = nn_get(x, i, lanes, dtype, MODE);
    sum = vf_add(sum, vf_sub(v, v));
  });
  const float total = vf_sum(sum);
  return total != total;
}

NN_TASK_OF(check_task, conversion, r, task) {
  int64_t end;
  const int64_t begin = task_begin(task, r->n, &end);
  NN_SWITCH_DTYPE(r->dtype, r->bad[task] = any_bad(r->from, begin, end, DT));
}

static int32_t check_finite(nncuda_ctx *ctx, const nn_quantize_args *a, conversion *r) {
  const int64_t tasks = tasks_of(r->n);
  nn_parallel(ctx, tasks, check_task, r);
  const uint8_t *first = memchr(r->bad, 1, (size_t)tasks);
  if (first == NULL) {
    return NNCUDA_SUCCESS;
  }
  int64_t i = (first - r->bad) * NN_CHUNK;
  while (isfinite(nn_load_as(a->x, i, a->dtype))) {
    i++;
  }
  return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "x[%lld] is %g; it must be finite", (long long)i,
                 (double)nn_load_as(a->x, i, a->dtype));
}

static void encode(int32_t format, const float *x, int64_t n, uint8_t *to) {
  const nn_format_block block = nn_format_block_of(format);
  for (int64_t i = 0; i < n; i += block.elements, to += block.bytes) {
    switch (format) {
#define CASE(format, name)                                                                                             \
  case NNCUDA_FORMAT_##format:                                                                                         \
    nn_encode_##name(x + i, (nn_block_##name *)to);                                                                    \
    break;
      CASE(Q4_0, q4_0)
      CASE(Q4_1, q4_1)
      CASE(Q5_0, q5_0)
      CASE(Q5_1, q5_1)
      CASE(Q8_0, q8_0)
      CASE(Q2_K, q2_k)
      CASE(Q3_K, q3_k)
      CASE(Q6_K, q6_k)
#undef CASE
    default: /* two blocks side by side */
      (format == NNCUDA_FORMAT_Q4_K ? nn_encode_q4_k : nn_encode_q5_k)(x, (int)(n / block.elements), to);
      return;
    }
  }
}

/* A format that is a dtype: rounded into aligned memory, then copied to wherever the row lies. */
NN_INLINE void encode_dtype(const float *x, int64_t n, void *to, int32_t dtype) {
  uint32_t aligned[NN_QK_PAIR];
  NN_EACH_VECTOR(0, n, 0, 0, nn_put(aligned, i, lanes, nn_get(x, i, lanes, NNCUDA_F32, MODE), dtype, MODE));
  memcpy(to, aligned, (size_t)(n * nn_dtype_bytes(dtype)));
}

NN_TASK_OF(quantize_task, conversion, r, task) {
  int64_t end;
  const nn_format_block block = nn_format_block_of(r->format);
  for (int64_t at = task_begin(task, r->n, &end); at < end; at += NN_QK_PAIR) {
    float x[NN_QK_PAIR];
    const int64_t n = nn_min(end - at, NN_QK_PAIR);
    uint8_t *to = (uint8_t *)r->to + at / block.elements * block.bytes;
    NN_SWITCH_DTYPE(
        r->dtype,
        NN_EACH_VECTOR(0, n, 0, 0, nn_put(x, i, lanes, nn_get(r->from, at + i, lanes, DT, MODE), NNCUDA_F32, MODE)));
    if (block.elements == 1) {
      NN_SWITCH_DTYPE(r->format, encode_dtype(x, n, to, DT));
    } else {
      encode(r->format, x, n, to);
    }
  }
}

NN_PLAIN static conversion quantize_lay_out(const nn_quantize_args *a, nn_workspace *w) {
  conversion r = {.from = a->x, .to = a->y, .n = a->rows * a->k, .format = a->format, .dtype = a->dtype};
  r.bad = nn_workspace_piece(w, (size_t)tasks_of(r.n));
  return r;
}

NN_WORKSPACE(quantize) { quantize_lay_out(args, w); }

int32_t NN_KERNEL(quantize)(nncuda_ctx *ctx, const void *args) {
  const nn_quantize_args *a = args;
  conversion r = quantize_lay_out(a, nn_workspace_of(ctx));
  if (nn_format_block_of(a->format).elements > 1) {
    NN_TRY(check_finite(ctx, a, &r));
  }
  nn_parallel(ctx, tasks_of(r.n), quantize_task, &r);
  return NNCUDA_SUCCESS;
}
