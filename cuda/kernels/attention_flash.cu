#include "kernels/attention_flash_mma.cuh"
#include "kernels/attention_flash_simt.cuh"
#include "kernels/attention_flash_wgmma.cuh"

template <class T> static int32_t flash_simt_by_dim(nncuda_ctx *ctx, const nn_flash &p, int64_t pairs) {
  return p.sizes.dim <= 64    ? nn_flash_simt<T, 64>(ctx, p, pairs)
         : p.sizes.dim <= 128 ? nn_flash_simt<T, 128>(ctx, p, pairs)
                              : nn_flash_simt<T, 256>(ctx, p, pairs);
}

template <class T> static int32_t flash_by_dim(nncuda_ctx *ctx, const nn_flash &p, int64_t pairs, int32_t dtype) {
  if (!nn_mma_serves<T>(ctx, p.sizes) || p.factor.high == 0.0f) { /* 0 * -inf would hide no key */
    return flash_simt_by_dim<T>(ctx, p, pairs);
  }
  if (nn_gpu_arch(ctx) == 90 && p.sizes.dim <= 128) {
    bool done = false;
    const int64_t batch = pairs / p.sizes.kv_heads;
    const int32_t status = p.sizes.dim <= 64 ? nn_flash_wgmma_64<T>(ctx, p, batch, dtype, &done)
                                             : nn_flash_wgmma_start<T, 128, 2>(ctx, p, batch, dtype, &done);
    if (done) {
      return status;
    }
  }
  return p.sizes.dim <= 64    ? nn_flash_mma<T, 64>(ctx, p, pairs)
         : p.sizes.dim <= 128 ? nn_flash_mma<T, 128>(ctx, p, pairs)
                              : nn_flash_mma<T, 256>(ctx, p, pairs);
}

template <> int32_t flash_by_dim<float>(nncuda_ctx *ctx, const nn_flash &p, int64_t pairs, int32_t) {
  return flash_simt_by_dim<float>(ctx, p, pairs);
}

NN_KERNEL(flash_attention) {
  nn_flash p = {a->q,
                a->k,
                a->v,
                a->starts,
                a->out,
                a->lse,
                nn_attention_sizes_of(a->shape, a->ld_q, a->ld_kv, a->causal),
                nn_split_of((double)a->scale * NN_LOG2E),
                0,
                nn_aligned_16(a->q, a->k, a->v) && nn_rows_16(a->ld_kv, a->ld_q, a->dtype),
                nn_aligned_16(a->out)};
  const int32_t status = nn_check_starts(ctx, a->starts, a->shape);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  const int64_t pairs = a->shape.batch * a->shape.kv_heads;
  NN_SWITCH_FLOATS(a->dtype, return flash_by_dim<T>(ctx, p, pairs, a->dtype));
}
