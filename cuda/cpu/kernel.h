/*
 * Included first by every file in cpu/, which is compiled once per instruction set with NN_ISA set to its name. Kernels
 * are named by NN_KERNEL, everything else in those files is static, and so the copies do not clash.
 *
 *   int32_t NN_KERNEL(silu)(nncuda_ctx *ctx, const void *args) {
 *     const nn_silu_args *a = args;
 *     ...
 *   }
 *
 * A kernel with a workspace lays it out in one function (runtime/engine.h) and names it by NN_WORKSPACE:
 *
 *   NN_PLAIN static silu_job lay_out(const nn_silu_args *a, nn_workspace *w) {
 *     return (silu_job){.a = a, .row = nn_workspace_piece(w, (size_t)a->n * sizeof(float))};
 *   }
 *   NN_WORKSPACE(silu) { lay_out(args, w); }
 *   ... in the kernel: const silu_job job = lay_out(a, nn_workspace_of(ctx));
 */
#ifndef NN_CPU_KERNEL_H
#define NN_CPU_KERNEL_H

#include "runtime/engine.h"
#include "simd.h"

#define NN_JOIN3_(a, b, c) nn_##a##_##b##c
#define NN_JOIN3(a, b, c) NN_JOIN3_(a, b, c)
#define NN_KERNEL(op) NN_JOIN3(NN_ISA, op, )

#define NN_WORKSPACE_OF(isa, op) NN_JOIN3(isa, op, _workspace)
#define NN_WORKSPACE(op) NN_PLAIN void NN_WORKSPACE_OF(NN_ISA, op)(const void *args, nn_workspace *w)

#define NN_DECLARE_KERNEL(op)                                                                                          \
  int32_t NN_KERNEL(op)(nncuda_ctx * ctx, const void *args);                                                           \
  NN_WORKSPACE(op);
NN_OPS(NN_DECLARE_KERNEL)
#undef NN_DECLARE_KERNEL

/* A case of a switch: `statement` with `constant` known when compiling. */
#define NN_CASE_OF(label, constant, value, ...)                                                                        \
  label: {                                                                                                             \
    enum { constant = value };                                                                                         \
    __VA_ARGS__;                                                                                                       \
    break;                                                                                                             \
  }

/* Runs `statement` with DT a compile-time constant, so that always_inline bodies specialise on the dtype. */
#define NN_SWITCH_DTYPE(dtype, statement)                                                                              \
  switch (dtype) {                                                                                                     \
    NN_CASE_OF(case NNCUDA_F32, DT, NNCUDA_F32, statement)                                                             \
    NN_CASE_OF(case NNCUDA_F16, DT, NNCUDA_F16, statement)                                                             \
    NN_CASE_OF(default, DT, NNCUDA_BF16, statement)                                                                    \
  }

/*
 * The same with a function for each dtype, for long bodies: three in one function take the compiler longer and run no
 * faster. NN_PER_DTYPE defines them from `statement`, which knows the parameters and DT, NN_CALL_PER_DTYPE calls one.
 *
 *   NN_PER_DTYPE(sum_piece, (const sum_job *job, int64_t piece), sum_piece(job, piece, DT))
 *   NN_CALL_PER_DTYPE(job->a.dtype, sum_piece, (job, piece));
 */
#define NN_PER_DTYPE_(name, suffix, dtype, parameters, statement)                                                      \
  static __attribute__((noinline, unused)) void name##_##suffix parameters {                                           \
    enum { DT = dtype };                                                                                               \
    statement;                                                                                                         \
  }
#define NN_PER_DTYPE(name, parameters, statement)                                                                      \
  NN_PER_DTYPE_(name, f32, NNCUDA_F32, parameters, statement)                                                          \
  NN_PER_DTYPE_(name, f16, NNCUDA_F16, parameters, statement)                                                          \
  NN_PER_DTYPE_(name, bf16, NNCUDA_BF16, parameters, statement)
#define NN_CALL_PER_DTYPE(dtype, name, arguments)                                                                      \
  switch (dtype) {                                                                                                     \
  case NNCUDA_F32:                                                                                                     \
    name##_f32 arguments;                                                                                              \
    break;                                                                                                             \
  case NNCUDA_F16:                                                                                                     \
    name##_f16 arguments;                                                                                              \
    break;                                                                                                             \
  default:                                                                                                             \
    name##_bf16 arguments;                                                                                             \
    break;                                                                                                             \
  }

/* A task of nn_parallel with the type of its job: NN_TASK_OF(name, type, job, i) { ... }. It also knows `worker`. */
#define NN_TASK_OF(name, type, job, i)                                                                                 \
  NN_INLINE void name##_of(const type *job, int64_t i, int32_t worker);                                                \
  static void name(void *arg, int64_t at, int32_t worker) { name##_of(arg, at, worker); }                              \
  NN_INLINE void name##_of(const type *job, int64_t i, __attribute__((unused)) int32_t worker)

/* A task of nn_parallel, of one statement: it sees `job`, a `type`, `task` and `worker`. */
#define NN_TASK(name, type, ...)                                                                                       \
  NN_TASK_OF(name, type, job, task) { __VA_ARGS__; }

/* A kernel that is run(ctx, args), with the workspace that lay_out(args, w) takes: for operations that share both. */
#define NN_KERNEL_BY(op, run, lay_out)                                                                                 \
  NN_WORKSPACE(op) { lay_out(args, w); }                                                                               \
  int32_t NN_KERNEL(op)(nncuda_ctx * ctx, const void *args) { return run(ctx, args); }

/* The same where only bf16 has instructions of its own: other dtypes are as without them. */
#define NN_BF16_KERNEL_BY(op, type, run, lay_out)                                                                      \
  int32_t NN_JOIN3(avx512, op, )(nncuda_ctx * ctx, const void *args);                                                  \
  NN_PLAIN void NN_WORKSPACE_OF(avx512, op)(const void *args, nn_workspace *w);                                        \
  NN_WORKSPACE(op) {                                                                                                   \
    if (((const type *)args)->dtype == NNCUDA_BF16) {                                                                  \
      lay_out(args, w);                                                                                                \
    } else {                                                                                                           \
      NN_WORKSPACE_OF(avx512, op)(args, w);                                                                            \
    }                                                                                                                  \
  }                                                                                                                    \
  int32_t NN_KERNEL(op)(nncuda_ctx * ctx, const void *args) {                                                          \
    return ((const type *)args)->dtype == NNCUDA_BF16 ? run(ctx, args) : NN_JOIN3(avx512, op, )(ctx, args);            \
  }

/* Ends the kernel with the status of a step that failed. */
#define NN_TRY(step)                                                                                                   \
  do {                                                                                                                 \
    const int32_t status_ = (step);                                                                                    \
    if (status_ != NNCUDA_SUCCESS) {                                                                                   \
      return status_;                                                                                                  \
    }                                                                                                                  \
  } while (0)

#endif
