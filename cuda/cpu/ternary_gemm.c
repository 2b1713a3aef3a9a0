/* Linear layers with ternary weights: how a call is cut into tasks, and how integers become the result. */
#include "ternary_gemm_backend.h"

enum {
  MOST_ROWS = 256,       /* of activations in a task */
  FEW_ROWS = 16,         /* up to these, tasks are cut by bytes of weights */
  TASK_BYTES = 96 << 10, /* then */
  MOST_PANELS = 64,      /* then */
  MANY_ROWS_PANELS = 8,  /* otherwise */
  ACTIVATION_ROWS = 16   /* rows of activations that a task takes over */
};

typedef struct gemm_job {
  const nn_bitlinear_args *args;
  ternary_activations activations;
  int64_t rows;   /* of activations in a task */
  int64_t panels; /* of weights in a task */
  int64_t chunks; /* tasks with the same rows */
  char *scratch;
  int64_t scratch_step; /* bytes a worker: sums, then what the product needs */
  int64_t sums_bytes, ld;
  int64_t tasks, threads; /* threads decide what is fetched ahead, and nothing else */
} gemm_job;

/* ---- from integers to the result ---- */

NN_INLINE vw true_integers(const int32_t *sums, int32_t total) {
  return vw_sub(vw_load(sums), vw_set1((uint32_t)total));
}

/* `count` integers into row `row` of the result, from `column` on. `sums` may be read up to whole vectors. */
NN_INLINE void finish_row(const gemm_job *job, const int32_t *sums, int64_t row, int64_t column, int64_t count,
                          int32_t dtype) {
  const nn_bitlinear_args *a = job->args;
  const int32_t total = job->activations.total[row];
  const vf scale = vf_set1(a->scale[row]);
  for (int64_t i = 0; i < count; i += VF) {
    const int64_t n = nn_min(VF, count - i), at = row * a->n + column + i;
    vf v = vw_converted(true_integers(sums + i, total));
    v = vf_mul(v, vf_mul(scale, vf_load_upto_as(a->w_scale, column + i, n, NNCUDA_F32)));
    if (a->residual != NULL) {
      v = vf_add(v, vf_load_upto_as(a->residual, at, n, dtype));
    }
    vf_store_upto_as(a->y, at, n, v, dtype);
  }
}

static void finish(const gemm_job *job, const int32_t *sums, int64_t row, int64_t column, int64_t count) {
  const nn_bitlinear_args *a = job->args;
  if (a->dtype == NNCUDA_I32) {
    int32_t *y = (int32_t *)a->y + row * a->n + column;
    for (int64_t i = 0; i < count; i++) {
      y[i] = sums[i] - job->activations.total[row];
    }
    return;
  }
  NN_SWITCH_DTYPE(a->dtype, finish_row(job, sums, row, column, count, DT));
}

/* ---- tasks ---- */

static const uint8_t *panel_at(const gemm_job *job, int64_t task) {
  const nn_bitlinear_args *a = job->args;
  return (const uint8_t *)a->w + task % job->chunks * job->panels * TERNARY_PANEL * a->row_bytes;
}

static void product_task(void *arg, int64_t task, int32_t worker) {
  const gemm_job *job = arg;
  const nn_bitlinear_args *a = job->args;
  const int64_t panel = task % job->chunks * job->panels, then = task + job->threads;
  char *scratch = job->scratch + worker * job->scratch_step;
  ternary_piece piece = {.activations = &job->activations,
                         .row = task / job->chunks * job->rows,
                         .w = panel_at(job, task),
                         .next = panel_at(job, then < job->tasks ? then : task),
                         .panels = nn_min(job->panels, a->stored / TERNARY_PANEL - panel),
                         .panel_bytes = TERNARY_PANEL * a->row_bytes,
                         .sums = (int32_t *)(void *)scratch,
                         .ld = job->ld,
                         .work = scratch + job->sums_bytes};
  piece.rows = nn_min(job->rows, a->m - piece.row);
  ternary_product(&piece);
  for (int64_t r = 0; r < piece.rows; r++) {
    finish(job, piece.sums + r * piece.ld, piece.row + r, panel * TERNARY_PANEL,
           nn_min(piece.panels * TERNARY_PANEL, a->n - panel * TERNARY_PANEL));
  }
}

static void activations_task(void *arg, int64_t task, int32_t worker) {
  (void)worker;
  const gemm_job *job = arg;
  const int64_t end = nn_min((task + 1) * ACTIVATION_ROWS, job->args->m);
  for (int64_t r = task * ACTIVATION_ROWS; r < end; r++) {
    ternary_pack_row(&job->activations, r, job->args->codes + r * job->args->k, job->args->k);
  }
}

NN_PLAIN static gemm_job lay_out(const nn_bitlinear_args *a, nn_workspace *w) {
  gemm_job job = {.args = a, .threads = w->machine->threads};
  const ternary_form form = ternary_form_of(a->m);
  job.activations.tiled = form.tiled;
  job.activations.depth = nn_round_up(a->k, form.columns);
  job.activations.x =
      nn_workspace_piece(w, (size_t)(nn_round_up(a->m, form.rows) * job.activations.depth * form.bytes));
  job.activations.total = nn_workspace_piece(w, (size_t)a->m * sizeof *job.activations.total);
  job.rows = nn_min(MOST_ROWS, a->m);
  job.panels =
      a->m > FEW_ROWS ? MANY_ROWS_PANELS : nn_min(TASK_BYTES / (TERNARY_PANEL * a->row_bytes) + 1, MOST_PANELS);
  job.panels = nn_min(nn_round_up(job.panels, 4), a->stored / TERNARY_PANEL); /* whole groups, in every kernel */
  job.chunks = nn_ceil_div(a->stored / TERNARY_PANEL, job.panels);
  job.ld = job.panels * TERNARY_PANEL;
  job.sums_bytes = nn_round_up(job.rows, TERNARY_PANEL) * job.ld * (int64_t)sizeof(int32_t);
  job.scratch_step =
      nn_round_up(job.sums_bytes + ternary_work_bytes(), 4096) + 128; /* workers' lines in different sets */
  job.scratch = nn_workspace_piece(w, (size_t)(job.threads * job.scratch_step));
  return job;
}

NN_WORKSPACE(bitlinear) { lay_out(args, w); }

int32_t NN_KERNEL(bitlinear)(nncuda_ctx *ctx, const void *args) {
  const nn_bitlinear_args *a = args;
  gemm_job job = lay_out(a, nn_workspace_of(ctx));
  job.tasks = nn_ceil_div(a->m, job.rows) * job.chunks;
  nn_parallel(ctx, nn_ceil_div(a->m, ACTIVATION_ROWS), activations_task, &job);
  nn_parallel(ctx, job.tasks, product_task, &job);
  return NNCUDA_SUCCESS;
}
