/* What stands before products with ternary weights: activations in 8 bits, weights from their mean, and their packing.
 */
#include "abi/ternary.h"

#include "rmsnorm_row.h"

#include <string.h>

/* ---- activations in 8 bits ---- */

/* Magnitudes of a row below this count as this: 127 / a stays finite. */
#define LEAST 1e-5f

/* Codes of the first `lanes` lanes, which are -127 .. 127 when rounded, to nearest-even. */
NN_INLINE void put_codes(int8_t *codes, vf x, int64_t lanes) {
#if NN_SIMD_AVX512
  _mm_mask_storeu_epi8(codes, vf_mask(lanes), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
#else
  float lane[VF];
  vf_store(lane, vf_round(x));
  for (int64_t i = 0; i < lanes; i++) {
    codes[i] = (int8_t)(int32_t)lane[i];
  }
#endif
}

/* The largest magnitude of a row; NaN if an element is not finite. */
NN_INLINE float largest_of(const void *x, int64_t at, int64_t cols, int32_t dtype) {
  const vf zero = vf_set1(0.0f);
  vf most[NN_GROUP], odd[NN_GROUP]; /* x - x is NaN where x is not finite, else zero */
  for (int g = 0; g < NN_GROUP; g++) {
    most[g] = odd[g] = zero;
  }
  int64_t i = 0;
  for (; i + NN_GROUP * VF <= cols; i += NN_GROUP * VF) {
    for (int g = 0; g < NN_GROUP; g++) {
      const vf v = vf_load_as(x, at + i + g * VF, dtype);
      most[g] = vf_max(vf_max(v, vf_sub(zero, v)), most[g]);
      odd[g] = vf_add(odd[g], vf_sub(v, v));
    }
  }
  for (int g = 0; i < cols; i += VF, g++) {
    const vf v = vf_load_part_as(x, at + i, nn_min(cols - i, VF), dtype);
    most[g] = vf_max(vf_max(v, vf_sub(zero, v)), most[g]);
    odd[g] = vf_add(odd[g], vf_sub(v, v));
  }
  const float none = nn_group_sum(odd);
  return none == none ? vf_maximum(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3]))) : none;
}

/* `cols` elements from element `at` of x as codes; returns their scale. */
NN_INLINE float quantize_row(const void *x, int64_t at, int8_t *codes, int64_t cols, int32_t dtype) {
  const float most = largest_of(x, at, cols, dtype), a = most < LEAST ? LEAST : most;
  if (!(a < INFINITY)) {
    memset(codes, 0, (size_t)cols);
    return NAN;
  }
  const vf inverse = vf_set1(127.0f / a);
  NN_EACH_VECTOR(0, cols, 0, 0, put_codes(codes + i, vf_mul(nn_get(x, at + i, lanes, dtype, MODE), inverse), lanes));
  return a / 127.0f;
}

NN_INLINE void act_quant_rows(const nn_act_quant_i8_args *a, int64_t task, int32_t dtype) {
  int64_t count;
  const int64_t first = nn_first_row(task, nn_rows_per_task(a->cols), a->rows, &count);
  for (int64_t r = first; r < first + count; r++) {
    a->scale[r] = quantize_row(a->x, r * a->cols, a->codes + r * a->cols, a->cols, dtype);
  }
}

NN_TASK(act_quant_task, nn_act_quant_i8_args, NN_SWITCH_DTYPE(job->dtype, act_quant_rows(job, task, DT)))

int32_t NN_KERNEL(act_quant_i8)(nncuda_ctx *ctx, const void *args) {
  nn_act_quant_i8_args a = *(const nn_act_quant_i8_args *)args;
  nn_parallel(ctx, nn_ceil_div(a.rows, nn_rows_per_task(a.cols)), act_quant_task, &a);
  return NNCUDA_SUCCESS;
}

typedef struct norm_job {
  const nn_rmsnorm_quant_i8_args *args;
  char *row; /* the norm of a row, rounded, for each worker */
  int64_t row_step;
} norm_job;

NN_INLINE void norm_rows(const norm_job *job, int64_t task, int32_t worker, int32_t dtype) {
  const nn_rmsnorm_quant_i8_args *a = job->args;
  void *row = job->row + worker * job->row_step;
  int64_t count;
  const int64_t first = nn_first_row(task, nn_rows_per_task(a->cols), a->rows, &count), cols = a->cols;
  for (int64_t r = first; r < first + count; r++) {
    const vf factor = vf_set1(nn_rstd(a->x, r * cols, cols, a->eps, dtype));
    NN_EACH_VECTOR(
        0, cols, 0, 0,
        nn_put(row, i, lanes, nn_norm_vector(a->x, a->weight, factor, r * cols, i, lanes, dtype, MODE), dtype, MODE));
    a->scale[r] = quantize_row(row, 0, a->codes + r * cols, cols, dtype);
  }
}

NN_TASK(norm_task, norm_job, NN_SWITCH_DTYPE(job->args->dtype, norm_rows(job, task, worker, DT)))

NN_PLAIN static norm_job norm_lay_out(const nn_rmsnorm_quant_i8_args *a, nn_workspace *w) {
  norm_job job = {.args = a, .row_step = (a->cols * nn_dtype_bytes(a->dtype) + 127) / 64 * 64};
  job.row = nn_workspace_piece(w, (size_t)(w->machine->threads * job.row_step));
  return job;
}

NN_WORKSPACE(rmsnorm_quant_i8) { norm_lay_out(args, w); }

int32_t NN_KERNEL(rmsnorm_quant_i8)(nncuda_ctx *ctx, const void *args) {
  norm_job job = norm_lay_out(args, nn_workspace_of(ctx));
  nn_parallel(ctx, nn_ceil_div(job.args->rows, nn_rows_per_task(job.args->cols)), norm_task, &job);
  return NNCUDA_SUCCESS;
}

/* ---- ternary weights from their mean ---- */

/* Columns that are summed apart, as the header says. */
enum { SUMS = 16 };

typedef struct mean_job {
  const nn_ternary_quantize_args *args;
  double *total; /* of each row's magnitudes; NaN if one is not finite */
  float inverse;
} mean_job;

NN_INLINE void total_rows(const mean_job *job, int64_t task, int32_t dtype) {
  const nn_ternary_quantize_args *a = job->args;
  int64_t count;
  const int64_t first = nn_first_row(task, nn_rows_per_task(a->k), a->n, &count);
  for (int64_t r = first; r < first + count; r++) {
    double sum[SUMS] = {0.0};
    vf odd = vf_set1(0.0f); /* x - x is NaN where x is not finite, else zero */
    for (int64_t i = 0; i < a->k; i += SUMS) {
      float x[SUMS] = {0.0f};
      for (int64_t j = 0; j < SUMS && i + j < a->k; j += VF) {
        const int64_t at = r * a->k + i + j, left = a->k - i - j;
        const vf v = vf_load_upto_as(a->x, at, left, dtype);
        odd = vf_add(odd, vf_sub(v, v));
        vf_store(x + j, v);
      }
      for (int j = 0; j < SUMS; j++) {
        sum[j] += (double)fabsf(x[j]);
      }
    }
    for (int width = SUMS / 2; width > 0; width /= 2) {
      for (int j = 0; j < width; j++) {
        sum[j] += sum[j + width];
      }
    }
    job->total[r] = sum[0] + (double)vf_sum(odd);
  }
}

NN_INLINE void round_rows(const mean_job *job, int64_t task, int32_t dtype) {
  const nn_ternary_quantize_args *a = job->args;
  int64_t count;
  const int64_t first = nn_first_row(task, nn_rows_per_task(a->k), a->n, &count);
  const vf inverse = vf_set1(job->inverse), one = vf_set1(1.0f), minus = vf_set1(-1.0f);
  NN_EACH_VECTOR(
      first * a->k, (first + count) * a->k, 0, 0,
      put_codes(a->codes + i, vf_max(vf_min(vf_mul(nn_get(a->x, i, lanes, dtype, MODE), inverse), one), minus), lanes));
}

NN_TASK(total_task, mean_job, NN_SWITCH_DTYPE(job->args->dtype, total_rows(job, task, DT)))

NN_TASK(round_task, mean_job, NN_SWITCH_DTYPE(job->args->dtype, round_rows(job, task, DT)))

NN_PLAIN static mean_job mean_lay_out(const nn_ternary_quantize_args *a, nn_workspace *w) {
  return (mean_job){.args = a, .total = nn_workspace_piece(w, (size_t)a->n * sizeof(double))};
}

NN_WORKSPACE(ternary_quantize) { mean_lay_out(args, w); }

int32_t NN_KERNEL(ternary_quantize)(nncuda_ctx *ctx, const void *args) {
  const nn_ternary_quantize_args *a = args;
  mean_job job = mean_lay_out(a, nn_workspace_of(ctx));
  const int64_t block = nn_rows_per_task(a->k), tasks = nn_ceil_div(a->n, block);
  nn_parallel(ctx, tasks, total_task, &job);
  double total = 0.0;
  for (int64_t r = 0; r < a->n; r++) {
    if (!(job.total[r] < (double)INFINITY)) {
      int64_t i = r * a->k;
      while (isfinite(nn_load_as(a->x, i, a->dtype))) {
        i++;
      }
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "x[%lld] is %g; it must be finite", (long long)i,
                     (double)nn_load_as(a->x, i, a->dtype));
    }
    total += job.total[r];
  }
  const float mean = (float)(total / ((double)a->n * (double)a->k)), s = mean < LEAST ? LEAST : mean;
  job.inverse = 1.0f / s;
  nn_parallel(ctx, tasks, round_task, &job);
  *a->scale = s;
  return NNCUDA_SUCCESS;
}

/* ---- packing ---- */

enum { ROWS = NN_TERNARY_ROWS, COLUMNS = NN_TERNARY_COLUMNS };

/* Codes between the packed and the plain form, sixteen rows a task. */
typedef struct pack_job {
  const int8_t *codes;
  uint8_t *w;
  int8_t *out;
  int64_t *bad; /* of each task: the first element that is not a code, or -1 */
  int64_t n, k, row_bytes;
} pack_job;

NN_TASK_OF(check_codes_task, pack_job, job, task) {
  const int64_t begin = task * ROWS * job->k, rest = (job->n - task * ROWS) * job->k;
  const int64_t count = nn_min(rest, ROWS * job->k);
  uint8_t wrong = 0;
  for (int64_t i = begin; i < begin + count; i++) {
    wrong |= (uint8_t)(job->codes[i] + 1) > 2;
  }
  job->bad[task] = -1;
  for (int64_t i = begin; wrong && i < begin + count; i++) {
    if ((uint8_t)(job->codes[i] + 1) > 2) {
      job->bad[task] = i;
      break;
    }
  }
}

/* Codes of a step of a row as a word. Four at a time: of -1, 0 and 1 the lower two bits are 3, 0 and 1, and with 1
 * added no byte reaches into the next. */
NN_INLINE uint32_t pack_word(const int8_t code[COLUMNS]) {
  const uint32_t bits = 0x03030303u, ones = 0x01010101u;
  uint32_t four[COLUMNS / 4], word = 0;
  memcpy(four, code, sizeof four);
  for (int i = 0; i < COLUMNS / 4; i++) {
    word |= (((four[i] & bits) + ones) & bits) << (2 * i);
  }
  return word;
}

NN_TASK_OF(pack_task, pack_job, job, task) {
  for (int64_t r = 0; r < ROWS; r++) {
    const int64_t row = task * ROWS + r;
    uint8_t *w = job->w + task * ROWS * job->row_bytes + r * 4;
    for (int64_t c = 0; c < job->row_bytes / 4 * COLUMNS; c += COLUMNS, w += ROWS * 4) {
      uint32_t word;
      if (row < job->n && c + COLUMNS <= job->k) {
        word = pack_word(job->codes + row * job->k + c);
      } else {
        int8_t code[COLUMNS] = {0};
        if (row < job->n) {
          memcpy(code, job->codes + row * job->k + c, (size_t)(job->k - c));
        }
        word = pack_word(code);
      }
      memcpy(w, &word, sizeof word);
    }
  }
}

/* The code of column c of the packed row whose first word is at w. */
NN_INLINE int8_t code_of(const uint8_t *w, int64_t c) {
  return (int8_t)((w[c / COLUMNS * (ROWS * 4) + c % 4] >> (c % COLUMNS / 4 * 2) & 3) - 1);
}

NN_TASK_OF(check_bits_task, pack_job, job, task) {
  job->bad[task] = -1;
  for (int64_t r = 0; r < ROWS && task * ROWS + r < job->n && job->bad[task] < 0; r++) {
    const uint8_t *w = job->w + task * ROWS * job->row_bytes + r * 4;
    uint32_t wrong = 0;
    for (int64_t b = 0; b < job->row_bytes / 4; b++) {
      uint32_t word;
      memcpy(&word, w + b * (ROWS * 4), sizeof word);
      wrong |= word & word >> 1 & 0x55555555u;
    }
    for (int64_t c = 0; wrong && job->bad[task] < 0 && c < job->k; c++) {
      if (code_of(w, c) > 1) {
        job->bad[task] = (task * ROWS + r) * job->k + c;
      }
    }
  }
}

NN_TASK_OF(unpack_task, pack_job, job, task) {
  for (int64_t r = 0; r < ROWS && task * ROWS + r < job->n; r++) {
    const uint8_t *w = job->w + task * ROWS * job->row_bytes + r * 4;
    int8_t *codes = job->out + (task * ROWS + r) * job->k;
    for (int64_t c = 0; c < job->k; c += COLUMNS, w += ROWS * 4) {
      int8_t code[COLUMNS];
      for (int i = 0; i < COLUMNS; i++) {
        code[i] = code_of(w, i);
      }
      memcpy(codes + c, code, (size_t)nn_min(job->k - c, COLUMNS));
    }
  }
}

/* Room for what the tasks find, each in a panel of rows. */
NN_PLAIN static int64_t *lay_out_bad(int64_t stored, nn_workspace *w) {
  return nn_workspace_piece(w, (size_t)(stored / ROWS) * sizeof(int64_t));
}

NN_WORKSPACE(ternary_pack) { lay_out_bad(((const nn_ternary_pack_args *)args)->stored, w); }

NN_WORKSPACE(ternary_unpack) { lay_out_bad(((const nn_ternary_unpack_args *)args)->stored, w); }

/* Fails the call for the first element that is not a code: one of `codes`, or packed, where it can only be 2. */
static int32_t refuse_bad(nncuda_ctx *ctx, const int64_t *bad, int64_t tasks, const int8_t *codes) {
  for (int64_t t = 0; t < tasks; t++) {
    if (bad[t] >= 0) {
      return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "codes[%lld] is %d; it must be -1 to 1", (long long)bad[t],
                     codes != NULL ? codes[bad[t]] : 2);
    }
  }
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(ternary_pack)(nncuda_ctx *ctx, const void *args) {
  const nn_ternary_pack_args *a = args;
  const int64_t tasks = a->stored / ROWS;
  pack_job job = {.codes = a->codes, .w = a->w, .n = a->n, .k = a->k, .row_bytes = a->row_bytes};
  job.bad = lay_out_bad(a->stored, nn_workspace_of(ctx));
  nn_parallel(ctx, tasks, check_codes_task, &job);
  NN_TRY(refuse_bad(ctx, job.bad, tasks, a->codes));
  nn_parallel(ctx, tasks, pack_task, &job);
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(ternary_unpack)(nncuda_ctx *ctx, const void *args) {
  const nn_ternary_unpack_args *a = args;
  const int64_t tasks = a->stored / ROWS;
  pack_job job = {.w = (uint8_t *)(uintptr_t)a->w, .out = a->codes, .n = a->n, .k = a->k, .row_bytes = a->row_bytes};
  job.bad = lay_out_bad(a->stored, nn_workspace_of(ctx));
  nn_parallel(ctx, tasks, check_bits_task, &job);
  NN_TRY(refuse_bad(ctx, job.bad, tasks, NULL));
  nn_parallel(ctx, tasks, unpack_task, &job);
  return NNCUDA_SUCCESS;
}
