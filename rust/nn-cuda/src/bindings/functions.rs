// Generated from bindings.h by `make generate`. Do not edit.

//! The functions' types, under their names in bindings.h, and the handles that they take.

#![allow(non_camel_case_types, reason = "the names are those of bindings.h")]

use core::ffi::{c_char, c_void};
use core::marker::{PhantomData, PhantomPinned};

/// What a `nncuda_ctx` pointer points to; only the library knows its content.
#[repr(C)]
#[derive(Debug)]
pub struct nncuda_ctx {
    _content: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// What a `nncuda_stream` pointer points to; only the library knows its content.
#[repr(C)]
#[derive(Debug)]
pub struct nncuda_stream {
    _content: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// What a `nncuda_event` pointer points to; only the library knows its content.
#[repr(C)]
#[derive(Debug)]
pub struct nncuda_event {
    _content: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// What a `nncuda_graph` pointer points to; only the library knows its content.
#[repr(C)]
#[derive(Debug)]
pub struct nncuda_graph {
    _content: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// What a `nncuda_comm` pointer points to; only the library knows its content.
#[repr(C)]
#[derive(Debug)]
pub struct nncuda_comm {
    _content: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// The library's ABI version: NNCUDA_ABI_MAJOR \* 1000 + NNCUDA_ABI_MINOR as it was built.
///
/// C: `int32_t nncuda_abi_version(void);`
pub type nncuda_abi_version = unsafe extern "C" fn() -> i32;

/// Version, compiler, instruction sets and CUDA architectures that this library was built with, as one line of
/// text.
///
/// C: `const char *nncuda_build_info(void);`
pub type nncuda_build_info = unsafe extern "C" fn() -> *const c_char;

/// The name of a status, such as "NNCUDA_ERROR_INVALID_SIZE"; "unknown status" for a number that is none.
///
/// C: `const char *nncuda_status_name(int32_t status);`
pub type nncuda_status_name = unsafe extern "C" fn(status: i32) -> *const c_char;

/// What a status means and what to do about it, in one sentence.
///
/// C: `const char *nncuda_status_string(int32_t status);`
pub type nncuda_status_string = unsafe extern "C" fn(status: i32) -> *const c_char;

/// Bytes of one element.
///
/// C: `int32_t nncuda_dtype_size(int32_t dtype, int64_t *bytes);`
pub type nncuda_dtype_size = unsafe extern "C" fn(dtype: i32, bytes: *mut i64) -> i32;

/// Bytes of a row of so many elements in a format.
///
/// C: `int32_t nncuda_format_row_bytes(int32_t format, int64_t elements, int64_t *bytes);`
pub type nncuda_format_row_bytes = unsafe extern "C" fn(format: i32, elements: i64, bytes: *mut i64) -> i32;

/// How many devices of a kind this machine offers; 0 CUDA devices when there is no driver or no GPU.
///
/// C: `int32_t nncuda_device_count(int32_t device, int32_t *count);`
pub type nncuda_device_count = unsafe extern "C" fn(device: i32, count: *mut i32) -> i32;

/// A device in words (processor or GPU name, instruction sets or compute capability, memory), cut to fit
/// `capacity`.
///
/// C: `int32_t nncuda_device_describe(int32_t device, int32_t index, char *text, int64_t capacity);`
pub type nncuda_device_describe =
    unsafe extern "C" fn(device: i32, index: i32, text: *mut c_char, capacity: i64) -> i32;

/// Makes a context: a device, its stream, a worker pool (CPU), a pool of freed buffers and a scratch arena.
///
/// C: `int32_t nncuda_ctx_create(int32_t device, int32_t index, nncuda_ctx **ctx);`
pub type nncuda_ctx_create = unsafe extern "C" fn(device: i32, index: i32, ctx: *mut *mut nncuda_ctx) -> i32;

/// Makes a context that measures what a program would need of a device, which this machine need not have: a program
/// runs on it as on the real one, but its kernels do nothing.
///
/// C: `int32_t nncuda_ctx_create_measuring(int32_t device, int32_t isa, int32_t threads, int32_t multiprocessors, nncuda_ctx **ctx);`
pub type nncuda_ctx_create_measuring =
    unsafe extern "C" fn(device: i32, isa: i32, threads: i32, multiprocessors: i32, ctx: *mut *mut nncuda_ctx) -> i32;

/// Waits for the context's work, then frees it and all its memory, buffers from nncuda_malloc included.
///
/// C: `int32_t nncuda_ctx_destroy(nncuda_ctx *ctx);`
pub type nncuda_ctx_destroy = unsafe extern "C" fn(ctx: *mut nncuda_ctx) -> i32;

/// Waits until all work of the context, on all its streams, is done; returns the first error that the device met.
///
/// C: `int32_t nncuda_ctx_synchronize(nncuda_ctx *ctx);`
pub type nncuda_ctx_synchronize = unsafe extern "C" fn(ctx: *mut nncuda_ctx) -> i32;

/// Reads an attribute.
///
/// C: `int32_t nncuda_ctx_get(nncuda_ctx *ctx, int32_t attribute, int64_t *value);`
pub type nncuda_ctx_get = unsafe extern "C" fn(ctx: *mut nncuda_ctx, attribute: i32, value: *mut i64) -> i32;

/// Sets an attribute; those that describe the machine are read-only.
///
/// C: `int32_t nncuda_ctx_set(nncuda_ctx *ctx, int32_t attribute, int64_t value);`
pub type nncuda_ctx_set = unsafe extern "C" fn(ctx: *mut nncuda_ctx, attribute: i32, value: i64) -> i32;

/// The last error of this context as a sentence, empty after a success.
///
/// C: `const char *nncuda_last_error(nncuda_ctx *ctx);`
pub type nncuda_last_error = unsafe extern "C" fn(ctx: *mut nncuda_ctx) -> *const c_char;

/// Allocates device memory, aligned to 256 bytes, uninitialised.
///
/// C: `int32_t nncuda_malloc(nncuda_ctx *ctx, int64_t bytes, void **pointer);`
pub type nncuda_malloc = unsafe extern "C" fn(ctx: *mut nncuda_ctx, bytes: i64, pointer: *mut *mut c_void) -> i32;

/// Addresses for `bytes`, aligned as those of nncuda_malloc, of which only some ranges are memory, zeroed: for a
/// rank that holds a part of an arena, and counts as ever from the arena's beginning.
///
/// C: `int32_t nncuda_malloc_parts(nncuda_ctx *ctx, int64_t bytes, const int64_t *ranges, int64_t count, void **pointer);`
pub type nncuda_malloc_parts = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    bytes: i64,
    ranges: *const i64,
    count: i64,
    pointer: *mut *mut c_void,
) -> i32;

/// Gives memory from nncuda_malloc back to the context's pool.
///
/// C: `int32_t nncuda_free(nncuda_ctx *ctx, void *pointer);`
pub type nncuda_free = unsafe extern "C" fn(ctx: *mut nncuda_ctx, pointer: *mut c_void) -> i32;

/// As nncuda_malloc, for host memory that the device copies from and to at full speed (page-locked on a GPU).
///
/// C: `int32_t nncuda_malloc_host(nncuda_ctx *ctx, int64_t bytes, void **pointer);`
pub type nncuda_malloc_host = unsafe extern "C" fn(ctx: *mut nncuda_ctx, bytes: i64, pointer: *mut *mut c_void) -> i32;

/// Frees memory from nncuda_malloc_host.
///
/// C: `int32_t nncuda_free_host(nncuda_ctx *ctx, void *pointer);`
pub type nncuda_free_host = unsafe extern "C" fn(ctx: *mut nncuda_ctx, pointer: *mut c_void) -> i32;

/// Bytes free and in all on the context's device (the machine's memory on the CPU).
///
/// C: `int32_t nncuda_memory_info(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes);`
pub type nncuda_memory_info =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, free_bytes: *mut i64, total_bytes: *mut i64) -> i32;

/// Sets every byte.
///
/// C: `int32_t nncuda_memset(nncuda_ctx *ctx, void *pointer, int32_t value, int64_t bytes);`
pub type nncuda_memset =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, pointer: *mut c_void, value: i32, bytes: i64) -> i32;

/// Copies; on return the host's side may be used: what came from the device is there, what goes to it was taken.
///
/// C: `int32_t nncuda_memcpy(nncuda_ctx *ctx, void *destination, const void *source, int64_t bytes, int32_t kind);`
pub type nncuda_memcpy = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    destination: *mut c_void,
    source: *const c_void,
    bytes: i64,
    kind: i32,
) -> i32;

/// Copies on a stream without waiting.
///
/// C: `int32_t nncuda_memcpy_async(nncuda_ctx *ctx, nncuda_stream *stream, void *destination, const void *source, int64_t bytes, int32_t kind);`
pub type nncuda_memcpy_async = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    stream: *mut nncuda_stream,
    destination: *mut c_void,
    source: *const c_void,
    bytes: i64,
    kind: i32,
) -> i32;

/// Makes a stream for copies.
///
/// C: `int32_t nncuda_stream_create(nncuda_ctx *ctx, nncuda_stream **stream);`
pub type nncuda_stream_create = unsafe extern "C" fn(ctx: *mut nncuda_ctx, stream: *mut *mut nncuda_stream) -> i32;

/// Waits for the stream, then frees it.
///
/// C: `int32_t nncuda_stream_destroy(nncuda_ctx *ctx, nncuda_stream *stream);`
pub type nncuda_stream_destroy = unsafe extern "C" fn(ctx: *mut nncuda_ctx, stream: *mut nncuda_stream) -> i32;

/// Waits until the stream has done all that was given to it.
///
/// C: `int32_t nncuda_stream_synchronize(nncuda_ctx *ctx, nncuda_stream *stream);`
pub type nncuda_stream_synchronize = unsafe extern "C" fn(ctx: *mut nncuda_ctx, stream: *mut nncuda_stream) -> i32;

/// What is given to the stream from now on waits for the event.
///
/// C: `int32_t nncuda_stream_wait_event(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event);`
pub type nncuda_stream_wait_event =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, stream: *mut nncuda_stream, event: *mut nncuda_event) -> i32;

/// Makes an event.
///
/// C: `int32_t nncuda_event_create(nncuda_ctx *ctx, nncuda_event **event);`
pub type nncuda_event_create = unsafe extern "C" fn(ctx: *mut nncuda_ctx, event: *mut *mut nncuda_event) -> i32;

/// Frees an event.
///
/// C: `int32_t nncuda_event_destroy(nncuda_ctx *ctx, nncuda_event *event);`
pub type nncuda_event_destroy = unsafe extern "C" fn(ctx: *mut nncuda_ctx, event: *mut nncuda_event) -> i32;

/// The event happens when the stream has done all that was given to it so far.
///
/// C: `int32_t nncuda_event_record(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event);`
pub type nncuda_event_record =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, stream: *mut nncuda_stream, event: *mut nncuda_event) -> i32;

/// Waits until the event has happened.
///
/// C: `int32_t nncuda_event_synchronize(nncuda_ctx *ctx, nncuda_event *event);`
pub type nncuda_event_synchronize = unsafe extern "C" fn(ctx: *mut nncuda_ctx, event: *mut nncuda_event) -> i32;

/// Whether the event has happened.
///
/// C: `int32_t nncuda_event_query(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened);`
pub type nncuda_event_query =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, event: *mut nncuda_event, happened: *mut i32) -> i32;

/// Time between two events that have happened.
///
/// C: `int32_t nncuda_event_elapsed(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds);`
pub type nncuda_event_elapsed = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    start: *mut nncuda_event,
    end: *mut nncuda_event,
    milliseconds: *mut f32,
) -> i32;

/// Starts capturing.
///
/// C: `int32_t nncuda_graph_begin(nncuda_ctx *ctx);`
pub type nncuda_graph_begin = unsafe extern "C" fn(ctx: *mut nncuda_ctx) -> i32;

/// Ends capturing.
///
/// C: `int32_t nncuda_graph_end(nncuda_ctx *ctx, nncuda_graph **graph);`
pub type nncuda_graph_end = unsafe extern "C" fn(ctx: *mut nncuda_ctx, graph: *mut *mut nncuda_graph) -> i32;

/// Runs a graph.
///
/// C: `int32_t nncuda_graph_launch(nncuda_ctx *ctx, nncuda_graph *graph);`
pub type nncuda_graph_launch = unsafe extern "C" fn(ctx: *mut nncuda_ctx, graph: *mut nncuda_graph) -> i32;

/// How many calls a graph holds.
///
/// C: `int32_t nncuda_graph_size(nncuda_ctx *ctx, nncuda_graph *graph, int64_t *nodes);`
pub type nncuda_graph_size =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, graph: *mut nncuda_graph, nodes: *mut i64) -> i32;

/// Frees a graph.
///
/// C: `int32_t nncuda_graph_destroy(nncuda_ctx *ctx, nncuda_graph *graph);`
pub type nncuda_graph_destroy = unsafe extern "C" fn(ctx: *mut nncuda_ctx, graph: *mut nncuda_graph) -> i32;

/// Starts profiling afresh.
///
/// C: `int32_t nncuda_profile_begin(nncuda_ctx *ctx);`
pub type nncuda_profile_begin = unsafe extern "C" fn(ctx: *mut nncuda_ctx) -> i32;

/// Stops profiling; what was measured stays until the next begin.
///
/// C: `int32_t nncuda_profile_end(nncuda_ctx *ctx);`
pub type nncuda_profile_end = unsafe extern "C" fn(ctx: *mut nncuda_ctx) -> i32;

/// What was measured, as text.
///
/// C: `int32_t nncuda_profile_report(nncuda_ctx *ctx, int32_t form, char *text, int64_t capacity, int64_t *needed);`
pub type nncuda_profile_report =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, form: i32, text: *mut c_char, capacity: i64, needed: *mut i64) -> i32;

/// Starts tracing: every kernel call leaves a line with its arguments' names, dtypes and shapes.
///
/// C: `int32_t nncuda_trace_begin(nncuda_ctx *ctx, int64_t values);`
pub type nncuda_trace_begin = unsafe extern "C" fn(ctx: *mut nncuda_ctx, values: i64) -> i32;

/// Starts a trace that looks for the first value that is not finite: in what a kernel reads and none has written
/// since the begin, such as weights; then in what it writes.
///
/// C: `int32_t nncuda_trace_begin_nonfinite(nncuda_ctx *ctx);`
pub type nncuda_trace_begin_nonfinite = unsafe extern "C" fn(ctx: *mut nncuda_ctx) -> i32;

/// Starts a shadow run: every kernel call runs a second time on `reference`, another context (instruction set,
/// threads, device), on the same inputs and into memory of its own, and what both wrote is compared.
///
/// C: `int32_t nncuda_trace_begin_shadow(nncuda_ctx *ctx, nncuda_ctx *reference);`
pub type nncuda_trace_begin_shadow = unsafe extern "C" fn(ctx: *mut nncuda_ctx, reference: *mut nncuda_ctx) -> i32;

/// Says what the calls from here on belong to, such as model.layers.3.mlp.
///
/// C: `int32_t nncuda_trace_label(nncuda_ctx *ctx, const char *label, int64_t length);`
pub type nncuda_trace_label = unsafe extern "C" fn(ctx: *mut nncuda_ctx, label: *const c_char, length: i64) -> i32;

/// Stops tracing; what was traced stays until the next begin.
///
/// C: `int32_t nncuda_trace_end(nncuda_ctx *ctx);`
pub type nncuda_trace_end = unsafe extern "C" fn(ctx: *mut nncuda_ctx) -> i32;

/// What was traced: lines, or the JSON object.
///
/// C: `int32_t nncuda_trace_read(nncuda_ctx *ctx, char *text, int64_t capacity, int64_t *needed);`
pub type nncuda_trace_read =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, text: *mut c_char, capacity: i64, needed: *mut i64) -> i32;

/// The order in which windows of training data are visited: positions first .. first+count-1 of an endless sequence
/// whose epoch e = position / windows is a permutation of 0 .. windows-1 chosen by (seed, e).
///
/// C: `int32_t nncuda_data_order(nncuda_ctx *ctx, int64_t seed, int64_t first, int64_t count, int64_t windows, int64_t *indices);`
pub type nncuda_data_order = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    seed: i64,
    first: i64,
    count: i64,
    windows: i64,
    indices: *mut i64,
) -> i32;

/// Cuts `count` elements into `parts` neighbouring shards of whole grains (the last grain may be shorter), as equal
/// as that allows: shard p begins at grain p \* grains / parts, rounded down.
///
/// C: `int32_t nncuda_shard(int64_t count, int64_t grain, int64_t parts, int64_t part, int64_t *begin, int64_t *end);`
pub type nncuda_shard =
    unsafe extern "C" fn(count: i64, grain: i64, parts: i64, part: i64, begin: *mut i64, end: *mut i64) -> i32;

/// Which rank updates which elements of an arena of `n` parameters, of which `group` neighbouring ranks hold the
/// experts together: the ranks q, q + group, ... hold part q of each matrix in `experts`.
///
/// C: `int32_t nncuda_expert_shards(int64_t n, int64_t grain, int64_t ranks, int64_t group, const int64_t *experts, int64_t matrices, int64_t *shards, int64_t capacity, int64_t *count);`
pub type nncuda_expert_shards = unsafe extern "C" fn(
    n: i64,
    grain: i64,
    ranks: i64,
    group: i64,
    experts: *const i64,
    matrices: i64,
    shards: *mut i64,
    capacity: i64,
    count: *mut i64,
) -> i32;

/// For adding gradients over replicas one after the other.
///
/// C: `int32_t nncuda_replica_merges(int64_t replicas, int64_t first, int64_t replica, int64_t *merges);`
pub type nncuda_replica_merges = unsafe extern "C" fn(replicas: i64, first: i64, replica: i64, merges: *mut i64) -> i32;

/// The order in which a rank with experts adds their gradients, which come from all ranks of its group: ranks first
/// .. first + group - 1 of the job, each with its own replicas.
///
/// C: `int32_t nncuda_expert_schedule(int64_t replicas, int64_t ranks, int64_t first, int64_t group, int64_t micro_batches, int64_t position, int64_t *events, int64_t capacity, int64_t *count, int64_t *slots);`
pub type nncuda_expert_schedule = unsafe extern "C" fn(
    replicas: i64,
    ranks: i64,
    first: i64,
    group: i64,
    micro_batches: i64,
    position: i64,
    events: *mut i64,
    capacity: i64,
    count: *mut i64,
    slots: *mut i64,
) -> i32;

/// Joins a communicator; returns when all ranks have.
///
/// C: `int32_t nncuda_comm_create(nncuda_ctx *ctx, int32_t transport, const char *address, int64_t length, int64_t rank, int64_t ranks, int64_t timeout_ms, nncuda_comm **comm);`
pub type nncuda_comm_create = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    transport: i32,
    address: *const c_char,
    length: i64,
    rank: i64,
    ranks: i64,
    timeout_ms: i64,
    comm: *mut *mut nncuda_comm,
) -> i32;

/// Which rank this is, and of how many.
///
/// C: `int32_t nncuda_comm_rank(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *rank, int64_t *ranks);`
pub type nncuda_comm_rank =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, comm: *mut nncuda_comm, rank: *mut i64, ranks: *mut i64) -> i32;

/// Cuts a communicator: ranks of one color form a new one, in the order of `key`, then of their ranks.
///
/// C: `int32_t nncuda_comm_split(nncuda_ctx *ctx, nncuda_comm *comm, int64_t color, int64_t key, nncuda_comm **part);`
pub type nncuda_comm_split = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    color: i64,
    key: i64,
    part: *mut *mut nncuda_comm,
) -> i32;

/// A communicator of the ranks first, first + step, ..., in this order, of which this rank is one.
///
/// C: `int32_t nncuda_comm_part(nncuda_ctx *ctx, nncuda_comm *comm, int64_t first, int64_t step, int64_t count, nncuda_comm **part);`
pub type nncuda_comm_part = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    first: i64,
    step: i64,
    count: i64,
    part: *mut *mut nncuda_comm,
) -> i32;

/// Leaves a communicator and frees it, without waiting for the others.
///
/// C: `int32_t nncuda_comm_destroy(nncuda_ctx *ctx, nncuda_comm *comm);`
pub type nncuda_comm_destroy = unsafe extern "C" fn(ctx: *mut nncuda_ctx, comm: *mut nncuda_comm) -> i32;

/// Tells the other ranks that this one cannot go on: what they do on the communicator, now or later, fails with
/// NNCUDA_ERROR_PEER and this reason.
///
/// C: `int32_t nncuda_comm_abort(nncuda_ctx *ctx, nncuda_comm *comm, const char *reason, int64_t length);`
pub type nncuda_comm_abort =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, comm: *mut nncuda_comm, reason: *const c_char, length: i64) -> i32;

/// Fails on all ranks, naming one that differs, unless all give the same bytes.
///
/// C: `int32_t nncuda_comm_agree(nncuda_ctx *ctx, nncuda_comm *comm, const char *what, int64_t length, const void *value, int64_t bytes);`
pub type nncuda_comm_agree = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    what: *const c_char,
    length: i64,
    value: *const c_void,
    bytes: i64,
) -> i32;

/// Adds up a whole number of the host over all ranks.
///
/// C: `int32_t nncuda_comm_sum(nncuda_ctx *ctx, nncuda_comm *comm, int64_t value, int64_t *total);`
pub type nncuda_comm_sum =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, comm: *mut nncuda_comm, value: i64, total: *mut i64) -> i32;

/// Returns when all ranks have called it.
///
/// C: `int32_t nncuda_comm_barrier(nncuda_ctx *ctx, nncuda_comm *comm);`
pub type nncuda_comm_barrier = unsafe extern "C" fn(ctx: *mut nncuda_ctx, comm: *mut nncuda_comm) -> i32;

/// Bytes that this rank gave the transport for other ranks so far.
///
/// C: `int32_t nncuda_comm_bytes_sent(nncuda_ctx *ctx, nncuda_comm *comm, int64_t *bytes);`
pub type nncuda_comm_bytes_sent =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, comm: *mut nncuda_comm, bytes: *mut i64) -> i32;

/// x of rank `root` to all.
///
/// C: `int32_t nncuda_comm_broadcast(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t root);`
pub type nncuda_comm_broadcast =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, comm: *mut nncuda_comm, x: *mut c_void, bytes: i64, root: i64) -> i32;

/// Each rank's shard of x, nncuda_shard(bytes, grain, ranks, rank), to all.
///
/// C: `int32_t nncuda_comm_all_gather(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, int64_t grain);`
pub type nncuda_comm_all_gather =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, comm: *mut nncuda_comm, x: *mut c_void, bytes: i64, grain: i64) -> i32;

/// x = sum over the ranks of x, in their order: for numbers of which at most one is not zero, since any other sum
/// would know how many ranks there are.
///
/// C: `int32_t nncuda_comm_all_reduce(nncuda_ctx *ctx, nncuda_comm *comm, float *x, int64_t n);`
pub type nncuda_comm_all_reduce =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, comm: *mut nncuda_comm, x: *mut f32, n: i64) -> i32;

/// Sums over all replicas, each to the rank of its shard.
///
/// C: `int32_t nncuda_comm_reduce_scatter(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire);`
pub type nncuda_comm_reduce_scatter = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    partials: *const f32,
    x: *mut f32,
    n: i64,
    parts: i64,
    replicas: i64,
    shards: *const i64,
    count: i64,
    wire: i32,
) -> i32;

/// What nncuda_comm_reduce_scatter_begin needs to keep sums that arrive.
///
/// C: `int32_t nncuda_comm_reduce_scatter_room(nncuda_ctx *ctx, nncuda_comm *comm, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire, int64_t *size);`
pub type nncuda_comm_reduce_scatter_room = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    n: i64,
    parts: i64,
    replicas: i64,
    shards: *const i64,
    count: i64,
    wire: i32,
    size: *mut i64,
) -> i32;

/// The first half of nncuda_comm_reduce_scatter: sends what travels of these elements, and comes back at once, so
/// that the context does other things meanwhile.
///
/// C: `int32_t nncuda_comm_reduce_scatter_begin(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire, float *room, int64_t room_size);`
pub type nncuda_comm_reduce_scatter_begin = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    partials: *const f32,
    x: *mut f32,
    n: i64,
    parts: i64,
    replicas: i64,
    shards: *const i64,
    count: i64,
    wire: i32,
    room: *mut f32,
    room_size: i64,
) -> i32;

/// The second half: waits for what travels, in stream order, and adds it up.
///
/// C: `int32_t nncuda_comm_reduce_scatter_end(nncuda_ctx *ctx, nncuda_comm *comm, const float *partials, float *x, int64_t n, int64_t parts, int64_t replicas, const int64_t *shards, int64_t count, int32_t wire, float *room, int64_t room_size);`
pub type nncuda_comm_reduce_scatter_end = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    partials: *const f32,
    x: *mut f32,
    n: i64,
    parts: i64,
    replicas: i64,
    shards: *const i64,
    count: i64,
    wire: i32,
    room: *mut f32,
    room_size: i64,
) -> i32;

/// Moves pieces of x between ranks, each to the same place.
///
/// C: `int32_t nncuda_comm_move(nncuda_ctx *ctx, nncuda_comm *comm, void *x, int64_t bytes, const int64_t *moves, int64_t count);`
pub type nncuda_comm_move = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    x: *mut c_void,
    bytes: i64,
    moves: *const i64,
    count: i64,
) -> i32;

/// Ragged all-to-all by expert: each rank has `own` neighbouring experts, the first rank the first ones, and gets
/// the rows for its own from all ranks.
///
/// C: `int32_t nncuda_comm_dispatch(nncuda_ctx *ctx, nncuda_comm *comm, const void *x, const int32_t *offsets, void *y, int32_t *y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t own);`
pub type nncuda_comm_dispatch = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    x: *const c_void,
    offsets: *const i32,
    y: *mut c_void,
    y_offsets: *mut i32,
    rows: i64,
    slot_rows: i64,
    row_bytes: i64,
    ranks: i64,
    own: i64,
) -> i32;

/// The way back of nncuda_comm_dispatch: the rows of slot s go to rank s, to the places that they came from.
///
/// C: `int32_t nncuda_comm_collect(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, const int32_t *y_offsets, void *x, const int32_t *offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t own);`
pub type nncuda_comm_collect = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    y: *const c_void,
    y_offsets: *const i32,
    x: *mut c_void,
    offsets: *const i32,
    rows: i64,
    slot_rows: i64,
    row_bytes: i64,
    ranks: i64,
    own: i64,
) -> i32;

/// nncuda_comm_dispatch beside what the context does meanwhile: the rows are sent, and nncuda_comm_dispatch_end
/// waits for those of a rank.
///
/// C: `int32_t nncuda_comm_dispatch_begin(nncuda_ctx *ctx, nncuda_comm *comm, const void *x, const int32_t *offsets, void *y, int32_t *y_offsets, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t own, int32_t known);`
pub type nncuda_comm_dispatch_begin = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    x: *const c_void,
    offsets: *const i32,
    y: *mut c_void,
    y_offsets: *mut i32,
    rows: i64,
    slot_rows: i64,
    row_bytes: i64,
    ranks: i64,
    own: i64,
    known: i32,
) -> i32;

/// Waits, in stream order, for the rows of a rank, and for all that were to come before them.
///
/// C: `int32_t nncuda_comm_dispatch_end(nncuda_ctx *ctx, nncuda_comm *comm, void *y, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t source);`
pub type nncuda_comm_dispatch_end = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    y: *mut c_void,
    slot_rows: i64,
    row_bytes: i64,
    ranks: i64,
    source: i64,
) -> i32;

/// The way back of the last nncuda_comm_dispatch_begin: slot `source` may go back to that rank, beside what the
/// context does meanwhile.
///
/// C: `int32_t nncuda_comm_collect_begin(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, void *x, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks, int64_t source);`
pub type nncuda_comm_collect_begin = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    y: *const c_void,
    x: *mut c_void,
    rows: i64,
    slot_rows: i64,
    row_bytes: i64,
    ranks: i64,
    source: i64,
) -> i32;

/// The end of the way back: sends what is left, all of which is there, and waits, in stream order, for the rest of
/// x.
///
/// C: `int32_t nncuda_comm_collect_end(nncuda_ctx *ctx, nncuda_comm *comm, const void *y, void *x, int64_t rows, int64_t slot_rows, int64_t row_bytes, int64_t ranks);`
pub type nncuda_comm_collect_end = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    y: *const c_void,
    x: *mut c_void,
    rows: i64,
    slot_rows: i64,
    row_bytes: i64,
    ranks: i64,
) -> i32;

/// cuda_grad_norm of gradients of which each rank has its shards: to its bits.
///
/// C: `int32_t nncuda_comm_grad_norm(nncuda_ctx *ctx, nncuda_comm *comm, const float *grad, float *norm, int64_t n, const int64_t *shards, int64_t count);`
pub type nncuda_comm_grad_norm = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    comm: *mut nncuda_comm,
    grad: *const f32,
    norm: *mut f32,
    n: i64,
    shards: *const i64,
    count: i64,
) -> i32;

/// SiLU: y = x \* sigmoid(x).
///
/// C: `int32_t cuda_silu(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype);`
pub type cuda_silu =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, x: *const c_void, y: *mut c_void, n: i64, dtype: i32) -> i32;

/// Gradient of SiLU: dx = dy \* s \* (1 + x \* (1 - s)), s = sigmoid(x).
///
/// C: `int32_t cuda_silu_backward(nncuda_ctx *ctx, const void *dy, const void *x, void *dx, int64_t n, int32_t dtype);`
pub type cuda_silu_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dy: *const c_void,
    x: *const c_void,
    dx: *mut c_void,
    n: i64,
    dtype: i32,
) -> i32;

/// Sum: y = a + b.
///
/// C: `int32_t cuda_add(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype);`
pub type cuda_add = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    y: *mut c_void,
    n: i64,
    dtype: i32,
) -> i32;

/// Product, element by element: y = a \* b.
///
/// C: `int32_t cuda_mul(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, int32_t dtype);`
pub type cuda_mul = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    y: *mut c_void,
    n: i64,
    dtype: i32,
) -> i32;

/// Scaling: y = alpha \* x.
///
/// C: `int32_t cuda_scale(nncuda_ctx *ctx, const void *x, void *y, int64_t n, float alpha, int32_t dtype);`
pub type cuda_scale =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, x: *const c_void, y: *mut c_void, n: i64, alpha: f32, dtype: i32) -> i32;

/// SwiGLU gate: y = silu(gate) \* up.
///
/// C: `int32_t cuda_swiglu(nncuda_ctx *ctx, const void *gate, const void *up, const int32_t *used, void *y, int64_t rows, int64_t dim, int64_t ld, int32_t dtype);`
pub type cuda_swiglu = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    gate: *const c_void,
    up: *const c_void,
    used: *const i32,
    y: *mut c_void,
    rows: i64,
    dim: i64,
    ld: i64,
    dtype: i32,
) -> i32;

/// Gradient of the SwiGLU gate: dgate = dy \* up \* silu'(gate), dup = dy \* silu(gate).
///
/// C: `int32_t cuda_swiglu_backward(nncuda_ctx *ctx, const void *dy, const void *gate, const void *up, const int32_t *used, void *dgate, void *dup, int64_t rows, int64_t dim, int64_t ld, int32_t dtype);`
pub type cuda_swiglu_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dy: *const c_void,
    gate: *const c_void,
    up: *const c_void,
    used: *const i32,
    dgate: *mut c_void,
    dup: *mut c_void,
    rows: i64,
    dim: i64,
    ld: i64,
    dtype: i32,
) -> i32;

/// Squared-ReLU gate: y = max(gate, 0)^2 \* up.
///
/// C: `int32_t cuda_relu2_gate(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows, int64_t dim, int64_t ld, int32_t dtype);`
pub type cuda_relu2_gate = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    gate: *const c_void,
    up: *const c_void,
    y: *mut c_void,
    rows: i64,
    dim: i64,
    ld: i64,
    dtype: i32,
) -> i32;

/// Conversion, rounding to nearest-even; f32 too large for the 16-bit type becomes infinity, NaN stays NaN.
///
/// C: `int32_t cuda_cast(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype_x, int32_t dtype_y);`
pub type cuda_cast = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    y: *mut c_void,
    n: i64,
    dtype_x: i32,
    dtype_y: i32,
) -> i32;

/// y = x, rounded to a 16-bit type as cuda_cast rounds, and f32 again.
///
/// C: `int32_t cuda_round(nncuda_ctx *ctx, const float *x, float *y, int64_t n, int32_t dtype);`
pub type cuda_round = unsafe extern "C" fn(ctx: *mut nncuda_ctx, x: *const f32, y: *mut f32, n: i64, dtype: i32) -> i32;

/// Sets every element to a value, rounded to the dtype (for i32 and i8 it must be a whole number in range).
///
/// C: `int32_t cuda_fill(nncuda_ctx *ctx, void *y, int64_t n, float value, int32_t dtype);`
pub type cuda_fill = unsafe extern "C" fn(ctx: *mut nncuda_ctx, y: *mut c_void, n: i64, value: f32, dtype: i32) -> i32;

/// Counts on: x += by.
///
/// C: `int32_t cuda_increment(nncuda_ctx *ctx, int32_t *x, int64_t n, int32_t by);`
pub type cuda_increment = unsafe extern "C" fn(ctx: *mut nncuda_ctx, x: *mut i32, n: i64, by: i32) -> i32;

/// Bounds scores softly: y = cap \* tanh(x / cap).
///
/// C: `int32_t cuda_softcap(nncuda_ctx *ctx, const void *x, void *y, int64_t n, float cap, int32_t dtype);`
pub type cuda_softcap =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, x: *const c_void, y: *mut c_void, n: i64, cap: f32, dtype: i32) -> i32;

/// GELU gate: y = gelu(gate) \* up, where gelu(x) = x/2 \* (1 + tanh(sqrt(2/pi) \* (x + 0.044715 \* x^3))).
///
/// C: `int32_t cuda_geglu(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows, int64_t dim, int64_t ld, int32_t dtype);`
pub type cuda_geglu = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    gate: *const c_void,
    up: *const c_void,
    y: *mut c_void,
    rows: i64,
    dim: i64,
    ld: i64,
    dtype: i32,
) -> i32;

/// Clipped SwiGLU gate: with g = min(gate, limit) and u = up held between -limit and limit, y = g \* sigmoid(alpha
/// \* g) \* (u + 1).
///
/// C: `int32_t cuda_swiglu_clipped(nncuda_ctx *ctx, const void *gate, const void *up, void *y, int64_t rows, int64_t dim, int64_t ld, float alpha, float limit, int32_t dtype);`
pub type cuda_swiglu_clipped = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    gate: *const c_void,
    up: *const c_void,
    y: *mut c_void,
    rows: i64,
    dim: i64,
    ld: i64,
    alpha: f32,
    limit: f32,
    dtype: i32,
) -> i32;

/// Gradient of the squared-ReLU gate: dgate = 2 \* dy \* up \* max(gate, 0), dup = dy \* max(gate, 0)^2.
///
/// C: `int32_t cuda_relu2_gate_backward(nncuda_ctx *ctx, const void *dy, const void *gate, const void *up, void *dgate, void *dup, int64_t rows, int64_t dim, int64_t ld, int32_t dtype);`
pub type cuda_relu2_gate_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dy: *const c_void,
    gate: *const c_void,
    up: *const c_void,
    dgate: *mut c_void,
    dup: *mut c_void,
    rows: i64,
    dim: i64,
    ld: i64,
    dtype: i32,
) -> i32;

/// What rows in 8 bits stand for: x = codes \* scale.
///
/// C: `int32_t cuda_act_dequant_i8(nncuda_ctx *ctx, const void *codes, const float *scale, void *x, int64_t rows, int64_t cols, int32_t dtype);`
pub type cuda_act_dequant_i8 = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    codes: *const c_void,
    scale: *const f32,
    x: *mut c_void,
    rows: i64,
    cols: i64,
    dtype: i32,
) -> i32;

/// Biases of grouped rows, such as those of experts: y\[r\] = x\[r\] + bias\[g\] for the rows offsets\[g\] ..
/// offsets\[g+1\]-1.
///
/// C: `int32_t cuda_grouped_bias(nncuda_ctx *ctx, const void *x, const void *bias, const int32_t *offsets, void *y, int64_t rows, int64_t dim, int64_t groups, int32_t dtype);`
pub type cuda_grouped_bias = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    bias: *const c_void,
    offsets: *const i32,
    y: *mut c_void,
    rows: i64,
    dim: i64,
    groups: i64,
    dtype: i32,
) -> i32;

/// Softmax of each row: y = exp(x - max) / sum(exp(x - max)).
///
/// C: `int32_t cuda_softmax(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t cols, int32_t dtype);`
pub type cuda_softmax = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    y: *mut c_void,
    rows: i64,
    cols: i64,
    dtype: i32,
) -> i32;

/// Gradient of softmax: dx = y \* (dy - sum(dy \* y)).
///
/// C: `int32_t cuda_softmax_backward(nncuda_ctx *ctx, const void *dy, const void *y, void *dx, int64_t rows, int64_t cols, int32_t dtype);`
pub type cuda_softmax_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dy: *const c_void,
    y: *const c_void,
    dx: *mut c_void,
    rows: i64,
    cols: i64,
    dtype: i32,
) -> i32;

/// The router: softmax over all columns in f32, then the k largest of each row in falling order.
///
/// C: `int32_t cuda_softmax_topk(nncuda_ctx *ctx, const void *x, float *weights, int32_t *indices, float *probs, int64_t rows, int64_t cols, int64_t k, int32_t norm, int32_t dtype);`
pub type cuda_softmax_topk = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    weights: *mut f32,
    indices: *mut i32,
    probs: *mut f32,
    rows: i64,
    cols: i64,
    k: i64,
    norm: i32,
    dtype: i32,
) -> i32;

/// Gradient of the router with respect to its logits; no gradient passes through the choice of indices.
///
/// C: `int32_t cuda_softmax_topk_backward(nncuda_ctx *ctx, const float *dweights, const float *weights, const int32_t *indices, const float *probs, const float *dprobs, void *dx, int64_t rows, int64_t cols, int64_t k, int32_t norm, int32_t dtype);`
pub type cuda_softmax_topk_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dweights: *const f32,
    weights: *const f32,
    indices: *const i32,
    probs: *const f32,
    dprobs: *const f32,
    dx: *mut c_void,
    rows: i64,
    cols: i64,
    k: i64,
    norm: i32,
    dtype: i32,
) -> i32;

/// RMSNorm: y = x \* rstd \* weight, rstd = 1 / sqrt(mean(x^2) + eps).
///
/// C: `int32_t cuda_rmsnorm(nncuda_ctx *ctx, const void *x, const void *weight, void *y, float *rstd, int64_t rows, int64_t cols, float eps, int32_t dtype);`
pub type cuda_rmsnorm = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    weight: *const c_void,
    y: *mut c_void,
    rstd: *mut f32,
    rows: i64,
    cols: i64,
    eps: f32,
    dtype: i32,
) -> i32;

/// Residual sum and its RMSNorm in one pass: sum = x + residual (rounded to dtype), y = rmsnorm(sum).
///
/// C: `int32_t cuda_rmsnorm_residual(nncuda_ctx *ctx, const void *x, const void *residual, const void *weight, void *sum, void *y, float *rstd, int64_t rows, int64_t cols, float eps, int32_t dtype);`
pub type cuda_rmsnorm_residual = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    residual: *const c_void,
    weight: *const c_void,
    sum: *mut c_void,
    y: *mut c_void,
    rstd: *mut f32,
    rows: i64,
    cols: i64,
    eps: f32,
    dtype: i32,
) -> i32;

/// Gradient of RMSNorm: with xhat = x \* rstd and g = dy \* weight, dx = dresidual + rstd \* (g - xhat \* mean(g \*
/// xhat)); dweight += sum over rows of dy \* xhat.
///
/// C: `int32_t cuda_rmsnorm_backward(nncuda_ctx *ctx, const void *dy, const void *x, const void *weight, const float *rstd, const void *dresidual, void *dx, float *dweight, int64_t rows, int64_t cols, int32_t dtype);`
pub type cuda_rmsnorm_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dy: *const c_void,
    x: *const c_void,
    weight: *const c_void,
    rstd: *const f32,
    dresidual: *const c_void,
    dx: *mut c_void,
    dweight: *mut f32,
    rows: i64,
    cols: i64,
    dtype: i32,
) -> i32;

/// Matrix product: C = op(A) \* op(B).
///
/// C: `int32_t cuda_gemm(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t m, int64_t n, int64_t k, int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c);`
pub type cuda_gemm = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    c: *mut c_void,
    m: i64,
    n: i64,
    k: i64,
    trans_a: i32,
    trans_b: i32,
    dtype: i32,
    dtype_c: i32,
) -> i32;

/// Matrix product with leading dimensions: C = alpha \* op(A) \* op(B) + beta \* C.
///
/// C: `int32_t cuda_gemm_beta(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc, float alpha, float beta, int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c);`
pub type cuda_gemm_beta = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    c: *mut c_void,
    m: i64,
    n: i64,
    k: i64,
    lda: i64,
    ldb: i64,
    ldc: i64,
    alpha: f32,
    beta: f32,
    trans_a: i32,
    trans_b: i32,
    dtype: i32,
    dtype_c: i32,
) -> i32;

/// A linear layer in one pass: C = activation(A \* W^T + bias) + residual.
///
/// C: `int32_t cuda_gemm_epilogue(nncuda_ctx *ctx, const void *a, const void *b, const void *bias, const void *residual, void *c, int64_t m, int64_t n, int64_t k, int32_t activation, int32_t dtype);`
pub type cuda_gemm_epilogue = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    bias: *const c_void,
    residual: *const c_void,
    c: *mut c_void,
    m: i64,
    n: i64,
    k: i64,
    activation: i32,
    dtype: i32,
) -> i32;

/// One product a batch entry: C\[i\] = alpha \* op(A\[i\]) \* op(B\[i\]) + beta \* C\[i\], each dense.
///
/// C: `int32_t cuda_batched_gemm(nncuda_ctx *ctx, const void *a, const void *b, void *c, int64_t batch, int64_t m, int64_t n, int64_t k, float alpha, float beta, int32_t trans_a, int32_t trans_b, int32_t dtype, int32_t dtype_c);`
pub type cuda_batched_gemm = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    c: *mut c_void,
    batch: i64,
    m: i64,
    n: i64,
    k: i64,
    alpha: f32,
    beta: f32,
    trans_a: i32,
    trans_b: i32,
    dtype: i32,
    dtype_c: i32,
) -> i32;

/// One product a group of rows (the experts' products): for each group g and its rows r in offsets\[g\] ..
/// offsets\[g+1\]-1, C\[r\] = A\[r\] \* op(B\[g\]) + beta \* C\[r\].
///
/// C: `int32_t cuda_grouped_gemm(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c, int64_t groups, int64_t rows, int64_t n, int64_t k, float beta, int32_t trans_b, int32_t dtype, int32_t dtype_c);`
pub type cuda_grouped_gemm = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    offsets: *const i32,
    c: *mut c_void,
    groups: i64,
    rows: i64,
    n: i64,
    k: i64,
    beta: f32,
    trans_b: i32,
    dtype: i32,
    dtype_c: i32,
) -> i32;

/// The weights' gradients of grouped_gemm: C\[g\] = A_g^T \* B_g + beta \* C\[g\], summed over the rows of group g.
///
/// C: `int32_t cuda_grouped_gemm_wgrad(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c, int64_t groups, int64_t rows, int64_t m, int64_t n, float beta, int32_t dtype, int32_t dtype_c);`
pub type cuda_grouped_gemm_wgrad = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    offsets: *const i32,
    c: *mut c_void,
    groups: i64,
    rows: i64,
    m: i64,
    n: i64,
    beta: f32,
    dtype: i32,
    dtype_c: i32,
) -> i32;

/// The experts' first products and their gate: grouped_gemm by B^T, whose columns are gates and, behind them, ups,
/// then swiglu of the two halves of its rows, with the bits of these two calls.
///
/// C: `int32_t cuda_grouped_gemm_swiglu(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *gate_up, void *y, int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t dtype);`
pub type cuda_grouped_gemm_swiglu = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    offsets: *const i32,
    gate_up: *mut c_void,
    y: *mut c_void,
    groups: i64,
    rows: i64,
    n: i64,
    k: i64,
    dtype: i32,
) -> i32;

/// Gradient of the experts' gate from that of what they give: dy = A \* B of each group, as grouped_gemm has it, is
/// the gradient of y in grouped_gemm_swiglu, from which swiglu_backward gives those of gate and up, in their place;
/// with the bits of these two calls.
///
/// C: `int32_t cuda_grouped_gemm_swiglu_backward(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *gate_up, int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t dtype);`
pub type cuda_grouped_gemm_swiglu_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    offsets: *const i32,
    gate_up: *mut c_void,
    groups: i64,
    rows: i64,
    n: i64,
    k: i64,
    dtype: i32,
) -> i32;

/// grouped_gemm with factors in 8 bits: C\[r\] = fp8(A)\[r\] \* op(fp8(B)\[g\]).
///
/// C: `int32_t cuda_grouped_gemm_fp8(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c, int64_t groups, int64_t rows, int64_t n, int64_t k, int32_t trans_b, int32_t dtype, int32_t dtype_c);`
pub type cuda_grouped_gemm_fp8 = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    offsets: *const i32,
    c: *mut c_void,
    groups: i64,
    rows: i64,
    n: i64,
    k: i64,
    trans_b: i32,
    dtype: i32,
    dtype_c: i32,
) -> i32;

/// grouped_gemm_wgrad with factors in 8 bits: C\[g\] = fp8(A)_g^T \* fp8(B)_g + beta \* C\[g\].
///
/// C: `int32_t cuda_grouped_gemm_wgrad_fp8(nncuda_ctx *ctx, const void *a, const void *b, const int32_t *offsets, void *c, int64_t groups, int64_t rows, int64_t m, int64_t n, float beta, int32_t dtype, int32_t dtype_c);`
pub type cuda_grouped_gemm_wgrad_fp8 = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    a: *const c_void,
    b: *const c_void,
    offsets: *const i32,
    c: *mut c_void,
    groups: i64,
    rows: i64,
    m: i64,
    n: i64,
    beta: f32,
    dtype: i32,
    dtype_c: i32,
) -> i32;

/// Gathers rows of a table: y\[t\] = table\[ids\[t\]\].
///
/// C: `int32_t cuda_embedding(nncuda_ctx *ctx, const void *table, const int32_t *ids, void *y, int64_t tokens, int64_t vocab, int64_t dim, int32_t dtype);`
pub type cuda_embedding = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    table: *const c_void,
    ids: *const i32,
    y: *mut c_void,
    tokens: i64,
    vocab: i64,
    dim: i64,
    dtype: i32,
) -> i32;

/// Adds rows into a table, in the order of the tokens: table\[ids\[t\]\] += x\[t\].
///
/// C: `int32_t cuda_scatter_add(nncuda_ctx *ctx, const void *x, const int32_t *ids, float *table, int64_t tokens, int64_t vocab, int64_t dim, int32_t dtype);`
pub type cuda_scatter_add = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    ids: *const i32,
    table: *mut f32,
    tokens: i64,
    vocab: i64,
    dim: i64,
    dtype: i32,
) -> i32;

/// Adds rows to a sum of two f32, the nearest and what is left of it: sum\[0\] + sum\[1\] += x\[0\] + x\[1\] + ....
/// Each row is added without error to sum\[0\], the error to sum\[1\], and of both the nearest f32 is taken again.
///
/// C: `int32_t cuda_pool_rows(nncuda_ctx *ctx, const float *x, float *sum, int64_t rows, int64_t dim);`
pub type cuda_pool_rows =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, x: *const f32, sum: *mut f32, rows: i64, dim: i64) -> i32;

/// The vector of length 1 in the direction of a sum, which is that of the mean: y = s / |s|, s = sum\[0\] +
/// sum\[1\]; zeros where s is zero.
///
/// C: `int32_t cuda_pool_unit(nncuda_ctx *ctx, const float *sum, float *y, int64_t dim);`
pub type cuda_pool_unit = unsafe extern "C" fn(ctx: *mut nncuda_ctx, sum: *const f32, y: *mut f32, dim: i64) -> i32;

/// Tables of rotary embedding: for position p and pair i, the angle p \* b^(-2i/head_dim), computed in f64; its
/// cosine and sine, rounded to f32.
///
/// C: `int32_t cuda_rope_freqs(nncuda_ctx *ctx, float *cosine, float *sine, int64_t first, int64_t positions, int64_t head_dim, double base, double ntk_alpha);`
pub type cuda_rope_freqs = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    cosine: *mut f32,
    sine: *mut f32,
    first: i64,
    positions: i64,
    head_dim: i64,
    base: f64,
    ntk_alpha: f64,
) -> i32;

/// Tables of rotary embedding as rope_freqs, stretched: for position p and pair i, the angle scale \* p \*
/// b^(-2i/head_dim) / factors\[i\], computed in f64.
///
/// C: `int32_t cuda_rope_freqs_scaled(nncuda_ctx *ctx, const float *factors, float *cosine, float *sine, int64_t first, int64_t positions, int64_t head_dim, double base, double ntk_alpha, double scale);`
pub type cuda_rope_freqs_scaled = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    factors: *const f32,
    cosine: *mut f32,
    sine: *mut f32,
    first: i64,
    positions: i64,
    head_dim: i64,
    base: f64,
    ntk_alpha: f64,
    scale: f64,
) -> i32;

/// Rotates each pair (u, v) of each head by the angle of its token's position: (u cos - v sin, v cos + u sin).
///
/// C: `int32_t cuda_rope_forward(nncuda_ctx *ctx, const void *x, const float *cosine, const float *sine, const int32_t *positions, void *y, int64_t tokens, int64_t heads, int64_t head_dim, int64_t max_position, int64_t ld_x, int64_t ld_y, int32_t layout, int32_t dtype);`
pub type cuda_rope_forward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    cosine: *const f32,
    sine: *const f32,
    positions: *const i32,
    y: *mut c_void,
    tokens: i64,
    heads: i64,
    head_dim: i64,
    max_position: i64,
    ld_x: i64,
    ld_y: i64,
    layout: i32,
    dtype: i32,
) -> i32;

/// rope_forward of queries and keys in one call, in place.
///
/// C: `int32_t cuda_rope_qk(nncuda_ctx *ctx, void *q, void *k, const float *cosine, const float *sine, const int32_t *positions, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t max_position, int64_t ld_q, int64_t ld_k, int32_t layout, int32_t dtype);`
pub type cuda_rope_qk = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    q: *mut c_void,
    k: *mut c_void,
    cosine: *const f32,
    sine: *const f32,
    positions: *const i32,
    tokens: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    max_position: i64,
    ld_q: i64,
    ld_k: i64,
    layout: i32,
    dtype: i32,
) -> i32;

/// Gradient of rope_forward: the rotation by the opposite angle.
///
/// C: `int32_t cuda_rope_backward(nncuda_ctx *ctx, const void *dy, const float *cosine, const float *sine, const int32_t *positions, void *dx, int64_t tokens, int64_t heads, int64_t head_dim, int64_t max_position, int64_t ld_y, int64_t ld_x, int32_t layout, int32_t dtype);`
pub type cuda_rope_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dy: *const c_void,
    cosine: *const f32,
    sine: *const f32,
    positions: *const i32,
    dx: *mut c_void,
    tokens: i64,
    heads: i64,
    head_dim: i64,
    max_position: i64,
    ld_y: i64,
    ld_x: i64,
    layout: i32,
    dtype: i32,
) -> i32;

/// Scores: s = scale \* q \* k^T, with -inf where `causal` hides the key.
///
/// C: `int32_t cuda_attention_scores(nncuda_ctx *ctx, const void *q, const void *k, void *scores, int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, float scale, int32_t causal, int32_t dtype);`
pub type cuda_attention_scores = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    q: *const c_void,
    k: *const c_void,
    scores: *mut c_void,
    batch: i64,
    q_len: i64,
    kv_len: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    scale: f32,
    causal: i32,
    dtype: i32,
) -> i32;

/// Output: out = probs \* v.
///
/// C: `int32_t cuda_attention_output(nncuda_ctx *ctx, const void *probs, const void *v, void *out, int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, int32_t dtype);`
pub type cuda_attention_output = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    probs: *const c_void,
    v: *const c_void,
    out: *mut c_void,
    batch: i64,
    q_len: i64,
    kv_len: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    dtype: i32,
) -> i32;

/// Attention without storing the scores: out = softmax(scale \* q \* k^T) \* v, and the log-sum-exp of the scaled
/// scores.
///
/// C: `int32_t cuda_flash_attention(nncuda_ctx *ctx, const void *q, const void *k, const void *v, const int32_t *starts, void *out, float *lse, int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t ld_kv, float scale, int32_t causal, int32_t dtype);`
pub type cuda_flash_attention = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    q: *const c_void,
    k: *const c_void,
    v: *const c_void,
    starts: *const i32,
    out: *mut c_void,
    lse: *mut f32,
    batch: i64,
    q_len: i64,
    kv_len: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    ld_q: i64,
    ld_kv: i64,
    scale: f32,
    causal: i32,
    dtype: i32,
) -> i32;

/// Gradients of flash_attention; the probabilities are recomputed from lse.
///
/// C: `int32_t cuda_flash_attention_backward(nncuda_ctx *ctx, const void *dout, const void *q, const void *k, const void *v, const void *out, const float *lse, const int32_t *starts, void *dq, void *dk, void *dv, int64_t batch, int64_t q_len, int64_t kv_len, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t ld_kv, float scale, int32_t causal, int32_t dtype);`
pub type cuda_flash_attention_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dout: *const c_void,
    q: *const c_void,
    k: *const c_void,
    v: *const c_void,
    out: *const c_void,
    lse: *const f32,
    starts: *const i32,
    dq: *mut c_void,
    dk: *mut c_void,
    dv: *mut c_void,
    batch: i64,
    q_len: i64,
    kv_len: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    ld_q: i64,
    ld_kv: i64,
    scale: f32,
    causal: i32,
    dtype: i32,
) -> i32;

/// Where the documents of packed sequences begin.
///
/// C: `int32_t cuda_document_starts(nncuda_ctx *ctx, const int32_t *ids, int32_t *starts, int32_t *positions, int64_t batch, int64_t length, int32_t separator);`
pub type cuda_document_starts = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    ids: *const i32,
    starts: *mut i32,
    positions: *mut i32,
    batch: i64,
    length: i64,
    separator: i32,
) -> i32;

/// Attention of one new query a sequence over its cache, split over the keys.
///
/// C: `int32_t cuda_attention_decode(nncuda_ctx *ctx, const void *q, const void *k_cache, const void *v_cache, const int32_t *lengths, void *out, int64_t batch, int64_t capacity, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, float scale, int32_t dtype);`
pub type cuda_attention_decode = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    q: *const c_void,
    k_cache: *const c_void,
    v_cache: *const c_void,
    lengths: *const i32,
    out: *mut c_void,
    batch: i64,
    capacity: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    ld_q: i64,
    scale: f32,
    dtype: i32,
) -> i32;

/// Causal attention of new tokens over paged caches.
///
/// C: `int32_t cuda_flash_attention_paged(nncuda_ctx *ctx, const void *q, const void *k_pages, const void *v_pages, const int32_t *offsets, const int32_t *lengths, const int32_t *page_table, const float *sinks, void *out, int64_t tokens, int64_t batch, int64_t max_pages, int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t page_bytes, float scale, int64_t window, float softcap, int32_t format, int32_t dtype);`
pub type cuda_flash_attention_paged = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    q: *const c_void,
    k_pages: *const c_void,
    v_pages: *const c_void,
    offsets: *const i32,
    lengths: *const i32,
    page_table: *const i32,
    sinks: *const f32,
    out: *mut c_void,
    tokens: i64,
    batch: i64,
    max_pages: i64,
    pages: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    ld_q: i64,
    page_bytes: i64,
    scale: f32,
    window: i64,
    softcap: f32,
    format: i32,
    dtype: i32,
) -> i32;

/// Attention of one new query a sequence over its pages, split over the keys.
///
/// C: `int32_t cuda_attention_decode_paged(nncuda_ctx *ctx, const void *q, const void *k_pages, const void *v_pages, const int32_t *lengths, const int32_t *page_table, const float *sinks, void *out, int64_t batch, int64_t max_pages, int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ld_q, int64_t page_bytes, float scale, int64_t window, float softcap, int32_t format, int32_t dtype);`
pub type cuda_attention_decode_paged = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    q: *const c_void,
    k_pages: *const c_void,
    v_pages: *const c_void,
    lengths: *const i32,
    page_table: *const i32,
    sinks: *const f32,
    out: *mut c_void,
    batch: i64,
    max_pages: i64,
    pages: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    ld_q: i64,
    page_bytes: i64,
    scale: f32,
    window: i64,
    softcap: f32,
    format: i32,
    dtype: i32,
) -> i32;

/// A layer's attention in a decoding step, in one call: rope_qk of one new query and key a sequence,
/// kv_append_paged of the key and its value, then attention_decode_paged over the lengths\[b\] rows that sequence b
/// has with them; the same bits as those three.
///
/// C: `int32_t cuda_attention_step_paged(nncuda_ctx *ctx, const void *q, const void *k, const void *v, const float *cosine, const float *sine, const int32_t *positions, const int32_t *lengths, const int32_t *page_table, const float *sinks, void *k_pages, void *v_pages, void *out, int64_t batch, int64_t max_pages, int64_t pages, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t max_position, int64_t ld_q, int64_t ld_kv, int64_t page_bytes, float scale, int64_t window, float softcap, int32_t layout, int32_t format, int32_t dtype);`
pub type cuda_attention_step_paged = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    q: *const c_void,
    k: *const c_void,
    v: *const c_void,
    cosine: *const f32,
    sine: *const f32,
    positions: *const i32,
    lengths: *const i32,
    page_table: *const i32,
    sinks: *const f32,
    k_pages: *mut c_void,
    v_pages: *mut c_void,
    out: *mut c_void,
    batch: i64,
    max_pages: i64,
    pages: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    max_position: i64,
    ld_q: i64,
    ld_kv: i64,
    page_bytes: i64,
    scale: f32,
    window: i64,
    softcap: f32,
    layout: i32,
    format: i32,
    dtype: i32,
) -> i32;

/// Appends the keys and values of new tokens to each sequence's cache, at rows starts\[b\] .. starts\[b\]+len-1.
///
/// C: `int32_t cuda_kv_append(nncuda_ctx *ctx, const void *k, const void *v, const int32_t *starts, void *k_cache, void *v_cache, int64_t batch, int64_t len, int64_t capacity, int64_t kv_heads, int64_t head_dim, int64_t ld_kv, int32_t dtype);`
pub type cuda_kv_append = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    k: *const c_void,
    v: *const c_void,
    starts: *const i32,
    k_cache: *mut c_void,
    v_cache: *mut c_void,
    batch: i64,
    len: i64,
    capacity: i64,
    kv_heads: i64,
    head_dim: i64,
    ld_kv: i64,
    dtype: i32,
) -> i32;

/// Drops the oldest rows of each cache so that at most `keep` remain: the newest move to the front, lengths follow.
///
/// C: `int32_t cuda_kv_trim(nncuda_ctx *ctx, void *k_cache, void *v_cache, int32_t *lengths, int64_t batch, int64_t capacity, int64_t kv_heads, int64_t head_dim, int64_t keep, int32_t dtype);`
pub type cuda_kv_trim = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    k_cache: *mut c_void,
    v_cache: *mut c_void,
    lengths: *mut i32,
    batch: i64,
    capacity: i64,
    kv_heads: i64,
    head_dim: i64,
    keep: i64,
    dtype: i32,
) -> i32;

/// Writes the keys and values of new tokens into their sequences' pages.
///
/// C: `int32_t cuda_kv_append_paged(nncuda_ctx *ctx, const void *k, const void *v, const int32_t *offsets, const int32_t *lengths, const int32_t *page_table, void *k_pages, void *v_pages, int64_t tokens, int64_t batch, int64_t max_pages, int64_t pages, int64_t kv_heads, int64_t head_dim, int64_t ld_kv, int64_t page_bytes, int32_t format, int32_t dtype);`
pub type cuda_kv_append_paged = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    k: *const c_void,
    v: *const c_void,
    offsets: *const i32,
    lengths: *const i32,
    page_table: *const i32,
    k_pages: *mut c_void,
    v_pages: *mut c_void,
    tokens: i64,
    batch: i64,
    max_pages: i64,
    pages: i64,
    kv_heads: i64,
    head_dim: i64,
    ld_kv: i64,
    page_bytes: i64,
    format: i32,
    dtype: i32,
) -> i32;

/// Plans which row each slot takes.
///
/// C: `int32_t cuda_moe_plan(nncuda_ctx *ctx, const int32_t *indices, int32_t *counts, int32_t *offsets, int32_t *slot_row, int32_t *row_slot, int64_t tokens, int64_t k, int64_t experts, int64_t capacity);`
pub type cuda_moe_plan = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    indices: *const i32,
    counts: *mut i32,
    offsets: *mut i32,
    slot_row: *mut i32,
    row_slot: *mut i32,
    tokens: i64,
    k: i64,
    experts: i64,
    capacity: i64,
) -> i32;

/// Brings tokens into row order: y\[r\] = x\[row_slot\[r\] / k\].
///
/// C: `int32_t cuda_moe_gather(nncuda_ctx *ctx, const void *x, const int32_t *row_slot, void *y, int64_t tokens, int64_t k, int64_t dim, int32_t dtype);`
pub type cuda_moe_gather = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    row_slot: *const i32,
    y: *mut c_void,
    tokens: i64,
    k: i64,
    dim: i64,
    dtype: i32,
) -> i32;

/// Routes tokens to their experts and brings them there: softmax_topk of the logits, moe_plan, moe_gather and, with
/// `loss`, aux_loss_forward, with the bits that these give one after the other.
///
/// C: `int32_t cuda_moe_route(nncuda_ctx *ctx, const void *logits, const void *x, float *weights, int32_t *indices, float *probs, int32_t *counts, int32_t *offsets, int32_t *slot_row, int32_t *row_slot, void *y, float *loss, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int32_t norm, int64_t capacity, float alpha, int32_t dtype, int32_t dtype_logits);`
pub type cuda_moe_route = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *const c_void,
    x: *const c_void,
    weights: *mut f32,
    indices: *mut i32,
    probs: *mut f32,
    counts: *mut i32,
    offsets: *mut i32,
    slot_row: *mut i32,
    row_slot: *mut i32,
    y: *mut c_void,
    loss: *mut f32,
    tokens: i64,
    experts: i64,
    k: i64,
    dim: i64,
    norm: i32,
    capacity: i64,
    alpha: f32,
    dtype: i32,
    dtype_logits: i32,
) -> i32;

/// Gradient of moe_route with respect to the logits: softmax_topk_backward, whose dprobs is what aux_loss_backward
/// gives, with the bits of these two calls.
///
/// C: `int32_t cuda_moe_route_backward(nncuda_ctx *ctx, const float *dweights, const float *weights, const int32_t *indices, const float *probs, const int32_t *counts, const float *grad_scale, void *dlogits, int64_t tokens, int64_t experts, int64_t k, int32_t norm, float alpha, int32_t dtype);`
pub type cuda_moe_route_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dweights: *const f32,
    weights: *const f32,
    indices: *const i32,
    probs: *const f32,
    counts: *const i32,
    grad_scale: *const f32,
    dlogits: *mut c_void,
    tokens: i64,
    experts: i64,
    k: i64,
    norm: i32,
    alpha: f32,
    dtype: i32,
) -> i32;

/// Gradient of moe_gather: dx\[t\] = sum over j of dy\[slot_row\[t, j\]\], dropped slots left out.
///
/// C: `int32_t cuda_moe_gather_backward(nncuda_ctx *ctx, const void *dy, const int32_t *slot_row, void *dx, int64_t tokens, int64_t k, int64_t dim, int32_t dtype);`
pub type cuda_moe_gather_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dy: *const c_void,
    slot_row: *const i32,
    dx: *mut c_void,
    tokens: i64,
    k: i64,
    dim: i64,
    dtype: i32,
) -> i32;

/// Weighs the experts' outputs and brings them back into token order: out\[t\] = residual\[t\] + sum over j of
/// weights\[t, j\] \* y\[slot_row\[t, j\]\], dropped slots left out.
///
/// C: `int32_t cuda_moe_combine(nncuda_ctx *ctx, const void *y, const float *weights, const int32_t *slot_row, const void *residual, void *out, int64_t tokens, int64_t k, int64_t dim, int32_t dtype);`
pub type cuda_moe_combine = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    y: *const c_void,
    weights: *const f32,
    slot_row: *const i32,
    residual: *const c_void,
    out: *mut c_void,
    tokens: i64,
    k: i64,
    dim: i64,
    dtype: i32,
) -> i32;

/// Gradients of moe_combine: dy\[r\] = weights\[t, j\] \* dout\[t\] for the slot (t, j) of row r, zero for rows
/// without a slot; dweights\[t, j\] = dout\[t\] . y\[slot_row\[t, j\]\], zero for dropped slots.
///
/// C: `int32_t cuda_moe_combine_backward(nncuda_ctx *ctx, const void *dout, const void *y, const float *weights, const int32_t *slot_row, const int32_t *row_slot, void *dy, float *dweights, int64_t tokens, int64_t k, int64_t dim, int32_t dtype);`
pub type cuda_moe_combine_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dout: *const c_void,
    y: *const c_void,
    weights: *const f32,
    slot_row: *const i32,
    row_slot: *const i32,
    dy: *mut c_void,
    dweights: *mut f32,
    tokens: i64,
    k: i64,
    dim: i64,
    dtype: i32,
) -> i32;

/// What the gradient of a layer of experts begins with: moe_combine_backward, and moe_route_backward of the
/// gradient of the weights that it gives, with the bits of these two calls.
///
/// C: `int32_t cuda_moe_output_backward(nncuda_ctx *ctx, const void *dout, const void *y, const float *weights, const int32_t *indices, const float *probs, const int32_t *counts, const int32_t *slot_row, const int32_t *row_slot, const float *grad_scale, void *dy, float *dweights, void *dlogits, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int32_t norm, float alpha, int32_t dtype);`
pub type cuda_moe_output_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dout: *const c_void,
    y: *const c_void,
    weights: *const f32,
    indices: *const i32,
    probs: *const f32,
    counts: *const i32,
    slot_row: *const i32,
    row_slot: *const i32,
    grad_scale: *const f32,
    dy: *mut c_void,
    dweights: *mut f32,
    dlogits: *mut c_void,
    tokens: i64,
    experts: i64,
    k: i64,
    dim: i64,
    norm: i32,
    alpha: f32,
    dtype: i32,
) -> i32;

/// What the gradient of a layer of experts ends with, those of the router's gate and of the tokens: dgate =
/// dlogits^T \* x + beta \* dgate, and dx\[t\] = sum over j of drows\[slot_row\[t, j\]\] + dlogits\[t\] \* gate, as
/// gemm_beta has the one, moe_gather_backward and gemm_beta the other.
///
/// C: `int32_t cuda_moe_input_backward(nncuda_ctx *ctx, const void *dlogits, const void *x, const void *gate, const void *drows, const int32_t *slot_row, void *dx, void *dgate, int64_t tokens, int64_t experts, int64_t k, int64_t dim, float beta, int32_t dtype, int32_t dtype_c);`
pub type cuda_moe_input_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dlogits: *const c_void,
    x: *const c_void,
    gate: *const c_void,
    drows: *const c_void,
    slot_row: *const i32,
    dx: *mut c_void,
    dgate: *mut c_void,
    tokens: i64,
    experts: i64,
    k: i64,
    dim: i64,
    beta: f32,
    dtype: i32,
    dtype_c: i32,
) -> i32;

/// Cross-entropy of each row: losses = lse - logits\[target\], lse = log(sum(exp(logits))); zero where the target
/// is ignore_index.
///
/// C: `int32_t cuda_cross_entropy_forward(nncuda_ctx *ctx, const void *logits, const int32_t *targets, float *losses, float *lse, float *loss_sum, int32_t *count, int64_t rows, int64_t vocab, int32_t ignore_index, int32_t dtype);`
pub type cuda_cross_entropy_forward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *const c_void,
    targets: *const i32,
    losses: *mut f32,
    lse: *mut f32,
    loss_sum: *mut f32,
    count: *mut i32,
    rows: i64,
    vocab: i64,
    ignore_index: i32,
    dtype: i32,
) -> i32;

/// Gradient of grad_scale \* sum(losses): dlogits = grad_scale \* (exp(logits - lse) - onehot(target)); zero where
/// ignored.
///
/// C: `int32_t cuda_cross_entropy_backward(nncuda_ctx *ctx, const void *logits, const int32_t *targets, const float *lse, const float *grad_scale, void *dlogits, int64_t rows, int64_t vocab, int32_t ignore_index, int32_t dtype);`
pub type cuda_cross_entropy_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *const c_void,
    targets: *const i32,
    lse: *const f32,
    grad_scale: *const f32,
    dlogits: *mut c_void,
    rows: i64,
    vocab: i64,
    ignore_index: i32,
    dtype: i32,
) -> i32;

/// Load-balancing loss of one layer: loss += alpha \* sum over experts of f \* P, f = counts / tokens, P = mean of
/// probs over tokens.
///
/// C: `int32_t cuda_aux_loss_forward(nncuda_ctx *ctx, const float *probs, const int32_t *counts, float *loss, int64_t tokens, int64_t experts, float alpha);`
pub type cuda_aux_loss_forward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    probs: *const f32,
    counts: *const i32,
    loss: *mut f32,
    tokens: i64,
    experts: i64,
    alpha: f32,
) -> i32;

/// Gradient of grad_scale \* aux loss with respect to probs: dprobs = grad_scale \* alpha \* f / tokens; none
/// through f.
///
/// C: `int32_t cuda_aux_loss_backward(nncuda_ctx *ctx, const int32_t *counts, const float *grad_scale, float *dprobs, int64_t tokens, int64_t experts, float alpha);`
pub type cuda_aux_loss_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    counts: *const i32,
    grad_scale: *const f32,
    dprobs: *mut f32,
    tokens: i64,
    experts: i64,
    alpha: f32,
) -> i32;

/// Mean of what was summed in parts: y = sum of weights \* x / divisor, in f64 in a fixed order, rounded once.
///
/// C: `int32_t cuda_weighted_mean(nncuda_ctx *ctx, const float *x, const int32_t *weights, float *y, int64_t n, int64_t divisor);`
pub type cuda_weighted_mean = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const f32,
    weights: *const i32,
    y: *mut f32,
    n: i64,
    divisor: i64,
) -> i32;

/// AdamW with decoupled weight decay, for t = step\[0\] \>= 1 and g = grad \* grad_scale: m = beta1\*m +
/// (1-beta1)\*g; v = beta2\*v + (1-beta2)\*g^2; param = param\*(1 - lr\*weight_decay) - lr \* (m/(1-beta1^t)) /
/// (sqrt(v/(1-beta2^t)) + eps).
///
/// C: `int32_t cuda_adamw_step(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step, const float *grad_scale, const int32_t *skip, float *param, float *m, float *v, void *param_copy, int64_t n, int64_t n_decay, float beta1, float beta2, float eps, float weight_decay, int32_t dtype);`
pub type cuda_adamw_step = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    grad: *const f32,
    lr: *const f32,
    step: *const i32,
    grad_scale: *const f32,
    skip: *const i32,
    param: *mut f32,
    m: *mut f32,
    v: *mut f32,
    param_copy: *mut c_void,
    n: i64,
    n_decay: i64,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
    dtype: i32,
) -> i32;

/// AdamW as adamw_step has it, its moments kept in bf16: they are widened, updated in f32, used for the parameters,
/// and rounded by chance (see above) as they are stored.
///
/// C: `int32_t cuda_adamw_step_bf16(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step, const float *grad_scale, const int32_t *skip, float *param, void *m, void *v, void *param_copy, int64_t n, int64_t n_decay, int64_t first, float beta1, float beta2, float eps, float weight_decay, int32_t dtype);`
pub type cuda_adamw_step_bf16 = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    grad: *const f32,
    lr: *const f32,
    step: *const i32,
    grad_scale: *const f32,
    skip: *const i32,
    param: *mut f32,
    m: *mut c_void,
    v: *mut c_void,
    param_copy: *mut c_void,
    n: i64,
    n_decay: i64,
    first: i64,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
    dtype: i32,
) -> i32;

/// AdamW as adamw_step has it, its moments kept in 8 bits, blockwise (Dettmers, Lewis, Shleifer, Zettlemoyer 2022,
/// section 2.1): each 256 consecutive elements, the last ones fewer, have one f32 scale s, the largest magnitude
/// among them, and each element a code for a number q of 0 .. 1; it is s \* q, the largest one exactly.
///
/// C: `int32_t cuda_adamw_step_f8(nncuda_ctx *ctx, const float *grad, const float *lr, const int32_t *step, const float *grad_scale, const int32_t *skip, float *param, void *m, float *m_scale, void *r, float *r_scale, void *param_copy, int64_t n, int64_t blocks, int64_t n_decay, int64_t first, float beta1, float beta2, float eps, float weight_decay, int32_t dtype);`
pub type cuda_adamw_step_f8 = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    grad: *const f32,
    lr: *const f32,
    step: *const i32,
    grad_scale: *const f32,
    skip: *const i32,
    param: *mut f32,
    m: *mut c_void,
    m_scale: *mut f32,
    r: *mut c_void,
    r_scale: *mut f32,
    param_copy: *mut c_void,
    n: i64,
    blocks: i64,
    n_decay: i64,
    first: i64,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
    dtype: i32,
) -> i32;

/// Sets gradients to zero.
///
/// C: `int32_t cuda_zero_grad(nncuda_ctx *ctx, void *grad, int64_t n, int32_t dtype);`
pub type cuda_zero_grad = unsafe extern "C" fn(ctx: *mut nncuda_ctx, grad: *mut c_void, n: i64, dtype: i32) -> i32;

/// Euclidean norm: norm = sqrt(sum(grad^2)).
///
/// C: `int32_t cuda_grad_norm(nncuda_ctx *ctx, const void *grad, float *norm, int64_t n, int32_t dtype);`
pub type cuda_grad_norm =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, grad: *const c_void, norm: *mut f32, n: i64, dtype: i32) -> i32;

/// Clips by the global norm: with s = loss_scale (1 if null) and g = norm/s, scale = min(1, max_norm / (g + 1e-6))
/// / s; where grad is given it is multiplied by scale.
///
/// C: `int32_t cuda_grad_clip(nncuda_ctx *ctx, const float *norm, const float *loss_scale, float *scale, void *grad, int64_t n, float max_norm, int32_t dtype);`
pub type cuda_grad_clip = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    norm: *const f32,
    loss_scale: *const f32,
    scale: *mut f32,
    grad: *mut c_void,
    n: i64,
    max_norm: f32,
    dtype: i32,
) -> i32;

/// Advances the step and gives its rate: t = ++step\[0\]; up to `warmup` steps lr = max_lr \* t / warmup, then lr =
/// min_lr + (max_lr - min_lr) \* (1 + cos(pi \* (t - warmup) / (total - warmup))) / 2, from `total` on min_lr.
///
/// C: `int32_t cuda_lr_schedule(nncuda_ctx *ctx, const int32_t *skip, int32_t *step, float *lr, int64_t warmup, int64_t total, float max_lr, float min_lr);`
pub type cuda_lr_schedule = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    skip: *const i32,
    step: *mut i32,
    lr: *mut f32,
    warmup: i64,
    total: i64,
    max_lr: f32,
    min_lr: f32,
) -> i32;

/// Dynamic loss scaling: when norm is not finite, skip = 1, skipped += 1, loss_scale \*= backoff, good_steps = 0;
/// else skip = 0 and good_steps += 1, and each time it reaches `interval` loss_scale \*= growth and good_steps = 0.
///
/// C: `int32_t cuda_loss_scale_update(nncuda_ctx *ctx, const float *norm, float *loss_scale, int32_t *good_steps, int32_t *skipped, int32_t *skip, float growth, float backoff, int64_t interval);`
pub type cuda_loss_scale_update = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    norm: *const f32,
    loss_scale: *mut f32,
    good_steps: *mut i32,
    skipped: *mut i32,
    skip: *mut i32,
    growth: f32,
    backoff: f32,
    interval: i64,
) -> i32;

/// The first token of each row in the order above.
///
/// C: `int32_t cuda_argmax(nncuda_ctx *ctx, const void *logits, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype);`
pub type cuda_argmax = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *const c_void,
    ids: *mut i32,
    rows: i64,
    vocab: i64,
    dtype: i32,
) -> i32;

/// Draws from softmax(logits / temperature).
///
/// C: `int32_t cuda_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype);`
pub type cuda_sample = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *const c_void,
    temperature: *const f32,
    seeds: *const i64,
    steps: *const i32,
    ids: *mut i32,
    rows: i64,
    vocab: i64,
    dtype: i32,
) -> i32;

/// Draws among the first top_k tokens of each row.
///
/// C: `int32_t cuda_topk_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k, const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype);`
pub type cuda_topk_sample = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *const c_void,
    temperature: *const f32,
    top_k: *const i32,
    seeds: *const i64,
    steps: *const i32,
    ids: *mut i32,
    rows: i64,
    vocab: i64,
    dtype: i32,
) -> i32;

/// Draws among the shortest run of first tokens whose probability reaches top_p (of those that top_k leaves, if
/// given).
///
/// C: `int32_t cuda_topp_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k, const float *top_p, const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype);`
pub type cuda_topp_sample = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *const c_void,
    temperature: *const f32,
    top_k: *const i32,
    top_p: *const f32,
    seeds: *const i64,
    steps: *const i32,
    ids: *mut i32,
    rows: i64,
    vocab: i64,
    dtype: i32,
) -> i32;

/// Draws among the tokens, of those that top_k and then top_p leave, if given, whose probability is at least min_p
/// times that of the first one: exp((logit - largest) / temperature) \>= min_p.
///
/// C: `int32_t cuda_minp_sample(nncuda_ctx *ctx, const void *logits, const float *temperature, const int32_t *top_k, const float *top_p, const float *min_p, const int64_t *seeds, const int32_t *steps, int32_t *ids, int64_t rows, int64_t vocab, int32_t dtype);`
pub type cuda_minp_sample = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *const c_void,
    temperature: *const f32,
    top_k: *const i32,
    top_p: *const f32,
    min_p: *const f32,
    seeds: *const i64,
    steps: *const i32,
    ids: *mut i32,
    rows: i64,
    vocab: i64,
    dtype: i32,
) -> i32;

/// Adds the token that was drawn for each row to the row's list: to its count, or as a new token with a count of 1.
///
/// C: `int32_t cuda_count_tokens(nncuda_ctx *ctx, const int32_t *ids, int32_t *seen_ids, int32_t *seen_counts, int32_t *seen_lengths, int64_t rows, int64_t vocab, int64_t capacity);`
pub type cuda_count_tokens = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    ids: *const i32,
    seen_ids: *mut i32,
    seen_counts: *mut i32,
    seen_lengths: *mut i32,
    rows: i64,
    vocab: i64,
    capacity: i64,
) -> i32;

/// Makes tokens of a row's list less likely.
///
/// C: `int32_t cuda_penalize_logits(nncuda_ctx *ctx, void *logits, const float *presence, const float *frequency, const float *repetition, const int32_t *seen_ids, const int32_t *seen_counts, const int32_t *seen_lengths, int64_t rows, int64_t vocab, int64_t capacity, int32_t dtype);`
pub type cuda_penalize_logits = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *mut c_void,
    presence: *const f32,
    frequency: *const f32,
    repetition: *const f32,
    seen_ids: *const i32,
    seen_counts: *const i32,
    seen_lengths: *const i32,
    rows: i64,
    vocab: i64,
    capacity: i64,
    dtype: i32,
) -> i32;

/// Adds to some logits of each row r: bias\[i\] to that of token ids\[i\], for i = offsets\[r\] ..
/// offsets\[r+1\]-1.
///
/// C: `int32_t cuda_bias_logits(nncuda_ctx *ctx, void *logits, const int32_t *offsets, const int32_t *ids, const float *bias, int64_t rows, int64_t vocab, int64_t biases, int32_t dtype);`
pub type cuda_bias_logits = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *mut c_void,
    offsets: *const i32,
    ids: *const i32,
    bias: *const f32,
    rows: i64,
    vocab: i64,
    biases: i64,
    dtype: i32,
) -> i32;

/// Sets the logits of tokens that a row's mask does not allow to -inf.
///
/// C: `int32_t cuda_mask_logits(nncuda_ctx *ctx, void *logits, const int32_t *masks, const int32_t *mask_of, int64_t rows, int64_t vocab, int64_t n, int64_t words, int32_t dtype);`
pub type cuda_mask_logits = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *mut c_void,
    masks: *const i32,
    mask_of: *const i32,
    rows: i64,
    vocab: i64,
    n: i64,
    words: i64,
    dtype: i32,
) -> i32;

/// Log-probabilities, log softmax(logits), of one token of each row, and of the first n in the order above if they
/// are asked for.
///
/// C: `int32_t cuda_logprobs(nncuda_ctx *ctx, const void *logits, const int32_t *ids, float *logprobs, int32_t *top_ids, float *top_logprobs, int64_t rows, int64_t vocab, int64_t n, int32_t dtype);`
pub type cuda_logprobs = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    logits: *const c_void,
    ids: *const i32,
    logprobs: *mut f32,
    top_ids: *mut i32,
    top_logprobs: *mut f32,
    rows: i64,
    vocab: i64,
    n: i64,
    dtype: i32,
) -> i32;

/// Stores rows in a format.
///
/// C: `int32_t cuda_quantize(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes, int32_t format, int32_t dtype);`
pub type cuda_quantize = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    y: *mut c_void,
    rows: i64,
    k: i64,
    row_bytes: i64,
    format: i32,
    dtype: i32,
) -> i32;

/// The numbers that stored rows stand for: in f32 as the `gguf` package computes them, to the bit, then rounded to
/// `dtype`.
///
/// C: `int32_t cuda_dequantize(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes, int32_t format, int32_t dtype);`
pub type cuda_dequantize = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    y: *mut c_void,
    rows: i64,
    k: i64,
    row_bytes: i64,
    format: i32,
    dtype: i32,
) -> i32;

/// Gathers and dequantizes rows of a stored table: y\[t\] = table\[ids\[t\]\].
///
/// C: `int32_t cuda_embedding_quant(nncuda_ctx *ctx, const void *table, const int32_t *ids, void *y, int64_t tokens, int64_t vocab, int64_t dim, int64_t row_bytes, int32_t format, int32_t dtype);`
pub type cuda_embedding_quant = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    table: *const c_void,
    ids: *const i32,
    y: *mut c_void,
    tokens: i64,
    vocab: i64,
    dim: i64,
    row_bytes: i64,
    format: i32,
    dtype: i32,
) -> i32;

/// A linear layer with stored weights: y = activation(x \* W^T + bias) + residual.
///
/// C: `int32_t cuda_gemm_quant(nncuda_ctx *ctx, const void *x, const void *w, const int32_t *offsets, const void *bias, const void *residual, void *y, int64_t groups, int64_t m, int64_t n, int64_t k, int64_t row_bytes, int32_t activation, int32_t format, int32_t dtype);`
pub type cuda_gemm_quant = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    w: *const c_void,
    offsets: *const i32,
    bias: *const c_void,
    residual: *const c_void,
    y: *mut c_void,
    groups: i64,
    m: i64,
    n: i64,
    k: i64,
    row_bytes: i64,
    activation: i32,
    format: i32,
    dtype: i32,
) -> i32;

/// Queries, keys and values in one call, as they come from three gemm_quant: y = \[x \* Wq^T, x \* Wk^T, x \*
/// Wv^T\] + bias.
///
/// C: `int32_t cuda_gemm_quant_qkv(nncuda_ctx *ctx, const void *x, const void *wq, const void *wk, const void *wv, const void *bias, const void *norm, void *y, int64_t m, int64_t n_q, int64_t n_kv, int64_t n, int64_t k, int64_t row_bytes_q, int64_t row_bytes_k, int64_t row_bytes_v, float eps, int32_t format_q, int32_t format_k, int32_t format_v, int32_t dtype);`
pub type cuda_gemm_quant_qkv = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    wq: *const c_void,
    wk: *const c_void,
    wv: *const c_void,
    bias: *const c_void,
    norm: *const c_void,
    y: *mut c_void,
    m: i64,
    n_q: i64,
    n_kv: i64,
    n: i64,
    k: i64,
    row_bytes_q: i64,
    row_bytes_k: i64,
    row_bytes_v: i64,
    eps: f32,
    format_q: i32,
    format_k: i32,
    format_v: i32,
    dtype: i32,
) -> i32;

/// The gated unit in one call: y = silu(x \* Wg^T) \* (x \* Wu^T), each product and the silu in f32.
///
/// C: `int32_t cuda_gemm_quant_swiglu(nncuda_ctx *ctx, const void *x, const void *w_gate, const void *w_up, const int32_t *offsets, const void *norm, void *y, int64_t groups, int64_t m, int64_t n, int64_t k, int64_t row_bytes_gate, int64_t row_bytes_up, float eps, int32_t format_gate, int32_t format_up, int32_t dtype);`
pub type cuda_gemm_quant_swiglu = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    w_gate: *const c_void,
    w_up: *const c_void,
    offsets: *const i32,
    norm: *const c_void,
    y: *mut c_void,
    groups: i64,
    m: i64,
    n: i64,
    k: i64,
    row_bytes_gate: i64,
    row_bytes_up: i64,
    eps: f32,
    format_gate: i32,
    format_up: i32,
    dtype: i32,
) -> i32;

/// The router of a stored mixture of experts: rmsnorm of the residual stream, gemm_quant of what that gives,
/// softmax_topk and moe_plan, with the bits of these calls.
///
/// C: `int32_t cuda_gemm_quant_route(nncuda_ctx *ctx, const float *x, const float *gains, const void *w, float *y, float *logits, float *weights, int32_t *indices, float *probs, int32_t *counts, int32_t *offsets, int32_t *slot_row, int32_t *row_slot, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int64_t row_bytes, float eps, int32_t norm, int32_t format);`
pub type cuda_gemm_quant_route = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const f32,
    gains: *const f32,
    w: *const c_void,
    y: *mut f32,
    logits: *mut f32,
    weights: *mut f32,
    indices: *mut i32,
    probs: *mut f32,
    counts: *mut i32,
    offsets: *mut i32,
    slot_row: *mut i32,
    row_slot: *mut i32,
    tokens: i64,
    experts: i64,
    k: i64,
    dim: i64,
    row_bytes: i64,
    eps: f32,
    norm: i32,
    format: i32,
) -> i32;

/// The experts of a stored mixture: y\[t\] = residual\[t\] + sum over a token's experts of weight \* ((silu(x\[t\]
/// \* Wg^T) \* (x\[t\] \* Wu^T)) \* Wd^T), as moe_gather, gemm_quant_swiglu, gemm_quant and moe_combine give it,
/// with the bits of these calls.
///
/// C: `int32_t cuda_gemm_quant_experts(nncuda_ctx *ctx, const float *x, const void *w_gate, const void *w_up, const void *w_down, const float *weights, const int32_t *offsets, const int32_t *slot_row, const int32_t *row_slot, const float *residual, float *y, int64_t tokens, int64_t experts, int64_t k, int64_t dim, int64_t n, int64_t row_bytes_gate, int64_t row_bytes_up, int64_t row_bytes_down, int32_t format_gate, int32_t format_up, int32_t format_down);`
pub type cuda_gemm_quant_experts = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const f32,
    w_gate: *const c_void,
    w_up: *const c_void,
    w_down: *const c_void,
    weights: *const f32,
    offsets: *const i32,
    slot_row: *const i32,
    row_slot: *const i32,
    residual: *const f32,
    y: *mut f32,
    tokens: i64,
    experts: i64,
    k: i64,
    dim: i64,
    n: i64,
    row_bytes_gate: i64,
    row_bytes_up: i64,
    row_bytes_down: i64,
    format_gate: i32,
    format_up: i32,
    format_down: i32,
) -> i32;

/// Puts the stored rows of a matrix into the order that products on a CPU read fastest: sixteen of them side by
/// side, so that one word of each fills a vector.
///
/// C: `int32_t cuda_interleave_rows(nncuda_ctx *ctx, const void *x, void *y, int64_t rows, int64_t k, int64_t row_bytes, int32_t format);`
pub type cuda_interleave_rows = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    y: *mut c_void,
    rows: i64,
    k: i64,
    row_bytes: i64,
    format: i32,
) -> i32;

/// Rounds rows to 8 bits, each with a scale of its own: with a = max(max |x|, 1e-5), codes = rint(x \* (127/a)),
/// ties to even, scale = a/127, all in f32.
///
/// C: `int32_t cuda_act_quant_i8(nncuda_ctx *ctx, const void *x, void *codes, float *scale, int64_t rows, int64_t cols, int32_t dtype);`
pub type cuda_act_quant_i8 = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    codes: *mut c_void,
    scale: *mut f32,
    rows: i64,
    cols: i64,
    dtype: i32,
) -> i32;

/// RMSNorm and act_quant_i8 in one pass: the bits of cuda_rmsnorm, its result rounded to dtype, then of
/// cuda_act_quant_i8.
///
/// C: `int32_t cuda_rmsnorm_quant_i8(nncuda_ctx *ctx, const void *x, const void *weight, void *codes, float *scale, int64_t rows, int64_t cols, float eps, int32_t dtype);`
pub type cuda_rmsnorm_quant_i8 = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    weight: *const c_void,
    codes: *mut c_void,
    scale: *mut f32,
    rows: i64,
    cols: i64,
    eps: f32,
    dtype: i32,
) -> i32;

/// Ternary weights by their mean magnitude: with s = max(mean |x|, 1e-5), codes = rint(x \* (1/s)) cut to -1 .. 1,
/// ties to even.
///
/// C: `int32_t cuda_ternary_quantize(nncuda_ctx *ctx, const void *x, void *codes, float *scale, int64_t n, int64_t k, int32_t dtype);`
pub type cuda_ternary_quantize = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    codes: *mut c_void,
    scale: *mut f32,
    n: i64,
    k: i64,
    dtype: i32,
) -> i32;

/// Packs ternary weights.
///
/// C: `int32_t cuda_ternary_pack(nncuda_ctx *ctx, const void *codes, void *w, int64_t n, int64_t k, int64_t stored, int64_t row_bytes);`
pub type cuda_ternary_pack = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    codes: *const c_void,
    w: *mut c_void,
    n: i64,
    k: i64,
    stored: i64,
    row_bytes: i64,
) -> i32;

/// The codes of packed weights.
///
/// C: `int32_t cuda_ternary_unpack(nncuda_ctx *ctx, const void *w, void *codes, int64_t n, int64_t k, int64_t stored, int64_t row_bytes);`
pub type cuda_ternary_unpack = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    w: *const c_void,
    codes: *mut c_void,
    n: i64,
    k: i64,
    stored: i64,
    row_bytes: i64,
) -> i32;

/// A linear layer with ternary weights: y = float(codes \* W^T) \* (scale \* w_scale) + residual, the product of
/// integers exact, its conversion to f32, the product of the scales, the product of the two and the sum each
/// rounded once to f32.
///
/// C: `int32_t cuda_bitlinear(nncuda_ctx *ctx, const void *codes, const float *scale, const void *w, const float *w_scale, const void *residual, void *y, int64_t m, int64_t n, int64_t k, int64_t stored, int64_t row_bytes, int32_t dtype);`
pub type cuda_bitlinear = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    codes: *const c_void,
    scale: *const f32,
    w: *const c_void,
    w_scale: *const f32,
    residual: *const c_void,
    y: *mut c_void,
    m: i64,
    n: i64,
    k: i64,
    stored: i64,
    row_bytes: i64,
    dtype: i32,
) -> i32;

/// A linear layer with ternary weights and the norm before it: bitlinear of what rmsnorm_quant_i8 makes of x, or
/// act_quant_i8 where there are no gains, with the bits of these two calls.
///
/// C: `int32_t cuda_bitlinear_norm(nncuda_ctx *ctx, const void *x, const void *norm, const void *w, const float *w_scale, const void *residual, void *y, int64_t m, int64_t n, int64_t k, int64_t stored, int64_t row_bytes, float eps, int32_t dtype);`
pub type cuda_bitlinear_norm = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    x: *const c_void,
    norm: *const c_void,
    w: *const c_void,
    w_scale: *const f32,
    residual: *const c_void,
    y: *mut c_void,
    m: i64,
    n: i64,
    k: i64,
    stored: i64,
    row_bytes: i64,
    eps: f32,
    dtype: i32,
) -> i32;

/// The gradient of a linear layer with stored weights with respect to its input: dx = dy \* W + beta \* dx, of the
/// layer y = x \* W^T that gemm_quant computes.
///
/// C: `int32_t cuda_gemm_quant_backward(nncuda_ctx *ctx, const void *dy, const void *w, const int32_t *offsets, void *dx, int64_t groups, int64_t m, int64_t n, int64_t k, int64_t row_bytes, float beta, int32_t format, int32_t dtype);`
pub type cuda_gemm_quant_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dy: *const c_void,
    w: *const c_void,
    offsets: *const i32,
    dx: *mut c_void,
    groups: i64,
    m: i64,
    n: i64,
    k: i64,
    row_bytes: i64,
    beta: f32,
    format: i32,
    dtype: i32,
) -> i32;

/// The gradient of a linear layer with ternary weights with respect to its input: dx = dy \* (w_scale \* W) + beta
/// \* dx, of the layer that bitlinear computes, with the rounding of its input to 8 bits taken as the identity.
///
/// C: `int32_t cuda_bitlinear_backward(nncuda_ctx *ctx, const void *dy, const void *w, const float *w_scale, void *dx, int64_t m, int64_t n, int64_t k, int64_t stored, int64_t row_bytes, float beta, int32_t dtype);`
pub type cuda_bitlinear_backward = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    dy: *const c_void,
    w: *const c_void,
    w_scale: *const f32,
    dx: *mut c_void,
    m: i64,
    n: i64,
    k: i64,
    stored: i64,
    row_bytes: i64,
    beta: f32,
    dtype: i32,
) -> i32;

/// Adds up a digest of memory that hangs on each of its bits and on where it is, in whole numbers modulo 2^64, so
/// that parts may be taken in any order, by anyone, and their sums added.
///
/// C: `int32_t cuda_digest(nncuda_ctx *ctx, const void *x, int64_t *sums, int64_t n, int64_t width, int64_t first);`
pub type cuda_digest =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, x: *const c_void, sums: *mut i64, n: i64, width: i64, first: i64) -> i32;

/// The generator's own 32-bit words.
///
/// C: `int32_t cuda_random_bits(nncuda_ctx *ctx, int32_t *y, int64_t n, int64_t seed, int64_t stream, int64_t offset);`
pub type cuda_random_bits =
    unsafe extern "C" fn(ctx: *mut nncuda_ctx, y: *mut i32, n: i64, seed: i64, stream: i64, offset: i64) -> i32;

/// Uniform numbers: y = low + (high - low) \* (word \>\> 8) \* 2^-24, so low \<= y, and y \< high before rounding.
///
/// C: `int32_t cuda_uniform(nncuda_ctx *ctx, void *y, int64_t n, float low, float high, int64_t seed, int64_t stream, int64_t offset, int32_t dtype);`
pub type cuda_uniform = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    y: *mut c_void,
    n: i64,
    low: f32,
    high: f32,
    seed: i64,
    stream: i64,
    offset: i64,
    dtype: i32,
) -> i32;

/// Normal numbers by Box and Muller (1958): each pair of words (a, b) with u = ((a \>\> 8) + 1) \* 2^-24, w = (b
/// \>\> 8) \* 2^-24 gives r\*cos(2 pi w) and r\*sin(2 pi w), r = sqrt(-2 log u); y = mean + std \* that.
///
/// C: `int32_t cuda_normal(nncuda_ctx *ctx, void *y, int64_t n, float mean, float std, int64_t seed, int64_t stream, int64_t offset, int32_t dtype);`
pub type cuda_normal = unsafe extern "C" fn(
    ctx: *mut nncuda_ctx,
    y: *mut c_void,
    n: i64,
    mean: f32,
    std: f32,
    seed: i64,
    stream: i64,
    offset: i64,
    dtype: i32,
) -> i32;
