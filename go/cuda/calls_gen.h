/* Generated from bindings.h by `make generate`. Do not edit. */
#ifndef NNCUDA_GO_CALLS_H
#define NNCUDA_GO_CALLS_H

#include "loader.h"

/* Places in device memory are numbers here: to Go they are no pointers. */
static inline int32_t call_nncuda_abi_version(void) {
  return nn_api.nncuda_abi_version();
}
static inline const char *call_nncuda_build_info(void) {
  return nn_api.nncuda_build_info();
}
static inline const char *call_nncuda_status_name(int32_t status) {
  return nn_api.nncuda_status_name(status);
}
static inline const char *call_nncuda_status_string(int32_t status) {
  return nn_api.nncuda_status_string(status);
}
static inline int32_t call_nncuda_dtype_size(int32_t dtype, int64_t *bytes) {
  return nn_api.nncuda_dtype_size(dtype, bytes);
}
static inline int32_t call_nncuda_format_row_bytes(int32_t format, int64_t elements, int64_t *bytes) {
  return nn_api.nncuda_format_row_bytes(format, elements, bytes);
}
static inline int32_t call_nncuda_device_count(int32_t device, int32_t *count) {
  return nn_api.nncuda_device_count(device, count);
}
static inline int32_t call_nncuda_device_describe(int32_t device, int32_t index, char *text, int64_t capacity) {
  return nn_api.nncuda_device_describe(device, index, text, capacity);
}
static inline int32_t call_nncuda_ctx_create(int32_t device, int32_t index, nncuda_ctx **ctx) {
  return nn_api.nncuda_ctx_create(device, index, ctx);
}
static inline int32_t call_nncuda_ctx_create_measuring(int32_t device, int32_t isa, int32_t threads, int32_t multiprocessors, nncuda_ctx **ctx) {
  return nn_api.nncuda_ctx_create_measuring(device, isa, threads, multiprocessors, ctx);
}
static inline int32_t call_nncuda_ctx_destroy(nncuda_ctx *ctx) {
  return nn_api.nncuda_ctx_destroy(ctx);
}
static inline int32_t call_nncuda_ctx_synchronize(nncuda_ctx *ctx) {
  return nn_api.nncuda_ctx_synchronize(ctx);
}
static inline int32_t call_nncuda_ctx_get(nncuda_ctx *ctx, int32_t attribute, int64_t *value) {
  return nn_api.nncuda_ctx_get(ctx, attribute, value);
}
static inline int32_t call_nncuda_ctx_set(nncuda_ctx *ctx, int32_t attribute, int64_t value) {
  return nn_api.nncuda_ctx_set(ctx, attribute, value);
}
static inline const char *call_nncuda_last_error(nncuda_ctx *ctx) {
  return nn_api.nncuda_last_error(ctx);
}
static inline int32_t call_nncuda_malloc(nncuda_ctx *ctx, int64_t bytes, uintptr_t *pointer) {
  return nn_api.nncuda_malloc(ctx, bytes, (void **)pointer);
}
static inline int32_t call_nncuda_malloc_parts(nncuda_ctx *ctx, int64_t bytes, const int64_t *ranges, int64_t count, uintptr_t *pointer) {
  return nn_api.nncuda_malloc_parts(ctx, bytes, ranges, count, (void **)pointer);
}
static inline int32_t call_nncuda_free(nncuda_ctx *ctx, uintptr_t pointer) {
  return nn_api.nncuda_free(ctx, (void *)pointer);
}
static inline int32_t call_nncuda_malloc_host(nncuda_ctx *ctx, int64_t bytes, uintptr_t *pointer) {
  return nn_api.nncuda_malloc_host(ctx, bytes, (void **)pointer);
}
static inline int32_t call_nncuda_free_host(nncuda_ctx *ctx, uintptr_t pointer) {
  return nn_api.nncuda_free_host(ctx, (void *)pointer);
}
static inline int32_t call_nncuda_memory_info(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes) {
  return nn_api.nncuda_memory_info(ctx, free_bytes, total_bytes);
}
static inline int32_t call_nncuda_memset(nncuda_ctx *ctx, uintptr_t pointer, int32_t value, int64_t bytes) {
  return nn_api.nncuda_memset(ctx, (void *)pointer, value, bytes);
}
static inline int32_t call_nncuda_memcpy(nncuda_ctx *ctx, uintptr_t destination, uintptr_t source, int64_t bytes, int32_t kind) {
  return nn_api.nncuda_memcpy(ctx, (void *)destination, (const void *)source, bytes, kind);
}
static inline int32_t call_nncuda_memcpy_async(nncuda_ctx *ctx, nncuda_stream *stream, uintptr_t destination, uintptr_t source, int64_t bytes, int32_t kind) {
  return nn_api.nncuda_memcpy_async(ctx, stream, (void *)destination, (const void *)source, bytes, kind);
}
static inline int32_t call_nncuda_stream_create(nncuda_ctx *ctx, nncuda_stream **stream) {
  return nn_api.nncuda_stream_create(ctx, stream);
}
static inline int32_t call_nncuda_stream_destroy(nncuda_ctx *ctx, nncuda_stream *stream) {
  return nn_api.nncuda_stream_destroy(ctx, stream);
}
static inline int32_t call_nncuda_stream_synchronize(nncuda_ctx *ctx, nncuda_stream *stream) {
  return nn_api.nncuda_stream_synchronize(ctx, stream);
}
static inline int32_t call_nncuda_stream_wait_event(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  return nn_api.nncuda_stream_wait_event(ctx, stream, event);
}
static inline int32_t call_nncuda_event_create(nncuda_ctx *ctx, nncuda_event **event) {
  return nn_api.nncuda_event_create(ctx, event);
}
static inline int32_t call_nncuda_event_destroy(nncuda_ctx *ctx, nncuda_event *event) {
  return nn_api.nncuda_event_destroy(ctx, event);
}
static inline int32_t call_nncuda_event_record(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  return nn_api.nncuda_event_record(ctx, stream, event);
}
static inline int32_t call_nncuda_event_synchronize(nncuda_ctx *ctx, nncuda_event *event) {
  return nn_api.nncuda_event_synchronize(ctx, event);
}
static inline int32_t call_nncuda_event_query(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened) {
  return nn_api.nncuda_event_query(ctx, event, happened);
}
static inline int32_t call_nncuda_event_elapsed(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds) {
  return nn_api.nncuda_event_elapsed(ctx, start, end, milliseconds);
}
static inline int32_t call_nncuda_graph_begin(nncuda_ctx *ctx) {
  return nn_api.nncuda_graph_begin(ctx);
}
static inline int32_t call_nncuda_graph_end(nncuda_ctx *ctx, nncuda_graph **graph) {
  return nn_api.nncuda_graph_end(ctx, graph);
}
static inline int32_t call_nncuda_graph_launch(nncuda_ctx *ctx, nncuda_graph *graph) {
  return nn_api.nncuda_graph_launch(ctx, graph);
}
static inline int32_t call_nncuda_graph_size(nncuda_ctx *ctx, nncuda_graph *graph, int64_t *nodes) {
  return nn_api.nncuda_graph_size(ctx, graph, nodes);
}
static inline int32_t call_nncuda_graph_destroy(nncuda_ctx *ctx, nncuda_graph *graph) {
  return nn_api.nncuda_graph_destroy(ctx, graph);
}
static inline int32_t call_nncuda_profile_begin(nncuda_ctx *ctx) {
  return nn_api.nncuda_profile_begin(ctx);
}
static inline int32_t call_nncuda_profile_end(nncuda_ctx *ctx) {
  return nn_api.nncuda_profile_end(ctx);
}
static inline int32_t call_nncuda_profile_report(nncuda_ctx *ctx, int32_t form, char *text, int64_t capacity, int64_t *needed) {
  return nn_api.nncuda_profile_report(ctx, form, text, capacity, needed);
}
static inline int32_t call_nncuda_trace_begin(nncuda_ctx *ctx, int64_t values) {
  return nn_api.nncuda_trace_begin(ctx, values);
}
static inline int32_t call_nncuda_trace_begin_nonfinite(nncuda_ctx *ctx) {
  return nn_api.nncuda_trace_begin_nonfinite(ctx);
}
static inline int32_t call_nncuda_trace_begin_shadow(nncuda_ctx *ctx, nncuda_ctx *reference) {
  return nn_api.nncuda_trace_begin_shadow(ctx, reference);
}
static inline int32_t call_nncuda_trace_label(nncuda_ctx *ctx, const char *label, int64_t length) {
  return nn_api.nncuda_trace_label(ctx, label, length);
}
static inline int32_t call_nncuda_trace_end(nncuda_ctx *ctx) {
  return nn_api.nncuda_trace_end(ctx);
}
static inline int32_t call_nncuda_trace_read(nncuda_ctx *ctx, char *text, int64_t capacity, int64_t *needed) {
  return nn_api.nncuda_trace_read(ctx, text, capacity, needed);
}
static inline int32_t call_nncuda_data_order(nncuda_ctx *ctx, int64_t seed, int64_t first, int64_t count, int64_t windows, int64_t *indices) {
  return nn_api.nncuda_data_order(ctx, seed, first, count, windows, indices);
}
static inline int32_t call_nncuda_shard(int64_t count, int64_t grain, int64_t parts, int64_t part, int64_t *begin, int64_t *end) {
  return nn_api.nncuda_shard(count, grain, parts, part, begin, end);
}
static inline int32_t call_nncuda_expert_shards(int64_t n, int64_t grain, int64_t ranks, int64_t group, const int64_t *experts, int64_t matrices, int64_t *shards, int64_t capacity, int64_t *count) {
  return nn_api.nncuda_expert_shards(n, grain, ranks, group, experts, matrices, shards, capacity, count);
}
static inline int32_t call_nncuda_replica_merges(int64_t replicas, int64_t first, int64_t replica, int64_t *merges) {
  return nn_api.nncuda_replica_merges(replicas, first, replica, merges);
}
static inline int32_t call_nncuda_expert_schedule(int64_t replicas, int64_t ranks, int64_t first, int64_t group, int64_t micro_batches, int64_t position, int64_t *events, int64_t capacity, int64_t *count, int64_t *slots) {
  return nn_api.nncuda_expert_schedule(replicas, ranks, first, group, micro_batches, position, events, capacity, count, slots);
}
static inline int32_t call_nncuda_comm_create(nncuda_ctx *ctx, int32_t transport, const char *address, int64_t length, int64_t rank, int64_t ranks, int64_t timeout_ms, nncuda_comm **comm) {
  return nn_api.nncuda_comm_create(ctx, transport, address, length, rank, ranks, timeout_ms, comm);
}
static inline int32_t call_nncuda_comm_rank(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *rank, int64_t *ranks) {
  return nn_api.nncuda_comm_rank(ctx, comm, rank, ranks);
}
static inline int32_t call_nncuda_comm_split(nncuda_ctx *ctx, nncuda_comm *comm, int64_t color, int64_t key, nncuda_comm **part) {
  return nn_api.nncuda_comm_split(ctx, comm, color, key, part);
}
static inline int32_t call_nncuda_comm_part(nncuda_ctx *ctx, nncuda_comm *comm, int64_t first, int64_t step, int64_t count, nncuda_comm **part) {
  return nn_api.nncuda_comm_part(ctx, comm, first, step, count, part);
}
static inline int32_t call_nncuda_comm_destroy(nncuda_ctx *ctx, nncuda_comm *comm) {
  return nn_api.nncuda_comm_destroy(ctx, comm);
}
static inline int32_t call_nncuda_comm_abort(nncuda_ctx *ctx, nncuda_comm *comm, const char *reason, int64_t length) {
  return nn_api.nncuda_comm_abort(ctx, comm, reason, length);
}
static inline int32_t call_nncuda_comm_agree(nncuda_ctx *ctx, nncuda_comm *comm, const char *what, int64_t length, const void *value, int64_t bytes) {
  return nn_api.nncuda_comm_agree(ctx, comm, what, length, value, bytes);
}
static inline int32_t call_nncuda_comm_sum(nncuda_ctx *ctx, nncuda_comm *comm, int64_t value, int64_t *total) {
  return nn_api.nncuda_comm_sum(ctx, comm, value, total);
}
static inline int32_t call_nncuda_comm_barrier(nncuda_ctx *ctx, nncuda_comm *comm) {
  return nn_api.nncuda_comm_barrier(ctx, comm);
}
static inline int32_t call_nncuda_comm_bytes_sent(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *bytes) {
  return nn_api.nncuda_comm_bytes_sent(ctx, comm, bytes);
}
static inline int32_t call_nncuda_comm_broadcast(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t x, int64_t bytes, int64_t root) {
  return nn_api.nncuda_comm_broadcast(ctx, comm, (void *)x, bytes, root);
}
static inline int32_t call_nncuda_comm_all_gather(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t x, int64_t bytes, int64_t grain) {
  return nn_api.nncuda_comm_all_gather(ctx, comm, (void *)x, bytes, grain);
}
static inline int32_t call_nncuda_comm_all_reduce(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t x, int64_t n) {
  return nn_api.nncuda_comm_all_reduce(ctx, comm, (float *)x, n);
}
static inline int32_t call_nncuda_comm_reduce_scatter(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t partials, uintptr_t x, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire) {
  return nn_api.nncuda_comm_reduce_scatter(ctx, comm, (const float *)partials, (float *)x, n, parts, replicas, shards, count, wire);
}
static inline int32_t call_nncuda_comm_reduce_scatter_room(nncuda_ctx *ctx, nncuda_comm *comm, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire, int64_t *size) {
  return nn_api.nncuda_comm_reduce_scatter_room(ctx, comm, n, parts, replicas, shards, count, wire, size);
}
static inline int32_t call_nncuda_comm_reduce_scatter_begin(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t partials, uintptr_t x, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire, uintptr_t room, int64_t room_size) {
  return nn_api.nncuda_comm_reduce_scatter_begin(ctx, comm, (const float *)partials, (float *)x, n, parts, replicas, shards, count, wire, (float *)room, room_size);
}
static inline int32_t call_nncuda_comm_reduce_scatter_end(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t partials, uintptr_t x, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire, uintptr_t room, int64_t room_size) {
  return nn_api.nncuda_comm_reduce_scatter_end(ctx, comm, (const float *)partials, (float *)x, n, parts, replicas, shards, count, wire, (float *)room, room_size);
}
static inline int32_t call_nncuda_comm_move(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t x, int64_t bytes, const int64_t *moves, int64_t count) {
  return nn_api.nncuda_comm_move(ctx, comm, (void *)x, bytes, moves, count);
}
static inline int32_t call_nncuda_comm_dispatch(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t x, uintptr_t offsets, uintptr_t y, uintptr_t y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t own) {
  return nn_api.nncuda_comm_dispatch(ctx, comm, (const void *)x, (const int32_t *)offsets, (void *)y, (int32_t *)y_offsets, rows, slot_rows, row_bytes, ranks, own);
}
static inline int32_t call_nncuda_comm_collect(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t y, uintptr_t y_offsets, uintptr_t x, uintptr_t offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t own) {
  return nn_api.nncuda_comm_collect(ctx, comm, (const void *)y, (const int32_t *)y_offsets, (void *)x, (const int32_t *)offsets, rows, slot_rows, row_bytes, ranks, own);
}
static inline int32_t call_nncuda_comm_dispatch_begin(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t x, uintptr_t offsets, uintptr_t y, uintptr_t y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t own, int32_t known) {
  return nn_api.nncuda_comm_dispatch_begin(ctx, comm, (const void *)x, (const int32_t *)offsets, (void *)y, (int32_t *)y_offsets, rows, slot_rows, row_bytes, ranks, own, known);
}
static inline int32_t call_nncuda_comm_dispatch_end(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t y, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t source) {
  return nn_api.nncuda_comm_dispatch_end(ctx, comm, (void *)y, slot_rows, row_bytes, ranks, source);
}
static inline int32_t call_nncuda_comm_collect_begin(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t y, uintptr_t x, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t source) {
  return nn_api.nncuda_comm_collect_begin(ctx, comm, (const void *)y, (void *)x, rows, slot_rows, row_bytes, ranks, source);
}
static inline int32_t call_nncuda_comm_collect_end(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t y, uintptr_t x, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks) {
  return nn_api.nncuda_comm_collect_end(ctx, comm, (const void *)y, (void *)x, rows, slot_rows, row_bytes, ranks);
}
static inline int32_t call_nncuda_comm_grad_norm(nncuda_ctx *ctx, nncuda_comm *comm, uintptr_t grad, uintptr_t norm, int64_t n, const int64_t *shards, int64_t count) {
  return nn_api.nncuda_comm_grad_norm(ctx, comm, (const float *)grad, (float *)norm, n, shards, count);
}
static inline int32_t call_cuda_silu(nncuda_ctx *ctx, uintptr_t x, uintptr_t y, int64_t n, int32_t dtype) {
  return nn_api.cuda_silu(ctx, (const void *)x, (void *)y, n, dtype);
}
static inline int32_t call_cuda_silu_backward(nncuda_ctx *ctx, uintptr_t dy, uintptr_t x, uintptr_t dx, int64_t n, int32_t dtype) {
  return nn_api.cuda_silu_backward(ctx, (const void *)dy, (const void *)x, (void *)dx, n, dtype);
}
static inline int32_t call_cuda_add(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t y, int64_t n, int32_t dtype) {
  return nn_api.cuda_add(ctx, (const void *)a, (const void *)b, (void *)y, n, dtype);
}
static inline int32_t call_cuda_mul(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t y, int64_t n, int32_t dtype) {
  return nn_api.cuda_mul(ctx, (const void *)a, (const void *)b, (void *)y, n, dtype);
}
static inline int32_t call_cuda_scale(nncuda_ctx *ctx, uintptr_t x, uintptr_t y, int64_t n, float alpha, int32_t dtype) {
  return nn_api.cuda_scale(ctx, (const void *)x, (void *)y, n, alpha, dtype);
}
static inline int32_t call_cuda_swiglu(nncuda_ctx *ctx, uintptr_t gate, uintptr_t up, uintptr_t used, uintptr_t y, int64_t rows, int64_t dim, int64_t ld, int32_t dtype) {
  return nn_api.cuda_swiglu(ctx, (const void *)gate, (const void *)up, (const int32_t *)used, (void *)y, rows, dim, ld, dtype);
}
static inline int32_t call_cuda_swiglu_backward(nncuda_ctx *ctx, uintptr_t dy, uintptr_t gate, uintptr_t up, uintptr_t used, uintptr_t dgate, uintptr_t dup, int64_t rows, int64_t dim, int64_t ld, int32_t dtype) {
  return nn_api.cuda_swiglu_backward(ctx, (const void *)dy, (const void *)gate, (const void *)up, (const int32_t *)used, (void *)dgate, (void *)dup, rows, dim, ld, dtype);
}
static inline int32_t call_cuda_relu2_gate(nncuda_ctx *ctx, uintptr_t gate, uintptr_t up, uintptr_t y, int64_t rows, int64_t dim, int64_t ld, int32_t dtype) {
  return nn_api.cuda_relu2_gate(ctx, (const void *)gate, (const void *)up, (void *)y, rows, dim, ld, dtype);
}
static inline int32_t call_cuda_cast(nncuda_ctx *ctx, uintptr_t x, uintptr_t y, int64_t n, int32_t dtype_x, int32_t dtype_y) {
  return nn_api.cuda_cast(ctx, (const void *)x, (void *)y, n, dtype_x, dtype_y);
}
static inline int32_t call_cuda_round(nncuda_ctx *ctx, uintptr_t x, uintptr_t y, int64_t n, int32_t dtype) {
  return nn_api.cuda_round(ctx, (const float *)x, (float *)y, n, dtype);
}
static inline int32_t call_cuda_fill(nncuda_ctx *ctx, uintptr_t y, int64_t n, float value, int32_t dtype) {
  return nn_api.cuda_fill(ctx, (void *)y, n, value, dtype);
}
static inline int32_t call_cuda_increment(nncuda_ctx *ctx, uintptr_t x, int64_t n, int32_t by) {
  return nn_api.cuda_increment(ctx, (int32_t *)x, n, by);
}
static inline int32_t call_cuda_softcap(nncuda_ctx *ctx, uintptr_t x, uintptr_t y, int64_t n, float cap, int32_t dtype) {
  return nn_api.cuda_softcap(ctx, (const void *)x, (void *)y, n, cap, dtype);
}
static inline int32_t call_cuda_geglu(nncuda_ctx *ctx, uintptr_t gate, uintptr_t up, uintptr_t y, int64_t rows, int64_t dim, int64_t ld, int32_t dtype) {
  return nn_api.cuda_geglu(ctx, (const void *)gate, (const void *)up, (void *)y, rows, dim, ld, dtype);
}
static inline int32_t call_cuda_swiglu_clipped(nncuda_ctx *ctx, uintptr_t gate, uintptr_t up, uintptr_t y, int64_t rows, int64_t dim, int64_t ld, float alpha, float limit, int32_t dtype) {
  return nn_api.cuda_swiglu_clipped(ctx, (const void *)gate, (const void *)up, (void *)y, rows, dim, ld, alpha, limit, dtype);
}
static inline int32_t call_cuda_relu2_gate_backward(nncuda_ctx *ctx, uintptr_t dy, uintptr_t gate, uintptr_t up, uintptr_t dgate, uintptr_t dup, int64_t rows, int64_t dim, int64_t ld, int32_t dtype) {
  return nn_api.cuda_relu2_gate_backward(ctx, (const void *)dy, (const void *)gate, (const void *)up, (void *)dgate, (void *)dup, rows, dim, ld, dtype);
}
static inline int32_t call_cuda_act_dequant_i8(nncuda_ctx *ctx, uintptr_t codes, uintptr_t scale, uintptr_t x, int64_t rows, int64_t cols, int32_t dtype) {
  return nn_api.cuda_act_dequant_i8(ctx, (const void *)codes, (const float *)scale, (void *)x, rows, cols, dtype);
}
static inline int32_t call_cuda_grouped_bias(nncuda_ctx *ctx, uintptr_t x, uintptr_t bias, uintptr_t offsets, uintptr_t y, int64_t rows, int64_t dim, int64_t groups, int32_t dtype) {
  return nn_api.cuda_grouped_bias(ctx, (const void *)x, (const void *)bias, (const int32_t *)offsets, (void *)y, rows, dim, groups, dtype);
}
static inline int32_t call_cuda_softmax(nncuda_ctx *ctx, uintptr_t x, uintptr_t y, int64_t rows, int64_t cols, int32_t dtype) {
  return nn_api.cuda_softmax(ctx, (const void *)x, (void *)y, rows, cols, dtype);
}
static inline int32_t call_cuda_softmax_backward(nncuda_ctx *ctx, uintptr_t dy, uintptr_t y, uintptr_t dx, int64_t rows, int64_t cols, int32_t dtype) {
  return nn_api.cuda_softmax_backward(ctx, (const void *)dy, (const void *)y, (void *)dx, rows, cols, dtype);
}
static inline int32_t call_cuda_softmax_topk(nncuda_ctx *ctx, uintptr_t x, uintptr_t weights, uintptr_t indices, uintptr_t probs, int64_t rows, int64_t cols, int64_t k, int32_t norm, int32_t dtype) {
  return nn_api.cuda_softmax_topk(ctx, (const void *)x, (float *)weights, (int32_t *)indices, (float *)probs, rows, cols, k, norm, dtype);
}
static inline int32_t call_cuda_softmax_topk_backward(nncuda_ctx *ctx, uintptr_t dweights, uintptr_t weights, uintptr_t indices, uintptr_t probs, uintptr_t dprobs, uintptr_t dx, int64_t rows, int64_t cols, int64_t k, int32_t norm, int32_t dtype) {
  return nn_api.cuda_softmax_topk_backward(ctx, (const float *)dweights, (const float *)weights, (const int32_t *)indices, (const float *)probs, (const float *)dprobs, (void *)dx, rows, cols, k, norm, dtype);
}
static inline int32_t call_cuda_rmsnorm(nncuda_ctx *ctx, uintptr_t x, uintptr_t weight, uintptr_t y, uintptr_t rstd, int64_t rows, int64_t cols, float eps, int32_t dtype) {
  return nn_api.cuda_rmsnorm(ctx, (const void *)x, (const void *)weight, (void *)y, (float *)rstd, rows, cols, eps, dtype);
}
static inline int32_t call_cuda_rmsnorm_residual(nncuda_ctx *ctx, uintptr_t x, uintptr_t residual, uintptr_t weight, uintptr_t sum, uintptr_t y, uintptr_t rstd, int64_t rows, int64_t cols, float eps, int32_t dtype) {
  return nn_api.cuda_rmsnorm_residual(ctx, (const void *)x, (const void *)residual, (const void *)weight, (void *)sum, (void *)y, (float *)rstd, rows, cols, eps, dtype);
}
static inline int32_t call_cuda_rmsnorm_backward(nncuda_ctx *ctx, uintptr_t dy, uintptr_t x, uintptr_t weight, uintptr_t rstd, uintptr_t dresidual, uintptr_t dx, uintptr_t dweight, int64_t rows, int64_t cols, int32_t dtype) {
  return nn_api.cuda_rmsnorm_backward(ctx, (const void *)dy, (const void *)x, (const void *)weight, (const float *)rstd, (const void *)dresidual, (void *)dx, (float *)dweight, rows, cols, dtype);
}
static inline int32_t call_cuda_gemm(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t c, int64_t m, int64_t n, int64_t k, int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  return nn_api.cuda_gemm(ctx, (const void *)a, (const void *)b, (void *)c, m, n, k, trans_a, trans_b, dtype, dtype_c);
}
static inline int32_t call_cuda_gemm_beta(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t c, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc, float alpha, float beta, int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  return nn_api.cuda_gemm_beta(ctx, (const void *)a, (const void *)b, (void *)c, m, n, k, lda, ldb, ldc, alpha, beta, trans_a, trans_b, dtype, dtype_c);
}
static inline int32_t call_cuda_gemm_epilogue(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t bias, uintptr_t residual, uintptr_t c, int64_t m, int64_t n, int64_t k, int32_t activation, int32_t dtype) {
  return nn_api.cuda_gemm_epilogue(ctx, (const void *)a, (const void *)b, (const void *)bias, (const void *)residual, (void *)c, m, n, k, activation, dtype);
}
static inline int32_t call_cuda_batched_gemm(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t c, int64_t batch, int64_t m, int64_t n, int64_t k, float alpha, float beta, int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  return nn_api.cuda_batched_gemm(ctx, (const void *)a, (const void *)b, (void *)c, batch, m, n, k, alpha, beta, trans_a, trans_b, dtype, dtype_c);
}
static inline int32_t call_cuda_grouped_gemm(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t offsets, uintptr_t c, int64_t groups, int64_t rows, int64_t n, int64_t k, float beta, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  return nn_api.cuda_grouped_gemm(ctx, (const void *)a, (const void *)b, (const int32_t *)offsets, (void *)c, groups, rows, n, k, beta, trans_b, dtype, dtype_c);
}
static inline int32_t call_cuda_grouped_gemm_wgrad(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t offsets, uintptr_t c, int64_t groups, int64_t rows, int64_t m, int64_t n, float beta, int32_t dtype, int32_t dtype_c) {
  return nn_api.cuda_grouped_gemm_wgrad(ctx, (const void *)a, (const void *)b, (const int32_t *)offsets, (void *)c, groups, rows, m, n, beta, dtype, dtype_c);
}
static inline int32_t call_cuda_grouped_gemm_swiglu(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t offsets, uintptr_t gate_up, uintptr_t y, int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t dtype) {
  return nn_api.cuda_grouped_gemm_swiglu(ctx, (const void *)a, (const void *)b, (const int32_t *)offsets, (void *)gate_up, (void *)y, groups, rows, n, k, dtype);
}
static inline int32_t call_cuda_grouped_gemm_swiglu_backward(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t offsets, uintptr_t gate_up, int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t dtype) {
  return nn_api.cuda_grouped_gemm_swiglu_backward(ctx, (const void *)a, (const void *)b, (const int32_t *)offsets, (void *)gate_up, groups, rows, n, k, dtype);
}
static inline int32_t call_cuda_grouped_gemm_fp8(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t offsets, uintptr_t c, int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t trans_b, int32_t dtype, int32_t dtype_c) {
  return nn_api.cuda_grouped_gemm_fp8(ctx, (const void *)a, (const void *)b, (const int32_t *)offsets, (void *)c, groups, rows, n, k, trans_b, dtype, dtype_c);
}
static inline int32_t call_cuda_grouped_gemm_wgrad_fp8(nncuda_ctx *ctx, uintptr_t a, uintptr_t b, uintptr_t offsets, uintptr_t c, int64_t groups, int64_t rows, int64_t m, int64_t n, float beta, int32_t dtype, int32_t dtype_c) {
  return nn_api.cuda_grouped_gemm_wgrad_fp8(ctx, (const void *)a, (const void *)b, (const int32_t *)offsets, (void *)c, groups, rows, m, n, beta, dtype, dtype_c);
}
static inline int32_t call_cuda_embedding(nncuda_ctx *ctx, uintptr_t table, uintptr_t ids, uintptr_t y, int64_t tokens, int64_t vocab, int64_t dim, int32_t dtype) {
  return nn_api.cuda_embedding(ctx, (const void *)table, (const int32_t *)ids, (void *)y, tokens, vocab, dim, dtype);
}
static inline int32_t call_cuda_scatter_add(nncuda_ctx *ctx, uintptr_t x, uintptr_t ids, uintptr_t table, int64_t tokens, int64_t vocab, int64_t dim, int32_t dtype) {
  return nn_api.cuda_scatter_add(ctx, (const void *)x, (const int32_t *)ids, (float *)table, tokens, vocab, dim, dtype);
}
static inline int32_t call_cuda_pool_rows(nncuda_ctx *ctx, uintptr_t x, uintptr_t sum, int64_t rows, int64_t dim) {
  return nn_api.cuda_pool_rows(ctx, (const float *)x, (float *)sum, rows, dim);
}
static inline int32_t call_cuda_pool_unit(nncuda_ctx *ctx, uintptr_t sum, uintptr_t y, int64_t dim) {
  return nn_api.cuda_pool_unit(ctx, (const float *)sum, (float *)y, dim);
}
static inline int32_t call_cuda_rope_freqs(nncuda_ctx *ctx, uintptr_t cosine, uintptr_t sine, int64_t first, int64_t positions, int64_t head_dim, double base, double ntk_alpha) {
  return nn_api.cuda_rope_freqs(ctx, (float *)cosine, (float *)sine, first, positions, head_dim, base, ntk_alpha);
}
static inline int32_t call_cuda_rope_freqs_scaled(nncuda_ctx *ctx, uintptr_t factors, uintptr_t cosine, uintptr_t sine, int64_t first, int64_t positions, int64_t head_dim, double base, double ntk_alpha, double scale) {
  return nn_api.cuda_rope_freqs_scaled(ctx, (const float *)factors, (float *)cosine, (float *)sine, first, positions, head_dim, base, ntk_alpha, scale);
}
static inline int32_t call_cuda_rope_forward(nncuda_ctx *ctx, uintptr_t x, uintptr_t cosine, uintptr_t sine, uintptr_t positions, uintptr_t y, int64_t tokens, int64_t heads, int64_t head_dim, int64_t max_position, int64_t ld_x, int64_t ld_y, int32_t layout, int32_t dtype) {
  return nn_api.cuda_rope_forward(ctx, (const void *)x, (const float *)cosine, (const float *)sine, (const int32_t *)positions, (void *)y, tokens, heads, head_dim, max_position, ld_x, ld_y, layout, dtype);
}
static inline int32_t call_cuda_rope_qk(nncuda_ctx *ctx, uintptr_t q, uintptr_t k, uintptr_t cosine, uintptr_t sine, uintptr_t positions, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t max_position, int64_t ld_q, int64_t ld_k, int32_t layout, int32_t dtype) {
  return nn_api.cuda_rope_qk(ctx, (void *)q, (void *)k, (const float *)cosine, (const float *)sine, (const int32_t *)positions, tokens, heads, kv_heads, head_dim, max_position, ld_q, ld_k, layout, dtype);
}
static inline int32_t call_cuda_rope_backward(nncuda_ctx *ctx, uintptr_t dy, uintptr_t cosine, uintptr_t sine, uintptr_t positions, uintptr_t dx, int64_t tokens, int64_t heads, int64_t head_dim, int64_t max_position, int64_t ld_y, int64_t ld_x, int32_t layout, int32_t dtype) {
  return nn_api.cuda_rope_backward(ctx, (const void *)dy, (const float *)cosine, (const float *)sine, (const int32_t *)positions, (void *)dx, tokens, heads, head_dim, max_position, ld_y, ld_x, layout, dtype);
}
static inline int32_t call_cuda_attention_scores(nncuda_ctx *ctx, uintptr_t q, uintptr_t k, uintptr_t scores, int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, float scale, int32_t causal, int32_t dtype) {
  return nn_api.cuda_attention_scores(ctx, (const void *)q, (const void *)k, (void *)scores, batch, q_len, kv_len, heads, kv_heads, head_dim, scale, causal, dtype);
}
static inline int32_t call_cuda_attention_output(nncuda_ctx *ctx, uintptr_t probs, uintptr_t v, uintptr_t out, int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, int32_t dtype) {
  return nn_api.cuda_attention_output(ctx, (const void *)probs, (const void *)v, (void *)out, batch, q_len, kv_len, heads, kv_heads, head_dim, dtype);
}
static inline int32_t call_cuda_flash_attention(nncuda_ctx *ctx, uintptr_t q, uintptr_t k, uintptr_t v, uintptr_t starts, uintptr_t out, uintptr_t lse, int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t ld_kv, float scale, int32_t causal, int32_t dtype) {
  return nn_api.cuda_flash_attention(ctx, (const void *)q, (const void *)k, (const void *)v, (const int32_t *)starts, (void *)out, (float *)lse, batch, q_len, kv_len, heads, kv_heads, head_dim, ld_q, ld_kv, scale, causal, dtype);
}
static inline int32_t call_cuda_flash_attention_backward(nncuda_ctx *ctx, uintptr_t dout, uintptr_t q, uintptr_t k, uintptr_t v, uintptr_t out, uintptr_t lse, uintptr_t starts, uintptr_t dq, uintptr_t dk, uintptr_t dv, int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t ld_kv, float scale, int32_t causal, int32_t dtype) {
  return nn_api.cuda_flash_attention_backward(ctx, (const void *)dout, (const void *)q, (const void *)k, (const void *)v, (const void *)out, (const float *)lse, (const int32_t *)starts, (void *)dq, (void *)dk, (void *)dv, batch, q_len, kv_len, heads, kv_heads, head_dim, ld_q, ld_kv, scale, causal, dtype);
}
static inline int32_t call_cuda_document_starts(nncuda_ctx *ctx, uintptr_t ids, uintptr_t starts, uintptr_t positions, int64_t batch, int64_t length, int32_t separator) {
  return nn_api.cuda_document_starts(ctx, (const int32_t *)ids, (int32_t *)starts, (int32_t *)positions, batch, length, separator);
}
static inline int32_t call_cuda_attention_decode(nncuda_ctx *ctx, uintptr_t q, uintptr_t k_cache, uintptr_t v_cache, uintptr_t lengths, uintptr_t out, int64_t batch, int64_t capacity, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, float scale, int32_t dtype) {
  return nn_api.cuda_attention_decode(ctx, (const void *)q, (const void *)k_cache, (const void *)v_cache, (const int32_t *)lengths, (void *)out, batch, capacity, heads, kv_heads, head_dim, ld_q, scale, dtype);
}
static inline int32_t call_cuda_flash_attention_paged(nncuda_ctx *ctx, uintptr_t q, uintptr_t k_pages, uintptr_t v_pages, uintptr_t offsets, uintptr_t lengths, uintptr_t page_table, uintptr_t sinks, uintptr_t out, int64_t tokens, int64_t batch, int64_t max_pages, int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t page_bytes, float scale, int64_t window, float softcap, int32_t format, int32_t dtype) {
  return nn_api.cuda_flash_attention_paged(ctx, (const void *)q, (const void *)k_pages, (const void *)v_pages, (const int32_t *)offsets, (const int32_t *)lengths, (const int32_t *)page_table, (const float *)sinks, (void *)out, tokens, batch, max_pages, pages, heads, kv_heads, head_dim, ld_q, page_bytes, scale, window, softcap, format, dtype);
}
static inline int32_t call_cuda_attention_decode_paged(nncuda_ctx *ctx, uintptr_t q, uintptr_t k_pages, uintptr_t v_pages, uintptr_t lengths, uintptr_t page_table, uintptr_t sinks, uintptr_t out, int64_t batch, int64_t max_pages, int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t page_bytes, float scale, int64_t window, float softcap, int32_t format, int32_t dtype) {
  return nn_api.cuda_attention_decode_paged(ctx, (const void *)q, (const void *)k_pages, (const void *)v_pages, (const int32_t *)lengths, (const int32_t *)page_table, (const float *)sinks, (void *)out, batch, max_pages, pages, heads, kv_heads, head_dim, ld_q, page_bytes, scale, window, softcap, format, dtype);
}
static inline int32_t call_cuda_attention_step_paged(nncuda_ctx *ctx, uintptr_t q, uintptr_t k, uintptr_t v, uintptr_t cosine, uintptr_t sine, uintptr_t positions, uintptr_t lengths, uintptr_t page_table, uintptr_t sinks, uintptr_t k_pages, uintptr_t v_pages, uintptr_t out, int64_t batch, int64_t max_pages, int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t max_position, int64_t ld_q, int64_t ld_kv, int64_t page_bytes, float scale, int64_t window, float softcap, int32_t layout, int32_t format, int32_t dtype) {
  return nn_api.cuda_attention_step_paged(ctx, (const void *)q, (const void *)k, (const void *)v, (const float *)cosine, (const float *)sine, (const int32_t *)positions, (const int32_t *)lengths, (const int32_t *)page_table, (const float *)sinks, (void *)k_pages, (void *)v_pages, (void *)out, batch, max_pages, pages, heads, kv_heads, head_dim, max_position, ld_q, ld_kv, page_bytes, scale, window, softcap, layout, format, dtype);
}
static inline int32_t call_cuda_kv_append(nncuda_ctx *ctx, uintptr_t k, uintptr_t v, uintptr_t starts, uintptr_t k_cache, uintptr_t v_cache, int64_t batch, int64_t len, int64_t capacity, int64_t kv_heads, int64_t head_dim, int64_t ld_kv, int32_t dtype) {
  return nn_api.cuda_kv_append(ctx, (const void *)k, (const void *)v, (const int32_t *)starts, (void *)k_cache, (void *)v_cache, batch, len, capacity, kv_heads, head_dim, ld_kv, dtype);
}
static inline int32_t call_cuda_kv_trim(nncuda_ctx *ctx, uintptr_t k_cache, uintptr_t v_cache, uintptr_t lengths, int64_t batch, int64_t capacity, int64_t kv_heads, int64_t head_dim, int64_t keep, int32_t dtype) {
  return nn_api.cuda_kv_trim(ctx, (void *)k_cache, (void *)v_cache, (int32_t *)lengths, batch, capacity, kv_heads, head_dim, keep, dtype);
}
static inline int32_t call_cuda_kv_append_paged(nncuda_ctx *ctx, uintptr_t k, uintptr_t v, uintptr_t offsets, uintptr_t lengths, uintptr_t page_table, uintptr_t k_pages, uintptr_t v_pages, int64_t tokens, int64_t batch, int64_t max_pages, int64_t pages, int64_t kv_heads, int64_t head_dim, int64_t ld_kv, int64_t page_bytes, int32_t format, int32_t dtype) {
  return nn_api.cuda_kv_append_paged(ctx, (const void *)k, (const void *)v, (const int32_t *)offsets, (const int32_t *)lengths, (const int32_t *)page_table, (void *)k_pages, (void *)v_pages, tokens, batch, max_pages, pages, kv_heads, head_dim, ld_kv, page_bytes, format, dtype);
}
static inline int32_t call_cuda_moe_plan(nncuda_ctx *ctx, uintptr_t indices, uintptr_t counts, uintptr_t offsets, uintptr_t slot_row, uintptr_t row_slot, int64_t tokens, int64_t k, int64_t experts, int64_t capacity) {
  return nn_api.cuda_moe_plan(ctx, (const int32_t *)indices, (int32_t *)counts, (int32_t *)offsets, (int32_t *)slot_row, (int32_t *)row_slot, tokens, k, experts, capacity);
}
static inline int32_t call_cuda_moe_gather(nncuda_ctx *ctx, uintptr_t x, uintptr_t row_slot, uintptr_t y, int64_t tokens, int64_t k, int64_t dim, int32_t dtype) {
  return nn_api.cuda_moe_gather(ctx, (const void *)x, (const int32_t *)row_slot, (void *)y, tokens, k, dim, dtype);
}
static inline int32_t call_cuda_moe_route(nncuda_ctx *ctx, uintptr_t logits, uintptr_t x, uintptr_t weights, uintptr_t indices, uintptr_t probs, uintptr_t counts, uintptr_t offsets, uintptr_t slot_row, uintptr_t row_slot, uintptr_t y, uintptr_t loss, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int32_t norm, int64_t capacity, float alpha, int32_t dtype, int32_t dtype_logits) {
  return nn_api.cuda_moe_route(ctx, (const void *)logits, (const void *)x, (float *)weights, (int32_t *)indices, (float *)probs, (int32_t *)counts, (int32_t *)offsets, (int32_t *)slot_row, (int32_t *)row_slot, (void *)y, (float *)loss, tokens, experts, k, dim, norm, capacity, alpha, dtype, dtype_logits);
}
static inline int32_t call_cuda_moe_route_backward(nncuda_ctx *ctx, uintptr_t dweights, uintptr_t weights, uintptr_t indices, uintptr_t probs, uintptr_t counts, uintptr_t grad_scale, uintptr_t dlogits, int64_t tokens, int64_t experts, int64_t k, int32_t norm, float alpha, int32_t dtype) {
  return nn_api.cuda_moe_route_backward(ctx, (const float *)dweights, (const float *)weights, (const int32_t *)indices, (const float *)probs, (const int32_t *)counts, (const float *)grad_scale, (void *)dlogits, tokens, experts, k, norm, alpha, dtype);
}
static inline int32_t call_cuda_moe_gather_backward(nncuda_ctx *ctx, uintptr_t dy, uintptr_t slot_row, uintptr_t dx, int64_t tokens, int64_t k, int64_t dim, int32_t dtype) {
  return nn_api.cuda_moe_gather_backward(ctx, (const void *)dy, (const int32_t *)slot_row, (void *)dx, tokens, k, dim, dtype);
}
static inline int32_t call_cuda_moe_combine(nncuda_ctx *ctx, uintptr_t y, uintptr_t weights, uintptr_t slot_row, uintptr_t residual, uintptr_t out, int64_t tokens, int64_t k, int64_t dim, int32_t dtype) {
  return nn_api.cuda_moe_combine(ctx, (const void *)y, (const float *)weights, (const int32_t *)slot_row, (const void *)residual, (void *)out, tokens, k, dim, dtype);
}
static inline int32_t call_cuda_moe_combine_backward(nncuda_ctx *ctx, uintptr_t dout, uintptr_t y, uintptr_t weights, uintptr_t slot_row, uintptr_t row_slot, uintptr_t dy, uintptr_t dweights, int64_t tokens, int64_t k, int64_t dim, int32_t dtype) {
  return nn_api.cuda_moe_combine_backward(ctx, (const void *)dout, (const void *)y, (const float *)weights, (const int32_t *)slot_row, (const int32_t *)row_slot, (void *)dy, (float *)dweights, tokens, k, dim, dtype);
}
static inline int32_t call_cuda_moe_output_backward(nncuda_ctx *ctx, uintptr_t dout, uintptr_t y, uintptr_t weights, uintptr_t indices, uintptr_t probs, uintptr_t counts, uintptr_t slot_row, uintptr_t row_slot, uintptr_t grad_scale, uintptr_t dy, uintptr_t dweights, uintptr_t dlogits, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int32_t norm, float alpha, int32_t dtype) {
  return nn_api.cuda_moe_output_backward(ctx, (const void *)dout, (const void *)y, (const float *)weights, (const int32_t *)indices, (const float *)probs, (const int32_t *)counts, (const int32_t *)slot_row, (const int32_t *)row_slot, (const float *)grad_scale, (void *)dy, (float *)dweights, (void *)dlogits, tokens, experts, k, dim, norm, alpha, dtype);
}
static inline int32_t call_cuda_moe_input_backward(nncuda_ctx *ctx, uintptr_t dlogits, uintptr_t x, uintptr_t gate, uintptr_t drows, uintptr_t slot_row, uintptr_t dx, uintptr_t dgate, int64_t tokens, int64_t experts, int64_t k, int64_t dim, float beta, int32_t dtype, int32_t dtype_c) {
  return nn_api.cuda_moe_input_backward(ctx, (const void *)dlogits, (const void *)x, (const void *)gate, (const void *)drows, (const int32_t *)slot_row, (void *)dx, (void *)dgate, tokens, experts, k, dim, beta, dtype, dtype_c);
}
static inline int32_t call_cuda_cross_entropy_forward(nncuda_ctx *ctx, uintptr_t logits, uintptr_t targets, uintptr_t losses, uintptr_t lse, uintptr_t loss_sum, uintptr_t count, int64_t rows, int64_t vocab, int32_t ignore_index, int32_t dtype) {
  return nn_api.cuda_cross_entropy_forward(ctx, (const void *)logits, (const int32_t *)targets, (float *)losses, (float *)lse, (float *)loss_sum, (int32_t *)count, rows, vocab, ignore_index, dtype);
}
static inline int32_t call_cuda_cross_entropy_backward(nncuda_ctx *ctx, uintptr_t logits, uintptr_t targets, uintptr_t lse, uintptr_t grad_scale, uintptr_t dlogits, int64_t rows, int64_t vocab, int32_t ignore_index, int32_t dtype) {
  return nn_api.cuda_cross_entropy_backward(ctx, (const void *)logits, (const int32_t *)targets, (const float *)lse, (const float *)grad_scale, (void *)dlogits, rows, vocab, ignore_index, dtype);
}
static inline int32_t call_cuda_aux_loss_forward(nncuda_ctx *ctx, uintptr_t probs, uintptr_t counts, uintptr_t loss, int64_t tokens, int64_t experts, float alpha) {
  return nn_api.cuda_aux_loss_forward(ctx, (const float *)probs, (const int32_t *)counts, (float *)loss, tokens, experts, alpha);
}
static inline int32_t call_cuda_aux_loss_backward(nncuda_ctx *ctx, uintptr_t counts, uintptr_t grad_scale, uintptr_t dprobs, int64_t tokens, int64_t experts, float alpha) {
  return nn_api.cuda_aux_loss_backward(ctx, (const int32_t *)counts, (const float *)grad_scale, (float *)dprobs, tokens, experts, alpha);
}
static inline int32_t call_cuda_weighted_mean(nncuda_ctx *ctx, uintptr_t x, uintptr_t weights, uintptr_t y, int64_t n, int64_t divisor) {
  return nn_api.cuda_weighted_mean(ctx, (const float *)x, (const int32_t *)weights, (float *)y, n, divisor);
}
static inline int32_t call_cuda_adamw_step(nncuda_ctx *ctx, uintptr_t grad, uintptr_t lr, uintptr_t step, uintptr_t grad_scale, uintptr_t skip, uintptr_t param, uintptr_t m, uintptr_t v, uintptr_t param_copy, int64_t n, int64_t n_decay, float beta1, float beta2, float eps, float weight_decay, int32_t dtype) {
  return nn_api.cuda_adamw_step(ctx, (const float *)grad, (const float *)lr, (const int32_t *)step, (const float *)grad_scale, (const int32_t *)skip, (float *)param, (float *)m, (float *)v, (void *)param_copy, n, n_decay, beta1, beta2, eps, weight_decay, dtype);
}
static inline int32_t call_cuda_adamw_step_bf16(nncuda_ctx *ctx, uintptr_t grad, uintptr_t lr, uintptr_t step, uintptr_t grad_scale, uintptr_t skip, uintptr_t param, uintptr_t m, uintptr_t v, uintptr_t param_copy, int64_t n, int64_t n_decay, int64_t first, float beta1, float beta2, float eps, float weight_decay, int32_t dtype) {
  return nn_api.cuda_adamw_step_bf16(ctx, (const float *)grad, (const float *)lr, (const int32_t *)step, (const float *)grad_scale, (const int32_t *)skip, (float *)param, (void *)m, (void *)v, (void *)param_copy, n, n_decay, first, beta1, beta2, eps, weight_decay, dtype);
}
static inline int32_t call_cuda_adamw_step_f8(nncuda_ctx *ctx, uintptr_t grad, uintptr_t lr, uintptr_t step, uintptr_t grad_scale, uintptr_t skip, uintptr_t param, uintptr_t m, uintptr_t m_scale, uintptr_t r, uintptr_t r_scale, uintptr_t param_copy, int64_t n, int64_t blocks, int64_t n_decay, int64_t first, float beta1, float beta2, float eps, float weight_decay, int32_t dtype) {
  return nn_api.cuda_adamw_step_f8(ctx, (const float *)grad, (const float *)lr, (const int32_t *)step, (const float *)grad_scale, (const int32_t *)skip, (float *)param, (void *)m, (float *)m_scale, (void *)r, (float *)r_scale, (void *)param_copy, n, blocks, n_decay, first, beta1, beta2, eps, weight_decay, dtype);
}
static inline int32_t call_cuda_zero_grad(nncuda_ctx *ctx, uintptr_t grad, int64_t n, int32_t dtype) {
  return nn_api.cuda_zero_grad(ctx, (void *)grad, n, dtype);
}
static inline int32_t call_cuda_grad_norm(nncuda_ctx *ctx, uintptr_t grad, uintptr_t norm, int64_t n, int32_t dtype) {
  return nn_api.cuda_grad_norm(ctx, (const void *)grad, (float *)norm, n, dtype);
}
static inline int32_t call_cuda_grad_clip(nncuda_ctx *ctx, uintptr_t norm, uintptr_t loss_scale, uintptr_t scale, uintptr_t grad, int64_t n, float max_norm, int32_t dtype) {
  return nn_api.cuda_grad_clip(ctx, (const float *)norm, (const float *)loss_scale, (float *)scale, (void *)grad, n, max_norm, dtype);
}
static inline int32_t call_cuda_lr_schedule(nncuda_ctx *ctx, uintptr_t skip, uintptr_t step, uintptr_t lr, int64_t warmup, int64_t total, float max_lr, float min_lr) {
  return nn_api.cuda_lr_schedule(ctx, (const int32_t *)skip, (int32_t *)step, (float *)lr, warmup, total, max_lr, min_lr);
}
static inline int32_t call_cuda_loss_scale_update(nncuda_ctx *ctx, uintptr_t norm, uintptr_t loss_scale, uintptr_t good_steps, uintptr_t skipped, uintptr_t skip, float growth, float backoff, int64_t interval) {
  return nn_api.cuda_loss_scale_update(ctx, (const float *)norm, (float *)loss_scale, (int32_t *)good_steps, (int32_t *)skipped, (int32_t *)skip, growth, backoff, interval);
}
static inline int32_t call_cuda_argmax(nncuda_ctx *ctx, uintptr_t logits, uintptr_t ids, int64_t rows, int64_t vocab, int32_t dtype) {
  return nn_api.cuda_argmax(ctx, (const void *)logits, (int32_t *)ids, rows, vocab, dtype);
}
static inline int32_t call_cuda_sample(nncuda_ctx *ctx, uintptr_t logits, uintptr_t temperature, uintptr_t seeds, uintptr_t steps, uintptr_t ids, int64_t rows, int64_t vocab, int32_t dtype) {
  return nn_api.cuda_sample(ctx, (const void *)logits, (const float *)temperature, (const int64_t *)seeds, (const int32_t *)steps, (int32_t *)ids, rows, vocab, dtype);
}
static inline int32_t call_cuda_topk_sample(nncuda_ctx *ctx, uintptr_t logits, uintptr_t temperature, uintptr_t top_k, uintptr_t seeds, uintptr_t steps, uintptr_t ids, int64_t rows, int64_t vocab, int32_t dtype) {
  return nn_api.cuda_topk_sample(ctx, (const void *)logits, (const float *)temperature, (const int32_t *)top_k, (const int64_t *)seeds, (const int32_t *)steps, (int32_t *)ids, rows, vocab, dtype);
}
static inline int32_t call_cuda_topp_sample(nncuda_ctx *ctx, uintptr_t logits, uintptr_t temperature, uintptr_t top_k, uintptr_t top_p, uintptr_t seeds, uintptr_t steps, uintptr_t ids, int64_t rows, int64_t vocab, int32_t dtype) {
  return nn_api.cuda_topp_sample(ctx, (const void *)logits, (const float *)temperature, (const int32_t *)top_k, (const float *)top_p, (const int64_t *)seeds, (const int32_t *)steps, (int32_t *)ids, rows, vocab, dtype);
}
static inline int32_t call_cuda_minp_sample(nncuda_ctx *ctx, uintptr_t logits, uintptr_t temperature, uintptr_t top_k, uintptr_t top_p, uintptr_t min_p, uintptr_t seeds, uintptr_t steps, uintptr_t ids, int64_t rows, int64_t vocab, int32_t dtype) {
  return nn_api.cuda_minp_sample(ctx, (const void *)logits, (const float *)temperature, (const int32_t *)top_k, (const float *)top_p, (const float *)min_p, (const int64_t *)seeds, (const int32_t *)steps, (int32_t *)ids, rows, vocab, dtype);
}
static inline int32_t call_cuda_count_tokens(nncuda_ctx *ctx, uintptr_t ids, uintptr_t seen_ids, uintptr_t seen_counts, uintptr_t seen_lengths, int64_t rows, int64_t vocab, int64_t capacity) {
  return nn_api.cuda_count_tokens(ctx, (const int32_t *)ids, (int32_t *)seen_ids, (int32_t *)seen_counts, (int32_t *)seen_lengths, rows, vocab, capacity);
}
static inline int32_t call_cuda_penalize_logits(nncuda_ctx *ctx, uintptr_t logits, uintptr_t presence, uintptr_t frequency, uintptr_t repetition, uintptr_t seen_ids, uintptr_t seen_counts, uintptr_t seen_lengths, int64_t rows, int64_t vocab, int64_t capacity, int32_t dtype) {
  return nn_api.cuda_penalize_logits(ctx, (void *)logits, (const float *)presence, (const float *)frequency, (const float *)repetition, (const int32_t *)seen_ids, (const int32_t *)seen_counts, (const int32_t *)seen_lengths, rows, vocab, capacity, dtype);
}
static inline int32_t call_cuda_bias_logits(nncuda_ctx *ctx, uintptr_t logits, uintptr_t offsets, uintptr_t ids, uintptr_t bias, int64_t rows, int64_t vocab, int64_t biases, int32_t dtype) {
  return nn_api.cuda_bias_logits(ctx, (void *)logits, (const int32_t *)offsets, (const int32_t *)ids, (const float *)bias, rows, vocab, biases, dtype);
}
static inline int32_t call_cuda_mask_logits(nncuda_ctx *ctx, uintptr_t logits, uintptr_t masks, uintptr_t mask_of, int64_t rows, int64_t vocab, int64_t n, int64_t words, int32_t dtype) {
  return nn_api.cuda_mask_logits(ctx, (void *)logits, (const int32_t *)masks, (const int32_t *)mask_of, rows, vocab, n, words, dtype);
}
static inline int32_t call_cuda_logprobs(nncuda_ctx *ctx, uintptr_t logits, uintptr_t ids, uintptr_t logprobs, uintptr_t top_ids, uintptr_t top_logprobs, int64_t rows, int64_t vocab, int64_t n, int32_t dtype) {
  return nn_api.cuda_logprobs(ctx, (const void *)logits, (const int32_t *)ids, (float *)logprobs, (int32_t *)top_ids, (float *)top_logprobs, rows, vocab, n, dtype);
}
static inline int32_t call_cuda_quantize(nncuda_ctx *ctx, uintptr_t x, uintptr_t y, int64_t rows, int64_t k, int64_t row_bytes, int32_t format, int32_t dtype) {
  return nn_api.cuda_quantize(ctx, (const void *)x, (void *)y, rows, k, row_bytes, format, dtype);
}
static inline int32_t call_cuda_dequantize(nncuda_ctx *ctx, uintptr_t x, uintptr_t y, int64_t rows, int64_t k, int64_t row_bytes, int32_t format, int32_t dtype) {
  return nn_api.cuda_dequantize(ctx, (const void *)x, (void *)y, rows, k, row_bytes, format, dtype);
}
static inline int32_t call_cuda_embedding_quant(nncuda_ctx *ctx, uintptr_t table, uintptr_t ids, uintptr_t y, int64_t tokens, int64_t vocab, int64_t dim, int64_t row_bytes, int32_t format, int32_t dtype) {
  return nn_api.cuda_embedding_quant(ctx, (const void *)table, (const int32_t *)ids, (void *)y, tokens, vocab, dim, row_bytes, format, dtype);
}
static inline int32_t call_cuda_gemm_quant(nncuda_ctx *ctx, uintptr_t x, uintptr_t w, uintptr_t offsets, uintptr_t bias, uintptr_t residual, uintptr_t y, int64_t groups, int64_t m, int64_t n, int64_t k, int64_t row_bytes, int32_t activation, int32_t format, int32_t dtype) {
  return nn_api.cuda_gemm_quant(ctx, (const void *)x, (const void *)w, (const int32_t *)offsets, (const void *)bias, (const void *)residual, (void *)y, groups, m, n, k, row_bytes, activation, format, dtype);
}
static inline int32_t call_cuda_gemm_quant_qkv(nncuda_ctx *ctx, uintptr_t x, uintptr_t wq, uintptr_t wk, uintptr_t wv, uintptr_t bias, uintptr_t norm, uintptr_t y, int64_t m, int64_t n_q, int64_t n_kv, int64_t n, int64_t k, int64_t row_bytes_q, int64_t row_bytes_k, int64_t row_bytes_v, float eps, int32_t format_q, int32_t format_k, int32_t format_v, int32_t dtype) {
  return nn_api.cuda_gemm_quant_qkv(ctx, (const void *)x, (const void *)wq, (const void *)wk, (const void *)wv, (const void *)bias, (const void *)norm, (void *)y, m, n_q, n_kv, n, k, row_bytes_q, row_bytes_k, row_bytes_v, eps, format_q, format_k, format_v, dtype);
}
static inline int32_t call_cuda_gemm_quant_swiglu(nncuda_ctx *ctx, uintptr_t x, uintptr_t w_gate, uintptr_t w_up, uintptr_t offsets, uintptr_t norm, uintptr_t y, int64_t groups, int64_t m, int64_t n, int64_t k, int64_t row_bytes_gate, int64_t row_bytes_up, float eps, int32_t format_gate, int32_t format_up, int32_t dtype) {
  return nn_api.cuda_gemm_quant_swiglu(ctx, (const void *)x, (const void *)w_gate, (const void *)w_up, (const int32_t *)offsets, (const void *)norm, (void *)y, groups, m, n, k, row_bytes_gate, row_bytes_up, eps, format_gate, format_up, dtype);
}
static inline int32_t call_cuda_gemm_quant_route(nncuda_ctx *ctx, uintptr_t x, uintptr_t gains, uintptr_t w, uintptr_t y, uintptr_t logits, uintptr_t weights, uintptr_t indices, uintptr_t probs, uintptr_t counts, uintptr_t offsets, uintptr_t slot_row, uintptr_t row_slot, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int64_t row_bytes, float eps, int32_t norm, int32_t format) {
  return nn_api.cuda_gemm_quant_route(ctx, (const float *)x, (const float *)gains, (const void *)w, (float *)y, (float *)logits, (float *)weights, (int32_t *)indices, (float *)probs, (int32_t *)counts, (int32_t *)offsets, (int32_t *)slot_row, (int32_t *)row_slot, tokens, experts, k, dim, row_bytes, eps, norm, format);
}
static inline int32_t call_cuda_gemm_quant_experts(nncuda_ctx *ctx, uintptr_t x, uintptr_t w_gate, uintptr_t w_up, uintptr_t w_down, uintptr_t weights, uintptr_t offsets, uintptr_t slot_row, uintptr_t row_slot, uintptr_t residual, uintptr_t y, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int64_t n, int64_t row_bytes_gate, int64_t row_bytes_up, int64_t row_bytes_down, int32_t format_gate, int32_t format_up, int32_t format_down) {
  return nn_api.cuda_gemm_quant_experts(ctx, (const float *)x, (const void *)w_gate, (const void *)w_up, (const void *)w_down, (const float *)weights, (const int32_t *)offsets, (const int32_t *)slot_row, (const int32_t *)row_slot, (const float *)residual, (float *)y, tokens, experts, k, dim, n, row_bytes_gate, row_bytes_up, row_bytes_down, format_gate, format_up, format_down);
}
static inline int32_t call_cuda_interleave_rows(nncuda_ctx *ctx, uintptr_t x, uintptr_t y, int64_t rows, int64_t k, int64_t row_bytes, int32_t format) {
  return nn_api.cuda_interleave_rows(ctx, (const void *)x, (void *)y, rows, k, row_bytes, format);
}
static inline int32_t call_cuda_act_quant_i8(nncuda_ctx *ctx, uintptr_t x, uintptr_t codes, uintptr_t scale, int64_t rows, int64_t cols, int32_t dtype) {
  return nn_api.cuda_act_quant_i8(ctx, (const void *)x, (void *)codes, (float *)scale, rows, cols, dtype);
}
static inline int32_t call_cuda_rmsnorm_quant_i8(nncuda_ctx *ctx, uintptr_t x, uintptr_t weight, uintptr_t codes, uintptr_t scale, int64_t rows, int64_t cols, float eps, int32_t dtype) {
  return nn_api.cuda_rmsnorm_quant_i8(ctx, (const void *)x, (const void *)weight, (void *)codes, (float *)scale, rows, cols, eps, dtype);
}
static inline int32_t call_cuda_ternary_quantize(nncuda_ctx *ctx, uintptr_t x, uintptr_t codes, uintptr_t scale, int64_t n, int64_t k, int32_t dtype) {
  return nn_api.cuda_ternary_quantize(ctx, (const void *)x, (void *)codes, (float *)scale, n, k, dtype);
}
static inline int32_t call_cuda_ternary_pack(nncuda_ctx *ctx, uintptr_t codes, uintptr_t w, int64_t n, int64_t k, int64_t stored, int64_t row_bytes) {
  return nn_api.cuda_ternary_pack(ctx, (const void *)codes, (void *)w, n, k, stored, row_bytes);
}
static inline int32_t call_cuda_ternary_unpack(nncuda_ctx *ctx, uintptr_t w, uintptr_t codes, int64_t n, int64_t k, int64_t stored, int64_t row_bytes) {
  return nn_api.cuda_ternary_unpack(ctx, (const void *)w, (void *)codes, n, k, stored, row_bytes);
}
static inline int32_t call_cuda_bitlinear(nncuda_ctx *ctx, uintptr_t codes, uintptr_t scale, uintptr_t w, uintptr_t w_scale, uintptr_t residual, uintptr_t y, int64_t m, int64_t n, int64_t k, int64_t stored, int64_t row_bytes, int32_t dtype) {
  return nn_api.cuda_bitlinear(ctx, (const void *)codes, (const float *)scale, (const void *)w, (const float *)w_scale, (const void *)residual, (void *)y, m, n, k, stored, row_bytes, dtype);
}
static inline int32_t call_cuda_bitlinear_norm(nncuda_ctx *ctx, uintptr_t x, uintptr_t norm, uintptr_t w, uintptr_t w_scale, uintptr_t residual, uintptr_t y, int64_t m, int64_t n, int64_t k, int64_t stored, int64_t row_bytes, float eps, int32_t dtype) {
  return nn_api.cuda_bitlinear_norm(ctx, (const void *)x, (const void *)norm, (const void *)w, (const float *)w_scale, (const void *)residual, (void *)y, m, n, k, stored, row_bytes, eps, dtype);
}
static inline int32_t call_cuda_gemm_quant_backward(nncuda_ctx *ctx, uintptr_t dy, uintptr_t w, uintptr_t offsets, uintptr_t dx, int64_t groups, int64_t m, int64_t n, int64_t k, int64_t row_bytes, float beta, int32_t format, int32_t dtype) {
  return nn_api.cuda_gemm_quant_backward(ctx, (const void *)dy, (const void *)w, (const int32_t *)offsets, (void *)dx, groups, m, n, k, row_bytes, beta, format, dtype);
}
static inline int32_t call_cuda_bitlinear_backward(nncuda_ctx *ctx, uintptr_t dy, uintptr_t w, uintptr_t w_scale, uintptr_t dx, int64_t m, int64_t n, int64_t k, int64_t stored, int64_t row_bytes, float beta, int32_t dtype) {
  return nn_api.cuda_bitlinear_backward(ctx, (const void *)dy, (const void *)w, (const float *)w_scale, (void *)dx, m, n, k, stored, row_bytes, beta, dtype);
}
static inline int32_t call_cuda_digest(nncuda_ctx *ctx, uintptr_t x, uintptr_t sums, int64_t n, int64_t width, int64_t first) {
  return nn_api.cuda_digest(ctx, (const void *)x, (int64_t *)sums, n, width, first);
}
static inline int32_t call_cuda_random_bits(nncuda_ctx *ctx, uintptr_t y, int64_t n, int64_t seed, int64_t stream, int64_t offset) {
  return nn_api.cuda_random_bits(ctx, (int32_t *)y, n, seed, stream, offset);
}
static inline int32_t call_cuda_uniform(nncuda_ctx *ctx, uintptr_t y, int64_t n, float low, float high, int64_t seed, int64_t stream, int64_t offset, int32_t dtype) {
  return nn_api.cuda_uniform(ctx, (void *)y, n, low, high, seed, stream, offset, dtype);
}
static inline int32_t call_cuda_normal(nncuda_ctx *ctx, uintptr_t y, int64_t n, float mean, float std, int64_t seed, int64_t stream, int64_t offset, int32_t dtype) {
  return nn_api.cuda_normal(ctx, (void *)y, n, mean, std, seed, stream, offset, dtype);
}

#endif
