/* What a user of the installed package writes: one call, its result checked, its errors printed. */
#include <bindings.h>

#include <stdio.h>

int main(void) {
  nncuda_ctx *ctx = NULL;
  float x[3] = {-1.0f, 0.0f, 2.0f}, y[3] = {9.0f, 9.0f, 9.0f};
  if (nncuda_abi_version() / 1000 != NNCUDA_ABI_MAJOR) {
    return 2;
  }
  if (nncuda_ctx_create(NNCUDA_DEVICE_CPU, 0, &ctx) != NNCUDA_SUCCESS) {
    return 3;
  }
  if (cuda_scale(ctx, x, y, 3, 2.0f, NNCUDA_F32) != NNCUDA_SUCCESS) {
    fprintf(stderr, "%s\n", nncuda_last_error(ctx));
    return 4;
  }
  printf("%g %g %g\n", (double)y[0], (double)y[1], (double)y[2]);
  return nncuda_ctx_destroy(ctx);
}
