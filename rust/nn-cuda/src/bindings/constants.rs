// Generated from bindings.h by `make generate`. Do not edit.

//! Numbers of the contract, under their names in bindings.h.

/// Major version of the contract: a signature, a meaning or a number changed.
pub const NNCUDA_ABI_MAJOR: i32 = 2;

/// Minor version of the contract: something was added.
pub const NNCUDA_ABI_MINOR: i32 = 0;

// Status codes. Grouped by ten, append-only: a number is never reused.
/// 0.
pub const NNCUDA_SUCCESS: i32 = 0;
/// the context, stream, event or graph is null or not one of this library
pub const NNCUDA_ERROR_INVALID_CONTEXT: i32 = 10;
/// a pointer that must not be null is
pub const NNCUDA_ERROR_NULL_POINTER: i32 = 11;
/// negative, too large for its product to fit, or at odds with another size
pub const NNCUDA_ERROR_INVALID_SIZE: i32 = 12;
/// unknown dtype, or one that this function does not take
pub const NNCUDA_ERROR_INVALID_DTYPE: i32 = 13;
/// an option, flag or enum out of its range
pub const NNCUDA_ERROR_INVALID_VALUE: i32 = 14;
/// a pointer is not a multiple of its element's size
pub const NNCUDA_ERROR_MISALIGNED: i32 = 15;
/// a pointer or handle belongs to another device or context
pub const NNCUDA_ERROR_WRONG_DEVICE: i32 = 16;
/// an output overlaps an argument in a way that is not allowed
pub const NNCUDA_ERROR_ALIASED: i32 = 17;
/// a token id, target, expert index or position is outside its range
pub const NNCUDA_ERROR_OUT_OF_RANGE: i32 = 20;
/// the device or the host has no more; the context stays usable
pub const NNCUDA_ERROR_OUT_OF_MEMORY: i32 = 30;
/// valid, but this engine cannot do it
pub const NNCUDA_ERROR_UNSUPPORTED: i32 = 40;
/// no such device on this machine, or no driver for it
pub const NNCUDA_ERROR_NO_DEVICE: i32 = 41;
/// not allowed while the context captures a graph
pub const NNCUDA_ERROR_CAPTURING: i32 = 50;
/// begin without end, end without begin, or the like
pub const NNCUDA_ERROR_STATE: i32 = 51;
/// another thread is inside a call on this context
pub const NNCUDA_ERROR_BUSY: i32 = 52;
/// the device reported a fault; the context is lost
pub const NNCUDA_ERROR_DEVICE: i32 = 60;
/// another rank failed, left, hung or does not match this one; the communicator is lost
pub const NNCUDA_ERROR_PEER: i32 = 61;
/// a defect of this library: please report it
pub const NNCUDA_ERROR_INTERNAL: i32 = 70;

// Element types. Append-only.
/// IEEE binary32
pub const NNCUDA_F32: i32 = 0;
/// IEEE binary16
pub const NNCUDA_F16: i32 = 1;
/// bfloat16
pub const NNCUDA_BF16: i32 = 2;
/// 3.
pub const NNCUDA_I32: i32 = 3;
/// 4.
pub const NNCUDA_I8: i32 = 4;

// Formats in which weights and caches are stored: dtypes, under their numbers, and blocks of GGUF, in which 32 or
// 256 neighbouring elements of a row share scales. _R16: the same bytes in an order made for products.
// Append-only.
/// 0.
pub const NNCUDA_FORMAT_F32: i32 = 0;
/// 1.
pub const NNCUDA_FORMAT_F16: i32 = 1;
/// 2.
pub const NNCUDA_FORMAT_BF16: i32 = 2;
/// 18 bytes for 32: f16 scale, 4 bits each
pub const NNCUDA_FORMAT_Q4_0: i32 = 10;
/// 20 bytes for 32: f16 scale and minimum, 4 bits each
pub const NNCUDA_FORMAT_Q4_1: i32 = 11;
/// 22 bytes for 32: f16 scale, 5 bits each
pub const NNCUDA_FORMAT_Q5_0: i32 = 12;
/// 24 bytes for 32: f16 scale and minimum, 5 bits each
pub const NNCUDA_FORMAT_Q5_1: i32 = 13;
/// 34 bytes for 32: f16 scale, 8 bits each
pub const NNCUDA_FORMAT_Q8_0: i32 = 14;
/// 144 bytes for 256: eight parts with 6-bit scales and minima, 4 bits each
pub const NNCUDA_FORMAT_Q4_K: i32 = 15;
/// 176 bytes for 256: eight parts with 6-bit scales and minima, 5 bits each
pub const NNCUDA_FORMAT_Q5_K: i32 = 16;
/// 210 bytes for 256: sixteen parts with 8-bit scales, 6 bits each
pub const NNCUDA_FORMAT_Q6_K: i32 = 17;
/// 18 bytes for 32: f16 scale, 4 bits each, which number sixteen values; read, not stored
pub const NNCUDA_FORMAT_IQ4_NL: i32 = 18;
/// 17 bytes for 32: scale a power of two, OCP 4-bit floating point; read, not stored
pub const NNCUDA_FORMAT_MXFP4: i32 = 19;
/// OCP 8-bit floating point, 1 byte each, without a scale: caches alone
pub const NNCUDA_FORMAT_E4M3: i32 = 20;
/// 136 bytes for 256: eight parts with 6-bit scales, 4 bits each as of iq4_nl; read, not stored
pub const NNCUDA_FORMAT_IQ4_XS: i32 = 21;
/// 84 bytes for 256: sixteen parts with 4-bit scales and minima, 2 bits each
pub const NNCUDA_FORMAT_Q2_K: i32 = 22;
/// 110 bytes for 256: sixteen parts with 6-bit scales, 3 bits each
pub const NNCUDA_FORMAT_Q3_K: i32 = 23;
/// q4_0, sixteen rows side by side: cuda_interleave_rows
pub const NNCUDA_FORMAT_Q4_0_R16: i32 = 30;
/// the others likewise: 20 more than the plain format
pub const NNCUDA_FORMAT_Q4_1_R16: i32 = 31;
/// 32.
pub const NNCUDA_FORMAT_Q5_0_R16: i32 = 32;
/// 33.
pub const NNCUDA_FORMAT_Q5_1_R16: i32 = 33;
/// 34.
pub const NNCUDA_FORMAT_Q8_0_R16: i32 = 34;
/// 35.
pub const NNCUDA_FORMAT_Q4_K_R16: i32 = 35;
/// 36.
pub const NNCUDA_FORMAT_Q5_K_R16: i32 = 36;
/// 37.
pub const NNCUDA_FORMAT_Q6_K_R16: i32 = 37;
/// 38.
pub const NNCUDA_FORMAT_IQ4_NL_R16: i32 = 38;
/// 39.
pub const NNCUDA_FORMAT_MXFP4_R16: i32 = 39;
/// 41.
pub const NNCUDA_FORMAT_IQ4_XS_R16: i32 = 41;
/// 42.
pub const NNCUDA_FORMAT_Q2_K_R16: i32 = 42;
/// 43.
pub const NNCUDA_FORMAT_Q3_K_R16: i32 = 43;

// Devices, numbered as in DLPack.
/// 1.
pub const NNCUDA_DEVICE_CPU: i32 = 1;
/// 2.
pub const NNCUDA_DEVICE_CUDA: i32 = 2;

// Instruction sets of the CPU engine, from the plainest to the widest: those of x86-64, then those of AArch64.
// NEON and what is wider on AArch64 have the bits of AVX2.
/// what every processor of the architecture has
pub const NNCUDA_ISA_BASELINE: i32 = 0;
/// x86-64 with AVX2, FMA and F16C
pub const NNCUDA_ISA_AVX2: i32 = 1;
/// AVX-512 F, BW, DQ, VL
pub const NNCUDA_ISA_AVX512: i32 = 2;
/// the above, AVX512_BF16 and AVX512_VNNI
pub const NNCUDA_ISA_AVX512BF16: i32 = 3;
/// the above, AVX512_VBMI and AMX tiles of bf16 and int8
pub const NNCUDA_ISA_AMX: i32 = 4;
/// every AArch64 processor
pub const NNCUDA_ISA_NEON: i32 = 5;
/// the above and dot products of bytes (FEAT_DotProd)
pub const NNCUDA_ISA_DOTPROD: i32 = 6;
/// the above and matrix products of bytes (FEAT_I8MM)
pub const NNCUDA_ISA_I8MM: i32 = 7;

// Attributes of a context, for nncuda_ctx_get and nncuda_ctx_set.
/// worker threads, the caller included; may be set (1..256). Default: the cores allowed. 0 on a GPU
pub const NNCUDA_CTX_THREADS: i32 = 0;
/// instruction set in use; may be set to any that this processor has. On a GPU, where it is read-only, the compute
/// capability: 90 for 9.0
pub const NNCUDA_CTX_ISA: i32 = 1;
/// NNCUDA_DEVICE_\*
pub const NNCUDA_CTX_DEVICE: i32 = 2;
/// which of them
pub const NNCUDA_CTX_DEVICE_INDEX: i32 = 3;
/// bytes now handed out by nncuda_malloc
pub const NNCUDA_CTX_BYTES_USED: i32 = 4;
/// the most that BYTES_USED and the arena together ever were; set 0 to start again
pub const NNCUDA_CTX_BYTES_PEAK: i32 = 5;
/// bytes freed and kept for reuse; set 0 to return them to the system
pub const NNCUDA_CTX_BYTES_POOLED: i32 = 6;
/// size of the scratch memory, that of graphs included
pub const NNCUDA_CTX_BYTES_ARENA: i32 = 7;
/// 1 allows f32 products on a GPU to round their factors to tf32, 10 bits; default 0
pub const NNCUDA_CTX_TF32: i32 = 8;
/// 1 when the context runs nothing (nncuda_ctx_create_measuring): its memory cannot be read
pub const NNCUDA_CTX_MEASURING: i32 = 9;
/// of the GPU; 0 on the CPU engine
pub const NNCUDA_CTX_MULTIPROCESSORS: i32 = 10;
/// BYTES_PEAK in the pages that the device gives at once; on the CPU engine BYTES_PEAK
pub const NNCUDA_CTX_BYTES_HELD: i32 = 11;
/// 1 has flash_attention_backward in 16 bits multiply probabilities and their gradients as two 16-bit numbers each
/// on every GPU, where it else does so on Hopper only below 512 keys; default 0
pub const NNCUDA_CTX_TWO_PARTS: i32 = 12;
/// memory nodes (NUMA) over which worker threads are spread, each kept on one; may be set (1 to as many as the
/// process may use). With more than 1, what a copy or a kernel writes first lies on the node whose threads read it
/// later. Default 1: as the system likes. 0 on a GPU
pub const NNCUDA_CTX_NODES: i32 = 13;

// What nncuda_memcpy moves. On the CPU engine all three are a copy.
/// 1.
pub const NNCUDA_HOST_TO_DEVICE: i32 = 1;
/// 2.
pub const NNCUDA_DEVICE_TO_HOST: i32 = 2;
/// 3.
pub const NNCUDA_DEVICE_TO_DEVICE: i32 = 3;

// How rotary embedding pairs the elements of a head.
/// element i with i + head_dim/2 (GPT-NeoX, Llama in transformers)
pub const NNCUDA_ROPE_HALF: i32 = 0;
/// element 2i with 2i+1 (the paper; Llama in GGUF)
pub const NNCUDA_ROPE_INTERLEAVED: i32 = 1;

// What gemm_epilogue applies to the product.
/// 0.
pub const NNCUDA_ACTIVATION_NONE: i32 = 0;
/// 1.
pub const NNCUDA_ACTIVATION_SILU: i32 = 1;

// Forms of nncuda_profile_report.
/// 0.
pub const NNCUDA_REPORT_TABLE: i32 = 0;
/// 1.
pub const NNCUDA_REPORT_JSON: i32 = 1;
/// 2.
pub const NNCUDA_REPORT_CHROME_TRACE: i32 = 2;

// How the ranks of a communicator reach each other. Append-only.
/// a rank alone
pub const NNCUDA_TRANSPORT_SELF: i32 = 0;
/// contexts of one process, each in a thread of its own, on the CPU engine
pub const NNCUDA_TRANSPORT_THREADS: i32 = 1;
/// processes that an MPI launcher started: MPI's standard ABI, libmpi_abi.so; CPU memory
pub const NNCUDA_TRANSPORT_MPI: i32 = 2;
/// GPUs: libnccl.so.2
pub const NNCUDA_TRANSPORT_NCCL: i32 = 3;
/// NCCL on a GPU where RANK and WORLD_SIZE are set; MPI where its launcher began the process; else a rank alone
pub const NNCUDA_TRANSPORT_AUTO: i32 = 4;

// Kinds of the events of nncuda_expert_schedule.
/// 0.
pub const NNCUDA_EXPERTS_RUN: i32 = 0;
/// 1.
pub const NNCUDA_EXPERTS_ADD: i32 = 1;
/// 2.
pub const NNCUDA_EXPERTS_COPY: i32 = 2;
/// 3.
pub const NNCUDA_EXPERTS_ROUND: i32 = 3;
