/* Generated from bindings.h by `make generate`. Do not edit. */
#include "dispatch.h"

int32_t nn_call_kernel(int32_t kernel, nncuda_ctx *ctx, const nn_slot *slots) {
  switch (kernel) {
  case 0:
    return nn_api.cuda_silu(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int32_t)slots[3].integer);
  case 1:
    return nn_api.cuda_silu_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int32_t)slots[4].integer);
  case 2:
    return nn_api.cuda_add(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int32_t)slots[4].integer);
  case 3:
    return nn_api.cuda_mul(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int32_t)slots[4].integer);
  case 4:
    return nn_api.cuda_scale(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (float)slots[3].real, (int32_t)slots[4].integer);
  case 5:
    return nn_api.cuda_swiglu(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer);
  case 6:
    return nn_api.cuda_swiglu_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int32_t)slots[9].integer);
  case 7:
    return nn_api.cuda_relu2_gate(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int32_t)slots[6].integer);
  case 8:
    return nn_api.cuda_cast(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int32_t)slots[3].integer, (int32_t)slots[4].integer);
  case 9:
    return nn_api.cuda_round(ctx, (const float *)(uintptr_t)slots[0].bits, (float *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int32_t)slots[3].integer);
  case 10:
    return nn_api.cuda_fill(ctx, (void *)(uintptr_t)slots[0].bits, (int64_t)slots[1].integer, (float)slots[2].real, (int32_t)slots[3].integer);
  case 11:
    return nn_api.cuda_increment(ctx, (int32_t *)(uintptr_t)slots[0].bits, (int64_t)slots[1].integer, (int32_t)slots[2].integer);
  case 12:
    return nn_api.cuda_softcap(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (float)slots[3].real, (int32_t)slots[4].integer);
  case 13:
    return nn_api.cuda_geglu(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int32_t)slots[6].integer);
  case 14:
    return nn_api.cuda_swiglu_clipped(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (float)slots[6].real, (float)slots[7].real, (int32_t)slots[8].integer);
  case 15:
    return nn_api.cuda_relu2_gate_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int32_t)slots[8].integer);
  case 16:
    return nn_api.cuda_act_dequant_i8(ctx, (const void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int32_t)slots[5].integer);
  case 17:
    return nn_api.cuda_grouped_bias(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer);
  case 18:
    return nn_api.cuda_softmax(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int32_t)slots[4].integer);
  case 19:
    return nn_api.cuda_softmax_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int32_t)slots[5].integer);
  case 20:
    return nn_api.cuda_softmax_topk(ctx, (const void *)(uintptr_t)slots[0].bits, (float *)(uintptr_t)slots[1].bits, (int32_t *)(uintptr_t)slots[2].bits, (float *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer, (int32_t)slots[8].integer);
  case 21:
    return nn_api.cuda_softmax_topk_backward(ctx, (const float *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const float *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int32_t)slots[9].integer, (int32_t)slots[10].integer);
  case 22:
    return nn_api.cuda_rmsnorm(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (float *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (float)slots[6].real, (int32_t)slots[7].integer);
  case 23:
    return nn_api.cuda_rmsnorm_residual(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (float *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (float)slots[8].real, (int32_t)slots[9].integer);
  case 24:
    return nn_api.cuda_rmsnorm_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const void *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (float *)(uintptr_t)slots[6].bits, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int32_t)slots[9].integer);
  case 25:
    return nn_api.cuda_gemm(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int32_t)slots[6].integer, (int32_t)slots[7].integer, (int32_t)slots[8].integer, (int32_t)slots[9].integer);
  case 26:
    return nn_api.cuda_gemm_beta(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (float)slots[9].real, (float)slots[10].real, (int32_t)slots[11].integer, (int32_t)slots[12].integer, (int32_t)slots[13].integer, (int32_t)slots[14].integer);
  case 27:
    return nn_api.cuda_gemm_epilogue(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const void *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int32_t)slots[8].integer, (int32_t)slots[9].integer);
  case 28:
    return nn_api.cuda_batched_gemm(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (float)slots[7].real, (float)slots[8].real, (int32_t)slots[9].integer, (int32_t)slots[10].integer, (int32_t)slots[11].integer, (int32_t)slots[12].integer);
  case 29:
    return nn_api.cuda_grouped_gemm(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (float)slots[8].real, (int32_t)slots[9].integer, (int32_t)slots[10].integer, (int32_t)slots[11].integer);
  case 30:
    return nn_api.cuda_grouped_gemm_wgrad(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (float)slots[8].real, (int32_t)slots[9].integer, (int32_t)slots[10].integer);
  case 31:
    return nn_api.cuda_grouped_gemm_swiglu(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int32_t)slots[9].integer);
  case 32:
    return nn_api.cuda_grouped_gemm_swiglu_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int32_t)slots[8].integer);
  case 33:
    return nn_api.cuda_grouped_gemm_fp8(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int32_t)slots[8].integer, (int32_t)slots[9].integer, (int32_t)slots[10].integer);
  case 34:
    return nn_api.cuda_grouped_gemm_wgrad_fp8(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (float)slots[8].real, (int32_t)slots[9].integer, (int32_t)slots[10].integer);
  case 35:
    return nn_api.cuda_embedding(ctx, (const void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int32_t)slots[6].integer);
  case 36:
    return nn_api.cuda_scatter_add(ctx, (const void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int32_t)slots[6].integer);
  case 37:
    return nn_api.cuda_pool_rows(ctx, (const float *)(uintptr_t)slots[0].bits, (float *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer);
  case 38:
    return nn_api.cuda_pool_unit(ctx, (const float *)(uintptr_t)slots[0].bits, (float *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer);
  case 39:
    return nn_api.cuda_rope_freqs(ctx, (float *)(uintptr_t)slots[0].bits, (float *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (double)slots[5].real, (double)slots[6].real);
  case 40:
    return nn_api.cuda_rope_freqs_scaled(ctx, (const float *)(uintptr_t)slots[0].bits, (float *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (double)slots[6].real, (double)slots[7].real, (double)slots[8].real);
  case 41:
    return nn_api.cuda_rope_forward(ctx, (const void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const float *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int32_t)slots[11].integer, (int32_t)slots[12].integer);
  case 42:
    return nn_api.cuda_rope_qk(ctx, (void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (const float *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (int32_t)slots[12].integer, (int32_t)slots[13].integer);
  case 43:
    return nn_api.cuda_rope_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const float *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int32_t)slots[11].integer, (int32_t)slots[12].integer);
  case 44:
    return nn_api.cuda_attention_scores(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (float)slots[9].real, (int32_t)slots[10].integer, (int32_t)slots[11].integer);
  case 45:
    return nn_api.cuda_attention_output(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int32_t)slots[9].integer);
  case 46:
    return nn_api.cuda_flash_attention(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (float *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (float)slots[14].real, (int32_t)slots[15].integer, (int32_t)slots[16].integer);
  case 47:
    return nn_api.cuda_flash_attention_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const void *)(uintptr_t)slots[3].bits, (const void *)(uintptr_t)slots[4].bits, (const float *)(uintptr_t)slots[5].bits, (const int32_t *)(uintptr_t)slots[6].bits, (void *)(uintptr_t)slots[7].bits, (void *)(uintptr_t)slots[8].bits, (void *)(uintptr_t)slots[9].bits, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (int64_t)slots[15].integer, (int64_t)slots[16].integer, (int64_t)slots[17].integer, (float)slots[18].real, (int32_t)slots[19].integer, (int32_t)slots[20].integer);
  case 48:
    return nn_api.cuda_document_starts(ctx, (const int32_t *)(uintptr_t)slots[0].bits, (int32_t *)(uintptr_t)slots[1].bits, (int32_t *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int32_t)slots[5].integer);
  case 49:
    return nn_api.cuda_attention_decode(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (float)slots[11].real, (int32_t)slots[12].integer);
  case 50:
    return nn_api.cuda_flash_attention_paged(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (const int32_t *)(uintptr_t)slots[5].bits, (const float *)(uintptr_t)slots[6].bits, (void *)(uintptr_t)slots[7].bits, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (int64_t)slots[15].integer, (int64_t)slots[16].integer, (float)slots[17].real, (int64_t)slots[18].integer, (float)slots[19].real, (int32_t)slots[20].integer, (int32_t)slots[21].integer);
  case 51:
    return nn_api.cuda_attention_decode_paged(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (const float *)(uintptr_t)slots[5].bits, (void *)(uintptr_t)slots[6].bits, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (float)slots[15].real, (int64_t)slots[16].integer, (float)slots[17].real, (int32_t)slots[18].integer, (int32_t)slots[19].integer);
  case 52:
    return nn_api.cuda_attention_step_paged(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const float *)(uintptr_t)slots[4].bits, (const int32_t *)(uintptr_t)slots[5].bits, (const int32_t *)(uintptr_t)slots[6].bits, (const int32_t *)(uintptr_t)slots[7].bits, (const float *)(uintptr_t)slots[8].bits, (void *)(uintptr_t)slots[9].bits, (void *)(uintptr_t)slots[10].bits, (void *)(uintptr_t)slots[11].bits, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (int64_t)slots[15].integer, (int64_t)slots[16].integer, (int64_t)slots[17].integer, (int64_t)slots[18].integer, (int64_t)slots[19].integer, (int64_t)slots[20].integer, (int64_t)slots[21].integer, (float)slots[22].real, (int64_t)slots[23].integer, (float)slots[24].real, (int32_t)slots[25].integer, (int32_t)slots[26].integer, (int32_t)slots[27].integer);
  case 53:
    return nn_api.cuda_kv_append(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int32_t)slots[11].integer);
  case 54:
    return nn_api.cuda_kv_trim(ctx, (void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int32_t *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int32_t)slots[8].integer);
  case 55:
    return nn_api.cuda_kv_append_paged(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (void *)(uintptr_t)slots[6].bits, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (int32_t)slots[15].integer, (int32_t)slots[16].integer);
  case 56:
    return nn_api.cuda_moe_plan(ctx, (const int32_t *)(uintptr_t)slots[0].bits, (int32_t *)(uintptr_t)slots[1].bits, (int32_t *)(uintptr_t)slots[2].bits, (int32_t *)(uintptr_t)slots[3].bits, (int32_t *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer);
  case 57:
    return nn_api.cuda_moe_gather(ctx, (const void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int32_t)slots[6].integer);
  case 58:
    return nn_api.cuda_moe_route(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int32_t *)(uintptr_t)slots[3].bits, (float *)(uintptr_t)slots[4].bits, (int32_t *)(uintptr_t)slots[5].bits, (int32_t *)(uintptr_t)slots[6].bits, (int32_t *)(uintptr_t)slots[7].bits, (int32_t *)(uintptr_t)slots[8].bits, (void *)(uintptr_t)slots[9].bits, (float *)(uintptr_t)slots[10].bits, (int64_t)slots[11].integer, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (int32_t)slots[15].integer, (int64_t)slots[16].integer, (float)slots[17].real, (int32_t)slots[18].integer, (int32_t)slots[19].integer);
  case 59:
    return nn_api.cuda_moe_route_backward(ctx, (const float *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (const float *)(uintptr_t)slots[5].bits, (void *)(uintptr_t)slots[6].bits, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int32_t)slots[10].integer, (float)slots[11].real, (int32_t)slots[12].integer);
  case 60:
    return nn_api.cuda_moe_gather_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int32_t)slots[6].integer);
  case 61:
    return nn_api.cuda_moe_combine(ctx, (const void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const void *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int32_t)slots[8].integer);
  case 62:
    return nn_api.cuda_moe_combine_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const float *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (float *)(uintptr_t)slots[6].bits, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int32_t)slots[10].integer);
  case 63:
    return nn_api.cuda_moe_output_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const float *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (const float *)(uintptr_t)slots[4].bits, (const int32_t *)(uintptr_t)slots[5].bits, (const int32_t *)(uintptr_t)slots[6].bits, (const int32_t *)(uintptr_t)slots[7].bits, (const float *)(uintptr_t)slots[8].bits, (void *)(uintptr_t)slots[9].bits, (float *)(uintptr_t)slots[10].bits, (void *)(uintptr_t)slots[11].bits, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (int64_t)slots[15].integer, (int32_t)slots[16].integer, (float)slots[17].real, (int32_t)slots[18].integer);
  case 64:
    return nn_api.cuda_moe_input_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const void *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (void *)(uintptr_t)slots[6].bits, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (float)slots[11].real, (int32_t)slots[12].integer, (int32_t)slots[13].integer);
  case 65:
    return nn_api.cuda_cross_entropy_forward(ctx, (const void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (float *)(uintptr_t)slots[3].bits, (float *)(uintptr_t)slots[4].bits, (int32_t *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int32_t)slots[8].integer, (int32_t)slots[9].integer);
  case 66:
    return nn_api.cuda_cross_entropy_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (const float *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (void *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer, (int32_t)slots[8].integer);
  case 67:
    return nn_api.cuda_aux_loss_forward(ctx, (const float *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (float)slots[5].real);
  case 68:
    return nn_api.cuda_aux_loss_backward(ctx, (const int32_t *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (float)slots[5].real);
  case 69:
    return nn_api.cuda_weighted_mean(ctx, (const float *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer);
  case 70:
    return nn_api.cuda_adamw_step(ctx, (const float *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (float *)(uintptr_t)slots[5].bits, (float *)(uintptr_t)slots[6].bits, (float *)(uintptr_t)slots[7].bits, (void *)(uintptr_t)slots[8].bits, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (float)slots[11].real, (float)slots[12].real, (float)slots[13].real, (float)slots[14].real, (int32_t)slots[15].integer);
  case 71:
    return nn_api.cuda_adamw_step_bf16(ctx, (const float *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (float *)(uintptr_t)slots[5].bits, (void *)(uintptr_t)slots[6].bits, (void *)(uintptr_t)slots[7].bits, (void *)(uintptr_t)slots[8].bits, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (float)slots[12].real, (float)slots[13].real, (float)slots[14].real, (float)slots[15].real, (int32_t)slots[16].integer);
  case 72:
    return nn_api.cuda_adamw_step_f8(ctx, (const float *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (float *)(uintptr_t)slots[5].bits, (void *)(uintptr_t)slots[6].bits, (float *)(uintptr_t)slots[7].bits, (void *)(uintptr_t)slots[8].bits, (float *)(uintptr_t)slots[9].bits, (void *)(uintptr_t)slots[10].bits, (int64_t)slots[11].integer, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (float)slots[15].real, (float)slots[16].real, (float)slots[17].real, (float)slots[18].real, (int32_t)slots[19].integer);
  case 73:
    return nn_api.cuda_zero_grad(ctx, (void *)(uintptr_t)slots[0].bits, (int64_t)slots[1].integer, (int32_t)slots[2].integer);
  case 74:
    return nn_api.cuda_grad_norm(ctx, (const void *)(uintptr_t)slots[0].bits, (float *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int32_t)slots[3].integer);
  case 75:
    return nn_api.cuda_grad_clip(ctx, (const float *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (float)slots[5].real, (int32_t)slots[6].integer);
  case 76:
    return nn_api.cuda_lr_schedule(ctx, (const int32_t *)(uintptr_t)slots[0].bits, (int32_t *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (float)slots[5].real, (float)slots[6].real);
  case 77:
    return nn_api.cuda_loss_scale_update(ctx, (const float *)(uintptr_t)slots[0].bits, (float *)(uintptr_t)slots[1].bits, (int32_t *)(uintptr_t)slots[2].bits, (int32_t *)(uintptr_t)slots[3].bits, (int32_t *)(uintptr_t)slots[4].bits, (float)slots[5].real, (float)slots[6].real, (int64_t)slots[7].integer);
  case 78:
    return nn_api.cuda_argmax(ctx, (const void *)(uintptr_t)slots[0].bits, (int32_t *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int32_t)slots[4].integer);
  case 79:
    return nn_api.cuda_sample(ctx, (const void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int64_t *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (int32_t *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer);
  case 80:
    return nn_api.cuda_topk_sample(ctx, (const void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const int64_t *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (int32_t *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int32_t)slots[8].integer);
  case 81:
    return nn_api.cuda_topp_sample(ctx, (const void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const int64_t *)(uintptr_t)slots[4].bits, (const int32_t *)(uintptr_t)slots[5].bits, (int32_t *)(uintptr_t)slots[6].bits, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int32_t)slots[9].integer);
  case 82:
    return nn_api.cuda_minp_sample(ctx, (const void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const float *)(uintptr_t)slots[4].bits, (const int64_t *)(uintptr_t)slots[5].bits, (const int32_t *)(uintptr_t)slots[6].bits, (int32_t *)(uintptr_t)slots[7].bits, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int32_t)slots[10].integer);
  case 83:
    return nn_api.cuda_count_tokens(ctx, (const int32_t *)(uintptr_t)slots[0].bits, (int32_t *)(uintptr_t)slots[1].bits, (int32_t *)(uintptr_t)slots[2].bits, (int32_t *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer);
  case 84:
    return nn_api.cuda_penalize_logits(ctx, (void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const float *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const int32_t *)(uintptr_t)slots[4].bits, (const int32_t *)(uintptr_t)slots[5].bits, (const int32_t *)(uintptr_t)slots[6].bits, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int32_t)slots[10].integer);
  case 85:
    return nn_api.cuda_bias_logits(ctx, (void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer);
  case 86:
    return nn_api.cuda_mask_logits(ctx, (void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer);
  case 87:
    return nn_api.cuda_logprobs(ctx, (const void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int32_t *)(uintptr_t)slots[3].bits, (float *)(uintptr_t)slots[4].bits, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int32_t)slots[8].integer);
  case 88:
    return nn_api.cuda_quantize(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int32_t)slots[5].integer, (int32_t)slots[6].integer);
  case 89:
    return nn_api.cuda_dequantize(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int32_t)slots[5].integer, (int32_t)slots[6].integer);
  case 90:
    return nn_api.cuda_embedding_quant(ctx, (const void *)(uintptr_t)slots[0].bits, (const int32_t *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer, (int32_t)slots[8].integer);
  case 91:
    return nn_api.cuda_gemm_quant(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (const void *)(uintptr_t)slots[3].bits, (const void *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int32_t)slots[11].integer, (int32_t)slots[12].integer, (int32_t)slots[13].integer);
  case 92:
    return nn_api.cuda_gemm_quant_qkv(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const void *)(uintptr_t)slots[3].bits, (const void *)(uintptr_t)slots[4].bits, (const void *)(uintptr_t)slots[5].bits, (void *)(uintptr_t)slots[6].bits, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (float)slots[15].real, (int32_t)slots[16].integer, (int32_t)slots[17].integer, (int32_t)slots[18].integer, (int32_t)slots[19].integer);
  case 93:
    return nn_api.cuda_gemm_quant_swiglu(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const int32_t *)(uintptr_t)slots[3].bits, (const void *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (float)slots[12].real, (int32_t)slots[13].integer, (int32_t)slots[14].integer, (int32_t)slots[15].integer);
  case 94:
    return nn_api.cuda_gemm_quant_route(ctx, (const float *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (float *)(uintptr_t)slots[3].bits, (float *)(uintptr_t)slots[4].bits, (float *)(uintptr_t)slots[5].bits, (int32_t *)(uintptr_t)slots[6].bits, (float *)(uintptr_t)slots[7].bits, (int32_t *)(uintptr_t)slots[8].bits, (int32_t *)(uintptr_t)slots[9].bits, (int32_t *)(uintptr_t)slots[10].bits, (int32_t *)(uintptr_t)slots[11].bits, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (int64_t)slots[15].integer, (int64_t)slots[16].integer, (float)slots[17].real, (int32_t)slots[18].integer, (int32_t)slots[19].integer);
  case 95:
    return nn_api.cuda_gemm_quant_experts(ctx, (const float *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const void *)(uintptr_t)slots[3].bits, (const float *)(uintptr_t)slots[4].bits, (const int32_t *)(uintptr_t)slots[5].bits, (const int32_t *)(uintptr_t)slots[6].bits, (const int32_t *)(uintptr_t)slots[7].bits, (const float *)(uintptr_t)slots[8].bits, (float *)(uintptr_t)slots[9].bits, (int64_t)slots[10].integer, (int64_t)slots[11].integer, (int64_t)slots[12].integer, (int64_t)slots[13].integer, (int64_t)slots[14].integer, (int64_t)slots[15].integer, (int64_t)slots[16].integer, (int64_t)slots[17].integer, (int32_t)slots[18].integer, (int32_t)slots[19].integer, (int32_t)slots[20].integer);
  case 96:
    return nn_api.cuda_interleave_rows(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int32_t)slots[5].integer);
  case 97:
    return nn_api.cuda_act_quant_i8(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int32_t)slots[5].integer);
  case 98:
    return nn_api.cuda_rmsnorm_quant_i8(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (void *)(uintptr_t)slots[2].bits, (float *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (float)slots[6].real, (int32_t)slots[7].integer);
  case 99:
    return nn_api.cuda_ternary_quantize(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (float *)(uintptr_t)slots[2].bits, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int32_t)slots[5].integer);
  case 100:
    return nn_api.cuda_ternary_pack(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer);
  case 101:
    return nn_api.cuda_ternary_unpack(ctx, (const void *)(uintptr_t)slots[0].bits, (void *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int64_t)slots[4].integer, (int64_t)slots[5].integer);
  case 102:
    return nn_api.cuda_bitlinear(ctx, (const void *)(uintptr_t)slots[0].bits, (const float *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const void *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (int32_t)slots[11].integer);
  case 103:
    return nn_api.cuda_bitlinear_norm(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const void *)(uintptr_t)slots[2].bits, (const float *)(uintptr_t)slots[3].bits, (const void *)(uintptr_t)slots[4].bits, (void *)(uintptr_t)slots[5].bits, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (int64_t)slots[9].integer, (int64_t)slots[10].integer, (float)slots[11].real, (int32_t)slots[12].integer);
  case 104:
    return nn_api.cuda_gemm_quant_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const int32_t *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (float)slots[9].real, (int32_t)slots[10].integer, (int32_t)slots[11].integer);
  case 105:
    return nn_api.cuda_bitlinear_backward(ctx, (const void *)(uintptr_t)slots[0].bits, (const void *)(uintptr_t)slots[1].bits, (const float *)(uintptr_t)slots[2].bits, (void *)(uintptr_t)slots[3].bits, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int64_t)slots[7].integer, (int64_t)slots[8].integer, (float)slots[9].real, (int32_t)slots[10].integer);
  case 106:
    return nn_api.cuda_digest(ctx, (const void *)(uintptr_t)slots[0].bits, (int64_t *)(uintptr_t)slots[1].bits, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int64_t)slots[4].integer);
  case 107:
    return nn_api.cuda_random_bits(ctx, (int32_t *)(uintptr_t)slots[0].bits, (int64_t)slots[1].integer, (int64_t)slots[2].integer, (int64_t)slots[3].integer, (int64_t)slots[4].integer);
  case 108:
    return nn_api.cuda_uniform(ctx, (void *)(uintptr_t)slots[0].bits, (int64_t)slots[1].integer, (float)slots[2].real, (float)slots[3].real, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer);
  case 109:
    return nn_api.cuda_normal(ctx, (void *)(uintptr_t)slots[0].bits, (int64_t)slots[1].integer, (float)slots[2].real, (float)slots[3].real, (int64_t)slots[4].integer, (int64_t)slots[5].integer, (int64_t)slots[6].integer, (int32_t)slots[7].integer);
  default:
    return NNCUDA_ERROR_INTERNAL;
  }
}
