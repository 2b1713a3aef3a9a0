#include "gemm_job.h"

#include "checks.h"
#include "gemm_pack.h"
#include "gemm_partition.h"
#include "gemm_store.h"
#include "gemm_tile.h"

/* A task's piece of one product. */
typedef struct gemm_piece {
  const gemm_job *job;
  const nn_gemm_args *x;
  gemm_product product;
  int64_t row, rows, column, columns;
  float *block;                     /* packed B: this task's own, or null */
  const float *shared;              /* the whole product's, if it was packed for all tasks */
  float *panel;                     /* packed A */
  float *panel_other;               /* where the panel after it is being packed, if at all */
  float *partial;                   /* sums of the blocks of k so far */
  float (*sums)[GEMM_MR * GEMM_NR]; /* of finished tiles on their way to C */
  tile_background background;
} gemm_piece;

NN_INLINE void pack_block(const gemm_piece *t, float *to, int64_t k0, int64_t k, int64_t units, int32_t dtype) {
  const nn_gemm_args *x = t->x;
  const int64_t bytes = nn_dtype_bytes(dtype);
  if (!x->trans_b) {
    const int64_t last = t->columns - (t->columns - 1) / GEMM_NR * GEMM_NR;
    pack_lanes(to, GEMM_NR * units, GEMM_NR, panel_width(last), t->product.b + (k0 * x->ldb + t->column) * bytes,
               x->ldb, t->columns, k, units, dtype);
    return;
  }
  for (int64_t j = 0; j < t->columns; j += GEMM_NR) {
    const int64_t columns = nn_min(GEMM_NR, t->columns - j);
    pack_lanes_transposed(to + j * units, panel_width(columns), t->product.b + ((t->column + j) * x->ldb + k0) * bytes,
                          x->ldb, columns, k, units, dtype);
  }
}

/* `rows` rows of A into panels of GEMM_MR rows, GEMM_PANEL units apart. */
NN_INLINE void pack_panels(const gemm_piece *t, int64_t row, int64_t rows, int64_t k0, int64_t k, int64_t units,
                           int32_t dtype) {
  const nn_gemm_args *x = t->x;
  const int64_t bytes = nn_dtype_bytes(dtype);
  if (!x->trans_a) {
    pack_rows(t->panel, t->product.a + (row * x->lda + k0) * bytes, x->lda, rows, panel_rows(rows), k, units, dtype);
    return;
  }
  const char *from = t->product.a + (k0 * x->lda + row) * bytes;
  pack_across(t->panel, from, x->lda, rows, k, units, dtype);
}

/* A tile whose sums end here or continue in a later block of k. */
static void tile_at(gemm_piece *t, const float *a, int64_t a_step, const float *b, int64_t units, int64_t row,
                    int64_t rows, int64_t j, int32_t first, int32_t last, float *partial) {
  const nn_gemm_args *x = t->x;
  const int64_t columns = nn_min(GEMM_NR, t->columns - j), width = panel_width(columns);
  gemm_target target;
  if (t->job->add) {
    const int32_t add = !first || x->beta != 0.0f;
    float *c = (float *)(void *)t->product.c + row * x->ldc + t->column + j;
    if (columns == width && rows == panel_rows(rows)) {
      /* What is added to is needed at a tile's beginning, so that of the next tile is fetched. */
      const int64_t step = !add ? 0 : j + GEMM_NR < t->columns ? GEMM_NR : GEMM_MR * x->ldc - j;
      background_touches(&t->background, c + step, x->ldc, NNCUDA_F32);
      tile_sum(x->trans_a, a, a_step, b, units, add ? c : NULL, c, x->ldc, rows, width, &t->background);
      background_touches(&t->background, NULL, x->ldc, NNCUDA_F32);
      return;
    }
    target = (gemm_target){.c = (char *)c,
                           .ld = x->ldc,
                           .rows = rows,
                           .columns = columns,
                           .alpha = 1.0f,
                           .beta = add ? 1.0f : 0.0f,
                           .dtype = NNCUDA_F32};
    first = last = 1;
  } else {
    target = gemm_target_at(x, &t->product, row, t->column + j, rows, columns);
  }
  if (!last) {
    tile_sum(x->trans_a, a, a_step, b, units, first ? NULL : partial, partial, width, rows, width, &t->background);
    return;
  }
  tile_finish(x->trans_a, a, a_step, b, units, first ? NULL : partial, t->sums, rows, width, &target, &t->background);
}

/* A product without terms: C = beta * C, and the epilogue of that. */
static void store_empty(const gemm_piece *t) {
  const float zero[GEMM_NR] = {0};
  for (int64_t j = 0; j < t->columns; j += GEMM_NR) {
    const gemm_target target =
        gemm_target_at(t->x, &t->product, t->row, t->column + j, t->rows, nn_min(GEMM_NR, t->columns - j));
    target_store(&target, zero, 0);
  }
}

/* Whether tiles read A as it lies. */
NN_INLINE int32_t direct(const gemm_piece *t, int64_t rows, int64_t k, int64_t units, int32_t dtype) {
  return reads_in_place(t->x, dtype) && tile_reads(t->x, t->product.a, t->columns, rows, k, units);
}

NN_INLINE void compute(gemm_piece *t, int32_t dtype) {
  const nn_gemm_args *x = t->x;
  const int64_t k = t->product.k, n_block = t->job->n_block, n_padded = nn_round_up(t->product.n, GEMM_NR);
  const gemm_depth depth = depth_of(k);
  if (depth.blocks == 0) {
    store_empty(t);
    return;
  }
  float sums[2][GEMM_MR * GEMM_NR] __attribute__((aligned(64)));
  t->sums = sums;
  const int64_t kept = blocks_kept(&depth, n_block);
  const int32_t passing = kept == depth.blocks; /* a panel's sums are finished before the next panel */
  int32_t ready = 0;                            /* the panel of A that comes next is packed already */
  for (int64_t from = 0; from < depth.blocks; from += kept) {
    const int64_t to = nn_min(from + kept, depth.blocks);
    for (int64_t i = from; i < to && t->block != NULL; i++) {
      pack_block(t, t->block + (i - from) * depth.units * n_block, i * depth.k, nn_min(depth.k, k - i * depth.k),
                 depth.units, dtype);
    }
    const int64_t group = group_rows(x);
    for (int64_t r = 0; r < t->rows; r += group) {
      const int64_t end = nn_min(r + group, t->rows);
      for (int64_t i = from; i < to; i++) {
        const int64_t k0 = i * depth.k, k_here = nn_min(depth.k, k - k0);
        const float *block = t->block != NULL ? t->block + (i - from) * depth.units * n_block
                                              : t->shared + (i * n_padded + t->column) * depth.units;
        float *packed = t->panel;
        const float *panel = packed;
        int64_t panel_step = GEMM_DEPTH;
        if (direct(t, end - r, k_here, depth.units, dtype)) {
          panel = (const float *)(const void *)(t->product.a + ((t->row + r) * x->lda + k0) * nn_dtype_bytes(dtype));
          panel_step = x->lda / GEMM_UNIT;
        } else if (!ready) {
          pack_panels(t, t->row + r, end - r, k0, k_here, depth.units, dtype);
        }
        /* The panel after this one: the next part of k, or the next rows. */
        const int64_t next_row = i + 1 < to ? r : end, next_k = (i + 1 < to ? i + 1 : from) * depth.k;
        gemm_next next = {.step = x->lda * nn_dtype_bytes(dtype),
                          .rows = x->trans_a ? 0 : nn_min(GEMM_MR, t->rows - next_row),
                          .k = nn_min(depth.k, k - next_k),
                          .bytes = nn_dtype_bytes(dtype),
                          .units = depth.units,
                          .tiles = nn_ceil_div(t->columns, GEMM_NR)};
        next.a = t->product.a + ((t->row + next_row) * x->lda + next_k) * next.bytes;
        next.in_place = direct(t, next.rows, next.k, next.units, dtype);
        const int32_t copy = background_next(&t->background, &next, t->panel_other);
        const int64_t units = tile_units(k_here, depth.units);
        for (int64_t q = r; q < end; q += GEMM_MR) {
          const float *a = panel + (q - r) / GEMM_A_LANES * GEMM_PANEL + (q - r) % GEMM_A_LANES;
          float *partial = t->partial + (passing ? q - r : q) * n_block; /* tile by tile */
          for (int64_t j = 0; j < t->columns; j += GEMM_NR) {
            tile_at(t, a, panel_step, block + j * depth.units, units, t->row + q, nn_min(GEMM_MR, end - q), j, i == 0,
                    i == depth.blocks - 1, partial + j * GEMM_MR);
          }
        }
        background_end(&t->background, depth.units);
        ready = copy;
        if (copy) {
          t->panel = t->panel_other;
          t->panel_other = packed;
        }
      }
    }
  }
  background_store(&t->background);
}

/* Packs GEMM_PACK_COLUMNS columns of one product's B for all tasks. */
static void pack_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const gemm_job *job = arg;
  const nn_gemm_args *x = job->args;
  const int64_t each = nn_ceil_div(x->n, GEMM_PACK_COLUMNS), n_padded = nn_round_up(x->n, GEMM_NR);
  gemm_piece t = {.job = job, .x = x, .product = gemm_product_at(x, i / each), .column = i % each * GEMM_PACK_COLUMNS};
  t.columns = nn_min(GEMM_PACK_COLUMNS, x->n - t.column);
  const gemm_depth depth = depth_of(x->k);
  float *to = job->shared + i / each * job->shared_step;
  for (int64_t block = 0; block < depth.blocks && t.product.m > 0; block++) {
    const int64_t k0 = block * depth.k;
    GEMM_SWITCH_DTYPE(x->dtype, pack_block(&t, to + (block * n_padded + t.column) * depth.units, k0,
                                           nn_min(depth.k, x->k - k0), depth.units, DT));
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
                  .block = job->share ? NULL : (float *)(void *)scratch,
                  .shared = job->share ? job->shared + product * job->shared_step : NULL,
                  .panel = (float *)(void *)(scratch + job->panel_at),
                  .partial = (float *)(void *)(scratch + job->partial_at)};
  t.panel_other = t.panel + GEMM_PANEL;
  t.rows = nn_min(job->m_block, t.product.m - t.row);
  t.columns = nn_min(job->n_block, t.product.n - t.column);
  tiles_open();
  GEMM_SWITCH_DTYPE(x->dtype, compute(&t, DT));
  tiles_close();
  nn_stream_fence();
}

/* A residual in place, with nothing between it and the sum, is beta = 1. (C may be null: a piece of a workspace whose
 * size is being found. No residual lies there.) */
NN_PLAIN static nn_gemm_args simplified(const nn_gemm_args *args) {
  nn_gemm_args x = *args;
  if (x.residual != NULL && x.residual == x.c && x.activation == NNCUDA_ACTIVATION_NONE && x.bias == NULL) {
    x.residual = NULL;
    x.beta = 1.0f;
  }
  return x;
}

/* Whether all products of a job, or those of ragged m with few rows, go one row of B at a time. */
NN_PLAIN static int32_t all_few(const nn_gemm_args *x) {
  return x->ragged != NN_GEMM_RAGGED_K && x->m <= GEMM_FEW_ROWS && !x->alike;
}
NN_PLAIN static int32_t some_few(const nn_gemm_args *x) {
  return (x->ragged == NN_GEMM_RAGGED_M && !x->alike) || all_few(x);
}

/* The job of the other products. What depends on data, groups that have rows and their k, is taken at its most. */
NN_PLAIN static gemm_job lay_out(const nn_gemm_args *x, nn_workspace *w) {
  gemm_job job = {.args = x};
  /* A large C is better written once, past the caches, than added to: while few blocks of k keep the sums waiting. */
  const int32_t once = x->beta == 0.0f && nn_worth_streaming_from(NN_STREAM_BYTES_PRODUCT, x->m * x->n, NNCUDA_F32) &&
                       depth_of(x->k).blocks <= 2;
  job.add = x->dtype_c == NNCUDA_F32 && x->alpha == 1.0f && (x->beta == 0.0f || x->beta == 1.0f) && !once &&
            x->bias == NULL && x->residual == NULL && x->activation == NNCUDA_ACTIVATION_NONE;
  const int64_t m = x->ragged == NN_GEMM_RAGGED_M ? nn_ceil_div(x->m, x->count) : x->m;
  const int64_t k = x->ragged == NN_GEMM_RAGGED_K ? nn_ceil_div(x->k, x->count) : x->k;
  gemm_cut(&job, m, x->n, k, w->machine->threads);
  gemm_lay_out(&job);
  if (x->ragged == NN_GEMM_RAGGED_M) {
    job.first_block = nn_workspace_piece(w, (size_t)(x->count + 1) * sizeof *job.first_block);
  }
  if (job.share) {
    const gemm_depth depth = depth_of(x->k);
    job.shared_step = depth.units * depth.blocks * nn_round_up(x->n, GEMM_NR);
    job.shared = nn_workspace_piece(w, (size_t)(job.shared_step * x->count) * sizeof(float));
  }
  job.scratch = nn_workspace_piece(w, (size_t)(job.scratch_step * w->machine->threads));
  return job;
}

NN_PLAIN static void run_lay_out(const nn_gemm_args *args, nn_workspace *w) {
  const nn_gemm_args x = simplified(args);
  if (some_few(&x)) {
    NN_KERNEL(gemm_few_rows_lay_out)(&x, w);
  }
  if (!all_few(&x)) {
    lay_out(&x, w);
  }
}

static int32_t run(nncuda_ctx *ctx, const nn_gemm_args *args) {
  const nn_gemm_args own = simplified(args), *x = &own;
  if (x->ragged != NN_GEMM_EVEN) {
    const int32_t status =
        nn_check_offsets(ctx, x->offsets, x->count, x->ragged == NN_GEMM_RAGGED_M ? x->m : x->k, "rows");
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
  }
  if (some_few(x)) { /* a token's few experts above all */
    NN_KERNEL(gemm_few_rows)(ctx, x);
  }
  if (all_few(x)) {
    return NNCUDA_SUCCESS;
  }
  gemm_job job = lay_out(x, nn_workspace_of(ctx));
  int64_t block_rows = job.m_blocks * x->count;
  if (x->ragged == NN_GEMM_RAGGED_M) {
    int64_t *first = job.first_block;
    first[0] = 0;
    for (int64_t i = 0; i < x->count; i++) {
      const int64_t rows = x->offsets[i + 1] - x->offsets[i];
      first[i + 1] = first[i] + (rows > GEMM_FEW_ROWS || x->alike ? nn_ceil_div(rows, job.m_block) : 0);
    }
    block_rows = first[x->count];
  }
  if (job.share) {
    nn_parallel(ctx, nn_ceil_div(x->n, GEMM_PACK_COLUMNS) * x->count, pack_task, &job);
  }
  nn_parallel(ctx, block_rows * job.n_blocks, gemm_task, &job);
  return NNCUDA_SUCCESS;
}

#if NN_GEMM_PAIRS
#define GEMM_KERNEL(op) NN_BF16_KERNEL_BY(op, nn_gemm_args, run, run_lay_out)
#else
#define GEMM_KERNEL(op) NN_KERNEL_BY(op, run, run_lay_out)
#endif

GEMM_KERNEL(gemm)
GEMM_KERNEL(gemm_beta)
GEMM_KERNEL(gemm_epilogue)
GEMM_KERNEL(batched_gemm)
GEMM_KERNEL(grouped_gemm)
GEMM_KERNEL(grouped_gemm_wgrad)
