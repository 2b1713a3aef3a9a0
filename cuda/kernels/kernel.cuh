/*
 * Included first by every file of the GPU engine: how kernels are named, started, and how they report bad indices.
 *
 *   NN_KERNEL(silu) {                       // int32_t (nncuda_ctx *ctx, const nn_silu_args *a), found by its name
 *     return nn_launch(ctx, silu_kernel<float>, dim3(blocks), dim3(256), 0, ...);
 *   }
 *
 * The host's part of a kernel must not read device memory, allocate or wait: it may be running into a graph. Its
 * workspace (engine.h) is device memory, free again for the next kernel of the stream; <family>_workspace.h lays it
 * out, and workspace.c lists it.
 */
#ifndef NN_KERNELS_KERNEL_CUH
#define NN_KERNELS_KERNEL_CUH

#include "runtime/engine.h"

#include "kernels/instructions_grid.cuh"

#include <cuda_runtime.h>
#include <stdint.h>

/* Defines the entry of a kernel of bindings.h. Weak declarations of all of them stand in engine.cu. */
#define NN_KERNEL(op) NN_KERNEL_OF(op, nn_##op##_args)
/* The same for a kernel whose arguments are those of another one. */
#define NN_KERNEL_OF(op, ARGS)                                                                                         \
  static int32_t nn_begin_##op(nncuda_ctx *ctx, const ARGS *a);                                                        \
  extern "C" int32_t nn_cuda_##op(nncuda_ctx *ctx, const void *args) {                                                 \
    return nn_begin_##op(ctx, static_cast<const ARGS *>(args));                                                        \
  }                                                                                                                    \
  static int32_t nn_begin_##op(nncuda_ctx *ctx, const ARGS *a)

/* The first bad index, number or offset that a kernel met. It lies in device memory and is read at the next
 * synchronise. The names are those of the host, which alone follows them. */
struct nn_fault {
  int32_t raised; /* 0, or 1 since a thread took it */
  int32_t is_float;
  const char *function, *name;
  const char *rule;      /* what it must be, in words; null for low .. high */
  const char *note;      /* what is said after low .. high, or null */
  const char *exception; /* names one more value that is right, or null */
  int64_t index, width;  /* of a matrix with `width` columns, unless that is 0 */
  int64_t value, low, high, excepted;
  double number;
};

constexpr int64_t NN_ARRIVALS = 4096;

extern "C" {
cudaStream_t nn_gpu_stream(nncuda_ctx *ctx);
/* Compute capability, 90 for 9.0. */
int32_t nn_gpu_arch(nncuda_ctx *ctx);
/* Streaming multiprocessors. May decide how work is spread, never how sums are cut. */
int32_t nn_gpu_sms(nncuda_ctx *ctx);
/* Whether f32 products may round their factors to tf32. */
int32_t nn_gpu_tf32(nncuda_ctx *ctx);
/* Whether attention's backward pass multiplies P and dS in two parts, however long a sequence is. */
int32_t nn_gpu_two_parts(nncuda_ctx *ctx);
nn_fault *nn_gpu_fault(nncuda_ctx *ctx);
/* Whether kernels may start before the ones before them have ended. */
int32_t nn_gpu_launches_ahead(nncuda_ctx *ctx);
/* NN_ARRIVALS counters, for blocks that share a result: they are 0 when a kernel begins, and when it ends. */
unsigned *nn_gpu_arrivals(nncuda_ctx *ctx);
/* The exported name of the function that is running. */
const char *nn_gpu_function(nncuda_ctx *ctx);
/* The status for an error of the CUDA runtime, its sentence set. */
int32_t nn_gpu_fail(nncuda_ctx *ctx, cudaError_t error);
}

/* A test of indices on the device: part of the arguments of the kernel that makes it. */
struct nn_range {
  nn_fault *fault;
  const char *function, *name;
  int64_t low, high;
  const char *note = nullptr, *exception = nullptr;
  int64_t excepted = 0, width = 0;

  /* The same range with more for its message: "0 to 31, the capacity"; "0 to 31999, or ignore_index (-100)", where
   * that value is valid, too; "indices[3, 1]" instead of "indices[13]". All strings are literals. */
  nn_range noted(const char *text) const {
    nn_range range = *this;
    range.note = text;
    return range;
  }
  nn_range unless(const char *of, int64_t value) const {
    nn_range range = *this;
    range.exception = of;
    range.excepted = value;
    return range;
  }
  nn_range in_rows_of(int64_t columns) const {
    nn_range range = *this;
    range.width = columns;
    return range;
  }

  /* Whether value, element `index` of the tensor, is inside. If not it is reported; the caller must then leave out
   * what depends on it. */
  __device__ __forceinline__ bool holds(int64_t index, int64_t value) const {
    if ((value >= low && value <= high) || (exception != nullptr && value == excepted)) {
      return true;
    }
    if (atomicCAS(&fault->raised, 0, 1) == 0) {
      fault->is_float = 0;
      fault->function = function;
      fault->name = name;
      fault->rule = nullptr;
      fault->note = note;
      fault->exception = exception;
      fault->index = index;
      fault->width = width;
      fault->value = value;
      fault->low = low;
      fault->high = high;
      fault->excepted = excepted;
    }
    return false;
  }
};

/* `name` must outlive the context: a literal. */
inline nn_range nn_range_of(nncuda_ctx *ctx, const char *name, int64_t low, int64_t high) {
  return nn_range{nn_gpu_fault(ctx), nn_gpu_function(ctx), name, low, high};
}

/* The same for a number or an index with a rule that is not a fixed range: "it must be <rule>". */
struct nn_rule {
  nn_fault *fault;
  const char *function, *name, *rule;

  __device__ __forceinline__ void broken(int64_t index, double number) const {
    if (first(index)) {
      fault->is_float = 1;
      fault->number = number;
    }
  }
  /* By a whole number. */
  __device__ __forceinline__ void broken_by(int64_t index, int64_t value) const {
    if (first(index)) {
      fault->is_float = 0;
      fault->value = value;
    }
  }

private:
  __device__ __forceinline__ bool first(int64_t index) const {
    if (atomicCAS(&fault->raised, 0, 1) != 0) {
      return false;
    }
    fault->function = function;
    fault->name = name;
    fault->rule = rule;
    fault->index = index;
    fault->width = 0;
    return true;
  }
};

inline nn_rule nn_rule_of(nncuda_ctx *ctx, const char *name, const char *rule) {
  return nn_rule{nn_gpu_fault(ctx), nn_gpu_function(ctx), name, rule};
}

/* Dynamic shared memory: `unsigned char *name`, 1024-byte aligned as the bulk copies want it. */
#ifndef NN_SHARED_BYTES /* the emulator brings its own */
#define NN_SHARED_BYTES(name)                                                                                          \
  extern __shared__ __align__(1024) unsigned char nn_shared_memory[];                                                  \
  unsigned char *const name = nn_shared_memory
#endif

/* A parameter in a place where its type must not be deduced. */
template <class T> struct nn_exactly {
  using type = T;
};

/* A launch, `ahead` or not and in clusters of so many blocks, as those below say. */
template <class... P>
inline int32_t nn_launch_as(nncuda_ctx *ctx, bool ahead, unsigned cluster, void (*kernel)(P...), dim3 grid, dim3 block,
                            size_t shared, typename nn_exactly<P>::type... args) {
  /* 48 KiB without asking, of which a kernel may have 36 of fixed size (cmake/ptxas_report.py). */
  const size_t default_shared = 12 * 1024;
  if (shared > default_shared) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error != cudaSuccess) {
      return nn_gpu_fail(ctx, error);
    }
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = nn_gpu_stream(ctx);
  cudaLaunchAttribute attributes[2] = {};
  if (ahead) {
    cudaLaunchAttribute &attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute &attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster, 1, 1};
  }
  config.attrs = attributes;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, args...);
  return error == cudaSuccess ? NNCUDA_SUCCESS : nn_gpu_fail(ctx, error);
}

/* Starts a kernel on the context's stream; a status. Much dynamic shared memory is asked for by itself. */
template <class... P>
inline int32_t nn_launch(nncuda_ctx *ctx, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                         typename nn_exactly<P>::type... args) {
  return nn_launch_as(ctx, false, 1, kernel, grid, block, shared, args...);
}

/* The same in clusters of so many neighbouring blocks along x (kernels/instructions_cluster.cuh); grid.x is a multiple
 * of that. */
template <class... P>
inline int32_t nn_launch_clusters(nncuda_ctx *ctx, unsigned cluster, void (*kernel)(P...), dim3 grid, dim3 block,
                                  size_t shared, typename nn_exactly<P>::type... args) {
  return nn_launch_as(ctx, false, cluster, kernel, grid, block, shared, args...);
}

/*
 * The same for the kernels of a decoding step, which are short: where the GPU can, the kernel starts while the one
 * before it ends, as soon as that one lets it (nn_let_next_start), and finds its blocks on the device already. Each of
 * its threads calls nn_wait_for_kernels before it touches what any kernel writes, and before it returns: so the end of
 * a kernel is that of all before it. In graphs it holds as well.
 */
template <class... P>
inline int32_t nn_launch_ahead(nncuda_ctx *ctx, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                               typename nn_exactly<P>::type... args) {
  return nn_launch_as(ctx, nn_gpu_launches_ahead(ctx) != 0, 1, kernel, grid, block, shared, args...);
}

/* Blocks for `work` pieces that a block takes `each` of: no more than keep the device full, since each continues to the
 * next piece (a grid-stride loop). */
inline unsigned nn_blocks(nncuda_ctx *ctx, int64_t work, int64_t each, int32_t per_sm) {
  const int64_t wanted = nn_ceil_div(work, each), most = (int64_t)nn_gpu_sms(ctx) * per_sm;
  return (unsigned)(wanted < most ? wanted : most);
}

/* A case of a switch, with what `statement` finds declared. */
#define NN_CASE(label, declaration, ...)                                                                               \
  label: {                                                                                                             \
    declaration;                                                                                                       \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }

/* Runs `statement` with T the type of the dtype. */
#define NN_SWITCH_FLOATS(dtype, ...)                                                                                   \
  switch (dtype) {                                                                                                     \
    NN_CASE(case NNCUDA_F32, using T = float, __VA_ARGS__)                                                             \
    NN_CASE(case NNCUDA_F16, using T = nn_f16, __VA_ARGS__)                                                            \
    NN_CASE(default, using T = nn_bf16, __VA_ARGS__)                                                                   \
  }

#endif
