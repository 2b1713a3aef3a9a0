// Generated from bindings.h by `python -m nncuda.binding.rust rust`. Do not edit.

//! The table of the kernels: what each takes, and how it is called when only its name is known.

use crate::catalogue::{Direction, Kernel, Parameter};
use crate::generated::checked;

/// Every kernel, in the header's order.
pub static KERNELS: [Kernel; 59] = [
    Kernel {
        name: "silu",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[n]", "", &["x"]),
            Parameter::integer("n"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_silu)(ctx, slots[0].pointer(), slots[1].pointer(), slots[2].int64(), slots[3].int32())
        },
        checked: checked::silu,
    },
    Kernel {
        name: "silu_backward",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("dy", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("x", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("dx", Direction::Out, "dtype", "[n]", "", &["dy", "x"]),
            Parameter::integer("n"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_silu_backward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int32(),
            )
        },
        checked: checked::silu_backward,
    },
    Kernel {
        name: "add",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("a", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("b", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[n]", "", &["a", "b"]),
            Parameter::integer("n"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_add)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int32(),
            )
        },
        checked: checked::add,
    },
    Kernel {
        name: "mul",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("a", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("b", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[n]", "", &["a", "b"]),
            Parameter::integer("n"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_mul)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int32(),
            )
        },
        checked: checked::mul,
    },
    Kernel {
        name: "scale",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[n]", "", &["x"]),
            Parameter::integer("n"),
            Parameter::float("alpha"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_scale)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].int64(),
                slots[3].float(),
                slots[4].int32(),
            )
        },
        checked: checked::scale,
    },
    Kernel {
        name: "swiglu",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("gate", Direction::In, "dtype", "[rows:ld, dim]", "ld", &[]),
            Parameter::tensor("up", Direction::In, "dtype", "[rows:ld, dim]", "ld", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[rows, dim]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("dim"),
            Parameter::integer("ld"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_swiglu)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int32(),
            )
        },
        checked: checked::swiglu,
    },
    Kernel {
        name: "swiglu_backward",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("dy", Direction::In, "dtype", "[rows, dim]", "", &[]),
            Parameter::tensor("gate", Direction::In, "dtype", "[rows:ld, dim]", "ld", &[]),
            Parameter::tensor("up", Direction::In, "dtype", "[rows:ld, dim]", "ld", &[]),
            Parameter::tensor("dgate", Direction::Out, "dtype", "[rows:ld, dim]", "ld", &["gate"]),
            Parameter::tensor("dup", Direction::Out, "dtype", "[rows:ld, dim]", "ld", &["up"]),
            Parameter::integer("rows"),
            Parameter::integer("dim"),
            Parameter::integer("ld"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_swiglu_backward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].pointer(),
                slots[4].pointer(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int32(),
            )
        },
        checked: checked::swiglu_backward,
    },
    Kernel {
        name: "relu2_gate",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("gate", Direction::In, "dtype", "[rows:ld, dim]", "ld", &[]),
            Parameter::tensor("up", Direction::In, "dtype", "[rows:ld, dim]", "ld", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[rows, dim]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("dim"),
            Parameter::integer("ld"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_relu2_gate)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int32(),
            )
        },
        checked: checked::relu2_gate,
    },
    Kernel {
        name: "cast",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype_x", "[n]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype_y", "[n]", "", &[]),
            Parameter::integer("n"),
            Parameter::dtype("dtype_x"),
            Parameter::dtype("dtype_y"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_cast)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].int64(),
                slots[3].int32(),
                slots[4].int32(),
            )
        },
        checked: checked::cast,
    },
    Kernel {
        name: "fill",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("y", Direction::Out, "dtype", "[n]", "", &[]),
            Parameter::integer("n"),
            Parameter::float("value"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_fill)(ctx, slots[0].pointer(), slots[1].int64(), slots[2].float(), slots[3].int32())
        },
        checked: checked::fill,
    },
    Kernel {
        name: "increment",
        section: "elementwise",
        parameters: &[
            Parameter::tensor("x", Direction::InOut, "i32", "[n]", "", &[]),
            Parameter::integer("n"),
            Parameter::integer("by"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_increment)(ctx, slots[0].pointer().cast(), slots[1].int64(), slots[2].int32())
        },
        checked: checked::increment,
    },
    Kernel {
        name: "softmax",
        section: "softmax",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[rows, cols]", "", &["x"]),
            Parameter::integer("rows"),
            Parameter::integer("cols"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_softmax)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].int64(),
                slots[3].int64(),
                slots[4].int32(),
            )
        },
        checked: checked::softmax,
    },
    Kernel {
        name: "softmax_backward",
        section: "softmax",
        parameters: &[
            Parameter::tensor("dy", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("y", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("dx", Direction::Out, "dtype", "[rows, cols]", "", &["dy"]),
            Parameter::integer("rows"),
            Parameter::integer("cols"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_softmax_backward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int32(),
            )
        },
        checked: checked::softmax_backward,
    },
    Kernel {
        name: "softmax_topk",
        section: "softmax",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("weights", Direction::Out, "f32", "[rows, k]", "", &[]),
            Parameter::tensor("indices", Direction::Out, "i32", "[rows, k]", "", &[]),
            Parameter::tensor("probs", Direction::Out, "f32", "[rows, cols]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("cols"),
            Parameter::integer("k"),
            Parameter::integer("norm"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_softmax_topk)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int32(),
                slots[8].int32(),
            )
        },
        checked: checked::softmax_topk,
    },
    Kernel {
        name: "softmax_topk_backward",
        section: "softmax",
        parameters: &[
            Parameter::tensor("dweights", Direction::In, "f32", "[rows, k]", "", &[]),
            Parameter::tensor("weights", Direction::In, "f32", "[rows, k]", "", &[]),
            Parameter::tensor("indices", Direction::In, "i32", "[rows, k]", "", &[]),
            Parameter::tensor("probs", Direction::In, "f32", "[rows, cols]", "", &[]),
            Parameter::tensor("dprobs", Direction::In, "f32", "[rows, cols]", "", &[]),
            Parameter::tensor("dx", Direction::Out, "dtype", "[rows, cols]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("cols"),
            Parameter::integer("k"),
            Parameter::integer("norm"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_softmax_topk_backward)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].pointer(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int32(),
                slots[10].int32(),
            )
        },
        checked: checked::softmax_topk_backward,
    },
    Kernel {
        name: "rmsnorm",
        section: "rmsnorm",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("weight", Direction::In, "dtype", "[cols]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[rows, cols]", "", &["x"]),
            Parameter::tensor("rstd", Direction::Out, "f32", "[rows]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("cols"),
            Parameter::float("eps"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_rmsnorm)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].pointer().cast(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].float(),
                slots[7].int32(),
            )
        },
        checked: checked::rmsnorm,
    },
    Kernel {
        name: "rmsnorm_residual",
        section: "rmsnorm",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("residual", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("weight", Direction::In, "dtype", "[cols]", "", &[]),
            Parameter::tensor("sum", Direction::Out, "dtype", "[rows, cols]", "", &["x", "residual"]),
            Parameter::tensor("y", Direction::Out, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("rstd", Direction::Out, "f32", "[rows]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("cols"),
            Parameter::float("eps"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_rmsnorm_residual)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].pointer(),
                slots[4].pointer(),
                slots[5].pointer().cast(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].float(),
                slots[9].int32(),
            )
        },
        checked: checked::rmsnorm_residual,
    },
    Kernel {
        name: "rmsnorm_backward",
        section: "rmsnorm",
        parameters: &[
            Parameter::tensor("dy", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("x", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("weight", Direction::In, "dtype", "[cols]", "", &[]),
            Parameter::tensor("rstd", Direction::In, "f32", "[rows]", "", &[]),
            Parameter::tensor("dresidual", Direction::In, "dtype", "[rows, cols]", "", &[]),
            Parameter::tensor("dx", Direction::Out, "dtype", "[rows, cols]", "", &["dy", "dresidual"]),
            Parameter::tensor("dweight", Direction::Accumulated, "f32", "[cols]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("cols"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_rmsnorm_backward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].pointer().cast(),
                slots[4].pointer(),
                slots[5].pointer(),
                slots[6].pointer().cast(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int32(),
            )
        },
        checked: checked::rmsnorm_backward,
    },
    Kernel {
        name: "gemm",
        section: "gemm",
        parameters: &[
            Parameter::tensor("a", Direction::In, "dtype", "[m, k]^trans_a", "", &[]),
            Parameter::tensor("b", Direction::In, "dtype", "[k, n]^trans_b", "", &[]),
            Parameter::tensor("c", Direction::Out, "dtype_c", "[m, n]", "", &[]),
            Parameter::integer("m"),
            Parameter::integer("n"),
            Parameter::integer("k"),
            Parameter::integer("trans_a"),
            Parameter::integer("trans_b"),
            Parameter::dtype("dtype"),
            Parameter::dtype("dtype_c"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_gemm)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int32(),
                slots[7].int32(),
                slots[8].int32(),
                slots[9].int32(),
            )
        },
        checked: checked::gemm,
    },
    Kernel {
        name: "gemm_beta",
        section: "gemm",
        parameters: &[
            Parameter::tensor("a", Direction::In, "dtype", "[m:lda, k]^trans_a", "lda", &[]),
            Parameter::tensor("b", Direction::In, "dtype", "[k:ldb, n]^trans_b", "ldb", &[]),
            Parameter::tensor("c", Direction::InOut, "dtype_c", "[m:ldc, n]", "ldc", &[]),
            Parameter::integer("m"),
            Parameter::integer("n"),
            Parameter::integer("k"),
            Parameter::integer("lda"),
            Parameter::integer("ldb"),
            Parameter::integer("ldc"),
            Parameter::float("alpha"),
            Parameter::float("beta"),
            Parameter::integer("trans_a"),
            Parameter::integer("trans_b"),
            Parameter::dtype("dtype"),
            Parameter::dtype("dtype_c"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_gemm_beta)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].float(),
                slots[10].float(),
                slots[11].int32(),
                slots[12].int32(),
                slots[13].int32(),
                slots[14].int32(),
            )
        },
        checked: checked::gemm_beta,
    },
    Kernel {
        name: "gemm_epilogue",
        section: "gemm",
        parameters: &[
            Parameter::tensor("a", Direction::In, "dtype", "[m, k]", "", &[]),
            Parameter::tensor("b", Direction::In, "dtype", "[n, k]", "", &[]),
            Parameter::tensor("bias", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("residual", Direction::In, "dtype", "[m, n]", "", &[]),
            Parameter::tensor("c", Direction::Out, "dtype", "[m, n]", "", &["residual"]),
            Parameter::integer("m"),
            Parameter::integer("n"),
            Parameter::integer("k"),
            Parameter::integer("activation"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_gemm_epilogue)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].pointer(),
                slots[4].pointer(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int32(),
                slots[9].int32(),
            )
        },
        checked: checked::gemm_epilogue,
    },
    Kernel {
        name: "batched_gemm",
        section: "gemm",
        parameters: &[
            Parameter::tensor("a", Direction::In, "dtype", "[batch, m, k]^trans_a", "", &[]),
            Parameter::tensor("b", Direction::In, "dtype", "[batch, k, n]^trans_b", "", &[]),
            Parameter::tensor("c", Direction::InOut, "dtype_c", "[batch, m, n]", "", &[]),
            Parameter::integer("batch"),
            Parameter::integer("m"),
            Parameter::integer("n"),
            Parameter::integer("k"),
            Parameter::float("alpha"),
            Parameter::float("beta"),
            Parameter::integer("trans_a"),
            Parameter::integer("trans_b"),
            Parameter::dtype("dtype"),
            Parameter::dtype("dtype_c"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_batched_gemm)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].float(),
                slots[8].float(),
                slots[9].int32(),
                slots[10].int32(),
                slots[11].int32(),
                slots[12].int32(),
            )
        },
        checked: checked::batched_gemm,
    },
    Kernel {
        name: "grouped_gemm",
        section: "gemm",
        parameters: &[
            Parameter::tensor("a", Direction::In, "dtype", "[rows, k]", "", &[]),
            Parameter::tensor("b", Direction::In, "dtype", "[groups, k, n]^trans_b", "", &[]),
            Parameter::tensor("offsets", Direction::In, "i32", "[groups+1]", "", &[]),
            Parameter::tensor("c", Direction::InOut, "dtype_c", "[rows, n]", "", &[]),
            Parameter::integer("groups"),
            Parameter::integer("rows"),
            Parameter::integer("n"),
            Parameter::integer("k"),
            Parameter::float("beta"),
            Parameter::integer("trans_b"),
            Parameter::dtype("dtype"),
            Parameter::dtype("dtype_c"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_grouped_gemm)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer().cast(),
                slots[3].pointer(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].float(),
                slots[9].int32(),
                slots[10].int32(),
                slots[11].int32(),
            )
        },
        checked: checked::grouped_gemm,
    },
    Kernel {
        name: "grouped_gemm_wgrad",
        section: "gemm",
        parameters: &[
            Parameter::tensor("a", Direction::In, "dtype", "[rows, m]", "", &[]),
            Parameter::tensor("b", Direction::In, "dtype", "[rows, n]", "", &[]),
            Parameter::tensor("offsets", Direction::In, "i32", "[groups+1]", "", &[]),
            Parameter::tensor("c", Direction::InOut, "dtype_c", "[groups, m, n]", "", &[]),
            Parameter::integer("groups"),
            Parameter::integer("rows"),
            Parameter::integer("m"),
            Parameter::integer("n"),
            Parameter::float("beta"),
            Parameter::dtype("dtype"),
            Parameter::dtype("dtype_c"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_grouped_gemm_wgrad)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer().cast(),
                slots[3].pointer(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].float(),
                slots[9].int32(),
                slots[10].int32(),
            )
        },
        checked: checked::grouped_gemm_wgrad,
    },
    Kernel {
        name: "embedding",
        section: "embedding",
        parameters: &[
            Parameter::tensor("table", Direction::In, "dtype", "[vocab, dim]", "", &[]),
            Parameter::tensor("ids", Direction::In, "i32", "[tokens]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[tokens, dim]", "", &[]),
            Parameter::integer("tokens"),
            Parameter::integer("vocab"),
            Parameter::integer("dim"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_embedding)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int32(),
            )
        },
        checked: checked::embedding,
    },
    Kernel {
        name: "scatter_add",
        section: "embedding",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype", "[tokens, dim]", "", &[]),
            Parameter::tensor("ids", Direction::In, "i32", "[tokens]", "", &[]),
            Parameter::tensor("table", Direction::Accumulated, "f32", "[vocab, dim]", "", &[]),
            Parameter::integer("tokens"),
            Parameter::integer("vocab"),
            Parameter::integer("dim"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_scatter_add)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int32(),
            )
        },
        checked: checked::scatter_add,
    },
    Kernel {
        name: "rope_freqs",
        section: "rope",
        parameters: &[
            Parameter::tensor("cosine", Direction::Out, "f32", "[positions, head_dim/2]", "", &[]),
            Parameter::tensor("sine", Direction::Out, "f32", "[positions, head_dim/2]", "", &[]),
            Parameter::integer("first"),
            Parameter::integer("positions"),
            Parameter::integer("head_dim"),
            Parameter::float("base"),
            Parameter::float("ntk_alpha"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_rope_freqs)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].pointer().cast(),
                slots[2].int64(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].double(),
                slots[6].double(),
            )
        },
        checked: checked::rope_freqs,
    },
    Kernel {
        name: "rope_forward",
        section: "rope",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype", "[tokens:ld_x, heads, head_dim]", "ld_x", &[]),
            Parameter::tensor("cosine", Direction::In, "f32", "[max_position, head_dim/2]", "", &[]),
            Parameter::tensor("sine", Direction::In, "f32", "[max_position, head_dim/2]", "", &[]),
            Parameter::tensor("positions", Direction::In, "i32", "[tokens]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[tokens:ld_y, heads, head_dim]", "ld_y", &["x"]),
            Parameter::integer("tokens"),
            Parameter::integer("heads"),
            Parameter::integer("head_dim"),
            Parameter::integer("max_position"),
            Parameter::integer("ld_x"),
            Parameter::integer("ld_y"),
            Parameter::integer("layout"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_rope_forward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int64(),
                slots[10].int64(),
                slots[11].int32(),
                slots[12].int32(),
            )
        },
        checked: checked::rope_forward,
    },
    Kernel {
        name: "rope_qk",
        section: "rope",
        parameters: &[
            Parameter::tensor("q", Direction::InOut, "dtype", "[tokens:ld_q, heads, head_dim]", "ld_q", &[]),
            Parameter::tensor("k", Direction::InOut, "dtype", "[tokens:ld_k, kv_heads, head_dim]", "ld_k", &[]),
            Parameter::tensor("cosine", Direction::In, "f32", "[max_position, head_dim/2]", "", &[]),
            Parameter::tensor("sine", Direction::In, "f32", "[max_position, head_dim/2]", "", &[]),
            Parameter::tensor("positions", Direction::In, "i32", "[tokens]", "", &[]),
            Parameter::integer("tokens"),
            Parameter::integer("heads"),
            Parameter::integer("kv_heads"),
            Parameter::integer("head_dim"),
            Parameter::integer("max_position"),
            Parameter::integer("ld_q"),
            Parameter::integer("ld_k"),
            Parameter::integer("layout"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_rope_qk)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int64(),
                slots[10].int64(),
                slots[11].int64(),
                slots[12].int32(),
                slots[13].int32(),
            )
        },
        checked: checked::rope_qk,
    },
    Kernel {
        name: "rope_backward",
        section: "rope",
        parameters: &[
            Parameter::tensor("dy", Direction::In, "dtype", "[tokens:ld_y, heads, head_dim]", "ld_y", &[]),
            Parameter::tensor("cosine", Direction::In, "f32", "[max_position, head_dim/2]", "", &[]),
            Parameter::tensor("sine", Direction::In, "f32", "[max_position, head_dim/2]", "", &[]),
            Parameter::tensor("positions", Direction::In, "i32", "[tokens]", "", &[]),
            Parameter::tensor("dx", Direction::Out, "dtype", "[tokens:ld_x, heads, head_dim]", "ld_x", &["dy"]),
            Parameter::integer("tokens"),
            Parameter::integer("heads"),
            Parameter::integer("head_dim"),
            Parameter::integer("max_position"),
            Parameter::integer("ld_y"),
            Parameter::integer("ld_x"),
            Parameter::integer("layout"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_rope_backward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int64(),
                slots[10].int64(),
                slots[11].int32(),
                slots[12].int32(),
            )
        },
        checked: checked::rope_backward,
    },
    Kernel {
        name: "attention_scores",
        section: "attention",
        parameters: &[
            Parameter::tensor("q", Direction::In, "dtype", "[batch, q_len, heads, head_dim]", "", &[]),
            Parameter::tensor("k", Direction::In, "dtype", "[batch, kv_len, kv_heads, head_dim]", "", &[]),
            Parameter::tensor("scores", Direction::Out, "dtype", "[batch, heads, q_len, kv_len]", "", &[]),
            Parameter::integer("batch"),
            Parameter::integer("q_len"),
            Parameter::integer("kv_len"),
            Parameter::integer("heads"),
            Parameter::integer("kv_heads"),
            Parameter::integer("head_dim"),
            Parameter::float("scale"),
            Parameter::integer("causal"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_attention_scores)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].float(),
                slots[10].int32(),
                slots[11].int32(),
            )
        },
        checked: checked::attention_scores,
    },
    Kernel {
        name: "attention_output",
        section: "attention",
        parameters: &[
            Parameter::tensor("probs", Direction::In, "dtype", "[batch, heads, q_len, kv_len]", "", &[]),
            Parameter::tensor("v", Direction::In, "dtype", "[batch, kv_len, kv_heads, head_dim]", "", &[]),
            Parameter::tensor("out", Direction::Out, "dtype", "[batch, q_len, heads, head_dim]", "", &[]),
            Parameter::integer("batch"),
            Parameter::integer("q_len"),
            Parameter::integer("kv_len"),
            Parameter::integer("heads"),
            Parameter::integer("kv_heads"),
            Parameter::integer("head_dim"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_attention_output)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int32(),
            )
        },
        checked: checked::attention_output,
    },
    Kernel {
        name: "flash_attention",
        section: "attention",
        parameters: &[
            Parameter::tensor("q", Direction::In, "dtype", "[batch*q_len:ld_q, heads, head_dim]", "ld_q", &[]),
            Parameter::tensor("k", Direction::In, "dtype", "[batch*kv_len:ld_kv, kv_heads, head_dim]", "ld_kv", &[]),
            Parameter::tensor("v", Direction::In, "dtype", "[batch*kv_len:ld_kv, kv_heads, head_dim]", "ld_kv", &[]),
            Parameter::tensor("out", Direction::Out, "dtype", "[batch*q_len, heads, head_dim]", "", &[]),
            Parameter::tensor("lse", Direction::Out, "f32", "[batch, heads, q_len]", "", &[]),
            Parameter::integer("batch"),
            Parameter::integer("q_len"),
            Parameter::integer("kv_len"),
            Parameter::integer("heads"),
            Parameter::integer("kv_heads"),
            Parameter::integer("head_dim"),
            Parameter::integer("ld_q"),
            Parameter::integer("ld_kv"),
            Parameter::float("scale"),
            Parameter::integer("causal"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_flash_attention)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].pointer(),
                slots[4].pointer().cast(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int64(),
                slots[10].int64(),
                slots[11].int64(),
                slots[12].int64(),
                slots[13].float(),
                slots[14].int32(),
                slots[15].int32(),
            )
        },
        checked: checked::flash_attention,
    },
    Kernel {
        name: "flash_attention_backward",
        section: "attention",
        parameters: &[
            Parameter::tensor("dout", Direction::In, "dtype", "[batch*q_len, heads, head_dim]", "", &[]),
            Parameter::tensor("q", Direction::In, "dtype", "[batch*q_len:ld_q, heads, head_dim]", "ld_q", &[]),
            Parameter::tensor("k", Direction::In, "dtype", "[batch*kv_len:ld_kv, kv_heads, head_dim]", "ld_kv", &[]),
            Parameter::tensor("v", Direction::In, "dtype", "[batch*kv_len:ld_kv, kv_heads, head_dim]", "ld_kv", &[]),
            Parameter::tensor("out", Direction::In, "dtype", "[batch*q_len, heads, head_dim]", "", &[]),
            Parameter::tensor("lse", Direction::In, "f32", "[batch, heads, q_len]", "", &[]),
            Parameter::tensor("dq", Direction::Out, "dtype", "[batch*q_len:ld_q, heads, head_dim]", "ld_q", &[]),
            Parameter::tensor("dk", Direction::Out, "dtype", "[batch*kv_len:ld_kv, kv_heads, head_dim]", "ld_kv", &[]),
            Parameter::tensor("dv", Direction::Out, "dtype", "[batch*kv_len:ld_kv, kv_heads, head_dim]", "ld_kv", &[]),
            Parameter::integer("batch"),
            Parameter::integer("q_len"),
            Parameter::integer("kv_len"),
            Parameter::integer("heads"),
            Parameter::integer("kv_heads"),
            Parameter::integer("head_dim"),
            Parameter::integer("ld_q"),
            Parameter::integer("ld_kv"),
            Parameter::float("scale"),
            Parameter::integer("causal"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_flash_attention_backward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].pointer(),
                slots[4].pointer(),
                slots[5].pointer().cast(),
                slots[6].pointer(),
                slots[7].pointer(),
                slots[8].pointer(),
                slots[9].int64(),
                slots[10].int64(),
                slots[11].int64(),
                slots[12].int64(),
                slots[13].int64(),
                slots[14].int64(),
                slots[15].int64(),
                slots[16].int64(),
                slots[17].float(),
                slots[18].int32(),
                slots[19].int32(),
            )
        },
        checked: checked::flash_attention_backward,
    },
    Kernel {
        name: "attention_decode",
        section: "attention",
        parameters: &[
            Parameter::tensor("q", Direction::In, "dtype", "[batch:ld_q, heads, head_dim]", "ld_q", &[]),
            Parameter::tensor("k_cache", Direction::In, "dtype", "[batch, capacity, kv_heads, head_dim]", "", &[]),
            Parameter::tensor("v_cache", Direction::In, "dtype", "[batch, capacity, kv_heads, head_dim]", "", &[]),
            Parameter::tensor("lengths", Direction::In, "i32", "[batch]", "", &[]),
            Parameter::tensor("out", Direction::Out, "dtype", "[batch, heads, head_dim]", "", &[]),
            Parameter::integer("batch"),
            Parameter::integer("capacity"),
            Parameter::integer("heads"),
            Parameter::integer("kv_heads"),
            Parameter::integer("head_dim"),
            Parameter::integer("ld_q"),
            Parameter::float("scale"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_attention_decode)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer(),
                slots[3].pointer().cast(),
                slots[4].pointer(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int64(),
                slots[10].int64(),
                slots[11].float(),
                slots[12].int32(),
            )
        },
        checked: checked::attention_decode,
    },
    Kernel {
        name: "kv_append",
        section: "kvcache",
        parameters: &[
            Parameter::tensor("k", Direction::In, "dtype", "[batch*len:ld_kv, kv_heads, head_dim]", "ld_kv", &[]),
            Parameter::tensor("v", Direction::In, "dtype", "[batch*len:ld_kv, kv_heads, head_dim]", "ld_kv", &[]),
            Parameter::tensor("starts", Direction::In, "i32", "[batch]", "", &[]),
            Parameter::tensor("k_cache", Direction::InOut, "dtype", "[batch, capacity, kv_heads, head_dim]", "", &[]),
            Parameter::tensor("v_cache", Direction::InOut, "dtype", "[batch, capacity, kv_heads, head_dim]", "", &[]),
            Parameter::integer("batch"),
            Parameter::integer("len"),
            Parameter::integer("capacity"),
            Parameter::integer("kv_heads"),
            Parameter::integer("head_dim"),
            Parameter::integer("ld_kv"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_kv_append)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer().cast(),
                slots[3].pointer(),
                slots[4].pointer(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int64(),
                slots[10].int64(),
                slots[11].int32(),
            )
        },
        checked: checked::kv_append,
    },
    Kernel {
        name: "kv_trim",
        section: "kvcache",
        parameters: &[
            Parameter::tensor("k_cache", Direction::InOut, "dtype", "[batch, capacity, kv_heads, head_dim]", "", &[]),
            Parameter::tensor("v_cache", Direction::InOut, "dtype", "[batch, capacity, kv_heads, head_dim]", "", &[]),
            Parameter::tensor("lengths", Direction::InOut, "i32", "[batch]", "", &[]),
            Parameter::integer("batch"),
            Parameter::integer("capacity"),
            Parameter::integer("kv_heads"),
            Parameter::integer("head_dim"),
            Parameter::integer("keep"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_kv_trim)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer().cast(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int32(),
            )
        },
        checked: checked::kv_trim,
    },
    Kernel {
        name: "moe_plan",
        section: "moe",
        parameters: &[
            Parameter::tensor("indices", Direction::In, "i32", "[tokens, k]", "", &[]),
            Parameter::tensor("counts", Direction::Out, "i32", "[experts]", "", &[]),
            Parameter::tensor("offsets", Direction::Out, "i32", "[experts+1]", "", &[]),
            Parameter::tensor("slot_row", Direction::Out, "i32", "[tokens, k]", "", &[]),
            Parameter::tensor("row_slot", Direction::Out, "i32", "[tokens*k]", "", &[]),
            Parameter::integer("tokens"),
            Parameter::integer("k"),
            Parameter::integer("experts"),
            Parameter::integer("capacity"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_moe_plan)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int64(),
            )
        },
        checked: checked::moe_plan,
    },
    Kernel {
        name: "moe_gather",
        section: "moe",
        parameters: &[
            Parameter::tensor("x", Direction::In, "dtype", "[tokens, dim]", "", &[]),
            Parameter::tensor("row_slot", Direction::In, "i32", "[tokens*k]", "", &[]),
            Parameter::tensor("y", Direction::Out, "dtype", "[tokens*k, dim]", "", &[]),
            Parameter::integer("tokens"),
            Parameter::integer("k"),
            Parameter::integer("dim"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_moe_gather)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int32(),
            )
        },
        checked: checked::moe_gather,
    },
    Kernel {
        name: "moe_gather_backward",
        section: "moe",
        parameters: &[
            Parameter::tensor("dy", Direction::In, "dtype", "[tokens*k, dim]", "", &[]),
            Parameter::tensor("slot_row", Direction::In, "i32", "[tokens, k]", "", &[]),
            Parameter::tensor("dx", Direction::Out, "dtype", "[tokens, dim]", "", &[]),
            Parameter::integer("tokens"),
            Parameter::integer("k"),
            Parameter::integer("dim"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_moe_gather_backward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int32(),
            )
        },
        checked: checked::moe_gather_backward,
    },
    Kernel {
        name: "moe_combine",
        section: "moe",
        parameters: &[
            Parameter::tensor("y", Direction::In, "dtype", "[tokens*k, dim]", "", &[]),
            Parameter::tensor("weights", Direction::In, "f32", "[tokens, k]", "", &[]),
            Parameter::tensor("slot_row", Direction::In, "i32", "[tokens, k]", "", &[]),
            Parameter::tensor("residual", Direction::In, "dtype", "[tokens, dim]", "", &[]),
            Parameter::tensor("out", Direction::Out, "dtype", "[tokens, dim]", "", &["residual"]),
            Parameter::integer("tokens"),
            Parameter::integer("k"),
            Parameter::integer("dim"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_moe_combine)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer(),
                slots[4].pointer(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int32(),
            )
        },
        checked: checked::moe_combine,
    },
    Kernel {
        name: "moe_combine_backward",
        section: "moe",
        parameters: &[
            Parameter::tensor("dout", Direction::In, "dtype", "[tokens, dim]", "", &[]),
            Parameter::tensor("y", Direction::In, "dtype", "[tokens*k, dim]", "", &[]),
            Parameter::tensor("weights", Direction::In, "f32", "[tokens, k]", "", &[]),
            Parameter::tensor("slot_row", Direction::In, "i32", "[tokens, k]", "", &[]),
            Parameter::tensor("row_slot", Direction::In, "i32", "[tokens*k]", "", &[]),
            Parameter::tensor("dy", Direction::Out, "dtype", "[tokens*k, dim]", "", &["y"]),
            Parameter::tensor("dweights", Direction::Out, "f32", "[tokens, k]", "", &[]),
            Parameter::integer("tokens"),
            Parameter::integer("k"),
            Parameter::integer("dim"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_moe_combine_backward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].pointer(),
                slots[6].pointer().cast(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int64(),
                slots[10].int32(),
            )
        },
        checked: checked::moe_combine_backward,
    },
    Kernel {
        name: "cross_entropy_forward",
        section: "loss",
        parameters: &[
            Parameter::tensor("logits", Direction::In, "dtype", "[rows, vocab]", "", &[]),
            Parameter::tensor("targets", Direction::In, "i32", "[rows]", "", &[]),
            Parameter::tensor("losses", Direction::Out, "f32", "[rows]", "", &[]),
            Parameter::tensor("lse", Direction::Out, "f32", "[rows]", "", &[]),
            Parameter::tensor("loss_sum", Direction::Out, "f32", "[1]", "", &[]),
            Parameter::tensor("count", Direction::Out, "i32", "[1]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("vocab"),
            Parameter::integer("ignore_index"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_cross_entropy_forward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].pointer().cast(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int32(),
                slots[9].int32(),
            )
        },
        checked: checked::cross_entropy_forward,
    },
    Kernel {
        name: "cross_entropy_backward",
        section: "loss",
        parameters: &[
            Parameter::tensor("logits", Direction::In, "dtype", "[rows, vocab]", "", &[]),
            Parameter::tensor("targets", Direction::In, "i32", "[rows]", "", &[]),
            Parameter::tensor("lse", Direction::In, "f32", "[rows]", "", &[]),
            Parameter::tensor("grad_scale", Direction::In, "f32", "[1]", "", &[]),
            Parameter::tensor("dlogits", Direction::Out, "dtype", "[rows, vocab]", "", &["logits"]),
            Parameter::integer("rows"),
            Parameter::integer("vocab"),
            Parameter::integer("ignore_index"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_cross_entropy_backward)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int32(),
                slots[8].int32(),
            )
        },
        checked: checked::cross_entropy_backward,
    },
    Kernel {
        name: "aux_loss_forward",
        section: "loss",
        parameters: &[
            Parameter::tensor("probs", Direction::In, "f32", "[tokens, experts]", "", &[]),
            Parameter::tensor("counts", Direction::In, "i32", "[experts]", "", &[]),
            Parameter::tensor("loss", Direction::Accumulated, "f32", "[1]", "", &[]),
            Parameter::integer("tokens"),
            Parameter::integer("experts"),
            Parameter::float("alpha"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_aux_loss_forward)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].float(),
            )
        },
        checked: checked::aux_loss_forward,
    },
    Kernel {
        name: "aux_loss_backward",
        section: "loss",
        parameters: &[
            Parameter::tensor("counts", Direction::In, "i32", "[experts]", "", &[]),
            Parameter::tensor("grad_scale", Direction::In, "f32", "[1]", "", &[]),
            Parameter::tensor("dprobs", Direction::Out, "f32", "[tokens, experts]", "", &[]),
            Parameter::integer("tokens"),
            Parameter::integer("experts"),
            Parameter::float("alpha"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_aux_loss_backward)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].float(),
            )
        },
        checked: checked::aux_loss_backward,
    },
    Kernel {
        name: "adamw_step",
        section: "optimizer",
        parameters: &[
            Parameter::tensor("grad", Direction::In, "f32", "[n]", "", &[]),
            Parameter::tensor("lr", Direction::In, "f32", "[1]", "", &[]),
            Parameter::tensor("step", Direction::In, "i32", "[1]", "", &[]),
            Parameter::tensor("grad_scale", Direction::In, "f32", "[1]", "", &[]),
            Parameter::tensor("skip", Direction::In, "i32", "[1]", "", &[]),
            Parameter::tensor("param", Direction::InOut, "f32", "[n]", "", &[]),
            Parameter::tensor("m", Direction::InOut, "f32", "[n]", "", &[]),
            Parameter::tensor("v", Direction::InOut, "f32", "[n]", "", &[]),
            Parameter::tensor("param_copy", Direction::Out, "dtype", "[n]", "", &[]),
            Parameter::integer("n"),
            Parameter::integer("n_decay"),
            Parameter::float("beta1"),
            Parameter::float("beta2"),
            Parameter::float("eps"),
            Parameter::float("weight_decay"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_adamw_step)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].pointer().cast(),
                slots[6].pointer().cast(),
                slots[7].pointer().cast(),
                slots[8].pointer(),
                slots[9].int64(),
                slots[10].int64(),
                slots[11].float(),
                slots[12].float(),
                slots[13].float(),
                slots[14].float(),
                slots[15].int32(),
            )
        },
        checked: checked::adamw_step,
    },
    Kernel {
        name: "zero_grad",
        section: "optimizer",
        parameters: &[
            Parameter::tensor("grad", Direction::Out, "dtype", "[n]", "", &[]),
            Parameter::integer("n"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_zero_grad)(ctx, slots[0].pointer(), slots[1].int64(), slots[2].int32())
        },
        checked: checked::zero_grad,
    },
    Kernel {
        name: "grad_norm",
        section: "optimizer",
        parameters: &[
            Parameter::tensor("grad", Direction::In, "dtype", "[n]", "", &[]),
            Parameter::tensor("norm", Direction::Out, "f32", "[1]", "", &[]),
            Parameter::integer("n"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_grad_norm)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].int64(),
                slots[3].int32(),
            )
        },
        checked: checked::grad_norm,
    },
    Kernel {
        name: "grad_clip",
        section: "optimizer",
        parameters: &[
            Parameter::tensor("norm", Direction::In, "f32", "[1]", "", &[]),
            Parameter::tensor("loss_scale", Direction::In, "f32", "[1]", "", &[]),
            Parameter::tensor("scale", Direction::Out, "f32", "[1]", "", &[]),
            Parameter::tensor("grad", Direction::InOut, "dtype", "[n]", "", &[]),
            Parameter::integer("n"),
            Parameter::float("max_norm"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_grad_clip)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer(),
                slots[4].int64(),
                slots[5].float(),
                slots[6].int32(),
            )
        },
        checked: checked::grad_clip,
    },
    Kernel {
        name: "lr_schedule",
        section: "optimizer",
        parameters: &[
            Parameter::tensor("skip", Direction::In, "i32", "[1]", "", &[]),
            Parameter::tensor("step", Direction::InOut, "i32", "[1]", "", &[]),
            Parameter::tensor("lr", Direction::Out, "f32", "[1]", "", &[]),
            Parameter::integer("warmup"),
            Parameter::integer("total"),
            Parameter::float("max_lr"),
            Parameter::float("min_lr"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_lr_schedule)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].int64(),
                slots[4].int64(),
                slots[5].float(),
                slots[6].float(),
            )
        },
        checked: checked::lr_schedule,
    },
    Kernel {
        name: "loss_scale_update",
        section: "optimizer",
        parameters: &[
            Parameter::tensor("norm", Direction::In, "f32", "[1]", "", &[]),
            Parameter::tensor("loss_scale", Direction::InOut, "f32", "[1]", "", &[]),
            Parameter::tensor("good_steps", Direction::InOut, "i32", "[1]", "", &[]),
            Parameter::tensor("skipped", Direction::InOut, "i32", "[1]", "", &[]),
            Parameter::tensor("skip", Direction::Out, "i32", "[1]", "", &[]),
            Parameter::float("growth"),
            Parameter::float("backoff"),
            Parameter::integer("interval"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_loss_scale_update)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].float(),
                slots[6].float(),
                slots[7].int64(),
            )
        },
        checked: checked::loss_scale_update,
    },
    Kernel {
        name: "argmax",
        section: "decode",
        parameters: &[
            Parameter::tensor("logits", Direction::In, "dtype", "[rows, vocab]", "", &[]),
            Parameter::tensor("ids", Direction::Out, "i32", "[rows]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("vocab"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_argmax)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].int64(),
                slots[3].int64(),
                slots[4].int32(),
            )
        },
        checked: checked::argmax,
    },
    Kernel {
        name: "sample",
        section: "decode",
        parameters: &[
            Parameter::tensor("logits", Direction::In, "dtype", "[rows, vocab]", "", &[]),
            Parameter::tensor("temperature", Direction::In, "f32", "[rows]", "", &[]),
            Parameter::tensor("seeds", Direction::In, "i64", "[rows]", "", &[]),
            Parameter::tensor("steps", Direction::In, "i32", "[rows]", "", &[]),
            Parameter::tensor("ids", Direction::Out, "i32", "[rows]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("vocab"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_sample)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int32(),
            )
        },
        checked: checked::sample,
    },
    Kernel {
        name: "topk_sample",
        section: "decode",
        parameters: &[
            Parameter::tensor("logits", Direction::In, "dtype", "[rows, vocab]", "", &[]),
            Parameter::tensor("temperature", Direction::In, "f32", "[rows]", "", &[]),
            Parameter::tensor("top_k", Direction::In, "i32", "[rows]", "", &[]),
            Parameter::tensor("seeds", Direction::In, "i64", "[rows]", "", &[]),
            Parameter::tensor("steps", Direction::In, "i32", "[rows]", "", &[]),
            Parameter::tensor("ids", Direction::Out, "i32", "[rows]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("vocab"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_topk_sample)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].pointer().cast(),
                slots[6].int64(),
                slots[7].int64(),
                slots[8].int32(),
            )
        },
        checked: checked::topk_sample,
    },
    Kernel {
        name: "topp_sample",
        section: "decode",
        parameters: &[
            Parameter::tensor("logits", Direction::In, "dtype", "[rows, vocab]", "", &[]),
            Parameter::tensor("temperature", Direction::In, "f32", "[rows]", "", &[]),
            Parameter::tensor("top_k", Direction::In, "i32", "[rows]", "", &[]),
            Parameter::tensor("top_p", Direction::In, "f32", "[rows]", "", &[]),
            Parameter::tensor("seeds", Direction::In, "i64", "[rows]", "", &[]),
            Parameter::tensor("steps", Direction::In, "i32", "[rows]", "", &[]),
            Parameter::tensor("ids", Direction::Out, "i32", "[rows]", "", &[]),
            Parameter::integer("rows"),
            Parameter::integer("vocab"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_topp_sample)(
                ctx,
                slots[0].pointer(),
                slots[1].pointer().cast(),
                slots[2].pointer().cast(),
                slots[3].pointer().cast(),
                slots[4].pointer().cast(),
                slots[5].pointer().cast(),
                slots[6].pointer().cast(),
                slots[7].int64(),
                slots[8].int64(),
                slots[9].int32(),
            )
        },
        checked: checked::topp_sample,
    },
    Kernel {
        name: "random_bits",
        section: "random",
        parameters: &[
            Parameter::tensor("y", Direction::Out, "i32", "[n]", "", &[]),
            Parameter::integer("n"),
            Parameter::integer("seed"),
            Parameter::integer("stream"),
            Parameter::integer("offset"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_random_bits)(
                ctx,
                slots[0].pointer().cast(),
                slots[1].int64(),
                slots[2].int64(),
                slots[3].int64(),
                slots[4].int64(),
            )
        },
        checked: checked::random_bits,
    },
    Kernel {
        name: "uniform",
        section: "random",
        parameters: &[
            Parameter::tensor("y", Direction::Out, "dtype", "[n]", "", &[]),
            Parameter::integer("n"),
            Parameter::float("low"),
            Parameter::float("high"),
            Parameter::integer("seed"),
            Parameter::integer("stream"),
            Parameter::integer("offset"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_uniform)(
                ctx,
                slots[0].pointer(),
                slots[1].int64(),
                slots[2].float(),
                slots[3].float(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int32(),
            )
        },
        checked: checked::uniform,
    },
    Kernel {
        name: "normal",
        section: "random",
        parameters: &[
            Parameter::tensor("y", Direction::Out, "dtype", "[n]", "", &[]),
            Parameter::integer("n"),
            Parameter::float("mean"),
            Parameter::float("std"),
            Parameter::integer("seed"),
            Parameter::integer("stream"),
            Parameter::integer("offset"),
            Parameter::dtype("dtype"),
        ],
        // SAFETY: the caller vouches for the pointers.
        call: |functions, ctx, slots| unsafe {
            (functions.cuda_normal)(
                ctx,
                slots[0].pointer(),
                slots[1].int64(),
                slots[2].float(),
                slots[3].float(),
                slots[4].int64(),
                slots[5].int64(),
                slots[6].int64(),
                slots[7].int32(),
            )
        },
        checked: checked::normal,
    },
];
