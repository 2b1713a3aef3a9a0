/*
 * Grouped products with factors in 8 bits. Both factors are rounded, block by block, and then multiplied by
 * grouped_gemm in bf16, which holds the rounded numbers exactly: so here the results are those of grouped_gemm for
 * them, to the bit, with the tiles and instructions that the context has for bf16.
 */
#include "abi/gemm_fp8.h"

#include "checks.h"
#include "e4m3.h"
#include "numbers/fp8_blocks.h"
#include "span.h"

/* A factor of numbers in rows, and where it goes in bf16. */
typedef struct factor {
  const void *from;
  void *to;
  const int32_t *offsets; /* of the groups of rows, where blocks begin anew with them */
  int64_t groups, rows, cols;
  int32_t dtype;
} factor;

/* Patterns without their signs; 0 of what is not finite, which no scale is made for. */
NN_INLINE vw sizes_of(vf x) {
  const vw size = vw_and(vf_words(x), vw_set1(0x7fffffffu));
  return vw_and(size, vw_above(vw_set1(NN_FP8_INFINITE), size));
}

/* The numbers as they are in 8 bits, `down` times as large, and back. */
NN_INLINE vf rounded(vf x, vf down, vf up) {
  const vf scaled = vf_mul(x, down);
  const vw size = vw_and(vf_words(scaled), vw_set1(0x7fffffffu));
  const vw beyond = vw_above(size, vf_words(vf_set1(NN_FP8_LARGEST)));
  return vf_mul(e4m3_decoded(vw_select(beyond, vw_set1(NN_E4M3_NAN), e4m3_encoded(scaled))), up);
}

/* A block with one scale: `rows` by `cols`, from element `at` on. */
NN_INLINE void round_block(const factor *f, int64_t at, int64_t rows, int64_t cols, int32_t dtype) {
  vw most = vw_set1(0);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < cols; c += VF) {
      most = vw_max(most, sizes_of(vf_load_upto_as(f->from, at + r * f->cols + c, cols - c, dtype)));
    }
  }
  const int32_t exponent = nn_fp8_exponent(vw_largest(most));
  const vf down = vf_set1(nn_fp8_power(-exponent)), up = vf_set1(nn_fp8_power(exponent));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < cols; c += VF) {
      const int64_t i = at + r * f->cols + c;
      const vf x = vf_load_upto_as(f->from, i, cols - c, dtype);
      vf_store_upto_as(f->to, i, cols - c, rounded(x, down, up), NNCUDA_BF16);
    }
  }
}

/* A block whose columns have a scale each. */
NN_INLINE void round_columns(const factor *f, int64_t at, int64_t rows, int64_t cols, int32_t dtype) {
  uint32_t most[NN_FP8_BLOCK] = {0};
  float down[NN_FP8_BLOCK], up[NN_FP8_BLOCK];
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < cols; c += VF) {
      const vw sizes = sizes_of(vf_load_upto_as(f->from, at + r * f->cols + c, cols - c, dtype));
      vw_store(most + c, vw_max(vw_load(most + c), sizes));
    }
  }
  for (int64_t c = 0; c < NN_FP8_BLOCK; c++) {
    const int32_t exponent = nn_fp8_exponent(most[c]);
    down[c] = nn_fp8_power(-exponent);
    up[c] = nn_fp8_power(exponent);
  }
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < cols; c += VF) {
      const int64_t i = at + r * f->cols + c;
      const vf x = vf_load_upto_as(f->from, i, cols - c, dtype);
      vf_store_upto_as(f->to, i, cols - c, rounded(x, vf_load(down + c), vf_load(up + c)), NNCUDA_BF16);
    }
  }
}

/* ---- rows in blocks of 128 columns ---- */

NN_PER_DTYPE(round_row, (const factor *f, int64_t row), {
  for (int64_t c = 0; c < f->cols; c += NN_FP8_BLOCK) {
    round_block(f, row * f->cols + c, 1, nn_min(NN_FP8_BLOCK, f->cols - c), DT);
  }
})

NN_TASK_OF(rows_task, factor, f, i) {
  int64_t count;
  const int64_t first = nn_first_row(i, nn_rows_per_task(f->cols), f->rows, &count);
  for (int64_t row = first; row < first + count; row++) {
    NN_CALL_PER_DTYPE(f->dtype, round_row, (f, row));
  }
}

static void round_rows(nncuda_ctx *ctx, factor f) {
  nn_parallel(ctx, nn_ceil_div(f.rows, nn_rows_per_task(f.cols)), rows_task, &f);
}

/* ---- matrices in blocks of 128 x 128 ---- */

NN_PER_DTYPE(round_band, (const factor *f, int64_t row, int64_t rows), {
  for (int64_t c = 0; c < f->cols; c += NN_FP8_BLOCK) {
    round_block(f, row * f->cols + c, rows, nn_min(NN_FP8_BLOCK, f->cols - c), DT);
  }
})

NN_TASK_OF(matrices_task, factor, f, i) {
  const int64_t bands = nn_ceil_div(f->rows, NN_FP8_BLOCK), matrix = i / bands, row = i % bands * NN_FP8_BLOCK;
  NN_CALL_PER_DTYPE(f->dtype, round_band, (f, matrix * f->rows + row, nn_min(NN_FP8_BLOCK, f->rows - row)));
}

static void round_matrices(nncuda_ctx *ctx, factor f) {
  nn_parallel(ctx, f.groups * nn_ceil_div(f.rows, NN_FP8_BLOCK), matrices_task, &f);
}

/* ---- columns in blocks of 128 rows of a group ---- */

NN_PER_DTYPE(round_column_band, (const factor *f, int64_t row, int64_t rows), {
  for (int64_t c = 0; c < f->cols; c += NN_FP8_BLOCK) {
    round_columns(f, row * f->cols + c, rows, nn_min(NN_FP8_BLOCK, f->cols - c), DT);
  }
})

NN_TASK_OF(columns_task, factor, f, i) {
  int64_t group = 0;
  while (group + 1 < f->groups && nn_fp8_first_block(f->offsets[group + 1], group + 1) <= i) {
    group++;
  }
  const int64_t first = f->offsets[group], block = i - nn_fp8_first_block(first, group);
  const int64_t row = first + block * NN_FP8_BLOCK, rows = nn_min(NN_FP8_BLOCK, f->offsets[group + 1] - row);
  if (rows > 0) {
    NN_CALL_PER_DTYPE(f->dtype, round_column_band, (f, row, rows));
  }
}

static void round_groups(nncuda_ctx *ctx, factor f) {
  nn_parallel(ctx, nn_fp8_first_block(f.offsets[f.groups], f.groups), columns_task, &f);
}

/* ---- grouped_gemm_fp8 ---- */

NN_PLAIN static nn_gemm_args products_lay_out(const nn_grouped_gemm_fp8_args *a, nn_workspace *w) {
  void *const rounded_a = nn_workspace_piece(w, (size_t)(a->rows * a->k) * sizeof(uint16_t));
  void *const rounded_b = nn_workspace_piece(w, (size_t)(a->groups * a->k * a->n) * sizeof(uint16_t));
  return nn_fp8_products(a, rounded_a, rounded_b);
}

NN_WORKSPACE(grouped_gemm_fp8) {
  const nn_gemm_args products = products_lay_out(args, w);
  nn_part_lay_out(NN_OP_grouped_gemm, &products, w);
}

int32_t NN_KERNEL(grouped_gemm_fp8)(nncuda_ctx *ctx, const void *args) {
  const nn_grouped_gemm_fp8_args *a = args;
  const nn_gemm_args x = products_lay_out(a, nn_workspace_of(ctx));
  NN_TRY(nn_check_offsets(ctx, a->offsets, a->groups, a->rows, "rows"));
  round_rows(
      ctx,
      (factor){
          .from = a->a, .to = (void *)(uintptr_t)x.a, .rows = a->offsets[a->groups], .cols = a->k, .dtype = a->dtype});
  round_matrices(ctx, (factor){.from = a->b,
                               .to = (void *)(uintptr_t)x.b,
                               .groups = a->groups,
                               .rows = a->trans_b ? a->n : a->k,
                               .cols = x.ldb,
                               .dtype = a->dtype});
  return nn_part_run(ctx, NN_OP_grouped_gemm, &x);
}

/* ---- grouped_gemm_wgrad_fp8 ---- */

NN_PLAIN static nn_gemm_args weight_products_lay_out(const nn_grouped_gemm_wgrad_fp8_args *a, nn_workspace *w) {
  void *const rounded_a = nn_workspace_piece(w, (size_t)(a->rows * a->m) * sizeof(uint16_t));
  void *const rounded_b = nn_workspace_piece(w, (size_t)(a->rows * a->n) * sizeof(uint16_t));
  return nn_fp8_weight_products(a, rounded_a, rounded_b);
}

NN_WORKSPACE(grouped_gemm_wgrad_fp8) {
  const nn_gemm_args products = weight_products_lay_out(args, w);
  nn_part_lay_out(NN_OP_grouped_gemm_wgrad, &products, w);
}

int32_t NN_KERNEL(grouped_gemm_wgrad_fp8)(nncuda_ctx *ctx, const void *args) {
  const nn_grouped_gemm_wgrad_fp8_args *a = args;
  const nn_gemm_args x = weight_products_lay_out(a, nn_workspace_of(ctx));
  NN_TRY(nn_check_offsets(ctx, a->offsets, a->groups, a->rows, "rows"));
  factor f = {.from = a->a,
              .to = (void *)(uintptr_t)x.a,
              .offsets = a->offsets,
              .groups = a->groups,
              .cols = a->m,
              .dtype = a->dtype};
  round_groups(ctx, f);
  f.from = a->b;
  f.to = (void *)(uintptr_t)x.b;
  f.cols = a->n;
  round_groups(ctx, f);
  return nn_part_run(ctx, NN_OP_grouped_gemm_wgrad, &x);
}
