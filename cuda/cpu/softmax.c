#include "abi/softmax.h"

#include "checks.h"
#include "reduce.h"
#include "span.h"

/*
 * A row is read once from memory: block by block its exponentials are summed relative to a shift that follows the
 * largest element, then, from the caches, they are computed again and written divided by the sum. The exponentials cost
 * less than keeping them does.
 *
 * The shift is raised only when an element exceeds it by more than 1. So each raise leaves at most 1/e of the sum so
 * far, and with it of the rounding errors of earlier raises, while the elements that matter still lie within 1 of the
 * shift or below it and lose nothing when it is subtracted.
 */

/* Elements in a block: a multiple of NN_GROUP vectors. A row of at most one block keeps its exponentials. */
enum { BLOCK = 1024 };

/* Elements written between two looks at the next row. */
enum { STRIP = 256 };

typedef struct row_sum {
  vf part[NN_GROUP];
  float shift; /* -inf until a larger element comes */
} row_sum;

NN_INLINE vf exp_from(vf x, float shift) { return vf_exp(vf_sub(x, vf_set1(shift))); }

/* -inf - -inf has no value; relative to zero the exponentials of a row of -inf are the zeros that they should be. */
NN_INLINE float usable(float shift) { return shift == -INFINITY ? 0.0f : shift; }

/* Adds the n elements of a block from element `at` of x. The exponentials go to e, if given, relative to the new shift.
 * Meanwhile half as many elements are fetched from element `next`. */
NN_INLINE void sum_block(row_sum *sum, const void *x, int64_t at, int64_t n, int32_t dtype, float *e, int64_t next) {
  const float largest = nn_maximum(x, at, at + n, dtype); /* a NaN is lost here, but not in the exponentials */
  if (largest > sum->shift + 1.0f) {
    const vf factor = vf_exp(vf_set1(sum->shift - largest));
    for (int g = 0; g < NN_GROUP; g++) {
      sum->part[g] = vf_mul(sum->part[g], factor);
    }
    sum->shift = largest;
  }
  const float shift = usable(sum->shift);
  int64_t i = 0;
  for (; i + NN_GROUP * VF <= n; i += NN_GROUP * VF) {
    if (next != 0) {
      nn_fetch(x, next + i / 2, NN_GROUP * VF / 2, dtype);
    }
    for (int g = 0; g < NN_GROUP; g++) {
      const vf y = exp_from(vf_load_as(x, at + i + g * VF, dtype), shift);
      sum->part[g] = vf_add(sum->part[g], y);
      if (e != NULL) {
        vf_store(e + i + g * VF, y);
      }
    }
  }
  for (int g = 0; i < n; i += VF, g++) {
    const int64_t left = nn_min(n - i, VF);
    vf y = vf_keep_part(vf_load_part_as(x, at + i, left, dtype), left, -INFINITY);
    y = exp_from(y, shift);
    sum->part[g] = vf_add(sum->part[g], y);
    if (e != NULL) {
      vf_store_part(e + i, left, y);
    }
  }
}

/* Row of n elements from element `at` of x and of y, which may be of different dtypes. The next row, if it is not 0, is
 * fetched in halves: one while this row is summed, one while it is written. */
NN_INLINE void softmax_row(const void *x, int32_t dtype_x, void *y, int32_t dtype_y, int64_t at, int64_t n,
                           int32_t stream, int64_t next) {
  row_sum sum = {.shift = -INFINITY};
  for (int g = 0; g < NN_GROUP; g++) {
    sum.part[g] = vf_set1(0.0f);
  }
  float e[BLOCK];
  const int32_t kept = n <= BLOCK;
  for (int64_t i = 0; i < n; i += BLOCK) {
    if (kept) {
      sum_block(&sum, x, at, n, dtype_x, e, 0);
    } else {
      sum_block(&sum, x, at + i, nn_min(n - i, BLOCK), dtype_x, NULL, next == 0 ? 0 : next + i / 2);
    }
  }
  const float total = nn_group_sum(sum.part), shift = usable(sum.shift);
  const vf scale = vf_set1(total == 0.0f ? 0.0f : 1.0f / total);
  if (kept) {
    NN_EACH_VECTOR(0, n, 0, 0,
                   nn_put(y, at + i, lanes, vf_mul(nn_get(e, i, lanes, NNCUDA_F32, MODE), scale), dtype_y, MODE));
    return;
  }
  const int64_t head = nn_stream_head(y, at, dtype_y); /* strips after the first start a cache line */
  for (int64_t begin = 0, end; begin < n; begin = end) {
    end = begin == 0 ? head + STRIP : begin + STRIP;
    end = nn_min(end, n);
    if (next != 0) {
      nn_fetch(x, next + (n + begin) / 2, STRIP / 2, dtype_x);
    }
    NN_EACH_VECTOR(
        at + begin, at + end, stream, begin == 0 ? head : 0,
        nn_put(y, i, lanes, vf_mul(exp_from(nn_get(x, i, lanes, dtype_x, MODE), shift), scale), dtype_y, MODE));
  }
}

/* ---- softmax ---- */

/* Rows a task when they are long, as long as that leaves tasks for many threads. */
enum { MOST_ROWS = 16, FEWEST_TASKS = 64 };

typedef struct softmax_job {
  nn_softmax_args a;
  int64_t block; /* rows a task */
  int32_t stream;
} softmax_job;

NN_INLINE void softmax_piece(const softmax_job *job, int64_t piece, int32_t dtype) {
  int64_t count;
  const int64_t row = nn_first_row(piece, job->block, job->a.rows, &count), cols = job->a.cols;
  for (int64_t r = row; r < row + count; r++) {
    const int64_t next = r + 1 < row + count ? (r + 1) * cols : 0;
    softmax_row(job->a.x, dtype, job->a.y, dtype, r * cols, cols, job->stream, next);
  }
  if (job->stream) {
    nn_stream_fence();
  }
}

NN_PER_DTYPE(softmax_piece, (const softmax_job *job, int64_t piece), softmax_piece(job, piece, DT))

NN_TASK(softmax_task, softmax_job, NN_CALL_PER_DTYPE(job->a.dtype, softmax_piece, (job, task)))

int32_t NN_KERNEL(softmax)(nncuda_ctx *ctx, const void *args) {
  softmax_job job = {.a = *(const nn_softmax_args *)args};
  job.block = nn_rows_per_task(job.a.cols);
  if (job.block < MOST_ROWS) { /* several long rows, so that each but the first is fetched before its turn */
    const int64_t block = nn_min(job.a.rows / FEWEST_TASKS, MOST_ROWS);
    job.block = nn_max(job.block, block);
  }
  job.stream = job.a.y != job.a.x && nn_worth_streaming(job.a.rows * job.a.cols, job.a.dtype);
  nn_parallel(ctx, nn_ceil_div(job.a.rows, job.block), softmax_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- softmax_backward ---- */

typedef struct backward_job {
  nn_softmax_backward_args a;
  int64_t block;
  int32_t stream;
} backward_job;

NN_INLINE void backward_piece(const backward_job *job, int64_t piece, int32_t dtype) {
  int64_t count;
  const int64_t row = nn_first_row(piece, job->block, job->a.rows, &count), cols = job->a.cols;
  const void *dy = job->a.dy, *y = job->a.y;
  void *dx = job->a.dx;
  for (int64_t at = row * cols; at < (row + count) * cols; at += cols) {
    const vf mean = vf_set1(nn_dot(dy, at, dtype, y, at, dtype, cols));
    NN_EACH_VECTOR(at, at + cols, job->stream, nn_stream_head(dx, at, dtype),
                   nn_put(dx, i, lanes,
                          vf_mul(nn_get(y, i, lanes, dtype, MODE), vf_sub(nn_get(dy, i, lanes, dtype, MODE), mean)),
                          dtype, MODE));
  }
  if (job->stream) {
    nn_stream_fence();
  }
}

NN_PER_DTYPE(backward_piece, (const backward_job *job, int64_t piece), backward_piece(job, piece, DT))

NN_TASK(backward_task, backward_job, NN_CALL_PER_DTYPE(job->a.dtype, backward_piece, (job, task)))

int32_t NN_KERNEL(softmax_backward)(nncuda_ctx *ctx, const void *args) {
  backward_job job = {.a = *(const nn_softmax_backward_args *)args};
  job.block = nn_rows_per_task(job.a.cols);
  job.stream = job.a.dx != job.a.dy && nn_worth_streaming(job.a.rows * job.a.cols, job.a.dtype);
  nn_parallel(ctx, nn_ceil_div(job.a.rows, job.block), backward_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- softmax_topk ---- */

/* The k largest of n probabilities in falling order, the first of equals first. NaN is below zero, so below all of
 * them. */
static void largest_k(const float *probs, int64_t n, int64_t k, float *values, int32_t *indices) {
  int64_t held = 0;
  for (int64_t column = 0; column < n; column++) {
    const float p = probs[column], key = p != p ? -1.0f : p;
    if (held == k && !(key > values[k - 1])) {
      continue;
    }
    int64_t at = held < k ? held++ : k - 1;
    for (; at > 0 && key > values[at - 1]; at--) {
      values[at] = values[at - 1];
      indices[at] = indices[at - 1];
    }
    values[at] = key;
    indices[at] = (int32_t)column;
  }
}

typedef struct topk_job {
  nn_softmax_topk_args a;
  int64_t block;
} topk_job;

NN_INLINE void topk_piece(const topk_job *job, int64_t piece, int32_t dtype) {
  const nn_softmax_topk_args a = job->a;
  int64_t count;
  const int64_t row = nn_first_row(piece, job->block, a.rows, &count);
  for (int64_t r = row; r < row + count; r++) {
    float values[NN_TOPK_MAX];
    const float *probs = a.probs + r * a.cols;
    int32_t *indices = a.indices + r * a.k;
    float *weights = a.weights + r * a.k;
    softmax_row(a.x, dtype, a.probs, NNCUDA_F32, r * a.cols, a.cols, 0, 0);
    largest_k(probs, a.cols, a.k, values, indices);
    float total = 0.0f;
    for (int64_t j = 0; j < a.k; j++) {
      weights[j] = probs[indices[j]];
      total += weights[j];
    }
    for (int64_t j = 0; j < a.k && a.norm; j++) {
      weights[j] /= total;
    }
  }
}

NN_PER_DTYPE(topk_piece, (const topk_job *job, int64_t piece), topk_piece(job, piece, DT))

NN_TASK(topk_task, topk_job, NN_CALL_PER_DTYPE(job->a.dtype, topk_piece, (job, task)))

/* Picking is serial, so a task has fewer rows than elementwise work would. */
NN_INLINE int64_t rows_per_topk_task(int64_t cols) { return nn_ceil_div(nn_rows_per_task(cols), 8); }

int32_t NN_KERNEL(softmax_topk)(nncuda_ctx *ctx, const void *args) {
  topk_job job = {.a = *(const nn_softmax_topk_args *)args};
  job.block = rows_per_topk_task(job.a.cols);
  nn_parallel(ctx, nn_ceil_div(job.a.rows, job.block), topk_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- softmax_topk_backward ---- */

typedef struct topk_backward_job {
  nn_softmax_topk_backward_args a;
  int64_t block;
  float *gradient; /* cols a worker: the gradient of the probabilities */
} topk_backward_job;

NN_INLINE void topk_backward_piece(const topk_backward_job *job, int64_t piece, int32_t worker, int32_t dtype) {
  const nn_softmax_topk_backward_args a = job->a;
  float *g = job->gradient + worker * a.cols;
  int64_t count;
  const int64_t row = nn_first_row(piece, job->block, a.rows, &count);
  for (int64_t r = row; r < row + count; r++) {
    const float *dweights = a.dweights + r * a.k, *weights = a.weights + r * a.k, *probs = a.probs + r * a.cols;
    const int32_t *indices = a.indices + r * a.k;
    if (a.dprobs != NULL) {
      memcpy(g, a.dprobs + r * a.cols, (size_t)a.cols * sizeof *g);
    } else {
      memset(g, 0, (size_t)a.cols * sizeof *g);
    }
    /* weights = p / total: its gradient loses what would scale all of them alike. */
    float total = 1.0f, along = 0.0f;
    if (a.norm) {
      total = 0.0f;
      for (int64_t j = 0; j < a.k; j++) {
        total += probs[indices[j]];
        along += dweights[j] * weights[j];
      }
    }
    for (int64_t j = 0; j < a.k; j++) {
      g[indices[j]] += (dweights[j] - along) / total;
    }
    const vf mean = vf_set1(nn_dot(g, 0, NNCUDA_F32, probs, 0, NNCUDA_F32, a.cols));
    NN_EACH_VECTOR(
        0, a.cols, 0, 0,
        nn_put(a.dx, r * a.cols + i, lanes,
               vf_mul(nn_get(probs, i, lanes, NNCUDA_F32, MODE), vf_sub(nn_get(g, i, lanes, NNCUDA_F32, MODE), mean)),
               dtype, MODE));
  }
}

NN_PER_DTYPE(topk_backward_piece, (const topk_backward_job *job, int64_t piece, int32_t worker),
             topk_backward_piece(job, piece, worker, DT))

NN_TASK(topk_backward_task, topk_backward_job,
        NN_CALL_PER_DTYPE(job->a.dtype, topk_backward_piece, (job, task, worker)))

NN_PLAIN static topk_backward_job topk_backward_lay_out(const nn_softmax_topk_backward_args *a, nn_workspace *w) {
  return (topk_backward_job){
      .a = *a, .gradient = nn_workspace_piece(w, (size_t)w->machine->threads * (size_t)a->cols * sizeof(float))};
}

NN_WORKSPACE(softmax_topk_backward) { topk_backward_lay_out(args, w); }

int32_t NN_KERNEL(softmax_topk_backward)(nncuda_ctx *ctx, const void *args) {
  topk_backward_job job = topk_backward_lay_out(args, nn_workspace_of(ctx));
  NN_TRY(nn_check_indices(ctx, job.a.indices, job.a.rows, job.a.k, job.a.cols));
  job.block = rows_per_topk_task(job.a.cols);
  nn_parallel(ctx, nn_ceil_div(job.a.rows, job.block), topk_backward_task, &job);
  return NNCUDA_SUCCESS;
}
