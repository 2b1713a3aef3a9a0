#include "abi/checks.h"
#include "abi/format_check.h"
#include "abi/lora.h"

NN_CHECK(gemm_quant_backward) {
  nn_check_groups(call, a->offsets, a->groups);
  nn_check_not_interleaved(call, "format", a->format);
  nn_check_row_bytes(call, "format", a->format, "k", a->k, "row_bytes", a->row_bytes);
  if (a->beta == 0) {
    nn_call_unread(call, "dx");
  }
  call->flops = 2.0 * a->m * a->n * a->k;
}

NN_CHECK(bitlinear_backward) {
  nn_check_packed(call, a->n, a->k, a->stored, a->row_bytes);
  if (a->beta == 0) {
    nn_call_unread(call, "dx");
  }
  call->flops = 2.0 * a->m * a->n * a->k;
}
