/*
 * How the kernels of the GPU engine lay out their workspaces: host C without CUDA, in every build, so that a run on a
 * GPU can be planned on a machine, and by a library, without one. A family's functions stand in <family>_workspace.h,
 * which its .cu file includes, too. A kernel that is not here has no workspace.
 */
#include "comm/collective.h"
#include "kernels/attention_workspace.h"
#include "kernels/decode_workspace.h"
#include "kernels/embedding_workspace.h"
#include "kernels/gemm_fp8_workspace.h"
#include "kernels/gemm_workspace.h"
#include "kernels/lora_workspace.h"
#include "kernels/loss_workspace.h"
#include "kernels/moe_workspace.h"
#include "kernels/optimizer_workspace.h"
#include "kernels/quant_workspace.h"
#include "kernels/rmsnorm_workspace.h"
#include "kernels/rope_workspace.h"
#include "kernels/ternary_workspace.h"
#include "runtime/device.h"

#define LAYOUT(op, statement)                                                                                          \
  static void op##_layout(const void *args, nn_workspace *w) {                                                         \
    const nn_##op##_args *const a = args;                                                                              \
    statement;                                                                                                         \
  }
LAYOUT(attention_decode, nn_decode_lay_out(a, w))
LAYOUT(attention_decode_paged, nn_decode_paged_lay_out(a->batch, a->heads, a->max_pages, a->head_dim, w))
LAYOUT(attention_step_paged, nn_decode_paged_lay_out(a->batch, a->heads, a->max_pages, a->head_dim, w))
LAYOUT(flash_attention_paged, nn_flash_paged_lay_out(a, w))
LAYOUT(flash_attention_backward, nn_backward_lay_out(a, w))
LAYOUT(scatter_add, nn_scatter_lay_out(a, w))
LAYOUT(gemm, nn_gemm_lay_out(a, w))
LAYOUT(grouped_gemm_fp8, nn_fp8_lay_out(a, w))
LAYOUT(grouped_gemm_wgrad_fp8, nn_fp8_weights_lay_out(a, w))
LAYOUT(cross_entropy_forward, nn_entropy_lay_out(a, w))
LAYOUT(aux_loss_forward, nn_aux_lay_out(a->tokens * a->experts, w))
LAYOUT(moe_input_backward, nn_router_lay_out(a, w))
LAYOUT(moe_plan, nn_moe_plan_lay_out(a, w))
LAYOUT(moe_route, nn_moe_route_lay_out(a, w))
LAYOUT(adamw_step, ((void)a, nn_adamw_lay_out(w)))
LAYOUT(grad_norm, nn_grad_norm_lay_out(a, w))
LAYOUT(gemm_quant, nn_quant_lay_out(a, 0, w))
LAYOUT(gemm_quant_experts, nn_quant_experts_workspace(a, w))
LAYOUT(gemm_quant_route, nn_quant_route_lay_out(a, w))
LAYOUT(gemm_quant_backward, nn_lora_lay_out(nn_lora_stored(a, NN_LORA_PANEL_BYTES), w))
LAYOUT(bitlinear_backward, nn_lora_lay_out(nn_lora_ternary(a, NN_LORA_PANEL_BYTES), w))
LAYOUT(rmsnorm_backward, nn_norm_lay_out(a, w))
LAYOUT(rope_freqs, nn_rope_lay_out(a->head_dim, w))
LAYOUT(rope_freqs_scaled, nn_rope_lay_out(a->head_dim, w))
LAYOUT(ternary_quantize, nn_ternary_lay_out(a, w))
LAYOUT(bitlinear_norm, nn_ternary_rows_lay_out(a, w))
LAYOUT(argmax, nn_argmax_lay_out(a, w))
LAYOUT(logprobs, nn_logprobs_lay_out(a, w))
LAYOUT(sample, nn_sample_lay_out(a, w))

const nn_layout nn_gpu_workspaces[NN_OP_ALL] = {
    [NN_OP_comm_all_reduce] = nn_comm_all_reduce_workspace,
    [NN_OP_comm_reduce_scatter] = nn_comm_reduce_scatter_workspace,
    [NN_OP_comm_grad_norm] = nn_comm_grad_norm_workspace,
    [NN_OP_attention_decode] = attention_decode_layout,
    [NN_OP_attention_decode_paged] = attention_decode_paged_layout,
    [NN_OP_attention_step_paged] = attention_step_paged_layout,
    [NN_OP_flash_attention_paged] = flash_attention_paged_layout,
    [NN_OP_flash_attention_backward] = flash_attention_backward_layout,
    [NN_OP_scatter_add] = scatter_add_layout,
    [NN_OP_gemm] = gemm_layout,
    [NN_OP_gemm_beta] = gemm_layout,
    [NN_OP_gemm_epilogue] = gemm_layout,
    [NN_OP_batched_gemm] = gemm_layout,
    [NN_OP_grouped_gemm] = gemm_layout,
    [NN_OP_grouped_gemm_wgrad] = gemm_layout,
    [NN_OP_grouped_gemm_fp8] = grouped_gemm_fp8_layout,
    [NN_OP_grouped_gemm_wgrad_fp8] = grouped_gemm_wgrad_fp8_layout,
    [NN_OP_cross_entropy_forward] = cross_entropy_forward_layout,
    [NN_OP_aux_loss_forward] = aux_loss_forward_layout,
    [NN_OP_moe_input_backward] = moe_input_backward_layout,
    [NN_OP_moe_plan] = moe_plan_layout,
    [NN_OP_moe_route] = moe_route_layout,
    [NN_OP_adamw_step] = adamw_step_layout,
    [NN_OP_adamw_step_bf16] = adamw_step_layout,
    [NN_OP_adamw_step_f8] = adamw_step_layout,
    [NN_OP_grad_norm] = grad_norm_layout,
    [NN_OP_gemm_quant] = gemm_quant_layout,
    [NN_OP_gemm_quant_qkv] = gemm_quant_layout,
    [NN_OP_gemm_quant_swiglu] = gemm_quant_layout,
    [NN_OP_gemm_quant_experts] = gemm_quant_experts_layout,
    [NN_OP_gemm_quant_route] = gemm_quant_route_layout,
    [NN_OP_gemm_quant_backward] = gemm_quant_backward_layout,
    [NN_OP_bitlinear_backward] = bitlinear_backward_layout,
    [NN_OP_rmsnorm_backward] = rmsnorm_backward_layout,
    [NN_OP_rope_freqs] = rope_freqs_layout,
    [NN_OP_rope_freqs_scaled] = rope_freqs_scaled_layout,
    [NN_OP_ternary_quantize] = ternary_quantize_layout,
    [NN_OP_bitlinear_norm] = bitlinear_norm_layout,
    [NN_OP_argmax] = argmax_layout,
    [NN_OP_logprobs] = logprobs_layout,
    [NN_OP_sample] = sample_layout,
    [NN_OP_topk_sample] = sample_layout,
    [NN_OP_topp_sample] = sample_layout,
    [NN_OP_minp_sample] = sample_layout,
};
