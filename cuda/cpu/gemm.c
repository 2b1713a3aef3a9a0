#include "gemm_job.h"

#include "gemm_pack.h"
#include "gemm_store.h"
#if NN_GEMM_TILES
#include "gemm_tile_amx.h"
#else
#include "gemm_tile.h"
#endif

/* How a depth of k is summed: blocks that depend on k alone, since they decide the bits. */
typedef struct gemm_depth {
  int64_t units;  /* in a block, padded */
  int64_t k;      /* elements of k in a block */
  int64_t blocks; /* in all */
} gemm_depth;

NN_INLINE gemm_depth depth_of(int64_t k) {
  const int64_t units = nn_ceil_div(k, UNIT), blocks = nn_ceil_div(units, DEPTH);
  if (blocks == 0) {
    return (gemm_depth){0};
  }
  const int64_t each = nn_round_up(nn_ceil_div(units, blocks), DEPTH_STEP);
  return (gemm_depth){.units = each, .k = each * UNIT, .blocks = nn_ceil_div(units, each)};
}

/* Blocks of k whose packed B is kept at once. */
NN_INLINE int64_t blocks_kept(const gemm_depth *depth, int64_t n_block) {
  const int64_t most = BLOCK_BYTES / 4 / (depth->units * n_block);
  return most < 1 ? 1 : nn_min(most, depth->blocks);
}

/* The rows that a panel of A takes in memory: what a tile of `rows` rows reads. */
NN_INLINE int64_t panel_rows(int64_t rows) { return nn_round_up(rows, TILE_ROWS); }
/* Panels are NR wide, the last one of a block may be half. */
NN_INLINE int64_t panel_width(int64_t columns) { return columns > VF ? NR : VF; }

/* A task's piece of one product. */
typedef struct gemm_piece {
  const gemm_job *job;
  const nn_gemm_args *x;
  gemm_product product;
  int64_t row, rows, column, columns;
  float *block;   /* packed B */
  float *panel;   /* packed A */
  float *partial; /* sums of the blocks of k so far */
} gemm_piece;

NN_INLINE void pack_block(const gemm_piece *t, float *to, int64_t k0, int64_t k, int64_t units, int32_t dtype) {
  const nn_gemm_args *x = t->x;
  const int64_t bytes = nn_dtype_bytes(dtype);
  if (!x->trans_b) {
    const int64_t last = t->columns - (t->columns - 1) / NR * NR;
    pack_lanes(to, NR * units, NR, panel_width(last), t->product.b + (k0 * x->ldb + t->column) * bytes, x->ldb,
               t->columns, k, units, dtype);
    return;
  }
  for (int64_t j = 0; j < t->columns; j += NR) {
    const int64_t columns = nn_min(NR, t->columns - j);
    pack_lanes_transposed(to + j * units, panel_width(columns), t->product.b + ((t->column + j) * x->ldb + k0) * bytes,
                          x->ldb, columns, k, units, dtype);
  }
}

/* `rows` rows of A into panels of MR rows, PANEL units apart. */
NN_INLINE void pack_panels(const gemm_piece *t, int64_t row, int64_t rows, int64_t k0, int64_t k, int64_t units,
                           int32_t dtype) {
  const nn_gemm_args *x = t->x;
  const int64_t bytes = nn_dtype_bytes(dtype);
  if (!x->trans_a) {
    pack_rows(t->panel, t->product.a + (row * x->lda + k0) * bytes, x->lda, rows, panel_rows(rows), k, units, dtype);
    return;
  }
  const char *from = t->product.a + (k0 * x->lda + row) * bytes;
#if NN_GEMM_TILES
  pack_rows_transposed(t->panel, from, x->lda, rows, panel_rows(rows), k, units, dtype);
#else
  pack_lanes(t->panel, PANEL, MR, MR, from, x->lda, rows, k, units, dtype);
#endif
}

/* Asks for the next panel of A in good time: a `share`-th of its rows' lines, the `part`-th of them. */
NN_INLINE void prefetch_panel(const gemm_piece *t, int64_t row, int64_t rows, int64_t k0, int64_t k, int64_t part,
                              int64_t parts, int32_t dtype) {
  const int64_t bytes = nn_dtype_bytes(dtype), lines = nn_ceil_div(k * bytes, 64);
  const int64_t from = lines * part / parts, to = lines * (part + 1) / parts;
  for (int64_t r = 0; r < rows; r++) {
    const char *at = t->product.a + ((row + r) * t->x->lda + k0) * bytes;
    for (int64_t line = from; line < to; line++) {
      __builtin_prefetch(at + line * 64, 0, 2);
    }
  }
}

/* Sums one tile into `c`: rows up to panel_rows(rows), columns up to `width`. */
NN_INLINE void tile(const gemm_piece *t, const float *a, const float *b, int64_t units, float *c, int64_t ldc,
                    int32_t add, int64_t rows, int64_t width) {
#if NN_GEMM_TILES
  (void)t;
  tile_sum(a, b, units, c, ldc, add, rows, width);
#else
  tiles[(rows - 1) / 2][t->x->trans_a][width / VF - 1](a, b, units, c, ldc, add);
#endif
}

/* A tile whose sums end here or go on in a later block of k. */
static void tile_at(const gemm_piece *t, const float *a, const float *b, int64_t units, int64_t row, int64_t rows,
                    int64_t j, int32_t first, int32_t last, float *partial, int64_t ld_partial) {
  const nn_gemm_args *x = t->x;
  const int64_t columns = nn_min(NR, t->columns - j), width = panel_width(columns);
  if (t->job->add) {
    const int32_t add = !first || x->beta != 0.0f;
    float *c = (float *)(void *)t->product.c + row * x->ldc + t->column + j;
    if (columns == width && rows == panel_rows(rows)) {
      tile(t, a, b, units, c, x->ldc, add, rows, width);
      return;
    }
    float sums[MR * NR] __attribute__((aligned(64)));
    tile(t, a, b, units, sums, width, 0, rows, width);
    const gemm_target target = {.c = (char *)c,
                                .ld = x->ldc,
                                .rows = rows,
                                .columns = columns,
                                .alpha = 1.0f,
                                .beta = add ? 1.0f : 0.0f,
                                .dtype = NNCUDA_F32};
    target_store(&target, sums, width);
    return;
  }
  const gemm_target target = gemm_target_at(x, &t->product, row, t->column + j, rows, columns);
  if (first && last) {
    float sums[MR * NR] __attribute__((aligned(64)));
    tile(t, a, b, units, sums, width, 0, rows, width);
    target_store(&target, sums, width);
    return;
  }
  tile(t, a, b, units, partial, ld_partial, !first, rows, width);
  if (last) {
    target_store(&target, partial, ld_partial);
  }
}

/* A product without terms: C = beta * C, and the epilogue of that. */
static void store_empty(const gemm_piece *t) {
  const float zero[NR] = {0};
  for (int64_t j = 0; j < t->columns; j += NR) {
    const gemm_target target =
        gemm_target_at(t->x, &t->product, t->row, t->column + j, t->rows, nn_min(NR, t->columns - j));
    target_store(&target, zero, 0);
  }
}

NN_INLINE void compute(const gemm_piece *t, int32_t dtype) {
  const int64_t k = t->product.k, n_block = t->job->n_block;
  const gemm_depth depth = depth_of(k);
  if (depth.blocks == 0) {
    store_empty(t);
    return;
  }
  const int64_t kept = blocks_kept(&depth, n_block);
  const int32_t passing = kept == depth.blocks; /* a panel's sums are finished before the next panel */
  for (int64_t from = 0; from < depth.blocks; from += kept) {
    const int64_t to = nn_min(from + kept, depth.blocks);
    for (int64_t i = from; i < to; i++) {
      pack_block(t, t->block + (i - from) * depth.units * n_block, i * depth.k, nn_min(depth.k, k - i * depth.k),
                 depth.units, dtype);
    }
    /* Where k runs across the rows of A, several panels are packed at once, so that a row is read for more than a line.
     */
    const int64_t group = t->x->trans_a ? GROUP * MR : MR;
    for (int64_t r = 0; r < t->rows; r += group) {
      const int64_t end = nn_min(r + group, t->rows);
      for (int64_t i = from; i < to; i++) {
        const int64_t k0 = i * depth.k;
        pack_panels(t, t->row + r, end - r, k0, nn_min(depth.k, k - k0), depth.units, dtype);
        const float *block = t->block + (i - from) * depth.units * n_block;
        /* The panel after this one: the next part of k, or the next rows. */
        const int64_t next_row = i + 1 < to ? r : end, next_k = (i + 1 < to ? i + 1 : from) * depth.k;
        const int64_t next_rows = t->x->trans_a ? 0 : nn_min(MR, t->rows - next_row);
        for (int64_t q = r; q < end; q += MR) {
          const float *panel = t->panel + (q - r) / MR * PANEL;
          float *partial = t->partial + (passing ? q - r : q) * n_block;
          for (int64_t j = 0; j < t->columns; j += NR) {
            prefetch_panel(t, t->row + next_row, next_rows, next_k, nn_min(depth.k, k - next_k), j / NR,
                           nn_ceil_div(t->columns, NR), dtype);
            tile_at(t, panel, block + j * depth.units, depth.units, t->row + q, nn_min(MR, end - q), j, i == 0,
                    i == depth.blocks - 1, partial + j, n_block);
          }
        }
      }
    }
  }
}

static void gemm_task(void *arg, int64_t i, int32_t worker) {
  const gemm_job *job = arg;
  const nn_gemm_args *x = job->args;
  int64_t product = 0, block_row = i / job->n_blocks;
  if (job->first_block != NULL) { /* the group with this block row: the last that begins at or before it */
    int64_t end = x->count;
    while (end - product > 1) {
      const int64_t middle = product + (end - product) / 2;
      if (job->first_block[middle] <= block_row) {
        product = middle;
      } else {
        end = middle;
      }
    }
    block_row -= job->first_block[product];
  } else {
    product = block_row / job->m_blocks;
    block_row -= product * job->m_blocks;
  }
  char *scratch = job->scratch + worker * job->scratch_step;
  gemm_piece t = {.job = job,
                  .x = x,
                  .product = gemm_product_at(x, product),
                  .row = block_row * job->m_block,
                  .column = i % job->n_blocks * job->n_block,
                  .block = (float *)(void *)scratch,
                  .panel = (float *)(void *)(scratch + job->panel_at),
                  .partial = (float *)(void *)(scratch + job->partial_at)};
  t.rows = nn_min(job->m_block, t.product.m - t.row);
  t.columns = nn_min(job->n_block, t.product.n - t.column);
#if NN_GEMM_TILES
  tile_registers_open();
#endif
  GEMM_SWITCH_DTYPE(x->dtype, compute(&t, DT));
#if NN_GEMM_TILES
  tile_registers_close();
#endif
}

/*
 * Cuts a product of m rows into blocks of C: a few a thread, so that none waits long for the last. (An element's sum is
 * the same in whichever block it lies.) Every column block reads and packs all of A, every row block all of B, so the
 * cut with the least of both is taken. Costs are cycles a unit of k; those of packing were measured.
 */
static void cut(gemm_job *job, int64_t m, int64_t n, int64_t k, int64_t count, int64_t threads) {
  const double work = (double)m * (double)n * (double)k * (double)count;
  const double most = threads > 1 ? 4.0 * (double)threads : 1.0;
  const double wanted = work / TASK_WORK < most ? work / TASK_WORK : most;
  const int64_t pieces = nn_ceil_div(wanted < 1 ? 1 : (int64_t)wanted, count);
  const int64_t n_panels = nn_ceil_div(n, NR), m_panels = nn_ceil_div(m, MR);
  const int64_t widest = BLOCK_BYTES / 4 / DEPTH / NR; /* panels */
  const gemm_depth depth = depth_of(k);
  const double a_cost = 1.2, b_cost = job->args->trans_b ? 1.0 : 0.8;
  double best = 0;
  for (int64_t wide = nn_min(widest, n_panels); wide > 0; wide--) {
    const int64_t n_blocks = nn_ceil_div(n_panels, wide);
    int64_t tall = nn_ceil_div(m_panels, nn_ceil_div(pieces, n_blocks));
    if (!job->add && depth.blocks > 0 && blocks_kept(&depth, wide * NR) < depth.blocks) {
      tall = nn_min(tall, PARTIAL_BYTES / 4 / (wide * NR * MR)); /* unfinished sums should stay near */
    }
    tall = tall < 1 ? 1 : tall;
    const int64_t m_blocks = nn_ceil_div(m_panels, tall);
    tall = nn_ceil_div(m_panels, m_blocks);
    const int64_t tasks = n_blocks * m_blocks * count;
    const double idle =
        (double)(nn_round_up(tasks, threads) - tasks) * (double)(m * n) / PRODUCTS_A_CYCLE / (double)tasks;
    const double padding = (double)(n_blocks * wide - n_panels) * NR * (double)m / PRODUCTS_A_CYCLE / (double)n_blocks;
    const double cost = (double)(n_blocks * m) * a_cost + (double)(m_blocks * n) * b_cost + idle + padding;
    if (best == 0 || cost < best) {
      best = cost;
      job->n_block = wide * NR;
      job->n_blocks = n_blocks;
      job->m_block = tall * MR;
      job->m_blocks = m_blocks;
    }
  }
}

/* Bytes that a worker needs, and where its parts lie. */
static void lay_out(gemm_job *job, int64_t m, int64_t longest_k) {
  const gemm_depth depth = depth_of(longest_k);
  const int64_t units = nn_min(depth.units * depth.blocks, DEPTH);
  int64_t block = BLOCK_BYTES / 4;
  block = block < units * job->n_block ? units * job->n_block : block;
  block = nn_min(block, depth.units * depth.blocks * job->n_block);
  const int64_t panels = job->args->trans_a ? GROUP : 1;
  const int64_t partial_rows = depth.blocks > 0 && blocks_kept(&depth, job->n_block) < depth.blocks
                                   ? nn_min(job->m_block, nn_round_up(m, MR))
                                   : panels * MR;
  job->panel_at = nn_round_up(block * 4, 64);
  job->partial_at = job->panel_at + nn_round_up(panels * PANEL * 4, 64);
  job->scratch_step = job->partial_at;
  if (!job->add && depth.blocks > 1) {
    job->scratch_step += nn_round_up(partial_rows * job->n_block * 4, 64);
  }
  /* Workers' parts must not share lines, nor lie a power of two apart and so in the same sets of a cache. */
  job->scratch_step = nn_round_up(job->scratch_step, 4096) + 64 * 5;
}

/* offsets[0] = 0, never falling, the last at most `rows`. */
static int32_t check_offsets(nncuda_ctx *ctx, const nn_gemm_args *x) {
  const int64_t rows = x->ragged == NN_GEMM_RAGGED_M ? x->m : x->k;
  if (x->offsets[0] != 0) {
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "offsets[0] is %d; it must be 0", x->offsets[0]);
  }
  for (int64_t i = 0; i < x->count; i++) {
    const int32_t from = x->offsets[i], to = x->offsets[i + 1];
    if (to < from || to > rows) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "offsets[%lld] is %d; it must be %d to %lld, the number of rows",
                     (long long)(i + 1), to, from, (long long)rows);
    }
  }
  return NNCUDA_SUCCESS;
}

static int32_t run(nncuda_ctx *ctx, const nn_gemm_args *args) {
  nn_gemm_args own = *args;
  const nn_gemm_args *x = &own;
  if (x->ragged != NN_GEMM_EVEN) {
    const int32_t status = check_offsets(ctx, x);
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
  }
  /* A residual in place, with nothing between it and the sum, is beta = 1. */
  if (own.residual == own.c && own.activation == NNCUDA_ACTIVATION_NONE && own.bias == NULL) {
    own.residual = NULL;
    own.beta = 1.0f;
  }
  if (x->ragged == NN_GEMM_EVEN && x->m <= FEW_ROWS) {
    return NN_KERNEL(gemm_few_rows)(ctx, x);
  }
  gemm_job job = {.args = x};
  job.add = x->dtype_c == NNCUDA_F32 && x->alpha == 1.0f && (x->beta == 0.0f || x->beta == 1.0f) && x->bias == NULL &&
            x->residual == NULL && x->activation == NNCUDA_ACTIVATION_NONE;
  int64_t m = x->m, k = x->k, block_rows;
  int64_t longest = k;
  if (x->ragged == NN_GEMM_RAGGED_M) {
    m = nn_ceil_div(m, x->count);
  } else if (x->ragged == NN_GEMM_RAGGED_K) {
    k = nn_ceil_div(k, x->count);
    longest = 0;
    for (int64_t i = 0; i < x->count; i++) {
      const int64_t length = x->offsets[i + 1] - x->offsets[i];
      longest = length > longest ? length : longest;
    }
  }
  cut(&job, m, x->n, k, x->count, nn_threads(ctx));
  block_rows = job.m_blocks * x->count;
  if (x->ragged == NN_GEMM_RAGGED_M) {
    int64_t *first = nn_scratch(ctx, (size_t)(x->count + 1) * sizeof *first);
    if (first == NULL) {
      return NNCUDA_ERROR_OUT_OF_MEMORY;
    }
    first[0] = 0;
    for (int64_t i = 0; i < x->count; i++) {
      first[i + 1] = first[i] + nn_ceil_div(x->offsets[i + 1] - x->offsets[i], job.m_block);
    }
    job.first_block = first;
    block_rows = first[x->count];
  }
  lay_out(&job, x->m, longest);
  job.scratch = nn_scratch(ctx, (size_t)(job.scratch_step * nn_threads(ctx)));
  if (job.scratch == NULL) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  nn_parallel(ctx, block_rows * job.n_blocks, gemm_task, &job);
  return NNCUDA_SUCCESS;
}

/* Where bf16 has instructions of its own, only they are compiled here; the other dtypes are as without them. */
#if NN_GEMM_PAIRS
#define GEMM_KERNEL(op)                                                                                                \
  int32_t NN_JOIN3(avx512, op, )(nncuda_ctx * ctx, const void *args);                                                  \
  int32_t NN_KERNEL(op)(nncuda_ctx * ctx, const void *args) {                                                          \
    return ((const nn_gemm_args *)args)->dtype == NNCUDA_BF16 ? run(ctx, args) : NN_JOIN3(avx512, op, )(ctx, args);    \
  }
#else
#define GEMM_KERNEL(op)                                                                                                \
  int32_t NN_KERNEL(op)(nncuda_ctx * ctx, const void *args) { return run(ctx, args); }
#endif

GEMM_KERNEL(gemm)
GEMM_KERNEL(gemm_beta)
GEMM_KERNEL(gemm_epilogue)
GEMM_KERNEL(batched_gemm)
GEMM_KERNEL(grouped_gemm)
GEMM_KERNEL(grouped_gemm_wgrad)
