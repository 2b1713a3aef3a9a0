/*
 * Products of few rows. There B is read once and used little: its speed is that of memory, and packing would only add
 * to it. B is streamed as it lies, against rows of A that were made into units beforehand.
 */
#include "gemm_job.h"

#include "gemm_pack.h"
#include "gemm_store.h"

enum {
  STRIP = 64,           /* columns of C whose sums are collected before they are stored */
  WIDTH = 512,          /* most columns of C that are summed side by side when k runs across the rows of B */
  TASK_BYTES = 1 << 18, /* of B */
  /* How far ahead the rows of B are fetched, and where to: 2 is L2, 3 L1. On Zen 4 lines that go to L1 take 1.1 to 1.4
   * times as long with AVX-512, 1 to 3 % less with AVX2. */
  AHEAD = 4096,
  AHEAD_LEVEL = VF == 16 ? 2 : 3
};

typedef struct few_rows_job {
  const nn_gemm_args *x;
  float *a;           /* [rows of all products][units] */
  int64_t *at;        /* [count] the row of `a` where a product's begin, or -1: not taken here; null: product * m */
  int64_t units;      /* padded to whole vectors */
  int64_t n_task;     /* columns of C a task */
  int64_t tasks_each; /* a product */
} few_rows_job;

/* The row of job->a where those of product i begin, or -1. */
NN_INLINE int64_t rows_at(const few_rows_job *job, int64_t i) { return job->at == NULL ? i * job->x->m : job->at[i]; }

/* Row r of one product's A as units. */
NN_INLINE void widen_row(float *to, int64_t units, const nn_gemm_args *x, const char *a, int64_t r, int32_t dtype) {
  const int64_t bytes = nn_dtype_bytes(dtype);
  if (!x->trans_a) {
    for (int64_t p = 0; p < units; p += VF) {
      vf_store(to + p, units_along(a + r * x->lda * bytes, p, x->k, dtype));
    }
    return;
  }
  for (int64_t p = 0; p < units; p++) {
#if NN_GEMM_PAIRS
    const uint16_t *from = (const uint16_t *)(const void *)a + r;
    const uint32_t low = GEMM_UNIT * p < x->k ? from[GEMM_UNIT * p * x->lda] : 0;
    const uint32_t high = GEMM_UNIT * p + 1 < x->k ? from[(GEMM_UNIT * p + 1) * x->lda] : 0;
    to[p] = nn_f32_from_bits(low | high << 16);
#else
    to[p] = p < x->k ? nn_load_as(a, p * x->lda + r, dtype) : 0.0f;
#endif
  }
}

/* A task of it: one product. */
static void widen_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const few_rows_job *job = arg;
  const nn_gemm_args *x = job->x;
  const gemm_product product = gemm_product_at(x, i);
  const int64_t at = rows_at(job, i);
  for (int64_t r = 0; r < product.m && at >= 0; r++) {
    GEMM_SWITCH_DTYPE(x->dtype, widen_row(job->a + (at + r) * job->units, job->units, x, product.a, r, DT));
  }
}

/* One row of B against m rows of A: vectors whose lanes are still to be added, VF*VF apart. `chains` sums a row of A
 * run side by side, since each addition waits for the last.
 */
NN_INLINE void dot_row(const float *a, int64_t units, const char *b, int64_t k, float *lanes, int32_t dtype,
                       const int m, const int chains) {
  enum { MOST = 8 };
  vf sum[MOST][MOST];
#pragma GCC unroll 8
  for (int r = 0; r < m; r++) {
#pragma GCC unroll 8
    for (int c = 0; c < chains; c++) {
      sum[r][c] = vf_set1(0.0f);
    }
  }
  int64_t p = 0;
  for (; (p + chains * VF) * GEMM_UNIT <= k; p += chains * VF) {
#pragma GCC unroll 8
    for (int c = 0; c < chains; c++) {
      const int64_t at = p + c * VF;
      __builtin_prefetch(b + at * GEMM_UNIT * nn_dtype_bytes(dtype) + AHEAD, 0, AHEAD_LEVEL);
      const vf y = units_along(b, at, k, dtype);
#pragma GCC unroll 8
      for (int r = 0; r < m; r++) {
        sum[r][c] = unit_dot(vf_load(a + r * units + at), y, sum[r][c]);
      }
    }
  }
  for (; p * GEMM_UNIT < k; p += VF) {
    const vf y = units_along(b, p, k, dtype);
#pragma GCC unroll 8
    for (int r = 0; r < m; r++) {
      sum[r][0] = unit_dot(vf_load(a + r * units + p), y, sum[r][0]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < m; r++) {
#pragma GCC unroll 8
    for (int c = 1; c < chains; c++) {
      sum[r][0] = vf_add(sum[r][0], sum[r][c]);
    }
    vf_store(lanes + r * VF * VF, sum[r][0]);
  }
}

NN_INLINE void dot_row_of(const float *a, int64_t units, const char *b, int64_t m, int64_t k, float *lanes,
                          int32_t dtype) {
  switch (m) {
#define CASE(rows, chains)                                                                                             \
  case rows:                                                                                                           \
    dot_row(a, units, b, k, lanes, dtype, rows, chains);                                                               \
    break;
    CASE(1, 8)
    CASE(2, 4)
    CASE(3, 2)
    CASE(4, 2)
    CASE(5, 1)
    CASE(6, 1)
    CASE(7, 1)
#undef CASE
  default:
    dot_row(a, units, b, k, lanes, dtype, 8, 1);
    break;
  }
}

/* `rows` rows of B from b on. The lanes of VF rows are added together: transposed, they are VF vectors. */
NN_INLINE void dot_rows(const float *a, int64_t units, const char *b, int64_t step, int64_t rows, int64_t m, int64_t k,
                        float *sums, int32_t dtype) {
  float lanes[GEMM_FEW_ROWS * VF * VF] __attribute__((aligned(64)));
  for (int64_t j = 0; j < rows; j += VF) {
    const int64_t here = nn_min(VF, rows - j);
    for (int64_t i = 0; i < here; i++) {
      dot_row_of(a, units, b + (j + i) * step, m, k, lanes + i * VF, dtype);
    }
    for (int64_t r = 0; r < m; r++) {
      vf x[VF];
      for (int64_t i = 0; i < VF; i++) {
        x[i] = i < here ? vf_load(lanes + (r * VF + i) * VF) : vf_set1(0.0f);
      }
      transpose(x);
      for (int width = VF / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
          x[i] = vf_add(x[i], x[i + width]);
        }
      }
      vf_store(sums + r * STRIP + j, x[0]);
    }
  }
}

NN_PER_DTYPE(dot_rows,
             (const float *a, int64_t units, const char *b, int64_t step, int64_t rows, int64_t m, int64_t k,
              float *sums),
             dot_rows(a, units, b, step, rows, m, k, sums, DT))

/* A task where k runs along the rows of B. */
static void along_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const few_rows_job *job = arg;
  const nn_gemm_args *x = job->x;
  const int64_t at = rows_at(job, i / job->tasks_each);
  if (at < 0) {
    return;
  }
  const gemm_product product = gemm_product_at(x, i / job->tasks_each);
  const float *a = job->a + at * job->units;
  const int64_t begin = i % job->tasks_each * job->n_task, end = nn_min(begin + job->n_task, x->n);
  const int64_t step = x->ldb * nn_dtype_bytes(x->dtype);
  for (int64_t j = begin; j < end; j += STRIP) {
    float sums[GEMM_FEW_ROWS * STRIP] __attribute__((aligned(64)));
    const int64_t columns = nn_min(STRIP, end - j);
    GEMM_CALL_PER_DTYPE(x->dtype, dot_rows,
                        (a, job->units, product.b + j * step, step, columns, product.m, x->k, sums));
    const gemm_target target = gemm_target_at(x, &product, 0, j, product.m, columns);
    target_store(&target, sums, STRIP);
  }
  nn_stream_fence();
}

/* Adds `depth` (1 .. 4) units from p on to the sums [m, WIDTH] of columns j .. j+columns-1. */
NN_INLINE void add_units(const few_rows_job *job, const float *a, int64_t m, const char *b, int64_t p, const int depth,
                         int64_t j, int64_t columns, float *sums, int32_t dtype) {
  const nn_gemm_args *x = job->x;
  for (int64_t v = 0; v < columns; v += VF) {
    vf y[4];
#pragma GCC unroll 4
    for (int d = 0; d < depth; d++) {
      y[d] = units_across(b, x->ldb, p + d, x->k, j + v, j + columns, dtype);
    }
    for (int64_t r = 0; r < m; r++) {
      vf sum = vf_load(sums + r * WIDTH + v);
#pragma GCC unroll 4
      for (int d = 0; d < depth; d++) {
        sum = unit_dot(vf_set1(a[r * job->units + p + d]), y[d], sum);
      }
      vf_store(sums + r * WIDTH + v, sum);
    }
  }
}

NN_INLINE void add_rows(const few_rows_job *job, const float *a, int64_t m, const char *b, int64_t j, int64_t columns,
                        float *sums, int32_t dtype) {
  const int64_t units = nn_ceil_div(job->x->k, GEMM_UNIT), step = job->x->ldb * nn_dtype_bytes(dtype);
  int64_t p = 0;
  for (; p + 4 <= units; p += 4) {
    if ((p + 8) * GEMM_UNIT <= job->x->k) { /* the rows after these: too far apart for the processor to foresee */
      const char *next = b + (p + 4) * GEMM_UNIT * step + j * nn_dtype_bytes(dtype);
      for (int64_t row = 0; row < 4 * GEMM_UNIT; row++) {
        for (int64_t at = 0; at < columns * nn_dtype_bytes(dtype); at += 64) {
          __builtin_prefetch(next + row * step + at);
        }
      }
    }
    add_units(job, a, m, b, p, 4, j, columns, sums, dtype);
  }
  for (; p < units; p++) {
    add_units(job, a, m, b, p, 1, j, columns, sums, dtype);
  }
}

NN_PER_DTYPE(add_rows,
             (const few_rows_job *job, const float *a, int64_t m, const char *b, int64_t j, int64_t columns,
              float *sums),
             add_rows(job, a, m, b, j, columns, sums, DT))

/* A task where k runs across the rows of B. */
static void across_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const few_rows_job *job = arg;
  const nn_gemm_args *x = job->x;
  const int64_t at = rows_at(job, i / job->tasks_each);
  if (at < 0) {
    return;
  }
  const gemm_product product = gemm_product_at(x, i / job->tasks_each);
  const float *a = job->a + at * job->units;
  const int64_t begin = i % job->tasks_each * job->n_task, end = nn_min(begin + job->n_task, x->n);
  float sums[GEMM_FEW_ROWS * WIDTH] __attribute__((aligned(64)));
  for (int64_t j = begin; j < end; j += WIDTH) {
    const int64_t columns = nn_min(WIDTH, end - j);
    memset(sums, 0, sizeof sums);
    GEMM_CALL_PER_DTYPE(x->dtype, add_rows, (job, a, product.m, product.b, j, columns, sums));
    const gemm_target target = gemm_target_at(x, &product, 0, j, product.m, columns);
    target_store(&target, sums, WIDTH);
  }
  nn_stream_fence();
}

/* Where the rows of each group of at most GEMM_FEW_ROWS begin in `a`; how many rows they have together. */
static int64_t place_rows(const nn_gemm_args *x, int64_t *at) {
  int64_t rows = 0;
  for (int64_t i = 0; i < x->count; i++) {
    const int64_t m = x->offsets[i + 1] - x->offsets[i];
    const int32_t taken = m > 0 && m <= GEMM_FEW_ROWS;
    at[i] = taken ? rows : -1;
    rows += taken ? m : 0;
  }
  return rows;
}

/* For as many rows as there can be. */
NN_PLAIN static few_rows_job lay_out(const nn_gemm_args *x, nn_workspace *w) {
  few_rows_job job = {.x = x, .units = nn_round_up(nn_ceil_div(x->k, GEMM_UNIT), VF)};
  int64_t most = x->count * x->m;
  if (x->ragged == NN_GEMM_RAGGED_M) {
    job.at = nn_workspace_piece(w, (size_t)x->count * sizeof *job.at);
    most = nn_min(x->m, GEMM_FEW_ROWS * x->count);
  }
  job.a = nn_workspace_piece(w, (size_t)(most * job.units) * sizeof(float));
  return job;
}

NN_PLAIN void NN_KERNEL(gemm_few_rows_lay_out)(const nn_gemm_args *args, nn_workspace *w) { lay_out(args, w); }

void NN_KERNEL(gemm_few_rows)(nncuda_ctx *ctx, const nn_gemm_args *args) {
  few_rows_job job = lay_out(args, nn_workspace_of(ctx));
  const int64_t rows = args->ragged == NN_GEMM_RAGGED_M ? place_rows(args, job.at) : args->count * args->m;
  if (rows == 0) {
    return;
  }
  for (int64_t i = 0; i < args->count && rows <= GEMM_FEW_ROWS; i++) {
    widen_task(&job, i, 0);
  }
  if (rows > GEMM_FEW_ROWS) {
    nn_parallel(ctx, args->count, widen_task, &job);
  }
  if (args->trans_b) {
    job.n_task = nn_round_up(nn_ceil_div(TASK_BYTES, args->k * nn_dtype_bytes(args->dtype)), STRIP);
  } else { /* wide pieces of the rows, but some for each of a few threads */
    job.n_task = nn_min(WIDTH, nn_round_up(nn_ceil_div(args->n, 8), STRIP));
  }
  job.tasks_each = nn_ceil_div(args->n, job.n_task);
  nn_parallel(ctx, args->count * job.tasks_each, args->trans_b ? along_task : across_task, &job);
}
