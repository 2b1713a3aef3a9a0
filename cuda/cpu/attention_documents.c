/* Where the documents of packed sequences begin. */
#include "kernel.h"

#include "abi/generated/attention.h"

static void starts_task(void *arg, int64_t sequence, int32_t worker) {
  (void)worker;
  const nn_document_starts_args *a = arg;
  const int64_t at = sequence * a->length;
  int32_t start = 0;
  for (int32_t t = 0; t < a->length; t++) {
    a->starts[at + t] = start;
    a->positions[at + t] = t - start;
    if (a->ids[at + t] == a->separator) {
      start = t + 1;
    }
  }
}

int32_t NN_KERNEL(document_starts)(nncuda_ctx *ctx, const void *args) {
  nn_document_starts_args a = *(const nn_document_starts_args *)args;
  nn_parallel(ctx, a.batch, starts_task, &a);
  return NNCUDA_SUCCESS;
}
