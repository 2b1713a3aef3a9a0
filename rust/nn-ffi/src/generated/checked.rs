// Generated from bindings.h by `make generate`. Do not edit.

//! Typed functions by name: each takes an argument a parameter, and leaves out what its tensors tell.

use crate::catalogue::Argument;
use crate::{Activation, Format, Result, RopeLayout, kernels};

pub(super) fn silu(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::silu(arguments[0].tensor()?, arguments[1].tensor()?)
}

pub(super) fn silu_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::silu_backward(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn add(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::add(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn mul(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::mul(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn scale(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::scale(arguments[0].tensor()?, arguments[1].tensor()?, arguments[3].float()?)
}

pub(super) fn swiglu(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::swiglu(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].optional()?, arguments[3].tensor()?)
}

pub(super) fn swiglu_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::swiglu_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
    )
}

pub(super) fn relu2_gate(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::relu2_gate(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn cast(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::cast(arguments[0].tensor()?, arguments[1].tensor()?)
}

pub(super) fn round(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::round(arguments[0].tensor()?, arguments[1].tensor()?, arguments[3].dtype()?)
}

pub(super) fn fill(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::fill(arguments[0].tensor()?, arguments[2].float()?)
}

pub(super) fn increment(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::increment(arguments[0].tensor()?, arguments[2].int32()?)
}

pub(super) fn softcap(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::softcap(arguments[0].tensor()?, arguments[1].tensor()?, arguments[3].float()?)
}

pub(super) fn geglu(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::geglu(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn swiglu_clipped(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::swiglu_clipped(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[6].float()?,
        arguments[7].float()?,
    )
}

pub(super) fn relu2_gate_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::relu2_gate_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
    )
}

pub(super) fn act_dequant_i8(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::act_dequant_i8(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn grouped_bias(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::grouped_bias(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
    )
}

pub(super) fn softmax(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::softmax(arguments[0].tensor()?, arguments[1].tensor()?)
}

pub(super) fn softmax_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::softmax_backward(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn softmax_topk(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::softmax_topk(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[7].flag()?,
    )
}

pub(super) fn softmax_topk_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::softmax_topk_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].optional()?,
        arguments[5].tensor()?,
        arguments[9].flag()?,
    )
}

pub(super) fn rmsnorm(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::rmsnorm(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[6].float()?,
    )
}

pub(super) fn rmsnorm_residual(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::rmsnorm_residual(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].optional()?,
        arguments[8].float()?,
    )
}

pub(super) fn rmsnorm_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::rmsnorm_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].optional()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
    )
}

pub(super) fn gemm(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::gemm(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[6].flag()?,
        arguments[7].flag()?,
    )
}

pub(super) fn gemm_beta(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::gemm_beta(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[9].float()?,
        arguments[10].float()?,
        arguments[11].flag()?,
        arguments[12].flag()?,
    )
}

pub(super) fn gemm_epilogue(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::gemm_epilogue(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].optional()?,
        arguments[3].optional()?,
        arguments[4].tensor()?,
        arguments[8].choice(Activation::from_code)?,
    )
}

pub(super) fn batched_gemm(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::batched_gemm(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[7].float()?,
        arguments[8].float()?,
        arguments[9].flag()?,
        arguments[10].flag()?,
    )
}

pub(super) fn grouped_gemm(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::grouped_gemm(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[8].float()?,
        arguments[9].flag()?,
    )
}

pub(super) fn grouped_gemm_wgrad(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::grouped_gemm_wgrad(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[8].float()?,
    )
}

pub(super) fn grouped_gemm_swiglu(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::grouped_gemm_swiglu(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
    )
}

pub(super) fn grouped_gemm_swiglu_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::grouped_gemm_swiglu_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
    )
}

pub(super) fn grouped_gemm_fp8(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::grouped_gemm_fp8(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[8].flag()?,
    )
}

pub(super) fn grouped_gemm_wgrad_fp8(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::grouped_gemm_wgrad_fp8(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[8].float()?,
    )
}

pub(super) fn embedding(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::embedding(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn scatter_add(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::scatter_add(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn pool_rows(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::pool_rows(arguments[0].tensor()?, arguments[1].tensor()?)
}

pub(super) fn pool_unit(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::pool_unit(arguments[0].tensor()?, arguments[1].tensor()?)
}

pub(super) fn rope_freqs(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::rope_freqs(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].int64()?,
        arguments[5].double()?,
        arguments[6].double()?,
    )
}

pub(super) fn rope_freqs_scaled(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::rope_freqs_scaled(
        arguments[0].optional()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].int64()?,
        arguments[6].double()?,
        arguments[7].double()?,
        arguments[8].double()?,
    )
}

pub(super) fn rope_forward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::rope_forward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[11].choice(RopeLayout::from_code)?,
    )
}

pub(super) fn rope_qk(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::rope_qk(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[12].choice(RopeLayout::from_code)?,
    )
}

pub(super) fn rope_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::rope_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[11].choice(RopeLayout::from_code)?,
    )
}

pub(super) fn attention_scores(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::attention_scores(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[9].float()?,
        arguments[10].flag()?,
    )
}

pub(super) fn attention_output(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::attention_output(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn flash_attention(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::flash_attention(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[4].tensor()?,
        arguments[5].optional()?,
        arguments[6].size()?,
        arguments[14].float()?,
        arguments[15].flag()?,
    )
}

pub(super) fn flash_attention_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::flash_attention_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].optional()?,
        arguments[7].tensor()?,
        arguments[8].tensor()?,
        arguments[9].tensor()?,
        arguments[18].float()?,
        arguments[19].flag()?,
    )
}

pub(super) fn document_starts(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::document_starts(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[5].int32()?,
    )
}

pub(super) fn attention_decode(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::attention_decode(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[11].float()?,
    )
}

pub(super) fn flash_attention_paged(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::flash_attention_paged(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].optional()?,
        arguments[7].tensor()?,
        arguments[13].size()?,
        arguments[17].float()?,
        arguments[18].int64()?,
        arguments[19].float()?,
        arguments[20].choice(Format::from_code)?,
    )
}

pub(super) fn attention_decode_paged(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::attention_decode_paged(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].optional()?,
        arguments[6].tensor()?,
        arguments[11].size()?,
        arguments[15].float()?,
        arguments[16].int64()?,
        arguments[17].float()?,
        arguments[18].choice(Format::from_code)?,
    )
}

pub(super) fn attention_step_paged(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::attention_step_paged(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[7].tensor()?,
        arguments[8].optional()?,
        arguments[9].tensor()?,
        arguments[10].tensor()?,
        arguments[11].tensor()?,
        arguments[22].float()?,
        arguments[23].int64()?,
        arguments[24].float()?,
        arguments[25].choice(RopeLayout::from_code)?,
        arguments[26].choice(Format::from_code)?,
    )
}

pub(super) fn kv_append(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::kv_append(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
    )
}

pub(super) fn kv_trim(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::kv_trim(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?, arguments[7].int64()?)
}

pub(super) fn kv_append_paged(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::kv_append_paged(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[15].choice(Format::from_code)?,
    )
}

pub(super) fn moe_plan(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::moe_plan(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[8].int64()?,
    )
}

pub(super) fn moe_gather(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::moe_gather(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn moe_route(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::moe_route(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[7].tensor()?,
        arguments[8].tensor()?,
        arguments[9].tensor()?,
        arguments[10].optional()?,
        arguments[15].flag()?,
        arguments[16].int64()?,
        arguments[17].float()?,
    )
}

pub(super) fn moe_route_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::moe_route_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[10].flag()?,
        arguments[11].float()?,
    )
}

pub(super) fn moe_gather_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::moe_gather_backward(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn moe_combine(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::moe_combine(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[4].tensor()?,
    )
}

pub(super) fn moe_combine_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::moe_combine_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
    )
}

pub(super) fn moe_output_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::moe_output_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[7].tensor()?,
        arguments[8].tensor()?,
        arguments[9].tensor()?,
        arguments[10].tensor()?,
        arguments[11].tensor()?,
        arguments[16].flag()?,
        arguments[17].float()?,
    )
}

pub(super) fn moe_input_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::moe_input_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[11].float()?,
    )
}

pub(super) fn cross_entropy_forward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::cross_entropy_forward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].optional()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[8].int32()?,
    )
}

pub(super) fn cross_entropy_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::cross_entropy_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[7].int32()?,
    )
}

pub(super) fn aux_loss_forward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::aux_loss_forward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[5].float()?,
    )
}

pub(super) fn aux_loss_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::aux_loss_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[5].float()?,
    )
}

pub(super) fn weighted_mean(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::weighted_mean(
        arguments[0].tensor()?,
        arguments[1].optional()?,
        arguments[2].tensor()?,
        arguments[4].int64()?,
    )
}

pub(super) fn adamw_step(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::adamw_step(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[4].optional()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[7].tensor()?,
        arguments[8].optional()?,
        arguments[10].int64()?,
        arguments[11].float()?,
        arguments[12].float()?,
        arguments[13].float()?,
        arguments[14].float()?,
    )
}

pub(super) fn adamw_step_bf16(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::adamw_step_bf16(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[4].optional()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[7].tensor()?,
        arguments[8].optional()?,
        arguments[10].int64()?,
        arguments[11].int64()?,
        arguments[12].float()?,
        arguments[13].float()?,
        arguments[14].float()?,
        arguments[15].float()?,
    )
}

pub(super) fn adamw_step_f8(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::adamw_step_f8(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[4].optional()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[7].tensor()?,
        arguments[8].tensor()?,
        arguments[9].tensor()?,
        arguments[10].optional()?,
        arguments[13].int64()?,
        arguments[14].int64()?,
        arguments[15].float()?,
        arguments[16].float()?,
        arguments[17].float()?,
        arguments[18].float()?,
    )
}

pub(super) fn zero_grad(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::zero_grad(arguments[0].tensor()?)
}

pub(super) fn grad_norm(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::grad_norm(arguments[0].tensor()?, arguments[1].tensor()?)
}

pub(super) fn grad_clip(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::grad_clip(
        arguments[0].tensor()?,
        arguments[1].optional()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[5].float()?,
    )
}

pub(super) fn lr_schedule(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::lr_schedule(
        arguments[0].optional()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].int64()?,
        arguments[4].int64()?,
        arguments[5].float()?,
        arguments[6].float()?,
    )
}

pub(super) fn loss_scale_update(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::loss_scale_update(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].float()?,
        arguments[6].float()?,
        arguments[7].int64()?,
    )
}

pub(super) fn argmax(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::argmax(arguments[0].tensor()?, arguments[1].tensor()?)
}

pub(super) fn sample(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::sample(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
    )
}

pub(super) fn topk_sample(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::topk_sample(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
    )
}

pub(super) fn topp_sample(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::topp_sample(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].optional()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
    )
}

pub(super) fn minp_sample(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::minp_sample(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].optional()?,
        arguments[3].optional()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[7].tensor()?,
    )
}

pub(super) fn count_tokens(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::count_tokens(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[5].size()?,
    )
}

pub(super) fn penalize_logits(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::penalize_logits(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
    )
}

pub(super) fn bias_logits(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::bias_logits(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?, arguments[3].tensor()?)
}

pub(super) fn mask_logits(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::mask_logits(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn logprobs(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::logprobs(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[4].optional()?,
    )
}

pub(super) fn quantize(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::quantize(arguments[0].tensor()?, arguments[1].tensor()?, arguments[5].choice(Format::from_code)?)
}

pub(super) fn dequantize(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::dequantize(arguments[0].tensor()?, arguments[1].tensor()?, arguments[5].choice(Format::from_code)?)
}

pub(super) fn embedding_quant(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::embedding_quant(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[7].choice(Format::from_code)?,
    )
}

pub(super) fn gemm_quant(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::gemm_quant(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].optional()?,
        arguments[3].optional()?,
        arguments[4].optional()?,
        arguments[5].tensor()?,
        arguments[11].choice(Activation::from_code)?,
        arguments[12].choice(Format::from_code)?,
    )
}

pub(super) fn gemm_quant_qkv(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::gemm_quant_qkv(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].optional()?,
        arguments[5].optional()?,
        arguments[6].tensor()?,
        arguments[15].float()?,
        arguments[16].choice(Format::from_code)?,
        arguments[17].choice(Format::from_code)?,
        arguments[18].choice(Format::from_code)?,
    )
}

pub(super) fn gemm_quant_swiglu(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::gemm_quant_swiglu(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[4].optional()?,
        arguments[5].tensor()?,
        arguments[12].float()?,
        arguments[13].choice(Format::from_code)?,
        arguments[14].choice(Format::from_code)?,
    )
}

pub(super) fn gemm_quant_route(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::gemm_quant_route(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[7].tensor()?,
        arguments[8].tensor()?,
        arguments[9].tensor()?,
        arguments[10].tensor()?,
        arguments[11].tensor()?,
        arguments[17].float()?,
        arguments[18].flag()?,
        arguments[19].choice(Format::from_code)?,
    )
}

pub(super) fn gemm_quant_experts(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::gemm_quant_experts(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].tensor()?,
        arguments[5].tensor()?,
        arguments[6].tensor()?,
        arguments[7].tensor()?,
        arguments[8].optional()?,
        arguments[9].tensor()?,
        arguments[18].choice(Format::from_code)?,
        arguments[19].choice(Format::from_code)?,
        arguments[20].choice(Format::from_code)?,
    )
}

pub(super) fn interleave_rows(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::interleave_rows(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[3].size()?,
        arguments[5].choice(Format::from_code)?,
    )
}

pub(super) fn act_quant_i8(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::act_quant_i8(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn rmsnorm_quant_i8(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::rmsnorm_quant_i8(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[6].float()?,
    )
}

pub(super) fn ternary_quantize(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::ternary_quantize(arguments[0].tensor()?, arguments[1].tensor()?, arguments[2].tensor()?)
}

pub(super) fn ternary_pack(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::ternary_pack(arguments[0].tensor()?, arguments[1].tensor()?)
}

pub(super) fn ternary_unpack(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::ternary_unpack(arguments[0].tensor()?, arguments[1].tensor()?)
}

pub(super) fn bitlinear(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::bitlinear(
        arguments[0].tensor()?,
        arguments[1].optional()?,
        arguments[2].tensor()?,
        arguments[3].optional()?,
        arguments[4].optional()?,
        arguments[5].tensor()?,
    )
}

pub(super) fn bitlinear_norm(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::bitlinear_norm(
        arguments[0].tensor()?,
        arguments[1].optional()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[4].optional()?,
        arguments[5].tensor()?,
        arguments[11].float()?,
    )
}

pub(super) fn gemm_quant_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::gemm_quant_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].optional()?,
        arguments[3].tensor()?,
        arguments[9].float()?,
        arguments[10].choice(Format::from_code)?,
    )
}

pub(super) fn bitlinear_backward(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::bitlinear_backward(
        arguments[0].tensor()?,
        arguments[1].tensor()?,
        arguments[2].tensor()?,
        arguments[3].tensor()?,
        arguments[9].float()?,
    )
}

pub(super) fn digest(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::digest(arguments[0].tensor()?, arguments[1].tensor()?, arguments[4].int64()?)
}

pub(super) fn random_bits(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::random_bits(arguments[0].tensor()?, arguments[2].int64()?, arguments[3].int64()?, arguments[4].int64()?)
}

pub(super) fn uniform(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::uniform(
        arguments[0].tensor()?,
        arguments[2].float()?,
        arguments[3].float()?,
        arguments[4].int64()?,
        arguments[5].int64()?,
        arguments[6].int64()?,
    )
}

pub(super) fn normal(arguments: &[Argument<'_>]) -> Result<()> {
    kernels::normal(
        arguments[0].tensor()?,
        arguments[2].float()?,
        arguments[3].float()?,
        arguments[4].int64()?,
        arguments[5].int64()?,
        arguments[6].int64()?,
    )
}
