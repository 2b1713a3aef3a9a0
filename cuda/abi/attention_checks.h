#include "abi/checks.h"
#include "abi/format_check.h"
#include "abi/generated/attention.h"

/* Operations of so many products of queries and keys, or of probabilities and values: with the causal mask query i sees
 * i + kv_len - q_len + 1 keys. */
static double attention_flops(double products, const nn_attention_shape *s, int32_t causal) {
  const double q = (double)s->q_len, kv = (double)s->kv_len;
  const double pairs = !causal ? q * kv : q <= kv ? q * kv - q * (q - 1) / 2 : kv * (kv + 1) / 2;
  return 2.0 * products * (double)s->batch * (double)s->heads * (double)s->head_dim * pairs;
}

NN_FLOPS(attention_scores, attention_flops(1, &a->shape, a->causal))
NN_FLOPS(attention_output, attention_flops(1, &a->shape, 0))

static void check_documents(nn_call *call, const int32_t *starts, const nn_attention_shape *s, int32_t causal) {
  nn_call_require(call, starts == NULL || causal, NNCUDA_ERROR_INVALID_VALUE,
                  "causal is 0; it must be 1 where starts are given, or queries would see later documents");
  const int32_t none = s->q_len == 0 || s->kv_len == 0; /* then nothing is computed */
  nn_call_require(call, starts == NULL || none || s->q_len == s->kv_len, NNCUDA_ERROR_INVALID_SIZE,
                  "q_len is %lld and kv_len %lld; they must be equal where starts are given", (long long)s->q_len,
                  (long long)s->kv_len);
}

/* Starts are not read here: of all keys that queries could see. */
NN_CHECK(flash_attention) {
  check_documents(call, a->starts, &a->shape, a->causal);
  call->flops = attention_flops(2, &a->shape, a->causal);
}

NN_CHECK(flash_attention_backward) {
  check_documents(call, a->starts, &a->shape, a->causal);
  call->flops = attention_flops(5, &a->shape, a->causal);
}

NN_FLOPS(document_starts, 0)
/* Lengths are not read here: of all room there is, and of new tokens alone. */
NN_FLOPS(attention_decode, 4.0 * a->batch * a->heads * a->head_dim * a->capacity)

NN_CHECK(flash_attention_paged) {
  nn_check_page(call, a->format, a->kv_heads, a->head_dim, a->page_bytes);
  const nn_attention_shape shape = {1, a->tokens, a->tokens, a->heads, a->kv_heads, a->head_dim};
  call->flops = attention_flops(2, &shape, 1);
}

/* One query a sequence needs no offsets. */
NN_LOWER(attention_decode_paged, nn_flash_attention_paged_args, 20) {
  nn_check_page(call, a->format, a->kv_heads, a->head_dim, a->page_bytes);
  call->flops = 4.0 * a->batch * a->heads * a->head_dim * a->max_pages * NN_PAGE_TOKENS;
  return (nn_flash_attention_paged_args){a->q,      a->k_pages,  a->v_pages,  NULL,     a->lengths,    a->page_table,
                                         a->sinks,  a->out,      a->batch,    a->batch, a->max_pages,  a->pages,
                                         a->heads,  a->kv_heads, a->head_dim, a->ld_q,  a->page_bytes, a->scale,
                                         a->window, a->softcap,  a->format,   a->dtype};
}

NN_CHECK(attention_step_paged) {
  nn_check_page(call, a->format, a->kv_heads, a->head_dim, a->page_bytes);
  call->flops = 4.0 * a->batch * a->heads * a->head_dim * a->max_pages * NN_PAGE_TOKENS +
                3.0 * a->batch * ((double)a->heads + a->kv_heads) * a->head_dim;
}
