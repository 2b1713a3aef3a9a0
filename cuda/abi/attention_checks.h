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
NN_FLOPS(flash_attention, attention_flops(2, &a->shape, a->causal))
NN_FLOPS(flash_attention_backward, attention_flops(5, &a->shape, a->causal))
/* Lengths are not read here: of all room there is, and of new tokens alone. */
NN_FLOPS(attention_decode, 4.0 * a->batch * a->heads * a->head_dim * a->capacity)

NN_CHECK(flash_attention_paged) {
  nn_check_page(call, a->format, a->kv_heads, a->head_dim, a->page_bytes);
  const nn_attention_shape shape = {1, a->tokens, a->tokens, a->heads, a->kv_heads, a->head_dim};
  call->flops = attention_flops(2, &shape, 1);
}

/* One query a sequence needs no offsets. */
NN_LOWER(attention_decode_paged, nn_flash_attention_paged_args, 17) {
  nn_check_page(call, a->format, a->kv_heads, a->head_dim, a->page_bytes);
  call->flops = 4.0 * a->batch * a->heads * a->head_dim * a->max_pages * NN_PAGE_TOKENS;
  return (nn_flash_attention_paged_args){a->q,          a->k_pages, a->v_pages,  NULL,        a->lengths,
                                         a->page_table, a->out,     a->batch,    a->batch,    a->max_pages,
                                         a->pages,      a->heads,   a->kv_heads, a->head_dim, a->ld_q,
                                         a->page_bytes, a->scale,   a->format,   a->dtype};
}
