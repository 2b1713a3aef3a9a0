/*
 * What entry points ask beyond what bindings.h says in its grammar, and the operations of a call: a `check_<kernel>`
 * for each kernel, in its family's file, which the generated entry point calls with the arguments that it launches.
 * Nothing that it computes counts when the call has failed already. NN_FLOPS is one for a kernel that needs no more
 * checks.
 */
#ifndef NN_ABI_CHECKS_H
#define NN_ABI_CHECKS_H

#include "runtime/call.h"

#define NN_CHECK(kernel) static void check_##kernel(nn_call *call, const nn_##kernel##_args *a)

#define NN_FLOPS(kernel, count)                                                                                        \
  NN_CHECK(kernel) {                                                                                                   \
    (void)a;                                                                                                           \
    call->flops = (double)(count);                                                                                     \
  }

/* The same for a kernel that is launched with another struct than that of its parameters: it is made here. `known` is
 * how many parameters it is made of: one that bindings.h gains stops the compiler until this function knows it, too. */
#define NN_LOWER(kernel, type, known)                                                                                  \
  _Static_assert(nn_##kernel##_parameters_count == (known), "lower_" #kernel " does not know all parameters");         \
  static type lower_##kernel(nn_call *call, const nn_##kernel##_parameters *a)

/* Groups without offsets would not say which rows are whose. */
static inline void nn_check_groups(nn_call *call, const int32_t *offsets, int64_t groups) {
  nn_call_require(call, offsets != NULL || groups <= 1, NNCUDA_ERROR_INVALID_SIZE,
                  "groups is %lld; it must be 1 when offsets is null", (long long)groups);
}

/* Slots of tokens, and rows of experts, are counted in i32. */
static inline void nn_check_slots(nn_call *call, int64_t tokens, int64_t k) {
  nn_call_require(call, nn_mul(tokens, k) <= INT32_MAX, NNCUDA_ERROR_INVALID_SIZE,
                  "tokens * k is %lld * %lld; an i32 must hold the product", (long long)tokens, (long long)k);
}

#endif
