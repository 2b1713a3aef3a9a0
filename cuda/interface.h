/* Generated from bindings.h by `make generate`. Do not edit. */
/* clang-format off */
#ifndef NN_INTERFACE_H
#define NN_INTERFACE_H

#include <stdint.h>

#define NNCUDA_API __attribute__((visibility("default")))
#define NNCUDA_ABI_MAJOR 2
#define NNCUDA_ABI_MINOR 0

enum {
  NNCUDA_SUCCESS = 0,
  NNCUDA_ERROR_INVALID_CONTEXT = 10,
  NNCUDA_ERROR_NULL_POINTER = 11,
  NNCUDA_ERROR_INVALID_SIZE = 12,
  NNCUDA_ERROR_INVALID_DTYPE = 13,
  NNCUDA_ERROR_INVALID_VALUE = 14,
  NNCUDA_ERROR_MISALIGNED = 15,
  NNCUDA_ERROR_WRONG_DEVICE = 16,
  NNCUDA_ERROR_ALIASED = 17,
  NNCUDA_ERROR_OUT_OF_RANGE = 20,
  NNCUDA_ERROR_OUT_OF_MEMORY = 30,
  NNCUDA_ERROR_UNSUPPORTED = 40,
  NNCUDA_ERROR_NO_DEVICE = 41,
  NNCUDA_ERROR_CAPTURING = 50,
  NNCUDA_ERROR_STATE = 51,
  NNCUDA_ERROR_BUSY = 52,
  NNCUDA_ERROR_DEVICE = 60,
  NNCUDA_ERROR_PEER = 61,
  NNCUDA_ERROR_INTERNAL = 70,
};

enum {
  NNCUDA_F32 = 0,
  NNCUDA_F16 = 1,
  NNCUDA_BF16 = 2,
  NNCUDA_I32 = 3,
  NNCUDA_I8 = 4,
};

enum {
  NNCUDA_FORMAT_F32 = 0,
  NNCUDA_FORMAT_F16 = 1,
  NNCUDA_FORMAT_BF16 = 2,
  NNCUDA_FORMAT_Q4_0 = 10,
  NNCUDA_FORMAT_Q4_1 = 11,
  NNCUDA_FORMAT_Q5_0 = 12,
  NNCUDA_FORMAT_Q5_1 = 13,
  NNCUDA_FORMAT_Q8_0 = 14,
  NNCUDA_FORMAT_Q4_K = 15,
  NNCUDA_FORMAT_Q5_K = 16,
  NNCUDA_FORMAT_Q6_K = 17,
  NNCUDA_FORMAT_IQ4_NL = 18,
  NNCUDA_FORMAT_MXFP4 = 19,
  NNCUDA_FORMAT_E4M3 = 20,
  NNCUDA_FORMAT_IQ4_XS = 21,
  NNCUDA_FORMAT_Q2_K = 22,
  NNCUDA_FORMAT_Q3_K = 23,
  NNCUDA_FORMAT_Q4_0_R16 = 30,
  NNCUDA_FORMAT_Q4_1_R16 = 31,
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
  NNCUDA_FORMAT_Q3_K_R16 = 43,
};

enum {
  NNCUDA_DEVICE_CPU = 1,
  NNCUDA_DEVICE_CUDA = 2,
};

enum {
  NNCUDA_ISA_BASELINE = 0,
  NNCUDA_ISA_AVX2 = 1,
  NNCUDA_ISA_AVX512 = 2,
  NNCUDA_ISA_AVX512BF16 = 3,
  NNCUDA_ISA_AMX = 4,
  NNCUDA_ISA_NEON = 5,
  NNCUDA_ISA_DOTPROD = 6,
  NNCUDA_ISA_I8MM = 7,
};

enum {
  NNCUDA_CTX_THREADS = 0,
  NNCUDA_CTX_ISA = 1,
  NNCUDA_CTX_DEVICE = 2,
  NNCUDA_CTX_DEVICE_INDEX = 3,
  NNCUDA_CTX_BYTES_USED = 4,
  NNCUDA_CTX_BYTES_PEAK = 5,
  NNCUDA_CTX_BYTES_POOLED = 6,
  NNCUDA_CTX_BYTES_ARENA = 7,
  NNCUDA_CTX_TF32 = 8,
  NNCUDA_CTX_MEASURING = 9,
  NNCUDA_CTX_MULTIPROCESSORS = 10,
  NNCUDA_CTX_BYTES_HELD = 11,
  NNCUDA_CTX_TWO_PARTS = 12,
  NNCUDA_CTX_NODES = 13,
};

enum {
  NNCUDA_HOST_TO_DEVICE = 1,
  NNCUDA_DEVICE_TO_HOST = 2,
  NNCUDA_DEVICE_TO_DEVICE = 3,
};

enum {
  NNCUDA_ROPE_HALF = 0,
  NNCUDA_ROPE_INTERLEAVED = 1,
};

enum {
  NNCUDA_ACTIVATION_NONE = 0,
  NNCUDA_ACTIVATION_SILU = 1,
};

enum {
  NNCUDA_REPORT_TABLE = 0,
  NNCUDA_REPORT_JSON = 1,
  NNCUDA_REPORT_CHROME_TRACE = 2,
};

enum {
  NNCUDA_TRANSPORT_SELF = 0,
  NNCUDA_TRANSPORT_THREADS = 1,
  NNCUDA_TRANSPORT_MPI = 2,
  NNCUDA_TRANSPORT_NCCL = 3,
  NNCUDA_TRANSPORT_AUTO = 4,
};

enum {
  NNCUDA_EXPERTS_RUN = 0,
  NNCUDA_EXPERTS_ADD = 1,
  NNCUDA_EXPERTS_COPY = 2,
  NNCUDA_EXPERTS_ROUND = 3,
};

typedef struct nncuda_ctx nncuda_ctx;
typedef struct nncuda_stream nncuda_stream;
typedef struct nncuda_event nncuda_event;
typedef struct nncuda_graph nncuda_graph;
typedef struct nncuda_comm nncuda_comm;

#ifdef __cplusplus
extern "C" {
#endif
NNCUDA_API int32_t nncuda_abi_version(void);
NNCUDA_API const char *nncuda_build_info(void);
NNCUDA_API const char *nncuda_status_name(int32_t status);
NNCUDA_API const char *nncuda_status_string(int32_t status);
NNCUDA_API int32_t nncuda_dtype_size(int32_t dtype, int64_t *bytes);
NNCUDA_API int32_t nncuda_format_row_bytes(int32_t format, int64_t elements, int64_t *bytes);
NNCUDA_API int32_t nncuda_device_count(int32_t device, int32_t *count);
NNCUDA_API int32_t nncuda_device_describe(int32_t device, int32_t index, char *text, int64_t capacity);
NNCUDA_API int32_t nncuda_ctx_create(int32_t device, int32_t index, nncuda_ctx **ctx);
NNCUDA_API int32_t nncuda_ctx_create_measuring(int32_t device, int32_t isa, int32_t threads, int32_t multiprocessors, nncuda_ctx **ctx);
NNCUDA_API int32_t nncuda_ctx_destroy(nncuda_ctx *ctx);
NNCUDA_API int32_t nncuda_ctx_synchronize(nncuda_ctx *ctx);
NNCUDA_API int32_t nncuda_ctx_get(nncuda_ctx *ctx, int32_t attribute, int64_t *value);
NNCUDA_API int32_t nncuda_ctx_set(nncuda_ctx *ctx, int32_t attribute, int64_t value);
NNCUDA_API const char *nncuda_last_error(nncuda_ctx *ctx);
NNCUDA_API int32_t nncuda_malloc(nncuda_ctx *ctx, int64_t bytes, void **pointer);
NNCUDA_API int32_t nncuda_malloc_parts(nncuda_ctx *ctx, int64_t bytes, const int64_t *ranges, int64_t count, void **pointer);
NNCUDA_API int32_t nncuda_free(nncuda_ctx *ctx, void *pointer);
NNCUDA_API int32_t nncuda_malloc_host(nncuda_ctx *ctx, int64_t bytes, void **pointer);
NNCUDA_API int32_t nncuda_free_host(nncuda_ctx *ctx, void *pointer);
NNCUDA_API int32_t nncuda_memory_info(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes);
NNCUDA_API int32_t nncuda_memset(nncuda_ctx *ctx, void *pointer, int32_t value, int64_t bytes);
NNCUDA_API int32_t nncuda_memcpy(nncuda_ctx *ctx, void *destination, const void *source, int64_t bytes, int32_t kind);
NNCUDA_API int32_t nncuda_memcpy_async(nncuda_ctx *ctx, nncuda_stream *stream, void *destination, const void *source, int64_t bytes, int32_t kind);
NNCUDA_API int32_t nncuda_stream_create(nncuda_ctx *ctx, nncuda_stream **stream);
NNCUDA_API int32_t nncuda_stream_destroy(nncuda_ctx *ctx, nncuda_stream *stream);
NNCUDA_API int32_t nncuda_stream_synchronize(nncuda_ctx *ctx, nncuda_stream *stream);
NNCUDA_API int32_t nncuda_stream_wait_event(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event);
NNCUDA_API int32_t nncuda_event_create(nncuda_ctx *ctx, nncuda_event **event);
NNCUDA_API int32_t nncuda_event_destroy(nncuda_ctx *ctx, nncuda_event *event);
NNCUDA_API int32_t nncuda_event_record(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event);
NNCUDA_API int32_t nncuda_event_synchronize(nncuda_ctx *ctx, nncuda_event *event);
NNCUDA_API int32_t nncuda_event_query(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened);
NNCUDA_API int32_t nncuda_event_elapsed(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds);
NNCUDA_API int32_t nncuda_graph_begin(nncuda_ctx *ctx);
NNCUDA_API int32_t nncuda_graph_end(nncuda_ctx *ctx, nncuda_graph **graph);
NNCUDA_API int32_t nncuda_graph_launch(nncuda_ctx *ctx, nncuda_graph *graph);
NNCUDA_API int32_t nncuda_graph_size(nncuda_ctx *ctx, nncuda_graph *graph, int64_t *nodes);
NNCUDA_API int32_t nncuda_graph_destroy(nncuda_ctx *ctx, nncuda_graph *graph);
NNCUDA_API int32_t nncuda_profile_begin(nncuda_ctx *ctx);
NNCUDA_API int32_t nncuda_profile_end(nncuda_ctx *ctx);
NNCUDA_API int32_t nncuda_profile_report(nncuda_ctx *ctx, int32_t form, char *text, int64_t capacity, int64_t *needed);
NNCUDA_API int32_t nncuda_trace_begin(nncuda_ctx *ctx, int64_t values);
NNCUDA_API int32_t nncuda_trace_begin_nonfinite(nncuda_ctx *ctx);
NNCUDA_API int32_t nncuda_trace_begin_shadow(nncuda_ctx *ctx, nncuda_ctx *reference);
NNCUDA_API int32_t nncuda_trace_label(nncuda_ctx *ctx, const char *label, int64_t length);
NNCUDA_API int32_t nncuda_trace_end(nncuda_ctx *ctx);
NNCUDA_API int32_t nncuda_trace_read(nncuda_ctx *ctx, char *text, int64_t capacity, int64_t *needed);
NNCUDA_API int32_t nncuda_data_order(nncuda_ctx *ctx, int64_t seed, int64_t first, int64_t count, int64_t windows, int64_t *indices);
NNCUDA_API int32_t nncuda_shard(int64_t count, int64_t grain, int64_t parts, int64_t part, int64_t *begin, int64_t *end);
NNCUDA_API int32_t nncuda_expert_shards(int64_t n, int64_t grain, int64_t ranks, int64_t group, const int64_t *experts, int64_t matrices, int64_t *shards, int64_t capacity, int64_t *count);
NNCUDA_API int32_t nncuda_replica_merges(int64_t replicas, int64_t first, int64_t replica, int64_t *merges);
NNCUDA_API int32_t nncuda_expert_schedule(int64_t replicas, int64_t ranks, int64_t first, int64_t group, int64_t micro_batches, int64_t position, int64_t *events, int64_t capacity, int64_t *count, int64_t *slots);
NNCUDA_API int32_t nncuda_comm_create(nncuda_ctx *ctx, int32_t transport, const char *address, int64_t length, int64_t rank, int64_t ranks, int64_t timeout_ms, nncuda_comm **comm);
NNCUDA_API int32_t nncuda_comm_rank(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *rank, int64_t *ranks);
NNCUDA_API int32_t nncuda_comm_split(nncuda_ctx *ctx, nncuda_comm *comm, int64_t color, int64_t key, nncuda_comm **part);
NNCUDA_API int32_t nncuda_comm_part(nncuda_ctx *ctx, nncuda_comm *comm, int64_t first, int64_t step, int64_t count, nncuda_comm **part);
NNCUDA_API int32_t nncuda_comm_destroy(nncuda_ctx *ctx, nncuda_comm *comm);
NNCUDA_API int32_t nncuda_comm_abort(nncuda_ctx *ctx, nncuda_comm *comm, const char *reason, int64_t length);
NNCUDA_API int32_t nncuda_comm_agree(nncuda_ctx *ctx, nncuda_comm *comm, const char *what, int64_t length, const void *value, int64_t bytes);
NNCUDA_API int32_t nncuda_comm_sum(nncuda_ctx *ctx, nncuda_comm *comm, int64_t value, int64_t *total);
NNCUDA_API int32_t nncuda_comm_barrier(nncuda_ctx *ctx, nncuda_comm *comm);
NNCUDA_API int32_t nncuda_comm_bytes_sent(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *bytes);
NNCUDA_API int32_t nncuda_comm_broadcast(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t root);
NNCUDA_API int32_t nncuda_comm_all_gather(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t grain);
NNCUDA_API int32_t nncuda_comm_all_reduce(nncuda_ctx *ctx, nncuda_comm *comm, float *x, int64_t n);
NNCUDA_API int32_t nncuda_comm_reduce_scatter(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire);
NNCUDA_API int32_t nncuda_comm_reduce_scatter_room(nncuda_ctx *ctx, nncuda_comm *comm, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire, int64_t *size);
NNCUDA_API int32_t nncuda_comm_reduce_scatter_begin(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire, float *room, int64_t room_size);
NNCUDA_API int32_t nncuda_comm_reduce_scatter_end(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire, float *room, int64_t room_size);
NNCUDA_API int32_t nncuda_comm_move(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, const int64_t *moves, int64_t count);
NNCUDA_API int32_t nncuda_comm_dispatch(nncuda_ctx *ctx, nncuda_comm *comm, const void *x, const int32_t *offsets, void *y, int32_t *y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t own);
NNCUDA_API int32_t nncuda_comm_collect(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, const int32_t *y_offsets, void *x, const int32_t *offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t own);
NNCUDA_API int32_t nncuda_comm_dispatch_begin(nncuda_ctx *ctx, nncuda_comm *comm, const void *x, const int32_t *offsets, void *y, int32_t *y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t own, int32_t known);
NNCUDA_API int32_t nncuda_comm_dispatch_end(nncuda_ctx *ctx, nncuda_comm *comm, void *y, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t source);
NNCUDA_API int32_t nncuda_comm_collect_begin(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, void *x, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t source);
NNCUDA_API int32_t nncuda_comm_collect_end(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, void *x, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks);
NNCUDA_API int32_t nncuda_comm_grad_norm(nncuda_ctx *ctx, nncuda_comm *comm, const float *grad, float *norm, int64_t n, const int64_t *shards, int64_t count);
#ifdef __cplusplus
}
#endif

#endif
