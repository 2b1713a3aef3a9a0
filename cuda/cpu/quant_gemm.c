#include "quant_gemm_job.h"

#include "checks.h"
#include "quant_gemm_backend.h"
#include "quant_gemm_round.h"
#include "rmsnorm_row.h"

/* ---- sums ---- */

/* Each format in a function of its own: all in one take the compiler longer, and run no faster. */
#define COLUMNS(name, of, format)                                                                                      \
  static __attribute__((noinline)) void columns_##name(const quant_piece *t) { of(t, format); }
COLUMNS(f32, float_columns, NNCUDA_F32)
COLUMNS(f16, half_columns, NNCUDA_FORMAT_F16)
COLUMNS(bf16, half_columns, NNCUDA_FORMAT_BF16)
COLUMNS(q4_0, block_columns, NNCUDA_FORMAT_Q4_0)
COLUMNS(q4_1, block_columns, NNCUDA_FORMAT_Q4_1)
COLUMNS(q5_0, block_columns, NNCUDA_FORMAT_Q5_0)
COLUMNS(q5_1, block_columns, NNCUDA_FORMAT_Q5_1)
COLUMNS(q8_0, block_columns, NNCUDA_FORMAT_Q8_0)
COLUMNS(q4_k, block_columns, NNCUDA_FORMAT_Q4_K)
COLUMNS(q5_k, block_columns, NNCUDA_FORMAT_Q5_K)
COLUMNS(q6_k, block_columns, NNCUDA_FORMAT_Q6_K)
COLUMNS(q2_k, block_columns, NNCUDA_FORMAT_Q2_K)
COLUMNS(q3_k, block_columns, NNCUDA_FORMAT_Q3_K)
COLUMNS(iq4_nl, block_columns, NNCUDA_FORMAT_IQ4_NL)
COLUMNS(mxfp4, block_columns, NNCUDA_FORMAT_MXFP4)
COLUMNS(iq4_xs, block_columns, NNCUDA_FORMAT_IQ4_XS)
COLUMNS(q4_0_r16, interleaved_columns, NNCUDA_FORMAT_Q4_0)
COLUMNS(q4_1_r16, interleaved_columns, NNCUDA_FORMAT_Q4_1)
COLUMNS(q5_0_r16, interleaved_columns, NNCUDA_FORMAT_Q5_0)
COLUMNS(q5_1_r16, interleaved_columns, NNCUDA_FORMAT_Q5_1)
COLUMNS(q8_0_r16, interleaved_columns, NNCUDA_FORMAT_Q8_0)
COLUMNS(q4_k_r16, interleaved_columns, NNCUDA_FORMAT_Q4_K)
COLUMNS(q5_k_r16, interleaved_columns, NNCUDA_FORMAT_Q5_K)
COLUMNS(q6_k_r16, interleaved_columns, NNCUDA_FORMAT_Q6_K)
COLUMNS(q2_k_r16, interleaved_columns, NNCUDA_FORMAT_Q2_K)
COLUMNS(q3_k_r16, interleaved_columns, NNCUDA_FORMAT_Q3_K)
COLUMNS(iq4_nl_r16, interleaved_columns, NNCUDA_FORMAT_IQ4_NL)
COLUMNS(mxfp4_r16, interleaved_columns, NNCUDA_FORMAT_MXFP4)
COLUMNS(iq4_xs_r16, interleaved_columns, NNCUDA_FORMAT_IQ4_XS)
#undef COLUMNS

static void columns(const quant_piece *t) {
  switch (t->format) {
#define CASE(name, lower)                                                                                              \
  case NNCUDA_FORMAT_##name:                                                                                           \
    columns_##lower(t);                                                                                                \
    break;
    CASE(F32, f32)
    CASE(F16, f16)
    CASE(BF16, bf16)
    CASE(Q4_0, q4_0)
    CASE(Q4_1, q4_1)
    CASE(Q5_0, q5_0)
    CASE(Q5_1, q5_1)
    CASE(Q8_0, q8_0)
    CASE(Q4_K, q4_k)
    CASE(Q5_K, q5_k)
    CASE(Q4_0_R16, q4_0_r16)
    CASE(Q4_1_R16, q4_1_r16)
    CASE(Q5_0_R16, q5_0_r16)
    CASE(Q5_1_R16, q5_1_r16)
    CASE(Q8_0_R16, q8_0_r16)
    CASE(Q4_K_R16, q4_k_r16)
    CASE(Q5_K_R16, q5_k_r16)
    CASE(Q6_K_R16, q6_k_r16)
    CASE(Q2_K, q2_k)
    CASE(Q3_K, q3_k)
    CASE(Q2_K_R16, q2_k_r16)
    CASE(Q3_K_R16, q3_k_r16)
    CASE(IQ4_NL, iq4_nl)
    CASE(MXFP4, mxfp4)
    CASE(IQ4_XS, iq4_xs)
    CASE(IQ4_NL_R16, iq4_nl_r16)
    CASE(MXFP4_R16, mxfp4_r16)
    CASE(IQ4_XS_R16, iq4_xs_r16)
#undef CASE
  default:
    columns_q6_k(t);
  }
}

/* ---- from sums to the result ---- */

/* A row of sums into the result, from `column` on. `up` is null but for the gated unit. */
NN_INLINE void finish_row(const nn_gemm_quant_args *x, const float *sums, const float *up, int64_t row, int64_t column,
                          int64_t count, int32_t dtype) {
  for (int64_t i = 0; i < count; i += VF) {
    const int64_t n = nn_min(VF, count - i), at = row * x->n + column + i;
    vf v = vf_load(sums + i);
    if (up != NULL) {
      v = vf_mul(vf_silu(v), vf_load(up + i));
    }
    if (x->bias != NULL) {
      v = vf_add(v, vf_load_upto_as(x->bias, column + i, n, dtype));
    }
    if (x->activation == NNCUDA_ACTIVATION_SILU) {
      v = vf_silu(v);
    }
    if (x->residual != NULL) {
      v = vf_add(v, vf_load_upto_as(x->residual, at, n, dtype));
    }
    vf_store_upto_as(x->y, at, n, v, dtype);
  }
}

/* ---- tasks ---- */

typedef struct place {
  const quant_panel *panel;
  int32_t matrix;
  int64_t column; /* of the result, where the matrix begins */
  int64_t first;  /* row of the matrix */
  const uint8_t *w;
} place;

/* What task i multiplies with; of the gated unit the first matrix. */
static place place_of(const quant_job *job, int64_t i) {
  const nn_gemm_quant_args *x = job->args;
  place p = {.panel = &job->panel[i / job->chunks]};
  const int64_t chunk = i % job->chunks;
  while (x->combine != NN_QUANT_SWIGLU && chunk >= job->chunk[p.matrix + 1]) {
    p.column += x->matrix[p.matrix++].n;
  }
  const nn_quant_matrix *w = &x->matrix[p.matrix];
  p.first = (chunk - job->chunk[p.matrix]) * job->columns;
  p.w = (const uint8_t *)w->w + (p.panel->group * w->n + p.first) * w->row_bytes;
  return p;
}

static void product_task(void *arg, int64_t i, int32_t worker) {
  const quant_job *job = arg;
  const nn_gemm_quant_args *x = job->args;
  const place at = place_of(job, i);
  const quant_panel *panel = at.panel;
  const int32_t gated = x->combine == NN_QUANT_SWIGLU, matrix = at.matrix;
  const int64_t column = at.column, first = at.first, then = i + job->threads;
  const uint8_t *next = then < job->panels * job->chunks ? place_of(job, then).w : at.w;
  char *scratch = job->scratch + worker * job->scratch_step;
  const int64_t of_rows = nn_round_up(panel->rows, QUANT_ROWS) * job->ld;
  float *sums = (float *)(void *)scratch, *up = sums + of_rows;
  quant_piece piece = {.job = job, .panel = panel, .k = x->k, .sums = sums, .ld = job->ld};
  piece.work = (char *)(up + (gated ? of_rows : 0));
  for (int32_t j = matrix; j < (gated ? 2 : matrix + 1); j++) {
    const nn_quant_matrix *w = &x->matrix[j];
    piece.w = (const uint8_t *)w->w + (panel->group * w->n + first) * w->row_bytes;
    piece.row_bytes = w->row_bytes;
    piece.columns = nn_min(job->columns, w->n - first);
    piece.format = w->format;
    piece.next = next;
    if (gated && j == 0) {
      piece.next = (const uint8_t *)x->matrix[1].w + (panel->group * x->matrix[1].n + first) * x->matrix[1].row_bytes;
    }
    columns(&piece);
    piece.sums = up;
  }
  for (int64_t r = 0; r < panel->rows; r++) {
    NN_SWITCH_DTYPE(x->dtype, finish_row(x, sums + r * job->ld, gated ? up + r * job->ld : NULL, panel->row + r,
                                         column + first, piece.columns, DT));
  }
}

/* Row r of a panel in each form that is asked for; the norm of one is in `space` on the way. */
NN_INLINE void round_row(const quant_job *job, const quant_panel *panel, int64_t r, char *space, int32_t dtype) {
  const nn_gemm_quant_args *x = job->args;
  const void *from = x->x;
  int64_t row = panel->row + r;
  if (x->norm != NULL) {
    const int64_t at = row * x->k;
    const vf rstd = vf_set1(nn_rstd(x->x, at, x->k, x->eps, dtype));
    NN_EACH_VECTOR(
        0, x->k, 0, 0,
        nn_put(space, i, lanes, nn_norm_vector(x->x, x->norm, rstd, at, i, lanes, dtype, MODE), dtype, MODE));
    from = space;
    row = 0;
  }
  for (int32_t form = 0; form < QUANT_FORMS; form++) {
    const quant_activations *acts = &job->activations[form];
    if (acts->codes != NULL || acts->values != NULL) {
      quant_round_row(acts, form, panel, r, from, row, x->k, dtype);
    }
  }
}

NN_PER_DTYPE(round_row_of, (const quant_job *job, const quant_panel *panel, int64_t r, char *space),
             round_row(job, panel, r, space, DT))

/* Of a panel's `rows` rows: how many are multiplied. */
static int64_t rows_taken(int32_t order, int64_t rows) {
  if (order == QUANT_BY_TILE) {
    return nn_round_up(rows, QUANT_ROWS);
  }
  return order == QUANT_BY_ROW && rows % QUANT_FOUR == QUANT_FOUR - 1 ? rows + 1 : rows;
}

/* Rows from `end` on that are not there but are multiplied with the last ones: their scales would cost time where they
 * are subnormal, and their sums leave 32 bits. */
static void round_missing(const quant_job *job, const quant_panel *panel, int64_t end) {
  const int64_t k = job->args->k;
  for (int32_t form = QUANT_FORM_BLOCKS; form <= QUANT_FORM_INTERLEAVED; form++) {
    const quant_activations *acts = &job->activations[form];
    const int32_t order = quant_order(form, panel->rows);
    for (int64_t r = end; acts->codes != NULL && r < rows_taken(order, end); r++) {
      for (int64_t i = 0; i < k / QUANT_BLOCK; i++) {
        const int64_t at = quant_scale_at(order, panel, r, i, k);
        acts->scale[at] = acts->total[at] = 0.0f;
        if (order == QUANT_BY_ROW) {
          acts->sums[2 * at] = acts->sums[2 * at + 1] = 0;
        }
      }
    }
  }
}

/* Rounds QUANT_ROWS rows of a panel. */
static void round_task(void *arg, int64_t i, int32_t worker) {
  const quant_job *job = arg;
  const nn_gemm_quant_args *x = job->args;
  const quant_panel *panel = &job->panel[i / job->parts];
  const int64_t first = i % job->parts * QUANT_ROWS, end = nn_min(first + QUANT_ROWS, panel->rows);
  for (int64_t r = first; r < end; r++) {
    NN_CALL_PER_DTYPE(x->dtype, round_row_of, (job, panel, r, job->scratch + worker * job->scratch_step));
  }
  if (first < end) {
    round_missing(job, panel, end);
  }
}

/* The panels of all groups. Returns the rows of the largest. */
static int64_t cut_rows(quant_job *job) {
  const nn_gemm_quant_args *x = job->args;
  int64_t tiles = 0, most = 0;
  for (int64_t g = 0; g < x->groups; g++) {
    const int64_t end = x->offsets == NULL ? x->m : x->offsets[g + 1];
    for (int64_t row = x->offsets == NULL ? 0 : x->offsets[g]; row < end; row += QUANT_PANEL) {
      const int64_t rows = nn_min(QUANT_PANEL, end - row);
      job->panel[job->panels++] = (quant_panel){.row = row, .rows = rows, .group = g, .tile = tiles};
      tiles += nn_ceil_div(rows, QUANT_ROWS);
      most = nn_max(rows, most);
    }
  }
  return most;
}

/* Memory for the activations in each form that the matrices need. */
NN_PLAIN static void lay_out_activations(quant_job *job, int64_t tiles, nn_workspace *w) {
  const nn_gemm_quant_args *x = job->args;
  uint32_t taken = 0; /* forms */
  const size_t rows = (size_t)tiles * QUANT_ROWS, blocks = (size_t)x->k / QUANT_BLOCK;
  for (int32_t i = 0; i < x->matrices; i++) {
    const int32_t form = quant_form_of(x->matrix[i].format);
    quant_activations *acts = &job->activations[form];
    if (taken >> form & 1u) {
      continue;
    }
    taken |= 1u << form;
    if (form == QUANT_FORM_BLOCKS || form == QUANT_FORM_INTERLEAVED) {
      acts->codes = nn_workspace_piece(w, rows * (size_t)quant_row_codes(form, x->k));
      acts->scale = nn_workspace_piece(w, rows * blocks * sizeof(float));
      acts->total = nn_workspace_piece(w, rows * blocks * sizeof(float));
      acts->sums = nn_workspace_piece(w, rows * blocks * 2 * sizeof(int32_t));
    } else {
      acts->values = nn_workspace_piece(w, rows * (size_t)nn_round_up(x->k, QUANT_BLOCK) * sizeof(float));
    }
  }
}

/* Columns of a task: with few rows by the bytes of weights, else by what the sums take. */
NN_PLAIN static int64_t task_columns(const nn_gemm_quant_args *x, int64_t rows) {
  if (rows > QUANT_ROWS) {
    return QUANT_COLUMNS;
  }
  const int64_t bytes = x->matrix[0].row_bytes + (x->combine == NN_QUANT_SWIGLU ? x->matrix[1].row_bytes : 0);
  return nn_round_up(nn_min(QUANT_TASK_BYTES / bytes + 1, QUANT_COLUMNS_MOST), QUANT_ROWS);
}

/* Bytes of a task's sums, when the largest panel has that many rows. */
NN_PLAIN static int64_t sums_bytes(const nn_gemm_quant_args *x, int64_t rows) {
  const int64_t matrices = x->combine == NN_QUANT_SWIGLU ? 2 : 1;
  return nn_round_up(rows, QUANT_ROWS) * task_columns(x, rows) * (int64_t)sizeof(float) * matrices;
}

/* Offsets decide how many tiles there are, and how many rows the largest panel has: for the most that either asks for.
 */
NN_PLAIN static quant_job lay_out(const nn_gemm_quant_args *x, nn_workspace *w) {
  quant_job job = {.args = x, .threads = w->machine->threads};
  const int64_t groups = nn_min(x->groups, x->m), most = nn_min(QUANT_PANEL, x->m);
  int64_t sums = sums_bytes(x, most);
  if (groups > 1 && sums_bytes(x, nn_min(most, QUANT_ROWS)) > sums) {
    sums = sums_bytes(x, nn_min(most, QUANT_ROWS));
  }
  job.panel = nn_workspace_piece(w, (size_t)(x->m / QUANT_PANEL + x->groups) * sizeof *job.panel);
  lay_out_activations(&job, (x->m - groups) / QUANT_ROWS + groups, w);
  const int64_t norm = x->norm == NULL ? 0 : x->k * nn_dtype_bytes(x->dtype); /* a row of it, before there are sums */
  job.scratch_step = nn_round_up(nn_max(norm, sums + quant_work_bytes(x->k)), 4096) + 128;
  job.scratch = nn_workspace_piece(w, (size_t)(job.threads * job.scratch_step));
  return job;
}

static void cut_columns(quant_job *job, int64_t rows) {
  const nn_gemm_quant_args *x = job->args;
  const int32_t gated = x->combine == NN_QUANT_SWIGLU;
  job->columns = task_columns(x, rows);
  job->ld = job->columns;
  for (int32_t i = 0; i < x->matrices; i++) {
    job->chunk[i + 1] = job->chunk[i] + nn_ceil_div(x->matrix[i].n, job->columns);
  }
  job->chunks = job->chunk[gated ? 1 : x->matrices];
}

static int32_t run(nncuda_ctx *ctx, const nn_gemm_quant_args *x) {
  for (int32_t i = 0; i < x->matrices; i++) { /* interleaved rows are found by offsets of 32 bits */
    if (x->matrix[i].row_bytes > INT32_MAX / QUANT_ROWS) {
      return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "a row of weights has %lld bytes; on a CPU it may have up to %d",
                     (long long)x->matrix[i].row_bytes, INT32_MAX / QUANT_ROWS);
    }
  }
  if (x->offsets != NULL) {
    NN_TRY(nn_check_offsets(ctx, x->offsets, x->groups, x->m, "rows"));
  }
  quant_job job = lay_out(x, nn_workspace_of(ctx));
  const int64_t rows = cut_rows(&job);
  if (rows == 0) { /* no group has a row */
    return NNCUDA_SUCCESS;
  }
  cut_columns(&job, rows);
  job.parts = nn_ceil_div(rows, QUANT_ROWS);
  nn_parallel(ctx, job.panels * job.parts, round_task, &job);
  nn_parallel(ctx, job.panels * job.chunks, product_task, &job);
  return NNCUDA_SUCCESS;
}

NN_KERNEL_BY(gemm_quant, run, lay_out)
NN_KERNEL_BY(gemm_quant_qkv, run, lay_out)
NN_KERNEL_BY(gemm_quant_swiglu, run, lay_out)
