/* Appending to paged caches: each new row is found, converted and written on its own. */
#include "paged_cache.h"
#include "quant_encode.h"

#include "abi/generated/kvcache.h"

/* Elements a task converts, about. */
enum { APPEND_ELEMENTS = 1 << 13 };

typedef struct append_paged {
  const nn_kv_append_paged_args *a;
  paged_sequences sequences;
  int32_t *sequence;  /* of each token */
  int64_t last, rows; /* end of the tokens; those of a task */
  int64_t row_bytes;  /* of one head in a page */
} append_paged;

/* As quantize stores it. Infinities and NaN have no place among quants: their block becomes NaN, which attention shows.
 */
static void append_block(nn_block_q8_0 *to, const float *x) {
  vf zero = vf_set1(0.0f);
  for (int i = 0; i < NN_QK; i += VF) {
    zero = vf_fma(vf_load(x + i), vf_set1(0.0f), zero);
  }
  if (vf_sum(zero) == 0.0f) {
    nn_encode_q8_0(x, to);
  } else {
    memset(to, 0, sizeof *to);
    nn_q_put_f16(to->d, NAN);
  }
}

/* `dim` elements at element `at` of `from` into a row of a page. */
NN_INLINE void append_row(char *to, const void *from, int64_t at, int64_t dim, int32_t format, int32_t dtype) {
  if (format == dtype) {
    memcpy(to, (const char *)from + at * nn_dtype_bytes(dtype), (size_t)(dim * nn_dtype_bytes(dtype)));
  } else if (format == NNCUDA_FORMAT_Q8_0) {
    for (int64_t d = 0; d < dim; d += NN_QK) {
      float block[NN_QK];
      for (int64_t i = 0; i < NN_QK; i += VF) {
        vf_store(block + i, vf_load_as(from, at + d + i, dtype));
      }
      append_block((nn_block_q8_0 *)to + d / NN_QK, block);
    }
  } else if (format == NNCUDA_FORMAT_E4M3) {
    for (int64_t d = 0; d < dim; d += VF) {
      const int64_t n = nn_min(VF, dim - d);
      e4m3_store(to + d, vf_load_upto_as(from, at + d, n, dtype), n);
    }
  } else {
    for (int64_t d = 0; d < dim; d += VF) {
      const int64_t n = nn_min(VF, dim - d);
      const vf x = vf_load_upto_as(from, at + d, n, dtype);
      uint32_t lanes[VF];
      vf_store_as(lanes, 0, x, format);
      memcpy(to + d * nn_dtype_bytes(format), lanes, (size_t)(n * nn_dtype_bytes(format)));
    }
  }
}

NN_INLINE void append_tokens(const append_paged *p, int64_t begin, int64_t end, int32_t format, int32_t dtype) {
  const nn_kv_append_paged_args *a = p->a;
  const paged_sequences *s = &p->sequences;
  for (int64_t t = begin; t < end; t++) {
    const int64_t b = p->sequence[t], row = s->lengths[b] - s->offsets[b + 1] + t;
    const int64_t page = s->page_table[b * s->max_pages + row / NN_PAGE_TOKENS];
    for (int64_t head = 0; head < a->kv_heads; head++) {
      const int64_t from = t * a->ld_kv + head * a->head_dim;
      const int64_t to = page * a->page_bytes + (head * NN_PAGE_TOKENS + row % NN_PAGE_TOKENS) * p->row_bytes;
      append_row((char *)a->k_pages + to, a->k, from, a->head_dim, format, dtype);
      append_row((char *)a->v_pages + to, a->v, from, a->head_dim, format, dtype);
    }
  }
}

NN_TASK_OF(append_paged_task, append_paged, p, i) {
  const int64_t begin = i * p->rows, end = nn_min(begin + p->rows, p->last);
  NN_SWITCH_PAGE(p->a->format, NN_SWITCH_DTYPE(p->a->dtype, append_tokens(p, begin, end, FORMAT, DT)));
}

/* The sequence of each token. */
NN_PLAIN static int32_t *append_lay_out(const nn_kv_append_paged_args *a, nn_workspace *w) {
  return nn_workspace_piece(w, (size_t)a->tokens * sizeof(int32_t));
}

NN_WORKSPACE(kv_append_paged) { append_lay_out(args, w); }

int32_t NN_KERNEL(kv_append_paged)(nncuda_ctx *ctx, const void *args) {
  const nn_kv_append_paged_args *a = args;
  append_paged p = {.a = a, .sequences = PAGED_SEQUENCES(a)};
  NN_TRY(check_sequences(ctx, &p.sequences, 1));
  p.last = a->offsets[a->batch];
  if (p.last == 0 || a->kv_heads == 0 || a->head_dim == 0) {
    return NNCUDA_SUCCESS;
  }
  p.row_bytes = nn_format_row_bytes(a->format, a->head_dim);
  p.rows = 1 + APPEND_ELEMENTS / (a->kv_heads * a->head_dim);
  p.sequence = append_lay_out(a, nn_workspace_of(ctx));
  for (int64_t b = 0; b < a->batch; b++) {
    for (int64_t t = a->offsets[b]; t < a->offsets[b + 1]; t++) {
      p.sequence[t] = (int32_t)b;
    }
  }
  nn_parallel(ctx, nn_ceil_div(p.last, p.rows), append_paged_task, &p);
  return NNCUDA_SUCCESS;
}
