#include "abi/checks.h"
#include "abi/generated/rope.h"

NN_FLOPS(rope_forward, 3.0 * a->tokens * a->heads * a->head_dim)
NN_FLOPS(rope_qk, 3.0 * a->tokens * ((double)a->heads + a->kv_heads) * a->head_dim)

/* The gradient is the rotation of dy, by the opposite angle. */
NN_LOWER(rope_backward, nn_rope_forward_args, 13) {
  call->flops = 3.0 * a->tokens * a->heads * a->head_dim;
  return (nn_rope_forward_args){a->dy,       a->cosine,       a->sine, a->positions, a->dx,     a->tokens, a->heads,
                                a->head_dim, a->max_position, a->ld_y, a->ld_x,      a->layout, a->dtype};
}

/* What both makers of tables ask of their options. */
static void check_table(nn_call *call, int64_t first, int64_t positions, int64_t head_dim, double ntk_alpha) {
  nn_call_require(call, head_dim != 2 || ntk_alpha == 1.0, NNCUDA_ERROR_INVALID_SIZE,
                  "head_dim is 2; it must be above 2 unless ntk_alpha is 1");
  nn_call_require(call, nn_add(first, positions) < INT64_MAX, NNCUDA_ERROR_INVALID_SIZE,
                  "positions is %lld; the last position, first + positions with first %lld, must fit into 63 bits",
                  (long long)positions, (long long)first);
}

NN_CHECK(rope_freqs) { check_table(call, a->first, a->positions, a->head_dim, a->ntk_alpha); }
NN_CHECK(rope_freqs_scaled) { check_table(call, a->first, a->positions, a->head_dim, a->ntk_alpha); }
