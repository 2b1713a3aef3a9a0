/*
 * Products with stored weights of one form of their kernel, for test_quant_forms.py: compiled once for each set of
 * instructions that the engine chooses from by itself, so that a processor that has the wider one runs the other, too.
 * Tasks run one after the other.
 */
#include "cuda/cpu/quant_gemm.c"

#include <stdlib.h>

static const nn_machine machine = {.isa = NNCUDA_ISA_AVX2, .threads = 1};
static nn_workspace workspace;

nn_workspace *nn_workspace_of(nncuda_ctx *ctx) {
  (void)ctx;
  workspace.used = 0;
  return &workspace;
}

void nn_parallel(nncuda_ctx *ctx, int64_t tasks, nn_task task, void *arg) {
  (void)ctx;
  for (int64_t i = 0; i < tasks; i++) {
    task(arg, i, 0);
  }
}

int32_t nn_fail(nncuda_ctx *ctx, int32_t status, const char *format, ...) {
  (void)ctx, (void)format;
  return status;
}

/* y [m, n] = x [m, k] times w [n:row_bytes, k], in f32. */
int32_t probe_gemm_quant(const float *x, const void *w, float *y, int64_t m, int64_t n, int64_t k, int64_t row_bytes,
                         int32_t format) {
  const nn_gemm_quant_args args = {.x = x,
                                   .matrix = {{.w = w, .n = n, .row_bytes = row_bytes, .format = format}},
                                   .y = y,
                                   .groups = 1,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .matrices = 1,
                                   .dtype = NNCUDA_F32};
  workspace = (nn_workspace){.machine = &machine, .capacity = SIZE_MAX, .alignment = 64};
  NN_WORKSPACE_OF(NN_ISA, gemm_quant)(&args, &workspace);
  workspace.capacity = workspace.used;
  workspace.memory = aligned_alloc(64, workspace.used + 64);
  if (workspace.memory == NULL) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  const int32_t status = NN_KERNEL(gemm_quant)(NULL, &args);
  free(workspace.memory);
  return status;
}
