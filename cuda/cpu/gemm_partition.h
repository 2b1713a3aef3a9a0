/* How a job's work is cut: the depth of sums, the blocks of C, and who packs what. */
#ifndef NN_CPU_GEMM_PARTITION_H
#define NN_CPU_GEMM_PARTITION_H

#include "gemm_job.h"

/* How a depth of k is summed: blocks that depend on k alone, since they decide the bits. */
typedef struct gemm_depth {
  int64_t units;  /* in a block, padded */
  int64_t k;      /* elements of k in a block */
  int64_t blocks; /* in all */
} gemm_depth;

NN_PLAIN NN_INLINE gemm_depth depth_of(int64_t k) {
  const int64_t units = nn_ceil_div(k, GEMM_UNIT), blocks = nn_ceil_div(units, GEMM_DEPTH);
  if (blocks == 0) {
    return (gemm_depth){0};
  }
  const int64_t each = nn_round_up(nn_ceil_div(units, blocks), GEMM_DEPTH_STEP);
  return (gemm_depth){.units = each, .k = each * GEMM_UNIT, .blocks = nn_ceil_div(units, each)};
}

/* Blocks of k whose packed B is kept at once. */
NN_PLAIN NN_INLINE int64_t blocks_kept(const gemm_depth *depth, int64_t n_block) {
  const int64_t most = GEMM_BLOCK_BYTES / 4 / (depth->units * n_block);
  return most < 1 ? 1 : nn_min(most, depth->blocks);
}

/* The rows that a panel of A takes in memory: what a tile of `rows` rows reads. */
NN_INLINE int64_t panel_rows(int64_t rows) { return nn_round_up(rows, GEMM_TILE_ROWS); }
/* Panels are GEMM_NR wide, the last one of a block as wide as its vectors. */
NN_INLINE int64_t panel_width(int64_t columns) { return nn_round_up(nn_min(columns, GEMM_NR), VF); }
/* Rows of A at a time: where k runs across its rows, several panels are packed at once, so that a row is read for more
 * than a line. */
NN_PLAIN NN_INLINE int64_t group_rows(const nn_gemm_args *x) {
  return x->trans_a ? GEMM_GROUP * GEMM_A_LANES : GEMM_MR;
}

/* Tiles can read rows of A as they lie, from anywhere, when these hold whole units. */
NN_PLAIN NN_INLINE int32_t reads_in_place(const nn_gemm_args *x, int32_t dtype) {
  return !x->trans_a && dtype == (GEMM_UNIT == 1 ? NNCUDA_F32 : NNCUDA_BF16) && x->lda % GEMM_UNIT == 0;
}

/*
 * Cuts a product of m rows into blocks of C: a few a thread, so that none waits long for the last. (An element's sum is
 * the same in whichever block it lies.) Every column block reads and packs all of A. Every row block needs all of B: it
 * packs B for itself, or B was packed once for all, which costs memory, a second start of the threads and another trip
 * through the caches. The cheapest cut is taken. Costs are cycles a unit of k; those of packing were measured.
 */
NN_PLAIN static void gemm_cut(gemm_job *job, int64_t m, int64_t n, int64_t k, int64_t threads) {
  const nn_gemm_args *x = job->args;
  const double a_cost = reads_in_place(x, x->dtype) ? GEMM_READ_TENTHS / 10.0 : 1.0; /* or packed */
  const double b_cost = x->trans_b ? 1.0 : 0.8, b_reread = 0.2, start = 16e3;
  /* Few columns wait for A, of which a core takes in some 5 elements a cycle: threads share that, too. */
  const double busy = GEMM_PRODUCTS_A_CYCLE / 5.0 > (double)n ? GEMM_PRODUCTS_A_CYCLE / 5.0 : (double)n;
  const double work = (double)m * busy * (double)k * (double)x->count;
  const double most = threads > 1 ? 4.0 * (double)threads : 1.0;
  const double wanted = work / GEMM_TASK_WORK < most ? work / GEMM_TASK_WORK : most;
  const int64_t pieces = nn_ceil_div(wanted < 1 ? 1 : (int64_t)wanted, x->count);
  const int64_t n_panels = nn_ceil_div(n, GEMM_NR), m_panels = nn_ceil_div(m, GEMM_MR);
  const gemm_depth depth = depth_of(k);
  /* In panels. Where A is packed ahead, B should stay whole rather than be wide. */
  const int64_t deep = GEMM_PACKS_AHEAD || depth.units == 0 ? GEMM_DEPTH : depth.units,
                widest = GEMM_BLOCK_BYTES / 4 / deep / GEMM_NR;
  const double area = (double)(m * n) * GEMM_UNIT / GEMM_PRODUCTS_A_CYCLE; /* cycles a unit of k without any overhead */
  const int64_t units = depth.units * depth.blocks;
  const int32_t may_share =
      x->ragged != NN_GEMM_RAGGED_K && (double)units * (double)(n_panels * GEMM_NR * x->count) <= GEMM_SHARED_BYTES / 4;
  double best = 0;
  for (int64_t wide = nn_min(widest, n_panels); wide > 0; wide--) {
    const int64_t n_blocks = nn_ceil_div(n_panels, wide);
    const int32_t passing = depth.blocks == 0 || blocks_kept(&depth, wide * GEMM_NR) == depth.blocks;
    int64_t tall = nn_ceil_div(m_panels, nn_ceil_div(pieces, n_blocks));
    if (!job->add && !passing) {
      tall = nn_min(tall, GEMM_PARTIAL_BYTES / 4 / (wide * GEMM_NR * GEMM_MR)); /* unfinished sums should stay near */
    }
    tall = tall < 1 ? 1 : tall;
    const int64_t m_blocks = nn_ceil_div(m_panels, tall), tasks = n_blocks * m_blocks * x->count;
    tall = nn_ceil_div(m_panels, m_blocks);
    const double idle = (double)(nn_round_up(tasks, threads) - tasks) * area / (double)tasks;
    const double padding = (double)(n_blocks * wide - n_panels) / (double)(n_blocks * n_panels) * area;
    /* Unfinished sums that leave the caches' nearest reach are written and read again after each block of k. */
    const double again = passing || job->add ? 0 : 0.5 * (double)(m * n) / (double)depth.units;
    const double both = (double)(n_blocks * m) * a_cost + idle + padding + again;
    const double own = (double)(m_blocks * n) * b_cost;
    const double shared = (double)n * b_cost + (double)(m_blocks * n) * b_reread + start / (double)(units + 1);
    const int32_t share = may_share && shared < own;
    const double cost = both + (share ? shared : own);
    if (best == 0 || cost < best) {
      best = cost;
      job->n_block = wide * GEMM_NR;
      job->n_blocks = n_blocks;
      job->m_block = tall * GEMM_MR;
      job->m_blocks = m_blocks;
      job->share = share;
    }
  }
}

/* Bytes that a worker needs, and where its parts lie: for a product of all k, which one group may have. */
NN_PLAIN static void gemm_lay_out(gemm_job *job) {
  const gemm_depth depth = depth_of(job->args->k);
  const int64_t all = depth.units * depth.blocks * job->n_block;
  const int64_t one = nn_min(depth.units * depth.blocks, GEMM_DEPTH) * job->n_block;
  int64_t block = nn_max(one, GEMM_BLOCK_BYTES / 4);
  block = job->share ? 0 : nn_min(block, all);
  const int64_t at_once = job->args->trans_a ? GEMM_GROUP : 1; /* panels of A */
  const int64_t panels = at_once + GEMM_PACKS_AHEAD;           /* and the one being packed meanwhile */
  const int32_t passing = depth.blocks == 0 || blocks_kept(&depth, job->n_block) == depth.blocks;
  job->panel_at = nn_round_up(block * 4, 64);
  job->partial_at = job->panel_at + nn_round_up(panels * GEMM_PANEL * 4, 64);
  job->scratch_step = job->partial_at;
  if (!job->add && depth.blocks > 1) {
    const int64_t group = group_rows(job->args), all_rows = passing ? group : job->m_block;
    /* A shorter k may pass where the longest does not. */
    const int64_t rows = job->args->ragged == NN_GEMM_RAGGED_K ? nn_max(group, all_rows) : all_rows;
    job->scratch_step += nn_round_up(rows * job->n_block * 4, 64);
  }
  /* Workers' parts must not share lines, nor lie a power of two apart and so in the same sets of a cache. */
  job->scratch_step = nn_round_up(job->scratch_step, 4096) + 64 * 5;
}

#endif
