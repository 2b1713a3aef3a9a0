#include "abi/checks.h"
#include "abi/generated/moe.h"

static void check_slots(nn_call *call, int64_t tokens, int64_t k, double flops) {
  nn_check_slots(call, tokens, k);
  call->flops = flops;
}

NN_CHECK(moe_plan) { check_slots(call, a->tokens, a->k, 0); }
NN_CHECK(moe_gather) { check_slots(call, a->tokens, a->k, 0); }
NN_CHECK(moe_gather_backward) { check_slots(call, a->tokens, a->k, 1.0 * a->tokens * a->k * a->dim); }
NN_CHECK(moe_combine) { check_slots(call, a->tokens, a->k, 2.0 * a->tokens * a->k * a->dim); }
NN_CHECK(moe_combine_backward) { check_slots(call, a->tokens, a->k, 3.0 * a->tokens * a->k * a->dim); }
NN_CHECK(moe_route) { check_slots(call, a->tokens, a->k, (a->loss == NULL ? 6.0 : 7.0) * a->tokens * a->experts); }
NN_CHECK(moe_route_backward) { check_slots(call, a->tokens, a->k, 4.0 * a->tokens * ((double)a->experts + a->k)); }
NN_CHECK(moe_output_backward) {
  check_slots(call, a->tokens, a->k, a->tokens * (3.0 * a->k * a->dim + 4.0 * ((double)a->experts + a->k)));
}
NN_CHECK(moe_input_backward) {
  check_slots(call, a->tokens, a->k, a->tokens * ((double)a->k + 4.0 * a->experts) * a->dim);
  if (a->beta == 0) {
    nn_call_unread(call, "dgate");
  }
}
