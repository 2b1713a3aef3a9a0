// Generated from bindings.h by `python -m nncuda.binding.rust rust`. Do not edit.

//! The table of pointers to the library's functions.

use core::ffi::{CStr, c_void};
use core::mem::transmute;

use super::functions;

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
    /// See [`functions::nncuda_device_count`].
    pub nncuda_device_count: functions::nncuda_device_count,
    /// See [`functions::nncuda_device_describe`].
    pub nncuda_device_describe: functions::nncuda_device_describe,
    /// See [`functions::nncuda_ctx_create`].
    pub nncuda_ctx_create: functions::nncuda_ctx_create,
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
    /// See [`functions::nncuda_trace_end`].
    pub nncuda_trace_end: functions::nncuda_trace_end,
    /// See [`functions::nncuda_trace_read`].
    pub nncuda_trace_read: functions::nncuda_trace_read,
    /// See [`functions::nncuda_data_order`].
    pub nncuda_data_order: functions::nncuda_data_order,
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
    /// See [`functions::cuda_fill`].
    pub cuda_fill: functions::cuda_fill,
    /// See [`functions::cuda_increment`].
    pub cuda_increment: functions::cuda_increment,
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
    /// See [`functions::cuda_embedding`].
    pub cuda_embedding: functions::cuda_embedding,
    /// See [`functions::cuda_scatter_add`].
    pub cuda_scatter_add: functions::cuda_scatter_add,
    /// See [`functions::cuda_rope_freqs`].
    pub cuda_rope_freqs: functions::cuda_rope_freqs,
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
    /// See [`functions::cuda_attention_decode`].
    pub cuda_attention_decode: functions::cuda_attention_decode,
    /// See [`functions::cuda_kv_append`].
    pub cuda_kv_append: functions::cuda_kv_append,
    /// See [`functions::cuda_kv_trim`].
    pub cuda_kv_trim: functions::cuda_kv_trim,
    /// See [`functions::cuda_moe_plan`].
    pub cuda_moe_plan: functions::cuda_moe_plan,
    /// See [`functions::cuda_moe_gather`].
    pub cuda_moe_gather: functions::cuda_moe_gather,
    /// See [`functions::cuda_moe_gather_backward`].
    pub cuda_moe_gather_backward: functions::cuda_moe_gather_backward,
    /// See [`functions::cuda_moe_combine`].
    pub cuda_moe_combine: functions::cuda_moe_combine,
    /// See [`functions::cuda_moe_combine_backward`].
    pub cuda_moe_combine_backward: functions::cuda_moe_combine_backward,
    /// See [`functions::cuda_cross_entropy_forward`].
    pub cuda_cross_entropy_forward: functions::cuda_cross_entropy_forward,
    /// See [`functions::cuda_cross_entropy_backward`].
    pub cuda_cross_entropy_backward: functions::cuda_cross_entropy_backward,
    /// See [`functions::cuda_aux_loss_forward`].
    pub cuda_aux_loss_forward: functions::cuda_aux_loss_forward,
    /// See [`functions::cuda_aux_loss_backward`].
    pub cuda_aux_loss_backward: functions::cuda_aux_loss_backward,
    /// See [`functions::cuda_adamw_step`].
    pub cuda_adamw_step: functions::cuda_adamw_step,
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
    /// See [`functions::cuda_random_bits`].
    pub cuda_random_bits: functions::cuda_random_bits,
    /// See [`functions::cuda_uniform`].
    pub cuda_uniform: functions::cuda_uniform,
    /// See [`functions::cuda_normal`].
    pub cuda_normal: functions::cuda_normal,
}

impl Functions {
    /// The names of all functions, in the header's order.
    pub const NAMES: [&'static CStr; 102] = [
        c"nncuda_abi_version",
        c"nncuda_build_info",
        c"nncuda_status_name",
        c"nncuda_status_string",
        c"nncuda_dtype_size",
        c"nncuda_device_count",
        c"nncuda_device_describe",
        c"nncuda_ctx_create",
        c"nncuda_ctx_destroy",
        c"nncuda_ctx_synchronize",
        c"nncuda_ctx_get",
        c"nncuda_ctx_set",
        c"nncuda_last_error",
        c"nncuda_malloc",
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
        c"nncuda_trace_end",
        c"nncuda_trace_read",
        c"nncuda_data_order",
        c"cuda_silu",
        c"cuda_silu_backward",
        c"cuda_add",
        c"cuda_mul",
        c"cuda_scale",
        c"cuda_swiglu",
        c"cuda_swiglu_backward",
        c"cuda_relu2_gate",
        c"cuda_cast",
        c"cuda_fill",
        c"cuda_increment",
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
        c"cuda_embedding",
        c"cuda_scatter_add",
        c"cuda_rope_freqs",
        c"cuda_rope_forward",
        c"cuda_rope_qk",
        c"cuda_rope_backward",
        c"cuda_attention_scores",
        c"cuda_attention_output",
        c"cuda_flash_attention",
        c"cuda_flash_attention_backward",
        c"cuda_attention_decode",
        c"cuda_kv_append",
        c"cuda_kv_trim",
        c"cuda_moe_plan",
        c"cuda_moe_gather",
        c"cuda_moe_gather_backward",
        c"cuda_moe_combine",
        c"cuda_moe_combine_backward",
        c"cuda_cross_entropy_forward",
        c"cuda_cross_entropy_backward",
        c"cuda_aux_loss_forward",
        c"cuda_aux_loss_backward",
        c"cuda_adamw_step",
        c"cuda_zero_grad",
        c"cuda_grad_norm",
        c"cuda_grad_clip",
        c"cuda_lr_schedule",
        c"cuda_loss_scale_update",
        c"cuda_argmax",
        c"cuda_sample",
        c"cuda_topk_sample",
        c"cuda_topp_sample",
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
    pub unsafe fn resolve<E>(mut address: impl FnMut(&'static CStr) -> Result<*const c_void, E>) -> Result<Self, E> {
        // SAFETY: the caller vouches for each address and its type.
        unsafe {
            Ok(Self {
                nncuda_abi_version: transmute::<*const c_void, functions::nncuda_abi_version>(
                    address(c"nncuda_abi_version")?,
                ),
                nncuda_build_info: transmute::<*const c_void, functions::nncuda_build_info>(
                    address(c"nncuda_build_info")?,
                ),
                nncuda_status_name: transmute::<*const c_void, functions::nncuda_status_name>(
                    address(c"nncuda_status_name")?,
                ),
                nncuda_status_string: transmute::<*const c_void, functions::nncuda_status_string>(
                    address(c"nncuda_status_string")?,
                ),
                nncuda_dtype_size: transmute::<*const c_void, functions::nncuda_dtype_size>(
                    address(c"nncuda_dtype_size")?,
                ),
                nncuda_device_count: transmute::<*const c_void, functions::nncuda_device_count>(
                    address(c"nncuda_device_count")?,
                ),
                nncuda_device_describe: transmute::<*const c_void, functions::nncuda_device_describe>(
                    address(c"nncuda_device_describe")?,
                ),
                nncuda_ctx_create: transmute::<*const c_void, functions::nncuda_ctx_create>(
                    address(c"nncuda_ctx_create")?,
                ),
                nncuda_ctx_destroy: transmute::<*const c_void, functions::nncuda_ctx_destroy>(
                    address(c"nncuda_ctx_destroy")?,
                ),
                nncuda_ctx_synchronize: transmute::<*const c_void, functions::nncuda_ctx_synchronize>(
                    address(c"nncuda_ctx_synchronize")?,
                ),
                nncuda_ctx_get: transmute::<*const c_void, functions::nncuda_ctx_get>(address(c"nncuda_ctx_get")?),
                nncuda_ctx_set: transmute::<*const c_void, functions::nncuda_ctx_set>(address(c"nncuda_ctx_set")?),
                nncuda_last_error: transmute::<*const c_void, functions::nncuda_last_error>(
                    address(c"nncuda_last_error")?,
                ),
                nncuda_malloc: transmute::<*const c_void, functions::nncuda_malloc>(address(c"nncuda_malloc")?),
                nncuda_free: transmute::<*const c_void, functions::nncuda_free>(address(c"nncuda_free")?),
                nncuda_malloc_host: transmute::<*const c_void, functions::nncuda_malloc_host>(
                    address(c"nncuda_malloc_host")?,
                ),
                nncuda_free_host: transmute::<*const c_void, functions::nncuda_free_host>(
                    address(c"nncuda_free_host")?,
                ),
                nncuda_memory_info: transmute::<*const c_void, functions::nncuda_memory_info>(
                    address(c"nncuda_memory_info")?,
                ),
                nncuda_memset: transmute::<*const c_void, functions::nncuda_memset>(address(c"nncuda_memset")?),
                nncuda_memcpy: transmute::<*const c_void, functions::nncuda_memcpy>(address(c"nncuda_memcpy")?),
                nncuda_memcpy_async: transmute::<*const c_void, functions::nncuda_memcpy_async>(
                    address(c"nncuda_memcpy_async")?,
                ),
                nncuda_stream_create: transmute::<*const c_void, functions::nncuda_stream_create>(
                    address(c"nncuda_stream_create")?,
                ),
                nncuda_stream_destroy: transmute::<*const c_void, functions::nncuda_stream_destroy>(
                    address(c"nncuda_stream_destroy")?,
                ),
                nncuda_stream_synchronize: transmute::<*const c_void, functions::nncuda_stream_synchronize>(
                    address(c"nncuda_stream_synchronize")?,
                ),
                nncuda_stream_wait_event: transmute::<*const c_void, functions::nncuda_stream_wait_event>(
                    address(c"nncuda_stream_wait_event")?,
                ),
                nncuda_event_create: transmute::<*const c_void, functions::nncuda_event_create>(
                    address(c"nncuda_event_create")?,
                ),
                nncuda_event_destroy: transmute::<*const c_void, functions::nncuda_event_destroy>(
                    address(c"nncuda_event_destroy")?,
                ),
                nncuda_event_record: transmute::<*const c_void, functions::nncuda_event_record>(
                    address(c"nncuda_event_record")?,
                ),
                nncuda_event_synchronize: transmute::<*const c_void, functions::nncuda_event_synchronize>(
                    address(c"nncuda_event_synchronize")?,
                ),
                nncuda_event_query: transmute::<*const c_void, functions::nncuda_event_query>(
                    address(c"nncuda_event_query")?,
                ),
                nncuda_event_elapsed: transmute::<*const c_void, functions::nncuda_event_elapsed>(
                    address(c"nncuda_event_elapsed")?,
                ),
                nncuda_graph_begin: transmute::<*const c_void, functions::nncuda_graph_begin>(
                    address(c"nncuda_graph_begin")?,
                ),
                nncuda_graph_end: transmute::<*const c_void, functions::nncuda_graph_end>(
                    address(c"nncuda_graph_end")?,
                ),
                nncuda_graph_launch: transmute::<*const c_void, functions::nncuda_graph_launch>(
                    address(c"nncuda_graph_launch")?,
                ),
                nncuda_graph_size: transmute::<*const c_void, functions::nncuda_graph_size>(
                    address(c"nncuda_graph_size")?,
                ),
                nncuda_graph_destroy: transmute::<*const c_void, functions::nncuda_graph_destroy>(
                    address(c"nncuda_graph_destroy")?,
                ),
                nncuda_profile_begin: transmute::<*const c_void, functions::nncuda_profile_begin>(
                    address(c"nncuda_profile_begin")?,
                ),
                nncuda_profile_end: transmute::<*const c_void, functions::nncuda_profile_end>(
                    address(c"nncuda_profile_end")?,
                ),
                nncuda_profile_report: transmute::<*const c_void, functions::nncuda_profile_report>(
                    address(c"nncuda_profile_report")?,
                ),
                nncuda_trace_begin: transmute::<*const c_void, functions::nncuda_trace_begin>(
                    address(c"nncuda_trace_begin")?,
                ),
                nncuda_trace_end: transmute::<*const c_void, functions::nncuda_trace_end>(
                    address(c"nncuda_trace_end")?,
                ),
                nncuda_trace_read: transmute::<*const c_void, functions::nncuda_trace_read>(
                    address(c"nncuda_trace_read")?,
                ),
                nncuda_data_order: transmute::<*const c_void, functions::nncuda_data_order>(
                    address(c"nncuda_data_order")?,
                ),
                cuda_silu: transmute::<*const c_void, functions::cuda_silu>(address(c"cuda_silu")?),
                cuda_silu_backward: transmute::<*const c_void, functions::cuda_silu_backward>(
                    address(c"cuda_silu_backward")?,
                ),
                cuda_add: transmute::<*const c_void, functions::cuda_add>(address(c"cuda_add")?),
                cuda_mul: transmute::<*const c_void, functions::cuda_mul>(address(c"cuda_mul")?),
                cuda_scale: transmute::<*const c_void, functions::cuda_scale>(address(c"cuda_scale")?),
                cuda_swiglu: transmute::<*const c_void, functions::cuda_swiglu>(address(c"cuda_swiglu")?),
                cuda_swiglu_backward: transmute::<*const c_void, functions::cuda_swiglu_backward>(
                    address(c"cuda_swiglu_backward")?,
                ),
                cuda_relu2_gate: transmute::<*const c_void, functions::cuda_relu2_gate>(address(c"cuda_relu2_gate")?),
                cuda_cast: transmute::<*const c_void, functions::cuda_cast>(address(c"cuda_cast")?),
                cuda_fill: transmute::<*const c_void, functions::cuda_fill>(address(c"cuda_fill")?),
                cuda_increment: transmute::<*const c_void, functions::cuda_increment>(address(c"cuda_increment")?),
                cuda_softmax: transmute::<*const c_void, functions::cuda_softmax>(address(c"cuda_softmax")?),
                cuda_softmax_backward: transmute::<*const c_void, functions::cuda_softmax_backward>(
                    address(c"cuda_softmax_backward")?,
                ),
                cuda_softmax_topk: transmute::<*const c_void, functions::cuda_softmax_topk>(
                    address(c"cuda_softmax_topk")?,
                ),
                cuda_softmax_topk_backward: transmute::<*const c_void, functions::cuda_softmax_topk_backward>(
                    address(c"cuda_softmax_topk_backward")?,
                ),
                cuda_rmsnorm: transmute::<*const c_void, functions::cuda_rmsnorm>(address(c"cuda_rmsnorm")?),
                cuda_rmsnorm_residual: transmute::<*const c_void, functions::cuda_rmsnorm_residual>(
                    address(c"cuda_rmsnorm_residual")?,
                ),
                cuda_rmsnorm_backward: transmute::<*const c_void, functions::cuda_rmsnorm_backward>(
                    address(c"cuda_rmsnorm_backward")?,
                ),
                cuda_gemm: transmute::<*const c_void, functions::cuda_gemm>(address(c"cuda_gemm")?),
                cuda_gemm_beta: transmute::<*const c_void, functions::cuda_gemm_beta>(address(c"cuda_gemm_beta")?),
                cuda_gemm_epilogue: transmute::<*const c_void, functions::cuda_gemm_epilogue>(
                    address(c"cuda_gemm_epilogue")?,
                ),
                cuda_batched_gemm: transmute::<*const c_void, functions::cuda_batched_gemm>(
                    address(c"cuda_batched_gemm")?,
                ),
                cuda_grouped_gemm: transmute::<*const c_void, functions::cuda_grouped_gemm>(
                    address(c"cuda_grouped_gemm")?,
                ),
                cuda_grouped_gemm_wgrad: transmute::<*const c_void, functions::cuda_grouped_gemm_wgrad>(
                    address(c"cuda_grouped_gemm_wgrad")?,
                ),
                cuda_embedding: transmute::<*const c_void, functions::cuda_embedding>(address(c"cuda_embedding")?),
                cuda_scatter_add: transmute::<*const c_void, functions::cuda_scatter_add>(
                    address(c"cuda_scatter_add")?,
                ),
                cuda_rope_freqs: transmute::<*const c_void, functions::cuda_rope_freqs>(address(c"cuda_rope_freqs")?),
                cuda_rope_forward: transmute::<*const c_void, functions::cuda_rope_forward>(
                    address(c"cuda_rope_forward")?,
                ),
                cuda_rope_qk: transmute::<*const c_void, functions::cuda_rope_qk>(address(c"cuda_rope_qk")?),
                cuda_rope_backward: transmute::<*const c_void, functions::cuda_rope_backward>(
                    address(c"cuda_rope_backward")?,
                ),
                cuda_attention_scores: transmute::<*const c_void, functions::cuda_attention_scores>(
                    address(c"cuda_attention_scores")?,
                ),
                cuda_attention_output: transmute::<*const c_void, functions::cuda_attention_output>(
                    address(c"cuda_attention_output")?,
                ),
                cuda_flash_attention: transmute::<*const c_void, functions::cuda_flash_attention>(
                    address(c"cuda_flash_attention")?,
                ),
                cuda_flash_attention_backward: transmute::<*const c_void, functions::cuda_flash_attention_backward>(
                    address(c"cuda_flash_attention_backward")?,
                ),
                cuda_attention_decode: transmute::<*const c_void, functions::cuda_attention_decode>(
                    address(c"cuda_attention_decode")?,
                ),
                cuda_kv_append: transmute::<*const c_void, functions::cuda_kv_append>(address(c"cuda_kv_append")?),
                cuda_kv_trim: transmute::<*const c_void, functions::cuda_kv_trim>(address(c"cuda_kv_trim")?),
                cuda_moe_plan: transmute::<*const c_void, functions::cuda_moe_plan>(address(c"cuda_moe_plan")?),
                cuda_moe_gather: transmute::<*const c_void, functions::cuda_moe_gather>(address(c"cuda_moe_gather")?),
                cuda_moe_gather_backward: transmute::<*const c_void, functions::cuda_moe_gather_backward>(
                    address(c"cuda_moe_gather_backward")?,
                ),
                cuda_moe_combine: transmute::<*const c_void, functions::cuda_moe_combine>(
                    address(c"cuda_moe_combine")?,
                ),
                cuda_moe_combine_backward: transmute::<*const c_void, functions::cuda_moe_combine_backward>(
                    address(c"cuda_moe_combine_backward")?,
                ),
                cuda_cross_entropy_forward: transmute::<*const c_void, functions::cuda_cross_entropy_forward>(
                    address(c"cuda_cross_entropy_forward")?,
                ),
                cuda_cross_entropy_backward: transmute::<*const c_void, functions::cuda_cross_entropy_backward>(
                    address(c"cuda_cross_entropy_backward")?,
                ),
                cuda_aux_loss_forward: transmute::<*const c_void, functions::cuda_aux_loss_forward>(
                    address(c"cuda_aux_loss_forward")?,
                ),
                cuda_aux_loss_backward: transmute::<*const c_void, functions::cuda_aux_loss_backward>(
                    address(c"cuda_aux_loss_backward")?,
                ),
                cuda_adamw_step: transmute::<*const c_void, functions::cuda_adamw_step>(address(c"cuda_adamw_step")?),
                cuda_zero_grad: transmute::<*const c_void, functions::cuda_zero_grad>(address(c"cuda_zero_grad")?),
                cuda_grad_norm: transmute::<*const c_void, functions::cuda_grad_norm>(address(c"cuda_grad_norm")?),
                cuda_grad_clip: transmute::<*const c_void, functions::cuda_grad_clip>(address(c"cuda_grad_clip")?),
                cuda_lr_schedule: transmute::<*const c_void, functions::cuda_lr_schedule>(
                    address(c"cuda_lr_schedule")?,
                ),
                cuda_loss_scale_update: transmute::<*const c_void, functions::cuda_loss_scale_update>(
                    address(c"cuda_loss_scale_update")?,
                ),
                cuda_argmax: transmute::<*const c_void, functions::cuda_argmax>(address(c"cuda_argmax")?),
                cuda_sample: transmute::<*const c_void, functions::cuda_sample>(address(c"cuda_sample")?),
                cuda_topk_sample: transmute::<*const c_void, functions::cuda_topk_sample>(
                    address(c"cuda_topk_sample")?,
                ),
                cuda_topp_sample: transmute::<*const c_void, functions::cuda_topp_sample>(
                    address(c"cuda_topp_sample")?,
                ),
                cuda_random_bits: transmute::<*const c_void, functions::cuda_random_bits>(
                    address(c"cuda_random_bits")?,
                ),
                cuda_uniform: transmute::<*const c_void, functions::cuda_uniform>(address(c"cuda_uniform")?),
                cuda_normal: transmute::<*const c_void, functions::cuda_normal>(address(c"cuda_normal")?),
            })
        }
    }
}
