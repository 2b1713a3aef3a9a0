// Generated from bindings.h by `make generate`. Do not edit.

//! The table of pointers to the library's functions.

use core::ffi::{CStr, c_void};
use core::mem::transmute;

use super::functions;

/// Where a function is.
pub type Address = *const c_void;

/// A pointer to each function of the contract, under its name in bindings.h.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// See [`functions::nncuda_abi_version`].
    pub nncuda_abi_version: functions::nncuda_abi_version,
    /// See [`functions::nncuda_build_info`].
    pub nncuda_build_info: functions::nncuda_build_info,
    /// See [`functions::nncuda_status_name`].
    pub nncuda_status_name: functions::nncuda_status_name,
    /// See [`functions::nncuda_status_string`].
    pub nncuda_status_string: functions::nncuda_status_string,
    /// See [`functions::nncuda_dtype_size`].
    pub nncuda_dtype_size: functions::nncuda_dtype_size,
    /// See [`functions::nncuda_format_row_bytes`].
    pub nncuda_format_row_bytes: functions::nncuda_format_row_bytes,
    /// See [`functions::nncuda_device_count`].
    pub nncuda_device_count: functions::nncuda_device_count,
    /// See [`functions::nncuda_device_describe`].
    pub nncuda_device_describe: functions::nncuda_device_describe,
    /// See [`functions::nncuda_ctx_create`].
    pub nncuda_ctx_create: functions::nncuda_ctx_create,
    /// See [`functions::nncuda_ctx_create_measuring`].
    pub nncuda_ctx_create_measuring: functions::nncuda_ctx_create_measuring,
    /// See [`functions::nncuda_ctx_destroy`].
    pub nncuda_ctx_destroy: functions::nncuda_ctx_destroy,
    /// See [`functions::nncuda_ctx_synchronize`].
    pub nncuda_ctx_synchronize: functions::nncuda_ctx_synchronize,
    /// See [`functions::nncuda_ctx_get`].
    pub nncuda_ctx_get: functions::nncuda_ctx_get,
    /// See [`functions::nncuda_ctx_set`].
    pub nncuda_ctx_set: functions::nncuda_ctx_set,
    /// See [`functions::nncuda_last_error`].
    pub nncuda_last_error: functions::nncuda_last_error,
    /// See [`functions::nncuda_malloc`].
    pub nncuda_malloc: functions::nncuda_malloc,
    /// See [`functions::nncuda_malloc_parts`].
    pub nncuda_malloc_parts: functions::nncuda_malloc_parts,
    /// See [`functions::nncuda_free`].
    pub nncuda_free: functions::nncuda_free,
    /// See [`functions::nncuda_malloc_host`].
    pub nncuda_malloc_host: functions::nncuda_malloc_host,
    /// See [`functions::nncuda_free_host`].
    pub nncuda_free_host: functions::nncuda_free_host,
    /// See [`functions::nncuda_memory_info`].
    pub nncuda_memory_info: functions::nncuda_memory_info,
    /// See [`functions::nncuda_memset`].
    pub nncuda_memset: functions::nncuda_memset,
    /// See [`functions::nncuda_memcpy`].
    pub nncuda_memcpy: functions::nncuda_memcpy,
    /// See [`functions::nncuda_memcpy_async`].
    pub nncuda_memcpy_async: functions::nncuda_memcpy_async,
    /// See [`functions::nncuda_stream_create`].
    pub nncuda_stream_create: functions::nncuda_stream_create,
    /// See [`functions::nncuda_stream_destroy`].
    pub nncuda_stream_destroy: functions::nncuda_stream_destroy,
    /// See [`functions::nncuda_stream_synchronize`].
    pub nncuda_stream_synchronize: functions::nncuda_stream_synchronize,
    /// See [`functions::nncuda_stream_wait_event`].
    pub nncuda_stream_wait_event: functions::nncuda_stream_wait_event,
    /// See [`functions::nncuda_event_create`].
    pub nncuda_event_create: functions::nncuda_event_create,
    /// See [`functions::nncuda_event_destroy`].
    pub nncuda_event_destroy: functions::nncuda_event_destroy,
    /// See [`functions::nncuda_event_record`].
    pub nncuda_event_record: functions::nncuda_event_record,
    /// See [`functions::nncuda_event_synchronize`].
    pub nncuda_event_synchronize: functions::nncuda_event_synchronize,
    /// See [`functions::nncuda_event_query`].
    pub nncuda_event_query: functions::nncuda_event_query,
    /// See [`functions::nncuda_event_elapsed`].
    pub nncuda_event_elapsed: functions::nncuda_event_elapsed,
    /// See [`functions::nncuda_graph_begin`].
    pub nncuda_graph_begin: functions::nncuda_graph_begin,
    /// See [`functions::nncuda_graph_end`].
    pub nncuda_graph_end: functions::nncuda_graph_end,
    /// See [`functions::nncuda_graph_launch`].
    pub nncuda_graph_launch: functions::nncuda_graph_launch,
    /// See [`functions::nncuda_graph_size`].
    pub nncuda_graph_size: functions::nncuda_graph_size,
    /// See [`functions::nncuda_graph_destroy`].
    pub nncuda_graph_destroy: functions::nncuda_graph_destroy,
    /// See [`functions::nncuda_profile_begin`].
    pub nncuda_profile_begin: functions::nncuda_profile_begin,
    /// See [`functions::nncuda_profile_end`].
    pub nncuda_profile_end: functions::nncuda_profile_end,
    /// See [`functions::nncuda_profile_report`].
    pub nncuda_profile_report: functions::nncuda_profile_report,
    /// See [`functions::nncuda_trace_begin`].
    pub nncuda_trace_begin: functions::nncuda_trace_begin,
    /// See [`functions::nncuda_trace_begin_nonfinite`].
    pub nncuda_trace_begin_nonfinite: functions::nncuda_trace_begin_nonfinite,
    /// See [`functions::nncuda_trace_begin_shadow`].
    pub nncuda_trace_begin_shadow: functions::nncuda_trace_begin_shadow,
    /// See [`functions::nncuda_trace_label`].
    pub nncuda_trace_label: functions::nncuda_trace_label,
    /// See [`functions::nncuda_trace_end`].
    pub nncuda_trace_end: functions::nncuda_trace_end,
    /// See [`functions::nncuda_trace_read`].
    pub nncuda_trace_read: functions::nncuda_trace_read,
    /// See [`functions::nncuda_data_order`].
    pub nncuda_data_order: functions::nncuda_data_order,
    /// See [`functions::nncuda_shard`].
    pub nncuda_shard: functions::nncuda_shard,
    /// See [`functions::nncuda_expert_shards`].
    pub nncuda_expert_shards: functions::nncuda_expert_shards,
    /// See [`functions::nncuda_replica_merges`].
    pub nncuda_replica_merges: functions::nncuda_replica_merges,
    /// See [`functions::nncuda_expert_schedule`].
    pub nncuda_expert_schedule: functions::nncuda_expert_schedule,
    /// See [`functions::nncuda_comm_create`].
    pub nncuda_comm_create: functions::nncuda_comm_create,
    /// See [`functions::nncuda_comm_rank`].
    pub nncuda_comm_rank: functions::nncuda_comm_rank,
    /// See [`functions::nncuda_comm_split`].
    pub nncuda_comm_split: functions::nncuda_comm_split,
    /// See [`functions::nncuda_comm_part`].
    pub nncuda_comm_part: functions::nncuda_comm_part,
    /// See [`functions::nncuda_comm_destroy`].
    pub nncuda_comm_destroy: functions::nncuda_comm_destroy,
    /// See [`functions::nncuda_comm_abort`].
    pub nncuda_comm_abort: functions::nncuda_comm_abort,
    /// See [`functions::nncuda_comm_agree`].
    pub nncuda_comm_agree: functions::nncuda_comm_agree,
    /// See [`functions::nncuda_comm_sum`].
    pub nncuda_comm_sum: functions::nncuda_comm_sum,
    /// See [`functions::nncuda_comm_barrier`].
    pub nncuda_comm_barrier: functions::nncuda_comm_barrier,
    /// See [`functions::nncuda_comm_bytes_sent`].
    pub nncuda_comm_bytes_sent: functions::nncuda_comm_bytes_sent,
    /// See [`functions::nncuda_comm_broadcast`].
    pub nncuda_comm_broadcast: functions::nncuda_comm_broadcast,
    /// See [`functions::nncuda_comm_all_gather`].
    pub nncuda_comm_all_gather: functions::nncuda_comm_all_gather,
    /// See [`functions::nncuda_comm_all_reduce`].
    pub nncuda_comm_all_reduce: functions::nncuda_comm_all_reduce,
    /// See [`functions::nncuda_comm_reduce_scatter`].
    pub nncuda_comm_reduce_scatter: functions::nncuda_comm_reduce_scatter,
    /// See [`functions::nncuda_comm_reduce_scatter_room`].
    pub nncuda_comm_reduce_scatter_room: functions::nncuda_comm_reduce_scatter_room,
    /// See [`functions::nncuda_comm_reduce_scatter_begin`].
    pub nncuda_comm_reduce_scatter_begin: functions::nncuda_comm_reduce_scatter_begin,
    /// See [`functions::nncuda_comm_reduce_scatter_end`].
    pub nncuda_comm_reduce_scatter_end: functions::nncuda_comm_reduce_scatter_end,
    /// See [`functions::nncuda_comm_move`].
    pub nncuda_comm_move: functions::nncuda_comm_move,
    /// See [`functions::nncuda_comm_dispatch`].
    pub nncuda_comm_dispatch: functions::nncuda_comm_dispatch,
    /// See [`functions::nncuda_comm_collect`].
    pub nncuda_comm_collect: functions::nncuda_comm_collect,
    /// See [`functions::nncuda_comm_dispatch_begin`].
    pub nncuda_comm_dispatch_begin: functions::nncuda_comm_dispatch_begin,
    /// See [`functions::nncuda_comm_dispatch_end`].
    pub nncuda_comm_dispatch_end: functions::nncuda_comm_dispatch_end,
    /// See [`functions::nncuda_comm_collect_begin`].
    pub nncuda_comm_collect_begin: functions::nncuda_comm_collect_begin,
    /// See [`functions::nncuda_comm_collect_end`].
    pub nncuda_comm_collect_end: functions::nncuda_comm_collect_end,
    /// See [`functions::nncuda_comm_grad_norm`].
    pub nncuda_comm_grad_norm: functions::nncuda_comm_grad_norm,
    /// See [`functions::cuda_silu`].
    pub cuda_silu: functions::cuda_silu,
    /// See [`functions::cuda_silu_backward`].
    pub cuda_silu_backward: functions::cuda_silu_backward,
    /// See [`functions::cuda_add`].
    pub cuda_add: functions::cuda_add,
    /// See [`functions::cuda_mul`].
    pub cuda_mul: functions::cuda_mul,
    /// See [`functions::cuda_scale`].
    pub cuda_scale: functions::cuda_scale,
    /// See [`functions::cuda_swiglu`].
    pub cuda_swiglu: functions::cuda_swiglu,
    /// See [`functions::cuda_swiglu_backward`].
    pub cuda_swiglu_backward: functions::cuda_swiglu_backward,
    /// See [`functions::cuda_relu2_gate`].
    pub cuda_relu2_gate: functions::cuda_relu2_gate,
    /// See [`functions::cuda_cast`].
    pub cuda_cast: functions::cuda_cast,
    /// See [`functions::cuda_round`].
    pub cuda_round: functions::cuda_round,
    /// See [`functions::cuda_fill`].
    pub cuda_fill: functions::cuda_fill,
    /// See [`functions::cuda_increment`].
    pub cuda_increment: functions::cuda_increment,
    /// See [`functions::cuda_softcap`].
    pub cuda_softcap: functions::cuda_softcap,
    /// See [`functions::cuda_geglu`].
    pub cuda_geglu: functions::cuda_geglu,
    /// See [`functions::cuda_swiglu_clipped`].
    pub cuda_swiglu_clipped: functions::cuda_swiglu_clipped,
    /// See [`functions::cuda_relu2_gate_backward`].
    pub cuda_relu2_gate_backward: functions::cuda_relu2_gate_backward,
    /// See [`functions::cuda_act_dequant_i8`].
    pub cuda_act_dequant_i8: functions::cuda_act_dequant_i8,
    /// See [`functions::cuda_grouped_bias`].
    pub cuda_grouped_bias: functions::cuda_grouped_bias,
    /// See [`functions::cuda_softmax`].
    pub cuda_softmax: functions::cuda_softmax,
    /// See [`functions::cuda_softmax_backward`].
    pub cuda_softmax_backward: functions::cuda_softmax_backward,
    /// See [`functions::cuda_softmax_topk`].
    pub cuda_softmax_topk: functions::cuda_softmax_topk,
    /// See [`functions::cuda_softmax_topk_backward`].
    pub cuda_softmax_topk_backward: functions::cuda_softmax_topk_backward,
    /// See [`functions::cuda_rmsnorm`].
    pub cuda_rmsnorm: functions::cuda_rmsnorm,
    /// See [`functions::cuda_rmsnorm_residual`].
    pub cuda_rmsnorm_residual: functions::cuda_rmsnorm_residual,
    /// See [`functions::cuda_rmsnorm_backward`].
    pub cuda_rmsnorm_backward: functions::cuda_rmsnorm_backward,
    /// See [`functions::cuda_gemm`].
    pub cuda_gemm: functions::cuda_gemm,
    /// See [`functions::cuda_gemm_beta`].
    pub cuda_gemm_beta: functions::cuda_gemm_beta,
    /// See [`functions::cuda_gemm_epilogue`].
    pub cuda_gemm_epilogue: functions::cuda_gemm_epilogue,
    /// See [`functions::cuda_batched_gemm`].
    pub cuda_batched_gemm: functions::cuda_batched_gemm,
    /// See [`functions::cuda_grouped_gemm`].
    pub cuda_grouped_gemm: functions::cuda_grouped_gemm,
    /// See [`functions::cuda_grouped_gemm_wgrad`].
    pub cuda_grouped_gemm_wgrad: functions::cuda_grouped_gemm_wgrad,
    /// See [`functions::cuda_grouped_gemm_swiglu`].
    pub cuda_grouped_gemm_swiglu: functions::cuda_grouped_gemm_swiglu,
    /// See [`functions::cuda_grouped_gemm_swiglu_backward`].
    pub cuda_grouped_gemm_swiglu_backward: functions::cuda_grouped_gemm_swiglu_backward,
    /// See [`functions::cuda_grouped_gemm_fp8`].
    pub cuda_grouped_gemm_fp8: functions::cuda_grouped_gemm_fp8,
    /// See [`functions::cuda_grouped_gemm_wgrad_fp8`].
    pub cuda_grouped_gemm_wgrad_fp8: functions::cuda_grouped_gemm_wgrad_fp8,
    /// See [`functions::cuda_embedding`].
    pub cuda_embedding: functions::cuda_embedding,
    /// See [`functions::cuda_scatter_add`].
    pub cuda_scatter_add: functions::cuda_scatter_add,
    /// See [`functions::cuda_pool_rows`].
    pub cuda_pool_rows: functions::cuda_pool_rows,
    /// See [`functions::cuda_pool_unit`].
    pub cuda_pool_unit: functions::cuda_pool_unit,
    /// See [`functions::cuda_rope_freqs`].
    pub cuda_rope_freqs: functions::cuda_rope_freqs,
    /// See [`functions::cuda_rope_freqs_scaled`].
    pub cuda_rope_freqs_scaled: functions::cuda_rope_freqs_scaled,
    /// See [`functions::cuda_rope_forward`].
    pub cuda_rope_forward: functions::cuda_rope_forward,
    /// See [`functions::cuda_rope_qk`].
    pub cuda_rope_qk: functions::cuda_rope_qk,
    /// See [`functions::cuda_rope_backward`].
    pub cuda_rope_backward: functions::cuda_rope_backward,
    /// See [`functions::cuda_attention_scores`].
    pub cuda_attention_scores: functions::cuda_attention_scores,
    /// See [`functions::cuda_attention_output`].
    pub cuda_attention_output: functions::cuda_attention_output,
    /// See [`functions::cuda_flash_attention`].
    pub cuda_flash_attention: functions::cuda_flash_attention,
    /// See [`functions::cuda_flash_attention_backward`].
    pub cuda_flash_attention_backward: functions::cuda_flash_attention_backward,
    /// See [`functions::cuda_document_starts`].
    pub cuda_document_starts: functions::cuda_document_starts,
    /// See [`functions::cuda_attention_decode`].
    pub cuda_attention_decode: functions::cuda_attention_decode,
    /// See [`functions::cuda_flash_attention_paged`].
    pub cuda_flash_attention_paged: functions::cuda_flash_attention_paged,
    /// See [`functions::cuda_attention_decode_paged`].
    pub cuda_attention_decode_paged: functions::cuda_attention_decode_paged,
    /// See [`functions::cuda_attention_step_paged`].
    pub cuda_attention_step_paged: functions::cuda_attention_step_paged,
    /// See [`functions::cuda_kv_append`].
    pub cuda_kv_append: functions::cuda_kv_append,
    /// See [`functions::cuda_kv_trim`].
    pub cuda_kv_trim: functions::cuda_kv_trim,
    /// See [`functions::cuda_kv_append_paged`].
    pub cuda_kv_append_paged: functions::cuda_kv_append_paged,
    /// See [`functions::cuda_moe_plan`].
    pub cuda_moe_plan: functions::cuda_moe_plan,
    /// See [`functions::cuda_moe_gather`].
    pub cuda_moe_gather: functions::cuda_moe_gather,
    /// See [`functions::cuda_moe_route`].
    pub cuda_moe_route: functions::cuda_moe_route,
    /// See [`functions::cuda_moe_route_backward`].
    pub cuda_moe_route_backward: functions::cuda_moe_route_backward,
    /// See [`functions::cuda_moe_gather_backward`].
    pub cuda_moe_gather_backward: functions::cuda_moe_gather_backward,
    /// See [`functions::cuda_moe_combine`].
    pub cuda_moe_combine: functions::cuda_moe_combine,
    /// See [`functions::cuda_moe_combine_backward`].
    pub cuda_moe_combine_backward: functions::cuda_moe_combine_backward,
    /// See [`functions::cuda_moe_output_backward`].
    pub cuda_moe_output_backward: functions::cuda_moe_output_backward,
    /// See [`functions::cuda_moe_input_backward`].
    pub cuda_moe_input_backward: functions::cuda_moe_input_backward,
    /// See [`functions::cuda_cross_entropy_forward`].
    pub cuda_cross_entropy_forward: functions::cuda_cross_entropy_forward,
    /// See [`functions::cuda_cross_entropy_backward`].
    pub cuda_cross_entropy_backward: functions::cuda_cross_entropy_backward,
    /// See [`functions::cuda_aux_loss_forward`].
    pub cuda_aux_loss_forward: functions::cuda_aux_loss_forward,
    /// See [`functions::cuda_aux_loss_backward`].
    pub cuda_aux_loss_backward: functions::cuda_aux_loss_backward,
    /// See [`functions::cuda_weighted_mean`].
    pub cuda_weighted_mean: functions::cuda_weighted_mean,
    /// See [`functions::cuda_adamw_step`].
    pub cuda_adamw_step: functions::cuda_adamw_step,
    /// See [`functions::cuda_adamw_step_bf16`].
    pub cuda_adamw_step_bf16: functions::cuda_adamw_step_bf16,
    /// See [`functions::cuda_adamw_step_f8`].
    pub cuda_adamw_step_f8: functions::cuda_adamw_step_f8,
    /// See [`functions::cuda_zero_grad`].
    pub cuda_zero_grad: functions::cuda_zero_grad,
    /// See [`functions::cuda_grad_norm`].
    pub cuda_grad_norm: functions::cuda_grad_norm,
    /// See [`functions::cuda_grad_clip`].
    pub cuda_grad_clip: functions::cuda_grad_clip,
    /// See [`functions::cuda_lr_schedule`].
    pub cuda_lr_schedule: functions::cuda_lr_schedule,
    /// See [`functions::cuda_loss_scale_update`].
    pub cuda_loss_scale_update: functions::cuda_loss_scale_update,
    /// See [`functions::cuda_argmax`].
    pub cuda_argmax: functions::cuda_argmax,
    /// See [`functions::cuda_sample`].
    pub cuda_sample: functions::cuda_sample,
    /// See [`functions::cuda_topk_sample`].
    pub cuda_topk_sample: functions::cuda_topk_sample,
    /// See [`functions::cuda_topp_sample`].
    pub cuda_topp_sample: functions::cuda_topp_sample,
    /// See [`functions::cuda_minp_sample`].
    pub cuda_minp_sample: functions::cuda_minp_sample,
    /// See [`functions::cuda_count_tokens`].
    pub cuda_count_tokens: functions::cuda_count_tokens,
    /// See [`functions::cuda_penalize_logits`].
    pub cuda_penalize_logits: functions::cuda_penalize_logits,
    /// See [`functions::cuda_bias_logits`].
    pub cuda_bias_logits: functions::cuda_bias_logits,
    /// See [`functions::cuda_mask_logits`].
    pub cuda_mask_logits: functions::cuda_mask_logits,
    /// See [`functions::cuda_logprobs`].
    pub cuda_logprobs: functions::cuda_logprobs,
    /// See [`functions::cuda_quantize`].
    pub cuda_quantize: functions::cuda_quantize,
    /// See [`functions::cuda_dequantize`].
    pub cuda_dequantize: functions::cuda_dequantize,
    /// See [`functions::cuda_embedding_quant`].
    pub cuda_embedding_quant: functions::cuda_embedding_quant,
    /// See [`functions::cuda_gemm_quant`].
    pub cuda_gemm_quant: functions::cuda_gemm_quant,
    /// See [`functions::cuda_gemm_quant_qkv`].
    pub cuda_gemm_quant_qkv: functions::cuda_gemm_quant_qkv,
    /// See [`functions::cuda_gemm_quant_swiglu`].
    pub cuda_gemm_quant_swiglu: functions::cuda_gemm_quant_swiglu,
    /// See [`functions::cuda_gemm_quant_route`].
    pub cuda_gemm_quant_route: functions::cuda_gemm_quant_route,
    /// See [`functions::cuda_gemm_quant_experts`].
    pub cuda_gemm_quant_experts: functions::cuda_gemm_quant_experts,
    /// See [`functions::cuda_interleave_rows`].
    pub cuda_interleave_rows: functions::cuda_interleave_rows,
    /// See [`functions::cuda_act_quant_i8`].
    pub cuda_act_quant_i8: functions::cuda_act_quant_i8,
    /// See [`functions::cuda_rmsnorm_quant_i8`].
    pub cuda_rmsnorm_quant_i8: functions::cuda_rmsnorm_quant_i8,
    /// See [`functions::cuda_ternary_quantize`].
    pub cuda_ternary_quantize: functions::cuda_ternary_quantize,
    /// See [`functions::cuda_ternary_pack`].
    pub cuda_ternary_pack: functions::cuda_ternary_pack,
    /// See [`functions::cuda_ternary_unpack`].
    pub cuda_ternary_unpack: functions::cuda_ternary_unpack,
    /// See [`functions::cuda_bitlinear`].
    pub cuda_bitlinear: functions::cuda_bitlinear,
    /// See [`functions::cuda_bitlinear_norm`].
    pub cuda_bitlinear_norm: functions::cuda_bitlinear_norm,
    /// See [`functions::cuda_gemm_quant_backward`].
    pub cuda_gemm_quant_backward: functions::cuda_gemm_quant_backward,
    /// See [`functions::cuda_bitlinear_backward`].
    pub cuda_bitlinear_backward: functions::cuda_bitlinear_backward,
    /// See [`functions::cuda_digest`].
    pub cuda_digest: functions::cuda_digest,
    /// See [`functions::cuda_random_bits`].
    pub cuda_random_bits: functions::cuda_random_bits,
    /// See [`functions::cuda_uniform`].
    pub cuda_uniform: functions::cuda_uniform,
    /// See [`functions::cuda_normal`].
    pub cuda_normal: functions::cuda_normal,
}

impl Functions {
    /// The names of all functions, in the header's order.
    pub const NAMES: [&'static CStr; 188] = [
        c"nncuda_abi_version",
        c"nncuda_build_info",
        c"nncuda_status_name",
        c"nncuda_status_string",
        c"nncuda_dtype_size",
        c"nncuda_format_row_bytes",
        c"nncuda_device_count",
        c"nncuda_device_describe",
        c"nncuda_ctx_create",
        c"nncuda_ctx_create_measuring",
        c"nncuda_ctx_destroy",
        c"nncuda_ctx_synchronize",
        c"nncuda_ctx_get",
        c"nncuda_ctx_set",
        c"nncuda_last_error",
        c"nncuda_malloc",
        c"nncuda_malloc_parts",
        c"nncuda_free",
        c"nncuda_malloc_host",
        c"nncuda_free_host",
        c"nncuda_memory_info",
        c"nncuda_memset",
        c"nncuda_memcpy",
        c"nncuda_memcpy_async",
        c"nncuda_stream_create",
        c"nncuda_stream_destroy",
        c"nncuda_stream_synchronize",
        c"nncuda_stream_wait_event",
        c"nncuda_event_create",
        c"nncuda_event_destroy",
        c"nncuda_event_record",
        c"nncuda_event_synchronize",
        c"nncuda_event_query",
        c"nncuda_event_elapsed",
        c"nncuda_graph_begin",
        c"nncuda_graph_end",
        c"nncuda_graph_launch",
        c"nncuda_graph_size",
        c"nncuda_graph_destroy",
        c"nncuda_profile_begin",
        c"nncuda_profile_end",
        c"nncuda_profile_report",
        c"nncuda_trace_begin",
        c"nncuda_trace_begin_nonfinite",
        c"nncuda_trace_begin_shadow",
        c"nncuda_trace_label",
        c"nncuda_trace_end",
        c"nncuda_trace_read",
        c"nncuda_data_order",
        c"nncuda_shard",
        c"nncuda_expert_shards",
        c"nncuda_replica_merges",
        c"nncuda_expert_schedule",
        c"nncuda_comm_create",
        c"nncuda_comm_rank",
        c"nncuda_comm_split",
        c"nncuda_comm_part",
        c"nncuda_comm_destroy",
        c"nncuda_comm_abort",
        c"nncuda_comm_agree",
        c"nncuda_comm_sum",
        c"nncuda_comm_barrier",
        c"nncuda_comm_bytes_sent",
        c"nncuda_comm_broadcast",
        c"nncuda_comm_all_gather",
        c"nncuda_comm_all_reduce",
        c"nncuda_comm_reduce_scatter",
        c"nncuda_comm_reduce_scatter_room",
        c"nncuda_comm_reduce_scatter_begin",
        c"nncuda_comm_reduce_scatter_end",
        c"nncuda_comm_move",
        c"nncuda_comm_dispatch",
        c"nncuda_comm_collect",
        c"nncuda_comm_dispatch_begin",
        c"nncuda_comm_dispatch_end",
        c"nncuda_comm_collect_begin",
        c"nncuda_comm_collect_end",
        c"nncuda_comm_grad_norm",
        c"cuda_silu",
        c"cuda_silu_backward",
        c"cuda_add",
        c"cuda_mul",
        c"cuda_scale",
        c"cuda_swiglu",
        c"cuda_swiglu_backward",
        c"cuda_relu2_gate",
        c"cuda_cast",
        c"cuda_round",
        c"cuda_fill",
        c"cuda_increment",
        c"cuda_softcap",
        c"cuda_geglu",
        c"cuda_swiglu_clipped",
        c"cuda_relu2_gate_backward",
        c"cuda_act_dequant_i8",
        c"cuda_grouped_bias",
        c"cuda_softmax",
        c"cuda_softmax_backward",
        c"cuda_softmax_topk",
        c"cuda_softmax_topk_backward",
        c"cuda_rmsnorm",
        c"cuda_rmsnorm_residual",
        c"cuda_rmsnorm_backward",
        c"cuda_gemm",
        c"cuda_gemm_beta",
        c"cuda_gemm_epilogue",
        c"cuda_batched_gemm",
        c"cuda_grouped_gemm",
        c"cuda_grouped_gemm_wgrad",
        c"cuda_grouped_gemm_swiglu",
        c"cuda_grouped_gemm_swiglu_backward",
        c"cuda_grouped_gemm_fp8",
        c"cuda_grouped_gemm_wgrad_fp8",
        c"cuda_embedding",
        c"cuda_scatter_add",
        c"cuda_pool_rows",
        c"cuda_pool_unit",
        c"cuda_rope_freqs",
        c"cuda_rope_freqs_scaled",
        c"cuda_rope_forward",
        c"cuda_rope_qk",
        c"cuda_rope_backward",
        c"cuda_attention_scores",
        c"cuda_attention_output",
        c"cuda_flash_attention",
        c"cuda_flash_attention_backward",
        c"cuda_document_starts",
        c"cuda_attention_decode",
        c"cuda_flash_attention_paged",
        c"cuda_attention_decode_paged",
        c"cuda_attention_step_paged",
        c"cuda_kv_append",
        c"cuda_kv_trim",
        c"cuda_kv_append_paged",
        c"cuda_moe_plan",
        c"cuda_moe_gather",
        c"cuda_moe_route",
        c"cuda_moe_route_backward",
        c"cuda_moe_gather_backward",
        c"cuda_moe_combine",
        c"cuda_moe_combine_backward",
        c"cuda_moe_output_backward",
        c"cuda_moe_input_backward",
        c"cuda_cross_entropy_forward",
        c"cuda_cross_entropy_backward",
        c"cuda_aux_loss_forward",
        c"cuda_aux_loss_backward",
        c"cuda_weighted_mean",
        c"cuda_adamw_step",
        c"cuda_adamw_step_bf16",
        c"cuda_adamw_step_f8",
        c"cuda_zero_grad",
        c"cuda_grad_norm",
        c"cuda_grad_clip",
        c"cuda_lr_schedule",
        c"cuda_loss_scale_update",
        c"cuda_argmax",
        c"cuda_sample",
        c"cuda_topk_sample",
        c"cuda_topp_sample",
        c"cuda_minp_sample",
        c"cuda_count_tokens",
        c"cuda_penalize_logits",
        c"cuda_bias_logits",
        c"cuda_mask_logits",
        c"cuda_logprobs",
        c"cuda_quantize",
        c"cuda_dequantize",
        c"cuda_embedding_quant",
        c"cuda_gemm_quant",
        c"cuda_gemm_quant_qkv",
        c"cuda_gemm_quant_swiglu",
        c"cuda_gemm_quant_route",
        c"cuda_gemm_quant_experts",
        c"cuda_interleave_rows",
        c"cuda_act_quant_i8",
        c"cuda_rmsnorm_quant_i8",
        c"cuda_ternary_quantize",
        c"cuda_ternary_pack",
        c"cuda_ternary_unpack",
        c"cuda_bitlinear",
        c"cuda_bitlinear_norm",
        c"cuda_gemm_quant_backward",
        c"cuda_bitlinear_backward",
        c"cuda_digest",
        c"cuda_random_bits",
        c"cuda_uniform",
        c"cuda_normal",
    ];

    /// Asks `address` for each function in turn and fills the table; the first error ends it.
    ///
    /// # Safety
    ///
    /// What `address` returns for a name must be the address of a function that has the type of that name in
    /// [`functions`] and does what bindings.h says of it, for as long as the table or a copy of it is used.
    pub unsafe fn resolve<E>(mut address: impl FnMut(&'static CStr) -> Result<Address, E>) -> Result<Self, E> {
        use functions::*;

        let mut at = |index: usize| address(Self::NAMES[index]);
        // SAFETY: the caller vouches for each address and its type.
        unsafe {
            Ok(Self {
                nncuda_abi_version: transmute::<Address, nncuda_abi_version>(at(0)?),
                nncuda_build_info: transmute::<Address, nncuda_build_info>(at(1)?),
                nncuda_status_name: transmute::<Address, nncuda_status_name>(at(2)?),
                nncuda_status_string: transmute::<Address, nncuda_status_string>(at(3)?),
                nncuda_dtype_size: transmute::<Address, nncuda_dtype_size>(at(4)?),
                nncuda_format_row_bytes: transmute::<Address, nncuda_format_row_bytes>(at(5)?),
                nncuda_device_count: transmute::<Address, nncuda_device_count>(at(6)?),
                nncuda_device_describe: transmute::<Address, nncuda_device_describe>(at(7)?),
                nncuda_ctx_create: transmute::<Address, nncuda_ctx_create>(at(8)?),
                nncuda_ctx_create_measuring: transmute::<Address, nncuda_ctx_create_measuring>(at(9)?),
                nncuda_ctx_destroy: transmute::<Address, nncuda_ctx_destroy>(at(10)?),
                nncuda_ctx_synchronize: transmute::<Address, nncuda_ctx_synchronize>(at(11)?),
                nncuda_ctx_get: transmute::<Address, nncuda_ctx_get>(at(12)?),
                nncuda_ctx_set: transmute::<Address, nncuda_ctx_set>(at(13)?),
                nncuda_last_error: transmute::<Address, nncuda_last_error>(at(14)?),
                nncuda_malloc: transmute::<Address, nncuda_malloc>(at(15)?),
                nncuda_malloc_parts: transmute::<Address, nncuda_malloc_parts>(at(16)?),
                nncuda_free: transmute::<Address, nncuda_free>(at(17)?),
                nncuda_malloc_host: transmute::<Address, nncuda_malloc_host>(at(18)?),
                nncuda_free_host: transmute::<Address, nncuda_free_host>(at(19)?),
                nncuda_memory_info: transmute::<Address, nncuda_memory_info>(at(20)?),
                nncuda_memset: transmute::<Address, nncuda_memset>(at(21)?),
                nncuda_memcpy: transmute::<Address, nncuda_memcpy>(at(22)?),
                nncuda_memcpy_async: transmute::<Address, nncuda_memcpy_async>(at(23)?),
                nncuda_stream_create: transmute::<Address, nncuda_stream_create>(at(24)?),
                nncuda_stream_destroy: transmute::<Address, nncuda_stream_destroy>(at(25)?),
                nncuda_stream_synchronize: transmute::<Address, nncuda_stream_synchronize>(at(26)?),
                nncuda_stream_wait_event: transmute::<Address, nncuda_stream_wait_event>(at(27)?),
                nncuda_event_create: transmute::<Address, nncuda_event_create>(at(28)?),
                nncuda_event_destroy: transmute::<Address, nncuda_event_destroy>(at(29)?),
                nncuda_event_record: transmute::<Address, nncuda_event_record>(at(30)?),
                nncuda_event_synchronize: transmute::<Address, nncuda_event_synchronize>(at(31)?),
                nncuda_event_query: transmute::<Address, nncuda_event_query>(at(32)?),
                nncuda_event_elapsed: transmute::<Address, nncuda_event_elapsed>(at(33)?),
                nncuda_graph_begin: transmute::<Address, nncuda_graph_begin>(at(34)?),
                nncuda_graph_end: transmute::<Address, nncuda_graph_end>(at(35)?),
                nncuda_graph_launch: transmute::<Address, nncuda_graph_launch>(at(36)?),
                nncuda_graph_size: transmute::<Address, nncuda_graph_size>(at(37)?),
                nncuda_graph_destroy: transmute::<Address, nncuda_graph_destroy>(at(38)?),
                nncuda_profile_begin: transmute::<Address, nncuda_profile_begin>(at(39)?),
                nncuda_profile_end: transmute::<Address, nncuda_profile_end>(at(40)?),
                nncuda_profile_report: transmute::<Address, nncuda_profile_report>(at(41)?),
                nncuda_trace_begin: transmute::<Address, nncuda_trace_begin>(at(42)?),
                nncuda_trace_begin_nonfinite: transmute::<Address, nncuda_trace_begin_nonfinite>(at(43)?),
                nncuda_trace_begin_shadow: transmute::<Address, nncuda_trace_begin_shadow>(at(44)?),
                nncuda_trace_label: transmute::<Address, nncuda_trace_label>(at(45)?),
                nncuda_trace_end: transmute::<Address, nncuda_trace_end>(at(46)?),
                nncuda_trace_read: transmute::<Address, nncuda_trace_read>(at(47)?),
                nncuda_data_order: transmute::<Address, nncuda_data_order>(at(48)?),
                nncuda_shard: transmute::<Address, nncuda_shard>(at(49)?),
                nncuda_expert_shards: transmute::<Address, nncuda_expert_shards>(at(50)?),
                nncuda_replica_merges: transmute::<Address, nncuda_replica_merges>(at(51)?),
                nncuda_expert_schedule: transmute::<Address, nncuda_expert_schedule>(at(52)?),
                nncuda_comm_create: transmute::<Address, nncuda_comm_create>(at(53)?),
                nncuda_comm_rank: transmute::<Address, nncuda_comm_rank>(at(54)?),
                nncuda_comm_split: transmute::<Address, nncuda_comm_split>(at(55)?),
                nncuda_comm_part: transmute::<Address, nncuda_comm_part>(at(56)?),
                nncuda_comm_destroy: transmute::<Address, nncuda_comm_destroy>(at(57)?),
                nncuda_comm_abort: transmute::<Address, nncuda_comm_abort>(at(58)?),
                nncuda_comm_agree: transmute::<Address, nncuda_comm_agree>(at(59)?),
                nncuda_comm_sum: transmute::<Address, nncuda_comm_sum>(at(60)?),
                nncuda_comm_barrier: transmute::<Address, nncuda_comm_barrier>(at(61)?),
                nncuda_comm_bytes_sent: transmute::<Address, nncuda_comm_bytes_sent>(at(62)?),
                nncuda_comm_broadcast: transmute::<Address, nncuda_comm_broadcast>(at(63)?),
                nncuda_comm_all_gather: transmute::<Address, nncuda_comm_all_gather>(at(64)?),
                nncuda_comm_all_reduce: transmute::<Address, nncuda_comm_all_reduce>(at(65)?),
                nncuda_comm_reduce_scatter: transmute::<Address, nncuda_comm_reduce_scatter>(at(66)?),
                nncuda_comm_reduce_scatter_room: transmute::<Address, nncuda_comm_reduce_scatter_room>(at(67)?),
                nncuda_comm_reduce_scatter_begin: transmute::<Address, nncuda_comm_reduce_scatter_begin>(at(68)?),
                nncuda_comm_reduce_scatter_end: transmute::<Address, nncuda_comm_reduce_scatter_end>(at(69)?),
                nncuda_comm_move: transmute::<Address, nncuda_comm_move>(at(70)?),
                nncuda_comm_dispatch: transmute::<Address, nncuda_comm_dispatch>(at(71)?),
                nncuda_comm_collect: transmute::<Address, nncuda_comm_collect>(at(72)?),
                nncuda_comm_dispatch_begin: transmute::<Address, nncuda_comm_dispatch_begin>(at(73)?),
                nncuda_comm_dispatch_end: transmute::<Address, nncuda_comm_dispatch_end>(at(74)?),
                nncuda_comm_collect_begin: transmute::<Address, nncuda_comm_collect_begin>(at(75)?),
                nncuda_comm_collect_end: transmute::<Address, nncuda_comm_collect_end>(at(76)?),
                nncuda_comm_grad_norm: transmute::<Address, nncuda_comm_grad_norm>(at(77)?),
                cuda_silu: transmute::<Address, cuda_silu>(at(78)?),
                cuda_silu_backward: transmute::<Address, cuda_silu_backward>(at(79)?),
                cuda_add: transmute::<Address, cuda_add>(at(80)?),
                cuda_mul: transmute::<Address, cuda_mul>(at(81)?),
                cuda_scale: transmute::<Address, cuda_scale>(at(82)?),
                cuda_swiglu: transmute::<Address, cuda_swiglu>(at(83)?),
                cuda_swiglu_backward: transmute::<Address, cuda_swiglu_backward>(at(84)?),
                cuda_relu2_gate: transmute::<Address, cuda_relu2_gate>(at(85)?),
                cuda_cast: transmute::<Address, cuda_cast>(at(86)?),
                cuda_round: transmute::<Address, cuda_round>(at(87)?),
                cuda_fill: transmute::<Address, cuda_fill>(at(88)?),
                cuda_increment: transmute::<Address, cuda_increment>(at(89)?),
                cuda_softcap: transmute::<Address, cuda_softcap>(at(90)?),
                cuda_geglu: transmute::<Address, cuda_geglu>(at(91)?),
                cuda_swiglu_clipped: transmute::<Address, cuda_swiglu_clipped>(at(92)?),
                cuda_relu2_gate_backward: transmute::<Address, cuda_relu2_gate_backward>(at(93)?),
                cuda_act_dequant_i8: transmute::<Address, cuda_act_dequant_i8>(at(94)?),
                cuda_grouped_bias: transmute::<Address, cuda_grouped_bias>(at(95)?),
                cuda_softmax: transmute::<Address, cuda_softmax>(at(96)?),
                cuda_softmax_backward: transmute::<Address, cuda_softmax_backward>(at(97)?),
                cuda_softmax_topk: transmute::<Address, cuda_softmax_topk>(at(98)?),
                cuda_softmax_topk_backward: transmute::<Address, cuda_softmax_topk_backward>(at(99)?),
                cuda_rmsnorm: transmute::<Address, cuda_rmsnorm>(at(100)?),
                cuda_rmsnorm_residual: transmute::<Address, cuda_rmsnorm_residual>(at(101)?),
                cuda_rmsnorm_backward: transmute::<Address, cuda_rmsnorm_backward>(at(102)?),
                cuda_gemm: transmute::<Address, cuda_gemm>(at(103)?),
                cuda_gemm_beta: transmute::<Address, cuda_gemm_beta>(at(104)?),
                cuda_gemm_epilogue: transmute::<Address, cuda_gemm_epilogue>(at(105)?),
                cuda_batched_gemm: transmute::<Address, cuda_batched_gemm>(at(106)?),
                cuda_grouped_gemm: transmute::<Address, cuda_grouped_gemm>(at(107)?),
                cuda_grouped_gemm_wgrad: transmute::<Address, cuda_grouped_gemm_wgrad>(at(108)?),
                cuda_grouped_gemm_swiglu: transmute::<Address, cuda_grouped_gemm_swiglu>(at(109)?),
                cuda_grouped_gemm_swiglu_backward: transmute::<Address, cuda_grouped_gemm_swiglu_backward>(at(110)?),
                cuda_grouped_gemm_fp8: transmute::<Address, cuda_grouped_gemm_fp8>(at(111)?),
                cuda_grouped_gemm_wgrad_fp8: transmute::<Address, cuda_grouped_gemm_wgrad_fp8>(at(112)?),
                cuda_embedding: transmute::<Address, cuda_embedding>(at(113)?),
                cuda_scatter_add: transmute::<Address, cuda_scatter_add>(at(114)?),
                cuda_pool_rows: transmute::<Address, cuda_pool_rows>(at(115)?),
                cuda_pool_unit: transmute::<Address, cuda_pool_unit>(at(116)?),
                cuda_rope_freqs: transmute::<Address, cuda_rope_freqs>(at(117)?),
                cuda_rope_freqs_scaled: transmute::<Address, cuda_rope_freqs_scaled>(at(118)?),
                cuda_rope_forward: transmute::<Address, cuda_rope_forward>(at(119)?),
                cuda_rope_qk: transmute::<Address, cuda_rope_qk>(at(120)?),
                cuda_rope_backward: transmute::<Address, cuda_rope_backward>(at(121)?),
                cuda_attention_scores: transmute::<Address, cuda_attention_scores>(at(122)?),
                cuda_attention_output: transmute::<Address, cuda_attention_output>(at(123)?),
                cuda_flash_attention: transmute::<Address, cuda_flash_attention>(at(124)?),
                cuda_flash_attention_backward: transmute::<Address, cuda_flash_attention_backward>(at(125)?),
                cuda_document_starts: transmute::<Address, cuda_document_starts>(at(126)?),
                cuda_attention_decode: transmute::<Address, cuda_attention_decode>(at(127)?),
                cuda_flash_attention_paged: transmute::<Address, cuda_flash_attention_paged>(at(128)?),
                cuda_attention_decode_paged: transmute::<Address, cuda_attention_decode_paged>(at(129)?),
                cuda_attention_step_paged: transmute::<Address, cuda_attention_step_paged>(at(130)?),
                cuda_kv_append: transmute::<Address, cuda_kv_append>(at(131)?),
                cuda_kv_trim: transmute::<Address, cuda_kv_trim>(at(132)?),
                cuda_kv_append_paged: transmute::<Address, cuda_kv_append_paged>(at(133)?),
                cuda_moe_plan: transmute::<Address, cuda_moe_plan>(at(134)?),
                cuda_moe_gather: transmute::<Address, cuda_moe_gather>(at(135)?),
                cuda_moe_route: transmute::<Address, cuda_moe_route>(at(136)?),
                cuda_moe_route_backward: transmute::<Address, cuda_moe_route_backward>(at(137)?),
                cuda_moe_gather_backward: transmute::<Address, cuda_moe_gather_backward>(at(138)?),
                cuda_moe_combine: transmute::<Address, cuda_moe_combine>(at(139)?),
                cuda_moe_combine_backward: transmute::<Address, cuda_moe_combine_backward>(at(140)?),
                cuda_moe_output_backward: transmute::<Address, cuda_moe_output_backward>(at(141)?),
                cuda_moe_input_backward: transmute::<Address, cuda_moe_input_backward>(at(142)?),
                cuda_cross_entropy_forward: transmute::<Address, cuda_cross_entropy_forward>(at(143)?),
                cuda_cross_entropy_backward: transmute::<Address, cuda_cross_entropy_backward>(at(144)?),
                cuda_aux_loss_forward: transmute::<Address, cuda_aux_loss_forward>(at(145)?),
                cuda_aux_loss_backward: transmute::<Address, cuda_aux_loss_backward>(at(146)?),
                cuda_weighted_mean: transmute::<Address, cuda_weighted_mean>(at(147)?),
                cuda_adamw_step: transmute::<Address, cuda_adamw_step>(at(148)?),
                cuda_adamw_step_bf16: transmute::<Address, cuda_adamw_step_bf16>(at(149)?),
                cuda_adamw_step_f8: transmute::<Address, cuda_adamw_step_f8>(at(150)?),
                cuda_zero_grad: transmute::<Address, cuda_zero_grad>(at(151)?),
                cuda_grad_norm: transmute::<Address, cuda_grad_norm>(at(152)?),
                cuda_grad_clip: transmute::<Address, cuda_grad_clip>(at(153)?),
                cuda_lr_schedule: transmute::<Address, cuda_lr_schedule>(at(154)?),
                cuda_loss_scale_update: transmute::<Address, cuda_loss_scale_update>(at(155)?),
                cuda_argmax: transmute::<Address, cuda_argmax>(at(156)?),
                cuda_sample: transmute::<Address, cuda_sample>(at(157)?),
                cuda_topk_sample: transmute::<Address, cuda_topk_sample>(at(158)?),
                cuda_topp_sample: transmute::<Address, cuda_topp_sample>(at(159)?),
                cuda_minp_sample: transmute::<Address, cuda_minp_sample>(at(160)?),
                cuda_count_tokens: transmute::<Address, cuda_count_tokens>(at(161)?),
                cuda_penalize_logits: transmute::<Address, cuda_penalize_logits>(at(162)?),
                cuda_bias_logits: transmute::<Address, cuda_bias_logits>(at(163)?),
                cuda_mask_logits: transmute::<Address, cuda_mask_logits>(at(164)?),
                cuda_logprobs: transmute::<Address, cuda_logprobs>(at(165)?),
                cuda_quantize: transmute::<Address, cuda_quantize>(at(166)?),
                cuda_dequantize: transmute::<Address, cuda_dequantize>(at(167)?),
                cuda_embedding_quant: transmute::<Address, cuda_embedding_quant>(at(168)?),
                cuda_gemm_quant: transmute::<Address, cuda_gemm_quant>(at(169)?),
                cuda_gemm_quant_qkv: transmute::<Address, cuda_gemm_quant_qkv>(at(170)?),
                cuda_gemm_quant_swiglu: transmute::<Address, cuda_gemm_quant_swiglu>(at(171)?),
                cuda_gemm_quant_route: transmute::<Address, cuda_gemm_quant_route>(at(172)?),
                cuda_gemm_quant_experts: transmute::<Address, cuda_gemm_quant_experts>(at(173)?),
                cuda_interleave_rows: transmute::<Address, cuda_interleave_rows>(at(174)?),
                cuda_act_quant_i8: transmute::<Address, cuda_act_quant_i8>(at(175)?),
                cuda_rmsnorm_quant_i8: transmute::<Address, cuda_rmsnorm_quant_i8>(at(176)?),
                cuda_ternary_quantize: transmute::<Address, cuda_ternary_quantize>(at(177)?),
                cuda_ternary_pack: transmute::<Address, cuda_ternary_pack>(at(178)?),
                cuda_ternary_unpack: transmute::<Address, cuda_ternary_unpack>(at(179)?),
                cuda_bitlinear: transmute::<Address, cuda_bitlinear>(at(180)?),
                cuda_bitlinear_norm: transmute::<Address, cuda_bitlinear_norm>(at(181)?),
                cuda_gemm_quant_backward: transmute::<Address, cuda_gemm_quant_backward>(at(182)?),
                cuda_bitlinear_backward: transmute::<Address, cuda_bitlinear_backward>(at(183)?),
                cuda_digest: transmute::<Address, cuda_digest>(at(184)?),
                cuda_random_bits: transmute::<Address, cuda_random_bits>(at(185)?),
                cuda_uniform: transmute::<Address, cuda_uniform>(at(186)?),
                cuda_normal: transmute::<Address, cuda_normal>(at(187)?),
            })
        }
    }
}
