/*
 * The interface of the CPU engine: what this processor supports, and which compiled form of each kernel it uses. A
 * kernel that a wider instruction set does not define comes from the next one down.
 */
#include "comm/collective.h"
#include "queue.h"
#include "runtime/context.h"
#include "runtime/memory.h"
#include "runtime/profile.h"
#include "system_memory.h"
#include "workers.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NN_WEAK(isa, op)                                                                                               \
  extern int32_t nn_##isa##_##op(nncuda_ctx *ctx, const void *args) __attribute__((weak, visibility("hidden")));       \
  extern void nn_##isa##_##op##_workspace(const void *args, nn_workspace *workspace)                                   \
      __attribute__((weak, visibility("hidden")));
#define NN_ENTRY(isa, op) {nn_##isa##_##op, nn_##isa##_##op##_workspace},
typedef struct form { /* of a kernel, for an instruction set; its workspace is null if it has none */
  nn_kernel kernel;
  nn_layout workspace;
} form;

#define WEAK_BASELINE(op) NN_WEAK(baseline, op)
#define ENTRY_BASELINE(op) NN_ENTRY(baseline, op)
NN_OPS(WEAK_BASELINE)

#if defined(__x86_64__)
#include <cpuid.h>

#define WEAK_AVX2(op) NN_WEAK(avx2, op)
#define WEAK_AVX2VNNI(op) NN_WEAK(avx2vnni, op)
#define WEAK_AVX512(op) NN_WEAK(avx512, op)
#define WEAK_AVX512BF16(op) NN_WEAK(avx512bf16, op)
#define WEAK_AMX(op) NN_WEAK(amx, op)
#define ENTRY_AVX2(op) NN_ENTRY(avx2, op)
#define ENTRY_AVX2VNNI(op) NN_ENTRY(avx2vnni, op)
#define ENTRY_AVX512(op) NN_ENTRY(avx512, op)
#define ENTRY_AVX512BF16(op) NN_ENTRY(avx512bf16, op)
#define ENTRY_AMX(op) NN_ENTRY(amx, op)
NN_OPS(WEAK_AVX2)
NN_OPS(WEAK_AVX2VNNI)
NN_OPS(WEAK_AVX512)
NN_OPS(WEAK_AVX512BF16)
NN_OPS(WEAK_AMX)

static const form forms[NN_ISA_LAST + 1][NN_OP_COUNT] = {
    [NNCUDA_ISA_BASELINE] = {NN_OPS(ENTRY_BASELINE)}, [NNCUDA_ISA_AVX2] = {NN_OPS(ENTRY_AVX2)},
    [NNCUDA_ISA_AVX512] = {NN_OPS(ENTRY_AVX512)},     [NNCUDA_ISA_AVX512BF16] = {NN_OPS(ENTRY_AVX512BF16)},
    [NNCUDA_ISA_AMX] = {NN_OPS(ENTRY_AMX)},
};

/* Of AVX2 where the processor has its integer dot products: other instructions for the same bits. */
static const form forms_avx2_vnni[NN_OP_COUNT] = {NN_OPS(ENTRY_AVX2VNNI)};

static uint64_t enabled_state(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

/* Tile data is large, so Linux gives it only to processes that ask; asking again does no harm. */
static int tiles_permitted(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* The processor must have the instructions, and the system must keep their registers (the bits of XCR0). */
static int32_t detect_isa(void) {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) {
    return NNCUDA_ISA_BASELINE;
  }
  const uint32_t needs = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
  if ((c & needs) != needs) {
    return NNCUDA_ISA_BASELINE;
  }
  const uint64_t state = enabled_state();
  const uint64_t avx_state = 0x6, avx512_state = 0xe6, tile_state = 0x60000;
  uint32_t leaves = 0;
  if ((state & avx_state) != avx_state || !__get_cpuid_count(7, 0, &leaves, &b, &c, &d) || !(b & bit_AVX2)) {
    return NNCUDA_ISA_BASELINE;
  }
  const uint32_t avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
  if ((state & avx512_state) != avx512_state || (b & avx512) != avx512) {
    return NNCUDA_ISA_AVX2;
  }
  const uint32_t amx = 1u << 22 | 1u << 24 | 1u << 25; /* AMX-BF16, AMX-TILE and AMX-INT8 in edx of leaf 7.0 */
  const int has_amx = (d & amx) == amx && (c & bit_AVX512VBMI) && (state & tile_state) == tile_state;
  if (leaves < 1 || !(c & bit_AVX512VNNI) || !__get_cpuid_count(7, 1, &a, &b, &c, &d) ||
      !(a & 1u << 5)) { /* AVX512_BF16 */
    return NNCUDA_ISA_AVX512;
  }
  return has_amx && tiles_permitted() ? NNCUDA_ISA_AMX : NNCUDA_ISA_AVX512BF16;
}

/* The integer dot products of AVX2, which a processor may have with AVX-512 and without. */
static int detect_avx2_vnni(void) {
  uint32_t a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

#define WEAK_NEON(op) NN_WEAK(neon, op)
#define WEAK_DOTPROD(op) NN_WEAK(dotprod, op)
#define WEAK_I8MM(op) NN_WEAK(i8mm, op)
#define ENTRY_NEON(op) NN_ENTRY(neon, op)
#define ENTRY_DOTPROD(op) NN_ENTRY(dotprod, op)
#define ENTRY_I8MM(op) NN_ENTRY(i8mm, op)
NN_OPS(WEAK_NEON)
NN_OPS(WEAK_DOTPROD)
NN_OPS(WEAK_I8MM)

static const form forms[NN_ISA_LAST + 1][NN_OP_COUNT] = {
    [NNCUDA_ISA_BASELINE] = {NN_OPS(ENTRY_BASELINE)},
    [NNCUDA_ISA_NEON] = {NN_OPS(ENTRY_NEON)},
    [NNCUDA_ISA_DOTPROD] = {NN_OPS(ENTRY_DOTPROD)},
    [NNCUDA_ISA_I8MM] = {NN_OPS(ENTRY_I8MM)},
};

static int32_t detect_isa(void) {
  enum { HAS_DOTPROD = 1 << 20, HAS_I8MM = 1 << 13 }; /* of AT_HWCAP, and of AT_HWCAP2 */
  if (!(getauxval(AT_HWCAP) & HAS_DOTPROD)) {
    return NNCUDA_ISA_NEON;
  }
  return getauxval(AT_HWCAP2) & HAS_I8MM ? NNCUDA_ISA_I8MM : NNCUDA_ISA_DOTPROD;
}

#else

static const form forms[NN_ISA_LAST + 1][NN_OP_COUNT] = {{NN_OPS(ENTRY_BASELINE)}};

static int32_t detect_isa(void) { return NNCUDA_ISA_BASELINE; }

#endif

/* Once: in a virtual machine each cpuid instruction costs tens of microseconds. */
static pthread_once_t detect_once = PTHREAD_ONCE_INIT;
static int32_t detected_isa;
#if defined(__x86_64__)
static int detected_avx2_vnni;
#endif

static void detect(void) {
  detected_isa = detect_isa();
#if defined(__x86_64__)
  detected_avx2_vnni = detected_isa >= NNCUDA_ISA_AVX2 && detect_avx2_vnni();
#endif
}

static int32_t widest_isa(int32_t index) {
  (void)index;
  pthread_once(&detect_once, detect);
  return detected_isa;
}

void nn_parallel(nncuda_ctx *ctx, int64_t tasks, nn_task task, void *arg) {
  if (tasks > 1 && ctx->machine.threads > 1 && ctx->workers == NULL) {
    ctx->workers = nn_workers_start(ctx->machine.threads, ctx->nodes);
  }
  nn_workers_run(ctx->workers, tasks, task, arg);
}

static void end_threads(nncuda_ctx *ctx) {
  nn_workers_stop(ctx->workers);
  ctx->workers = NULL;
}

/* Bytes that one thread moves at a time. */
enum { MOVE_CHUNK = 1 << 20 };

static size_t chunk_bytes(int64_t bytes, int64_t i) {
  const int64_t rest = bytes - i * MOVE_CHUNK;
  return (size_t)(rest < MOVE_CHUNK ? rest : MOVE_CHUNK);
}

static void memset_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const nn_memset_args *a = arg;
  memset((unsigned char *)a->pointer + i * MOVE_CHUNK, a->value, chunk_bytes(a->bytes, i));
}

static void memcpy_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const nn_memcpy_args *a = arg;
  const int64_t begin = i * MOVE_CHUNK;
  memcpy((unsigned char *)a->destination + begin, (const unsigned char *)a->source + begin, chunk_bytes(a->bytes, i));
}

static int32_t run_memset(nncuda_ctx *ctx, const void *args) {
  const nn_memset_args *a = args;
  nn_parallel(ctx, (a->bytes + MOVE_CHUNK - 1) / MOVE_CHUNK, memset_task, (void *)(uintptr_t)a);
  return NNCUDA_SUCCESS;
}

static int32_t run_memcpy(nncuda_ctx *ctx, const void *args) {
  const nn_memcpy_args *a = args;
  nn_parallel(ctx, (a->bytes + MOVE_CHUNK - 1) / MOVE_CHUNK, memcpy_task, (void *)(uintptr_t)a);
  return NNCUDA_SUCCESS;
}

#if defined(__x86_64__)
static int has_avx2_vnni(void) {
  pthread_once(&detect_once, detect);
  return detected_avx2_vnni;
}
#endif

/* The widest form of a kernel at or below `isa`. */
static form form_of(int32_t isa, nn_op op) {
  form widest = {NULL, NULL};
  for (int32_t i = isa; i >= 0 && widest.kernel == NULL; i--) {
#if defined(__x86_64__)
    if (i == NNCUDA_ISA_AVX2 && has_avx2_vnni() && forms_avx2_vnni[op].kernel != NULL) {
      return forms_avx2_vnni[op];
    }
#endif
    widest = forms[i][op];
  }
  return widest;
}

static void fill(int32_t isa, nn_kernel *kernel, nn_layout *layout) {
  kernel[NN_OP_memset] = run_memset;
  kernel[NN_OP_memcpy] = run_memcpy;
  layout[NN_OP_memset] = layout[NN_OP_memcpy] = NULL;
  nn_comm_fill(kernel, layout);
  for (int32_t op = 0; op < NN_OP_COUNT; op++) {
    const form widest = form_of(isa, (nn_op)op);
    kernel[op] = widest.kernel;
    layout[op] = widest.workspace;
  }
}

int32_t nn_part_run(nncuda_ctx *ctx, nn_op op, const void *args) {
  return form_of(ctx->machine.isa, op).kernel(ctx, args);
}

void nn_part_lay_out(nn_op op, const void *args, nn_workspace *workspace) {
  const form widest = form_of(workspace->machine->isa, op);
  if (widest.workspace != NULL) {
    widest.workspace(args, workspace);
  }
}

static int32_t count(void) { return 1; }

static void processor_name(char *name, size_t capacity) {
  snprintf(name, capacity, "processor");
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (file == NULL) {
    return;
  }
  char line[256];
  while (fgets(line, sizeof line, file) != NULL) {
    const char *value = strchr(line, ':');
    if (value != NULL && strncmp(line, "model name", 10) == 0) {
      line[strcspn(line, "\n")] = '\0';
      snprintf(name, capacity, "%s", value + 2);
      break;
    }
  }
  fclose(file);
}

static void describe(int32_t index, char *text, size_t capacity) {
  if (index != 0) {
    snprintf(text, capacity, "the processor is device 0, and the only one");
    return;
  }
  static const char *const names[] = {"baseline", "AVX2", "AVX-512",           "AVX-512 with BF16",
                                      "AMX",      "NEON", "NEON with DotProd", "NEON with I8MM"};
  char name[192];
  processor_name(name, sizeof name);
  const double gib = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1024.0 * 1024.0 * 1024.0);
  snprintf(text, capacity, "%s, %d threads, %s, %.1f GiB", name, nn_workers_default(), names[widest_isa(index)], gib);
}

static int64_t stamp(nncuda_ctx *ctx) {
  (void)ctx;
  return nn_clock();
}

static int64_t elapsed(nncuda_ctx *ctx, int64_t from, int64_t to) {
  (void)ctx;
  return to - from;
}

static void forget(nncuda_ctx *ctx, int64_t time) { (void)ctx, (void)time; }

#define HOST_MEMORY                                                                                                    \
  {.take = nn_system_take,                                                                                             \
   .give = nn_system_give,                                                                                             \
   .alignment = 64,                                                                                                    \
   .visible = 1,                                                                                                       \
   .lazy = 1,                                                                                                          \
   .take_parts = nn_system_take_parts,                                                                                 \
   .give_parts = nn_system_give_parts,                                                                                 \
   .grain = 1}

const nn_engine nn_cpu_engine = {.device = NNCUDA_DEVICE_CPU,
                                 .count = count,
                                 .describe = describe,
                                 .widest_isa = widest_isa,
                                 .fill = fill,
                                 .isas = NN_ISA_LAST + 1,
                                 .threads = nn_workers_default,
                                 .end_threads = end_threads,
                                 .close = nn_queues_close,
                                 .memory = HOST_MEMORY,
                                 .host_memory = HOST_MEMORY,
                                 .memory_info = nn_system_memory_info,
                                 .synchronize = nn_queues_wait,
                                 .streams = &nn_queues,
                                 .stamp = stamp,
                                 .elapsed = elapsed,
                                 .forget = forget};
