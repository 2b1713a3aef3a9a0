/*
 * nncuda: language-model kernels for NVIDIA GPUs and for the CPU, behind one C ABI.
 *
 * This file is the contract. Every binding (Python, Go, Rust) is made from it, the reference pages in docs/ are made
 * from it, and the tests read it. It compiles alone as C99 and as C++17.
 *
 * CONVENTIONS
 *
 *   Names       `cuda_<kernel>` is a kernel; `nncuda_<noun>_<verb>` is everything else. Both run on either engine: the
 *               context decides, not the name.
 *   Status      Every function returns an int32_t status unless it returns a string or a version. 0 is success.
 *               nncuda_last_error(ctx) says in one sentence which argument was wrong, what it was and what it may be.
 *   Sizes       int64_t, counted in elements. A size of zero is a success that does nothing and writes nothing.
 *   Layout      Row-major, dense, last dimension fastest. `[tokens:ld, heads, head_dim]` reads: consecutive tokens lie
 *               `ld` elements apart (ld >= heads*head_dim), the rest is dense. Weights are [out, in]: y = x * W^T.
 *   Memory      Pointers are device memory of the context (from nncuda_malloc, or on the CPU engine any memory of the
 *               process) unless their line says `host`. They must be aligned to their element's size.
 *   Aliasing    An output may be the very same pointer as an input only where its line says `alias`. Partly
 *               overlapping buffers are never allowed.
 *   Arithmetic  16-bit inputs are widened to f32, accumulated in f32, rounded once to nearest-even on the way out.
 *   Ids         Token ids, targets, expert indices and positions that are out of range make the call fail with
 *               NNCUDA_ERROR_OUT_OF_RANGE before anything is written; on a GPU the error is read at the next
 *               synchronise. Never an out-of-bounds access, never a silent clamp.
 *   Order       Calls on one context happen in order. One context serves one thread at a time (a second one gets
 *               NNCUDA_ERROR_BUSY); different contexts are independent.
 *   Bits        The same call with the same inputs gives the same bits, whatever the number of threads.
 *
 * HOW EACH FUNCTION IS DOCUMENTED (parsed by the bindings, the docs and the tests)
 *
 *   First a line of purpose, then the formula with its source. Then one line a parameter, in order:
 *     @param NAME DIR DTYPE DIMS [host] [alias OTHER,...] : text     a pointer
 *     @param NAME handle[?] : text                                   a stream, event, graph or piece of memory, as it is
 *     @param NAME size | option [default VALUE] | flag | dtype : text    a scalar
 *   The context needs no line. DIR is in, out (overwritten), inout (read and overwritten) or acc (added to); with a `?` it may be null. DTYPE is f32,
 *   bf16, i32, i64, i8, u8, or the name of the parameter that says it. DIMS is a shape over the size parameters; `^flag` behind it
 *   means that its last two dimensions are swapped when that flag is set. A dtype line lists what it may be. VALUE is what
 *   languages with default arguments use when the option is left out: a number, a constant, or 1/sqrt(SIZE). The text of an
 *   option that takes an enum begins with NNCUDA_NAME_*, or with NNCUDA_NAME_*: A, B or C for some of it. The text of a size or
 *   an option may end with `; must be CONDITION`, which the library checks: terms joined by `and` or a comma, each of them
 *   `finite`, `even`, `a multiple of X`, `at least X`, `above X`, `at most X`, `below X` or `X to Y`, over numbers and other
 *   scalars; behind them perhaps `, or NUMBER for REASON`.
 */
#ifndef NNCUDA_BINDINGS_H
#define NNCUDA_BINDINGS_H

#include <stdint.h>

#if defined(_WIN32)
#define NNCUDA_API
#elif defined(__GNUC__)
#define NNCUDA_API __attribute__((visibility("default")))
#else
#define NNCUDA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Major: a signature, a meaning or a number changed. Minor: something was added. A binding refuses another major. */
#define NNCUDA_ABI_MAJOR 2
#define NNCUDA_ABI_MINOR 0

/* Status codes. Grouped by ten, append-only: a number is never reused. */
enum {
  NNCUDA_SUCCESS = 0,
  NNCUDA_ERROR_INVALID_CONTEXT = 10, /* the context, stream, event or graph is null or not one of this library */
  NNCUDA_ERROR_NULL_POINTER = 11,    /* a pointer that must not be null is */
  NNCUDA_ERROR_INVALID_SIZE = 12,    /* negative, too large for its product to fit, or at odds with another size */
  NNCUDA_ERROR_INVALID_DTYPE = 13,   /* unknown dtype, or one that this function does not take */
  NNCUDA_ERROR_INVALID_VALUE = 14,   /* an option, flag or enum out of its range */
  NNCUDA_ERROR_MISALIGNED = 15,      /* a pointer is not a multiple of its element's size */
  NNCUDA_ERROR_WRONG_DEVICE = 16,    /* a pointer or handle belongs to another device or context */
  NNCUDA_ERROR_ALIASED = 17,         /* an output overlaps an argument in a way that is not allowed */
  NNCUDA_ERROR_OUT_OF_RANGE = 20,    /* a token id, target, expert index or position is outside its range */
  NNCUDA_ERROR_OUT_OF_MEMORY = 30,   /* the device or the host has no more; the context stays usable */
  NNCUDA_ERROR_UNSUPPORTED = 40,     /* valid, but this engine cannot do it */
  NNCUDA_ERROR_NO_DEVICE = 41,       /* no such device on this machine, or no driver for it */
  NNCUDA_ERROR_CAPTURING = 50,       /* not allowed while the context captures a graph */
  NNCUDA_ERROR_STATE = 51,           /* begin without end, end without begin, or the like */
  NNCUDA_ERROR_BUSY = 52,            /* another thread is inside a call on this context */
  NNCUDA_ERROR_DEVICE = 60,          /* the device reported a fault; the context is lost */
  NNCUDA_ERROR_PEER = 61,            /* another rank failed, left, hung or does not match this one; the communicator is lost */
  NNCUDA_ERROR_INTERNAL = 70         /* a defect of this library: please report it */
};

/* Element types. Append-only. */
enum {
  NNCUDA_F32 = 0,  /* IEEE binary32 */
  NNCUDA_F16 = 1,  /* IEEE binary16 */
  NNCUDA_BF16 = 2, /* bfloat16 */
  NNCUDA_I32 = 3,
  NNCUDA_I8 = 4
};

/* Formats in which weights and caches are stored: dtypes, under their numbers, and blocks of GGUF, in which 32 or 256
 * neighbouring elements of a row share scales. _R16: the same bytes in an order made for products. Append-only. */
enum {
  NNCUDA_FORMAT_F32 = 0,
  NNCUDA_FORMAT_F16 = 1,
  NNCUDA_FORMAT_BF16 = 2,
  NNCUDA_FORMAT_Q4_0 = 10, /* 18 bytes for 32: f16 scale, 4 bits each */
  NNCUDA_FORMAT_Q4_1 = 11, /* 20 bytes for 32: f16 scale and minimum, 4 bits each */
  NNCUDA_FORMAT_Q5_0 = 12, /* 22 bytes for 32: f16 scale, 5 bits each */
  NNCUDA_FORMAT_Q5_1 = 13, /* 24 bytes for 32: f16 scale and minimum, 5 bits each */
  NNCUDA_FORMAT_Q8_0 = 14, /* 34 bytes for 32: f16 scale, 8 bits each */
  NNCUDA_FORMAT_Q4_K = 15, /* 144 bytes for 256: eight parts with 6-bit scales and minima, 4 bits each */
  NNCUDA_FORMAT_Q5_K = 16, /* 176 bytes for 256: eight parts with 6-bit scales and minima, 5 bits each */
  NNCUDA_FORMAT_Q6_K = 17, /* 210 bytes for 256: sixteen parts with 8-bit scales, 6 bits each */
  NNCUDA_FORMAT_IQ4_NL = 18, /* 18 bytes for 32: f16 scale, 4 bits each, which number sixteen values; read, not stored */
  NNCUDA_FORMAT_MXFP4 = 19,  /* 17 bytes for 32: scale a power of two, OCP 4-bit floating point; read, not stored */
  NNCUDA_FORMAT_E4M3 = 20, /* OCP 8-bit floating point, 1 byte each, without a scale: caches alone */
  NNCUDA_FORMAT_IQ4_XS = 21, /* 136 bytes for 256: eight parts with 6-bit scales, 4 bits each as of iq4_nl; read, not stored */
  NNCUDA_FORMAT_Q2_K = 22, /* 84 bytes for 256: sixteen parts with 4-bit scales and minima, 2 bits each */
  NNCUDA_FORMAT_Q3_K = 23, /* 110 bytes for 256: sixteen parts with 6-bit scales, 3 bits each */
  NNCUDA_FORMAT_Q4_0_R16 = 30, /* q4_0, sixteen rows side by side: cuda_interleave_rows */
  NNCUDA_FORMAT_Q4_1_R16 = 31, /* the others likewise: 20 more than the plain format */
  NNCUDA_FORMAT_Q5_0_R16 = 32,
  NNCUDA_FORMAT_Q5_1_R16 = 33,
  NNCUDA_FORMAT_Q8_0_R16 = 34,
  NNCUDA_FORMAT_Q4_K_R16 = 35,
  NNCUDA_FORMAT_Q5_K_R16 = 36,
  NNCUDA_FORMAT_Q6_K_R16 = 37,
  NNCUDA_FORMAT_IQ4_NL_R16 = 38,
  NNCUDA_FORMAT_MXFP4_R16 = 39,
  NNCUDA_FORMAT_IQ4_XS_R16 = 41,
  NNCUDA_FORMAT_Q2_K_R16 = 42,
  NNCUDA_FORMAT_Q3_K_R16 = 43
};

/* Devices, numbered as in DLPack. */
enum { NNCUDA_DEVICE_CPU = 1, NNCUDA_DEVICE_CUDA = 2 };

/* Instruction sets of the CPU engine, from the plainest to the widest: those of x86-64, then those of AArch64. NEON and
 * what is wider on AArch64 have the bits of AVX2. */
enum {
  NNCUDA_ISA_BASELINE = 0,   /* what every processor of the architecture has */
  NNCUDA_ISA_AVX2 = 1,       /* x86-64 with AVX2, FMA and F16C */
  NNCUDA_ISA_AVX512 = 2,     /* AVX-512 F, BW, DQ, VL */
  NNCUDA_ISA_AVX512BF16 = 3, /* the above, AVX512_BF16 and AVX512_VNNI */
  NNCUDA_ISA_AMX = 4,        /* the above, AVX512_VBMI and AMX tiles of bf16 and int8 */
  NNCUDA_ISA_NEON = 5,       /* every AArch64 processor */
  NNCUDA_ISA_DOTPROD = 6,    /* the above and dot products of bytes (FEAT_DotProd) */
  NNCUDA_ISA_I8MM = 7        /* the above and matrix products of bytes (FEAT_I8MM) */
};

/* Attributes of a context, for nncuda_ctx_get and nncuda_ctx_set. */
enum {
  NNCUDA_CTX_THREADS = 0,      /* worker threads, the caller included; may be set (1..256). Default: the cores allowed. 0 on a GPU */
  NNCUDA_CTX_ISA = 1,          /* instruction set in use; may be set to any that this processor has. On a GPU, where it is
                                  read-only, the compute capability: 90 for 9.0 */
  NNCUDA_CTX_DEVICE = 2,       /* NNCUDA_DEVICE_* */
  NNCUDA_CTX_DEVICE_INDEX = 3, /* which of them */
  NNCUDA_CTX_BYTES_USED = 4,   /* bytes now handed out by nncuda_malloc */
  NNCUDA_CTX_BYTES_PEAK = 5,   /* the most that BYTES_USED and the arena together ever were; set 0 to start again */
  NNCUDA_CTX_BYTES_POOLED = 6, /* bytes freed and kept for reuse; set 0 to return them to the system */
  NNCUDA_CTX_BYTES_ARENA = 7,  /* size of the scratch memory, that of graphs included */
  NNCUDA_CTX_TF32 = 8,         /* 1 allows f32 products on a GPU to round their factors to tf32, 10 bits; default 0 */
  NNCUDA_CTX_MEASURING = 9,    /* 1 when the context runs nothing (nncuda_ctx_create_measuring): its memory cannot be read */
  NNCUDA_CTX_MULTIPROCESSORS = 10, /* of the GPU; 0 on the CPU engine */
  NNCUDA_CTX_BYTES_HELD = 11,  /* BYTES_PEAK in the pages that the device gives at once; on the CPU engine BYTES_PEAK */
  NNCUDA_CTX_TWO_PARTS = 12,   /* 1 has flash_attention_backward in 16 bits multiply probabilities and their gradients as
                                  two 16-bit numbers each on every GPU, where it else does so on Hopper only below 512
                                  keys; default 0 */
  NNCUDA_CTX_NODES = 13        /* memory nodes (NUMA) over which worker threads are spread, each kept on one; may be set (1 to
                                  as many as the process may use). With more than 1, what a copy or a kernel writes first
                                  lies on the node whose threads read it later. Default 1: as the system likes. 0 on a GPU */
};

/* What nncuda_memcpy moves. On the CPU engine all three are a copy. */
enum { NNCUDA_HOST_TO_DEVICE = 1, NNCUDA_DEVICE_TO_HOST = 2, NNCUDA_DEVICE_TO_DEVICE = 3 };

/* How rotary embedding pairs the elements of a head. */
enum {
  NNCUDA_ROPE_HALF = 0,       /* element i with i + head_dim/2 (GPT-NeoX, Llama in transformers) */
  NNCUDA_ROPE_INTERLEAVED = 1 /* element 2i with 2i+1 (the paper; Llama in GGUF) */
};

/* What gemm_epilogue applies to the product. */
enum { NNCUDA_ACTIVATION_NONE = 0, NNCUDA_ACTIVATION_SILU = 1 };

/* Forms of nncuda_profile_report. */
enum { NNCUDA_REPORT_TABLE = 0, NNCUDA_REPORT_JSON = 1, NNCUDA_REPORT_CHROME_TRACE = 2 };

/* How the ranks of a communicator reach each other. Append-only. */
enum {
  NNCUDA_TRANSPORT_SELF = 0,    /* a rank alone */
  NNCUDA_TRANSPORT_THREADS = 1, /* contexts of one process, each in a thread of its own, on the CPU engine */
  NNCUDA_TRANSPORT_MPI = 2,     /* processes that an MPI launcher started: MPI's standard ABI, libmpi_abi.so; CPU memory */
  NNCUDA_TRANSPORT_NCCL = 3,    /* GPUs: libnccl.so.2 */
  NNCUDA_TRANSPORT_AUTO = 4     /* NCCL on a GPU where RANK and WORLD_SIZE are set; MPI where its launcher began the process;
                                   else a rank alone */
};

/* Kinds of the events of nncuda_expert_schedule. */
enum { NNCUDA_EXPERTS_RUN = 0, NNCUDA_EXPERTS_ADD = 1, NNCUDA_EXPERTS_COPY = 2, NNCUDA_EXPERTS_ROUND = 3 };

typedef struct nncuda_ctx nncuda_ctx;
typedef struct nncuda_stream nncuda_stream;
typedef struct nncuda_event nncuda_event;
typedef struct nncuda_graph nncuda_graph;
typedef struct nncuda_comm nncuda_comm;

/* ================================================================================================================
 * section: library
 * ============================================================================================================= */

/** The library's ABI version: NNCUDA_ABI_MAJOR * 1000 + NNCUDA_ABI_MINOR as it was built. */
NNCUDA_API int32_t nncuda_abi_version(void);

/** Version, compiler, instruction sets and CUDA architectures that this library was built with, as one line of text. */
NNCUDA_API const char *nncuda_build_info(void);

/**
 * The name of a status, such as "NNCUDA_ERROR_INVALID_SIZE"; "unknown status" for a number that is none.
 * @param status option : any
 */
NNCUDA_API const char *nncuda_status_name(int32_t status);

/**
 * What a status means and what to do about it, in one sentence.
 * @param status option : any
 */
NNCUDA_API const char *nncuda_status_string(int32_t status);

/**
 * Bytes of one element.
 * @param dtype dtype : any
 * @param bytes out i64 [1] host : the size
 */
NNCUDA_API int32_t nncuda_dtype_size(int32_t dtype, int64_t *bytes);

/**
 * Bytes of a row of so many elements in a format. It fails when the row does not end with a whole block.
 * @param format option : NNCUDA_FORMAT_*
 * @param elements size : elements of the row
 * @param bytes out i64 [1] host : the size
 */
NNCUDA_API int32_t nncuda_format_row_bytes(int32_t format, int64_t elements, int64_t *bytes);

/**
 * How many devices of a kind this machine offers; 0 CUDA devices when there is no driver or no GPU.
 * @param device option : NNCUDA_DEVICE_*
 * @param count out i32 [1] host : the number
 */
NNCUDA_API int32_t nncuda_device_count(int32_t device, int32_t *count);

/**
 * A device in words (processor or GPU name, instruction sets or compute capability, memory), cut to fit `capacity`.
 * With NNCUDA_ERROR_NO_DEVICE, why there is none: no driver, one too old, a library without the GPU engine.
 * @param device option : NNCUDA_DEVICE_*
 * @param index option : 0 .. count-1
 * @param text out u8 [capacity] host : zero-terminated
 * @param capacity size : bytes at `text`, at least 1
 */
NNCUDA_API int32_t nncuda_device_describe(int32_t device, int32_t index, char *text, int64_t capacity);

/* ================================================================================================================
 * section: context
 * ============================================================================================================= */

/**
 * Makes a context: a device, its stream, a worker pool (CPU), a pool of freed buffers and a scratch arena.
 * @param device option : NNCUDA_DEVICE_*
 * @param index option : which one, from 0
 * @param ctx out handle [1] host : the new context, or null on failure
 */
NNCUDA_API int32_t nncuda_ctx_create(int32_t device, int32_t index, nncuda_ctx **ctx);

/**
 * Makes a context that measures what a program would need of a device, which this machine need not have: a program runs
 * on it as on the real one, but its kernels do nothing. Arguments are checked; memory is counted as the device would
 * (NNCUDA_CTX_BYTES_*), workspaces and those of graphs included; the profiler gives calls, bytes and operations, without
 * times. The addresses from nncuda_malloc cost no memory and must not be read or written. Copies to the device do
 * nothing, those from it give zeros. What data would decide counts as the most that the sizes allow.
 * @param device option : NNCUDA_DEVICE_*; CUDA needs neither a GPU nor a library with the GPU engine
 * @param isa option default -1 : NNCUDA_ISA_*, which this processor need not have; of a GPU the compute capability, 90 for 9.0; -1 for this machine's
 * @param threads option default 0 : of the CPU engine, 1 to 256, or 0 for the cores that this process may use; 0 for a GPU
 * @param multiprocessors option default 0 : of the GPU, or 0 for those of the usual GPU of its capability; 0 for the CPU
 * @param ctx out handle [1] host : the new context, or null on failure
 */
NNCUDA_API int32_t nncuda_ctx_create_measuring(int32_t device, int32_t isa, int32_t threads, int32_t multiprocessors,
                                               nncuda_ctx **ctx);

/** Waits for the context's work, then frees it and all its memory, buffers from nncuda_malloc included. Null is fine. */
NNCUDA_API int32_t nncuda_ctx_destroy(nncuda_ctx *ctx);

/** Waits until all work of the context, on all its streams, is done; returns the first error that the device met. */
NNCUDA_API int32_t nncuda_ctx_synchronize(nncuda_ctx *ctx);

/**
 * Reads an attribute.
 * @param attribute option : NNCUDA_CTX_*
 * @param value out i64 [1] host : its value
 */
NNCUDA_API int32_t nncuda_ctx_get(nncuda_ctx *ctx, int32_t attribute, int64_t *value);

/**
 * Sets an attribute; those that describe the machine are read-only.
 * @param attribute option : NNCUDA_CTX_*
 * @param value option : the new value
 */
NNCUDA_API int32_t nncuda_ctx_set(nncuda_ctx *ctx, int32_t attribute, int64_t value);

/**
 * The last error of this context as a sentence, empty after a success. Valid until the next call on the context.
 * With a null context: a sentence that says so.
 */
NNCUDA_API const char *nncuda_last_error(nncuda_ctx *ctx);

/* ================================================================================================================
 * section: memory
 * ============================================================================================================= */

/**
 * Allocates device memory, aligned to 256 bytes, uninitialised. Zero bytes give a null pointer and success.
 * Allowed while a graph is captured, since the outputs of captured calls need a place; giving memory back is not.
 * @param bytes size : how many
 * @param pointer out handle [1] host : the memory, or null on failure
 */
NNCUDA_API int32_t nncuda_malloc(nncuda_ctx *ctx, int64_t bytes, void **pointer);

/**
 * Addresses for `bytes`, aligned as those of nncuda_malloc, of which only some ranges are memory, zeroed: for a rank that
 * holds a part of an arena, and counts as ever from the arena's beginning. Ranges are rounded out to pages, of 2 MiB on a
 * GPU. Nothing else may be touched: on the CPU engine, a program that does ends. nncuda_free gives it back. A context that
 * measures counts what its device would.
 * @param bytes size : how many addresses
 * @param ranges in i64 [count, 2] host : first byte and the byte after the last of each, in ascending order and apart
 * @param count size : ranges
 * @param pointer out handle [1] host : the first address, or null on failure
 */
NNCUDA_API int32_t nncuda_malloc_parts(nncuda_ctx *ctx, int64_t bytes, const int64_t *ranges, int64_t count,
                                       void **pointer);

/**
 * Gives memory from nncuda_malloc back to the context's pool. Null is fine; any other foreign pointer is an error.
 * @param pointer handle? : the memory
 */
NNCUDA_API int32_t nncuda_free(nncuda_ctx *ctx, void *pointer);

/**
 * As nncuda_malloc, for host memory that the device copies from and to at full speed (page-locked on a GPU).
 * @param bytes size : how many
 * @param pointer out handle [1] host : the memory, or null on failure
 */
NNCUDA_API int32_t nncuda_malloc_host(nncuda_ctx *ctx, int64_t bytes, void **pointer);

/** Frees memory from nncuda_malloc_host. Null is fine. @param pointer handle? : the memory */
NNCUDA_API int32_t nncuda_free_host(nncuda_ctx *ctx, void *pointer);

/**
 * Bytes free and in all on the context's device (the machine's memory on the CPU).
 * @param free_bytes out i64 [1] host : available now
 * @param total_bytes out i64 [1] host : installed
 */
NNCUDA_API int32_t nncuda_memory_info(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes);

/**
 * Sets every byte.
 * @param pointer out u8 [bytes] : device memory
 * @param value option : 0 .. 255
 * @param bytes size : how many
 */
NNCUDA_API int32_t nncuda_memset(nncuda_ctx *ctx, void *pointer, int32_t value, int64_t bytes);

/**
 * Copies; on return the host's side may be used: what came from the device is there, what goes to it was taken. May be
 * captured when both sides are device memory.
 * @param destination out u8 [bytes] : where to
 * @param source in u8 [bytes] : where from
 * @param bytes size : how many
 * @param kind option : NNCUDA_HOST_TO_DEVICE, _DEVICE_TO_HOST or _DEVICE_TO_DEVICE
 */
NNCUDA_API int32_t nncuda_memcpy(nncuda_ctx *ctx, void *destination, const void *source, int64_t bytes, int32_t kind);

/**
 * Copies on a stream without waiting. Both sides must stay valid until the stream has done it.
 * @param stream handle? : null means the context's own stream
 * @param destination out u8 [bytes] : where to
 * @param source in u8 [bytes] : where from
 * @param bytes size : how many
 * @param kind option : as in nncuda_memcpy
 */
NNCUDA_API int32_t nncuda_memcpy_async(nncuda_ctx *ctx, nncuda_stream *stream, void *destination, const void *source,
                                       int64_t bytes, int32_t kind);

/* ================================================================================================================
 * section: stream
 * Kernels run in order on the context's own stream. Further streams carry copies beside them; events order the two.
 * ============================================================================================================= */

/** Makes a stream for copies. @param stream out handle [1] host : the new stream, or null on failure */
NNCUDA_API int32_t nncuda_stream_create(nncuda_ctx *ctx, nncuda_stream **stream);

/** Waits for the stream, then frees it. Null is fine. @param stream handle? : the stream */
NNCUDA_API int32_t nncuda_stream_destroy(nncuda_ctx *ctx, nncuda_stream *stream);

/**
 * Waits until the stream has done all that was given to it.
 * @param stream handle? : null means the context's own stream
 */
NNCUDA_API int32_t nncuda_stream_synchronize(nncuda_ctx *ctx, nncuda_stream *stream);

/**
 * What is given to the stream from now on waits for the event.
 * @param stream handle? : null means the context's own stream
 * @param event handle : the event
 */
NNCUDA_API int32_t nncuda_stream_wait_event(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event);

/** Makes an event. @param event out handle [1] host : the new event, or null on failure */
NNCUDA_API int32_t nncuda_event_create(nncuda_ctx *ctx, nncuda_event **event);

/** Frees an event. Null is fine. @param event handle? : the event */
NNCUDA_API int32_t nncuda_event_destroy(nncuda_ctx *ctx, nncuda_event *event);

/**
 * The event happens when the stream has done all that was given to it so far.
 * @param stream handle? : null means the context's own stream
 * @param event handle : the event
 */
NNCUDA_API int32_t nncuda_event_record(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event);

/**
 * Waits until the event has happened. An event that was never recorded counts as happened.
 * @param event handle : the event
 */
NNCUDA_API int32_t nncuda_event_synchronize(nncuda_ctx *ctx, nncuda_event *event);

/**
 * Whether the event has happened.
 * @param event handle : the event
 * @param happened out i32 [1] host : 1 or 0
 */
NNCUDA_API int32_t nncuda_event_query(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened);

/**
 * Time between two events that have happened.
 * @param start handle : the earlier event
 * @param end handle : the later event
 * @param milliseconds out f32 [1] host : from `start` to `end`
 */
NNCUDA_API int32_t nncuda_event_elapsed(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds);

/* ================================================================================================================
 * section: graph
 * Between begin and end, kernel calls on the context are checked and recorded, not run. A launch runs them all again with
 * the same pointers and scalars; what changes from launch to launch (step, learning rate, lengths, seeds) lies in memory.
 * ============================================================================================================= */

/** Starts capturing. */
NNCUDA_API int32_t nncuda_graph_begin(nncuda_ctx *ctx);

/** Ends capturing. @param graph out handle [1] host : what was captured, or null on failure */
NNCUDA_API int32_t nncuda_graph_end(nncuda_ctx *ctx, nncuda_graph **graph);

/** Runs a graph. The same bits as the calls it was captured from. @param graph handle : the graph */
NNCUDA_API int32_t nncuda_graph_launch(nncuda_ctx *ctx, nncuda_graph *graph);

/**
 * How many calls a graph holds.
 * @param graph handle : the graph
 * @param nodes out i64 [1] host : the number
 */
NNCUDA_API int32_t nncuda_graph_size(nncuda_ctx *ctx, nncuda_graph *graph, int64_t *nodes);

/** Frees a graph. Null is fine. @param graph handle? : the graph */
NNCUDA_API int32_t nncuda_graph_destroy(nncuda_ctx *ctx, nncuda_graph *graph);

/* ================================================================================================================
 * section: profile
 * The profiler keeps time, bytes and operations of every kernel call; the trace keeps their arguments.
 * ============================================================================================================= */

/** Starts profiling afresh. Launched graphs are profiled call by call. */
NNCUDA_API int32_t nncuda_profile_begin(nncuda_ctx *ctx);

/** Stops profiling; what was measured stays until the next begin. */
NNCUDA_API int32_t nncuda_profile_end(nncuda_ctx *ctx);

/**
 * What was measured, as text. Call with capacity 0 and a null `text` to learn the size.
 * @param form option : NNCUDA_REPORT_TABLE (a kernel a line), _JSON (the same), _CHROME_TRACE (every call, for a viewer)
 * @param text out? u8 [capacity] host : zero-terminated
 * @param capacity size : bytes at `text`
 * @param needed out i64 [1] host : bytes that the whole text takes, the zero included
 */
NNCUDA_API int32_t nncuda_profile_report(nncuda_ctx *ctx, int32_t form, char *text, int64_t capacity, int64_t *needed);

/**
 * Starts tracing: every kernel call leaves a line with its arguments' names, dtypes and shapes. Of all traces holds:
 * one at a time, and launched graphs are traced call by call.
 * @param values option : how many leading values of each output to print, with minimum, maximum and mean; 0 .. 64
 */
NNCUDA_API int32_t nncuda_trace_begin(nncuda_ctx *ctx, int64_t values);

/**
 * Starts a trace that looks for the first value that is not finite: in what a kernel reads and none has written since
 * the begin, such as weights; then in what it writes. Rows which a kernel leaves alone do not count, nor does what a
 * parameter that is both read and written had before. After the first find nothing is looked at. Whole numbers and
 * stored blocks are left out. The text is a JSON object: calls, and found, null or {call, label, kernel, argument,
 * use (in or out), address (of the element), dtype, shape, index, value}. Not on a context that measures.
 */
NNCUDA_API int32_t nncuda_trace_begin_nonfinite(nncuda_ctx *ctx);

/**
 * Starts a shadow run: every kernel call runs a second time on `reference`, another context (instruction set,
 * threads, device), on the same inputs and into memory of its own, and what both wrote is compared. An element may
 * differ by 2 (r u + v) L, where r is the larger of 16 and the call's operations for each element of the output (the
 * most that one may have where data decides, as with groups; with the longest row added where elements share sums over
 * rows, as in a norm), u = 2^-24, v the unit roundoff of its dtype and L the output's largest magnitude. Whole numbers,
 * and what a kernel only moves, must be equal. The text is a JSON object: calls, compared, moves (copies and fills of
 * bytes, which do not run twice), over (how many calls went beyond their bound), first (of those, or null), largest
 * (share of a bound, or null), kernels [{kernel, calls, compared, over, why (one was not compared, or null), largest}].
 * A difference is {call, label, kernel, argument, dtype, shape, index, value, reference, bound, share}; share is null
 * where no bound would hold it. `reference` must not be `ctx` and neither may measure. It cannot be destroyed before
 * the trace ends.
 * @param reference handle : another context
 */
NNCUDA_API int32_t nncuda_trace_begin_shadow(nncuda_ctx *ctx, nncuda_ctx *reference);

/**
 * Says what the calls from here on belong to, such as model.layers.3.mlp. The running trace puts it before their
 * lines, and in what it finds; without a trace nothing happens. It ends with the trace. The calls of a launched graph
 * have none.
 * @param label in? u8 [length] host : UTF-8, of which 127 bytes are kept; null for nothing
 * @param length size : bytes at `label`
 */
NNCUDA_API int32_t nncuda_trace_label(nncuda_ctx *ctx, const char *label, int64_t length);

/** Stops tracing; what was traced stays until the next begin. */
NNCUDA_API int32_t nncuda_trace_end(nncuda_ctx *ctx);

/**
 * What was traced: lines, or the JSON object. Call with capacity 0 and a null `text` to learn the size.
 * @param text out? u8 [capacity] host : zero-terminated
 * @param capacity size : bytes at `text`
 * @param needed out i64 [1] host : bytes that the whole text takes, the zero included
 */
NNCUDA_API int32_t nncuda_trace_read(nncuda_ctx *ctx, char *text, int64_t capacity, int64_t *needed);

/* ================================================================================================================
 * section: data
 * ============================================================================================================= */

/**
 * The order in which windows of training data are visited: positions first .. first+count-1 of an endless sequence whose
 * epoch e = position / windows is a permutation of 0 .. windows-1 chosen by (seed, e). A four-round Feistel network over
 * Philox4x32-10, walked until it lands inside (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"): with b
 * the bits of windows-1, x = position mod windows is cut into a high half L of b/2 bits and a low half R of the rest.
 * Rounds 0 and 2 do L ^= F(round, R), rounds 1 and 3 do R ^= F(round, L), each cut to the bits of its half; all four
 * again while x >= windows. F(round, h) is word 0 of Philox for key = seed, counter = (h, 2^31 + round, e low, e high).
 * @param seed option : any
 * @param first option : position of the first index, from 0
 * @param count size : how many
 * @param windows option : windows in an epoch, at least 1
 * @param indices out i64 [count] host : the windows to visit
 */
NNCUDA_API int32_t nncuda_data_order(nncuda_ctx *ctx, int64_t seed, int64_t first, int64_t count, int64_t windows,
                                     int64_t *indices);

/* ================================================================================================================
 * section: comm
 * Several ranks work on one job. A communicator belongs to one context; all its ranks make the same calls on it, in the
 * same order and with the same sizes. Those that move data are queued, captured, profiled and traced like kernels. A job
 * has V logical replicas, each of which computes a gradient; which rank computes it decides no bit: ranks share the
 * replicas out in runs of neighbours, nncuda_shard(V, 1, ranks, rank), and sums over replicas run in one fixed binary
 * tree. The node over replicas lo .. hi-1 adds that over lo .. mid-1 and that over mid .. hi-1, with mid - lo the largest
 * power of two below hi - lo. A failed, lost, hanging or unlike rank is NNCUDA_ERROR_PEER on all others, whose sentence
 * names it where the transport knows it.
 * ============================================================================================================= */

/**
 * Cuts `count` elements into `parts` neighbouring shards of whole grains (the last grain may be shorter), as equal as
 * that allows: shard p begins at grain p * grains / parts, rounded down.
 * @param count size : elements
 * @param grain option : elements that stay together; must be at least 1
 * @param parts option : shards; must be at least 1
 * @param part option : which; must be at least 0 and below parts
 * @param begin out i64 [1] host : its first element
 * @param end out i64 [1] host : the element after its last
 */
NNCUDA_API int32_t nncuda_shard(int64_t count, int64_t grain, int64_t parts, int64_t part, int64_t *begin,
                                int64_t *end);

/**
 * Which rank updates which elements of an arena of `n` parameters, of which `group` neighbouring ranks hold the experts
 * together: the ranks q, q + group, ... hold part q of each matrix in `experts`. Shards are cut at multiples of `grain`.
 * Whole grains of such a part go to the ranks that hold it, counted in ascending order and cut by nncuda_shard. What
 * lies between two such runs of grains is cut into a piece for each rank, as equal as may be, the longer ones first: of
 * the first run the first piece is rank 0's, of each further one it is that of the rank behind the last longer piece.
 * With group 1 the arena is cut where stacks begin and end, at the multiple of `grain` below, but only into pieces of
 * 16 grains a rank and more, and each piece among all ranks by nncuda_shard: so of what a backward pass completes at a
 * time each rank has its share.
 * @param n option : elements; must be at least 1
 * @param grain option : elements that stay together; must be at least 1
 * @param ranks option : of the job; must be at least 1
 * @param group option : a divisor of `ranks`; must be at least 1
 * @param experts in? i64 [matrices, 2] host : first element and the one after the last of each stack of experts, as many
 *        elements as `group` divides; in ascending order
 * @param matrices size : stacks
 * @param shards out? i64 [capacity, 3] host : first element, the one after the last, and the rank; in ascending order
 *        without gaps; null to ask how many there are
 * @param capacity size : shards that there is room for
 * @param count out i64 [1] host : shards that there are; more than `capacity` means that none were written
 */
NNCUDA_API int32_t nncuda_expert_shards(int64_t n, int64_t grain, int64_t ranks, int64_t group, const int64_t *experts,
                                        int64_t matrices, int64_t *shards, int64_t capacity, int64_t *count);

/**
 * For adding gradients over replicas one after the other. A rank that computes replicas first, first+1, ... puts sums
 * that wait for others aside, on a stack. When the gradient of `replica` is complete, the last `merges` of them are added
 * to it, the newest first, and the result is put aside in turn: with those that are left, it is what
 * nncuda_comm_reduce_scatter takes. After all replicas one sum is left, that of the whole tree.
 * @param replicas option : of the job; must be at least 1
 * @param first option : this rank's first replica; must be at least 0 and below replicas
 * @param replica option : the one that is complete; must be at least first and below replicas
 * @param merges out i64 [1] host : how many to add
 */
NNCUDA_API int32_t nncuda_replica_merges(int64_t replicas, int64_t first, int64_t replica, int64_t *merges);

/**
 * The order in which a rank with experts adds their gradients, which come from all ranks of its group: ranks
 * first .. first + group - 1 of the job, each with its own replicas. Micro-batch m of an update belongs to replica
 * m mod `replicas`. In round j each rank of the group runs the j-th of its micro-batches, replica by replica. Gradients
 * lie in slots. An event is {round, kind, a, b, c, accumulate}:
 * NNCUDA_EXPERTS_RUN: the micro-batch b of the group's rank a, whose gradients go to slot c, where `accumulate` is 1 they
 * are added to what is there; NNCUDA_EXPERTS_ADD: slot b is added to slot a, and is free, for the same round, too;
 * NNCUDA_EXPERTS_ROUND: slot a has the sum over a node of the tree below its root, which is rounded where the job rounds
 * what it sends (cuda_round); NNCUDA_EXPERTS_COPY: at the end, as a round of its own, slot a is copied to slot b. Then
 * the sums that are left, which nncuda_comm_reduce_scatter takes, lie in slots 0, 1, ..., in the order of replicas: of a
 * group that is the whole job there is one. Each layer has a part of every slot, in which it carries out all events of a
 * round in this order as its gradients come. With `position` the events of a round are in the order in which rows come to
 * that rank of the group (nncuda_comm_dispatch_begin), its own last, as far as each slot allows: no sum changes. Where
 * every replica is one micro-batch of a rank of its own, a whole job needs a slot for each level of the tree.
 * @param replicas option : of the job; must be at least 1
 * @param ranks option : of the job; must be at least 1 and at most replicas
 * @param first option : the group's first rank, a multiple of `group`; must be at least 0 and below ranks
 * @param group option : ranks of the group, a divisor of `ranks`; must be at least 1
 * @param micro_batches option : of an update, below 2^31; must be at least replicas
 * @param position option default -1 : a rank of the group, from 0; -1: in each round rank after rank
 * @param events out? i64 [capacity, 6] host : the events in order; null to ask how many there are
 * @param capacity size : events that there is room for
 * @param count out i64 [1] host : events that there are; more than `capacity` means that none were written
 * @param slots out i64 [1] host : slots that are needed
 */
NNCUDA_API int32_t nncuda_expert_schedule(int64_t replicas, int64_t ranks, int64_t first, int64_t group,
                                          int64_t micro_batches, int64_t position, int64_t *events, int64_t capacity,
                                          int64_t *count, int64_t *slots);

/**
 * Joins a communicator; returns when all ranks have. With NNCUDA_TRANSPORT_MPI and NCCL `rank` and `ranks` may be -1: as
 * the launcher says (of MPI itself; of the variables RANK and WORLD_SIZE). All ranks must have the same library, engine
 * and instruction set.
 * @param transport option : NNCUDA_TRANSPORT_*
 * @param address in? u8 [length] host : UTF-8; of THREADS a name under which the ranks meet; of NCCL HOST:PORT of rank 0,
 *        by default from MASTER_ADDR and MASTER_PORT; else null
 * @param length size : bytes at `address`
 * @param rank option : this rank, from 0
 * @param ranks option : how many there are
 * @param timeout_ms option : after so long without an answer a peer counts as lost; 0 waits for ever
 * @param comm out handle [1] host : the communicator, or null on failure
 */
NNCUDA_API int32_t nncuda_comm_create(nncuda_ctx *ctx, int32_t transport, const char *address, int64_t length,
                                      int64_t rank, int64_t ranks, int64_t timeout_ms, nncuda_comm **comm);

/**
 * Which rank this is, and of how many.
 * @param comm handle : the communicator
 * @param rank out i64 [1] host : this rank
 * @param ranks out i64 [1] host : all of them
 */
NNCUDA_API int32_t nncuda_comm_rank(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *rank, int64_t *ranks);

/**
 * Cuts a communicator: ranks of one color form a new one, in the order of `key`, then of their ranks.
 * @param comm handle : the communicator, which stays
 * @param color option : which part this rank joins; must be at least 0
 * @param key option : any
 * @param part out handle [1] host : the new communicator
 */
NNCUDA_API int32_t nncuda_comm_split(nncuda_ctx *ctx, nncuda_comm *comm, int64_t color, int64_t key,
                                     nncuda_comm **part);

/**
 * A communicator of the ranks first, first + step, ..., in this order, of which this rank is one. They know each other
 * without asking, so a context that measures has parts, too. All of them call it, and nobody else needs to.
 * @param comm handle : the communicator, which stays
 * @param first option : the first rank; must be at least 0
 * @param step option : ranks from one to the next; must be at least 1
 * @param count option : how many, so that the last is one of the ranks; must be at least 1
 * @param part out handle [1] host : the new communicator
 */
NNCUDA_API int32_t nncuda_comm_part(nncuda_ctx *ctx, nncuda_comm *comm, int64_t first, int64_t step, int64_t count,
                                    nncuda_comm **part);

/** Leaves a communicator and frees it, without waiting for the others. Null is fine. @param comm handle? : it */
NNCUDA_API int32_t nncuda_comm_destroy(nncuda_ctx *ctx, nncuda_comm *comm);

/**
 * Tells the other ranks that this one cannot go on: what they do on the communicator, now or later, fails with
 * NNCUDA_ERROR_PEER and this reason. A communicator and its parts are lost together, however one of them is; sentences
 * call the ranks of a part by what they are in the whole. The process should exit with a status other than 0, since a
 * launcher's own status may be that of the first to leave.
 * @param comm handle : the communicator
 * @param reason in? u8 [length] host : UTF-8, of which 255 bytes are kept
 * @param length size : bytes at `reason`
 */
NNCUDA_API int32_t nncuda_comm_abort(nncuda_ctx *ctx, nncuda_comm *comm, const char *reason, int64_t length);

/**
 * Fails on all ranks, naming one that differs, unless all give the same bytes. It waits for the device and the peers.
 * @param comm handle : the communicator
 * @param what in u8 [length] host : UTF-8, what is compared, for the sentence
 * @param length size : bytes at `what`
 * @param value in u8 [bytes] host : what must be the same
 * @param bytes size : of it, which may differ between ranks
 */
NNCUDA_API int32_t nncuda_comm_agree(nncuda_ctx *ctx, nncuda_comm *comm, const char *what, int64_t length,
                                     const void *value, int64_t bytes);

/**
 * Adds up a whole number of the host over all ranks. It waits for the peers. OUT_OF_RANGE when the sum is no int64.
 * @param comm handle : the communicator
 * @param value option : this rank's
 * @param total out i64 [1] host : the sum
 */
NNCUDA_API int32_t nncuda_comm_sum(nncuda_ctx *ctx, nncuda_comm *comm, int64_t value, int64_t *total);

/** Returns when all ranks have called it. @param comm handle : the communicator */
NNCUDA_API int32_t nncuda_comm_barrier(nncuda_ctx *ctx, nncuda_comm *comm);

/**
 * Bytes that this rank gave the transport for other ranks so far.
 * @param comm handle : the communicator
 * @param bytes out i64 [1] host : the number
 */
NNCUDA_API int32_t nncuda_comm_bytes_sent(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *bytes);

/**
 * x of rank `root` to all.
 * @param comm handle : the communicator
 * @param x inout u8 [bytes] : read on root, overwritten on the others
 * @param bytes size : of x
 * @param root option : the rank that has it; must be at least 0
 */
NNCUDA_API int32_t nncuda_comm_broadcast(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t root);

/**
 * Each rank's shard of x, nncuda_shard(bytes, grain, ranks, rank), to all.
 * @param comm handle : the communicator
 * @param x inout u8 [bytes] : the own shard is read, the others are overwritten
 * @param bytes size : of x
 * @param grain option : bytes that stay together; must be at least 1
 */
NNCUDA_API int32_t nncuda_comm_all_gather(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t grain);

/**
 * x = sum over the ranks of x, in their order: for numbers of which at most one is not zero, since any other sum would
 * know how many ranks there are. Made for few elements: each rank gets all that the others have.
 * @param comm handle : the communicator
 * @param x inout f32 [n] : summands in, sums out
 * @param n size : elements
 */
NNCUDA_API int32_t nncuda_comm_all_reduce(nncuda_ctx *ctx, nncuda_comm *comm, float *x, int64_t n);

/**
 * Sums over all replicas, each to the rank of its shard. Shards travel as they are and are added where they arrive, in
 * the tree above. With `wire` f16 or bf16 they travel in that type: all that is given is rounded to it (cuda_round), and
 * so is what is added up, but for the sum over all replicas. Where sums below a node were rounded as they came about, too,
 * no bit knows who computed them.
 * Only elements of shards take part; the rest need not even be memory.
 * @param comm handle : the communicator
 * @param partials in? f32 [parts, n] : what nncuda_replica_merges left aside on this rank, the oldest first, without the
 *        last; null where nothing is
 * @param x inout f32 [n] : the last in; the sum out, in the own shards; the rest stays
 * @param n size : elements
 * @param parts size : sums in `partials`
 * @param replicas option : of the job; must be at least 1
 * @param shards in i64 [count, 3] host : first element, the one after the last, and the rank that gets their sums; in
 *        ascending order; the same on all ranks
 * @param count size : shards
 * @param wire option default NNCUDA_F32 : f32, f16 or bf16
 */
NNCUDA_API int32_t nncuda_comm_reduce_scatter(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x,
                                              int64_t n, int64_t parts, int64_t replicas, const int64_t *shards,
                                              int64_t count, int32_t wire);

/**
 * What nncuda_comm_reduce_scatter_begin needs to keep sums that arrive.
 * @param comm handle : the communicator
 * @param n size : elements
 * @param parts size : sums in `partials`
 * @param replicas option : of the job; must be at least 1
 * @param shards in i64 [count, 3] host : as of nncuda_comm_reduce_scatter
 * @param count size : shards
 * @param wire option default NNCUDA_F32 : f32, f16 or bf16
 * @param size out i64 [1] host : of room, in elements
 */
NNCUDA_API int32_t nncuda_comm_reduce_scatter_room(nncuda_ctx *ctx, nncuda_comm *comm, int64_t n, int64_t parts,
                                                   int64_t replicas, const int64_t *shards, int64_t count,
                                                   int32_t wire, int64_t *size);

/**
 * The first half of nncuda_comm_reduce_scatter: sends what travels of these elements, and comes back at once, so that
 * the context does other things meanwhile. The second half is nncuda_comm_reduce_scatter_end with the same arguments;
 * until then what takes part of `partials` and x, and room, belong to them. Several may be under way, each with a room of
 * its own; they end in the order in which they began. Nothing else is done on a communicator that has some under way:
 * make one for them (nncuda_comm_split).
 * @param comm handle : the communicator
 * @param partials in? f32 [parts, n] : as of nncuda_comm_reduce_scatter
 * @param x inout f32 [n] : the last in; it stays
 * @param n size : elements
 * @param parts size : sums in `partials`
 * @param replicas option : of the job; must be at least 1
 * @param shards in i64 [count, 3] host : as of nncuda_comm_reduce_scatter
 * @param count size : shards
 * @param wire option default NNCUDA_F32 : f32, f16 or bf16
 * @param room inout f32 [room_size] : what arrives
 * @param room_size size : of room; at least what nncuda_comm_reduce_scatter_room says
 */
NNCUDA_API int32_t nncuda_comm_reduce_scatter_begin(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x,
                                                    int64_t n, int64_t parts, int64_t replicas, const int64_t *shards,
                                                    int64_t count, int32_t wire, float *room, int64_t room_size);

/**
 * The second half: waits for what travels, in stream order, and adds it up.
 * @param comm handle : the communicator
 * @param partials in? f32 [parts, n] : as given to nncuda_comm_reduce_scatter_begin, and so are all others
 * @param x inout f32 [n] : the sum out, in the own shards; the rest stays
 * @param n size : elements
 * @param parts size : sums in `partials`
 * @param replicas option : of the job; must be at least 1
 * @param shards in i64 [count, 3] host : as of nncuda_comm_reduce_scatter
 * @param count size : shards
 * @param wire option default NNCUDA_F32 : f32, f16 or bf16
 * @param room inout f32 [room_size] : what has arrived
 * @param room_size size : of room
 */
NNCUDA_API int32_t nncuda_comm_reduce_scatter_end(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x,
                                                  int64_t n, int64_t parts, int64_t replicas, const int64_t *shards,
                                                  int64_t count, int32_t wire, float *room, int64_t room_size);

/**
 * Moves pieces of x between ranks, each to the same place. All ranks give the same list, which is copied; a rank may
 * leave out moves of which it is neither end.
 * @param comm handle : the communicator
 * @param x inout u8 [bytes] : of which only the pieces that this rank sends or receives need to be memory
 * @param bytes size : bytes of x
 * @param moves in i64 [count, 4] host : first byte, the byte after the last, the rank that sends them and the one that
 *        receives them; a move from a rank to itself is none
 * @param count size : moves
 */
NNCUDA_API int32_t nncuda_comm_move(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, const int64_t *moves,
                                    int64_t count);

/**
 * Ragged all-to-all by expert: each rank has `own` neighbouring experts, the first rank the first ones, and gets the rows
 * for its own from all ranks. It gets each rank's in a slot of y, from the slot's first row on, one expert after the
 * other. How many there are is read when the call runs, from `offsets`; on a GPU the host waits for them, so there the
 * call cannot be captured (NNCUDA_ERROR_CAPTURING). A context that measures takes all experts to be equally wanted.
 * (Lepikhin et al. 2020, "GShard", section 3.2)
 * @param comm handle : the communicator
 * @param x in? u8 [rows, row_bytes] : rows in the order of experts; null when `rows` is 0
 * @param offsets in? i32 [ranks*own+1] : first row of each expert, as cuda_moe_plan gives them; null when `rows` is 0
 * @param y out u8 [ranks, slot_rows, row_bytes] : slot s has the rows of rank s; the rest of a slot stays
 * @param y_offsets out i32 [ranks, own+1] : first row of each own expert in each slot, from 0 on
 * @param rows size : rows of x; 0 on a rank that only gets others'
 * @param slot_rows size : rows of a slot, the same on all ranks, and at least what any rank sends to another
 * @param row_bytes size : bytes of a row, the same on all ranks
 * @param ranks size : ranks of the communicator
 * @param own size : experts of each rank
 */
NNCUDA_API int32_t nncuda_comm_dispatch(nncuda_ctx *ctx, nncuda_comm *comm, const void *x, const int32_t *offsets,
                                        void *y, int32_t *y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes,
                                        int64_t ranks, int64_t own);

/**
 * The way back of nncuda_comm_dispatch: the rows of slot s go to rank s, to the places that they came from.
 * @param comm handle : the communicator
 * @param y in u8 [ranks, slot_rows, row_bytes] : what became of the rows of each rank
 * @param y_offsets in i32 [ranks, own+1] : as dispatch gave them
 * @param x out? u8 [rows, row_bytes] : rows in the order of experts; null when `rows` is 0
 * @param offsets in? i32 [ranks*own+1] : as given to dispatch; null when `rows` is 0
 * @param rows size : rows of x; 0 on a rank that sent none
 * @param slot_rows size : rows of a slot, the same on all ranks
 * @param row_bytes size : bytes of a row, the same on all ranks
 * @param ranks size : ranks of the communicator
 * @param own size : experts of each rank
 */
NNCUDA_API int32_t nncuda_comm_collect(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, const int32_t *y_offsets,
                                       void *x, const int32_t *offsets, int64_t rows, int64_t slot_rows,
                                       int64_t row_bytes, int64_t ranks, int64_t own);

/**
 * nncuda_comm_dispatch beside what the context does meanwhile: the rows are sent, and nncuda_comm_dispatch_end waits for
 * those of a rank. They come in ranks - 1 steps, in step s to this rank from the one s before it, so that is the order in
 * which to use them. Until the way back has ended, x and y belong to them: of y slot s may be used when the rows of rank s
 * have been waited for, that of this rank at once. With `known` a dispatch may begin behind another that is under way.
 * Nothing else is done on the communicator meanwhile, and all ranks make the same calls, but for their order within the
 * way back.
 * @param comm handle : the communicator
 * @param x in? u8 [rows, row_bytes] : rows in the order of experts; null when `rows` is 0
 * @param offsets in? i32 [ranks*own+1] : first row of each expert, as cuda_moe_plan gives them; null when `rows` is 0
 * @param y out u8 [ranks, slot_rows, row_bytes] : slot s has the rows of rank s; the rest of a slot stays
 * @param y_offsets inout i32 [ranks, own+1] : first row of each own expert in each slot, from 0 on: in with `known`, else
 *        out
 * @param rows size : rows of x; 0 on a rank that only gets others'
 * @param slot_rows size : rows of a slot, the same on all ranks, and at least what any rank sends to another
 * @param row_bytes size : bytes of a row, the same on all ranks
 * @param ranks size : ranks of the communicator
 * @param own size : experts of each rank
 * @param known option default 0 : 1 where y_offsets are those of an earlier dispatch with the same offsets on all ranks,
 *        so that nobody needs to be told of them; else 0
 */
NNCUDA_API int32_t nncuda_comm_dispatch_begin(nncuda_ctx *ctx, nncuda_comm *comm, const void *x, const int32_t *offsets,
                                              void *y, int32_t *y_offsets, int64_t rows, int64_t slot_rows,
                                              int64_t row_bytes, int64_t ranks, int64_t own, int32_t known);

/**
 * Waits, in stream order, for the rows of a rank, and for all that were to come before them.
 * @param comm handle : the communicator
 * @param y out u8 [ranks, slot_rows, row_bytes] : as given to nncuda_comm_dispatch_begin; slot `source` has arrived
 * @param slot_rows size : rows of a slot
 * @param row_bytes size : bytes of a row
 * @param ranks size : ranks of the communicator
 * @param source option : the rank; must be at least 0 and below ranks
 */
NNCUDA_API int32_t nncuda_comm_dispatch_end(nncuda_ctx *ctx, nncuda_comm *comm, void *y, int64_t slot_rows,
                                            int64_t row_bytes, int64_t ranks, int64_t source);

/**
 * The way back of the last nncuda_comm_dispatch_begin: slot `source` may go back to that rank, beside what the context
 * does meanwhile. Rows go back in the order of the steps in which they came; those that are there earlier wait for their
 * turn.
 * @param comm handle : the communicator
 * @param y in u8 [ranks, slot_rows, row_bytes] : what became of the rows of each rank
 * @param x out? u8 [rows, row_bytes] : rows in the order of experts, also in the place of those that were sent; null when
 *        `rows` is 0
 * @param rows size : rows of x; 0 on a rank that sent none
 * @param slot_rows size : rows of a slot
 * @param row_bytes size : bytes of a row, the same on all ranks
 * @param ranks size : ranks of the communicator
 * @param source option : the rank; must be at least 0 and below ranks
 */
NNCUDA_API int32_t nncuda_comm_collect_begin(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, void *x, int64_t rows,
                                             int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t source);

/**
 * The end of the way back: sends what is left, all of which is there, and waits, in stream order, for the rest of x.
 * @param comm handle : the communicator
 * @param y in u8 [ranks, slot_rows, row_bytes] : as given to nncuda_comm_collect_begin, and so are all others
 * @param x out? u8 [rows, row_bytes] : rows in the order of experts; null when `rows` is 0
 * @param rows size : rows of x; 0 on a rank that sent none
 * @param slot_rows size : rows of a slot
 * @param row_bytes size : bytes of a row, the same on all ranks
 * @param ranks size : ranks of the communicator
 */
NNCUDA_API int32_t nncuda_comm_collect_end(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, void *x, int64_t rows,
                                           int64_t slot_rows, int64_t row_bytes, int64_t ranks);

/**
 * cuda_grad_norm of gradients of which each rank has its shards: to its bits.
 * @param comm handle : the communicator
 * @param grad in f32 [n] : gradients, of which the own shards are read; the rest need not be memory
 * @param norm out f32 [1] : the norm of all
 * @param n size : elements
 * @param shards in i64 [count, 3] host : first element, the one after the last, and the rank that has them; in ascending
 *        order without gaps, cut at multiples of 32768; the same on all ranks
 * @param count size : shards
 */
NNCUDA_API int32_t nncuda_comm_grad_norm(nncuda_ctx *ctx, nncuda_comm *comm, const float *grad, float *norm, int64_t n,
                                         const int64_t *shards, int64_t count);

/* ================================================================================================================
 * section: elementwise
 * ============================================================================================================= */

/**
 * SiLU: y = x * sigmoid(x). (Elfwing, Uchibe, Doya 2018, eq. 4)
 * @param x in dtype [n] : input
 * @param y out dtype [n] alias x : output
 * @param n size : elements
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_silu(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype);

/**
 * Gradient of SiLU: dx = dy * s * (1 + x * (1 - s)), s = sigmoid(x). (Elfwing, Uchibe, Doya 2018, eq. 5)
 * @param dy in dtype [n] : gradient of y
 * @param x in dtype [n] : the input of the forward call
 * @param dx out dtype [n] alias dy,x : gradient of x
 * @param n size : elements
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_silu_backward(nncuda_ctx *ctx, const void *dy, const void *x, void *dx, int64_t n,
                                      int32_t dtype);

/**
 * Sum: y = a + b.
 * @param a in dtype [n] : first term
 * @param b in dtype [n] : second term
 * @param y out dtype [n] alias a,b : output
 * @param n size : elements
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_add(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype);

/**
 * Product, element by element: y = a * b.
 * @param a in dtype [n] : first factor
 * @param b in dtype [n] : second factor
 * @param y out dtype [n] alias a,b : output
 * @param n size : elements
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_mul(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype);

/**
 * Scaling: y = alpha * x.
 * @param x in dtype [n] : input
 * @param y out dtype [n] alias x : output
 * @param n size : elements
 * @param alpha option : factor
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_scale(nncuda_ctx *ctx, const void *x, void *y, int64_t n, float alpha, int32_t dtype);

/**
 * SwiGLU gate: y = silu(gate) * up. (Shazeer 2020, "GLU Variants", eq. 6, without the products)
 * With up = gate + dim and ld = 2*dim it reads the two halves of one fused product.
 * @param gate in dtype [rows:ld, dim] : what passes through SiLU
 * @param up in dtype [rows:ld, dim] : what is gated
 * @param used in? i32 [1] : how many rows there are, at most `rows`; those behind are neither read nor written; null for all
 * @param y out dtype [rows, dim] : output
 * @param rows size : rows, or room for them
 * @param dim size : elements per row
 * @param ld size : elements between rows of gate and of up
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_swiglu(nncuda_ctx *ctx, const void *gate, const void *up, const int32_t *used, void *y,
                               int64_t rows, int64_t dim, int64_t ld, int32_t dtype);

/**
 * Gradient of the SwiGLU gate: dgate = dy * up * silu'(gate), dup = dy * silu(gate).
 * @param dy in dtype [rows, dim] : gradient of y
 * @param gate in dtype [rows:ld, dim] : as in the forward call
 * @param up in dtype [rows:ld, dim] : as in the forward call
 * @param used in? i32 [1] : as in the forward call
 * @param dgate out dtype [rows:ld, dim] alias gate : gradient of gate
 * @param dup out dtype [rows:ld, dim] alias up : gradient of up
 * @param rows size : rows, or room for them
 * @param dim size : elements per row
 * @param ld size : elements between rows of gate, up, dgate and dup
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_swiglu_backward(nncuda_ctx *ctx, const void *dy, const void *gate, const void *up,
                                        const int32_t *used, void *dgate, void *dup, int64_t rows, int64_t dim,
                                        int64_t ld, int32_t dtype);

/**
 * Squared-ReLU gate: y = max(gate, 0)^2 * up. (So et al. 2021, "Primer"; the feed-forward gate of BitNet b1.58 2B-4T)
 * @param gate in dtype [rows:ld, dim] : what passes through the squared ReLU
 * @param up in dtype [rows:ld, dim] : what is gated
 * @param y out dtype [rows, dim] : output
 * @param rows size : rows
 * @param dim size : elements per row
 * @param ld size : elements between rows of gate and of up
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_relu2_gate(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows,
                                   int64_t dim, int64_t ld, int32_t dtype);

/**
 * Conversion, rounding to nearest-even; f32 too large for the 16-bit type becomes infinity, NaN stays NaN.
 * @param x in dtype_x [n] : input
 * @param y out dtype_y [n] : output
 * @param n size : elements
 * @param dtype_x dtype : f32, f16, bf16
 * @param dtype_y dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_cast(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype_x, int32_t dtype_y);

/**
 * y = x, rounded to a 16-bit type as cuda_cast rounds, and f32 again.
 * @param x in f32 [n] : input
 * @param y out f32 [n] alias x : output
 * @param n size : elements
 * @param dtype dtype : f16, bf16
 */
NNCUDA_API int32_t cuda_round(nncuda_ctx *ctx, const float *x, float *y, int64_t n, int32_t dtype);

/**
 * Sets every element to a value, rounded to the dtype (for i32 and i8 it must be a whole number in range).
 * @param y out dtype [n] : output
 * @param n size : elements
 * @param value option : the value
 * @param dtype dtype : f32, f16, bf16, i32, i8
 */
NNCUDA_API int32_t cuda_fill(nncuda_ctx *ctx, void *y, int64_t n, float value, int32_t dtype);

/**
 * Counts on: x += by. For lengths, positions and numbers of draws that live in device memory, where a captured graph
 * finds them moved on at each launch. Nothing wraps: an element for which x + by is no i32 is NNCUDA_ERROR_OUT_OF_RANGE.
 * @param x inout i32 [n] : counters
 * @param n size : elements
 * @param by option default 1 : what is added
 */
NNCUDA_API int32_t cuda_increment(nncuda_ctx *ctx, int32_t *x, int64_t n, int32_t by);

/* ================================================================================================================
 * section: activation
 * What of today's families has no place in other kernels: bounds of scores, gates, and what training needs of rounded rows.
 * ============================================================================================================= */

/**
 * Bounds scores softly: y = cap * tanh(x / cap). (Gemma Team 2024, "Gemma 2", section 2)
 * @param x in dtype [n] : input
 * @param y out dtype [n] alias x : output, between -cap and cap
 * @param n size : elements
 * @param cap option : bound; must be finite and above 0
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_softcap(nncuda_ctx *ctx, const void *x, void *y, int64_t n, float cap, int32_t dtype);

/**
 * GELU gate: y = gelu(gate) * up, where gelu(x) = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))).
 * (Hendrycks, Gimpel 2016, "GELUs", section 2; Shazeer 2020, "GLU Variants", eq. 6, without the products)
 * @param gate in dtype [rows:ld, dim] : what passes through GELU
 * @param up in dtype [rows:ld, dim] : what is gated
 * @param y out dtype [rows, dim] : output
 * @param rows size : rows
 * @param dim size : elements per row
 * @param ld size : elements between rows of gate and of up
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_geglu(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows, int64_t dim,
                              int64_t ld, int32_t dtype);

/**
 * Clipped SwiGLU gate: with g = min(gate, limit) and u = up held between -limit and limit, y = g * sigmoid(alpha * g) * (u + 1).
 * (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.3)
 * @param gate in dtype [rows:ld, dim] : what passes through the sigmoid
 * @param up in dtype [rows:ld, dim] : what is gated
 * @param y out dtype [rows, dim] : output
 * @param rows size : rows
 * @param dim size : elements per row
 * @param ld size : elements between rows of gate and of up
 * @param alpha option default 1.702 : factor in the sigmoid; must be finite
 * @param limit option default 7 : bound; must be finite and above 0
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_swiglu_clipped(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows,
                                       int64_t dim, int64_t ld, float alpha, float limit, int32_t dtype);

/**
 * Gradient of the squared-ReLU gate: dgate = 2 * dy * up * max(gate, 0), dup = dy * max(gate, 0)^2. (So et al. 2021, "Primer")
 * @param dy in dtype [rows, dim] : gradient of y
 * @param gate in dtype [rows:ld, dim] : as in the forward call, relu2_gate
 * @param up in dtype [rows:ld, dim] : as in the forward call
 * @param dgate out dtype [rows:ld, dim] alias gate : gradient of gate
 * @param dup out dtype [rows:ld, dim] alias up : gradient of up
 * @param rows size : rows
 * @param dim size : elements per row
 * @param ld size : elements between rows of gate, up, dgate and dup
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_relu2_gate_backward(nncuda_ctx *ctx, const void *dy, const void *gate, const void *up,
                                            void *dgate, void *dup, int64_t rows, int64_t dim, int64_t ld,
                                            int32_t dtype);

/**
 * What rows in 8 bits stand for: x = codes * scale. The gradient of a weight takes it for the input that the product had, while
 * the rounding counts as the identity. (Ma et al. 2024, eq. 4; Bengio, Léonard, Courville 2013, section 4)
 * @param codes in i8 [rows, cols] : from act_quant_i8 or rmsnorm_quant_i8
 * @param scale in f32 [rows] : of each row
 * @param x out dtype [rows, cols] : output
 * @param rows size : rows
 * @param cols size : columns
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_act_dequant_i8(nncuda_ctx *ctx, const void *codes, const float *scale, void *x, int64_t rows,
                                       int64_t cols, int32_t dtype);

/**
 * Biases of grouped rows, such as those of experts: y[r] = x[r] + bias[g] for the rows offsets[g] .. offsets[g+1]-1. Rows from
 * offsets[groups] on are neither read nor written.
 * @param x in dtype [rows, dim] : input
 * @param bias in dtype [groups, dim] : of each group
 * @param offsets in i32 [groups+1] : first row of each group; offsets[0] = 0, never falling, at most rows
 * @param y out dtype [rows, dim] alias x : output
 * @param rows size : rows, or room for them
 * @param dim size : elements per row
 * @param groups size : groups
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_grouped_bias(nncuda_ctx *ctx, const void *x, const void *bias, const int32_t *offsets, void *y,
                                     int64_t rows, int64_t dim, int64_t groups, int32_t dtype);

/* ================================================================================================================
 * section: softmax
 * ============================================================================================================= */

/**
 * Softmax of each row: y = exp(x - max) / sum(exp(x - max)). A row of nothing but -inf gives zeros; a NaN or +inf in a row
 * makes the whole row NaN. (Goodfellow, Bengio, Courville 2016, eq. 4.1)
 * @param x in dtype [rows, cols] : logits
 * @param y out dtype [rows, cols] alias x : probabilities
 * @param rows size : rows
 * @param cols size : columns
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_softmax(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t cols, int32_t dtype);

/**
 * Gradient of softmax: dx = y * (dy - sum(dy * y)).
 * @param dy in dtype [rows, cols] : gradient of y
 * @param y in dtype [rows, cols] : the output of the forward call
 * @param dx out dtype [rows, cols] alias dy : gradient of x
 * @param rows size : rows
 * @param cols size : columns
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_softmax_backward(nncuda_ctx *ctx, const void *dy, const void *y, void *dx, int64_t rows,
                                         int64_t cols, int32_t dtype);

/**
 * The router: softmax over all columns in f32, then the k largest of each row in falling order. Ties go to the lower
 * index; NaN counts as less than everything, so the k indices are always distinct and in range. With `norm` the k weights are divided by
 * their sum. (Shazeer et al. 2017; Jiang et al. 2024, "Mixtral", section 2.1)
 * @param x in dtype [rows, cols] : logits
 * @param weights out f32 [rows, k] : the k probabilities, renormalised if asked
 * @param indices out i32 [rows, k] : their columns
 * @param probs out f32 [rows, cols] : all probabilities, as the backward call and the auxiliary loss need them
 * @param rows size : tokens
 * @param cols size : experts
 * @param k size : experts per token; must be at most 64 and at most cols
 * @param norm flag : 1 divides the k weights by their sum
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_softmax_topk(nncuda_ctx *ctx, const void *x, float *weights, int32_t *indices, float *probs,
                                     int64_t rows, int64_t cols, int64_t k, int32_t norm, int32_t dtype);

/**
 * Gradient of the router with respect to its logits; no gradient passes through the choice of indices.
 * With g the gradient of the probabilities (dprobs, plus dweights carried through the renormalisation at the chosen
 * columns): dx = probs * (g - sum(g * probs)).
 * @param dweights in f32 [rows, k] : gradient of weights
 * @param weights in f32 [rows, k] : from the forward call
 * @param indices in i32 [rows, k] : from the forward call
 * @param probs in f32 [rows, cols] : from the forward call
 * @param dprobs in? f32 [rows, cols] : further gradient of probs (the auxiliary loss), or null
 * @param dx out dtype [rows, cols] : gradient of the logits
 * @param rows size : tokens
 * @param cols size : experts
 * @param k size : experts per token; must be at most 64 and at most cols
 * @param norm flag : as in the forward call
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_softmax_topk_backward(nncuda_ctx *ctx, const float *dweights, const float *weights,
                                              const int32_t *indices, const float *probs, const float *dprobs,
                                              void *dx, int64_t rows, int64_t cols, int64_t k, int32_t norm,
                                              int32_t dtype);

/* ================================================================================================================
 * section: rmsnorm
 * Arithmetic inside is f32 for every dtype.
 * ============================================================================================================= */

/**
 * RMSNorm: y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). (Zhang, Sennrich 2019, eq. 4)
 * @param x in dtype [rows, cols] : input
 * @param weight in dtype [cols] : gain
 * @param y out dtype [rows, cols] alias x : output
 * @param rstd out? f32 [rows] : kept for the backward call, or null
 * @param rows size : rows
 * @param cols size : columns
 * @param eps option : added to the mean square; must be finite and at least 0
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_rmsnorm(nncuda_ctx *ctx, const void *x, const void *weight, void *y, float *rstd, int64_t rows,
                                int64_t cols, float eps, int32_t dtype);

/**
 * Residual sum and its RMSNorm in one pass: sum = x + residual (rounded to dtype), y = rmsnorm(sum).
 * @param x in dtype [rows, cols] : a block's output
 * @param residual in dtype [rows, cols] : the residual stream
 * @param weight in dtype [cols] : gain
 * @param sum out dtype [rows, cols] alias x,residual : the new residual stream
 * @param y out dtype [rows, cols] : its norm
 * @param rstd out? f32 [rows] : kept for the backward call, or null
 * @param rows size : rows
 * @param cols size : columns
 * @param eps option : added to the mean square; must be finite and at least 0
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_rmsnorm_residual(nncuda_ctx *ctx, const void *x, const void *residual, const void *weight,
                                         void *sum, void *y, float *rstd, int64_t rows, int64_t cols, float eps,
                                         int32_t dtype);

/**
 * Gradient of RMSNorm: with xhat = x * rstd and g = dy * weight,
 * dx = dresidual + rstd * (g - xhat * mean(g * xhat)); dweight += sum over rows of dy * xhat.
 * @param dy in dtype [rows, cols] : gradient of y
 * @param x in dtype [rows, cols] : the input (of rmsnorm_residual: its sum)
 * @param weight in dtype [cols] : gain
 * @param rstd in f32 [rows] : from the forward call
 * @param dresidual in? dtype [rows, cols] : gradient that reaches x past the norm, or null for none
 * @param dx out dtype [rows, cols] alias dy,dresidual : gradient of x
 * @param dweight acc f32 [cols] : gradient of weight
 * @param rows size : rows
 * @param cols size : columns
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_rmsnorm_backward(nncuda_ctx *ctx, const void *dy, const void *x, const void *weight,
                                         const float *rstd, const void *dresidual, void *dx, float *dweight,
                                         int64_t rows, int64_t cols, int32_t dtype);

/* ================================================================================================================
 * section: gemm
 * Products accumulate in f32. `dtype` is that of the factors, `dtype_c` that of the result: the same, or f32.
 * Processors that multiply bf16 themselves (AVX512_BF16, AMX) take its subnormals, below 2^-126, as zero.
 * ============================================================================================================= */

/**
 * Matrix product: C = op(A) * op(B).
 * @param a in dtype [m, k]^trans_a : left factor
 * @param b in dtype [k, n]^trans_b : right factor; a weight [out, in] is read with trans_b = 1
 * @param c out dtype_c [m, n] : result
 * @param m size : rows of C
 * @param n size : columns of C
 * @param k size : length of the sums
 * @param trans_a flag : 1 when A is stored as [k, m]
 * @param trans_b flag : 1 when B is stored as [n, k]
 * @param dtype dtype : f32, f16, bf16
 * @param dtype_c dtype : dtype or f32
 */
NNCUDA_API int32_t cuda_gemm(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t m, int64_t n, int64_t k,
                             int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c);

/**
 * Matrix product with leading dimensions: C = alpha * op(A) * op(B) + beta * C. With beta = 0, C is not read.
 * @param a in dtype [m:lda, k]^trans_a : left factor
 * @param b in dtype [k:ldb, n]^trans_b : right factor
 * @param c inout dtype_c [m:ldc, n] : result
 * @param m size : rows of C
 * @param n size : columns of C
 * @param k size : length of the sums
 * @param lda size : elements between stored rows of A
 * @param ldb size : elements between stored rows of B
 * @param ldc size : elements between rows of C
 * @param alpha option default 1 : factor of the product
 * @param beta option default 0 : factor of the old C
 * @param trans_a flag : 1 when A is stored as [k, m]
 * @param trans_b flag : 1 when B is stored as [n, k]
 * @param dtype dtype : f32, f16, bf16
 * @param dtype_c dtype : dtype or f32
 */
NNCUDA_API int32_t cuda_gemm_beta(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t m, int64_t n,
                                  int64_t k, int64_t lda, int64_t ldb, int64_t ldc, float alpha, float beta,
                                  int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c);

/**
 * A linear layer in one pass: C = activation(A * W^T + bias) + residual.
 * @param a in dtype [m, k] : input
 * @param b in dtype [n, k] : weight W
 * @param bias in? dtype [n] : added to each row, or null
 * @param residual in? dtype [m, n] : added at the end, or null
 * @param c out dtype [m, n] alias residual : result
 * @param m size : rows
 * @param n size : outputs
 * @param k size : inputs
 * @param activation option default NNCUDA_ACTIVATION_NONE : NNCUDA_ACTIVATION_*
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_gemm_epilogue(nncuda_ctx *ctx, const void *a, const void *b, const void *bias,
                                      const void *residual, void *c, int64_t m, int64_t n, int64_t k,
                                      int32_t activation, int32_t dtype);

/**
 * One product a batch entry: C[i] = alpha * op(A[i]) * op(B[i]) + beta * C[i], each dense.
 * @param a in dtype [batch, m, k]^trans_a : left factors
 * @param b in dtype [batch, k, n]^trans_b : right factors
 * @param c inout dtype_c [batch, m, n] : results; not read with beta = 0
 * @param batch size : entries
 * @param m size : rows of each C
 * @param n size : columns of each C
 * @param k size : length of the sums
 * @param alpha option default 1 : factor of the products
 * @param beta option default 0 : factor of the old C
 * @param trans_a flag : 1 when each A is stored as [k, m]
 * @param trans_b flag : 1 when each B is stored as [n, k]
 * @param dtype dtype : f32, f16, bf16
 * @param dtype_c dtype : dtype or f32
 */
NNCUDA_API int32_t cuda_batched_gemm(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t batch, int64_t m,
                                     int64_t n, int64_t k, float alpha, float beta, int32_t trans_a, int32_t trans_b,
                                     int32_t dtype, int32_t dtype_c);

/**
 * One product a group of rows (the experts' products): for each group g and its rows r in offsets[g] .. offsets[g+1]-1,
 * C[r] = A[r] * op(B[g]) + beta * C[r]. Rows from offsets[groups] on are neither read nor written. (Gale et al. 2022, "MegaBlocks")
 * @param a in dtype [rows, k] : rows, sorted by group
 * @param b in dtype [groups, k, n]^trans_b : a matrix a group
 * @param offsets in i32 [groups+1] : first row of each group; offsets[0] = 0, never falling, at most `rows`
 * @param c inout dtype_c [rows, n] : results; not read with beta = 0
 * @param groups size : groups
 * @param rows size : room for rows
 * @param n size : columns of C
 * @param k size : length of the sums
 * @param beta option default 0 : factor of the old C
 * @param trans_b flag : 1 when each B is stored as [n, k]
 * @param dtype dtype : f32, f16, bf16
 * @param dtype_c dtype : dtype or f32
 */
NNCUDA_API int32_t cuda_grouped_gemm(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c,
                                     int64_t groups, int64_t rows, int64_t n, int64_t k, float beta, int32_t trans_b,
                                     int32_t dtype, int32_t dtype_c);

/**
 * The weights' gradients of grouped_gemm: C[g] = A_g^T * B_g + beta * C[g], summed over the rows of group g. A group without
 * rows leaves beta * C[g].
 * @param a in dtype [rows, m] : rows, sorted by group (the gradient of the outputs, for a weight [out, in])
 * @param b in dtype [rows, n] : rows, sorted by group (the inputs)
 * @param offsets in i32 [groups+1] : as in grouped_gemm
 * @param c inout dtype_c [groups, m, n] : results; not read with beta = 0
 * @param groups size : groups
 * @param rows size : room for rows
 * @param m size : rows of each C
 * @param n size : columns of each C
 * @param beta option default 0 : factor of the old C
 * @param dtype dtype : f32, f16, bf16
 * @param dtype_c dtype : dtype or f32
 */
NNCUDA_API int32_t cuda_grouped_gemm_wgrad(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets,
                                           void *c, int64_t groups, int64_t rows, int64_t m, int64_t n, float beta,
                                           int32_t dtype, int32_t dtype_c);

/**
 * The experts' first products and their gate: grouped_gemm by B^T, whose columns are gates and, behind them, ups, then swiglu
 * of the two halves of its rows, with the bits of these two calls. On a GPU it is one launch. (Shazeer 2020, "GLU Variants",
 * eq. 6; Gale et al. 2022, "MegaBlocks")
 * @param a in dtype [rows, k] : rows, sorted by group
 * @param b in dtype [groups, 2*n, k] : a matrix a group, the rows of gates before those of ups
 * @param offsets in i32 [groups+1] : as in grouped_gemm
 * @param gate_up out dtype [rows, 2*n] : the products, as the gradient needs them; rows from offsets[groups] on are left alone
 * @param y out dtype [rows, n] : silu(gate) * up, likewise
 * @param groups size : groups
 * @param rows size : room for rows
 * @param n size : columns of y
 * @param k size : length of the sums
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_grouped_gemm_swiglu(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets,
                                            void *gate_up, void *y, int64_t groups, int64_t rows, int64_t n, int64_t k,
                                            int32_t dtype);

/**
 * Gradient of the experts' gate from that of what they give: dy = A * B of each group, as grouped_gemm has it, is the gradient of
 * y in grouped_gemm_swiglu, from which swiglu_backward gives those of gate and up, in their place; with the bits of these two
 * calls. On a GPU it is one launch, and dy is never in memory.
 * @param a in dtype [rows, k] : gradient of the experts' outputs
 * @param b in dtype [groups, k, n] : the matrices that y was multiplied by, [out, in]
 * @param offsets in i32 [groups+1] : as in grouped_gemm
 * @param gate_up inout dtype [rows, 2*n] : from the forward call; becomes its gradient; rows from offsets[groups] on are left alone
 * @param groups size : groups
 * @param rows size : room for rows
 * @param n size : columns of y
 * @param k size : length of the sums
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_grouped_gemm_swiglu_backward(nncuda_ctx *ctx, const void *a, const void *b,
                                                     const int32_t *offsets, void *gate_up, int64_t groups,
                                                     int64_t rows, int64_t n, int64_t k, int32_t dtype);

/**
 * grouped_gemm with factors in 8 bits: C[r] = fp8(A)[r] * op(fp8(B)[g]). fp8 rounds each number of a block to the nearest
 * e * 2^x, ties to even, where e is an OCP E4M3 and x, of the block, the least from -100 to 100 with which none of its finite
 * numbers is beyond 448 * 2^x; those beyond it even then, and those that are not finite, become NaN. A block is 128 neighbouring
 * elements of a row of A, and 128 x 128 of a matrix B, both counted from the first; the last may be smaller. A product
 * of two such numbers is exact. On sm_89 and sm_90a tensor cores sum 128 of them in their own precision, of 14 bits; those
 * sums are added up in f32. (DeepSeek-AI 2024, "DeepSeek-V3", 3.3; Micikevicius et al. 2022, "FP8 formats for deep learning")
 * @param a in dtype [rows, k] : rows, sorted by group
 * @param b in dtype [groups, k, n]^trans_b : a matrix a group
 * @param offsets in i32 [groups+1] : as in grouped_gemm
 * @param c out dtype_c [rows, n] : results; rows from offsets[groups] on are left alone
 * @param groups size : groups
 * @param rows size : room for rows
 * @param n size : columns of C
 * @param k size : length of the sums
 * @param trans_b flag : 1 when each B is stored as [n, k]
 * @param dtype dtype : f32, bf16
 * @param dtype_c dtype : dtype or f32
 */
NNCUDA_API int32_t cuda_grouped_gemm_fp8(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c,
                                         int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t trans_b,
                                         int32_t dtype, int32_t dtype_c);

/**
 * grouped_gemm_wgrad with factors in 8 bits: C[g] = fp8(A)_g^T * fp8(B)_g + beta * C[g]. fp8 and the sums are those of
 * grouped_gemm_fp8, but for a block: 128 elements of a column of A or B in neighbouring rows of a group, counted from its first.
 * @param a in dtype [rows, m] : rows, sorted by group (the gradient of the outputs, for a weight [out, in])
 * @param b in dtype [rows, n] : rows, sorted by group (the inputs)
 * @param offsets in i32 [groups+1] : as in grouped_gemm
 * @param c inout dtype_c [groups, m, n] : results; not read with beta = 0
 * @param groups size : groups
 * @param rows size : room for rows
 * @param m size : rows of each C
 * @param n size : columns of each C
 * @param beta option default 0 : factor of the old C
 * @param dtype dtype : f32, bf16
 * @param dtype_c dtype : dtype or f32
 */
NNCUDA_API int32_t cuda_grouped_gemm_wgrad_fp8(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets,
                                               void *c, int64_t groups, int64_t rows, int64_t m, int64_t n, float beta,
                                               int32_t dtype, int32_t dtype_c);

/* ================================================================================================================
 * section: embedding
 * ============================================================================================================= */

/**
 * Gathers rows of a table: y[t] = table[ids[t]].
 * @param table in dtype [vocab, dim] : the table
 * @param ids in i32 [tokens] : rows to take, 0 .. vocab-1
 * @param y out dtype [tokens, dim] : the rows
 * @param tokens size : ids
 * @param vocab size : rows of the table
 * @param dim size : columns of the table
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_embedding(nncuda_ctx *ctx, const void *table, const int32_t *ids, void *y, int64_t tokens,
                                  int64_t vocab, int64_t dim, int32_t dtype);

/**
 * Adds rows into a table, in the order of the tokens: table[ids[t]] += x[t]. The gradient of embedding.
 * @param x in dtype [tokens, dim] : rows to add
 * @param ids in i32 [tokens] : where to, 0 .. vocab-1
 * @param table acc f32 [vocab, dim] : the table
 * @param tokens size : ids
 * @param vocab size : rows of the table
 * @param dim size : columns of the table
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_scatter_add(nncuda_ctx *ctx, const void *x, const int32_t *ids, float *table, int64_t tokens,
                                    int64_t vocab, int64_t dim, int32_t dtype);

/**
 * Adds rows to a sum of two f32, the nearest and what is left of it: sum[0] + sum[1] += x[0] + x[1] + .... Each row is
 * added without error to sum[0], the error to sum[1], and of both the nearest f32 is taken again. So a long text loses
 * no more than a short one, and the bits do not depend on the calls that rows are cut into. A column is NaN from where
 * its sum is not finite. The first call begins with zeros. (Dekker 1971; Knuth, volume 2, 4.2.2, theorems B and C)
 * @param x in f32 [rows, dim] : rows to add, in their order
 * @param sum inout f32 [2, dim] : the sum so far, its nearest f32 and the rest
 * @param rows size : rows
 * @param dim size : columns
 */
NNCUDA_API int32_t cuda_pool_rows(nncuda_ctx *ctx, const float *x, float *sum, int64_t rows, int64_t dim);

/**
 * The vector of length 1 in the direction of a sum, which is that of the mean: y = s / |s|, s = sum[0] + sum[1]; zeros
 * where s is zero. Computed in f64, rounded once.
 * @param sum in f32 [2, dim] : from pool_rows
 * @param y out f32 [dim] : the vector
 * @param dim size : columns
 */
NNCUDA_API int32_t cuda_pool_unit(nncuda_ctx *ctx, const float *sum, float *y, int64_t dim);

/* ================================================================================================================
 * section: rope
 * ============================================================================================================= */

/**
 * Tables of rotary embedding: for position p and pair i, the angle p * b^(-2i/head_dim), computed in f64; its cosine and
 * sine, rounded to f32. b = base * ntk_alpha^(head_dim/(head_dim-2)), the NTK-aware base; ntk_alpha = 1 leaves it.
 * (Su et al. 2021, "RoFormer", eq. 15; bloc97 2023, NTK-aware scaling)
 * @param cosine out f32 [positions, head_dim/2] : cosines
 * @param sine out f32 [positions, head_dim/2] : sines
 * @param first option default 0 : position of the first row; must be at least 0
 * @param positions size : rows
 * @param head_dim size : elements per head, above 2 unless ntk_alpha is 1; must be even
 * @param base option default 10000 : base of the frequencies; must be finite and above 0
 * @param ntk_alpha option default 1 : stretch of the base; must be finite and at least 1
 */
NNCUDA_API int32_t cuda_rope_freqs(nncuda_ctx *ctx, float *cosine, float *sine, int64_t first, int64_t positions,
                                   int64_t head_dim, double base, double ntk_alpha);

/**
 * Tables of rotary embedding as rope_freqs, stretched: for position p and pair i, the angle scale * p * b^(-2i/head_dim) /
 * factors[i], computed in f64. Position interpolation is scale = 1/factor; the scaling of Llama 3.1 is a table of factors,
 * rope_freqs.weight in GGUF files. (Chen et al. 2023, "Extending Context Window"; Dubey et al. 2024, "The Llama 3 Herd of Models")
 * @param factors in? f32 [head_dim/2] : divisors of the frequencies, finite and above 0, or null for ones
 * @param cosine out f32 [positions, head_dim/2] : cosines
 * @param sine out f32 [positions, head_dim/2] : sines
 * @param first option default 0 : position of the first row; must be at least 0
 * @param positions size : rows
 * @param head_dim size : elements per head, above 2 unless ntk_alpha is 1; must be even
 * @param base option default 10000 : base of the frequencies; must be finite and above 0
 * @param ntk_alpha option default 1 : stretch of the base; must be finite and at least 1
 * @param scale option default 1 : factor of the positions; must be finite and above 0
 */
NNCUDA_API int32_t cuda_rope_freqs_scaled(nncuda_ctx *ctx, const float *factors, float *cosine, float *sine,
                                          int64_t first, int64_t positions, int64_t head_dim, double base,
                                          double ntk_alpha, double scale);

/**
 * Rotates each pair (u, v) of each head by the angle of its token's position: (u cos - v sin, v cos + u sin).
 * (Su et al. 2021, "RoFormer", eq. 34)
 * @param x in dtype [tokens:ld_x, heads, head_dim] : input
 * @param cosine in f32 [max_position, head_dim/2] : from rope_freqs
 * @param sine in f32 [max_position, head_dim/2] : from rope_freqs
 * @param positions in i32 [tokens] : rows of the tables, 0 .. max_position-1
 * @param y out dtype [tokens:ld_y, heads, head_dim] alias x : output
 * @param tokens size : tokens
 * @param heads size : heads
 * @param head_dim size : elements per head; must be even
 * @param max_position size : rows of the tables
 * @param ld_x size : elements between tokens of x
 * @param ld_y size : elements between tokens of y
 * @param layout option default NNCUDA_ROPE_HALF : NNCUDA_ROPE_*
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_rope_forward(nncuda_ctx *ctx, const void *x, const float *cosine, const float *sine,
                                     const int32_t *positions, void *y, int64_t tokens, int64_t heads,
                                     int64_t head_dim, int64_t max_position, int64_t ld_x, int64_t ld_y,
                                     int32_t layout, int32_t dtype);

/**
 * rope_forward of queries and keys in one call, in place.
 * @param q inout dtype [tokens:ld_q, heads, head_dim] : queries
 * @param k inout dtype [tokens:ld_k, kv_heads, head_dim] : keys
 * @param cosine in f32 [max_position, head_dim/2] : from rope_freqs
 * @param sine in f32 [max_position, head_dim/2] : from rope_freqs
 * @param positions in i32 [tokens] : rows of the tables, 0 .. max_position-1
 * @param tokens size : tokens
 * @param heads size : query heads
 * @param kv_heads size : key heads
 * @param head_dim size : elements per head; must be even
 * @param max_position size : rows of the tables
 * @param ld_q size : elements between tokens of q
 * @param ld_k size : elements between tokens of k
 * @param layout option default NNCUDA_ROPE_HALF : NNCUDA_ROPE_*
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_rope_qk(nncuda_ctx *ctx, void *q, void *k, const float *cosine, const float *sine,
                                const int32_t *positions, int64_t tokens, int64_t heads, int64_t kv_heads,
                                int64_t head_dim, int64_t max_position, int64_t ld_q, int64_t ld_k, int32_t layout,
                                int32_t dtype);

/**
 * Gradient of rope_forward: the rotation by the opposite angle.
 * @param dy in dtype [tokens:ld_y, heads, head_dim] : gradient of y
 * @param cosine in f32 [max_position, head_dim/2] : from rope_freqs
 * @param sine in f32 [max_position, head_dim/2] : from rope_freqs
 * @param positions in i32 [tokens] : rows of the tables, 0 .. max_position-1
 * @param dx out dtype [tokens:ld_x, heads, head_dim] alias dy : gradient of x
 * @param tokens size : tokens
 * @param heads size : heads
 * @param head_dim size : elements per head; must be even
 * @param max_position size : rows of the tables
 * @param ld_y size : elements between tokens of dy
 * @param ld_x size : elements between tokens of dx
 * @param layout option default NNCUDA_ROPE_HALF : NNCUDA_ROPE_*
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_rope_backward(nncuda_ctx *ctx, const void *dy, const float *cosine, const float *sine,
                                      const int32_t *positions, void *dx, int64_t tokens, int64_t heads,
                                      int64_t head_dim, int64_t max_position, int64_t ld_y, int64_t ld_x,
                                      int32_t layout, int32_t dtype);

/* ================================================================================================================
 * section: attention
 * Query head h reads key head h / (heads / kv_heads): kv_heads = heads is multi-head, 1 is multi-query attention. With
 * `causal`, query i of q_len sees the keys j <= i + kv_len - q_len: the last query sees all keys. A query that sees no
 * key gives zeros. head_dim is a multiple of 8, at most 256.
 * Over paged caches, a query sees at most the last `window` keys (Beltagy et al. 2020, "Longformer", section 3.1): pages before
 * them are not read, nor their numbers. `softcap` bounds the scores s, scale included: softcap * tanh(s / softcap) takes their
 * place (Gemma Team 2024, "Gemma 2", section 2). A sink is a score that has no key: exp(sink) is added to the sum of its head's
 * softmax, and nothing to its output (Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b", section 2.2). It is not scaled.
 * ============================================================================================================= */

/**
 * Scores: s = scale * q * k^T, with -inf where `causal` hides the key. (Vaswani et al. 2017, eq. 1)
 * @param q in dtype [batch, q_len, heads, head_dim] : queries
 * @param k in dtype [batch, kv_len, kv_heads, head_dim] : keys
 * @param scores out dtype [batch, heads, q_len, kv_len] : scores
 * @param batch size : sequences
 * @param q_len size : queries a sequence
 * @param kv_len size : keys a sequence
 * @param heads size : query heads; must be a multiple of kv_heads
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head; must be a multiple of 8, at most 256
 * @param scale option default 1/sqrt(head_dim) : factor of the products; must be finite
 * @param causal flag : 1 hides the keys after each query
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_attention_scores(nncuda_ctx *ctx, const void *q, const void *k, void *scores, int64_t batch,
                                         int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads,
                                         int64_t head_dim, float scale, int32_t causal, int32_t dtype);

/**
 * Output: out = probs * v. (Vaswani et al. 2017, eq. 1)
 * @param probs in dtype [batch, heads, q_len, kv_len] : softmax of the scores
 * @param v in dtype [batch, kv_len, kv_heads, head_dim] : values
 * @param out out dtype [batch, q_len, heads, head_dim] : output
 * @param batch size : sequences
 * @param q_len size : queries a sequence
 * @param kv_len size : keys a sequence
 * @param heads size : query heads; must be a multiple of kv_heads
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head; must be a multiple of 8, at most 256
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_attention_output(nncuda_ctx *ctx, const void *probs, const void *v, void *out, int64_t batch,
                                         int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads,
                                         int64_t head_dim, int32_t dtype);

/**
 * Attention without storing the scores: out = softmax(scale * q * k^T) * v, and the log-sum-exp of the scaled scores.
 * With `starts` query t of a sequence sees the keys starts[t] .. t alone, so that documents packed into one sequence do
 * not see one another; then `causal` must be 1 and q_len = kv_len. Keys that no query of a block sees are not read.
 * (Dao 2023, "FlashAttention-2", algorithm 1)
 * @param q in dtype [batch*q_len:ld_q, heads, head_dim] : queries
 * @param k in dtype [batch*kv_len:ld_kv, kv_heads, head_dim] : keys
 * @param v in dtype [batch*kv_len:ld_kv, kv_heads, head_dim] : values
 * @param starts in? i32 [batch, q_len] : first key that each query sees, never falling in a sequence and never behind its own; or null for 0
 * @param out out dtype [batch*q_len, heads, head_dim] : output
 * @param lse out? f32 [batch, heads, q_len] : log-sum-exp (-inf for a query without keys), kept for the backward call, or null
 * @param batch size : sequences
 * @param q_len size : queries a sequence
 * @param kv_len size : keys a sequence
 * @param heads size : query heads; must be a multiple of kv_heads
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head; must be a multiple of 8, at most 256
 * @param ld_q size : elements between tokens of q
 * @param ld_kv size : elements between tokens of k, and of v
 * @param scale option default 1/sqrt(head_dim) : factor of the products; must be finite
 * @param causal flag : 1 hides the keys after each query
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_flash_attention(nncuda_ctx *ctx, const void *q, const void *k, const void *v,
                                        const int32_t *starts, void *out, float *lse, int64_t batch, int64_t q_len,
                                        int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim,
                                        int64_t ld_q, int64_t ld_kv, float scale, int32_t causal, int32_t dtype);

/**
 * Gradients of flash_attention; the probabilities are recomputed from lse. (Dao 2023, "FlashAttention-2", algorithm 2)
 * @param dout in dtype [batch*q_len, heads, head_dim] : gradient of out
 * @param q in dtype [batch*q_len:ld_q, heads, head_dim] : queries
 * @param k in dtype [batch*kv_len:ld_kv, kv_heads, head_dim] : keys
 * @param v in dtype [batch*kv_len:ld_kv, kv_heads, head_dim] : values
 * @param out in dtype [batch*q_len, heads, head_dim] : output of the forward call
 * @param lse in f32 [batch, heads, q_len] : from the forward call
 * @param starts in? i32 [batch, q_len] : as in the forward call, or null
 * @param dq out dtype [batch*q_len:ld_q, heads, head_dim] : gradient of q
 * @param dk out dtype [batch*kv_len:ld_kv, kv_heads, head_dim] : gradient of k
 * @param dv out dtype [batch*kv_len:ld_kv, kv_heads, head_dim] : gradient of v
 * @param batch size : sequences
 * @param q_len size : queries a sequence
 * @param kv_len size : keys a sequence
 * @param heads size : query heads; must be a multiple of kv_heads
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head; must be a multiple of 8, at most 256
 * @param ld_q size : elements between tokens of q, and of dq
 * @param ld_kv size : elements between tokens of k, v, dk and dv
 * @param scale option default 1/sqrt(head_dim) : as in the forward call; must be finite
 * @param causal flag : as in the forward call
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_flash_attention_backward(nncuda_ctx *ctx, const void *dout, const void *q, const void *k,
                                                 const void *v, const void *out, const float *lse,
                                                 const int32_t *starts, void *dq, void *dk, void *dv, int64_t batch,
                                                 int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads,
                                                 int64_t head_dim, int64_t ld_q, int64_t ld_kv, float scale,
                                                 int32_t causal, int32_t dtype);

/**
 * Where the documents of packed sequences begin. Token t of a sequence belongs to the document that begins behind the
 * last separator before t, or with the sequence: starts[t] is that place, positions[t] = t - starts[t].
 * A separator is the last token of its document.
 * @param ids in i32 [batch, length] : tokens of the sequences
 * @param starts out i32 [batch, length] : first token of each token's document, for flash_attention
 * @param positions out i32 [batch, length] : place of each token in its document, for rope_qk
 * @param batch size : sequences
 * @param length size : tokens a sequence; must be at most 2147483647
 * @param separator option : id of the token that ends a document
 */
NNCUDA_API int32_t cuda_document_starts(nncuda_ctx *ctx, const int32_t *ids, int32_t *starts, int32_t *positions,
                                        int64_t batch, int64_t length, int32_t separator);

/**
 * Attention of one new query a sequence over its cache, split over the keys. Sequence b sees its first lengths[b] keys.
 * (Dao et al. 2023, "Flash-Decoding")
 * @param q in dtype [batch:ld_q, heads, head_dim] : queries
 * @param k_cache in dtype [batch, capacity, kv_heads, head_dim] : keys
 * @param v_cache in dtype [batch, capacity, kv_heads, head_dim] : values
 * @param lengths in i32 [batch] : keys to see, 0 .. capacity
 * @param out out dtype [batch, heads, head_dim] : output
 * @param batch size : sequences
 * @param capacity size : room for keys in the caches
 * @param heads size : query heads; must be a multiple of kv_heads
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head; must be a multiple of 8, at most 256
 * @param ld_q size : elements between queries
 * @param scale option default 1/sqrt(head_dim) : factor of the products; must be finite
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_attention_decode(nncuda_ctx *ctx, const void *q, const void *k_cache, const void *v_cache,
                                         const int32_t *lengths, void *out, int64_t batch, int64_t capacity,
                                         int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, float scale,
                                         int32_t dtype);

/**
 * Causal attention of new tokens over paged caches. Tokens offsets[b] .. offsets[b+1]-1 are the last of the lengths[b] tokens
 * of sequence b, whose keys and values are in its pages already (kv_append_paged): row j of them is row j mod 128 of page
 * page_table[b][j / 128]. Each token sees those before it and itself. A token's result depends on neither the other tokens of
 * the call nor on how many there are: the same bits as attention_decode_paged. (Kwon et al. 2023, "PagedAttention";
 * Dao 2023, "FlashAttention-2", algorithm 1)
 * @param q in dtype [tokens:ld_q, heads, head_dim] : queries
 * @param k_pages in u8 [pages, page_bytes] : keys; a page is [kv_heads, 128, head_dim], each row of head_dim in `format`
 * @param v_pages in u8 [pages, page_bytes] : values, laid out as the keys
 * @param offsets in i32 [batch+1] : first token of each sequence; offsets[0] = 0, never falling, the last at most `tokens`
 * @param lengths in i32 [batch] : rows of each sequence's cache, its new tokens included, at most 128 * max_pages
 * @param page_table in i32 [batch, max_pages] : pages of each sequence, 0 .. pages-1 where rows are seen; others are not read
 * @param sinks in? f32 [heads] : a score of each head that has no key, or null for none
 * @param out out dtype [tokens, heads, head_dim] : output; rows from offsets[batch] on are not written
 * @param tokens size : room for tokens
 * @param batch size : sequences
 * @param max_pages size : columns of the page table
 * @param pages size : pages of the caches
 * @param heads size : query heads; must be a multiple of kv_heads
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head; must be a multiple of 8, at most 256
 * @param ld_q size : elements between tokens of q
 * @param page_bytes size : bytes of a page: kv_heads * 128 rows of head_dim in `format`
 * @param scale option default 1/sqrt(head_dim) : factor of the products; must be finite
 * @param window option default 0 : most keys that a query sees, its own the last of them; must be at least 1, or 0 for all
 * @param softcap option default 0 : bound of the scores, or 0 for none; must be finite and at least 0
 * @param format option default NNCUDA_FORMAT_F16 : NNCUDA_FORMAT_*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_flash_attention_paged(nncuda_ctx *ctx, const void *q, const void *k_pages, const void *v_pages,
                                              const int32_t *offsets, const int32_t *lengths, const int32_t *page_table,
                                              const float *sinks, void *out, int64_t tokens, int64_t batch,
                                              int64_t max_pages, int64_t pages, int64_t heads, int64_t kv_heads,
                                              int64_t head_dim, int64_t ld_q, int64_t page_bytes, float scale,
                                              int64_t window, float softcap, int32_t format, int32_t dtype);

/**
 * Attention of one new query a sequence over its pages, split over the keys. Sequence b sees its first lengths[b] rows, and
 * gives zeros when it has none. (Dao et al. 2023, "Flash-Decoding"; Kwon et al. 2023, "PagedAttention")
 * @param q in dtype [batch:ld_q, heads, head_dim] : queries
 * @param k_pages in u8 [pages, page_bytes] : keys; a page is [kv_heads, 128, head_dim], each row of head_dim in `format`
 * @param v_pages in u8 [pages, page_bytes] : values, laid out as the keys
 * @param lengths in i32 [batch] : rows to see, 0 .. 128 * max_pages
 * @param page_table in i32 [batch, max_pages] : pages of each sequence, 0 .. pages-1 where rows are seen; others are not read
 * @param sinks in? f32 [heads] : a score of each head that has no key, or null for none
 * @param out out dtype [batch, heads, head_dim] : output
 * @param batch size : sequences
 * @param max_pages size : columns of the page table
 * @param pages size : pages of the caches
 * @param heads size : query heads; must be a multiple of kv_heads
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head; must be a multiple of 8, at most 256
 * @param ld_q size : elements between queries
 * @param page_bytes size : bytes of a page: kv_heads * 128 rows of head_dim in `format`
 * @param scale option default 1/sqrt(head_dim) : factor of the products; must be finite
 * @param window option default 0 : most keys that a query sees, its own the last of them; must be at least 1, or 0 for all
 * @param softcap option default 0 : bound of the scores, or 0 for none; must be finite and at least 0
 * @param format option default NNCUDA_FORMAT_F16 : NNCUDA_FORMAT_*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_attention_decode_paged(nncuda_ctx *ctx, const void *q, const void *k_pages, const void *v_pages,
                                               const int32_t *lengths, const int32_t *page_table, const float *sinks,
                                               void *out, int64_t batch, int64_t max_pages, int64_t pages,
                                               int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q,
                                               int64_t page_bytes, float scale, int64_t window, float softcap,
                                               int32_t format, int32_t dtype);

/**
 * A layer's attention in a decoding step, in one call: rope_qk of one new query and key a sequence, kv_append_paged of the key
 * and its value, then attention_decode_paged over the lengths[b] rows that sequence b has with them; the same bits as those
 * three. q and k stay as they are. Two sequences must not write to the same row, nor one see a row that another writes: that
 * is the caller's duty, and what they give otherwise is open. (Su et al. 2021, "RoFormer"; Kwon et al. 2023, "PagedAttention";
 * Dao et al. 2023, "Flash-Decoding")
 * @param q in dtype [batch:ld_q, heads, head_dim] : queries, not yet rotated
 * @param k in dtype [batch:ld_kv, kv_heads, head_dim] : new keys, not yet rotated
 * @param v in dtype [batch:ld_kv, kv_heads, head_dim] : new values
 * @param cosine in f32 [max_position, head_dim/2] : from rope_freqs
 * @param sine in f32 [max_position, head_dim/2] : from rope_freqs
 * @param positions in i32 [batch] : rows of the tables, 0 .. max_position-1
 * @param lengths in i32 [batch] : rows of each sequence's cache, the new one included, 1 .. 128 * max_pages
 * @param page_table in i32 [batch, max_pages] : pages of each sequence, 0 .. pages-1 where rows are seen; others are not read
 * @param sinks in? f32 [heads] : a score of each head that has no key, or null for none
 * @param k_pages inout u8 [pages, page_bytes] : keys; a page is [kv_heads, 128, head_dim], each row of head_dim in `format`
 * @param v_pages inout u8 [pages, page_bytes] : values, laid out as the keys
 * @param out out dtype [batch, heads, head_dim] : output
 * @param batch size : sequences
 * @param max_pages size : columns of the page table
 * @param pages size : pages of the caches
 * @param heads size : query heads; must be a multiple of kv_heads
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head; must be a multiple of 8, at most 256
 * @param max_position size : rows of the tables
 * @param ld_q size : elements between queries
 * @param ld_kv size : elements between new keys, and new values
 * @param page_bytes size : bytes of a page: kv_heads * 128 rows of head_dim in `format`
 * @param scale option default 1/sqrt(head_dim) : factor of the products; must be finite
 * @param window option default 0 : most keys that a query sees, its own the last of them; must be at least 1, or 0 for all
 * @param softcap option default 0 : bound of the scores, or 0 for none; must be finite and at least 0
 * @param layout option default NNCUDA_ROPE_HALF : NNCUDA_ROPE_*
 * @param format option default NNCUDA_FORMAT_F16 : NNCUDA_FORMAT_*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_attention_step_paged(nncuda_ctx *ctx, const void *q, const void *k, const void *v,
                                             const float *cosine, const float *sine, const int32_t *positions,
                                             const int32_t *lengths, const int32_t *page_table, const float *sinks,
                                             void *k_pages, void *v_pages, void *out, int64_t batch, int64_t max_pages,
                                             int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim,
                                             int64_t max_position, int64_t ld_q, int64_t ld_kv, int64_t page_bytes,
                                             float scale, int64_t window, float softcap, int32_t layout, int32_t format,
                                             int32_t dtype);

/* ================================================================================================================
 * section: kvcache
 * ============================================================================================================= */

/**
 * Appends the keys and values of new tokens to each sequence's cache, at rows starts[b] .. starts[b]+len-1.
 * @param k in dtype [batch*len:ld_kv, kv_heads, head_dim] : new keys
 * @param v in dtype [batch*len:ld_kv, kv_heads, head_dim] : new values
 * @param starts in i32 [batch] : first row to write, 0 .. capacity-len
 * @param k_cache inout dtype [batch, capacity, kv_heads, head_dim] : keys; other rows stay
 * @param v_cache inout dtype [batch, capacity, kv_heads, head_dim] : values; other rows stay
 * @param batch size : sequences
 * @param len size : new tokens per sequence; must be at most capacity
 * @param capacity size : room for keys in the caches
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head
 * @param ld_kv size : elements between tokens of k, and of v
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_kv_append(nncuda_ctx *ctx, const void *k, const void *v, const int32_t *starts, void *k_cache,
                                  void *v_cache, int64_t batch, int64_t len, int64_t capacity, int64_t kv_heads,
                                  int64_t head_dim, int64_t ld_kv, int32_t dtype);

/**
 * Drops the oldest rows of each cache so that at most `keep` remain: the newest move to the front, lengths follow.
 * @param k_cache inout dtype [batch, capacity, kv_heads, head_dim] : keys
 * @param v_cache inout dtype [batch, capacity, kv_heads, head_dim] : values
 * @param lengths inout i32 [batch] : rows in use, 0 .. capacity
 * @param batch size : sequences
 * @param capacity size : room for keys in the caches
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head
 * @param keep option : rows to keep; must be 0 to capacity
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_kv_trim(nncuda_ctx *ctx, void *k_cache, void *v_cache, int32_t *lengths, int64_t batch,
                                int64_t capacity, int64_t kv_heads, int64_t head_dim, int64_t keep, int32_t dtype);

/**
 * Writes the keys and values of new tokens into their sequences' pages. Tokens offsets[b] .. offsets[b+1]-1 become the last
 * rows of the lengths[b] that sequence b then has; row j lies in row j mod 128 of page page_table[b][j / 128]. Two sequences
 * must not write to the same row: that is the caller's duty, and what is left there otherwise is open. Numbers are rounded as
 * by cast and quantize; in q8_0 a block with one that is not finite becomes NaN. In e4m3 they are rounded to the nearest, ties
 * to even, and to 448 or -448 where they are beyond (infinities, too); NaN is 0x7f. (Kwon et al. 2023, "PagedAttention";
 * Micikevicius et al. 2022, "FP8 formats for deep learning")
 * @param k in dtype [tokens:ld_kv, kv_heads, head_dim] : new keys
 * @param v in dtype [tokens:ld_kv, kv_heads, head_dim] : new values
 * @param offsets in i32 [batch+1] : first token of each sequence; offsets[0] = 0, never falling, the last at most `tokens`
 * @param lengths in i32 [batch] : rows of each sequence's cache, its new tokens included, at most 128 * max_pages
 * @param page_table in i32 [batch, max_pages] : pages of each sequence, 0 .. pages-1 where rows are written; others are not read
 * @param k_pages inout u8 [pages, page_bytes] : keys; a page is [kv_heads, 128, head_dim], each row of head_dim in `format`
 * @param v_pages inout u8 [pages, page_bytes] : values, laid out as the keys
 * @param tokens size : room for tokens
 * @param batch size : sequences
 * @param max_pages size : columns of the page table
 * @param pages size : pages of the caches
 * @param kv_heads size : key and value heads
 * @param head_dim size : elements per head
 * @param ld_kv size : elements between tokens of k, and of v
 * @param page_bytes size : bytes of a page: kv_heads * 128 rows of head_dim in `format`
 * @param format option default NNCUDA_FORMAT_F16 : NNCUDA_FORMAT_*: F32, F16, BF16, E4M3 or Q8_0 (head_dim a multiple of 32)
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_kv_append_paged(nncuda_ctx *ctx, const void *k, const void *v, const int32_t *offsets,
                                        const int32_t *lengths, const int32_t *page_table, void *k_pages,
                                        void *v_pages, int64_t tokens, int64_t batch, int64_t max_pages, int64_t pages,
                                        int64_t kv_heads, int64_t head_dim, int64_t ld_kv, int64_t page_bytes,
                                        int32_t format, int32_t dtype);

/* ================================================================================================================
 * section: moe
 * A slot is one choice of one token: slot = token*k + j. A row is its place in the order sorted by expert, in which the
 * rows of expert e are offsets[e] .. offsets[e+1]-1, in token order.
 * ============================================================================================================= */

/**
 * Plans which row each slot takes. An expert keeps its first `capacity` slots in token order and drops the others.
 * (Lepikhin et al. 2020, "GShard", algorithm 1; Gale et al. 2022, "MegaBlocks")
 * @param indices in i32 [tokens, k] : experts chosen, 0 .. experts-1
 * @param counts out i32 [experts] : slots routed to each expert, dropped ones included
 * @param offsets out i32 [experts+1] : first row of each expert; the last is the number of rows kept
 * @param slot_row out i32 [tokens, k] : row of each slot, -1 if dropped
 * @param row_slot out i32 [tokens*k] : slot of each row; -1 from offsets[experts] on
 * @param tokens size : tokens
 * @param k size : experts per token
 * @param experts size : experts; must be at most 2147483647
 * @param capacity option default 0 : most rows an expert may take; must be at least 1, or 0 for no limit
 */
NNCUDA_API int32_t cuda_moe_plan(nncuda_ctx *ctx, const int32_t *indices, int32_t *counts, int32_t *offsets,
                                 int32_t *slot_row, int32_t *row_slot, int64_t tokens, int64_t k, int64_t experts,
                                 int64_t capacity);

/**
 * Brings tokens into row order: y[r] = x[row_slot[r] / k]. Rows whose slot is -1 become zero.
 * @param x in dtype [tokens, dim] : tokens
 * @param row_slot in i32 [tokens*k] : from moe_plan
 * @param y out dtype [tokens*k, dim] : rows
 * @param tokens size : tokens
 * @param k size : experts per token
 * @param dim size : elements per token
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_moe_gather(nncuda_ctx *ctx, const void *x, const int32_t *row_slot, void *y, int64_t tokens,
                                   int64_t k, int64_t dim, int32_t dtype);

/**
 * Routes tokens to their experts and brings them there: softmax_topk of the logits, moe_plan, moe_gather and, with `loss`,
 * aux_loss_forward, with the bits that these give one after the other. On a GPU it is two launches. (Fedus, Zoph, Shazeer 2021;
 * Gale et al. 2022, "MegaBlocks")
 * @param logits in dtype_logits [tokens, experts] : as x of softmax_topk
 * @param x in dtype [tokens, dim] : tokens
 * @param weights out f32 [tokens, k] : the k probabilities of each token, renormalised if asked
 * @param indices out i32 [tokens, k] : its experts
 * @param probs out f32 [tokens, experts] : all probabilities
 * @param counts out i32 [experts] : slots routed to each expert, dropped ones included
 * @param offsets out i32 [experts+1] : first row of each expert; the last is the number of rows kept
 * @param slot_row out i32 [tokens, k] : row of each slot, -1 if dropped
 * @param row_slot out i32 [tokens*k] : slot of each row; -1 from offsets[experts] on
 * @param y out dtype [tokens*k, dim] : the tokens in row order; zero in rows without a slot
 * @param loss inout? f32 [1] : the load-balancing loss is added to it; null for none
 * @param tokens size : tokens
 * @param experts size : experts; must be at most 2147483647
 * @param k size : experts per token; must be at most 64 and at most experts
 * @param dim size : elements per token
 * @param norm flag : 1 divides the k weights by their sum
 * @param capacity option default 0 : most rows an expert may take; must be at least 1, or 0 for no limit
 * @param alpha option default 0 : weight of the load-balancing loss; must be finite
 * @param dtype dtype : f32, f16, bf16
 * @param dtype_logits dtype : dtype or f32
 */
NNCUDA_API int32_t cuda_moe_route(nncuda_ctx *ctx, const void *logits, const void *x, float *weights, int32_t *indices,
                                  float *probs, int32_t *counts, int32_t *offsets, int32_t *slot_row,
                                  int32_t *row_slot, void *y, float *loss, int64_t tokens, int64_t experts, int64_t k,
                                  int64_t dim, int32_t norm, int64_t capacity, float alpha, int32_t dtype,
                                  int32_t dtype_logits);

/**
 * Gradient of moe_route with respect to the logits: softmax_topk_backward, whose dprobs is what aux_loss_backward gives, with
 * the bits of these two calls. No gradient passes through the choice of experts, or through their counts.
 * @param dweights in f32 [tokens, k] : gradient of weights
 * @param weights in f32 [tokens, k] : from the forward call
 * @param indices in i32 [tokens, k] : from the forward call
 * @param probs in f32 [tokens, experts] : from the forward call
 * @param counts in i32 [experts] : from the forward call
 * @param grad_scale in f32 [1] : gradient of the load-balancing loss
 * @param dlogits out dtype [tokens, experts] : gradient of the logits
 * @param tokens size : tokens
 * @param experts size : experts
 * @param k size : experts per token; must be at most 64 and at most experts
 * @param norm flag : as in the forward call
 * @param alpha option : as in the forward call; must be finite
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_moe_route_backward(nncuda_ctx *ctx, const float *dweights, const float *weights,
                                           const int32_t *indices, const float *probs, const int32_t *counts,
                                           const float *grad_scale, void *dlogits, int64_t tokens, int64_t experts,
                                           int64_t k, int32_t norm, float alpha, int32_t dtype);

/**
 * Gradient of moe_gather: dx[t] = sum over j of dy[slot_row[t, j]], dropped slots left out.
 * @param dy in dtype [tokens*k, dim] : gradient of y
 * @param slot_row in i32 [tokens, k] : from moe_plan
 * @param dx out dtype [tokens, dim] : gradient of x
 * @param tokens size : tokens
 * @param k size : experts per token
 * @param dim size : elements per token
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_moe_gather_backward(nncuda_ctx *ctx, const void *dy, const int32_t *slot_row, void *dx,
                                            int64_t tokens, int64_t k, int64_t dim, int32_t dtype);

/**
 * Weighs the experts' outputs and brings them back into token order:
 * out[t] = residual[t] + sum over j of weights[t, j] * y[slot_row[t, j]], dropped slots left out.
 * @param y in dtype [tokens*k, dim] : the experts' outputs, in row order
 * @param weights in f32 [tokens, k] : router weights
 * @param slot_row in i32 [tokens, k] : from moe_plan
 * @param residual in? dtype [tokens, dim] : added, or null
 * @param out out dtype [tokens, dim] alias residual : output
 * @param tokens size : tokens
 * @param k size : experts per token
 * @param dim size : elements per token
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_moe_combine(nncuda_ctx *ctx, const void *y, const float *weights, const int32_t *slot_row,
                                    const void *residual, void *out, int64_t tokens, int64_t k, int64_t dim,
                                    int32_t dtype);

/**
 * Gradients of moe_combine: dy[r] = weights[t, j] * dout[t] for the slot (t, j) of row r, zero for rows without a slot;
 * dweights[t, j] = dout[t] . y[slot_row[t, j]], zero for dropped slots. The residual's gradient is dout itself.
 * @param dout in dtype [tokens, dim] : gradient of out
 * @param y in dtype [tokens*k, dim] : as in the forward call
 * @param weights in f32 [tokens, k] : as in the forward call
 * @param slot_row in i32 [tokens, k] : from moe_plan
 * @param row_slot in i32 [tokens*k] : from moe_plan
 * @param dy out dtype [tokens*k, dim] alias y : gradient of y
 * @param dweights out f32 [tokens, k] : gradient of weights
 * @param tokens size : tokens
 * @param k size : experts per token
 * @param dim size : elements per token
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_moe_combine_backward(nncuda_ctx *ctx, const void *dout, const void *y, const float *weights,
                                             const int32_t *slot_row, const int32_t *row_slot, void *dy,
                                             float *dweights, int64_t tokens, int64_t k, int64_t dim, int32_t dtype);

/**
 * What the gradient of a layer of experts begins with: moe_combine_backward, and moe_route_backward of the gradient of the
 * weights that it gives, with the bits of these two calls. On a GPU it is one launch.
 * @param dout in dtype [tokens, dim] : gradient of the layer's output
 * @param y in dtype [tokens*k, dim] : the experts' outputs, as in the forward call
 * @param weights in f32 [tokens, k] : from moe_route
 * @param indices in i32 [tokens, k] : from moe_route
 * @param probs in f32 [tokens, experts] : from moe_route
 * @param counts in i32 [experts] : from moe_route
 * @param slot_row in i32 [tokens, k] : from moe_route
 * @param row_slot in i32 [tokens*k] : from moe_route
 * @param grad_scale in f32 [1] : gradient of the load-balancing loss
 * @param dy out dtype [tokens*k, dim] alias y : gradient of y
 * @param dweights out f32 [tokens, k] : gradient of weights
 * @param dlogits out dtype [tokens, experts] : gradient of the router's logits
 * @param tokens size : tokens
 * @param experts size : experts
 * @param k size : experts per token; must be at most 64 and at most experts
 * @param dim size : elements per token
 * @param norm flag : as in moe_route
 * @param alpha option : as in moe_route; must be finite
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_moe_output_backward(nncuda_ctx *ctx, const void *dout, const void *y, const float *weights,
                                            const int32_t *indices, const float *probs, const int32_t *counts,
                                            const int32_t *slot_row, const int32_t *row_slot, const float *grad_scale,
                                            void *dy, float *dweights, void *dlogits, int64_t tokens, int64_t experts,
                                            int64_t k, int64_t dim, int32_t norm, float alpha, int32_t dtype);

/**
 * What the gradient of a layer of experts ends with, those of the router's gate and of the tokens: dgate = dlogits^T * x +
 * beta * dgate, and dx[t] = sum over j of drows[slot_row[t, j]] + dlogits[t] * gate, as gemm_beta has the one,
 * moe_gather_backward and gemm_beta the other. On a GPU it is one launch, or two where dgate is summed in pieces.
 * @param dlogits in dtype [tokens, experts] : gradient of the router's logits
 * @param x in dtype [tokens, dim] : tokens, as in the forward call
 * @param gate in dtype [experts, dim] : weights of the gate, x * gate^T being the logits
 * @param drows in dtype [tokens*k, dim] : gradient of the tokens in row order
 * @param slot_row in i32 [tokens, k] : from moe_route
 * @param dx out dtype [tokens, dim] : gradient of x
 * @param dgate inout dtype_c [experts, dim] : gradient of the gate; not read with beta = 0
 * @param tokens size : tokens
 * @param experts size : experts
 * @param k size : experts per token
 * @param dim size : elements per token
 * @param beta option default 0 : factor of the old dgate
 * @param dtype dtype : f32, f16, bf16
 * @param dtype_c dtype : dtype or f32
 */
NNCUDA_API int32_t cuda_moe_input_backward(nncuda_ctx *ctx, const void *dlogits, const void *x, const void *gate,
                                           const void *drows, const int32_t *slot_row, void *dx, void *dgate,
                                           int64_t tokens, int64_t experts, int64_t k, int64_t dim, float beta,
                                           int32_t dtype, int32_t dtype_c);

/* ================================================================================================================
 * section: loss
 * ============================================================================================================= */

/**
 * Cross-entropy of each row: losses = lse - logits[target], lse = log(sum(exp(logits))); zero where the target is
 * ignore_index. loss_sum and count are over the rows that are not ignored. (Goodfellow, Bengio, Courville 2016, eq. 6.30)
 * @param logits in dtype [rows, vocab] : logits
 * @param targets in i32 [rows] : 0 .. vocab-1, or ignore_index
 * @param losses out? f32 [rows] : loss of each row, or null
 * @param lse out f32 [rows] : kept for the backward call
 * @param loss_sum out f32 [1] : sum of the losses
 * @param count out i32 [1] : rows not ignored
 * @param rows size : rows; must be at most 2147483647
 * @param vocab size : columns
 * @param ignore_index option default -100 : target to leave out
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_cross_entropy_forward(nncuda_ctx *ctx, const void *logits, const int32_t *targets,
                                              float *losses, float *lse, float *loss_sum, int32_t *count, int64_t rows,
                                              int64_t vocab, int32_t ignore_index, int32_t dtype);

/**
 * Gradient of grad_scale * sum(losses): dlogits = grad_scale * (exp(logits - lse) - onehot(target)); zero where ignored.
 * @param logits in dtype [rows, vocab] : as in the forward call
 * @param targets in i32 [rows] : as in the forward call
 * @param lse in f32 [rows] : from the forward call
 * @param grad_scale in f32 [1] : factor; 1/count for the mean
 * @param dlogits out dtype [rows, vocab] alias logits : gradient of the logits
 * @param rows size : rows
 * @param vocab size : columns
 * @param ignore_index option default -100 : as in the forward call
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_cross_entropy_backward(nncuda_ctx *ctx, const void *logits, const int32_t *targets,
                                               const float *lse, const float *grad_scale, void *dlogits, int64_t rows,
                                               int64_t vocab, int32_t ignore_index, int32_t dtype);

/**
 * Load-balancing loss of one layer: loss += alpha * sum over experts of f * P, f = counts / tokens, P = mean of probs
 * over tokens. (Fedus, Zoph, Shazeer 2021, "Switch Transformers", eq. 4-6, without the factor of the expert count)
 * @param probs in f32 [tokens, experts] : from softmax_topk
 * @param counts in i32 [experts] : from moe_plan
 * @param loss acc f32 [1] : the loss
 * @param tokens size : tokens
 * @param experts size : experts
 * @param alpha option : weight of this loss; must be finite
 */
NNCUDA_API int32_t cuda_aux_loss_forward(nncuda_ctx *ctx, const float *probs, const int32_t *counts, float *loss,
                                         int64_t tokens, int64_t experts, float alpha);

/**
 * Gradient of grad_scale * aux loss with respect to probs: dprobs = grad_scale * alpha * f / tokens; none through f.
 * @param counts in i32 [experts] : from moe_plan
 * @param grad_scale in f32 [1] : factor
 * @param dprobs out f32 [tokens, experts] : gradient of probs
 * @param tokens size : tokens
 * @param experts size : experts
 * @param alpha option : weight of this loss; must be finite
 */
NNCUDA_API int32_t cuda_aux_loss_backward(nncuda_ctx *ctx, const int32_t *counts, const float *grad_scale,
                                          float *dprobs, int64_t tokens, int64_t experts, float alpha);

/**
 * Mean of what was summed in parts: y = sum of weights * x / divisor, in f64 in a fixed order, rounded once. The mean of
 * a batch's losses, of its parts' losses by their sizes, and with x = 1 the factor of a gradient, 1/tokens.
 * @param x in f32 [n] : the parts' sums
 * @param weights in? i32 [n] : how often each counts; null is once
 * @param y out f32 [1] : the mean
 * @param n size : parts
 * @param divisor option default 1 : how many they are the sums of; must be at least 1
 */
NNCUDA_API int32_t cuda_weighted_mean(nncuda_ctx *ctx, const float *x, const int32_t *weights, float *y, int64_t n,
                                      int64_t divisor);

/* ================================================================================================================
 * section: optimizer
 * Master weights and gradients are f32, and so are the moments of adamw_step. Step, rate, norm and scales lie in device
 * memory, so that a captured step can be replayed. `skip` is the flag that loss_scale_update sets when the gradients
 * overflowed.
 *
 * adamw_step_bf16 and adamw_step_f8 keep the moments in fewer bits. A moment that changes by less than half the distance
 * of two numbers would stay for ever when rounded to the nearest (second moments with beta2 = 0.999 do), so they are
 * rounded up or down by chance, right on average: x between the neighbours a < b becomes b with probability
 * (x-a)/(b-a), and numbers of the format stay. Chance is a function of the step t = step[0] and the element's index i
 * alone: with mix(x) in 32 bits: x ^= x >> 16, x *= 0x85ebca6b, x ^= x >> 13, x *= 0xc2b2ae35, x ^= x >> 16 (Appleby
 * 2011, MurmurHash3, fmix32), and b = i / 256, it is w = mix(mix(mix(mix(t) + b % 2^32) + b / 2^32) + 0x9e3779b9 * (i % 256)),
 * whose lower 16 bits round the first moment, its upper 16 bits the second. To round to k bits of mantissa is to add
 * those 16 bits, times 2^(7-k), to the bit pattern of the f32 and to clear its lower 23-k bits.
 * ============================================================================================================= */

/**
 * AdamW with decoupled weight decay, for t = step[0] >= 1 and g = grad * grad_scale:
 * m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g^2;
 * param = param*(1 - lr*weight_decay) - lr * (m/(1-beta1^t)) / (sqrt(v/(1-beta2^t)) + eps).
 * (Loshchilov, Hutter 2019, algorithm 2)
 * @param grad in f32 [n] : gradients
 * @param lr in f32 [1] : learning rate
 * @param step in i32 [1] : number of this update, from 1
 * @param grad_scale in? f32 [1] : factor of the gradients (from grad_clip), or null for 1
 * @param skip in? i32 [1] : non-zero leaves everything as it is; or null
 * @param param inout f32 [n] : parameters
 * @param m inout f32 [n] : first moments
 * @param v inout f32 [n] : second moments
 * @param param_copy out? dtype [n] : the new parameters rounded to `dtype`, or null
 * @param n size : parameters
 * @param n_decay option : how many of them, from the first, decay; must be 0 to n
 * @param beta1 option : decay rate of the first moments; must be at least 0 and below 1
 * @param beta2 option : decay rate of the second moments; must be at least 0 and below 1
 * @param eps option : added to the root; must be finite and above 0
 * @param weight_decay option : decay of the parameters; must be finite and at least 0
 * @param dtype dtype : f16, bf16, f32; of param_copy
 */
NNCUDA_API int32_t cuda_adamw_step(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step,
                                   const float *grad_scale, const int32_t *skip, float *param, float *m, float *v,
                                   void *param_copy, int64_t n, int64_t n_decay, float beta1, float beta2, float eps,
                                   float weight_decay, int32_t dtype);

/**
 * AdamW as adamw_step has it, its moments kept in bf16: they are widened, updated in f32, used for the parameters, and
 * rounded by chance (see above) as they are stored. Infinities and NaN stay what they are. (Zamirai, Zhang, Aberger, De
 * Sa 2020, "Revisiting BFloat16 training", section 3)
 * @param grad in f32 [n] : gradients
 * @param lr in f32 [1] : learning rate
 * @param step in i32 [1] : number of this update, from 1
 * @param grad_scale in? f32 [1] : factor of the gradients (from grad_clip), or null for 1
 * @param skip in? i32 [1] : non-zero leaves everything as it is; or null
 * @param param inout f32 [n] : parameters
 * @param m inout bf16 [n] : first moments
 * @param v inout bf16 [n] : second moments
 * @param param_copy out? dtype [n] : the new parameters rounded to `dtype`, or null
 * @param n size : parameters
 * @param n_decay option : how many of them, from the first, decay; must be 0 to n
 * @param first option default 0 : of a shard, the place of its first element among all parameters, which chance depends on; must be at least 0 and a multiple of 256
 * @param beta1 option : decay rate of the first moments; must be at least 0 and below 1
 * @param beta2 option : decay rate of the second moments; must be at least 0 and below 1
 * @param eps option : added to the root; must be finite and above 0
 * @param weight_decay option : decay of the parameters; must be finite and at least 0
 * @param dtype dtype : f16, bf16, f32; of param_copy
 */
NNCUDA_API int32_t cuda_adamw_step_bf16(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step,
                                        const float *grad_scale, const int32_t *skip, float *param, void *m, void *v,
                                        void *param_copy, int64_t n, int64_t n_decay, int64_t first, float beta1,
                                        float beta2, float eps, float weight_decay, int32_t dtype);

/**
 * AdamW as adamw_step has it, its moments kept in 8 bits, blockwise (Dettmers, Lewis, Shleifer, Zettlemoyer 2022,
 * section 2.1): each 256 consecutive elements, the last ones fewer, have one f32 scale s, the largest magnitude among
 * them, and each element a code for a number q of 0 .. 1; it is s * q, the largest one exactly. m has a sign (bit 7), 4
 * bits of exponent e and 3 of mantissa f: q = 2^(e-15) * (1 + f/8), and q = 2^-14 * f/8 where e = 0. Of v its root r is
 * kept, which has half the range and which the update divides by: 4 bits of exponent and 4 of mantissa, likewise, with
 * f/16. The update: v = beta2*r^2 + (1-beta2)*g^2; r = sqrt(v); param as in adamw_step, with r * sqrt(1/(1-beta2^t)) for
 * the root, from the new moments before they are rounded. Stored are s and, of x = |m|/s or r/s (a division in f32), the
 * code of x rounded by chance (see above) to 3 or 4 bits of mantissa; where x < 2^-14, x + 2^-14 is rounded and 2^-14
 * taken off again. A root above 0 gets at least code 1, so that nothing is divided by a root that was rounded to 0. A
 * block of zeros has s = 0 and codes 0. In a block with an infinity or a NaN s is that, and the codes are 0.
 * @param grad in f32 [n] : gradients
 * @param lr in f32 [1] : learning rate
 * @param step in i32 [1] : number of this update, from 1
 * @param grad_scale in? f32 [1] : factor of the gradients (from grad_clip), or null for 1
 * @param skip in? i32 [1] : non-zero leaves everything as it is; or null
 * @param param inout f32 [n] : parameters
 * @param m inout u8 [n] : codes of the first moments
 * @param m_scale inout f32 [blocks] : their scales
 * @param r inout u8 [n] : codes of the roots of the second moments
 * @param r_scale inout f32 [blocks] : their scales
 * @param param_copy out? dtype [n] : the new parameters rounded to `dtype`, or null
 * @param n size : parameters
 * @param blocks size : n / 256, rounded up
 * @param n_decay option : how many of them, from the first, decay; must be 0 to n
 * @param first option default 0 : of a shard, the place of its first element among all parameters, which chance depends on; must be at least 0 and a multiple of 256
 * @param beta1 option : decay rate of the first moments; must be at least 0 and below 1
 * @param beta2 option : decay rate of the second moments; must be at least 0 and below 1
 * @param eps option : added to the root; must be finite and above 0
 * @param weight_decay option : decay of the parameters; must be finite and at least 0
 * @param dtype dtype : f16, bf16, f32; of param_copy
 */
NNCUDA_API int32_t cuda_adamw_step_f8(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step,
                                      const float *grad_scale, const int32_t *skip, float *param, void *m,
                                      float *m_scale, void *r, float *r_scale, void *param_copy, int64_t n,
                                      int64_t blocks, int64_t n_decay, int64_t first, float beta1, float beta2,
                                      float eps, float weight_decay, int32_t dtype);

/**
 * Sets gradients to zero.
 * @param grad out dtype [n] : gradients
 * @param n size : elements
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_zero_grad(nncuda_ctx *ctx, void *grad, int64_t n, int32_t dtype);

/**
 * Euclidean norm: norm = sqrt(sum(grad^2)). Not finite exactly when a gradient is not finite or the norm overflows f32.
 * @param grad in dtype [n] : gradients
 * @param norm out f32 [1] : the norm
 * @param n size : elements
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_grad_norm(nncuda_ctx *ctx, const void *grad, float *norm, int64_t n, int32_t dtype);

/**
 * Clips by the global norm: with s = loss_scale (1 if null) and g = norm/s, scale = min(1, max_norm / (g + 1e-6)) / s;
 * where grad is given it is multiplied by scale. (Pascanu, Mikolov, Bengio 2013, algorithm 1)
 * @param norm in f32 [1] : from grad_norm
 * @param loss_scale in? f32 [1] : what the loss was multiplied by, or null for 1
 * @param scale out f32 [1] : the factor, for adamw_step
 * @param grad inout? dtype [n] : gradients to scale in place, or null to leave that to adamw_step
 * @param n size : elements of grad; not used, and may be 0, where grad is null
 * @param max_norm option : largest norm allowed, where infinity never clips; must be above 0
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_grad_clip(nncuda_ctx *ctx, const float *norm, const float *loss_scale, float *scale, void *grad,
                                  int64_t n, float max_norm, int32_t dtype);

/**
 * Advances the step and gives its rate: t = ++step[0]; up to `warmup` steps lr = max_lr * t / warmup, then
 * lr = min_lr + (max_lr - min_lr) * (1 + cos(pi * (t - warmup) / (total - warmup))) / 2, from `total` on min_lr.
 * (Loshchilov, Hutter 2017, "SGDR", eq. 5, with a linear warm-up)
 * @param skip in? i32 [1] : non-zero leaves step and lr as they are; or null
 * @param step inout i32 [1] : updates done
 * @param lr out f32 [1] : rate of this update
 * @param warmup option : steps of the warm-up; must be at least 0
 * @param total option : steps until the last rate; must be at least warmup
 * @param max_lr option : highest rate; must be finite
 * @param min_lr option : last rate; must be finite
 */
NNCUDA_API int32_t cuda_lr_schedule(nncuda_ctx *ctx, const int32_t *skip, int32_t *step, float *lr, int64_t warmup,
                                    int64_t total, float max_lr, float min_lr);

/**
 * Dynamic loss scaling: when norm is not finite, skip = 1, skipped += 1, loss_scale *= backoff, good_steps = 0; else
 * skip = 0 and good_steps += 1, and each time it reaches `interval` loss_scale *= growth and good_steps = 0. The scale
 * stays within 2^-24 .. 2^24. (Micikevicius et al. 2018, section 3.2)
 * @param norm in f32 [1] : from grad_norm
 * @param loss_scale inout f32 [1] : the scale
 * @param good_steps inout i32 [1] : steps since the last change
 * @param skipped inout i32 [1] : steps skipped so far
 * @param skip out i32 [1] : 1 when this step must be skipped
 * @param growth option : factor by which the scale grows; must be finite and at least 1
 * @param backoff option : factor by which it shrinks; must be above 0 and at most 1
 * @param interval option : good steps before it grows; must be at least 1
 */
NNCUDA_API int32_t cuda_loss_scale_update(nncuda_ctx *ctx, const float *norm, float *loss_scale, int32_t *good_steps,
                                          int32_t *skipped, int32_t *skip, float growth, float backoff,
                                          int64_t interval);

/* ================================================================================================================
 * section: decode
 * The order of tokens is total: higher logit first, then lower index. Logits of NaN and -inf are never drawn; a row that
 * holds +inf draws among those alone, all alike; a row with nothing to draw gives index 0. temperature divides the
 * logits; 0 is argmax. The same seed and step give the same token: with u = 2^-32 * word 0 of Philox4x32-10 for key =
 * seeds[r], counter = (steps[r], 0, 0, 0), it is the first in index order whose cumulative probability, over the tokens
 * that may be drawn, is above u. Temperatures, top_k, top_p, min_p and steps outside their ranges are
 * NNCUDA_ERROR_OUT_OF_RANGE.
 *
 * What changes logits before a token is drawn does so in place, and in this order: penalize_logits, bias_logits,
 * mask_logits. A row's list of tokens, for penalties, is sparse: ascending ids, and how often each was drawn; count_tokens
 * adds to it what was drawn, on the device, so that it can be captured with the step. Log-probabilities are those of the
 * logits that they are given: of the model's own, where they are taken before these.
 * ============================================================================================================= */

/**
 * The first token of each row in the order above.
 * @param logits in dtype [rows, vocab] : logits
 * @param ids out i32 [rows] : tokens
 * @param rows size : rows
 * @param vocab size : columns; must be at most 2147483647
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_argmax(nncuda_ctx *ctx, const void *logits, int32_t *ids, int64_t rows, int64_t vocab,
                               int32_t dtype);

/**
 * Draws from softmax(logits / temperature).
 * @param logits in dtype [rows, vocab] : logits
 * @param temperature in f32 [rows] : finite, at least 0
 * @param seeds in i64 [rows] : key of each row
 * @param steps in i32 [rows] : number of the draw, at least 0
 * @param ids out i32 [rows] : tokens
 * @param rows size : rows
 * @param vocab size : columns; must be at most 2147483647
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int64_t *seeds,
                               const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype);

/**
 * Draws among the first top_k tokens of each row. (Fan, Lewis, Dauphin 2018)
 * @param logits in dtype [rows, vocab] : logits
 * @param temperature in f32 [rows] : finite, at least 0
 * @param top_k in i32 [rows] : at least 1; more than vocab is all
 * @param seeds in i64 [rows] : key of each row
 * @param steps in i32 [rows] : number of the draw, at least 0
 * @param ids out i32 [rows] : tokens
 * @param rows size : rows
 * @param vocab size : columns; must be at most 2147483647
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_topk_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k,
                                    const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows,
                                    int64_t vocab, int32_t dtype);

/**
 * Draws among the shortest run of first tokens whose probability reaches top_p (of those that top_k leaves, if given).
 * (Holtzman et al. 2020, "nucleus sampling", eq. 3)
 * @param logits in dtype [rows, vocab] : logits
 * @param temperature in f32 [rows] : finite, at least 0
 * @param top_k in? i32 [rows] : at least 1; or null for no such limit
 * @param top_p in f32 [rows] : above 0, at most 1
 * @param seeds in i64 [rows] : key of each row
 * @param steps in i32 [rows] : number of the draw, at least 0
 * @param ids out i32 [rows] : tokens
 * @param rows size : rows
 * @param vocab size : columns; must be at most 2147483647
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_topp_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k,
                                    const float *top_p, const int64_t *seeds, const int32_t *steps, int32_t *ids,
                                    int64_t rows, int64_t vocab, int32_t dtype);

/**
 * Draws among the tokens, of those that top_k and then top_p leave, if given, whose probability is at least min_p times
 * that of the first one: exp((logit - largest) / temperature) >= min_p. (Nguyen et al. 2024, "Turning up the heat: min-p
 * sampling", section 3)
 * @param logits in dtype [rows, vocab] : logits
 * @param temperature in f32 [rows] : finite, at least 0
 * @param top_k in? i32 [rows] : at least 1; or null for no such limit
 * @param top_p in? f32 [rows] : above 0, at most 1; or null for no such limit
 * @param min_p in f32 [rows] : 0 to 1; 0 leaves all, 1 those that are as likely as the first
 * @param seeds in i64 [rows] : key of each row
 * @param steps in i32 [rows] : number of the draw, at least 0
 * @param ids out i32 [rows] : tokens
 * @param rows size : rows
 * @param vocab size : columns; must be at most 2147483647
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_minp_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k,
                                    const float *top_p, const float *min_p, const int64_t *seeds, const int32_t *steps,
                                    int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype);

/**
 * Adds the token that was drawn for each row to the row's list: to its count, or as a new token with a count of 1.
 * @param ids in i32 [rows] : tokens, 0 .. vocab-1
 * @param seen_ids inout i32 [rows, capacity] : the list's tokens, ascending; those behind its length are not looked at
 * @param seen_counts inout i32 [rows, capacity] : how often each was drawn; at 2147483647 it stays
 * @param seen_lengths inout i32 [rows] : tokens of each list, at most `capacity`, and less where one must be added; -1 for a row that has no list
 * @param rows size : rows
 * @param vocab size : tokens of the vocabulary; must be at most 2147483647
 * @param capacity size : tokens that a list has room for; must be at most 2147483647
 */
NNCUDA_API int32_t cuda_count_tokens(nncuda_ctx *ctx, const int32_t *ids, int32_t *seen_ids, int32_t *seen_counts,
                                     int32_t *seen_lengths, int64_t rows, int64_t vocab, int64_t capacity);

/**
 * Makes tokens of a row's list less likely. With c the count of a token there, first x = x / repetition where x > 0 and
 * x * repetition elsewhere (Keskar et al. 2019, "CTRL", section 4.1, in the form that every program has), then
 * x = x - (frequency * c + presence), the last of them only where c > 0 (OpenAI's API reference, "frequency and presence
 * penalties"). So tokens of the prompt, with a count of 0, meet the first alone.
 * @param logits inout dtype [rows, vocab] : logits
 * @param presence in f32 [rows] : finite; 0 for none
 * @param frequency in f32 [rows] : finite; 0 for none
 * @param repetition in f32 [rows] : finite and above 0; 1 for none
 * @param seen_ids in i32 [rows, capacity] : the list's tokens, ascending, 0 .. vocab-1
 * @param seen_counts in i32 [rows, capacity] : how often each was drawn, at least 0
 * @param seen_lengths in i32 [rows] : tokens of each list, at most `capacity`; -1 for a row that has no list, which stays as it is
 * @param rows size : rows
 * @param vocab size : columns; must be at most 2147483647
 * @param capacity size : tokens that a list has room for; must be at most 2147483647
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_penalize_logits(nncuda_ctx *ctx, void *logits, const float *presence, const float *frequency,
                                        const float *repetition, const int32_t *seen_ids, const int32_t *seen_counts,
                                        const int32_t *seen_lengths, int64_t rows, int64_t vocab, int64_t capacity,
                                        int32_t dtype);

/**
 * Adds to some logits of each row r: bias[i] to that of token ids[i], for i = offsets[r] .. offsets[r+1]-1.
 * @param logits inout dtype [rows, vocab] : logits
 * @param offsets in i32 [rows+1] : first bias of each row; offsets[0] = 0, never falling, the last at most `biases`
 * @param ids in i32 [biases] : tokens, ascending within a row, 0 .. vocab-1
 * @param bias in f32 [biases] : finite
 * @param rows size : rows
 * @param vocab size : columns; must be at most 2147483647
 * @param biases size : room for biases, of all rows together
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_bias_logits(nncuda_ctx *ctx, void *logits, const int32_t *offsets, const int32_t *ids,
                                    const float *bias, int64_t rows, int64_t vocab, int64_t biases, int32_t dtype);

/**
 * Sets the logits of tokens that a row's mask does not allow to -inf. Bit t % 32, from the lowest, of word t / 32 of a mask
 * is 1 where token t is allowed; tokens beyond its words are not, bits beyond the vocabulary mean nothing. (The bit masks
 * of llguidance and XGrammar)
 * @param logits inout dtype [rows, vocab] : logits
 * @param masks in i32 [n, words] : masks
 * @param mask_of in i32 [rows] : the mask of each row, -1 .. n-1; a row of -1 stays as it is
 * @param rows size : rows
 * @param vocab size : columns; must be at most 2147483647
 * @param n size : masks
 * @param words size : words of a mask
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_mask_logits(nncuda_ctx *ctx, void *logits, const int32_t *masks, const int32_t *mask_of,
                                    int64_t rows, int64_t vocab, int64_t n, int64_t words, int32_t dtype);

/**
 * Log-probabilities, log softmax(logits), of one token of each row, and of the first n in the order above if they are
 * asked for. Tokens that are never drawn have -inf.
 * @param logits in dtype [rows, vocab] : logits
 * @param ids in i32 [rows] : tokens, 0 .. vocab-1
 * @param logprobs out f32 [rows] : their log-probabilities
 * @param top_ids out? i32 [rows, n] : the first n tokens of each row, -1 where fewer can be drawn
 * @param top_logprobs out? f32 [rows, n] : their log-probabilities, -inf where there is none
 * @param rows size : rows
 * @param vocab size : columns; must be at most 2147483647
 * @param n size : tokens listed for each row; must be at most 128
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_logprobs(nncuda_ctx *ctx, const void *logits, const int32_t *ids, float *logprobs,
                                 int32_t *top_ids, float *top_logprobs, int64_t rows, int64_t vocab, int64_t n,
                                 int32_t dtype);

/* ================================================================================================================
 * section: quant
 * Weights in the formats of GGUF files, bytes as they are in the file: each row of a matrix is a run of blocks. `format` is
 * one of NNCUDA_FORMAT_*, row_bytes what nncuda_format_row_bytes gives for it.
 *
 * Products with a block format round their left factor to 8 bits first, in blocks of 32 of a row: with a the largest
 * magnitude of a block, d = a/127 and q = rint(x * (127/a)), ties to even, all in f32; a below 2^-100 counts as 0 and gives
 * zeros, a value that is not finite makes its row of the result NaN. The integer products of a block are exact; for each
 * block of 32 in order, sum = fma(d * scale of the weights, products, sum) in f32, and what a format has of minima likewise.
 * In q2_k, q3_k and q6_k the products of either half of a block are multiplied by the whole scale of their part first, and in
 * q2_k the sums of q in either half by the whole minimum of theirs: sum = fma(d * -minimum of the weights, those, sum).
 * Products with f16 and bf16 weights round their left factor to that type. Each row of a result depends on its own row of
 * the left factor alone and has the same bits for any number of rows.
 * ============================================================================================================= */

/**
 * Stores rows in a format. q4_0, q4_1, q5_0, q5_1 and q8_0 as the `gguf` package does, to the bit; the others by a search for
 * the scales and minima of least squared error, part by part. (Gerganov et al., ggml-quants)
 * @param x in dtype [rows, k] : numbers; in a block format finite, or the call fails with NNCUDA_ERROR_OUT_OF_RANGE
 * @param y out u8 [rows, row_bytes] : the same in `format`
 * @param rows size : rows
 * @param k size : elements per row, whole blocks
 * @param row_bytes size : bytes per row of y
 * @param format option : NNCUDA_FORMAT_* of y, other than those that are read alone
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_quantize(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes,
                                 int32_t format, int32_t dtype);

/**
 * The numbers that stored rows stand for: in f32 as the `gguf` package computes them, to the bit, then rounded to `dtype`.
 * @param x in u8 [rows, row_bytes] : rows in `format`
 * @param y out dtype [rows, k] : numbers
 * @param rows size : rows
 * @param k size : elements per row, whole blocks
 * @param row_bytes size : bytes per row of x
 * @param format option : NNCUDA_FORMAT_* of x
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_dequantize(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes,
                                   int32_t format, int32_t dtype);

/**
 * Gathers and dequantizes rows of a stored table: y[t] = table[ids[t]].
 * @param table in u8 [vocab, row_bytes] : embeddings in `format`
 * @param ids in i32 [tokens] : rows to take, 0 .. vocab-1
 * @param y out dtype [tokens, dim] : the rows
 * @param tokens size : ids
 * @param vocab size : rows of the table
 * @param dim size : elements per row, whole blocks
 * @param row_bytes size : bytes per row of the table
 * @param format option : NNCUDA_FORMAT_* of the table
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_embedding_quant(nncuda_ctx *ctx, const void *table, const int32_t *ids, void *y,
                                        int64_t tokens, int64_t vocab, int64_t dim, int64_t row_bytes, int32_t format,
                                        int32_t dtype);

/**
 * A linear layer with stored weights: y = activation(x * W^T + bias) + residual. With `offsets`, rows offsets[g] ..
 * offsets[g+1]-1 of x meet the matrix W[g] (the experts' products), and rows from offsets[groups] on are neither read nor
 * written. (Gale et al. 2022, "MegaBlocks")
 * @param x in dtype [m, k] : input
 * @param w in u8 [groups*n, row_bytes] : weights in `format`, a matrix [n, k] a group
 * @param offsets in? i32 [groups+1] : first row of each group; offsets[0] = 0, never falling, at most m; null for all rows and one group
 * @param bias in? dtype [n] : added to each row, or null
 * @param residual in? dtype [m, n] : added at the end, or null
 * @param y out dtype [m, n] alias residual : result
 * @param groups size : matrices; 1 without offsets
 * @param m size : rows, or room for them
 * @param n size : outputs
 * @param k size : inputs, whole blocks
 * @param row_bytes size : bytes per row of w
 * @param activation option default NNCUDA_ACTIVATION_NONE : NNCUDA_ACTIVATION_*
 * @param format option : NNCUDA_FORMAT_* of w
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_gemm_quant(nncuda_ctx *ctx, const void *x, const void *w, const int32_t *offsets,
                                   const void *bias, const void *residual, void *y, int64_t groups, int64_t m,
                                   int64_t n, int64_t k, int64_t row_bytes, int32_t activation, int32_t format,
                                   int32_t dtype);

/**
 * Queries, keys and values in one call, as they come from three gemm_quant: y = [x * Wq^T, x * Wk^T, x * Wv^T] + bias. With
 * `norm`, of the rows that rmsnorm gives, with its bits.
 * @param x in dtype [m, k] : input
 * @param wq in u8 [n_q, row_bytes_q] : weights of the queries
 * @param wk in u8 [n_kv, row_bytes_k] : weights of the keys
 * @param wv in u8 [n_kv, row_bytes_v] : weights of the values
 * @param bias in? dtype [n] : added to each row, or null
 * @param norm in? dtype [k] : gains of the norm of x, or null for x as it is
 * @param y out dtype [m, n] : result
 * @param m size : rows
 * @param n_q size : columns of the queries
 * @param n_kv size : columns of the keys, and of the values
 * @param n size : n_q + 2 * n_kv
 * @param k size : inputs, whole blocks
 * @param row_bytes_q size : bytes per row of wq
 * @param row_bytes_k size : bytes per row of wk
 * @param row_bytes_v size : bytes per row of wv
 * @param eps option default 0 : of the norm: added to the mean square; must be finite and at least 0
 * @param format_q option : NNCUDA_FORMAT_* of wq
 * @param format_k option : NNCUDA_FORMAT_* of wk
 * @param format_v option : NNCUDA_FORMAT_* of wv
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_gemm_quant_qkv(nncuda_ctx *ctx, const void *x, const void *wq, const void *wk, const void *wv,
                                       const void *bias, const void *norm, void *y, int64_t m, int64_t n_q,
                                       int64_t n_kv, int64_t n, int64_t k, int64_t row_bytes_q, int64_t row_bytes_k,
                                       int64_t row_bytes_v, float eps, int32_t format_q, int32_t format_k,
                                       int32_t format_v, int32_t dtype);

/**
 * The gated unit in one call: y = silu(x * Wg^T) * (x * Wu^T), each product and the silu in f32. Groups as in gemm_quant.
 * With `norm`, of the rows that rmsnorm gives, with its bits.
 * (Shazeer 2020, "GLU Variants", eq. 6)
 * @param x in dtype [m, k] : input
 * @param w_gate in u8 [groups*n, row_bytes_gate] : weights of the gate
 * @param w_up in u8 [groups*n, row_bytes_up] : weights of the other factor
 * @param offsets in? i32 [groups+1] : first row of each group; offsets[0] = 0, never falling, at most m; null for all rows and one group
 * @param norm in? dtype [k] : gains of the norm of x, or null for x as it is
 * @param y out dtype [m, n] : result
 * @param groups size : matrices; 1 without offsets
 * @param m size : rows, or room for them
 * @param n size : outputs
 * @param k size : inputs, whole blocks
 * @param row_bytes_gate size : bytes per row of w_gate
 * @param row_bytes_up size : bytes per row of w_up
 * @param eps option default 0 : of the norm: added to the mean square; must be finite and at least 0
 * @param format_gate option : NNCUDA_FORMAT_* of w_gate
 * @param format_up option : NNCUDA_FORMAT_* of w_up
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_gemm_quant_swiglu(nncuda_ctx *ctx, const void *x, const void *w_gate, const void *w_up,
                                          const int32_t *offsets, const void *norm, void *y, int64_t groups, int64_t m,
                                          int64_t n, int64_t k, int64_t row_bytes_gate, int64_t row_bytes_up, float eps,
                                          int32_t format_gate, int32_t format_up, int32_t dtype);

/**
 * The router of a stored mixture of experts: rmsnorm of the residual stream, gemm_quant of what that gives, softmax_topk and
 * moe_plan, with the bits of these calls. On a GPU it is one launch for up to 32 tokens. (Fedus, Zoph, Shazeer 2021, "Switch
 * Transformers"; Gale et al. 2022, "MegaBlocks")
 * @param x in f32 [tokens, dim] : the residual stream
 * @param gains in f32 [dim] : gains of the norm of x
 * @param w in u8 [experts, row_bytes] : weights of the router in `format`
 * @param y out f32 [tokens, dim] : the normed rows, for the experts
 * @param logits out f32 [tokens, experts] : y * W^T
 * @param weights out f32 [tokens, k] : the k probabilities of each token, renormalised if asked
 * @param indices out i32 [tokens, k] : its experts
 * @param probs out f32 [tokens, experts] : all probabilities
 * @param counts out i32 [experts] : slots routed to each expert
 * @param offsets out i32 [experts+1] : first row of each expert
 * @param slot_row out i32 [tokens, k] : row of each slot
 * @param row_slot out i32 [tokens*k] : slot of each row
 * @param tokens size : tokens
 * @param experts size : experts; must be at most 2147483647
 * @param k size : experts per token; must be at most 64 and at most experts
 * @param dim size : elements per token, whole blocks
 * @param row_bytes size : bytes per row of w
 * @param eps option : of the norm: added to the mean square; must be finite and at least 0
 * @param norm flag : 1 divides the k weights by their sum
 * @param format option : NNCUDA_FORMAT_* of w
 */
NNCUDA_API int32_t cuda_gemm_quant_route(nncuda_ctx *ctx, const float *x, const float *gains, const void *w, float *y,
                                         float *logits, float *weights, int32_t *indices, float *probs,
                                         int32_t *counts, int32_t *offsets, int32_t *slot_row, int32_t *row_slot,
                                         int64_t tokens, int64_t experts, int64_t k, int64_t dim, int64_t row_bytes,
                                         float eps, int32_t norm, int32_t format);

/**
 * The experts of a stored mixture: y[t] = residual[t] + sum over a token's experts of weight * ((silu(x[t] * Wg^T) *
 * (x[t] * Wu^T)) * Wd^T), as moe_gather, gemm_quant_swiglu, gemm_quant and moe_combine give it, with the bits of these calls.
 * On a GPU it is two launches where there is about a row an expert: tokens are gathered where they are loaded, and a token's
 * rows added up by the blocks that end last. (Shazeer 2020, "GLU Variants", eq. 6; Gale et al. 2022, "MegaBlocks")
 * @param x in f32 [tokens, dim] : the normed rows
 * @param w_gate in u8 [experts*n, row_bytes_gate] : weights of the gate, a matrix [n, dim] an expert
 * @param w_up in u8 [experts*n, row_bytes_up] : weights of the other factor
 * @param w_down in u8 [experts*dim, row_bytes_down] : weights of the last product, a matrix [dim, n] an expert
 * @param weights in f32 [tokens, k] : from gemm_quant_route
 * @param offsets in i32 [experts+1] : from gemm_quant_route; offsets[0] = 0, never falling, at most tokens*k
 * @param slot_row in i32 [tokens, k] : from gemm_quant_route
 * @param row_slot in i32 [tokens*k] : from gemm_quant_route
 * @param residual in? f32 [tokens, dim] : added, or null
 * @param y out f32 [tokens, dim] alias residual : output
 * @param tokens size : tokens
 * @param experts size : experts
 * @param k size : experts per token
 * @param dim size : elements per token, whole blocks
 * @param n size : outputs of gate and up, whole blocks
 * @param row_bytes_gate size : bytes per row of w_gate
 * @param row_bytes_up size : bytes per row of w_up
 * @param row_bytes_down size : bytes per row of w_down
 * @param format_gate option : NNCUDA_FORMAT_* of w_gate
 * @param format_up option : NNCUDA_FORMAT_* of w_up
 * @param format_down option : NNCUDA_FORMAT_* of w_down
 */
NNCUDA_API int32_t cuda_gemm_quant_experts(nncuda_ctx *ctx, const float *x, const void *w_gate, const void *w_up,
                                           const void *w_down, const float *weights, const int32_t *offsets,
                                           const int32_t *slot_row, const int32_t *row_slot, const float *residual,
                                           float *y, int64_t tokens, int64_t experts, int64_t k, int64_t dim,
                                           int64_t n, int64_t row_bytes_gate, int64_t row_bytes_up,
                                           int64_t row_bytes_down, int32_t format_gate, int32_t format_up,
                                           int32_t format_down);

/**
 * Puts the stored rows of a matrix into the order that products on a CPU read fastest: sixteen of them side by side, so that
 * one word of each fills a vector. Products with the result have the same bits. Of each sixteen rows, block after block of
 * `format`; of a block its fields, cut into words of four bytes; of each field or word those of the sixteen rows. q6_k: the f16
 * scale, the scale of each of 16 parts (one byte each), then for both halves of 128 elements and for i = 0 .. 7 words i and i+8
 * of the half's low bits and word i of its high bits. q2_k: the
 * f16 scale and minimum, then the words of its parts' scales and those of its codes. q3_k: the f16 scale, the three words of its
 * parts' scales, those of its high bits and those of its low bits. All others in the order of the block: its scale, of f16 or, in mxfp4, one
 * byte, its f16 minimum where it has one, and words; iq4_xs, whose scales fill two words, words alone.
 * @param x in u8 [rows, row_bytes] : rows in `format`
 * @param y out u8 [rows, row_bytes] : the same in its _R16 form
 * @param rows size : rows; must be a multiple of 16
 * @param k size : elements per row, whole blocks
 * @param row_bytes size : bytes per row
 * @param format option : NNCUDA_FORMAT_*: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, Q2_K, Q3_K, IQ4_NL, MXFP4 or IQ4_XS
 */
NNCUDA_API int32_t cuda_interleave_rows(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k,
                                        int64_t row_bytes, int32_t format);

/* ================================================================================================================
 * section: ternary
 * Linear layers with weights -1, 0 and 1 and 8-bit activations. (Ma et al. 2024, "The Era of 1-bit LLMs"; Ma et al. 2025,
 * "BitNet b1.58 2B4T Technical Report")
 *
 * Packed weights (tern2) have two bits each, code + 1, in words of four bytes: of sixteen rows and sixteen columns at a time,
 * byte j of the word of row r has at bits 2i the weight of row r and column j + 4i. Words lie as [row / 16][column / 16][row
 * mod 16]; rows and columns that fill up the last sixteen have code 0. Integer products are exact in 32 bits, and so the same
 * to the bit on every engine and instruction set.
 * ============================================================================================================= */

/**
 * Rounds rows to 8 bits, each with a scale of its own: with a = max(max |x|, 1e-5), codes = rint(x * (127/a)), ties to even,
 * scale = a/127, all in f32. A row with a value that is not finite gets codes 0 and scale NaN. (Ma et al. 2024, eq. 4)
 * @param x in dtype [rows, cols] : activations
 * @param codes out i8 [rows, cols] : -127 .. 127
 * @param scale out f32 [rows] : x is about codes * scale
 * @param rows size : rows
 * @param cols size : columns
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_act_quant_i8(nncuda_ctx *ctx, const void *x, void *codes, float *scale, int64_t rows,
                                     int64_t cols, int32_t dtype);

/**
 * RMSNorm and act_quant_i8 in one pass: the bits of cuda_rmsnorm, its result rounded to dtype, then of cuda_act_quant_i8.
 * @param x in dtype [rows, cols] : input
 * @param weight in dtype [cols] : gain
 * @param codes out i8 [rows, cols] : the norm in 8 bits
 * @param scale out f32 [rows] : the norm is about codes * scale
 * @param rows size : rows
 * @param cols size : columns
 * @param eps option : added to the mean square; must be finite and at least 0
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_rmsnorm_quant_i8(nncuda_ctx *ctx, const void *x, const void *weight, void *codes,
                                         float *scale, int64_t rows, int64_t cols, float eps, int32_t dtype);

/**
 * Ternary weights by their mean magnitude: with s = max(mean |x|, 1e-5), codes = rint(x * (1/s)) cut to -1 .. 1, ties to even.
 * The mean is taken in f64: in each row, column by column, sixteen sums, of the columns equal modulo 16, then sum j + sum
 * j + 8, the same with 4, 2 and 1; then row after row; the quotient is rounded to f32 once. A value that is not finite makes
 * the call fail with NNCUDA_ERROR_OUT_OF_RANGE. (Ma et al. 2024, eqs. 1 to 3)
 * @param x in dtype [n, k] : weights
 * @param codes out i8 [n, k] : -1, 0, 1
 * @param scale out f32 [1] : s; x is about codes * scale
 * @param n size : outputs
 * @param k size : inputs
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_ternary_quantize(nncuda_ctx *ctx, const void *x, void *codes, float *scale, int64_t n,
                                         int64_t k, int32_t dtype);

/**
 * Packs ternary weights. A code other than -1, 0 and 1 makes the call fail with NNCUDA_ERROR_OUT_OF_RANGE.
 * @param codes in i8 [n, k] : -1, 0, 1
 * @param w out u8 [stored, row_bytes] : packed weights
 * @param n size : outputs
 * @param k size : inputs
 * @param stored size : n rounded up to a multiple of 16
 * @param row_bytes size : k/16 rounded up, times 4
 */
NNCUDA_API int32_t cuda_ternary_pack(nncuda_ctx *ctx, const void *codes, void *w, int64_t n, int64_t k,
                                     int64_t stored, int64_t row_bytes);

/**
 * The codes of packed weights. Two bits that are no code (3) make the call fail with NNCUDA_ERROR_OUT_OF_RANGE.
 * @param w in u8 [stored, row_bytes] : packed weights
 * @param codes out i8 [n, k] : -1, 0, 1
 * @param n size : outputs
 * @param k size : inputs
 * @param stored size : n rounded up to a multiple of 16
 * @param row_bytes size : k/16 rounded up, times 4
 */
NNCUDA_API int32_t cuda_ternary_unpack(nncuda_ctx *ctx, const void *w, void *codes, int64_t n, int64_t k,
                                       int64_t stored, int64_t row_bytes);

/**
 * A linear layer with ternary weights: y = float(codes * W^T) * (scale * w_scale) + residual, the product of integers exact,
 * its conversion to f32, the product of the scales, the product of the two and the sum each rounded once to f32. With dtype
 * i32, y is the integers, and scale, w_scale and residual must be null. Two bits 3, which are no code, count as 2.
 * @param codes in i8 [m, k] : activations, from act_quant_i8 or rmsnorm_quant_i8
 * @param scale in? f32 [m] : of each row of the activations; null for i32
 * @param w in u8 [stored, row_bytes] : weights from ternary_pack
 * @param w_scale in? f32 [n] : of each output, so that matrices with scales of their own can be one; null for i32
 * @param residual in? dtype [m, n] : added at the end, or null
 * @param y out dtype [m, n] alias residual : result
 * @param m size : rows
 * @param n size : outputs
 * @param k size : inputs; must be at most 262144
 * @param stored size : n rounded up to a multiple of 16
 * @param row_bytes size : k/16 rounded up, times 4
 * @param dtype dtype : f32, f16, bf16, i32
 */
NNCUDA_API int32_t cuda_bitlinear(nncuda_ctx *ctx, const void *codes, const float *scale, const void *w,
                                  const float *w_scale, const void *residual, void *y, int64_t m, int64_t n, int64_t k,
                                  int64_t stored, int64_t row_bytes, int32_t dtype);

/**
 * A linear layer with ternary weights and the norm before it: bitlinear of what rmsnorm_quant_i8 makes of x, or act_quant_i8
 * where there are no gains, with the bits of these two calls.
 * @param x in dtype [m, k] : input
 * @param norm in? dtype [k] : gains of the norm of x, or null for x as it is
 * @param w in u8 [stored, row_bytes] : weights from ternary_pack
 * @param w_scale in f32 [n] : of each output, so that matrices with scales of their own can be one
 * @param residual in? dtype [m, n] : added at the end, or null
 * @param y out dtype [m, n] alias residual : result
 * @param m size : rows
 * @param n size : outputs
 * @param k size : inputs; must be at most 262144
 * @param stored size : n rounded up to a multiple of 16
 * @param row_bytes size : k/16 rounded up, times 4
 * @param eps option default 0 : of the norm: added to the mean square; must be finite and at least 0
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_bitlinear_norm(nncuda_ctx *ctx, const void *x, const void *norm, const void *w,
                                       const float *w_scale, const void *residual, void *y, int64_t m, int64_t n,
                                       int64_t k, int64_t stored, int64_t row_bytes, float eps, int32_t dtype);

/* ================================================================================================================
 * section: lora
 * Gradients through weights that stay as they are stored, for adapters beside them. (Hu et al. 2021, "LoRA: Low-Rank
 * Adaptation of Large Language Models", section 4)
 *
 * The weights are read as numbers of `dtype`, as dequantize rounds them, and products accumulate in f32, as in gemm. On a CPU
 * each row of a result depends on its own row of the left factor alone and has the same bits for any number of rows.
 * ============================================================================================================= */

/**
 * The gradient of a linear layer with stored weights with respect to its input: dx = dy * W + beta * dx, of the layer y = x *
 * W^T that gemm_quant computes. Groups as in gemm_quant. (Hu et al. 2021, section 4.1: W is frozen, its gradient not needed)
 * @param dy in dtype [m, n] : gradient of y
 * @param w in u8 [groups*n, row_bytes] : weights in `format`, a matrix [n, k] a group
 * @param offsets in? i32 [groups+1] : first row of each group; offsets[0] = 0, never falling, at most m; null for all rows and one group
 * @param dx inout dtype [m, k] : gradient of x; not read with beta = 0
 * @param groups size : matrices; 1 without offsets
 * @param m size : rows, or room for them
 * @param n size : outputs of the layer
 * @param k size : its inputs, whole blocks
 * @param row_bytes size : bytes per row of w
 * @param beta option default 0 : factor of the old dx
 * @param format option : NNCUDA_FORMAT_* of w, none of the _R16
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_gemm_quant_backward(nncuda_ctx *ctx, const void *dy, const void *w, const int32_t *offsets,
                                            void *dx, int64_t groups, int64_t m, int64_t n, int64_t k,
                                            int64_t row_bytes, float beta, int32_t format, int32_t dtype);

/**
 * The gradient of a linear layer with ternary weights with respect to its input: dx = dy * (w_scale * W) + beta * dx, of the
 * layer that bitlinear computes, with the rounding of its input to 8 bits taken as the identity. (Bengio, Léonard, Courville
 * 2013, "Estimating or Propagating Gradients Through Stochastic Neurons", section 4; Ma et al. 2024, section 2)
 * @param dy in dtype [m, n] : gradient of y
 * @param w in u8 [stored, row_bytes] : weights from ternary_pack; two bits 3, which are no code, count as 2
 * @param w_scale in f32 [n] : of each output
 * @param dx inout dtype [m, k] : gradient of x; not read with beta = 0
 * @param m size : rows
 * @param n size : outputs of the layer
 * @param k size : its inputs
 * @param stored size : n rounded up to a multiple of 16
 * @param row_bytes size : k/16 rounded up, times 4
 * @param beta option default 0 : factor of the old dx
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_bitlinear_backward(nncuda_ctx *ctx, const void *dy, const void *w, const float *w_scale,
                                           void *dx, int64_t m, int64_t n, int64_t k, int64_t stored,
                                           int64_t row_bytes, float beta, int32_t dtype);

/* ================================================================================================================
 * section: digest
 * ============================================================================================================= */

/**
 * Adds up a digest of memory that hangs on each of its bits and on where it is, in whole numbers modulo 2^64, so that parts
 * may be taken in any order, by anyone, and their sums added. With j = first + i and b the bits of element i as a number:
 *   z = ((j mod 2^32) 2^32 + b) + (1 + floor(j / 2^32)) 0x9e3779b97f4a7c15
 *   z ^= z >> 30, z *= 0xbf58476d1ce4e5b9, z ^= z >> 27, z *= 0x94d049bb133111eb, z ^= z >> 31; sums[0] += z
 *   z ^= z >> 32, z *= 0xd6e8feb86659fd93, z ^= z >> 32; sums[1] += z
 * Each step can be undone, so that a change within one element always changes both sums; changes of several elements leave
 * both as they were by a chance of about 2^-128. It finds faults: who wants to can make other memory with the same sums.
 * (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", with the constants of Stafford 2011, variant 13)
 * @param x in u8 [n, width] : elements, one after the other
 * @param sums acc i64 [2] : both sums
 * @param n size : elements
 * @param width size : bytes of an element: 1, 2 or 4
 * @param first option default 0 : index of the first element; must be at least 0
 */
NNCUDA_API int32_t cuda_digest(nncuda_ctx *ctx, const void *x, int64_t *sums, int64_t n, int64_t width,
                               int64_t first);

/* ================================================================================================================
 * section: random
 * Philox4x32-10 (Salmon et al. 2011): key = seed (low word first), counter = (block low, block high, stream low, stream
 * high). Element i comes from word i mod 4 of block offset + i / 4, so any part of a sequence can be made on its own.
 * ============================================================================================================= */

/**
 * The generator's own 32-bit words.
 * @param y out i32 [n] : words, as bits
 * @param n size : elements
 * @param seed option : key
 * @param stream option default 0 : upper half of the counter
 * @param offset option default 0 : block of the first element
 */
NNCUDA_API int32_t cuda_random_bits(nncuda_ctx *ctx, int32_t *y, int64_t n, int64_t seed, int64_t stream,
                                    int64_t offset);

/**
 * Uniform numbers: y = low + (high - low) * (word >> 8) * 2^-24, so low <= y, and y < high before rounding.
 * @param y out dtype [n] : numbers
 * @param n size : elements
 * @param low option default 0 : lower end; must be finite
 * @param high option default 1 : upper end; must be at least low
 * @param seed option : key
 * @param stream option default 0 : upper half of the counter
 * @param offset option default 0 : block of the first element
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_uniform(nncuda_ctx *ctx, void *y, int64_t n, float low, float high, int64_t seed,
                                int64_t stream, int64_t offset, int32_t dtype);

/**
 * Normal numbers by Box and Muller (1958): each pair of words (a, b) with u = ((a >> 8) + 1) * 2^-24, w = (b >> 8) * 2^-24
 * gives r*cos(2 pi w) and r*sin(2 pi w), r = sqrt(-2 log u); y = mean + std * that.
 * @param y out dtype [n] : numbers
 * @param n size : elements
 * @param mean option default 0 : mean; must be finite
 * @param std option default 1 : standard deviation; must be finite and at least 0
 * @param seed option : key
 * @param stream option default 0 : upper half of the counter
 * @param offset option default 0 : block of the first element
 * @param dtype dtype : f32, f16, bf16
 */
NNCUDA_API int32_t cuda_normal(nncuda_ctx *ctx, void *y, int64_t n, float mean, float std, int64_t seed, int64_t stream,
                               int64_t offset, int32_t dtype);

#ifdef __cplusplus
}
#endif

#endif
