#include "abi/generated/rope.h"

#include "checks.h"
#include "span.h"

/* ---- tables ---- */

typedef struct freqs_job {
  nn_rope_freqs_scaled_args a;
  double *frequency; /* [head_dim/2] */
} freqs_job;

NN_TASK_OF(freqs_task, freqs_job, job, row) {
  const int64_t half = job->a.head_dim / 2;
  const double position = (double)(job->a.first + row);
  for (int64_t i = 0; i < half; i++) {
    const double angle = position * job->frequency[i];
    job->a.cosine[row * half + i] = (float)cos(angle);
    job->a.sine[row * half + i] = (float)sin(angle);
  }
}

/* A frequency for each pair of a head. */
NN_PLAIN static double *lay_out_frequencies(int64_t head_dim, nn_workspace *w) {
  return nn_workspace_piece(w, (size_t)(head_dim / 2) * sizeof(double));
}

NN_WORKSPACE(rope_freqs) { lay_out_frequencies(((const nn_rope_freqs_args *)args)->head_dim, w); }

NN_WORKSPACE(rope_freqs_scaled) { lay_out_frequencies(((const nn_rope_freqs_scaled_args *)args)->head_dim, w); }

/* Without a scale and factors nothing is multiplied or divided by: their tables have the bits of those of rope_freqs.
 */
static int32_t make_tables(nncuda_ctx *ctx, nn_rope_freqs_scaled_args a) {
  freqs_job job = {.a = a};
  const double dim = (double)a.head_dim;
  const double base = a.ntk_alpha == 1.0 ? a.base : a.base * pow(a.ntk_alpha, dim / (dim - 2.0));
  for (int64_t i = 0; a.factors != NULL && i < a.head_dim / 2; i++) {
    if (!(a.factors[i] > 0.0f && isfinite(a.factors[i]))) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "factors[%lld] is %g; it must be finite and above 0", (long long)i,
                     (double)a.factors[i]);
    }
  }
  job.frequency = lay_out_frequencies(a.head_dim, nn_workspace_of(ctx));
  for (int64_t i = 0; i < a.head_dim / 2; i++) {
    job.frequency[i] = a.scale * pow(base, -2.0 * (double)i / dim);
    if (a.factors != NULL) {
      job.frequency[i] /= (double)a.factors[i];
    }
  }
  nn_parallel(ctx, a.positions, freqs_task, &job);
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(rope_freqs)(nncuda_ctx *ctx, const void *args) {
  const nn_rope_freqs_args *a = args;
  return make_tables(ctx, (nn_rope_freqs_scaled_args){.cosine = a->cosine,
                                                      .sine = a->sine,
                                                      .first = a->first,
                                                      .positions = a->positions,
                                                      .head_dim = a->head_dim,
                                                      .base = a->base,
                                                      .ntk_alpha = a->ntk_alpha,
                                                      .scale = 1.0});
}

int32_t NN_KERNEL(rope_freqs_scaled)(nncuda_ctx *ctx, const void *args) {
  return make_tables(ctx, *(const nn_rope_freqs_scaled_args *)args);
}

/* ---- rotation ---- */

typedef struct rotate_job {
  nn_rope_forward_args a;
  int64_t block;
  float direction; /* -1 rotates by the opposite angle */
  int32_t stream;
} rotate_job;

/* Pairs (i, i + half) of the head at element x of a->x and y of a->y. */
NN_INLINE void rotate_half(const nn_rope_forward_args *a, int64_t x, int64_t y, int64_t table, vf direction, int64_t i,
                           int64_t lanes, int32_t dtype, int32_t mode) {
  const int64_t half = a->head_dim / 2;
  const vf c = nn_get(a->cosine, table + i, lanes, NNCUDA_F32, mode);
  const vf s = vf_mul(nn_get(a->sine, table + i, lanes, NNCUDA_F32, mode), direction);
  const vf u = nn_get(a->x, x + i, lanes, dtype, mode), v = nn_get(a->x, x + half + i, lanes, dtype, mode);
  nn_put(a->y, y + i, lanes, vf_fma(u, c, vf_sub(vf_set1(0.0f), vf_mul(v, s))), dtype, mode);
  nn_put(a->y, y + half + i, lanes, vf_fma(v, c, vf_mul(u, s)), dtype, mode);
}

/* Pairs (2i, 2i + 1): with w the vector whose pairs are swapped, x * cos + w * (-sin, sin, -sin, ...). */
NN_INLINE void rotate_pairs(const nn_rope_forward_args *a, int64_t x, int64_t y, int64_t table, vf direction, int64_t i,
                            int64_t lanes, int32_t dtype, int32_t mode) {
  float cosine[VF / 2] = {0}, sine[VF / 2] = {0};
  const float *c = a->cosine + table + i / 2, *s = a->sine + table + i / 2;
  if (mode == NN_PART) { /* the tables may end here */
    memcpy(cosine, c, (size_t)(lanes / 2) * sizeof *c);
    memcpy(sine, s, (size_t)(lanes / 2) * sizeof *s);
    c = cosine;
    s = sine;
  }
  const vf u = nn_get(a->x, x + i, lanes, dtype, mode);
  nn_put(a->y, y + i, lanes, vf_fma(u, vf_load_pairs(c), vf_mul(vf_swap_pairs(u), vf_mul(vf_load_pairs(s), direction))),
         dtype, mode);
}

NN_INLINE void rotate_piece(const rotate_job *shared, int64_t piece, int32_t dtype, int32_t layout) {
  const rotate_job job = *shared;
  const nn_rope_forward_args a = job.a;
  const int64_t half = a.head_dim / 2;
  float signs[VF];
  for (int i = 0; i < VF; i++) {
    signs[i] = layout == NNCUDA_ROPE_INTERLEAVED && i % 2 == 0 ? -job.direction : job.direction;
  }
  const vf direction = vf_load(signs);
  int64_t count;
  const int64_t token = nn_first_row(piece, job.block, a.tokens, &count);
  for (int64_t t = token; t < token + count; t++) {
    const int64_t table = a.positions[t] * half;
    for (int64_t h = 0; h < a.heads; h++) {
      const int64_t x = t * a.ld_x + h * a.head_dim, y = t * a.ld_y + h * a.head_dim;
      if (layout == NNCUDA_ROPE_HALF) {
        NN_EACH_VECTOR(0, half, job.stream, 0, rotate_half(&a, x, y, table, direction, i, lanes, dtype, MODE));
      } else {
        NN_EACH_VECTOR(0, a.head_dim, job.stream, 0, rotate_pairs(&a, x, y, table, direction, i, lanes, dtype, MODE));
      }
    }
  }
  if (job.stream) {
    nn_stream_fence();
  }
}

NN_TASK_OF(rotate_task, rotate_job, job, piece) {
  if (job->a.layout == NNCUDA_ROPE_HALF) {
    NN_SWITCH_DTYPE(job->a.dtype, rotate_piece(job, piece, DT, NNCUDA_ROPE_HALF));
  } else {
    NN_SWITCH_DTYPE(job->a.dtype, rotate_piece(job, piece, DT, NNCUDA_ROPE_INTERLEAVED));
  }
}

static void rotate(nncuda_ctx *ctx, nn_rope_forward_args a, float direction) {
  rotate_job job = {.a = a, .block = nn_rows_per_task(a.heads * a.head_dim), .direction = direction};
  /* Streaming stores need vectors that all lie on multiples of their size. */
  const int64_t half = a.head_dim / 2, bytes = nn_dtype_bytes(a.dtype);
  job.stream = a.x != a.y && nn_worth_streaming(a.tokens * a.heads * a.head_dim, a.dtype) && (uintptr_t)a.y % 64 == 0 &&
               a.ld_y * bytes % 64 == 0 && half * bytes % 64 == 0;
  nn_parallel(ctx, nn_ceil_div(a.tokens, job.block), rotate_task, &job);
}

static int32_t rotate_checked(nncuda_ctx *ctx, const nn_rope_forward_args *a, float direction) {
  NN_TRY(nn_check_range(ctx, "positions", a->positions, a->tokens, 0, a->max_position - 1, ""));
  rotate(ctx, *a, direction);
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(rope_forward)(nncuda_ctx *ctx, const void *args) { return rotate_checked(ctx, args, 1.0f); }

int32_t NN_KERNEL(rope_backward)(nncuda_ctx *ctx, const void *args) { return rotate_checked(ctx, args, -1.0f); }

int32_t NN_KERNEL(rope_qk)(nncuda_ctx *ctx, const void *args) {
  const nn_rope_qk_args *a = args;
  nn_rope_forward_args one = {.x = a->q,
                              .cosine = a->cosine,
                              .sine = a->sine,
                              .positions = a->positions,
                              .y = a->q,
                              .tokens = a->tokens,
                              .heads = a->heads,
                              .head_dim = a->head_dim,
                              .max_position = a->max_position,
                              .ld_x = a->ld_q,
                              .ld_y = a->ld_q,
                              .layout = a->layout,
                              .dtype = a->dtype};
  NN_TRY(rotate_checked(ctx, &one, 1.0f));
  one.x = one.y = a->k;
  one.heads = a->kv_heads;
  one.ld_x = one.ld_y = a->ld_k;
  rotate(ctx, one, 1.0f);
  return NNCUDA_SUCCESS;
}
