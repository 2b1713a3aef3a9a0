/*
 * A set of matrix products being computed, and the sizes that its work is cut by. Shared by the files of the gemm
 * family.
 *
 * The scheme (Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"): a task owns a block of
 * C. Its part of B is packed into panels of GEMM_NR columns, up to GEMM_DEPTH deep, which stay in its core's L2 cache;
 * then for each panel of GEMM_MR rows that part of A is packed, which stays in L1, and runs over the panels of B: each
 * pair gives one tile of C, summed in registers. An element of C is summed by one task, in order of k, in blocks whose
 * depth depends on k alone: its bits depend neither on the threads nor on how C is cut.
 *
 * What is packed are 32-bit units. A unit is one f32 (f16 and bf16 are widened while packing) or, where the processor
 * multiplies bf16 itself (NN_GEMM_PAIRS), two bf16 that follow each other along k. Depths are counted in units.
 *
 * Files: gemm.c runs the blocks, gemm_partition.h cuts them, gemm_pack.h packs, gemm_tile.h sums tiles, by one of its
 * two backends, gemm_store.h finishes them, gemm_vector.c serves products of few rows.
 */
#ifndef NN_CPU_GEMM_JOB_H
#define NN_CPU_GEMM_JOB_H

#include "kernel.h"

#include "abi/gemm.h"

#if defined(__AMX_BF16__)
#define NN_GEMM_TILES 1
#endif
#if defined(__AVX512BF16__)
#define NN_GEMM_PAIRS 1
#endif

#if NN_GEMM_PAIRS
enum { GEMM_UNIT = 2 }; /* elements along k in a unit */
#else
enum { GEMM_UNIT = 1 };
#endif

#if NN_GEMM_TILES
/* Two by two tile registers of 16 rows by 16 columns, and two for each factor. */
enum {
  GEMM_MR = 32,
  GEMM_NV = 2,
  GEMM_DEPTH = 256,
  GEMM_TILE_ROWS = 16,
  GEMM_A_LANES = GEMM_MR,
  GEMM_GROUP = 4,
  GEMM_PACKS_AHEAD = 1
};
/* Products of two elements that a core does in a cycle, the least that are worth a task, and tenths of a cycle that
 * reading a unit of A in place takes: a line from L3 takes 6 cycles. */
enum { GEMM_PRODUCTS_A_CYCLE = 512, GEMM_TASK_WORK = 1 << 23, GEMM_READ_TENTHS = 4 };
#elif NN_SIMD_AVX512
/* 8 rows x 3 vectors leave 8 of the 32 registers for three vectors of B and the elements of A. As fast as 14 x 2 in
 * itself, and 8 rows of A can be read in place even where all of them fall into one set of L1, which has 12 ways. */
enum {
  GEMM_MR = 8,
  GEMM_NV = 3,
  GEMM_DEPTH = 768,
  GEMM_TILE_ROWS = 1,
  GEMM_A_LANES = VF,
  GEMM_GROUP = 4,
  GEMM_PACKS_AHEAD = 0
};
enum { GEMM_PRODUCTS_A_CYCLE = 32, GEMM_TASK_WORK = 1 << 20, GEMM_READ_TENTHS = 2 };
#else
/* 6 rows x 2 vectors of 16 registers. */
enum {
  GEMM_MR = 6,
  GEMM_NV = 2,
  GEMM_DEPTH = 512,
  GEMM_TILE_ROWS = 1,
  GEMM_A_LANES = GEMM_MR,
  GEMM_GROUP = 8,
  GEMM_PACKS_AHEAD = 0
};
enum { GEMM_PRODUCTS_A_CYCLE = 2 * VF, GEMM_TASK_WORK = 1 << 18, GEMM_READ_TENTHS = 2 };
#endif

/*
 * GEMM_DEPTH is the most units that a tile sums at once: GEMM_MR rows of A that deep fit L1 beside the passing B.
 * GEMM_GROUP is the number of panels of A packed at once where k runs across its rows. Measured on a core with 48 KB of
 * L1 and 2 MB of L2: tiles of AMX, with 1 MB of B in L2, reach 0.91 of the peak at a GEMM_DEPTH of 192, 0.92 at 256 and
 * 0.65 at 384, where A fills L1; a GEMM_GROUP of 8 instead of 4 costs them 1 to 5 % with A transposed; 512 instead of
 * 768 costs vectors 3 % at k = 768, 1024 costs them 7 % at k = 2048, and a GEMM_GROUP of 8 instead of 4 costs them 12 %
 * with A transposed; GEMM_BLOCK_BYTES 1.5 MB instead of 0.75 costs f32 5 % at k = 6144 (and B beyond 1.3 MB costs AMX's
 * tiles a tenth), 0.5 MB costs AMX 30 % at k = 768, where B no longer stays whole.
 */
enum {
  GEMM_NR = GEMM_NV * VF,
  GEMM_PANEL =
      GEMM_A_LANES * GEMM_DEPTH + VF, /* units from one packed panel of A to the next: its last store may run over */
  GEMM_DEPTH_STEP =
      16, /* packed depths are padded with zeros to a multiple of it: a tile register, a transposed block */
  GEMM_PACK_COLUMNS = 4 * GEMM_NR, /* of B in a task that packs for all */
  GEMM_SHARED_BYTES = 1 << 25,     /* most bytes of B that are packed for all */
  GEMM_PARTIAL_BYTES = 1 << 20,
  GEMM_BLOCK_BYTES = 3 << 18 /* most bytes of packed B in a task: they share L2 with what streams through it */
};

/* One product of a job. */
typedef struct gemm_product {
  const char *a, *b;
  char *c;
  const char *residual;
  int64_t m, n, k;
} gemm_product;

typedef struct gemm_job {
  const nn_gemm_args *args;
  int64_t m_block, n_block;   /* rows and columns of C in a task: whole panels */
  int64_t m_blocks, n_blocks; /* in a product */
  int64_t *first_block;       /* [count + 1] when m is ragged: block rows before each group */
  int32_t add;                /* C (f32) is the accumulator itself; with beta = 1 the first block adds to it, too */
  char *scratch;
  /* In bytes: a worker's share of scratch, and where in it its panel of A and its unfinished sums begin, after its B.
   */
  int64_t scratch_step, panel_at, partial_at;
  int32_t share;       /* B is packed once for all tasks: */
  int64_t shared_step; /* units a product */
  float *shared;
} gemm_job;

/* As NN_SWITCH_DTYPE; where only bf16 comes here, nothing else is compiled. */
#if NN_GEMM_PAIRS
#define GEMM_SWITCH_DTYPE(dtype, statement)                                                                            \
  {                                                                                                                    \
    enum { DT = NNCUDA_BF16 };                                                                                         \
    statement;                                                                                                         \
  }
#define GEMM_CALL_PER_DTYPE(dtype, name, arguments) name##_bf16 arguments
#else
#define GEMM_SWITCH_DTYPE(dtype, statement) NN_SWITCH_DTYPE(dtype, statement)
#define GEMM_CALL_PER_DTYPE(dtype, name, arguments) NN_CALL_PER_DTYPE(dtype, name, arguments)
#endif

/* c + a * b over one unit. */
NN_INLINE vf unit_dot(vf a, vf b, vf c) {
#if NN_GEMM_PAIRS
  return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
#else
  return vf_fma(a, b, c);
#endif
}

/* The i-th product of the job. */
NN_INLINE gemm_product gemm_product_at(const nn_gemm_args *x, int64_t i) {
  const int64_t in = nn_dtype_bytes(x->dtype), out = nn_dtype_bytes(x->dtype_c);
  gemm_product p = {.a = x->a, .b = x->b, .c = x->c, .residual = x->residual, .m = x->m, .n = x->n, .k = x->k};
  if (x->ragged == NN_GEMM_RAGGED_M) {
    const int64_t row = x->offsets[i];
    p.m = x->offsets[i + 1] - row;
    p.a += row * x->lda * in;
    p.b += i * x->n * x->k * in;
    p.c += row * x->ldc * out;
  } else if (x->ragged == NN_GEMM_RAGGED_K) {
    const int64_t row = x->offsets[i];
    p.k = x->offsets[i + 1] - row;
    p.a += row * x->lda * in;
    p.b += row * x->ldb * in;
    p.c += i * x->m * x->n * out;
  } else if (i > 0) {
    p.a += i * x->m * x->k * in;
    p.b += i * x->k * x->n * in;
    p.c += i * x->m * x->n * out;
  }
  return p;
}

/* Products of at most this many rows go one row of B at a time, unpacked: they wait for memory, not for arithmetic. */
enum { GEMM_FEW_ROWS = 8 };

/* gemm_vector.c: all products of the job, or of ragged m those groups that have at most GEMM_FEW_ROWS rows, and their
 * workspace. A row's bits so depend on how many rows its product has, never on the threads. */
void NN_KERNEL(gemm_few_rows)(nncuda_ctx *ctx, const nn_gemm_args *args);
NN_PLAIN void NN_KERNEL(gemm_few_rows_lay_out)(const nn_gemm_args *args, nn_workspace *w);

#endif
